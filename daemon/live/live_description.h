/* The document of a plan (daemon/engine/document.h), made for a robot: with the outputs of role obs
 * and the states that they are relative to. Outputs that need rows after the anchor (actions, next,
 * goal, returns) are only listed, each with the reason. Or made whole, with all outputs. */
#ifndef TRAJD_LIVE_LIVE_DESCRIPTION_H
#define TRAJD_LIVE_LIVE_DESCRIPTION_H

#include "daemon/engine/document.h"
#include "daemon/window/window_plan.h"

#define TRAJD_LIVE_MAX_STREAMS 256

/* What of a plan is in the document. Numbers in the document count the lists here. */
struct trajd_live_choice {
    const struct trajd_window_plan *plan;
    bool is_whole;
    uint32_t output_count;
    uint32_t outputs[TRAJD_SPEC_MAX_OUTPUTS]; /* of the plan: delivered ones, then states */
    uint32_t stream_count;
    uint32_t streams[TRAJD_LIVE_MAX_STREAMS]; /* of the index */
    uint32_t clock_count;
    uint32_t clocks[TRAJD_LIVE_MAX_STREAMS + 1]; /* of the index */
    /* Steps are rows of the anchor's clock, which no stream has: its stamps are pushed alone. */
    bool needs_ticks;
};

/* Chooses. TRAJD_ERR_UNSUPPORTED: an observation of this feed cannot be built as rows come, with
 * the output and a remedy. */
enum trajd_status trajd_live_choose(const struct trajd_window_plan *plan, bool is_whole,
                                    struct trajd_live_choice *choice, struct trajd_error *error);
/* Returns why an output is not part of an observation; NULL: it is. */
const char *trajd_live_left_out(const struct trajd_window_plan *plan, uint32_t output_index);

/* Makes the document in the arena. The plan must have its statistics, because scale and offset are
 * in it, and outlive it. TRAJD_ERR_UNSUPPORTED as above, TRAJD_ERR_MEMORY. */
enum trajd_status trajd_live_describe(const struct trajd_window_plan *plan, bool is_whole,
                                      struct trajd_arena *arena, struct trajd_document *document,
                                      struct trajd_error *error);

#endif
