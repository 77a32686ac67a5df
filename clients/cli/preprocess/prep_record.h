/* What is known about a file of the inbox: OUTBOX/NAME.manifest.json where it was published,
 * QUARANTINE/NAME.report.json where it was refused. JSON, written whole or not at all, read again
 * to see whether there is anything to do. */
#ifndef TRAJD_CLI_PREPROCESS_PREP_RECORD_H
#define TRAJD_CLI_PREPROCESS_PREP_RECORD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "clients/cli/preprocess/prep_digest.h"
#include "proto/error.h"

/* A file as stat and its content show it. */
struct prep_identity {
    uint64_t size_bytes;
    int64_t mtime_ns;
    char sha256[PREP_DIGEST_SIZE]; /* "": not known */
};

struct prep_record {
    bool is_refused;
    struct prep_identity source, output; /* output: of what was published */
    char recipe[PREP_DIGEST_SIZE];
    /* Only written: */
    const char *name;   /* below the inbox */
    const char *reason; /* why it was refused */
    const char *layout;
    double rate_hz;
    uint64_t episodes, left_out, cut; /* of the output; of the source that gave none, or parts */
    uint64_t finding_count;
    const char *findings, *notes; /* inside of JSON arrays; may be NULL */
};

void prep_record_write(const struct prep_record *record, FILE *out);
/* TRAJD_ERR_ARGUMENT: it is no such document. */
enum trajd_status prep_record_parse(const char *path, const char *text, size_t length,
                                    struct prep_record *record, struct trajd_error *error);
/* TRAJD_ERR_NOT_FOUND: there is none. */
enum trajd_status prep_record_load(const char *path, struct prep_record *record,
                                   struct trajd_error *error);
/* The source of the record has another time of modification by now. */
enum trajd_status prep_record_retime(const char *path, int64_t before_ns, int64_t after_ns,
                                     struct trajd_error *error);

#endif
