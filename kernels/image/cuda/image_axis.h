/* Reads the tables of taps of an axis, for the files that make the kernels' own tables of them. */
#ifndef TRAJD_KERNELS_IMAGE_CUDA_IMAGE_AXIS_H
#define TRAJD_KERNELS_IMAGE_CUDA_IMAGE_AXIS_H

#include <math.h>
#include <string.h>

#include "kernels/image/cuda/image_program.h"

static inline uint32_t at_most(uint32_t value, uint32_t most)
{
    return value < most ? value : most;
}

/* How a frame of tiles is cut into items of work, for `block_count` blocks in all. Items with fewer tiles
 * are more even, but cost `again` of a tile more: their first rows are read twice. */
static inline void trajd_image_axis_divide(uint64_t items_of_strip, uint32_t tile_count,
                                           uint32_t block_count, double again,
                                           uint32_t *strip_tiles, uint32_t *strips)
{
    double best = INFINITY;

    for (uint32_t tiles = 1; tiles <= tile_count; tiles++) {
        const uint32_t count = (tile_count - 1) / tiles + 1;
        const double turns = (double)((items_of_strip * count - 1) / block_count + 1);
        if (turns * (tiles + again) < best) {
            best = turns * (tiles + again);
            *strip_tiles = tiles;
            *strips = count;
        }
    }
}

/* The entry of an output pixel: start, length, weights. */
static inline const uint32_t *trajd_image_axis_entry(const uint32_t *tables,
                                                     const struct trajd_image_axis_table *axis,
                                                     uint32_t output)
{
    return tables + axis->first_word + (size_t)(output - axis->place) * (2 + axis->stride);
}

/* Padding has the source pixels of its neighbour. */
static inline uint32_t trajd_image_axis_clamp(uint32_t output,
                                              const struct trajd_image_axis_table *axis)
{
    return output < axis->place                  ? axis->place
           : output >= axis->place + axis->count ? axis->place + axis->count - 1
                                                 : output;
}

/* The source pixels of an output pixel. */
static inline uint32_t trajd_image_axis_start(const uint32_t *tables,
                                              const struct trajd_image_axis_table *axis,
                                              uint32_t output)
{
    return trajd_image_axis_entry(tables, axis, trajd_image_axis_clamp(output, axis))[0];
}

static inline uint32_t trajd_image_axis_end(const uint32_t *tables,
                                            const struct trajd_image_axis_table *axis,
                                            uint32_t output)
{
    const uint32_t *words =
        trajd_image_axis_entry(tables, axis, trajd_image_axis_clamp(output, axis));

    return words[0] + words[1];
}

/* Rounds to float16, for weights up to 32768: to nearest even. */
static inline uint16_t trajd_image_axis_half(float value)
{
    uint32_t bits;
    float size = fabsf(value);
    const uint16_t sign = value < 0 ? 0x8000 : 0;

    if (size < 0x1p-14F) /* below the normal numbers: multiples of 2^-24 */
        return (uint16_t)(sign | (uint16_t)rintf(size * 0x1p24F));
    memcpy(&bits, &size, sizeof bits);
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | ((bits - (112U << 23)) >> 13));
}

/* The weight of a source pixel in an output pixel: 0 in padding and outside of its taps. */
static inline float trajd_image_axis_weight(const uint32_t *tables,
                                            const struct trajd_image_axis_table *axis,
                                            uint32_t output, uint32_t pixel)
{
    const uint32_t *words;
    float weight;

    if (output < axis->place || output >= axis->place + axis->count)
        return 0;
    words = trajd_image_axis_entry(tables, axis, output);
    if (pixel < words[0] || pixel >= words[0] + words[1])
        return 0;
    memcpy(&weight, &words[2 + pixel - words[0]], sizeof weight);
    return weight;
}

#endif
