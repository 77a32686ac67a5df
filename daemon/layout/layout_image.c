/* Reads the key `image` of a stream: how its frames are stored, and what their pixels mean. */
#include <string.h>

#include "daemon/layout/layout_internal.h"

static const char *const encoding_words[] = {"auto", "raw", "jpeg", "png", NULL};
/* the place of a word, plus 1, is its number */
static const char *const color_words[] = {"rgb", "bgr", "gray", "undecided", NULL};
static const char *const flip_words[] = {"none", "v", "h", "180", NULL};
static const char *const zero_words[] = {"keep", "mask", NULL};
static const char *const unit_words[] = {"mm", "m", NULL};

const char *trajd_picture_encoding_name(enum trajd_picture_encoding encoding)
{
    return encoding <= TRAJD_PICTURE_PNG ? encoding_words[encoding] : "?";
}

const char *trajd_picture_color_name(enum trajd_picture_color color)
{
    if (color == TRAJD_COLOR_DEPTH)
        return "depth";
    return color <= TRAJD_COLOR_UNDECIDED ? color_words[color - 1] : "?";
}

const char *trajd_picture_flip_name(enum trajd_picture_flip flip)
{
    return flip <= TRAJD_FLIP_180 ? flip_words[flip] : "?";
}

const char *trajd_depth_unit_name(enum trajd_depth_unit unit)
{
    if (unit == TRAJD_DEPTH_NONE)
        return "none";
    return unit <= TRAJD_DEPTH_M ? unit_words[unit - 1] : "?";
}

struct trajd_layout_image trajd_layout_image_prepared(const struct trajd_layout_image *image)
{
    struct trajd_layout_image words = *image;

    words.encoding = TRAJD_PICTURE_RAW;
    if (trajd_picture_channels(image->color) == 3)
        words.color = TRAJD_COLOR_RGB;
    words.flip = TRAJD_FLIP_NONE;
    words.height = words.width = 0;
    return words;
}

/* Reads a word, where the key is there. *number becomes its place in the list plus `first`. */
static enum trajd_status read_word(struct trajd_layout_parser *p,
                                   const struct trajd_yaml_node *image, const char *key,
                                   const char *const *words, int first, int *number)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(image, key);
    enum trajd_status status = TRAJD_OK;

    *number = 0;
    if (node)
        status = trajd_yaml_choice(p->yaml, node, words, number, p->error);
    if (node && !status)
        *number += first;
    return status;
}

/* Reads [HEIGHT, WIDTH]. */
static enum trajd_status read_size(struct trajd_layout_parser *p,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_layout_image *image)
{
    int64_t sides[2] = {0, 0};
    enum trajd_status status = TRAJD_OK;
    uint32_t i = 0;

    if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count != 2)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "is written [HEIGHT, WIDTH], like [480, 640]");
    for (const struct trajd_yaml_node *side = node->children; side && !status; side = side->next)
        status = trajd_yaml_int(p->yaml, side, 1, TRAJD_PICTURE_SIDE_MAX, &sides[i++], p->error);
    image->height = (uint32_t)sides[0];
    image->width = (uint32_t)sides[1];
    if (!status && sides[0] * sides[1] > TRAJD_PICTURE_PIXELS_MAX)
        status = trajd_yaml_error(p->yaml, node, p->error, "a picture has at most %u pixels",
                                  TRAJD_PICTURE_PIXELS_MAX);
    return status;
}

/* Checks that the keys make sense together. */
static enum trajd_status check_image(struct trajd_layout_parser *p,
                                     const struct trajd_yaml_node *node,
                                     const struct trajd_layout_stream *stream)
{
    const struct trajd_layout_image *image = &stream->image;

    if (!image->color && !image->unit)
        return trajd_yaml_error(
            p->yaml, node, p->error,
            "color: missing (rgb, bgr or gray, as a standard decoder gives it, or "
            "undecided: no file says it; for depth write unit: mm or m)");
    if (image->color && image->unit)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "color is for pictures and unit for depth: write one of them");
    if (image->unit && image->encoding == TRAJD_PICTURE_JPEG)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "encoding: JPEG cannot hold depth: write raw, png or auto");
    if (stream->kind != TRAJD_KIND_PREVIOUS && stream->kind != TRAJD_KIND_NEAREST)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "pictures are never blended: the kind must be previous or nearest");
    if (stream->column_end)
        return trajd_yaml_error(p->yaml, node, p->error, "pictures have no columns");
    return TRAJD_OK;
}

enum trajd_status trajd_layout_read_image(struct trajd_layout_parser *p,
                                          const struct trajd_yaml_node *node,
                                          struct trajd_layout_stream *stream)
{
    static const char *const keys[] = {"encoding", "color",       "flip", "size",
                                       "unit",     "zero_frames", NULL};
    struct trajd_layout_image *image = &stream->image;
    const struct trajd_yaml_node *size;
    int encoding = 0, color = 0, flip = 0, unit = 0, zero = 0;
    enum trajd_status status = trajd_yaml_check_keys(p->yaml, node, keys, p->error);

    image->is_present = true;
    if (!status)
        status = read_word(p, node, "encoding", encoding_words, 0, &encoding);
    if (!status)
        status = read_word(p, node, "color", color_words, 1, &color);
    if (!status)
        status = read_word(p, node, "flip", flip_words, 0, &flip);
    if (!status)
        status = read_word(p, node, "unit", unit_words, 1, &unit);
    if (!status)
        status = read_word(p, node, "zero_frames", zero_words, 0, &zero);
    image->masks_zero_frames = zero;
    image->encoding = (enum trajd_picture_encoding)encoding;
    image->color = (enum trajd_picture_color)color;
    image->flip = (enum trajd_picture_flip)flip;
    image->unit = (enum trajd_depth_unit)unit;
    size = status ? NULL : trajd_yaml_get(node, "size");
    if (size)
        status = read_size(p, size, image);
    return status ? status : check_image(p, node, stream);
}
