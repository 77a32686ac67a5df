/* Draws: from a key to parameters.
 *
 * The first Philox block mixes seed, epoch and window into a key. Under it, block b of step s has the
 * counter (output, group, s * 256 + b). Word 0 of block 0 decides whether the step happens. Block 1
 * has the values, and blocks 1 to 10 the attempts of a resized crop. So a step's draws do not depend
 * on the steps before it. */
#include <math.h>
#include <string.h>

#include "kernels/image/augment/augment_math.h"
#include "kernels/image/augment/augment_step.h"
#include "kernels/image/augment/philox.h"

enum { ATTEMPTS = 10 };

struct source {
    struct trajd_philox window; /* of seed, epoch and window */
    const struct trajd_augment_key *key;
};

static uint32_t low(uint64_t number)
{
    return (uint32_t)number;
}

static uint32_t high(uint64_t number)
{
    return (uint32_t)(number >> 32);
}

static struct trajd_philox block(const struct source *source, uint32_t step, uint32_t number)
{
    const uint32_t *words = source->window.words;
    const struct trajd_philox counter = {{low(source->key->output) ^ words[2],
                                          high(source->key->output) ^ words[3], source->key->group,
                                          step * 256 + number}};

    return trajd_philox(counter, words[0], words[1]);
}

/* A number of [low, high), but for rounding. */
static double uniform(uint32_t word, double from, double to)
{
    return from + (to - from) * (double)trajd_philox_uniform(word);
}

static void draw_crop(const struct trajd_augment_step *step, const struct trajd_philox *random,
                      uint32_t height, uint32_t width, float *values)
{
    const uint32_t down = height - step->height, right = width - step->width;
    const bool takes_last = !step->excludes_last;

    values[0] = (float)trajd_philox_below(random->words[0], down + (takes_last || !down));
    values[1] = (float)trajd_philox_below(random->words[1], right + (takes_last || !right));
}

static void draw_affine(const struct trajd_augment_step *step, const struct source *source,
                        uint32_t index, uint32_t height, uint32_t width, float *values)
{
    const struct trajd_philox random = block(source, index, 1);
    const double down = step->translate_y * height, right = step->translate_x * width;

    values[0] = (float)uniform(random.words[0], -step->degrees, step->degrees);
    values[1] = (float)rint(uniform(random.words[1], -down, down));
    values[2] = (float)rint(uniform(random.words[2], -right, right));
    values[3] = (float)uniform(random.words[3], step->scale.low, step->scale.high);
}

/* The share of the area and the ratio of an attempt. */
static void draw_shape(const struct trajd_augment_step *step, const struct trajd_philox *random,
                       double *area, double *ratio)
{
    const double span = trajd_augment_log(step->ratio.high / step->ratio.low);

    *area = uniform(random->words[0], step->scale.low, step->scale.high);
    *ratio = step->ratio.low * trajd_augment_exp(uniform(random->words[1], 0, span));
}

/* The box where no attempt fits, and for evaluation: as much of the centre as the ratio allows. */
static void center_box(const struct trajd_augment_step *step, uint32_t height, uint32_t width,
                       float *values)
{
    const double ratio = (double)width / height;
    double box_height = height, box_width = width;

    if (ratio < step->ratio.low)
        box_height = fmax(rint(width / step->ratio.low), 1);
    else if (ratio > step->ratio.high)
        box_width = fmax(rint(height * step->ratio.high), 1);
    values[0] = (float)floor((height - box_height) / 2);
    values[1] = (float)floor((width - box_width) / 2);
    values[2] = (float)box_height;
    values[3] = (float)box_width;
}

static void draw_pixels(const struct trajd_augment_step *step, const struct source *source,
                        uint32_t index, uint32_t height, uint32_t width, float *values)
{
    for (uint32_t i = 1; i <= ATTEMPTS; i++) {
        const struct trajd_philox random = block(source, index, i);
        double area, ratio, box_height, box_width;
        draw_shape(step, &random, &area, &ratio);
        area *= (double)height * width;
        box_height = rint(sqrt(area / ratio));
        box_width = rint(sqrt(area * ratio));
        if (box_height < 1 || box_width < 1 || box_height > height || box_width > width)
            continue;
        values[0] = (float)trajd_philox_below(random.words[2], height - (uint32_t)box_height + 1);
        values[1] = (float)trajd_philox_below(random.words[3], width - (uint32_t)box_width + 1);
        values[2] = (float)box_height;
        values[3] = (float)box_width;
        return;
    }
    center_box(step, height, width, values);
}

/* As dlimp's random_resized_crop (Octo): sides above the frame's are cut. */
static void draw_shares(const struct trajd_augment_step *step, const struct source *source,
                        uint32_t index, float *values)
{
    const struct trajd_philox random = block(source, index, 1);
    double area, ratio, box_height, box_width;

    draw_shape(step, &random, &area, &ratio);
    box_height = fmin(sqrt(area / ratio), 1);
    box_width = fmin(sqrt(area * ratio), 1);
    values[0] = (float)uniform(random.words[2], 0, 1 - box_height);
    values[1] = (float)uniform(random.words[3], 0, 1 - box_width);
    values[2] = (float)box_height;
    values[3] = (float)box_width;
}

static void draw_step(const struct trajd_augment_step *step, const struct source *source,
                      uint32_t index, uint32_t height, uint32_t width, float *values)
{
    const struct trajd_philox random = block(source, index, 1);

    switch (step->kind) {
    case TRAJD_AUGMENT_CROP:
        draw_crop(step, &random, height, width, values);
        break;
    case TRAJD_AUGMENT_FLIP:
        values[0] = 1;
        break;
    case TRAJD_AUGMENT_AFFINE:
        draw_affine(step, source, index, height, width, values);
        break;
    case TRAJD_AUGMENT_RESIZE:
        break;
    case TRAJD_AUGMENT_RESIZED_CROP:
        if (step->box == TRAJD_AUGMENT_BOX_TF)
            draw_shares(step, source, index, values);
        else
            draw_pixels(step, source, index, height, width, values);
        break;
    default:
        values[0] = (float)uniform(random.words[0], step->factor.low, step->factor.high);
    }
}

/* Python's round(), with which torchvision centres a crop. */
static float center_offset(uint32_t room, bool rounds_down)
{
    return (float)(rounds_down ? floor(room / 2.0) : rint(room / 2.0));
}

/* Sets the parameters of a step without chance. */
static void center_step(const struct trajd_augment_step *step, uint32_t height, uint32_t width,
                        float *values)
{
    if (step->kind == TRAJD_AUGMENT_CROP) {
        values[0] = center_offset(height - step->height, step->excludes_last);
        values[1] = center_offset(width - step->width, step->excludes_last);
    } else if (step->kind == TRAJD_AUGMENT_AFFINE)
        values[3] = 1;
    else if (step->kind == TRAJD_AUGMENT_RESIZED_CROP && step->box == TRAJD_AUGMENT_BOX_TF)
        values[2] = values[3] = 1;
    else if (step->kind == TRAJD_AUGMENT_RESIZED_CROP)
        center_box(step, height, width, values);
    else if (trajd_augment_is_color(step))
        values[0] = trajd_augment_neutral(step->kind);
}

/* Returns whether the draw lets step i happen. */
static bool happens(const struct trajd_augment *augment, const struct source *source, uint32_t i)
{
    const double probability = augment->steps[i].probability;

    while (augment->steps[i].follows)
        i--;
    return probability >= 1 ||
           (double)trajd_philox_uniform(block(source, i, 0).words[0]) < probability;
}

/* Sets the parameters of all steps: with a source those of a draw. */
static void set(const struct trajd_augment *augment, const struct source *source, uint32_t height,
                uint32_t width, struct trajd_augment_params *params)
{
    memset(params, 0, sizeof *params);
    for (uint32_t i = 0; i < augment->count; i++) {
        const struct trajd_augment_step *step = &augment->steps[i];
        if (source && happens(augment, source, i))
            draw_step(step, source, i, height, width, params->values[i]);
        else
            center_step(step, height, width, params->values[i]);
        trajd_augment_resize(step, &height, &width);
    }
}

void trajd_augment_draw(const struct trajd_augment *augment, const struct trajd_augment_key *key,
                        uint32_t height, uint32_t width, struct trajd_augment_params *params)
{
    const struct trajd_philox counter = {
        {low(key->window), high(key->window), low(key->epoch), high(key->epoch)}};
    const struct source source = {trajd_philox(counter, low(key->seed), high(key->seed)), key};

    set(augment, &source, height, width, params);
}

void trajd_augment_center(const struct trajd_augment *augment, uint32_t height, uint32_t width,
                          struct trajd_augment_params *params)
{
    set(augment, NULL, height, width, params);
}
