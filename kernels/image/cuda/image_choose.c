/* The choice of kernels. The numbers come from an H200 (README.md). */
#include "kernels/image/cuda/image_choose.h"

#include <string.h>

#include "proto/array_len.h"

enum {
    SHARED_BYTES_MAX = 220000, /* of a block */
    COLOR_BYTES = 44000,       /* of a block with colours: several fit into a multiprocessor */
    PLAIN_BYTES = 12000,       /* of one without */
    BLOCKS_MIN = 256,          /* of a launch, while each thread has a group */
    THREADS = 256,
    ITEMS_MAX = 65535, /* of a block: the division by groups is exact below 2^16 */
    CAPABILITY_MIN = 90,
    MATRIX_CHUNKS = 8, /* blocks of source rows in shared memory: more are not faster */
    MATRIX_WIDTH_MIN = 256,
    MATRIX_PIXELS_MIN = 5350000,         /* of all frames, before and after */
    MATRIX_PIXELS_MIN_NARROW = 40000000, /* where a warp has two tiles */
    FEW_FRAMES = 16,
    CROP_WARPS = 5, /* that sum: more would have too few registers */
};

static bool is_simple_color(const struct trajd_image_step *step)
{
    return step->kind >= TRAJD_AUGMENT_BRIGHTNESS && step->kind <= TRAJD_AUGMENT_HUE;
}

/* Returns why a program is not for the kernel "strip", or NULL. */
static const char *refuse_strip(const struct trajd_image_program *p)
{
    const struct trajd_image_pass *pass = &p->passes[0];

    if (p->source_type != TRAJD_U8 || p->channels != 3)
        return "only colour images";
    if (p->pass_count > 1)
        return "several passes";
    for (uint32_t i = 0; i < pass->colors; i++)
        if (p->steps[i].op > TRAJD_IMAGE_OP_FLIP)
            return "more than crops and flips";
    if (pass->end - pass->colors > TRAJD_IMAGE_STRIP_COLORS || p->mean_count > 1)
        return "more than 4 colour steps, or than one contrast";
    for (uint32_t i = pass->colors; i < pass->end; i++)
        if (!is_simple_color(&p->steps[i]))
            return "colours of tf.image";
    if (p->rounds && pass->end > pass->colors)
        return "colours that round after each step";
    return NULL;
}

/* Returns whether the colours are brightness, contrast, saturation, hue, or some of them in this order. */
static bool is_ordered(const struct trajd_image_program *p)
{
    const struct trajd_image_pass *pass = &p->passes[0];

    for (uint32_t i = pass->colors + 1U; i < pass->end; i++)
        if (p->steps[i].kind <= p->steps[i - 1].kind)
            return false;
    return true;
}

enum trajd_image_strip_colors trajd_image_strip_colors_of(const struct trajd_image_program *program)
{
    const struct trajd_image_pass *pass = &program->passes[0];

    if (pass->end == pass->colors)
        return TRAJD_IMAGE_STRIP_PLAIN;
    return is_ordered(program) ? TRAJD_IMAGE_STRIP_ORDERED : TRAJD_IMAGE_STRIP_STEPS;
}

bool trajd_image_strip_cut(const struct trajd_image_program *program, uint32_t blocks,
                           struct trajd_image_strip *strip)
{
    const uint32_t rows = (program->height - 1) / blocks + 1;
    const uint64_t bytes = (uint64_t)(rows - 1) * program->from_width * 3 +
                           (uint64_t)program->width * 3 + 48 /* alignment, and reading beyond */;

    strip->rows = rows;
    strip->blocks = program->mean_count ? blocks : (program->height - 1) / rows + 1;
    strip->groups = (program->width - 1) / 4 + 1;
    strip->shared_bytes = (uint32_t)(bytes + 15) / 16 * 16 + TRAJD_IMAGE_STRIP_HEAD_BYTES;
    return bytes <= SHARED_BYTES_MAX && (uint64_t)rows * strip->groups <= ITEMS_MAX;
}

/* Returns whether more blocks a frame are better than a cut: a block is too large for several to fit into a
 * multiprocessor, or there are too few blocks for all of them. */
static bool is_coarse(const struct trajd_image_program *program, uint32_t frame_count,
                      const struct trajd_image_strip *strip)
{
    const struct trajd_image_pass *pass = &program->passes[0];
    const bool has_colors = pass->end > pass->colors;
    const uint32_t items = strip->rows * strip->groups;
    const uint64_t blocks = (uint64_t)frame_count * strip->blocks;

    if (strip->shared_bytes > (has_colors ? COLOR_BYTES : PLAIN_BYTES))
        return true;
    return items >= THREADS &&
           blocks < (has_colors && items >= 3 * THREADS ? 2 * BLOCKS_MIN : BLOCKS_MIN);
}

/* Doubles the blocks of a frame until they are small. Those of a frame with a mean are a cluster. */
static bool choose_strip(const struct trajd_image_program *program, uint32_t frame_count,
                         struct trajd_image_strip *strip)
{
    const uint32_t most = program->mean_count ? TRAJD_IMAGE_CLUSTER_MAX : program->height;
    uint32_t blocks = 1;

    strip->colors = trajd_image_strip_colors_of(program);
    while (blocks * 2 <= most && (!trajd_image_strip_cut(program, blocks, strip) ||
                                  is_coarse(program, frame_count, strip)))
        blocks *= 2;
    return trajd_image_strip_cut(program, blocks, strip);
}

/* Returns why a program is not for the kernel "resize", or NULL. */
static const char *refuse_resize(const struct trajd_image_program *p)
{
    const struct trajd_image_step *step = &p->steps[0];

    if (p->step_count != 1 || step->op != TRAJD_IMAGE_OP_FILTER)
        return "more than one resize";
    if (step->has_own_tables)
        return "boxes that frames have of their own";
    if (p->source_type != TRAJD_U8 || p->channels != 3)
        return "only colour images";
    if (step->rounds_between)
        return "a filter that rounds between the axes";
    if (step->pad && (step->y.count < p->height || step->x.count < p->width))
        return "padding that is not 0";
    if (p->from_width % 16)
        return "a width that is not a multiple of 16";
    return NULL;
}

/* Returns why a program is not for the kernel "crop", or NULL. */
static const char *refuse_crop(const struct trajd_image_program *p)
{
    const struct trajd_image_step *step = &p->steps[0];

    if (p->step_count != 1 || step->op != TRAJD_IMAGE_OP_FILTER || !step->has_own_tables)
        return "more than one random resized crop";
    if (p->source_type != TRAJD_U8 || p->channels != 3)
        return "only colour images";
    if (step->filter != TRAJD_IMAGE_PILLOW_BILINEAR && step->filter != TRAJD_IMAGE_LINEAR)
        return "a filter that is not bilinear";
    if (p->from_width % 16)
        return "a width that is not a multiple of 16";
    return NULL;
}

/* Several blocks a multiprocessor: one sums along y while another one multiplies. Narrow rows leave room
 * for four. Of few frames, all blocks share each frame: fewer and larger ones then read fewer rows
 * twice. */
static bool choose_resize(const struct trajd_image_program *program, const uint32_t *tables,
                          uint32_t frame_count, struct trajd_image_resize *resize)
{
    const bool is_few = frame_count <= FEW_FRAMES;
    const struct {
        bool suits;
        uint32_t threads, blocks;
    } cuts[] = {{is_few && program->from_width > 3 * program->width, 512, 1},
                {!is_few && program->from_width <= 256, 128, 4},
                {true, 256, 2},
                {true, 512, 1}};

    for (size_t i = 0; i < ARRAY_LEN(cuts); i++)
        if (cuts[i].suits && trajd_image_resize_cut(program, tables, cuts[i].threads,
                                                    cuts[i].blocks, TRAJD_IMAGE_CHUNKS_MAX, resize))
            return true;
    return false;
}

/* Returns whether there is enough work for the kernel "matrix": it begins slowly, and each of its blocks
 * takes many rows. */
static bool is_matrix_work(const struct trajd_image_program *p, uint32_t frame_count,
                           const struct trajd_image_matrix *matrix)
{
    const uint64_t pixels =
        (uint64_t)frame_count * (p->from_height * p->from_width + p->height * p->width);

    return p->from_width >= MATRIX_WIDTH_MIN && !matrix->has_spare_steps &&
           pixels >= (matrix->tiles == 4 ? MATRIX_PIXELS_MIN : MATRIX_PIXELS_MIN_NARROW);
}

static bool choose_matrix(const struct trajd_image_program *program, const uint32_t *tables,
                          uint32_t frame_count, bool is_requested,
                          struct trajd_image_matrix *matrix)
{
    return trajd_image_matrix_cut(program, tables, UINT32_MAX, MATRIX_CHUNKS, matrix) &&
           (is_requested || is_matrix_work(program, frame_count, matrix));
}

/* One way to serve a program. The first row that serves it is taken, or the one that is requested by
 * name. */
struct candidate {
    const char *name;
    enum trajd_image_variant variant;
    const char *(*refuse)(const struct trajd_image_program *program);
    const char *why;
};

static const struct candidate candidates[] = {
    {"strip", TRAJD_IMAGE_STRIP, refuse_strip, "only crops, flips and colours"},
    {"matrix", TRAJD_IMAGE_MATRIX, refuse_resize, "one resize of many pixels"},
    {"resize", TRAJD_IMAGE_RESIZE, refuse_resize, "one resize whose rows fit into shared memory"},
    {"crop", TRAJD_IMAGE_CROP, refuse_crop, "one random resized crop"},
};

/* Cuts a program for its kernels. Returns the shared memory of a block, or 0 where it does not fit. */
static uint32_t cut(const struct trajd_image_program *program, const uint32_t *tables,
                    uint32_t frame_count, enum trajd_image_variant variant, bool is_requested,
                    struct trajd_image_choice *c)
{
    switch (variant) {
    case TRAJD_IMAGE_STRIP:
        return choose_strip(program, frame_count, &c->strip) ? c->strip.shared_bytes : 0;
    case TRAJD_IMAGE_RESIZE:
        return choose_resize(program, tables, frame_count, &c->resize) ? c->resize.shared_bytes : 0;
    case TRAJD_IMAGE_CROP:
        return trajd_image_crop_cut(program, CROP_WARPS, TRAJD_IMAGE_CHUNKS_MAX, &c->matrix)
                   ? c->matrix.shared_bytes
                   : 0;
    default:
        return choose_matrix(program, tables, frame_count, is_requested, &c->matrix)
                   ? c->matrix.shared_bytes
                   : 0;
    }
}

const char *trajd_image_variant_name(enum trajd_image_variant variant)
{
    static const char *const names[] = {"strip", "resize", "matrix", "crop", "general"};

    return names[variant];
}

/* Returns why the general kernels serve a program. */
static const char *why_general(const struct trajd_image_program *program)
{
    const struct trajd_image_step *step = &program->steps[0];
    const bool is_resize = program->step_count == 1 && step->op == TRAJD_IMAGE_OP_FILTER;
    const char *reason = !is_resize             ? refuse_strip(program)
                         : step->has_own_tables ? refuse_crop(program)
                                                : refuse_resize(program);

    return reason ? reason : "rows that do not fit into shared memory";
}

void trajd_image_choose(const struct trajd_image_program *program, const uint32_t *tables,
                        const struct trajd_device_facts *facts, uint32_t frame_count,
                        const char *requested, struct trajd_image_choice *choice)
{
    *choice = (struct trajd_image_choice){.variant = TRAJD_IMAGE_GENERAL,
                                          .why = "a GPU older than sm_90"};
    if (facts->compute_capability < CAPABILITY_MIN)
        return;
    for (size_t i = 0; i < ARRAY_LEN(candidates); i++) {
        const struct candidate *c = &candidates[i];
        const bool is_requested = requested && !strcmp(requested, c->name);
        uint32_t shared_bytes;
        if ((requested && !is_requested) || c->refuse(program))
            continue;
        shared_bytes = cut(program, tables, frame_count, c->variant, is_requested, choice);
        if (shared_bytes && shared_bytes <= facts->block_shared_bytes) {
            choice->variant = c->variant;
            choice->why = is_requested ? "requested by name" : c->why;
            return;
        }
    }
    choice->why = why_general(program);
}
