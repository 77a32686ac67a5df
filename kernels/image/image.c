/* Names, geometry and checks of preparations. */
#include "kernels/image/image.h"

#include <math.h>
#include <stddef.h>

static const char *const filter_names[] = {
    [TRAJD_IMAGE_PILLOW_BILINEAR] = "pillow-bilinear",
    [TRAJD_IMAGE_PILLOW_BOX] = "pillow-box",
    [TRAJD_IMAGE_PILLOW_BICUBIC] = "pillow-bicubic",
    [TRAJD_IMAGE_PILLOW_LANCZOS] = "pillow-lanczos",
    [TRAJD_IMAGE_TF_LANCZOS3] = "tf-lanczos3",
    [TRAJD_IMAGE_AREA] = "area",
    [TRAJD_IMAGE_LINEAR] = "linear",
    [TRAJD_IMAGE_NEAREST] = "nearest",
    [TRAJD_IMAGE_FILTER_COUNT] = NULL,
};

static const char *const fit_names[] = {
    [TRAJD_IMAGE_STRETCH] = "stretch",
    [TRAJD_IMAGE_PAD] = "pad",
    [TRAJD_IMAGE_PAD_TOPLEFT] = "pad_topleft",
    [TRAJD_IMAGE_COVER] = "cover",
    [TRAJD_IMAGE_FIT_COUNT] = NULL,
};

const char *const *trajd_image_filter_names(void)
{
    return filter_names;
}

const char *const *trajd_image_fit_names(void)
{
    return fit_names;
}

const char *trajd_image_filter_name(enum trajd_image_filter filter)
{
    return filter < TRAJD_IMAGE_FILTER_COUNT ? filter_names[filter] : NULL;
}

const char *trajd_image_fit_name(enum trajd_image_fit fit)
{
    return fit < TRAJD_IMAGE_FIT_COUNT ? fit_names[fit] : NULL;
}

static uint32_t at_least_one(double size)
{
    return size < 1 ? 1 : (uint32_t)size;
}

/* The whole frame fits: both sides are divided by the larger ratio and rounded down. */
static void place_inside(struct trajd_image_preparation *p)
{
    const double ratio = fmax((double)p->crop.width / p->width, (double)p->crop.height / p->height);

    p->inner_height = at_least_one(p->crop.height / ratio);
    p->inner_width = at_least_one(p->crop.width / ratio);
}

/* The frame fills the output: one side fits, the other one is rounded up. */
static void place_over(struct trajd_image_preparation *p)
{
    if ((double)p->crop.width / p->crop.height >= (double)p->width / p->height) {
        p->inner_height = p->height;
        p->inner_width = (uint32_t)ceil((double)p->inner_height / p->crop.height * p->crop.width);
    } else {
        p->inner_width = p->width;
        p->inner_height = (uint32_t)ceil((double)p->inner_width / p->crop.width * p->crop.height);
    }
    p->top = -(int32_t)((p->inner_height - p->height) / 2);
    p->left = -(int32_t)((p->inner_width - p->width) / 2);
}

void trajd_image_place(struct trajd_image_preparation *preparation, enum trajd_image_fit fit,
                       uint32_t height, uint32_t width)
{
    struct trajd_image_preparation *p = preparation;

    p->height = p->inner_height = height;
    p->width = p->inner_width = width;
    p->top = p->left = 0;
    if (fit == TRAJD_IMAGE_COVER)
        place_over(p);
    if (fit == TRAJD_IMAGE_PAD || fit == TRAJD_IMAGE_PAD_TOPLEFT) {
        const int32_t part = fit == TRAJD_IMAGE_PAD ? 2 : 1;
        place_inside(p);
        p->top = (int32_t)(p->height - p->inner_height) / part;
        p->left = (int32_t)(p->width - p->inner_width) / part;
    }
}

static bool is_side(uint32_t side)
{
    return side >= 1 && side <= TRAJD_IMAGE_SIDE_MAX;
}

static bool is_size(uint32_t height, uint32_t width)
{
    return is_side(height) && is_side(width) && height * width <= TRAJD_IMAGE_PIXELS_MAX;
}

static enum trajd_status refuse(struct trajd_error *error, const char *what)
{
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "image: %s", what);
}

enum trajd_status trajd_image_check(const struct trajd_image_preparation *preparation,
                                    struct trajd_error *error)
{
    const struct trajd_image_preparation *p = preparation;
    const bool is_depth = p->type == TRAJD_U16 || p->type == TRAJD_F32;

    if (!is_size(p->source_height, p->source_width))
        return refuse(error,
                      "the source must have sides of 1 to 8192 and at most 33 million pixels");
    if (!is_size(p->inner_height, p->inner_width) || !is_size(p->height, p->width))
        return refuse(error,
                      "the output must have sides of 1 to 8192 and at most 33 million pixels");
    if (p->type != TRAJD_U8 && !is_depth)
        return refuse(error, "the type must be u8, or u16 or f32 for depth");
    if (p->channels != 1 && (p->channels != 3 || is_depth))
        return refuse(error, "u8 images have 1 or 3 channels, depth has 1");
    if ((unsigned)p->filter >= TRAJD_IMAGE_FILTER_COUNT)
        return refuse(error, "unknown filter");
    if (is_depth && p->filter != TRAJD_IMAGE_NEAREST)
        return refuse(error, "depth takes filter nearest only: others mix near and far");
    if (!p->crop.height || !p->crop.width || p->crop.top >= p->source_height ||
        p->crop.left >= p->source_width || p->crop.height > p->source_height - p->crop.top ||
        p->crop.width > p->source_width - p->crop.left)
        return refuse(error, "the crop box must lie inside the source");
    if (p->filter == TRAJD_IMAGE_AREA &&
        (p->inner_height > p->crop.height || p->inner_width > p->crop.width))
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "image: filter area only reduces, and %ux%u would be enlarged to %ux%u: "
            "write `filter: linear`, or a smaller size in `resize`",
            p->crop.height, p->crop.width, p->inner_height, p->inner_width);
    if (p->top <= -(int32_t)p->inner_height || p->left <= -(int32_t)p->inner_width ||
        p->top >= (int32_t)p->height || p->left >= (int32_t)p->width)
        return refuse(error, "the resized frame must be in the output");
    if (p->type == TRAJD_U8 && !(p->pad_value >= 0 && p->pad_value <= 255))
        return refuse(error, "pad_value of u8 must be 0 to 255");
    if (p->type == TRAJD_U16 && !(p->pad_value >= 0 && p->pad_value <= 65535))
        return refuse(error, "pad_value of u16 must be 0 to 65535");
    return TRAJD_OK;
}

bool trajd_image_is_whole(const struct trajd_image_preparation *preparation)
{
    const struct trajd_image_preparation *p = preparation;
    const uint32_t height = p->source_height, width = p->source_width;

    return p->crop.height == height && p->crop.width == width && p->inner_height == height &&
           p->inner_width == width && p->height == height && p->width == width && !p->top &&
           !p->left;
}

uint64_t trajd_image_source_bytes(const struct trajd_image_preparation *preparation)
{
    return (uint64_t)preparation->source_height * preparation->source_width *
           preparation->channels * trajd_dtype_size(preparation->type);
}

uint64_t trajd_image_bytes(const struct trajd_image_preparation *preparation)
{
    return (uint64_t)preparation->height * preparation->width * preparation->channels *
           trajd_dtype_size(preparation->type);
}

bool trajd_image_is_unscaled(const struct trajd_image_preparation *preparation)
{
    return preparation->inner_height == preparation->crop.height &&
           preparation->inner_width == preparation->crop.width;
}

bool trajd_image_is_source(const struct trajd_image_preparation *preparation)
{
    const struct trajd_image_preparation *p = preparation;

    return p->crop.height == p->source_height && p->crop.width == p->source_width &&
           trajd_image_is_unscaled(p) && !p->top && !p->left && p->height == p->source_height &&
           p->width == p->source_width;
}
