/* The decoder of records: what the encoder writes is accepted, and each number that does not fit is
 * refused by its own rule. Records come from helper programs and from the cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/index/record.h"
#include "proto/array_len.h"

#define INLINE_MAX 65536u
#define CLOCKS 2

/* A record with one episode: an array in each form of storage, a stamped clock that drops rows, and
 * a clock that starts at a time. */
struct sample {
    struct trajd_record record;
    struct trajd_record_episode episode;
    struct trajd_record_array arrays[5]; /* in the order of enum array_name */
    struct trajd_record_clock clocks[CLOCKS];
    struct trajd_chunk chunks[6];
    int64_t stamps_ns[3];
    uint32_t kept_rows[3];
    const char *rates[CLOCKS], *keys[1], *metas[2], *notes[1];
};

enum array_name { CHUNKED, CONTIGUOUS, EMPTY, INLINE, REFUSED };

static uint8_t inline_bytes[INLINE_MAX + 8];

static struct trajd_array vector(enum trajd_storage storage, enum trajd_dtype dtype, uint64_t rows)
{
    return (struct trajd_array){.storage = storage,
                                .dtype = dtype,
                                .rank = 1,
                                .shape = {rows},
                                .size_bytes = rows * trajd_dtype_size(dtype)};
}

static struct sample *make_sample(void)
{
    static const char *const paths[] = {"chunked", "contiguous", "empty", "inline", "refused"};
    struct sample *s = calloc(1, sizeof *s);

    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        s->arrays[i].path = paths[i];
    for (size_t i = 0; i < ARRAY_LEN(s->chunks); i++)
        s->chunks[i] = (struct trajd_chunk){100 + 20 * i, 16, (uint32_t)i};
    s->arrays[CHUNKED].extent = (struct trajd_array){.storage = TRAJD_STORAGE_CHUNKED,
                                                     .dtype = TRAJD_F32,
                                                     .rank = 2,
                                                     .shape = {5, 4},
                                                     .size_bytes = 80,
                                                     .filter_count = 2,
                                                     .filters = {TRAJD_FILTER_SHUFFLE, 1},
                                                     .chunk_shape = {2, 2},
                                                     .chunk_count = 6,
                                                     .chunks = s->chunks,
                                                     .fill = {1, 2, 3, 4},
                                                     .has_attributes = true};
    s->arrays[CHUNKED].check_rows = 5;
    s->arrays[CHUNKED].check_digest = 77;
    s->arrays[CONTIGUOUS].extent = vector(TRAJD_STORAGE_CONTIGUOUS, TRAJD_I64, 10);
    s->arrays[CONTIGUOUS].extent.offset = 1920;
    s->arrays[EMPTY].extent = vector(TRAJD_STORAGE_EMPTY, TRAJD_U8, UINT64_C(1) << 31);
    s->arrays[INLINE].extent = vector(TRAJD_STORAGE_INLINE, TRAJD_F64, INLINE_MAX / 8);
    s->arrays[INLINE].extent.inline_bytes = inline_bytes;
    s->arrays[REFUSED].refusal = "of variable length";
    s->rates[0] = "";
    s->rates[1] = "20";
    s->keys[0] = "train";
    s->metas[1] = "lift\n\tthe cube";
    s->notes[0] = "obs/x was left out";
    memcpy(s->stamps_ns, (int64_t[]){-5, 0, 9}, sizeof s->stamps_ns);
    memcpy(s->kept_rows, (uint32_t[]){0, 2, 3}, sizeof s->kept_rows);
    s->clocks[0] = (struct trajd_record_clock){.present = true,
                                               .source_rows = 4,
                                               .dropped_rows = 1,
                                               .row_count = 3,
                                               .stamps_ns = s->stamps_ns,
                                               .kept_rows = s->kept_rows};
    s->clocks[1] = (struct trajd_record_clock){.has_start = true, .start_ns = -12};
    s->episode = (struct trajd_record_episode){.id = "demo_0",
                                               .rate_count = CLOCKS,
                                               .rates = s->rates,
                                               .key_count = 1,
                                               .filter_keys = s->keys,
                                               .meta_count = 2,
                                               .metas = s->metas,
                                               .is_plain = true,
                                               .array_count = ARRAY_LEN(s->arrays),
                                               .arrays = s->arrays,
                                               .evaluated = true,
                                               .content_digest = 88,
                                               .clock_count = CLOCKS,
                                               .clocks = s->clocks};
    s->record = (struct trajd_record){
        .note_count = 1, .notes = s->notes, .episode_count = 1, .episodes = &s->episode};
    return s;
}

struct decoded {
    struct trajd_arena arena;
    struct trajd_record record;
    struct trajd_error error;
    enum trajd_status status;
};

static struct decoded decode(const uint8_t *data, size_t length)
{
    struct decoded d = {.arena = {.limit_bytes = 1 << 20}};

    d.status = trajd_record_decode(data, length, 2000, CLOCKS, &d.arena, &d.record, &d.error);
    return d;
}

static void expect_damage(const struct trajd_bytes *bytes)
{
    struct decoded d = decode(bytes->data, bytes->length);

    assert_int_equal(d.status, TRAJD_ERR_PROTOCOL);
    trajd_arena_free(&d.arena);
}

/* Encodes the sample, decodes it, and expects the rule, or success where it is NULL. The encoder
 * itself refuses what breaks a limit of the tables: then the record refuses the file. Frees both. */
static void expect(struct sample *s, const char *rule)
{
    struct trajd_bytes bytes = {0};
    const char *found;
    struct decoded d;

    assert_true(trajd_record_encode(&s->record, &bytes));
    d = decode(bytes.data, bytes.length);
    assert_true(d.status == TRAJD_OK || d.status == TRAJD_ERR_PROTOCOL);
    found = d.status ? d.error.message : d.record.refusal;
    if (!rule != !found || (rule && !strstr(found, rule)))
        fail_msg("expected \"%s\": %s", rule ? rule : "", found ? found : "accepted");
    trajd_arena_free(&d.arena);
    trajd_bytes_free(&bytes);
    free(s);
}

static void test_all_that_is_encoded_comes_back(void **state)
{
    struct sample *s = make_sample();
    struct trajd_bytes bytes = {0}, again = {0};
    const struct trajd_record_episode *episode;
    struct decoded d;

    (void)state;
    for (uint32_t i = 0; i < INLINE_MAX; i++)
        inline_bytes[i] = (uint8_t)(i * 7 + i / 256);
    assert_true(trajd_record_encode(&s->record, &bytes));
    d = decode(bytes.data, bytes.length);
    assert_int_equal(d.status, TRAJD_OK);
    episode = &d.record.episodes[0];
    for (uint32_t i = 0; i < episode->array_count; i++)
        assert_int_equal(episode->arrays[i].refusal != NULL, i == REFUSED);
    assert_int_equal(episode->arrays[INLINE].extent.size_bytes, INLINE_MAX);
    assert_memory_equal(episode->arrays[INLINE].extent.inline_bytes, inline_bytes, INLINE_MAX);
    assert_int_equal(episode->arrays[CHUNKED].extent.size_bytes, 80);
    assert_null(episode->metas[0]);
    assert_true(trajd_record_encode(&d.record, &again));
    assert_int_equal(again.length, bytes.length);
    assert_memory_equal(again.data, bytes.data, bytes.length);
    trajd_arena_free(&d.arena);
    trajd_bytes_free(&again);
    trajd_bytes_free(&bytes);
    free(s);
}

static void test_records_that_end_early_or_late(void **state)
{
    struct sample *s = make_sample();
    struct trajd_bytes bytes = {0};

    (void)state;
    s->arrays[INLINE].extent = vector(TRAJD_STORAGE_INLINE, TRAJD_F64, 2);
    s->arrays[INLINE].extent.inline_bytes = inline_bytes;
    assert_true(trajd_record_encode(&s->record, &bytes));
    for (size_t length = 0; length < bytes.length; length++) {
        /* a copy of exactly this length, so that a sanitizer sees a read beyond it */
        uint8_t *prefix = malloc(length + !length);
        struct decoded d;
        memcpy(prefix, bytes.data, length);
        d = decode(prefix, length);
        assert_int_equal(d.status, TRAJD_ERR_PROTOCOL);
        assert_int_equal(d.record.episode_count, 0);
        trajd_arena_free(&d.arena);
        free(prefix);
    }
    trajd_bytes_add(&bytes, "", 1);
    expect_damage(&bytes);
    trajd_bytes_free(&bytes);
    free(s);
}

/* HDF5 keeps at most 64 KiB in an object header, so larger compact data are damage. */
static void test_inline_arrays_have_the_size_of_their_shape(void **state)
{
    struct sample *s = make_sample();

    (void)state;
    s->arrays[INLINE].extent = vector(TRAJD_STORAGE_INLINE, TRAJD_U8, INLINE_MAX + 1);
    s->arrays[INLINE].extent.inline_bytes = inline_bytes;
    expect(s, "arrays[3].inline: too many elements");
    s = make_sample();
    s->arrays[INLINE].extent.size_bytes -= 8; /* what follows is read as the last 8 bytes */
    expect(s, "");
    s = make_sample();
    s->arrays[INLINE].extent = vector(TRAJD_STORAGE_INLINE, TRAJD_U8, 0);
    s->arrays[INLINE].extent.inline_bytes = inline_bytes;
    expect(s, NULL);
}

static void test_numbers_of_arrays(void **state)
{
    struct sample *s = make_sample();

    (void)state;
    s->arrays[EMPTY].extent.shape[0]++;
    expect(s, "an array is too large");
    s = make_sample(), s->arrays[CHUNKED].check_rows = 6;
    expect(s, "an array is too large");
    s = make_sample(), s->arrays[CONTIGUOUS].extent.shape[0] = UINT64_C(1) << 61;
    expect(s, "an array is too large");
    s = make_sample(), s->arrays[REFUSED].refusal = NULL;
    expect(s, "an array without storage has no reason");
    s = make_sample(), s->arrays[CONTIGUOUS].extent.dtype = TRAJD_DTYPE_NONE;
    expect(s, "an array has no type or no rows");
    s = make_sample(), s->arrays[EMPTY].extent.rank = 0;
    expect(s, "an array has no type or no rows");
    s = make_sample(), s->arrays[CONTIGUOUS].extent.dtype = TRAJD_DTYPE_COUNT;
    expect(s, "out of range");
    s = make_sample(), s->arrays[EMPTY].extent.storage = (enum trajd_storage)5;
    expect(s, "out of range");
    s = make_sample(), s->arrays[EMPTY].path = "";
    expect(s, "out of range");
    s = make_sample(), s->arrays[EMPTY].path = "contiguous";
    expect(s, "arrays are not in order");
    s = make_sample(), s->arrays[EMPTY].path = "tab\there";
    expect(s, "a text has control characters");
    s = make_sample(), s->arrays[EMPTY].path = "del\x7f";
    expect(s, "a text has control characters");
    s = make_sample(), s->arrays[EMPTY].path = "e\xff space";
    expect(s, NULL);
    s = make_sample(), s->arrays[CONTIGUOUS].extent.filter_count = 1;
    expect(s, "contiguous data have no filters");
}

/* The array of frames in a sample. */
static struct trajd_array *frames(struct sample *s, enum trajd_row_form form)
{
    struct trajd_array *extent = &s->arrays[CONTIGUOUS].extent;

    *extent = (struct trajd_array){.storage = TRAJD_STORAGE_CONTIGUOUS,
                                   .dtype = form == TRAJD_ROWS_PACKED ? TRAJD_I64 : TRAJD_U8,
                                   .form = form,
                                   .rank = form == TRAJD_ROWS_PACKED ? 1 : 2,
                                   .shape = {3, 16},
                                   .size_bytes = form == TRAJD_ROWS_PACKED ? 24 : 48,
                                   .payload_offset = form == TRAJD_ROWS_PACKED ? 700 : 0,
                                   .payload_bytes = form == TRAJD_ROWS_PACKED ? 1300 : 0,
                                   .header = {TRAJD_ENCODING_PNG, 480, 640, 3, 8, true}};
    if (form == TRAJD_ROWS_PACKED)
        extent->shape[1] = 0;
    return extent;
}

static void test_encoded_rows(void **state)
{
    static const enum trajd_row_form forms[] = {TRAJD_ROWS_PADDED, TRAJD_ROWS_STRING,
                                                TRAJD_ROWS_HEAP, TRAJD_ROWS_PACKED};
    struct sample *s;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        struct trajd_bytes bytes = {0};
        const struct trajd_array *found;
        struct decoded d;
        s = make_sample();
        assert_true(frames(s, forms[i]) && trajd_record_encode(&s->record, &bytes));
        d = decode(bytes.data, bytes.length);
        assert_int_equal(d.status, TRAJD_OK);
        found = &d.record.episodes[0].arrays[CONTIGUOUS].extent;
        assert_null(d.record.episodes[0].arrays[CONTIGUOUS].refusal);
        assert_memory_equal(found, &s->arrays[CONTIGUOUS].extent, sizeof *found);
        trajd_arena_free(&d.arena);
        trajd_bytes_free(&bytes);
        free(s);
    }
    s = make_sample(), frames(s, TRAJD_ROWS_PADDED)->header.width = 8193;
    expect(s, "an image is out of range");
    s = make_sample(), frames(s, TRAJD_ROWS_PADDED)->header.channels = 2;
    expect(s, "an image is out of range");
    s = make_sample(), frames(s, TRAJD_ROWS_PADDED)->header.bits = 9;
    expect(s, "an image is out of range");
    s = make_sample(), frames(s, TRAJD_ROWS_PADDED)->header.encoding = 5;
    expect(s, "an image is out of range");
    s = make_sample(), frames(s, TRAJD_ROWS_PADDED)->form = 6;
    expect(s, "out of range");
    s = make_sample(), frames(s, TRAJD_ROWS_PADDED)->header.encoding = TRAJD_ENCODING_VIDEO;
    expect(s, "its image does not fit video");
    s = make_sample(), frames(s, TRAJD_ROWS_PADDED)->header = (struct trajd_image_header){0};
    expect(s, NULL);
}

/* Makes the array of frames packed video. */
static struct trajd_array *make_video(struct sample *s, struct trajd_video *video)
{
    struct trajd_array *extent = frames(s, TRAJD_ROWS_VIDEO);

    extent->dtype = TRAJD_I64;
    extent->rank = 1;
    extent->shape[1] = 0;
    extent->offset = 8;
    extent->header = (struct trajd_image_header){TRAJD_ENCODING_VIDEO, 480, 640, 3, 8, false};
    extent->video = video;
    return extent;
}

static void test_video(void **state)
{
    static const struct trajd_video good = {
        .format = {TRAJD_VIDEO_HEVC, TRAJD_MATRIX_BT2020, TRAJD_RANGE_FULL},
        .pixel_format = "yuv420p",
        .rows_offset = 0,
        .row_count = 4,
        .packets_offset = 100,
        .packet_count = 5,
        .units_offset = 200,
        .unit_count = 2,
        .ends_offset = 300,
        .extradata_count = 1,
        .largest_unit_packets = 4096,
        .largest_unit_bytes = TRAJD_UNIT_BYTES_MAX,
        .media = "a/b.mp4",
        .media_size = 5000,
        .media_stat = {5000, 7, 1, -5, 6}};
    struct trajd_video video = good;
    struct sample *s = make_sample();
    struct trajd_bytes bytes = {0};
    const struct trajd_video *found;
    struct trajd_arena arena = {.limit_bytes = 1 << 20};
    struct trajd_array copy;
    struct decoded d;

    (void)state;
    make_video(s, &video);
    assert_true(trajd_record_encode(&s->record, &bytes));
    d = decode(bytes.data, bytes.length);
    assert_int_equal(d.status, TRAJD_OK);
    assert_null(d.record.episodes[0].arrays[CONTIGUOUS].refusal);
    assert_true(
        trajd_record_copy_array(&arena, &d.record.episodes[0].arrays[CONTIGUOUS].extent, &copy));
    found = copy.video;
    assert_string_equal(found->media, good.media);
    assert_string_equal(found->pixel_format, good.pixel_format);
    assert_memory_equal(&found->format, &good.format, sizeof good.format);
    assert_memory_equal(&found->media_stat, &good.media_stat, sizeof good.media_stat);
    assert_true(found->row_count == 4 && found->media_size == 5000);
    trajd_arena_free(&d.arena);
    trajd_arena_free(&arena);
    trajd_bytes_free(&bytes);
    free(s);
    s = make_sample(), make_video(s, &video)->header.bits = 16;
    expect(s, "its image does not fit video");
    s = make_sample(), make_video(s, &video)->header.channels = 1;
    expect(s, "its image does not fit video");
    video.format.codec = TRAJD_VIDEO_NONE;
    s = make_sample(), make_video(s, &video);
    expect(s, "codec: out of range");
    video = good, video.format.range = (enum trajd_video_range)3;
    s = make_sample(), make_video(s, &video);
    expect(s, "range: out of range");
}

/* An array of most dimensions and filters is accepted, one more is refused. */
static void test_the_most_dimensions_and_filters(void **state)
{
    (void)state;
    for (uint32_t more = 0; more < 3; more++) { /* one more dimension, or filter */
        struct sample *s = make_sample();
        struct trajd_array *extent = &s->arrays[EMPTY].extent;
        *extent = (struct trajd_array){.storage = TRAJD_STORAGE_EMPTY, .dtype = TRAJD_U8};
        for (uint32_t i = 0; i < TRAJD_ARRAY_MAX_RANK; i++)
            extent->shape[i] = 2;
        extent->rank = TRAJD_ARRAY_MAX_RANK + (more == 1);
        extent->filter_count = TRAJD_ARRAY_MAX_FILTERS + (more == 2);
        expect(s, more == 0   ? NULL
                  : more == 1 ? "arrays[2].shape: too many elements"
                              : "arrays[2].filters: too many elements");
    }
}

static void test_chunks_fit_the_shape(void **state)
{
    struct sample *s = make_sample();

    (void)state;
    s->arrays[CHUNKED].extent.chunk_count = 5;
    expect(s, "the number of chunks does not fit the shape");
    s = make_sample(), s->arrays[CHUNKED].extent.chunk_shape[0] = 1;
    expect(s, "the number of chunks does not fit the shape");
    s = make_sample(), s->arrays[CHUNKED].extent.chunk_shape[1] = 0;
    expect(s, "a chunk has no or too many rows");
    s = make_sample(), s->arrays[CHUNKED].extent.chunk_shape[0] = UINT64_C(1) << 32;
    expect(s, "a chunk has no or too many rows");
    s = make_sample(), s->arrays[CHUNKED].extent.chunk_shape[0] = UINT64_C(1) << 30;
    expect(s, "a chunk is too large");
    s = make_sample(), s->arrays[CHUNKED].extent.filters[1] = 4;
    expect(s, "an unknown filter");
    s = make_sample(), s->arrays[CHUNKED].extent.filters[1] = (uint16_t)TRAJD_FILTER_LZF;
    expect(s, NULL);
}

/* The bytes of an array that lie beyond the file are a reason against the array alone. */
static void test_arrays_beyond_the_file(void **state)
{
    struct sample *s = make_sample();
    struct trajd_bytes bytes = {0};
    struct decoded d;

    (void)state;
    s->arrays[CONTIGUOUS].extent.offset++;
    s->chunks[5].offset = 1985;
    assert_true(trajd_record_encode(&s->record, &bytes));
    d = decode(bytes.data, bytes.length);
    assert_int_equal(d.status, TRAJD_OK);
    assert_non_null(d.record.episodes[0].arrays[CONTIGUOUS].refusal);
    assert_non_null(strstr(d.record.episodes[0].arrays[CHUNKED].refusal, "chunk 5"));
    assert_null(d.record.episodes[0].arrays[INLINE].refusal);
    trajd_arena_free(&d.arena);
    trajd_bytes_free(&bytes);
    free(s);
}

static void test_clocks_add_up(void **state)
{
    struct sample *s = make_sample();

    (void)state;
    s->clocks[0].dropped_rows = 0;
    expect(s, "a clock's rows do not add up");
    s = make_sample(), s->clocks[0].source_rows = 2, s->clocks[0].dropped_rows = UINT64_MAX;
    expect(s, "a clock's rows do not add up");
    s = make_sample(), s->clocks[1].source_rows = s->clocks[1].dropped_rows = (1u << 31) + 1ull;
    expect(s, "a clock's rows do not add up");
    s = make_sample(), s->clocks[0].kept_rows = NULL;
    expect(s, "dropped rows without a list of those kept");
    s = make_sample(), s->stamps_ns[1] = s->stamps_ns[0];
    expect(s, "stamps do not ascend");
    s = make_sample(), s->kept_rows[1] = 0;
    expect(s, "kept rows do not ascend");
    s = make_sample(), s->kept_rows[2] = 4;
    expect(s, "kept rows do not ascend");
    s = make_sample(), s->episode.clock_count = 1;
    expect(s, "not as many clocks as the layout has");
    s = make_sample(), s->episode.rate_count = 1;
    expect(s, "not as many rates as the layout has clocks");
    s = make_sample(), s->episode.rate_count = 0;
    expect(s, "not as many rates as the layout has clocks");
}

static void test_the_head_of_a_record(void **state)
{
    struct sample *s = make_sample();
    struct trajd_bytes bytes = {0};

    (void)state;
    assert_true(trajd_record_encode(&s->record, &bytes));
    for (size_t word = 0; word < 2; word++) { /* the magic and the version */
        bytes.data[4 * word] ^= 8;
        expect_damage(&bytes);
        bytes.data[4 * word] ^= 8;
    }
    trajd_bytes_free(&bytes);
    s->record.io_errno = 4095;
    expect(s, NULL);
    s = make_sample(), s->record.io_errno = 4096;
    expect(s, "io_errno: out of range");
    s = make_sample(), s->metas[1] = "two\rlines";
    expect(s, "a text has control characters");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_that_is_encoded_comes_back),
        cmocka_unit_test(test_records_that_end_early_or_late),
        cmocka_unit_test(test_inline_arrays_have_the_size_of_their_shape),
        cmocka_unit_test(test_numbers_of_arrays),
        cmocka_unit_test(test_encoded_rows),
        cmocka_unit_test(test_video),
        cmocka_unit_test(test_the_most_dimensions_and_filters),
        cmocka_unit_test(test_chunks_fit_the_shape),
        cmocka_unit_test(test_arrays_beyond_the_file),
        cmocka_unit_test(test_clocks_add_up),
        cmocka_unit_test(test_the_head_of_a_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
