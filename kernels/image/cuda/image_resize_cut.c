/* How frames are cut for the kernel "resize", and its tables. image_resize.cu explains them. */
#include "kernels/image/cuda/image_choose.h"

#include <math.h>
#include <string.h>

#include "kernels/image/cuda/image_axis.h"

enum {
    SHARED_BYTES = 227 * 1024, /* of a multiprocessor */
    BLOCK_BYTES = 1024,        /* that each block costs besides */
    HEAD_BYTES = 1024,         /* barriers */
    CHUNK_ROWS = 4,
    TILE_ROWS = 8,
    CHUNKS_AHEAD = 2, /* more take memory from the first cache, which holds the weights */
    TILE_COLUMNS = 16,
    LANES = 32,
    ROW_HEAD = 3, /* words: start, length, end */
};

/* The most chunks that one turn of the consumers needs at once, wherever an item begins. */
static uint32_t chunks_needed(const struct trajd_image_program *p, const uint32_t *tables,
                              const struct trajd_image_resize *r)
{
    const struct trajd_image_axis_table *y = &p->steps[0].y;
    const uint32_t units = TILE_ROWS * r->column_groups;
    uint32_t most = 0;

    for (uint32_t row = 0; row < p->height; row += TILE_ROWS)
        for (uint32_t unit = 0; unit < units; unit += r->threads) {
            const uint32_t first = row + unit / r->column_groups;
            const uint32_t last =
                row + at_most(unit + r->threads - 1, units - 1) / r->column_groups;
            uint32_t begin, end = 0;
            if (first >= p->height)
                break;
            begin = trajd_image_axis_start(tables, y, first);
            for (uint32_t o = first; o <= at_most(last, p->height - 1); o++)
                end = trajd_image_axis_end(tables, y, o) > end ? trajd_image_axis_end(tables, y, o)
                                                               : end;
            /* the chunk of the first row may begin up to CHUNK_ROWS - 1 rows before it */
            if ((end - begin + 2 * (CHUNK_ROWS - 1)) / CHUNK_ROWS > most)
                most = (end - begin + 2 * (CHUNK_ROWS - 1)) / CHUNK_ROWS;
        }
    return most;
}

/* The first source pixel of a tile of columns, and the pixels that it needs. */
static uint32_t first_column(const struct trajd_image_program *p, const uint32_t *tables,
                             uint32_t tile, uint32_t *count)
{
    const struct trajd_image_axis_table *x = &p->steps[0].x;
    const uint32_t last = at_most((tile + 1) * TILE_COLUMNS, p->width) - 1;
    const uint32_t begin = trajd_image_axis_start(tables, x, tile * TILE_COLUMNS) / 8 * 8;

    *count = trajd_image_axis_end(tables, x, last) - begin;
    return begin;
}

/* Rows between the axes are shifted by 16 bytes against each other, so that 8 of them are in
 * different banks. */
static uint32_t pad_pitch(uint32_t elements)
{
    return (elements + 63 - 8) / 64 * 64 + 8;
}

static void cut_columns(const struct trajd_image_program *p, const uint32_t *tables,
                        struct trajd_image_resize *r)
{
    uint32_t most = 0, end = p->from_width, count;

    r->x_tiles = (p->width - 1) / TILE_COLUMNS + 1;
    for (uint32_t tile = 0; tile < r->x_tiles; tile++) {
        first_column(p, tables, tile, &count);
        most = count > most ? count : most;
    }
    r->k_steps = (most - 1) / 32 * 2 + 2;
    for (uint32_t tile = 0; tile < r->x_tiles; tile++) {
        const uint32_t last = first_column(p, tables, tile, &count) + r->k_steps * 16;
        end = last > end ? last : end;
    }
    r->between_pitch = pad_pitch(end);
}

static bool cut_rows(const struct trajd_image_program *p, const uint32_t *tables,
                     uint32_t chunks_max, struct trajd_image_resize *r)
{
    const uint32_t room = SHARED_BYTES / r->blocks - BLOCK_BYTES;
    const uint32_t entries = (TILE_ROWS + 1) * (ROW_HEAD + r->row_stride) * sizeof(uint32_t);
    const uint32_t needed = chunks_needed(p, tables, r);
    const uint32_t fixed = HEAD_BYTES + TILE_ROWS * 3 * r->between_pitch * 2 + entries;

    if (fixed >= room)
        return false;
    r->chunks = at_most((room - fixed) / (CHUNK_ROWS * r->pitch), chunks_max);
    r->chunks = at_most(r->chunks, needed + CHUNKS_AHEAD);
    r->shared_bytes = fixed + r->chunks * CHUNK_ROWS * r->pitch;
    r->tiles = r->strip_tiles = (p->height - 1) / TILE_ROWS + 1;
    r->strips = 1;
    return needed < r->chunks; /* one more is on its way */
}

bool trajd_image_resize_cut(const struct trajd_image_program *program, const uint32_t *tables,
                            uint32_t threads, uint32_t blocks, uint32_t chunks_max,
                            struct trajd_image_resize *resize)
{
    struct trajd_image_resize *r = resize;

    *r = (struct trajd_image_resize){.threads = threads, .blocks = blocks};
    r->pitch = program->from_width * 3;
    r->column_groups = program->from_width / 8;
    r->turn_rows = threads / r->column_groups;
    r->turn_groups = threads % r->column_groups;
    r->clips = program->steps[0].filter == TRAJD_IMAGE_TF_LANCZOS3;
    cut_columns(program, tables, r);
    r->row_stride = program->steps[0].y.stride;
    r->first_columns = program->height * (ROW_HEAD + r->row_stride);
    r->weights = (r->first_columns + r->x_tiles + 3) / 4 * 4;
    r->words = r->weights + r->x_tiles * r->k_steps * LANES * 4;
    return cut_rows(program, tables, chunks_max, r);
}

void trajd_image_resize_divide(uint32_t frame_count, uint32_t block_count,
                               struct trajd_image_resize *resize)
{
    resize->grid_blocks = block_count;
    trajd_image_axis_divide(frame_count, resize->tiles, block_count, 0.25, &resize->strip_tiles,
                            &resize->strips);
}

/* Rounds the weights of a row to multiples of 2^-15 that add up to 1. Sums of 32768 + level are then
 * exact in what belongs to 32768. */
static void fill_row(const uint32_t *from, uint32_t *to)
{
    double exact = 0, sum = 0;

    for (uint32_t k = 0; k < from[1]; k++) {
        float weight;
        memcpy(&weight, &from[2 + k], sizeof weight);
        exact += (double)weight * 32768;
        weight = (float)(floor(exact + 0.5) - sum) / 32768;
        sum = floor(exact + 0.5);
        memcpy(&to[ROW_HEAD + k], &weight, sizeof weight);
    }
}

static uint32_t weight_at(const struct trajd_image_program *p, const uint32_t *tables,
                          uint32_t output, uint32_t pixel)
{
    return trajd_image_axis_half(trajd_image_axis_weight(tables, &p->steps[0].x, output, pixel));
}

/* The weights of one lane for 16 source pixels: an operand of mma.m16n8k16. Its rows are ordered so
 * that a lane gets 2 output pixels side by side. */
static void fill_lane(const struct trajd_image_program *p, const uint32_t *tables, uint32_t column,
                      uint32_t pixel, uint32_t lane, uint32_t *words)
{
    for (uint32_t word = 0; word < 4; word++) {
        const uint32_t output = column + lane / 4 * 2 + word % 2;
        const uint32_t from = pixel + lane % 4 * 2 + word / 2 * 8;
        words[word] = weight_at(p, tables, output, from) | weight_at(p, tables, output, from + 1)
                                                               << 16;
    }
}

void trajd_image_resize_fill(const struct trajd_image_program *program, const uint32_t *tables,
                             const struct trajd_image_resize *resize, uint32_t *words)
{
    const struct trajd_image_resize *r = resize;
    const struct trajd_image_axis_table *y = &program->steps[0].y;
    uint32_t count;

    memset(words, 0, r->words * sizeof *words);
    for (uint32_t o = 0; o < program->height; o++) {
        uint32_t *to = words + (size_t)o * (ROW_HEAD + r->row_stride);
        to[0] = trajd_image_axis_start(tables, y, o);
        to[2] = trajd_image_axis_end(tables, y, o);
        if (o < y->place || o >= y->place + y->count)
            continue;
        to[1] = trajd_image_axis_entry(tables, y, o)[1];
        fill_row(trajd_image_axis_entry(tables, y, o), to);
    }
    for (uint32_t tile = 0; tile < r->x_tiles; tile++) {
        const uint32_t first = first_column(program, tables, tile, &count);
        words[r->first_columns + tile] = first;
        for (uint32_t step = 0; step < r->k_steps; step++)
            for (uint32_t lane = 0; lane < LANES; lane++)
                fill_lane(program, tables, tile * TILE_COLUMNS, first + step * 16, lane,
                          words + r->weights + ((tile * r->k_steps + step) * LANES + lane) * 4);
    }
}
