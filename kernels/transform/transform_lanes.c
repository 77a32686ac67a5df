/* Transforms many steps at once, part by part. The numbers of a part are taken apart into one array
 * per column, where the compiler processes several steps at once, and put together again when they
 * are stored. Arithmetic is that of trajd_transform_row and gives the same bits. */
#include "kernels/transform/transform_lanes.h"

#include <math.h>
#include <string.h>

#include "kernels/element_convert.h"
#include "kernels/transform/transpose.h"

#define WIDTH_MAX TRAJD_ROTATION_MAX_WIDTH
#define ROOM (WIDTH_MAX + 3) /* of columns that are gathered in fours */

typedef double column[TRAJD_LANES];

/* One part after another, or some columns of a plain one. */
struct work {
    const struct trajd_transform_group *group;
    const struct trajd_transform_part *part;
    uint32_t skipped, count, output_count; /* columns of the part */
    column *numbers;                       /* [WIDTH_MAX] in `room` */
    column room[ROOM];
    int64_t lost[TRAJD_LANES]; /* not 0: a number of the step has become NaN */
    /* the rotations that steps are relative to, of that part; NULL: not loaded yet */
    const struct trajd_transform_part *origin_part;
    struct trajd_rotation_lanes origins;
};

static uint32_t lane_count(const struct trajd_transform_group *group)
{
    return group->window_count * group->step_count;
}

/* ---- rows to columns ---- */

/* Rows of an array: lane l has row rows[l]. */
struct source {
    enum trajd_dtype type;
    const void *array;
    uint32_t stride, count;
    const uint64_t *rows; /* [count, rounded up to a multiple of 4] */
};

/* Gathers four columns, which all lie in the rows. */
TRAJD_CLONES static void gather_fours(const float *restrict from, const uint64_t *restrict rows,
                                      uint32_t stride, uint32_t count, column *restrict to)
{
    trajd_four_floats block[4];
    trajd_four_doubles wide;

    for (uint32_t l = 0; l < count; l += 4) {
        for (int k = 0; k < 4; k++)
            memcpy(&block[k], from + rows[l + k] * stride, sizeof block[k]);
        trajd_transpose(block);
        for (int k = 0; k < 4; k++) {
            wide = __builtin_convertvector(block[k], trajd_four_doubles);
            memcpy(&to[k][l], &wide, sizeof wide);
        }
    }
}

static void gather_column(const struct source *source, uint32_t first, double *to)
{
    for (uint32_t l = 0; l < source->count; l++) {
        const uint64_t at = source->rows[l] * source->stride + first;
        to[l] = source->type == TRAJD_F64 ? ((const double *)source->array)[at]
                                          : (double)((const float *)source->array)[at];
    }
}

/* Gathers columns [first, first + count). Groups of four begin earlier where they would go beyond
 * the row. Returns the column of `room` that has the first one. */
static column *gather(const struct source *source, uint32_t first, uint32_t count, column *room)
{
    const bool by_fours = source->type == TRAJD_F32 && source->stride >= 4;
    const uint32_t width = count < 4 ? 4 : count;
    const uint32_t begin = first + width > source->stride ? source->stride - width : first;
    const float *from = (const float *)source->array + begin;
    uint32_t c = 0;

    for (; by_fours && c + 4 <= width; c += 4)
        gather_fours(from + c, source->rows, source->stride, source->count, room + c);
    if (by_fours && c < width)
        gather_fours(from + width - 4, source->rows, source->stride, source->count,
                     room + width - 4);
    for (; !by_fours && c < count; c++)
        gather_column(source, first + c, room[c]);
    return by_fours ? room + (first - begin) : room;
}

static void gather_steps(struct work *work)
{
    const struct trajd_transform_group *group = work->group;
    const struct source source = {.type = group->job->source_type,
                                  .array = group->job->source,
                                  .stride = group->job->transform->column_count,
                                  .count = lane_count(group),
                                  .rows = group->steps};

    work->numbers = gather(&source, work->part->first + work->skipped, work->count, work->room);
}

/* Gathers columns of the windows' reference rows: one lane per window. */
static column *gather_references(const struct trajd_transform_group *group, uint32_t first,
                                 uint32_t count, column *room)
{
    const struct source source = {.type = group->job->reference_type,
                                  .array = group->job->reference,
                                  .stride = group->job->transform->reference_count,
                                  .count = group->window_count,
                                  .rows = group->windows};

    return gather(&source, first, count, room);
}

/* ---- relative parts ---- */

TRAJD_CLONES static void spread(const double *restrict from, uint32_t windows, uint32_t steps,
                                double *restrict to)
{
    for (uint32_t w = 0; w < windows; w++, to += steps)
        for (uint32_t i = 0; i < steps; i++)
            to[i] = from[w];
}

/* Loads the rotation that each step of the group is relative to. */
static void load_origins(struct work *work, const struct trajd_transform_part *part)
{
    const uint32_t windows = work->group->window_count, steps = work->group->step_count;
    struct trajd_rotation_lanes q;
    column room[ROOM], *numbers;

    if (work->origin_part == part)
        return;
    numbers = gather_references(work->group, part->reference_first,
                                trajd_rotation_width(part->reference_form), room);
    trajd_lanes_load(part->reference_form, (const column *)numbers, windows, &q);
    spread(q.x, windows, steps, work->origins.x);
    spread(q.y, windows, steps, work->origins.y);
    spread(q.z, windows, steps, work->origins.z);
    spread(q.w, windows, steps, work->origins.w);
    work->origin_part = part;
}

TRAJD_CLONES static void subtract(const double *restrict zeros, uint32_t windows, uint32_t steps,
                                  double *restrict values)
{
    for (uint32_t w = 0; w < windows; w++, values += steps)
        for (uint32_t i = 0; i < steps; i++)
            values[i] -= zeros[w];
}

TRAJD_CLONES static void wrap(double period, uint32_t count, double *values)
{
    for (uint32_t l = 0; l < count; l++)
        values[l] -= period * floor(values[l] / period + 0.5);
}

static void relate_columns(struct work *work)
{
    const struct trajd_transform_group *group = work->group;
    const struct trajd_transform_part *part = work->part;
    column room[ROOM];
    column *zeros =
        gather_references(group, part->reference_first + work->skipped, work->count, room);

    for (uint32_t c = 0; c < work->count; c++) {
        subtract(zeros[c], group->window_count, group->step_count, work->numbers[c]);
        if (part->kind == TRAJD_PART_ANGLE)
            wrap(part->period, lane_count(group), work->numbers[c]);
    }
    if (part->turned_by >= 0) {
        load_origins(work, &group->job->transform->parts[part->turned_by]);
        trajd_lanes_turn_back(&work->origins, lane_count(group), work->numbers);
    }
}

static void convert_rotations(struct work *work)
{
    const struct trajd_transform_part *part = work->part;
    const uint32_t lanes = lane_count(work->group);
    struct trajd_rotation_lanes q;

    trajd_lanes_load(part->from, (const column *)work->numbers, lanes, &q);
    if (part->is_relative) {
        load_origins(work, part);
        if (work->group->job->transform->frame == TRAJD_FRAME_ANCHOR)
            trajd_lanes_relate_anchor(&work->origins, lanes, &q);
        else
            trajd_lanes_relate_base(&work->origins, lanes, &q);
    }
    trajd_lanes_store(part->to, &q, lanes, work->numbers);
}

/* ---- columns to rows ---- */

/* Normalises a column whose steps have factors of their own, `stride` numbers apart. */
static void scale_steps(const struct trajd_transform_group *group, uint32_t c, double *values)
{
    const struct trajd_transform_job *job = group->job;
    const uint32_t stride = job->transform->output_count;

    for (uint32_t w = 0; w < group->window_count; w++, values += group->step_count)
        for (uint32_t i = 0; i < group->step_count; i++) {
            const uint64_t at = (uint64_t)(group->first_step + i) * stride + c;
            values[i] = values[i] * (double)job->scale[at] + (double)job->offset[at];
        }
}

/* At most four columns, on their way to rows of floats. */
struct store {
    const column *from;
    const uint64_t *rows;
    uint32_t stride, count; /* of lanes */
    double scale[4], offset[4];
    float *to;
};

/* Normalises and stores `columns` columns. lost[lane] becomes -1 where a number is NaN. */
TRAJD_INLINE void store_block(const struct store *store, uint32_t columns, int64_t *restrict lost)
{
    const struct store own = *store; /* which no store through a pointer changes */
    trajd_four_floats block[4] = {0};
    trajd_four_doubles wide;
    trajd_four_masks masks;

    for (uint32_t l = 0; l < own.count; l += 4) {
        memcpy(&masks, lost + l, sizeof masks);
        for (uint32_t k = 0; k < columns; k++) {
            memcpy(&wide, &own.from[k][l], sizeof wide);
            masks |= wide != wide;
            wide = wide * own.scale[k] + own.offset[k];
            block[k] = __builtin_convertvector(wide, trajd_four_floats);
        }
        memcpy(lost + l, &masks, sizeof masks);
        trajd_transpose(block);
        for (uint32_t k = 0; k < 4 && l + k < own.count; k++)
            memcpy(own.to + own.rows[l + k] * own.stride, &block[k], columns * sizeof *own.to);
    }
}

TRAJD_CLONES static void store_1(const struct store *store, int64_t *lost)
{
    store_block(store, 1, lost);
}

TRAJD_CLONES static void store_2(const struct store *store, int64_t *lost)
{
    store_block(store, 2, lost);
}

TRAJD_CLONES static void store_3(const struct store *store, int64_t *lost)
{
    store_block(store, 3, lost);
}

TRAJD_CLONES static void store_4(const struct store *store, int64_t *lost)
{
    store_block(store, 4, lost);
}

static void store_floats(struct work *work)
{
    static void (*const stores[4])(const struct store *, int64_t *) = {store_1, store_2, store_3,
                                                                       store_4};
    const struct trajd_transform_group *group = work->group;
    const struct trajd_transform_job *job = group->job;
    struct store store = {
        .rows = group->steps, .stride = job->transform->output_count, .count = lane_count(group)};

    for (uint32_t c = 0; c < work->output_count; c += 4) {
        const uint32_t place = work->part->output_first + work->skipped + c,
                       columns = work->output_count - c < 4 ? work->output_count - c : 4;
        const bool scales = job->scale && !job->norm_per_step;
        store.from = (const column *)work->numbers + c;
        store.to = (float *)job->output + place;
        for (uint32_t k = 0; k < columns; k++) {
            store.scale[k] = scales ? (double)job->scale[place + k] : 1;
            store.offset[k] = scales ? (double)job->offset[place + k] : -0.0; /* x + -0 is x */
        }
        stores[columns - 1](&store, work->lost);
    }
}

static void store_elements(struct work *work)
{
    const struct trajd_transform_group *group = work->group;
    const struct trajd_transform_job *job = group->job;
    const uint32_t size = trajd_dtype_size(job->output_type), stride = job->transform->output_count,
                   place = work->part->output_first + work->skipped;
    const bool scales = job->scale && !job->norm_per_step;

    for (uint32_t l = 0; l < lane_count(group); l++)
        for (uint32_t c = 0; c < work->output_count; c++) {
            const double value = work->numbers[c][l];
            work->lost[l] |= isnan(value) != 0;
            trajd_element_store(job->output_type,
                                (char *)job->output + (group->steps[l] * stride + place + c) * size,
                                scales ? value * (double)job->scale[place + c] +
                                             (double)job->offset[place + c]
                                       : value);
        }
}

bool trajd_transform_has_row(const struct trajd_transform_job *job, uint8_t mask)
{
    if (mask == TRAJD_MASK_MISSING)
        return false;
    return job->edge == TRAJD_EDGE_HOLD ||
           (mask != TRAJD_MASK_BEFORE_START && mask != TRAJD_MASK_AFTER_END &&
            mask != TRAJD_MASK_BAD_STAMP);
}

void trajd_transform_store(const struct trajd_transform_job *job, uint64_t row, uint32_t step,
                           const double *values)
{
    const uint32_t count = job->transform->output_count;
    const uint64_t norm = job->norm_per_step ? (uint64_t)step * count : 0;
    const size_t size = trajd_dtype_size(job->output_type);
    char *to = (char *)job->output + (row * job->step_count + step) * count * size;

    for (uint32_t d = 0; d < count; d++)
        trajd_element_store(job->output_type, to + d * size,
                            job->scale ? values[d] * (double)job->scale[norm + d] +
                                             (double)job->offset[norm + d]
                                       : values[d]);
}

void trajd_transform_store_edge(const struct trajd_transform_job *job, uint64_t row, uint32_t step)
{
    double values[TRAJD_TRANSFORM_MAX_COLUMNS * 3];

    for (uint32_t d = 0; d < job->transform->output_count; d++)
        values[d] = job->edge == TRAJD_EDGE_NAN ? NAN : 0;
    trajd_transform_store(job, row, step, values);
}

/* ---- a group ---- */

/* Transforms columns [skipped, skipped + count) of a part. */
static void run_columns(struct work *work)
{
    const struct trajd_transform_job *job = work->group->job;

    gather_steps(work);
    if (work->part->kind == TRAJD_PART_ROTATION)
        convert_rotations(work);
    else if (work->part->is_relative)
        relate_columns(work);
    for (uint32_t c = 0; c < work->output_count && job->scale && job->norm_per_step; c++)
        scale_steps(work->group, work->part->output_first + work->skipped + c, work->numbers[c]);
    if (job->output_type == TRAJD_F32)
        store_floats(work);
    else
        store_elements(work);
}

static void run_part(struct work *work)
{
    const struct trajd_transform_part *part = work->part;

    for (work->skipped = 0; work->skipped < part->count; work->skipped += work->count) {
        const uint32_t remaining = part->count - work->skipped;
        work->count = remaining < WIDTH_MAX ? remaining : WIDTH_MAX;
        work->output_count = part->kind == TRAJD_PART_ROTATION ? part->output_count : work->count;
        run_columns(work);
    }
}

/* Sets the masks of a window's steps, and stores the edge in steps that have no values. */
static void finish_window(const struct trajd_transform_group *group, uint32_t w,
                          const int64_t *lost)
{
    const struct trajd_transform_job *job = group->job;
    const uint64_t row = group->windows[w];
    const uint8_t origin =
        job->transform->reference_count ? job->reference_mask[row] : TRAJD_MASK_VALID;
    uint8_t *mask = job->mask + row * job->step_count + group->first_step;

    for (uint32_t i = 0; i < group->step_count; i++) {
        const uint8_t own = mask[i];
        bool stays = trajd_transform_has_row(job, own);
        mask[i] = own > origin ? own : origin;
        if (stays && lost[i] && mask[i] < TRAJD_MASK_NAN) {
            stays = mask[i] == TRAJD_MASK_VALID; /* else it holds no rotation, such as zeros */
            mask[i] = stays ? TRAJD_MASK_NAN : mask[i];
        }
        if (!stays)
            trajd_transform_store_edge(job, row, group->first_step + i);
    }
}

TRAJD_CLONES static int64_t join_bits(const int64_t *values, uint32_t count)
{
    int64_t found = 0;

    for (uint32_t l = 0; l < count; l++)
        found |= values[l];
    return found;
}

/* Returns whether all steps of a window are valid rows. */
static bool is_plain(const struct trajd_transform_group *group, uint32_t w)
{
    static const uint8_t valid[TRAJD_LANES]; /* TRAJD_MASK_VALID is 0 */
    const struct trajd_transform_job *job = group->job;
    const uint64_t row = group->windows[w];

    return memcmp(job->mask + row * job->step_count + group->first_step, valid,
                  group->step_count) == 0 &&
           (!job->transform->reference_count || job->reference_mask[row] == TRAJD_MASK_VALID);
}

TRAJD_CLONES static void number_steps(uint64_t first, uint32_t count, uint64_t *steps)
{
    for (uint32_t i = 0; i < count; i++)
        steps[i] = first + i;
}

/* Fills the row of each lane. Those up to a multiple of four repeat the last one. */
static void fill_lanes(struct trajd_transform_group *group)
{
    const uint32_t lanes = lane_count(group);

    for (uint32_t w = 0; w < group->window_count; w++)
        number_steps(group->windows[w] * group->job->step_count + group->first_step,
                     group->step_count, group->steps + w * group->step_count);
    for (uint32_t l = lanes; l % 4; l++)
        group->steps[l] = group->steps[lanes - 1];
    for (uint32_t w = group->window_count; w % 4; w++)
        group->windows[w] = group->windows[group->window_count - 1];
}

void trajd_transform_group_run(struct trajd_transform_group *group)
{
    const struct trajd_transform *transform = group->job->transform;
    struct work work;
    bool any_lost;

    fill_lanes(group);
    work.group = group;
    work.origin_part = NULL;
    memset(work.lost, 0, sizeof work.lost);
    for (uint32_t p = 0; p < transform->part_count; p++) {
        work.part = &transform->parts[p];
        run_part(&work);
    }
    any_lost = join_bits(work.lost, lane_count(group)) != 0;
    for (uint32_t w = 0; w < group->window_count; w++)
        if (any_lost || !is_plain(group, w))
            finish_window(group, w, work.lost + w * group->step_count);
}
