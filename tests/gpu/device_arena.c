/* Draws random requests, places them in one block, and compares the block of the GPU with that
 * of the reference. */
#include "gpu/device_arena.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/element_convert.h"
#include "kernels/quaternion.h"

#define POISON 0xa5
#define GAP_BYTES 64
#define STEP_NS 10000000

static uint64_t draw(struct arena *arena, uint64_t limit)
{
    uint64_t x = arena->random += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (x ^ x >> 31) % limit;
}

static double draw_double(struct arena *arena)
{
    return (double)draw(arena, 1 << 24) / (1 << 23) - 1;
}

/* Reserves bytes at an address that is a multiple of `alignment` and, by chance, of nothing
 * larger. */
static void *take(struct arena *arena, uint64_t bytes, uint64_t alignment)
{
    uint64_t start = (arena->used_bytes + GAP_BYTES + 15) / 16 * 16 +
                     (draw(arena, 2) || arena->spec.packed ? 0 : alignment);

    start = (start + alignment - 1) / alignment * alignment;
    if (start + bytes + GAP_BYTES > arena->size_bytes)
        abort();
    arena->used_bytes = start + bytes;
    return arena->memory + start;
}

static void store_any(enum trajd_dtype type, void *address, double value)
{
    int64_t integer = fabs(value) < 1e9 ? (int64_t)value : 0;

    if (trajd_dtype_is_float(type))
        trajd_element_store(type, address, value);
    else if (type == TRAJD_BOOL)
        *(uint8_t *)address = integer & 1;
    else
        /* little endian: the lower bytes come first */
        memcpy(address, &integer, trajd_dtype_size(type));
}

static int64_t next_stamp(struct arena *arena, int flavour, uint32_t row, uint32_t rows,
                          int64_t before)
{
    switch (flavour) {
    case ARENA_EQUAL:
        return STEP_NS * (row / 4);
    case ARENA_REVERSED:
        return STEP_NS * ((int64_t)rows - row);
    case ARENA_WILD:
        return (int64_t)draw(arena, UINT64_MAX);
    case ARENA_DRIFT: {
        int64_t stretch = 1 + 3 * (int64_t)row / (int64_t)rows;
        return before + STEP_NS * stretch + (draw(arena, 50) ? 0 : 40 * STEP_NS);
    }
    default:
        return STEP_NS * (int64_t)row + (int64_t)draw(arena, STEP_NS / 2);
    }
}

static void make_clock(struct arena *arena, uint32_t b, int flavour)
{
    const struct arena_spec *spec = &arena->spec;
    int64_t *stamps;

    if (flavour == ARENA_REGULAR) {
        arena->clocks[b].rate =
            draw(arena, 2) ? (struct trajd_rate){30000, 301} : (struct trajd_rate){100, 1};
        return;
    }
    stamps = take(arena, (uint64_t)spec->windows * spec->rows * sizeof *stamps, 8);
    for (uint32_t w = 0; w < spec->windows; w++) {
        int64_t before = 0;
        for (uint32_t r = 0; r < spec->rows; r++)
            before = stamps[(uint64_t)w * spec->rows + r] =
                next_stamp(arena, flavour, r, spec->rows, before);
    }
    arena->clocks[b].stamps_ns = stamps;
}

static void make_grid(struct arena *arena, uint32_t b, enum trajd_grid_unit unit, uint32_t steps)
{
    bool explicit_targets = draw(arena, 3) == 0;
    uint64_t count = (uint64_t)steps * (explicit_targets ? arena->spec.windows : 1);
    int64_t *offsets = take(arena, count * sizeof *offsets, 8);
    int64_t step_ns = unit == TRAJD_GRID_ROWS ? 1 : STEP_NS;

    for (uint64_t i = 0; i < count; i++) {
        offsets[i] = ((int64_t)(i % steps) - (int64_t)steps / 2) * step_ns;
        if (explicit_targets)
            offsets[i] = (int64_t)draw(arena, 12 * (uint64_t)step_ns) - 6 * step_ns;
        if (draw(arena, 30) == 0)
            offsets[i] = TRAJD_NO_TARGET;
    }
    arena->grids[b] = (struct trajd_grid){.unit = unit,
                                          .step_count = steps,
                                          .offsets = offsets,
                                          .offsets_per_window = explicit_targets ? steps : 0};
}

/* Some steps of some windows are too old, also beyond the last step. */
static void make_too_old(struct arena *arena, uint32_t b, uint32_t steps)
{
    uint32_t *begin = take(arena, arena->spec.windows * sizeof *begin, 4),
             *end = take(arena, arena->spec.windows * sizeof *end, 4);

    if (draw(arena, 4))
        return;
    for (uint32_t w = 0; w < arena->spec.windows; w++) {
        begin[w] = (uint32_t)draw(arena, steps + 1);
        end[w] = draw(arena, 2) ? (uint32_t)draw(arena, steps + 3) : 0;
    }
    arena->brackets[b].too_old_begin = begin;
    arena->brackets[b].too_old_end = end;
}

static void make_bracket(struct arena *arena, uint32_t b, uint32_t steps)
{
    const struct arena_spec *spec = &arena->spec;
    int flavour = spec->stamps < 0 ? (int)draw(arena, ARENA_DRIFT + 1) : spec->stamps;
    enum trajd_grid_unit unit =
        spec->unit < 0 ? (draw(arena, 4) == 0) : (enum trajd_grid_unit)spec->unit;
    int64_t *begin = take(arena, spec->windows * sizeof *begin, 8);
    int64_t *count = take(arena, spec->windows * sizeof *count, 8);
    int64_t *anchor = take(arena, spec->windows * sizeof *anchor, 8);

    make_clock(arena, b, flavour);
    make_grid(arena, b, unit, steps);
    arena->ascending &= unit == TRAJD_GRID_ROWS || flavour <= ARENA_DRIFT;
    for (uint32_t w = 0; w < spec->windows; w++) {
        begin[w] = (int64_t)w * spec->rows;
        count[w] = draw(arena, 8) ? spec->rows : draw(arena, spec->rows + 1);
        anchor[w] = (int64_t)draw(arena, spec->rows + 2) - 1;
        if (unit == TRAJD_GRID_NS)
            anchor[w] = anchor[w] * STEP_NS + (int64_t)draw(arena, 3) * STEP_NS / 3;
        if (unit == TRAJD_GRID_NS && arena->clocks[b].stamps_ns && flavour <= ARENA_DRIFT &&
            draw(arena, 3) == 0)
            anchor[w] = arena->clocks[b].stamps_ns[begin[w] + (int64_t)draw(arena, spec->rows)];
    }
    arena->brackets[b] = (struct trajd_bracket){.clock_index = b,
                                                .grid_index = b,
                                                .row_begin = begin,
                                                .row_count = count,
                                                .anchor = anchor};
    make_too_old(arena, b, steps);
}

static bool is_unsigned(enum trajd_dtype type)
{
    return type >= TRAJD_U8 && type <= TRAJD_U64;
}

/* Draws the next quaternion: near the last one, distant, or half a turn away, where both arcs are
 * equally long. */
static void draw_quaternion(struct arena *arena, double q[4])
{
    const double reach = draw(arena, 6) ? 0.2 : 1.5, turned[4] = {-q[2], q[3], q[0], -q[1]};

    if (draw(arena, 12) == 0 && !isnan(turned[0])) {
        memcpy(q, turned, sizeof turned);
        return;
    }
    for (int k = 0; k < 4; k++)
        q[k] = (isnan(q[k]) ? 0.5 : q[k]) + reach * draw_double(arena);
    trajd_quaternion_make_unit(q);
}

/* Draws a number that is not a quaternion's. Quarter turns make half turns between rows. */
static double draw_number(struct arena *arena, enum trajd_kind kind)
{
    if (kind == TRAJD_KIND_ANGLE && draw(arena, 6) == 0)
        return ((double)draw(arena, 5) - 2) * (draw(arena, 2) ? 90 : 1.5707963267948966);
    if (arena->spec.huge && kind != TRAJD_KIND_ANGLE && draw(arena, 8) == 0)
        return 3.3e38 * draw_double(arena);
    return 100 * draw_double(arena);
}

static void fill_rows(struct arena *arena, const struct trajd_stream *stream, char *rows,
                      uint64_t count)
{
    uint32_t size = trajd_dtype_size(stream->source_type);
    bool nans = draw(arena, 2), slerp = trajd_kind_is_slerp(stream->kind);
    static const double sizes[] = {1e15, 1e-15, 1e19, 1e-19, 3e38};
    double q[4] = {1, 0, 0, 0}, length = 1;

    for (uint64_t r = 0; r < count; r++) {
        memset(rows + r * stream->row_stride_bytes, 0xff, stream->row_stride_bytes);
        for (uint32_t d = 0; d < stream->feature_count; d++) {
            double value = draw_number(arena, stream->kind);
            if (slerp && d % 4 == 0) {
                draw_quaternion(arena, q);
                length = arena->spec.huge && draw(arena, 8) == 0 ? sizes[draw(arena, 5)] : 1;
            }
            if (is_unsigned(stream->source_type))
                value = fabs(value);
            if (slerp)
                value = trajd_dtype_is_float(stream->source_type) ? q[d % 4] * length
                                                                  : 100 * fabs(q[d % 4]);
            if (nans && draw(arena, 20 + stream->feature_count) == 0)
                value = draw(arena, 3) ? NAN : draw(arena, 2) ? INFINITY : -INFINITY;
            store_any(stream->source_type,
                      rows + r * stream->row_stride_bytes +
                          (uint64_t)(stream->first_column + d) * size,
                      value);
        }
    }
}

static void make_source(struct arena *arena, uint32_t s, char *device)
{
    const struct arena_spec *spec = &arena->spec;
    struct trajd_stream *stream = &arena->streams[s];
    uint32_t size = trajd_dtype_size(stream->source_type);
    uint64_t rows = (uint64_t)spec->windows * spec->rows;
    const void **host_bases;
    char **device_bases, *base;

    stream->first_column = draw(arena, 2) || spec->packed ? 0 : (uint32_t)draw(arena, 3);
    stream->row_stride_bytes = (stream->first_column + stream->feature_count +
                                (draw(arena, 2) || spec->packed ? 0 : draw(arena, 3))) *
                               size;
    base = take(arena, rows * stream->row_stride_bytes, size);
    fill_rows(arena, stream, base, rows);
    stream->base = base;
    if (draw(arena, 3) != 0)
        return;
    host_bases = take(arena, spec->windows * sizeof *host_bases, 8);
    device_bases = take(arena, spec->windows * sizeof *device_bases, 8);
    for (uint32_t w = 0; w < spec->windows; w++) {
        bool there = draw(arena, 4) != 0;
        host_bases[w] = there ? base + (uint64_t)w * spec->rows * stream->row_stride_bytes : NULL;
        device_bases[w] = there ? device + ((const char *)host_bases[w] - arena->memory) : NULL;
    }
    stream->bases = host_bases;
    arena->device_bases[s] = (uint64_t)((char *)device_bases - arena->memory);
}

static void make_rules(struct arena *arena, uint32_t s)
{
    struct trajd_stream *stream = &arena->streams[s];
    bool floats = trajd_dtype_is_float(stream->output_type);
    enum trajd_grid_unit unit = arena->grids[stream->bracket_index].unit;
    float *factors = take(arena, 2 * (uint64_t)stream->feature_count * sizeof *factors, 4);

    stream->edge = (enum trajd_edge)draw(arena, floats ? 3 : 2);
    stream->max_gap_ns = draw(arena, 2) ? -1 : STEP_NS * 5 / 4;
    stream->max_age_ns = draw(arena, 2) ? -1 : STEP_NS * 2;
    stream->mean_width =
        ((int64_t)draw(arena, 5) + 1) * (unit == TRAJD_GRID_NS ? STEP_NS * 2 / 3 : 1);
    stream->angle_period = draw(arena, 2) ? 6.283185307179586 : 360;
    stream->angle_low = draw(arena, 2) ? NAN : -stream->angle_period / 2;
    arena->largest[s] = stream->kind == TRAJD_KIND_ANGLE ? 360 : arena->spec.huge ? 7e38 : 100;
    if (floats && stream->kind == TRAJD_KIND_PREVIOUS &&
        (arena->spec.totals || draw(arena, 3) == 0)) {
        stream->total = unit == TRAJD_GRID_NS ? TRAJD_TOTAL_STEP : TRAJD_TOTAL_REST;
        stream->total_width = (int64_t)draw(arena, 4 * STEP_NS) + 1;
        stream->total_gamma = draw(arena, 2) ? 1 : 0.875;
        arena->largest[s] *= arena->spec.rows;
    }
    for (uint64_t i = 0; i < 2 * (uint64_t)stream->feature_count; i++)
        factors[i] = (float)draw_double(arena);
    if (floats && draw(arena, 2)) {
        stream->scale = factors;
        stream->offset = factors + stream->feature_count;
    }
}

static bool can_join(const struct arena *arena, uint32_t s)
{
    const struct trajd_stream *before = &arena->streams[s - 1];

    return before->mask && arena->grids[before->bracket_index].step_count ==
                               arena->grids[arena->streams[s].bracket_index].step_count;
}

static void make_outputs(struct arena *arena, uint32_t s)
{
    struct trajd_stream *stream = &arena->streams[s];
    uint32_t size = trajd_dtype_size(stream->output_type),
             steps = arena->grids[stream->bracket_index].step_count;
    uint32_t slopes =
        trajd_kind_is_slerp(stream->kind) ? stream->feature_count / 4 * 3 : stream->feature_count;
    bool derives = arena->grids[stream->bracket_index].unit == TRAJD_GRID_NS &&
                   (stream->kind == TRAJD_KIND_LINEAR || stream->kind == TRAJD_KIND_ANGLE ||
                    trajd_kind_is_slerp(stream->kind));

    stream->step_stride_bytes =
        (stream->feature_count + (draw(arena, 2) || arena->spec.packed ? 0 : draw(arena, 3))) *
        size;
    stream->window_stride_bytes =
        stream->step_stride_bytes * steps +
        (draw(arena, 2) || arena->spec.packed ? 0 : draw(arena, 3)) * size;
    stream->output = take(arena, stream->window_stride_bytes * arena->output_rows, size);
    if (s > 0 && can_join(arena, s) && draw(arena, 2)) {
        stream->mask = stream[-1].mask;
        stream->mask_window_stride_bytes = stream[-1].mask_window_stride_bytes;
        stream->mask_joins_previous = 1;
    } else if (draw(arena, 4)) {
        stream->mask_window_stride_bytes = steps + draw(arena, 3);
        stream->mask = take(arena, stream->mask_window_stride_bytes * arena->output_rows, 1);
    }
    if (derives && !arena->spec.packed && draw(arena, 3) == 0) {
        stream->derivative_step_stride_bytes = (slopes + draw(arena, 3)) * sizeof(float);
        stream->derivative_window_stride_bytes = stream->derivative_step_stride_bytes * steps;
        stream->derivative =
            take(arena, stream->derivative_window_stride_bytes * arena->output_rows, 4);
    }
}

static bool pair_exists(enum trajd_kind kind, enum trajd_dtype source, enum trajd_dtype output)
{
    if (output == TRAJD_F64)
        return source == TRAJD_F64;
    if (trajd_dtype_is_float(output))
        return true;
    return output == source && (kind == TRAJD_KIND_PREVIOUS || kind == TRAJD_KIND_NEAREST);
}

static void choose_types(struct arena *arena, struct trajd_stream *stream)
{
    static const enum trajd_dtype usual[] = {TRAJD_F32, TRAJD_BF16, TRAJD_F16};
    const struct arena_spec *spec = &arena->spec;

    do {
        stream->kind = spec->kind < 0 ? (enum trajd_kind)draw(arena, TRAJD_KIND_COUNT)
                                      : (enum trajd_kind)spec->kind;
        stream->source_type = draw(arena, 2) ? usual[draw(arena, 3)]
                                             : (enum trajd_dtype)(1 + draw(arena, TRAJD_BOOL));
        stream->output_type = draw(arena, 2) ? usual[draw(arena, 3)]
                                             : (enum trajd_dtype)(1 + draw(arena, TRAJD_BOOL));
        if (spec->source != TRAJD_DTYPE_NONE)
            stream->source_type = spec->source;
        if (spec->output != TRAJD_DTYPE_NONE)
            stream->output_type = spec->output;
    } while (!pair_exists(stream->kind, stream->source_type, stream->output_type));
}

static uint64_t row_of(const struct arena *arena, uint32_t w)
{
    return arena->window_rows ? arena->window_rows[w] : w;
}

/* Fills window_rows: ascending, with some rows left out. */
static void make_window_rows(struct arena *arena)
{
    const uint32_t windows = arena->spec.windows;
    uint32_t next = 0;

    arena->output_rows = windows;
    if (!arena->spec.window_rows)
        return;
    arena->window_rows = take(arena, windows * sizeof *arena->window_rows, 4);
    for (uint32_t w = 0; w < windows; w++) {
        next += (uint32_t)draw(arena, 3);
        arena->window_rows[w] = next++;
    }
    arena->output_rows = next + draw(arena, 2);
}

static void draw_sizes(struct arena *arena)
{
    static const uint32_t features[] = {1, 2, 3, 4, 7, 8, 14, 16, 31, 32, 33, 64, 100, 130};
    static const uint32_t counts[] = {1, 2, 3, 7, 31, 32, 33, 65, 130, 600};
    struct arena_spec *spec = &arena->spec;

    spec->windows = spec->windows ? spec->windows : 1 + (uint32_t)draw(arena, 9);
    spec->rows = spec->rows ? spec->rows : counts[draw(arena, 10)];
    spec->steps = spec->steps ? spec->steps : counts[draw(arena, 9)];
    spec->features = spec->features ? spec->features : features[draw(arena, 14)];
    spec->brackets = spec->brackets ? spec->brackets : 1 + (uint32_t)draw(arena, 3);
    spec->streams = spec->streams ? spec->streams : 1 + (uint32_t)draw(arena, 5);
}

void arena_create(struct arena *arena, const struct arena_spec *spec, char *memory,
                  uint64_t size_bytes, char *device)
{
    *arena = (struct arena){.spec = *spec,
                            .memory = memory,
                            .size_bytes = size_bytes,
                            .random = spec->seed,
                            .ascending = true};
    draw_sizes(arena);
    make_window_rows(arena);
    for (uint32_t b = 0; b < arena->spec.brackets; b++)
        make_bracket(arena, b,
                     b == 0 || draw(arena, 2) ? arena->spec.steps : 1 + (uint32_t)draw(arena, 20));
    for (uint32_t s = 0; s < arena->spec.streams; s++) {
        struct trajd_stream *stream = &arena->streams[s];
        stream->bracket_index = (uint32_t)draw(arena, arena->spec.brackets);
        choose_types(arena, stream);
        stream->feature_count = s == 0 ? arena->spec.features : 1 + (uint32_t)draw(arena, 16);
        if (trajd_kind_is_slerp(stream->kind))
            stream->feature_count = (stream->feature_count + 3) / 4 * 4;
        make_source(arena, s, device);
        make_rules(arena, s);
    }
    memset(arena->memory + arena->used_bytes, POISON, arena->size_bytes - arena->used_bytes);
    for (uint32_t s = 0; s < arena->spec.streams; s++)
        make_outputs(arena, s);
    arena->used_bytes += GAP_BYTES;
    arena->request =
        (struct trajd_resample_request){.window_count = arena->spec.windows,
                                        .clock_count = arena->spec.brackets,
                                        .grid_count = arena->spec.brackets,
                                        .bracket_count = arena->spec.brackets,
                                        .stream_count = arena->spec.streams,
                                        .clocks = arena->clocks,
                                        .grids = arena->grids,
                                        .brackets = arena->brackets,
                                        .streams = arena->streams,
                                        .window_rows = arena->window_rows,
                                        .output_row_count = (uint32_t)arena->output_rows};
}

static const void *moved(const struct arena *arena, const void *pointer, char *device)
{
    return pointer ? device + ((const char *)pointer - arena->memory) : NULL;
}

void arena_view(const struct arena *arena, char *device, struct arena_view *view)
{
    memcpy(view->clocks, arena->clocks, sizeof view->clocks);
    memcpy(view->grids, arena->grids, sizeof view->grids);
    memcpy(view->brackets, arena->brackets, sizeof view->brackets);
    memcpy(view->streams, arena->streams, sizeof view->streams);
    for (uint32_t b = 0; b < arena->spec.brackets; b++) {
        view->clocks[b].stamps_ns = moved(arena, view->clocks[b].stamps_ns, device);
        view->grids[b].offsets = moved(arena, view->grids[b].offsets, device);
        view->brackets[b].row_begin = moved(arena, view->brackets[b].row_begin, device);
        view->brackets[b].row_count = moved(arena, view->brackets[b].row_count, device);
        view->brackets[b].anchor = moved(arena, view->brackets[b].anchor, device);
        view->brackets[b].too_old_begin = moved(arena, view->brackets[b].too_old_begin, device);
        view->brackets[b].too_old_end = moved(arena, view->brackets[b].too_old_end, device);
    }
    for (uint32_t s = 0; s < arena->spec.streams; s++) {
        struct trajd_stream *stream = &view->streams[s];
        stream->base = moved(arena, stream->base, device);
        stream->bases =
            stream->bases ? (const void *const *)(device + arena->device_bases[s]) : NULL;
        stream->scale = moved(arena, stream->scale, device);
        stream->offset = moved(arena, stream->offset, device);
        stream->output = (void *)(uintptr_t)moved(arena, stream->output, device);
        stream->mask = (uint8_t *)(uintptr_t)moved(arena, stream->mask, device);
        stream->derivative = (float *)(uintptr_t)moved(arena, stream->derivative, device);
    }
    view->request = arena->request;
    view->request.clocks = view->clocks;
    view->request.grids = view->grids;
    view->request.brackets = view->brackets;
    view->request.streams = view->streams;
    view->request.window_rows = moved(arena, arena->window_rows, device);
}

/* Returns how much a value may differ because of one rounding: a unit of the output, plus one
 * float32 unit of the largest operand. */
static double tolerance(const struct trajd_stream *stream, double largest, double value)
{
    double unit = stream->output_type == TRAJD_BF16  ? 0x1p-7
                  : stream->output_type == TRAJD_F16 ? 0x1p-10
                                                     : 0x1p-23;
    bool wide = stream->source_type == TRAJD_F64 || stream->source_type == TRAJD_I32 ||
                stream->source_type == TRAJD_I64 || stream->source_type == TRAJD_U32 ||
                stream->source_type == TRAJD_U64;

    if (stream->output_type == TRAJD_F64)
        return 1e-12 * (largest + fabs(value));
    if (trajd_kind_is_slerp(stream->kind))
        largest = 4;
    return unit * fabs(value) + (wide ? 1e-12 : 6e-7) * (largest + 1) +
           (stream->output_type == TRAJD_F16 ? 0x1p-24 : 0);
}

static bool is_close(const struct trajd_stream *stream, uint32_t d, double largest, double wanted,
                     double got)
{
    double slack = tolerance(stream, largest, wanted), turn;

    if (wanted == got || (isnan(wanted) && isnan(got)))
        return true;
    if (isinf(wanted) && !isinf(got))
        return fabs(got) >= 65504 - 32; /* rounding at the end of f16's range */
    if (fabs(wanted - got) <= slack)
        return true;
    /* next to the seam of a turn, float and double may fall on different sides */
    turn = stream->angle_period * fabs(stream->scale ? (double)stream->scale[d] : 1);
    return stream->kind == TRAJD_KIND_ANGLE && !isnan(stream->angle_low) &&
           fabs(fabs(wanted - got) - turn) <=
               4 * tolerance(stream, largest, fmax(fabs(wanted), fabs(got)));
}

static bool compare_stream(const struct arena *arena, uint32_t s, char *result, char *text,
                           uint32_t text_size)
{
    const struct trajd_stream *stream = &arena->streams[s];
    uint32_t size = trajd_dtype_size(stream->output_type),
             steps = arena->grids[stream->bracket_index].step_count;

    for (uint32_t w = 0; w < arena->spec.windows; w++)
        for (uint32_t t = 0; t < steps; t++)
            for (uint32_t d = 0; d < stream->feature_count; d++) {
                char *wanted = (char *)stream->output +
                               row_of(arena, w) * stream->window_stride_bytes +
                               t * stream->step_stride_bytes + (uint64_t)d * size;
                char *got = result + (wanted - arena->memory);
                if (arena->ascending && memcmp(wanted, got, size) != 0) {
                    double x = trajd_element_load(stream->output_type, wanted);
                    double y = trajd_element_load(stream->output_type, got);
                    if (!trajd_dtype_is_float(stream->output_type) ||
                        !is_close(stream, d, arena->largest[s], x, y)) {
                        snprintf(
                            text, text_size,
                            "streams[%u] kind %d %s -> %s D %u: (%u, %u, %u) is %.9g, not %.9g", s,
                            stream->kind, trajd_dtype_name(stream->source_type),
                            trajd_dtype_name(stream->output_type), stream->feature_count, w, t, d,
                            y, x);
                        return false;
                    }
                }
                memcpy(got, wanted, size);
            }
    return true;
}

static bool compare_slopes(const struct arena *arena, uint32_t s, char *result, char *text,
                           uint32_t text_size)
{
    const struct trajd_stream *stream = &arena->streams[s];
    uint32_t steps = arena->grids[stream->bracket_index].step_count;
    uint32_t slopes =
        trajd_kind_is_slerp(stream->kind) ? stream->feature_count / 4 * 3 : stream->feature_count;

    for (uint32_t w = 0; stream->derivative && w < arena->spec.windows; w++)
        for (uint32_t t = 0; t < steps; t++)
            for (uint32_t d = 0; d < slopes; d++) {
                char *wanted = (char *)stream->derivative +
                               row_of(arena, w) * stream->derivative_window_stride_bytes +
                               t * stream->derivative_step_stride_bytes +
                               (uint64_t)d * sizeof(float);
                char *got = result + (wanted - arena->memory);
                float x, y;
                memcpy(&x, wanted, sizeof x);
                memcpy(&y, got, sizeof y);
                if (arena->ascending && x != y && !(isnan(x) && isnan(y)) &&
                    !(fabsf(x - y) <= 1e-5f * fabsf(x) + 2e-2f)) {
                    snprintf(text, text_size,
                             "streams[%u] kind %d %s: slope (%u, %u, %u) is %.9g, not %.9g", s,
                             stream->kind, trajd_dtype_name(stream->source_type), w, t, d,
                             (double)y, (double)x);
                    return false;
                }
                memcpy(got, wanted, sizeof x);
            }
    return true;
}

static bool compare_mask(const struct arena *arena, uint32_t s, char *result, char *text,
                         uint32_t text_size)
{
    const struct trajd_stream *stream = &arena->streams[s];
    uint32_t steps = arena->grids[stream->bracket_index].step_count;

    for (uint32_t w = 0; stream->mask && w < arena->spec.windows; w++)
        for (uint32_t t = 0; t < steps; t++) {
            const uint8_t *wanted =
                stream->mask + row_of(arena, w) * stream->mask_window_stride_bytes + t;
            char *got = result + ((const char *)wanted - arena->memory);
            if ((uint8_t)*got > TRAJD_MASK_TOO_OLD ||
                (arena->ascending && *wanted != (uint8_t)*got)) {
                snprintf(text, text_size, "streams[%u] kind %d: mask (%u, %u) is %u, not %u", s,
                         stream->kind, w, t, (uint8_t)*got, *wanted);
                return false;
            }
            *got = (char)*wanted;
        }
    return true;
}

bool arena_matches(const struct arena *arena, char *result, char *text, uint32_t text_size)
{
    for (uint32_t s = 0; s < arena->spec.streams; s++)
        if (!compare_stream(arena, s, result, text, text_size) ||
            !compare_slopes(arena, s, result, text, text_size) ||
            !compare_mask(arena, s, result, text, text_size))
            return false;
    for (uint64_t i = 0; i < arena->used_bytes; i++)
        if (result[i] != arena->memory[i]) {
            snprintf(text, text_size, "byte %llu of %llu was written, outside every output",
                     (unsigned long long)i, (unsigned long long)arena->used_bytes);
            return false;
        }
    return true;
}

const char *arena_name(const struct arena *arena, char *text, uint32_t text_size)
{
    const struct arena_spec *spec = &arena->spec;

    snprintf(text, text_size, "seed %llu: B %u S %u T %u D %u, %u streams on %u brackets",
             (unsigned long long)spec->seed, spec->windows, spec->rows, spec->steps, spec->features,
             spec->streams, spec->brackets);
    return text;
}
