/* The image kernels, run on the CPU, against the plain code for the CPU.
 * `test_unit_kernels_image_kernels [REQUESTS [FIRST [BOXES]]]`: how many random requests and crops, and
 * the number of the first ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/image_cases.h"
#include "kernels/image/cuda/image_choose.h"
#include "kernels/image/cuda/image_launch.h"
#include "proto/array_len.h"
#include "support/simt/simt_memory.h"

enum { GAP = 256, POISON = 0xA5 };

static struct trajd_device_facts hopper = {
    .sm_count = 3, .compute_capability = 90, .block_shared_bytes = 227 * 1024};
static uint64_t request_count = 30, first_request = 1, box_count = 2 * IMAGE_BOX_CASES;

/* A case as the kernels take it. */
struct request {
    struct image_case image;
    struct trajd_image_program program;
    struct trajd_image_choice choice;
    uint32_t *tables, *ordered;
    uint8_t *sources[IMAGE_FRAMES_MAX], *outputs[IMAGE_FRAMES_MAX];
    char *records;
};

static void *take(uint64_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);

    assert_non_null(memory);
    return memory;
}

/* Outputs have gaps around them, and some are not aligned. */
static void make_frames(struct request *r, uint64_t seed)
{
    const uint32_t size = trajd_dtype_size(r->image.spec.finish.type);
    uint32_t state = (uint32_t)seed * 2654435761U;

    for (uint32_t i = 0; i < r->image.frame_count; i++) {
        const uint64_t bytes = (r->image.source_bytes + 15) / 16 * 16;
        r->sources[i] = take(bytes);
        for (uint64_t k = 0; k < bytes; k++) {
            state = state * 1664525 + 1013904223;
            r->sources[i][k] = (uint8_t)(state >> 20 & 3 ? state >> 24 : 255 * (state >> 19 & 1));
        }
        simt_allow(r->sources[i], bytes);
        r->outputs[i] = take(r->image.output_bytes + 2 * GAP + size);
        memset(r->outputs[i], POISON, r->image.output_bytes + 2 * GAP + size);
        r->outputs[i] += GAP + (seed % 4 ? 0 : size);
    }
}

static void make_records(struct request *r)
{
    const uint32_t bytes = trajd_image_program_record_bytes(&r->program);

    r->records = take((uint64_t)bytes * r->image.frame_count);
    for (uint32_t i = 0; i < r->image.frame_count; i++) {
        struct trajd_image_record *record = (void *)(r->records + i * bytes);
        *record = (struct trajd_image_record){r->sources[i], r->outputs[i]};
        if (r->program.value_count)
            trajd_image_program_write(&r->program, &r->image.params[i],
                                      (union trajd_image_value *)(record + 1));
    }
}

static void launch(struct request *r)
{
    struct trajd_image_launch launch = {.records = r->records,
                                        .record_bytes =
                                            trajd_image_program_record_bytes(&r->program),
                                        .count = r->image.frame_count,
                                        .block_shared_bytes = hopper.block_shared_bytes};
    struct trajd_image_choice *c = &r->choice;

    switch (c->variant) {
    case TRAJD_IMAGE_STRIP:
        trajd_image_launch_strip(&r->program, &c->strip, &launch, NULL);
        break;
    case TRAJD_IMAGE_CROP:
        r->ordered = take((uint64_t)r->program.own_table_words * launch.count * sizeof(uint32_t));
        launch.own_tables = r->ordered;
        trajd_image_matrix_divide(launch.count, hopper.sm_count * c->matrix.blocks, &c->matrix);
        trajd_image_launch_boxes(&r->program, &launch, NULL);
        trajd_image_launch_crop(&r->program, &c->matrix, &launch, NULL);
        break;
    case TRAJD_IMAGE_RESIZE:
        r->ordered = take(c->resize.words * sizeof(uint32_t));
        trajd_image_resize_fill(&r->program, r->tables, &c->resize, r->ordered);
        trajd_image_resize_divide(launch.count, hopper.sm_count * c->resize.blocks, &c->resize);
        trajd_image_launch_resize(&r->program, &c->resize, r->ordered, &launch, NULL);
        break;
    default:
        r->ordered = take(c->matrix.words * sizeof(uint32_t));
        trajd_image_matrix_fill(&r->program, r->tables, &c->matrix, r->ordered);
        trajd_image_matrix_divide(launch.count, hopper.sm_count * c->matrix.blocks, &c->matrix);
        trajd_image_launch_matrix(&r->program, &c->matrix, r->ordered, &launch, NULL);
    }
}

static void check_output(const struct request *r, uint32_t frame, uint64_t seed)
{
    void *expected = take(r->image.output_bytes);
    const uint8_t *got = r->outputs[frame];
    char text[128], name[512];

    image_case_run(&r->image, frame, r->sources[frame], expected);
    for (uint32_t k = 1; k <= GAP / 2; k++)
        if (got[-(int)k] != POISON || got[r->image.output_bytes + k - 1] != POISON)
            fail_msg("request %llu: wrote beyond tensor %u", (unsigned long long)seed, frame);
    if (!image_case_matches(&r->image, expected, got, 0, text, sizeof text))
        fail_msg("request %llu by %s: %s, frame %u: %s", (unsigned long long)seed,
                 trajd_image_variant_name(r->choice.variant),
                 image_case_name(&r->image, name, sizeof name), frame, text);
    free(expected);
}

/* Runs a case by the kernels of a name. Returns whether they serve it. */
static bool check_case(const struct image_case *image, const char *requested, uint64_t seed)
{
    const uint32_t size = trajd_dtype_size(image->spec.finish.type);
    struct request r = {.image = *image};
    struct trajd_error error;

    assert_int_equal(trajd_image_program_make(&image->spec, &r.program, &r.tables, &error),
                     TRAJD_OK);
    trajd_image_choose(&r.program, r.tables, &hopper, image->frame_count, requested, &r.choice);
    if (r.choice.variant != TRAJD_IMAGE_GENERAL) {
        make_frames(&r, seed);
        make_records(&r);
        launch(&r);
        for (uint32_t i = 0; i < image->frame_count; i++) {
            check_output(&r, i, seed);
            free(r.sources[i]);
            free(r.outputs[i] - GAP - (seed % 4 ? 0 : size));
        }
        free(r.records);
        free(r.ordered);
        simt_forget_all();
    }
    free(r.tables);
    return r.choice.variant != TRAJD_IMAGE_GENERAL;
}

static void test_random_requests(void **state)
{
    static const char *const names[] = {"strip", "resize", "matrix"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        uint32_t served = 0;
        for (uint64_t k = 0; k < request_count; k++) {
            struct image_case image;
            image_case_make(first_request + k, &image);
            served += check_case(&image, names[i], first_request + k);
        }
        print_message("%u requests by %s\n", served, names[i]);
        assert_true(served > 0 || request_count < 30);
    }
}

/* Few rows, narrow frames, parts of frames, padding. */
static void test_odd_resizes(void **state)
{
    static const char *const names[] = {"resize", "matrix"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        uint32_t served = 0;
        for (uint64_t k = 0; k < request_count; k++) {
            struct image_case image;
            image_case_make_resize(first_request + k, &image);
            served += check_case(&image, names[i], first_request + k);
        }
        print_message("%u odd resizes by %s\n", served, names[i]);
        assert_true(served > request_count / 2 || request_count < 30);
    }
}

static void make_resize(const uint32_t (*sizes)[4], enum trajd_image_filter filter,
                        enum trajd_dtype type, struct image_case *image)
{
    const uint32_t *s = *sizes;

    *image = (struct image_case){
        .preparation = {.source_height = s[0],
                        .source_width = s[1],
                        .channels = 3,
                        .type = TRAJD_U8,
                        .crop = {0, 0, s[0], s[1]},
                        .filter = filter},
        .spec = {.frame = {s[2], s[3], 3, TRAJD_U8},
                 .finish = {s[2],
                            s[3],
                            3,
                            TRAJD_U8,
                            type,
                            (enum trajd_image_layout)((int)filter % 2),
                            {1, 1, 1, 1},
                            {0}}},
        .frame_count = 1,
        .inexact = 1,
        .source_bytes = (uint64_t)s[0] * s[1] * 3,
    };
    image->spec.preparation = &image->preparation;
    trajd_image_place(&image->preparation, TRAJD_IMAGE_STRETCH, s[2], s[3]);
    image->output_bytes = trajd_image_finish_bytes(&image->spec.finish);
}

/* Resizes of all shapes of the kernels. */
static void test_resizes(void **state)
{
    static const uint32_t sizes[][4] = {
        {48, 64, 24, 24},   {480, 640, 224, 224}, {60, 640, 20, 96},  {256, 256, 224, 224},
        {90, 320, 90, 320}, {96, 1024, 33, 35},   {50, 160, 64, 200}, {64, 480, 48, 480}};
    static const enum trajd_dtype types[] = {TRAJD_U8, TRAJD_BF16, TRAJD_F32, TRAJD_F16};
    uint32_t served = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (int filter = 0; filter < TRAJD_IMAGE_NEAREST; filter++) {
            struct image_case image;
            if (filter == TRAJD_IMAGE_AREA &&
                (sizes[i][2] > sizes[i][0] || sizes[i][3] > sizes[i][1]))
                continue;
            make_resize(&sizes[i], (enum trajd_image_filter)filter, types[(i + (size_t)filter) % 4],
                        &image);
            served += check_case(&image, "matrix", i + 1);
        }
    print_message("%u resizes by matrix\n", served);
    assert_true(served > 0);
}

/* A brightness, then a contrast: of 0 in the first frame, so that all pixels become the mean, of 1 in the
 * second one, which needs no mean. */
static void make_mean(uint32_t height, uint32_t width, float brightness, struct image_case *image)
{
    const struct trajd_augment_step step = {.probability = 1, .factor = {0, 2}};

    *image = (struct image_case){
        .augment = {2, {step, step}, TRAJD_AUGMENT_ROUND_ONCE},
        .spec =
            {.frame = {height, width, 3, TRAJD_U8},
             .finish = {height, width, 3, TRAJD_U8, TRAJD_U8, TRAJD_IMAGE_HWC, {1, 1, 1, 1}, {0}}},
        .frame_count = IMAGE_FRAMES_MAX,
        .inexact = 1,
        .source_bytes = (uint64_t)height * width * 3,
    };
    image->augment.steps[0].kind = TRAJD_AUGMENT_BRIGHTNESS;
    image->augment.steps[1].kind = TRAJD_AUGMENT_CONTRAST;
    image->spec.augment = &image->augment;
    image->output_bytes = trajd_image_finish_bytes(&image->spec.finish);
    for (uint32_t i = 0; i < image->frame_count; i++) {
        image->params[i].values[0][0] = brightness;
        image->params[i].values[1][0] = (float)i;
    }
}

/* The last pixels of a row are not a whole group. A brightness above 1 clips pixels. Frames of 17
 * rows of 220 pixels are cut into 8 blocks, of which two have no rows. */
static void test_means(void **state)
{
    static const float brightness[] = {0.7F, 1, 1.6F};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(brightness); i++) {
        struct image_case image;
        for (uint32_t width = 4; width <= 12; width++) {
            make_mean(9, width, brightness[i], &image);
            assert_true(check_case(&image, "strip", width));
        }
        make_mean(17, 220, brightness[i], &image);
        assert_true(check_case(&image, "strip", 1));
    }
}

/* Tiles leave out chunks of source rows. A hang depends on the time that loads take: each run has
 * others. */
static void test_rows_between_tiles(void **state)
{
    static const uint32_t sizes[] = {240, 208, 23, 85};
    const uint32_t sm_count = hopper.sm_count;
    struct image_case image;

    (void)state;
    make_resize(&sizes, TRAJD_IMAGE_LINEAR, TRAJD_F32, &image);
    image.frame_count = 2;
    hopper.sm_count = 1;
    for (uint64_t k = 0; k < 30; k++)
        assert_true(check_case(&image, "resize", k));
    hopper.sm_count = sm_count;
}

static void test_boxes(void **state)
{
    uint32_t served = 0;

    (void)state;
    for (uint64_t k = 0; k < box_count; k++) {
        struct image_case image;
        image_case_make_boxes(first_request + k, &image);
        served += check_case(&image, "crop", first_request + k);
    }
    assert_int_equal(served, box_count);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_requests), cmocka_unit_test(test_odd_resizes),
        cmocka_unit_test(test_resizes),         cmocka_unit_test(test_rows_between_tiles),
        cmocka_unit_test(test_means),           cmocka_unit_test(test_boxes),
    };

    request_count = argc > 1 ? strtoull(argv[1], NULL, 10) : request_count;
    box_count = argc > 3 ? strtoull(argv[3], NULL, 10) : box_count;
    first_request = argc > 2 ? strtoull(argv[2], NULL, 10) : first_request;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
