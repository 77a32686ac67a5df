/* Draws random requests of one stream, and checks their canaries. */
#include "tests/support/random_problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/element_convert.h"
#include "kernels/quaternion.h"
#include "proto/array_len.h"

#define CANARY_BYTES 64
#define CANARY 0x5c
#define POISON 0xa5
#define STEP_NS 10000000

uint64_t problem_draw(struct problem *problem, uint64_t limit)
{
    uint64_t x = problem->random += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (x ^ x >> 31) % limit;
}

static double draw_double(struct problem *problem)
{
    return (double)problem_draw(problem, 1 << 24) / (1 << 23) - 1;
}

static void *keep(struct problem *problem, uint64_t bytes)
{
    void *block = malloc(bytes ? bytes : 1);

    if (!block || problem->block_count == ARRAY_LEN(problem->blocks))
        abort();
    return problem->blocks[problem->block_count++] = block;
}

static void store_any(enum trajd_dtype type, void *address, double value)
{
    int64_t integer = fabs(value) < 1e9 ? (int64_t)(value * 100) : 0;

    if (trajd_dtype_is_float(type))
        trajd_element_store(type, address, value);
    else if (type == TRAJD_BOOL)
        *(uint8_t *)address = integer & 1;
    else
        memcpy(address, &integer, trajd_dtype_size(type)); /* little endian: the lower bytes */
}

/* Fills in a random walk on the sphere: mostly near neighbours, and sometimes a sign flip, a
 * distant one, half a turn, a long one or a zero. */
static void draw_quaternion(struct problem *problem, double q[4])
{
    uint64_t event = problem_draw(problem, 24);
    double reach = event < 4 ? 1 : 0.1, size = event == 5   ? 3
                                               : event == 6 ? 0
                                               : event == 7 ? -1
                                                            : 1;
    const double turned[4] = {-q[2], q[3], q[0], -q[1]};

    for (int k = 0; k < 4; k++)
        q[k] = event == 8 ? turned[k] : q[k] + reach * draw_double(problem);
    trajd_quaternion_make_unit(q);
    for (int k = 0; k < 4; k++)
        q[k] = isnan(q[k]) ? 0.5 : q[k] * size;
}

static void fill_rows(struct problem *problem, char *rows, uint64_t count)
{
    const struct trajd_stream *stream = &problem->stream;
    static const double lost[] = {NAN, INFINITY, -INFINITY, 3e38, -3e38};
    uint32_t size = trajd_dtype_size(stream->source_type);
    bool nans = problem_draw(problem, 2), slerp = trajd_kind_is_slerp(stream->kind);
    double q[4] = {1, 0, 0, 0}, scale = stream->kind == TRAJD_KIND_ANGLE ? 10 : 100;

    for (uint64_t r = 0; r < count; r++) {
        memset(rows + r * stream->row_stride_bytes, 0xff, stream->row_stride_bytes);
        for (uint32_t d = 0; d < stream->feature_count; d++) {
            double value = scale * draw_double(problem);
            if (slerp && d % 4 == 0)
                draw_quaternion(problem, q);
            if (slerp)
                value = q[d % 4];
            if (nans && problem_draw(problem, 20 + stream->feature_count) == 0)
                value = lost[problem_draw(problem, ARRAY_LEN(lost))];
            store_any(stream->source_type,
                      rows + r * stream->row_stride_bytes +
                          (uint64_t)(stream->first_column + d) * size,
                      value);
        }
    }
}

static int64_t stamp(struct problem *problem, uint32_t row)
{
    switch (problem->spec.stamps) {
    case STAMPS_EQUAL:
        return STEP_NS * (row / 4);
    case STAMPS_REVERSED:
        return STEP_NS * ((int64_t)problem->spec.rows - row);
    case STAMPS_WILD:
        return (int64_t)problem_draw(problem, UINT64_MAX);
    default:
        return STEP_NS * (int64_t)row + (int64_t)problem_draw(problem, STEP_NS / 2);
    }
}

/* Episodes lie one after the other on the clock. Window w sees episode w, all of it or a part. */
static void make_bracket(struct problem *problem)
{
    const struct problem_spec *spec = &problem->spec;
    int64_t *begin = keep(problem, spec->windows * sizeof *begin),
            *count = keep(problem, spec->windows * sizeof *count);
    int64_t *anchor = keep(problem, spec->windows * sizeof *anchor);
    int64_t *stamps = keep(problem, (uint64_t)spec->windows * spec->rows * sizeof *stamps);

    for (uint32_t w = 0; w < spec->windows; w++) {
        begin[w] = (int64_t)w * spec->rows;
        count[w] = problem_draw(problem, 8) ? spec->rows : problem_draw(problem, spec->rows + 1);
        for (uint32_t r = 0; r < spec->rows; r++)
            stamps[begin[w] + r] = stamp(problem, r);
        anchor[w] = (int64_t)problem_draw(problem, spec->rows + 2) - 1;
        if (spec->unit == TRAJD_GRID_NS)
            anchor[w] = anchor[w] * STEP_NS + (int64_t)problem_draw(problem, 3) * STEP_NS / 3;
        if (problem_draw(problem, 3) == 0 && spec->unit == TRAJD_GRID_NS && spec->rows &&
            spec->stamps == STAMPS_JITTER)
            anchor[w] = stamps[begin[w] +
                               (int64_t)problem_draw(problem, spec->rows)]; /* exactly on a row */
    }
    problem->bracket =
        (struct trajd_bracket){.row_begin = begin, .row_count = count, .anchor = anchor};
    problem->clock.stamps_ns = spec->stamps == STAMPS_REGULAR ? NULL : stamps;
    if (spec->stamps == STAMPS_REGULAR)
        problem->clock.rate = problem_draw(problem, 2) ? (struct trajd_rate){30000, 301}
                                                       : (struct trajd_rate){100, 1};
}

/* Some steps of some windows are too old, also beyond the last step. */
static void make_too_old(struct problem *problem)
{
    const struct problem_spec *spec = &problem->spec;
    uint32_t *begin = keep(problem, spec->windows * sizeof *begin),
             *end = keep(problem, spec->windows * sizeof *end);

    if (problem_draw(problem, 4))
        return;
    for (uint32_t w = 0; w < spec->windows; w++) {
        begin[w] = (uint32_t)problem_draw(problem, spec->steps + 1);
        end[w] = problem_draw(problem, 2) ? (uint32_t)problem_draw(problem, spec->steps + 3) : 0;
    }
    problem->bracket.too_old_begin = begin;
    problem->bracket.too_old_end = end;
}

static void make_grid(struct problem *problem)
{
    const struct problem_spec *spec = &problem->spec;
    bool explicit_targets = problem_draw(problem, 3) == 0;
    uint64_t count = (uint64_t)spec->steps * (explicit_targets ? spec->windows : 1);
    int64_t *offsets = keep(problem, count * sizeof *offsets);
    int64_t unit = spec->unit == TRAJD_GRID_ROWS ? 1 : STEP_NS;

    for (uint64_t i = 0; i < count; i++) {
        offsets[i] = ((int64_t)(i % spec->steps) - spec->steps / 2) * unit;
        if (explicit_targets)
            offsets[i] = (int64_t)problem_draw(problem, 12 * (uint64_t)unit) - 6 * unit;
        if (problem_draw(problem, 30) == 0)
            offsets[i] = TRAJD_NO_TARGET;
    }
    problem->grid = (struct trajd_grid){.unit = spec->unit,
                                        .step_count = spec->steps,
                                        .offsets = offsets,
                                        .offsets_per_window = explicit_targets ? spec->steps : 0};
}

static void make_source(struct problem *problem)
{
    const struct problem_spec *spec = &problem->spec;
    struct trajd_stream *stream = &problem->stream;
    uint32_t size = trajd_dtype_size(spec->source);
    uint64_t rows = (uint64_t)spec->windows * spec->rows;
    char *base;

    stream->first_column = (uint32_t)problem_draw(problem, 3);
    stream->row_stride_bytes =
        (stream->first_column + spec->features + problem_draw(problem, 3)) * size;
    base = keep(problem, rows * stream->row_stride_bytes + size);
    base += size * problem_draw(problem, 2); /* off by one element */
    fill_rows(problem, base, rows);
    stream->base = base;
    if (problem_draw(problem, 3) == 0) {
        const void **bases = keep(problem, spec->windows * sizeof *bases);
        for (uint32_t w = 0; w < spec->windows; w++)
            bases[w] = problem_draw(problem, 4)
                           ? base + (uint64_t)w * spec->rows * stream->row_stride_bytes
                           : NULL;
        stream->bases = bases;
    }
}

static void make_rules(struct problem *problem)
{
    struct trajd_stream *stream = &problem->stream;
    bool floats = trajd_dtype_is_float(stream->output_type);
    float *factors = keep(problem, 2 * stream->feature_count * sizeof *factors);

    stream->edge = (enum trajd_edge)problem_draw(problem, floats ? 3 : 2);
    stream->max_gap_ns = problem_draw(problem, 2) ? -1 : STEP_NS * 5 / 4;
    stream->max_age_ns = problem_draw(problem, 2) ? -1 : STEP_NS * 2;
    stream->mean_width = (int64_t)problem_draw(problem, 5) + 1;
    if (problem->spec.unit == TRAJD_GRID_NS)
        stream->mean_width *= STEP_NS * 2 / 3;
    stream->angle_period = problem_draw(problem, 2) ? 6.283185307179586 : 360;
    stream->angle_low = problem_draw(problem, 2) ? NAN : -stream->angle_period / 2;
    for (uint32_t i = 0; i < 2 * stream->feature_count; i++)
        factors[i] = (float)draw_double(problem);
    if (floats && problem_draw(problem, 2)) {
        stream->scale = factors;
        stream->offset = factors + stream->feature_count;
    }
}

static void *keep_guarded(struct problem *problem, uint64_t bytes)
{
    char *block = keep(problem, bytes + 2 * CANARY_BYTES);

    memset(block, CANARY, bytes + 2 * CANARY_BYTES);
    memset(block + CANARY_BYTES, POISON, bytes);
    return block + CANARY_BYTES;
}

void problem_new_outputs(struct problem *problem)
{
    struct trajd_stream *stream = &problem->stream;

    stream->output = keep_guarded(problem, problem->output_bytes);
    stream->mask =
        stream->mask_window_stride_bytes ? keep_guarded(problem, problem->mask_bytes) : NULL;
    stream->derivative = stream->derivative_step_stride_bytes
                             ? keep_guarded(problem, problem->derivative_bytes)
                             : NULL;
}

static void make_outputs(struct problem *problem)
{
    const struct problem_spec *spec = &problem->spec;
    struct trajd_stream *stream = &problem->stream;
    uint32_t size = trajd_dtype_size(spec->output);
    bool slopes = spec->unit == TRAJD_GRID_NS &&
                  (spec->kind == TRAJD_KIND_LINEAR || spec->kind == TRAJD_KIND_ANGLE ||
                   trajd_kind_is_slerp(spec->kind));

    stream->step_stride_bytes = (spec->features + problem_draw(problem, 3)) * size;
    stream->window_stride_bytes =
        stream->step_stride_bytes * spec->steps + problem_draw(problem, 3) * size;
    problem->output_bytes = stream->window_stride_bytes * spec->windows;
    stream->mask_window_stride_bytes =
        problem_draw(problem, 4) ? spec->steps + problem_draw(problem, 3) : 0;
    problem->mask_bytes = stream->mask_window_stride_bytes * spec->windows;
    if (slopes && problem_draw(problem, 2)) {
        stream->derivative_step_stride_bytes =
            (spec->features + problem_draw(problem, 3)) * sizeof(float);
        stream->derivative_window_stride_bytes = stream->derivative_step_stride_bytes * spec->steps;
        problem->derivative_bytes = stream->derivative_window_stride_bytes * spec->windows;
    }
    problem_new_outputs(problem);
}

void problem_create(struct problem *problem, const struct problem_spec *spec)
{
    *problem = (struct problem){.spec = *spec, .random = spec->seed};
    problem->stream.kind = spec->kind;
    problem->stream.source_type = spec->source;
    problem->stream.output_type = spec->output;
    problem->stream.feature_count = spec->features;
    make_bracket(problem);
    make_grid(problem);
    make_too_old(problem);
    make_source(problem);
    make_rules(problem);
    make_outputs(problem);
    problem->request = (struct trajd_resample_request){
        .window_count = spec->windows,
        .clock_count = 1,
        .grid_count = 1,
        .bracket_count = 1,
        .stream_count = 1,
        .clocks = &problem->clock,
        .grids = &problem->grid,
        .brackets = &problem->bracket,
        .streams = &problem->stream,
    };
}

void problem_destroy(struct problem *problem)
{
    while (problem->block_count > 0)
        free(problem->blocks[--problem->block_count]);
}

void problem_scatter(struct problem *problem)
{
    const uint32_t windows = problem->spec.windows;
    uint32_t *rows = keep(problem, windows * sizeof *rows), row = 0;

    for (uint32_t w = 0; w < windows; w++, row++)
        rows[w] = row += (uint32_t)problem_draw(problem, 3);
    problem->request.window_rows = rows;
    problem->request.output_row_count = row + (uint32_t)problem_draw(problem, 3);
    problem->output_bytes = problem->output_bytes / windows * problem->request.output_row_count;
    problem->mask_bytes = problem->mask_bytes / windows * problem->request.output_row_count;
    problem->derivative_bytes =
        problem->derivative_bytes / windows * problem->request.output_row_count;
    problem_new_outputs(problem);
}

static bool poisoned(const void *block, uint64_t stride, uint32_t row)
{
    const unsigned char *at = (const unsigned char *)block + row * stride;

    for (uint64_t i = 0; block && i < stride; i++)
        if (at[i] != POISON)
            return false;
    return true;
}

bool problem_other_rows_live(const struct problem *problem)
{
    const struct trajd_stream *stream = &problem->stream;
    uint32_t w = 0;

    for (uint32_t row = 0; row < problem->request.output_row_count; row++) {
        if (w < problem->spec.windows && problem->request.window_rows[w] == row)
            w++;
        else if (!poisoned(stream->output, stream->window_stride_bytes, row) ||
                 !poisoned(stream->mask, stream->mask_window_stride_bytes, row) ||
                 !poisoned(stream->derivative, stream->derivative_window_stride_bytes, row))
            return false;
    }
    return true;
}

static bool guarded(const void *block, uint64_t bytes)
{
    const unsigned char *at = block;

    for (uint64_t i = 1; block && i <= CANARY_BYTES; i++)
        if (at[-(int64_t)i] != CANARY || at[bytes + i - 1] != CANARY)
            return false;
    return true;
}

bool problem_canaries_live(const struct problem *problem)
{
    return guarded(problem->stream.output, problem->output_bytes) &&
           guarded(problem->stream.mask, problem->mask_bytes) &&
           guarded(problem->stream.derivative, problem->derivative_bytes);
}

const char *problem_name(const struct problem *problem, char *text, uint32_t size)
{
    const struct problem_spec *spec = &problem->spec;

    snprintf(text, size, "seed %llu B %u S %u T %u D %u kind %d %s -> %s stamps %d unit %d edge %d",
             (unsigned long long)spec->seed, spec->windows, spec->rows, spec->steps, spec->features,
             spec->kind, trajd_dtype_name(spec->source), trajd_dtype_name(spec->output),
             spec->stamps, spec->unit, problem->stream.edge);
    return text;
}
