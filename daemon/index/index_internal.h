/* What the files of the index share; nobody else includes it.
 *
 *     index.c          finds the files, and calls the others in order; index_links.c: each file
 *                      once
 *     index_cache.c    entries of earlier runs
 *     index_split.c    the rest, a large file in parts;
 *     index_children.c through trajd-indexer children, for how long: index_timeout.c
 *     index_verify.c stamps, first rows compared, digests: what the parent adds to a child's record
 *     index_build.c    records of all files to one index; index_episode.c judges one episode */
#ifndef TRAJD_INDEX_INDEX_INTERNAL_H
#define TRAJD_INDEX_INDEX_INTERNAL_H

#include "daemon/index/index.h"
#include "daemon/index/record.h"

/* One file on its way into the index. */
struct trajd_index_entry {
    char *path;
    char *relative_path;
    uint64_t size_bytes;
    uint64_t device, inode; /* 0: not seen yet */
    int64_t mtime_ns;
    int64_t ctime_ns;
    struct trajd_bytes record; /* encoded and evaluated; length 0: not indexed yet */
    bool from_cache;
    bool keep;         /* may go into the cache */
    uint32_t attempts; /* after storage errors */
    /* of a file that another entry is too, by another name: that one's relative path; else NULL */
    const char *same_as;
    /* of the file's episodes: the part'th of so many parts; slice_count 0 is 1 */
    uint32_t slice, slice_count;
};

/* Takes what the cache holds of files that did not change. A cache that is missing, damaged or of
 * another version gives nothing. */
void trajd_index_cache_load(const struct trajd_index_options *options,
                            const struct trajd_layout *layout, struct trajd_index_entry *entries,
                            uint32_t count);
/* Writes all that may be kept, atomically. Failing only costs time at the next start, so that
 * nothing is returned. */
void trajd_index_cache_save(const struct trajd_index_options *options,
                            const struct trajd_layout *layout,
                            const struct trajd_index_entry *entries, uint32_t count);

/* Fills the records of all entries that have none. Where there are more children than files, they
 * share those that are large. */
enum trajd_status trajd_index_run_split(const struct trajd_index_options *options,
                                        const struct trajd_layout *layout,
                                        struct trajd_index_entry *entries, uint32_t count,
                                        struct trajd_error *error);
/* The same, one child an entry. */
enum trajd_status trajd_index_run_children(const struct trajd_index_options *options,
                                           const struct trajd_layout *layout,
                                           struct trajd_index_entry *entries, uint32_t count,
                                           struct trajd_error *error);

/* Reads stamps, compares first rows and forms the digest of every episode of the record. What is
 * wrong with an episode becomes its problem; only TRAJD_ERR_IO, TRAJD_ERR_MEMORY and
 * TRAJD_ERR_CLOSED (base/heartbeat.h) are returned. */
enum trajd_status trajd_index_evaluate(const struct trajd_layout *layout,
                                       struct trajd_array_reader *reader, int fd,
                                       struct trajd_arena *arena, struct trajd_record *record,
                                       struct trajd_error *error);

/* Puts entries that are a file which an earlier one is as well (by links: device and inode, and all
 * else that stat tells) behind all others, whose order stays, and sets their same_as; *count is how
 * many are left. TRAJD_ERR_MEMORY. */
enum trajd_status trajd_index_separate_links(struct trajd_index_entry *entries, uint32_t *count,
                                             struct trajd_error *error);

/* The index of all entries (all have records). Of the link_count behind them is told alone. Takes
 * the layout over, also where it fails. */
enum trajd_status trajd_index_build(struct trajd_layout *layout,
                                    const struct trajd_index_entry *entries, uint32_t count,
                                    uint32_t link_count, struct trajd_index **index,
                                    struct trajd_error *error);

/* A stream that some dataset path of the data set may become; established by the first kept episode
 * that has it. */
struct trajd_stream_plan {
    uint32_t layout_stream;
    uint32_t array_index;
    uint32_t clock_index;
    bool established;
    uint64_t row_elements; /* of the whole dataset, of which the stream may be some columns */
    struct trajd_index_stream stream;
};

/* What judging an episode needs to know, and what it finds out. */
struct trajd_validation {
    const struct trajd_layout *layout;
    struct trajd_arena *arena; /* of the index */
    const char *const *paths;  /* [array_count], ascending */
    uint32_t array_count;
    struct trajd_stream_plan *plans;
    uint32_t plan_count;
    struct trajd_index_stream
        *found; /* [plan_count]: the streams of the episode at hand; feature_count 0: absent */
    uint64_t trimmed_row_count;
};

/* Fills plans and found from layout, arena, paths and array_count. The caller frees both.
 * TRAJD_ERR_MEMORY. */
enum trajd_status trajd_index_plan_streams(struct trajd_validation *validation,
                                           struct trajd_error *error);

/* Fills *episode from its record: arrays and clocks if it is kept, else quarantine.
 * TRAJD_ERR_MEMORY only. */
enum trajd_status trajd_index_validate(struct trajd_validation *validation,
                                       const char *relative_path,
                                       const struct trajd_record_episode *record,
                                       struct trajd_episode *episode, struct trajd_error *error);

#endif
