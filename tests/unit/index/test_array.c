/* array.c, array_read.c and inflate.c: with bytes made by hand, and equal to h5py for every storage
 * form that it writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/index/rows/inflate.h"
#include "daemon/index/rows/kept_chunks.h"
#include "proto/array_len.h"
#include "tests/support/array_list.h"

#define SKIPPED 77

static int file_with(const void *bytes, size_t size)
{
    char path[] = "/tmp/trajd_array_XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(write(fd, bytes, size), (ssize_t)size);
    return fd;
}

/* 5 x 4 bytes in chunks of 2 x 3, with edge chunks in both dimensions. */
static struct trajd_array small_chunked(const struct trajd_chunk *chunks)
{
    return (struct trajd_array){.storage = TRAJD_STORAGE_CHUNKED,
                                .dtype = TRAJD_U8,
                                .rank = 2,
                                .shape = {5, 4},
                                .size_bytes = 20,
                                .chunk_shape = {2, 3},
                                .chunk_count = 6,
                                .chunks = chunks,
                                .fill = {9}};
}

static const struct trajd_chunk six_chunks[6] = {
    {0, 6, 0}, {6, 6, 0}, {TRAJD_ARRAY_MISSING_CHUNK, 0, 0}, {12, 6, 0}, {18, 6, 0}, {24, 6, 0}};

static struct trajd_array_reader *new_reader(void)
{
    struct trajd_array_reader *reader;

    assert_int_equal(trajd_array_reader_create(&reader, NULL), TRAJD_OK);
    return reader;
}

static void unfiltered_chunks_are_placed_and_missing_ones_filled(void **state)
{
    static const uint8_t expected[20] = {0, 1,  2, 6, 3, 4,  5,  9,  9,  9,
                                         9, 12, 9, 9, 9, 15, 18, 19, 20, 24};
    struct trajd_array array = small_chunked(six_chunks);
    struct trajd_array_reader *reader = new_reader();
    uint8_t stored[30], rows[20];
    int fd;

    (void)state;
    for (int i = 0; i < 30; i++)
        stored[i] = (uint8_t)i;
    fd = file_with(stored, sizeof stored);
    assert_int_equal(trajd_array_check(&array, sizeof stored, 0, NULL), TRAJD_OK);
    for (uint64_t begin = 0; begin <= 5; begin++)
        for (uint64_t count = 0; begin + count <= 5; count++) {
            memset(rows, 0xEE, sizeof rows);
            assert_int_equal(trajd_array_read(reader, fd, &array, begin, count, rows, NULL),
                             TRAJD_OK);
            assert_memory_equal(rows, expected + begin * 4, count * 4);
            for (uint64_t i = count * 4; i < sizeof rows; i++)
                assert_int_equal(rows[i], 0xEE);
        }
    close(fd);
    trajd_array_reader_destroy(&reader);
}

static void rows_outside_are_refused(void **state)
{
    struct trajd_array array = small_chunked(six_chunks);
    struct trajd_array_reader *reader = new_reader();
    struct trajd_error error;
    uint8_t rows[20];

    (void)state;
    assert_int_equal(trajd_array_read(reader, -1, &array, 4, 2, rows, &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_array_read(reader, -1, &array, UINT64_MAX, 2, rows, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_array_read(reader, -1, &array, 0, UINT64_MAX, rows, &error),
                     TRAJD_ERR_ARGUMENT);
    array.storage = TRAJD_STORAGE_ABSENT;
    assert_int_equal(trajd_array_read(reader, -1, &array, 0, 1, rows, &error), TRAJD_ERR_ARGUMENT);
    trajd_array_reader_destroy(&reader);
}

static void failing_reads_are_named(void **state)
{
    struct trajd_array array = small_chunked(six_chunks);
    struct trajd_array_reader *reader = new_reader();
    uint8_t stored[20] = {0}, rows[20];
    struct trajd_error error;
    int fd = file_with(stored, sizeof stored);

    (void)state;
    assert_int_equal(trajd_array_read(reader, fd, &array, 0, 5, rows, &error), TRAJD_ERR_IO);
    assert_non_null(strstr(error.message, "ends at offset 20"));
    array.storage = TRAJD_STORAGE_CONTIGUOUS;
    array.offset = 12;
    assert_int_equal(trajd_array_read(reader, fd, &array, 1, 4, rows, &error), TRAJD_ERR_IO);
    assert_non_null(strstr(error.message, "rows 1..4"));
    assert_int_equal(trajd_array_read(reader, -1, &array, 1, 4, rows, &error), TRAJD_ERR_IO);
    assert_int_equal(error.foreign_code, EBADF);
    close(fd);
    trajd_array_reader_destroy(&reader);
}

/* A stored chunk with a wrong length, content or checksum is an error that names the chunk and its
 * rows. */
static void broken_chunks_are_data_errors(void **state)
{
    struct trajd_chunk chunks[6];
    struct trajd_array array = small_chunked(chunks);
    struct trajd_array_reader *reader = new_reader();
    struct trajd_error error;
    uint8_t stored[64], rows[20];
    int fd;

    (void)state;
    memset(stored, 0x41, sizeof stored);
    fd = file_with(stored, sizeof stored);
    for (uint16_t f = 0; f < 4; f++) {
        static const uint16_t filters[] = {TRAJD_FILTER_DEFLATE, TRAJD_FILTER_LZF,
                                           TRAJD_FILTER_FLETCHER32, 0};
        memcpy(chunks, six_chunks, sizeof chunks);
        array.filter_count = filters[f] != 0;
        array.filters[0] = filters[f];
        chunks[3].offset = 30;
        chunks[3].stored_size = filters[f] == TRAJD_FILTER_FLETCHER32 ? 10 : 7;
        for (int c = 0; c < 6; c++) /* all but the fourth are not filtered */
            chunks[c].filter_mask = c == 3 ? 0 : 1;
        assert_int_equal(trajd_array_check(&array, sizeof stored, 0, &error), TRAJD_OK);
        assert_int_equal(trajd_array_read(reader, fd, &array, 0, 2, rows, &error), TRAJD_OK);
        assert_int_equal(trajd_array_read(reader, fd, &array, 0, 5, rows, &error), TRAJD_ERR_DATA);
        assert_non_null(strstr(error.message, "rows 2..3: chunk 3 at offset 30"));
    }
    close(fd);
    trajd_array_reader_destroy(&reader);
}

static void hostile_records_are_refused(void **state)
{
    struct trajd_chunk chunks[6];
    struct trajd_array array = small_chunked(chunks), bad;
    struct trajd_error error;

    (void)state;
    memcpy(chunks, six_chunks, sizeof chunks);
    assert_int_equal(trajd_array_check(&array, 30, 0, &error), TRAJD_OK);
    assert_int_equal(trajd_array_check(&array, 29, 0, &error), TRAJD_ERR_DATA);
    bad = array, bad.rank = 0;
    assert_int_equal(trajd_array_check(&bad, 30, 0, &error), TRAJD_ERR_DATA);
    bad = array, bad.rank = 7;
    assert_int_equal(trajd_array_check(&bad, 30, 0, &error), TRAJD_ERR_DATA);
    bad = array, bad.dtype = TRAJD_DTYPE_NONE;
    assert_int_equal(trajd_array_check(&bad, 30, 0, &error), TRAJD_ERR_DATA);
    bad = array, bad.size_bytes = 21;
    assert_int_equal(trajd_array_check(&bad, 30, 0, &error), TRAJD_ERR_DATA);
    bad = array, bad.chunk_count = 5;
    assert_int_equal(trajd_array_check(&bad, 30, 0, &error), TRAJD_ERR_DATA);
    bad = array, bad.chunk_row = 1; /* 6 rows in 3 chunks of 2 */
    assert_int_equal(trajd_array_check(&bad, 30, 0, &error), TRAJD_OK);
    bad = array, bad.chunk_row = 2, bad.shape[0] = 4, bad.size_bytes = 16;
    assert_int_equal(trajd_array_check(&bad, 30, 0, &error), TRAJD_ERR_DATA);
    bad = array, bad.chunk_shape[1] = 0;
    assert_int_equal(trajd_array_check(&bad, 30, 0, &error), TRAJD_ERR_UNSUPPORTED);
    bad = array, bad.chunk_shape[0] = TRAJD_ARRAY_MAX_CHUNK_BYTES;
    assert_int_equal(trajd_array_check(&bad, 30, 0, &error), TRAJD_ERR_UNSUPPORTED);
    bad = array, bad.shape[0] = UINT64_C(1) << 62, bad.shape[1] = 4;
    assert_int_equal(trajd_array_check(&bad, 30, 0, &error), TRAJD_ERR_DATA);
    bad = array, bad.filter_count = 1, bad.filters[0] = 4; /* szip */
    assert_int_equal(trajd_array_check(&bad, 30, 0, &error), TRAJD_ERR_UNSUPPORTED);
    bad = array, bad.filter_count = 2, bad.filters[0] = bad.filters[1] = TRAJD_FILTER_DEFLATE;
    assert_int_equal(trajd_array_check(&bad, 30, 0, &error), TRAJD_ERR_UNSUPPORTED);
    chunks[1].offset = UINT64_MAX - 3;
    assert_int_equal(trajd_array_check(&array, 30, 0, &error), TRAJD_ERR_DATA);
    memcpy(chunks, six_chunks, sizeof chunks);
    chunks[1].stored_size = 1u << 20;
    assert_int_equal(trajd_array_check(&array, 1u << 30, 0, &error), TRAJD_ERR_DATA);
    bad = array, bad.storage = TRAJD_STORAGE_CONTIGUOUS, bad.offset = 11;
    assert_int_equal(trajd_array_check(&bad, 30, 0, &error), TRAJD_ERR_DATA);
    bad = array, bad.storage = TRAJD_STORAGE_INLINE;
    assert_int_equal(trajd_array_check(&bad, 30, 19, &error), TRAJD_ERR_DATA);
    bad = array, bad.storage = (enum trajd_storage)17;
    assert_int_equal(trajd_array_check(&bad, 30, 0, &error), TRAJD_ERR_DATA);
}

static void inline_and_empty_rows(void **state)
{
    static const uint8_t bytes[6] = {1, 2, 3, 4, 5, 6};
    static const uint16_t filled[4] = {0x1234, 0x1234, 0x1234, 0x1234};
    struct trajd_array array = {.storage = TRAJD_STORAGE_INLINE,
                                .dtype = TRAJD_U16,
                                .rank = 2,
                                .shape = {3, 1},
                                .size_bytes = 6,
                                .inline_bytes = bytes,
                                .fill = {0x34, 0x12}};
    struct trajd_array_reader *reader = new_reader();
    uint16_t rows[4];

    (void)state;
    assert_int_equal(trajd_array_check(&array, 0, 6, NULL), TRAJD_OK);
    /* as many bytes as the shape has, neither fewer nor more, and they are there */
    assert_int_equal(trajd_array_check(&array, 0, 5, NULL), TRAJD_ERR_DATA);
    assert_int_equal(trajd_array_check(&array, 0, 7, NULL), TRAJD_ERR_DATA);
    assert_int_equal(trajd_array_check(&array, 0, 0, NULL), TRAJD_ERR_DATA);
    array.inline_bytes = NULL;
    assert_int_equal(trajd_array_check(&array, 0, 6, NULL), TRAJD_ERR_DATA);
    array.inline_bytes = bytes;
    assert_int_equal(trajd_array_read(reader, -1, &array, 1, 2, rows, NULL), TRAJD_OK);
    assert_memory_equal(rows, bytes + 2, 4);
    array.storage = TRAJD_STORAGE_EMPTY;
    array.shape[0] = 4;
    assert_int_equal(trajd_array_read(reader, -1, &array, 0, 4, rows, NULL), TRAJD_OK);
    assert_memory_equal(rows, filled, sizeof filled);
    trajd_array_reader_destroy(&reader);
}

static void chunks_are_kept_by_place_and_size(void **state)
{
    struct trajd_kept_chunks *chunks = trajd_kept_chunks_create();
    static uint8_t bytes[3 << 20];

    (void)state;
    assert_non_null(chunks);
    assert_null(trajd_kept_chunks_find(chunks, 0, 8));
    for (uint64_t i = 0; i < 3000; i++) { /* more than there is room for */
        memset(bytes, (int)(i % 251), 16);
        trajd_kept_chunks_add(chunks, i * 4096, bytes, 16);
        assert_memory_equal(trajd_kept_chunks_find(chunks, i * 4096, 16), bytes, 16);
    }
    assert_null(trajd_kept_chunks_find(chunks, 2999 * 4096, 15));
    memset(bytes, 7, sizeof bytes);
    trajd_kept_chunks_add(chunks, 2999 * 4096, bytes, 24); /* replaces it */
    assert_memory_equal(trajd_kept_chunks_find(chunks, 2999 * 4096, 24), bytes, 24);
    for (uint64_t i = 0; i < 30; i++) /* 90 MiB in all, which is too much */
        trajd_kept_chunks_add(chunks, i, bytes, sizeof bytes);
    assert_null(trajd_kept_chunks_find(chunks, 0, sizeof bytes));
    assert_non_null(trajd_kept_chunks_find(chunks, 29, sizeof bytes));
    trajd_kept_chunks_destroy(&chunks);
    assert_null(chunks);
}

static void unshuffle_is_exact_at_every_size(void **state)
{
    uint8_t plain[1100], shuffled[1100], out[1100];

    (void)state;
    for (size_t i = 0; i < sizeof plain; i++)
        plain[i] = (uint8_t)(i * 37 + i / 251);
    for (uint32_t element = 1; element <= 9; element++)
        for (size_t bytes = 0; bytes <= sizeof plain; bytes += bytes < 300 ? 1 : 53) {
            size_t count = bytes / element;
            memcpy(shuffled, plain, bytes);
            for (size_t i = 0; i < count; i++)
                for (uint32_t b = 0; b < element; b++)
                    shuffled[b * count + i] = plain[i * element + b];
            memset(out, 0xCC, sizeof out);
            trajd_unshuffle(shuffled, out, bytes, element);
            assert_memory_equal(out, plain, bytes);
            assert_true(bytes == sizeof out || out[bytes] == 0xCC);
        }
}

static void lzf_is_bounded(void **state)
{
    /* "ab", 4 from 2 back, 9 from 3 back */
    static const uint8_t good[] = {1, 'a', 'b', 0x40, 1, 0xE0, 0, 2};
    static const uint8_t plain[] = "ababab"
                                   "babbabbab";
    uint8_t out[32];

    (void)state;
    assert_true(trajd_lzf_decode(good, sizeof good, out, 15));
    assert_memory_equal(out, plain, 15);
    assert_false(trajd_lzf_decode(good, sizeof good, out, 14));
    assert_false(trajd_lzf_decode(good, sizeof good, out, 16));
    for (size_t cut = 1; cut < sizeof good; cut++)
        assert_false(trajd_lzf_decode(good, cut, out, 15));
    /* two bytes back where there is one */
    assert_false(trajd_lzf_decode((const uint8_t[]){0, 'a', 0x20, 1}, 4, out, 4));
    assert_false(trajd_lzf_decode((const uint8_t[]){31, 'a'}, 2, out, 32));
}

static void numbers_convert(void **state)
{
    const uint16_t halves[] = {0x3C00, 0xC000, 0x0001, 0x7BFF, 0x7C00, 0x7E00};
    const double reals[] = {1.5, -1.5, 9.3e18, -0x1p63};
    const uint64_t naturals[] = {5, UINT64_MAX};
    double out[6];
    int64_t whole[6];

    (void)state;
    assert_true(trajd_array_to_f64(TRAJD_F16, halves, 6, out));
    assert_true(out[0] == 1 && out[1] == -2 && out[2] == 0x1p-24 && out[3] == 65504 &&
                isinf(out[4]) && isnan(out[5]));
    assert_true(trajd_array_to_f64(TRAJD_BF16, (const uint16_t[]){0x3F80, 0xC040}, 2, out));
    assert_true(out[0] == 1 && out[1] == -3);
    assert_true(trajd_array_to_f64(TRAJD_U64, naturals, 2, out));
    assert_true(out[1] == 0x1p64);
    assert_true(trajd_array_to_f64(TRAJD_I8, (const int8_t[]){-128, 127}, 2, out));
    assert_true(out[0] == -128 && out[1] == 127);
    assert_false(trajd_array_to_f64(TRAJD_BOOL, naturals, 1, out));
    assert_false(trajd_array_to_f64(TRAJD_DTYPE_NONE, naturals, 1, out));
    assert_true(trajd_array_to_i64(TRAJD_F64, reals, 2, whole));
    assert_true(whole[0] == 1 && whole[1] == -2);
    assert_false(trajd_array_to_i64(TRAJD_F64, reals + 2, 1, whole));
    assert_true(trajd_array_to_i64(TRAJD_F64, reals + 3, 1, whole));
    assert_true(whole[0] == INT64_MIN);
    assert_false(trajd_array_to_i64(TRAJD_F16, halves + 5, 1, whole));
    assert_true(trajd_array_to_i64(TRAJD_U64, naturals, 1, whole));
    assert_false(trajd_array_to_i64(TRAJD_U64, naturals, 2, whole));
    assert_true(trajd_array_to_i64(TRAJD_I16, (const int16_t[]){-7}, 1, whole));
    assert_int_equal(whole[0], -7);
    assert_false(trajd_array_to_i64(TRAJD_BOOL, naturals, 1, whole));
}

/* Reads a slice of a slice of the array, which begins one row before `range` where there is one. */
static void compare_slice(struct trajd_array_reader *reader, const struct listed_array *listed,
                          int fd, const uint64_t range[2], const uint8_t *truth, uint8_t *read)
{
    const uint64_t before = range[0] > 0, bytes = range[1] * trajd_array_row_bytes(&listed->array);
    struct trajd_array slice = listed->array;
    struct trajd_error error;

    trajd_array_slice(&slice, range[0] - before, range[1] + before);
    trajd_array_slice(&slice, before, range[1]);
    if (trajd_array_check(&slice, UINT64_MAX, slice.size_bytes, &error) ||
        trajd_array_read(reader, fd, &slice, 0, range[1], read, &error))
        fail_msg("%s: a slice: %s", listed->label, error.message);
    if (slice.shape[0] != range[1] || memcmp(read, truth, bytes) != 0)
        fail_msg("%s: a slice from %" PRIu64 " differs from h5py's", listed->label, range[0]);
    memset(read, 0xEE, bytes);
    if (trajd_array_read(reader, fd, &slice, range[1] - 1, 1, read, &error))
        fail_msg("%s: a slice: %s", listed->label, error.message);
    assert_memory_equal(read, truth + bytes - bytes / range[1], bytes / range[1]);
}

/* Reads the whole array and some ranges of rows, and compares them with the bytes that h5py
 * read. */
static void compare_with_h5py(struct trajd_array_reader *reader, const struct listed_array *listed,
                              int fd, int truth_fd)
{
    uint64_t rows = trajd_array_row_count(&listed->array),
             row_bytes = trajd_array_row_bytes(&listed->array);
    uint64_t size = rows * row_bytes;
    const uint64_t ranges[][2] = {{0, rows},
                                  {rows / 3, rows / 2},
                                  {rows / 2, rows - rows / 2},
                                  {rows - (rows > 0), rows > 0}};
    uint8_t *truth = malloc(size + 1), *read = malloc(size + 1);
    struct trajd_error error = {0};

    assert_int_equal(pread(truth_fd, truth, size, (off_t)listed->truth_offset), (ssize_t)size);
    for (size_t r = 0; r < ARRAY_LEN(ranges); r++) {
        uint64_t bytes = ranges[r][1] * row_bytes;
        memset(read, 0xEE, size + 1);
        if (trajd_array_read(reader, fd, &listed->array, ranges[r][0], ranges[r][1], read, &error))
            fail_msg("%s: %s", listed->label, error.message);
        if (memcmp(read, truth + ranges[r][0] * row_bytes, bytes) != 0 || read[bytes] != 0xEE)
            fail_msg("%s: rows from %" PRIu64 " differ from h5py's", listed->label, ranges[r][0]);
        if (ranges[r][1])
            compare_slice(reader, listed, fd, ranges[r], truth + ranges[r][0] * row_bytes, read);
        trajd_array_reader_keep(reader, true); /* slices from inflated chunks are the same */
        for (int again = 0; again < 2 && ranges[r][1]; again++)
            compare_slice(reader, listed, fd, ranges[r], truth + ranges[r][0] * row_bytes, read);
        trajd_array_reader_keep(reader, false);
    }
    free(truth);
    free(read);
}

static char h5py_folder[] = "/tmp/trajd_h5py_XXXXXX";

static void every_storage_form_reads_as_h5py_does(void **state)
{
    struct trajd_array_reader *reader = new_reader();
    struct listed_array listed;
    char path[256];
    int truth_fd, fd, compared = 0;
    struct stat file_stat;
    FILE *list;

    (void)state;
    snprintf(path, sizeof path, "%s/truth.bin", h5py_folder);
    truth_fd = open(path, O_RDONLY);
    snprintf(path, sizeof path, "%s/arrays.h5", h5py_folder);
    fd = open(path, O_RDONLY);
    snprintf(path, sizeof path, "%s/arrays.txt", h5py_folder);
    list = fopen(path, "r");
    assert_true(truth_fd >= 0 && fd >= 0 && list && fstat(fd, &file_stat) == 0);
    while (listed_next(list, &listed)) {
        struct trajd_error error = {0};
        if (trajd_array_check(&listed.array, (uint64_t)file_stat.st_size, 0, &error))
            fail_msg("%s: %s", listed.label, error.message);
        compare_with_h5py(reader, &listed, fd, truth_fd);
        free(listed.chunks);
        compared++;
    }
    assert_true(compared > 400);
    free(listed.chunks);
    fclose(list);
    close(fd);
    close(truth_fd);
    trajd_array_reader_destroy(&reader);
}

static int remove_folder(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -r %s", h5py_folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest by_hand[] = {
        cmocka_unit_test(unfiltered_chunks_are_placed_and_missing_ones_filled),
        cmocka_unit_test(rows_outside_are_refused),
        cmocka_unit_test(failing_reads_are_named),
        cmocka_unit_test(broken_chunks_are_data_errors),
        cmocka_unit_test(hostile_records_are_refused),
        cmocka_unit_test(inline_and_empty_rows),
        cmocka_unit_test(chunks_are_kept_by_place_and_size),
        cmocka_unit_test(unshuffle_is_exact_at_every_size),
        cmocka_unit_test(lzf_is_bounded),
        cmocka_unit_test(numbers_convert),
    };
    const struct CMUnitTest by_h5py[] = {cmocka_unit_test(every_storage_form_reads_as_h5py_does)};
    char arguments[512];
    int failed = cmocka_run_group_tests(by_hand, NULL, NULL);

    if (failed || run_python("-c 'import h5py, numpy'") != 0)
        return failed ? failed : SKIPPED;
    if (!mkdtemp(h5py_folder))
        return 1;
    snprintf(arguments, sizeof arguments, TRAJD_SOURCE_DIR "/tests/tools/make_array_files.py %s",
             h5py_folder);
    if (run_python(arguments) != 0)
        return 1;
    failed = cmocka_run_group_tests(by_h5py, NULL, NULL);
    return remove_folder() || failed;
}
