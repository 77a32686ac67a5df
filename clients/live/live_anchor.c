/* Which anchor an observation has, and at which times its steps lie. */
#include <inttypes.h>

#include "clients/live/live_state.h"

/* How often the streams of the anchor's clock are asked for a stamp that all have. */
#define MOST_TURNS 64

static bool is_left_out(const struct trajd_live_input *input)
{
    return input->may_lack && input->seen.begin == input->seen.end;
}

static bool is_used_lead(const struct trajd_live_input *input)
{
    return input->is_lead && !is_left_out(input);
}

static bool has_leads(const struct trajd_live *live)
{
    for (uint32_t i = 0; i < live->input_count; i++)
        if (is_used_lead(&live->inputs[i]))
            return true;
    return false;
}

enum trajd_status trajd_live_too_far(const struct trajd_live *live,
                                     const struct trajd_live_input *input,
                                     struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                           "%s: the window of the anchor %" PRId64
                           " reaches back to rows that are no longer kept (the newest %" PRIu64
                           " are): raise the option history, or observe a later time",
                           input->name, live->anchor_ns, input->ring.capacity * 3 / 4);
}

static double seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

static double milliseconds(int64_t ns)
{
    return (double)ns / 1e6;
}

enum trajd_status trajd_live_not_yet(const struct trajd_live_input *input, int64_t t_ns,
                                     struct trajd_error *error)
{
    if (input->seen.begin == input->seen.end)
        return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0,
                               "%s: no row at or before %" PRId64 " ns has come yet", input->name,
                               t_ns);
    return trajd_error_set(
        error, TRAJD_ERR_TIMEOUT, 0,
        "%s: no row at or before %" PRId64 " ns has come yet: its first row is stamped %.3f s "
        "after that. Stamps and the time of the observation must be of one clock",
        input->name, t_ns, seconds(trajd_live_ring_stamp(&input->ring, input->seen.begin) - t_ns));
}

/* ---- the anchor ---- */

static enum trajd_status no_common_stamp(const struct trajd_live *live, struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                           "the streams on clock %s have no recent stamp in common: push all rows "
                           "of one tick with one stamp, or give the feed anchors with a rate",
                           live->clocks[live->document.anchor_clock].name);
}

static enum trajd_status not_complete(const struct trajd_live *live,
                                      const struct trajd_live_input *input, int64_t stamp_ns,
                                      struct trajd_error *error)
{
    const int64_t first_ns = trajd_live_ring_stamp(&input->ring, input->seen.begin);

    return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0,
                           "%s: its first row is stamped %" PRId64
                           " ns after a row of another stream on clock %s, and an anchor needs "
                           "rows with one stamp: push all rows of one tick with one stamp",
                           input->name, first_ns - stamp_ns, live->clocks[input->clock].name);
}

/* Returns whether the row that the stream has nearest to a stamp is of the same tick, with a stamp of
 * its own: half an interval away at most. */
static bool is_near_miss(const struct trajd_live *live, const struct trajd_live_input *input,
                         uint64_t after, int64_t stamp_ns)
{
    const int64_t most_ns = live->clocks[input->clock].interval_ns / 2;
    const int64_t before_ns = after > input->seen.begin
                                  ? stamp_ns - trajd_live_ring_stamp(&input->ring, after - 1)
                                  : INT64_MAX;
    const int64_t after_ns =
        after < input->seen.end ? trajd_live_ring_stamp(&input->ring, after) - stamp_ns : INT64_MAX;

    return before_ns && (before_ns <= most_ns || after_ns <= most_ns);
}

/* Explains why a stream has no row at or before the stamp that the search has come to. One near miss
 * may be a first tick of which a row is still on its way. */
static enum trajd_status no_more_rows(const struct trajd_live *live,
                                      const struct trajd_live_input *input, int64_t stamp_ns,
                                      uint32_t near_misses, struct trajd_error *error)
{
    if (near_misses > 1)
        return no_common_stamp(live, error);
    if (input->seen.is_cut)
        return trajd_live_too_far(live, input, error);
    return near_misses ? not_complete(live, input, stamp_ns, error)
                       : trajd_live_not_yet(input, stamp_ns, error);
}

/* Goes back from *anchor_ns to the last stamp that all streams on the anchor's clock have. Threads
 * push the streams of a row one after another, and a row that is not complete is not an anchor. */
static enum trajd_status find_common_stamp(struct trajd_live *live, int64_t *anchor_ns,
                                           struct trajd_error *error)
{
    const int64_t t_ns = *anchor_ns;
    uint32_t agreed = 0, near_misses = 0;

    for (uint32_t turn = 0; turn < MOST_TURNS && agreed < live->lead_count; turn++) {
        agreed = 0;
        for (uint32_t i = 0; i < live->input_count; i++) {
            struct trajd_live_input *input = &live->inputs[i];
            uint64_t after;
            int64_t stamp_ns;
            if (!input->is_lead)
                continue;
            agreed++;
            if (is_left_out(input))
                continue;
            after = trajd_live_ring_after(&input->ring, input->seen, *anchor_ns);
            if (*anchor_ns != t_ns) /* it is the stamp of a row */
                near_misses += is_near_miss(live, input, after, *anchor_ns);
            if (after == input->seen.begin)
                return no_more_rows(live, input, *anchor_ns, near_misses, error);
            input->anchor_row = after - 1;
            stamp_ns = trajd_live_ring_stamp(&input->ring, after - 1);
            if (stamp_ns != *anchor_ns)
                agreed = 1;
            *anchor_ns = stamp_ns;
        }
    }
    return agreed == live->lead_count ? TRAJD_OK : no_common_stamp(live, error);
}

/* ---- streams that have stopped ---- */

/* Returns the stamp of the last row at or before t_ns, or INT64_MIN. */
static int64_t last_stamp(const struct trajd_live_input *input, int64_t t_ns)
{
    const uint64_t after = trajd_live_ring_after(&input->ring, input->seen, t_ns);

    return after > input->seen.begin ? trajd_live_ring_stamp(&input->ring, after - 1) : INT64_MIN;
}

static int64_t newest_stamp(const struct trajd_live_input *input)
{
    return trajd_live_ring_stamp(&input->ring, input->seen.end - 1);
}

static enum trajd_status too_old(const struct trajd_live_input *input, int64_t t_ns, int64_t age_ns,
                                 int64_t limit_ns, const char *which, struct trajd_error *error)
{
    const int64_t newest_ns = newest_stamp(input);
    const double age_ms = milliseconds(age_ns);

    if (newest_ns > t_ns)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "%s: its last row before the observation is %.1f ms old, and "
                               "max_anchor_age is %.1f ms. Its newest row is stamped %.3f s ahead "
                               "of the observation, and rows with earlier stamps are refused: if "
                               "that stamp is wrong, correct the clock, then reset",
                               input->name, age_ms, milliseconds(limit_ns),
                               seconds(newest_ns - t_ns));
    return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                           "%s: its newest row is %.1f ms old, and max_anchor_age is %.1f ms: %s "
                           "stopped",
                           input->name, age_ms, milliseconds(limit_ns), which);
}

/* Names the stream on the anchor's clock that has had no row for the longest time. */
static enum trajd_status anchor_too_old(const struct trajd_live *live, int64_t t_ns,
                                        struct trajd_error *error)
{
    const struct trajd_live_input *oldest = NULL;
    int64_t oldest_ns = INT64_MAX;

    for (uint32_t i = 0; i < live->input_count; i++) {
        const struct trajd_live_input *input = &live->inputs[i];
        const int64_t stamp_ns = is_used_lead(input) ? last_stamp(input, t_ns) : INT64_MAX;
        if (stamp_ns == INT64_MIN) /* its rows were overwritten meanwhile */
            return trajd_live_too_far(live, input, error);
        if (stamp_ns < oldest_ns) {
            oldest = input;
            oldest_ns = stamp_ns;
        }
    }
    if (!oldest || t_ns - oldest_ns <= live->max_anchor_age_ns)
        return no_common_stamp(live, error);
    return too_old(oldest, t_ns, t_ns - oldest_ns, live->max_anchor_age_ns, "the stream has",
                   error);
}

/* Returns how long before t_ns the last row lies, or INT64_MAX without one. */
static int64_t age_ns(const struct trajd_live_input *input, int64_t t_ns)
{
    const int64_t stamp_ns = last_stamp(input, t_ns);

    return stamp_ns == INT64_MIN ? INT64_MAX : t_ns - stamp_ns;
}

/* Returns the time from row to row. A clock that is not known to have two rows is the slowest. */
static int64_t pace_ns(const struct trajd_live *live, const struct trajd_live_input *input)
{
    const struct trajd_live_clock *clock = &live->clocks[input->clock];

    return clock->has_interval ? clock->interval_ns : INT64_MAX;
}

/* Returns the stream of the fastest clock among those with a row at or before t_ns, or NULL. */
static const struct trajd_live_input *fastest_input(const struct trajd_live *live, int64_t t_ns)
{
    const struct trajd_live_input *fastest = NULL;

    for (uint32_t i = 0; i < live->input_count; i++) {
        const struct trajd_live_input *input = &live->inputs[i];
        if (age_ns(input, t_ns) < INT64_MAX &&
            (!fastest || pace_ns(live, input) < pace_ns(live, fastest)))
            fastest = input;
    }
    return fastest;
}

/* Returns whether the fastest stream stopped long before the newest row, and the stream of that row
 * is slow and goes on. */
static bool has_slow_one(const struct trajd_live *live, int64_t t_ns,
                         const struct trajd_live_input *fastest,
                         const struct trajd_live_input *newest)
{
    const int64_t newest_ns = newest_stamp(newest);

    return newest_ns <= t_ns && t_ns - newest_ns <= live->clocks[newest->clock].max_idle_ns &&
           newest_ns - newest_stamp(fastest) > live->clocks[fastest->clock].max_idle_ns;
}

/* Refuses a time before which no stream has had a row for long. Names the stream with the newest row:
 * one that is stamped ahead is the newest. If it is only slow, the fastest stream has stopped. */
static enum trajd_status check_idle(const struct trajd_live *live, int64_t t_ns,
                                    struct trajd_error *error)
{
    const struct trajd_live_input *fastest = fastest_input(live, t_ns), *newest = NULL;
    const int64_t limit_ns = fastest ? live->clocks[fastest->clock].max_idle_ns : INT64_MAX;

    for (uint32_t i = 0; i < live->input_count; i++) {
        const struct trajd_live_input *input = &live->inputs[i];
        const int64_t one_ns = age_ns(input, t_ns);
        if (one_ns <= limit_ns)
            return TRAJD_OK;
        if (one_ns < INT64_MAX && (!newest || newest_stamp(input) > newest_stamp(newest)))
            newest = input;
    }
    if (!newest) /* rows were overwritten meanwhile */
        newest = fastest;
    if (has_slow_one(live, t_ns, fastest, newest))
        return too_old(fastest, t_ns, age_ns(fastest, t_ns), limit_ns, "the stream has", error);
    return too_old(newest, t_ns, age_ns(newest, t_ns), limit_ns, "all streams have", error);
}

enum trajd_status trajd_live_find_anchor(struct trajd_live *live, int64_t t_ns,
                                         struct trajd_error *error)
{
    enum trajd_status status;

    live->anchor_ns = t_ns;
    live->anchor_count = has_leads(live);
    if (!live->anchor_count)
        return check_idle(live, t_ns, error);
    status = find_common_stamp(live, &live->anchor_ns, error);
    if (status || t_ns - live->anchor_ns <= live->max_anchor_age_ns)
        return status;
    return anchor_too_old(live, t_ns, error);
}

/* ---- earlier anchors ---- */

/* Finds the latest stamp of the leads before those that were found. INT64_MIN: there is none. */
static enum trajd_status find_earlier(const struct trajd_live *live, int64_t *stamp_ns,
                                      struct trajd_error *error)
{
    *stamp_ns = INT64_MIN;
    for (uint32_t i = 0; i < live->input_count; i++) {
        const struct trajd_live_input *input = &live->inputs[i];
        int64_t one_ns = INT64_MIN;
        if (!is_used_lead(input))
            continue;
        if (input->earlier_row > input->seen.begin)
            one_ns = trajd_live_ring_stamp(&input->ring, input->earlier_row - 1);
        else if (input->seen.is_cut)
            return trajd_live_too_far(live, input, error);
        *stamp_ns = one_ns > *stamp_ns ? one_ns : *stamp_ns;
    }
    return TRAJD_OK;
}

/* Moves each lead that has the stamp to the row before. */
static void pass_stamp(struct trajd_live *live, int64_t stamp_ns)
{
    for (uint32_t i = 0; i < live->input_count; i++) {
        struct trajd_live_input *input = &live->inputs[i];
        if (is_used_lead(input) && input->earlier_row > input->seen.begin &&
            trajd_live_ring_stamp(&input->ring, input->earlier_row - 1) == stamp_ns)
            input->earlier_row--;
    }
}

/* Collects the stamps of the anchor and of the anchors before it. A row that one stream has lost is
 * known by the others. */
static enum trajd_status find_earlier_anchors(struct trajd_live *live, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;
    int64_t stamp_ns;

    if (!live->anchor_count)
        return TRAJD_OK;
    for (uint32_t i = 0; i < live->input_count; i++)
        live->inputs[i].earlier_row = live->inputs[i].anchor_row;
    live->anchors_ns[live->steps_back] = live->anchor_ns;
    while (live->anchor_count <= (uint64_t)live->steps_back) {
        status = find_earlier(live, &stamp_ns, error);
        if (status || stamp_ns == INT64_MIN)
            break;
        pass_stamp(live, stamp_ns);
        live->anchors_ns[live->steps_back - (int64_t)live->anchor_count++] = stamp_ns;
    }
    return status;
}

/* ---- steps ---- */

/* Returns the time from which anchors at a rate are counted: the first row of the anchor's clock,
 * or of all streams. */
static int64_t origin_ns(const struct trajd_live *live)
{
    int64_t origin = INT64_MAX;

    for (uint32_t i = 0; i < live->input_count; i++) {
        const struct trajd_live_input *input = &live->inputs[i];
        const int64_t first_ns = __atomic_load_n(&input->ring.first_ns, __ATOMIC_RELAXED);
        if (input->seen.begin < input->seen.end && (input->is_lead || !live->anchor_count) &&
            first_ns < origin)
            origin = first_ns;
    }
    return origin;
}

/* Returns the number of the anchor at its rate. 0, of which rounding cuts nothing off: it is
 * not a multiple of the rate from the origin. */
static int64_t anchor_number(const struct trajd_live *live)
{
    const struct trajd_rate rate = live->rules.anchor_rate;
    int64_t since_ns, j;

    if (__builtin_sub_overflow(live->anchor_ns, origin_ns(live), &since_ns))
        return 0;
    j = trajd_rate_row_at(rate, since_ns);
    return trajd_rate_row_ns(rate, j) == since_ns ? j : 0;
}

enum trajd_status trajd_live_place_steps(struct trajd_live *live, struct trajd_error *error)
{
    struct trajd_episode_clock *anchors = &live->view_clocks[live->input_count];
    const enum trajd_status status = find_earlier_anchors(live, error);
    int64_t count = (int64_t)live->anchor_count;

    if (status)
        return status;
    /* without rows on the anchor's clock all steps lie at the anchor */
    for (int64_t back = 0; !live->anchor_count && back <= live->steps_back; back++)
        live->anchors_ns[back] = live->anchor_ns;
    count = count ? count : live->steps_back + 1;
    anchors->stamps_ns = live->anchors_ns + live->steps_back + 1 - count;
    anchors->row_count = count;
    live->batch->windows[0].anchor = live->rules.anchor_rate.num ? anchor_number(live) : count - 1;
    live->batch->anchor_ns[0] = live->anchor_ns;
    trajd_bind_steps(live->batch, 0, 1);
    return TRAJD_OK;
}
