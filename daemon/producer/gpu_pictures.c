/* Makes and destroys the pictures of a GPU feed. */
#include <stdlib.h>
#include <string.h>

#include "daemon/producer/gpu_pictures.h"

#define ALIGNMENT 256

static uint64_t align(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static enum trajd_status no_memory(const struct trajd_producer *producer, struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the pictures of feed %s",
                           producer->name);
}

static struct trajd_arena *arena_of(const struct trajd_gpu_pictures *pictures)
{
    return &pictures->producer->on_gpu->arena;
}

/* Returns G * T of a picture. */
static uint32_t count_steps(const struct trajd_producer *producer,
                            const struct trajd_producer_picture *picture,
                            const struct trajd_window_plan *plan)
{
    const uint32_t o = plan->rules.targets[picture->target_index].output_index;

    return producer->spec->global_batch * plan->rules.outputs[o].step_count;
}

/* ---- groups ---- */

static bool is_alike(const struct trajd_plan_picture *a, const struct trajd_plan_picture *b)
{
    return a->preparation.height == b->preparation.height &&
           a->preparation.width == b->preparation.width &&
           !memcmp(&a->augment, &b->augment, sizeof a->augment) &&
           !memcmp(&a->finish, &b->finish, sizeof a->finish);
}

/* Adds a picture to the group of those that are made alike. */
static void join_group(struct trajd_gpu_pictures *pictures,
                       const struct trajd_plan_picture *picture, uint32_t *group)
{
    for (*group = 0; *group < pictures->group_count; ++*group)
        if (is_alike(pictures->groups[*group].like, picture))
            return;
    pictures->groups[pictures->group_count++].like = picture;
}

static enum trajd_status make_plan(struct trajd_gpu_pictures *pictures,
                                   struct trajd_gpu_picture_group *group, struct trajd_error *error)
{
    const struct trajd_image_preparation *preparation = &group->like->preparation;
    const struct trajd_image_gpu_spec spec = {
        .frame = {preparation->height, preparation->width, preparation->channels,
                  preparation->type},
        .augment = group->like->augment.count ? &group->like->augment : NULL,
        .finish = group->like->finish};
    const uint32_t run = group->frames_max < TRAJD_IMAGE_GPU_FRAMES_MAX
                             ? group->frames_max
                             : TRAJD_IMAGE_GPU_FRAMES_MAX;
    const char *variant, *why;
    enum trajd_status status =
        trajd_image_gpu_create(trajd_gpu_device(pictures->gpu), &spec, run, &group->plan, error);

    if (!status)
        status = trajd_gpu_charge_ring(pictures->gpu, trajd_image_gpu_bytes(group->plan),
                                       "scratch memory for pictures", error);
    if (status)
        return status;
    group->charged_bytes = trajd_image_gpu_bytes(group->plan);
    group->record_bytes = trajd_image_gpu_record_bytes(group->plan);
    variant = trajd_image_gpu_variant(group->plan, &why);
    LOG(pictures->producer->options.log, INFO, "feed %s: %u pictures a batch by kernel %s (%s)",
        pictures->producer->name, group->frames_max, variant, why);
    return TRAJD_OK;
}

/* ---- pictures ---- */

/* Copies a finished frame of padding to the GPU. */
static enum trajd_status upload_padding(struct trajd_gpu_pictures *pictures,
                                        const struct trajd_producer_picture *picture, void **memory,
                                        struct trajd_error *error)
{
    const uint64_t bytes = trajd_image_finish_bytes(&picture->plan->finish);
    enum trajd_status status =
        trajd_gpu_take_ring(pictures->gpu, bytes, "a picture of padding", memory, error);

    if (!status)
        status = trajd_device_copy_async(*memory, picture->padding, bytes, pictures->copies, error);
    return status ? status : trajd_device_stream_wait(pictures->copies, error);
}

static enum trajd_status open_picture(struct trajd_gpu_pictures *pictures, uint32_t m, uint32_t p,
                                      struct trajd_error *error)
{
    struct trajd_producer *producer = pictures->producer;
    const struct trajd_producer_member *member = &producer->members[m];
    struct trajd_producer_picture *picture = &member->pictures[p];
    struct trajd_gpu_picture *own = &pictures->members[m][p];
    const uint32_t steps = count_steps(producer, picture, member->plan);
    enum trajd_status status = upload_padding(pictures, picture, &own->padding, error);

    join_group(pictures, picture->plan, &own->group);
    own->addresses = trajd_arena_array(arena_of(pictures), steps, sizeof *own->addresses);
    if (!status && !own->addresses)
        status = no_memory(producer, error);
    if (status || !picture->view)
        return status;
    status = trajd_gpu_frames_open(pictures->gpu, member->dataset,
                                   member->plan->rules.targets[picture->target_index].stream_index,
                                   picture->view, trajd_image_bytes(&picture->plan->preparation),
                                   &picture->on_gpu, error);
    if (!status && !trajd_gpu_frames_fit(picture->on_gpu)) {
        own->streamed_at = pictures->streamed_bytes;
        pictures->streamed_bytes += steps * trajd_gpu_frames_stride(picture->on_gpu);
    }
    return status;
}

static enum trajd_status open_member(struct trajd_gpu_pictures *pictures, uint32_t m,
                                     struct trajd_error *error)
{
    struct trajd_producer *producer = pictures->producer;
    enum trajd_status status = trajd_producer_open_pictures(producer, &producer->members[m], error);

    for (uint32_t p = 0; p < producer->plan->members[m]->rules.picture_count && !status; p++)
        status = open_picture(pictures, m, p, error);
    return status;
}

/* Sets where masks and records lie in the staging memory. Each dataset of a mixture has the same
 * outputs, and writes some of their rows. */
static void lay_out(struct trajd_gpu_pictures *pictures)
{
    struct trajd_producer *producer = pictures->producer;
    const struct trajd_window_plan *first = producer->plan->members[0];

    for (uint32_t p = 0; p < first->rules.picture_count; p++) {
        const uint32_t steps = count_steps(producer, &producer->members[0].pictures[p], first);
        for (uint32_t m = 0; m < producer->plan->member_count; m++)
            pictures->members[m][p].mask_at = pictures->staged_bytes;
        pictures->staged_bytes += align(steps);
        for (uint32_t g = 0; g < pictures->group_count; g++) {
            bool has = false;
            for (uint32_t m = 0; m < producer->plan->member_count; m++)
                has = has || pictures->members[m][p].group == g;
            pictures->groups[g].frames_max += has ? steps : 0;
        }
    }
}

static enum trajd_status make_memory(struct trajd_gpu_pictures *pictures, uint32_t longest,
                                     struct trajd_error *error)
{
    struct trajd_gpu *gpu = pictures->gpu;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t g = 0; g < pictures->group_count && !status; g++) {
        struct trajd_gpu_picture_group *group = &pictures->groups[g];
        status = make_plan(pictures, group, error);
        group->records_at = pictures->staged_bytes;
        pictures->staged_bytes += align((uint64_t)group->frames_max * group->record_bytes);
    }
    pictures->record_count =
        trajd_arena_array(arena_of(pictures), (uint64_t)pictures->depth * pictures->group_count,
                          sizeof *pictures->record_count);
    pictures->absent = trajd_arena_array(arena_of(pictures), longest, sizeof *pictures->absent);
    pictures->pinned = trajd_arena_array(arena_of(pictures), longest, sizeof *pictures->pinned);
    if (!status && arena_of(pictures)->is_starved)
        status = no_memory(pictures->producer, error);
    if (!status)
        status =
            trajd_device_host_alloc(trajd_gpu_device(gpu), pictures->depth * pictures->staged_bytes,
                                    (void **)&pictures->staging, error);
    if (!status)
        status = trajd_gpu_take_ring(gpu, pictures->depth * pictures->staged_bytes,
                                     "records of pictures", &pictures->blocks, error);
    if (!status && pictures->streamed_bytes)
        status = trajd_gpu_take_ring(gpu, pictures->depth * pictures->streamed_bytes,
                                     "pictures that gpu.rows has no room for", &pictures->streamed,
                                     error);
    return status;
}

static enum trajd_status create(struct trajd_gpu_pictures *pictures, struct trajd_error *error)
{
    struct trajd_producer *producer = pictures->producer;
    uint32_t longest = 0;
    enum trajd_status status =
        trajd_device_stream_create(trajd_gpu_device(pictures->gpu), &pictures->copies, error);

    for (uint32_t m = 0; m < producer->plan->member_count && !status; m++)
        status = open_member(pictures, m, error);
    if (status)
        return status;
    lay_out(pictures);
    for (uint32_t p = 0; p < producer->plan->members[0]->rules.picture_count; p++) {
        const uint32_t steps =
            count_steps(producer, &producer->members[0].pictures[p], producer->plan->members[0]);
        longest = steps > longest ? steps : longest;
    }
    return make_memory(pictures, longest, error);
}

/* Checks that all datasets have pictures in the same outputs. */
static enum trajd_status check_members(const struct trajd_producer *producer,
                                       struct trajd_error *error)
{
    const struct trajd_window_plan *first = producer->plan->members[0];

    for (uint32_t m = 1; m < producer->plan->member_count; m++) {
        const struct trajd_window_plan *plan = producer->plan->members[m];
        bool is_same = plan->rules.picture_count == first->rules.picture_count;
        for (uint32_t p = 0; is_same && p < plan->rules.picture_count; p++)
            is_same = plan->rules.targets[plan->rules.row_target_count + p].output_index ==
                      first->rules.targets[first->rules.row_target_count + p].output_index;
        if (!is_same)
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "feed %s: datasets %s and %s have encoded pictures in different "
                                   "outputs, so batches lie in host memory: add image: {} to them",
                                   producer->name, first->dataset->name, plan->dataset->name);
    }
    return TRAJD_OK;
}

enum trajd_status trajd_gpu_pictures_create(struct trajd_producer *producer, uint32_t depth,
                                            struct trajd_gpu_pictures **out,
                                            struct trajd_error *error)
{
    const uint32_t members = producer->plan->member_count,
                   count = producer->plan->members[0]->rules.picture_count;
    struct trajd_arena *arena = &producer->on_gpu->arena;
    struct trajd_gpu_pictures *pictures;
    const enum trajd_status status = check_members(producer, error);

    *out = NULL;
    if (status || !count)
        return status;
    *out = pictures = trajd_arena_array(arena, 1, sizeof *pictures);
    if (!pictures)
        return no_memory(producer, error);
    pictures->producer = producer;
    pictures->gpu = producer->on_gpu->gpu;
    pictures->depth = depth;
    pictures->groups =
        trajd_arena_array(arena, (uint64_t)members * count, sizeof *pictures->groups);
    pictures->members = trajd_arena_array(arena, members, sizeof *pictures->members);
    for (uint32_t m = 0; pictures->members && m < members; m++)
        pictures->members[m] = trajd_arena_array(arena, count, sizeof **pictures->members);
    if (arena->is_starved)
        return no_memory(producer, error);
    return create(pictures, error);
}

static void close_picture(struct trajd_gpu_pictures *pictures, uint32_t m, uint32_t p)
{
    struct trajd_producer_picture *picture = &pictures->producer->members[m].pictures[p];
    struct trajd_gpu_picture *own = &pictures->members[m][p];

    trajd_gpu_return_ring(pictures->gpu, own->padding,
                          trajd_image_finish_bytes(&picture->plan->finish));
    trajd_gpu_frames_close(&picture->on_gpu);
}

void trajd_gpu_pictures_destroy(struct trajd_gpu_pictures **out)
{
    struct trajd_gpu_pictures *pictures = *out;

    *out = NULL;
    if (!pictures)
        return;
    for (uint32_t g = 0; g < pictures->group_count; g++) {
        trajd_image_gpu_destroy(&pictures->groups[g].plan);
        trajd_gpu_discharge_ring(pictures->gpu, pictures->groups[g].charged_bytes);
    }
    for (uint32_t m = 0; pictures->members && m < pictures->producer->plan->member_count; m++) {
        const struct trajd_producer_member *member = &pictures->producer->members[m];
        for (uint32_t p = 0; member->pictures && pictures->members[m] &&
                             p < member->plan->rules.picture_count && member->pictures[p].plan;
             p++)
            close_picture(pictures, m, p);
    }
    if (pictures->staging)
        trajd_device_host_free(trajd_gpu_device(pictures->gpu), pictures->staging);
    trajd_gpu_return_ring(pictures->gpu, pictures->blocks,
                          pictures->depth * pictures->staged_bytes);
    trajd_gpu_return_ring(pictures->gpu, pictures->streamed,
                          pictures->depth * pictures->streamed_bytes);
    if (pictures->copies)
        trajd_device_stream_destroy(&pictures->copies);
}
