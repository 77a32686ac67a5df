/* How frames are cut for the kernel "matrix", and its tables. image_matrix.cu explains them. */
#include "kernels/image/cuda/image_axis.h"
#include "kernels/image/cuda/image_choose.h"
#include "proto/array_len.h"

enum {
    SHARED_BYTES = 227 * 1024, /* of a multiprocessor */
    BLOCK_BYTES = 1024,        /* that each block costs besides */
    HEAD_BYTES = 1024,         /* barriers */
    BLOCK_ROWS = 8,
    TILE_ROWS = 8,
    TILE_PIXELS = 4,
    LANES = 32,
    BLOCKS = 2, /* of a multiprocessor */
    CHUNKS_MIN = 3,
};

/* What kernels are compiled for: image_matrix.cu. The first one that fits is taken. More warps that
 * sum would have too few registers. */
static const struct {
    uint32_t tiles, steps, live, warps;
} shapes[] = {{4, 1, 3, 7}, {4, 2, 2, 5}, {4, 2, 3, 5}, {2, 4, 3, 5}};

static uint32_t round_up(uint32_t value, uint32_t to)
{
    return (value + to - 1) / to * to;
}

/* The source blocks of a tile of output rows. Tiles of padding need none. */
static void row_span(const struct trajd_image_program *p, const uint32_t *tables, uint32_t tile,
                     uint32_t *first, uint32_t *end)
{
    const struct trajd_image_axis_table *y = &p->steps[0].y;
    const uint32_t last = at_most((tile + 1) * TILE_ROWS, p->height);

    const uint32_t begin = tile * TILE_ROWS > y->place ? tile * TILE_ROWS : y->place;
    const uint32_t stop = at_most(last, y->place + y->count);

    if (begin < stop) {
        *first = trajd_image_axis_start(tables, y, begin) / BLOCK_ROWS;
        *end = (trajd_image_axis_end(tables, y, stop - 1) - 1) / BLOCK_ROWS + 1;
    } else if (last <= y->place) {
        *first = *end = trajd_image_axis_start(tables, y, 0) / BLOCK_ROWS;
    } else {
        *first = *end = (trajd_image_axis_end(tables, y, last - 1) - 1) / BLOCK_ROWS + 1;
    }
}

/* The tiles of rows that need no source block from `block` on. */
static uint32_t tiles_before(const struct trajd_image_program *p, const uint32_t *tables,
                             uint32_t block)
{
    const uint32_t tiles = (p->height - 1) / TILE_ROWS + 1;
    uint32_t tile = 0, first, end;

    for (; tile < tiles; tile++) {
        row_span(p, tables, tile, &first, &end);
        if (end > block)
            break;
    }
    return tile;
}

static uint32_t live_tiles(const struct trajd_image_program *p, const uint32_t *tables)
{
    const uint32_t tiles = (p->height - 1) / TILE_ROWS + 1;
    uint32_t most = 1, first, end;

    for (uint32_t tile = 0; tile < tiles; tile++) {
        row_span(p, tables, tile, &first, &end);
        if (end > first) {
            const uint32_t live = tile - tiles_before(p, tables, first) + 1;
            most = live > most ? live : most;
        }
    }
    return most;
}

/* The bytes of a source row that a tile of columns needs: from a multiple of 16 on. */
static uint32_t column_first(const struct trajd_image_program *p, const uint32_t *tables,
                             uint32_t tile, uint32_t *end)
{
    const struct trajd_image_axis_table *x = &p->steps[0].x;
    const uint32_t begin = at_most(tile * TILE_PIXELS, p->width - 1);
    const uint32_t last = at_most((tile + 1) * TILE_PIXELS, p->width) - 1;

    *end = trajd_image_axis_end(tables, x, last) * 3;
    return trajd_image_axis_start(tables, x, begin) * 3 / 16 * 16;
}

static uint32_t column_steps(const struct trajd_image_program *p, const uint32_t *tables)
{
    uint32_t most = 1, end;

    for (uint32_t tile = 0; tile * TILE_PIXELS < p->width; tile++) {
        const uint32_t first = column_first(p, tables, tile, &end);
        most = (end - first - 1) / 32 + 1 > most ? (end - first - 1) / 32 + 1 : most;
    }
    return most;
}

static bool take_shape(const struct trajd_image_program *p, const uint32_t *tables,
                       struct trajd_image_matrix *m)
{
    const uint32_t steps = column_steps(p, tables), live = live_tiles(p, tables);

    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        if (steps <= shapes[i].steps && live <= shapes[i].live) {
            m->tiles = shapes[i].tiles;
            m->steps = shapes[i].steps;
            m->live = shapes[i].live;
            m->warps = shapes[i].warps;
            m->has_spare_steps = m->tiles == 2 && steps < m->steps;
            return true;
        }
    return false;
}

/* Divides columns into groups for warps, and these into bands of the same size. */
static void divide_columns(const struct trajd_image_program *p, uint32_t warps_max,
                           struct trajd_image_matrix *m)
{
    m->groups = (p->width - 1) / (m->tiles * TILE_PIXELS) + 1;
    m->bands = (m->groups - 1) / warps_max + 1;
    m->warps = (m->groups - 1) / m->bands + 1;
    m->bands = (m->groups - 1) / m->warps + 1;
}

/* The bytes of a source row that a band needs. */
static uint32_t band_first(const struct trajd_image_program *p, const uint32_t *tables,
                           const struct trajd_image_matrix *m, uint32_t band, uint32_t *bytes)
{
    const uint32_t group = at_most((band + 1) * m->warps, m->groups), tiles = m->tiles;
    uint32_t end;
    const uint32_t first = column_first(p, tables, band * m->warps * tiles, &end);

    column_first(p, tables, at_most(group * tiles, (p->width - 1) / TILE_PIXELS + 1) - 1, &end);
    *bytes = round_up(end, 16) - first;
    return first;
}

/* An odd multiple of 16 bytes: 8 rows are in different banks. `bytes`: of a row, a multiple of 16. A
 * warp reads whole tiles: behind the row there is room for what the last tile does not need, so that it
 * reads no row that is being loaded. */
static uint32_t pitch_of(const struct trajd_image_matrix *m, uint32_t bytes)
{
    const uint32_t read = bytes + m->steps * 32 - 16;

    return read / 16 % 2 ? read : read + 16;
}

static uint32_t stage_bytes(const struct trajd_image_program *p, uint32_t tiles)
{
    const bool chw = p->layout == TRAJD_IMAGE_CHW;
    const uint32_t row =
        (chw ? 1 : 3) * tiles * TILE_PIXELS * trajd_dtype_size((enum trajd_dtype)p->type);
    const uint32_t plane = TILE_ROWS * (round_up(row, 16) + 16) + 16;

    return chw ? 3 * plane : plane;
}

static void place_tables(const struct trajd_image_program *p, struct trajd_image_matrix *m)
{
    const uint32_t blocks = (p->from_height - 1) / BLOCK_ROWS + 1;

    m->row_spans = 0;
    m->tile_firsts = m->row_spans + 2 * m->row_tiles;
    m->rows = m->tile_firsts + blocks + 1;
    m->band_spans = round_up(m->rows + blocks * m->live * LANES, 4);
    m->table_bytes = m->band_spans * sizeof(uint32_t);
    m->column_firsts = m->band_spans + 2 * m->bands;
    m->columns = round_up(m->column_firsts + m->groups * m->tiles, 4);
    m->words = m->columns + m->groups * m->tiles * m->steps * 2 * LANES * 4;
}

bool trajd_image_matrix_cut(const struct trajd_image_program *program, const uint32_t *tables,
                            uint32_t warps_max, uint32_t chunks_max,
                            struct trajd_image_matrix *matrix)
{
    const uint32_t room = SHARED_BYTES / BLOCKS - BLOCK_BYTES;
    struct trajd_image_matrix *m = matrix;
    uint32_t most = 0, fixed;

    *m = (struct trajd_image_matrix){.blocks = BLOCKS,
                                     .strips = 1,
                                     .clips = program->steps[0].filter == TRAJD_IMAGE_TF_LANCZOS3};
    if (!take_shape(program, tables, m))
        return false;
    divide_columns(program, at_most(warps_max, m->warps), m);
    for (uint32_t band = 0; band < m->bands; band++) {
        uint32_t bytes;
        band_first(program, tables, m, band, &bytes);
        most = bytes > most ? bytes : most;
    }
    m->pitch = pitch_of(m, most);
    m->row_tiles = m->strip_tiles = (program->height - 1) / TILE_ROWS + 1;
    m->stage_bytes = stage_bytes(program, m->tiles);
    place_tables(program, m);
    fixed = HEAD_BYTES + m->table_bytes + m->warps * m->stage_bytes;
    if (fixed + CHUNKS_MIN * BLOCK_ROWS * m->pitch > room)
        return false;
    m->chunks = at_most((room - fixed) / (BLOCK_ROWS * m->pitch),
                        at_most(chunks_max, TRAJD_IMAGE_CHUNKS_MAX));
    m->shared_bytes = fixed + m->chunks * BLOCK_ROWS * m->pitch;
    return m->chunks >= CHUNKS_MIN;
}

/* The most source bytes, from a multiple of 16 on, that output pixels up to `distance` apart need. A box is
 * a frame at most. */
static uint32_t crop_bytes(const struct trajd_image_program *p, uint32_t distance)
{
    const double scale = (double)p->from_width / p->width;
    const double support = p->steps[0].filter == TRAJD_IMAGE_LINEAR || scale < 1 ? 1 : scale;
    const double pixels = ceil(distance * scale + 2 * support - 1e-9);

    return at_most((uint32_t)pixels * 3 + 15, p->from_width * 3);
}

bool trajd_image_crop_cut(const struct trajd_image_program *program, uint32_t warps_max,
                          uint32_t chunks_max, struct trajd_image_matrix *matrix)
{
    const uint32_t room = SHARED_BYTES / BLOCKS - BLOCK_BYTES;
    struct trajd_image_matrix *m = matrix;
    uint32_t fixed, kept;

    *m = (struct trajd_image_matrix){.tiles = 4, .live = 3, .blocks = BLOCKS, .strips = 1};
    m->steps = (crop_bytes(program, TILE_PIXELS - 1) - 1) / 32 + 1;
    divide_columns(program, warps_max, m);
    m->pitch =
        pitch_of(m, round_up(crop_bytes(program, m->warps * m->tiles * TILE_PIXELS - 1), 16));
    m->row_tiles = m->strip_tiles = (program->height - 1) / TILE_ROWS + 1;
    m->stage_bytes = stage_bytes(program, m->tiles);
    kept = m->row_tiles / 3 > TRAJD_IMAGE_CROP_BLOCKS ? m->row_tiles / 3 : TRAJD_IMAGE_CROP_BLOCKS;
    fixed = HEAD_BYTES + m->warps * m->stage_bytes;
    if (fixed >= room)
        return false;
    m->chunks = at_most((room - fixed) / (BLOCK_ROWS * m->pitch),
                        at_most(chunks_max, TRAJD_IMAGE_CHUNKS_MAX));
    m->shared_bytes = fixed + m->chunks * BLOCK_ROWS * m->pitch;
    return m->steps <= 2 && m->chunks >= kept;
}

/* Three quarters of a tile are made twice, or are weights. */
void trajd_image_matrix_divide(uint32_t frame_count, uint32_t block_count,
                               struct trajd_image_matrix *matrix)
{
    matrix->grid_blocks = block_count;
    trajd_image_axis_divide((uint64_t)frame_count * matrix->bands, matrix->row_tiles, block_count,
                            0.75, &matrix->strip_tiles, &matrix->strips);
}

static uint32_t pair_of(float low, float high)
{
    return trajd_image_axis_half(low) | (uint32_t)trajd_image_axis_half(high) << 16;
}

/* The weights along y of a source block for a tile of output rows: the right operand of mma.m16n8k8. */
static void fill_rows(const struct trajd_image_program *p, const uint32_t *tables, uint32_t block,
                      uint32_t tile, uint32_t *words)
{
    const struct trajd_image_axis_table *y = &p->steps[0].y;

    for (uint32_t lane = 0; lane < LANES; lane++) {
        const uint32_t row = tile * TILE_ROWS + lane / 4;
        const uint32_t from = block * BLOCK_ROWS + lane % 4 * 2;
        words[lane] = row < p->height ? pair_of(trajd_image_axis_weight(tables, y, row, from),
                                                trajd_image_axis_weight(tables, y, row, from + 1))
                                      : 0;
    }
}

/* The weight of a byte of a source row in row `row` of a tile of columns: rows 0 to 5 and 8 to 13 are
 * pixels 0, 2 and 1, 3 with 3 channels each. */
static float byte_weight(const struct trajd_image_program *p, const uint32_t *tables, uint32_t tile,
                         uint32_t row, uint32_t byte)
{
    const uint32_t group = row % 8, pixel = tile * TILE_PIXELS + group / 3 * 2 + row / 8;

    if (group >= 6 || pixel >= p->width || byte % 3 != group % 3)
        return 0;
    return trajd_image_axis_weight(tables, &p->steps[0].x, pixel, byte / 3) *
           (16777216 / TRAJD_IMAGE_MATRIX_SCALE); /* bytes are multiplied by 2^-24 */
}

/* The weights of a tile of columns for 16 bytes: the left operand of mma.m16n8k16. A lane's word of a
 * source row has 4 bytes: columns 2t, 2t + 1, 2t + 8, 2t + 9 of the operand. */
static void fill_columns(const struct trajd_image_program *p, const uint32_t *tables, uint32_t tile,
                         uint32_t first_byte, uint32_t *words)
{
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t word = 0; word < 4; word++) {
            const uint32_t row = lane / 4 + word % 2 * 8;
            const uint32_t byte = first_byte + lane % 4 * 4 + word / 2 * 2;
            words[lane * 4 + word] = pair_of(byte_weight(p, tables, tile, row, byte),
                                             byte_weight(p, tables, tile, row, byte + 1));
        }
}

void trajd_image_matrix_fill(const struct trajd_image_program *program, const uint32_t *tables,
                             const struct trajd_image_matrix *matrix, uint32_t *words)
{
    const struct trajd_image_matrix *m = matrix;
    const uint32_t blocks = (program->from_height - 1) / BLOCK_ROWS + 1;

    memset(words, 0, m->words * sizeof *words);
    for (uint32_t tile = 0; tile < m->row_tiles; tile++)
        row_span(program, tables, tile, &words[m->row_spans + 2 * tile],
                 &words[m->row_spans + 2 * tile + 1]);
    for (uint32_t block = 0; block <= blocks; block++) {
        const uint32_t tile = words[m->tile_firsts + block] = tiles_before(program, tables, block);
        for (uint32_t l = 0; block < blocks && l < m->live; l++)
            fill_rows(program, tables, block, tile + l,
                      words + m->rows + (block * m->live + (tile + l) % m->live) * LANES);
    }
    for (uint32_t band = 0; band < m->bands; band++)
        words[m->band_spans + 2 * band] =
            band_first(program, tables, m, band, &words[m->band_spans + 2 * band + 1]);
    for (uint32_t tile = 0; tile < m->groups * m->tiles; tile++) {
        uint32_t end;
        const uint32_t first = column_first(program, tables, tile, &end);
        words[m->column_firsts + tile] = first;
        for (uint32_t i = 0; i < 2 * m->steps; i++)
            fill_columns(program, tables, tile, first + i * 16,
                         words + m->columns + (tile * 2 * m->steps + i) * LANES * 4);
    }
}
