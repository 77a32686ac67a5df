/* Draws random requests of images, and computes their results on the CPU. */
#include "gpu/image_cases.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/element_convert.h"
#include "kernels/image/augment/philox.h"

struct dice {
    uint64_t seed;
    uint32_t count;
};

/* A number of [0, count). */
static uint32_t roll(struct dice *dice, uint32_t count)
{
    const struct trajd_philox counter = {{dice->count++, 7, 7, 7}};

    return trajd_philox_below(
        trajd_philox(counter, (uint32_t)dice->seed, (uint32_t)(dice->seed >> 32)).words[0], count);
}

static uint32_t side(struct dice *dice)
{
    static const uint32_t large[] = {84, 96, 112, 128, 200, 224, 240, 256, 320};

    return roll(dice, 3) ? 1 + roll(dice, 80) : large[roll(dice, 9)];
}

static uint32_t within(struct dice *dice, uint32_t size)
{
    return 1 + roll(dice, size);
}

static void make_preparation(struct dice *dice, struct image_case *c)
{
    struct trajd_image_preparation *p = &c->preparation;
    const struct trajd_augment_frame *frame = &c->spec.frame;
    const bool is_depth = frame->type != TRAJD_U8;

    p->source_height = side(dice);
    p->source_width = roll(dice, 2) ? 16 * within(dice, 20) : side(dice);
    p->channels = frame->channels;
    p->type = frame->type;
    p->crop = (struct trajd_image_box){0, 0, p->source_height, p->source_width};
    if (roll(dice, 2)) {
        p->crop.height = within(dice, p->source_height);
        p->crop.width = within(dice, p->source_width);
        p->crop.top = roll(dice, p->source_height - p->crop.height + 1);
        p->crop.left = roll(dice, p->source_width - p->crop.width + 1);
    }
    p->filter = is_depth ? TRAJD_IMAGE_NEAREST
                         : (enum trajd_image_filter)roll(dice, TRAJD_IMAGE_FILTER_COUNT);
    p->pad_value = roll(dice, 2) ? 0 : roll(dice, 256);
    trajd_image_place(p, (enum trajd_image_fit)roll(dice, TRAJD_IMAGE_FIT_COUNT), frame->height,
                      frame->width);
    if (trajd_image_check(p, NULL)) /* a thin frame that covers a wide one is too large */
        trajd_image_place(p, TRAJD_IMAGE_STRETCH, frame->height, frame->width);
    if (p->filter == TRAJD_IMAGE_AREA &&
        (p->inner_height > p->crop.height || p->inner_width > p->crop.width))
        p->filter = TRAJD_IMAGE_LINEAR;
    c->spec.preparation = p;
    c->inexact += p->filter != TRAJD_IMAGE_NEAREST;
}

static struct trajd_augment_step make_color(struct dice *dice, uint32_t channels)
{
    static const enum trajd_augment_kind grey[] = {TRAJD_AUGMENT_BRIGHTNESS, TRAJD_AUGMENT_CONTRAST,
                                                   TRAJD_AUGMENT_SHIFT,
                                                   TRAJD_AUGMENT_CHANNEL_CONTRAST};
    const uint32_t colors = TRAJD_AUGMENT_HSV_SATURATION + 1 - TRAJD_AUGMENT_BRIGHTNESS;
    struct trajd_augment_step step = {.probability = roll(dice, 3) ? 1 : 0.5, .factor = {0.5, 1.5}};

    /* mostly the four of torchvision, which have a kernel of their own */
    step.kind = channels == 1 ? grey[roll(dice, 4)]
                              : (enum trajd_augment_kind)(TRAJD_AUGMENT_BRIGHTNESS +
                                                          roll(dice, roll(dice, 3) ? 4 : colors));
    if (step.kind == TRAJD_AUGMENT_HUE || step.kind == TRAJD_AUGMENT_SHIFT)
        step.factor = (struct trajd_augment_range){-0.3, 0.3};
    return step;
}

/* A step for an image of height x width. */
static struct trajd_augment_step make_step(struct dice *dice, const struct trajd_augment_frame *now)
{
    const bool is_depth = now->type != TRAJD_U8;
    const uint32_t kinds = is_depth ? TRAJD_AUGMENT_BRIGHTNESS : TRAJD_AUGMENT_BRIGHTNESS + 4;
    const uint32_t kind = roll(dice, kinds);
    struct trajd_augment_step step = {.kind = (enum trajd_augment_kind)kind,
                                      .probability = 1,
                                      .height = within(dice, 96),
                                      .width = within(dice, 96),
                                      .degrees = 30,
                                      .translate_y = 0.2,
                                      .translate_x = 0.2,
                                      .scale = {0.5, 1},
                                      .ratio = {0.5, 2},
                                      .filter = TRAJD_IMAGE_NEAREST};

    if (kind >= TRAJD_AUGMENT_BRIGHTNESS)
        return make_color(dice, now->channels);
    if (kind == TRAJD_AUGMENT_CROP) {
        step.height = within(dice, now->height);
        step.width = within(dice, now->width);
    }
    if (kind == TRAJD_AUGMENT_FLIP)
        step.probability = 0.5;
    if (is_depth || !roll(dice, 3))
        return step;
    step.filter = kind == TRAJD_AUGMENT_AFFINE
                      ? TRAJD_IMAGE_LINEAR
                      : (enum trajd_image_filter)roll(dice, TRAJD_IMAGE_AREA);
    if (kind == TRAJD_AUGMENT_RESIZED_CROP && roll(dice, 2)) {
        step.box = TRAJD_AUGMENT_BOX_TF;
        step.filter = TRAJD_IMAGE_LINEAR;
    }
    return step;
}

static void make_augment(struct dice *dice, struct image_case *c)
{
    struct trajd_augment_frame now = c->spec.frame;
    const uint32_t count = roll(dice, 2) ? roll(dice, 3) : roll(dice, 6);
    bool after_color = false;

    c->augment.rounding = roll(dice, 4) ? TRAJD_AUGMENT_ROUND_ONCE : TRAJD_AUGMENT_ROUND_EACH;
    for (uint32_t i = 0; i < count; i++) {
        const struct trajd_augment_step step = make_step(dice, &now);
        const bool is_color = step.kind >= TRAJD_AUGMENT_BRIGHTNESS;
        const bool has_filter =
            step.kind >= TRAJD_AUGMENT_AFFINE && step.kind <= TRAJD_AUGMENT_RESIZED_CROP;
        c->augment.steps[c->augment.count++] = step;
        c->inexact += is_color ? !after_color : has_filter && step.filter != TRAJD_IMAGE_NEAREST;
        after_color = is_color;
        if (step.kind == TRAJD_AUGMENT_CROP || step.kind == TRAJD_AUGMENT_RESIZE ||
            step.kind == TRAJD_AUGMENT_RESIZED_CROP) {
            now.height = step.height;
            now.width = step.width;
        }
    }
    c->spec.augment = &c->augment;
    c->spec.finish.height = now.height;
    c->spec.finish.width = now.width;
}

static void make_finish(struct dice *dice, struct image_case *c)
{
    static const enum trajd_dtype types[] = {TRAJD_U8, TRAJD_F16, TRAJD_BF16, TRAJD_F32};
    static const char *const norms[] = {"none", "unit", "signed", "imagenet"};
    struct trajd_image_finish *f = &c->spec.finish;

    f->channels = c->spec.frame.channels;
    f->source = c->spec.frame.type;
    f->layout = (enum trajd_image_layout)roll(dice, 2);
    f->type = f->source == TRAJD_U8 ? types[roll(dice, 4)] : roll(dice, 2) ? f->source : TRAJD_F32;
    for (uint32_t i = 0; i < TRAJD_IMAGE_CHANNELS_MAX; i++)
        f->scale[i] = 1;
    if (f->source == TRAJD_U8 && f->type != TRAJD_U8) {
        const char *name = norms[roll(dice, f->channels == 3 ? 4 : 3)];
        assert_int_equal(trajd_image_finish_set_norm(f, trajd_image_norm_named(name), NULL),
                         TRAJD_OK);
    }
}

void image_case_make(uint64_t seed, struct image_case *made)
{
    struct dice dice = {seed, 0};
    struct image_case *c = made;
    struct trajd_error error;

    *c = (struct image_case){.frame_count = 1 + roll(&dice, IMAGE_FRAMES_MAX)};
    c->spec.frame = (struct trajd_augment_frame){side(&dice), side(&dice), 3, TRAJD_U8};
    if (!roll(&dice, 6))
        c->spec.frame.channels = 1;
    if (!roll(&dice, 10)) {
        c->spec.frame.channels = 1;
        c->spec.frame.type = roll(&dice, 2) ? TRAJD_U16 : TRAJD_F32;
    }
    if (roll(&dice, 2))
        make_preparation(&dice, c);
    c->spec.finish.height = c->spec.frame.height;
    c->spec.finish.width = c->spec.frame.width;
    if (!c->spec.preparation || !roll(&dice, 4))
        make_augment(&dice, c);
    make_finish(&dice, c);
    if (trajd_image_gpu_check(&c->spec, &error))
        fail_msg("case %llu: %s", (unsigned long long)seed, error.message);
    c->source_bytes = c->spec.preparation
                          ? trajd_image_source_bytes(c->spec.preparation)
                          : (uint64_t)c->spec.frame.height * c->spec.frame.width *
                                c->spec.frame.channels * trajd_dtype_size(c->spec.frame.type);
    c->output_bytes = trajd_image_finish_bytes(&c->spec.finish);
    for (uint32_t i = 0; i < c->frame_count && c->spec.augment; i++) {
        const struct trajd_augment_key key = {seed, 1, i, 0, 0};
        trajd_augment_draw(c->spec.augment, &key, c->spec.frame.height, c->spec.frame.width,
                           &c->params[i]);
    }
}

/* A side that is not a multiple of anything, or one of some pixels. */
static uint32_t odd_side(struct dice *dice, uint32_t most)
{
    return within(dice, roll(dice, 3) ? 9 : most);
}

/* Where the resized frame is in the output, if not as a fit says. */
static void move(struct dice *dice, struct trajd_image_preparation *p)
{
    p->inner_height = within(dice, p->height + 20);
    p->inner_width = within(dice, p->width + 20);
    p->top = (int32_t)roll(dice, p->height + p->inner_height - 1) - (int32_t)p->inner_height + 1;
    p->left = (int32_t)roll(dice, p->width + p->inner_width - 1) - (int32_t)p->inner_width + 1;
}

void image_case_make_resize(uint64_t seed, struct image_case *made)
{
    struct dice dice = {seed, 0};
    struct image_case *c = made;
    struct trajd_image_preparation *p = &c->preparation;
    struct trajd_error error;

    *c = (struct image_case){.frame_count = 1 + roll(&dice, IMAGE_FRAMES_MAX)};
    c->spec.frame =
        (struct trajd_augment_frame){odd_side(&dice, 120), odd_side(&dice, 120), 3, TRAJD_U8};
    make_preparation(&dice, c);
    p->source_height = odd_side(&dice, 300);
    p->source_width = 16 * odd_side(&dice, 30);
    p->crop.height = within(&dice, p->source_height);
    p->crop.width = within(&dice, p->source_width);
    p->crop.top = roll(&dice, p->source_height - p->crop.height + 1);
    p->crop.left = roll(&dice, p->source_width - p->crop.width + 1);
    p->filter = roll(&dice, 2) ? TRAJD_IMAGE_PILLOW_BILINEAR : TRAJD_IMAGE_TF_LANCZOS3;
    p->pad_value = 0;
    c->inexact = 1;
    if (roll(&dice, 2))
        move(&dice, p);
    c->spec.finish.height = p->height;
    c->spec.finish.width = p->width;
    make_finish(&dice, c);
    if (trajd_image_gpu_check(&c->spec, &error))
        fail_msg("resize %llu: %s", (unsigned long long)seed, error.message);
    c->source_bytes = trajd_image_source_bytes(p);
    c->output_bytes = trajd_image_finish_bytes(&c->spec.finish);
}

/* Boxes of some pixels, where a draw would be larger, and inside the frame. */
static void set_box(const struct image_case *c, uint64_t seed, uint32_t index, float *box)
{
    if (seed % 3 == 0) {
        box[2] = (float)(1 + 3 * index);
        box[3] = (float)(1 + 2 * index);
    }
    if (box[0] + box[2] > (float)c->spec.frame.height ||
        box[1] + box[3] > (float)c->spec.frame.width)
        box[0] = box[1] = 0;
}

void image_case_make_boxes(uint64_t seed, struct image_case *made)
{
    static const uint32_t sizes[][4] = {
        {64, 64, 64, 64}, {240, 320, 224, 224}, {100, 160, 200, 90}, {60, 96, 61, 47}};
    const uint32_t *s = sizes[seed / 3 % 4];

    *made = (struct image_case){
        .augment = {1,
                    {{.kind = TRAJD_AUGMENT_RESIZED_CROP,
                      .probability = 1,
                      .height = s[2],
                      .width = s[3],
                      .scale = {seed % 3 == 1 ? 0.03 : 0.5, 1},
                      .ratio = {0.5, 2},
                      .filter = seed % 2 ? TRAJD_IMAGE_LINEAR : TRAJD_IMAGE_PILLOW_BILINEAR}},
                    0},
        .spec = {.frame = {s[0], s[1], 3, TRAJD_U8},
                 .finish = {s[2],
                            s[3],
                            3,
                            TRAJD_U8,
                            seed % 2 ? TRAJD_U8 : TRAJD_BF16,
                            (enum trajd_image_layout)(seed % 2),
                            {1, 1, 1, 1},
                            {0}}},
        .frame_count = IMAGE_FRAMES_MAX,
        .inexact = 1,
        .source_bytes = (uint64_t)s[0] * s[1] * 3,
    };
    made->spec.augment = &made->augment;
    made->output_bytes = trajd_image_finish_bytes(&made->spec.finish);
    for (uint32_t i = 0; i < made->frame_count; i++) {
        const struct trajd_augment_key key = {seed, 1, i, 0, 0};
        trajd_augment_draw(&made->augment, &key, s[0], s[1], &made->params[i]);
        set_box(made, seed, i, made->params[i].values[0]);
    }
}

void image_case_run(const struct image_case *image, uint32_t frame, const void *source,
                    void *output)
{
    const struct trajd_image_gpu_spec *spec = &image->spec;
    const uint32_t pixel = spec->frame.channels * trajd_dtype_size(spec->frame.type);
    const struct trajd_image_finish *f = &spec->finish;
    void *prepared = malloc((size_t)spec->frame.height * spec->frame.width * pixel);
    void *augmented = malloc((size_t)f->height * f->width * pixel);
    const void *now = source;
    struct trajd_error error;

    assert_true(prepared && augmented);
    if (spec->preparation) {
        struct trajd_image_plan *plan;
        assert_int_equal(trajd_image_plan_create(spec->preparation, &plan, &error), TRAJD_OK);
        trajd_image_prepare(plan, now, prepared);
        trajd_image_plan_destroy(&plan);
        now = prepared;
    }
    if (spec->augment) {
        struct trajd_augment_plan *plan;
        assert_int_equal(trajd_augment_plan_create(spec->augment, &spec->frame, &plan, &error),
                         TRAJD_OK);
        assert_int_equal(trajd_augment_apply(plan, &image->params[frame], now, augmented),
                         TRAJD_OK);
        trajd_augment_plan_destroy(&plan);
        now = augmented;
    }
    trajd_image_finish_frame(f, now, output);
    free(prepared);
    free(augmented);
}

/* The largest difference of an element that is allowed. */
static double bound_of(const struct image_case *image, uint32_t channel, double value,
                       uint32_t levels)
{
    const struct trajd_image_finish *f = &image->spec.finish;
    const double most = levels ? levels : image->inexact > 1 ? 8 : image->inexact;
    const double last_place = f->type == TRAJD_BF16  ? 0x1p-7
                              : f->type == TRAJD_F16 ? 0x1p-10
                                                     : 0x1p-20;

    if (!levels && !image->inexact)
        return 0;
    return f->type == TRAJD_U8 ? most
                               : (most + last_place) * (double)f->scale[channel] +
                                     (fabs(value) + fabs((double)f->offset[channel])) * last_place;
}

bool image_case_matches(const struct image_case *image, const void *expected, const void *got,
                        uint32_t levels, char *text, uint32_t text_size)
{
    const struct trajd_image_finish *f = &image->spec.finish;
    const uint64_t pixels = (uint64_t)f->height * f->width, count = pixels * f->channels;
    const uint32_t size = trajd_dtype_size(f->type);

    for (uint64_t i = 0; i < count; i++) {
        const uint32_t channel =
            (uint32_t)(f->layout == TRAJD_IMAGE_CHW ? i / pixels : i % f->channels);
        const double a = trajd_element_load(f->type, (const uint8_t *)expected + i * size);
        const double b = trajd_element_load(f->type, (const uint8_t *)got + i * size);
        if (!memcmp((const uint8_t *)expected + i * size, (const uint8_t *)got + i * size, size) ||
            fabs(a - b) <= bound_of(image, channel, a, levels))
            continue;
        snprintf(text, text_size, "element %llu is %.9g, on the CPU %.9g", (unsigned long long)i, b,
                 a);
        return false;
    }
    return true;
}

const char *image_case_name(const struct image_case *image, char *text, uint32_t text_size)
{
    const struct trajd_image_gpu_spec *s = &image->spec;
    const struct trajd_image_preparation *p = s->preparation;
    uint32_t used;

    used = (uint32_t)snprintf(text, text_size, "%u frames", image->frame_count);
    if (p)
        used += (uint32_t)snprintf(
            text + used, text_size - used, " of %ux%u, crop %u,%u %ux%u, %s to %ux%u at %d,%d",
            p->source_height, p->source_width, p->crop.top, p->crop.left, p->crop.height,
            p->crop.width, trajd_image_filter_name(p->filter), p->inner_height, p->inner_width,
            p->top, p->left);
    used += (uint32_t)snprintf(text + used, text_size - used, ", %ux%ux%u %s", s->frame.height,
                               s->frame.width, s->frame.channels, trajd_dtype_name(s->frame.type));
    for (uint32_t i = 0; s->augment && i < s->augment->count; i++)
        used += (uint32_t)snprintf(text + used, text_size - used, ", %s %g",
                                   trajd_augment_kind_name(s->augment->steps[i].kind),
                                   (double)image->params[0].values[i][0]);
    snprintf(text + used, text_size - used, " -> %ux%u %s %s", s->finish.height, s->finish.width,
             trajd_dtype_name(s->finish.type), s->finish.layout == TRAJD_IMAGE_CHW ? "chw" : "hwc");
    return text;
}
