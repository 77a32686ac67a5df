/* chunk_tree.c: the places of chunks as h5py lists them, and headers and trees that are damaged.
 * The file is that of tests/tools/make_chunk_files.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/index/rows/chunk_tree.h"
#include "tests/support/array_list.h"
#include "tests/support/index_files.h"

/* The list of one dataset as h5py has it. */
struct list {
    FILE *file;
    uint32_t rank;
    uint64_t visits;
};

static FILE *open_text(void)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof path, "%s/chunks.txt", index_folder);
    file = fopen(path, "r");
    assert_non_null(file);
    return file;
}

static int open_data(void)
{
    char path[512];

    snprintf(path, sizeof path, "%s/chunks.h5", index_folder);
    return open(path, O_RDWR);
}

static uint64_t next_number(FILE *file)
{
    uint64_t number;

    assert_int_equal(fscanf(file, "%" SCNu64, &number), 1);
    return number;
}

static bool compare_chunk(void *context, const uint64_t first[TRAJD_ARRAY_MAX_RANK],
                          const struct trajd_chunk *chunk)
{
    struct list *list = context;

    list->visits++;
    assert_int_equal(next_number(list->file), chunk->offset);
    assert_int_equal(next_number(list->file), chunk->stored_size);
    assert_int_equal(next_number(list->file), chunk->filter_mask);
    for (uint32_t d = 0; d < list->rank; d++)
        assert_int_equal(next_number(list->file), first[d]);
    return true;
}

static void chunks_lie_where_h5py_finds_them(void **state)
{
    struct list list = {.file = open_text()};
    const int fd = open_data();
    char name[64];
    uint32_t walked = 0;

    (void)state;
    while (fscanf(list.file, "%63s", name) == 1) {
        const uint64_t header = next_number(list.file);
        uint64_t most, count;
        list.rank = (uint32_t)next_number(list.file);
        most = next_number(list.file);
        list.visits = 0;
        if (!strcmp(name, "contiguous") || !strcmp(name, "newer")) { /* no such tree */
            assert_false(trajd_chunk_tree_walk(fd, header, list.rank, 1 << 20, compare_chunk, &list,
                                               &count));
            for (uint64_t i = 0; i < most * (3 + list.rank); i++)
                next_number(list.file);
            continue;
        }
        assert_true(
            trajd_chunk_tree_walk(fd, header, list.rank, most, compare_chunk, &list, &count));
        assert_int_equal(count, most);
        assert_int_equal(list.visits, most);
        walked++;
    }
    assert_int_equal(walked, 5);
    fclose(list.file);
    close(fd);
}

static bool ignore_chunk(void *context, const uint64_t first[TRAJD_ARRAY_MAX_RANK],
                         const struct trajd_chunk *chunk)
{
    (void)first;
    (void)chunk;
    return context == NULL;
}

/* Returns where the object header of a dataset lies. */
static uint64_t header_of(const char *wanted, uint64_t *chunks)
{
    FILE *file = open_text();
    char name[64];
    uint64_t header = 0;

    while (fscanf(file, "%63s", name) == 1)
        if (!strcmp(name, wanted)) {
            header = next_number(file);
            next_number(file);
            *chunks = next_number(file);
        }
    fclose(file);
    assert_int_not_equal(header, 0);
    return header;
}

static void limits_end_the_walk(void **state)
{
    const int fd = open_data();
    uint64_t chunks, count, header = header_of("many", &chunks);
    bool stops = true;

    (void)state;
    assert_true(trajd_chunk_tree_walk(fd, header, 2, chunks, ignore_chunk, NULL, &count));
    assert_false(trajd_chunk_tree_walk(fd, header, 2, chunks - 1, ignore_chunk, NULL, &count));
    assert_false(trajd_chunk_tree_walk(fd, header, 3, chunks, ignore_chunk, NULL, &count));
    assert_false(trajd_chunk_tree_walk(fd, header, 0, chunks, ignore_chunk, NULL, &count));
    assert_false(trajd_chunk_tree_walk(fd, header + 8, 2, chunks, ignore_chunk, NULL, &count));
    assert_false(trajd_chunk_tree_walk(fd, UINT64_MAX - 3, 2, chunks, ignore_chunk, NULL, &count));
    assert_false(trajd_chunk_tree_walk(fd, header, 2, chunks, ignore_chunk, &stops, &count));
    assert_int_equal(count, 1);
    close(fd);
}

/* A node that is its own child: levels descend, so the walk ends. */
static void a_tree_in_a_circle_is_refused(void **state)
{
    const int fd = open_data();
    uint64_t chunks, count, header = header_of("many", &chunks);
    uint8_t messages[256];
    uint64_t tree = 0;

    (void)state;
    assert_int_equal(pread(fd, messages, sizeof messages, (off_t)header), sizeof messages);
    for (size_t at = 0; at + 19 < sizeof messages; at++)
        if (messages[at] == 8 && messages[at + 8] == 3 && messages[at + 9] == 2)
            memcpy(&tree, messages + at + 11, sizeof tree);
    assert_int_not_equal(tree, 0);
    /* the first child follows the first key: sizes, mask, three offsets */
    assert_int_equal(pwrite(fd, &tree, sizeof tree, (off_t)(tree + 24 + 32)), sizeof tree);
    assert_false(trajd_chunk_tree_walk(fd, header, 2, chunks, ignore_chunk, NULL, &count));
    assert_int_equal(count, 0);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_lie_where_h5py_finds_them),
        cmocka_unit_test(limits_end_the_walk),
        cmocka_unit_test(a_tree_in_a_circle_is_refused),
    };

    if (!index_files_choose("make_chunk_files.py"))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
