/* The pictures of a plan: how the frames of each stream are prepared, and how they become the
 * tensor. */
#include <stdlib.h>
#include <string.h>

#include "daemon/window/window_plan_internal.h"

bool trajd_plan_is_picture(const struct trajd_spec_output *output,
                           const struct trajd_index_stream *stream)
{
    return output->picture.is_given || stream->form != TRAJD_ROWS_PLAIN ||
           stream->image.masks_zero_frames;
}

/* Finds the size of a stream's frames. */
static enum trajd_status find_source(const struct trajd_spec_output *output,
                                     const struct trajd_index_stream *stream,
                                     struct trajd_picture_source *source, struct trajd_error *error)
{
    const uint64_t channels = stream->rank == 3 ? stream->shape[2] : 1;
    const bool is_size =
        (stream->rank == 2 || stream->rank == 3) && stream->shape[0] <= TRAJD_IMAGE_SIDE_MAX &&
        stream->shape[1] <= TRAJD_IMAGE_SIDE_MAX && (channels == 1 || channels == 3);

    if (!is_size || stream->first_column)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "%s has no pictures: image: and layout: are for streams of "
                                       "rows [height, width, 1 or 3]",
                                       stream->name);
    if (stream->dtype != TRAJD_U8 &&
        (channels != 1 || (stream->dtype != TRAJD_U16 && stream->dtype != TRAJD_F32)))
        return trajd_plan_output_error(
            output, error, TRAJD_ERR_UNSUPPORTED,
            "%s: pictures have values of u8; u16 and f32 are for depth, with one channel; these "
            "are %s",
            stream->name, trajd_dtype_name(stream->dtype));
    *source = (struct trajd_picture_source){.height = (uint32_t)stream->shape[0],
                                            .width = (uint32_t)stream->shape[1],
                                            .channels = (uint32_t)channels,
                                            .type = stream->dtype};
    return TRAJD_OK;
}

static enum trajd_status check_keys(const struct trajd_spec_output *output,
                                    const struct trajd_index_stream *stream,
                                    struct trajd_error *error)
{
    if (output->source_count > 1)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "%s has pictures: it cannot be joined with other streams",
                                       stream->name);
    if (output->norm_by)
        return trajd_plan_output_error(
            output, error, TRAJD_ERR_ARGUMENT,
            "norm: %s has pictures: use unit, signed, imagenet, or {mean, std}", stream->name);
    if (output->kind != TRAJD_SPEC_KIND_FROM_STREAM && output->kind != TRAJD_KIND_PREVIOUS &&
        output->kind != TRAJD_KIND_NEAREST)
        return trajd_plan_output_error(
            output, error, TRAJD_ERR_ARGUMENT,
            "%s has pictures, which are never blended: use previous or nearest", stream->name);
    return TRAJD_OK;
}

/* Writes the shape of one step. */
static void shape_output(struct trajd_plan_output *out, const struct trajd_image_finish *finish,
                         uint32_t source_rank)
{
    const bool is_chw = finish->layout == TRAJD_IMAGE_CHW;

    out->rank = source_rank == 2 && !is_chw ? 2 : 3;
    out->shape[is_chw ? 1 : 0] = finish->height;
    out->shape[is_chw ? 2 : 1] = finish->width;
    if (out->rank == 3)
        out->shape[is_chw ? 0 : 2] = finish->channels;
    out->feature_count = (uint64_t)finish->height * finish->width * finish->channels;
}

enum trajd_status trajd_plan_resolve_picture(struct trajd_window_plan *plan, uint32_t output_index,
                                             const struct trajd_index_stream *stream,
                                             struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    struct trajd_plan_output *out = &plan->outputs[output_index];
    struct trajd_picture_source source;
    struct trajd_image_finish finish;
    struct trajd_plan_picture *pictures;
    enum trajd_status status = check_keys(output, stream, error);

    if (!status)
        status = find_source(output, stream, &source, error);
    if (status)
        return status;
    pictures = realloc(plan->pictures, (plan->picture_count + 1) * sizeof *pictures);
    if (!pictures)
        return trajd_plan_no_memory(error);
    plan->pictures = pictures;
    pictures += plan->picture_count++;
    out->dtype = output->dtype ? output->dtype : output->picture.has_norm ? TRAJD_F32 : source.type;
    status = trajd_picture_prepare(&output->picture, &source, &pictures->preparation, error);
    if (!status)
        status = trajd_picture_finish(&output->picture, &pictures->preparation, out->dtype, &finish,
                                      error);
    if (status) {
        char prefix[160];
        snprintf(prefix, sizeof prefix, "line %u: outputs.%s", output->line, output->name);
        trajd_error_prefix(error, "%s", prefix);
        return status;
    }
    pictures->finish = finish;
    out->augment = output->picture.augment.count ? &output->picture.augment : NULL;
    shape_output(out, &finish, stream->rank);
    return TRAJD_OK;
}

static bool is_picture(const struct trajd_window_plan *plan, const struct trajd_plan_target *target)
{
    return trajd_plan_is_picture(&plan->spec->outputs[target->output_index],
                                 trajd_plan_stream(plan, target));
}

enum trajd_status trajd_plan_put_pictures_last(struct trajd_window_plan *plan,
                                               struct trajd_error *error)
{
    struct trajd_plan_target *sorted = calloc(plan->target_count, sizeof *sorted);
    uint32_t rows = 0, pictures = plan->target_count - plan->picture_count;

    if (!sorted)
        return trajd_plan_no_memory(error);
    for (uint32_t t = 0; t < plan->target_count; t++)
        sorted[is_picture(plan, &plan->targets[t]) ? pictures++ : rows++] = plan->targets[t];
    free(plan->targets);
    plan->targets = sorted;
    plan->row_target_count = rows;
    return TRAJD_OK;
}
