/* Finished frames: the fast way against the reference, norms, checks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/image/image_frame.h"
#include "kernels/image/image_finish.h"
#include "proto/array_len.h"
#include "support/references/references.h"

enum { CANARY = 0xA5, MARGIN = 64 };

static uint32_t state = 1;

static uint32_t draw(uint32_t count)
{
    state = state * 1664525 + 1013904223;
    return (state >> 8) % count;
}

/* Scales from 2^-30 to 2^13, so that float16 meets its smallest numbers and its infinity. */
static float draw_float(void)
{
    return (float)ldexp((double)draw(1 << 24) / (1 << 23) - 1, (int)draw(44) - 30);
}

static struct trajd_image_finish make(enum trajd_dtype source, enum trajd_dtype type)
{
    struct trajd_image_finish finish = {
        1 + draw(40), 1 + draw(60), 1, source, type, draw(2) ? TRAJD_IMAGE_CHW : TRAJD_IMAGE_HWC,
        {1, 1, 1, 1}, {0, 0, 0, 0}};

    if (source == TRAJD_U8)
        finish.channels = draw(3) ? 3 : 1 + draw(4);
    return finish;
}

/* Finishes a random frame both ways. The bytes must be equal, and nothing else is written. */
static void compare(const struct trajd_image_finish *f)
{
    const size_t bytes = trajd_image_finish_bytes(f), count = (size_t)f->height * f->width;
    const size_t size = count * f->channels * trajd_dtype_size(f->source);
    uint8_t *frame = malloc(size), *expected = malloc(bytes), *got = malloc(bytes + 2 * MARGIN);
    struct trajd_error error;

    for (size_t i = 0; i < size; i++)
        frame[i] = (uint8_t)draw(256);
    for (size_t i = 0; f->source == TRAJD_F32 && i < count; i++)
        ((float *)frame)[i] = draw_float();
    memset(got, CANARY, bytes + 2 * MARGIN);
    memset(expected, 0, bytes);
    if (trajd_image_finish_check(f, &error))
        fail_msg("%s", error.message);
    trajd_image_finish_reference(f, frame, expected);
    trajd_image_finish_frame(f, frame, got + MARGIN);
    if (memcmp(expected, got + MARGIN, bytes) != 0)
        fail_msg("%ux%ux%u %s to %s, layout %d: differs from the reference", f->height, f->width,
                 f->channels, trajd_dtype_name(f->source), trajd_dtype_name(f->type), f->layout);
    for (int i = 0; i < MARGIN; i++)
        assert_true(got[i] == CANARY && got[MARGIN + bytes + i] == CANARY);
    free(frame);
    free(expected);
    free(got);
}

static void test_floats(void **unused)
{
    static const enum trajd_dtype types[] = {TRAJD_F16, TRAJD_BF16, TRAJD_F32};

    (void)unused;
    for (int turn = 0; turn < 600; turn++) {
        struct trajd_image_finish finish = make(TRAJD_U8, types[draw(3)]);
        for (uint32_t c = 0; c < finish.channels; c++) {
            finish.scale[c] = draw_float();
            finish.offset[c] = draw_float();
        }
        compare(&finish);
    }
}

static void test_copies(void **unused)
{
    static const struct {
        enum trajd_dtype source, type;
    } cases[] = {{TRAJD_U8, TRAJD_U8},
                 {TRAJD_U16, TRAJD_U16},
                 {TRAJD_U16, TRAJD_F32},
                 {TRAJD_F32, TRAJD_F32}};

    (void)unused;
    for (int turn = 0; turn < 200; turn++) {
        const size_t i = draw(ARRAY_LEN(cases));
        struct trajd_image_finish finish = make(cases[i].source, cases[i].type);
        compare(&finish);
    }
}

/* The values of the trainers, for all 256 bytes. */
/* Copies of both ways, to all alignments, with lengths that are not multiples of a vector. */
static void test_large_copies(void **unused)
{
    enum { ROOM = (129 << 10) + 64, GUARD = 0xa5 };
    static const uint64_t lengths[] = {
        0, 1, 63, 100, (128 << 10) - 1, 128 << 10, (128 << 10) + 777};
    static uint8_t from[ROOM], to[ROOM];

    (void)unused;
    for (uint32_t i = 0; i < ROOM; i++)
        from[i] = (uint8_t)(i * 2654435761u >> 24);
    for (size_t n = 0; n < ARRAY_LEN(lengths); n++)
        for (uint32_t offset = 0; offset <= 16; offset += offset < 2 ? 1 : 14) {
            memset(to, GUARD, sizeof to);
            trajd_image_copy(to + offset, from + 3, lengths[n]);
            assert_memory_equal(to + offset, from + 3, lengths[n]);
            for (uint32_t i = 0; i < offset; i++)
                assert_int_equal(to[i], GUARD);
            for (uint64_t i = offset + lengths[n]; i < sizeof to; i++)
                assert_int_equal(to[i], GUARD);
        }
}

static void test_norms(void **unused)
{
    static const double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};
    static const char *const names[] = {"none", "unit", "signed", "imagenet", "signed-imagenet"};
    struct trajd_image_finish finish = {16, 16, 3, TRAJD_U8, TRAJD_F32, TRAJD_IMAGE_CHW, {0}, {0}};
    uint8_t frame[256 * 3];
    float output[3][256];

    (void)unused;
    for (int i = 0; i < 256 * 3; i++)
        frame[i] = (uint8_t)(i / 3);
    for (size_t n = 0; n < ARRAY_LEN(names); n++) {
        assert_int_equal(
            trajd_image_finish_set_norm(&finish, trajd_image_norm_named(names[n]), NULL), TRAJD_OK);
        trajd_image_finish_frame(&finish, frame, output);
        for (int i = 0; i < 256 * 3; i++) {
            const double x = i % 256, unit = x / 255, c = mean[i / 256], s = std[i / 256];
            const double expected[] = {x, unit, unit * 2 - 1, (unit - c) / s,
                                       (unit * 2 - 1 - c) / s};
            assert_true(fabs(output[i / 256][i % 256] - expected[n]) <= 1e-6);
        }
    }
    assert_null(trajd_image_norm_named("units"));
}

static void expect_refusal(const struct trajd_image_finish *finish, const char *word)
{
    struct trajd_error error;

    assert_int_equal(trajd_image_finish_check(finish, &error), TRAJD_ERR_ARGUMENT);
    if (!strstr(error.message, word))
        fail_msg("'%s' lacks '%s'", error.message, word);
}

static void test_refusals(void **unused)
{
    struct trajd_image_finish finish = make(TRAJD_U16, TRAJD_F16);
    struct trajd_image_norm norm = {TRAJD_IMAGE_UNIT, 2, {0}, {1, 1}};

    (void)unused;
    expect_refusal(&finish, "float32");
    finish = make(TRAJD_U16, TRAJD_F32);
    finish.scale[0] = 0.5F;
    expect_refusal(&finish, "depth takes no norm");
    finish = make(TRAJD_U8, TRAJD_U8);
    finish.offset[0] = 1;
    expect_refusal(&finish, "type of floats");
    finish = make(TRAJD_U8, TRAJD_F32);
    finish.offset[0] = NAN;
    expect_refusal(&finish, "finite");
    finish = make(TRAJD_U8, TRAJD_I64);
    expect_refusal(&finish, "float16");
    finish = make(TRAJD_U8, TRAJD_F32);
    finish.width = 8193;
    expect_refusal(&finish, "8192");
    finish = make(TRAJD_F32, TRAJD_F32);
    finish.channels = 3;
    expect_refusal(&finish, "depth has 1");
    finish = make(TRAJD_U8, TRAJD_F32);
    finish.channels = 3;
    assert_int_equal(trajd_image_finish_set_norm(&finish, &norm, NULL), TRAJD_ERR_ARGUMENT);
    norm.count = 1;
    norm.std[0] = 0;
    assert_int_equal(trajd_image_finish_set_norm(&finish, &norm, NULL), TRAJD_ERR_ARGUMENT);
    norm.std[0] = 1e-300;
    assert_int_equal(trajd_image_finish_set_norm(&finish, &norm, NULL), TRAJD_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floats),       cmocka_unit_test(test_copies),
        cmocka_unit_test(test_large_copies), cmocka_unit_test(test_norms),
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
