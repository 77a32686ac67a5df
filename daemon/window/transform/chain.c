/* Finds the rotations, angles and parts among the columns of an output. */
#include "daemon/window/transform/chain.h"
#include "proto/plural.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct resolver {
    const struct trajd_chain_spec *spec;
    const struct trajd_chain_source *sources, *references;
    uint32_t source_count, reference_count;
    uint32_t column_count, reference_columns;
    uint32_t rotation_count;
    /* those of the spec with their columns, and quaternions of the layout that it does not name */
    struct trajd_chain_rotation rotations[TRAJD_TRANSFORM_MAX_PARTS];
    struct trajd_transform *transform;
    struct trajd_error *error;
};

static enum trajd_status refuse(const struct resolver *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static enum trajd_status refuse(const struct resolver *r, const char *format, ...)
{
    char text[400];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0, "%s", text);
}

static bool is_slerp(const struct trajd_chain_source *source)
{
    return source->kind == TRAJD_KIND_SLERP_XYZW || source->kind == TRAJD_KIND_SLERP_WXYZ;
}

static enum trajd_rotation_form form_of(const struct trajd_chain_source *source)
{
    return source->kind == TRAJD_KIND_SLERP_XYZW ? TRAJD_ROTATION_QUAT_XYZW
                                                 : TRAJD_ROTATION_QUAT_WXYZ;
}

static enum trajd_status count_columns(const struct resolver *r, const char *key,
                                       const struct trajd_chain_source *sources, uint32_t count,
                                       uint32_t *columns)
{
    uint64_t sum = 0;

    for (uint32_t s = 0; s < count; s++)
        sum += sources[s].column_count;
    *columns = (uint32_t)sum;
    return sum <= TRAJD_TRANSFORM_MAX_COLUMNS
               ? TRAJD_OK
               : refuse(r, "%s: %llu columns, but transforms take at most %d", key,
                        (unsigned long long)sum, TRAJD_TRANSFORM_MAX_COLUMNS);
}

/* Returns the source that has a column, and the first column of that source. */
static const struct trajd_chain_source *source_at(const struct trajd_chain_source *sources,
                                                  uint32_t column, uint32_t *first)
{
    for (*first = 0; column - *first >= sources->column_count; sources++)
        *first += sources->column_count;
    return sources;
}

/* ---- rotations ---- */

/* Finds the columns of a rotation that names none: the output, or its only source, of that
 * width. */
static enum trajd_status find_columns(const struct resolver *r,
                                      struct trajd_chain_rotation *rotation)
{
    const uint32_t width = trajd_rotation_width(rotation->from);
    uint32_t first = 0, found = 0;

    for (uint32_t s = 0; s < r->source_count; s++) {
        if (r->sources[s].column_count == width) {
            rotation->first = first;
            found++;
        }
        first += r->sources[s].column_count;
    }
    rotation->end = rotation->first + width;
    return found == 1
               ? TRAJD_OK
               : refuse(r,
                        "rotation: %s streams of the output have the %u columns of %s: "
                        "name them with `columns: \"FROM:TO\"`",
                        found ? "several" : "no", width, trajd_rotation_name(rotation->from));
}

static enum trajd_status check_rotation(const struct resolver *r,
                                        const struct trajd_chain_rotation *rotation)
{
    const struct trajd_chain_source *source;
    uint32_t first;

    if (rotation->end > r->column_count || rotation->position_end > r->column_count)
        return refuse(r, "rotation: the columns end at %u, but the output has %u column%s",
                      rotation->end > r->column_count ? rotation->end : rotation->position_end,
                      r->column_count, trajd_plural(r->column_count));
    source = source_at(r->sources, rotation->first, &first);
    if (rotation->end > first + source->column_count)
        return refuse(r, "rotation: columns %u:%u belong to more than one stream", rotation->first,
                      rotation->end);
    if (is_slerp(source) && form_of(source) != rotation->from)
        return refuse(r, "rotation: from: %s, but the layout says that %s is %s",
                      trajd_rotation_name(rotation->from), source->name,
                      trajd_rotation_name(form_of(source)));
    if (is_slerp(source) && (rotation->first - first) % 4)
        return refuse(r, "rotation: columns %u:%u begin inside a quaternion of %s", rotation->first,
                      rotation->end, source->name);
    return TRAJD_OK;
}

static bool overlap(uint32_t a, uint32_t a_end, uint32_t b, uint32_t b_end)
{
    return a < b_end && b < a_end;
}

static enum trajd_status check_overlaps(const struct resolver *r)
{
    for (uint32_t i = 0; i < r->rotation_count; i++)
        for (uint32_t j = 0; j < r->rotation_count; j++) {
            const struct trajd_chain_rotation *a = &r->rotations[i], *b = &r->rotations[j];
            if ((i < j && overlap(a->first, a->end, b->first, b->end)) ||
                overlap(a->first, a->end, b->position_first, b->position_end) ||
                (i < j &&
                 overlap(a->position_first, a->position_end, b->position_first, b->position_end)))
                return refuse(r, "rotation: columns %u:%u are named twice", a->first, a->end);
        }
    return TRAJD_OK;
}

/* Returns the rotation that begins at a column, or NULL. */
static const struct trajd_chain_rotation *rotation_at(const struct resolver *r, uint32_t column)
{
    for (uint32_t i = 0; i < r->rotation_count; i++)
        if (r->rotations[i].first == column)
            return &r->rotations[i];
    return NULL;
}

static bool is_masked_in(const struct resolver *r, uint32_t column)
{
    return r->spec && r->spec->is_relative && (!r->spec->mask_count || r->spec->mask[column]);
}

/* Adds the quaternions of a source of kind slerp that the spec does not name. */
static enum trajd_status add_quaternions(struct resolver *r)
{
    uint32_t first = 0;

    for (uint32_t s = 0; s < r->source_count; first += r->sources[s++].column_count)
        for (uint32_t c = first;
             is_slerp(&r->sources[s]) && c + 4 <= first + r->sources[s].column_count; c += 4) {
            if (rotation_at(r, c))
                continue;
            if (is_masked_in(r, c))
                return refuse(r,
                              "relative_to: %s is a quaternion, which cannot be subtracted: add "
                              "`rotation: {from: %s, to: rot6d, columns: \"%u:%u\"}`",
                              r->sources[s].name, trajd_rotation_name(form_of(&r->sources[s])), c,
                              c + 4);
            if (r->rotation_count == TRAJD_TRANSFORM_MAX_PARTS)
                return refuse(r, "rotation: more than %d rotations", TRAJD_TRANSFORM_MAX_PARTS);
            r->rotations[r->rotation_count++] =
                (struct trajd_chain_rotation){.from = form_of(&r->sources[s]),
                                              .to = form_of(&r->sources[s]),
                                              .first = c,
                                              .end = c + 4};
        }
    return TRAJD_OK;
}

static enum trajd_status find_rotations(struct resolver *r)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; r->spec && i < r->spec->rotation_count && !status; i++) {
        struct trajd_chain_rotation *rotation = &r->rotations[r->rotation_count++];
        *rotation = r->spec->rotations[i];
        if (!rotation->end)
            status = find_columns(r, rotation);
        if (!status)
            status = check_rotation(r, rotation);
        if (!status && rotation->position_end && !r->spec->is_relative)
            return refuse(r, "rotation: position: without relative_to, positions stay as recorded: "
                             "remove it");
        if (!status && rotation->position_end && r->spec->frame == TRAJD_FRAME_BASE)
            return refuse(r, "rotation: position: in the frame of the base, a position is "
                             "subtracted like other columns: remove it");
    }
    if (!status)
        status = check_overlaps(r);
    return status ? status : add_quaternions(r);
}

/* ---- parts ---- */

static const struct trajd_chain_rotation *position_of(const struct resolver *r, uint32_t column)
{
    for (uint32_t i = 0; i < r->rotation_count; i++)
        if (column >= r->rotations[i].position_first && column < r->rotations[i].position_end)
            return &r->rotations[i];
    return NULL;
}

/* Returns the period of an angle's column; 0: the column is not an angle. */
static double period_of(const struct resolver *r, uint32_t column)
{
    uint32_t first;
    const struct trajd_chain_source *source = source_at(r->sources, column, &first);

    return source->kind == TRAJD_KIND_ANGLE && is_masked_in(r, column) ? source->angle_period : 0;
}

/* Returns whether a column belongs to the same part as the one before it. */
static bool continues(const struct resolver *r, uint32_t column)
{
    return !rotation_at(r, column) && is_masked_in(r, column) == is_masked_in(r, column - 1) &&
           position_of(r, column) == position_of(r, column - 1) &&
           !(period_of(r, column) < period_of(r, column - 1)) &&
           !(period_of(r, column) > period_of(r, column - 1));
}

static enum trajd_status add_part(struct resolver *r, uint32_t column, uint32_t *end)
{
    struct trajd_transform *transform = r->transform;
    struct trajd_transform_part *part = &transform->parts[transform->part_count];
    const struct trajd_chain_rotation *rotation = rotation_at(r, column);

    if (transform->part_count++ == TRAJD_TRANSFORM_MAX_PARTS)
        return refuse(r, "relative_to: the columns fall into more than %d groups",
                      TRAJD_TRANSFORM_MAX_PARTS);
    for (*end = rotation ? rotation->end : column + 1;
         !rotation && *end < r->column_count && continues(r, *end);)
        ++*end;
    *part = (struct trajd_transform_part){.kind = rotation                   ? TRAJD_PART_ROTATION
                                                  : period_of(r, column) > 0 ? TRAJD_PART_ANGLE
                                                                             : TRAJD_PART_PLAIN,
                                          .is_relative = is_masked_in(r, column),
                                          .first = column,
                                          .count = *end - column,
                                          .output_first = transform->output_count,
                                          .output_count = *end - column,
                                          .period = period_of(r, column),
                                          .turned_by = -1};
    if (rotation) {
        part->from = rotation->from;
        part->to = rotation->to;
        part->output_count = trajd_rotation_width(rotation->to);
    }
    if (part->is_relative) {
        part->origin_first = transform->origin_count;
        transform->origin_count += rotation ? 4 : part->count;
    }
    transform->output_count += part->output_count;
    for (uint32_t c = column; c < *end; c++)
        if (is_masked_in(r, c) != part->is_relative)
            return refuse(r,
                          "relative_to: columns %u:%u are one rotation, so the mask must be the "
                          "same for all of them",
                          column, *end);
    return TRAJD_OK;
}

/* Connects positions to the rotations that turn them. */
static enum trajd_status connect_positions(const struct resolver *r)
{
    struct trajd_transform *transform = r->transform;

    for (uint32_t i = 0; i < r->rotation_count; i++) {
        const struct trajd_chain_rotation *rotation = &r->rotations[i];
        int32_t turn = -1;
        for (uint32_t p = 0; p < transform->part_count; p++)
            if (transform->parts[p].first == rotation->first)
                turn = (int32_t)p;
        for (uint32_t p = 0; p < transform->part_count && rotation->position_end; p++) {
            struct trajd_transform_part *part = &transform->parts[p];
            if (!overlap(part->first, part->first + part->count, rotation->position_first,
                         rotation->position_end))
                continue;
            if (part->kind != TRAJD_PART_PLAIN || part->count != 3 || !part->is_relative ||
                !transform->parts[turn].is_relative)
                return refuse(r,
                              "rotation: position: columns %u:%u must be plain numbers, and the "
                              "mask must be true for them and for the rotation",
                              rotation->position_first, rotation->position_end);
            part->turned_by = turn;
        }
    }
    return TRAJD_OK;
}

/* ---- the reference ---- */

static enum trajd_rotation_form reference_form(const struct resolver *r,
                                               const struct trajd_transform_part *part)
{
    if (r->spec->reference_form)
        return r->spec->reference_form;
    for (uint32_t s = 0; s < r->reference_count; s++)
        if (is_slerp(&r->references[s]))
            return form_of(&r->references[s]);
    return part->from;
}

/* Places the parts in the reference row: all of them, or the relative ones alone. Returns its
 * columns; *used becomes the columns up to the last relative part. */
static uint32_t place_parts(const struct resolver *r, bool relative_only, uint32_t *used)
{
    uint32_t next = 0;

    *used = 0;
    for (uint32_t p = 0; p < r->transform->part_count; p++) {
        struct trajd_transform_part *part = &r->transform->parts[p];
        part->reference_form =
            part->kind == TRAJD_PART_ROTATION ? reference_form(r, part) : TRAJD_ROTATION_NONE;
        if (relative_only && !part->is_relative)
            continue;
        part->reference_first = next;
        next += part->kind == TRAJD_PART_ROTATION ? trajd_rotation_width(part->reference_form)
                                                  : part->count;
        *used = part->is_relative ? next : *used;
    }
    return next;
}

static enum trajd_status check_reference_part(const struct resolver *r,
                                              const struct trajd_transform_part *part)
{
    const uint32_t width = part->kind == TRAJD_PART_ROTATION
                               ? trajd_rotation_width(part->reference_form)
                               : part->count;

    for (uint32_t c = part->reference_first; c < part->reference_first + width; c++) {
        uint32_t first;
        const struct trajd_chain_source *source = source_at(r->references, c, &first);
        if (is_slerp(source) &&
            (part->kind != TRAJD_PART_ROTATION || form_of(source) != part->reference_form ||
             (part->reference_first - first) % 4))
            return refuse(r,
                          "relative_to: columns %u:%u of the output would be taken relative to "
                          "column %u of the state, which is part of the quaternion %s",
                          part->first, part->first + part->count, c, source->name);
        if (part->kind == TRAJD_PART_ROTATION &&
            (part->reference_first < first ||
             part->reference_first + width > first + source->column_count))
            return refuse(r,
                          "relative_to: columns %u:%u of the state should be one rotation "
                          "(%s), but they belong to more than one stream",
                          part->reference_first, part->reference_first + width,
                          trajd_rotation_name(part->reference_form));
    }
    return TRAJD_OK;
}

static enum trajd_status place_reference(const struct resolver *r)
{
    uint32_t used, unused, relative;
    const uint32_t all = place_parts(r, false, &used);
    enum trajd_status status = TRAJD_OK;

    if (r->reference_columns != all && r->reference_columns != used) {
        relative = place_parts(r, true, &unused);
        if (r->reference_columns != relative)
            return refuse(r,
                          "relative_to: the state has %u column%s, but the output needs %u "
                          "(one for each of its columns) or %u (only those that are relative)",
                          r->reference_columns, trajd_plural(r->reference_columns), all, relative);
    }
    r->transform->reference_count = r->reference_columns;
    for (uint32_t p = 0; p < r->transform->part_count && !status; p++)
        if (r->transform->parts[p].is_relative)
            status = check_reference_part(r, &r->transform->parts[p]);
    return status;
}

enum trajd_status trajd_chain_resolve(const struct trajd_chain_spec *spec,
                                      const struct trajd_chain_source *sources,
                                      uint32_t source_count,
                                      const struct trajd_chain_source *references,
                                      uint32_t reference_count, struct trajd_transform *transform,
                                      struct trajd_error *error)
{
    struct resolver r = {.spec = spec,
                         .sources = sources,
                         .source_count = source_count,
                         .references = references,
                         .reference_count = reference_count,
                         .transform = transform,
                         .error = error};
    enum trajd_status status = count_columns(&r, "from", sources, source_count, &r.column_count);

    memset(transform, 0, sizeof *transform);
    if (!status)
        status =
            count_columns(&r, "relative_to", references, reference_count, &r.reference_columns);
    if (!status && spec && spec->mask_count && spec->mask_count != r.column_count)
        return refuse(&r, "relative_to: the mask has %u entries, but the output has %u column%s",
                      spec->mask_count, r.column_count, trajd_plural(r.column_count));
    if (!status)
        status = find_rotations(&r);
    for (uint32_t c = 0; c < r.column_count && !status;)
        status = add_part(&r, c, &c);
    transform->column_count = r.column_count;
    if (spec) {
        transform->frame = spec->frame;
        transform->from_step_before = spec->from_step_before;
    }
    if (!status)
        status = connect_positions(&r);
    if (!status && spec && spec->is_relative && !transform->origin_count)
        return refuse(&r, "relative_to: mask: no column is relative: remove relative_to");
    return status || !spec || !spec->is_relative ? status : place_reference(&r);
}
