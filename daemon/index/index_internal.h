/* Declarations that the files that build the index share. Private to this folder. README.md lists
 * the files in the order of the data. */
#ifndef TRAJD_INDEX_INDEX_INTERNAL_H
#define TRAJD_INDEX_INDEX_INTERNAL_H

#include <sys/stat.h>

#include "daemon/index/index.h"
#include "daemon/index/record.h"

/* One file on its way into the index. */
struct trajd_index_entry {
    char *path;
    char *relative_path;
    uint64_t device;
    struct trajd_file_stat stat;
    /* both times were old at the stat: a later write gives other times, which are coarse */
    bool is_settled;
    struct trajd_bytes record; /* encoded, with stamps and digests; length 0: not indexed yet */
    bool from_cache;
    char *cache; /* what was read of the cache, with `record` and those of other entries; or NULL */
    /* all episodes of its record have the arrays of an earlier entry's, which is not marked so */
    bool has_known_paths;
    uint32_t episode_count; /* of the record, with has_known_paths */
    bool keep;              /* the record may go into the cache */
    uint32_t attempts;      /* that failed: storage errors, killed children */
    /* of a further name of a file: the relative path of its first name, borrowed; else NULL */
    const char *same_as;
    const char *left_out; /* of a file that is not read: why; else NULL */
    /* which of the file's episodes: slice `slice` of slice_count; a slice_count of 0 means 1 */
    uint32_t slice, slice_count;
};

/* Fills stat and is_settled. */
void trajd_index_entry_set_stat(struct trajd_index_entry *entry, const struct stat *status);

/* Takes the records of unchanged files from the cache. A cache that is missing, damaged or of
 * another version gives none. */
void trajd_index_cache_load(const struct trajd_index_options *options,
                            const struct trajd_layout *layout, struct trajd_index_entry *entries,
                            uint32_t count);
/* Writes all records that may be kept, atomically. Returns 0 or an errno: a failure only costs time
 * at the next start. */
int trajd_index_cache_save(const struct trajd_index_options *options,
                           const struct trajd_layout *layout,
                           const struct trajd_index_entry *entries, uint32_t count);

/* The right to index the files that the cache lacks. Of all daemons that share the folder of caches,
 * one has it at a time. */
struct trajd_index_lock {
    int fd;   /* -1: this process does not have it */
    int code; /* the errno that says why the files are indexed without it; 0: it is not needed */
    int64_t beat_ns;
};
/* Where the cache lacks a record that it may keep: takes the lock, and then loads the cache again.
 * While another process indexes the files, it waits, and reports how far that one is. A process that
 * dies loses the lock. One that shows no sign of life for twice the timeout of a file is no longer
 * waited for. Returns only TRAJD_ERR_CLOSED as an error. */
enum trajd_status trajd_index_lock_take(const struct trajd_index_options *options,
                                        const struct trajd_layout *layout,
                                        struct trajd_index_entry *entries, uint32_t count,
                                        struct trajd_index_lock *lock, struct trajd_error *error);
/* Tells the processes that wait how many of the files have a record: at most once a second. */
void trajd_index_lock_beat(struct trajd_index_lock *lock, uint32_t done, uint32_t total);
/* Gives the lock back. `is_finished`: all that can be cached is in the cache. */
void trajd_index_lock_give(struct trajd_index_lock *lock, bool is_finished);

/* Fills the records of all entries that have none. Where there are more children than files,
 * several children share a large file. */
enum trajd_status trajd_index_run_split(const struct trajd_index_options *options,
                                        const struct trajd_layout *layout,
                                        struct trajd_index_lock *lock,
                                        struct trajd_index_entry *entries, uint32_t count,
                                        struct trajd_error *error);
/* The same, with one child for each entry. */
enum trajd_status trajd_index_run_children(const struct trajd_index_options *options,
                                           const struct trajd_layout *layout,
                                           struct trajd_index_lock *lock,
                                           struct trajd_index_entry *entries, uint32_t count,
                                           struct trajd_error *error);

/* ---- index_media.c: media files of packed video ---- */

#define TRAJD_MEDIA_FOLDER_SIZE 4096
#define TRAJD_MEDIA_OPEN_MAX 8

struct trajd_open_media {
    const char *name; /* borrowed from the record; NULL: the slot is free */
    int fd;
    struct trajd_file_stat stat;
};

/* The media files that are open while the record of one HDF5 file is evaluated, and a reader. */
struct trajd_index_media {
    struct trajd_video_reader *reader; /* made on first use */
    char folder[TRAJD_MEDIA_FOLDER_SIZE];
    struct trajd_open_media open[TRAJD_MEDIA_OPEN_MAX];
    uint32_t next;     /* the slot that is taken next */
    bool is_unsettled; /* one was written to a moment ago: the record must not go into the cache */
};

/* Writes the folder below which the media files of an HDF5 file are. False where it is too long. */
bool trajd_index_media_folder(const char *media_folder, const char *file_path,
                              char folder[TRAJD_MEDIA_FOLDER_SIZE]);
/* Gives the array, which is packed video, a copy of its description with what stat tells of its
 * media file. For all arrays of an episode, also if it is quarantined, so that the cache sees when
 * the media file changes. TRAJD_ERR_IO, TRAJD_ERR_MEMORY. */
enum trajd_status trajd_index_media_note(struct trajd_index_media *media, struct trajd_arena *arena,
                                         struct trajd_array *array, struct trajd_error *error);
/* Checks the tables of an array, the size of its media file and some packets, and adds what its
 * frames are to the digest: the same, whether the packets are in the HDF5 file or in a media file. */
enum trajd_status trajd_index_media_sample(struct trajd_index_media *media, int fd,
                                           const struct trajd_array *array,
                                           struct trajd_digest *digest, struct trajd_error *error);
void trajd_index_media_close(struct trajd_index_media *media);
/* Returns whether all media files are as they were when the record was evaluated. */
bool trajd_index_media_is_same(const struct trajd_record *record, const char *media_folder,
                               const char *file_path);
/* Counts the media files of kept episodes that changed since the index was built. */
void trajd_index_media_compare(const struct trajd_index *index, struct trajd_file_changes *changes);

/* Reads the stamps, compares the first rows, finds the size of encoded frames and forms the digest
 * of every episode of the record, whose file has file_size bytes. A fault of an episode becomes its
 * `problem`. Returns only TRAJD_ERR_IO, TRAJD_ERR_MEMORY and TRAJD_ERR_CLOSED (base/heartbeat.h) as
 * errors. */
enum trajd_status trajd_index_evaluate(const struct trajd_layout *layout,
                                       struct trajd_array_reader *reader, int fd,
                                       uint64_t file_size, struct trajd_index_media *media,
                                       struct trajd_arena *arena, struct trajd_record *record,
                                       struct trajd_error *error);

/* Moves further names of the same file (hard or symbolic links) behind all other entries, keeps the
 * order of both and sets same_as of the moved ones. Two names are of one file where device, inode,
 * size and times agree. *count becomes the number of entries in front. TRAJD_ERR_MEMORY. */
enum trajd_status trajd_index_separate_links(struct trajd_index_entry *entries, uint32_t *count,
                                             struct trajd_error *error);

/* Builds the index of `count` entries, which all have records. The unread_count entries behind
 * them, which have same_as or left_out, become notes. Uses the rates of the options. Takes over the
 * layout, also after an error. */
enum trajd_status trajd_index_build(const struct trajd_index_options *options,
                                    struct trajd_layout *layout,
                                    const struct trajd_index_entry *entries, uint32_t count,
                                    uint32_t unread_count, struct trajd_index **index,
                                    struct trajd_error *error);

/* Reads texts of JSON files beside the data files, while an index is built. */
struct trajd_index_texts {
    const struct trajd_layout *layout;
    struct trajd_arena *arena; /* of the index */
    struct trajd_index_text_file *files;
    uint32_t file_count, file_capacity;
    /* of each text the file that was read last: the path, its table, and why there is none */
    struct {
        const char *path; /* in `files` */
        struct trajd_text_table *table;
        const char *reason; /* the file is damaged; NULL, and no table: there is no file */
    } last[TRAJD_LAYOUT_METAS_MAX];
};

/* Sets the texts of the episode's record that are in JSON files. A fault of such a file becomes the
 * episode's problem. TRAJD_ERR_MEMORY. */
enum trajd_status trajd_index_texts_read(struct trajd_index_texts *texts,
                                         const struct trajd_index_entry *entry,
                                         struct trajd_arena *arena,
                                         struct trajd_record_episode *episode,
                                         struct trajd_error *error);
void trajd_index_texts_end(struct trajd_index_texts *texts);

/* A stream that the layout may make of an array. The episodes establish its shape and type. */
struct trajd_stream_plan {
    uint32_t layout_stream;
    uint32_t array_index;
    uint32_t clock_index;
    bool established;
    struct trajd_index_stream stream;
};

/* The state of validating the episodes one after another. */
struct trajd_validation {
    const struct trajd_layout *layout;
    struct trajd_rate rate, assumed_rate;       /* of the options; num 0: none */
    const struct trajd_clock_rate *clock_rates; /* [clock_rate_count], of the options */
    uint32_t clock_rate_count;
    enum trajd_image_color color; /* of the options; TRAJD_COLOR_DEPTH: none */
    bool allows_uneven_rows;      /* of the options */
    struct trajd_arena *arena;    /* of the index */
    const char *const *paths;     /* [array_count], ascending */
    uint32_t array_count;
    struct trajd_stream_plan *plans;
    uint32_t plan_count;
    /* [plan_count]: the streams of the current episode; feature_count 0: absent */
    struct trajd_index_stream *found;
    uint64_t trimmed_row_count;
    uint64_t *trimmed_rows; /* [episode_count]: the rows of each kept episode in it */
};

/* Fills plans and found from layout, arena, paths and array_count. The caller frees both.
 * TRAJD_ERR_MEMORY. */
enum trajd_status trajd_index_plan_streams(struct trajd_validation *validation,
                                           struct trajd_error *error);

/* Fills *episode from its record: arrays and clocks where it is kept, else the reason in
 * quarantine. The only error is TRAJD_ERR_MEMORY. */
enum trajd_status trajd_index_validate(struct trajd_validation *validation,
                                       const char *relative_path,
                                       const struct trajd_record_episode *record,
                                       struct trajd_episode *episode, struct trajd_error *error);

/* One episode while it is validated. Its memory is in the arena of the index. */
struct trajd_candidate {
    struct trajd_validation *validation;
    const struct trajd_record_episode *record;
    const char *label; /* "file: demo_1: " */
    struct trajd_array *extents;
    struct trajd_episode_clock *clocks;
    const char *reason; /* to quarantine the episode; NULL: none so far */
    bool is_misfit;     /* the reason: it has another structure than the layout */
    bool has_uneven_rows;
    bool no_memory;
};

/* Give the reason to quarantine the episode: its content is bad, or it has another structure than
 * the layout. The first reason counts. */
void trajd_candidate_fault(struct trajd_candidate *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void trajd_candidate_misfit(struct trajd_candidate *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void trajd_candidate_no_memory(struct trajd_candidate *c);
/* Returns zeroed memory of the arena, or NULL with the reason. */
void *trajd_candidate_alloc(struct trajd_candidate *c, uint64_t count, size_t size);

/* index_clocks.c. Makes the clocks with absolute times, and cuts the arrays that have a row
 * more. */
void trajd_candidate_make_clocks(struct trajd_candidate *c);
/* Moves all clocks to one origin, the earliest first row. */
void trajd_candidate_set_origin(struct trajd_candidate *c, struct trajd_episode *episode);

/* Sets the plan's stream from the arrays of an episode that was validated. */
void trajd_index_establish(struct trajd_validation *validation, struct trajd_stream_plan *plan,
                           const struct trajd_array *extents);

/* Quarantines episode e, which was kept. Returns false if there is no reason, because it is out of
 * memory. */
bool trajd_index_quarantine(struct trajd_validation *validation, struct trajd_index *index,
                            struct trajd_episode *episodes, uint32_t e, const char *reason);

/* Settles the shape of every array once all episodes are validated. Of the shapes that the rows of
 * an array have in the kept episodes, the most frequent is kept; of equally frequent ones, that of
 * the first episode. Element type and all columns count, as rows of all episodes must lie equally
 * far apart. Where an episode differs:
 *   - in an array that the layout requires: it is quarantined. These arrays come first, in the
 *     order of their paths, and a quarantined episode has no vote on the next array;
 *   - in another array: the array becomes absent, with the reason in other_shapes.
 * Then establishes the streams. The only error is TRAJD_ERR_MEMORY. */
enum trajd_status trajd_index_settle_shapes(struct trajd_validation *validation,
                                            struct trajd_index *index,
                                            struct trajd_episode *episodes,
                                            struct trajd_error *error);

/* Sets the digest of each episode, the fingerprint and files_digest of an index that is complete.
 * `episodes` are those of the index. */
void trajd_index_set_digests(struct trajd_index *index, struct trajd_episode *episodes);

#endif
