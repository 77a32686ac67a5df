/* Makes a producer from its options, and destroys it: the plan, the tensors of a slot, the kernels of
 * each dataset, rows, the feed of the server, the thread. */
#include "daemon/producer/producer_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/heartbeat.h"
#include "daemon/base/defaults.h"
#include "daemon/feed/core.h"
#include "daemon/producer/gpu.h"
#include "daemon/producer/producer_gpu.h"
#include "kernels/dispatch/plan.h"
#include "proto/array_len.h"
#include "proto/ring_layout.h"

#define MIB ((uint64_t)1 << 20)
#define NOTHING_THERE 1 /* in place of a digest of 0, which means unknown in OPENED */

/* ---- the tensors of a slot ---- */

static void add_tensor(struct trajd_producer *producer, const char *name, const char *role,
                       const char *of, enum trajd_dtype dtype, uint32_t rank, const uint64_t *shape)
{
    struct trajd_wire_tensor *tensor = &producer->schema.tensors[producer->schema.tensor_count++];

    *tensor = (struct trajd_wire_tensor){.name = trajd_wire_text(name),
                                         .role = trajd_wire_text(role),
                                         .of = trajd_wire_text(of),
                                         .dtype = dtype,
                                         .rank = rank + 1};
    tensor->shape[0] = producer->spec->global_batch;
    for (uint32_t i = 0; i < rank; i++)
        tensor->shape[i + 1] = shape[i];
}

/* Returns the images of an output, or NULL. */
static const struct trajd_plan_image *find_images(const struct trajd_window_plan *plan,
                                                  uint32_t output_index)
{
    for (uint32_t p = 0; p < plan->rules.image_count; p++)
        if (plan->rules.targets[plan->rules.row_target_count + p].output_index == output_index)
            return &plan->rules.images[p];
    return NULL;
}

/* Describes how a worker finishes the frames of the output that was added last. */
static void add_finish(struct trajd_wire_tensor *tensor, const struct trajd_image_finish *finish)
{
    const uint32_t scale_bytes =
        finish->type != TRAJD_U8 ? finish->channels * (uint32_t)sizeof *finish->scale : 0;

    tensor->finished = finish->type;
    tensor->planes = finish->layout == TRAJD_IMAGE_CHW;
    tensor->scale = (struct trajd_wire_bytes){finish->scale, scale_bytes};
    tensor->shift = (struct trajd_wire_bytes){finish->offset, scale_bytes};
}

static void add_output_tensors(struct trajd_producer *producer,
                               const struct trajd_window_plan *plan, uint32_t output_index,
                               char **mask_name)
{
    const struct trajd_plan_output *output = &plan->rules.outputs[output_index];
    const struct trajd_plan_image *image = find_images(plan, output_index);
    const char *role = trajd_role_name(output->role);
    uint64_t shape[TRAJD_ARRAY_MAX_RANK + 1] = {output->step_count};

    memcpy(shape + 1, output->shape, output->rank * sizeof *shape);
    add_tensor(producer, output->name, role, NULL, output->dtype, output->rank + 1, shape);
    if (image && (image->finish.type != image->written.type ||
                  image->finish.layout != image->written.layout))
        add_finish(&producer->schema.tensors[producer->schema.tensor_count - 1], &image->finish);
    sprintf(*mask_name, "%s.mask", output->name);
    add_tensor(producer, *mask_name, "mask", output->name, TRAJD_U8, 1, shape);
    *mask_name += strlen(*mask_name) + 1;
}

/* Adds the parameters of augmented images, behind all other tensors. */
static void add_augment_tensors(struct trajd_producer *producer,
                                const struct trajd_window_plan *plan, char **name)
{
    for (uint32_t o = 0; o < plan->rules.output_count; o++) {
        const struct trajd_plan_output *output = &plan->rules.outputs[o];
        const uint64_t shape[] = {output->step_count, output->augment ? output->augment->count : 0,
                                  TRAJD_AUGMENT_VALUES};
        if (!output->augment)
            continue;
        sprintf(*name, "%s.augment", output->name);
        add_tensor(producer, *name, "augment", output->name, TRAJD_F32, 3, shape);
        *name += strlen(*name) + 1;
    }
}

/* Adds which columns the episode of a window lacks, for outputs in which they are filled. */
static void add_missing_tensors(struct trajd_producer *producer,
                                const struct trajd_window_plan *plan, char **name)
{
    for (uint32_t o = 0; o < plan->rules.visible_count; o++) {
        const struct trajd_plan_output *output = &plan->rules.outputs[o];
        if (!trajd_producer_fills(producer, o))
            continue;
        sprintf(*name, "%s.missing", output->name);
        add_tensor(producer, *name, "missing", output->name, TRAJD_BOOL, 1, output->shape);
        *name += strlen(*name) + 1;
    }
}

static void place_outputs(const struct trajd_producer *producer, struct trajd_binding *batch)
{
    const struct trajd_wire_tensor *augment =
        &producer->schema.tensors[producer->schema.tensor_count];

    for (uint32_t o = batch->plan->rules.visible_count; o-- > 0;) {
        batch->outputs[o].offset_bytes = producer->schema.tensors[2 * o].offset_bytes;
        batch->outputs[o].mask_offset_bytes = producer->schema.tensors[2 * o + 1].offset_bytes;
        if (batch->plan->rules.outputs[o]
                .augment) /* the last tensors, in the order of the outputs */
            batch->outputs[o].augment_offset_bytes = (--augment)->offset_bytes;
    }
}

/* Lays out a slot: each output followed by its mask (cameras that are alike side by side), then the
 * ids. Sets the outputs' offsets in the batch. */
static enum trajd_status make_schema(struct trajd_producer *producer, struct trajd_error *error)
{
    static const char *const ids[TRAJD_PRODUCER_ID_COUNT] = {"window_id", "dataset_index",
                                                             "episode_index", "anchor_ns"};
    /* all members have the same outputs */
    const struct trajd_window_plan *plan = producer->plan->members[0];
    size_t names = 1;
    char *mask_name;
    enum trajd_status status;

    for (uint32_t o = 0; o < plan->rules.visible_count; o++)
        names += 2 * strlen(plan->rules.outputs[o].name) + sizeof ".mask" + sizeof ".augment" +
                 strlen(plan->rules.outputs[o].name) + sizeof ".missing";
    producer->schema.global_batch = producer->spec->global_batch;
    producer->schema.tensors = trajd_arena_array(
        &producer->arena, 4 * plan->rules.visible_count + TRAJD_PRODUCER_ID_COUNT + 1,
        sizeof *producer->schema.tensors);
    mask_name = trajd_arena_array(&producer->arena, names, 1);
    if (producer->arena.is_starved)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the schema");
    for (uint32_t o = 0; o < plan->rules.visible_count; o++)
        add_output_tensors(producer, plan, o, &mask_name);
    for (int i = 0; i < TRAJD_PRODUCER_ID_COUNT; i++)
        add_tensor(producer, ids[i], "ids", NULL, TRAJD_I64, 0, NULL);
    if (producer->spec->tail == TRAJD_TAIL_WRAP)
        add_tensor(producer, "wrapped", "ids", NULL, TRAJD_BOOL, 0, NULL);
    add_missing_tensors(producer, plan, &mask_name);
    add_augment_tensors(producer, plan, &mask_name);
    status = trajd_feed_schema_layout(&producer->schema, error);
    for (uint32_t p = 0; p < producer->plan->member_count && !status; p++)
        place_outputs(producer, producer->batch->members[p]);
    return status;
}

/* ---- steps of making ---- */

static enum trajd_status make_plan(struct trajd_producer *producer, struct trajd_error *error)
{
    enum trajd_status status = trajd_mixture_plan_create(
        producer->options.spec, producer->options.datasets, &producer->plan, error);

    if (!status && producer->options.quarantine_at_most) {
        status = trajd_mixture_plan_check_quarantine(producer->plan,
                                                     producer->options.quarantine_at_most, error);
        if (status && producer->options.is_refused)
            *producer->options.is_refused = true;
    }
    for (uint32_t p = 0;
         !status && producer->options.is_unfinished && p < producer->plan->member_count; p++)
        trajd_window_plan_leave_unfinished(producer->plan->members[p]);
    return status;
}

static enum trajd_status make_batch(struct trajd_producer *producer, struct trajd_error *error)
{
    return trajd_mixture_batch_create(producer->plan, &producer->batch, error);
}

/* Returns an error for outputs that no kernel forms on a GPU. The worker then gets its batches in
 * host memory, with this reason. */
static enum trajd_status refuse_shape(const struct trajd_producer *producer,
                                      const struct trajd_window_plan *plan,
                                      const struct trajd_resample_request *shape,
                                      struct trajd_error *error)
{
    for (uint32_t t = 0; t < plan->rules.target_count; t++)
        if (plan->rules.targets[t].is_filled && trajd_plan_count_missing(plan, t, NULL, NULL))
            return trajd_error_set(
                error, TRAJD_ERR_UNSUPPORTED, 0,
                "feed %s: outputs.%s: some episodes lack some of its streams, so "
                "batches are in host memory",
                producer->name, plan->rules.outputs[plan->rules.targets[t].output_index].name);
    if (!shape->stream_count)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "feed %s: all outputs are images, so batches are in host memory: "
                               "with an output of numbers they can lie on a GPU",
                               producer->name);
    return TRAJD_OK;
}

/* Estimates the time that the transforms of a batch take on one thread. */
static double transform_ns(const struct trajd_window_plan *plan)
{
    double ns = 0;

    for (uint32_t o = 0; o < plan->rules.visible_count; o++)
        if (plan->rules.outputs[o].transform)
            ns += (double)plan->spec->global_batch * plan->rules.outputs[o].step_count *
                  trajd_transform_step_ns(plan->rules.outputs[o].transform);
    return ns;
}

static enum trajd_status make_members(struct trajd_producer *producer, struct trajd_error *error)
{
    struct trajd_device_facts facts = {.cpu_threads =
                                           trajd_pool_thread_count(producer->options.pool),
                                       .tuning = producer->options.tuning};
    const char *variant = producer->spec->variant;
    enum trajd_status status = TRAJD_OK;

    if (producer->options.gpu) {
        trajd_device_facts(trajd_gpu_device(producer->options.gpu), &facts);
        /* a kernel that is named for the CPU does not apply on a GPU */
        variant = variant && strncmp(variant, "cuda", 4) == 0 ? variant : NULL;
    }
    producer->members = trajd_arena_array(&producer->arena, producer->plan->member_count,
                                          sizeof *producer->members);
    if (!producer->members)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for feed %s", producer->name);
    for (uint32_t p = 0; p < producer->plan->member_count && !status; p++) {
        struct trajd_producer_member *member = &producer->members[p];
        struct trajd_resample_request shape;

        member->dataset = producer->options.datasets[p];
        member->plan = producer->plan->members[p];
        member->batch = producer->batch->members[p];
        member->selection = &member->plan->selection;
        shape = member->batch->request;
        shape.window_count = producer->spec->global_batch;
        if (producer->options.gpu && (status = refuse_shape(producer, member->plan, &shape, error)))
            return status;
        status = trajd_plan_create_then(&shape, transform_ns(member->plan), &facts, variant,
                                        &member->kernel_plan, error);
    }
    return status;
}

static_assert(TRAJD_SPEC_MAX_SLOTS == TRAJD_CORE_MAX_SLOTS,
              "a feed has the slots that it asks for");

uint64_t trajd_producer_ring_bytes(const struct trajd_producer *producer)
{
    uint64_t bytes;

    if (producer->options.gpu)
        return producer->pinned_bytes;
    if (__builtin_mul_overflow(producer->schema.slot_size_bytes, producer->slot_count, &bytes) ||
        __builtin_add_overflow(bytes, TRAJD_RING_ALIGNMENT, &bytes))
        return UINT64_MAX;
    return bytes;
}

/* Chooses the number of slots. Refuses a ring for which memory.rings has no room. The message has the number to set, because a
 * user does not know the size of a slot. */
static enum trajd_status choose_ring(struct trajd_producer *producer, struct trajd_error *error)
{
    uint64_t ring_bytes;

    producer->slot_count =
        producer->spec->slot_count
            ? producer->spec->slot_count
            : trajd_default_slots(producer->schema.slot_size_bytes,
                                  producer->options.gpu ? UINT64_MAX
                                                        : producer->options.rings_room_bytes);
    ring_bytes = trajd_producer_ring_bytes(producer);
    if (ring_bytes <= producer->rings_remaining_bytes)
        return TRAJD_OK;
    return trajd_error_set(
        error, TRAJD_ERR_MEMORY, 0,
        "feed %s: its ring of %u slots needs %llu bytes, and other feeds use %llu, but "
        "memory.rings allows %llu: set memory.rings to %lluMiB or more, or lower global_batch, "
        "slots, or the "
        "number or size of the steps",
        producer->name, producer->slot_count, (unsigned long long)ring_bytes,
        (unsigned long long)producer->options.rings_used_bytes,
        (unsigned long long)producer->options.rings_limit_bytes,
        (unsigned long long)((ring_bytes / MIB) + (producer->options.rings_used_bytes / MIB) + 2));
}

static enum trajd_status load_rows(struct trajd_producer *producer, struct trajd_error *error)
{
    enum trajd_status status;

    if (!producer->options.server)
        return TRAJD_OK;
    if (!producer->options.gpu)
        return trajd_producer_load_rows(producer, error);
    trajd_heartbeat_wait(); /* for the driver */
    status = trajd_producer_gpu_create(producer, producer->options.gpu, error);
    if (status == TRAJD_ERR_MEMORY && !producer->spec->slot_count &&
        producer->slot_count > TRAJD_SLOTS_LEAST) {
        trajd_producer_gpu_destroy(producer);
        producer->slot_count = TRAJD_SLOTS_LEAST;
        status = trajd_producer_gpu_create(producer, producer->options.gpu, error);
    }
    trajd_heartbeat_resume();
    return status;
}

static enum trajd_status add_feed(struct trajd_producer *producer, struct trajd_error *error)
{
    const uint64_t norm_digest = trajd_mixture_plan_norm_digest(producer->plan),
                   values_digest = trajd_mixture_plan_values_digest(producer->plan);
    const struct trajd_core_feed_options feed = {
        .name = producer->name,
        .instance_of = producer->options.instance_of,
        .is_hidden = producer->options.is_hidden,
        .slot_count = producer->slot_count,
        .max_credit = producer->options.max_credit,
        .fingerprint = producer->plan->fingerprint,
        .seed = producer->spec->seed,
        .norm_digest = norm_digest ? norm_digest : NOTHING_THERE,
        .values_digest = values_digest ? values_digest : NOTHING_THERE,
        .changed_norm = trajd_producer_changed_norm(producer),
        .window_count = trajd_mixture_plan_window_count(producer->plan),
        .epoch_length = trajd_mixture_plan_epoch_length(producer->plan),
        .dropped_count = trajd_mixture_plan_dropped_count(producer->plan),
        .tail_short = producer->spec->tail == TRAJD_TAIL_SHORT,
        .journal_directory = producer->options.journal_directory,
        .rank_timeout_ns = (uint64_t)producer->spec->rank_timeout_ns,
        .rejoin_wait_ns = (uint64_t)producer->spec->rejoin_wait_ns,
        .job_count = producer->spec->job_count,
        .has_unfinished =
            !producer->options.is_unfinished && trajd_window_spec_finishes(producer->spec),
        .slow_leaves = producer->spec->slow_leaves,
        .slow_after_ns = (uint64_t)producer->spec->slow_after_ns,
        .data = trajd_producer_data(producer)};
    enum trajd_status status;

    if (!producer->options.server)
        return TRAJD_OK;
    trajd_heartbeat_wait(); /* for the pages of the ring */
    status = trajd_server_add_feed(producer->options.server, &feed, &producer->schema,
                                   producer->on_gpu ? trajd_producer_gpu_memory(producer) : NULL,
                                   &producer->feed, error);
    trajd_heartbeat_resume();
    return status;
}

static enum trajd_status start(struct trajd_producer *producer, struct trajd_error *error)
{
    int failed;

    if (!producer->options.server)
        return TRAJD_OK;
    failed = trajd_thread_start(&producer->thread, "trajd-feed",
                                producer->on_gpu ? trajd_producer_gpu_run : trajd_producer_run,
                                producer);
    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "thread of feed %s: %s",
                               producer->name, strerror(failed));
    producer->running = true;
    return TRAJD_OK;
}

enum trajd_status trajd_producer_create(const struct trajd_producer_options *options,
                                        struct trajd_producer **out, struct trajd_error *error)
{
    static enum trajd_status (*const steps[])(struct trajd_producer *, struct trajd_error *) = {
        make_plan,   trajd_producer_normalise,
        make_batch,  make_schema,
        choose_ring, make_members,
        load_rows,   add_feed,
        start};
    struct trajd_producer *producer = calloc(1, sizeof *producer);
    enum trajd_status status = TRAJD_OK;

    *out = NULL;
    if (producer) {
        producer->prefetched.run_id = producer->wanted.run_id = UINT64_MAX; /* none yet */
        producer->arena.limit_bytes = SIZE_MAX / 2;
        producer->name = trajd_arena_copy(&producer->arena, options->name, strlen(options->name));
        if (options->text)
            producer->text =
                trajd_arena_copy(&producer->arena, options->text, strlen(options->text));
    }
    if (!producer || producer->arena.is_starved) {
        if (producer)
            trajd_arena_free(&producer->arena);
        free(producer);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for feed %s", options->name);
    }
    pthread_mutex_init(&producer->failure_mutex, NULL);
    producer->options = *options;
    producer->options.owns_spec = false; /* until all is made */
    producer->spec = options->spec;
    if (options->rings_limit_bytes > options->rings_used_bytes)
        producer->rings_remaining_bytes = options->rings_limit_bytes - options->rings_used_bytes;
    for (size_t s = 0; s < ARRAY_LEN(steps) && !status; s++)
        status = steps[s](producer, error);
    if (status)
        trajd_producer_destroy(&producer);
    else
        producer->options.owns_spec = options->owns_spec;
    *out = producer;
    return status;
}

void trajd_producer_stop(struct trajd_producer *producer)
{
    /* relaxed: a flag that orders nothing; the join orders the rest */
    __atomic_store_n(&producer->stop, true, __ATOMIC_RELAXED);
    trajd_heartbeat_cancel(&producer->heartbeat);
    if (producer->feed)
        trajd_feed_close(producer->feed); /* ends a waiting take; publish may still be called */
}

void trajd_producer_destroy(struct trajd_producer **out)
{
    struct trajd_producer *producer = *out;

    *out = NULL;
    if (!producer)
        return;
    trajd_producer_stop(producer);
    if (producer->running)
        pthread_join(producer->thread, NULL);
    if (producer->feed)
        trajd_server_remove_feed(producer->options.server, &producer->feed);
    for (uint32_t p = 0; producer->plan && p < producer->plan->member_count; p++)
        trajd_stats_service_forget(producer->options.stats_service, producer->plan->members[p]);
    trajd_producer_gpu_destroy(producer);
    if (producer->members)
        trajd_producer_drop_rows(producer);
    for (uint32_t p = 0; producer->members && p < producer->plan->member_count; p++)
        trajd_plan_destroy(&producer->members[p].kernel_plan);
    trajd_mixture_batch_destroy(&producer->batch);
    trajd_mixture_plan_destroy(&producer->plan);
    if (producer->options.owns_spec)
        trajd_window_spec_destroy(&producer->spec);
    pthread_mutex_destroy(&producer->failure_mutex);
    trajd_arena_free(&producer->arena);
    free(producer);
}
