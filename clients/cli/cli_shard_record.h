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

/* A line about one source. Without outputs: it was begun and not finished, or a later line counts. */
struct shard_entry {
    struct shard_entry *next;
    char *text;
    struct prep_record record;
};

struct shard_record {
    uint32_t index, count;          /* shard `index` of `count` */
    char *recipe;                   /* NULL: not even the first line is there */
    uint64_t file_count, own_count; /* of the whole list; of this shard */
    char list[PREP_DIGEST_SIZE];    /* digest of the names of the whole list; "": of an inbox */
    size_t size_bytes;              /* of the lines that are complete */
    uint64_t published_count;
    struct shard_entry *entries; /* the last one first */
    void *tree;                  /* of tsearch: the last entry of each source */
};

enum { SHARD_NAME_SIZE = 64 };

void shard_record_name(uint32_t index, uint32_t count, char name[SHARD_NAME_SIZE]);
/* Finds the records in a folder, and other files that look like them. Ends the program after an
 * error, as the functions below do. */
struct trajd_file_list shard_record_list(const char *folder);
/* Reads a record, or its first line only. Returns false if the name is not that of a record, or if
 * not even the first line is there. */
bool shard_record_load(const char *folder, const char *name, bool with_entries,
                       struct shard_record *record);
void shard_record_clear(struct shard_record *record);
/* Returns the first line, which the caller frees. */
char *shard_record_head(const struct shard_record *record);
/* Returns the last entry of that source, or NULL. */
const struct shard_entry *shard_record_find(const struct shard_record *record, const char *name);
/* Refuses two records that do not belong to one run: with another number of shards, recipe or list.
 * The message names both. */
void shard_record_compare(const char *folder, const struct shard_record *a,
                          const struct shard_record *b);

#endif
