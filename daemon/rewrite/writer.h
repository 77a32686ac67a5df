/* trajd-indexer as "trajd-indexer write": makes the structure of a new HDF5 file, in a process of its own because it copies from inputs
 * that nobody trusts. Rows do not go through it: it makes room for them and tells where, the parent writes them.
 *
 * Frames as in daemon/dataset/indexer.h. The parent sends, in this order; texts are u32 length + bytes, numbers of the machine's order:
 *
 *     OUTPUT   the new file's descriptor. Answer: READY, once the file is begun and the sandbox stands
 *     DATASETS u32 n, dataset[n]: what episodes are made of. No answer
 *                  dataset := text path, u8 dtype, u8 rank, u64 shape[rank - 1], u64 chunk[rank], u8 level     shape: of a row; chunk[0] 0: contiguous
 *     INPUT    an input's descriptor; text label, groups, filter_folder; u8 is_first; u32 n, text known[n]. What stands beside the episodes is
 *                  copied from the first. Answer: READY
 *     EPISODES u32 n, episode[n], of that input
 *                  episode := text source, target, label, part; u64 steps; u8 has_more; u32 n, u64 row_counts[n]; u32 n, array[n]; u32 n, start[n]
 *                             has_more: something may stand in the source beside these arrays and the episode's own attributes
 *                  array   := u32 which dataset, u8 has_attributes: whether the source's has some
 *                  start   := text path, i64 ns, u8 unit
 *              Answer: OFFSETS, u64[n of all arrays]: where their rows go in the file; UINT64_MAX for one in chunks
 *     MASKS    text folder; u32 n, key[n]; key := text name, u32 n, text episodes[n]
 *     FINISH   u64 steps, episodes; u32 n, rate[n]; text provenance; rate := text object, name, json, value
 *              Answer: DONE. The file is whole but for its rows
 *     CHUNKS   the descriptor of the file with compressed chunks; u32 n, array[n], after an OUTPUT with is_new 0
 *                  array := text path, u8 rank, u64 n, chunk[n]; chunk := u64 place[rank], u64 offset, u32 size, u32 mask
 *              Answer: DONE when all are in the file
 *
 * `known` are paths below the episode that are neither copied nor told of. Other datasets are left out when their rows are as many
 * as one of row_counts or one more, and copied as they are otherwise; a NOTE tells of each path once. FAILED, u32 errno and text, ends it all. */
#ifndef TRAJD_REWRITE_WRITER_H
#define TRAJD_REWRITE_WRITER_H

enum trajd_writer_kind {
    TRAJD_WRITER_OUTPUT = 16,
    TRAJD_WRITER_DATASETS,
    TRAJD_WRITER_INPUT,
    TRAJD_WRITER_EPISODES,
    TRAJD_WRITER_MASKS,
    TRAJD_WRITER_FINISH,
    TRAJD_WRITER_CHUNKS,
    TRAJD_WRITER_READY,
    TRAJD_WRITER_OFFSETS,
    TRAJD_WRITER_NOTE,
    TRAJD_WRITER_DONE,
    TRAJD_WRITER_FAILED,
};

#define TRAJD_WRITER_SIGNATURE_SIZE 8
#define TRAJD_WRITER_FRAME_BYTES_MAX (1u << 30)

#ifdef TRAJD_INDEXER_CHILD /* the rest needs libhdf5 */
#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A frame being read. `failed` is set at the first thing that is not there; what comes then is empty. */
struct trajd_writer_frame {
    const uint8_t *next, *end;
    bool failed;
};

#define TRAJD_WRITER_PATH_SIZE 4096
#define TRAJD_WRITER_RANK_MAX 8
#define TRAJD_WRITER_TOLD_MAX 64

/* A dataset that episodes have, with what its makings share. */
struct trajd_writer_dataset {
    char *path; /* below an episode */
    uint8_t dtype, rank, level;
    hsize_t shape[TRAJD_WRITER_RANK_MAX], chunk[TRAJD_WRITER_RANK_MAX]; /* of the episode that was made last */
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
    uint32_t told_count;
    char *told[TRAJD_WRITER_TOLD_MAX]; /* paths that need not be told of again, for every episode */
};

uint64_t trajd_writer_u64(struct trajd_writer_frame *frame);
uint32_t trajd_writer_u32(struct trajd_writer_frame *frame);
uint8_t trajd_writer_u8(struct trajd_writer_frame *frame);
/* Into `text`, cut never: too long is failed. */
void trajd_writer_text(struct trajd_writer_frame *frame, char *text, size_t size);

/* The whole child. Its exit status. */
int trajd_writer_run(void);

/* A NOTE; after many of them silence. */
void trajd_writer_note(struct trajd_writer *writer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sends FAILED with libhdf5's innermost message and returns false. */
bool trajd_writer_fail(const char *what);

/* ---- writer_copy.c ---- */

/* What of the first input stands outside of its episodes; of a later one, attributes that differ are told of. */
bool trajd_writer_copy_frame(struct trajd_writer *writer);
/* An attribute with its type and space; -1 each where there is none. Closed by trajd_writer_close_attribute, whatever it is. */
struct trajd_writer_attribute {
    hid_t id, type, space;
};
struct trajd_writer_attribute trajd_writer_open_attribute(hid_t object, const char *name);
void trajd_writer_close_attribute(const struct trajd_writer_attribute *attribute);
/* The text of one that is a single string of variable length, malloc'd, or NULL. */
char *trajd_writer_variable_text(const struct trajd_writer_attribute *attribute);
/* All attributes of an object that the other lacks. */
bool trajd_writer_copy_attributes(struct trajd_writer *writer, hid_t from, hid_t to, const char *path);
/* A copy of an object with all below it. */
bool trajd_writer_copy_object(struct trajd_writer *writer, hid_t from, hid_t to, const char *name);
/* Sets the integer attribute where there is one. */
void trajd_writer_set_count(hid_t object, const char *name, uint64_t value);
/* The groups down to `path` from a file or a group. -1: failed. The caller closes. */
hid_t trajd_writer_make_group(hid_t from, const char *path);

/* ---- writer_dataset.c ---- */

/* DATASETS, and the end of them. */
bool trajd_writer_datasets(struct trajd_writer *writer, struct trajd_writer_frame *frame);
void trajd_writer_clear_datasets(struct trajd_writer *writer);

struct trajd_writer_place {
    hid_t from; /* the source's episode: its dataset has the attributes, and for bool the type, an enum that only a copy keeps */
    hid_t to;   /* the folder of the output that it comes into */
    uint64_t rows;
    bool has_attributes;
};
/* Sets *offset where rows are contiguous, UINT64_MAX elsewhere. */
bool trajd_writer_make_dataset(struct trajd_writer *writer, struct trajd_writer_dataset *dataset, const struct trajd_writer_place *place,
                               uint64_t *offset);
/* A dataset of the source; -1 where there is none. The caller closes. */
hid_t trajd_writer_open_source(hid_t from, const char *path);

/* ---- writer_episode.c ---- */

bool trajd_writer_episodes(struct trajd_writer *writer, struct trajd_writer_frame *frame);

/* ---- writer_finish.c ---- */

/* Puts a text where an attribute is or is not, of a length of its own. */
bool trajd_writer_set_text(hid_t object, const char *name, const char *text, bool variable);
bool trajd_writer_masks(struct trajd_writer *writer, struct trajd_writer_frame *frame);
bool trajd_writer_finish(struct trajd_writer *writer, struct trajd_writer_frame *frame);
bool trajd_writer_chunks(struct trajd_writer *writer, struct trajd_writer_frame *frame, int fd);

#endif
#endif
