/* encoded.c and heap.c: rows in every form equal to h5py's reading, and references and offsets that
 * lead nowhere. The files are those of tests/tools/make_frame_files.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/index/rows/encoded.h"
#include "proto/array_len.h"
#include "tests/support/array_list.h"
#include "tests/support/index_files.h"

#define SHARED TRAJD_SOURCE_DIR "/../shared/data/images"

/* ---- equal to h5py ---- */

/* One stream as h5py reads it. */
struct truth {
    char name[128];
    uint64_t row_count;
    struct trajd_row_bytes *rows; /* [row_count], each owned */
};

static void take(FILE *file, void *to, size_t size)
{
    assert_int_equal(fread(to, 1, size, file), size);
}

static bool next_truth(FILE *file, struct truth *truth)
{
    uint32_t length;

    if (fread(&length, sizeof length, 1, file) != 1)
        return false;
    assert_true(length < sizeof truth->name);
    take(file, truth->name, length);
    truth->name[length] = '\0';
    take(file, &truth->row_count, sizeof truth->row_count);
    truth->rows = calloc(truth->row_count, sizeof *truth->rows);
    assert_non_null(truth->rows);
    for (uint64_t r = 0; r < truth->row_count; r++) {
        uint8_t *data;
        take(file, &truth->rows[r].size, sizeof truth->rows[r].size);
        data = malloc(truth->rows[r].size + 1);
        assert_non_null(data);
        take(file, data, truth->rows[r].size);
        truth->rows[r].data = data;
    }
    return true;
}

static void free_truth(struct truth *truth)
{
    for (uint64_t r = 0; r < truth->row_count; r++)
        free((void *)truth->rows[r].data);
    free(truth->rows);
}

static struct trajd_encoded_reader *new_reader(void)
{
    struct trajd_encoded_reader *reader;

    assert_int_equal(trajd_encoded_reader_create(&reader, NULL), TRAJD_OK);
    return reader;
}

static void expect_rows(struct trajd_encoded_reader *reader, int fd, uint64_t file_size,
                        const struct trajd_array *array, const struct truth *truth, uint64_t begin,
                        uint64_t count)
{
    const struct trajd_row_bytes *rows;
    struct trajd_error error;
    uint64_t done;

    for (uint64_t row = begin; row < begin + count; row += done) {
        if (trajd_encoded_read(reader, fd, file_size, array, row, begin + count - row, &rows, &done,
                               &error))
            fail_msg("%s: %s", truth->name, error.message);
        assert_in_range(done, 1, begin + count - row);
        for (uint64_t r = 0; r < done; r++) {
            assert_int_equal(rows[r].size, truth->rows[row + r].size);
            assert_memory_equal(rows[r].data, truth->rows[row + r].data, rows[r].size);
        }
    }
}

/* Compares all ranges of a stream's rows, so that they are read together and one by one. */
static void expect_stream(const struct trajd_index *index, const struct truth *truth)
{
    const struct trajd_index_stream *stream = stream_of(index, truth->name);
    const struct trajd_array *array = &index->episodes[0].extents[stream->array_index];
    const struct trajd_index_file *file = &index->files[0];
    const int fd = open(file->path, O_RDONLY);
    struct trajd_encoded_reader *reader = new_reader();

    assert_true(fd >= 0 && trajd_array_is_encoded(array));
    assert_in_range(truth->row_count, array->shape[0], array->shape[0] + 1); /* T+1 sets are cut */
    assert_int_equal(stream->form, array->form);
    for (uint64_t begin = 0; begin < array->shape[0]; begin++)
        for (uint64_t count = 1; begin + count <= array->shape[0]; count += 1 + count / 2)
            expect_rows(reader, fd, file->stat.size_bytes, array, truth, begin, count);
    trajd_encoded_reader_destroy(&reader);
    close(fd);
}

static void rows_equal_h5py(void **state)
{
    char list[256], path[256], layout[64], rows[64], name[512];
    uint32_t stream_count = 0;
    FILE *files;

    (void)state;
    snprintf(list, sizeof list, "%s/frames.txt", index_folder);
    files = fopen(list, "r");
    assert_non_null(files);
    while (fscanf(files, "%255s %63s %63s", path, layout, rows) == 3) {
        struct trajd_index_options options = options_for(path, name);
        struct trajd_index *index;
        struct truth truth;
        FILE *file;
        snprintf(name, sizeof name, "%s/%s.yaml", index_folder, layout);
        index = must_open(&options);
        assert_int_equal(index->kept_count, 1);
        assert_int_equal(index->note_count, 0);
        snprintf(name, sizeof name, "%s/%s", index_folder, rows);
        file = fopen(name, "rb");
        assert_non_null(file);
        while (next_truth(file, &truth)) {
            expect_stream(index, &truth);
            free_truth(&truth);
            stream_count++;
        }
        fclose(file);
        trajd_index_destroy(&index);
    }
    fclose(files);
    assert_true(stream_count >= 27); /* those of the files that need no shared folder */
    if (access(SHARED, R_OK))
        print_message("[ NOTE    ] files of public recorders are not compared: there is no %s\n",
                      SHARED);
}

static void streams_have_the_shape_of_decoded_frames(void **state)
{
    struct trajd_index *index;
    const struct trajd_index_stream *stream;
    char layout[256];

    (void)state;
    snprintf(layout, sizeof layout, "%s/frames.yaml", index_folder);
    /* two files whose padding has different widths */
    index = open_named("padded*.h5", layout);
    assert_int_equal(index->kept_count, 2);
    for (uint32_t e = 0; e < 2; e++)
        assert_null(index->episodes[e].other_shapes);
    stream = stream_of(index, "cams/progressive");
    assert_int_equal(stream->dtype, TRAJD_U8);
    assert_int_equal(stream->rank, 3);
    assert_int_equal(stream->shape[0], 24);
    assert_int_equal(stream->shape[1], 32);
    assert_int_equal(stream->shape[2], 3);
    assert_int_equal(stream->encoding, TRAJD_ENCODING_JPEG);
    assert_true(stream->never_blends && stream->image.color == TRAJD_COLOR_RGB);
    assert_true(index->episodes[0].extents[stream->array_index].header.is_progressive);
    assert_int_equal(stream_of(index, "grays/jpeg")->shape[2], 1);
    /* names of one byte: unsigned numbers that are never blended */
    stream = stream_of(index, "phase");
    assert_int_equal(stream->dtype, TRAJD_U8);
    assert_true(stream->never_blends && stream->form == TRAJD_ROWS_PLAIN);
    trajd_index_destroy(&index);
    index = open_named("heap.h5", layout);
    assert_int_equal(stream_of(index, "depth/mixed_with_raw")->dtype, TRAJD_U16);
    assert_int_equal(stream_of(index, "depth/float")->dtype, TRAJD_F32);
    trajd_index_destroy(&index);
}

/* ---- references and offsets from a hostile file ---- */

enum { COLLECTION = 64, FILE_SIZE = 4096 };

struct hostile {
    uint8_t bytes[FILE_SIZE]; /* references at 0, a collection at COLLECTION */
    struct trajd_array array;
};

static void put(struct hostile *h, size_t at, uint64_t value, size_t size)
{
    memcpy(h->bytes + at, &value, size); /* tests run on little-endian machines */
}

static void refer(struct hostile *h, uint64_t row, uint32_t length, uint64_t collection,
                  uint32_t index)
{
    put(h, row * 16, length, 4);
    put(h, row * 16 + 4, collection, 8);
    put(h, row * 16 + 12, index, 4);
}

/* A collection of 512 bytes with two objects: 1 with 5 bytes and 2 with 16, and free space. */
static struct hostile two_rows(void)
{
    struct hostile h = {.array = {.storage = TRAJD_STORAGE_CONTIGUOUS,
                                  .dtype = TRAJD_U8,
                                  .form = TRAJD_ROWS_HEAP,
                                  .rank = 2,
                                  .shape = {2, 16},
                                  .size_bytes = 32}};

    memset(h.bytes, 0xEE, sizeof h.bytes);
    refer(&h, 0, 5, COLLECTION, 1);
    refer(&h, 1, 16, COLLECTION, 2);
    memcpy(h.bytes + COLLECTION, "GCOL\1\0\0\0", 8);
    put(&h, COLLECTION + 8, 512, 8);
    put(&h, COLLECTION + 16, 1, 8);
    put(&h, COLLECTION + 24, 5, 8);
    memcpy(h.bytes + COLLECTION + 32, "first\0\0\0", 8);
    put(&h, COLLECTION + 40, 2, 8);
    put(&h, COLLECTION + 48, 16, 8);
    memcpy(h.bytes + COLLECTION + 56, "the second row..", 16);
    put(&h, COLLECTION + 72, 0, 8);
    put(&h, COLLECTION + 80, 512 - 72, 8);
    return h;
}

static enum trajd_status read_hostile(const struct hostile *h, const struct trajd_row_bytes **rows,
                                      struct trajd_encoded_reader *reader,
                                      struct trajd_error *error)
{
    char path[] = "/tmp/trajd_encoded_XXXXXX";
    const int fd = mkstemp(path);
    uint64_t done;
    enum trajd_status status;

    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(write(fd, h->bytes, FILE_SIZE), FILE_SIZE);
    assert_int_equal(trajd_array_check(&h->array, FILE_SIZE, 0, error), TRAJD_OK);
    status = trajd_encoded_read(reader, fd, FILE_SIZE, &h->array, 0, h->array.shape[0], rows, &done,
                                error);
    assert_int_equal(done, status ? 0 : h->array.shape[0]);
    close(fd);
    return status;
}

static void expect_bad(const struct hostile *h, const char *rule)
{
    struct trajd_encoded_reader *reader = new_reader();
    const struct trajd_row_bytes *rows;
    struct trajd_error error = {0};

    assert_int_equal(read_hostile(h, &rows, reader, &error), TRAJD_ERR_DATA);
    if (!strstr(error.message, rule))
        fail_msg("\"%s\" is not in: %s", rule, error.message);
    trajd_encoded_reader_destroy(&reader);
}

static void references_lead_to_their_objects(void **state)
{
    struct trajd_encoded_reader *reader = new_reader();
    const struct trajd_row_bytes *rows;
    struct hostile h = two_rows();

    (void)state;
    assert_int_equal(read_hostile(&h, &rows, reader, NULL), TRAJD_OK);
    assert_int_equal(rows[0].size, 5);
    assert_memory_equal(rows[0].data, "first", 5);
    assert_int_equal(rows[1].size, 16);
    assert_memory_equal(rows[1].data, "the second row..", 16);
    refer(&h, 1, 0, UINT64_MAX, 0); /* an empty row leads nowhere */
    assert_int_equal(read_hostile(&h, &rows, reader, NULL), TRAJD_OK);
    assert_int_equal(rows[1].size, 0);
    refer(&h, 1, 5, COLLECTION, 1); /* two rows may share an object */
    assert_int_equal(read_hostile(&h, &rows, reader, NULL), TRAJD_OK);
    assert_memory_equal(rows[1].data, "first", 5);
    trajd_encoded_reader_destroy(&reader);
}

static void bad_references_are_data_errors(void **state)
{
    struct hostile h;

    (void)state;
    h = two_rows(), refer(&h, 1, 16, FILE_SIZE, 2), expect_bad(&h, "row 1: its reference");
    h = two_rows(), refer(&h, 1, 16, FILE_SIZE, 2), expect_bad(&h, "beyond the file");
    h = two_rows(), refer(&h, 1, 16, UINT64_MAX, 2), expect_bad(&h, "beyond the file");
    h = two_rows(), refer(&h, 1, 16, 0, 2), expect_bad(&h, "beyond the file");
    h = two_rows(), refer(&h, 1, FILE_SIZE, COLLECTION, 2), expect_bad(&h, "beyond the file");
    h = two_rows(), refer(&h, 1, UINT32_MAX, COLLECTION, 2), expect_bad(&h, "64 MiB");
    h = two_rows(), refer(&h, 1, 16, COLLECTION, 0), expect_bad(&h, "leads to no object");
    h = two_rows(), refer(&h, 1, 16, COLLECTION, 65536), expect_bad(&h, "leads to no object");
    h = two_rows(), refer(&h, 1, 16, COLLECTION, 3), expect_bad(&h, "that is not there");
    h = two_rows(), refer(&h, 0, 6, COLLECTION, 1), expect_bad(&h, "longer than its object");
    /* into the other row's object, and to the references themselves */
    h = two_rows(), refer(&h, 1, 16, COLLECTION + 16, 2), expect_bad(&h, "no heap collection");
    h = two_rows(), refer(&h, 1, 16, 16, 2), expect_bad(&h, "no heap collection");
}

static void bad_collections_are_data_errors(void **state)
{
    struct hostile h;

    (void)state;
    h = two_rows(), put(&h, COLLECTION + 4, 2, 1), expect_bad(&h, "version 2");
    h = two_rows(), put(&h, COLLECTION + 8, FILE_SIZE, 8), expect_bad(&h, "claims 4096 bytes");
    h = two_rows(), put(&h, COLLECTION + 8, UINT64_MAX, 8), expect_bad(&h, "claims");
    h = two_rows(), put(&h, COLLECTION + 8, 15, 8), expect_bad(&h, "claims 15 bytes");
    h = two_rows(), put(&h, COLLECTION + 8, 64, 8), expect_bad(&h, "damaged collection");
    h = two_rows(), put(&h, COLLECTION + 24, 500, 8), expect_bad(&h, "damaged collection");
    h = two_rows(), put(&h, COLLECTION + 24, UINT64_MAX, 8), expect_bad(&h, "damaged collection");
    h = two_rows(), put(&h, COLLECTION + 40, 1, 2), expect_bad(&h, "damaged collection");
    h = two_rows(), put(&h, COLLECTION + 40, 0, 2), expect_bad(&h, "that is not there");
}

static struct hostile packed_rows(const int64_t *offsets, uint64_t count)
{
    struct hostile h = {.array = {.storage = TRAJD_STORAGE_CONTIGUOUS,
                                  .dtype = TRAJD_I64,
                                  .form = TRAJD_ROWS_PACKED,
                                  .rank = 1,
                                  .shape = {count},
                                  .offset = 8,
                                  .size_bytes = 8 * count,
                                  .payload_offset = 1000,
                                  .payload_bytes = 100}};

    memcpy(h.bytes + 8, offsets, (count + 1) * sizeof *offsets);
    for (size_t i = 0; i < 100; i++)
        h.bytes[1000 + i] = (uint8_t)i;
    return h;
}

static void packed_rows_lie_between_their_offsets(void **state)
{
    static const int64_t good[] = {3, 5, 5, 100}, back[] = {3, 5, 4, 100}, long_end[] = {0, 1, 101},
                         negative[] = {-1, 5};
    struct trajd_encoded_reader *reader = new_reader();
    const struct trajd_row_bytes *rows;
    struct hostile h = packed_rows(good, 3);

    (void)state;
    assert_int_equal(read_hostile(&h, &rows, reader, NULL), TRAJD_OK);
    assert_int_equal(rows[0].size, 2);
    assert_int_equal(rows[0].data[0], 3);
    assert_int_equal(rows[1].size, 0);
    assert_int_equal(rows[2].size, 95);
    assert_int_equal(rows[2].data[94], 99);
    trajd_encoded_reader_destroy(&reader);
    h = packed_rows(back, 3), expect_bad(&h, "row 1: offsets do not ascend");
    h = packed_rows(long_end, 2), expect_bad(&h, "row 1: it ends at 101, there are 100 bytes");
    h = packed_rows(negative, 1), expect_bad(&h, "row 0: offsets do not ascend");
}

static void forms_that_do_not_fit_are_refused(void **state)
{
    struct hostile h = two_rows();
    const struct trajd_array good = h.array, packed = packed_rows((int64_t[]){0, 1}, 1).array;

    (void)state;
    assert_int_equal(trajd_array_check(&good, FILE_SIZE, 0, NULL), TRAJD_OK);
    h.array.shape[1] = 8, h.array.size_bytes = 16;
    assert_int_equal(trajd_array_check(&h.array, FILE_SIZE, 0, NULL), TRAJD_ERR_DATA);
    h.array = good, h.array.dtype = TRAJD_I8;
    assert_int_equal(trajd_array_check(&h.array, FILE_SIZE, 0, NULL), TRAJD_ERR_DATA);
    h.array = good, h.array.form = (enum trajd_row_form)5;
    assert_int_equal(trajd_array_check(&h.array, FILE_SIZE, 0, NULL), TRAJD_ERR_DATA);
    /* the offset behind the last row belongs to the file as well */
    h.array = packed, h.array.offset = FILE_SIZE - 8;
    assert_int_equal(trajd_array_check(&h.array, FILE_SIZE, 0, NULL), TRAJD_ERR_DATA);
    h.array = packed, h.array.payload_bytes = FILE_SIZE;
    assert_int_equal(trajd_array_check(&h.array, FILE_SIZE, 0, NULL), TRAJD_ERR_DATA);
    h.array = packed, h.array.storage = TRAJD_STORAGE_EMPTY;
    assert_int_equal(trajd_array_check(&h.array, FILE_SIZE, 0, NULL), TRAJD_ERR_DATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_equal_h5py),
        cmocka_unit_test(streams_have_the_shape_of_decoded_frames),
        cmocka_unit_test(references_lead_to_their_objects),
        cmocka_unit_test(bad_references_are_data_errors),
        cmocka_unit_test(bad_collections_are_data_errors),
        cmocka_unit_test(packed_rows_lie_between_their_offsets),
        cmocka_unit_test(forms_that_do_not_fit_are_refused),
    };

    if (!index_files_choose("make_frame_files.py --shared " SHARED))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
