/* Declarations that the files of the writer, "trajd-indexer write", share. Its frames are described
 * in daemon/index/writer_protocol.h. Functions that return false have sent FAILED. */
#ifndef TRAJD_HDF5_WRITER_H
#define TRAJD_HDF5_WRITER_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/hdf5/helper_socket.h"
#include "daemon/hdf5/scan.h"
#include "daemon/index/writer_protocol.h"

/* A frame that is read from front to back. `failed` is set where it ends early; all later values
 * are zero or empty. */
struct trajd_writer_frame {
    const uint8_t *next, *end;
    bool failed;
};

#define TRAJD_WRITER_PATH_SIZE 4096
#define TRAJD_WRITER_REPORTED_MAX 64
#define TRAJD_WRITER_AXES_MAX 4096

/* A dataset of the episodes, with the libhdf5 objects that creating it reuses. */
struct trajd_writer_dataset {
    char *path; /* relative to the episode */
    uint8_t dtype, level;
    uint8_t rank; /* 0: rows of the source are copied */
    /* of the episode that was created last */
    hsize_t shape[TRAJD_WRITER_RANK_MAX], chunk[TRAJD_WRITER_RANK_MAX];
    hsize_t chunk_rows; /* the most rows of a chunk; 0: contiguous */
    hid_t type;         /* -1: the type of the source's dataset */
    hid_t space, creation;
};

/* An array of the output that waits for rows. */
struct trajd_writer_array {
    hid_t id;       /* -1: all rows are there */
    hid_t type;     /* of the rows in memory */
    hid_t own_type; /* the same where no other array has it; else -1 */
    uint64_t left;  /* rows, or chunks, that are still to come */
    uint64_t rows, row_bytes;
};

struct trajd_writer_episode {
    uint32_t array_count;
    struct trajd_writer_array *arrays;
};

/* The axis along which a dataset that no stream names has an entry for each row. */
struct trajd_writer_axis {
    char *path;
    int axis; /* -1: none */
};

/* The state of the writer. The process ends soon after its last frame, so nothing is freed. */
struct trajd_writer {
    hid_t output, input;
    struct trajd_descriptor_file output_file, input_file;
    const uint8_t *memory; /* shared with the parent */
    uint64_t memory_bytes;
    uint32_t dataset_count;
    struct trajd_writer_dataset *datasets;
    uint32_t episode_count, episode_capacity;
    struct trajd_writer_episode *episodes;
    char label[TRAJD_WRITER_PATH_SIZE];  /* of the input */
    char groups[TRAJD_WRITER_PATH_SIZE]; /* the pattern of the episodes' groups */
    char filter_folder[TRAJD_WRITER_PATH_SIZE];
    bool is_first;
    /* a group whose arrays hold several episodes, and the group of the output with what these share;
     * "": none yet */
    char shared_source[TRAJD_WRITER_PATH_SIZE], shared_path[TRAJD_WRITER_PATH_SIZE];
    uint32_t known_count;
    char **known; /* paths that the parent handles itself */
    uint32_t table_count;
    char **tables; /* patterns of datasets that have no entry for each row */
    uint32_t note_count;
    uint32_t reported_count;
    char *reported[TRAJD_WRITER_REPORTED_MAX]; /* paths that are noted already */
    uint32_t axis_count;
    struct trajd_writer_axis axes[TRAJD_WRITER_AXES_MAX];
};

/* ---- writer.c ---- */

/* Runs the writer until the socket ends. Returns the exit status. */
int trajd_writer_run(void);

/* ---- writer_frame.c ---- */

uint64_t trajd_writer_u64(struct trajd_writer_frame *frame);
uint32_t trajd_writer_u32(struct trajd_writer_frame *frame);
uint8_t trajd_writer_u8(struct trajd_writer_frame *frame);
/* Copies the text. One that does not fit sets `failed`. */
void trajd_writer_text(struct trajd_writer_frame *frame, char *text, size_t size);
/* Reads a list of texts. */
char **trajd_writer_texts(struct trajd_writer_frame *frame, uint32_t *count);

/* Sends a NOTE. Sends at most 200 notes. Instead of the 200th it sends one that reports that
 * further notes are left out. */
void trajd_writer_note(struct trajd_writer *writer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Sends FAILED with libhdf5's innermost message. Returns false. */
bool trajd_writer_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Sends FAILED with an errno. */
void trajd_writer_send_failed(uint32_t code, const char *what, const char *why);
/* As trajd_writer_fail, for a damaged group of a file or an episode. */
bool trajd_writer_fail_group(const char *label, const char *path, const char *problem);

/* Closes an object of libhdf5; an id below 0 is fine. */
static inline void trajd_writer_close(hid_t id)
{
    if (id >= 0)
        H5Idec_ref(id);
}

/* ---- writer_attribute.c ---- */

/* Visits the attributes of an object. If libhdf5 cannot list them, sends a note instead. */
void trajd_writer_visit_attributes(struct trajd_writer *writer, hid_t object, const char *path,
                                   H5A_operator2_t visit, void *context);
/* Copies all attributes of `from` that `to` lacks. Sends a note for each one that cannot be read.
 * `path`: for notes. */
void trajd_writer_copy_attributes(struct trajd_writer *writer, hid_t from, hid_t to,
                                  const char *path);
/* Sets an integer attribute where the object has it. */
void trajd_writer_set_count(hid_t object, const char *name, uint64_t value);
/* Sets an attribute, in place of one that is there. Does not send FAILED. */
bool trajd_writer_set(hid_t object, const char *name, hid_t type, hid_t space, hid_t value_type,
                      const void *value);
/* Sets a text attribute. `variable`: as a string of variable length. Does not send FAILED. */
bool trajd_writer_set_text(hid_t object, const char *name, const char *text, bool variable);

/* ---- writer_copy.c ---- */

/* Copies the objects of the first input that lie outside its episodes. For a later input, notes the
 * attributes that differ. */
bool trajd_writer_copy_surroundings(struct trajd_writer *writer);
/* Where objects are copied that no stream names: an episode, or the rest of a file. */
struct trajd_writer_beside {
    struct trajd_writer *writer;
    const char *label; /* of the file or the episode */
    bool is_episode;
    /* the row counts of an episode's streams: a list of numbers, as it stands in the frame */
    struct trajd_writer_frame row_counts;
    uint32_t row_count_count;
    uint64_t steps;
    uint64_t first_row, all_rows; /* of arrays that hold several episodes; 0: they hold one */
    hid_t shared;                 /* the group of the output with what episodes share; -1: none */
    uint32_t pick_count;
    const uint8_t *picks; /* as they stand in the frame */
    /* groups created so far; links that lead back up would create them without end */
    uint32_t group_count;
};
/* Copies the attributes of a group, and all objects below it that no stream names. `path`: "", or
 * that of the group with a slash at its end. Fails where a group is damaged. */
bool trajd_writer_copy_folder(struct trajd_writer_beside *beside, hid_t from, hid_t to,
                              const char *path);
/* Creates the groups down to `path` below a file or a group, as far as they are missing. Returns
 * the last one, which the caller closes; -1 where it fails. */
hid_t trajd_writer_make_group(hid_t from, const char *path);

/* ---- writer_pick.c ---- */

/* How the length of a dataset that no stream names relates to the rows of its episode. */
enum trajd_writer_length {
    TRAJD_LENGTH_TABLE,      /* not at all */
    TRAJD_LENGTH_ROWS,       /* an entry for each row of the taken streams, along one axis */
    TRAJD_LENGTH_SAME,       /* the same, and the steps are the rows; or listed as a table */
    TRAJD_LENGTH_OTHER_ROWS, /* rows of other streams, or one more than rows */
    TRAJD_LENGTH_LONG,       /* another length, but too long for a table */
};
struct trajd_writer_pick {
    enum trajd_writer_length length;
    int axis;            /* of TRAJD_LENGTH_ROWS */
    const uint8_t *rows; /* u64[steps], not aligned: the row of each step */
};
/* Finds the relation. Fails where it is unclear. */
bool trajd_writer_find_length(const struct trajd_writer_beside *beside, hid_t dataset,
                              const char *path, struct trajd_writer_pick *pick);
/* Copies the entries of the rows that the steps take. *obstacle: NULL, or why the dataset is left
 * out. */
bool trajd_writer_pick_rows(const struct trajd_writer_beside *beside, hid_t source, hid_t to,
                            const char *name, const char *path,
                            const struct trajd_writer_pick *pick, const char **obstacle);

/* Copies a dataset by its values, without its attributes. Does not send FAILED. */
bool trajd_writer_copy_values(hid_t source, hid_t to, const char *name);

/* ---- writer_episode.c ---- */

/* Handle the frames of the same names. */
bool trajd_writer_datasets(struct trajd_writer *writer, struct trajd_writer_frame *frame);
bool trajd_writer_episodes(struct trajd_writer *writer, struct trajd_writer_frame *frame);

/* ---- writer_rows.c ---- */

/* Counts a new episode, and returns its arrays, all of which have their rows. */
struct trajd_writer_array *trajd_writer_add_episode(struct trajd_writer *writer, uint32_t arrays);
/* Handle the frames of the same names. */
bool trajd_writer_rows(struct trajd_writer *writer, struct trajd_writer_frame *frame);
bool trajd_writer_close_output(struct trajd_writer *writer);

/* ---- writer_summary.c ---- */

bool trajd_writer_masks(struct trajd_writer *writer, struct trajd_writer_frame *frame);
bool trajd_writer_summary(struct trajd_writer *writer, struct trajd_writer_frame *frame);

/* ---- writer_frames.c ---- */

/* Handles COPY, whose input is open, and FRAMES. */
bool trajd_writer_copy_file(struct trajd_writer *writer, struct trajd_writer_frame *frame);
bool trajd_writer_frames(struct trajd_writer *writer, struct trajd_writer_frame *frame);

#endif
