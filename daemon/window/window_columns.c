/* Finds columns of an output that hardly vary, such as those of a dead sensor or of a gripper that
 * never moves: they teach nothing, and normalisation may make them very large. */
#include <math.h>

#include "daemon/window/feed_spec/statistics.h"
#include "daemon/window/window_plan_internal.h"

/* The spread of noise, as a part of the greatest magnitude. */
#define NOISE 1e-4
/* What a recorded value should become at most by normalisation. */
#define LARGEST 50

enum column { COLUMN_VARIES, COLUMN_CONSTANT, COLUMN_NOISE, COLUMN_LARGE, COLUMN_KINDS };

/* Columns of one kind in an output. */
struct found {
    uint32_t count, first;
    double value; /* the constant, or the largest normalised value, of the first */
};

/* Returns the recorded value that normalisation brings farthest from 0, normalised. */
static double largest_value(const struct trajd_feature_statistics *figures, float scale,
                            float offset)
{
    return fmax(fabs(figures->min * (double)scale + (double)offset),
                fabs(figures->max * (double)scale + (double)offset));
}

/* Sorts a column, and sets *value. A scale of 1 comes from a mask, or for a column that is flat. */
static enum column sort(const struct trajd_feature_statistics *figures, float scale, float offset,
                        double *value)
{
    const double magnitude = fmax(fabs(figures->min), fabs(figures->max));

    *value = figures->min;
    if (!figures->count || !isfinite(magnitude))
        return COLUMN_VARIES;
    if (figures->min == figures->max)
        return COLUMN_CONSTANT;
    *value = largest_value(figures, scale, offset);
    if (scale != 1 && *value > LARGEST)
        return COLUMN_LARGE;
    return scale != 1 && figures->max - figures->min <= NOISE * magnitude ? COLUMN_NOISE
                                                                          : COLUMN_VARIES;
}

static void warn(struct trajd_window_plan *plan, const char *output, enum column kind,
                 const struct found *found)
{
    char columns[64];

    if (!found->count)
        return;
    if (found->count == 1)
        snprintf(columns, sizeof columns, "column %u", found->first);
    else
        snprintf(columns, sizeof columns, "column %u and %u more", found->first, found->count - 1);
    if (kind == COLUMN_CONSTANT)
        trajd_window_plan_warn(plan,
                               "%s: one value (%.6g) in all rows, as of a dead sensor or a gripper "
                               "that never moves: %s",
                               output, found->value, columns);
    else if (kind == COLUMN_NOISE)
        trajd_window_plan_warn(plan,
                               "%s: hardly varies, as a dead sensor: %s. norm makes this noise as "
                               "large as other values: leave it out with norm.mask",
                               output, columns);
    else
        trajd_window_plan_warn(plan,
                               "%s: hardly varies but for some rows, which norm makes as large as "
                               "%.3g: %s. Use norm: min_max, or norm.mask, or norm.min_std",
                               output, found->value, columns);
}

/* Sorts a column over all steps that have statistics of their own: it varies if one of them
 * does. */
static enum column sort_steps(const struct trajd_plan_output *output,
                              const struct trajd_statistics *statistics, uint32_t column,
                              double *value)
{
    enum column kind = COLUMN_VARIES;

    for (uint64_t i = column; i < statistics->feature_count; i += output->feature_count) {
        double step_value;
        const enum column found =
            sort(&statistics->features[i], output->scale ? output->scale[i] : 1,
                 output->offset ? output->offset[i] : 0, &step_value);
        if (i != column && found != kind)
            return COLUMN_VARIES;
        kind = found;
        *value = step_value;
    }
    return kind;
}

void trajd_window_plan_warn_of_columns(struct trajd_window_plan *plan, uint32_t output_index,
                                       const struct trajd_statistics *statistics)
{
    const struct trajd_plan_output *output = &plan->rules.outputs[output_index];
    struct found found[COLUMN_KINDS] = {{0, 0, 0}};

    for (uint32_t column = 0; column < output->feature_count; column++) {
        double value = 0;
        struct found *one = &found[sort_steps(output, statistics, column, &value)];
        if (!one->count++) {
            one->first = column;
            one->value = value;
        }
    }
    for (int kind = COLUMN_CONSTANT; kind < COLUMN_KINDS; kind++)
        warn(plan, output->name, (enum column)kind, &found[kind]);
}
