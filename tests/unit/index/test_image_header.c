/* image_header.c: what a row is by its first bytes, and the rule that a bad one breaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "daemon/index/rows/image_header.h"
#include "proto/array_len.h"

static const struct trajd_layout_image rgb = {.is_present = true, .color = TRAJD_COLOR_RGB};
static const struct trajd_layout_image gray = {
    .is_present = true, .color = TRAJD_COLOR_GRAY, .height = 2, .width = 3};
static const struct trajd_layout_image depth = {
    .is_present = true, .unit = TRAJD_DEPTH_MM, .height = 2, .width = 3};

/* SOI, a comment, fill bytes, a baseline frame header of 480 x 640 x 3 */
static const uint8_t jpeg[] = {0xFF, 0xD8, 0xFF, 0xFE, 0, 4,    'h', 'i',  0xFF, 0xFF, 0xFF,
                               0xC0, 0,    17,   8,    1, 0xE0, 2,   0x80, 3,    1,    0x22,
                               0,    2,    0x11, 1,    3, 0x11, 1,   0xFF, 0xDA};
enum { MARKER = 11, LENGTH = 12, PRECISION = 14, HEIGHT = 15, WIDTH = 17, COMPONENTS = 19 };

static const uint8_t png[] = {0x89, 'P',  'N', 'G', '\r', '\n', 0x1A, '\n', 0,    0, 0,
                              13,   'I',  'H', 'D', 'R',  0,    0,    2,    0x80, 0, 0,
                              1,    0xE0, 16,  0,   0,    0,    0,    0,    0,    0, 0};
enum { PNG_WIDTH = 16, PNG_BITS = 24, PNG_COLOR = 25 };

static struct trajd_image_header good(const uint8_t *bytes, uint64_t size,
                                      const struct trajd_layout_image *image)
{
    struct trajd_image_header header;
    struct trajd_error error;

    if (trajd_image_examine(bytes, size, size, image, &header, &error))
        fail_msg("%s", error.message);
    return header;
}

static void bad(const uint8_t *bytes, uint64_t size, const struct trajd_layout_image *image,
                const char *rule)
{
    struct trajd_image_header header;
    struct trajd_error error = {0};

    assert_int_equal(trajd_image_examine(bytes, size, size, image, &header, &error),
                     TRAJD_ERR_DATA);
    if (!strstr(error.message, rule))
        fail_msg("\"%s\" is not in: %s", rule, error.message);
    assert_true(!header.encoding && !header.height && !header.channels && !header.bits);
}

/* A JPEG with one byte changed. */
static void bad_jpeg(size_t at, uint8_t value, const char *rule)
{
    uint8_t bytes[sizeof jpeg];

    memcpy(bytes, jpeg, sizeof jpeg);
    bytes[at] = value;
    bad(bytes, sizeof bytes, &rgb, rule);
}

static void headers_are_read(void **state)
{
    struct trajd_layout_image any_depth = depth;
    struct trajd_image_header header = good(jpeg, sizeof jpeg, &rgb);
    uint8_t changed[sizeof jpeg];
    char text[TRAJD_IMAGE_TEXT_SIZE];

    (void)state;
    assert_int_equal(header.encoding, TRAJD_ENCODING_JPEG);
    assert_int_equal(header.height, 480);
    assert_int_equal(header.width, 640);
    assert_int_equal(header.channels, 3);
    assert_int_equal(header.bits, 8);
    assert_false(header.is_progressive);
    assert_string_equal(trajd_image_text(&header, &rgb, text), "jpeg 480x640 rgb");
    memcpy(changed, jpeg, sizeof jpeg);
    changed[MARKER] = 0xC2;
    assert_true(good(changed, sizeof changed, &rgb).is_progressive);
    any_depth.height = any_depth.width = 0;
    header = good(png, sizeof png, &any_depth);
    assert_int_equal(header.encoding, TRAJD_ENCODING_PNG);
    assert_int_equal(header.height, 480);
    assert_int_equal(header.width, 640);
    assert_int_equal(header.bits, 16);
    assert_string_equal(trajd_image_text(&header, &depth, text), "png 480x640 depth");
}

static void raw_rows_have_the_declared_size(void **state)
{
    static const uint8_t pixels[24] = {1};
    struct trajd_image_header header;

    (void)state;
    assert_int_equal(good(pixels, 6, &gray).encoding, TRAJD_ENCODING_RAW);
    assert_int_equal(good(pixels, 12, &depth).bits, 16);
    assert_int_equal(good(pixels, 24, &depth).bits, 32);
    bad(pixels, 7, &gray, "a raw frame of 2x3 has 6");
    bad(pixels, 5, &gray, "a raw frame of 2x3 has 6");
    bad(pixels, 18, &depth, "has 12");
    bad(pixels, 6, &rgb, "must say size");
    /* black pixels at the end of a padded row */
    assert_int_equal(trajd_image_examine(pixels, 1, 6, &gray, &header, NULL), TRAJD_OK);
    assert_int_equal(trajd_image_examine(pixels, 1, 5, &gray, &header, NULL), TRAJD_ERR_DATA);
    assert_int_equal(trajd_image_examine(pixels, 7, 9, &gray, &header, NULL), TRAJD_ERR_DATA);
}

static void damaged_headers_are_bad_rows(void **state)
{
    (void)state;
    bad(jpeg, 0, &rgb, "empty");
    for (uint64_t size = 3; size < HEIGHT + 13; size++) /* cut inside the header */
        bad(jpeg, size, &rgb, "");
    bad_jpeg(MARKER, 0xC3, "neither baseline nor progressive");
    bad_jpeg(MARKER, 0xC9, "neither baseline nor progressive");
    bad_jpeg(MARKER, 0xDA, "no frame header");
    bad_jpeg(8, 0, "a marker is missing");
    bad_jpeg(5, 1, "a segment goes beyond");
    bad_jpeg(LENGTH + 1, 16, "too short");
    bad_jpeg(PRECISION, 12, "8 bits");
    bad_jpeg(COMPONENTS, 1, "a jpeg in grey, the layout says rgb");
    bad_jpeg(COMPONENTS, 2, "other than 1 or 3 colours");
    bad_jpeg(COMPONENTS, 4, "too short");
    bad_jpeg(HEIGHT, 0x80, "a side has 1 to 8192");
    bad(png, 32, &depth, "PNG header is damaged");
    bad(png, sizeof png, &depth, "480x640, the others have 2x3");
    bad(png, sizeof png, &rgb, "a png in grey, the layout says rgb");
}

static void the_layout_excludes_frames(void **state)
{
    struct trajd_layout_image image = rgb;
    struct trajd_image_header header;
    uint8_t bytes[sizeof png];

    (void)state;
    image.encoding = TRAJD_ENCODING_PNG;
    bad(jpeg, sizeof jpeg, &image, "it is jpeg, the layout says encoding: png");
    image.encoding = TRAJD_ENCODING_RAW;
    bad(jpeg, sizeof jpeg, &image, "must say size");
    image = rgb;
    image.height = 480;
    image.width = 320;
    bad(jpeg, sizeof jpeg, &image, "a jpeg of 480x640, the others have 480x320");
    memcpy(bytes, png, sizeof png);
    bytes[PNG_BITS] = 8;
    image = (struct trajd_layout_image){.is_present = true, .unit = TRAJD_DEPTH_MM};
    bad(bytes, sizeof bytes, &image, "8 bits a value, depth has 16 or 32");
    bytes[PNG_COLOR] = 3;
    bad(bytes, sizeof bytes, &gray, "a png in colour, the layout says gray");
    bytes[PNG_BITS] = 4;
    header = good(bytes, sizeof bytes, &rgb);
    assert_int_equal(header.channels, 3);
    assert_int_equal(header.bits, 8);
    bytes[PNG_COLOR] = 6;
    bytes[PNG_BITS] = 16;
    bad(bytes, sizeof bytes, &rgb, "a png with 16 bits a value, rgb has 8");
    bytes[PNG_BITS] = 8;
    assert_int_equal(good(bytes, sizeof bytes, &rgb).channels, 3);
    bytes[PNG_COLOR] = 4;
    bad(bytes, sizeof bytes, &rgb, "a png in grey, the layout says rgb");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_read),
        cmocka_unit_test(raw_rows_have_the_declared_size),
        cmocka_unit_test(damaged_headers_are_bad_rows),
        cmocka_unit_test(the_layout_excludes_frames),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
