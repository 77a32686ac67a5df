/* The cache, the fingerprint, and files that change or have several names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "daemon/base/digest.h"
#include "tests/support/index_files.h"

static void the_fingerprint_depends_on_the_content(void **state)
{
    struct trajd_index *one, *two;

    (void)state;
    make_folder("print_a", "good.hdf5 storage.hdf5");
    shell("cp -r %s/print_a %s/print_b", index_folder, index_folder);
    one = open_named("print_a", "robomimic");
    two = open_named("print_b", "robomimic");
    assert_true(one->fingerprint == two->fingerprint);
    trajd_index_destroy(&two);
    shell("mv %s/print_b/storage.hdf5 %s/print_b/another.hdf5", index_folder, index_folder);
    two = open_named("print_b", "robomimic");
    assert_true(one->fingerprint != two->fingerprint);
    trajd_index_destroy(&two);
    shell("mv %s/print_b/another.hdf5 %s/print_b/storage.hdf5", index_folder, index_folder);
    {
        const struct trajd_episode *episode = &one->episodes[0];
        uint64_t offset = episode->extents[stream_of(one, "actions")->array_index].offset;
        char path[512];
        int fd;
        snprintf(path, sizeof path, "%s/print_b/good.hdf5", index_folder);
        fd = open(path, O_WRONLY);
        assert_int_equal(pwrite(fd, "\1\2\3\4", 4, (off_t)offset),
                         4); /* the first action of the first episode */
        close(fd);
    }
    two = open_named("print_b", "robomimic");
    assert_true(one->fingerprint != two->fingerprint);
    assert_true(one->episodes[0].content_digest != two->episodes[0].content_digest);
    assert_true(one->episodes[1].content_digest == two->episodes[1].content_digest);
    trajd_index_destroy(&two);
    trajd_index_destroy(&one);
}

/* Holds for all kinds of links, in all folders. The first name counts. Equal copies stay two
 * files. */
static void files_of_several_names_are_taken_once(void **state)
{
    char path[512] = "";
    struct trajd_index_options options = options_for(path, "robomimic");
    struct trajd_file_changes file_changes;
    struct trajd_index *index, *plain;
    struct trajd_error error;

    (void)state;
    snprintf(path, sizeof path, "%s/links/*/*.hdf5", index_folder);
    shell(
        "mkdir -p %s/links/b && cd %s/links && cp ../good.hdf5 b/2.hdf5 && cp -p b/2.hdf5 b/3.hdf5",
        index_folder, index_folder);
    plain = must_open(&options);
    assert_int_equal(plain->kept_count, 12);
    assert_int_equal(plain->link_count + plain->note_count, 0);
    shell("cd %s/links/b && ln -s 2.hdf5 10.hdf5 && ln 3.hdf5 4.hdf5 && ln -s 10.hdf5 11.hdf5 && "
          "ln -s b ../c",
          index_folder);
    assert_int_equal(trajd_index_find_changes(&options, plain, &file_changes, &error), TRAJD_OK);
    /* a hard link changes ctime, as a write does */
    assert_true(file_changes.changed == 1 && !file_changes.added && !file_changes.gone);
    index = must_open(&options);
    assert_int_equal(index->file_count, 2);
    assert_true(index->fingerprint == plain->fingerprint);
    assert_int_equal(index->link_count, 8);
    assert_int_equal(index->note_count, 8);
    assert_string_equal(index->notes[0], "b/4.hdf5: left out: it is b/3.hdf5 by another name");
    assert_string_equal(index->notes[1], "b/10.hdf5: left out: it is b/2.hdf5 by another name");
    assert_string_equal(index->notes[2], "b/11.hdf5: left out: it is b/2.hdf5 by another name");
    assert_string_equal(index->notes[3], "c/2.hdf5: left out: it is b/2.hdf5 by another name");
    assert_int_equal(trajd_index_find_changes(&options, index, &file_changes, &error), TRAJD_OK);
    assert_false(trajd_file_changes_any(&file_changes));
    trajd_index_destroy(&index);
    shell("rm %s/links/b/3.hdf5", index_folder); /* its other name counts now */
    index = must_open(&options);
    assert_int_equal(index->file_count, 2);
    assert_string_equal(index->files[1].relative_path, "b/4.hdf5");
    assert_int_equal(trajd_index_find_changes(&options, plain, &file_changes, &error), TRAJD_OK);
    assert_int_equal(file_changes.added, 1);
    assert_int_equal(file_changes.gone, 1);
    trajd_index_destroy(&index);
    trajd_index_destroy(&plain);
}

static void the_cache_gives_the_same_index(void **state)
{
    char path[512] = "", cache[512];
    struct trajd_index_options options = options_for(path, "robosuite_raw");
    struct trajd_index *first, *second;

    (void)state;
    shell(": >%s/raw_empty.hdf5", index_folder);
    make_folder("cached", "raw_*.hdf5");
    shell("mkdir %s/cache", index_folder);
    snprintf(path, sizeof path, "%s/cached", index_folder);
    snprintf(cache, sizeof cache, "%s/cache", index_folder);
    options.cache_directory = cache;
    first = must_open(&options);
    assert_int_equal(first->cached_file_count, 0);
    options.helper_path = "/nonexistent"; /* nothing is left to be indexed */
    shell("ls -i %s >%s/before", cache, index_folder);
    second = must_open(&options);
    shell("ls -i %s | diff %s/before -", cache, index_folder); /* nor to be saved */
    assert_int_equal(second->cached_file_count, second->file_count);
    assert_true(first->fingerprint == second->fingerprint);
    assert_int_equal(first->kept_count, second->kept_count);
    for (uint32_t i = 0; i < first->episode_count; i++) {
        const struct trajd_episode *a = &first->episodes[i], *b = &second->episodes[i];
        assert_int_equal(!a->quarantine, !b->quarantine);
        if (a->quarantine) {
            assert_string_equal(a->quarantine, b->quarantine);
            continue;
        }
        assert_int_equal(a->clocks[0].row_count, b->clocks[0].row_count);
        assert_memory_equal(a->clocks[0].stamps_ns, b->clocks[0].stamps_ns,
                            (size_t)a->clocks[0].row_count * 8);
    }
    trajd_index_destroy(&first);
    trajd_index_destroy(&second);
}

static void changed_files_and_damaged_caches_are_indexed_anew(void **state)
{
    char path[512] = "", cache[512];
    struct trajd_index_options options = options_for(path, "robosuite_raw");
    struct trajd_index *index;

    (void)state;
    snprintf(path, sizeof path, "%s/cached", index_folder);
    snprintf(cache, sizeof cache, "%s/cache", index_folder);
    options.cache_directory = cache;
    shell("touch %s/cached/raw_even.hdf5", index_folder);
    index = must_open(&options);
    assert_int_equal(index->cached_file_count, index->file_count - 1);
    trajd_index_destroy(&index);
    index = must_open(&options); /* its mtime is too young to be kept */
    assert_int_equal(index->cached_file_count, index->file_count - 1);
    trajd_index_destroy(&index);
    shell("printf x | dd of=$(ls %s/*.index) bs=1 seek=3000 conv=notrunc status=none", cache);
    index = must_open(&options);
    assert_int_equal(index->cached_file_count, 0);
    trajd_index_destroy(&index);
    index = must_open(&options); /* written again */
    assert_int_equal(index->cached_file_count, index->file_count - 1);
    trajd_index_destroy(&index);
    shell("truncate -s 100 %s/*.index", cache);
    index = must_open(&options);
    assert_int_equal(index->cached_file_count, 0);
    trajd_index_destroy(&index);
}

/* The holder of the lock has stopped, or its node has: it is not waited for without end. */
static void a_silent_builder_is_not_waited_for(void **state)
{
    char path[512] = "", cache[512], lock[1024];
    struct trajd_index_options options = options_for(path, "robosuite_raw");
    struct trajd_index *index;
    FILE *list;
    int fd;

    (void)state;
    snprintf(path, sizeof path, "%s/cached", index_folder);
    snprintf(cache, sizeof cache, "%s/silent", index_folder);
    options.cache_directory = cache;
    shell("mkdir %s", cache);
    index = must_open(&options);
    assert_int_equal(index->lock_errno, 0);
    trajd_index_destroy(&index);
    shell("rm %s/*.index; ls %s/*.index.lock >%s/list", cache, cache, cache);
    snprintf(lock, sizeof lock, "%s/list", cache);
    list = fopen(lock, "r");
    assert_int_equal(fscanf(list, "%1023s", lock), 1);
    fclose(list);
    fd = open(lock, O_RDWR);
    assert_return_code(flock(fd, LOCK_EX | LOCK_NB), errno);
    options.file_timeout_ms = 1000;
    index = must_open(&options);
    assert_int_equal(index->lock_errno, ETIMEDOUT);
    assert_int_equal(index->cached_file_count, 0);
    trajd_index_destroy(&index);
    close(fd);
    index =
        must_open(&options); /* what was indexed without the lock is in the cache all the same */
    assert_int_equal(index->lock_errno, 0);
    assert_true(index->cached_file_count > 0);
    trajd_index_destroy(&index);
}

static struct trajd_file_changes must_find_changes(const struct trajd_index_options *options,
                                                   const struct trajd_index *index)
{
    struct trajd_file_changes file_changes;
    struct trajd_error error;

    if (trajd_index_find_changes(options, index, &file_changes, &error))
        fail_msg("%s", error.message);
    return file_changes;
}

static void changed_files_are_counted(void **state)
{
    char path[512] = "";
    struct trajd_index_options options = options_for(path, "robomimic");
    struct trajd_file_changes file_changes;
    struct trajd_error error;
    struct trajd_index *index;

    (void)state;
    make_folder("changes", "good.hdf5 storage.hdf5 zero_width.hdf5");
    snprintf(path, sizeof path, "%s/changes", index_folder);
    index = must_open(&options);
    file_changes = must_find_changes(&options, index);
    assert_false(trajd_file_changes_any(&file_changes));
    shell("cp %s/good.hdf5 %s/changes/a.hdf5; cp %s/good.hdf5 %s/changes/z.hdf5", index_folder,
          index_folder, index_folder, index_folder);
    shell("touch -d @5 %s/changes/storage.hdf5; rm %s/changes/zero_width.hdf5", index_folder,
          index_folder);
    file_changes = must_find_changes(&options, index);
    assert_true(file_changes.added == 2 && file_changes.gone == 1 && file_changes.changed == 1 &&
                !file_changes.layout_changed);
    options.layout = "demo";
    assert_true(must_find_changes(&options, index).layout_changed);
    shell("rm %s/changes/*.hdf5", index_folder);
    assert_int_equal(trajd_index_find_changes(&options, index, &file_changes, &error),
                     TRAJD_ERR_NOT_FOUND);
    trajd_index_destroy(&index);
}

/* The checksum of the cache is right, but its content is damaged: the decoder has to notice. */
static void forged_caches_are_indexed_anew(void **state)
{
    char path[512] = "", cache[512], command[1200];
    struct trajd_index_options options = options_for(path, "robosuite_raw");
    FILE *found;
    char file[512];
    static uint8_t bytes[1 << 20];
    size_t length;

    (void)state;
    snprintf(path, sizeof path, "%s/cached", index_folder);
    snprintf(cache, sizeof cache, "%s/cache", index_folder);
    options.cache_directory = cache;
    snprintf(command, sizeof command, "ls %s/*.index", cache);
    for (int round = 0; round < 20; round++) {
        struct trajd_index *index = must_open(&options);
        uint64_t digest;
        FILE *handle;
        assert_true(index->kept_count >= 7);
        trajd_index_destroy(&index);
        found = popen(command, "r");
        assert_true(found && fgets(file, sizeof file, found));
        pclose(found);
        file[strcspn(file, "\n")] = '\0';
        handle = fopen(file, "r+");
        length = fread(bytes, 1, sizeof bytes, handle);
        assert_true(length > 1000);
        bytes[32 + (size_t)(round * 7919) % (length - 32)] ^= (uint8_t)(1 << round % 8);
        digest = trajd_digest_of(bytes + 32, length - 32);
        memcpy(bytes + 24, &digest, 8);
        rewind(handle);
        assert_int_equal(fwrite(bytes, 1, length, handle), length);
        fclose(handle);
    }
    shell("rm %s/*.index", cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fingerprint_depends_on_the_content),
        cmocka_unit_test(files_of_several_names_are_taken_once),
        cmocka_unit_test(the_cache_gives_the_same_index),
        cmocka_unit_test(changed_files_and_damaged_caches_are_indexed_anew),
        cmocka_unit_test(a_silent_builder_is_not_waited_for),
        cmocka_unit_test(changed_files_are_counted),
        cmocka_unit_test(forged_caches_are_indexed_anew),
    };

    if (!index_files_choose("make_index_files.py"))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
