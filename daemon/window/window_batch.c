/* Looks up the windows of a batch. */
#include "daemon/window/window_batch.h"

#include <stdlib.h>

#include "daemon/window/window_plan_internal.h"

enum trajd_status trajd_window_batch_create(const struct trajd_window_plan *plan,
                                            struct trajd_binding **batch, struct trajd_error *error)
{
    const struct trajd_binding_options options = {.rules = &plan->rules,
                                                  .views = plan->views,
                                                  .clocks = plan->clocks,
                                                  .window_limit = plan->spec->global_batch,
                                                  .has_window_rows = plan->is_member};

    if (trajd_binding_create(&options, batch))
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "feed %s: no memory for batches of %u windows",
                               plan->spec->feed_name, plan->spec->global_batch);
    (*batch)->plan = plan;
    return TRAJD_OK;
}

/* Completes window w: the time of its anchor, and its goals. */
static void place_window(struct trajd_binding *batch, uint32_t w)
{
    const struct trajd_window_plan *plan = batch->plan;
    const struct trajd_window *window = &batch->windows[w];
    const struct trajd_episode *episode = &plan->dataset->index->episodes[window->episode_index];

    batch->anchor_ns[w] = trajd_plan_anchor_ns(plan, episode, window->anchor);
    for (uint32_t g = 0; g < plan->rules.goal_count; g++) {
        const struct trajd_goal_key key = {.fingerprint = plan->fingerprint,
                                           .seed = plan->spec->seed,
                                           .pass = window->pass,
                                           .episode_index = window->episode_index,
                                           .anchor = window->anchor};
        const int64_t anchor =
            trajd_goal_draw(&plan->goals[g], &key, plan->anchor_ends[window->episode_index] - 1);
        batch->goals[g].anchor[w] = anchor;
        batch->goals[g].anchor_ns[w] = trajd_plan_anchor_ns(plan, episode, anchor);
    }
}

void trajd_window_batch_look_up(struct trajd_binding *batch, uint64_t epoch, uint64_t position,
                                uint32_t row_count)
{
    trajd_sampler_run(batch->plan->sampler, epoch, position, row_count, batch->windows);
    batch->window_count = row_count;
    for (uint32_t w = 0; w < row_count; w++)
        place_window(batch, w);
}

void trajd_window_batch_add(struct trajd_binding *batch, const struct trajd_window *window,
                            uint32_t row)
{
    const uint32_t w = batch->window_count++;

    batch->windows[w] = *window;
    if (batch->window_rows)
        batch->window_rows[w] = row;
    place_window(batch, w);
}

/* ---- of a feed ---- */

enum trajd_status trajd_mixture_batch_create(const struct trajd_mixture_plan *plan,
                                             struct trajd_mixture_batch **out,
                                             struct trajd_error *error)
{
    struct trajd_mixture_batch *batch = calloc(1, sizeof *batch);
    enum trajd_status status = TRAJD_OK;

    if (batch) {
        batch->plan = plan;
        batch->members = calloc(plan->member_count, sizeof *batch->members);
        batch->windows = calloc(plan->spec->global_batch, sizeof *batch->windows);
    }
    if (!batch || !batch->members || !batch->windows)
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for feed %s",
                                 plan->spec->feed_name);
    for (uint32_t p = 0; p < plan->member_count && !status; p++)
        status = trajd_window_batch_create(plan->members[p], &batch->members[p], error);
    if (status)
        trajd_mixture_batch_destroy(&batch);
    *out = batch;
    return status;
}

void trajd_mixture_batch_destroy(struct trajd_mixture_batch **out)
{
    struct trajd_mixture_batch *batch = *out;

    *out = NULL;
    if (!batch)
        return;
    for (uint32_t p = 0; batch->members && p < batch->plan->member_count; p++)
        trajd_binding_destroy(&batch->members[p]);
    free(batch->members);
    free(batch->windows);
    free(batch);
}

void trajd_mixture_batch_look_up(struct trajd_mixture_batch *batch, uint64_t epoch,
                                 uint64_t position, uint32_t row_count)
{
    const struct trajd_mixture_plan *plan = batch->plan;

    if (!plan->mixture) {
        trajd_window_batch_look_up(batch->members[0], epoch, position, row_count);
        return;
    }
    trajd_mixture_run(plan->mixture, epoch, position, row_count, batch->windows);
    for (uint32_t p = 0; p < plan->member_count; p++)
        batch->members[p]->window_count = 0;
    for (uint32_t row = 0; row < row_count; row++)
        trajd_window_batch_add(batch->members[batch->windows[row].dataset_index],
                               &batch->windows[row], row);
}

/* Returns the first of a member's windows whose row is `row` or after it. */
static uint32_t window_at(const struct trajd_binding *member, uint32_t row)
{
    uint32_t low = 0, high = member->window_count;

    if (!member->window_rows)
        return row < high ? row : high;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (member->window_rows[middle] < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void trajd_mixture_batch_slice(const struct trajd_binding *member, uint32_t begin, uint32_t count,
                               uint32_t *first, uint32_t *window_count)
{
    *first = window_at(member, begin);
    *window_count = window_at(member, begin + count) - *first;
}
