/* block.c and runner.c: a request sent as bytes gives the same result as the request itself.
 * Corrupt bytes are refused before they are used as offsets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/pool.h"
#include "kernels/dispatch/runner.h"
#include "proto/array_len.h"

enum { ROWS = 40, STEPS = 25, ROW_BYTES = 80 }; /* a row: 3 f32, 1 u8 in 4 bytes, 8 f64 */

struct sample {
    _Alignas(64) uint8_t rows[ROWS * ROW_BYTES];
    _Alignas(64) uint8_t output[2048 + STEPS * 64];
    uint8_t mask[4 * STEPS];
    int64_t stamps[ROWS], targets[STEPS], counts[2], zero;
    const void *base;
    struct trajd_clock clock;
    struct trajd_grid grid;
    struct trajd_bracket brackets[2];
    struct trajd_stream streams[4];
    struct trajd_resample_request request;
    struct trajd_block_memory memory;
};

static void set_stream(struct sample *sample, uint32_t s, enum trajd_kind kind,
                       enum trajd_dtype from, enum trajd_dtype to, uint32_t column,
                       uint32_t features, size_t at, uint32_t bracket)
{
    const uint64_t step = (uint64_t)features * trajd_dtype_size(to);

    sample->streams[s] = (struct trajd_stream){.bracket_index = bracket,
                                               .kind = kind,
                                               .source_type = from,
                                               .feature_count = features,
                                               .first_column = column,
                                               .row_stride_bytes = ROW_BYTES,
                                               .bases = &sample->base,
                                               .max_gap_ns = -1,
                                               .max_age_ns = -1,
                                               .mean_width = 35,
                                               .angle_period = 6.28,
                                               .angle_low = NAN,
                                               .output_type = to,
                                               .output = sample->output + at,
                                               .window_stride_bytes = STEPS * step,
                                               .step_stride_bytes = step,
                                               .mask = sample->mask + s * STEPS,
                                               .mask_window_stride_bytes = STEPS};
}

static void make(struct sample *sample)
{
    memset(sample, 0, sizeof *sample);
    srand(5);
    for (uint32_t r = 0; r < ROWS; r++) {
        float singles[3];
        double doubles[8];
        for (int i = 0; i < 3; i++)
            singles[i] = (float)rand() / (float)RAND_MAX;
        for (int i = 0; i < 8; i++)
            doubles[i] = i < 4 ? 0.5 : (double)rand() / RAND_MAX;
        memcpy(sample->rows + r * ROW_BYTES, singles, sizeof singles);
        sample->rows[r * ROW_BYTES + 12] = (uint8_t)rand();
        memcpy(sample->rows + r * ROW_BYTES + 16, doubles, sizeof doubles);
        sample->stamps[r] = 1000 + 10 * (int64_t)r + rand() % 4;
    }
    for (uint32_t t = 0; t < STEPS; t++)
        sample->targets[t] =
            990 + 17 * (int64_t)t; /* from before the first row to after the last */
    sample->counts[0] = ROWS;
    sample->counts[1] = ROWS - 3;
    sample->base = sample->rows;
    sample->clock = (struct trajd_clock){.stamps_ns = sample->stamps};
    sample->grid =
        (struct trajd_grid){.unit = TRAJD_GRID_NS, .step_count = STEPS, .offsets = sample->targets};
    for (uint32_t b = 0; b < 2; b++)
        sample->brackets[b] = (struct trajd_bracket){
            .row_begin = &sample->zero, .row_count = &sample->counts[b], .anchor = &sample->zero};
    set_stream(sample, 0, TRAJD_KIND_LINEAR, TRAJD_F32, TRAJD_F32, 0, 3, 0, 0);
    set_stream(sample, 1, TRAJD_KIND_PREVIOUS, TRAJD_U8, TRAJD_U8, 12, 1, 512, 0);
    set_stream(sample, 2, TRAJD_KIND_SLERP_XYZW, TRAJD_F64, TRAJD_F64, 2, 4, 1024, 1);
    set_stream(sample, 3, TRAJD_KIND_MEAN, TRAJD_F64, TRAJD_F32, 6, 4, 2048, 1);
    sample->request = (struct trajd_resample_request){.window_count = 1,
                                                      .clock_count = 1,
                                                      .grid_count = 1,
                                                      .bracket_count = 2,
                                                      .stream_count = 4,
                                                      .clocks = &sample->clock,
                                                      .grids = &sample->grid,
                                                      .brackets = sample->brackets,
                                                      .streams = sample->streams};
    sample->memory = (struct trajd_block_memory){.rows = sample->rows,
                                                 .output = sample->output,
                                                 .mask = sample->mask,
                                                 .rows_bytes = sizeof sample->rows,
                                                 .output_bytes = sizeof sample->output,
                                                 .mask_bytes = sizeof sample->mask};
}

static uint8_t *block_of(const struct sample *sample, uint64_t *size)
{
    struct trajd_error error;
    uint8_t *bytes;

    assert_int_equal(trajd_block_measure(&sample->request, &sample->memory, size, &error),
                     TRAJD_OK);
    bytes = aligned_alloc(64, *size);
    assert_non_null(bytes);
    memset(bytes, 0xee, *size);
    trajd_block_write(&sample->request, &sample->memory, bytes);
    return bytes;
}

static void test_block_equals_request(void **state)
{
    static struct sample here, there;
    struct trajd_runner *runner;
    struct trajd_error error;
    uint64_t size, answer_at, answer_bytes;
    uint8_t *bytes;
    void *room;

    (void)state;
    make(&here);
    make(&there);
    trajd_resample_reference(&here.request, 0, 1);
    bytes = block_of(&there, &size);
    assert_int_equal(trajd_runner_create(NULL, NULL, &runner, &error), TRAJD_OK);
    /* first in a new room, then in the same room, and after a trim */
    for (int round = 0; round < 2; round++) {
        assert_int_equal(trajd_runner_room(runner, size, &room, &error), TRAJD_OK);
        memcpy(room, bytes, size);
        memset(there.output, 0, sizeof there.output);
        memset(there.mask, 0xcc, sizeof there.mask);
        assert_int_equal(trajd_runner_run(runner, size, &answer_at, &answer_bytes, &error),
                         TRAJD_OK);
        assert_int_equal(answer_at + answer_bytes, size);
        trajd_block_read_answer(&there.request, room, &there.memory);
        assert_memory_equal(here.mask, there.mask, sizeof here.mask);
        assert_memory_equal(here.output, there.output, 1024); /* linear and previous: bit for bit */
        for (int i = 0; i < 4 * STEPS; i++) {
            double a, b;
            memcpy(&a, here.output + 1024 + i * sizeof a, sizeof a);
            memcpy(&b, there.output + 1024 + i * sizeof b, sizeof b);
            assert_true(fabs(a - b) < 1e-12);
        }
        assert_memory_equal(here.output + 2048, there.output + 2048, STEPS * 16);
        trajd_runner_trim(runner);
    }
    /* without a room */
    assert_int_equal(trajd_runner_run(runner, size, &answer_at, &answer_bytes, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_runner_room(runner, TRAJD_BLOCK_MAX_BYTES + 1, &room, &error),
                     TRAJD_ERR_UNSUPPORTED);
    trajd_runner_destroy(&runner);
    assert_null(runner);
    trajd_runner_destroy(&runner); /* nothing more */
    free(bytes);
}

/* Pointers of the request point to the future copy. Opening does not read that memory. */
static void test_opens_for_device_memory(void **state)
{
    static struct sample sample;
    static struct trajd_block block;
    uint8_t *const there = (uint8_t *)(uintptr_t)(UINT64_C(1) << 40);
    struct trajd_error error;
    uint64_t size;
    uint8_t *bytes;

    (void)state;
    make(&sample);
    bytes = block_of(&sample, &size);
    assert_int_equal(trajd_block_open(bytes, size, there, &block, &error), TRAJD_OK);
    assert_true((uint8_t *)block.streams[3].output > there &&
                (uint8_t *)block.streams[3].output < there + size);
    assert_true((const uint8_t *)block.brackets[1].row_count > there &&
                (const uint8_t *)block.clock.stamps_ns > there);
    assert_int_equal(block.request.stream_count, 4);
    free(bytes);
}

/* Replaces each word by bad values. The block is refused, or its run stays inside the block (which
 * sanitizers check). */
static void test_corrupt_words_are_harmless(void **state)
{
    static const uint64_t lies[] = {0,
                                    1,
                                    2,
                                    63,
                                    255,
                                    257,
                                    UINT32_MAX,
                                    UINT64_C(1) << 32,
                                    UINT64_C(1) << 33,
                                    INT64_MAX,
                                    UINT64_C(1) << 63,
                                    UINT64_MAX - 7,
                                    UINT64_MAX,
                                    UINT64_C(0x7ff8000000000000),
                                    UINT64_C(0xfff0000000000000)};
    static struct sample sample;
    struct trajd_runner *runner;
    struct trajd_error error;
    uint64_t size, answer_at, answer_bytes, refused = 0;
    uint8_t *bytes;
    void *room;

    (void)state;
    make(&sample);
    bytes = block_of(&sample, &size);
    assert_int_equal(trajd_runner_create(NULL, NULL, &runner, &error), TRAJD_OK);
    assert_int_equal(trajd_runner_room(runner, size, &room, &error), TRAJD_OK);
    for (size_t at = 0; at < 1024; at += 4) /* head, streams, brackets, the first targets */
        for (size_t l = 0; l < ARRAY_LEN(lies); l++) {
            memcpy(room, bytes, size);
            memcpy((uint8_t *)room + at, &lies[l], at % 8 ? 4 : 8);
            refused +=
                trajd_runner_run(runner, size, &answer_at, &answer_bytes, &error) != TRAJD_OK;
        }
    assert_true(refused > 1000);
    for (uint64_t cut = 0; cut < size; cut += cut < 256 ? 1 : 64) {
        memcpy(room, bytes, size);
        assert_int_not_equal(trajd_runner_run(runner, cut, &answer_at, &answer_bytes, &error),
                             TRAJD_OK);
    }
    trajd_runner_destroy(&runner);
    free(bytes);
}

static void test_unsupported_requests(void **state)
{
    static struct sample sample;
    struct trajd_error error;
    const int64_t other = 1;
    uint64_t size;

    (void)state;
    make(&sample);
    sample.request.window_count = 2;
    assert_int_equal(trajd_block_measure(&sample.request, &sample.memory, &size, &error),
                     TRAJD_ERR_UNSUPPORTED);
    make(&sample);
    sample.brackets[1].anchor = &other;
    assert_int_equal(trajd_block_measure(&sample.request, &sample.memory, &size, &error),
                     TRAJD_ERR_UNSUPPORTED);
    make(&sample);
    sample.memory.output_bytes = 100;
    assert_int_equal(trajd_block_measure(&sample.request, &sample.memory, &size, &error),
                     TRAJD_ERR_UNSUPPORTED);
    make(&sample);
    sample.memory.rows_bytes = TRAJD_BLOCK_MAX_BYTES;
    assert_int_equal(trajd_block_measure(&sample.request, &sample.memory, &size, &error),
                     TRAJD_ERR_UNSUPPORTED);
    make(&sample);
    sample.base = NULL;
    assert_int_equal(trajd_block_measure(&sample.request, &sample.memory, &size, &error),
                     TRAJD_ERR_UNSUPPORTED);
}

/* Refuses two streams into the same bytes, and means whose work has no bound. */
static void test_work_is_bounded(void **state)
{
    enum { MANY = 1 << 16 };
    static struct sample sample;
    static struct trajd_block block;
    static int64_t stamps[MANY], targets[MANY];
    static uint8_t mask[MANY], output[MANY * sizeof(float)];
    static float rows[MANY];
    struct trajd_error error;
    uint64_t size;
    uint8_t *bytes;

    (void)state;
    make(&sample);
    for (uint32_t s = 0; s < 4; s++)
        set_stream(&sample, s, TRAJD_KIND_LINEAR, TRAJD_F32, TRAJD_F32, 0, 3, 0, 0);
    sample.memory.output_bytes = STEPS * 12 + 8;
    bytes = block_of(&sample, &size);
    assert_int_equal(trajd_block_open(bytes, size, bytes, &block, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "same outputs"));
    free(bytes);

    make(&sample);
    for (int i = 0; i < MANY; i++)
        stamps[i] = targets[i] = i;
    sample.clock.stamps_ns = stamps;
    sample.grid =
        (struct trajd_grid){.unit = TRAJD_GRID_NS, .step_count = MANY, .offsets = targets};
    sample.counts[0] = MANY;
    sample.base = rows;
    set_stream(&sample, 0, TRAJD_KIND_MEAN, TRAJD_F32, TRAJD_F32, 0, 1, 0, 0);
    sample.streams[0].row_stride_bytes = sizeof(float);
    sample.streams[0].output = output;
    sample.streams[0].mask = mask;
    sample.memory =
        (struct trajd_block_memory){rows, output, mask, sizeof rows, sizeof output, sizeof mask};
    sample.request.stream_count = sample.request.bracket_count = 1;
    sample.streams[0].mean_width = MANY / 8; /* of 2^13 rows each: 2^29 */
    assert_int_equal(trajd_block_measure(&sample.request, &sample.memory, &size, &error), TRAJD_OK);
    sample.streams[0].mean_width = MANY;
    assert_int_equal(trajd_block_measure(&sample.request, &sample.memory, &size, &error),
                     TRAJD_ERR_UNSUPPORTED);
    sample.streams[0].mean_width = 1;
    bytes = block_of(&sample, &size);
    assert_int_equal(trajd_block_open(bytes, size, bytes, &block, &error), TRAJD_OK);
    /* replaces the width, at whatever offset it is */
    for (uint64_t at = 0; at + 8 <= 512; at += 8) {
        int64_t word;
        memcpy(&word, bytes + at, sizeof word);
        if (word == 1) {
            word = MANY;
            memcpy(bytes + at, &word, sizeof word);
        }
    }
    assert_int_not_equal(trajd_block_open(bytes, size, bytes, &block, &error), TRAJD_OK);
    free(bytes);
}

/* Gives the same bytes for any number of threads: for many steps that are a multiple of nothing,
 * and for one step. */
static void test_threads_share_a_block(void **state)
{
    enum { MANY = 5003 };
    static struct sample sample;
    static int64_t targets[MANY];
    static uint8_t mask[4 * MANY];
    static _Alignas(64) uint8_t output[62 * MANY + 64];
    static const uint64_t at[] = {0, 12 * MANY, 13 * MANY / 8 * 8 + 8, 46 * MANY / 4 * 4};
    struct trajd_runner *alone, *shared;
    struct trajd_pool *pool;
    struct trajd_error error;
    uint64_t size, answer_at[2], answer_bytes;
    uint8_t *bytes;
    void *rooms[2];

    (void)state;
    for (uint32_t t = 0; t < MANY; t++)
        targets[t] = 990 + (int64_t)t * 400 / MANY;
    assert_int_equal(trajd_pool_create(3, "test", &pool, &error), TRAJD_OK);
    assert_int_equal(trajd_runner_create(NULL, NULL, &alone, &error), TRAJD_OK);
    assert_int_equal(trajd_runner_create(NULL, pool, &shared, &error), TRAJD_OK);
    for (uint32_t steps = MANY; steps; steps = steps == MANY ? 1 : 0) {
        make(&sample);
        sample.grid =
            (struct trajd_grid){.unit = TRAJD_GRID_NS, .step_count = steps, .offsets = targets};
        for (uint32_t s = 0; s < 4; s++) {
            sample.streams[s].output = output + at[s];
            sample.streams[s].window_stride_bytes = steps * sample.streams[s].step_stride_bytes;
            sample.streams[s].mask = mask + s * MANY;
            sample.streams[s].mask_window_stride_bytes = steps;
        }
        sample.memory = (struct trajd_block_memory){sample.rows,        output,        mask,
                                                    sizeof sample.rows, sizeof output, sizeof mask};
        bytes = block_of(&sample, &size);
        for (int i = 0; i < 2; i++) {
            struct trajd_runner *runner = i ? shared : alone;
            assert_int_equal(trajd_runner_room(runner, size, &rooms[i], &error), TRAJD_OK);
            memcpy(rooms[i], bytes, size);
            assert_int_equal(trajd_runner_run(runner, size, &answer_at[i], &answer_bytes, &error),
                             TRAJD_OK);
        }
        assert_int_equal(answer_at[0], answer_at[1]);
        assert_memory_equal(rooms[0], rooms[1], size);
        trajd_block_read_answer(&sample.request, rooms[1], &sample.memory);
        /* masks, and the bytes of linear and previous */
        trajd_resample_reference(&sample.request, 0, 1);
        assert_memory_equal((uint8_t *)rooms[0] + answer_at[0] +
                                (answer_bytes - (sizeof mask + 63) / 64 * 64),
                            mask, sizeof mask);
        assert_memory_equal((uint8_t *)rooms[0] + answer_at[0], output, steps * 12);
        assert_memory_equal((uint8_t *)rooms[0] + answer_at[0] + at[1], output + at[1], steps);
        free(bytes);
    }
    trajd_runner_destroy(&alone);
    trajd_runner_destroy(&shared);
    trajd_pool_destroy(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_block_equals_request),
        cmocka_unit_test(test_opens_for_device_memory),
        cmocka_unit_test(test_corrupt_words_are_harmless),
        cmocka_unit_test(test_unsupported_requests),
        cmocka_unit_test(test_work_is_bounded),
        cmocka_unit_test(test_threads_share_a_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
