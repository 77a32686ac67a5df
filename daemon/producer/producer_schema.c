#include "daemon/producer/producer_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_COUNT 4

static void add_tensor(struct trajd_producer *producer, const char *name, const char *role,
                       const char *of, enum trajd_dtype dtype, uint32_t rank, const uint64_t *shape)
{
    struct trajd_feed_tensor *tensor = &producer->schema.tensors[producer->schema.tensor_count++];

    *tensor = (struct trajd_feed_tensor){
        .name = name, .role = role, .of = of, .dtype = dtype, .rank = rank + 1};
    tensor->shape[0] = producer->spec->global_batch;
    for (uint32_t i = 0; i < rank; i++)
        tensor->shape[i + 1] = shape[i];
}

/* Returns the pictures of an output, or NULL. */
static const struct trajd_plan_picture *find_pictures(const struct trajd_window_plan *plan,
                                                      uint32_t output_index)
{
    for (uint32_t p = 0; p < plan->picture_count; p++)
        if (plan->targets[plan->row_target_count + p].output_index == output_index)
            return &plan->pictures[p];
    return NULL;
}

/* Describes how a worker finishes the frames of the output that was added last. */
static void add_finish(struct trajd_feed_tensor *tensor, const struct trajd_image_finish *finish)
{
    const bool is_scaled = finish->type != TRAJD_U8;

    static_assert(TRAJD_IMAGE_CHANNELS_MAX == TRAJD_FEED_MAX_CHANNELS, "a finish fits a tensor");
    tensor->finish = (struct trajd_feed_finish){
        .dtype = finish->type,
        .is_planes = finish->layout == TRAJD_IMAGE_CHW,
        .channel_count = is_scaled ? finish->channels : 0,
    };
    memcpy(tensor->finish.scale, finish->scale, sizeof finish->scale);
    memcpy(tensor->finish.shift, finish->offset, sizeof finish->offset);
}

static void add_output_tensors(struct trajd_producer *producer,
                               const struct trajd_window_plan *plan, uint32_t output_index,
                               char **mask_name)
{
    const struct trajd_plan_output *output = &plan->outputs[output_index];
    const struct trajd_plan_picture *picture = find_pictures(plan, output_index);
    const char *role = trajd_role_name(output->role);
    uint64_t shape[TRAJD_ARRAY_MAX_RANK + 1] = {output->step_count};

    memcpy(shape + 1, output->shape, output->rank * sizeof *shape);
    add_tensor(producer, output->name, role, NULL, output->dtype, output->rank + 1, shape);
    if (picture && (picture->finish.type != picture->written.type ||
                    picture->finish.layout != picture->written.layout))
        add_finish(&producer->schema.tensors[producer->schema.tensor_count - 1], &picture->finish);
    sprintf(*mask_name, "%s.mask", output->name);
    add_tensor(producer, *mask_name, "mask", output->name, TRAJD_U8, 1, shape);
    *mask_name += strlen(*mask_name) + 1;
}

/* Adds the parameters of augmented pictures, behind all other tensors. */
static void add_augment_tensors(struct trajd_producer *producer,
                                const struct trajd_window_plan *plan, char **name)
{
    for (uint32_t o = 0; o < plan->output_count; o++) {
        const struct trajd_plan_output *output = &plan->outputs[o];
        const uint64_t shape[] = {output->step_count, output->augment ? output->augment->count : 0,
                                  TRAJD_AUGMENT_VALUES};
        if (!output->augment)
            continue;
        sprintf(*name, "%s.augment", output->name);
        add_tensor(producer, *name, "augment", output->name, TRAJD_F32, 3, shape);
        *name += strlen(*name) + 1;
    }
}

static void place_outputs(const struct trajd_producer *producer, struct trajd_window_batch *batch)
{
    const struct trajd_feed_tensor *augment =
        &producer->schema.tensors[producer->schema.tensor_count];

    for (uint32_t o = batch->plan->visible_count; o-- > 0;) {
        batch->outputs[o].offset_bytes = producer->schema.tensors[2 * o].offset_bytes;
        batch->outputs[o].mask_offset_bytes = producer->schema.tensors[2 * o + 1].offset_bytes;
        if (batch->plan->outputs[o].augment) /* the last tensors, in the order of the outputs */
            batch->outputs[o].augment_offset_bytes = (--augment)->offset_bytes;
    }
}

enum trajd_status trajd_producer_make_schema(struct trajd_producer *producer,
                                             struct trajd_error *error)
{
    static const char *const ids[ID_COUNT] = {"window_id", "dataset_index", "episode_index",
                                              "anchor_ns"};
    /* all members have the same outputs */
    const struct trajd_window_plan *plan = producer->plan->members[0];
    size_t names = 1;
    char *mask_name;
    enum trajd_status status;

    for (uint32_t o = 0; o < plan->visible_count; o++)
        names += 2 * strlen(plan->outputs[o].name) + sizeof ".mask" + sizeof ".augment";
    producer->schema.global_batch = producer->spec->global_batch;
    producer->schema.tensors =
        calloc(3 * plan->visible_count + ID_COUNT + 1, sizeof *producer->schema.tensors);
    mask_name = producer->mask_names = malloc(names);
    if (!producer->schema.tensors || !mask_name)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the schema");
    for (uint32_t o = 0; o < plan->visible_count; o++)
        add_output_tensors(producer, plan, o, &mask_name);
    for (int i = 0; i < ID_COUNT; i++)
        add_tensor(producer, ids[i], "ids", NULL, TRAJD_I64, 0, NULL);
    if (producer->spec->tail == TRAJD_TAIL_WRAP)
        add_tensor(producer, "wrapped", "ids", NULL, TRAJD_BOOL, 0, NULL);
    add_augment_tensors(producer, plan, &mask_name);
    status = trajd_feed_schema_layout(&producer->schema, error);
    for (uint32_t p = 0; p < producer->plan->member_count && !status; p++)
        place_outputs(producer, producer->batch->members[p]);
    return status;
}

static void write_ids(const struct trajd_producer *producer,
                      const struct trajd_window_batch *member, uint8_t *slot, uint32_t first,
                      uint32_t count)
{
    const struct trajd_feed_tensor *ids =
        &producer->schema.tensors[2 * member->plan->visible_count];
    int64_t *columns[ID_COUNT];

    for (int i = 0; i < ID_COUNT; i++)
        columns[i] = (int64_t *)(slot + ids[i].offset_bytes);
    for (uint32_t w = first; w < first + count; w++) {
        const struct trajd_window *window = &member->windows[w];
        const struct trajd_episode *episode =
            &member->plan->dataset->index->episodes[window->episode_index];
        const uint32_t row = member->window_rows ? member->window_rows[w] : w;
        columns[0][row] = (int64_t)window->window_id;
        columns[1][row] = window->dataset_index;
        columns[2][row] = window->episode_index;
        columns[3][row] = episode->origin_ns + member->anchor_ns[w];
        if (producer->spec->tail == TRAJD_TAIL_WRAP)
            slot[ids[ID_COUNT].offset_bytes + row] = window->wrapped;
    }
}

void trajd_producer_write_ids(const struct trajd_producer *producer, const struct trajd_fill *fill)
{
    for (uint32_t r = 0; r < fill->range_count; r++)
        for (uint32_t p = 0; p < producer->plan->member_count; p++) {
            uint32_t first, count;
            trajd_mixture_batch_slice(producer->batch->members[p], fill->ranges[r].begin,
                                      fill->ranges[r].count, &first, &count);
            write_ids(producer, producer->batch->members[p], fill->memory, first, count);
        }
}
