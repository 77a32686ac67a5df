#include "kernels/image/image_frame.h"

#include <string.h>

static struct trajd_image_span span(int32_t corner, uint32_t inner, uint32_t size)
{
    struct trajd_image_span span = {.place = corner > 0 ? (uint32_t)corner : 0};
    uint32_t room;

    span.first = corner < 0 ? (uint32_t)-corner : 0;
    room = size - span.place;
    span.count = inner - span.first < room ? inner - span.first : room;
    return span;
}

struct trajd_image_span trajd_image_rows(const struct trajd_image_preparation *preparation)
{
    return span(preparation->top, preparation->inner_height, preparation->height);
}

struct trajd_image_span trajd_image_columns(const struct trajd_image_preparation *preparation)
{
    return span(preparation->left, preparation->inner_width, preparation->width);
}

void trajd_image_fill(const struct trajd_image_preparation *preparation, void *output,
                      uint64_t count)
{
    const struct trajd_image_preparation *p = preparation;
    const float number = (float)p->pad_value;
    const uint16_t whole = (uint16_t)p->pad_value;
    uint8_t *at = output;

    if (p->type == TRAJD_U8)
        memset(at, (int)p->pad_value, count);
    for (uint64_t i = 0; p->type == TRAJD_U16 && i < count; i++)
        memcpy(at + i * sizeof whole, &whole, sizeof whole);
    for (uint64_t i = 0; p->type == TRAJD_F32 && i < count; i++)
        memcpy(at + i * sizeof number, &number, sizeof number);
}

void trajd_image_pad(const struct trajd_image_preparation *preparation, void *output)
{
    const struct trajd_image_preparation *p = preparation;
    const struct trajd_image_span rows = trajd_image_rows(p), columns = trajd_image_columns(p);
    const uint32_t right = columns.place + columns.count, size = trajd_dtype_size(p->type);
    const uint64_t row = (uint64_t)p->width * p->channels;
    uint8_t *at = output;

    for (uint32_t y = 0; y < p->height; y++, at += row * size) {
        if (y < rows.place || y >= rows.place + rows.count) {
            trajd_image_fill(p, at, row);
            continue;
        }
        trajd_image_fill(p, at, (uint64_t)columns.place * p->channels);
        trajd_image_fill(p, at + (uint64_t)right * p->channels * size,
                         (uint64_t)(p->width - right) * p->channels);
    }
}

void trajd_image_place_unscaled(const struct trajd_image_preparation *preparation,
                                const void *source, void *output)
{
    const struct trajd_image_preparation *p = preparation;
    const struct trajd_image_span rows = trajd_image_rows(p), columns = trajd_image_columns(p);
    const uint64_t pixel = (uint64_t)p->channels * trajd_dtype_size(p->type);
    const uint64_t top = p->crop.top + rows.first, left = p->crop.left + columns.first;

    for (uint32_t r = 0; r < rows.count; r++)
        memcpy((uint8_t *)output + ((uint64_t)(rows.place + r) * p->width + columns.place) * pixel,
               (const uint8_t *)source + ((top + r) * p->source_width + left) * pixel,
               columns.count * pixel);
}

void trajd_image_pick(const struct trajd_image_preparation *preparation,
                      const struct trajd_image_taps *y, const struct trajd_image_taps *x,
                      const void *source, void *output)
{
    const struct trajd_image_preparation *p = preparation;
    const struct trajd_image_span rows = trajd_image_rows(p), columns = trajd_image_columns(p);
    const uint64_t pixel = (uint64_t)p->channels * trajd_dtype_size(p->type);

    for (uint32_t r = 0; r < rows.count; r++) {
        const uint8_t *from =
            (const uint8_t *)source +
            ((uint64_t)(p->crop.top + y->starts[r]) * p->source_width + p->crop.left) * pixel;
        uint8_t *to =
            (uint8_t *)output + ((uint64_t)(rows.place + r) * p->width + columns.place) * pixel;
        for (uint32_t c = 0; c < columns.count; c++)
            memcpy(to + c * pixel, from + x->starts[c] * pixel, pixel);
    }
}
