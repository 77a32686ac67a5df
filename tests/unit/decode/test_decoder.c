/* Decoding with the real helper program: pixels as Pillow's, bad frames, children that die. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/decode/decoder.h"
#include "proto/array_len.h"
#include "tests/support/processes.h"
#include "support/references/references.h"

enum { HEIGHT = 29, WIDTH = 42, LARGEST = 1 << 16, TIMEOUT_MS = 20000 };

struct bytes {
    uint8_t *data;
    size_t size;
};

static struct bytes load(const char *name)
{
    struct bytes bytes = {malloc(LARGEST), 0};
    char path[512];
    FILE *file;

    snprintf(path, sizeof path, "%s/tests/golden/decoded/%s", TRAJD_SOURCE_DIR, name);
    file = fopen(path, "rb");
    assert_non_null(file);
    bytes.size = fread(bytes.data, 1, LARGEST, file);
    fclose(file);
    assert_in_range(bytes.size, 1, LARGEST - 1);
    return bytes;
}

static struct trajd_decoder_options options_for(enum trajd_image_color color, uint32_t bits)
{
    return (struct trajd_decoder_options){
        .program = TRAJD_BINARY_DIR "/daemon/decode/trajd-decoder",
        .image = {.is_present = true,
                  .color = color,
                  .height = HEIGHT,
                  .width = WIDTH,
                  .unit = color == TRAJD_COLOR_DEPTH ? TRAJD_DEPTH_MM : TRAJD_DEPTH_NONE},
        .bits = bits,
        .largest_frame_bytes = LARGEST,
        .timeout_ms = TIMEOUT_MS};
}

static struct trajd_decoder *start(const struct trajd_decoder_options *options)
{
    struct trajd_decoder *decoder;
    struct trajd_error error;

    if (trajd_decoder_create(options, &decoder, &error))
        fail_msg("%s", error.message);
    return decoder;
}

/* Decodes one frame. Returns its reason, "" for a good one. */
static const char *decode(struct trajd_decoder *decoder, const struct bytes *bytes, void *pixels)
{
    static struct trajd_decoder_frame frame;
    struct trajd_error error;

    frame = (struct trajd_decoder_frame){
        .bytes = bytes->data, .size = bytes->size, .room = bytes->size, .pixels = pixels};
    if (trajd_decoder_run(decoder, &frame, 1, &error))
        fail_msg("%s", error.message);
    return frame.reason;
}

static void test_pixels(void **state)
{
    static const struct {
        const char *name;
        enum trajd_image_color color;
        uint32_t bits;
    } files[] = {{"420.jpg", TRAJD_COLOR_RGB, 8},
                 {"422.jpg", TRAJD_COLOR_RGB, 8},
                 {"444.jpg", TRAJD_COLOR_RGB, 8},
                 {"progressive.jpg", TRAJD_COLOR_RGB, 8},
                 {"restart.jpg", TRAJD_COLOR_RGB, 8},
                 {"gray.jpg", TRAJD_COLOR_GRAY, 8},
                 {"rgb.png", TRAJD_COLOR_RGB, 8},
                 {"gray.png", TRAJD_COLOR_GRAY, 8},
                 {"depth.png", TRAJD_COLOR_DEPTH, 16},
                 {"palette.png", TRAJD_COLOR_RGB, 8},
                 {"palette_of_11.png", TRAJD_COLOR_RGB, 8},
                 {"palette_transparent.png", TRAJD_COLOR_RGB, 8},
                 {"alpha.png", TRAJD_COLOR_RGB, 8},
                 {"transparent.png", TRAJD_COLOR_RGB, 8},
                 {"gray_transparent.png", TRAJD_COLOR_GRAY, 8}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        const struct trajd_decoder_options options = options_for(files[i].color, files[i].bits);
        struct trajd_decoder *decoder = start(&options);
        struct bytes bytes = load(files[i].name), expected;
        uint8_t pixels[HEIGHT * WIDTH * 3];
        char name[64];
        snprintf(name, sizeof name, "%s.pixels", files[i].name);
        expected = load(name);
        assert_int_equal(trajd_decoder_frame_bytes(decoder), expected.size);
        assert_string_equal(decode(decoder, &bytes, pixels), "");
        if (memcmp(pixels, expected.data, expected.size))
            fail_msg("%s: other pixels than Pillow's", files[i].name);
        trajd_decoder_destroy(&decoder);
        free(bytes.data);
        free(expected.data);
    }
}

/* A frame that is stored upside down and with swapped colours comes out upright, red first. */
static void test_upright(void **state)
{
    struct trajd_decoder_options options = options_for(TRAJD_COLOR_BGR, 8);
    struct bytes bytes = load("rgb.png"), expected = load("rgb.png.pixels");
    uint8_t pixels[HEIGHT * WIDTH * 3];
    struct trajd_decoder *decoder;

    (void)state;
    options.upright = true;
    options.image.flip = TRAJD_FLIP_180;
    decoder = start(&options);
    assert_string_equal(decode(decoder, &bytes, pixels), "");
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        for (int c = 0; c < 3; c++)
            assert_int_equal(pixels[3 * i + c],
                             expected.data[3 * (HEIGHT * WIDTH - 1 - i) + 2 - c]);
    trajd_decoder_destroy(&decoder);
    options.image.flip = TRAJD_FLIP_VERTICAL;
    decoder = start(&options);
    assert_string_equal(decode(decoder, &bytes, pixels), "");
    assert_int_equal(pixels[0], expected.data[3 * (HEIGHT - 1) * WIDTH + 2]);
    trajd_decoder_destroy(&decoder);
    free(bytes.data);
    free(expected.data);
}

static void test_prepared(void **state)
{
    struct trajd_decoder_options options = options_for(TRAJD_COLOR_RGB, 8);
    struct trajd_image_preparation preparation = {.source_height = HEIGHT,
                                                  .source_width = WIDTH,
                                                  .channels = 3,
                                                  .type = TRAJD_U8,
                                                  .crop = {0, 0, HEIGHT, WIDTH},
                                                  .filter = TRAJD_IMAGE_PILLOW_LANCZOS};
    struct bytes bytes = load("rgb.png"), source = load("rgb.png.pixels");
    uint8_t pixels[16 * 16 * 3], expected[16 * 16 * 3];
    struct trajd_decoder *decoder;

    (void)state;
    trajd_image_place(&preparation, TRAJD_IMAGE_PAD, 16, 16);
    assert_int_equal(trajd_image_reference(&preparation, source.data, expected), TRAJD_OK);
    options.preparation = &preparation;
    decoder = start(&options);
    assert_int_equal(trajd_decoder_frame_bytes(decoder), sizeof pixels);
    assert_string_equal(decode(decoder, &bytes, pixels), "");
    assert_memory_equal(pixels, expected, sizeof pixels);
    trajd_decoder_destroy(&decoder);
    free(bytes.data);
    free(source.data);
}

/* Returns whether the JPEG has all its colours in full size. */
static bool is_444(const uint8_t *jpeg, uint64_t size)
{
    for (uint64_t i = 0; i + 18 < size; i++)
        if (jpeg[i] == 0xFF && jpeg[i + 1] == 0xC0)
            return jpeg[i + 9] == 3 && jpeg[i + 11] == 0x11 && jpeg[i + 14] == 0x11 &&
                   jpeg[i + 17] == 0x11;
    return false;
}

/* A prepared frame becomes a JPEG, which decodes to nearly the same pixels. */
static void test_jpegs(void **state)
{
    enum { SIDE = 24 };
    struct trajd_decoder_options options = options_for(TRAJD_COLOR_RGB, 8);
    struct trajd_image_preparation preparation = {.source_height = HEIGHT,
                                                  .source_width = WIDTH,
                                                  .channels = 3,
                                                  .type = TRAJD_U8,
                                                  .crop = {2, 5, SIDE, SIDE}};
    struct bytes bytes = load("rgb.png"), source = load("rgb.png.pixels"), jpeg;
    uint8_t expected[SIDE * SIDE * 3], pixels[SIDE * SIDE * 3];
    struct trajd_decoder *decoder;
    struct trajd_decoder_frame frame;
    uint32_t sum = 0;
    struct trajd_error error;

    (void)state;
    trajd_image_place(&preparation, TRAJD_IMAGE_STRETCH, SIDE, SIDE);
    assert_int_equal(trajd_image_reference(&preparation, source.data, expected), TRAJD_OK);
    options.preparation = &preparation;
    options.jpeg_quality = 95;
    decoder = start(&options);
    jpeg = (struct bytes){malloc(trajd_decoder_frame_bytes(decoder)), 0};
    assert_int_equal(trajd_decoder_frame_bytes(decoder),
                     sizeof pixels + TRAJD_DECODER_HEADER_BYTES);
    frame = (struct trajd_decoder_frame){
        .bytes = bytes.data, .size = bytes.size, .room = bytes.size, .pixels = jpeg.data};
    assert_int_equal(trajd_decoder_run(decoder, &frame, 1, &error), TRAJD_OK);
    assert_string_equal(frame.reason, "");
    trajd_decoder_destroy(&decoder);
    jpeg.size = frame.made_bytes;
    assert_true(is_444(jpeg.data, jpeg.size));

    options = options_for(TRAJD_COLOR_RGB, 8);
    options.image.height = options.image.width = SIDE;
    decoder = start(&options);
    assert_string_equal(decode(decoder, &jpeg, pixels), "");
    for (size_t i = 0; i < sizeof pixels; i++)
        sum += (uint32_t)abs(pixels[i] - expected[i]);
    assert_in_range(sum, 1,
                    4 * sizeof pixels); /* measured: a mean of 3.2, the image is full of detail */
    trajd_decoder_destroy(&decoder);
    free(bytes.data);
    free(source.data);
    free(jpeg.data);
}

/* Black and white noise needs more bytes as a JPEG than as pixels. */
static void test_jpegs_without_room(void **state)
{
    enum { SIDE = 512 };
    struct trajd_decoder_options options = options_for(TRAJD_COLOR_RGB, 8);
    struct trajd_image_preparation preparation = {.source_height = SIDE,
                                                  .source_width = SIDE,
                                                  .channels = 3,
                                                  .type = TRAJD_U8,
                                                  .crop = {0, 0, SIDE, SIDE - 1}};
    const size_t size = SIDE * SIDE * 3;
    uint8_t *noise = malloc(size), *jpeg;
    struct trajd_decoder *decoder;
    struct trajd_decoder_frame frame;
    struct trajd_error error;

    (void)state;
    srand(7);
    for (size_t i = 0; i < size; i++)
        noise[i] = rand() & 1024 ? 255 : 0;
    trajd_image_place(&preparation, TRAJD_IMAGE_STRETCH, SIDE, SIDE - 1);
    options.image.height = options.image.width = SIDE;
    options.image.encoding = TRAJD_ENCODING_RAW;
    options.largest_frame_bytes = size;
    options.preparation = &preparation;
    options.jpeg_quality = 100;
    decoder = start(&options);
    jpeg = malloc(trajd_decoder_frame_bytes(decoder));
    frame =
        (struct trajd_decoder_frame){.bytes = noise, .size = size, .room = size, .pixels = jpeg};
    assert_int_equal(trajd_decoder_run(decoder, &frame, 1, &error), TRAJD_OK);
    assert_string_equal(frame.reason, "");
    assert_int_equal(frame.made_bytes, 0);
    trajd_decoder_destroy(&decoder);
    free(noise);
    free(jpeg);
}

static void test_bad_frames(void **state)
{
    static const struct {
        const char *name, *words;
    } files[] = {{"turned.jpg", "must be turned"},
                 {"cmyk.jpg", "a CMYK JPEG is not supported"},
                 {"gray.jpg", "a jpeg in grey, the layout says rgb"},
                 {"gray.png", "a png in grey, the layout says rgb"},
                 {"gray_transparent.png", "a png in grey, the layout says rgb"},
                 {"depth.png", "a png in grey, the layout says rgb"}};
    const struct trajd_decoder_options options = options_for(TRAJD_COLOR_RGB, 8);
    struct trajd_decoder *decoder = start(&options);
    struct bytes good = load("420.jpg");
    uint8_t pixels[HEIGHT * WIDTH * 3];
    uint32_t bad = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct bytes bytes = load(files[i].name);
        const char *reason = decode(decoder, &bytes, pixels);
        if (!strstr(reason, files[i].words))
            fail_msg("%s: \"%s\" instead of \"%s\"", files[i].name, reason, files[i].words);
        free(bytes.data);
    }
    for (size_t size = 1; size < good.size; size += 7) { /* cut off anywhere */
        struct bytes cut = {good.data, size};
        if (!*decode(decoder, &cut, pixels))
            fail_msg("cut off after %zu of %zu bytes", size, good.size);
    }
    for (size_t at = 0; at < good.size; at += 3) { /* a changed byte: bad, or another image */
        good.data[at] ^= 0x55;
        bad += *decode(decoder, &good, pixels) != '\0';
        good.data[at] ^= 0x55;
    }
    assert_true(bad > 20);
    assert_string_equal(decode(decoder, &good, pixels), "");
    trajd_decoder_destroy(&decoder);
    free(good.data);
}

/* A stream whose rows may have many bytes: all jobs together would not fit into the child's
 * memory. */
static void test_large_rows(void **state)
{
    static const uint64_t sizes[] = {UINT64_C(100) << 20, UINT64_C(1) << 40};
    struct bytes bytes = load("420.jpg");
    uint8_t pixels[HEIGHT * WIDTH * 3];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct trajd_decoder_options options = options_for(TRAJD_COLOR_RGB, 8);
        struct trajd_decoder *decoder;
        options.largest_frame_bytes = sizes[i];
        decoder = start(&options);
        assert_string_equal(decode(decoder, &bytes, pixels), "");
        trajd_decoder_destroy(&decoder);
    }
    free(bytes.data);
}

static void test_killed_children(void **state)
{
    const struct trajd_decoder_options options = options_for(TRAJD_COLOR_RGB, 8);
    struct trajd_decoder *decoder = start(&options);
    struct bytes bytes = load("420.jpg"), expected = load("420.jpg.pixels");
    struct trajd_decoder_frame frames[100];
    uint8_t *pixels = malloc(ARRAY_LEN(frames) * expected.size);
    struct trajd_error error;

    (void)state;
    if (!process_find_child()) {
        trajd_decoder_destroy(&decoder);
        skip(); /* the kernel does not list children */
    }
    for (size_t i = 0; i < ARRAY_LEN(frames); i++)
        frames[i] = (struct trajd_decoder_frame){.bytes = bytes.data,
                                                 .size = bytes.size,
                                                 .room = bytes.size,
                                                 .pixels = pixels + i * expected.size};
    frames[50].size = LARGEST + 1; /* it does not even go to the child */
    kill(process_find_child(), SIGKILL);
    assert_int_equal(trajd_decoder_run(decoder, frames, ARRAY_LEN(frames), &error), TRAJD_OK);
    for (size_t i = 0; i < ARRAY_LEN(frames); i++) {
        if (i == 50) {
            assert_non_null(strstr(frames[i].reason, "more than"));
            continue;
        }
        assert_string_equal(frames[i].reason, "");
        assert_memory_equal(frames[i].pixels, expected.data, expected.size);
    }
    trajd_decoder_destroy(&decoder);
    assert_int_equal(process_find_child(), 0);
    free(pixels);
    free(bytes.data);
    free(expected.data);
}

static void test_mistakes(void **state)
{
    struct trajd_decoder_options options = options_for(TRAJD_COLOR_RGB, 8);
    struct trajd_decoder *decoder;
    struct trajd_error error;

    (void)state;
    options.program = "/nonexistent/trajd-decoder";
    assert_int_equal(trajd_decoder_create(&options, &decoder, &error), TRAJD_ERR_SYSTEM);
    assert_null(decoder);
    options.program = "/bin/true"; /* it ends at once */
    assert_int_equal(trajd_decoder_create(&options, &decoder, &error), TRAJD_ERR_SYSTEM);
    options = options_for(TRAJD_COLOR_RGB, 8);
    options.image.height = 0;
    assert_int_equal(trajd_decoder_create(&options, &decoder, &error), TRAJD_ERR_ARGUMENT);
    options = options_for(TRAJD_COLOR_RGB, 0);
    assert_int_equal(trajd_decoder_create(&options, &decoder, &error), TRAJD_ERR_ARGUMENT);
    options = options_for(TRAJD_COLOR_RGB, 9); /* the child refuses it */
    assert_int_equal(trajd_decoder_create(&options, &decoder, &error), TRAJD_ERR_SYSTEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pixels),
        cmocka_unit_test(test_upright),
        cmocka_unit_test(test_prepared),
        cmocka_unit_test(test_jpegs),
        cmocka_unit_test(test_jpegs_without_room),
        cmocka_unit_test(test_bad_frames),
        cmocka_unit_test(test_large_rows),
        cmocka_unit_test(test_killed_children),
        cmocka_unit_test(test_mistakes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
