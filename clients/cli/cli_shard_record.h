/* The record of a shard, OUTPUTS/shard-2-of-8.jsonl: what one of N runs over a list of files was
 * told, and what it has made. Its lines are JSON:
 *
 *     {"version":1,"shard":2,"shards":8,"recipe":"...","files":96,"own":12,"list":"..."}
 *     {"version":1,"state":"begun",      before the first byte of an output
 *     {"version":1,"state":"published",  the manifest of that output, as of trajctl preprocess
 *
 * A line counts when it is complete. Of several lines about one source the last one counts. The shard
 * is finished when `own` of its files are published. */
#ifndef TRAJD_CLI_SHARD_RECORD_H
#define TRAJD_CLI_SHARD_RECORD_H

#include "clients/cli/preprocess/prep_record.h"
#include "daemon/layout/glob.h"

/* The last line about one source. */
struct shard_entry {
    char *text;
    struct prep_record record; /* without outputs: it was begun and not finished */
    uint32_t line;
};

struct shard_record {
    uint32_t index, count;           /* shard `index` of `count` */
    char *recipe;                    /* NULL: not even the first line is there */
    uint64_t file_count, own_count;  /* of the whole list; of this shard */
    char list[PREP_DIGEST_SIZE];     /* digest of the names of the whole list; "": of an inbox */
    size_t size_bytes;               /* of the lines that are complete */
    uint32_t entry_count;
    struct shard_entry *entries; /* in natural order of the sources' names */
};

/* All of them end the program after an error. */

void shard_record_path(char path[PREP_PATH_SIZE], const char *folder, uint32_t index,
                       uint32_t count);
/* Finds the next record in a list of names, from *at on. Returns whether there is one. */
bool shard_record_next(const struct trajd_file_list *list, uint32_t *at, uint32_t *index,
                       uint32_t *count);
/* Reads a record, or its first line only. */
struct shard_record shard_record_load(const char *folder, uint32_t index, uint32_t count,
                                      bool with_entries);
void shard_record_clear(struct shard_record *record);
/* Returns the first line, which the caller frees. */
char *shard_record_head(const struct shard_record *record);
/* Returns the entry of that source, or NULL. */
const struct shard_entry *shard_record_find(const struct shard_record *record, const char *name);
bool shard_record_is_finished(const struct shard_record *record);
/* Refuses two records that do not belong to one run: with another number of shards, recipe or list.
 * The message names both. */
void shard_record_compare(const char *folder, const struct shard_record *a,
                          const struct shard_record *b);

#endif
