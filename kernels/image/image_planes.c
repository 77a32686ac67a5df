/* Planes of pixels of three channels, 8 pixels at a time.
 *
 * **Order.** 24 bytes in a vector of 32: the second half gets the bytes from the 12th on, so that
 * each half has 4 pixels. One shuffle of bytes then puts a channel into the low bytes of 8 words,
 * which become floats. The way back is the reverse. A vector reads or writes 8 bytes beyond its 8
 * pixels, so the last pixels go one by one. (The compiler's own code is 6 times as slow: it does not
 * make vectors of such loops.) */
#include "kernels/image/image_planes.h"

#include <string.h>

#include "kernels/clones.h"

enum { STEP = 8, ROOM = 11 /* pixels that a vector may touch */ };

typedef uint8_t bytes __attribute__((vector_size(32), may_alias));
typedef trajd_words words;
typedef trajd_floats floats;

#define FOUR(i) i, i, i, i
#define CHANNEL(c)                                                                                 \
    FOUR(c), FOUR((c) + 3), FOUR((c) + 6), FOUR((c) + 9), FOUR((c) + 16), FOUR((c) + 19),          \
        FOUR((c) + 22), FOUR((c) + 25)

TRAJD_CLONES void trajd_image_take_apart(float *restrict a, float *restrict b, float *restrict c,
                                         const uint8_t *restrict pixels, uint32_t count,
                                         const float *scale, const float *offset)
{
    const float x = scale[0], y = scale[1], z = scale[2];
    const float k = offset[0], l = offset[1], m = offset[2];
    uint32_t i = 0;

    for (; i + ROOM <= count; i += STEP) {
        words v;
        floats r, g, d;
        memcpy(&v, pixels + 3 * (uint64_t)i, sizeof v);
        v = TRAJD_CHOOSE(words, v, 0, 1, 2, 3, 3, 4, 5, 6);
        r = __builtin_convertvector((words)TRAJD_CHOOSE(bytes, v, CHANNEL(0)) & 255, floats) * x +
            k;
        g = __builtin_convertvector((words)TRAJD_CHOOSE(bytes, v, CHANNEL(1)) & 255, floats) * y +
            l;
        d = __builtin_convertvector((words)TRAJD_CHOOSE(bytes, v, CHANNEL(2)) & 255, floats) * z +
            m;
        memcpy(a + i, &r, sizeof r);
        memcpy(b + i, &g, sizeof g);
        memcpy(c + i, &d, sizeof d);
    }
    for (; i < count; i++) {
        a[i] = (float)pixels[3 * (uint64_t)i] * x + k;
        b[i] = (float)pixels[3 * (uint64_t)i + 1] * y + l;
        c[i] = (float)pixels[3 * (uint64_t)i + 2] * z + m;
    }
}

TRAJD_CLONES void trajd_image_put_together(uint8_t *restrict pixels, const float *restrict a,
                                           const float *restrict b, const float *restrict c,
                                           uint32_t count)
{
    uint32_t i = 0;

    for (; i + ROOM <= count; i += STEP) {
        floats r, g, d;
        words v;
        memcpy(&r, a + i, sizeof r);
        memcpy(&g, b + i, sizeof g);
        memcpy(&d, c + i, sizeof d);
        v = __builtin_convertvector(r + 0.5F, words) |
            __builtin_convertvector(g + 0.5F, words) << 8 |
            __builtin_convertvector(d + 0.5F, words) << 16;
        v = (words)TRAJD_CHOOSE(bytes, v, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, FOUR(0), 16, 17,
                                18, 20, 21, 22, 24, 25, 26, 28, 29, 30, FOUR(16));
        v = TRAJD_CHOOSE(words, v, 0, 1, 2, 4, 5, 6, 0, 0);
        memcpy(pixels + 3 * (uint64_t)i, &v, sizeof v);
    }
    for (; i < count; i++) {
        pixels[3 * (uint64_t)i] = (uint8_t)(int32_t)(a[i] + 0.5F);
        pixels[3 * (uint64_t)i + 1] = (uint8_t)(int32_t)(b[i] + 0.5F);
        pixels[3 * (uint64_t)i + 2] = (uint8_t)(int32_t)(c[i] + 0.5F);
    }
}
