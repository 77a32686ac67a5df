/* The helper program as a writer: what its files share. The frames that it takes and sends stand in
 * daemon/index/writer_protocol.h. */
#ifndef TRAJD_HDF5_WRITER_H
#define TRAJD_HDF5_WRITER_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/index/writer_protocol.h"

/* A frame being read. `failed` is set at the first thing that is not there; what comes then is
 * empty. */
struct trajd_writer_frame {
    const uint8_t *next, *end;
    bool failed;
};

#define TRAJD_WRITER_PATH_SIZE 4096
#define TRAJD_WRITER_RANK_MAX 8
#define TRAJD_WRITER_REPORTED_MAX 64

/* A dataset that episodes have, with what its makings share. */
struct trajd_writer_dataset {
    char *path; /* below an episode */
    uint8_t dtype, rank, level;
    /* of the episode that was made last */
    hsize_t shape[TRAJD_WRITER_RANK_MAX], chunk[TRAJD_WRITER_RANK_MAX];
    hsize_t chunk_rows; /* of one in chunks where there are as many rows; 0: contiguous */
    hid_t type;         /* -1: the source's */
    hid_t space, creation;
};

/* What the child is at. */
struct trajd_writer {
    hid_t output, input;
    uint32_t dataset_count;
    struct trajd_writer_dataset *datasets;
    char label[TRAJD_WRITER_PATH_SIZE];  /* of the input */
    char groups[TRAJD_WRITER_PATH_SIZE]; /* of the episodes */
    char filter_folder[TRAJD_WRITER_PATH_SIZE];
    bool is_first;
    uint32_t known_count;
    char **known; /* of the input */
    uint32_t note_count;
    uint32_t reported_count;
    char *reported
        [TRAJD_WRITER_REPORTED_MAX]; /* paths that need not be told of again, for every episode */
};

uint64_t trajd_writer_u64(struct trajd_writer_frame *frame);
uint32_t trajd_writer_u32(struct trajd_writer_frame *frame);
uint8_t trajd_writer_u8(struct trajd_writer_frame *frame);
/* Into `text`, cut never: too long is failed. */
void trajd_writer_text(struct trajd_writer_frame *frame, char *text, size_t size);

/* The whole child. Its exit status. */
int trajd_writer_run(void);

/* A NOTE; after many of them silence. */
void trajd_writer_note(struct trajd_writer *writer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Sends FAILED with libhdf5's innermost message and returns false. */
bool trajd_writer_fail(const char *what);

/* ---- writer_attribute.c ---- */

/* An attribute with its type and space; -1 each where there is none. Closed by
 * trajd_writer_close_attribute, whatever it is. */
struct trajd_writer_attribute {
    hid_t id, type, space;
};
struct trajd_writer_attribute trajd_writer_open_attribute(hid_t object, const char *name);
void trajd_writer_close_attribute(const struct trajd_writer_attribute *attribute);
/* The text of one that is a single string of variable length, malloc'd, or NULL. */
char *trajd_writer_variable_text(const struct trajd_writer_attribute *attribute);
/* All attributes of an object that the other lacks. */
bool trajd_writer_copy_attributes(struct trajd_writer *writer, hid_t from, hid_t to,
                                  const char *path);
/* Sets the integer attribute where there is one. */
void trajd_writer_set_count(hid_t object, const char *name, uint64_t value);
/* Puts a text where an attribute is or is not, of a length of its own. */
bool trajd_writer_set_text(hid_t object, const char *name, const char *text, bool variable);

/* ---- writer_copy.c ---- */

/* What of the first input stands outside of its episodes; of a later one, attributes that differ
 * are told of. */
bool trajd_writer_copy_surroundings(struct trajd_writer *writer);
/* A copy of an object with all below it. */
bool trajd_writer_copy_object(struct trajd_writer *writer, hid_t from, hid_t to, const char *name);
/* The groups down to `path` from a file or a group. -1: failed. The caller closes. */
hid_t trajd_writer_make_group(hid_t from, const char *path);

/* ---- writer_array.c ---- */

/* DATASETS, and the end of them. */
bool trajd_writer_datasets(struct trajd_writer *writer, struct trajd_writer_frame *frame);
void trajd_writer_clear_datasets(struct trajd_writer *writer);

struct trajd_writer_place {
    /* the source's episode: its dataset has the attributes, and for bool the type, an enum that
     * only a copy keeps */
    hid_t from;
    hid_t to; /* the folder of the output that it comes into */
    uint64_t rows;
    bool has_attributes;
};
/* Sets *offset where rows are contiguous, UINT64_MAX elsewhere. */
bool trajd_writer_make_dataset(struct trajd_writer *writer, struct trajd_writer_dataset *dataset,
                               const struct trajd_writer_place *place, uint64_t *offset);
/* A dataset of the source; -1 where there is none. The caller closes. */
hid_t trajd_writer_open_source(hid_t from, const char *path);

/* ---- writer_episode.c ---- */

bool trajd_writer_episodes(struct trajd_writer *writer, struct trajd_writer_frame *frame);

/* ---- writer_finish.c ---- */

bool trajd_writer_masks(struct trajd_writer *writer, struct trajd_writer_frame *frame);
bool trajd_writer_finish(struct trajd_writer *writer, struct trajd_writer_frame *frame);
bool trajd_writer_chunks(struct trajd_writer *writer, struct trajd_writer_frame *frame, int fd);

#endif
