// libs: trajd_index
/* Measures reading encoded rows against pread of the same places of the file, in turns.
 *
 *     bench_frames FILE LAYOUT HELPER
 *
 * Prints a line for each stream of frames: name, form, frames, bytes of the frames, bytes that
 * pread reads, and the best CPU times of both in seconds. Both read ROWS_PER_CALL rows at a time,
 * from the page cache. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/index/index.h"
#include "daemon/index/rows/encoded.h"
#include "daemon/index/rows/file_bytes.h"

#define ROWS_PER_CALL 32u
#define ROUNDS 15

/* The part of the file in which the rows of one call lie. */
struct place {
    uint64_t begin, end;
};

struct bench {
    int fd;
    uint64_t file_size;
    const struct trajd_array *array;
    struct trajd_encoded_reader *reader;
    struct place *places; /* of each call */
    uint8_t *buffer;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_frames: %s\n", what);
    exit(1);
}

static uint64_t read_ours(const struct bench *bench)
{
    const struct trajd_row_bytes *rows;
    struct trajd_error error;
    uint64_t bytes = 0;

    for (uint64_t row = 0, done; row < bench->array->shape[0]; row += done) {
        const uint64_t rest = bench->array->shape[0] - row;
        if (trajd_encoded_read(bench->reader, bench->fd, bench->file_size, bench->array, row,
                               rest < ROWS_PER_CALL ? rest : ROWS_PER_CALL, &rows, &done, &error))
            die(error.message);
        for (uint64_t r = 0; r < done; r++)
            bytes += rows[r].size;
    }
    return bytes;
}

static uint64_t read_plain(const struct bench *bench)
{
    uint64_t bytes = 0;

    for (uint64_t row = 0, i = 0; row < bench->array->shape[0]; row += ROWS_PER_CALL, i++) {
        const struct place *place = &bench->places[i];
        const size_t size = place->end - place->begin;
        if (pread(bench->fd, bench->buffer, size, (off_t)place->begin) != (ssize_t)size)
            die("pread is short");
        bytes += size;
    }
    return bytes;
}

static void cover(struct place *place, uint64_t begin, uint64_t size)
{
    place->begin = begin < place->begin ? begin : place->begin;
    place->end = begin + size > place->end ? begin + size : place->end;
}

/* Adds where the row is in the file. */
static void cover_row(const struct bench *bench, const uint8_t *references, uint64_t row,
                      struct place *place)
{
    const struct trajd_array *array = bench->array;
    const uint64_t row_bytes = trajd_array_row_bytes(array);

    if (array->form == TRAJD_ROWS_HEAP) {
        const uint8_t *to = references + TRAJD_HEAP_REFERENCE_BYTES * row;
        cover(place, trajd_u64_at(to + 4), 2 * 16 + trajd_u32_at(to));
    } else if (array->storage == TRAJD_STORAGE_CHUNKED && array->chunk_shape[0] == 1) {
        cover(place, array->chunks[row].offset, row_bytes);
    } else if (array->storage == TRAJD_STORAGE_CONTIGUOUS) {
        cover(place, array->offset + row * row_bytes, row_bytes);
    } else {
        die("rows in chunks of several rows have no places");
    }
}

static void find_places(struct bench *bench)
{
    const uint64_t rows = bench->array->shape[0], calls = rows / ROWS_PER_CALL + 1;
    struct trajd_array_reader *reader;
    uint8_t *references = malloc(rows * trajd_array_row_bytes(bench->array));
    uint64_t largest = 0;

    bench->places = calloc(calls, sizeof *bench->places);
    if (!references || !bench->places || trajd_array_reader_create(&reader, NULL) ||
        trajd_array_read(reader, bench->fd, bench->array, 0, rows, references, NULL))
        die("no memory for the places of rows");
    for (uint64_t row = 0; row < rows; row++) {
        struct place *place = &bench->places[row / ROWS_PER_CALL];
        if (row % ROWS_PER_CALL == 0)
            place->begin = UINT64_MAX;
        cover_row(bench, references, row, place);
        largest = place->end - place->begin > largest ? place->end - place->begin : largest;
    }
    bench->buffer = malloc(largest);
    trajd_array_reader_destroy(&reader);
    free(references);
}

static double best_of(uint64_t (*work)(const struct bench *), const struct bench *bench,
                      double best, uint64_t *bytes)
{
    const int64_t begin = trajd_read_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    double seconds;

    *bytes = work(bench);
    seconds = (double)(trajd_read_clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / 1e9;
    return seconds < best ? seconds : best;
}

static void measure(const struct trajd_index *index, const struct trajd_index_stream *stream)
{
    struct bench bench = {.fd = open(index->files[0].path, O_RDONLY),
                          .file_size = index->files[0].stat.size_bytes,
                          .array = &index->episodes[0].extents[stream->array_index]};
    double ours = 1e9, plain = 1e9;
    uint64_t bytes = 0, plain_bytes = 0;

    if (bench.fd < 0 || trajd_encoded_reader_create(&bench.reader, NULL))
        die("the file cannot be opened");
    find_places(&bench);
    for (int round = 0; round < ROUNDS; round++) {
        ours = best_of(read_ours, &bench, ours, &bytes);
        plain = best_of(read_plain, &bench, plain, &plain_bytes);
    }
    printf("%s\t%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%.9f\t%.9f\n", stream->name,
           trajd_row_form_name(bench.array->form), bench.array->shape[0], bytes, plain_bytes, ours,
           plain);
    trajd_encoded_reader_destroy(&bench.reader);
    free(bench.places);
    free(bench.buffer);
    close(bench.fd);
}

int main(int argc, char **argv)
{
    struct trajd_index_options options = {.child_count = 1, .file_timeout_ms = 600000};
    struct trajd_index *index;
    struct trajd_error error;

    if (argc != 4)
        die("usage: bench_frames FILE LAYOUT HELPER");
    options.path = argv[1];
    options.layout = argv[2];
    options.helper_path = argv[3];
    if (trajd_index_open(&options, &index, &error))
        die(error.message);
    for (uint32_t s = 0; s < index->stream_count; s++)
        if (index->streams[s].form != TRAJD_ROWS_PLAIN)
            measure(index, &index->streams[s]);
    trajd_index_destroy(&index);
    return 0;
}
