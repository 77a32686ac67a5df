/* The helper program's own functions for looking into a file: the sandbox, the scan of one file,
 * and what it finds. */
#ifndef TRAJD_HDF5_SCAN_H
#define TRAJD_HDF5_SCAN_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/arena.h"
#include "daemon/index/record.h"
#include "daemon/layout/layout.h"

/* Which of a file's episodes: those of one of so many parts of about the same size. */
struct trajd_scan_slice {
    uint32_t index, count;
};

/* One file being looked at. */
struct trajd_scan {
    const struct trajd_layout *layout;
    struct trajd_scan_slice slice;
    struct trajd_arena *arena; /* of the record */
    struct trajd_record *record;
    hid_t file;
    uint64_t file_size;
    bool has_user_block;
    /* [clock_count]: of attributes that are one for all episodes; NULL: not read yet */
    const char **file_rates;
};

/* libhdf5 without plugins, locks and links that lead out of a file. */
bool trajd_scan_start_library(void);

/* Fills *record for the file behind the descriptor. Never fails: what goes wrong stands in the
 * record. */
void trajd_scan_file(const struct trajd_layout *layout, int fd, struct trajd_scan_slice slice,
                     struct trajd_arena *arena, struct trajd_record *record);

/* The dataset at `path` below `group` as found, or false where there is none (or, of a family,
 * where it is no dataset). */
bool trajd_scan_array(struct trajd_scan *scan, hid_t group, const char *path, bool of_family,
                      struct trajd_record_array *dataset);
/* Sets *dtype to our element type. NULL, or why the type is not one of ours. */
const char *trajd_scan_type(hid_t type, enum trajd_dtype *dtype);
/* Fills chunks; NULL or why not. */
const char *trajd_scan_chunks(struct trajd_scan *scan, hid_t dataset, struct trajd_array *array);

/* The text of a clock's rate as an attribute says it, "" where there is none. */
const char *trajd_scan_rate(struct trajd_scan *scan, hid_t group,
                            const struct trajd_layout_clock *clock);
/* The text that the layout asks for, of the episode whose group is at `episode_path`, in the scan's
 * arena. NULL where there is none; what is there and cannot be taken is noted. */
const char *trajd_scan_text(struct trajd_scan *scan, const char *episode_path,
                            const char *episode_id, const struct trajd_layout_meta *meta);
/* Whether nothing stands below the episode's group beside the datasets recorded of it and the
 * folders on the way to them, which have no attributes. */
bool trajd_scan_is_plain(hid_t group, const struct trajd_record_episode *episode);
/* Notes what of an episode was left out, and why. */
void trajd_scan_note(struct trajd_scan *scan, const char *episode, const char *what,
                     const char *why);

/* Fills the filter_keys of all episodes. */
void trajd_scan_filters(struct trajd_scan *scan);

/* The innermost message of libhdf5's error stack as one printable line; notes an I/O error in the
 * record. */
const char *trajd_scan_error(struct trajd_scan *scan);

/* A name as records may carry it. */
bool trajd_scan_name_ok(const char *name);

/* Names of a group's links, sorted by strcmp; count 0 where there is no such group. In the scan's
 * arena. */
struct trajd_scan_names {
    const char **names;
    uint32_t count, capacity;
};
void trajd_scan_links(struct trajd_scan *scan, hid_t group, struct trajd_scan_names *names);
bool trajd_scan_names_add(struct trajd_scan *scan, struct trajd_scan_names *names, const char *name,
                          size_t length);

#endif
