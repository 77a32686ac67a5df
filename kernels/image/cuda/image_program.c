/* From a spec to a program: steps, passes and tables of taps. */
#include "kernels/image/cuda/image_program.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/image/augment/augment_step.h"
#include "kernels/image/cuda/image_gpu.h"
#include "kernels/image/image_frame.h"

struct builder {
    struct trajd_image_program *program;
    uint32_t *tables;
    bool failed; /* no memory */
};

static enum trajd_status refuse(struct trajd_error *error, const char *what)
{
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "images on the GPU: %s", what);
}

/* Refuses what the kernels do not have. */
static enum trajd_status check_steps(const struct trajd_augment *augment, struct trajd_error *error)
{
    if (augment->rounding == TRAJD_AUGMENT_ROUND_END)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "images on the GPU: the kernels do not have rounding: end");
    for (uint32_t i = 0; i < augment->count; i++)
        if (augment->steps[i].kind > TRAJD_AUGMENT_HSV_SATURATION)
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "images on the GPU: the kernels do not have the step %s",
                                   trajd_augment_kind_name(augment->steps[i].kind));
    return TRAJD_OK;
}

enum trajd_status trajd_image_gpu_check(const struct trajd_image_gpu_spec *spec,
                                        struct trajd_error *error)
{
    static const struct trajd_augment none = {0};
    const struct trajd_image_preparation *p = spec->preparation;
    const struct trajd_image_finish *f = &spec->finish;
    uint32_t height = 0, width = 0;
    enum trajd_status status = p ? trajd_image_check(p, error) : TRAJD_OK;

    if (status)
        return status;
    if (p && (p->height != spec->frame.height || p->width != spec->frame.width ||
              p->channels != spec->frame.channels || p->type != spec->frame.type))
        return refuse(error, "the preparation does not make the frames that are augmented");
    status = trajd_augment_check(spec->augment ? spec->augment : &none, &spec->frame, &height,
                                 &width, error);
    if (!status && spec->augment)
        status = check_steps(spec->augment, error);
    if (!status)
        status = trajd_image_finish_check(f, error);
    if (!status && (f->height != height || f->width != width ||
                    f->channels != spec->frame.channels || f->source != spec->frame.type))
        return refuse(error, "the finish does not take the frames that the augmentation makes");
    return status;
}

/* Adds the table of an axis, with `origin` added to its source pixels. */
static struct trajd_image_axis_table add_table(struct builder *b, enum trajd_image_filter filter,
                                               uint32_t origin, uint32_t size, uint32_t inner,
                                               const struct trajd_image_span *span)
{
    struct trajd_image_axis_table table = {
        .first_word = b->program->table_words, .place = span->place, .count = span->count};
    struct trajd_image_taps taps;
    uint32_t *words, *grown;

    if (b->failed || !trajd_image_taps_make(filter, size, inner, span->first, span->count, &taps)) {
        b->failed = true;
        return table;
    }
    table.stride = taps.stride;
    b->program->table_words += taps.count * (2 + taps.stride);
    grown = realloc(b->tables, (size_t)b->program->table_words * sizeof *grown);
    b->failed = !grown;
    b->tables = grown ? grown : b->tables;
    words = grown ? grown + table.first_word : NULL;
    for (uint32_t o = 0; words && o < taps.count; o++, words += 2 + taps.stride) {
        memset(words, 0, (2 + taps.stride) * sizeof *words);
        words[0] = taps.starts[o] + origin;
        words[1] = taps.lengths[o];
        for (uint32_t k = 0; k < taps.lengths[o]; k++) {
            const float weight = (float)taps.weights[(size_t)o * taps.stride + k];
            memcpy(&words[2 + k], &weight, sizeof weight);
        }
    }
    trajd_image_taps_free(&taps);
    return table;
}

/* Reserves the table of an axis that each frame has of its own: a box of up to `size` pixels. */
static struct trajd_image_axis_table own_table(struct builder *b, enum trajd_image_filter filter,
                                               uint32_t size, uint32_t inner)
{
    struct trajd_image_axis_table table = {.first_word = b->program->own_table_words,
                                           .count = inner};
    struct trajd_image_taps taps;

    if (b->failed || !trajd_image_taps_make(filter, size, inner, 0, 1, &taps)) {
        b->failed = true;
        return table;
    }
    table.stride = taps.stride;
    b->program->own_table_words += inner * (2 + taps.stride);
    trajd_image_taps_free(&taps);
    return table;
}

/* Appends a step after the last one. */
static struct trajd_image_step *append(struct builder *b, enum trajd_image_op op)
{
    struct trajd_image_program *program = b->program;
    struct trajd_image_step *step = &program->steps[program->step_count];

    step->op = (uint8_t)op;
    step->from_height = program->height;
    step->from_width = program->width;
    program->step_count++;
    return step;
}

static void end_step(struct builder *b, struct trajd_image_step *step, uint32_t height,
                     uint32_t width)
{
    step->height = b->program->height = height;
    step->width = b->program->width = width;
}

static uint32_t pad_bits(const struct trajd_image_preparation *p)
{
    const float number = (float)p->pad_value;
    uint32_t bits;

    memcpy(&bits, &number, sizeof bits);
    return p->type == TRAJD_F32 ? bits : (uint32_t)p->pad_value;
}

/* Appends pad(resize(crop(frame))). */
static struct trajd_image_step *append_resize(struct builder *b,
                                              const struct trajd_image_preparation *p)
{
    const bool picks = p->filter == TRAJD_IMAGE_NEAREST;
    const struct trajd_image_span rows = trajd_image_rows(p), columns = trajd_image_columns(p);
    struct trajd_image_step *step = append(b, picks ? TRAJD_IMAGE_OP_PICK : TRAJD_IMAGE_OP_FILTER);

    step->filter = (uint8_t)p->filter;
    step->rounds_between = trajd_image_rounds_between(p->filter);
    step->pad = pad_bits(p);
    step->y = add_table(b, p->filter, p->crop.top, p->crop.height, p->inner_height, &rows);
    step->x = add_table(b, p->filter, p->crop.left, p->crop.width, p->inner_width, &columns);
    end_step(b, step, p->height, p->width);
    return step;
}

static void append_resized_crop(struct builder *b, const struct trajd_augment_step *from)
{
    const bool picks = from->filter == TRAJD_IMAGE_NEAREST;
    struct trajd_image_step *step;

    if (from->box == TRAJD_AUGMENT_BOX_TF) {
        step = append(b, TRAJD_IMAGE_OP_LINES);
    } else {
        step = append(b, picks ? TRAJD_IMAGE_OP_PICK : TRAJD_IMAGE_OP_FILTER);
        step->filter = (uint8_t)from->filter;
        step->rounds_between = trajd_image_rounds_between(from->filter);
        step->has_own_tables = 1;
        step->y = own_table(b, from->filter, step->from_height, from->height);
        step->x = own_table(b, from->filter, step->from_width, from->width);
    }
    end_step(b, step, from->height, from->width);
}

static void append_color(struct builder *b, const struct trajd_augment_step *from)
{
    struct trajd_image_step *step = append(b, TRAJD_IMAGE_OP_COLOR);

    step->kind = (uint8_t)from->kind;
    if (from->kind == TRAJD_AUGMENT_CONTRAST || from->kind == TRAJD_AUGMENT_CHANNEL_CONTRAST)
        step->mean = b->program->mean_count++;
    end_step(b, step, b->program->height, b->program->width);
}

static void append_step(struct builder *b, const struct trajd_augment_step *from,
                        const struct trajd_augment_frame *frame)
{
    const uint8_t index = b->program->step_count;
    struct trajd_augment_frame now = *frame;
    struct trajd_image_preparation resize;

    now.height = b->program->height;
    now.width = b->program->width;
    switch (from->kind) {
    case TRAJD_AUGMENT_CROP:
        end_step(b, append(b, TRAJD_IMAGE_OP_CROP), from->height, from->width);
        break;
    case TRAJD_AUGMENT_FLIP:
        end_step(b, append(b, TRAJD_IMAGE_OP_FLIP), now.height, now.width);
        break;
    case TRAJD_AUGMENT_AFFINE:
        end_step(b,
                 append(b, from->filter == TRAJD_IMAGE_NEAREST ? TRAJD_IMAGE_OP_WARP_NEAREST
                                                               : TRAJD_IMAGE_OP_WARP_LINEAR),
                 now.height, now.width);
        break;
    case TRAJD_AUGMENT_RESIZE:
        resize = trajd_augment_box_resize(from, &now, NULL);
        append_resize(b, &resize);
        break;
    case TRAJD_AUGMENT_RESIZED_CROP:
        append_resized_crop(b, from);
        break;
    default:
        append_color(b, from);
    }
    b->program->steps[index].value = b->program->value_count++;
}

static bool mixes(const struct trajd_image_step *step)
{
    return step->op >= TRAJD_IMAGE_OP_WARP_LINEAR && step->op != TRAJD_IMAGE_OP_COLOR;
}

/* Divides the steps into passes. */
static void divide(struct trajd_image_program *program, uint32_t pixel_bytes)
{
    uint8_t i = 0;

    do {
        struct trajd_image_pass *pass = &program->passes[program->pass_count++];
        uint32_t mixing = 0;
        pass->first = i;
        for (; i < program->step_count && program->steps[i].op != TRAJD_IMAGE_OP_COLOR; i++) {
            mixing += mixes(&program->steps[i]);
            if (mixing > 1)
                break;
        }
        pass->colors = i;
        while (i < program->step_count && program->steps[i].op == TRAJD_IMAGE_OP_COLOR)
            i++;
        pass->end = i;
        if (i < program->step_count) {
            const struct trajd_image_step *last = &program->steps[i - 1];
            const uint64_t bytes = (uint64_t)last->height * last->width * pixel_bytes;
            program->between_bytes =
                program->between_bytes > bytes ? program->between_bytes : bytes;
        }
    } while (i < program->step_count);
    program->between_bytes = (program->between_bytes + 15) / 16 * 16;
}

enum trajd_status trajd_image_program_make(const struct trajd_image_gpu_spec *spec,
                                           struct trajd_image_program *program, uint32_t **tables,
                                           struct trajd_error *error)
{
    const struct trajd_image_preparation *p = spec->preparation;
    const struct trajd_image_finish *f = &spec->finish;
    struct builder builder = {.program = program};

    *program = (struct trajd_image_program){
        .channels = (uint8_t)f->channels,
        .rounds = spec->augment && spec->augment->rounding == TRAJD_AUGMENT_ROUND_EACH,
        .source_type = (uint8_t)f->source,
        .type = (uint8_t)f->type,
        .layout = (uint8_t)f->layout,
        .from_height = p ? p->source_height : spec->frame.height,
        .from_width = p ? p->source_width : spec->frame.width,
    };
    program->height = program->from_height;
    program->width = program->from_width;
    memcpy(program->scale, f->scale, sizeof program->scale);
    memcpy(program->offset, f->offset, sizeof program->offset);
    if (p)
        append_resize(&builder, p);
    for (uint32_t i = 0; spec->augment && i < spec->augment->count; i++)
        append_step(&builder, &spec->augment->steps[i], &spec->frame);
    divide(program, f->channels * trajd_dtype_size(f->source));
    *tables = builder.tables;
    if (!builder.failed)
        return TRAJD_OK;
    free(builder.tables);
    *tables = NULL;
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for tables of images");
}

static void write_warp(const struct trajd_image_step *step, const float *values,
                       union trajd_image_value *value)
{
    const struct trajd_augment_warp warp =
        trajd_augment_warp_make(values, step->from_height, step->from_width);
    const int64_t words[6] = {warp.y, warp.x, warp.y_down, warp.x_down, warp.y_right, warp.x_right};

    memcpy(value->warp, words, sizeof words);
}

static void write_line(float begin, float share, uint32_t size, uint32_t output, int64_t *words)
{
    const struct trajd_augment_line line = trajd_augment_line_make(begin, share, size, output);

    words[0] = line.first;
    words[1] = line.step;
    words[2] = line.last;
}

static void write_value(const struct trajd_image_step *step, const float *values,
                        union trajd_image_value *value)
{
    switch (step->op) {
    case TRAJD_IMAGE_OP_WARP_NEAREST:
    case TRAJD_IMAGE_OP_WARP_LINEAR:
        write_warp(step, values, value);
        break;
    case TRAJD_IMAGE_OP_LINES:
        write_line(values[0], values[2], step->from_height, step->height, value->lines[0]);
        write_line(values[1], values[3], step->from_width, step->width, value->lines[1]);
        break;
    case TRAJD_IMAGE_OP_COLOR:
        value->factor = values[0];
        break;
    default:
        for (int i = 0; i < TRAJD_AUGMENT_VALUES; i++)
            value->box[i] = (int32_t)values[i];
    }
}

void trajd_image_program_write(const struct trajd_image_program *program,
                               const struct trajd_augment_params *params,
                               union trajd_image_value *values)
{
    /* a preparation is the first step, and has no value */
    const uint32_t first = program->step_count - program->value_count;

    memset(values, 0, program->value_count * sizeof *values);
    for (uint32_t i = 0; i < program->value_count; i++)
        write_value(&program->steps[first + i], params->values[i], &values[i]);
}
