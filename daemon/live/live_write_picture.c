/* Writes how the frames of an output are made, with the augmentation at its centre. */
#include "daemon/live/live_internal.h"

static void write_pair(const char *key, int64_t a, int64_t b, struct trajd_json *json)
{
    trajd_json_open_array(json, key);
    trajd_json_i64(json, NULL, a);
    trajd_json_i64(json, NULL, b);
    trajd_json_close_array(json);
}

static void write_preparation(const struct trajd_image_preparation *preparation,
                              struct trajd_json *json)
{
    const struct trajd_image_box *crop = &preparation->crop;
    const uint32_t box[] = {crop->top, crop->left, crop->height, crop->width};

    trajd_json_open_object(json, "preparation");
    write_pair("source", preparation->source_height, preparation->source_width, json);
    trajd_json_u64(json, "channels", preparation->channels);
    trajd_json_string(json, "type", trajd_dtype_name(preparation->type));
    trajd_json_open_array(json, "crop");
    for (uint32_t i = 0; i < 4; i++)
        trajd_json_u64(json, NULL, box[i]);
    trajd_json_close_array(json);
    trajd_json_string(json, "filter", trajd_image_filter_name(preparation->filter));
    write_pair("inner", preparation->inner_height, preparation->inner_width, json);
    write_pair("corner", preparation->top, preparation->left, json);
    write_pair("output", preparation->height, preparation->width, json);
    trajd_json_bool(json, "is_bgr", preparation->is_bgr != 0);
    trajd_json_number(json, "pad_value", "%.9g", preparation->pad_value);
    trajd_json_close_object(json);
}

/* Returns the word of a step that sets a size, or NULL: at the centre it changes nothing. */
static const char *step_word(enum trajd_augment_kind kind)
{
    return kind == TRAJD_AUGMENT_CROP           ? "crop"
           : kind == TRAJD_AUGMENT_RESIZE       ? "resize"
           : kind == TRAJD_AUGMENT_RESIZED_CROP ? "resized_crop"
                                                : NULL;
}

static void write_step(const struct trajd_augment_step *step, struct trajd_json *json)
{
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "kind", step_word(step->kind));
    write_pair("output", step->height, step->width, json);
    trajd_json_bool(json, "excludes_last", step->excludes_last);
    trajd_json_string(json, "filter", trajd_image_filter_name(step->filter));
    trajd_json_string(json, "box", step->box == TRAJD_AUGMENT_BOX_TF ? "tf" : "pixels");
    trajd_json_open_array(json, "ratio");
    trajd_json_number(json, NULL, "%.17g", step->ratio.low);
    trajd_json_number(json, NULL, "%.17g", step->ratio.high);
    trajd_json_close_array(json);
    trajd_json_close_object(json);
}

static void write_floats(const char *key, const float *values, struct trajd_json *json)
{
    trajd_json_open_array(json, key);
    for (uint32_t c = 0; c < TRAJD_IMAGE_CHANNELS_MAX; c++)
        trajd_json_number(json, NULL, "%.9g", (double)values[c]);
    trajd_json_close_array(json);
}

static void write_finish(const struct trajd_image_finish *finish, struct trajd_json *json)
{
    trajd_json_open_object(json, "finish");
    write_pair("size", finish->height, finish->width, json);
    trajd_json_u64(json, "channels", finish->channels);
    trajd_json_string(json, "source", trajd_dtype_name(finish->source));
    trajd_json_string(json, "type", trajd_dtype_name(finish->type));
    trajd_json_string(json, "layout", finish->layout == TRAJD_IMAGE_CHW ? "chw" : "hwc");
    write_floats("scale", finish->scale, json);
    write_floats("offset", finish->offset, json);
    trajd_json_close_object(json);
}

const struct trajd_plan_picture *trajd_live_picture(const struct trajd_window_plan *plan,
                                                    uint32_t output_index)
{
    for (uint32_t p = 0; p < plan->picture_count; p++)
        if (plan->targets[plan->row_target_count + p].output_index == output_index)
            return &plan->pictures[p];
    return NULL;
}

void trajd_live_write_picture(const struct trajd_plan_picture *picture, struct trajd_json *json)
{
    trajd_json_open_object(json, "picture");
    write_preparation(&picture->preparation, json);
    trajd_json_open_array(json, "augment");
    for (uint32_t i = 0; i < picture->augment.count; i++)
        if (step_word(picture->augment.steps[i].kind))
            write_step(&picture->augment.steps[i], json);
    trajd_json_close_array(json);
    write_finish(&picture->finish, json);
    trajd_json_close_object(json);
}

/* The shape and type of finished frames: those of the plan differ where workers finish them. */
void trajd_live_write_picture_shape(const struct trajd_plan_output *output,
                                    const struct trajd_image_finish *finish,
                                    struct trajd_json *json)
{
    const bool is_chw = finish->layout == TRAJD_IMAGE_CHW;

    trajd_json_string(json, "dtype", trajd_dtype_name(finish->type));
    trajd_json_open_array(json, "shape");
    trajd_json_u64(json, NULL, output->step_count);
    if (is_chw)
        trajd_json_u64(json, NULL, finish->channels);
    trajd_json_u64(json, NULL, finish->height);
    trajd_json_u64(json, NULL, finish->width);
    if (!is_chw && output->rank == 3)
        trajd_json_u64(json, NULL, finish->channels);
    trajd_json_close_array(json);
}
