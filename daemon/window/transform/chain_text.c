/* A chain as a number, in words, and as JSON. */
#include <inttypes.h>
#include <stdio.h>

#include "daemon/base/digest.h"
#include "daemon/base/text/text.h"
#include "daemon/window/transform/chain.h"

static const char *const kinds[] = {"plain", "angle", "rotation"};

static bool changes(const struct trajd_transform *transform)
{
    for (uint32_t p = 0; p < transform->part_count; p++)
        if (transform->parts[p].is_relative || transform->parts[p].from != transform->parts[p].to)
            return true;
    return false;
}

uint64_t trajd_chain_id(const struct trajd_transform *transform)
{
    struct trajd_digest digest;

    if (!changes(transform))
        return 0;
    trajd_digest_init(&digest);
    trajd_digest_add_u64(&digest, transform->frame);
    trajd_digest_add_u64(&digest, transform->from_step_before);
    trajd_digest_add_u64(&digest, transform->reference_count);
    for (uint32_t p = 0; p < transform->part_count; p++) {
        const struct trajd_transform_part *part = &transform->parts[p];
        const uint64_t numbers[] = {part->kind,
                                    part->is_relative,
                                    part->first,
                                    part->count,
                                    part->is_relative ? part->reference_first : 0,
                                    part->from,
                                    part->to,
                                    part->is_relative ? part->reference_form : 0,
                                    (uint64_t)(int64_t)part->turned_by};
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
            trajd_digest_add_u64(&digest, numbers[i]);
        trajd_digest_add(&digest, &part->period, sizeof part->period);
    }
    return trajd_digest_end(&digest) | 1;
}

static void add_part(struct trajd_text *text, const struct trajd_transform *transform,
                     const struct trajd_transform_part *part)
{
    const char *origin = transform->from_step_before ? "the step before" : "the state";
    const bool own_frame = transform->frame == TRAJD_FRAME_ANCHOR;

    trajd_text_add(text, "%u:%u ", part->first, part->first + part->count);
    if (part->kind == TRAJD_PART_ROTATION && part->from != part->to)
        trajd_text_add(text, "%s to %s", trajd_rotation_name(part->from),
                       trajd_rotation_name(part->to));
    else if (part->kind == TRAJD_PART_ROTATION)
        trajd_text_add(text, "%s", trajd_rotation_name(part->from));
    if (part->kind == TRAJD_PART_ROTATION && part->is_relative)
        trajd_text_add(text, " relative to %s, in the frame of %s", origin,
                       own_frame ? "that pose" : "the base");
    else if (part->is_relative && part->kind == TRAJD_PART_ANGLE)
        trajd_text_add(text, "minus %s, the short way round %.6g", origin, part->period);
    else if (part->is_relative)
        trajd_text_add(text, "minus %s%s", origin,
                       part->turned_by >= 0 ? ", in the frame of that pose" : "");
    else if (part->kind != TRAJD_PART_ROTATION)
        trajd_text_add(text, "as recorded");
}

void trajd_chain_describe(const struct trajd_transform *transform, char *out, size_t size)
{
    struct trajd_text text = {out, size, 0};

    *out = 0;
    for (uint32_t p = 0; p < transform->part_count; p++) {
        trajd_text_add(&text, "%s", p ? "; " : "");
        add_part(&text, transform, &transform->parts[p]);
    }
}

static void write_part(const struct trajd_transform_part *part, struct trajd_json *json)
{
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "kind", kinds[part->kind]);
    trajd_json_bool(json, "relative", part->is_relative);
    trajd_json_u64(json, "first", part->first);
    trajd_json_u64(json, "count", part->count);
    trajd_json_u64(json, "output_first", part->output_first);
    trajd_json_u64(json, "output_count", part->output_count);
    if (part->is_relative)
        trajd_json_u64(json, "reference_first", part->reference_first);
    if (part->kind == TRAJD_PART_ANGLE)
        trajd_json_number(json, "period", "%.17g", part->period);
    if (part->turned_by >= 0)
        trajd_json_u64(json, "turned_by", (uint64_t)part->turned_by);
    if (part->kind == TRAJD_PART_ROTATION) {
        trajd_json_string(json, "from", trajd_rotation_name(part->from));
        trajd_json_string(json, "to", trajd_rotation_name(part->to));
        if (part->is_relative)
            trajd_json_string(json, "reference_form", trajd_rotation_name(part->reference_form));
    }
    trajd_json_close_object(json);
}

void trajd_chain_write(const struct trajd_transform *transform, struct trajd_json *json)
{
    trajd_json_open_object(json, "chain");
    trajd_json_format(json, "id", "%016" PRIx64, trajd_chain_id(transform));
    trajd_json_string(json, "frame", transform->frame == TRAJD_FRAME_ANCHOR ? "anchor" : "base");
    trajd_json_string(json, "step", transform->from_step_before ? "before" : "anchor");
    trajd_json_u64(json, "columns", transform->column_count);
    trajd_json_u64(json, "output_columns", transform->output_count);
    trajd_json_u64(json, "reference_columns", transform->reference_count);
    trajd_json_open_array(json, "parts");
    for (uint32_t p = 0; p < transform->part_count; p++)
        write_part(&transform->parts[p], json);
    trajd_json_close_array(json);
    trajd_json_close_object(json);
}
