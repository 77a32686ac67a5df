/* The answers to workers' questions about feeds (ASK of proto/PROTOCOL.md). query.c asks for them on a
 * thread of its own: the server's thread must not block, and the opener's may be loading a dataset.
 *
 * The thread reads what does not change while a feed lives (specification, plan, index) and rows,
 * which it pins for a moment. It never waits for production. It may wait for storage; the server
 * then refuses further questions as busy.
 *
 * An answer is one JSON document. A new question is a row in the table of query.c and a function in
 * query_feed.c, or in a file of its own if it is long. answer.c has what they share. */
#ifndef TRAJD_CONTROL_QUERY_H
#define TRAJD_CONTROL_QUERY_H

#include <stdbool.h>

#include "daemon/base/json.h"
#include "daemon/producer/producer.h"
#include "daemon/server/server.h"
#include "kernels/resample_resolve.h"

/* ---- the answers: query_feed.c has the short ones, query_NAME.c the others ---- */

/* Writes a document about the producer to `json`, or fills *error: TRAJD_ERR_ARGUMENT, or
 * TRAJD_ERR_NOT_FOUND with the names that exist. */
typedef enum trajd_status trajd_query_result(const struct trajd_query *query,
                                             const struct trajd_producer *producer,
                                             struct trajd_json *json, struct trajd_error *error);

trajd_query_result trajd_query_episodes, trajd_query_explain, trajd_query_live, trajd_query_images,
    trajd_query_plan, trajd_query_position, trajd_query_statistics;

/* ---- documents of several pages: answer.c ---- */

/* Returns true where the document still fits an answer. Otherwise goes back to `mark` and returns
 * false. */
bool trajd_query_fits(struct trajd_json *json, struct trajd_json_mark mark);
/* Closes the list of items and the document. `next` is the first item that is not in it;
 * next == total: it holds the last one. */
void trajd_query_end_page(struct trajd_json *json, uint64_t next, uint64_t total);

/* ---- reasons, in words and numbers: answer.c; pure functions ---- */

#define TRAJD_REASON_SIZE 512

/* One step of one stream. Reasons number rows as the file does. */
struct trajd_reason_facts {
    const struct trajd_resample_step *step;
    const struct trajd_stream *stream;
    const char *stream_name;
    bool in_rows;              /* the grid counts rows instead of ns */
    bool clipped;              /* the window sees rows up to its anchor (plus lookahead) only */
    int64_t row_count;         /* rows that the window may see */
    int64_t first_ns;          /* time of row 0, in ns from the clock's zero */
    const uint32_t *kept_rows; /* the file's number of each row; NULL: the same number */
    const char *unreadable;    /* why the episode's rows cannot be read; NULL: they can */
    int64_t median_ns;         /* of the clock's intervals */
    int64_t lost_feature;      /* index of a feature that is not finite; < 0: none */
};

/* Writes the reason of `mask`, which is not VALID, to `text`, which has TRAJD_REASON_SIZE bytes. */
void trajd_reason_write(const struct trajd_reason_facts *facts, enum trajd_mask mask, char *text);

/* ---- images of a plan: answer.c ---- */

/* Writes "picture": how the frames are stored and made. */
void trajd_explain_image(const struct trajd_window_plan *plan, uint32_t image,
                         struct trajd_json *json);
/* Writes "draws": the parameters of each step of `augment:`. Nothing where there are none. */
void trajd_explain_draws(const struct trajd_window_plan *plan, uint32_t image, uint64_t seed,
                         const struct trajd_window *window, uint32_t step, struct trajd_json *json);
/* Makes a frame, unless it is in memory. Blocks. Returns BAD_FRAME where it is bad, else VALID.
 * Writes why there is no frame to `reason`, which has TRAJD_REASON_SIZE bytes; "" where there is
 * one. VALID with a reason: it could not be made at present. */
enum trajd_mask trajd_explain_frame(const struct trajd_window_plan *plan, uint32_t image,
                                    uint32_t episode, int64_t row, char *reason);

#endif
