/* The row cache's figures, a budget that grows, and what the cache leaves behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/cache/dataset.h"
#include "proto/array_len.h"
#include "tests/support/array_list.h"
#include "tests/support/index_files.h"

#define ALIGNMENT 64u /* of an entry's memory */

static const uint32_t streams[] = {0, 1, 2}; /* a, b and c */
static const struct trajd_selection some = {streams, ARRAY_LEN(streams), NULL};

static struct trajd_dataset *open_rows(uint64_t budget_bytes)
{
    char path[256], layout[256];
    struct trajd_dataset_options options = {
        .name = "rows", .cache_budget_bytes = budget_bytes, .reader_count = 2};
    struct trajd_dataset *dataset;
    struct trajd_error error;

    snprintf(path, sizeof path, "%s/rows", index_folder);
    snprintf(layout, sizeof layout, "%s/rows.yaml", index_folder);
    options.index = options_for(path, layout);
    if (trajd_dataset_open(&options, &dataset, &error))
        fail_msg("%s", error.message);
    return dataset;
}

/* Returns the bytes of an episode's rows, and adds those of its entries' memory to *room. */
static uint64_t bytes_of(const struct trajd_dataset *dataset, uint32_t episode, uint64_t *room)
{
    const struct trajd_array *arrays = dataset->index->episodes[episode].extents;
    uint64_t bytes = 0;

    for (size_t k = 0; k < ARRAY_LEN(streams); k++) {
        const uint64_t own = arrays[streams[k]].size_bytes;
        assert_int_equal(trajd_cache_entry_bytes(dataset->cache, &some, (uint32_t)k, episode), own);
        bytes += own;
        *room += (own + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return bytes;
}

static struct trajd_cache_stats stats_of(const struct trajd_dataset *dataset)
{
    struct trajd_cache_stats stats;

    trajd_cache_get_stats(dataset->cache, &stats);
    return stats;
}

static void figures_are_exact(void **state)
{
    struct trajd_dataset *dataset = open_rows(1 << 20);
    const void *rows[ARRAY_LEN(streams)];
    uint64_t bytes = 0, room = 0, first_room = 0;
    struct trajd_cache_stats stats = stats_of(dataset);

    (void)state;
    assert_int_equal(stats.budget_bytes, 1 << 20);
    assert_int_equal(stats.resident_bytes, 0);
    for (uint32_t e = 0; e < dataset->index->episode_count; e++) {
        if (dataset->index->episodes[e].quarantine)
            continue;
        bytes += bytes_of(dataset, e, &room);
        first_room = first_room ? first_room : room;
        assert_int_equal(trajd_cache_pin(dataset->cache, &some, e, rows, NULL), TRAJD_OK);
        stats = stats_of(dataset);
        assert_int_equal(stats.resident_bytes, room);
        assert_int_equal(stats.pinned_bytes, room);
        assert_int_equal(stats.bytes_read, bytes);
    }
    assert_int_equal(stats.entries_loaded, 4 * ARRAY_LEN(streams));
    assert_int_equal(stats.total_bytes, room);
    assert_int_equal(stats.entries_evicted, 0);
    assert_int_equal(stats.read_errors, 0);
    assert_int_equal(stats.missing_chunks, 0);
    trajd_cache_unpin(dataset->cache, &some, 0);
    stats = stats_of(dataset);
    assert_int_equal(stats.pinned_bytes, room - first_room);
    assert_int_equal(stats.resident_bytes, room);
    for (uint32_t e = 1; e < dataset->index->episode_count; e++)
        if (!dataset->index->episodes[e].quarantine)
            trajd_cache_unpin(dataset->cache, &some, e);
    assert_int_equal(stats_of(dataset).pinned_bytes, 0);
    trajd_dataset_destroy(&dataset);
}

/* A prefetch counts towards the total at once, whatever is loaded. */
static void prefetched_arrays_count(void **state)
{
    struct trajd_dataset *dataset = open_rows(1 << 20);
    const uint32_t first = 0;
    uint64_t room = 0;

    (void)state;
    for (uint32_t e = 0; e < dataset->index->episode_count; e++)
        if (!dataset->index->episodes[e].quarantine)
            bytes_of(dataset, e, &room);
    assert_int_equal(stats_of(dataset).total_bytes, 0);
    trajd_cache_prefetch(dataset->cache, &some, &first, 1, 1);
    assert_int_equal(stats_of(dataset).total_bytes, room);
    trajd_dataset_destroy(&dataset);
}

/* Readers that found no room go on as soon as the budget grows. */
static void a_larger_budget_lets_readers_go_on(void **state)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const uint32_t next = 1;
    const void *rows[ARRAY_LEN(streams)];
    struct trajd_dataset *dataset = open_rows(1 << 20);
    uint64_t room = 0, next_room = 0;

    (void)state;
    bytes_of(dataset, 0, &room);
    bytes_of(dataset, next, &next_room);
    trajd_dataset_destroy(&dataset);
    dataset = open_rows(room);
    assert_int_equal(trajd_cache_pin(dataset->cache, &some, 0, rows, NULL), TRAJD_OK);
    trajd_cache_prefetch(dataset->cache, &some, &next, 1, 1);
    assert_int_equal(trajd_cache_pin(dataset->cache, &some, next, rows, NULL), TRAJD_ERR_MEMORY);
    trajd_cache_prefetch(dataset->cache, &some, &next, 1, 2);
    nanosleep(&pause, NULL);
    trajd_cache_raise_budget(dataset->cache, next_room);
    assert_int_equal(stats_of(dataset).budget_bytes, room + next_room);
    for (int i = 0; i < 10000 && stats_of(dataset).resident_bytes < room + next_room; i++)
        nanosleep(&pause, NULL);
    assert_int_equal(stats_of(dataset).resident_bytes, room + next_room);
    trajd_cache_unpin(dataset->cache, &some, 0);
    trajd_dataset_destroy(&dataset);
}

static int count_entries(const char *path)
{
    DIR *entries = opendir(path);
    int count = 0;

    assert_non_null(entries);
    while (readdir(entries))
        count++;
    closedir(entries);
    return count;
}

/* Threads and descriptors end with the cache, and the caller's signals stay as they were. */
static void nothing_is_left_behind(void **state)
{
    const int descriptors = count_entries("/proc/self/fd"),
              threads = count_entries("/proc/self/task");
    const void *rows[ARRAY_LEN(streams)];
    struct trajd_dataset *dataset = open_rows(1 << 20);
    sigset_t before, after;

    (void)state;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    assert_int_equal(trajd_cache_pin(dataset->cache, &some, 0, rows, NULL), TRAJD_OK);
    assert_int_equal(count_entries("/proc/self/task"), threads + 2);
    trajd_cache_unpin(dataset->cache, &some, 0);
    trajd_dataset_destroy(&dataset);
    assert_int_equal(count_entries("/proc/self/fd"), descriptors);
    assert_int_equal(count_entries("/proc/self/task"), threads);
    dataset = open_rows(1 << 20);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (int number = 1; number < 32; number++)
        assert_int_equal(sigismember(&after, number), sigismember(&before, number));
    trajd_dataset_destroy(&dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_exact),
        cmocka_unit_test(prefetched_arrays_count),
        cmocka_unit_test(a_larger_budget_lets_readers_go_on),
        cmocka_unit_test(nothing_is_left_behind),
    };
    sigset_t none;

    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    if (!index_files_choose("make_scan_files.py"))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
