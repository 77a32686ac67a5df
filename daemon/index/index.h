/* The index of a dataset: which episodes there are, and in which file and where the rows of their
 * streams lie. A dataset is a set of HDF5 files under one layout; what HDF5 calls a dataset is an
 * array here.
 *
 * trajd_index_open builds it. It finds the files and loads the cache. Child processes
 * (trajd-indexer, the only user of libhdf5) index the files that the cache lacks. Every field that
 * a child sends is range-checked. Then the stamps are read, and each episode is kept or
 * quarantined. The index does not change afterwards, so threads may share it. */
#ifndef TRAJD_INDEX_INDEX_H
#define TRAJD_INDEX_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/view.h"
#include "daemon/index/rows/array.h"
#include "daemon/index/rows/file_bytes.h"
#include "daemon/layout/layout.h"
#include "daemon/layout/quaternions.h"
#include "proto/timebase.h"
#include "proto/error.h"

struct trajd_index_file {
    const char *path; /* as opened */
    /* relative to the dataset's path; the file's name where that path is a file */
    const char *relative_path;
    uint64_t device; /* of the file system; 0: the file was gone when it was looked at */
    struct trajd_file_stat stat;
    const char *refusal; /* NULL, or the reason why it gives no episode */
};

/* A JSON file with texts of episodes. */
struct trajd_index_text_file {
    const char *path;
    struct trajd_file_stat stat; /* inode 0: it was not there */
};

/* An array that some stream or clock needs. */
struct trajd_index_array {
    const char *path; /* of the HDF5 dataset, relative to the episode's group */
    /* Columns that hold quaternions in all kept episodes, as far as the sampled rows show: none
     * overlap, ascending. See layout/quaternions.h. */
    uint32_t quaternion_count;
    const struct trajd_quaternion *quaternions;
};

/* A stream that at least one episode has. Families are expanded. Shape and dtype are those that
 * most episodes have. An episode in which those of a required stream differ is quarantined; of an
 * optional stream the episode lacks it (other_shapes). */
struct trajd_index_stream {
    const char *name;
    uint32_t array_index;
    uint32_t clock_index;
    enum trajd_kind kind;
    enum trajd_dtype dtype;
    uint32_t first_column;
    uint64_t feature_count;               /* D: elements of this stream in a row */
    uint32_t rank;                        /* of one row; 0: one element */
    uint64_t shape[TRAJD_ARRAY_MAX_RANK]; /* of one row, after the column slice */
    double angle_period;
    const char *unit; /* or NULL */
    int64_t max_gap_ns;
    bool optional;
    struct trajd_layout_image image; /* of frames, as they are in the files */
    bool color_is_given;             /* image.color is that of the options, not of the layout */
    /* The rows are encoded (rows/encoded.h): type and shape are those of decoded frames. */
    enum trajd_row_form form;
    enum trajd_image_encoding encoding; /* of the first frame of an encoded stream */
    /* How the frames in the files were prepared; NULL: they are as recorded. `image` has the words
     * of the prepared frames */
    const char *preparation;
    /* Values between two rows make no sense: booleans, names (enums), frames. */
    bool never_blends;
    bool is_delta; /* differences: the rows of a step are added (semantics: delta) */
    bool is_event; /* rows that come when something happens: the last one does not grow old */
};

struct trajd_index_clock {
    const char *name;
    bool regular;
};

struct trajd_episode {
    /* "demo_12", or the file's relative path where a file is one episode; unique within its file */
    const char *id;
    uint32_t file_index;
    const char *quarantine; /* NULL: kept. Else the reason with file, array and row */
    bool is_misfit; /* quarantined: it has another structure than the layout. Else: bad content */
    const struct trajd_array *extents; /* [array_count]: where each array lies */
    /* [array_count]: why the array is absent although the file has it, with file, array, the shape
     * found and the shape kept; NULL: it fits. Feeds that name a stream of it must not use the
     * episode. NULL: every array fits. */
    const char *const *other_shapes;
    /* [array_count]: the dataset that the array's path with a '*' matched, or NULL. NULL: no path
     * has a '*' */
    const char *const *matches;
    /* [clock_count]. The origin of an episode is the earliest first row of all its clocks, with the
     * clocks' offset and latency applied. start_ns is the time of a regular clock's first row; it is
     * 0 for a stamped clock. */
    const struct trajd_episode_clock *clocks;
    /* absolute recorded time of the origin; 0 where all clocks are regular */
    int64_t origin_ns;
    /* The latest last row of the clocks that have at least two rows and a stream that is not of
     * events, from the origin. */
    int64_t end_ns;
    /* streams on one regular clock differ in their rows: quarantined, unless the options allow it */
    bool has_uneven_rows;
    /* of the stamps and of up to 64 sampled rows of each array, fewer where rows are large; part of
     * the fingerprint */
    uint64_t content_digest;
    /* of names, texts, shapes, clocks, content_digest, and whether it is kept */
    uint64_t digest;
    const char *const *metas;       /* [layout->meta_count]; an absent text is NULL */
    const char *const *filter_keys; /* names of the masks that list it, then NULL */
    /* the group holds only these arrays, and subgroups on the way to them that have no
     * attributes */
    bool is_plain;
    /* of arrays that hold several episodes: where this one begins, and the rows of all. 0: the
     * arrays hold one episode */
    uint64_t first_row, all_rows;
};

struct trajd_index {
    struct trajd_layout *layout; /* owned */
    const char *media_folder;    /* of the options, or NULL */
    uint32_t file_count;
    const struct trajd_index_file *files;
    uint32_t text_file_count;
    const struct trajd_index_text_file *text_files;
    uint32_t array_count;
    const struct trajd_index_array *arrays;
    uint32_t stream_count;
    const struct trajd_index_stream *streams;
    uint32_t clock_count;
    const struct trajd_index_clock *clocks;
    uint32_t episode_count; /* kept and quarantined, in natural order of (relative path, id) */
    const struct trajd_episode *episodes;
    uint32_t kept_count;
    /* files that give no episode; each counts as one that was found and is not kept */
    uint32_t refused_file_count;
    /* of the layout, the paths of files and arrays, and the episodes' digests; inodes, times and
     * the place of storage do not count */
    uint64_t fingerprint;
    /* of the files' sizes, times and inodes: another number where a file may have been written to,
     * also in rows that the fingerprint does not sample */
    uint64_t files_digest;
    uint32_t cached_file_count; /* files whose records came from the cache */
    int cache_errno;            /* why the cache could not be written; 0: it could */
    /* why files were indexed without the lock of the cache, so that other daemons may have indexed
     * them at the same time. ETIMEDOUT: its holder showed no sign of life. 0: they were not */
    int lock_errno;
    /* rows left out because an array has one row more than its clock */
    uint64_t trimmed_row_count;
    /* further names (hard or symbolic links) of files in the folder; each file is taken once, by
     * its first name */
    uint32_t link_count;
    /* these, HDF5 files below the folder that the layout's `files` does not match, and linked
     * folders, which are not searched: the first notes say which */
    uint32_t unread_count;
    /* what was left out: links, unread files, then arrays of optional streams; 1024 at most */
    uint32_t note_count;
    const char *const *notes; /* "file: demo_1/obs/x: left out: rule" */
};

struct trajd_index_options {
    /* a file, a folder in which the layout's `files` glob is searched, or a glob */
    const char *path;
    const char *layout; /* name or path */
    const char *layout_directory;
    uint32_t version; /* of the configuration: 1: the layout as it was in 0.1.0; 0: there is none */
    const char *cache_directory; /* NULL: no cache */
    const char *helper_path;     /* of trajd-indexer */
    uint32_t child_count;        /* most child processes at a time, >= 1 */
    /* A child that takes longer for one file is killed and the file refused. A child that waits for
     * slow storage and still receives bytes has ten times as long. */
    uint32_t file_timeout_ms;
    /* Rate of the layout's regular clocks: it counts over what the files and the layout say. num 0:
     * none. */
    struct trajd_rate rate;
    /* The same for single clocks of a layout with several. */
    const struct trajd_clock_rate *clock_rates;
    uint32_t clock_rate_count;
    /* RGB or BGR: what a standard decoder gives of the encoded colour frames. It counts over what
     * the layout says. TRAJD_COLOR_DEPTH: not given. */
    enum trajd_image_color color;
    /* Streams on one regular clock may have different numbers of rows without a word of the layout,
     * as in version 0.1.0. */
    bool allows_uneven_rows;
    /* The folder below which the media files of packed video are (rows/packed_video.h). NULL: of each HDF5
     * file the folder that it is in. */
    const char *media_folder;
    /* Only the first 8 files, and the first 8 episodes of each: tells whether the layout fits. */
    bool is_probe;
    /* Replaces the layout's rate or default, which is assumed where a file states none. num 0:
     * none. */
    struct trajd_rate assumed_rate;
};

/* Builds the index of a dataset. Blocks, perhaps for minutes. The caller destroys the index.
 * TRAJD_ERR_ARGUMENT: a mistake in the layout, or a rate that does not fit it. TRAJD_ERR_NOT_FOUND:
 * no file matches, or none has the layout's groups and arrays. TRAJD_ERR_DATA: no episode could be
 * kept, and at least one has the layout's structure and bad content; the message has the first such
 * reason. TRAJD_ERR_IO: storage still failed after retries. TRAJD_ERR_SYSTEM: the helper program
 * does not start, or it was killed from outside each time it read the file that the message names.
 * The file may be good. */
enum trajd_status trajd_index_open(const struct trajd_index_options *options,
                                   struct trajd_index **index, struct trajd_error *error);
/* The same with a layout that is loaded already, in place of options->layout. Takes it over, also
 * after an error. */
enum trajd_status trajd_index_open_as(const struct trajd_index_options *options,
                                      struct trajd_layout *layout, struct trajd_index **index,
                                      struct trajd_error *error);
void trajd_index_destroy(struct trajd_index **index);

/* Counts of files that changed since the index was built, by their names and stat. JSON files with
 * texts count as well. */
struct trajd_file_changes {
    uint32_t added, gone, changed;
    bool layout_changed; /* the layout's content changed */
};
static inline bool trajd_file_changes_any(const struct trajd_file_changes *file_changes)
{
    return file_changes->added || file_changes->gone || file_changes->changed ||
           file_changes->layout_changed;
}
/* Compares the folder with the index, without opening a data file. Uses path, layout,
 * layout_directory and version of the options. Blocks. */
enum trajd_status trajd_index_find_changes(const struct trajd_index_options *options,
                                           const struct trajd_index *index,
                                           struct trajd_file_changes *file_changes,
                                           struct trajd_error *error);

/* Opens the media file that has the packets of an array of the file; *fd becomes -1 where the array
 * has none. The caller closes it. TRAJD_ERR_IO: it cannot be opened, or is not as it was when it was
 * indexed. */
enum trajd_status trajd_index_open_media(const struct trajd_index *index, uint32_t file_index,
                                         const struct trajd_array *array, int *fd,
                                         struct trajd_error *error);

/* Returns the number of quaternions that have a column of [begin, end) of the array, and that the
 * kind blends as plain numbers. *first becomes the first of them. */
uint32_t trajd_index_find_quaternions(const struct trajd_index *index, uint32_t array_index,
                                      uint64_t begin, uint64_t end, enum trajd_kind kind,
                                      const struct trajd_quaternion **first);
/* Writes which columns these are, and what to write in the layout. */
void trajd_index_advise_quaternions(const struct trajd_index *index,
                                    const struct trajd_index_stream *stream, enum trajd_kind kind,
                                    const struct trajd_quaternion *quaternions, uint32_t count,
                                    char text[TRAJD_QUATERNION_ADVICE_SIZE]);

/* Return the index of the stream or clock with that name, or -1. */
int64_t trajd_index_find_stream(const struct trajd_index *index, const char *name);
int64_t trajd_index_find_clock(const struct trajd_index *index, const char *name);

/* Returns who says which colour comes first in the frames of a stream: "layout", "key" (the
 * options), "file" (prepared frames have red first) or "undecided". */
const char *trajd_index_color_source(const struct trajd_index_stream *stream);

#define TRAJD_EARLY_END_TEXT_SIZE 160
/* Returns whether the rows of a clock stop before a kept episode ends, by more than
 * TRAJD_TOO_OLD_INTERVALS of their median intervals. Then writes "stops 2.37 s before its episode
 * ends: ...". `text` may be NULL. */
bool trajd_episode_ends_early(const struct trajd_episode *episode, uint32_t clock,
                              char text[TRAJD_EARLY_END_TEXT_SIZE]);

/* The rates of a clock over kept episodes. */
struct trajd_index_rates {
    enum trajd_rate_source source;         /* ASSUMED: in at least one episode */
    uint32_t episode_count, assumed_count; /* episodes with rows on the clock */
    double lowest_hz, highest_hz;          /* of a regular clock; else 0 */
};
#define TRAJD_RATES_TEXT_SIZE 96

/* Adds the rates of a clock. */
void trajd_index_rates_add(const struct trajd_index *index, uint32_t clock,
                           struct trajd_index_rates *rates);
/* Writes the rates of a regular clock: "20 Hz", "20 Hz (assumed)", "10 to 20 Hz (assumed in 3 of 7
 * episodes)". Writes "" for a stamped clock. Returns `text`. */
const char *trajd_index_rates_text(const struct trajd_index_rates *rates,
                                   char text[TRAJD_RATES_TEXT_SIZE]);

#endif
