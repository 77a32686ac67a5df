/* The choice of kernels. The numbers come from an H200 (README.md). */
#include "kernels/image/cuda/image_choose.h"

enum {
    SHARED_BYTES_MAX = 220000, /* of a block */
    COLOR_BYTES = 41000,       /* of a block with colours: several fit into a multiprocessor */
    PLAIN_BYTES = 20600,       /* of one without */
    PLAIN_BLOCKS = 4,          /* of a frame at least, while each thread has a group */
    THREADS = 256,
    CLUSTER_MAX = 8,
    ITEMS_MAX = 65535, /* of a block: the division by groups is exact below 2^16 */
    CAPABILITY_MIN = 90,
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
        return "only colour pictures";
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

bool trajd_image_strip_cut(const struct trajd_image_program *program, uint32_t blocks,
                           struct trajd_image_strip *strip)
{
    const uint32_t rows = (program->height - 1) / blocks + 1;
    const uint64_t bytes = (uint64_t)(rows - 1) * program->from_width * 3 +
                           (uint64_t)program->width * 3 + 48 /* alignment, and reading beyond */;

    strip->rows = rows;
    strip->blocks = program->mean_count ? blocks : (program->height - 1) / rows + 1;
    strip->groups = (program->width - 1) / 4 + 1;
    strip->shared_bytes = (uint32_t)(bytes + 15) / 16 * 16 + 128 /* barrier, sums, colours */;
    return bytes <= SHARED_BYTES_MAX && (uint64_t)rows * strip->groups <= ITEMS_MAX;
}

/* Returns whether more blocks a frame are better than a cut. */
static bool is_coarse(const struct trajd_image_program *program,
                      const struct trajd_image_strip *strip)
{
    const struct trajd_image_pass *pass = &program->passes[0];

    if (pass->end > pass->colors)
        return strip->shared_bytes > COLOR_BYTES;
    return strip->shared_bytes > PLAIN_BYTES ||
           (strip->blocks < PLAIN_BLOCKS && strip->rows * strip->groups >= 2 * THREADS);
}

/* Doubles the blocks of a frame until they are small. Those of a frame with a mean are a cluster. */
static bool choose_strip(const struct trajd_image_program *program, struct trajd_image_strip *strip)
{
    const uint32_t most = program->mean_count ? CLUSTER_MAX : program->height;
    uint32_t blocks = 1;

    while (blocks * 2 <= most &&
           (!trajd_image_strip_cut(program, blocks, strip) || is_coarse(program, strip)))
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
        return "only colour pictures";
    if (step->rounds_between)
        return "a filter that rounds between the axes";
    if (step->pad && (step->y.count < p->height || step->x.count < p->width))
        return "padding that is not 0";
    if (p->from_width % 16)
        return "a width that is not a multiple of 16";
    return NULL;
}

/* Several blocks a multiprocessor: one sums along y while another one multiplies. Narrow rows leave room
 * for four. */
static bool choose_resize(const struct trajd_image_program *program, const uint32_t *tables,
                          struct trajd_image_resize *resize)
{
    static const struct {
        uint32_t width_max, threads, blocks;
    } cuts[] = {{256, 128, 4}, {TRAJD_IMAGE_SIDE_MAX, 256, 2}, {TRAJD_IMAGE_SIDE_MAX, 512, 1}};

    for (uint32_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        if (program->from_width <= cuts[i].width_max &&
            trajd_image_resize_cut(program, tables, cuts[i].threads, cuts[i].blocks,
                                   TRAJD_IMAGE_CHUNKS_MAX, resize))
            return true;
    return false;
}

enum trajd_image_variant trajd_image_choose(const struct trajd_image_program *program,
                                            const uint32_t *tables,
                                            const struct trajd_device_facts *facts,
                                            struct trajd_image_strip *strip,
                                            struct trajd_image_resize *resize, const char **why)
{
    const char *not_strip = refuse_strip(program), *not_resize = refuse_resize(program);

    *why = "a GPU older than sm_90";
    if (facts->compute_capability < CAPABILITY_MIN)
        return TRAJD_IMAGE_GENERAL;
    if (!not_strip && choose_strip(program, strip) &&
        strip->shared_bytes <= facts->block_shared_bytes) {
        *why = "only crops, flips and colours";
        return TRAJD_IMAGE_STRIP;
    }
    if (!not_resize && choose_resize(program, tables, resize) &&
        resize->shared_bytes <= facts->block_shared_bytes) {
        *why = "one resize whose rows fit into shared memory";
        return TRAJD_IMAGE_RESIZE;
    }
    *why = program->step_count == 1 && program->steps[0].op == TRAJD_IMAGE_OP_FILTER
               ? not_resize ? not_resize : "rows that do not fit into shared memory"
           : not_strip ? not_strip
                       : "rows that do not fit into shared memory";
    return TRAJD_IMAGE_GENERAL;
}
