/* The images of a plan: how the frames of each stream are prepared, how they become the tensor,
 * and the digest of that, which is not part of the fingerprint. */
#include <stdio.h>
#include <string.h>

#include "daemon/base/digest.h"
#include "daemon/window/image/image_prepared.h"
#include "daemon/window/window_plan_internal.h"

bool trajd_spec_output_is_image(const struct trajd_spec_output *output,
                                const struct trajd_index_stream *stream)
{
    return output->image.is_given || stream->form != TRAJD_ROWS_PLAIN ||
           stream->image.masks_zero_frames;
}

/* Finds the size of a stream's frames. */
static enum trajd_status find_source(const struct trajd_spec_output *output,
                                     const struct trajd_index_stream *stream,
                                     struct trajd_image_source *source, struct trajd_error *error)
{
    const uint64_t channels = stream->rank == 3 ? stream->shape[2] : 1;
    const bool is_size =
        (stream->rank == 2 || stream->rank == 3) && stream->shape[0] <= TRAJD_IMAGE_SIDE_MAX &&
        stream->shape[1] <= TRAJD_IMAGE_SIDE_MAX && (channels == 1 || channels == 3);

    if (!is_size || stream->first_column)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "%s has no images: image: and layout: are for streams of "
                                       "rows [height, width, 1 or 3]",
                                       stream->name);
    if (stream->dtype != TRAJD_U8 &&
        (channels != 1 || (stream->dtype != TRAJD_U16 && stream->dtype != TRAJD_F32)))
        return trajd_plan_output_error(
            output, error, TRAJD_ERR_UNSUPPORTED,
            "%s: images have values of u8; u16 and f32 are for depth, with one channel; these "
            "are %s",
            stream->name, trajd_dtype_name(stream->dtype));
    *source = (struct trajd_image_source){
        .height = (uint32_t)stream->shape[0],
        .width = (uint32_t)stream->shape[1],
        .channels = (uint32_t)channels,
        .type = stream->dtype,
        .is_bgr_for_cv2 = trajd_image_is_bgr_for_cv2(stream->encoding, stream->image.color)};
    return TRAJD_OK;
}

static enum trajd_status refuse_other(const struct trajd_index_stream *stream,
                                      const struct trajd_image_preparation *stored,
                                      const struct trajd_image_preparation *wanted,
                                      struct trajd_error *error)
{
    char has[TRAJD_PREPARATION_WORDS_SIZE], wants[TRAJD_PREPARATION_WORDS_SIZE],
        keys[TRAJD_PREPARATION_WORDS_SIZE];

    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "image: the files have frames of %s that `trajctl pack --prepare` made "
                           "of %s; this output asks for %s (for those of the files: image: %s)",
                           stream->name, trajd_image_describe(stored, has),
                           trajd_image_describe(wanted, wants),
                           trajd_image_write_keys(stored, keys));
}

/* Compares what the output asks for with what was done to the frames in the files. They are then
 * used as they are. */
static enum trajd_status use_prepared(const struct trajd_image_spec *spec,
                                      const struct trajd_index_stream *stream,
                                      const struct trajd_image_source *source,
                                      struct trajd_image_preparation *preparation, uint32_t *rank,
                                      struct trajd_error *error)
{
    static const struct trajd_image_spec whole;
    struct trajd_image_prepared stored;
    struct trajd_image_preparation *made = &stored.preparation, wanted;
    struct trajd_image_source recorded = *source;
    enum trajd_status status = trajd_image_prepared_read(stream->preparation, source->channels,
                                                         source->type, &stored, error);

    if (!status && (made->height != source->height || made->width != source->width))
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                 "it makes frames of %ux%u, and these have %ux%u", made->height,
                                 made->width, source->height, source->width);
    if (!status && !stored.jpeg_quality != (stream->encoding == TRAJD_ENCODING_RAW))
        status = trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0, "it makes %s frames, and these are %s",
            stored.jpeg_quality ? "jpeg" : "raw", trajd_image_encoding_name(stream->encoding));
    if (status) {
        trajd_error_prefix(error,
                           "image: %s: the attribute preparation of its packed frames is wrong",
                           stream->name);
        return status;
    }
    *rank = stored.rank;
    recorded.height = made->source_height;
    recorded.width = made->source_width;
    recorded.is_bgr_for_cv2 = stored.is_bgr_for_cv2;
    status = trajd_image_spec_prepare(spec, &recorded, &wanted, error);
    if (!status && !trajd_image_is_same(made, &wanted))
        status = refuse_other(stream, made, &wanted, error);
    if (!status)
        status = trajd_image_spec_prepare(&whole, source, preparation, error);
    if (!status) {
        preparation->pad_value = wanted.pad_value;
        preparation->is_bgr = wanted.is_bgr;
    }
    return status;
}

/* Finds how the frames are prepared. *rank: of a frame as it was recorded. */
static enum trajd_status prepare(const struct trajd_image_spec *spec,
                                 const struct trajd_index_stream *stream,
                                 const struct trajd_image_source *source,
                                 struct trajd_image_preparation *preparation, uint32_t *rank,
                                 struct trajd_error *error)
{
    *rank = stream->rank;
    return stream->preparation ? use_prepared(spec, stream, source, preparation, rank, error)
                               : trajd_image_spec_prepare(spec, source, preparation, error);
}

static enum trajd_status check_keys(const struct trajd_spec_output *output,
                                    const struct trajd_index_stream *stream,
                                    struct trajd_error *error)
{
    if (output->source_count > 1)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "%s has images: it cannot be joined with other streams",
                                       stream->name);
    if (output->norm_by)
        return trajd_plan_output_error(
            output, error, TRAJD_ERR_ARGUMENT,
            "norm: %s has images: use unit, signed, imagenet, or {mean, std}", stream->name);
    if (output->kind != TRAJD_SPEC_KIND_FROM_STREAM && output->kind != TRAJD_KIND_PREVIOUS &&
        output->kind != TRAJD_KIND_NEAREST)
        return trajd_plan_output_error(
            output, error, TRAJD_ERR_ARGUMENT,
            "%s has images, which are never blended: use previous or nearest", stream->name);
    return TRAJD_OK;
}

/* Refuses frames of which nothing says whether a decoder gives red or blue first. A guess would
 * exchange red and blue for half of the users, and nobody would notice. As OpenCV reads a frame, its
 * values are the same with either. */
static enum trajd_status check_color(const struct trajd_window_plan *plan,
                                     const struct trajd_spec_output *output,
                                     const struct trajd_index_stream *stream,
                                     struct trajd_error *error)
{
    if (stream->image.color != TRAJD_COLOR_UNDECIDED ||
        output->image.channels == TRAJD_CHANNELS_CV2)
        return TRAJD_OK;
    return trajd_error_set(
        error, TRAJD_ERR_ARGUMENT, 0,
        "line %u: outputs.%s: datasets.%s.color is missing: neither layout %s nor the files say in "
        "which order %s has its colours. rgb: a standard decoder gives RGB. bgr: it gives red and "
        "blue exchanged, as act-plus-plus' compress_data.py, mobile-aloha's recorder and most of "
        "RoboMIND write them. `trajctl inspect --frame` shows both",
        output->line, output->name, plan->dataset->name, plan->dataset->index->layout->name,
        stream->name);
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

enum trajd_status trajd_plan_resolve_image(struct trajd_window_plan *plan, uint32_t output_index,
                                           const struct trajd_index_stream *stream,
                                           struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    struct trajd_plan_output *out = &plan->rules.outputs[output_index];
    struct trajd_image_source source;
    struct trajd_image_finish finish;
    struct trajd_plan_image *images;
    uint32_t rank;
    enum trajd_status status = check_keys(output, stream, error);

    if (!status)
        status = check_color(plan, output, stream, error);
    if (!status)
        status = find_source(output, stream, &source, error);
    if (status)
        return status;
    if (!plan->rules.images)
        plan->rules.images =
            trajd_arena_array(&plan->arena, plan->rules.output_count, sizeof *images);
    if (!plan->rules.images)
        return trajd_plan_no_memory(error);
    images = &plan->rules.images[plan->rules.image_count++];
    out->dtype = output->dtype ? output->dtype : output->image.has_norm ? TRAJD_F32 : source.type;
    status = prepare(&output->image, stream, &source, &images->preparation, &rank, error);
    if (!status)
        status = trajd_image_spec_finish(&output->image, &images->preparation, out->dtype,
                                         &images->augment, &finish, error);
    if (status) {
        char prefix[160];
        snprintf(prefix, sizeof prefix, "line %u: outputs.%s", output->line, output->name);
        trajd_error_prefix(error, "%s", prefix);
        return status;
    }
    images->finish = images->written = finish;
    shape_output(out, &finish, rank);
    return TRAJD_OK;
}

static bool is_image(const struct trajd_window_plan *plan, const struct trajd_plan_target *target)
{
    return trajd_spec_output_is_image(&plan->spec->outputs[target->output_index],
                                      trajd_plan_stream(plan, target));
}

enum trajd_status trajd_plan_put_images_last(struct trajd_window_plan *plan,
                                             struct trajd_error *error)
{
    struct trajd_plan_rules *rules = &plan->rules;
    struct trajd_plan_target *sorted =
        trajd_arena_array(&plan->arena, rules->target_count, sizeof *sorted);
    struct trajd_index_stream *models =
        trajd_arena_array(&plan->arena, rules->target_count, sizeof *models);
    uint32_t rows = 0, images = rules->target_count - rules->image_count;

    if (plan->arena.is_starved)
        return trajd_plan_no_memory(error);
    for (uint32_t t = 0; t < rules->target_count; t++) {
        const uint32_t to = is_image(plan, &rules->targets[t]) ? images++ : rows++;
        sorted[to] = rules->targets[t];
        models[to] = plan->models[t];
    }
    rules->targets = sorted;
    plan->models = models;
    rules->row_target_count = rows;
    for (uint32_t p = 0; p < plan->rules.image_count; p++) {
        const struct trajd_augment *augment = &plan->rules.images[p].augment;
        plan->rules.outputs[sorted[rows + p].output_index].augment =
            augment->count ? augment : NULL;
    }
    return TRAJD_OK;
}

const char *trajd_window_describe_prepared(const struct trajd_window_plan *plan, uint32_t image,
                                           char text[TRAJD_PREPARATION_WORDS_SIZE])
{
    const struct trajd_plan_target *target =
        &plan->rules.targets[plan->rules.row_target_count + image];
    const struct trajd_index_stream *stream = trajd_plan_stream(plan, target);
    const uint32_t channels = plan->rules.images[image].preparation.channels;
    struct trajd_image_prepared prepared;

    if (!stream->preparation ||
        trajd_image_prepared_read(stream->preparation, channels, stream->dtype, &prepared, NULL))
        return NULL;
    trajd_image_describe(&prepared.preparation, text);
    if (prepared.jpeg_quality)
        snprintf(text + strlen(text), TRAJD_PREPARATION_WORDS_SIZE - strlen(text),
                 ", as JPEG of quality %u", prepared.jpeg_quality);
    return text;
}

/* Cameras of one step have the same `at`. */
void trajd_window_draw(const struct trajd_window_plan *plan, uint32_t image, uint64_t seed,
                       const struct trajd_window *window, uint32_t step,
                       struct trajd_augment_params *params)
{
    const uint32_t o = plan->rules.targets[plan->rules.row_target_count + image].output_index;
    const struct trajd_spec_output *output = &plan->spec->outputs[o];
    const struct trajd_plan_image *images = &plan->rules.images[image];
    const struct trajd_image_preparation *frame = &images->preparation;
    const enum trajd_image_draw per = output->image.draw_per;
    const bool shares_cameras = per == TRAJD_DRAW_STEP || per == TRAJD_DRAW_WINDOW,
               shares_steps = per == TRAJD_DRAW_CAMERA || per == TRAJD_DRAW_WINDOW;
    const struct trajd_augment_key key = {
        .seed = seed,
        .epoch = window->pass,
        .window = window->window_id,
        .output =
            shares_cameras ? 0 : trajd_fnv(TRAJD_FNV_BEGIN, output->name, strlen(output->name)),
        .group = shares_steps ? 0 : (uint32_t)(output->at.from + step)};

    memset(params, 0, sizeof *params);
    if (output->image.is_centred)
        trajd_augment_center(&images->augment, frame->height, frame->width, params);
    else
        trajd_augment_draw(&images->augment, &key, frame->height, frame->width, params);
}

void trajd_window_write_words(const struct trajd_window_plan *plan, uint32_t image,
                              struct trajd_image_words *words)
{
    const struct trajd_plan_target *target =
        &plan->rules.targets[plan->rules.row_target_count + image];
    const struct trajd_index_stream *stream = trajd_plan_stream(plan, target);

    trajd_image_write_words(
        &plan->spec->outputs[target->output_index].image, &plan->rules.images[image].preparation,
        &plan->rules.images[image].augment, &stream->image, stream->encoding, words);
}

uint64_t trajd_window_values_digest(const struct trajd_window_plan *plan)
{
    struct trajd_digest digest;
    struct trajd_image_words words;

    trajd_digest_init(&digest);
    for (uint32_t p = 0; p < plan->rules.image_count; p++) {
        const uint32_t o = plan->rules.targets[plan->rules.row_target_count + p].output_index;
        trajd_digest_add_text(&digest, plan->rules.outputs[o].name);
        trajd_window_write_words(plan, p, &words);
        for (uint32_t w = 0; w < words.count; w++) {
            trajd_digest_add_text(&digest, words.list[w].key);
            trajd_digest_add_text(&digest, words.list[w].text);
        }
    }
    return plan->rules.image_count ? trajd_digest_end(&digest) | 1 : 0;
}

bool trajd_window_spec_finishes(const struct trajd_window_spec *spec)
{
    for (uint32_t o = 0; o < spec->output_count; o++) {
        const struct trajd_image_spec *image = &spec->outputs[o].image;
        const enum trajd_dtype type = spec->outputs[o].dtype;
        if (image->is_given &&
            (image->has_norm || image->is_chw || (type != TRAJD_DTYPE_NONE && type != TRAJD_U8)))
            return true;
    }
    return false;
}

static bool has_work(const struct trajd_image_finish *finish)
{
    return finish->source == TRAJD_U8 &&
           (finish->type != TRAJD_U8 ||
            (finish->layout == TRAJD_IMAGE_CHW && finish->channels > 1));
}

static void leave_unfinished(struct trajd_window_plan *plan, uint32_t p)
{
    struct trajd_stream *stream = &plan->rules.targets[plan->rules.row_target_count + p].stream;
    struct trajd_plan_output *out =
        &plan->rules.outputs[plan->rules.targets[plan->rules.row_target_count + p].output_index];
    struct trajd_image_finish *written = &plan->rules.images[p].written;

    written->type = TRAJD_U8;
    written->layout = TRAJD_IMAGE_HWC;
    for (uint32_t c = 0; c < TRAJD_IMAGE_CHANNELS_MAX; c++) {
        written->scale[c] = 1;
        written->offset[c] = 0;
    }
    out->dtype = out->row_dtype = stream->output_type = TRAJD_U8;
    shape_output(out, written, out->rank);
    stream->step_stride_bytes = out->feature_count;
    stream->window_stride_bytes = out->feature_count * out->step_count;
}

void trajd_window_plan_leave_unfinished(struct trajd_window_plan *plan)
{
    for (uint32_t p = 0; p < plan->rules.image_count; p++)
        if (has_work(&plan->rules.images[p].finish))
            leave_unfinished(plan, p);
}
