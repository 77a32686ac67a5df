/* Transforms the windows of a batch in groups of steps side by side. They have the bits of
 * the definition in tests/support/references. */
#include "kernels/transform/transform.h"
#include "kernels/transform/transform_lanes.h"

/* Costs of one thread in ns. They only decide how many threads share the work. Origin: a step of 7
 * columns took 5 ns, and 11 with a rotation, on an AMD EPYC (Zen 4). */
#define COLUMN_NS 0.7
#define ROTATION_NS 4.0

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
