/* The descriptors of more files than may be open: the longest unused are closed, and each
 * descriptor is of the file that was asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cache/cache.h"
#include "daemon/index/index.h"

enum { FILES = 700, OPEN_MAX_FILES = 256, HELD = 5 };

static char folder[] = "/tmp/trajd_files_XXXXXX";
static char paths[FILES][64];
static struct trajd_index_file files[FILES];
static const struct trajd_index all_files = {.file_count = FILES, .files = files};
static struct trajd_cache *cache;

static int set_up(void **state)
{
    const struct trajd_cache_options options = {&all_files, 1 << 20, 1};

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (int f = 0; f < FILES; f++) {
        struct stat about;
        int fd;
        snprintf(paths[f], sizeof paths[f], "%s/%d", folder, f);
        fd = open(paths[f], O_RDWR | O_CREAT, 0600);
        assert_int_equal(fstat(fd, &about), 0);
        close(fd);
        files[f] = (struct trajd_index_file){
            .path = paths[f], .relative_path = paths[f], .stat = trajd_file_stat_from(&about)};
    }
    return trajd_cache_create(&options, &cache, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    trajd_cache_destroy(&cache);
    for (int f = 0; f < FILES; f++)
        unlink(paths[f]);
    return rmdir(folder);
}

/* Returns the descriptor, which is of the file. */
static int acquire(uint32_t f)
{
    struct stat about;
    struct trajd_error error;
    int fd;

    if (trajd_cache_file_acquire(cache, f, &fd, &error))
        fail_msg("%s", error.message);
    assert_int_equal(fstat(fd, &about), 0);
    assert_int_equal(about.st_ino, files[f].stat.inode);
    return fd;
}

static int count_descriptors(void)
{
    DIR *all = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(all))
        count++;
    closedir(all);
    return count;
}

static void more_files_than_may_be_open(void **state)
{
    const int before = count_descriptors();
    int held[HELD], used[2];
    uint32_t random = 1;

    (void)state;
    for (uint32_t h = 0; h < HELD; h++)
        held[h] = acquire(100 * h);
    for (uint32_t f = 0; f < FILES; f++)
        trajd_cache_file_release(cache, f, acquire(f), false);
    assert_int_equal(count_descriptors() - before, OPEN_MAX_FILES);
    for (int i = 0; i < 5000; i++) {
        const uint32_t f = (random = random * 1664525u + 1013904223u) >> 16;
        trajd_cache_file_release(cache, f % FILES, acquire(f % FILES), f % 7 == 0);
        assert_true(count_descriptors() - before <= OPEN_MAX_FILES);
    }
    for (uint32_t h = 0; h < HELD; h++) { /* a file in use stays open */
        used[0] = acquire(100 * h);
        assert_int_equal(used[0], held[h]);
        trajd_cache_file_release(cache, 100 * h, used[0], true);
        trajd_cache_file_release(cache, 100 * h, held[h], true);
    }
    for (uint32_t f = 0; f < FILES; f++)
        trajd_cache_file_release(cache, f, acquire(f), true);
    assert_int_equal(count_descriptors(), before);
}

static void the_longest_unused_file_is_closed(void **state)
{
    int first;

    (void)state;
    first = acquire(0);
    trajd_cache_file_release(cache, 0, first, false);
    for (uint32_t f = 1; f < FILES; f++) {
        trajd_cache_file_release(cache, f, acquire(f), false);
        if (f % 200 == 0) { /* used again and again: it stays */
            assert_int_equal(acquire(0), first);
            trajd_cache_file_release(cache, 0, first, false);
        }
    }
    unlink(paths[0]); /* a file that is open needs no path */
    assert_int_equal(acquire(0), first);
    trajd_cache_file_release(cache, 0, first, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_files_than_may_be_open),
        cmocka_unit_test(the_longest_unused_file_is_closed),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
