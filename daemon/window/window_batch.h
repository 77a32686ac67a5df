/* Which windows a batch has: position -> windows, their anchors and goals; of one plan, or of all
 * plans of a feed. The engine binds them (daemon/engine/bind.h). */
#ifndef TRAJD_WINDOW_WINDOW_BATCH_H
#define TRAJD_WINDOW_WINDOW_BATCH_H

#include "daemon/engine/bind.h"
#include "daemon/window/mixture_plan.h"

/* Makes an empty batch of the plan. Set the normalisation of the plan and copy its forms before.
 * The plan must outlive the batch. The caller ends it with trajd_binding_destroy. */
enum trajd_status trajd_window_batch_create(const struct trajd_window_plan *plan,
                                            struct trajd_binding **batch,
                                            struct trajd_error *error);

/* Looks up the windows [position, position + row_count) of an epoch. */
void trajd_window_batch_look_up(struct trajd_binding *batch, uint64_t epoch, uint64_t position,
                                uint32_t row_count);

/* Appends one window, for a row of the batch. Rows must ascend. With window_count 0 the batch is
 * empty again. */
void trajd_window_batch_add(struct trajd_binding *batch, const struct trajd_window *window,
                            uint32_t row);

/* A batch of a feed: one batch of each member's plan. For one thread at a time. */
struct trajd_mixture_batch {
    const struct trajd_mixture_plan *plan;
    struct trajd_binding **members; /* [plan->member_count] */
    struct trajd_window *windows;   /* [G]: of a mixture, in the order of rows */
};

/* Makes an empty batch. The plan must be complete (trajd_window_batch_create) and outlive the
 * batch. Caller destroys. */
enum trajd_status trajd_mixture_batch_create(const struct trajd_mixture_plan *plan,
                                             struct trajd_mixture_batch **batch,
                                             struct trajd_error *error);
void trajd_mixture_batch_destroy(struct trajd_mixture_batch **batch);

/* Looks up the windows [position, position + row_count) of an epoch. Each member's batch then has
 * its windows, with their rows. */
void trajd_mixture_batch_look_up(struct trajd_mixture_batch *batch, uint64_t epoch,
                                 uint64_t position, uint32_t row_count);
/* Finds the windows of a member that belong to the rows [begin, begin + count) of the batch:
 * *window_count windows from *first on. */
void trajd_mixture_batch_slice(const struct trajd_binding *member, uint32_t begin, uint32_t count,
                               uint32_t *first, uint32_t *window_count);

#endif
