/* Transforms the windows of a batch in groups of steps side by side. They have the bits of
 * the definition in tests/support/references. */
#include <math.h>
#include <string.h>

#include "kernels/element_convert.h"
#include "kernels/transform/transform.h"
#include "kernels/transform/transform_lanes.h"

/* Costs of one thread in ns. They only decide how many threads share the work. Origin: a step of 7
 * columns took 5 ns, and 11 with a rotation, on an AMD EPYC (Zen 4). */
#define COLUMN_NS 0.7
#define ROTATION_NS 4.0

/* ---- masks, and the steps that have no values ---- */

/* Stores the value of `edge` as a step, normalised. */
static void store_edge(const struct trajd_transform_job *job, uint64_t row, uint32_t step)
{
    const uint32_t count = job->transform->output_count;
    const uint64_t norm = job->norm_per_step ? (uint64_t)step * count : 0;
    const size_t size = trajd_dtype_size(job->output_type);
    const double value = job->edge == TRAJD_EDGE_NAN ? NAN : 0;
    char *to = (char *)job->output + (row * job->step_count + step) * count * size;

    for (uint32_t d = 0; d < count; d++)
        trajd_element_store(job->output_type, to + d * size,
                            job->scale ? value * (double)job->scale[norm + d] +
                                             (double)job->offset[norm + d]
                                       : value);
}

/* Returns the mask of the row that a step is relative to. */
static uint8_t mask_of_origin(const struct trajd_transform_job *job, uint64_t row, uint32_t step)
{
    if (!job->transform->reference_count)
        return TRAJD_MASK_VALID;
    return job->transform->from_step_before && step > 0
               ? job->mask[row * job->step_count + step - 1]
               : job->reference_mask[row];
}

/* The last step first, because a step gets the mask that the step before has in the source. */
static void finish_window(const struct trajd_transform_group *group, uint32_t w, const bool *lost)
{
    const struct trajd_transform_job *job = group->job;
    const uint64_t row = group->windows[w];
    uint8_t *mask = job->mask + row * job->step_count + group->first_step;

    for (uint32_t i = group->step_count; i-- > 0;) {
        const uint8_t own = mask[i], origin = mask_of_origin(job, row, group->first_step + i);
        bool stays = trajd_transform_has_row(job->edge, own);
        mask[i] = own > origin ? own : origin;
        if (stays && lost && lost[i] && mask[i] < TRAJD_MASK_NAN) {
            stays = mask[i] == TRAJD_MASK_VALID; /* else it holds no rotation, such as zeros */
            mask[i] = stays ? TRAJD_MASK_NAN : mask[i];
        }
        if (!stays)
            store_edge(job, row, group->first_step + i);
    }
}

/* Returns whether steps of `windows` windows from window w on, which follow each other, and their
 * origins are valid rows. */
static bool is_plain(const struct trajd_transform_group *group, uint32_t w, uint32_t windows)
{
    static const uint8_t valid[TRAJD_LANES]; /* TRAJD_MASK_VALID is 0 */
    const struct trajd_transform_job *job = group->job;
    const uint64_t row = group->windows[w];

    if (memcmp(job->mask + row * job->step_count + group->first_step, valid,
               windows * group->step_count) != 0)
        return false;
    return group->first_step == 0 && job->transform->reference_count
               ? memcmp(job->reference_mask + row, valid, windows) == 0
               : mask_of_origin(job, row, group->first_step) == TRAJD_MASK_VALID;
}

void trajd_transform_finish(const struct trajd_transform_group *group, const bool *lost)
{
    if (!lost && group->is_dense && is_plain(group, 0, group->window_count))
        return;
    for (uint32_t w = 0; w < group->window_count; w++)
        if (lost || !is_plain(group, w, 1))
            finish_window(group, w, lost ? lost + w * group->step_count : NULL);
}

/* ---- groups ---- */

static uint64_t row_of(const struct trajd_transform_job *job, uint32_t window)
{
    return job->window_rows ? job->window_rows[window] : window;
}

/* A group has several whole windows, or some steps of a window. */
void trajd_transform_windows(const struct trajd_transform_job *job, uint32_t begin, uint32_t end)
{
    const uint32_t steps = job->step_count < TRAJD_LANES ? job->step_count : TRAJD_LANES,
                   windows = TRAJD_LANES / steps;
    struct trajd_transform_group group;

    group.job = job;
    group.is_dense = !job->window_rows && steps == job->step_count;
    for (uint32_t w = begin; w < end; w += group.window_count) {
        group.window_count = end - w < windows ? end - w : windows;
        for (uint32_t k = 0; k < group.window_count; k++)
            group.windows[k] = row_of(job, w + k);
        for (uint32_t t = (job->step_count - 1) / steps + 1; t-- > 0;) {
            group.first_step = t * steps;
            group.step_count = job->step_count - group.first_step < steps
                                   ? job->step_count - group.first_step
                                   : steps;
            trajd_transform_group_run(&group);
        }
    }
}

double trajd_transform_step_ns(const struct trajd_transform *transform)
{
    double ns = COLUMN_NS * transform->output_count;

    for (uint32_t p = 0; p < transform->part_count; p++)
        ns += transform->parts[p].kind == TRAJD_PART_ROTATION ? ROTATION_NS : 0;
    return ns;
}
