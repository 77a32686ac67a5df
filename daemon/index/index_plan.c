/* Lists the streams that the dataset may have: those of the layout, with families expanded to the
 * arrays of the files. */
#include <stdlib.h>
#include <string.h>

#include "daemon/index/index_internal.h"
#include "daemon/layout/glob.h"

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the index");
}

/* Returns the family's name with the star replaced by the captured text. */
static const char *member_name(struct trajd_validation *v, const char *name, const char *capture)
{
    const char *star = strchr(name, '*');

    if (!star)
        return trajd_arena_copy(v->arena, name, strlen(name));
    return trajd_arena_format(v->arena, "%.*s%s%s", (int)(star - name), name, capture, star + 1);
}

static uint32_t find_clock(const struct trajd_layout *layout, const char *name)
{
    uint32_t i = 0;

    while (i + 1 < layout->clock_count && strcmp(layout->clocks[i].name, name))
        i++;
    return i;
}

static enum trajd_status add_plan(struct trajd_validation *v, uint32_t stream, uint32_t array,
                                  const char *capture, struct trajd_error *error)
{
    const struct trajd_layout *layout = v->layout;
    const struct trajd_layout_stream *source = &layout->streams[stream];
    struct trajd_stream_plan *grown = realloc(v->plans, (v->plan_count + 1) * sizeof *grown);
    struct trajd_stream_plan *plan;

    if (!grown)
        return no_memory(error);
    v->plans = grown;
    plan = &v->plans[v->plan_count++];
    *plan = (struct trajd_stream_plan){.layout_stream = stream,
                                       .array_index = array,
                                       .clock_index = find_clock(layout, source->clock)};
    plan->stream = (struct trajd_index_stream){
        .name = member_name(v, source->name, capture),
        .array_index = array,
        .clock_index = plan->clock_index,
        .kind = source->kind,
        .angle_period = source->angle_period,
        .unit =
            source->unit ? trajd_arena_copy(v->arena, source->unit, strlen(source->unit)) : NULL,
        .max_gap_ns = source->max_gap_ns,
        .optional = source->optional};
    return plan->stream.name && (plan->stream.unit || !source->unit) ? TRAJD_OK : no_memory(error);
}

/* Adds the streams of an array. It belongs to the first stream that matches it; streams without a
 * star may share it. */
static enum trajd_status plan_array(struct trajd_validation *v, uint32_t array,
                                    struct trajd_error *error)
{
    const struct trajd_layout *layout = v->layout;
    enum trajd_status status = TRAJD_OK;
    bool taken = false;

    for (uint32_t i = 0; i < layout->stream_count && !status; i++) {
        char capture[1024] = "";
        bool family = strchr(layout->streams[i].path, '*') != NULL;
        if ((taken && family) ||
            !trajd_layout_match(layout->streams[i].path, v->paths[array], capture, sizeof capture))
            continue;
        taken = true;
        status = add_plan(v, i, array, capture, error);
    }
    return status;
}

static int compare_plans(const void *a, const void *b)
{
    const struct trajd_stream_plan *left = a, *right = b;

    if (left->layout_stream != right->layout_stream)
        return left->layout_stream < right->layout_stream ? -1 : 1;
    return trajd_natural_compare(left->stream.name, right->stream.name);
}

enum trajd_status trajd_index_plan_streams(struct trajd_validation *v, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < v->array_count && !status; i++)
        status = plan_array(v, i, error);
    if (status)
        return status;
    if (v->plan_count)
        qsort(v->plans, v->plan_count, sizeof *v->plans, compare_plans);
    v->found = calloc(v->plan_count ? v->plan_count : 1, sizeof *v->found);
    return v->found ? TRAJD_OK : no_memory(error);
}
