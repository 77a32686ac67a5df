/* The record of a file of the inbox: OUTBOX/NAME.manifest.json if it was published,
 * QUARANTINE/NAME.report.json if it was refused. It is JSON, written completely or not at all. The
 * next run reads it to decide whether there is work to do. */
#ifndef TRAJD_CLI_PREPROCESS_PREP_RECORD_H
#define TRAJD_CLI_PREPROCESS_PREP_RECORD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include "clients/cli/preprocess/prep_place.h"
#include "daemon/index/index.h"
#include "proto/error.h"

/* The identity of a file, from stat and its content. */
struct prep_identity {
    uint64_t size_bytes;
    int64_t mtime_ns;
    int64_t ctime_ns;              /* of a source; 0: unknown, as in records of 0.1.0 */
    char sha256[PREP_DIGEST_SIZE]; /* "": unknown */
};

static inline int64_t prep_ctime_ns(const struct stat *stat)
{
    return stat->st_ctim.tv_sec * INT64_C(1000000000) + stat->st_ctim.tv_nsec;
}
static inline int64_t prep_mtime_ns(const struct stat *stat)
{
    return stat->st_mtim.tv_sec * INT64_C(1000000000) + stat->st_mtim.tv_nsec;
}

/* A published file, by its name relative to the outbox. */
struct prep_output {
    const char *name;
    struct prep_identity identity;
};

struct prep_record {
    bool is_refused;
    struct prep_identity source;
    /* of a published file: one, or the files of its episode's parts. A record that is not refused and
     * has none is of a file that was begun, in the record of a shard (cli_shard_record.h) */
    uint32_t output_count;
    struct prep_output *outputs;
    char recipe[PREP_DIGEST_SIZE];
    /* relative to the inbox; NULL if no file was published. prep_record_clear frees both */
    const char *name, *layout;
    uint64_t episodes, left_out; /* of the output; source episodes without output */
    /* The members below are only written: */
    const char *reason; /* why it was refused */
    double rate_hz;
    struct trajd_index_rates rates; /* of the source */
    uint64_t cut;                   /* source episodes that were split */
    uint64_t finding_count;
    const char *findings, *notes; /* elements of JSON arrays; may be NULL */
};

void prep_record_write(const struct prep_record *record, FILE *out);
/* Parses a record, which the caller clears in any case. TRAJD_ERR_ARGUMENT: the text is not a
 * record. */
enum trajd_status prep_record_parse(const char *path, const char *text, size_t length,
                                    struct prep_record *record, struct trajd_error *error);
/* Reads a record, which the caller clears in any case. TRAJD_ERR_NOT_FOUND: there is none.
 * TRAJD_ERR_ARGUMENT: it is not a record, or not a file of this user. */
enum trajd_status prep_record_load(const char *path, struct prep_record *record,
                                   struct trajd_error *error);
/* Frees the names, the layout and the outputs. */
void prep_record_clear(struct prep_record *record);
/* Changes the source's times in the record. */
enum trajd_status prep_record_retime(const char *path, const struct prep_identity *before,
                                     const struct prep_identity *after, struct trajd_error *error);
/* Finds size and time of a file, and its digest too if `with_digest`. TRAJD_ERR_IO;
 * TRAJD_ERR_ARGUMENT: it is not a regular file. `error` may be NULL. */
enum trajd_status prep_identify(const char *path, bool with_digest, struct prep_identity *identity,
                                struct trajd_error *error);
/* Returns whether all outputs of the record are in the folder as they were made: with the same size
 * and time. Where only the time differs, as in a folder that was copied, the content decides. */
bool prep_record_has_outputs(const struct prep_record *record, const char *folder);

#endif
