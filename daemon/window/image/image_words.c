/* Writes the keys that decide the values of an image output, and their digest. */
#include "daemon/window/image/image_words.h"

#include <stdarg.h>
#include <stdio.h>

__attribute__((format(printf, 3, 4))) static void add(struct trajd_image_words *words,
                                                      const char *key, const char *format, ...)
{
    struct trajd_image_word *word = &words->list[words->count++];
    va_list arguments;

    snprintf(word->key, sizeof word->key, "%s", key);
    va_start(arguments, format);
    vsnprintf(word->text, sizeof word->text, format, arguments);
    va_end(arguments);
}

/* Adds where the values come from: the decoder, and what the layout says about its pixels. */
static void add_source(const struct trajd_layout_image *image, enum trajd_image_encoding encoding,
                       struct trajd_image_words *words)
{
    add(words, "decoder", "%s",
        encoding == TRAJD_ENCODING_JPEG    ? "jpeg, exact"
        : encoding == TRAJD_ENCODING_PNG   ? "png"
        : encoding == TRAJD_ENCODING_VIDEO ? "video"
                                           : "none");
    if (image->is_present) {
        add(words, "color", "%s", trajd_image_color_name(image->color));
        add(words, "flip", "%s", trajd_image_flip_name(image->flip));
        add(words, "unit", "%s", trajd_depth_unit_name(image->unit));
        add(words, "zero_frames", "%s", image->masks_zero_frames ? "mask" : "keep");
    }
}

static void add_preparation(const struct trajd_image_spec *spec,
                            const struct trajd_image_preparation *preparation,
                            struct trajd_image_words *words)
{
    const struct trajd_image_box *crop = &preparation->crop;

    if (preparation->channels == 3)
        add(words, "channels", "%s", preparation->is_bgr ? "bgr" : "rgb");
    if (crop->height == preparation->source_height && crop->width == preparation->source_width)
        add(words, "crop", "none");
    else
        add(words, "crop", "%ux%u at %u, %u", crop->height, crop->width, crop->top, crop->left);
    if (spec->height) {
        add(words, "resize", "%ux%u", preparation->height, preparation->width);
        add(words, "fit", "%s", trajd_image_fit_name(spec->fit));
        add(words, "filter", "%s", trajd_image_filter_name(preparation->filter));
    } else {
        add(words, "resize", "none");
    }
    add(words, "pad_value", "%.9g", preparation->pad_value);
    add(words, "layout", "%s", spec->is_chw ? "chw" : "hwc");
}

/* Every field of a step counts, also those that its kind does not read. */
static void add_step(const struct trajd_augment_step *step, uint32_t number,
                     struct trajd_image_words *words)
{
    char key[16];

    snprintf(key, sizeof key, "augment %u", number % 100);
    add(words, key,
        "%s %ux%u%s, p %.9g%s, affine %.9g, %.9g, %.9g, scale %.9g to %.9g, ratio %.9g to %.9g, "
        "box "
        "%u, %s, factor %.9g to %.9g",
        trajd_augment_kind_name(step->kind), step->height, step->width,
        step->excludes_last ? " without the last offset" : "", step->probability,
        step->follows ? " with the one before" : "", step->degrees, step->translate_y,
        step->translate_x, step->scale.low, step->scale.high, step->ratio.low, step->ratio.high,
        step->box, trajd_image_filter_name(step->filter), step->factor.low, step->factor.high);
}

void trajd_image_write_words(const struct trajd_image_spec *spec,
                             const struct trajd_image_preparation *preparation,
                             const struct trajd_augment *augment,
                             const struct trajd_layout_image *image,
                             enum trajd_image_encoding encoding, struct trajd_image_words *words)
{
    static const char *const draws[] = {"frame", "step", "camera", "window"};

    words->count = 0;
    add_source(image, encoding, words);
    add_preparation(spec, preparation, words);
    for (uint32_t i = 0; i < augment->count; i++)
        add_step(&augment->steps[i], i + 1, words);
    if (!augment->count)
        return;
    add(words, "draw", "%s", spec->is_centred ? "center" : "random");
    add(words, "draw_per", "%s", draws[spec->draw_per]);
    add(words, "rounding", "%s",
        augment->rounding == TRAJD_AUGMENT_ROUND_EACH  ? "each"
        : augment->rounding == TRAJD_AUGMENT_ROUND_END ? "end"
                                                       : "once");
}

static void add_numbers(const char *name, const double *numbers, uint32_t count,
                        struct trajd_text *text)
{
    for (uint32_t c = 0; c < count; c++)
        trajd_text_add(text, "%s%.9g", c ? ", " : name, numbers[c]);
}

void trajd_image_write_norm(const struct trajd_image_spec *spec, struct trajd_text *text)
{
    const struct trajd_image_norm *norm = &spec->norm;
    const char *name = trajd_image_norm_name(norm);

    if (name) {
        trajd_text_add(text, "%s", name);
        return;
    }
    add_numbers("mean ", norm->mean, norm->count, text);
    add_numbers(", std ", norm->std, norm->count, text);
}
