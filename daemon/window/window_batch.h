/* Which windows a batch of a feed has: position -> windows, their anchors and goals. The engine
 * binds them (daemon/engine/bind.h). */
#ifndef TRAJD_WINDOW_WINDOW_BATCH_H
#define TRAJD_WINDOW_WINDOW_BATCH_H

#include "daemon/engine/bind.h"
#include "daemon/window/window_plan.h"

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

#endif
