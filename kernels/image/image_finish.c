/* Norms, checks, and the fast way of finishing.
 *
 * **Order.** Blocks of BLOCK pixels: widened to float32, scaled, and taken apart into planes in one
 * pass. float32 in planes goes to the output at once; narrower floats stop in a buffer on the
 * stack, which stays in the first cache.
 *
 * **Threads.** None. The vectors are the compiler's: loops of a constant number of channels. */
#include "kernels/image/image_finish.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels/element_convert.h"
#include "kernels/image/image.h"
#include "kernels/image/image_frame.h"
#include "kernels/image/image_planes.h"
#include "kernels/clones.h"
#include "proto/array_len.h"

enum { BLOCK = 480, CHANNELS = TRAJD_IMAGE_CHANNELS_MAX };

#define IMAGENET_MEAN                                                                              \
    {                                                                                              \
        0.485, 0.456, 0.406                                                                        \
    }
#define IMAGENET_STD                                                                               \
    {                                                                                              \
        0.229, 0.224, 0.225                                                                        \
    }

static const struct {
    const char *name;
    struct trajd_image_norm norm;
} norms[] = {
    {"none", {TRAJD_IMAGE_RAW, 1, {0}, {1}}},
    {"unit", {TRAJD_IMAGE_UNIT, 1, {0}, {1}}},
    {"signed", {TRAJD_IMAGE_SIGNED, 1, {0}, {1}}},
    {"imagenet", {TRAJD_IMAGE_UNIT, 3, IMAGENET_MEAN, IMAGENET_STD}},
    {"signed-imagenet", {TRAJD_IMAGE_SIGNED, 3, IMAGENET_MEAN, IMAGENET_STD}},
};

const struct trajd_image_norm *trajd_image_norm_named(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(norms); i++)
        if (!strcmp(norms[i].name, name))
            return &norms[i].norm;
    return NULL;
}

static bool is_same(const struct trajd_image_norm *a, const struct trajd_image_norm *b)
{
    bool same = a->range == b->range && a->count == b->count;

    for (uint32_t c = 0; same && c < a->count; c++)
        same = a->mean[c] == b->mean[c] && a->std[c] == b->std[c];
    return same;
}

const char *trajd_image_norm_name(const struct trajd_image_norm *norm)
{
    for (size_t i = 0; i < ARRAY_LEN(norms); i++)
        if (is_same(&norms[i].norm, norm))
            return norms[i].name;
    return NULL;
}

static enum trajd_status refuse(struct trajd_error *error, const char *what)
{
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "image: %s", what);
}

enum trajd_status trajd_image_finish_set_norm(struct trajd_image_finish *finish,
                                              const struct trajd_image_norm *norm,
                                              struct trajd_error *error)
{
    static const double factors[] = {1, 1 / 255.0, 1 / 127.5}, shifts[] = {0, 0, -1};

    if (finish->channels < 1 || finish->channels > CHANNELS)
        return refuse(error, "a norm needs 1 to 4 channels");
    if (norm->count != 1 && norm->count != finish->channels)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "image: the norm has means of %u channels, the image has %u",
                               norm->count, finish->channels);
    for (uint32_t c = 0; c < finish->channels; c++) {
        const uint32_t i = norm->count == 1 ? 0 : c;
        const double scale = factors[norm->range] / norm->std[i];
        const double offset = (shifts[norm->range] - norm->mean[i]) / norm->std[i];
        if (!(norm->std[i] > 0) || !isfinite((float)scale) || !isfinite((float)offset))
            return refuse(error, "the std of a norm must be above 0, and mean / std a float32");
        finish->scale[c] = (float)scale;
        finish->offset[c] = (float)offset;
    }
    return TRAJD_OK;
}

static bool is_identity(const struct trajd_image_finish *f)
{
    for (uint32_t c = 0; c < f->channels; c++)
        if (f->scale[c] != 1 || f->offset[c] != 0)
            return false;
    return true;
}

enum trajd_status trajd_image_finish_check(const struct trajd_image_finish *finish,
                                           struct trajd_error *error)
{
    const struct trajd_image_finish *f = finish;
    const bool is_depth = f->source == TRAJD_U16 || f->source == TRAJD_F32;
    const bool is_narrow = f->type == TRAJD_F16 || f->type == TRAJD_BF16;

    if (!f->height || !f->width || f->height > TRAJD_IMAGE_SIDE_MAX ||
        f->width > TRAJD_IMAGE_SIDE_MAX)
        return refuse(error, "sides must be 1 to 8192");
    if (f->source != TRAJD_U8 && !is_depth)
        return refuse(error, "the type must be u8, or u16 or f32 for depth");
    if (f->channels < 1 || f->channels > (is_depth ? 1 : CHANNELS))
        return refuse(error, "u8 images have 1 to 4 channels, depth has 1");
    if ((unsigned)f->layout >= TRAJD_IMAGE_LAYOUT_COUNT)
        return refuse(error, "the layout must be hwc or chw");
    if (is_depth && f->type != f->source && f->type != TRAJD_F32)
        return refuse(error, "depth keeps its type or becomes float32");
    if (!is_depth && f->type != TRAJD_U8 && f->type != TRAJD_F32 && !is_narrow)
        return refuse(error, "images become uint8, float16, bfloat16 or float32");
    if ((is_depth || f->type == TRAJD_U8) && !is_identity(f))
        return refuse(error, is_depth
                                 ? "depth takes no norm"
                                 : "a norm needs a type of floats: for uint8, write norm: none");
    for (uint32_t c = 0; c < f->channels; c++)
        if (!isfinite(f->scale[c]) || !isfinite(f->offset[c]))
            return refuse(error, "scale and offset must be finite");
    return TRAJD_OK;
}

uint64_t trajd_image_finish_bytes(const struct trajd_image_finish *finish)
{
    return (uint64_t)finish->height * finish->width * finish->channels *
           trajd_dtype_size(finish->type);
}

TRAJD_INLINE uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Rounds to float16. 0.5 has the same last place as the numbers below the smallest normal one, so
 * adding it rounds them. */
TRAJD_INLINE uint16_t narrow_f16(float value)
{
    const uint32_t bits = bits_of(value) & 0x7fffffff, sign = bits_of(value) >> 16 & 0x8000;
    const uint32_t small = bits_of(fabsf(value) + 0.5F) - bits_of(0.5F);
    const uint32_t normal = (bits + 0xfff + (bits >> 13 & 1) - (112U << 23)) >> 13;
    const uint32_t finite = bits < 113U << 23 ? small : normal;

    return (uint16_t)(sign | (finite < 0x7c00 ? finite : 0x7c00));
}

TRAJD_INLINE uint16_t narrow_bf16(float value)
{
    const uint32_t bits = bits_of(value);

    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

TRAJD_CLONES static void narrow(uint16_t *restrict out, const float *restrict in, uint32_t count,
                                enum trajd_dtype type)
{
    if (type == TRAJD_F16)
        for (uint32_t i = 0; i < count; i++)
            out[i] = narrow_f16(in[i]);
    else
        for (uint32_t i = 0; i < count; i++)
            out[i] = narrow_bf16(in[i]);
}

/* Scales a block of one channel. */
TRAJD_CLONES static void scale_1(float *restrict out, const uint8_t *restrict in, uint32_t count,
                                 float scale, float offset)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = (float)in[i] * scale + offset;
}

/* Scales elements side by side. The scales repeat: `factors` and `shifts` have `count` of them. */
TRAJD_CLONES static void scale_all(float *restrict out, const uint8_t *restrict in, uint32_t count,
                                   const float *restrict factors, const float *restrict shifts)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = (float)in[i] * factors[i] + shifts[i];
}

/* Scales a block of pixels into planes, which begin at planes + channel * step. */
static void scale_planes(const struct trajd_image_finish *f, const uint8_t *in, uint32_t count,
                         float *planes, uint64_t step)
{
    if (f->channels == 1)
        scale_1(planes, in, count, f->scale[0], f->offset[0]);
    else if (f->channels == 3)
        trajd_image_take_apart(planes, planes + step, planes + 2 * step, in, count, f->scale,
                               f->offset);
    else
        for (uint32_t c = 0; c < f->channels; c++)
            for (uint32_t i = 0; i < count; i++)
                planes[c * step + i] = (float)in[i * f->channels + c] * f->scale[c] + f->offset[c];
}

static void finish_planes(const struct trajd_image_finish *f, const uint8_t *in, void *output)
{
    const uint64_t pixels = (uint64_t)f->height * f->width;
    float planes[CHANNELS * BLOCK];

    for (uint64_t i = 0; i < pixels; i += BLOCK) {
        const uint32_t count = pixels - i < BLOCK ? (uint32_t)(pixels - i) : BLOCK;
        if (f->type == TRAJD_F32) {
            scale_planes(f, in + i * f->channels, count, (float *)output + i, pixels);
            continue;
        }
        scale_planes(f, in + i * f->channels, count, planes, BLOCK);
        for (uint32_t c = 0; c < f->channels; c++)
            narrow((uint16_t *)output + c * pixels + i, planes + (size_t)c * BLOCK, count, f->type);
    }
}

static void finish_pixels(const struct trajd_image_finish *f, const uint8_t *in, void *output)
{
    const uint64_t elements = (uint64_t)f->height * f->width * f->channels;
    const uint32_t room = BLOCK; /* a multiple of all numbers of channels */
    float factors[BLOCK], shifts[BLOCK], values[BLOCK];

    for (uint32_t i = 0; i < room; i++) {
        factors[i] = f->scale[i % f->channels];
        shifts[i] = f->offset[i % f->channels];
    }
    for (uint64_t i = 0; i < elements; i += room) {
        const uint32_t count = elements - i < room ? (uint32_t)(elements - i) : room;
        float *to = f->type == TRAJD_F32 ? (float *)output + i : values;
        scale_all(to, in + i, count, factors, shifts);
        if (f->type != TRAJD_F32)
            narrow((uint16_t *)output + i, values, count, f->type);
    }
}

TRAJD_CLONES static void split_3(uint8_t *restrict a, uint8_t *restrict b, uint8_t *restrict c,
                                 const uint8_t *restrict in, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        a[i] = in[3 * i];
        b[i] = in[3 * i + 1];
        c[i] = in[3 * i + 2];
    }
}

static void split(const struct trajd_image_finish *f, const uint8_t *in, uint8_t *out)
{
    const uint64_t pixels = (uint64_t)f->height * f->width;

    if (f->channels == 3)
        split_3(out, out + pixels, out + 2 * pixels, in, pixels);
    else
        for (uint32_t c = 0; c < f->channels; c++)
            for (uint64_t i = 0; i < pixels; i++)
                out[c * pixels + i] = in[i * f->channels + c];
}

static void widen_depth(uint64_t count, const uint16_t *in, float *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = (float)in[i];
}

bool trajd_image_finish_is_copy(const struct trajd_image_finish *finish)
{
    return finish->source == finish->type &&
           (finish->layout == TRAJD_IMAGE_HWC || finish->channels == 1);
}

void trajd_image_finish_frame(const struct trajd_image_finish *finish, const void *frame,
                              void *output)
{
    const struct trajd_image_finish *f = finish;
    const bool is_split = f->layout == TRAJD_IMAGE_CHW && f->channels > 1;

    if (f->source == TRAJD_U16 && f->type == TRAJD_F32)
        widen_depth((uint64_t)f->height * f->width, frame, output);
    else if (trajd_image_finish_is_copy(f))
        trajd_image_copy(output, frame, trajd_image_finish_bytes(f));
    else if (f->type == TRAJD_U8)
        split(f, frame, output);
    else if (is_split || f->channels == 1)
        finish_planes(f, frame, output);
    else
        finish_pixels(f, frame, output);
}
