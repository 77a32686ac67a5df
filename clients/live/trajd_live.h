/* libtrajd_live: the observation of a policy, built on the robot from rows as they come, by the rules
 * of the feed that the policy was trained on.
 *
 *     trajd_live_open("square.live", NULL, &live, &error)      rules, memory
 *     trajd_live_push(live, stream, t_ns, row, &error)         from the threads of the sensors
 *     trajd_live_observe(live, t_ns, 0, out, &anchor, &error)  from the thread of the policy
 *     trajd_live_close(&live)
 *
 * The bytes are those that the daemon makes of a recording of the same rows.
 *
 * Times are int64 ns of any one clock, the same for all streams and for t_ns. A stamp is that which
 * the recorder would write: the offset and the latency of the layout are applied here. So t_ns and
 * anchor_ns are times of sensing.
 *
 * Real time: all memory is allocated and touched by open. push and observe allocate nothing, make no
 * system call and wait for no lock. push copies one row, or prepares one frame of a camera (README.md
 * names the one augmentation whose centre allocates). observe searches and copies the rows of the
 * window, resamples and transforms them; it needs 256 KiB of stack. README.md has figures.
 *
 * Threads: each stream has one pushing thread at a time, and one thread at a time observes; a second
 * one gets TRAJD_ERR_BUSY. Pushing and observing go on side by side. open and close are exclusive. */
#ifndef TRAJD_LIVE_H
#define TRAJD_LIVE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRAJD_LIVE_MAX_RANK 9u

struct trajd_live;

struct trajd_live_options {
    /* how far in the past t_ns may lie behind the newest row; 0: 1 s */
    int64_t history_ns;
    /* how far the newest row of the anchor's clock may lie before t_ns; 0: three rows, the latency
     * of its clock and 20 ms. Where the anchor is t_ns: the newest row of all streams; 0: three rows
     * and the latency of the fastest stream that has rows, and 200 ms */
    int64_t max_anchor_age_ns;
};

/* Reads the description of a feed from a file, or from a text in memory, and allocates all memory.
 * options may be NULL. The caller closes. After a success the message of `error` is empty, or says that
 * the description is of an earlier version and has no digest. TRAJD_ERR_ARGUMENT: the text is
 * not a description, with the key, or was changed after it was written; TRAJD_ERR_NOT_FOUND,
 * TRAJD_ERR_IO: the file; TRAJD_ERR_MEMORY. */
enum trajd_status trajd_live_open(const char *path, const struct trajd_live_options *options,
                                  struct trajd_live **live, struct trajd_error *error);
enum trajd_status trajd_live_open_text(const char *text, size_t size,
                                       const struct trajd_live_options *options,
                                       struct trajd_live **live, struct trajd_error *error);
/* Frees it and sets *live to NULL. NULL is fine. */
void trajd_live_close(struct trajd_live **live);

/* ---- what is pushed ---- */

/* A stream. "clock:NAME" has no columns: its rows are stamps alone, and `row` may be NULL. */
struct trajd_live_stream {
    const char *name; /* these are valid until close */
    const char *clock;
    enum trajd_dtype dtype;
    uint32_t rank;
    uint64_t shape[TRAJD_LIVE_MAX_RANK]; /* of a row */
    uint64_t row_bytes;
    int64_t interval_ns; /* the mean time from row to row in the recordings; 0: not known, because
                          * no episode has two rows */
    int64_t latency_ns;  /* of the clock, minus its offset: subtracted from each stamp */
    uint32_t capacity;   /* rows that are kept */
};

uint32_t trajd_live_stream_count(const struct trajd_live *live);
/* Returns the number of the stream with that name, or -1. */
int64_t trajd_live_find_stream(const struct trajd_live *live, const char *name);
/* stream < trajd_live_stream_count */
void trajd_live_get_stream(const struct trajd_live *live, uint32_t stream,
                           struct trajd_live_stream *info);

/* Takes a row: row_bytes, dense. A frame is pixels, height x width x channels, upright, red
 * first: the caller decodes JPEG and PNG.
 * TRAJD_ERR_DATA: the stamp is not after that of the row before (a late or repeated row); the row is
 * counted and not used. TRAJD_ERR_BUSY: another thread is pushing to this stream; the row is not
 * used. TRAJD_ERR_ARGUMENT: there is no such stream, or the stamp is beyond 2^61 ns. error may be
 * NULL. */
enum trajd_status trajd_live_push(struct trajd_live *live, uint32_t stream, int64_t t_ns,
                                  const void *row, struct trajd_error *error);

struct trajd_live_counts {
    uint64_t taken;    /* rows */
    uint64_t late;     /* refused: the stamp was before that of the row before */
    uint64_t repeated; /* refused: the same stamp */
    uint64_t busy;     /* refused: two threads pushed */
    /* taken rows whose distance to the row before differs from the recording's rate by more than
     * half a row; 0 where the recordings have stamps */
    uint64_t off_rate;
    int64_t off_rate_ns; /* the distance of the last of these rows; 0: none */
    int64_t newest_ns;   /* the newest row, latency applied; INT64_MIN: none */
};

/* Thread-safe at any time. */
void trajd_live_get_counts(const struct trajd_live *live, uint32_t stream,
                           struct trajd_live_counts *counts);

/* ---- what is observed ---- */

struct trajd_live_output {
    const char *name; /* valid until close */
    enum trajd_dtype dtype;
    uint32_t rank;
    uint64_t shape[TRAJD_LIVE_MAX_RANK]; /* [T, ...] */
    uint64_t offset_bytes, size_bytes;   /* of the values in `out` */
    uint64_t mask_offset_bytes;          /* of T bytes: enum trajd_mask, 0: valid */
};

uint32_t trajd_live_output_count(const struct trajd_live *live);
/* output < trajd_live_output_count */
void trajd_live_get_output(const struct trajd_live *live, uint32_t output,
                           struct trajd_live_output *info);
/* Returns the bytes of an observation. */
uint64_t trajd_live_size_bytes(const struct trajd_live *live);

/* Also observes before each stream has a row. Steps without one are masked BEFORE_START. A stream on
 * the clock of the anchors without a row still gives TRAJD_ERR_TIMEOUT: there is no anchor. */
#define TRAJD_LIVE_PARTIAL 1u

/* Writes the observation at t_ns to out[trajd_live_size_bytes], aligned to 8 bytes. Where streams are
 * on the clock of the anchors, the anchor is the last stamp at or before t_ns that all of them have;
 * else it is t_ns. *anchor_ns (or NULL) becomes its time. After an error, `out` is undefined.
 *   TRAJD_ERR_TIMEOUT    a stream has no row at or before the anchor yet: call again later
 *   TRAJD_ERR_DATA       a stream on the anchor's clock, or all streams have stopped: the newest row
 *                        is older than max_anchor_age_ns
 *   TRAJD_ERR_NOT_FOUND  the window reaches back to rows that are not kept: raise history_ns
 *   TRAJD_ERR_BUSY       another thread observes
 *   TRAJD_ERR_ARGUMENT   t_ns is beyond 2^61 ns */
enum trajd_status trajd_live_observe(struct trajd_live *live, int64_t t_ns, unsigned flags,
                                     void *out, int64_t *anchor_ns, struct trajd_error *error);

/* Begins a new episode: forgets all rows, and stamps may go back. Call it while no thread pushes. It
 * is thread-safe, but a row that is pushed meanwhile may belong to either episode, and anchors with a
 * rate may be counted from the first row of the episode before. */
void trajd_live_reset(struct trajd_live *live);

#ifdef __cplusplus
}
#endif
#endif
