/* Plans, and the preparation of a frame: which rows are summed when. image_sums.c does the sums.
 *
 * Most filters go along y first. The filters that round between the axes (Pillow's bicubic and
 * lanczos) go along x first, over all source rows that are needed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/image/image_frame.h"
#include "kernels/image/image_sums.h"

enum { ROWS = TRAJD_IMAGE_ROWS };

/* Whole numbers stand for value * 2^shift. Sums of filters with negative weights leave 0..255, and
 * single weights can be above 1. They have half weights, so that each axis takes a bit off. */
static const int fine_shift = 7, wide_shift = 6;

struct trajd_image_plan {
    struct trajd_image_preparation preparation;
    struct trajd_image_span rows, columns;
    struct trajd_image_axis y, x;
    int shift;         /* of widened bytes */
    int lost_bits;     /* of the shift, in each axis */
    uint32_t elements; /* of a row of the crop box, rounded up to 8 */
    uint32_t results;  /* of a row of the result, rounded up to 8 */
    uint32_t ring_rows;
    int16_t *ring;                 /* [ring_rows][elements or results]: source rows as int16 */
    int16_t *sums;                 /* [ROWS][elements] */
    int16_t *turned;               /* [elements][ROWS] */
    int16_t *result;               /* [results][ROWS] */
    const int16_t **ring_pointers; /* [ring_rows] */
    const uint8_t **pointers;      /* [ring_rows] */
    uint8_t *between; /* [rows of the crop box][results], of filters that round between the axes */
};

/* Returns whether sums of 16 bits leave 0..255, because the filter has negative weights. */
static bool overshoots(enum trajd_image_filter filter)
{
    return filter == TRAJD_IMAGE_TF_LANCZOS3;
}

/* Rounds the weights of a pixel so that they add up to the whole: each rounding error goes on to
 * the next weight. */
static void round_weights(const double *weights, uint32_t count, double whole, int16_t *rounded)
{
    double exact = 0;
    int32_t sum = 0;

    for (uint32_t k = 0; k < count; k++) {
        exact += weights[k] * whole;
        rounded[k] = (int16_t)fmin(floor(exact + 0.5) - sum, INT16_MAX);
        sum += rounded[k];
    }
}

/* Makes the weights of Pillow: each one rounded on its own. */
static bool make_exact(struct trajd_image_axis *axis)
{
    const size_t count = (size_t)axis->taps.count * axis->taps.stride;

    axis->exact = calloc(count, sizeof *axis->exact);
    for (uint32_t o = 0; axis->exact && o < axis->taps.count; o++)
        for (uint32_t k = 0; k < axis->taps.lengths[o]; k++) {
            const size_t at = (size_t)o * axis->taps.stride + k;
            axis->exact[at] =
                (int32_t)round(axis->taps.weights[at] * (1 << TRAJD_IMAGE_EXACT_BITS));
        }
    return axis->exact;
}

static bool make_axis(enum trajd_image_filter filter, uint32_t size, uint32_t inner,
                      const struct trajd_image_span *span, struct trajd_image_axis *axis)
{
    const double whole = overshoots(filter) ? TRAJD_IMAGE_WHOLE / 2 : TRAJD_IMAGE_WHOLE;

    if (!trajd_image_taps_make(filter, size, inner, span->first, span->count, &axis->taps))
        return false;
    if (trajd_image_rounds_between(filter))
        return make_exact(axis);
    axis->weights = calloc((size_t)axis->taps.count * axis->taps.stride, sizeof *axis->weights);
    for (uint32_t o = 0; axis->weights && o < axis->taps.count; o++)
        round_weights(axis->taps.weights + (size_t)o * axis->taps.stride, axis->taps.lengths[o],
                      whole, axis->weights + (size_t)o * axis->taps.stride);
    return axis->weights;
}

static uint32_t round_up(uint32_t count)
{
    return (count + 7) / 8 * 8;
}

static bool make_buffers(struct trajd_image_plan *plan)
{
    const struct trajd_image_preparation *p = &plan->preparation;
    const uint32_t widest = plan->elements > plan->results ? plan->elements : plan->results;

    plan->ring_rows = plan->y.taps.stride;
    plan->ring = calloc((size_t)plan->ring_rows * widest, sizeof *plan->ring);
    plan->sums = calloc((size_t)ROWS * widest, sizeof *plan->sums);
    plan->turned = calloc((size_t)ROWS * plan->elements, sizeof *plan->turned);
    plan->result = calloc((size_t)ROWS * plan->results, sizeof *plan->result);
    plan->ring_pointers = calloc(plan->ring_rows, sizeof *plan->ring_pointers);
    plan->pointers = calloc(plan->ring_rows, sizeof *plan->pointers);
    if (trajd_image_rounds_between(p->filter))
        plan->between = malloc((size_t)p->crop.height * plan->results);
    return plan->ring && plan->ring_pointers && plan->pointers && plan->sums && plan->turned &&
           plan->result && (plan->between || !trajd_image_rounds_between(p->filter));
}

enum trajd_status trajd_image_plan_create(const struct trajd_image_preparation *preparation,
                                          struct trajd_image_plan **plan, struct trajd_error *error)
{
    const struct trajd_image_preparation *p = preparation;
    enum trajd_status status = trajd_image_check(p, error);
    struct trajd_image_plan *made;

    *plan = NULL;
    if (status)
        return status;
    made = *plan = calloc(1, sizeof *made);
    if (made) {
        made->preparation = *p;
        made->rows = trajd_image_rows(p);
        made->columns = trajd_image_columns(p);
        made->shift = overshoots(p->filter) ? wide_shift : fine_shift;
        made->lost_bits = overshoots(p->filter);
        made->elements = round_up(p->crop.width * p->channels);
        made->results = round_up(made->columns.count * p->channels);
    }
    if (made && make_axis(p->filter, p->crop.height, p->inner_height, &made->rows, &made->y) &&
        make_axis(p->filter, p->crop.width, p->inner_width, &made->columns, &made->x) &&
        (p->filter == TRAJD_IMAGE_NEAREST || make_buffers(made)))
        return TRAJD_OK;
    trajd_image_plan_destroy(plan);
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory to prepare images");
}

void trajd_image_plan_destroy(struct trajd_image_plan **plan)
{
    if (!*plan)
        return;
    trajd_image_taps_free(&(*plan)->y.taps);
    trajd_image_taps_free(&(*plan)->x.taps);
    free((*plan)->y.weights);
    free((*plan)->x.weights);
    free((*plan)->y.exact);
    free((*plan)->x.exact);
    free((*plan)->ring);
    free((*plan)->ring_pointers);
    free((*plan)->pointers);
    free((*plan)->sums);
    free((*plan)->turned);
    free((*plan)->result);
    free((*plan)->between);
    free(*plan);
    *plan = NULL;
}

/* Rows of bytes that are summed along y. Each is widened once, when the first output row needs it. */
struct source_rows {
    struct trajd_yuv_rows *video; /* NULL: rows are pixels, in `bytes`; else planes, made of it */
    const uint8_t *bytes;
    uint64_t step;
    uint32_t count; /* bytes of a row */
    uint32_t room;  /* of a row in the ring */
    uint32_t next;  /* the first row that was not widened */
};

static void sum_along_y(struct trajd_image_plan *plan, struct source_rows *source, uint32_t output,
                        int16_t *out)
{
    const struct trajd_image_taps *taps = &plan->y.taps;
    const uint32_t start = taps->starts[output], length = taps->lengths[output];
    const struct trajd_image_box *crop = &plan->preparation.crop;
    const int16_t **rows = plan->ring_pointers;

    for (uint32_t k = 0; k < length; k++) {
        int16_t *row = plan->ring + (size_t)((start + k) % plan->ring_rows) * source->room;
        if (start + k >= source->next) {
            if (source->video)
                trajd_yuv_rows_read(source->video, crop->top + start + k, crop->left, crop->width,
                                    plan->shift, row);
            else
                trajd_image_widen(row, source->bytes + (start + k) * source->step, source->count,
                                  plan->shift);
            source->next = start + k + 1;
        }
        rows[k] = row;
    }
    trajd_image_sum_rows(out, rows, plan->y.weights + (size_t)output * taps->stride, length,
                         source->count);
}

static uint32_t rows_in_block(uint32_t begin, uint32_t count)
{
    return count - begin < ROWS ? count - begin : ROWS;
}

static void prepare_y_first(struct trajd_image_plan *plan, struct source_rows *source, uint8_t *out,
                            uint64_t step)
{
    const uint32_t count = plan->columns.count * plan->preparation.channels;

    for (uint32_t row = 0; row < plan->rows.count; row += ROWS) {
        const uint32_t rows = rows_in_block(row, plan->rows.count);
        for (uint32_t r = 0; r < rows; r++)
            sum_along_y(plan, source, row + r, plan->sums + (size_t)r * plan->elements);
        trajd_image_turn(plan->turned, plan->sums, plan->elements);
        trajd_image_sum_columns(plan->result, plan->turned, &plan->x, plan->preparation.channels,
                                source->video ? plan->preparation.crop.width : 0);
        trajd_image_store(out + row * step, step, plan->result, rows, count,
                          plan->shift - 2 * plan->lost_bits);
    }
}

static void prepare_x_first(struct trajd_image_plan *plan, const struct source_rows *source,
                            uint8_t *out, uint64_t step)
{
    const struct trajd_image_taps *taps = &plan->y.taps;
    const uint32_t count = plan->columns.count * plan->preparation.channels;
    const uint32_t height = plan->preparation.crop.height;

    for (uint32_t row = 0; row < height; row += ROWS) {
        const uint32_t rows = rows_in_block(row, height);
        for (uint32_t r = 0; r < rows; r++)
            trajd_image_widen(plan->sums + (size_t)r * plan->elements,
                              source->bytes + (row + r) * source->step, source->count, 0);
        trajd_image_turn(plan->turned, plan->sums, plan->elements);
        trajd_image_sum_columns_exact(plan->result, plan->turned, &plan->x,
                                      plan->preparation.channels);
        trajd_image_store(plan->between + (size_t)row * plan->results, plan->results, plan->result,
                          rows, count, 0);
    }
    for (uint32_t row = 0; row < plan->rows.count; row++) {
        for (uint32_t k = 0; k < taps->lengths[row]; k++)
            plan->pointers[k] = plan->between + (size_t)(taps->starts[row] + k) * plan->results;
        trajd_image_sum_rows_exact(out + row * step, plan->pointers,
                                   plan->y.exact + (size_t)row * taps->stride, taps->lengths[row],
                                   count);
    }
}

/* Returns where the resized pixels begin in a prepared frame. */
static uint8_t *inner(const struct trajd_image_plan *plan, void *output)
{
    const struct trajd_image_preparation *p = &plan->preparation;

    return (uint8_t *)output +
           ((uint64_t)plan->rows.place * p->width + plan->columns.place) * p->channels;
}

void trajd_image_prepare(struct trajd_image_plan *plan, const void *source, void *output)
{
    const struct trajd_image_preparation *p = &plan->preparation;
    const uint64_t source_step = (uint64_t)p->source_width * p->channels;
    const uint64_t step = (uint64_t)p->width * p->channels;
    struct source_rows rows = {.bytes = (const uint8_t *)source + p->crop.top * source_step +
                                        p->crop.left * p->channels,
                               .step = source_step,
                               .count = p->crop.width * p->channels,
                               .room = plan->elements};

    trajd_image_pad(p, output);
    if (trajd_image_is_unscaled(p))
        trajd_image_place_unscaled(p, source, output);
    else if (p->filter == TRAJD_IMAGE_NEAREST)
        trajd_image_pick(p, &plan->y.taps, &plan->x.taps, source, output);
    else if (trajd_image_rounds_between(p->filter))
        prepare_x_first(plan, &rows, inner(plan, output), step);
    else
        prepare_y_first(plan, &rows, inner(plan, output), step);
}

bool trajd_image_takes_video(const struct trajd_image_preparation *preparation)
{
    return preparation->channels == 3 && !trajd_image_is_unscaled(preparation) &&
           preparation->filter != TRAJD_IMAGE_NEAREST &&
           !trajd_image_rounds_between(preparation->filter);
}

void trajd_image_prepare_video(struct trajd_image_plan *plan, const struct trajd_yuv *frame,
                               const struct trajd_yuv_colors *colors, void *output)
{
    const struct trajd_image_preparation *p = &plan->preparation;
    struct trajd_yuv_rows video;
    struct source_rows rows = {
        .video = &video, .count = p->crop.width * p->channels, .room = plan->elements};

    trajd_yuv_rows_begin(&video, frame, colors);
    trajd_image_pad(p, output);
    prepare_y_first(plan, &rows, inner(plan, output), (uint64_t)p->width * p->channels);
}
