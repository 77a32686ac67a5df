/* Plans: their device memory, and the launches of a run. */
#include "kernels/image/cuda/image_gpu.h"

#include <stdlib.h>

#include "kernels/image/cuda/image_launch.h"

#define BETWEEN_BYTES_MAX (UINT64_C(64) << 20) /* of frames between passes */

struct trajd_image_gpu {
    struct trajd_device *device;
    struct trajd_image_program program;
    struct trajd_image_choice choice;
    uint32_t frames_max, sm_count;
    uint32_t chunk_frames; /* of a launch of the general kernels */
    char *memory;
    uint64_t size_bytes;
    struct trajd_image_launch launch; /* addresses in `memory` */
    const void *ordered_tables;       /* as the kernel reads them */
};

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* The words of the tables that a kernel has of its own. */
static uint32_t ordered_words(const struct trajd_image_gpu *plan)
{
    return plan->choice.variant == TRAJD_IMAGE_RESIZE   ? plan->choice.resize.words
           : plan->choice.variant == TRAJD_IMAGE_MATRIX ? plan->choice.matrix.words
                                                        : 0;
}

/* Sets the addresses in the plan's memory. Returns the bytes that it needs. */
static uint64_t place(struct trajd_image_gpu *plan)
{
    const struct trajd_image_program *p = &plan->program;
    const bool is_general = plan->choice.variant == TRAJD_IMAGE_GENERAL;
    const uint64_t tables = round_up((uint64_t)p->table_words * sizeof(uint32_t));
    const uint64_t ordered = round_up((uint64_t)ordered_words(plan) * sizeof(uint32_t));
    const uint64_t own =
        round_up((uint64_t)plan->chunk_frames * p->own_table_words * sizeof(uint32_t));
    const uint64_t means =
        round_up((uint64_t)plan->chunk_frames * p->mean_count * 3 * sizeof *plan->launch.means);
    const uint64_t between = round_up((uint64_t)plan->chunk_frames * p->between_bytes);
    char *at = plan->memory;

    plan->launch.tables = (const uint32_t *)at;
    at += tables;
    plan->ordered_tables = at;
    at += ordered;
    plan->launch.own_tables = (uint32_t *)at;
    at += own;
    if (!is_general)
        return tables + ordered + own;
    plan->launch.means = (unsigned long long *)at;
    at += means;
    plan->launch.between[0] = (uint8_t *)at;
    plan->launch.between[1] = (uint8_t *)at + between;
    return tables + ordered + own + means + 2 * between;
}

/* Copies words to the plan's memory, and waits. */
static enum trajd_status upload(struct trajd_image_gpu *plan, const void *to, const uint32_t *words,
                                uint32_t count, struct trajd_error *error)
{
    struct trajd_device_stream *stream;
    enum trajd_status status = trajd_device_stream_create(plan->device, &stream, error);

    if (status)
        return status;
    status =
        trajd_device_copy_async((void *)to, words, (uint64_t)count * sizeof *words, stream, error);
    if (!status)
        status = trajd_device_stream_wait(stream, error);
    trajd_device_stream_destroy(&stream);
    return status;
}

static enum trajd_status upload_ordered(struct trajd_image_gpu *plan, const uint32_t *tables,
                                        struct trajd_error *error)
{
    const struct trajd_image_choice *choice = &plan->choice;
    uint32_t *words = calloc(ordered_words(plan), sizeof *words);
    enum trajd_status status;

    if (!words)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for tables of images");
    if (choice->variant == TRAJD_IMAGE_RESIZE)
        trajd_image_resize_fill(&plan->program, tables, &choice->resize, words);
    else
        trajd_image_matrix_fill(&plan->program, tables, &choice->matrix, words);
    status = upload(plan, plan->ordered_tables, words, ordered_words(plan), error);
    free(words);
    return status;
}

static enum trajd_status make_memory(struct trajd_image_gpu *plan, const uint32_t *tables,
                                     struct trajd_error *error)
{
    const uint64_t between = plan->program.between_bytes;
    const uint64_t fit = between ? BETWEEN_BYTES_MAX / between : plan->frames_max;
    enum trajd_status status = TRAJD_OK;
    void *memory;

    plan->chunk_frames = (uint32_t)(fit < 1 ? 1 : fit < plan->frames_max ? fit : plan->frames_max);
    plan->size_bytes = place(plan);
    if (!plan->size_bytes)
        return TRAJD_OK;
    status = trajd_device_alloc(plan->device, plan->size_bytes, &memory, error);
    if (status)
        return status;
    plan->memory = memory;
    place(plan);
    if (plan->program.table_words)
        status = upload(plan, plan->launch.tables, tables, plan->program.table_words, error);
    if (!status && ordered_words(plan))
        status = upload_ordered(plan, tables, error);
    return status;
}

enum trajd_status trajd_image_gpu_create(struct trajd_device *device,
                                         const struct trajd_image_gpu_spec *spec,
                                         uint32_t frames_max, struct trajd_image_gpu **plan,
                                         struct trajd_error *error)
{
    enum trajd_status status = trajd_image_gpu_check(spec, error);
    struct trajd_device_facts facts = {0};
    struct trajd_image_gpu *made;
    uint32_t *tables = NULL;

    *plan = NULL;
    if (status)
        return status;
    if (!frames_max || frames_max > TRAJD_IMAGE_GPU_FRAMES_MAX)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "images on the GPU: a run has 1 to 65535 frames, not %u",
                               frames_max);
    made = *plan = calloc(1, sizeof *made);
    if (!made)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a plan of images");
    trajd_device_facts(device, &facts);
    made->device = device;
    made->frames_max = frames_max;
    made->sm_count = facts.sm_count;
    status = trajd_image_program_make(spec, &made->program, &tables, error);
    if (!status) {
        trajd_image_choose(&made->program, tables, &facts, frames_max, spec->requested,
                           &made->choice);
        made->launch.block_shared_bytes = facts.block_shared_bytes;
        made->launch.record_bytes = trajd_image_program_record_bytes(&made->program);
        status = make_memory(made, tables, error);
    }
    free(tables);
    if (status)
        trajd_image_gpu_destroy(plan);
    return status;
}

void trajd_image_gpu_destroy(struct trajd_image_gpu **plan)
{
    if (!*plan)
        return;
    if ((*plan)->memory)
        trajd_device_free((*plan)->device, (*plan)->memory);
    free(*plan);
    *plan = NULL;
}

uint64_t trajd_image_gpu_bytes(const struct trajd_image_gpu *plan)
{
    return plan->size_bytes;
}

const char *trajd_image_gpu_variant(const struct trajd_image_gpu *plan, const char **why)
{
    *why = plan->choice.why;
    return trajd_image_variant_name(plan->choice.variant);
}

uint32_t trajd_image_gpu_record_bytes(const struct trajd_image_gpu *plan)
{
    return plan->launch.record_bytes;
}

enum trajd_status trajd_image_gpu_write_record(const struct trajd_image_gpu *plan,
                                               const void *source, void *output,
                                               const struct trajd_augment_params *params,
                                               void *record, struct trajd_error *error)
{
    struct trajd_image_record *r = record;
    const uint32_t size = trajd_dtype_size((enum trajd_dtype)plan->program.type);

    if ((uintptr_t)source % TRAJD_IMAGE_GPU_ALIGNMENT)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "images on the GPU: a frame must begin at a multiple of 16 bytes");
    if ((uintptr_t)output % size)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "images on the GPU: a tensor must be aligned to its elements");
    *r = (struct trajd_image_record){source, output};
    if (plan->program.value_count)
        trajd_image_program_write(&plan->program, params, (union trajd_image_value *)(r + 1));
    return TRAJD_OK;
}

/* Runs the passes for a chunk of frames. */
static int launch_general(const struct trajd_image_program *p,
                          const struct trajd_image_launch *launch, void *stream)
{
    int code = p->own_table_words ? trajd_image_launch_boxes(p, launch, stream) : 0;

    if (!code && p->mean_count)
        code = trajd_image_launch_clear(p, launch, stream);
    for (uint32_t i = 0; i < p->pass_count && !code; i++) {
        for (uint32_t s = p->passes[i].colors; s < p->passes[i].end && !code; s++)
            if (p->steps[s].kind == TRAJD_AUGMENT_CONTRAST ||
                p->steps[s].kind == TRAJD_AUGMENT_CHANNEL_CONTRAST)
                code = trajd_image_launch_mean(p, i, s, launch, stream);
        if (!code)
            code = trajd_image_launch_pass(p, i, launch, stream);
    }
    return code;
}

/* Runs the whole program in one launch. */
static int launch_whole(const struct trajd_image_gpu *plan, const struct trajd_image_launch *launch,
                        void *stream)
{
    const struct trajd_image_program *p = &plan->program;
    struct trajd_image_resize resize = plan->choice.resize;
    struct trajd_image_matrix matrix = plan->choice.matrix;
    int code;

    switch (plan->choice.variant) {
    case TRAJD_IMAGE_STRIP:
        return trajd_image_launch_strip(p, &plan->choice.strip, launch, stream);
    case TRAJD_IMAGE_RESIZE:
        trajd_image_resize_divide(launch->count, plan->sm_count * resize.blocks, &resize);
        return trajd_image_launch_resize(p, &resize, plan->ordered_tables, launch, stream);
    case TRAJD_IMAGE_CROP:
        code = trajd_image_launch_boxes(p, launch, stream);
        trajd_image_matrix_divide(launch->count, plan->sm_count * matrix.blocks, &matrix);
        return code ? code : trajd_image_launch_crop(p, &matrix, launch, stream);
    default:
        trajd_image_matrix_divide(launch->count, plan->sm_count * matrix.blocks, &matrix);
        return trajd_image_launch_matrix(p, &matrix, plan->ordered_tables, launch, stream);
    }
}

enum trajd_status trajd_image_gpu_run(struct trajd_image_gpu *plan, const void *records,
                                      uint32_t count, void *stream, struct trajd_error *error)
{
    struct trajd_image_launch launch = plan->launch;
    int code = 0;

    if (count > plan->frames_max || (uintptr_t)records % 16)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "images on the GPU: %u frames of at most %u, records at %p", count,
                               plan->frames_max, records);
    launch.records = records;
    launch.count = count;
    if (count && plan->choice.variant != TRAJD_IMAGE_GENERAL)
        code = launch_whole(plan, &launch, stream);
    for (uint32_t done = 0; !code && plan->choice.variant == TRAJD_IMAGE_GENERAL && done < count;
         done += launch.count) {
        launch.records = (const char *)records + (uint64_t)done * launch.record_bytes;
        launch.count = count - done < plan->chunk_frames ? count - done : plan->chunk_frames;
        code = launch_general(&plan->program, &launch, stream);
    }
    return code ? trajd_error_set(error, TRAJD_ERR_DEVICE, code,
                                  "images on the GPU: launching %u frames: CUDA error %d", count,
                                  code)
                : TRAJD_OK;
}
