/* trajd-indexer as "trajd-indexer write": makes the structure of a new HDF5 file, in a process of its own because it copies from inputs
 * that nobody trusts. Rows do not go through it: it makes room for them and tells where, the parent writes them.
 *
 * Frames as in daemon/dataset/indexer.h. The parent sends, in this order; texts are u32 length + bytes, numbers of the machine's order:
 *
 *     OUTPUT   the new file's descriptor. Answer: READY, once the file is begun and the sandbox stands
 *     INPUT    an input's descriptor; text label, groups, filter_folder; u8 is_first. What stands beside the episodes is copied from the first.
 *                  Answer: READY
 *     EPISODE  text source, target, label, part; u64 steps; u32 n, text known[n]; u32 n, u64 row_counts[n]; u32 n, dataset[n]; u32 n, start[n]
 *                  dataset := text path, u8 dtype, u8 rank, u64 shape[rank], u64 chunk[rank], u8 level     chunk[0] 0: contiguous
 *                  start   := text path, i64 ns, u8 unit
 *              Answer: OFFSETS, u64[n of datasets]: where their rows go in the file; UINT64_MAX for one in chunks
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
    TRAJD_WRITER_INPUT,
    TRAJD_WRITER_EPISODE,
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
#define TRAJD_WRITER_TOLD_MAX 64

/* What the child is at. */
struct trajd_writer {
    hid_t output, input;
    char label[TRAJD_WRITER_PATH_SIZE];  /* of the input */
    char groups[TRAJD_WRITER_PATH_SIZE]; /* of the episodes */
    char filter_folder[TRAJD_WRITER_PATH_SIZE];
    bool is_first;
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
/* The groups down to `path` in the output. -1: failed. The caller closes. */
hid_t trajd_writer_make_group(struct trajd_writer *writer, const char *path);

/* ---- writer_episode.c ---- */

bool trajd_writer_episode(struct trajd_writer *writer, struct trajd_writer_frame *frame);

/* ---- writer_finish.c ---- */

/* Puts a text where an attribute is or is not, of a length of its own. */
bool trajd_writer_set_text(hid_t object, const char *name, const char *text, bool variable);
bool trajd_writer_masks(struct trajd_writer *writer, struct trajd_writer_frame *frame);
bool trajd_writer_finish(struct trajd_writer *writer, struct trajd_writer_frame *frame);
bool trajd_writer_chunks(struct trajd_writer *writer, struct trajd_writer_frame *frame, int fd);

#endif
#endif
