/* The live description of a feed: all that a robot needs to build the observation of a policy from
 * rows as they come. It is one JSON document without paths, datasets or rules that are still to be
 * resolved. clients/live reads it; README.md lists its keys.
 *
 * A description has the outputs of role obs, and the states that they are relative to. Outputs that
 * need rows after the anchor (actions, next, goal, returns) are only listed, each with the reason. */
#ifndef TRAJD_LIVE_LIVE_DESCRIPTION_H
#define TRAJD_LIVE_LIVE_DESCRIPTION_H

#include "daemon/base/json.h"
#include "daemon/window/window_plan.h"

#define TRAJD_LIVE_VERSION 1
#define TRAJD_LIVE_MAX_STREAMS 256

/* What of a plan is in the description. Numbers in the document count the lists here. */
struct trajd_live_choice {
    const struct trajd_window_plan *plan;
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
enum trajd_status trajd_live_choose(const struct trajd_window_plan *plan,
                                    struct trajd_live_choice *choice, struct trajd_error *error);
/* Write members of an open object: all but "outputs", and one element of "outputs". */
void trajd_live_write_head(const struct trajd_live_choice *choice, struct trajd_json *json);
void trajd_live_write_output(const struct trajd_live_choice *choice, uint32_t number,
                             struct trajd_json *json);

#endif
