/* The record of a shard, OUTPUTS/shard-2-of-8.jsonl: what one of N runs over a list of files was
 * told, and what it has made. Its lines are JSON:
 *
 *     {"version":1,"shard":2,"shards":8,"recipe":"...","files":96,"list":"..."}
 *     {"begin":"a.hdf5"}                 before the first byte of that output
 *     {"version":1,"state":"published",  the manifest of that output, as of trajctl preprocess
 *     {"end":12}                         all files of the shard are made
 *
 * A line counts when it is complete. Of several lines about one file the last one counts. */
#ifndef TRAJD_CLI_SHARD_RECORD_H
#define TRAJD_CLI_SHARD_RECORD_H

#include "clients/cli/preprocess/prep_record.h"

/* One output, by its name relative to the folder. */
struct shard_entry {
    char *name;
    char *text;                /* its manifest; NULL: it was begun and not finished */
    struct prep_record record; /* the parsed manifest */
    uint32_t line;
};

struct shard_record {
    uint32_t index, count; /* shard `index` of `count` */
    char *recipe;
    uint64_t file_count;         /* of the whole list */
    char list[PREP_DIGEST_SIZE]; /* digest of the names of the whole list; "": of an inbox */
    bool is_finished;
    uint32_t entry_count;
    struct shard_entry *entries; /* in natural order of their names */
};

enum trajd_status shard_record_path(char path[PREP_PATH_SIZE], const char *folder, uint32_t index,
                                    uint32_t count, struct trajd_error *error);
/* Reads "shard-2-of-8.jsonl". Returns whether the name is that of a record. */
bool shard_record_parse_name(const char *name, uint32_t *index, uint32_t *count);
/* Reads a record, which the caller clears in any case. TRAJD_ERR_NOT_FOUND: there is none.
 * TRAJD_ERR_ARGUMENT: it is not the record of that shard. */
enum trajd_status shard_record_load(const char *folder, uint32_t index, uint32_t count,
                                    struct shard_record *record, struct trajd_error *error);
void shard_record_clear(struct shard_record *record);
void shard_record_write_head(const struct shard_record *record, FILE *out);
/* Returns the entry of that name, or NULL. */
const struct shard_entry *shard_record_find(const struct shard_record *record, const char *name);
/* Checks that both records belong to one run: the same number of shards, recipe and list.
 * TRAJD_ERR_ARGUMENT names both. */
enum trajd_status shard_record_compare(const char *folder, const struct shard_record *a,
                                       const struct shard_record *b, struct trajd_error *error);

#endif
