/* How frames are prepared and finished, and preparations as texts: in files, for people, and as
 * keys. */
#include "daemon/window/image/image_prepared.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/text/text.h"
#include "daemon/base/yaml.h"

bool trajd_image_is_bgr_for_cv2(enum trajd_image_encoding encoding, enum trajd_image_color color)
{
    const bool is_encoded = encoding == TRAJD_ENCODING_JPEG || encoding == TRAJD_ENCODING_PNG;

    return is_encoded != (color == TRAJD_COLOR_BGR);
}

enum trajd_status trajd_image_spec_prepare(const struct trajd_image_spec *spec,
                                           const struct trajd_image_source *source,
                                           struct trajd_image_preparation *preparation,
                                           struct trajd_error *error)
{
    struct trajd_image_box crop = {0, 0, source->height, source->width};

    if (spec->has_crop) {
        if (spec->crop.height > source->height || spec->crop.width > source->width)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "crop: %ux%u is larger than the frames, which have %ux%u",
                                   spec->crop.height, spec->crop.width, source->height,
                                   source->width);
        crop = spec->crop;
        if (spec->crop_is_centred) {
            crop.top = (source->height - crop.height) / 2;
            crop.left = (source->width - crop.width) / 2;
        }
    }
    memset(preparation, 0, sizeof *preparation); /* compared as bytes */
    preparation->source_height = source->height;
    preparation->source_width = source->width;
    preparation->channels = source->channels;
    preparation->type = source->type;
    preparation->crop = crop;
    preparation->filter = spec->is_given && spec->filter >= 0
                              ? (enum trajd_image_filter)spec->filter
                          : source->type == TRAJD_U8 ? TRAJD_IMAGE_PILLOW_BILINEAR
                                                     : TRAJD_IMAGE_NEAREST;
    preparation->pad_value = spec->pad_value;
    preparation->is_bgr =
        source->channels == 3 && (spec->channels == TRAJD_CHANNELS_BGR ||
                                  (spec->channels == TRAJD_CHANNELS_CV2 && source->is_bgr_for_cv2));
    trajd_image_place(preparation, spec->fit, spec->height ? spec->height : crop.height,
                      spec->width ? spec->width : crop.width);
    return trajd_image_check(preparation, error);
}

/* Sets the sizes that are shares of the prepared frame's. */
static void set_sizes(const struct trajd_image_spec *spec,
                      const struct trajd_image_preparation *preparation,
                      struct trajd_augment *augment)
{
    for (uint32_t i = 0; i < augment->count; i++) {
        if (!spec->shares[i])
            continue;
        augment->steps[i].height = (uint32_t)fmax(spec->shares[i] * preparation->height, 1);
        augment->steps[i].width = (uint32_t)fmax(spec->shares[i] * preparation->width, 1);
    }
}

enum trajd_status trajd_image_spec_finish(const struct trajd_image_spec *spec,
                                          const struct trajd_image_preparation *preparation,
                                          enum trajd_dtype type, struct trajd_augment *augment,
                                          struct trajd_image_finish *finish,
                                          struct trajd_error *error)
{
    const struct trajd_augment_frame frame = {preparation->height, preparation->width,
                                              preparation->channels, preparation->type};
    uint32_t height = frame.height, width = frame.width;
    enum trajd_status status = TRAJD_OK;

    *augment = spec->augment;
    set_sizes(spec, preparation, augment);
    if (augment->count)
        status = trajd_augment_check(augment, &frame, &height, &width, error);
    if (status)
        return status;
    *finish =
        (struct trajd_image_finish){.height = height,
                                    .width = width,
                                    .channels = preparation->channels,
                                    .source = preparation->type,
                                    .type = type,
                                    .layout = spec->is_chw ? TRAJD_IMAGE_CHW : TRAJD_IMAGE_HWC};
    for (uint32_t c = 0; c < TRAJD_IMAGE_CHANNELS_MAX; c++)
        finish->scale[c] = 1;
    if (spec->has_norm)
        status = trajd_image_finish_set_norm(finish, &spec->norm, error);
    return status ? status : trajd_image_finish_check(finish, error);
}

/* ---- what a preparation does ---- */

static bool resizes(const struct trajd_image_preparation *p)
{
    return p->inner_height != p->crop.height || p->inner_width != p->crop.width;
}

static bool crops(const struct trajd_image_preparation *p)
{
    return p->crop.height != p->source_height || p->crop.width != p->source_width;
}

/* Returns whether the resized frame leaves a part of the output free. */
static bool pads(const struct trajd_image_preparation *p)
{
    return p->top > 0 || p->left > 0 || p->top + (int64_t)p->inner_height < p->height ||
           p->left + (int64_t)p->inner_width < p->width;
}

static bool has_inner_size(const struct trajd_image_preparation *p)
{
    return p->inner_height == p->height && p->inner_width == p->width;
}

bool trajd_image_is_same(const struct trajd_image_preparation *a,
                         const struct trajd_image_preparation *b)
{
    struct trajd_image_preparation alike = *a;

    if (!resizes(a))
        alike.filter = b->filter;
    if (!pads(a))
        alike.pad_value = b->pad_value;
    return alike.source_height == b->source_height && alike.source_width == b->source_width &&
           alike.channels == b->channels && alike.type == b->type &&
           !memcmp(&alike.crop, &b->crop, sizeof alike.crop) && alike.filter == b->filter &&
           alike.inner_height == b->inner_height && alike.inner_width == b->inner_width &&
           alike.top == b->top && alike.left == b->left && alike.height == b->height &&
           alike.width == b->width && alike.pad_value == b->pad_value;
}

/* ---- the attribute ---- */

void trajd_image_prepared_write(const struct trajd_image_prepared *prepared,
                                char text[TRAJD_PREPARATION_TEXT_SIZE])
{
    const struct trajd_image_preparation *p = &prepared->preparation;
    char channels[16] = "", jpeg[24] = "";

    if (prepared->rank == 3)
        snprintf(channels, sizeof channels, ", %u", p->channels);
    if (prepared->jpeg_quality)
        snprintf(jpeg, sizeof jpeg, ", \"jpeg\": %u", prepared->jpeg_quality);
    snprintf(text, TRAJD_PREPARATION_TEXT_SIZE,
             "{\"source\": [%u, %u], \"crop\": [%u, %u, %u, %u], \"filter\": \"%s\", "
             "\"resize\": [%u, %u], \"at\": [%d, %d], \"shape\": [%u, %u%s], \"pad_value\": %.17g, "
             "\"cv2\": \"%s\"%s}",
             p->source_height, p->source_width, p->crop.top, p->crop.left, p->crop.height,
             p->crop.width, trajd_image_filter_name(p->filter), p->inner_height, p->inner_width,
             p->top, p->left, p->height, p->width, channels, p->pad_value,
             prepared->is_bgr_for_cv2 ? "bgr" : "rgb", jpeg);
}

/* The lists of the text. `shape` has one number more where the frames have an axis of channels. */
enum { SOURCE, CROP, RESIZE, AT, SHAPE, LIST_COUNT };
static const struct {
    const char *key;
    uint32_t count;
    int64_t least;
} lists[LIST_COUNT] = {{"source", 2, 1},
                       {"crop", 4, 0},
                       {"resize", 2, 1},
                       {"at", 2, -(int64_t)TRAJD_IMAGE_SIDE_MAX},
                       {"shape", 2, 1}};

static enum trajd_status read_list(const struct trajd_yaml *yaml,
                                   const struct trajd_yaml_node *root, int list, uint32_t *count,
                                   int64_t numbers[4], struct trajd_error *error)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(root, lists[list].key);
    enum trajd_status status = TRAJD_OK;

    if (!node)
        return trajd_yaml_error(yaml, root, error, "%s is missing", lists[list].key);
    *count = node->child_count;
    if (node->kind != TRAJD_YAML_SEQUENCE || *count < lists[list].count ||
        *count > lists[list].count + (list == SHAPE))
        return trajd_yaml_error(yaml, node, error, "expected a list of %u numbers",
                                lists[list].count);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status =
            trajd_yaml_int(yaml, child, lists[list].least, TRAJD_IMAGE_SIDE_MAX, numbers++, error);
    return status;
}

static enum trajd_status read_values(const struct trajd_yaml *yaml,
                                     const struct trajd_yaml_node *root,
                                     struct trajd_image_prepared *prepared,
                                     struct trajd_error *error)
{
    static const char *const orders[] = {"rgb", "bgr", NULL};
    const struct trajd_yaml_node *filter = trajd_yaml_get(root, "filter"),
                                 *pad_value = trajd_yaml_get(root, "pad_value"),
                                 *cv2 = trajd_yaml_get(root, "cv2"),
                                 *jpeg = trajd_yaml_get(root, "jpeg");
    int number = 0, order = 0;
    int64_t quality = 0;
    enum trajd_status status;

    if (!filter || !pad_value || !cv2)
        return trajd_yaml_error(yaml, root, error, "filter, pad_value or cv2 is missing");
    status = trajd_yaml_choice(yaml, filter, trajd_image_filter_names(), &number, error);
    if (!status)
        status =
            trajd_yaml_double(yaml, pad_value, 0, 65535, &prepared->preparation.pad_value, error);
    if (!status)
        status = trajd_yaml_choice(yaml, cv2, orders, &order, error);
    if (!status && jpeg)
        status = trajd_yaml_int(yaml, jpeg, 1, 100, &quality, error);
    prepared->preparation.filter = (enum trajd_image_filter)number;
    prepared->is_bgr_for_cv2 = order == 1;
    prepared->jpeg_quality = (uint32_t)quality;
    return status;
}

static enum trajd_status read_root(const struct trajd_yaml *yaml,
                                   struct trajd_image_prepared *prepared, struct trajd_error *error)
{
    static const char *const keys[] = {"source", "crop",      "resize", "at",   "shape",
                                       "filter", "pad_value", "cv2",    "jpeg", NULL};
    const struct trajd_yaml_node *root = trajd_yaml_root(yaml);
    struct trajd_image_preparation *p = &prepared->preparation;
    int64_t n[LIST_COUNT][4] = {{0}};
    enum trajd_status status = trajd_yaml_check_keys(yaml, root, keys, error);

    for (int list = 0; list < LIST_COUNT && !status; list++)
        status = read_list(yaml, root, list, &prepared->rank, n[list], error);
    if (!status)
        status = read_values(yaml, root, prepared, error);
    if (!status && (prepared->rank == 3 ? n[SHAPE][2] : 1) != p->channels)
        status = trajd_yaml_error(yaml, root, error, "the frames have %u channels", p->channels);
    p->source_height = (uint32_t)n[SOURCE][0];
    p->source_width = (uint32_t)n[SOURCE][1];
    p->crop = (struct trajd_image_box){(uint32_t)n[CROP][0], (uint32_t)n[CROP][1],
                                       (uint32_t)n[CROP][2], (uint32_t)n[CROP][3]};
    p->inner_height = (uint32_t)n[RESIZE][0];
    p->inner_width = (uint32_t)n[RESIZE][1];
    p->top = (int32_t)n[AT][0];
    p->left = (int32_t)n[AT][1];
    p->height = (uint32_t)n[SHAPE][0];
    p->width = (uint32_t)n[SHAPE][1];
    return status;
}

enum trajd_status trajd_image_prepared_read(const char *text, uint32_t channels,
                                            enum trajd_dtype type,
                                            struct trajd_image_prepared *prepared,
                                            struct trajd_error *error)
{
    struct trajd_yaml *yaml;
    enum trajd_status status = trajd_yaml_parse("preparation", text, strlen(text), &yaml, error);

    memset(prepared, 0, sizeof *prepared); /* compared as bytes */
    if (status)
        return status;
    prepared->preparation.channels = channels;
    prepared->preparation.type = type;
    status = read_root(yaml, prepared, error);
    trajd_yaml_destroy(&yaml);
    return status ? status : trajd_image_check(&prepared->preparation, error);
}

/* ---- words ---- */

const char *trajd_image_describe(const struct trajd_image_preparation *p,
                                 char text[TRAJD_PREPARATION_WORDS_SIZE])
{
    struct trajd_text out = {text, TRAJD_PREPARATION_WORDS_SIZE, 0};

    trajd_text_add(&out, "%ux%u", p->source_height, p->source_width);
    if (trajd_image_is_whole(p))
        trajd_text_add(&out, " as they are");
    if (crops(p))
        trajd_text_add(&out, ", crop %ux%u at (%u, %u)", p->crop.height, p->crop.width, p->crop.top,
                       p->crop.left);
    if (resizes(p))
        trajd_text_add(&out, ", resized to %ux%u by %s", p->inner_height, p->inner_width,
                       trajd_image_filter_name(p->filter));
    if (pads(p))
        trajd_text_add(&out, ", at (%d, %d) of %ux%u filled with %g", p->top, p->left, p->height,
                       p->width, p->pad_value);
    else if (!has_inner_size(p))
        trajd_text_add(&out, ", cut to %ux%u", p->height, p->width);
    return text;
}

/* ---- keys ---- */

/* Finds how the frame got into the output. One that no `fit` gives becomes stretch. */
static enum trajd_image_fit find_fit(const struct trajd_image_preparation *p)
{
    for (int f = 0; f < TRAJD_IMAGE_FIT_COUNT; f++) {
        struct trajd_image_preparation placed = *p;
        trajd_image_place(&placed, (enum trajd_image_fit)f, p->height, p->width);
        if (placed.inner_height == p->inner_height && placed.inner_width == p->inner_width &&
            placed.top == p->top && placed.left == p->left)
            return (enum trajd_image_fit)f;
    }
    return TRAJD_IMAGE_STRETCH;
}

const char *trajd_image_write_keys(const struct trajd_image_preparation *p,
                                   char text[TRAJD_PREPARATION_WORDS_SIZE])
{
    const enum trajd_image_fit fit = find_fit(p);
    const bool has_size = resizes(p) || !has_inner_size(p);
    struct trajd_text out = {text, TRAJD_PREPARATION_WORDS_SIZE, 0};

    trajd_text_add(&out, "{");
    if (crops(p))
        trajd_text_add(&out, "crop: {top: %u, left: %u, height: %u, width: %u}%s", p->crop.top,
                       p->crop.left, p->crop.height, p->crop.width, has_size ? ", " : "");
    if (has_size)
        trajd_text_add(&out, "resize: [%u, %u]", p->height, p->width);
    if (has_size && fit != TRAJD_IMAGE_STRETCH)
        trajd_text_add(&out, ", fit: %s", trajd_image_fit_name(fit));
    if (resizes(p))
        trajd_text_add(&out, ", filter: %s", trajd_image_filter_name(p->filter));
    if (pads(p) && p->pad_value != 0)
        trajd_text_add(&out, ", pad_value: %.9g", p->pad_value);
    trajd_text_add(&out, "}");
    return text;
}
