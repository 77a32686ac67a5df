/* The last rows of one stream, in memory of a fixed size. One thread writes and one reads, side by
 * side and without waiting: the writer never looks at the reader. The reader copies rows, and then
 * asks whether one of them was overwritten meanwhile.
 *
 * Rows are numbered from 0 over the life of the ring. A row is a stamp and the bytes of the row, in
 * words of 8 bytes that are read and written atomically. */
#ifndef TRAJD_LIVE_LIVE_RING_H
#define TRAJD_LIVE_LIVE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trajd_live_ring {
    uint64_t *words;   /* [capacity][1 + row_words] */
    uint64_t capacity; /* rows; a power of two */
    uint32_t row_words;
    size_t row_bytes;
    uint64_t first;   /* rows before belong to an earlier episode */
    int64_t first_ns; /* the stamp of row `first`, once there is one */
    /* The writer begins row n by begun = n + 1 and ends it by pushed = n + 1. */
    uint64_t begun, pushed;
};

/* The rows that a reader may see: [begin, end). */
struct trajd_live_rows {
    uint64_t begin, end;
    bool is_cut; /* rows of the episode before `begin` are gone */
};

/* Begins the next row and returns its number: what belongs to it elsewhere may be written from then on.
 * Push writes the row, and begins it if that has not been done. One thread at a time. */
uint64_t trajd_live_ring_begin(struct trajd_live_ring *ring);
void trajd_live_ring_push(struct trajd_live_ring *ring, int64_t stamp_ns, const void *row);
/* Returns the stamp of the newest row of the episode, or INT64_MIN. For any thread; exact for the
 * writer. */
int64_t trajd_live_ring_newest(const struct trajd_live_ring *ring);

struct trajd_live_rows trajd_live_ring_rows(const struct trajd_live_ring *ring);
int64_t trajd_live_ring_stamp(const struct trajd_live_ring *ring, uint64_t row);
/* Returns the first row of [begin, end) whose stamp is after x, or `end`. */
uint64_t trajd_live_ring_after(const struct trajd_live_ring *ring, struct trajd_live_rows rows,
                               int64_t x_ns);
/* Copies stamps and rows (row_words each) of [begin, end). */
void trajd_live_ring_copy(const struct trajd_live_ring *ring, uint64_t begin, uint64_t end,
                          int64_t *stamps_ns, uint64_t *words);
/* Returns whether all that was read since trajd_live_ring_rows is as it was written. */
bool trajd_live_ring_kept(const struct trajd_live_ring *ring, struct trajd_live_rows rows);
/* Copy bytes to and from words that are read and written side by side. */
void trajd_live_words_store(uint64_t *words, const void *bytes, size_t size);
void trajd_live_words_load(const uint64_t *words, void *bytes, size_t size);
/* Begins a new episode. */
void trajd_live_ring_reset(struct trajd_live_ring *ring);

#endif
