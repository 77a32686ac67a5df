/* Reads the structure of one HDF5 file through libhdf5 into a record (daemon/index/record.h).
 * "Dataset" is HDF5's word here: a record calls it an array. */
#ifndef TRAJD_HDF5_SCAN_H
#define TRAJD_HDF5_SCAN_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/arena.h"
#include "daemon/hdf5/descriptor_file.h"
#include "daemon/hdf5/group_links.h"
#include "daemon/index/record.h"
#include "daemon/layout/layout.h"

struct trajd_scan_names;

/* A slice of a file's episodes: slice `index` of `count` slices of about the same size. */
struct trajd_scan_slice {
    uint32_t index, count;
};

/* The scan of one file. */
struct trajd_scan {
    const struct trajd_layout *layout;
    struct trajd_scan_slice slice;
    struct trajd_arena *arena; /* of the record */
    struct trajd_record *record;
    hid_t file;
    struct trajd_links_met met; /* groups with several names */
    struct trajd_descriptor_file descriptor;
    uint64_t file_size;
    bool has_user_block;
    bool has_wide_places; /* offsets and lengths in the file have 8 bytes */
    /* [clock_count]: rates that stand in attributes outside the episodes; NULL: not read yet */
    const char **file_rates;
    bool has_failed;            /* libhdf5 reported an error since this was set to false */
    const char *resampled_rate; /* of the attribute trajd_resample */
    const char *groups;         /* the pattern of the groups that are searched for */
    bool cuts;                  /* the layout's split applies to this file */
    uint32_t episode_capacity;  /* of the record */
};

/* Starts libhdf5 without plugins, file locks, printed errors and external links. False where it
 * fails. */
bool trajd_scan_start_library(void);

/* Fills *record for the file behind the descriptor. Failures stand in the record. */
void trajd_scan_file(const struct trajd_layout *layout, int fd, struct trajd_scan_slice slice,
                     struct trajd_arena *arena, struct trajd_record *record);

/* Appends the encoded tree (daemon/index/tree/tree.h) of the file behind the descriptor. Failures
 * stand in the tree. Ends the process if out of memory. */
void trajd_scan_tree(int fd, struct trajd_bytes *bytes);

/* What a link leads to. */
enum trajd_scan_found {
    TRAJD_SCAN_ARRAY,   /* a dataset that can be used, or that is refused with a reason */
    TRAJD_SCAN_OTHER,   /* a group or a named type, which is refused with a reason */
    TRAJD_SCAN_DAMAGED, /* a dataset or group that cannot be read, which is refused with a reason */
};
/* Describes the dataset at `path`, a listed link below `group`, or the reason why it cannot be
 * used. `header`: where its object header lies, or HADDR_UNDEF. `image`: what its frames are, or NULL. Frames may also be a group of packed ones, or of packed video. */
enum trajd_scan_found trajd_scan_array(struct trajd_scan *scan, hid_t group, const char *path,
                                       haddr_t header, const struct trajd_layout_image *image,
                                       struct trajd_record_array *dataset);
/* Describes the episode of the group at `path`. Returns whether it holds several episodes, which
 * are in the record then. */
bool trajd_scan_episode(struct trajd_scan *scan, const char *path,
                        struct trajd_record_episode *episode);
/* Reads the first rows of a slice of the dataset, which begins at row `begin`, through libhdf5, for
 * the parent to compare. A failure becomes the array's refusal. */
void trajd_scan_check_rows(struct trajd_scan *scan, hid_t dataset, uint64_t begin,
                           struct trajd_record_array *array);
/* Adds zeroed episodes to the record. Returns the first; NULL where there are too many. */
struct trajd_record_episode *trajd_scan_add_episodes(struct trajd_scan *scan, uint32_t count);
/* Sets type, form and is_enum of the array, and *element_bytes. Returns NULL, or the reason why the
 * type cannot be used. `is_image`: its rows are frames, so they may be strings and of variable
 * length. */
const char *trajd_scan_type(hid_t type, bool is_image, struct trajd_array *array,
                            uint32_t *element_bytes);
/* Fills array->chunks. Returns NULL, or the reason why that is impossible. */
const char *trajd_scan_chunks(struct trajd_scan *scan, hid_t dataset, struct trajd_array *array);

/* Returns the text of a clock's rate from its attribute or dataset; "" where there is none. */
const char *trajd_scan_rate(struct trajd_scan *scan, hid_t group,
                            const struct trajd_layout_clock *clock);
/* Returns the rate in the root's attribute trajd_resample, which `trajctl resample` writes: ""
 * where there is no such attribute, "none" where it states no rate. */
const char *trajd_scan_resampled_rate(struct trajd_scan *scan);
/* Returns whether `trajctl resample` wrote the file from one whose arrays held several episodes
 * (the layout's key split). Each episode then has a group of its own, below the group whose arrays
 * they were. */
bool trajd_scan_is_separated(hid_t file);
/* Reads a text of the episode whose group is at `episode_path`, into the scan's arena; of a text in
 * a JSON file its key, which an attribute has. NULL where there is none. A value that cannot be
 * taken is noted. */
const char *trajd_scan_text(struct trajd_scan *scan, const char *episode_path,
                            const char *episode_id, const struct trajd_layout_meta *meta);
/* Returns why the arrays do not have one row for each time step of one episode, or NULL. `links`:
 * those of the group. */
const char *trajd_scan_form(struct trajd_scan *scan, hid_t group,
                            const struct trajd_scan_names *links,
                            const struct trajd_record_episode *episode);
/* Returns why a flag that the layout's split does not name shows an episode that begins elsewhere
 * than at `begins`, or NULL. The last of the begins, at [count], is the end of all rows. */
const char *trajd_scan_form_split(struct trajd_scan *scan, hid_t group,
                                  const struct trajd_scan_names *links,
                                  const struct trajd_record_episode *episode,
                                  const uint64_t *begins, uint32_t count);
/* Returns whether the episode's group holds only the recorded datasets, and groups without
 * attributes on the way to them. */
bool trajd_scan_is_plain(hid_t group, const struct trajd_record_episode *episode);
/* Notes that `what` of an episode was left out, and the reason. Drops notes beyond 256. */
void trajd_scan_note(struct trajd_scan *scan, const char *episode, const char *what,
                     const char *why);

/* Fills the filter_keys of all episodes in the record. */
void trajd_scan_filters(struct trajd_scan *scan);

#define TRAJD_LIBRARY_ERROR_SIZE 256
/* Writes the innermost message of libhdf5's error stack; "" where there is none. */
void trajd_library_error(char text[TRAJD_LIBRARY_ERROR_SIZE]);
/* Returns the innermost message of libhdf5's error stack as one printable line, and clears the
 * stack. Sets record->io_errno where storage failed. */
const char *trajd_scan_error(struct trajd_scan *scan);
/* Returns why the file cannot be opened, and clears the error stack. */
const char *trajd_scan_unreadable(struct trajd_scan *scan, int fd);

/* Returns why the link leads nowhere, or to another file. NULL for a hard link, whose object is
 * damaged if it cannot be opened. */
const char *trajd_scan_lost_link(hid_t group, const char *path);

/* Returns whether a record may hold the name: 1 to 1024 bytes, no control characters. */
bool trajd_scan_name_ok(const char *name);

/* A list of names, in the scan's arena. */
struct trajd_scan_names {
    const char **names;
    haddr_t *headers; /* of the links of a group: where the object of a hard link is */
    uint32_t count, capacity;
};
bool trajd_scan_names_have(const struct trajd_scan_names *names, const char *name);
/* The same for the links of a group, which are in order. */
bool trajd_scan_links_have(const struct trajd_scan_names *links, const char *name);
/* Returns where the object of a link is, or HADDR_UNDEF. */
haddr_t trajd_scan_links_header(const struct trajd_scan_names *links, const char *name);

/* A group below an episode that may hold arrays, with its links. It has none where nothing is
 * there, or where it cannot be used. */
struct trajd_scan_folder {
    const char *path; /* "", "obs" */
    struct trajd_scan_names links;
    const char *refusal; /* why it cannot be used: it is behind a link that cannot be followed */
    struct trajd_scan_folder *next;
};
/* Returns the folder of the first `length` bytes of the path, from the list or opened and added to
 * it. NULL, with the episode's problem, where the folder or one above it is damaged. */
const struct trajd_scan_folder *trajd_scan_folder(struct trajd_scan *scan, hid_t group,
                                                  const char *path, size_t length,
                                                  struct trajd_scan_folder **list,
                                                  struct trajd_record_episode *episode);
/* Cuts the arrays of a group into episodes and adds them to the record (the layout's key split).
 * `whole` has its arrays, texts and rates. Returns NULL, or the reason why it cannot be cut, with
 * whole->is_misfit. */
const char *trajd_scan_split(struct trajd_scan *scan, hid_t group,
                             const struct trajd_scan_names *links,
                             struct trajd_record_episode *whole);
/* Appends the names of the group's links in the order of strcmp. Returns NULL, or the reason why
 * they cannot all be listed. */
const char *trajd_scan_links(struct trajd_scan *scan, hid_t group, struct trajd_scan_names *names);
/* False where memory or the limit on names is reached. */
bool trajd_scan_names_add(struct trajd_scan *scan, struct trajd_scan_names *names, const char *name,
                          size_t length);

/* ---- scan_value.c: one value in an attribute or a dataset, or numbers of one column ---- */

struct trajd_scan_value {
    hid_t id; /* < 0: it cannot be opened */
    hid_t type, space;
    bool is_dataset;
};

/* Opens the attribute of the object, or the dataset at `object` where `attribute` is NULL. The
 * caller closes it in any case. */
struct trajd_scan_value trajd_scan_value_open(hid_t group, const char *object,
                                              const char *attribute);
/* Also clears libhdf5's errors. */
void trajd_scan_value_close(struct trajd_scan_value *value);

bool trajd_scan_value_is_one(const struct trajd_scan_value *value);
/* Reads the value, which must be one, as `type`. */
bool trajd_scan_value_read(const struct trajd_scan_value *value, hid_t type, void *out);
/* Returns a value of a text type; NULL where it is not one text or cannot be read. The caller
 * frees. */
char *trajd_scan_value_read_text(const struct trajd_scan_value *value);

/* Returns the name of an enum's value, "true" or "false" for h5py's booleans; NULL where it is not
 * one value, has no name or cannot be read. The caller frees. */
char *trajd_scan_value_read_enum(const struct trajd_scan_value *value);

/* Returns the number of rows of an array of numbers with one or two axes, and the values of each; 0
 * for any other. */
uint64_t trajd_scan_row_count(hid_t dataset, uint64_t *width);
/* Reads `count` rows of `width` values from `begin` on. False where libhdf5 cannot read them. */
bool trajd_scan_rows_read(hid_t dataset, uint64_t begin, uint64_t count, uint64_t width,
                          double *values);
/* Returns the number of values, or 0 where the dataset is none of numbers in one column. */
uint64_t trajd_scan_column_count(hid_t dataset);
/* Reads `count` values from `begin` on. False where libhdf5 cannot read them. */
bool trajd_scan_column_read(hid_t dataset, uint64_t begin, uint64_t count, double *values);

/* ---- array/scan_alike.c: datasets that differ from one which libhdf5 has described only in where
 * and how many their rows are. Most datasets of a set of recordings are such, and libhdf5 takes
 * 20 us to open and close one. ---- */

/* What the rows of every dataset are read for: the parent compares as many whole rows as the first
 * size holds, at least one, but none that is larger than the second one. */
enum { TRAJD_SCAN_CHECK_BYTES = 4096, TRAJD_SCAN_CHECK_ROW_MAX = 64 << 20 };

/* Keeps the description of the dataset whose object header lies at `header`. Does nothing for one
 * whose rows are not in one piece, or whose header is of another form than most. */
void trajd_scan_alike_keep(struct trajd_scan *scan, const char *path, haddr_t header,
                           const struct trajd_layout_image *image,
                           const struct trajd_record_array *dataset);

/* Describes a dataset whose object header equals the one that was kept for this path. Returns false
 * where it does not: then libhdf5 has to look. */
bool trajd_scan_alike(struct trajd_scan *scan, const char *path, haddr_t header,
                      const struct trajd_layout_image *image, struct trajd_record_array *dataset);

/* ---- array/scan_packed.c, array/scan_video.c: groups in place of a dataset ---- */

/* Returns whether the path leads to a group that has these members; NULL ends the names early. */
bool trajd_scan_has(hid_t group, const char *path, const char *const names[3]);
/* Describe such a group. Return NULL, or the reason why it cannot be used. */
const char *trajd_scan_packed(struct trajd_scan *scan, hid_t group,
                              const struct trajd_layout_image *image, struct trajd_array *array);
const char *trajd_scan_video(struct trajd_scan *scan, hid_t group,
                             const struct trajd_layout_image *image, struct trajd_array *array);

/* Finds a dataset of the group that must be in one piece in the file, with `count` entries of
 * `width` elements. Returns NULL, or the reason why it cannot be used. */
const char *trajd_scan_piece(struct trajd_scan *scan, hid_t group, const char *name, hid_t type,
                             uint64_t width, uint64_t *offset, uint64_t *count);
/* Reads an attribute of one text; "" where there is none, "?" where it is not a text that fits. */
void trajd_scan_word(hid_t group, const char *name, char *word, size_t word_size);
/* Reads an attribute of `count` numbers. False where it is none. */
bool trajd_scan_numbers(hid_t group, const char *name, uint64_t count, uint64_t *numbers);
/* Compares the words of the group with the layout. A layout that leaves the colour open takes any.
 * Returns NULL, or how they differ. */
const char *trajd_scan_words(struct trajd_scan *scan, hid_t group,
                             const struct trajd_layout_image *image);

#endif
