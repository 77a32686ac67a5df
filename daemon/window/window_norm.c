/* Normalisation of a plan's outputs: turns numbers or statistics into a scale and an offset per
 * feature. */
#include <math.h>
#include <string.h>

#include "daemon/base/digest.h"
#include "daemon/window/feed_spec/statistics.h"
#include "daemon/window/window_plan_internal.h"
#include "proto/array_len.h"
#include "proto/plural.h"

/* relative to the greatest magnitude. float32 has 24 bits; a range within the last few of them is
 * only noise */
#define FLAT 1e-6

static bool is_rotation(enum trajd_kind kind)
{
    return kind == TRAJD_KIND_SLERP_XYZW || kind == TRAJD_KIND_SLERP_WXYZ;
}

/* Returns whether a feature is one of those that `mask:` names by what they are. */
static bool is_chosen(const struct trajd_transform *transform, enum trajd_norm_features which,
                      uint64_t feature)
{
    bool is_position = false;

    for (uint32_t p = 0; p < transform->part_count; p++) {
        const struct trajd_transform_part *part = &transform->parts[p];
        const uint32_t first = part->output_first, end = first + part->output_count;
        if (part->kind != TRAJD_PART_ROTATION)
            continue;
        if (feature >= first && feature < end)
            return false;
        is_position = is_position || (feature < first && feature + 3 >= first);
    }
    return is_position || which == TRAJD_NORM_ALL_BUT_ROTATIONS;
}

/* Returns whether the norm of an output changes the feature. */
static bool is_normalised(const struct trajd_window_plan *plan, uint32_t output_index,
                          uint64_t feature)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];

    if (output->norm_features)
        return is_chosen(plan->rules.outputs[output_index].transform, output->norm_features,
                         feature);
    return !output->norm_mask_count || output->norm_mask[feature];
}

/* Checks that an output whose `mask:` is a word has rotations. */
static enum trajd_status check_features(const struct trajd_window_plan *plan, uint32_t output_index,
                                        struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    const struct trajd_transform *transform = plan->rules.outputs[output_index].transform;

    for (uint32_t p = 0; transform && p < transform->part_count; p++)
        if (transform->parts[p].kind == TRAJD_PART_ROTATION)
            return TRAJD_OK;
    return !output->norm_features
               ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                 "line %u: outputs.%s: norm.mask: %s: the output has no rotation: "
                                 "name one with `rotation:`, or give a list with true or false per "
                                 "feature",
                                 output->line, output->name,
                                 trajd_norm_features_name(output->norm_features));
}

/* Checks that quaternions are not normalised, in an output with a transform, which may have turned
 * them into numbers that have a mean and a range. */
static enum trajd_status check_quaternions(const struct trajd_window_plan *plan,
                                           uint32_t output_index, struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    const struct trajd_transform *transform = plan->rules.outputs[output_index].transform;

    for (uint32_t p = 0; p < transform->part_count; p++) {
        const struct trajd_transform_part *part = &transform->parts[p];
        for (uint32_t d = part->output_first; d < part->output_first + part->output_count; d++)
            if (part->kind == TRAJD_PART_ROTATION && trajd_rotation_is_quaternion(part->to) &&
                is_normalised(plan, output_index, d))
                return trajd_error_set(
                    error, TRAJD_ERR_ARGUMENT, 0,
                    "line %u: outputs.%s: norm: columns %u:%u are a quaternion, whose numbers have "
                    "no mean and no range: convert it with `rotation: {to: rot6d}`, or give a mask "
                    "that is false for it",
                    output->line, output->name, part->output_first,
                    part->output_first + part->output_count);
    }
    return TRAJD_OK;
}

/* Checks that rotations are not normalised: statistics of a quaternion's numbers mean nothing. A
 * rotation may be part of an output where the mask is false for it. */
static enum trajd_status check_rotations(const struct trajd_window_plan *plan,
                                         uint32_t output_index, struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    uint64_t column = 0;

    if (plan->rules.outputs[output_index].transform)
        return check_quaternions(plan, output_index, error);
    for (uint32_t t = 0; t < plan->rules.target_count; t++) {
        const struct trajd_index_stream *stream = trajd_plan_stream(plan, &plan->rules.targets[t]);
        if (plan->rules.targets[t].output_index != output_index)
            continue;
        for (uint64_t d = column; d < column + stream->feature_count && is_rotation(stream->kind);
             d++)
            if (is_normalised(plan, output_index, d))
                return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                       "line %u: outputs.%s: norm: %s is a rotation (kind slerp), "
                                       "whose numbers have no mean and no range: remove norm, or "
                                       "give a mask that is false for its %llu features",
                                       output->line, output->name, stream->name,
                                       (unsigned long long)stream->feature_count);
        column += stream->feature_count;
    }
    return TRAJD_OK;
}

static enum trajd_status check_counts(const struct trajd_spec_output *output, uint64_t features,
                                      struct trajd_error *error)
{
    const bool numbers = output->norm_by == TRAJD_NORM_NUMBERS;
    const uint32_t count = numbers ? output->norm_count : output->norm_mask_count;

    if (!count || count == features)
        return TRAJD_OK;
    return trajd_error_set(
        error, TRAJD_ERR_ARGUMENT, 0,
        "line %u: outputs.%s: norm%s has %u %s, but the output has %llu feature%s", output->line,
        output->name, numbers ? "" : ".mask", count, numbers ? "numbers" : "entries",
        (unsigned long long)features, trajd_plural(features));
}

enum trajd_status trajd_window_norm_prepare(struct trajd_window_plan *plan, uint32_t output_index,
                                            struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    struct trajd_plan_output *out = &plan->rules.outputs[output_index];
    enum trajd_status status = check_counts(output, out->feature_count, error);

    if (!status)
        status = check_features(plan, output_index, error);
    if (!status && output->norm_by != TRAJD_NORM_NUMBERS)
        status = check_rotations(plan, output_index, error);
    if (status)
        return status;
    if (output->norm_file && !output->norm_statistics)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "line %u: outputs.%s: norm.stats: a feed that a job sends can only "
            "name a file that a feed of the daemon's configuration names, too: "
            "send {scale: [...], offset: [...]}, or statistics_from: with a feed "
            "of this configuration",
            output->line, output->name);
    out->scale = trajd_arena_array(&plan->arena, trajd_plan_norm_count(out), sizeof *out->scale);
    out->offset = trajd_arena_array(&plan->arena, trajd_plan_norm_count(out), sizeof *out->offset);
    if (plan->arena.is_starved)
        return trajd_plan_no_memory(error);
    for (uint64_t d = 0; d < trajd_plan_norm_count(out); d++) {
        out->scale[d] = output->norm_count ? output->scale[d] : 1;
        out->offset[d] = output->norm_count ? output->offset[d] : 0;
    }
    return output->norm_statistics
               ? trajd_window_norm_set(plan, output_index, output->norm_statistics, error)
               : TRAJD_OK;
}

bool trajd_window_norm_is_open(const struct trajd_window_plan *plan, uint32_t output_index)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    return output->norm_by > TRAJD_NORM_NUMBERS && !output->norm_statistics;
}

/* Returns half the width of the range that becomes [-1, 1]; for mean_std the deviation. */
static double width_of(enum trajd_norm by, const struct trajd_feature_statistics *found,
                       double *centre, double *flat_centre)
{
    const double low = by == TRAJD_NORM_MIN_MAX ? found->min : found->quantiles[0];
    const double high =
        by == TRAJD_NORM_MIN_MAX ? found->max : found->quantiles[TRAJD_STATISTICS_QUANTILES - 1];

    if (by == TRAJD_NORM_MEAN_STD) {
        *centre = *flat_centre = found->mean;
        return found->std;
    }
    *centre = low + (high - low) / 2;
    *flat_centre = low;
    return (high - low) / 2;
}

/* Returns the greatest magnitude among the figures. A file may lack some. */
static double magnitude_of(enum trajd_norm by, const struct trajd_feature_statistics *found)
{
    const double figures[] = {found->mean, found->min, found->max, found->quantiles[0],
                              found->quantiles[TRAJD_STATISTICS_QUANTILES - 1]};
    double greatest = 0;

    for (size_t i = 0; i < ARRAY_LEN(figures); i++)
        if (isfinite(figures[i]) && (by != TRAJD_NORM_Q01_Q99 || i >= 3))
            greatest = fmax(greatest, fabs(figures[i]));
    return greatest;
}

static void set_feature(enum trajd_norm by, double min_std,
                        const struct trajd_feature_statistics *found, float *scale, float *offset)
{
    double centre, flat_centre;
    const double width = fmax(width_of(by, found, &centre, &flat_centre), min_std);
    const bool flat = (!min_std && !(width > FLAT * magnitude_of(by, found))) ||
                      !isfinite((float)(1 / width)) || !isfinite((float)(-centre / width));

    *scale = flat ? 1 : (float)(1 / width);
    *offset = (float)(flat ? -flat_centre : -centre / width);
    if (!isfinite(*offset)) {
        *scale = 1;
        *offset = 0;
    }
}

static bool lacks_figures(enum trajd_norm by, const struct trajd_statistics *statistics)
{
    double centre, flat_centre;

    for (uint32_t i = 0; i < statistics->feature_count; i++)
        if (isnan(width_of(by, &statistics->features[i], &centre, &flat_centre)) || isnan(centre))
            return true;
    return false;
}

/* Refuses statistics of other values than those that the output delivers. */
static enum trajd_status check_chain(struct trajd_window_plan *plan, uint32_t output_index,
                                     const struct trajd_statistics *statistics,
                                     struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    const struct trajd_transform *transform = plan->rules.outputs[output_index].transform;
    const uint64_t own = transform ? trajd_chain_id(transform) : 0;

    if (statistics->chain_id == own)
        return TRAJD_OK;
    if (statistics->chain_id == TRAJD_STATISTICS_ANY_CHAIN) {
        if (own)
            trajd_window_plan_warn(
                plan,
                "%s: %s does not say which values its statistics describe: they must describe "
                "those after rotation and relative_to, as files of `trajctl stats` do",
                output->name, output->norm_file);
        return TRAJD_OK;
    }
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "line %u: outputs.%s: norm.stats: the file has statistics of another "
                           "chain (%016llx) than this output's rotation and relative_to (%016llx): "
                           "write it again with `trajctl stats`",
                           output->line, output->name, (unsigned long long)statistics->chain_id,
                           (unsigned long long)own);
}

enum trajd_status trajd_window_norm_set(struct trajd_window_plan *plan, uint32_t output_index,
                                        const struct trajd_statistics *statistics,
                                        struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    struct trajd_plan_output *out = &plan->rules.outputs[output_index];
    const uint32_t features = trajd_plan_feature_count(plan, output_index);
    const bool from_file = statistics->source == TRAJD_STATISTICS_FILE;
    enum trajd_status status;

    if (statistics->feature_count != features)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "line %u: outputs.%s: norm: the statistics have %u feature%s, the output has %u",
            output->line, output->name, statistics->feature_count,
            trajd_plural(statistics->feature_count), features);
    if (from_file && (status = check_chain(plan, output_index, statistics, error)))
        return status;
    if (from_file && lacks_figures(output->norm_by, statistics))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "line %u: outputs.%s: norm: the file lacks figures that %s needs",
                               output->line, output->name, trajd_norm_name(output->norm_by));
    for (uint64_t d = 0; d < trajd_plan_norm_count(out); d++)
        if (is_normalised(plan, output_index, d % out->feature_count))
            set_feature(output->norm_by, out->norm_min_std, &statistics->features[d % features],
                        &out->scale[d], &out->offset[d]);
    return TRAJD_OK;
}

uint64_t trajd_window_norm_digest(const struct trajd_window_plan *plan)
{
    struct trajd_digest digest;
    bool any = false;

    trajd_digest_init(&digest);
    for (uint32_t o = 0; o < plan->rules.output_count; o++) {
        const struct trajd_plan_output *output = &plan->rules.outputs[o];
        if (!output->scale)
            continue;
        any = true;
        trajd_digest_add_text(&digest, output->name);
        trajd_digest_add(&digest, output->scale,
                         trajd_plan_norm_count(output) * sizeof *output->scale);
        trajd_digest_add(&digest, output->offset,
                         trajd_plan_norm_count(output) * sizeof *output->offset);
    }
    for (uint32_t p = 0; p < plan->rules.image_count; p++) {
        const struct trajd_image_finish *finish = &plan->rules.images[p].finish;
        const uint32_t o = plan->rules.targets[plan->rules.row_target_count + p].output_index;
        if (!plan->spec->outputs[o].image.has_norm)
            continue;
        any = true;
        trajd_digest_add_text(&digest, plan->rules.outputs[o].name);
        trajd_digest_add(&digest, finish->scale, sizeof finish->scale);
        trajd_digest_add(&digest, finish->offset, sizeof finish->offset);
    }
    return any ? trajd_digest_end(&digest) | 1 : 0;
}
