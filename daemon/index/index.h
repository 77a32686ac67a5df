/* The index of a dataset: which episodes there are, and where the rows of each of their streams lie
 * in which file.
 *
 * Built by trajd_index_open: files are found, the cache is asked, what it lacks is indexed by
 * children (trajd-indexer, the only user of libhdf5), every field that a child sends is
 * range-checked, stamps are read, episodes are kept or quarantined. Read-only afterwards and safe
 * to share between threads. */
#ifndef TRAJD_INDEX_INDEX_H
#define TRAJD_INDEX_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/index/array.h"
#include "daemon/layout/layout.h"
#include "proto/timebase.h"
#include "proto/error.h"

struct trajd_index_file {
    const char *path; /* as opened */
    /* below the dataset's path, '/' separated; the file's name if that is a file */
    const char *relative_path;
    uint64_t size_bytes;
    int64_t mtime_ns;
    uint64_t inode;
    const char *refusal; /* NULL, or why no episode could be taken from it */
};

/* A distinct HDF5 dataset path (relative to the episode) that some stream or clock needs. */
struct trajd_index_array {
    const char *path;
};

/* A stream as found in at least one episode, families expanded. Shape and dtype are those of the
 * first kept episode; an episode in which they differ is quarantined. */
struct trajd_index_stream {
    const char *name;
    uint32_t array_index;
    uint32_t clock_index;
    enum trajd_kind kind;
    enum trajd_dtype dtype;
    uint32_t first_column;
    uint64_t feature_count;               /* D: elements of a row that are this stream's */
    uint32_t rank;                        /* of one row: 0 for a scalar per row */
    uint64_t shape[TRAJD_ARRAY_MAX_RANK]; /* of one row, after the column slice */
    double angle_period;
    const char *unit; /* or NULL */
    int64_t max_gap_ns;
    bool optional;
};

struct trajd_index_clock {
    const char *name;
    bool regular;
};

/* A clock in one episode. Times are ns from the episode's origin: the earliest first stamp over its
 * clocks, after offset and latency. A regular clock's zero is at start_ns; a stamped clock's zero
 * is the origin (start_ns = 0). */
struct trajd_episode_clock {
    int64_t row_count; /* after the stamp policies */
    int64_t start_ns;
    struct trajd_rate rate;   /* regular clocks */
    const int64_t *stamps_ns; /* [row_count], ascending; NULL for regular clocks */
    /* of stamped clocks: the line through the first and the last of them, where a search begins; or
     * 0 */
    double rows_per_ns, row_at_zero;
    /* [row_count]: source row of each kept row, or NULL when all were kept */
    const uint32_t *kept_rows;
    uint64_t dropped_rows;
};

struct trajd_episode {
    /* "demo_12", or the file's relative path for one episode a file; unique with its file */
    const char *id;
    uint32_t file_index;
    const char *quarantine;                   /* NULL: kept. Else file, dataset, row and rule */
    const struct trajd_array *extents;        /* [array_count] */
    const struct trajd_episode_clock *clocks; /* [clock_count] */
    /* absolute time of the origin as recorded (0 for regular-only episodes) */
    int64_t origin_ns;
    /* of stamps and of up to 64 sampled rows a stream (fewer where rows are large): part of the
     * fingerprint */
    uint64_t content_digest;
    /* of the whole episode: names, texts, kept or not, shapes, clocks, content_digest */
    uint64_t digest;
    const char *const *metas;       /* [layout->meta_count]; NULL: the episode has no such text */
    const char *const *filter_keys; /* names of the masks that list it, NULL-ended */
    /* its group has nothing beside the arrays that are there, and folders on the way to them that
     * have no attributes */
    bool is_plain;
};

struct trajd_index {
    struct trajd_layout *layout; /* owned */
    uint32_t file_count;
    const struct trajd_index_file *files;
    uint32_t array_count;
    const struct trajd_index_array *arrays;
    uint32_t stream_count;
    const struct trajd_index_stream *streams;
    uint32_t clock_count;
    const struct trajd_index_clock *clocks;
    uint32_t episode_count; /* kept and quarantined, in natural order of (relative path, id) */
    const struct trajd_episode *episodes;
    uint32_t kept_count;
    /* of the layout, the paths of files and datasets, and the episodes' digests; never inode, mtime
     * or tier */
    uint64_t fingerprint;
    uint32_t cached_file_count; /* how many files came from the cache */
    uint64_t trimmed_row_count; /* rows T+1 of streams whose stamped clock has T: left out */
    /* files that are in the folder by a further name: each is taken once, by the name that comes
     * first */
    uint32_t link_count;
    /* links, then datasets of optional streams that were left out; at most 1024 of all */
    uint32_t note_count;
    const char *const *notes; /* "file: demo_1/obs/x: left out: rule" */
};

struct trajd_index_options {
    /* a file, or a folder in which the layout's `files` glob is searched, or a glob itself */
    const char *path;
    const char *layout; /* name or path */
    const char *layout_directory;
    const char *cache_directory; /* NULL: no cache is read or written */
    const char *helper_path;     /* the trajd-indexer to run */
    uint32_t child_count;        /* children at once, >= 1 */
    /* a child that takes longer for one file is killed, the file refused; ten times that where
     * storage is slow and bytes still come */
    uint32_t file_timeout_ms;
};

/* TRAJD_ERR_NOT_FOUND: nothing matches. TRAJD_ERR_DATA: no episode could be kept (message names the
 * first reason). TRAJD_ERR_IO: storage failed after retries. TRAJD_ERR_SYSTEM: the child does not
 * start, or somebody kills it at a file each time (message names it); nothing is known against the
 * file. The caller destroys. Blocks; call it from a thread that may. */
enum trajd_status trajd_index_open(const struct trajd_index_options *options,
                                   struct trajd_index **index, struct trajd_error *error);
void trajd_index_destroy(struct trajd_index **index);

/* What has become of a dataset's files since it was opened: of its name, size, time of modification
 * and inode. */
struct trajd_file_changes {
    uint32_t added, gone, changed;
    bool layout_changed; /* the layout's text is another one */
};
static inline bool trajd_file_changes_any(const struct trajd_file_changes *file_changes)
{
    return file_changes->added || file_changes->gone || file_changes->changed ||
           file_changes->layout_changed;
}
/* Looks at the folder, and into no file. Path, layout and its folder of the options are read.
 * Blocks. */
enum trajd_status trajd_index_look_again(const struct trajd_index_options *options,
                                         const struct trajd_index *index,
                                         struct trajd_file_changes *file_changes,
                                         struct trajd_error *error);

/* The index of the stream with that name, or -1. */
int64_t trajd_index_find_stream(const struct trajd_index *index, const char *name);
int64_t trajd_index_find_clock(const struct trajd_index *index, const char *name);

#endif
