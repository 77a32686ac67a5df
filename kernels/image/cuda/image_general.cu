/* The kernels for any program: one thread an output pixel, one launch a pass.
 *
 * Math      image.h, augment.h, image_finish.h. A thread walks back from its output pixel through
 *           the geometry of the pass to the source pixels.
 * Shapes    any size, 1 or 3 channels of u8, depth of u16 and f32.
 * Requires  nothing but aligned elements.
 * Moves     the source bytes of each output pixel, mostly from the first cache, and the output once.
 *           Between passes u8 frames, of at most 64 MiB for a chunk of frames.
 * Threads   a block has 256 pixels of one frame.
 * Numerics  float32 as the CPU, in the same order, built without fused multiply-add. Sums of a resize
 *           are float32. Means are sums of whole numbers of 2^-16 levels, so they do not depend on the
 *           order of the blocks.
 * Chosen    for what the other kernels do not serve. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/image/cuda/image_launch.h"

#define THREADS 256

struct general {
    struct trajd_image_program program;
    struct trajd_image_launch launch;
};

enum source { U8_1, U8_3, U16_1, F32_1 };

/* Levels of u8, or the bits of a depth. */
struct pixel {
    uint32_t v[3];
};

/* Where a pixel of a frame is, or why there is none. */
enum where { INSIDE, ZERO, PADDING };

struct place {
    int32_t y, x;
    enum where where;
    uint32_t pad;
};

struct frame {
    const void *pixels;
    const union trajd_image_value *values;
    const uint32_t *tables, *own_tables;
    const struct trajd_image_step *steps;
    uint32_t first;     /* step of the pass */
    uint32_t row_width; /* of `pixels` */
};

__device__ __forceinline__ const uint32_t *table_entry(const frame &f,
                                                       const struct trajd_image_step &step,
                                                       const struct trajd_image_axis_table &axis,
                                                       uint32_t output)
{
    return (step.has_own_tables ? f.own_tables : f.tables) + axis.first_word +
           (output - axis.place) * (2 + axis.stride);
}

__device__ __forceinline__ bool is_padding(const struct trajd_image_axis_table &axis,
                                           uint32_t output)
{
    return output < axis.place || output - axis.place >= axis.count;
}

/* Moves a place of a step's result to its source. */
__device__ __forceinline__ void move_back(const frame &f, const struct trajd_image_step &step,
                                          place &at)
{
    const union trajd_image_value &value = f.values[step.value];

    switch (step.op) {
    case TRAJD_IMAGE_OP_CROP:
        at.y += value.box[0];
        at.x += value.box[1];
        break;
    case TRAJD_IMAGE_OP_FLIP:
        if (value.box[0])
            at.x = (int32_t)step.width - 1 - at.x;
        break;
    case TRAJD_IMAGE_OP_WARP_NEAREST: {
        const int64_t *w = value.warp;
        const int64_t y = (w[0] + at.y * w[2] + at.x * w[4]) >> 32;
        const int64_t x = (w[1] + at.y * w[3] + at.x * w[5]) >> 32;
        if (y < 0 || x < 0 || y >= step.from_height || x >= step.from_width)
            at.where = ZERO;
        at.y = (int32_t)y;
        at.x = (int32_t)x;
        break;
    }
    default: /* PICK */
        if (is_padding(step.y, at.y) || is_padding(step.x, at.x)) {
            at.where = PADDING;
            at.pad = step.pad;
            break;
        }
        at.y = (int32_t)table_entry(f, step, step.y, at.y)[0];
        at.x = (int32_t)table_entry(f, step, step.x, at.x)[0];
    }
}

template <source S> __device__ __forceinline__ pixel load(const void *pixels, uint64_t at)
{
    pixel p = {};

    if (S == U8_1)
        p.v[0] = ((const uint8_t *)pixels)[at];
    if (S == U8_3)
        for (int c = 0; c < 3; c++)
            p.v[c] = ((const uint8_t *)pixels)[at * 3 + c];
    if (S == U16_1)
        p.v[0] = ((const uint16_t *)pixels)[at];
    if (S == F32_1)
        p.v[0] = ((const uint32_t *)pixels)[at];
    return p;
}

/* The pixel that a place before step `end` comes from: steps [first, end) only move pixels. */
template <source S> __device__ pixel fetch(const frame &f, uint32_t end, place at)
{
    for (uint32_t i = end; i > f.first && at.where == INSIDE; i--)
        move_back(f, f.steps[i - 1], at);
    if (at.where != INSIDE) {
        const uint32_t value = at.where == PADDING ? at.pad : 0;
        return {{value, value, value}};
    }
    return load<S>(f.pixels, (uint64_t)at.y * f.row_width + at.x);
}

/* Bilinear as the CPU, with weights of 11 bits. Places are in 2^-32 of a pixel. */
template <source S> __device__ pixel mix_four(const frame &f, uint32_t i, int64_t y, int64_t x)
{
    const struct trajd_image_step &step = f.steps[i];
    const int32_t whole = 1 << 11, down = (int32_t)((uint32_t)y >> 21),
                  right = (int32_t)((uint32_t)x >> 21);
    int32_t sums[3] = {1 << 21, 1 << 21, 1 << 21};
    pixel result = {};

    for (int corner = 0; corner < 4; corner++) {
        const int64_t row = (y >> 32) + corner / 2, column = (x >> 32) + corner % 2;
        const int32_t weight =
            (corner / 2 ? down : whole - down) * (corner % 2 ? right : whole - right);
        if (weight == 0 || row < 0 || column < 0 || row >= step.from_height ||
            column >= step.from_width)
            continue;
        const pixel p = fetch<S>(f, i, {(int32_t)row, (int32_t)column, INSIDE, 0});
        for (int c = 0; c < 3; c++)
            sums[c] += weight * (int32_t)p.v[c];
    }
    for (int c = 0; c < 3; c++)
        result.v[c] = (uint32_t)(sums[c] >> 22);
    return result;
}

__device__ __forceinline__ float clip_level(float value)
{
    return fminf(fmaxf(floorf(value + 0.5F), 0), 255);
}

template <source S> __device__ pixel filter(const frame &f, uint32_t i, const place &at)
{
    const struct trajd_image_step &step = f.steps[i];
    float sums[3] = {};
    pixel result;

    if (is_padding(step.y, at.y) || is_padding(step.x, at.x))
        return {{step.pad, step.pad, step.pad}};
    const uint32_t *y = table_entry(f, step, step.y, at.y), *x = table_entry(f, step, step.x, at.x);
    for (uint32_t k = 0; k < y[1]; k++) {
        float inner[3] = {};
        for (uint32_t j = 0; j < x[1]; j++) {
            const pixel p = fetch<S>(f, i, {(int32_t)(y[0] + k), (int32_t)(x[0] + j), INSIDE, 0});
            for (int c = 0; c < 3; c++)
                inner[c] += __uint_as_float(x[2 + j]) * (float)p.v[c];
        }
        for (int c = 0; c < 3; c++)
            sums[c] +=
                __uint_as_float(y[2 + k]) * (step.rounds_between ? clip_level(inner[c]) : inner[c]);
    }
    for (int c = 0; c < 3; c++)
        result.v[c] = (uint32_t)clip_level(sums[c]);
    return result;
}

/* A pixel after the geometry of a pass. */
template <source S>
__device__ pixel sample(const frame &f, const struct trajd_image_pass &pass, uint32_t y, uint32_t x)
{
    place at = {(int32_t)y, (int32_t)x, INSIDE, 0};

    for (uint32_t i = pass.colors; i > pass.first && at.where == INSIDE; i--) {
        const struct trajd_image_step &step = f.steps[i - 1];
        const union trajd_image_value &value = f.values[step.value];
        if (step.op == TRAJD_IMAGE_OP_WARP_LINEAR) {
            const int64_t *w = value.warp, half = INT64_C(1) << 31;
            return mix_four<S>(f, i - 1, w[0] + at.y * w[2] + at.x * w[4] - half,
                               w[1] + at.y * w[3] + at.x * w[5] - half);
        }
        if (step.op == TRAJD_IMAGE_OP_LINES) {
            const int64_t *rows = value.lines[0], *columns = value.lines[1];
            return mix_four<S>(f, i - 1, min(rows[0] + at.y * rows[1], rows[2]),
                               min(columns[0] + at.x * columns[1], columns[2]));
        }
        if (step.op == TRAJD_IMAGE_OP_FILTER)
            return filter<S>(f, i - 1, at);
        move_back(f, step, at);
    }
    return fetch<S>(f, pass.first, at);
}

/* Colours: as augment_color.c. */
__device__ __forceinline__ float clip(float value, float most)
{
    return value < 0 ? 0 : value > most ? most : value;
}

__device__ __forceinline__ float whole(float value, bool rounds)
{
    return rounds ? truncf(value) : value;
}

__device__ __forceinline__ float grey(const float *v, uint32_t channels, bool rounds)
{
    return channels == 1 ? v[0] : whole(0.2989F * v[0] + 0.587F * v[1] + 0.114F * v[2], rounds);
}

__device__ __forceinline__ float turned(float place, float h, float most, float range)
{
    float k = place + h;

    k = k < 0 ? k + 6 : k;
    k = k >= 6 ? k - 6 : k;
    k = k >= 6 ? k - 6 : k;
    return most - range * clip(k < 4 - k ? k : 4 - k, 1);
}

__device__ void turn_hue(float *v, float shift)
{
    const float most = fmaxf(fmaxf(v[0], v[1]), v[2]), least = fminf(fminf(v[0], v[1]), v[2]);
    const float range = most - least;
    const float up = most == v[0] ? v[1] - v[2] : most == v[1] ? v[2] - v[0] : v[0] - v[1];
    const float base = most == v[0] ? 0 : most == v[1] ? 2 : 4;
    const float h = base + up / (range > 0 ? range : 1) + 6 * shift;

    v[0] = turned(5, h, most, range);
    v[1] = turned(3, h, most, range);
    v[2] = turned(1, h, most, range);
}

__device__ void saturate_hsv(float *v, float factor)
{
    const float most = fmaxf(fmaxf(v[0], v[1]), v[2]), least = fminf(fminf(v[0], v[1]), v[2]);
    const float range = most - least, full = most / (range > 0 ? range : 1);
    const float k = factor < full ? factor : full;

    for (int c = 0; c < 3; c++)
        v[c] = most - (most - v[c]) * k;
}

__device__ __forceinline__ bool is_idle(uint32_t kind, float factor)
{
    return factor == (kind == TRAJD_AUGMENT_HUE || kind == TRAJD_AUGMENT_SHIFT ? 0 : 1);
}

/* One colour step of a pixel. `sums` are those of the frame at a contrast step. */
__device__ void change(const struct trajd_image_program &p, const struct trajd_image_step &step,
                       float factor, const unsigned long long *sums, float *v)
{
    const float rest = 1 - factor;
    const uint32_t channels = p.channels;

    if (is_idle(step.kind, factor))
        return;
    if (step.kind == TRAJD_AUGMENT_HUE) {
        turn_hue(v, factor);
        for (int c = 0; p.rounds && c < 3; c++)
            v[c] = whole(v[c] * (255.999F / 255), true);
        return;
    }
    if (step.kind == TRAJD_AUGMENT_HSV_SATURATION)
        saturate_hsv(v, factor);
    const float other = step.kind == TRAJD_AUGMENT_SATURATION ? rest * grey(v, channels, p.rounds)
                        : step.kind == TRAJD_AUGMENT_SHIFT    ? factor * 255
                                                              : 0;
    const float by =
        step.kind == TRAJD_AUGMENT_HSV_SATURATION || step.kind == TRAJD_AUGMENT_SHIFT ? 1 : factor;
    for (uint32_t c = 0; c < channels; c++) {
        float about = other;
        if (sums) {
            const double pixels = (double)step.height * step.width * 65536;
            const int which = step.kind == TRAJD_AUGMENT_CONTRAST ? 0 : c;
            about = rest * (float)((double)sums[which] / pixels);
        }
        v[c] = whole(clip(by * v[c] + about, 255), p.rounds);
    }
}

/* Applies the colour steps [first, end) of a frame. */
__device__ void change_all(const general &g, const frame &f, uint32_t number, uint32_t first,
                           uint32_t end, float *v)
{
    for (uint32_t i = first; i < end; i++) {
        const struct trajd_image_step &step = f.steps[i];
        const bool has_mean =
            step.kind == TRAJD_AUGMENT_CONTRAST || step.kind == TRAJD_AUGMENT_CHANNEL_CONTRAST;
        const unsigned long long *sums =
            has_mean ? g.launch.means + ((uint64_t)number * g.program.mean_count + step.mean) * 3
                     : nullptr;
        change(g.program, step, f.values[step.value].factor, sums, v);
    }
}

__device__ __forceinline__ const struct trajd_image_record *record_of(const general &g,
                                                                      uint32_t number)
{
    return (const struct trajd_image_record *)(g.launch.records +
                                               (uint64_t)number * g.launch.record_bytes);
}

__device__ frame open_frame(const general &g, uint32_t pass, uint32_t number)
{
    const struct trajd_image_record *record = record_of(g, number);
    const struct trajd_image_program &p = g.program;
    const uint32_t first = p.passes[pass].first;
    frame f = {record->source,
               (const union trajd_image_value *)(record + 1),
               g.launch.tables,
               g.launch.own_tables + (uint64_t)number * p.own_table_words,
               p.steps,
               first,
               first ? p.steps[first - 1].width : p.from_width};

    if (pass)
        f.pixels = g.launch.between[(pass - 1) % 2] + (uint64_t)number * p.between_bytes;
    return f;
}

/* Stores a channel of the tensor. */
template <source S>
__device__ void finish(const struct trajd_image_program &p, void *output, uint32_t y, uint32_t x,
                       uint32_t c, uint32_t level)
{
    const uint64_t pixel = (uint64_t)y * p.width + x;
    const uint64_t at = p.layout == TRAJD_IMAGE_CHW ? (uint64_t)c * p.height * p.width + pixel
                                                    : pixel * p.channels + c;

    if (S == U16_1 && p.type == TRAJD_U16)
        ((uint16_t *)output)[at] = (uint16_t)level;
    else if (S == U16_1)
        ((float *)output)[at] = (float)level;
    else if (S == F32_1)
        ((uint32_t *)output)[at] = level;
    else if (p.type == TRAJD_U8)
        ((uint8_t *)output)[at] = (uint8_t)level;
    else {
        const float value = (float)level * p.scale[c] + p.offset[c];
        if (p.type == TRAJD_F32)
            ((float *)output)[at] = value;
        else if (p.type == TRAJD_BF16)
            ((__nv_bfloat16 *)output)[at] = __float2bfloat16_rn(value);
        else
            ((__half *)output)[at] = __float2half_rn(value);
    }
}

template <source S> __device__ void store_between(void *output, uint64_t at, const pixel &value)
{
    if (S == U8_1)
        ((uint8_t *)output)[at] = (uint8_t)value.v[0];
    if (S == U8_3)
        for (int c = 0; c < 3; c++)
            ((uint8_t *)output)[at * 3 + c] = (uint8_t)value.v[c];
    if (S == U16_1)
        ((uint16_t *)output)[at] = (uint16_t)value.v[0];
    if (S == F32_1)
        ((uint32_t *)output)[at] = value.v[0];
}

__device__ __forceinline__ void size_of_pass(const struct trajd_image_program &p, uint32_t pass,
                                             uint32_t &height, uint32_t &width)
{
    const uint32_t end = p.passes[pass].end;

    height = end ? p.steps[end - 1].height : p.from_height;
    width = end ? p.steps[end - 1].width : p.from_width;
}

template <source S>
__global__ void __launch_bounds__(THREADS)
    image_pass(const __grid_constant__ struct general g, uint32_t number_of_pass)
{
    const struct trajd_image_program &p = g.program;
    const struct trajd_image_pass &pass = p.passes[number_of_pass];
    const uint32_t number = blockIdx.y;
    const uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    uint32_t height, width;

    size_of_pass(p, number_of_pass, height, width);
    if (at >= (uint64_t)height * width)
        return;
    const uint32_t y = (uint32_t)(at / width), x = (uint32_t)(at % width);
    const frame f = open_frame(g, number_of_pass, number);
    pixel value = sample<S>(f, pass, y, x);
    if (pass.end > pass.colors && (S == U8_1 || S == U8_3)) {
        float v[3] = {(float)value.v[0], (float)value.v[1], (float)value.v[2]};
        change_all(g, f, number, pass.colors, pass.end, v);
        for (int c = 0; c < 3; c++)
            value.v[c] = (uint32_t)(v[c] + 0.5F);
    }
    if (number_of_pass + 1 < p.pass_count) {
        store_between<S>(g.launch.between[number_of_pass % 2] + (uint64_t)number * p.between_bytes,
                         at, value);
        return;
    }
    for (uint32_t c = 0; c < p.channels; c++)
        finish<S>(p, record_of(g, number)->output, y, x, c, value.v[c]);
}

/* Adds up what a contrast step is about, over the frame as it is before the step. */
template <source S>
__global__ void __launch_bounds__(THREADS)
    image_mean(const __grid_constant__ struct general g, uint32_t number_of_pass, uint32_t index)
{
    const struct trajd_image_program &p = g.program;
    const struct trajd_image_pass &pass = p.passes[number_of_pass];
    const struct trajd_image_step &step = p.steps[index];
    const frame f = open_frame(g, number_of_pass, blockIdx.y);
    const uint64_t pixels = (uint64_t)step.height * step.width;
    unsigned long long sums[3] = {};

    if (is_idle(step.kind, f.values[step.value].factor))
        return;
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < pixels;
         at += (uint64_t)gridDim.x * THREADS) {
        const pixel value =
            sample<S>(f, pass, (uint32_t)(at / step.width), (uint32_t)(at % step.width));
        float v[3] = {(float)value.v[0], (float)value.v[1], (float)value.v[2]};
        change_all(g, f, blockIdx.y, pass.colors, index, v);
        if (step.kind == TRAJD_AUGMENT_CONTRAST)
            v[0] = grey(v, p.channels, p.rounds);
        for (int c = 0; c < 3; c++)
            sums[c] += (unsigned long long)(v[c] * 65536 + 0.5F);
    }
    for (int c = 0; c < 3; c++) {
        for (int lane = 16; lane; lane /= 2)
            sums[c] += __shfl_xor_sync(0xffffffff, sums[c], lane);
        if (threadIdx.x % 32 == 0)
            atomicAdd(g.launch.means + ((uint64_t)blockIdx.y * p.mean_count + step.mean) * 3 + c,
                      sums[c]);
    }
}

/* The weights of a filter in double precision: as image_taps.c. */
__device__ double wide_value(uint32_t filter, double x)
{
    const double pi = 3.14159265358979323846, a = -0.5, t = fabs(x);

    if (filter == TRAJD_IMAGE_PILLOW_BILINEAR)
        return t < 1 ? 1 - t : 0;
    if (filter == TRAJD_IMAGE_PILLOW_BOX)
        return x > -0.5 && x <= 0.5;
    if (filter == TRAJD_IMAGE_PILLOW_BICUBIC)
        return t < 1   ? ((a + 2) * t - (a + 3)) * t * t + 1
               : t < 2 ? (((t - 5) * t + 8) * t - 4) * a
                       : 0;
    if (x == 0)
        return 1;
    return x >= -3 && x < 3 ? sin(pi * x) / (pi * x) * (sin(pi * x / 3) / (pi * x / 3)) : 0;
}

__device__ __forceinline__ double support_of(uint32_t filter)
{
    return filter == TRAJD_IMAGE_PILLOW_BILINEAR  ? 1
           : filter == TRAJD_IMAGE_PILLOW_BOX     ? 0.5
           : filter == TRAJD_IMAGE_PILLOW_BICUBIC ? 2
                                                  : 3;
}

__device__ void weigh_wide(uint32_t filter, uint32_t size, double scale, uint32_t output,
                           uint32_t *words)
{
    const double stretch = fmax(scale, 1.0), centre = (output + 0.5) * scale;
    const double support = support_of(filter) * stretch;
    const int64_t low = (int64_t)(centre - support + 0.5), high = (int64_t)(centre + support + 0.5);
    const uint32_t begin = low < 0 ? 0 : (uint32_t)low, end = high > size ? size : (uint32_t)high;
    double sum = 0;

    for (uint32_t i = begin; i < end; i++)
        sum += wide_value(filter, (i - centre + 0.5) / stretch);
    for (uint32_t i = begin; i < end; i++)
        words[2 + i - begin] =
            __float_as_uint((float)(wide_value(filter, (i - centre + 0.5) / stretch) / sum));
    words[0] = begin;
    words[1] = end - begin;
}

__device__ void weigh_linear(uint32_t size, double scale, uint32_t output, uint32_t *words)
{
    const double at = fmax((output + 0.5) * scale - 0.5, 0.0);
    const uint32_t below = min((uint32_t)at, size - 1);
    const bool is_last = below == size - 1;

    words[0] = below;
    words[1] = is_last ? 1 : 2;
    words[2] = __float_as_uint(is_last ? 1 : (float)(1 - (at - below)));
    if (!is_last)
        words[3] = __float_as_uint((float)(at - below));
}

/* One thread an output row or column of a step's box. */
__global__ void image_boxes(const __grid_constant__ struct general g, uint32_t index)
{
    const struct trajd_image_step &step = g.program.steps[index];
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    const bool is_row = thread < step.height;
    const uint32_t output = is_row ? thread : thread - step.height;
    const struct trajd_image_axis_table &axis = is_row ? step.y : step.x;
    const union trajd_image_value *values =
        (const union trajd_image_value *)(record_of(g, blockIdx.y) + 1);

    if (output >= axis.count)
        return;
    const int32_t *box = values[step.value].box;
    const uint32_t origin = box[is_row ? 0 : 1], size = box[is_row ? 2 : 3];
    uint32_t *words = g.launch.own_tables + (uint64_t)blockIdx.y * g.program.own_table_words +
                      axis.first_word + output * (2 + axis.stride);
    if (step.filter == TRAJD_IMAGE_NEAREST)
        words[0] = (uint32_t)((2 * (uint64_t)output + 1) * size / (2 * (uint64_t)axis.count));
    else if (step.filter == TRAJD_IMAGE_LINEAR)
        weigh_linear(size, (double)size / axis.count, output, words);
    else
        weigh_wide(step.filter, size, (double)size / axis.count, output, words);
    words[0] += origin;
}

static enum source source_of(const struct trajd_image_program *program)
{
    return program->source_type == TRAJD_U16   ? U16_1
           : program->source_type == TRAJD_F32 ? F32_1
           : program->channels == 3            ? U8_3
                                               : U8_1;
}

template <typename... P>
static int launch_on(void (*kernel)(P...), dim3 grid, uint32_t threads, void *stream,
                     const P &...problem)
{
    cudaLaunchConfig_t config = {};

    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.stream = (cudaStream_t)stream;
    return (int)cudaLaunchKernelEx(&config, kernel, problem...);
}

extern "C" int trajd_image_launch_boxes(const struct trajd_image_program *program,
                                        const struct trajd_image_launch *launch, void *stream)
{
    const struct general g = {*program, *launch};
    int code = 0;

    for (uint32_t i = 0; i < program->step_count; i++) {
        const struct trajd_image_step *step = &program->steps[i];
        const uint32_t blocks = (step->height + step->width - 1) / 64 + 1;
        if (step->has_own_tables && !code)
            code = launch_on(image_boxes, dim3(blocks, launch->count), 64, stream, g, i);
    }
    return code;
}

extern "C" int trajd_image_launch_clear(const struct trajd_image_program *program,
                                        const struct trajd_image_launch *launch, void *stream)
{
    const size_t bytes = (size_t)launch->count * program->mean_count * 3 * sizeof *launch->means;

    return (int)cudaMemsetAsync(launch->means, 0, bytes, (cudaStream_t)stream);
}

extern "C" int trajd_image_launch_mean(const struct trajd_image_program *program, uint32_t pass,
                                       uint32_t step, const struct trajd_image_launch *launch,
                                       void *stream)
{
    const struct general g = {*program, *launch};
    const uint64_t pixels = (uint64_t)program->steps[step].height * program->steps[step].width;
    const uint64_t blocks = (pixels - 1) / (THREADS * 8) + 1;
    const dim3 grid((uint32_t)blocks, launch->count);

    return source_of(program) == U8_3
               ? launch_on(image_mean<U8_3>, grid, THREADS, stream, g, pass, step)
               : launch_on(image_mean<U8_1>, grid, THREADS, stream, g, pass, step);
}

extern "C" int trajd_image_launch_pass(const struct trajd_image_program *program, uint32_t pass,
                                       const struct trajd_image_launch *launch, void *stream)
{
    const struct general g = {*program, *launch};
    const uint32_t end = program->passes[pass].end;
    const uint64_t pixels =
        end ? (uint64_t)program->steps[end - 1].height * program->steps[end - 1].width
            : (uint64_t)program->from_height * program->from_width;
    const dim3 grid((uint32_t)((pixels - 1) / THREADS + 1), launch->count);

    switch (source_of(program)) {
    case U8_1:
        return launch_on(image_pass<U8_1>, grid, THREADS, stream, g, pass);
    case U8_3:
        return launch_on(image_pass<U8_3>, grid, THREADS, stream, g, pass);
    case U16_1:
        return launch_on(image_pass<U16_1>, grid, THREADS, stream, g, pass);
    default:
        return launch_on(image_pass<F32_1>, grid, THREADS, stream, g, pass);
    }
}
