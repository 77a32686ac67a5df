/* Sequence headers that are written bit by bit: what is read of them, what is refused, and that no cut
 * one is read beyond its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/decode/mp4/stream_format.h"
#include "proto/array_len.h"

struct writer {
    uint8_t bytes[256];
    uint32_t at;
};

static void put(struct writer *writer, uint32_t count, uint32_t value)
{
    for (; count; count--, writer->at++)
        if (value >> (count - 1) & 1)
            writer->bytes[writer->at / 8] |= (uint8_t)(0x80 >> writer->at % 8);
}

static void put_golomb(struct writer *writer, uint32_t value)
{
    uint32_t bits = 0;

    while ((value + 1) >> (bits + 1))
        bits++;
    put(writer, bits, 0);
    put(writer, bits + 1, value + 1);
}

/* What differs between the headers of a test. */
struct header {
    uint32_t chroma, planes, bits, matrix, full, is_interlaced, width, height, layers;
};

static const struct header plain = {
    .chroma = 1, .bits = 8, .matrix = 1, .full = 1, .width = 64, .height = 48};

static void put_vui(struct writer *writer, const struct header *header)
{
    put(writer, 1, 1);
    put(writer, 8, 255); /* a ratio of pixels' sides of its own */
    put(writer, 32, 0x00030004);
    put(writer, 2, 3); /* overscan */
    put(writer, 1, 1);
    put(writer, 3, 5);
    put(writer, 1, header->full);
    put(writer, 1, 1);
    put(writer, 24, 0x010100 | header->matrix);
}

static struct writer write_h264(struct header header)
{
    struct writer writer = {0};

    put(&writer, 24, 100 << 16 | 30); /* profile, level */
    put_golomb(&writer, 3);
    put_golomb(&writer, header.chroma);
    if (header.chroma == 3)
        put(&writer, 1, header.planes);
    put_golomb(&writer, header.bits - 8);
    put_golomb(&writer, header.bits - 8);
    put(&writer, 2, 1); /* scaling lists: the first ends at once, the others are absent */
    put(&writer, 1, 1);
    put_golomb(&writer, 16); /* -8 */
    put(&writer, header.chroma == 3 ? 11 : 7, 0);
    put_golomb(&writer, 0);
    put_golomb(&writer, 1); /* order of images: a cycle of two */
    put(&writer, 1, 0);
    put_golomb(&writer, 0);
    put_golomb(&writer, 0);
    put_golomb(&writer, 2);
    put_golomb(&writer, 5);
    put_golomb(&writer, 6);
    put_golomb(&writer, 1);
    put(&writer, 1, 0);
    put_golomb(&writer, (header.width + 15) / 16 - 1);
    put_golomb(&writer, (header.height + 15) / 16 - 1);
    put(&writer, 1, !header.is_interlaced);
    put(&writer, 2, 3);
    put_golomb(&writer, 0);
    put_golomb(&writer, 1); /* right */
    put_golomb(&writer, 0);
    put_golomb(&writer, 2); /* bottom */
    put(&writer, 1, 1);
    put_vui(&writer, &header);
    return writer;
}

static void put_short_term_sets(struct writer *writer)
{
    put_golomb(writer, 2);
    put_golomb(writer, 1);
    put_golomb(writer, 1);
    for (int i = 0; i < 2; i++) {
        put_golomb(writer, 4);
        put(writer, 1, 1);
    }
    put(writer, 2, 3); /* made of the first */
    put_golomb(writer, 0);
    put(writer, 1, 1);
    put(writer, 2, 0);
    put(writer, 2, 1);
}

static struct writer write_hevc(struct header header)
{
    struct writer writer = {0};

    put(&writer, 8, 1 << 1); /* two sub-layers */
    put(&writer, 32, 0x01600000);
    put(&writer, 32, 0x90000000);
    put(&writer, 32, 93);
    put(&writer, 16, 0xc000); /* of the first sub-layer: profile and level */
    put(&writer, 32, 1);
    put(&writer, 32, 2);
    put(&writer, 32, 3);
    put_golomb(&writer, 3);
    put_golomb(&writer, header.chroma);
    if (header.chroma == 3)
        put(&writer, 1, header.planes);
    put_golomb(&writer, header.width);
    put_golomb(&writer, header.height);
    put(&writer, 1, 1);
    put_golomb(&writer, 0);
    put_golomb(&writer, 1); /* right */
    put_golomb(&writer, 0);
    put_golomb(&writer, 2); /* bottom */
    put_golomb(&writer, header.bits - 8);
    put_golomb(&writer, header.bits - 8);
    put_golomb(&writer, 4);
    put(&writer, 1, 0);
    for (int i = 0; i < 3 + 6; i++)
        put_golomb(&writer, 1);
    put(&writer, 2, 3); /* scaling lists */
    put(&writer, 1, 1);
    for (int i = 0; i < 16; i++)
        put_golomb(&writer, 7);
    for (int i = 0; i < 19; i++) {
        put(&writer, 1, 0);
        put_golomb(&writer, 0);
    }
    put(&writer, 3, 1); /* PCM */
    put(&writer, 8, 0x77);
    put_golomb(&writer, 0);
    put_golomb(&writer, 1);
    put(&writer, 1, 0);
    put_short_term_sets(&writer);
    put(&writer, 1, 1);
    put_golomb(&writer, 1); /* a long-term image: 8 bits and a flag */
    put(&writer, 9, 0x155);
    put(&writer, 3, 1);
    put_vui(&writer, &header);
    put(&writer, 2, 0);
    put(&writer, 1, header.is_interlaced);
    return writer;
}

static struct writer write_av1(struct header header)
{
    struct writer writer = {0};

    put(&writer, 5, (header.chroma == 3 ? 1u : 0) << 2);
    put(&writer, 1, 1); /* timing, and a model of the decoder */
    put(&writer, 32, 1);
    put(&writer, 32, 30);
    put(&writer, 1, 1);
    put_golomb(&writer, 0);
    put(&writer, 1, 1);
    put(&writer, 5, 9);
    put(&writer, 32, 1);
    put(&writer, 10, 0);
    put(&writer, 1, 1);
    put(&writer, 5, 0);
    put(&writer, 12, header.layers ? header.layers << 8 | 1 : 0);
    put(&writer, 5, 8);
    put(&writer, 1, 0);
    put(&writer, 1, 1);
    put(&writer, 21, 0x1fffff);
    put(&writer, 5, 0x1a);
    put(&writer, 8, 0x99);
    put(&writer, 10, header.width - 2 - 1);
    put(&writer, 10, header.height - 4 - 1);
    put(&writer, 1, 1);
    put(&writer, 7, 0);
    put(&writer, 7, 0x7f);
    put(&writer, 3, 7);
    put(&writer, 3, 3); /* screen content is on, whole numbers too */
    put(&writer, 6, 0);
    put(&writer, 1, header.bits == 10);
    if (header.chroma != 3)
        put(&writer, 1, header.chroma == 0);
    put(&writer, 1, 1);
    put(&writer, 24, 0x010100 | header.matrix);
    put(&writer, 1, header.full);
    if (header.chroma == 1)
        put(&writer, 2, 0);
    put(&writer, header.chroma ? 3 : 2, 1); /* one delta, no film grain, the end */
    return writer;
}

static enum trajd_status read_av1(const uint8_t *bytes, size_t size, uint32_t *id,
                                  struct trajd_stream_format *format, struct trajd_error *error)
{
    *id = 3;
    return trajd_stream_format_av1(bytes, size, format, error);
}

static const struct codec {
    struct writer (*write)(struct header header);
    enum trajd_status (*read)(const uint8_t *bytes, size_t size, uint32_t *id,
                              struct trajd_stream_format *format, struct trajd_error *error);
} codecs[] = {{write_h264, trajd_stream_format_h264},
              {write_hevc, trajd_stream_format_hevc},
              {write_av1, read_av1}};

/* Returns a header as it is in a NAL unit: behind two zeros, a byte below 4 has a 3 in front. */
static struct writer write(const struct codec *codec, struct header header)
{
    const struct writer plain_bits = codec->write(header);
    struct writer writer = {0};
    uint32_t zeros = 0;

    for (uint32_t i = 0; i < (plain_bits.at + 7) / 8; i++) {
        if (codec->read != read_av1 && zeros >= 2 && plain_bits.bytes[i] <= 3) {
            put(&writer, 8, 3);
            zeros = 0;
        }
        put(&writer, 8, plain_bits.bytes[i]);
        zeros = plain_bits.bytes[i] ? 0 : zeros + 1;
    }
    return writer;
}

static enum trajd_status read(const struct codec *codec, struct header header,
                              struct trajd_stream_format *format, struct trajd_error *error)
{
    const struct writer writer = write(codec, header);
    uint32_t id;
    const enum trajd_status status = codec->read(writer.bytes, writer.at / 8, &id, format, error);

    assert_true(status || id == 3);
    return status;
}

static void test_values(void **state)
{
    struct trajd_stream_format format;
    struct trajd_error error = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(codecs); i++) {
        struct header deep = plain;
        assert_int_equal(read(&codecs[i], plain, &format, &error), TRAJD_OK);
        assert_int_equal(format.width, 62);
        assert_int_equal(format.height, 44);
        assert_int_equal(format.chroma, TRAJD_CHROMA_420);
        assert_int_equal(format.bits, 8);
        assert_int_equal(format.matrix, TRAJD_MATRIX_BT709);
        assert_int_equal(format.range, TRAJD_RANGE_FULL);
        deep.bits = 10;
        deep.full = 0;
        deep.matrix = 9;
        assert_int_equal(read(&codecs[i], deep, &format, &error), TRAJD_OK);
        assert_int_equal(format.bits, 10);
        assert_int_equal(format.range, TRAJD_RANGE_LIMITED);
        assert_int_equal(format.matrix, TRAJD_MATRIX_BT2020);
    }
}

static void refuse(const struct codec *codec, struct header header, const char *words)
{
    struct trajd_stream_format format;
    struct trajd_error error = {0};

    assert_int_equal(read(codec, header, &format, &error), TRAJD_ERR_UNSUPPORTED);
    if (!strstr(error.message, words))
        fail_msg("%s", error.message);
}

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(codecs); i++) {
        struct header header = plain;
        header.matrix = 8;
        refuse(&codecs[i], header, "matrix has number 8");
        header = plain;
        header.chroma = 0;
        header.bits = 10;
        refuse(&codecs[i], header, "depth");
        if (codecs[i].read == read_av1)
            continue;
        header = plain;
        header.is_interlaced = 1;
        refuse(&codecs[i], header, "interlaced");
        header = plain;
        header.chroma = 3;
        header.planes = 1;
        refuse(&codecs[i], header, "planes are coded separately");
        header = plain;
        header.bits = 12;
        refuse(&codecs[i], header, "12 bits");
        header = plain;
        header.width = 20000;
        refuse(&codecs[i], header, "pixels");
    }
    refuse(&codecs[2], (struct header){.layers = 3, .width = 64, .height = 48}, "spatial layers");
}

/* A header that is cut is damaged, wherever. What is left lies at the end of its memory. */
static void test_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(codecs); i++) {
        const struct writer writer = write(&codecs[i], plain);
        for (size_t size = 0; size + 1 < writer.at / 8; size++) {
            struct trajd_stream_format format;
            struct trajd_error error;
            uint8_t *bytes = malloc(size + 1);
            uint32_t id;
            memcpy(bytes, writer.bytes, size);
            bytes = realloc(bytes, size ? size : 1);
            assert_int_equal(codecs[i].read(bytes, size, &id, &format, &error), TRAJD_ERR_DATA);
            free(bytes);
        }
    }
}

static void test_pixel_formats(void **state)
{
    static const struct {
        enum trajd_video_codec codec;
        struct trajd_stream_format format;
        const char *name;
    } cases[] = {
        {TRAJD_VIDEO_H264, {.chroma = TRAJD_CHROMA_420, .bits = 8}, "yuv420p"},
        {TRAJD_VIDEO_HEVC,
         {.chroma = TRAJD_CHROMA_422, .bits = 8, .range = TRAJD_RANGE_FULL},
         "yuvj422p"},
        {TRAJD_VIDEO_AV1,
         {.chroma = TRAJD_CHROMA_444, .bits = 8, .range = TRAJD_RANGE_FULL},
         "yuv444p"},
        {TRAJD_VIDEO_HEVC,
         {.chroma = TRAJD_CHROMA_420, .bits = 10, .range = TRAJD_RANGE_FULL},
         "yuv420p10le"},
        {TRAJD_VIDEO_H264, {.bits = 8}, "yuv420p"},
        {TRAJD_VIDEO_AV1, {.bits = 8}, "gray"},
    };
    char text[TRAJD_PIXEL_FORMAT_SIZE];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(trajd_stream_pixel_format(cases[i].codec, &cases[i].format, text),
                            cases[i].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_pixel_formats),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
