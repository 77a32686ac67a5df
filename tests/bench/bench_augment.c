// libs: trajd_kernels
/* Measures finishing and augmenting on one core. Prints the best time of many turns, in us of
 * processor time a frame, and where a budget is given in memsets of the output, the ratio.
 *
 *     bench_augment
 *
 * Frames are in memory, and buffers are used again: 16 frames in turn, more than the second
 * cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/image/augment/augment.h"
#include "kernels/image/image_finish.h"
#include "proto/array_len.h"

enum { TURNS = 60, FRAMES = 16, SIDE = 224, PIXELS = SIDE * SIDE * 3 };

static uint8_t frames[FRAMES][PIXELS];
static float tensors[FRAMES][PIXELS];
static uint8_t results[FRAMES][PIXELS];

static double now_us(void)
{
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* Returns the best time of a frame: of work(context, frame number). */
static double measure(void (*work)(const void *, int), const void *context)
{
    double best = 1e12;

    for (int turn = 0; turn < TURNS; turn++) {
        const double begin = now_us();
        for (int i = 0; i < FRAMES; i++)
            work(context, i);
        const double time = (now_us() - begin) / FRAMES;
        best = time < best ? time : best;
    }
    return best;
}

static void fill(const void *bytes, int i)
{
    memset(tensors[i], 0, *(const uint64_t *)bytes);
    __asm__ volatile("" ::: "memory");
}

static void finish(const void *context, int i)
{
    trajd_image_finish_frame(context, frames[i], tensors[i]);
}

static void measure_finish(enum trajd_image_layout layout, enum trajd_dtype type, const char *norm)
{
    struct trajd_image_finish f = {SIDE, SIDE, 3, TRAJD_U8, type, layout, {1, 1, 1, 1}, {0}};
    const uint64_t bytes = trajd_image_finish_bytes(&f);
    double time, memset_time;

    trajd_image_finish_set_norm(&f, trajd_image_norm_named(norm), NULL);
    memset_time = measure(fill, &bytes);
    time = measure(finish, &f);
    printf("finish u8 hwc to %s %s 224x224x3, norm %s: %.1f us, memset %.1f, ratio %.2f\n",
           trajd_dtype_name(type), layout == TRAJD_IMAGE_CHW ? "chw" : "hwc", norm, time,
           memset_time, memset_time / time);
}

struct job {
    struct trajd_augment augment;
    uint32_t side;
    struct trajd_augment_plan *plan;
};

/* Draws, and applies. */
static void augment(const void *context, int i)
{
    const struct job *job = context;
    const struct trajd_augment_key key = {1, 0, (uint64_t)i, 0, 0};
    struct trajd_augment_params params;

    trajd_augment_draw(&job->augment, &key, job->side, job->side, &params);
    if (trajd_augment_apply(job->plan, &params, frames[i], results[i]))
        exit(1);
}

static void measure_augment(const char *name, struct job *job)
{
    const struct trajd_augment_frame frame = {job->side, job->side, 3, TRAJD_U8};
    struct trajd_error error;

    if (trajd_augment_plan_create(&job->augment, &frame, &job->plan, &error)) {
        fprintf(stderr, "bench_augment: %s\n", error.message);
        exit(1);
    }
    printf("%s: %.1f us\n", name, measure(augment, job));
    trajd_augment_plan_destroy(&job->plan);
}

#define SIZED(which, size, how)                                                                    \
    {                                                                                              \
        .kind = which, .probability = 1, .height = size, .width = size, .filter = how              \
    }
#define AROUND_0(which, most)                                                                      \
    {                                                                                              \
        .kind = which, .probability = 1, .factor = { -(most), most }                               \
    }
#define COLOR(which, by)                                                                           \
    {                                                                                              \
        .kind = which, .probability = 1, .factor = {                                               \
            which == TRAJD_AUGMENT_HUE ? -by : 1 - by,                                             \
            which == TRAJD_AUGMENT_HUE ? by : 1 + by                                               \
        }                                                                                          \
    }
#define TURN(how)                                                                                  \
    {                                                                                              \
        .kind = TRAJD_AUGMENT_AFFINE, .probability = 1, .degrees = 5, .scale = {1, 1},             \
        .filter = how                                                                              \
    }
#define BOX(where, how)                                                                            \
    {                                                                                              \
        .kind = TRAJD_AUGMENT_RESIZED_CROP, .probability = 1, .height = SIDE, .width = SIDE,       \
        .scale = {0.8, 1}, .ratio = {0.9, 1.1}, .box = where, .filter = how                        \
    }

static struct {
    const char *name;
    struct job job;
} jobs[] = {
    {"crop 84 to 76", {{1, {SIZED(TRAJD_AUGMENT_CROP, 76, 0)}, 0}, 84, NULL}},
    {"flip 224", {{1, {{.kind = TRAJD_AUGMENT_FLIP, .probability = 1}}, 0}, SIDE, NULL}},
    {"brightness 224", {{1, {COLOR(TRAJD_AUGMENT_BRIGHTNESS, 0.3)}, 0}, SIDE, NULL}},
    {"brightness, contrast, saturation 224",
     {{3,
       {COLOR(TRAJD_AUGMENT_BRIGHTNESS, 0.3), COLOR(TRAJD_AUGMENT_CONTRAST, 0.4),
        COLOR(TRAJD_AUGMENT_SATURATION, 0.5)},
       0},
      SIDE,
      NULL}},
    {"brightness, contrast, saturation, hue 224",
     {{4,
       {COLOR(TRAJD_AUGMENT_BRIGHTNESS, 0.3), COLOR(TRAJD_AUGMENT_CONTRAST, 0.4),
        COLOR(TRAJD_AUGMENT_SATURATION, 0.5), COLOR(TRAJD_AUGMENT_HUE, 0.08)},
       0},
      SIDE,
      NULL}},
    {"brightness, flat contrast and saturation, clipped once 224",
     {{3,
       {COLOR(TRAJD_AUGMENT_BRIGHTNESS, 0.3), COLOR(TRAJD_AUGMENT_FLAT_CONTRAST, 0.4),
        COLOR(TRAJD_AUGMENT_FLAT_SATURATION, 0.5)},
       TRAJD_AUGMENT_ROUND_END},
      SIDE,
      NULL}},
    {"hsv brightness and contrast, hue 224",
     {{3,
       {AROUND_0(TRAJD_AUGMENT_HSV_BRIGHTNESS, 0.3), AROUND_0(TRAJD_AUGMENT_HSV_CONTRAST, 0.4),
        AROUND_0(TRAJD_AUGMENT_HUE, 0.1)},
       0},
      SIDE,
      NULL}},
    {"rotate nearest 224", {{1, {TURN(TRAJD_IMAGE_NEAREST)}, 0}, SIDE, NULL}},
    {"rotate bilinear 224", {{1, {TURN(TRAJD_IMAGE_LINEAR)}, 0}, SIDE, NULL}},
    {"crop 212, resize 224",
     {{2,
       {SIZED(TRAJD_AUGMENT_CROP, 212, 0),
        SIZED(TRAJD_AUGMENT_RESIZE, SIDE, TRAJD_IMAGE_PILLOW_BILINEAR)},
       0},
      SIDE,
      NULL}},
    {"random resized crop, antialias 224",
     {{1, {BOX(TRAJD_AUGMENT_BOX_PIXELS, TRAJD_IMAGE_PILLOW_BILINEAR)}, 0}, SIDE, NULL}},
    {"random resized crop, tf 224",
     {{1, {BOX(TRAJD_AUGMENT_BOX_TF, TRAJD_IMAGE_LINEAR)}, 0}, SIDE, NULL}},
};

int main(void)
{
    for (size_t i = 0; i < sizeof frames; i++)
        frames[i / sizeof *frames][i % sizeof *frames] = (uint8_t)(i * 2654435761U >> 24);
    measure_finish(TRAJD_IMAGE_CHW, TRAJD_F32, "unit");
    measure_finish(TRAJD_IMAGE_CHW, TRAJD_F32, "imagenet");
    measure_finish(TRAJD_IMAGE_HWC, TRAJD_F32, "unit");
    measure_finish(TRAJD_IMAGE_CHW, TRAJD_F16, "unit");
    measure_finish(TRAJD_IMAGE_CHW, TRAJD_BF16, "unit");
    measure_finish(TRAJD_IMAGE_HWC, TRAJD_BF16, "unit");
    measure_finish(TRAJD_IMAGE_CHW, TRAJD_U8, "none");
    measure_finish(TRAJD_IMAGE_HWC, TRAJD_U8, "none");
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++)
        measure_augment(jobs[i].name, &jobs[i].job);
    return 0;
}
