/* The row cache on files that this test writes itself, with an index made by hand, so that every
 * byte of every row is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/heartbeat.h"
#include "daemon/cache/cache.h"

#define EPISODES 12u
#define ARRAYS 3u
#define ROWS 50u
#define WIDE 16u /* bytes of a row of array 1 */
#define FILE_ROOM 8192u

/* Episode e is in file e % 3. Array 0: contiguous, one u32 per row. Array 1: chunks of 7 rows,
 * unfiltered, the third one missing. Array 2: like 0, on a clock that keeps every third row. */
struct world {
    char folder[64];
    char paths[3][96];
    struct trajd_index index;
    struct trajd_index_file files[3];
    struct trajd_index_array datasets[ARRAYS];
    struct trajd_index_stream streams[ARRAYS];
    struct trajd_index_clock clocks[2];
    struct trajd_episode episodes[EPISODES];
    struct trajd_episode_clock episode_clocks[2];
    struct trajd_array arrays[EPISODES][ARRAYS];
    struct trajd_chunk chunks[EPISODES][8];
    uint32_t kept[17];
    char ids[EPISODES][16];
};

static const uint32_t all_datasets[ARRAYS] = {0, 1, 2};
static const struct trajd_selection all_arrays = {all_datasets, ARRAYS, NULL};

static uint32_t value_at(uint32_t episode, uint32_t dataset, uint32_t row)
{
    return episode << 20 | dataset << 16 | row;
}

static uint8_t wide_at(uint32_t episode, uint32_t row, uint32_t column)
{
    return (uint8_t)(episode * 31 + row * 7 + column);
}

static bool is_missing(uint32_t row)
{
    return row / 7 == 2;
}

/* Writes an episode's bytes to its file: array 0, array 2, then the chunks of array 1 in reverse
 * order. */
static void write_episode(struct world *world, uint32_t e, int fd)
{
    uint64_t base = (uint64_t)(e / 3) * FILE_ROOM;
    uint32_t column[ROWS];
    uint8_t chunk[7 * WIDE];

    for (uint32_t d = 0; d < ARRAYS; d += 2) {
        for (uint32_t row = 0; row < ROWS; row++)
            column[row] = value_at(e, d, row);
        assert_int_equal(pwrite(fd, column, sizeof column, (off_t)(base + d * 200)), sizeof column);
        world->arrays[e][d] = (struct trajd_array){.storage = TRAJD_STORAGE_CONTIGUOUS,
                                                   .dtype = TRAJD_U32,
                                                   .rank = 1,
                                                   .shape = {ROWS},
                                                   .offset = base + d * 200,
                                                   .size_bytes = 4 * ROWS};
    }
    for (uint32_t c = 0; c < 8; c++) {
        uint64_t offset = base + 1000 + (7 - c) * sizeof chunk;
        for (uint32_t i = 0; i < sizeof chunk; i++)
            chunk[i] = wide_at(e, c * 7 + i / WIDE, i % WIDE);
        assert_int_equal(pwrite(fd, chunk, sizeof chunk, (off_t)offset), sizeof chunk);
        world->chunks[e][c] =
            (struct trajd_chunk){c == 2 ? TRAJD_ARRAY_MISSING_CHUNK : offset, sizeof chunk, 0};
    }
    world->arrays[e][1] = (struct trajd_array){.storage = TRAJD_STORAGE_CHUNKED,
                                               .dtype = TRAJD_U8,
                                               .rank = 2,
                                               .shape = {ROWS, WIDE},
                                               .size_bytes = ROWS * WIDE,
                                               .chunk_shape = {7, WIDE},
                                               .chunk_count = 8,
                                               .chunks = world->chunks[e],
                                               .fill = {0x5A}};
}

static void describe_file(struct world *world, uint32_t f)
{
    struct stat file_stat;

    assert_int_equal(stat(world->paths[f], &file_stat), 0);
    world->files[f] = (struct trajd_index_file){.path = world->paths[f],
                                                .relative_path = world->paths[f],
                                                .stat = trajd_file_stat_from(&file_stat)};
}

static int make_world(void **state)
{
    static const char *const names[ARRAYS] = {"q", "image", "force"};
    struct world *world = calloc(1, sizeof *world);
    int fds[3];

    strcpy(world->folder, "/tmp/trajd_cache_XXXXXX");
    assert_non_null(mkdtemp(world->folder));
    for (uint32_t f = 0; f < 3; f++) {
        snprintf(world->paths[f], sizeof world->paths[f], "%s/%u.h5", world->folder, f);
        fds[f] = open(world->paths[f], O_RDWR | O_CREAT, 0600);
        assert_true(fds[f] >= 0);
    }
    for (uint32_t i = 0; i < 17; i++)
        world->kept[i] = 3 * i;
    world->episode_clocks[0] = (struct trajd_episode_clock){.row_count = ROWS, .rate = {20, 1}};
    world->episode_clocks[1] =
        (struct trajd_episode_clock){.row_count = 17, .kept_rows = world->kept, .rate = {20, 1}};
    for (uint32_t d = 0; d < ARRAYS; d++) {
        world->datasets[d].path = names[d];
        world->streams[d] =
            (struct trajd_index_stream){.name = names[d], .array_index = d, .clock_index = d / 2};
        world->clocks[d / 2].name = d / 2 ? "sparse" : "arm";
    }
    for (uint32_t e = 0; e < EPISODES; e++) {
        snprintf(world->ids[e], sizeof world->ids[e], "demo_%u", e);
        write_episode(world, e, fds[e % 3]);
        world->episodes[e] = (struct trajd_episode){.id = world->ids[e],
                                                    .file_index = e % 3,
                                                    .extents = world->arrays[e],
                                                    .clocks = world->episode_clocks};
    }
    for (uint32_t f = 0; f < 3; f++) {
        close(fds[f]);
        describe_file(world, f);
    }
    world->index = (struct trajd_index){.file_count = 3,
                                        .files = world->files,
                                        .array_count = ARRAYS,
                                        .arrays = world->datasets,
                                        .stream_count = ARRAYS,
                                        .streams = world->streams,
                                        .clock_count = 2,
                                        .clocks = world->clocks,
                                        .episode_count = EPISODES,
                                        .episodes = world->episodes,
                                        .kept_count = EPISODES};
    *state = world;
    return 0;
}

static int drop_world(void **state)
{
    struct world *world = *state;

    for (uint32_t f = 0; f < 3; f++)
        unlink(world->paths[f]);
    rmdir(world->folder);
    free(world);
    return 0;
}

#define EPISODE_BYTES (256u + 832u + 128u) /* 200, 800 and 68 bytes, each rounded up to 64 */

static struct trajd_cache *new_cache(const struct world *world, uint64_t budget, uint32_t readers)
{
    struct trajd_cache_options options = {&world->index, budget, readers};
    struct trajd_cache *cache;
    struct trajd_error error;

    if (trajd_cache_create(&options, &cache, &error))
        fail_msg("%s", error.message);
    return cache;
}

/* Returns how many bytes are wrong. Does not assert, so that any thread may call it. */
static unsigned wrong_bytes(uint32_t episode, const void *const *rows)
{
    const uint32_t *q = rows[0], *force = rows[2];
    const uint8_t *image = rows[1];
    unsigned wrong = 0;

    for (uint32_t row = 0; row < ROWS; row++) {
        wrong += q[row] != value_at(episode, 0, row);
        for (uint32_t column = 0; column < WIDE; column++)
            wrong += image[row * WIDE + column] !=
                     (is_missing(row) ? 0x5A : wide_at(episode, row, column));
    }
    for (uint32_t i = 0; i < 17; i++)
        wrong += force[i] != value_at(episode, 2, 3 * i);
    return wrong;
}

static void pinned_rows_are_those_of_the_file(void **state)
{
    struct trajd_cache *cache = new_cache(*state, 1u << 20, 2);
    struct trajd_cache_stats stats;
    const void *rows[ARRAYS];

    for (uint32_t e = 0; e < EPISODES; e++) {
        assert_int_equal(trajd_cache_pin(cache, &all_arrays, e, rows, NULL), TRAJD_OK);
        assert_int_equal(wrong_bytes(e, rows), 0);
        trajd_cache_unpin(cache, &all_arrays, e);
    }
    trajd_cache_get_stats(cache, &stats);
    assert_int_equal(stats.entries_loaded, EPISODES * ARRAYS);
    assert_int_equal(stats.bytes_read, EPISODES * (200 + 800 + 68));
    assert_int_equal(stats.missing_chunks, EPISODES);
    assert_int_equal(stats.resident_bytes, EPISODES * EPISODE_BYTES);
    assert_int_equal(stats.total_bytes, stats.resident_bytes);
    assert_int_equal(stats.entries_evicted, 0);
    trajd_cache_destroy(&cache);
    assert_null(cache);
}

static void fill_loads_all_and_nothing_is_read_afterwards(void **state)
{
    struct trajd_cache *cache = new_cache(*state, EPISODES * EPISODE_BYTES, 3);
    struct trajd_cache_stats before, after;
    const void *rows[ARRAYS];
    bool complete = false;

    assert_int_equal(trajd_cache_fill(cache, &all_arrays, NULL, 0, &complete, NULL), TRAJD_OK);
    assert_true(complete);
    trajd_cache_get_stats(cache, &before);
    for (uint32_t e = 0; e < EPISODES; e++) {
        assert_int_equal(trajd_cache_pin(cache, &all_arrays, e, rows, NULL), TRAJD_OK);
        assert_int_equal(wrong_bytes(e, rows), 0);
    }
    for (uint32_t e = 0; e < EPISODES; e++)
        trajd_cache_unpin(cache, &all_arrays, e);
    trajd_cache_get_stats(cache, &after);
    assert_int_equal(after.entries_loaded, before.entries_loaded);
    assert_int_equal(after.pin_waits, 0);
    trajd_cache_destroy(&cache);
}

static void fill_stops_at_the_budget(void **state)
{
    static const uint32_t some[] = {1, 4, 7};
    struct trajd_cache *cache = new_cache(*state, 5 * EPISODE_BYTES + 100, 2);
    struct trajd_cache_stats stats;
    bool complete = true;

    assert_int_equal(trajd_cache_fill(cache, &all_arrays, some, 3, &complete, NULL), TRAJD_OK);
    assert_true(complete);
    assert_int_equal(trajd_cache_fill(cache, &all_arrays, NULL, 0, &complete, NULL), TRAJD_OK);
    assert_false(complete);
    trajd_cache_get_stats(cache, &stats);
    assert_true(stats.resident_bytes <= stats.budget_bytes &&
                stats.resident_bytes > 4 * EPISODE_BYTES);
    assert_int_equal(stats.entries_evicted, 0);
    assert_int_equal(trajd_cache_fill(cache, &all_arrays, some, 3, &complete, NULL), TRAJD_OK);
    assert_true(complete); /* resident entries stayed */
    trajd_cache_destroy(&cache);
}

/* A cancelled thread does not wait, and leaves no pin behind. */
static void a_cancelled_thread_does_not_wait(void **state)
{
    struct trajd_cache *cache = new_cache(*state, 1u << 20, 1);
    struct trajd_heartbeat heartbeat = {0};
    struct trajd_cache_stats stats;
    struct trajd_error error;
    const void *rows[ARRAYS];
    bool complete = true;

    trajd_heartbeat_begin(&heartbeat);
    trajd_heartbeat_cancel(&heartbeat);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 0, rows, &error), TRAJD_ERR_CLOSED);
    assert_int_equal(trajd_cache_fill(cache, &all_arrays, NULL, 0, &complete, &error),
                     TRAJD_ERR_CLOSED);
    assert_false(complete);
    trajd_heartbeat_begin(NULL);
    trajd_cache_get_stats(cache, &stats);
    assert_int_equal(stats.pinned_bytes, 0);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 0, rows, &error), TRAJD_OK);
    trajd_cache_unpin(cache, &all_arrays, 0);
    trajd_cache_destroy(&cache);
}

static void selections_share_what_both_name(void **state)
{
    static const uint32_t first[] = {0}, both[] = {0, 1};
    const struct trajd_selection small = {first, 1, NULL}, large = {both, 2, NULL};
    struct trajd_cache *cache = new_cache(*state, 1u << 20, 1);
    struct trajd_cache_stats stats;
    const void *one[1], *two[2];

    assert_int_equal(trajd_cache_pin(cache, &small, 3, one, NULL), TRAJD_OK);
    assert_int_equal(trajd_cache_pin(cache, &large, 3, two, NULL), TRAJD_OK);
    assert_ptr_equal(one[0], two[0]);
    trajd_cache_get_stats(cache, &stats);
    assert_int_equal(stats.entries_loaded, 2);
    assert_int_equal(stats.total_bytes, EPISODES * (256 + 832));
    trajd_cache_unpin(cache, &small, 3);
    assert_int_equal(*(const uint32_t *)two[0], value_at(3, 0, 0));
    trajd_cache_unpin(cache, &large, 3);
    trajd_cache_destroy(&cache);
}

/* Pinned room becomes free again; retained room does not. */
static void retained_rows_are_not_waited_for(void **state)
{
    static const uint32_t first[] = {0};
    const struct trajd_selection small = {first, 1, NULL};
    struct trajd_cache *cache = new_cache(*state, 2 * EPISODE_BYTES, 1);
    const void *rows[ARRAYS];

    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 0, rows, NULL), TRAJD_OK);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 1, rows, NULL), TRAJD_OK);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 2, rows, NULL), TRAJD_ERR_MEMORY);
    assert_true(trajd_cache_will_have_room(cache, &all_arrays, 2));
    trajd_cache_retain(cache, &all_arrays, 0);
    assert_true(trajd_cache_will_have_room(cache, &all_arrays, 2));
    trajd_cache_retain(cache, &all_arrays, 0); /* a second retain takes no more room */
    assert_true(trajd_cache_will_have_room(cache, &all_arrays, 2));
    trajd_cache_retain(cache, &small, 1);
    assert_false(trajd_cache_will_have_room(cache, &all_arrays, 2));
    assert_true(
        trajd_cache_will_have_room(cache, &all_arrays, 1)); /* a part of it is retained already */
    assert_true(trajd_cache_will_have_room(cache, &small, 2));
    trajd_cache_release(cache, &small, 1);
    trajd_cache_unpin(cache, &all_arrays, 1);
    assert_true(trajd_cache_will_have_room(cache, &all_arrays, 2));
    trajd_cache_release(cache, &all_arrays, 0);
    trajd_cache_release(cache, &all_arrays, 0);
    trajd_cache_unpin(cache, &all_arrays, 0);
    trajd_cache_destroy(&cache);
}

static void a_full_budget_is_an_error_with_figures(void **state)
{
    struct trajd_cache *cache = new_cache(*state, 2 * EPISODE_BYTES, 1);
    struct trajd_error error;
    const void *rows[ARRAYS];

    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 0, rows, NULL), TRAJD_OK);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 0, rows, NULL),
                     TRAJD_OK); /* pinning it again takes no more room */
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 1, rows, NULL), TRAJD_OK);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 2, rows, &error), TRAJD_ERR_MEMORY);
    assert_non_null(
        strstr(error.message,
               "demo_2 needs 1216 bytes of rows; the row cache has 2432 bytes, of which 2432"));
    trajd_cache_unpin(cache, &all_arrays, 0);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 2, rows, &error), TRAJD_ERR_MEMORY);
    trajd_cache_unpin(cache, &all_arrays, 0);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 2, rows, NULL), TRAJD_OK);
    assert_int_equal(wrong_bytes(2, rows), 0);
    trajd_cache_unpin(cache, &all_arrays, 1);
    trajd_cache_unpin(cache, &all_arrays, 2);
    trajd_cache_destroy(&cache);
    cache = new_cache(*state, 1000, 1); /* larger than the whole budget */
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 0, rows, &error), TRAJD_ERR_MEMORY);
    trajd_cache_prefetch(cache, &all_arrays, (const uint32_t[]){0}, 1,
                         0); /* a hint that cannot be followed does no harm */
    trajd_cache_destroy(&cache);
}

static void wait_until_loaded(struct trajd_cache *cache, uint64_t entries)
{
    struct trajd_cache_stats stats;

    do
        trajd_cache_get_stats(cache, &stats);
    while (stats.entries_loaded < entries);
}

static void prefetched_entries_are_read_ahead(void **state)
{
    static const uint32_t ahead[] = {5, 5, 6, 99};
    struct trajd_cache *cache = new_cache(*state, 1u << 20, 2);
    struct trajd_cache_stats stats;
    const void *rows[ARRAYS];

    trajd_cache_prefetch(cache, &all_arrays, ahead, 4,
                         1); /* one episode twice, and one that does not exist */
    wait_until_loaded(cache, 2 * ARRAYS);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 5, rows, NULL), TRAJD_OK);
    assert_int_equal(wrong_bytes(5, rows), 0);
    trajd_cache_unpin(cache, &all_arrays, 5);
    trajd_cache_get_stats(cache, &stats);
    assert_int_equal(stats.pin_waits, 0);
    assert_int_equal(stats.entries_loaded, 2 * ARRAYS);
    trajd_cache_destroy(&cache);
}

/* Room for three episodes: of 0, 1 and 2 the one with the latest next use is evicted, and without
 * prefetches the least recently used. */
static void the_latest_next_use_is_evicted_first(void **state)
{
    struct trajd_cache *cache = new_cache(*state, 3 * EPISODE_BYTES, 1);
    struct trajd_cache_stats stats;
    const void *rows[ARRAYS];

    for (uint32_t e = 0; e < 3; e++)
        trajd_cache_prefetch(cache, &all_arrays, &e, 1, e == 1 ? 30 : 10 + e);
    wait_until_loaded(cache, 3 * ARRAYS);
    /* evicts 1, due at 30 */
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 7, rows, NULL), TRAJD_OK);
    for (uint32_t e = 0; e < 3; e += 2) {
        assert_int_equal(trajd_cache_pin(cache, &all_arrays, e, rows, NULL), TRAJD_OK);
        assert_int_equal(wrong_bytes(e, rows), 0);
    }
    trajd_cache_get_stats(cache, &stats);
    assert_int_equal(stats.entries_loaded, 4 * ARRAYS);
    assert_int_equal(stats.entries_evicted, ARRAYS);
    trajd_cache_unpin(cache, &all_arrays, 2);
    wait_until_loaded(cache,
                      /* 1 is loaded again ahead of its use, in place of 2, which has no prefetch */
                      5 * ARRAYS);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 1, rows, NULL), TRAJD_OK);
    assert_int_equal(wrong_bytes(1, rows), 0);
    for (uint32_t e = 0; e < 2; e++)
        trajd_cache_unpin(cache, &all_arrays, e);
    trajd_cache_unpin(cache, &all_arrays, 7);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 8, rows, NULL),
                     TRAJD_OK); /* evicts 0, which was unpinned first */
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 1, rows, NULL), TRAJD_OK);
    trajd_cache_get_stats(cache, &stats);
    assert_int_equal(stats.entries_loaded, 6 * ARRAYS);
    trajd_cache_unpin(cache, &all_arrays, 1);
    trajd_cache_unpin(cache, &all_arrays, 8);
    trajd_cache_destroy(&cache);
}

static void absent_empty_and_quarantined(void **state)
{
    struct world *world = *state;
    struct trajd_cache *cache;
    const void *rows[ARRAYS];

    world->arrays[2][0].storage = TRAJD_STORAGE_ABSENT;
    world->arrays[2][1] = (struct trajd_array){
        .storage = TRAJD_STORAGE_EMPTY, .dtype = TRAJD_U8, .rank = 2, .shape = {ROWS, 0}};
    world->arrays[2][2].shape[0] = 10; /* fewer rows than its clock: kept rows 0, 3, 6, 9 */
    world->arrays[2][2].size_bytes = 40;
    world->episodes[3].quarantine = "for a test";
    cache = new_cache(world, 1u << 20, 1);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 2, rows, NULL), TRAJD_OK);
    assert_null(rows[0]);
    assert_non_null(rows[1]);
    assert_int_equal(((const uint32_t *)rows[2])[3], value_at(2, 2, 9));
    trajd_cache_unpin(cache, &all_arrays, 2);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 3, rows, NULL), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, EPISODES, rows, NULL), TRAJD_ERR_ARGUMENT);
    trajd_cache_destroy(&cache);
}

/* The clock that drops rows may be any of the dataset's, also the first. */
static void the_first_clock_can_drop_rows(void **state)
{
    struct world *world = *state;
    const struct trajd_episode_clock other = world->episode_clocks[0];
    struct trajd_cache *cache;
    const void *rows[ARRAYS];

    world->episode_clocks[0] = world->episode_clocks[1];
    world->episode_clocks[1] = other;
    cache = new_cache(world, 1u << 20, 1);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 0, rows, NULL), TRAJD_OK);
    for (uint32_t row = 0; row < 17; row++)
        assert_int_equal(((const uint32_t *)rows[0])[row], value_at(0, 0, 3 * row));
    for (uint32_t row = 0; row < ROWS; row++)
        assert_int_equal(((const uint32_t *)rows[2])[row], value_at(0, 2, row));
    trajd_cache_unpin(cache, &all_arrays, 0);
    trajd_cache_destroy(&cache);
}

static void a_changed_file_is_named(void **state)
{
    struct world *world = *state;
    struct trajd_cache *cache = new_cache(world, 1u << 20, 2);
    struct trajd_cache_stats stats;
    struct trajd_error error;
    const void *rows[ARRAYS];
    bool complete = true;

    assert_int_equal(truncate(world->paths[1], 100), 0);
    assert_int_equal(trajd_cache_fill(cache, &all_arrays, NULL, 0, &complete, NULL), TRAJD_OK);
    assert_false(complete);
    /* another file */
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 0, rows, NULL), TRAJD_OK);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 1, rows, &error), TRAJD_ERR_IO);
    assert_non_null(strstr(error.message, "changed while it was in use"));
    assert_non_null(strstr(error.message, world->paths[1]));
    assert_non_null(strstr(error.message, "demo_1/q"));
    trajd_cache_unpin(cache, &all_arrays, 0);
    do /* the other entries of the pin are still being read: a failed entry takes no room */
        trajd_cache_get_stats(cache, &stats);
    while (stats.resident_bytes != 8 * EPISODE_BYTES);
    assert_true(stats.read_errors >= 3);
    trajd_cache_destroy(&cache);
}

/* Only ctime tells that a file was rewritten in place and its time of modification restored. A hard
 * link changes ctime, too, and is not a change. */
static void a_rewritten_file_is_named(void **state)
{
    struct world *world = *state;
    struct trajd_cache *cache = new_cache(world, 1u << 20, 1);
    struct timespec times[2];
    struct stat before, after;
    struct trajd_error error;
    const void *rows[ARRAYS];
    char linked[128];
    int fd;

    assert_int_equal(stat(world->paths[1], &before), 0);
    snprintf(linked, sizeof linked, "%s.link", world->paths[1]);
    assert_int_equal(link(world->paths[1], linked), 0);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 1, rows, &error), TRAJD_OK);
    trajd_cache_unpin(cache, &all_arrays, 1);
    trajd_cache_destroy(&cache);
    assert_int_equal(unlink(linked), 0);
    describe_file(world, 1);
    cache = new_cache(world, 1u << 20, 1);
    usleep(50000); /* more than the step of ctime */
    fd = open(world->paths[1], O_WRONLY);
    assert_int_equal(pwrite(fd, "\x7f", 1, 0), 1);
    times[0] = before.st_atim;
    times[1] = before.st_mtim;
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(fstat(fd, &after), 0);
    assert_true(after.st_mtim.tv_nsec == before.st_mtim.tv_nsec && after.st_size == before.st_size);
    close(fd);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 1, rows, &error), TRAJD_ERR_IO);
    assert_non_null(strstr(error.message, "changed while it was in use"));
    trajd_cache_destroy(&cache);
}

/* An I/O error is retried by the next pin; an error in the data is not. */
static void io_failures_pass_and_data_failures_stay(void **state)
{
    struct world *world = *state;
    struct trajd_cache *cache;
    struct trajd_cache_stats before, after;
    struct trajd_error error;
    const void *rows[ARRAYS];
    char aside[128];

    world->arrays[4][1].filter_count = 1;
    world->arrays[4][1].filters[0] = TRAJD_FILTER_DEFLATE; /* the chunks are not deflated */
    cache = new_cache(world, 1u << 20, 1);
    snprintf(aside, sizeof aside, "%s.aside", world->folder); /* ctime of the file stays */
    assert_int_equal(rename(world->folder, aside), 0);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 0, rows, &error), TRAJD_ERR_IO);
    assert_int_equal(error.foreign_code, 2 /* ENOENT */);
    assert_int_equal(rename(aside, world->folder), 0);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 0, rows, NULL), TRAJD_OK);
    assert_int_equal(wrong_bytes(0, rows), 0);
    trajd_cache_unpin(cache, &all_arrays, 0);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 4, rows, &error), TRAJD_ERR_DATA);
    assert_non_null(strstr(error.message, "demo_4/image: rows 49..49: chunk 7"));
    trajd_cache_get_stats(cache, &before);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 4, rows, &error), TRAJD_ERR_DATA);
    trajd_cache_get_stats(cache, &after);
    assert_int_equal(after.read_errors, before.read_errors);
    trajd_cache_destroy(&cache);
}

static void bad_options_are_refused(void **state)
{
    struct world *world = *state;
    struct trajd_cache_options options = {&world->index, 1000, 0};
    struct trajd_cache *cache;
    struct trajd_error error;

    assert_int_equal(trajd_cache_create(&options, &cache, &error), TRAJD_ERR_ARGUMENT);
    assert_null(cache);
    options.reader_count = 1;
    /* two streams of one array, whose clocks keep different rows */
    world->streams[0].array_index = 2;
    assert_int_equal(trajd_cache_create(&options, &cache, &error), TRAJD_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "force"));
}

/* File 1 becomes a pipe without a writer on another filesystem: opening it blocks, as on a dead
 * mount. */
static void a_hanging_filesystem_does_not_stop_others(void **state)
{
    static const uint32_t hanging[] = {1, 4, 7, 10};
    struct world *world = *state;
    struct stat here, there;
    struct trajd_cache *cache;
    struct trajd_error error;
    const void *rows[ARRAYS];
    char path[96];
    int release;

    snprintf(path, sizeof path, "/dev/shm/%s", world->folder + 5);
    if (stat("/tmp", &here) != 0 || stat("/dev/shm", &there) != 0 || here.st_dev == there.st_dev)
        skip();
    assert_int_equal(mkfifo(path, 0600), 0);
    world->files[1].path = path;
    cache = new_cache(world, 1u << 20, 2);
    trajd_cache_prefetch(cache, &all_arrays, hanging, 4, 0); /* work for more than both readers */
    for (uint32_t e = 0; e < EPISODES; e++)
        if (e % 3 != 1) {
            assert_int_equal(trajd_cache_pin(cache, &all_arrays, e, rows, NULL), TRAJD_OK);
            assert_int_equal(wrong_bytes(e, rows), 0);
            trajd_cache_unpin(cache, &all_arrays, e);
        }
    release =
        open(path,
             O_RDWR); /* a writer: opening continues, and finds another file than the indexed one */
    assert_true(release >= 0);
    assert_int_equal(trajd_cache_pin(cache, &all_arrays, 1, rows, &error), TRAJD_ERR_IO);
    assert_non_null(strstr(error.message, path));
    trajd_cache_destroy(&cache);
    close(release);
    unlink(path);
}

struct hammer {
    struct trajd_cache *cache;
    uint32_t seed;
    unsigned wrong, failed;
};

static void *hammer_cache(void *context)
{
    struct hammer *hammer = context;
    const void *rows[ARRAYS];
    uint32_t random = hammer->seed;

    for (int i = 0; i < 400; i++) {
        random = random * 1664525u + 1013904223u;
        uint32_t episode = (random >> 16) % EPISODES, next = (random >> 8) % EPISODES;
        trajd_cache_prefetch(hammer->cache, &all_arrays, &next, 1, (uint64_t)i);
        if (trajd_cache_pin(hammer->cache, &all_arrays, episode, rows, NULL)) {
            hammer->failed++;
            continue;
        }
        hammer->wrong += wrong_bytes(episode, rows);
        trajd_cache_unpin(hammer->cache, &all_arrays, episode);
    }
    return NULL;
}

/* Four threads pin one episode each, on a budget of a third: entries are evicted and read again and
 * again, and no thread waits without end. */
static void many_threads_share_a_third_of_the_memory(void **state)
{
    struct trajd_cache *cache = new_cache(*state, EPISODES / 3 * EPISODE_BYTES, 3);
    struct hammer hammers[4];
    pthread_t threads[4];
    struct trajd_cache_stats stats;

    for (uint32_t i = 0; i < 4; i++) {
        hammers[i] = (struct hammer){cache, i * 977 + 1, 0, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, hammer_cache, &hammers[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(hammers[i].wrong, 0);
        assert_int_equal(hammers[i].failed, 0);
    }
    trajd_cache_get_stats(cache, &stats);
    assert_true(stats.entries_evicted > 0);
    assert_true(stats.resident_bytes <= stats.budget_bytes);
    trajd_cache_destroy(&cache);
}

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, make_world, drop_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(pinned_rows_are_those_of_the_file),
        WITH_WORLD(fill_loads_all_and_nothing_is_read_afterwards),
        WITH_WORLD(fill_stops_at_the_budget),
        WITH_WORLD(a_cancelled_thread_does_not_wait),
        WITH_WORLD(selections_share_what_both_name),
        WITH_WORLD(a_full_budget_is_an_error_with_figures),
        WITH_WORLD(retained_rows_are_not_waited_for),
        WITH_WORLD(prefetched_entries_are_read_ahead),
        WITH_WORLD(the_latest_next_use_is_evicted_first),
        WITH_WORLD(absent_empty_and_quarantined),
        WITH_WORLD(the_first_clock_can_drop_rows),
        WITH_WORLD(a_changed_file_is_named),
        WITH_WORLD(a_rewritten_file_is_named),
        WITH_WORLD(io_failures_pass_and_data_failures_stay),
        WITH_WORLD(bad_options_are_refused),
        WITH_WORLD(a_hanging_filesystem_does_not_stop_others),
        WITH_WORLD(many_threads_share_a_third_of_the_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
