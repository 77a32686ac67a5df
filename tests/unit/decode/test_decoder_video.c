/* Decode units with the real helper program, in its sandbox: planes as libavcodec's and dav1d's of
 * FFmpeg 8, frames by packet, faults, children that die. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <libdeflate.h>

#include "daemon/decode/decode_library.h"
#include "daemon/decode/decoder.h"
#include "daemon/decode/decoder_pool.h"
#include "proto/array_len.h"
#include "unit_file.h"

enum { MOST = 64, TIMEOUT_MS = 20000, LARGEST = 1 << 20 };

#define PROGRAM TRAJD_BINARY_DIR "/daemon/decode/trajd-decoder"
#define FAULTY TRAJD_BINARY_DIR "/tests/unit/decode/faulty_decoder"

static const char *const names[] = {
    "av1_g10",          "av1_odd",      "av1_forward_key",  "av1_yuv420p10le",
#ifdef TEST_AVCODEC
    "h264_bframes",     "h264_cropped", "h264_odd444",      "h264_yuv422p",    "h264_yuvj420p",
    "h264_yuv420p10le", "hevc_bframes", "hevc_yuv420p10le", "h264_slices",
#endif
};

static struct unit_file file;

static void load(const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s/tests/golden/video/units/%s.unit", TRAJD_SOURCE_DIR, name);
    if (!unit_file_read(path, &file))
        fail_msg("%s", path);
}

/* ---- the libraries, in this process ---- */

static const struct trajd_video_library *library_of(enum trajd_video_codec codec)
{
#ifdef TEST_AVCODEC
    if (codec != TRAJD_VIDEO_AV1)
        return &trajd_video_avcodec;
#endif
    assert_int_equal(codec, TRAJD_VIDEO_AV1);
    return &trajd_video_dav1d;
}

static uint32_t crc_of(const struct trajd_yuv *frame)
{
    const uint32_t bytes = frame->bits > 8 ? 2 : 1;
    uint32_t crc = 0;

    for (int p = 0; p < (frame->is_gray ? 1 : 3); p++) {
        const uint32_t x = p ? frame->shift_x : 0, y = p ? frame->shift_y : 0;
        for (uint32_t row = 0; row < (frame->height + y) >> y; row++)
            crc = libdeflate_crc32(crc, (const uint8_t *)frame->planes[p] + row * frame->steps[p],
                                   ((frame->width + x) >> x) * bytes);
    }
    return crc;
}

static const struct trajd_yuv_colors bt601 = {0.299, 0.114, false};

/* Decodes the unit. Writes each frame's pixels, if there is room for them, and checks its planes.
 * Returns the number of frames. */
static uint32_t decode_here(uint8_t *pixels)
{
    const struct trajd_video_library *library = library_of(file.codec);
    const struct trajd_video_stream stream = {.codec = file.codec,
                                              .extradata = file.unit.extradata,
                                              .extradata_size = file.unit.extradata_size,
                                              .height = file.height,
                                              .width = file.width};
    const uint8_t *next = file.unit.bytes;
    char reason[TRAJD_VIDEO_REASON_SIZE] = "";
    void *codec = library->open(&stream, reason);
    uint32_t count = 0, packet;
    struct trajd_yuv frame;

    assert_string_equal(reason, "");
    for (uint32_t i = 0; i <= file.unit.packet_count; i++) {
        const bool has_more = i < file.unit.packet_count;
        assert_true(
            library->send(codec, has_more ? next : NULL, has_more ? file.sizes[i] : 0, i, reason));
        next += has_more ? file.sizes[i] : 0;
        while (library->receive(codec, &frame, &packet, reason) == TRAJD_VIDEO_FRAME) {
            assert_in_range(packet, 0, file.unit.packet_count - 1);
            assert_int_equal(crc_of(&frame), file.crcs[packet]);
            trajd_yuv_to_rgb(&frame, &bt601,
                             pixels + (size_t)packet * file.height * file.width * 3);
            count++;
        }
    }
    assert_string_equal(reason, "");
    library->close(codec);
    return count;
}

static void test_planes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        uint8_t *pixels;
        load(names[i]);
        pixels = malloc((size_t)file.unit.packet_count * file.height * file.width * 3);
        assert_int_equal(decode_here(pixels), file.unit.packet_count);
        free(pixels);
    }
}

/* ---- the helper program ---- */

static struct trajd_decoder_options options_here(void)
{
    return (struct trajd_decoder_options){.program = PROGRAM,
                                          .image = {.is_present = true,
                                                    .color = TRAJD_COLOR_RGB,
                                                    .height = file.height,
                                                    .width = file.width},
                                          .bits = 8,
                                          .upright = true,
                                          .video = {.codec = file.codec},
                                          .largest_unit_bytes = LARGEST,
                                          .timeout_ms = TIMEOUT_MS};
}

struct fixture {
    struct trajd_decoder *decoder;
    struct trajd_decoder_frame frames[MOST];
    size_t frame_bytes;
    uint8_t *pixels, *expected; /* of each packet */
};

/* Loads a unit and starts a decoder for it. */
static struct fixture make(const char *name)
{
    struct trajd_decoder_options options;
    struct fixture f = {0};
    struct trajd_error error;

    load(name);
    options = options_here();
    if (trajd_decoder_create(&options, &f.decoder, &error))
        fail_msg("%s", error.message);
    f.frame_bytes = trajd_decoder_frame_bytes(f.decoder);
    f.pixels = calloc(MOST, f.frame_bytes);
    f.expected = calloc(MOST, f.frame_bytes);
    decode_here(f.expected);
    return f;
}

static void end(struct fixture *f)
{
    trajd_decoder_destroy(&f->decoder);
    free(f->pixels);
    free(f->expected);
}

/* Decodes the frames of these packets. */
static void run(struct fixture *f, const uint32_t *packets, uint32_t count)
{
    struct trajd_error error;

    memset(f->pixels, 0, MOST * f->frame_bytes);
    for (uint32_t i = 0; i < count; i++)
        f->frames[i] = (struct trajd_decoder_frame){.pixels = f->pixels + i * f->frame_bytes,
                                                    .packet = packets ? packets[i] : i};
    if (trajd_decoder_run_unit(f->decoder, &file.unit, f->frames, count, &error))
        fail_msg("%s", error.message);
}

static bool is_right(const struct fixture *f, uint32_t i)
{
    return !f->frames[i].reason[0] &&
           !memcmp(f->frames[i].pixels, f->expected + f->frames[i].packet * f->frame_bytes,
                   f->frame_bytes);
}

static void check_right(const struct fixture *f, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!is_right(f, i))
            fail_msg("frame %u: %s", i, f->frames[i].reason);
}

/* All frames, of which more than one job holds are in av1_forward_key. */
static void test_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct fixture f = make(names[i]);
        if (!strcmp(names[i], "h264_yuvj420p"))
            assert_int_equal(file.unit.packet_count, 2);
        run(&f, NULL, file.unit.packet_count);
        check_right(&f, file.unit.packet_count);
        end(&f);
    }
}

/* Few frames, in any order, two of one packet; then others of the same unit. */
static void test_some(void **state)
{
    static const uint32_t packets[] = {7, 2, 9, 2, 0}, others[] = {3};
    struct fixture f = make("av1_g10");

    (void)state;
    run(&f, packets, ARRAY_LEN(packets));
    check_right(&f, ARRAY_LEN(packets));
    run(&f, others, 1);
    check_right(&f, 1);
    run(&f, NULL, 0);
    end(&f);
}

/* Frames are turned and prepared as images are. */
static void test_prepared(void **state)
{
    struct fixture f = make("av1_g10");
    struct trajd_decoder_options options = options_here();
    struct trajd_image_preparation preparation = {.source_height = file.height,
                                                  .source_width = file.width,
                                                  .channels = 3,
                                                  .type = TRAJD_U8,
                                                  .crop = {0, 0, file.height, file.width},
                                                  .filter = TRAJD_IMAGE_PILLOW_BILINEAR};
    struct trajd_image_plan *plan;
    struct trajd_error error;

    (void)state;
    trajd_image_place(&preparation, TRAJD_IMAGE_STRETCH, 24, 32);
    options.preparation = &preparation;
    options.image.flip = TRAJD_FLIP_180;
    assert_int_equal(trajd_decoder_change(f.decoder, &options, &error), TRAJD_OK);
    f.frame_bytes = 24 * 32 * 3;
    run(&f, (const uint32_t[]){5}, 1);
    assert_string_equal(f.frames[0].reason, "");
    trajd_decode_upright(&options.image, 8,
                         f.expected + 5 * (size_t)(file.height * file.width * 3));
    assert_int_equal(trajd_image_plan_create(&preparation, &plan, &error), TRAJD_OK);
    trajd_image_prepare(plan, f.expected + 5 * (size_t)(file.height * file.width * 3), f.expected);
    assert_memory_equal(f.frames[0].pixels, f.expected, f.frame_bytes);
    trajd_image_plan_destroy(&plan);
    end(&f);
}

/* A fault in a packet makes its frame and the later ones bad. No earlier one is wrong, but frames
 * that wait to be shown are lost where the fault says that they are not shown. */
static const char *const is_lost = "the codec gives no frame for its packet";

static void check_damage(struct fixture *f, uint32_t damaged)
{
    bool has_fault = false;

    run(f, NULL, file.unit.packet_count);
    for (uint32_t i = 0; i < file.unit.packet_count; i++) {
        if (i < damaged && !is_right(f, i) && strcmp(f->frames[i].reason, is_lost))
            fail_msg("packet %u: %s", i, f->frames[i].reason);
        if (has_fault && !f->frames[i].reason[0])
            fail_msg("packet %u is good after a fault", i);
        has_fault |= !strncmp(f->frames[i].reason, "packet ", 7);
    }
}

static void test_damaged(void **state)
{
    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(names); n++) {
        struct fixture f = make(names[n]);
        uint8_t *bytes = (uint8_t *)file.unit.bytes;
        const uint32_t damaged = file.unit.packet_count / 2;
        for (uint32_t i = 0; i < damaged; i++)
            bytes += file.sizes[i];
        for (uint32_t at = 0; at < file.sizes[damaged];
             at += 1 + (uint32_t)file.sizes[damaged] / 40) {
            bytes[at] ^= 0x5a;
            check_damage(&f, damaged);
            bytes[at] ^= 0x5a;
        }
        end(&f);
    }
}

/* A packet that ends too early: the packets behind it stay where they are. */
static void test_truncated(void **state)
{
    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(names); n++) {
        struct fixture f = make(names[n]);
        const uint32_t last = file.unit.packet_count - 1;
        for (uint64_t size = file.sizes[last]; size-- > 0; size /= 2) {
            file.sizes[last] = size;
            check_damage(&f, last);
            if (!f.frames[last].reason[0])
                fail_msg("%s: %u bytes of the last packet are a good frame", names[n],
                         (uint32_t)size);
        }
        end(&f);
    }
}

static void test_extradata(void **state)
{
    static const uint8_t noise[40] = {1, 0x64, 0, 10, 0xff, 0xe1, 0, 200, 1, 2, 3};

    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(names); n++) {
        struct fixture f = make(names[n]);
        file.unit.extradata = noise;
        file.unit.extradata_size = sizeof noise;
        run(&f, NULL, 1);
        assert_string_not_equal(f.frames[0].reason, "");
        if (file.codec != TRAJD_VIDEO_AV1) {
            file.unit.extradata_size = 0;
            run(&f, NULL, 1);
            assert_string_not_equal(f.frames[0].reason, "");
        }
        end(&f);
    }
}

/* Frames of another size than the video's. */
static void test_size(void **state)
{
    static const uint32_t sizes[][2] = {{24, 32}, {480, 640}};

    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(names); n++)
        for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
            struct fixture f = make(names[n]);
            struct trajd_decoder_options options = options_here();
            struct trajd_error error;
            options.image.height = sizes[s][0];
            options.image.width = sizes[s][1];
            assert_int_equal(trajd_decoder_change(f.decoder, &options, &error), TRAJD_OK);
            run(&f, NULL, 1);
            assert_string_not_equal(f.frames[0].reason, "");
            end(&f);
        }
}

/* What the caller says wrongly. */
static void test_arguments(void **state)
{
    struct fixture f = make("av1_g10");
    struct trajd_decoder_options options = options_here();
    struct trajd_error error;

    (void)state;
    f.frames[0] = (struct trajd_decoder_frame){.pixels = f.pixels, .packet = 10};
    assert_int_equal(trajd_decoder_run_unit(f.decoder, &file.unit, f.frames, 1, &error),
                     TRAJD_ERR_ARGUMENT);
    file.sizes[3] = 8 << 20; /* more than the room, which is rounded up */
    run(&f, NULL, 10);
    for (int i = 0; i < 10; i++)
        assert_string_equal(f.frames[i].reason,
                            "its decode unit has more bytes than the video says");
    run(&f, NULL, 3);
    check_right(&f, 3);
    options.largest_unit_bytes = 0;
    assert_int_equal(trajd_decoder_change(f.decoder, &options, &error), TRAJD_ERR_ARGUMENT);
    end(&f);
}

/* One pool has a child for images, AV1 and H.264 in turn. */
/* As many packets as a unit may have. The last ones have no frame: each is a delimiter alone. */
static void test_most_packets(void **state)
{
    static uint64_t sizes[TRAJD_UNIT_PACKETS_MAX];
    static const uint8_t delimiter[] = {0x12, 0x00};
    const uint32_t last = TRAJD_UNIT_PACKETS_MAX - 1;
    struct fixture f = make("av1_g10");
    uint8_t *bytes = malloc(file.sizes[0] + last * sizeof delimiter);

    (void)state;
    sizes[0] = file.sizes[0];
    memcpy(bytes, file.unit.bytes, sizes[0]);
    for (uint32_t i = 1; i <= last; i++) {
        memcpy(bytes + sizes[0] + (i - 1) * sizeof delimiter, delimiter, sizeof delimiter);
        sizes[i] = sizeof delimiter;
    }
    file.unit = (struct trajd_decoder_unit){file.unit.extradata, file.unit.extradata_size, bytes,
                                            sizes, last + 1};
    run(&f, (const uint32_t[]){0, last}, 2);
    check_right(&f, 1);
    assert_string_equal(f.frames[1].reason, is_lost);
    free(bytes);
    end(&f);
}

static void test_pool(void **state)
{
    static uint8_t pixels[51 * 64 * 64 * 3], raw[12];
    struct trajd_decoder_pool *pool;
    struct trajd_error error;

    (void)state;
    assert_int_equal(trajd_decoder_pool_create(PROGRAM, 1, 1, &pool, &error), TRAJD_OK);
    for (size_t n = 0; n < ARRAY_LEN(names); n++) {
        struct trajd_decoder_options options;
        struct trajd_decoder_frame frame = {.pixels = pixels, .packet = 1},
                                   header = {
                                       .bytes = raw, .size = 12, .room = 12, .pixels = pixels};
        load(names[n]);
        options = options_here();
        assert_int_equal(trajd_decoder_pool_run_unit(pool, &options, &file.unit, &frame, 1, &error),
                         TRAJD_OK);
        assert_string_equal(frame.reason, "");
        options.video.codec = TRAJD_VIDEO_NONE;
        options.largest_frame_bytes = sizeof raw;
        options.image.encoding = TRAJD_ENCODING_RAW;
        options.image.height = options.image.width = 2;
        assert_int_equal(trajd_decoder_pool_run(pool, &options, &header, 1, &error), TRAJD_OK);
        assert_string_equal(header.reason, "");
    }
    trajd_decoder_pool_destroy(&pool);
}

/* ---- children that fail ---- */

static const char *const crashed = "the video library crashed, hung or got no memory on it";

/* Runs faulty_decoder on a unit of four packets, of which the first begins with `kind`. */
static void run_faulty(struct fixture *f, char kind)
{
    static uint64_t sizes[4] = {1, 1, 1, 1};
    static uint8_t bytes[4];
    struct trajd_decoder_options options;
    struct trajd_error error;

    bytes[0] = (uint8_t)kind;
    memset(&file, 0, sizeof file);
    file.codec = TRAJD_VIDEO_AV1;
    file.height = file.width = 8;
    file.unit = (struct trajd_decoder_unit){.bytes = bytes, .sizes = sizes, .packet_count = 4};
    options = options_here();
    options.program = FAULTY;
    options.timeout_ms = 500;
    *f = (struct fixture){.frame_bytes = 8 * 8 * 3, .pixels = calloc(MOST, 8 * 8 * 3)};
    if (trajd_decoder_create(&options, &f->decoder, &error))
        fail_msg("%s", error.message);
    run(f, NULL, 4);
}

/* It makes one frame for each child and dies: the third and fourth frames are bad. */
static void test_dies_in_the_middle(void **state)
{
    struct fixture f;

    (void)state;
    run_faulty(&f, 'K');
    for (int i = 0; i < 4; i++)
        assert_string_equal(f.frames[i].reason, i < 2 ? "" : crashed);
    assert_int_equal(f.pixels[0], 'K');
    end(&f);
}

static void test_breaks_the_protocol(void **state)
{
    (void)state;
    for (const char *kind = "eweHtc"; *kind; kind++) {
        struct fixture f;
        run_faulty(&f, *kind);
        for (int i = 0; i < 4; i++)
            assert_string_equal(f.frames[i].reason, crashed);
        end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planes),
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_some),
        cmocka_unit_test(test_prepared),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_extradata),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_most_packets),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_dies_in_the_middle),
        cmocka_unit_test(test_breaks_the_protocol),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
