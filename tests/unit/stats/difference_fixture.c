/* Writes the file of five arrays, and makes its index. */
#include "unit/stats/difference_fixture.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char letters[] = "abstu";
static const uint32_t widths[DIFFERENCE_LETTERS] = {3, 2, 2, 3, 1};
static const char *const names[DIFFERENCE_ARRAYS] = {"a4", "b4", "s4", "t4", "u4",
                                                     "a8", "b8", "s8", "t8", "u8"};

uint32_t difference_array(char letter, bool is_double)
{
    return (uint32_t)(strchr(letters, letter) - letters) + (is_double ? DIFFERENCE_LETTERS : 0);
}

uint32_t difference_width(char letter)
{
    return widths[difference_array(letter, false)];
}

int64_t difference_rows(const struct difference_fixture *f, uint32_t episode, char letter)
{
    return (int64_t)f->extents[episode][difference_array(letter, false)].shape[0];
}

double difference_number(const struct difference_fixture *f, uint32_t episode, uint32_t array,
                         int64_t row, uint32_t column)
{
    return f->values[episode][array][row * widths[array % DIFFERENCE_LETTERS] + column];
}

/* ---- values ---- */

static double draw(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ((double)(*seed >> 11) / 9007199254740992.0 - 0.5) * 8;
}

static void put(struct difference_fixture *f, uint32_t episode, char letter, int64_t row,
                uint32_t column, double value)
{
    f->values[episode][difference_array(letter, false)][row * difference_width(letter) + column] =
        f->values[episode][difference_array(letter, true)]
                 [row * difference_width(letter) + column] = value;
}

/* Spoils the first two episodes, also in their first and last rows. */
static void spoil(struct difference_fixture *f, const struct difference_data *data)
{
    put(f, 0, 'a', 5, 1, NAN);
    put(f, 0, 'a', 0, 0, NAN);
    put(f, 0, 'b', data->rows[0] - 1, 1, NAN);
    put(f, 0, 's', 9, 0, NAN);
    put(f, 0, 'a', 12, 0, INFINITY);
    put(f, 0, 's', 11, 0, INFINITY); /* row 12 minus state 11 is NaN */
    put(f, 0, 'a', 15, 2, INFINITY);
    put(f, 0, 'a', 15, 1, NAN); /* an infinite number and a NaN in one row */
    put(f, 0, 't', 16, 0, NAN);
    put(f, 0, 't', 16, 2, -INFINITY);
    /* infinite as the last row of the state, which may be held: the difference is NaN */
    put(f, 0, 's', data->rows[0] + data->more_states[0] - 1, 0, INFINITY);
    put(f, 0, 'b', data->rows[0] - 4, 0, INFINITY);
    put(f, 1, 'a', 7, 2, -INFINITY);
    put(f, 1, 't', 0, 0, -INFINITY);
    put(f, 1, 't', 3, 2, -INFINITY);
    put(f, 1, 'b', 6, 0, FLT_MAX);
    put(f, 1, 't', 6, 0, -FLT_MAX); /* their difference is infinite in float32 alone */
    put(f, 1, 's', data->rows[1] + data->more_states[1] - 1, 1, NAN); /* perhaps held */
    if (data->rows[0] > 60)
        put(f, 0, 'b', 60, 0, NAN);
    put(f, 1, 'b', 20, 0, NAN);
}

static void make_values(struct difference_fixture *f, const struct difference_data *data)
{
    uint64_t seed = 53;

    for (uint32_t e = 0; e < DIFFERENCE_EPISODES; e++)
        for (uint32_t a = 0; a < DIFFERENCE_ARRAYS; a++) {
            const int64_t rows =
                data->rows[e] + (a % DIFFERENCE_LETTERS >= 2 ? data->more_states[e] : 0);
            f->extents[e][a].shape[0] = (uint64_t)rows;
            f->values[e][a] =
                calloc((size_t)rows * widths[a % DIFFERENCE_LETTERS] + 1, sizeof(double));
            assert_non_null(f->values[e][a]);
            for (int64_t i = 0; i < rows * widths[a % DIFFERENCE_LETTERS]; i++)
                f->values[e][a][i] =
                    a < DIFFERENCE_LETTERS ? (double)(float)draw(&seed) : draw(&seed);
        }
    if (data->is_spoiled)
        spoil(f, data);
}

/* ---- file and index ---- */

static uint64_t write_array(struct difference_fixture *f, int fd, uint32_t e, uint32_t a,
                            uint64_t offset)
{
    const uint64_t rows = f->extents[e][a].shape[0], count = rows * widths[a % DIFFERENCE_LETTERS];
    const uint64_t bytes = count * (a < DIFFERENCE_LETTERS ? sizeof(float) : sizeof(double));
    float *singles = malloc((count + 1) * sizeof *singles);

    assert_non_null(singles);
    for (uint64_t i = 0; i < count; i++)
        singles[i] = (float)f->values[e][a][i];
    assert_int_equal(pwrite(fd, a < DIFFERENCE_LETTERS ? (const void *)singles : f->values[e][a],
                            bytes, (off_t)offset),
                     bytes);
    free(singles);
    f->extents[e][a] =
        (struct trajd_array){.storage = rows ? TRAJD_STORAGE_CONTIGUOUS : TRAJD_STORAGE_EMPTY,
                             .dtype = a < DIFFERENCE_LETTERS ? TRAJD_F32 : TRAJD_F64,
                             .rank = 2,
                             .shape = {rows, widths[a % DIFFERENCE_LETTERS]},
                             .offset = offset,
                             .size_bytes = bytes};
    return offset + bytes;
}

static void write_file(struct difference_fixture *f)
{
    const int fd = data_file_begin(&f->data);
    uint64_t offset = 512;

    for (uint32_t e = 0; e < DIFFERENCE_EPISODES; e++)
        for (uint32_t a = 0; a < DIFFERENCE_ARRAYS; a++)
            offset = write_array(f, fd, e, a, offset);
    data_file_end(&f->data, fd);
}

/* Takes an array from the first episode. */
static void remove_array(struct difference_fixture *f, char letter)
{
    for (uint32_t is_double = 0; is_double < 2; is_double++) {
        const uint32_t a = difference_array(letter, is_double);
        f->extents[0][a] = (struct trajd_array){.storage = TRAJD_STORAGE_ABSENT};
        f->streams[a].optional = true;
    }
}

static void make_index(struct difference_fixture *f, const struct difference_data *data)
{
    static const char *const ids[DIFFERENCE_EPISODES] = {"demo_0", "demo_1", "demo_2"};
    static const char *const no_keys[] = {NULL};

    f->layout.name = "test";
    f->clocks[0] = (struct trajd_index_clock){"arm", true};
    f->clocks[1] = (struct trajd_index_clock){"wrist", true};
    f->rates[0] = (struct trajd_rate){10, 1};
    f->rates[1] = (struct trajd_rate){20, 1};
    for (uint32_t a = 0; a < DIFFERENCE_ARRAYS; a++) {
        f->arrays[a].path = names[a];
        f->streams[a] =
            (struct trajd_index_stream){.name = names[a],
                                        .array_index = a,
                                        .kind = TRAJD_KIND_LINEAR,
                                        .dtype = a < DIFFERENCE_LETTERS ? TRAJD_F32 : TRAJD_F64,
                                        .feature_count = widths[a % DIFFERENCE_LETTERS],
                                        .rank = 1,
                                        .shape = {widths[a % DIFFERENCE_LETTERS]},
                                        .max_gap_ns = -1};
    }
    for (uint32_t e = 0; e < DIFFERENCE_EPISODES; e++) {
        for (uint32_t k = 0; k < DIFFERENCE_CLOCKS; k++)
            f->episode_clocks[e][k] =
                (struct trajd_episode_clock){.row_count = data->rows[e], .rate = f->rates[k]};
        f->episodes[e] = (struct trajd_episode){.id = ids[e],
                                                .extents = f->extents[e],
                                                .clocks = f->episode_clocks[e],
                                                .filter_keys = no_keys};
    }
    f->index = (struct trajd_index){.layout = &f->layout,
                                    .file_count = 1,
                                    .files = &f->data.file,
                                    .array_count = DIFFERENCE_ARRAYS,
                                    .arrays = f->arrays,
                                    .stream_count = DIFFERENCE_ARRAYS,
                                    .streams = f->streams,
                                    .clock_count = DIFFERENCE_CLOCKS,
                                    .clocks = f->clocks,
                                    .episode_count = DIFFERENCE_EPISODES,
                                    .episodes = f->episodes,
                                    .kept_count = DIFFERENCE_EPISODES,
                                    .fingerprint = 42};
}

struct difference_fixture *make_difference_fixture(const struct difference_data *data)
{
    struct difference_fixture *f = calloc(1, sizeof *f);
    struct trajd_cache_options options = {.budget_bytes = 4 << 20, .reader_count = 1};
    struct trajd_error error;

    assert_non_null(f);
    make_values(f, data);
    write_file(f);
    make_index(f, data);
    if (data->lacking)
        remove_array(f, data->lacking);
    f->dataset = (struct trajd_dataset){.name = "test",
                                        .index = &f->index,
                                        .clock_stamps_ns = f->no_stamps,
                                        .clock_row_begin = f->no_stamps,
                                        .clock_rates = f->rates};
    options.index = &f->index;
    if (trajd_cache_create(&options, &f->dataset.cache, &error))
        fail_msg("%s", error.message);
    return f;
}

void free_difference_fixture(struct difference_fixture *f)
{
    trajd_cache_destroy(&f->dataset.cache);
    assert_int_equal(unlink(f->data.path), 0);
    assert_int_equal(rmdir(f->data.folder), 0);
    for (uint32_t e = 0; e < DIFFERENCE_EPISODES; e++)
        for (uint32_t a = 0; a < DIFFERENCE_ARRAYS; a++)
            free(f->values[e][a]);
    free(f);
}
