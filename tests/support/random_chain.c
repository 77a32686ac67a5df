/* Draws random transforms and their rows. */
#include "support/random_chain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/element_convert.h"

#define POISON 0xa5
#define GAP_BYTES 32
#define BLOCK_BYTES ((uint64_t)1 << 21)
#define PARTS_MAX 6

static uint64_t draw(struct random_chain *chain, uint64_t limit)
{
    uint64_t x = chain->random += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (x ^ x >> 31) % limit;
}

static double draw_double(struct random_chain *chain)
{
    return (double)draw(chain, UINT64_C(1) << 52) / 0x1p51 - 1;
}

static void *take(struct random_chain *chain, uint64_t bytes)
{
    char *at = chain->memory + chain->size_bytes + GAP_BYTES;

    chain->size_bytes += (GAP_BYTES + bytes + 15) / 16 * 16;
    if (chain->size_bytes + GAP_BYTES > BLOCK_BYTES)
        abort();
    return at;
}

/* ---- the transform ---- */

static enum trajd_rotation_form draw_form(struct random_chain *chain)
{
    return 1 + draw(chain, TRAJD_ROTATION_COUNT - 1);
}

static void draw_part(struct random_chain *chain, bool is_relative)
{
    struct trajd_transform *t = &chain->transform;
    struct trajd_transform_part *part = &t->parts[t->part_count++];
    const enum trajd_part_kind kind = draw(chain, 3);

    *part = (struct trajd_transform_part){.kind = kind,
                                          .is_relative = is_relative && draw(chain, 4) > 0,
                                          .first = t->column_count,
                                          .output_first = t->output_count,
                                          .origin_first = t->origin_count,
                                          .turned_by = -1};
    part->count = part->output_count = 1 + (uint32_t)draw(chain, kind == TRAJD_PART_ANGLE ? 3 : 12);
    part->period = kind == TRAJD_PART_ANGLE ? 0.7 : 0;
    if (kind == TRAJD_PART_ROTATION) {
        part->from = draw_form(chain);
        part->to = draw_form(chain);
        part->reference_form = part->is_relative ? draw_form(chain) : TRAJD_ROTATION_NONE;
        part->count = trajd_rotation_width(part->from);
        part->output_count = trajd_rotation_width(part->to);
    }
    t->column_count += part->count;
    t->output_count += part->output_count;
    if (!part->is_relative)
        return;
    part->reference_first = t->reference_count;
    t->origin_count += kind == TRAJD_PART_ROTATION ? 4 : part->count;
    t->reference_count +=
        kind == TRAJD_PART_ROTATION ? trajd_rotation_width(part->reference_form) : part->count;
}

/* Lets positions be turned by a rotation, as chains with poses do. */
static void draw_turns(struct random_chain *chain)
{
    struct trajd_transform *t = &chain->transform;

    for (uint32_t p = 0; p < t->part_count && t->frame == TRAJD_FRAME_ANCHOR; p++)
        for (uint32_t r = 0; r < t->part_count; r++)
            if (t->parts[p].kind == TRAJD_PART_PLAIN && t->parts[p].is_relative &&
                t->parts[p].count == 3 && t->parts[r].kind == TRAJD_PART_ROTATION &&
                t->parts[r].is_relative)
                t->parts[p].turned_by = (int32_t)r;
}

static void draw_transform(struct random_chain *chain)
{
    struct trajd_transform *t = &chain->transform;
    const bool is_relative = draw(chain, 4) > 0;
    const uint32_t parts = 1 + (uint32_t)draw(chain, PARTS_MAX);

    t->frame = draw(chain, 2) ? TRAJD_FRAME_ANCHOR : TRAJD_FRAME_BASE;
    while (t->part_count < parts)
        draw_part(chain, is_relative);
    if (t->parts[0].kind == TRAJD_PART_PLAIN && draw(chain, 2)) { /* a position */
        const uint32_t more = 3 - t->parts[0].count;
        t->parts[0].count = t->parts[0].output_count = 3;
        for (uint32_t p = 1; p < t->part_count; p++) {
            t->parts[p].first += more;
            t->parts[p].output_first += more;
            t->parts[p].origin_first += t->parts[0].is_relative ? more : 0;
            t->parts[p].reference_first += t->parts[0].is_relative ? more : 0;
        }
        t->column_count += more;
        t->output_count += more;
        t->reference_count += t->parts[0].is_relative ? more : 0;
        t->origin_count += t->parts[0].is_relative ? more : 0;
    }
    draw_turns(chain);
    t->from_step_before = t->reference_count && draw(chain, 3) == 0;
}

/* ---- rows ---- */

static void store_rotation(struct random_chain *chain, enum trajd_rotation_form form,
                           double *numbers)
{
    double q[4];

    for (int k = 0; k < 4; k++)
        q[k] = draw_double(chain);
    trajd_rotation_load(TRAJD_ROTATION_QUAT_XYZW, q, q);
    trajd_rotation_store(form, q, numbers);
    if (form == TRAJD_ROTATION_AXIS_ANGLE && draw(chain, 8) == 0)
        numbers[1] += 9;      /* beyond 2 pi */
    if (draw(chain, 60) == 0) /* no rotation */
        memset(numbers, 0, trajd_rotation_width(form) * sizeof *numbers);
}

/* Writes rows, of which parts are rotations: of the source, or of the reference. */
static void fill_rows(struct random_chain *chain, bool is_reference, uint64_t count, void *array)
{
    const struct trajd_transform *t = &chain->transform;
    const uint32_t columns = is_reference ? t->reference_count : t->column_count;
    const enum trajd_dtype type = is_reference ? chain->job.reference_type : chain->job.source_type;
    double row[PARTS_MAX * 12 + 3];

    for (uint64_t r = 0; r < count; r++) {
        for (uint32_t d = 0; d < columns; d++)
            row[d] = draw(chain, 400) ? draw_double(chain) : draw(chain, 2) ? NAN : INFINITY;
        for (uint32_t p = 0; p < t->part_count; p++) {
            const struct trajd_transform_part *part = &t->parts[p];
            if (part->kind == TRAJD_PART_ROTATION && (part->is_relative || !is_reference))
                store_rotation(chain, is_reference ? part->reference_form : part->from,
                               row + (is_reference ? part->reference_first : part->first));
        }
        for (uint32_t d = 0; d < columns; d++)
            trajd_element_store(type, (char *)array + (r * columns + d) * trajd_dtype_size(type),
                                row[d]);
    }
}

static void fill_masks(struct random_chain *chain, uint64_t count, uint8_t *masks)
{
    for (uint64_t i = 0; i < count; i++)
        masks[i] = draw(chain, 4) ? TRAJD_MASK_VALID : (uint8_t)draw(chain, TRAJD_MASK_TOO_OLD + 1);
}

static float *fill_floats(struct random_chain *chain, uint64_t count)
{
    float *numbers = take(chain, count * sizeof *numbers);

    for (uint64_t i = 0; i < count; i++)
        numbers[i] = (float)draw_double(chain);
    return numbers;
}

/* Numbers some of the rows, in ascending order. */
static uint32_t *draw_window_rows(struct random_chain *chain, uint32_t rows)
{
    uint32_t *numbers = take(chain, rows * sizeof *numbers);

    chain->window_count = 0;
    for (uint32_t r = 0; r < rows; r++)
        if (draw(chain, 2))
            numbers[chain->window_count++] = r;
    return numbers;
}

static void draw_job(struct random_chain *chain)
{
    static const enum trajd_dtype outputs[] = {TRAJD_F32, TRAJD_F64, TRAJD_F16, TRAJD_BF16};
    static const uint32_t steps[] = {1, 2, 7, 16, 31, 50, 129};
    const struct trajd_transform *t = &chain->transform;
    struct trajd_transform_job *job = &chain->job;
    const uint32_t rows = 1 + (uint32_t)draw(chain, 9);
    uint64_t norms;

    *job = (struct trajd_transform_job){.transform = t,
                                        .step_count = steps[draw(chain, 7)],
                                        .source_type = draw(chain, 2) ? TRAJD_F32 : TRAJD_F64,
                                        .reference_type = draw(chain, 2) ? TRAJD_F32 : TRAJD_F64,
                                        .output_type = outputs[draw(chain, 4)],
                                        .edge = draw(chain, TRAJD_EDGE_COUNT),
                                        .norm_per_step = draw(chain, 3) == 0};
    chain->window_count = rows;
    job->window_rows = draw(chain, 3) ? NULL : draw_window_rows(chain, rows);
    job->source = take(chain, (uint64_t)rows * job->step_count * t->column_count * 8);
    job->reference = take(chain, (uint64_t)rows * t->reference_count * 8);
    job->reference_mask = take(chain, rows);
    chain->source_mask = take(chain, (uint64_t)rows * job->step_count);
    norms = (uint64_t)t->output_count * (job->norm_per_step ? job->step_count : 1);
    if (draw(chain, 3)) {
        job->scale = fill_floats(chain, norms);
        job->offset = fill_floats(chain, norms);
    }
    chain->output_count = (uint64_t)rows * job->step_count * t->output_count;
    job->output = take(chain, chain->output_count * trajd_dtype_size(job->output_type));
    job->mask = take(chain, (uint64_t)rows * job->step_count);
    fill_rows(chain, false, (uint64_t)rows * job->step_count, (void *)(uintptr_t)job->source);
    fill_rows(chain, true, t->reference_count ? rows : 0, (void *)(uintptr_t)job->reference);
    fill_masks(chain, rows, (uint8_t *)(uintptr_t)job->reference_mask);
    fill_masks(chain, (uint64_t)rows * job->step_count, chain->source_mask);
}

/* Runs the CPU, which changes masks in place, in the rows of the windows. */
static void run_cpu(struct random_chain *chain)
{
    const struct trajd_transform_job *job = &chain->job;

    for (uint32_t w = 0; w < chain->window_count; w++) {
        const uint64_t at =
            (job->window_rows ? job->window_rows[w] : w) * (uint64_t)job->step_count;
        memcpy(job->mask + at, chain->source_mask + at, job->step_count);
    }
    trajd_transform_windows(job, 0, chain->window_count);
}

struct random_chain *random_chain_create(uint64_t seed)
{
    struct random_chain *chain = calloc(1, sizeof *chain);

    if (!chain || !(chain->memory = malloc(BLOCK_BYTES)) || !(chain->found = malloc(BLOCK_BYTES)))
        abort();
    memset(chain->memory, POISON, BLOCK_BYTES);
    chain->random = seed;
    draw_transform(chain);
    draw_job(chain);
    chain->size_bytes += GAP_BYTES;
    memcpy(chain->found, chain->memory, chain->size_bytes);
    run_cpu(chain);
    return chain;
}

void random_chain_destroy(struct random_chain **chain)
{
    free((*chain)->memory);
    free((*chain)->found);
    free(*chain);
    *chain = NULL;
}

struct trajd_transform_gpu_job random_chain_gpu_job(const struct random_chain *chain, char *device)
{
    struct trajd_transform_gpu_job made = {chain->job, chain->source_mask};
    const uintptr_t from = (uintptr_t)chain->memory,
                    to = (uintptr_t)(device ? device : chain->found);

#define MOVE(pointer) (pointer) = (pointer) ? (void *)((uintptr_t)(pointer)-from + to) : NULL
    MOVE(made.job.window_rows);
    MOVE(made.job.source);
    MOVE(made.job.reference);
    MOVE(made.job.reference_mask);
    MOVE(made.job.mask);
    MOVE(made.job.output);
    MOVE(made.job.scale);
    MOVE(made.job.offset);
    MOVE(made.source_mask);
#undef MOVE
    return made;
}

bool random_chain_matches(const struct random_chain *chain, const char *found, char *text,
                          uint32_t text_size)
{
    const enum trajd_dtype type = chain->job.output_type;
    const uint64_t size = trajd_dtype_size(type),
                   first = (uint64_t)((char *)chain->job.output - chain->memory),
                   end = first + chain->output_count * size;

    for (uint64_t at = 0; at < chain->size_bytes; at += at >= first && at < end ? size : 1) {
        const bool is_output = at >= first && at < end;
        if (memcmp(chain->memory + at, found + at, is_output ? size : 1) == 0 ||
            (is_output && isnan(trajd_element_load(type, chain->memory + at)) &&
             isnan(trajd_element_load(type, found + at))))
            continue;
        if (is_output)
            snprintf(text, text_size, "%s number %llu is %.17g, not %.17g", trajd_dtype_name(type),
                     (unsigned long long)((at - first) / size),
                     trajd_element_load(type, found + at),
                     trajd_element_load(type, chain->memory + at));
        else
            snprintf(text, text_size, "byte %llu is %u, not %u (masks begin at %llu)",
                     (unsigned long long)at, (uint8_t)found[at], (uint8_t)chain->memory[at],
                     (unsigned long long)((char *)chain->job.mask - chain->memory));
        return false;
    }
    return true;
}
