/* Reads a transform, as daemon/window/transform/chain_text.c writes it. */
#include "clients/live/live_reader.h"

static const char *const chain_keys[] = {
    "id", "frame", "step", "columns", "output_columns", "reference_columns", "parts", NULL};
static const char *const part_keys[] = {
    "kind",         "relative",        "first",  "count",     "output_first",
    "output_count", "reference_first", "period", "turned_by", "from",
    "to",           "reference_form",  NULL};
static const char *const frames[] = {"anchor", "base", NULL};
static const char *const steps[] = {"anchor", "before", NULL};
static const char *const kinds[] = {"plain", "angle", "rotation", NULL};

static enum trajd_rotation_form read_form(struct trajd_live_reader *reader,
                                          const struct trajd_yaml_node *node, const char *key)
{
    const enum trajd_rotation_form form =
        trajd_rotation_parse(trajd_live_read_text(reader, node, key));

    if (!form && !reader->status)
        trajd_live_wrong(reader, node, "there is no such form of a rotation");
    return form;
}

static void read_rotation(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                          struct trajd_transform_part *part)
{
    part->from = read_form(reader, node, "from");
    part->to = read_form(reader, node, "to");
    if (part->is_relative)
        part->reference_form = read_form(reader, node, "reference_form");
    if (!reader->status && (part->count != trajd_rotation_width(part->from) ||
                            part->output_count != trajd_rotation_width(part->to)))
        trajd_live_wrong(reader, node, "a rotation has another number of columns");
}

/* Reads where a part takes its origin from. */
static void read_origin(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                        struct trajd_transform *transform, struct trajd_transform_part *part)
{
    const uint32_t width = part->kind == TRAJD_PART_ROTATION
                               ? trajd_rotation_width(part->reference_form)
                               : part->count;

    part->reference_first = (uint32_t)trajd_live_read_int(reader, node, "reference_first", 0,
                                                          TRAJD_TRANSFORM_MAX_COLUMNS);
    if (!reader->status && part->reference_first + width > transform->reference_count)
        trajd_live_wrong(reader, node, "the state has fewer columns");
    part->origin_first = transform->origin_count;
    transform->origin_count += part->kind == TRAJD_PART_ROTATION ? 4 : part->count;
}

static void read_part(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                      struct trajd_transform *transform)
{
    struct trajd_transform_part *part = &transform->parts[transform->part_count++];
    const uint32_t columns = transform->column_count, done = transform->output_count;

    trajd_live_check_keys(reader, node, part_keys);
    part->kind = (enum trajd_part_kind)trajd_live_read_word(reader, node, "kind", kinds);
    part->is_relative = trajd_live_read_bool(reader, node, "relative");
    /* parts follow one another */
    part->first = (uint32_t)trajd_live_read_int(reader, node, "first", columns, columns);
    part->count = (uint32_t)trajd_live_read_int(reader, node, "count", 1,
                                                TRAJD_TRANSFORM_MAX_COLUMNS - columns);
    part->output_first = (uint32_t)trajd_live_read_int(reader, node, "output_first", done, done);
    part->output_count =
        (uint32_t)trajd_live_read_int(reader, node, "output_count", 1, TRAJD_TRANSFORM_MAX_COLUMNS);
    part->turned_by = -1;
    if (part->kind == TRAJD_PART_ROTATION)
        read_rotation(reader, node, part);
    else if (!reader->status && part->output_count != part->count)
        trajd_live_wrong(reader, node, "a part without a rotation keeps its columns");
    if (part->kind == TRAJD_PART_ANGLE)
        part->period = trajd_live_read_number(reader, node, "period", 1e-300, 1e300);
    if (part->is_relative)
        read_origin(reader, node, transform, part);
    transform->column_count += part->count;
    transform->output_count += part->output_count;
}

/* Connects a position to the rotation that turns it: any part of the list. */
static void read_turn(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                      const struct trajd_transform *transform, struct trajd_transform_part *part)
{
    const struct trajd_transform_part *by;

    if (!trajd_yaml_get(node, "turned_by"))
        return;
    part->turned_by = (int32_t)trajd_live_read_int(reader, node, "turned_by", 0,
                                                   (int64_t)transform->part_count - 1);
    by = &transform->parts[part->turned_by];
    if (!reader->status &&
        (part->kind != TRAJD_PART_PLAIN || part->count != 3 || !part->is_relative ||
         by->kind != TRAJD_PART_ROTATION || !by->is_relative))
        trajd_live_wrong(reader, node, "turned_by: a relative position and a relative rotation");
}

struct trajd_transform *trajd_live_read_chain(struct trajd_live_reader *reader,
                                              const struct trajd_yaml_node *chain,
                                              uint32_t column_count)
{
    struct trajd_transform *transform = trajd_live_alloc(reader, 1, sizeof *transform);
    const struct trajd_yaml_node *parts, *node;
    uint32_t p = 0;

    if (!transform)
        return NULL;
    trajd_live_check_keys(reader, chain, chain_keys);
    transform->frame = (enum trajd_frame)trajd_live_read_word(reader, chain, "frame", frames);
    transform->from_step_before = trajd_live_read_word(reader, chain, "step", steps) == 1;
    transform->reference_count = (uint32_t)trajd_live_read_int(reader, chain, "reference_columns",
                                                               0, TRAJD_TRANSFORM_MAX_COLUMNS);
    parts = trajd_live_read_list(reader, chain, "parts", 1, TRAJD_TRANSFORM_MAX_PARTS);
    for (node = parts ? parts->children : NULL; node && !reader->status; node = node->next)
        read_part(reader, node, transform);
    for (node = parts ? parts->children : NULL; node && !reader->status; node = node->next)
        read_turn(reader, node, transform, &transform->parts[p++]);
    trajd_live_read_int(reader, chain, "columns", transform->column_count, transform->column_count);
    trajd_live_read_int(reader, chain, "output_columns", transform->output_count,
                        transform->output_count);
    if (!reader->status && transform->column_count != column_count)
        trajd_live_wrong(reader, chain, "columns: the sources have another number");
    if (!reader->status && transform->origin_count && !transform->reference_count)
        trajd_live_wrong(reader, chain, "reference_columns: a relative part needs a state");
    return reader->status ? NULL : transform;
}
