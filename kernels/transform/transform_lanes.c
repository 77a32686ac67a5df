/* Transforms many steps at once. The columns of several parts are gathered and stored together, and
 * worked on part by part, with one array per column, where the compiler processes several steps at
 * once. It gives the bits of the definition in tests/support/references. */
#include "kernels/transform/transform_lanes.h"

#include <math.h>
#include <string.h>

#include "kernels/clones.h"
#include "kernels/transform/transform_columns.h"

#define COLUMNS_MAX 32u /* that are gathered, and that are stored, together */

/* A part, or some columns of a plain one. */
struct piece {
    const struct trajd_transform_part *part;
    uint32_t skipped, count, output_count; /* columns */
};

struct work {
    const struct trajd_transform_group *group;
    _Alignas(64) trajd_column gathered[COLUMNS_MAX + 3], made[COLUMNS_MAX];
    double *outputs[COLUMNS_MAX];
    bool any_lost, lost[TRAJD_LANES]; /* a number of the step has become NaN; unset without any */
    /* the rotations that steps are relative to, of that part; NULL: not loaded yet */
    const struct trajd_transform_part *origin_part;
    struct trajd_rotation_lanes origins;
    /* relative to the step before. A window's first step is relative to the row at `before` of the source,
     * where has_before, else to the reference. Others are relative to the lane before, but for some,
     * whose origin is lane `from`, or the one of window from - TRAJD_LANES */
    uint64_t before[TRAJD_LANES];
    bool has_before[TRAJD_LANES];
    uint32_t exception_count;
    struct {
        uint32_t lane, from;
    } exceptions[TRAJD_LANES];
};

static uint32_t lane_count(const struct trajd_transform_group *group)
{
    return group->window_count * group->step_count;
}

static bool is_step_by_step(const struct trajd_transform *transform)
{
    return transform->from_step_before && transform->reference_count;
}

/* Gathers columns of the rows of the source that begin at these elements. */
static trajd_column *gather(const struct trajd_transform_group *group, const uint64_t *at,
                            uint32_t count, uint32_t first, uint32_t columns, trajd_column *room)
{
    const struct trajd_column_source source = {.type = group->job->source_type,
                                               .array = group->job->source,
                                               .width = group->job->transform->column_count,
                                               .count = count,
                                               .at = at};

    return trajd_columns_gather(&source, first, columns, room);
}

/* Gathers columns of the windows' reference rows: one lane per window. */
static trajd_column *gather_references(const struct trajd_transform_group *group, uint32_t first,
                                       uint32_t columns, trajd_column *room)
{
    const struct trajd_column_source source = {.type = group->job->reference_type,
                                               .array = group->job->reference,
                                               .width = group->job->transform->reference_count,
                                               .count = group->window_count,
                                               .at = group->reference_at};

    return trajd_columns_gather(&source, first, columns, room);
}

/* ---- relative to the step before ---- */

/* Finds the origins of a window's steps: the last step before that has a row. */
static void find_origins(struct work *work, uint32_t w)
{
    const struct trajd_transform_group *group = work->group;
    const struct trajd_transform_job *job = group->job;
    const uint64_t row = group->windows[w] * job->step_count;
    const uint8_t *mask = job->mask + row;
    uint32_t step = group->first_step, lane = w * group->step_count, from = TRAJD_LANES + w;

    while (step > 0 && !trajd_transform_has_row(job->edge, mask[step - 1]))
        step--;
    work->has_before[w] = step > 0;
    work->before[w] = (row + (step > 0 ? step - 1 : 0)) * job->transform->column_count;
    for (uint32_t i = 1; i < group->step_count; i++, lane++) {
        const bool has_row = trajd_transform_has_row(job->edge, mask[group->first_step + i - 1]);
        from = has_row ? lane : from;
        if (!has_row) {
            work->exceptions[work->exception_count].lane = lane + 1;
            work->exceptions[work->exception_count++].from = from;
        }
    }
}

static void find_all_origins(struct work *work)
{
    const struct trajd_transform_group *group = work->group;

    work->exception_count = 0;
    for (uint32_t w = 0; w < group->window_count; w++)
        find_origins(work, w);
    for (uint32_t w = group->window_count; w % 4; w++)
        work->before[w] = work->before[group->window_count - 1];
}

/* Moves the numbers of each step to the next one. `firsts` has one number per window. */
static void move_on(const struct work *work, const double *firsts, const double *values,
                    double *out)
{
    const struct trajd_transform_group *group = work->group;

    memcpy(out + 1, values, (lane_count(group) - 1) * sizeof *out);
    for (uint32_t w = 0; w < group->window_count; w++)
        out[w * group->step_count] = firsts[w];
    for (uint32_t i = 0; i < work->exception_count; i++) {
        const uint32_t from = work->exceptions[i].from;
        out[work->exceptions[i].lane] =
            from < TRAJD_LANES ? values[from] : firsts[from - TRAJD_LANES];
    }
}

/* Replaces the numbers of windows whose first step has a step before. */
static void replace_firsts(const struct work *work, const double *before, double *firsts)
{
    for (uint32_t w = 0; w < work->group->window_count; w++)
        firsts[w] = work->has_before[w] ? before[w] : firsts[w];
}

static void subtract_steps_before(const struct work *work, const struct piece *piece,
                                  trajd_column *firsts, trajd_column *numbers)
{
    const struct trajd_transform_group *group = work->group;
    _Alignas(64) trajd_column room[COLUMNS_MAX + 3], zeros;
    trajd_column *before = gather(group, work->before, group->window_count,
                                  piece->part->first + piece->skipped, piece->count, room);

    for (uint32_t c = 0; c < piece->count; c++) {
        replace_firsts(work, before[c], firsts[c]);
        move_on(work, firsts[c], numbers[c], zeros);
        for (uint32_t l = 0; l < lane_count(group); l++)
            numbers[c][l] -= zeros[l];
    }
}

/* Loads the rotation of each step before. `firsts` has the references' rotations. */
static void load_steps_before(struct work *work, const struct trajd_transform_part *part,
                              struct trajd_rotation_lanes *firsts)
{
    const struct trajd_transform_group *group = work->group;
    const uint32_t width = trajd_rotation_width(part->from);
    struct trajd_rotation_lanes q;
    _Alignas(64) trajd_column room[TRAJD_ROTATION_MAX_WIDTH + 3], *numbers;

    numbers = gather(group, work->before, group->window_count, part->first, width, room);
    trajd_lanes_load(part->from, (const trajd_column *)numbers, group->window_count, &q);
    replace_firsts(work, q.x, firsts->x);
    replace_firsts(work, q.y, firsts->y);
    replace_firsts(work, q.z, firsts->z);
    replace_firsts(work, q.w, firsts->w);
    numbers = gather(group, group->source_at, lane_count(group), part->first, width, room);
    trajd_lanes_load(part->from, (const trajd_column *)numbers, lane_count(group), &q);
    move_on(work, firsts->x, q.x, work->origins.x);
    move_on(work, firsts->y, q.y, work->origins.y);
    move_on(work, firsts->z, q.z, work->origins.z);
    move_on(work, firsts->w, q.w, work->origins.w);
}

/* ---- relative parts ---- */

/* Gives each step the rotation of its window. */
TRAJD_CLONES static void spread(const struct trajd_rotation_lanes *restrict from, uint32_t windows,
                                uint32_t steps, struct trajd_rotation_lanes *restrict to)
{
    for (uint32_t w = 0, lane = 0; w < windows; w++, lane += steps) {
        const double x = from->x[w], y = from->y[w], z = from->z[w], v = from->w[w];
        for (uint32_t i = lane; i < lane + steps; i++) {
            to->x[i] = x;
            to->y[i] = y;
            to->z[i] = z;
            to->w[i] = v;
        }
    }
}

/* Loads the rotation that each step of the group is relative to. */
static void load_origins(struct work *work, const struct trajd_transform_part *part)
{
    const uint32_t windows = work->group->window_count;
    struct trajd_rotation_lanes q;
    _Alignas(64) trajd_column room[TRAJD_ROTATION_MAX_WIDTH + 3], *numbers;

    if (work->origin_part == part)
        return;
    work->origin_part = part;
    numbers = gather_references(work->group, part->reference_first,
                                trajd_rotation_width(part->reference_form), room);
    trajd_lanes_load(part->reference_form, (const trajd_column *)numbers, windows, &q);
    if (is_step_by_step(work->group->job->transform)) {
        load_steps_before(work, part, &q);
        return;
    }
    spread(&q, windows, work->group->step_count, &work->origins);
}

TRAJD_WIDE_CLONES static void subtract(const double *restrict zeros, uint32_t windows,
                                       uint32_t steps, double *restrict values)
{
    for (uint32_t w = 0; w < windows; w++, values += steps)
        for (uint32_t i = 0; i < steps; i++)
            values[i] -= zeros[w];
}

TRAJD_WIDE_CLONES static void wrap(double period, uint32_t count, double *values)
{
    for (uint32_t l = 0; l < count; l++)
        values[l] -= period * floor(values[l] / period + 0.5);
}

static void relate_columns(struct work *work, const struct piece *piece, trajd_column *numbers)
{
    const struct trajd_transform_group *group = work->group;
    const struct trajd_transform_part *part = piece->part;
    _Alignas(64) trajd_column room[COLUMNS_MAX + 3];
    trajd_column *zeros =
        gather_references(group, part->reference_first + piece->skipped, piece->count, room);

    if (is_step_by_step(group->job->transform))
        subtract_steps_before(work, piece, zeros, numbers);
    else
        for (uint32_t c = 0; c < piece->count; c++)
            subtract(zeros[c], group->window_count, group->step_count, numbers[c]);
    for (uint32_t c = 0; c < piece->count && part->kind == TRAJD_PART_ANGLE; c++)
        wrap(part->period, lane_count(group), numbers[c]);
    if (part->turned_by >= 0) {
        load_origins(work, &group->job->transform->parts[part->turned_by]);
        trajd_lanes_turn_back(&work->origins, lane_count(group), numbers);
    }
}

static void convert_rotations(struct work *work, const struct trajd_transform_part *part,
                              const trajd_column *numbers, trajd_column *out)
{
    const uint32_t lanes = lane_count(work->group);
    struct trajd_rotation_lanes q;

    trajd_lanes_load(part->from, numbers, lanes, &q);
    if (part->is_relative) {
        load_origins(work, part);
        if (work->group->job->transform->frame == TRAJD_FRAME_ANCHOR)
            trajd_lanes_relate_anchor(&work->origins, lanes, &q);
        else
            trajd_lanes_relate_base(&work->origins, lanes, &q);
    }
    trajd_lanes_store(part->to, &q, lanes, out);
}

/* ---- some parts together ---- */

/* Pieces that follow each other in the rows of the source, and in those of the output. */
struct section {
    uint32_t piece_count, count, output_count;
    struct piece pieces[COLUMNS_MAX];
};

/* Returns the next piece of a part, or one without columns if it does not fit the section. */
static struct piece next_piece(const struct section *section,
                               const struct trajd_transform_part *part, uint32_t skipped)
{
    const uint32_t used = section->count > section->output_count ? section->count
                                                                 : section->output_count,
                   remaining = part->count - skipped, room = COLUMNS_MAX - used;
    const bool is_whole = part->kind == TRAJD_PART_ROTATION || part->turned_by >= 0;
    const uint32_t width = part->kind == TRAJD_PART_ROTATION ? TRAJD_ROTATION_MAX_WIDTH : remaining;
    struct piece piece = {part, skipped, remaining < room ? remaining : room, 0};

    if (is_whole)
        piece.count = width <= room ? remaining : 0;
    piece.output_count = part->kind == TRAJD_PART_ROTATION ? part->output_count : piece.count;
    return piece;
}

static void work_on(struct work *work, const struct piece *piece, trajd_column *numbers,
                    trajd_column *made, double **outputs)
{
    trajd_column *results = numbers;

    if (piece->part->kind == TRAJD_PART_ROTATION) {
        convert_rotations(work, piece->part, (const trajd_column *)numbers, made);
        results = made;
    } else if (piece->part->is_relative) {
        relate_columns(work, piece, numbers);
    }
    for (uint32_t c = 0; c < piece->output_count; c++)
        outputs[c] = results[c];
}

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

static void store(struct work *work, uint32_t first, uint32_t count)
{
    const struct trajd_transform_group *group = work->group;
    const struct trajd_transform_job *job = group->job;
    const bool per_step = job->norm_per_step;
    const struct trajd_column_target target = {.type = job->output_type,
                                               .array = job->output,
                                               .count = lane_count(group),
                                               .at = group->output_at,
                                               .scale = per_step ? NULL : job->scale,
                                               .offset = job->offset};

    for (uint32_t c = 0; c < count && job->scale && per_step; c++)
        scale_steps(group, first + c, work->outputs[c]);
    if (!trajd_columns_store(&target, first, count, work->outputs))
        return;
    if (!work->any_lost)
        memset(work->lost, 0, sizeof work->lost);
    work->any_lost = true;
    trajd_columns_find_lost(&target, first, count, work->outputs, work->lost);
}

static void run_section(struct work *work, const struct section *section)
{
    const struct piece *first = &section->pieces[0];
    trajd_column *numbers =
        gather(work->group, work->group->source_at, lane_count(work->group),
               first->part->first + first->skipped, section->count, work->gathered);
    uint32_t made = 0;

    for (uint32_t p = 0; p < section->piece_count; p++) {
        const struct piece *piece = &section->pieces[p];
        work_on(work, piece, numbers, work->made + made, work->outputs + made);
        numbers += piece->count;
        made += piece->output_count;
    }
    store(work, first->part->output_first + first->skipped, section->output_count);
}

static void run_parts(struct work *work)
{
    const struct trajd_transform *transform = work->group->job->transform;
    struct section section = {0};
    uint32_t skipped = 0;

    for (uint32_t p = 0; p < transform->part_count;) {
        const struct trajd_transform_part *part = &transform->parts[p];
        const struct piece piece = next_piece(&section, part, skipped);
        if (piece.count == 0) {
            run_section(work, &section);
            section.piece_count = section.count = section.output_count = 0;
            continue;
        }
        section.pieces[section.piece_count++] = piece;
        section.count += piece.count;
        section.output_count += piece.output_count;
        skipped = skipped + piece.count < part->count ? skipped + piece.count : 0;
        p += skipped == 0;
    }
    run_section(work, &section);
}

/* ---- a group ---- */

/* Numbers the elements at which `count` rows begin, one after another. */
TRAJD_CLONES static void place_rows(uint64_t first, uint32_t width, uint32_t count, uint64_t *at)
{
    for (uint32_t i = 0; i < count; i++)
        at[i] = first + i * width; /* at most 128 rows of 3072 */
}

/* Lanes up to a multiple of four repeat the last one. */
static void repeat_last(uint32_t count, uint64_t *at)
{
    for (uint32_t l = count; l % 4; l++)
        at[l] = at[count - 1];
}

static void place_steps(struct trajd_transform_group *group, uint32_t w, uint32_t count)
{
    const struct trajd_transform *transform = group->job->transform;
    const uint64_t row = group->windows[w] * group->job->step_count + group->first_step;
    const uint32_t lane = w * group->step_count;

    place_rows(row * transform->column_count, transform->column_count, count,
               group->source_at + lane);
    place_rows(row * transform->output_count, transform->output_count, count,
               group->output_at + lane);
}

static void place_lanes(struct trajd_transform_group *group)
{
    if (group->is_dense)
        place_steps(group, 0, lane_count(group));
    for (uint32_t w = 0; w < group->window_count; w++) {
        if (!group->is_dense)
            place_steps(group, w, group->step_count);
        group->reference_at[w] = group->windows[w] * group->job->transform->reference_count;
    }
    repeat_last(lane_count(group), group->source_at);
    repeat_last(group->window_count, group->reference_at);
}

void trajd_transform_group_run(struct trajd_transform_group *group)
{
    struct work work;

    place_lanes(group);
    work.group = group;
    work.origin_part = NULL;
    work.any_lost = false;
    if (is_step_by_step(group->job->transform))
        find_all_origins(&work);
    run_parts(&work);
    trajd_transform_finish(group, work.any_lost ? work.lost : NULL);
}
