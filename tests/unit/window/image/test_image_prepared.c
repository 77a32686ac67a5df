/* Preparations in files: when two make the same pixels, and how they are said in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/window/image/image_prepared.h"
#include "proto/array_len.h"

/* Frames of 48x64, resized to height x width as `fit` says. */
static struct trajd_image_preparation fitted(enum trajd_image_fit fit, uint32_t height,
                                             uint32_t width)
{
    struct trajd_image_preparation made = {.source_height = 48,
                                           .source_width = 64,
                                           .channels = 3,
                                           .type = TRAJD_U8,
                                           .crop = {0, 0, 48, 64},
                                           .pad_value = 7};

    trajd_image_place(&made, fit, height, width);
    return made;
}

static void they_are_said_in_words_and_keys(void **state)
{
    struct trajd_image_preparation cropped = fitted(TRAJD_IMAGE_STRETCH, 40, 50);
    const struct {
        struct trajd_image_preparation made;
        const char *words, *keys;
    } cases[] = {
        {fitted(TRAJD_IMAGE_STRETCH, 48, 64), "48x64 as they are", "{}"},
        {fitted(TRAJD_IMAGE_STRETCH, 24, 64), "48x64, resized to 24x64 by pillow-bilinear",
         "{resize: [24, 64], filter: pillow-bilinear}"},
        {fitted(TRAJD_IMAGE_PAD, 40, 40),
         "48x64, resized to 30x40 by pillow-bilinear, at (5, 0) of 40x40 filled with 7",
         "{resize: [40, 40], fit: pad, filter: pillow-bilinear, pad_value: 7}"},
        {fitted(TRAJD_IMAGE_PAD, 64, 64), "48x64, at (8, 0) of 64x64 filled with 7",
         "{resize: [64, 64], fit: pad, pad_value: 7}"},
        {fitted(TRAJD_IMAGE_COVER, 24, 24),
         "48x64, resized to 24x32 by pillow-bilinear, cut to 24x24",
         "{resize: [24, 24], fit: cover, filter: pillow-bilinear}"},
        {(cropped.crop = (struct trajd_image_box){3, 5, 40, 50}, cropped),
         "48x64, crop 40x50 at (3, 5)", "{crop: {top: 3, left: 5, height: 40, width: 50}}"},
    };
    char text[TRAJD_PREPARATION_WORDS_SIZE];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_string_equal(trajd_image_describe(&cases[i].made, text), cases[i].words);
        assert_string_equal(trajd_image_write_keys(&cases[i].made, text), cases[i].keys);
    }
}

static void what_changes_no_pixel_does_not_count(void **state)
{
    const struct trajd_image_preparation whole = fitted(TRAJD_IMAGE_STRETCH, 48, 64),
                                         small = fitted(TRAJD_IMAGE_STRETCH, 24, 32),
                                         padded = fitted(TRAJD_IMAGE_PAD, 40, 40);
    struct trajd_image_preparation other = whole;

    (void)state;
    other.filter = TRAJD_IMAGE_AREA;
    other.pad_value = 9;
    other.is_bgr = 1;
    assert_true(trajd_image_is_same(&whole, &other));
    other = small;
    other.pad_value = 9;
    assert_true(trajd_image_is_same(&small, &other));
    other.filter = TRAJD_IMAGE_AREA;
    assert_false(trajd_image_is_same(&small, &other));
    other = padded;
    assert_true(trajd_image_is_same(&padded, &other));
    other.pad_value = 9;
    assert_false(trajd_image_is_same(&padded, &other));
}

/* Each number of a preparation counts. */
static void other_pixels_are_another_preparation(void **state)
{
    const struct trajd_image_preparation small = fitted(TRAJD_IMAGE_STRETCH, 24, 32);
    struct trajd_image_preparation others[12];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        others[i] = small;
    others[0].source_height++;
    others[1].source_width++;
    others[2].channels = 1;
    others[3].type = TRAJD_U16;
    others[4].crop.top++;
    others[5].crop.width--;
    others[6].inner_height++;
    others[7].inner_width++;
    others[8].top--;
    others[9].left--;
    others[10].height--;
    others[11].width--;
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_false(trajd_image_is_same(&small, &others[i]));
}

static void a_text_is_read_as_it_was_written(void **state)
{
    struct trajd_image_prepared made = {.preparation = fitted(TRAJD_IMAGE_PAD, 40, 40),
                                        .rank = 3,
                                        .is_bgr_for_cv2 = true},
                                read;
    char text[TRAJD_PREPARATION_TEXT_SIZE];
    struct trajd_error error;

    (void)state;
    trajd_image_prepared_write(&made, text);
    assert_string_equal(text, "{\"source\": [48, 64], \"crop\": [0, 0, 48, 64], \"filter\": "
                              "\"pillow-bilinear\", \"resize\": [30, 40], \"at\": [5, 0], "
                              "\"shape\": [40, 40, 3], \"pad_value\": 7, \"cv2\": \"bgr\"}");
    assert_int_equal(trajd_image_prepared_read(text, 3, TRAJD_U8, &read, &error), TRAJD_OK);
    assert_true(trajd_image_is_same(&made.preparation, &read.preparation));
    assert_int_equal(read.rank, 3);
    assert_true(read.is_bgr_for_cv2);
    assert_int_equal(read.jpeg_quality, 0);
    made.jpeg_quality = 95;
    trajd_image_prepared_write(&made, text);
    assert_non_null(strstr(text, ", \"cv2\": \"bgr\", \"jpeg\": 95}"));
    assert_int_equal(trajd_image_prepared_read(text, 3, TRAJD_U8, &read, &error), TRAJD_OK);
    assert_int_equal(read.jpeg_quality, 95);
    made.jpeg_quality = 101;
    trajd_image_prepared_write(&made, text);
    assert_int_equal(trajd_image_prepared_read(text, 3, TRAJD_U8, &read, &error),
                     TRAJD_ERR_ARGUMENT);
    made.jpeg_quality = 95;
    trajd_image_prepared_write(&made, text);
    assert_int_equal(trajd_image_prepared_read(text, 1, TRAJD_U8, &read, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "the frames have 1 channels"));
    assert_int_equal(trajd_image_prepared_read("", 3, TRAJD_U8, &read, &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_image_prepared_read("[1]", 3, TRAJD_U8, &read, &error),
                     TRAJD_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_said_in_words_and_keys),
        cmocka_unit_test(what_changes_no_pixel_does_not_count),
        cmocka_unit_test(other_pixels_are_another_preparation),
        cmocka_unit_test(a_text_is_read_as_it_was_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
