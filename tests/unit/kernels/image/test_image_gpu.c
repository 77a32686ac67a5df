/* The host part of images on the GPU: checks, choice of kernels, and their tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/image/cuda/image_choose.h"
#include "kernels/image/cuda/image_gpu.h"

static const struct trajd_device_facts hopper = {
    .sm_count = 132, .compute_capability = 90, .block_shared_bytes = 227 * 1024};
static const struct trajd_device_facts ampere = {
    .sm_count = 108, .compute_capability = 80, .block_shared_bytes = 163 * 1024};
static const struct trajd_device_facts small = {
    .sm_count = 188, .compute_capability = 120, .block_shared_bytes = 99 * 1024};

struct kit {
    struct trajd_image_preparation preparation;
    struct trajd_augment augment;
    struct trajd_image_gpu_spec spec;
    struct trajd_image_program program;
    struct trajd_image_choice choice;
    uint32_t *tables;
    uint32_t frame_count;
};

/* A spec of prepared frames of height x width. */
static void make_prepared(struct kit *kit, uint32_t height, uint32_t width)
{
    *kit = (struct kit){
        .spec = {.frame = {height, width, 3, TRAJD_U8},
                 .finish =
                     {height, width, 3, TRAJD_U8, TRAJD_BF16, TRAJD_IMAGE_CHW, {1, 1, 1, 1}, {0}}},
        .frame_count = 32};
    kit->spec.augment = &kit->augment;
}

static void make_raw(struct kit *kit, uint32_t height, uint32_t width, uint32_t to_height,
                     uint32_t to_width, enum trajd_image_filter filter)
{
    make_prepared(kit, to_height, to_width);
    kit->preparation = (struct trajd_image_preparation){.source_height = height,
                                                        .source_width = width,
                                                        .channels = 3,
                                                        .type = TRAJD_U8,
                                                        .crop = {0, 0, height, width},
                                                        .filter = filter};
    trajd_image_place(&kit->preparation, TRAJD_IMAGE_STRETCH, to_height, to_width);
    kit->spec.preparation = &kit->preparation;
}

static void add(struct kit *kit, struct trajd_augment_step step)
{
    step.probability = 1;
    kit->augment.steps[kit->augment.count++] = step;
}

static void add_crop(struct kit *kit, uint32_t side)
{
    add(kit,
        (struct trajd_augment_step){.kind = TRAJD_AUGMENT_CROP, .height = side, .width = side});
    kit->spec.finish.height = kit->spec.finish.width = side;
}

static void add_color(struct kit *kit, enum trajd_augment_kind kind)
{
    add(kit, (struct trajd_augment_step){.kind = kind, .factor = {0, 0.5}});
}

static enum trajd_image_variant choose(struct kit *kit, const struct trajd_device_facts *facts)
{
    struct trajd_error error;

    if (trajd_image_gpu_check(&kit->spec, &error))
        fail_msg("%s", error.message);
    free(kit->tables);
    assert_int_equal(trajd_image_program_make(&kit->spec, &kit->program, &kit->tables, &error),
                     TRAJD_OK);
    trajd_image_choose(&kit->program, kit->tables, facts, kit->frame_count, kit->spec.requested,
                       &kit->choice);
    return kit->choice.variant;
}

static void test_refused(void **state)
{
    struct trajd_error error;
    struct kit kit;

    (void)state;
    make_raw(&kit, 48, 64, 24, 32, TRAJD_IMAGE_PILLOW_BILINEAR);
    kit.spec.frame.width = 31;
    assert_int_equal(trajd_image_gpu_check(&kit.spec, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "preparation"));
    make_prepared(&kit, 24, 32);
    kit.spec.finish.height = 23;
    assert_int_equal(trajd_image_gpu_check(&kit.spec, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "finish"));
    make_prepared(&kit, 24, 32);
    add_color(&kit, TRAJD_AUGMENT_FLAT_CONTRAST);
    assert_int_equal(trajd_image_gpu_check(&kit.spec, &error), TRAJD_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "flat_contrast"));
    make_prepared(&kit, 24, 32);
    add_color(&kit, TRAJD_AUGMENT_CONTRAST);
    kit.augment.rounding = TRAJD_AUGMENT_ROUND_END;
    assert_int_equal(trajd_image_gpu_check(&kit.spec, &error), TRAJD_ERR_UNSUPPORTED);
    make_prepared(&kit, 24, 32);
    add_crop(&kit, 25);
    assert_int_equal(trajd_image_gpu_check(&kit.spec, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "larger"));
}

static void test_choice(void **state)
{
    struct kit kit;

    (void)state;
    make_prepared(&kit, 84, 84);
    add_crop(&kit, 76);
    assert_int_equal(choose(&kit, &hopper), TRAJD_IMAGE_STRIP);
    assert_int_equal(choose(&kit, &ampere), TRAJD_IMAGE_GENERAL);
    add_color(&kit, TRAJD_AUGMENT_CONTRAST);
    add_color(&kit, TRAJD_AUGMENT_HUE);
    assert_int_equal(choose(&kit, &hopper), TRAJD_IMAGE_STRIP);
    add_color(&kit, TRAJD_AUGMENT_CONTRAST);
    assert_int_equal(choose(&kit, &hopper), TRAJD_IMAGE_GENERAL);
    free(kit.tables);
    make_raw(&kit, 256, 256, 224, 224, TRAJD_IMAGE_PILLOW_BILINEAR);
    assert_int_equal(choose(&kit, &hopper), TRAJD_IMAGE_RESIZE);
    assert_int_equal(kit.choice.resize.blocks, 4);
    kit.preparation.filter = TRAJD_IMAGE_PILLOW_LANCZOS;
    assert_int_equal(choose(&kit, &hopper), TRAJD_IMAGE_GENERAL);
    assert_string_equal(kit.choice.why, "a filter that rounds between the axes");
    free(kit.tables);
    make_prepared(&kit, 240, 240);
    add(&kit, (struct trajd_augment_step){.kind = TRAJD_AUGMENT_RESIZED_CROP,
                                          .height = 240,
                                          .width = 240,
                                          .scale = {0.5, 1},
                                          .ratio = {1, 1}});
    assert_int_equal(choose(&kit, &hopper), TRAJD_IMAGE_CROP);
    assert_int_equal(choose(&kit, &ampere), TRAJD_IMAGE_GENERAL);
    kit.augment.steps[0].filter = TRAJD_IMAGE_PILLOW_BICUBIC;
    assert_int_equal(choose(&kit, &hopper), TRAJD_IMAGE_GENERAL);
    assert_string_equal(kit.choice.why, "a filter that is not bilinear");
    free(kit.tables);
}

/* The best ways that an H200 has shown. */
static void test_choice_of_resizes(void **state)
{
    static const struct {
        uint32_t height, width, side, frames;
        enum trajd_image_variant variant;
        uint32_t blocks; /* of a resize */
    } cases[] = {
        {480, 640, 224, 512, TRAJD_IMAGE_MATRIX, 0}, {480, 640, 224, 64, TRAJD_IMAGE_MATRIX, 0},
        {480, 640, 224, 8, TRAJD_IMAGE_RESIZE, 2},   {480, 640, 96, 512, TRAJD_IMAGE_MATRIX, 0},
        {480, 640, 96, 64, TRAJD_IMAGE_RESIZE, 2},   {480, 640, 96, 8, TRAJD_IMAGE_RESIZE, 1},
        {480, 640, 128, 512, TRAJD_IMAGE_RESIZE, 2}, {256, 256, 224, 512, TRAJD_IMAGE_MATRIX, 0},
        {256, 256, 128, 64, TRAJD_IMAGE_RESIZE, 4},  {256, 256, 128, 8, TRAJD_IMAGE_RESIZE, 2},
        {96, 128, 84, 512, TRAJD_IMAGE_RESIZE, 4},   {720, 1280, 224, 64, TRAJD_IMAGE_MATRIX, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kit kit;
        make_raw(&kit, cases[i].height, cases[i].width, cases[i].side, cases[i].side,
                 TRAJD_IMAGE_PILLOW_BILINEAR);
        kit.frame_count = cases[i].frames;
        if (choose(&kit, &hopper) != cases[i].variant ||
            (cases[i].blocks && kit.choice.resize.blocks != cases[i].blocks))
            fail_msg("case %zu: variant %d, %u blocks", i, (int)kit.choice.variant,
                     kit.choice.resize.blocks);
        free(kit.tables);
    }
}

static void test_choice_of_strips(void **state)
{
    static const struct {
        uint32_t side, crop, frames, colours, blocks;
    } cases[] = {{84, 76, 512, 0, 2},    {84, 76, 8, 0, 8},     {84, 76, 512, 1, 1},
                 {84, 76, 64, 1, 4},     {128, 112, 512, 1, 1}, {128, 112, 8, 1, 8},
                 {240, 224, 512, 0, 16}, {240, 224, 8, 0, 32},  {240, 224, 512, 1, 4},
                 {240, 224, 64, 1, 8},   {256, 224, 512, 1, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kit kit;
        make_prepared(&kit, cases[i].side, cases[i].side);
        add_crop(&kit, cases[i].crop);
        if (cases[i].colours)
            add_color(&kit, TRAJD_AUGMENT_CONTRAST);
        kit.frame_count = cases[i].frames;
        assert_int_equal(choose(&kit, &hopper), TRAJD_IMAGE_STRIP);
        if (kit.choice.strip.blocks != cases[i].blocks)
            fail_msg("case %zu: %u blocks", i, kit.choice.strip.blocks);
        free(kit.tables);
    }
}

/* Blocks of a frame with a mean are a cluster: at most 8, a power of two, and all fit. */
static void test_strips(void **state)
{
    struct kit kit;

    (void)state;
    make_prepared(&kit, 240, 240);
    add_crop(&kit, 224);
    add_color(&kit, TRAJD_AUGMENT_CONTRAST);
    assert_int_equal(choose(&kit, &hopper), TRAJD_IMAGE_STRIP);
    assert_int_equal(kit.choice.strip.blocks & (kit.choice.strip.blocks - 1), 0);
    assert_true(kit.choice.strip.blocks <= 8 &&
                kit.choice.strip.rows * kit.choice.strip.blocks >= 224);
    assert_true(kit.choice.strip.shared_bytes <= 227 * 1024 &&
                kit.choice.strip.shared_bytes >= kit.choice.strip.rows * 224 * 3);
    free(kit.tables);
}

/* Newer GPUs may have less shared memory: what does not fit there goes to the general kernels. */
static void test_little_shared_memory(void **state)
{
    struct kit kit;

    (void)state;
    make_prepared(&kit, 240, 240);
    add_crop(&kit, 224);
    assert_int_equal(choose(&kit, &small), TRAJD_IMAGE_STRIP);
    free(kit.tables);
    make_raw(&kit, 480, 1280, 224, 224, TRAJD_IMAGE_PILLOW_BILINEAR);
    kit.spec.requested = "resize";
    assert_int_equal(choose(&kit, &hopper), TRAJD_IMAGE_RESIZE);
    assert_true(kit.choice.resize.shared_bytes > small.block_shared_bytes);
    assert_int_equal(choose(&kit, &small), TRAJD_IMAGE_GENERAL);
    free(kit.tables);
}

static void test_passes(void **state)
{
    struct kit kit;

    (void)state;
    make_raw(&kit, 480, 640, 96, 96, TRAJD_IMAGE_AREA);
    add(&kit, (struct trajd_augment_step){
                  .kind = TRAJD_AUGMENT_AFFINE, .scale = {1, 1}, .filter = TRAJD_IMAGE_LINEAR});
    add_color(&kit, TRAJD_AUGMENT_CONTRAST);
    add_crop(&kit, 80);
    assert_int_equal(choose(&kit, &hopper), TRAJD_IMAGE_GENERAL);
    assert_int_equal(kit.program.pass_count, 3); /* resize; warp and colour; crop */
    assert_int_equal(kit.program.passes[1].first, 1);
    assert_int_equal(kit.program.passes[1].colors, 2);
    assert_int_equal(kit.program.passes[1].end, 3);
    assert_int_equal(kit.program.between_bytes, 96 * 96 * 3);
    free(kit.tables);
}

static float half_value(uint32_t bits)
{
    const int exponent = (int)(bits >> 10 & 31);
    const float size = exponent ? ldexpf((float)(bits & 1023) + 1024, exponent - 25)
                                : ldexpf((float)(bits & 1023), -24);

    return bits & 0x8000 ? -size : size;
}

/* The weights of an output column, collected from the order of the matrix instruction. */
static void collect(const struct kit *kit, const uint32_t *words, uint32_t output, float *weights)
{
    const struct trajd_image_resize *r = &kit->choice.resize;
    const uint32_t tile = output / 16, column = output % 16, first = words[r->first_columns + tile];

    for (uint32_t k = 0; k < r->k_steps * 16; k++) {
        const uint32_t lane = column / 2 * 4 + k % 8 / 2, word = column % 2 + k % 16 / 8 * 2;
        const uint32_t both =
            words[r->weights + ((tile * r->k_steps + k / 16) * 32 + lane) * 4 + word];
        if (first + k < kit->program.from_width)
            weights[first + k] += half_value(k % 2 ? both >> 16 : both & 0xffff);
    }
}

static void check_columns(const struct kit *kit, const uint32_t *words)
{
    const struct trajd_image_axis_table *x = &kit->program.steps[0].x;

    for (uint32_t o = 0; o < kit->program.width; o++) {
        const uint32_t *entry = kit->tables + x->first_word + o * (2 + x->stride);
        float *weights = calloc(kit->program.from_width, sizeof *weights);
        assert_non_null(weights);
        collect(kit, words, o, weights);
        for (uint32_t k = 0; k < entry[1]; k++) {
            float weight;
            memcpy(&weight, &entry[2 + k], sizeof weight);
            assert_true(fabsf(weights[entry[0] + k] - weight) <= fabsf(weight) / 2048 + 1e-7F);
            weights[entry[0] + k] = 0;
        }
        for (uint32_t i = 0; i < kit->program.from_width; i++)
            assert_true(weights[i] == 0);
        free(weights);
    }
}

/* The weights of a row add up to exactly 1, and its window is in the frame. */
static void check_rows(const struct kit *kit, const uint32_t *words)
{
    for (uint32_t o = 0; o < kit->program.height; o++) {
        const uint32_t *row = words + o * (3 + kit->choice.resize.row_stride);
        double sum = 0;
        for (uint32_t k = 0; k < row[1]; k++) {
            float weight;
            memcpy(&weight, &row[3 + k], sizeof weight);
            sum += (double)weight;
        }
        assert_true(sum == 1 && row[0] + row[1] == row[2]);
        assert_true(row[2] <= kit->program.from_height);
    }
}

static void test_resize_tables(void **state)
{
    static const uint32_t sizes[][4] = {
        {480, 640, 224, 224}, {480, 640, 96, 96}, {256, 256, 224, 224}, {60, 32, 7, 5}};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct kit kit;
        uint32_t *words;
        make_raw(&kit, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3],
                 i % 2 ? TRAJD_IMAGE_TF_LANCZOS3 : TRAJD_IMAGE_PILLOW_BILINEAR);
        kit.spec.requested = "resize";
        assert_int_equal(choose(&kit, &hopper), TRAJD_IMAGE_RESIZE);
        assert_true(kit.choice.resize.shared_bytes * kit.choice.resize.blocks <= 227 * 1024);
        words = malloc(kit.choice.resize.words * sizeof *words);
        assert_non_null(words);
        trajd_image_resize_fill(&kit.program, kit.tables, &kit.choice.resize, words);
        check_rows(&kit, words);
        check_columns(&kit, words);
        free(words);
        free(kit.tables);
    }
}

/* A warp reads whole tiles. What it reads behind the bytes of its band is room between rows, and not a row
 * that is being loaded. */
static void test_tiles_stay_in_their_rows(void **state)
{
    static const uint32_t sizes[][4] = {
        {480, 640, 224, 224}, {480, 640, 96, 96}, {256, 256, 224, 224}, {720, 1280, 224, 224},
        {60, 640, 20, 100},   {90, 320, 90, 317}, {48, 64, 24, 24},     {50, 160, 64, 200}};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct trajd_image_matrix *m;
        struct kit kit;
        uint32_t *words;
        make_raw(&kit, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3],
                 TRAJD_IMAGE_PILLOW_BILINEAR);
        kit.spec.requested = "matrix";
        assert_int_equal(choose(&kit, &hopper), TRAJD_IMAGE_MATRIX);
        m = &kit.choice.matrix;
        words = malloc(m->words * sizeof *words);
        assert_non_null(words);
        trajd_image_matrix_fill(&kit.program, kit.tables, m, words);
        for (uint32_t tile = 0; tile < m->groups * m->tiles; tile++) {
            const uint32_t band = tile / (m->warps * m->tiles);
            const uint32_t first = words[m->column_firsts + tile] - words[m->band_spans + 2 * band];
            assert_true(words[m->band_spans + 2 * band + 1] <= m->pitch);
            assert_true(first + m->steps * 32 <= m->pitch);
        }
        free(words);
        free(kit.tables);
    }
}

/* All tiles belong to an item, and few frames are cut so that all blocks have work. */
static void test_items(void **state)
{
    struct kit kit;

    (void)state;
    make_raw(&kit, 480, 640, 224, 224, TRAJD_IMAGE_PILLOW_BILINEAR);
    kit.spec.requested = "resize";
    assert_int_equal(choose(&kit, &hopper), TRAJD_IMAGE_RESIZE);
    for (uint32_t frames = 1; frames < 600; frames += 37) {
        trajd_image_resize_divide(frames, 264, &kit.choice.resize);
        assert_true(kit.choice.resize.strips * kit.choice.resize.strip_tiles >=
                    kit.choice.resize.tiles);
        assert_true((kit.choice.resize.strips - 1) * kit.choice.resize.strip_tiles <
                    kit.choice.resize.tiles);
    }
    trajd_image_resize_divide(8, 264, &kit.choice.resize);
    assert_int_equal(kit.choice.resize.strips, kit.choice.resize.tiles);
    free(kit.tables);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_choice_of_resizes),
        cmocka_unit_test(test_choice_of_strips),
        cmocka_unit_test(test_strips),
        cmocka_unit_test(test_little_shared_memory),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_resize_tables),
        cmocka_unit_test(test_items),
        cmocka_unit_test(test_tiles_stay_in_their_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
