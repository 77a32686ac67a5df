/* Makes and destroys the images of a GPU feed. */
#include <stdlib.h>
#include <string.h>

#include "daemon/producer/gpu_images.h"

#define ALIGNMENT 256

static uint64_t align(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static enum trajd_status no_memory(const struct trajd_producer *producer, struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the images of feed %s",
                           producer->name);
}

static struct trajd_arena *arena_of(const struct trajd_gpu_images *images)
{
    return &images->producer->on_gpu->arena;
}

/* Returns G * T of an image. */
static uint32_t count_steps(const struct trajd_producer *producer,
                            const struct trajd_producer_image *image,
                            const struct trajd_window_plan *plan)
{
    const uint32_t o = plan->rules.targets[image->target_index].output_index;

    return producer->spec->global_batch * plan->rules.outputs[o].step_count;
}

/* ---- groups ---- */

static bool is_alike(const struct trajd_plan_image *a, const struct trajd_plan_image *b)
{
    return a->preparation.height == b->preparation.height &&
           a->preparation.width == b->preparation.width &&
           !memcmp(&a->augment, &b->augment, sizeof a->augment) &&
           !memcmp(&a->finish, &b->finish, sizeof a->finish);
}

/* Adds an image to the group of those that are made alike. */
static void join_group(struct trajd_gpu_images *images, const struct trajd_plan_image *image,
                       uint32_t *group)
{
    for (*group = 0; *group < images->group_count; ++*group)
        if (is_alike(images->groups[*group].like, image))
            return;
    images->groups[images->group_count++].like = image;
}

static enum trajd_status make_plan(struct trajd_gpu_images *images,
                                   struct trajd_gpu_image_group *group, struct trajd_error *error)
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
        trajd_image_gpu_create(trajd_gpu_device(images->gpu), &spec, run, &group->plan, error);

    if (!status)
        status = trajd_gpu_charge_ring(images->gpu, trajd_image_gpu_bytes(group->plan),
                                       "scratch memory for images", error);
    if (status)
        return status;
    group->charged_bytes = trajd_image_gpu_bytes(group->plan);
    group->record_bytes = trajd_image_gpu_record_bytes(group->plan);
    variant = trajd_image_gpu_variant(group->plan, &why);
    LOG(images->producer->options.log, INFO, "feed %s: %u images a batch by kernel %s (%s)",
        images->producer->name, group->frames_max, variant, why);
    return TRAJD_OK;
}

/* ---- images ---- */

/* Copies a finished frame of padding to the GPU. */
static enum trajd_status upload_padding(struct trajd_gpu_images *images,
                                        const struct trajd_producer_image *image, void **memory,
                                        struct trajd_error *error)
{
    const uint64_t bytes = trajd_image_finish_bytes(&image->plan->finish);
    enum trajd_status status =
        trajd_gpu_take_ring(images->gpu, bytes, "an image of padding", memory, error);

    if (!status)
        status = trajd_device_copy_async(*memory, image->padding, bytes, images->copies, error);
    return status ? status : trajd_device_stream_wait(images->copies, error);
}

static enum trajd_status open_image(struct trajd_gpu_images *images, uint32_t m, uint32_t p,
                                    struct trajd_error *error)
{
    struct trajd_producer *producer = images->producer;
    const struct trajd_producer_member *member = &producer->members[m];
    struct trajd_producer_image *image = &member->images[p];
    struct trajd_gpu_image *own = &images->members[m][p];
    const uint32_t steps = count_steps(producer, image, member->plan);
    enum trajd_status status = upload_padding(images, image, &own->padding, error);

    join_group(images, image->plan, &own->group);
    own->addresses = trajd_arena_array(arena_of(images), steps, sizeof *own->addresses);
    if (!status && !own->addresses)
        status = no_memory(producer, error);
    if (status || !image->view)
        return status;
    status = trajd_gpu_frames_open(
        images->gpu, member->dataset, member->plan->rules.targets[image->target_index].stream_index,
        image->view, trajd_image_bytes(&image->plan->preparation), &image->on_gpu, error);
    if (!status && !trajd_gpu_frames_fit(image->on_gpu)) {
        own->streamed_at = images->streamed_bytes;
        images->streamed_bytes += steps * trajd_gpu_frames_stride(image->on_gpu);
    }
    return status;
}

static enum trajd_status open_member(struct trajd_gpu_images *images, uint32_t m,
                                     struct trajd_error *error)
{
    struct trajd_producer *producer = images->producer;
    enum trajd_status status = trajd_producer_open_images(producer, &producer->members[m], error);

    for (uint32_t p = 0; p < producer->plan->members[m]->rules.image_count && !status; p++)
        status = open_image(images, m, p, error);
    return status;
}

/* Sets where masks and records are in the staging memory. Each dataset of a mixture has the same
 * outputs, and writes some of their rows. */
static void lay_out(struct trajd_gpu_images *images)
{
    struct trajd_producer *producer = images->producer;
    const struct trajd_window_plan *first = producer->plan->members[0];

    for (uint32_t p = 0; p < first->rules.image_count; p++) {
        const uint32_t steps = count_steps(producer, &producer->members[0].images[p], first);
        for (uint32_t m = 0; m < producer->plan->member_count; m++)
            images->members[m][p].mask_at = images->staged_bytes;
        images->staged_bytes += align(steps);
        for (uint32_t g = 0; g < images->group_count; g++) {
            bool has = false;
            for (uint32_t m = 0; m < producer->plan->member_count; m++)
                has = has || images->members[m][p].group == g;
            images->groups[g].frames_max += has ? steps : 0;
        }
    }
}

static enum trajd_status make_memory(struct trajd_gpu_images *images, uint32_t longest,
                                     struct trajd_error *error)
{
    struct trajd_gpu *gpu = images->gpu;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t g = 0; g < images->group_count && !status; g++) {
        struct trajd_gpu_image_group *group = &images->groups[g];
        status = make_plan(images, group, error);
        group->records_at = images->staged_bytes;
        images->staged_bytes += align((uint64_t)group->frames_max * group->record_bytes);
    }
    images->record_count =
        trajd_arena_array(arena_of(images), (uint64_t)images->depth * images->group_count,
                          sizeof *images->record_count);
    images->absent = trajd_arena_array(arena_of(images), longest, sizeof *images->absent);
    images->pinned = trajd_arena_array(arena_of(images), longest, sizeof *images->pinned);
    if (!status && arena_of(images)->is_starved)
        status = no_memory(images->producer, error);
    if (!status)
        status =
            trajd_device_host_alloc(trajd_gpu_device(gpu), images->depth * images->staged_bytes,
                                    (void **)&images->staging, error);
    if (!status)
        status = trajd_gpu_take_ring(gpu, images->depth * images->staged_bytes, "records of images",
                                     &images->blocks, error);
    if (!status && images->streamed_bytes)
        status =
            trajd_gpu_take_ring(gpu, images->depth * images->streamed_bytes,
                                "images that gpu.rows has no room for", &images->streamed, error);
    return status;
}

static enum trajd_status create(struct trajd_gpu_images *images, struct trajd_error *error)
{
    struct trajd_producer *producer = images->producer;
    uint32_t longest = 0;
    enum trajd_status status =
        trajd_device_stream_create(trajd_gpu_device(images->gpu), &images->copies, error);

    for (uint32_t m = 0; m < producer->plan->member_count && !status; m++)
        status = open_member(images, m, error);
    if (status)
        return status;
    lay_out(images);
    for (uint32_t p = 0; p < producer->plan->members[0]->rules.image_count; p++) {
        const uint32_t steps =
            count_steps(producer, &producer->members[0].images[p], producer->plan->members[0]);
        longest = steps > longest ? steps : longest;
    }
    return make_memory(images, longest, error);
}

/* Checks that all datasets have images in the same outputs. */
static enum trajd_status check_members(const struct trajd_producer *producer,
                                       struct trajd_error *error)
{
    const struct trajd_window_plan *first = producer->plan->members[0];

    for (uint32_t m = 1; m < producer->plan->member_count; m++) {
        const struct trajd_window_plan *plan = producer->plan->members[m];
        bool is_same = plan->rules.image_count == first->rules.image_count;
        for (uint32_t p = 0; is_same && p < plan->rules.image_count; p++)
            is_same = plan->rules.targets[plan->rules.row_target_count + p].output_index ==
                      first->rules.targets[first->rules.row_target_count + p].output_index;
        if (!is_same)
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "feed %s: datasets %s and %s have encoded images in different "
                                   "outputs, so batches are in host memory: add image: {} to them",
                                   producer->name, first->dataset->name, plan->dataset->name);
    }
    return TRAJD_OK;
}

enum trajd_status trajd_gpu_images_create(struct trajd_producer *producer, uint32_t depth,
                                          struct trajd_gpu_images **out, struct trajd_error *error)
{
    const uint32_t members = producer->plan->member_count,
                   count = producer->plan->members[0]->rules.image_count;
    struct trajd_arena *arena = &producer->on_gpu->arena;
    struct trajd_gpu_images *images;
    const enum trajd_status status = check_members(producer, error);

    *out = NULL;
    if (status || !count)
        return status;
    *out = images = trajd_arena_array(arena, 1, sizeof *images);
    if (!images)
        return no_memory(producer, error);
    images->producer = producer;
    images->gpu = producer->on_gpu->gpu;
    images->depth = depth;
    images->groups = trajd_arena_array(arena, (uint64_t)members * count, sizeof *images->groups);
    images->members = trajd_arena_array(arena, members, sizeof *images->members);
    for (uint32_t m = 0; images->members && m < members; m++)
        images->members[m] = trajd_arena_array(arena, count, sizeof **images->members);
    if (arena->is_starved)
        return no_memory(producer, error);
    return create(images, error);
}

static void close_image(struct trajd_gpu_images *images, uint32_t m, uint32_t p)
{
    struct trajd_producer_image *image = &images->producer->members[m].images[p];
    struct trajd_gpu_image *own = &images->members[m][p];

    trajd_gpu_return_ring(images->gpu, own->padding,
                          trajd_image_finish_bytes(&image->plan->finish));
    trajd_gpu_frames_close(&image->on_gpu);
}

void trajd_gpu_images_destroy(struct trajd_gpu_images **out)
{
    struct trajd_gpu_images *images = *out;

    *out = NULL;
    if (!images)
        return;
    for (uint32_t g = 0; g < images->group_count; g++) {
        trajd_image_gpu_destroy(&images->groups[g].plan);
        trajd_gpu_discharge_ring(images->gpu, images->groups[g].charged_bytes);
    }
    for (uint32_t m = 0; images->members && m < images->producer->plan->member_count; m++) {
        const struct trajd_producer_member *member = &images->producer->members[m];
        for (uint32_t p = 0; member->images && images->members[m] &&
                             p < member->plan->rules.image_count && member->images[p].plan;
             p++)
            close_image(images, m, p);
    }
    if (images->staging)
        trajd_device_host_free(trajd_gpu_device(images->gpu), images->staging);
    trajd_gpu_return_ring(images->gpu, images->blocks, images->depth * images->staged_bytes);
    trajd_gpu_return_ring(images->gpu, images->streamed, images->depth * images->streamed_bytes);
    if (images->copies)
        trajd_device_stream_destroy(&images->copies);
}
