/* The fast way of flips, warps and boxes.
 *
 * **Math.** Places are whole numbers, in 2^-32 of a pixel, shared with the reference. So nearest
 * pixels equal the reference. Bilinear weights are cut to FRACTION bits: with both axes, a result is
 * within 0.13 levels of the reference before both round. */
#include "kernels/image/augment/augment_warp.h"

#include <string.h>

#include "kernels/clones.h"
#include "kernels/image/image_planes.h"

enum { FRACTION = 11, WHOLE = 1 << FRACTION, HALF = 1 << (2 * FRACTION - 1) };

typedef int32_t quad __attribute__((vector_size(16)));
typedef uint8_t bytes __attribute__((vector_size(16)));

/* Loads 4 bytes as whole numbers. */
TRAJD_INLINE quad load(const uint8_t *from)
{
    int32_t word;
    quad v;

    memcpy(&word, from, sizeof word);
    v = (quad){word, 0, 0, 0};
    return (quad)TRAJD_CHOOSE(bytes, v, 0, 4, 4, 4, 1, 4, 4, 4, 2, 4, 4, 4, 3, 4, 4, 4);
}

/* Stores the low bytes of 3 numbers, or of one. */
TRAJD_INLINE void store(uint8_t *to, quad v, uint32_t count)
{
    const quad low = (quad)TRAJD_CHOOSE(bytes, v, 0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    const int32_t word = low[0];

    memcpy(to, &word, count == 3 ? 3 : 1);
}

TRAJD_INLINE void flip_rows(const struct trajd_augment_view *view, uint32_t size, uint8_t *out)
{
    for (uint32_t y = 0; y < view->height; y++) {
        const uint8_t *from = view->pixels + y * view->row_bytes + (view->width - 1) * size;
        for (uint32_t x = 0; x < view->width; x++, from -= size, out += size)
            memcpy(out, from, size);
    }
}

TRAJD_INLINE void pick_pixels(const struct trajd_augment_view *view,
                              const struct trajd_augment_warp *warp, uint32_t size, uint8_t *out)
{
    for (uint32_t row = 0; row < view->height; row++) {
        int64_t y = warp->y + row * warp->y_down, x = warp->x + row * warp->x_down;
        for (uint32_t i = 0; i < view->width; i++, out += size) {
            const uint64_t from_y = (uint64_t)(y >> 32), from_x = (uint64_t)(x >> 32);
            if (from_y < view->height && from_x < view->width)
                memcpy(out, view->pixels + from_y * view->row_bytes + from_x * size, size);
            else
                memset(out, 0, size);
            y += warp->y_right;
            x += warp->x_right;
        }
    }
}

/* The number of bytes is a constant in each call, so that a pixel is copied by one move or two. */
void trajd_augment_flip(const struct trajd_augment_view *view, uint32_t pixel_bytes,
                        uint8_t *output)
{
    switch (pixel_bytes) {
    case 1:
        flip_rows(view, 1, output);
        break;
    case 2:
        flip_rows(view, 2, output);
        break;
    case 3:
        flip_rows(view, 3, output);
        break;
    default:
        flip_rows(view, 4, output);
    }
}

void trajd_augment_warp_nearest(const struct trajd_augment_view *view,
                                const struct trajd_augment_warp *warp, uint32_t pixel_bytes,
                                uint8_t *output)
{
    switch (pixel_bytes) {
    case 1:
        pick_pixels(view, warp, 1, output);
        break;
    case 2:
        pick_pixels(view, warp, 2, output);
        break;
    case 3:
        pick_pixels(view, warp, 3, output);
        break;
    default:
        pick_pixels(view, warp, 4, output);
    }
}

/* The weight of the pixel after a place. */
TRAJD_INLINE int32_t weight(int64_t place)
{
    return (int32_t)((uint32_t)place >> (32 - FRACTION));
}

/* Returns a pixel, or zeros outside. */
static const uint8_t *pixel_or_zero(const struct trajd_augment_view *view, int64_t y, int64_t x)
{
    static const uint8_t zeros[3] = {0};

    if (y < 0 || x < 0 || y >= view->height || x >= view->width)
        return zeros;
    return view->pixels + (uint64_t)y * view->row_bytes + (uint64_t)x * view->channels;
}

TRAJD_INLINE void mix(const uint8_t *const corners[4], int32_t y, int32_t x, uint32_t channels,
                      uint8_t *out)
{
    for (uint32_t c = 0; c < channels; c++) {
        const int32_t above = corners[0][c] * (WHOLE - x) + corners[1][c] * x;
        const int32_t below = corners[2][c] * (WHOLE - x) + corners[3][c] * x;
        out[c] = (uint8_t)((above * (WHOLE - y) + below * y + HALF) >> (2 * FRACTION));
    }
}

/* The same for 3 channels side by side, with the same sums. Reads a byte after each pixel. */
TRAJD_INLINE void mix_three(const uint8_t *corner, uint64_t row_bytes, int32_t y, int32_t x,
                            uint8_t *out)
{
    quad sum = {HALF, HALF, HALF, HALF};

    sum += load(corner) * ((WHOLE - y) * (WHOLE - x)) + load(corner + 3) * ((WHOLE - y) * x);
    corner += row_bytes;
    sum += load(corner) * (y * (WHOLE - x)) + load(corner + 3) * (y * x);
    store(out, sum >> (2 * FRACTION), 3);
}

/* A pixel of which not all neighbours are inside. */
TRAJD_INLINE void mix_edge(const struct trajd_augment_view *view, int64_t y, int64_t x,
                           uint8_t *out)
{
    const uint8_t *corners[4];

    for (int k = 0; k < 4; k++)
        corners[k] = pixel_or_zero(view, (y >> 32) + k / 2, (x >> 32) + k % 2);
    mix(corners, weight(y), weight(x), view->channels, out);
}

TRAJD_CLONES void trajd_augment_warp_linear(const struct trajd_augment_view *view,
                                            const struct trajd_augment_warp *warp, uint8_t *output)
{
    const int64_t half = INT64_C(1) << 31;

    for (uint32_t row = 0; row < view->height; row++) {
        int64_t y = warp->y + row * warp->y_down - half, x = warp->x + row * warp->x_down - half;
        for (uint32_t i = 0; i < view->width; i++, output += view->channels) {
            const int64_t top = y >> 32, left = x >> 32;
            if (view->channels == 3 && top >= 0 && left >= 0 && top + 1 < view->height &&
                left + 2 < view->width)
                mix_three(view->pixels + (uint64_t)top * view->row_bytes + left * 3,
                          view->row_bytes, weight(y), weight(x), output);
            else
                mix_edge(view, y, x, output);
            y += warp->y_right;
            x += warp->x_right;
        }
    }
}

static int64_t place(const struct trajd_augment_line *line, uint32_t output)
{
    const int64_t at = line->first + output * line->step;

    return at < line->last ? at : line->last;
}

TRAJD_CLONES static void mix_rows(int32_t *restrict out, const uint8_t *restrict above,
                                  const uint8_t *restrict below, int32_t y, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = above[i] * (WHOLE - y) + below[i] * y;
}

/* Reads 4 values a pixel. */
TRAJD_CLONES static void mix_columns(const int32_t *row, const struct trajd_augment_line *columns,
                                     uint32_t width, uint32_t channels, uint8_t *out)
{
    for (uint32_t i = 0; i < width; i++, out += channels) {
        const int64_t at = place(columns, i);
        const int32_t x = weight(at), *from = row + (at >> 32) * channels;
        quad left, right;
        memcpy(&left, from, sizeof left);
        memcpy(&right, at < columns->last ? from + channels : from, sizeof right);
        store(out, (left * (WHOLE - x) + right * x + HALF) >> (2 * FRACTION), channels);
    }
}

void trajd_augment_sample_box(const struct trajd_augment_view *view,
                              const struct trajd_augment_line *rows,
                              const struct trajd_augment_line *columns, uint32_t height,
                              uint32_t width, int32_t *row, uint8_t *output)
{
    for (uint32_t i = 0; i < height; i++) {
        const int64_t at = place(rows, i);
        const uint8_t *above = view->pixels + (uint64_t)(at >> 32) * view->row_bytes;
        const uint8_t *below = at < rows->last ? above + view->row_bytes : above;
        mix_rows(row, above, below, weight(at), (uint64_t)view->width * view->channels);
        mix_columns(row, columns, width, view->channels, output);
        output += (uint64_t)width * view->channels;
    }
}
