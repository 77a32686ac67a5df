/* Reading whole files, replacing a file, and names that are taken only when they are free. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/files.h"

static char folder[] = "/tmp/trajd-files-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[4][256];
    static unsigned next;
    char *chosen = path[next++ % 4];

    snprintf(chosen, sizeof path[0], "%s/%s", folder, name);
    return chosen;
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void expect_text(const char *path, const char *expected)
{
    struct trajd_error error = {0};
    size_t length;
    char *text;

    assert_int_equal(trajd_file_read(path, 1000, &text, &length, &error), TRAJD_OK);
    assert_int_equal(length, strlen(expected));
    assert_string_equal(text, expected);
    free(text);
}

static unsigned count_files(void)
{
    unsigned count = 0;
    DIR *entries = opendir(folder);

    assert_non_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries));)
        count += entry->d_name[0] != '.';
    closedir(entries);
    return count;
}

static void test_reading(void **state)
{
    struct trajd_error error = {0};
    size_t length;
    char *text;

    (void)state;
    write_text(path_of("ten"), "0123456789");
    assert_int_equal(trajd_file_read(path_of("ten"), 10, &text, &length, &error), TRAJD_OK);
    assert_int_equal(length, 10);
    free(text);
    assert_int_equal(trajd_file_read(path_of("ten"), 9, &text, &length, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_null(text);
    assert_non_null(strstr(error.message, "longer than 9 bytes"));
    assert_int_equal(trajd_file_read(path_of("none"), 9, &text, &length, &error),
                     TRAJD_ERR_NOT_FOUND);
    assert_int_equal(trajd_file_read(folder, 9, &text, &length, &error), TRAJD_ERR_ARGUMENT);
    assert_null(text);
    unlink(path_of("ten"));
}

/* Files longer than one read: the buffer grows, and the limit still holds. */
static void test_reading_long_files(void **state)
{
    static char text[300001];
    struct trajd_error error = {0};
    size_t length;
    char *data;

    (void)state;
    memset(text, 'x', sizeof text - 1);
    for (size_t size = 65535; size < sizeof text; size += 78155) {
        text[size] = '\0';
        write_text(path_of("long"), text);
        text[size] = 'x';
        assert_int_equal(trajd_file_read(path_of("long"), size, &data, &length, &error), TRAJD_OK);
        assert_int_equal(length, size);
        assert_memory_equal(data, text, size);
        assert_int_equal(data[size], 0);
        free(data);
        assert_int_equal(trajd_file_read(path_of("long"), size - 1, &data, &length, &error),
                         TRAJD_ERR_ARGUMENT);
    }
    unlink(path_of("long"));
}

static void test_replacing(void **state)
{
    struct trajd_file_replacement file;
    const char *path = path_of("kept");

    (void)state;
    write_text(path, "old");
    assert_int_equal(trajd_file_replace_begin(&file, path), 0);
    assert_int_equal(trajd_file_write_all(file.fd, "new text", 8), 0);
    expect_text(path, "old");
    assert_int_equal(trajd_file_replace_end(&file, path, true), 0);
    expect_text(path, "new text");

    assert_int_equal(trajd_file_replace_begin(&file, path), 0);
    assert_int_equal(trajd_file_write_all(file.fd, "half", 4), 0);
    assert_int_equal(trajd_file_replace_end(&file, path, false), 0);
    expect_text(path, "new text");
    assert_int_equal(count_files(), 1);

    assert_int_equal(trajd_file_replace_begin(&file, path_of("no/folder")), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(trajd_file_sync_folder(path), 0);
    assert_int_equal(trajd_file_sync_folder(path_of("no/folder")), -1);
    unlink(path);
}

static void test_replacing_over_a_killed_run(void **state)
{
    struct trajd_file_replacement file;
    const char *path = path_of("kept");
    char long_path[4200];
    struct stat stat_of_new;

    (void)state;
    write_text(path, "old");
    write_text(path_of("kept.new"), "of a killed run");
    assert_int_equal(trajd_file_replace_begin_as(&file, path, ".new", 0600), 0);
    assert_string_equal(file.temporary, path_of("kept.new"));
    assert_int_equal(trajd_file_write_all(file.fd, "new", 3), 0);
    assert_int_equal(trajd_file_replace_end(&file, path, true), 0);
    expect_text(path, "new");
    assert_int_equal(count_files(), 1);
    assert_int_equal(stat(path, &stat_of_new), 0);
    assert_int_equal(stat_of_new.st_mode & 0777, 0600);

    assert_int_equal(trajd_file_replace_begin_as(&file, path_of("no/folder"), ".new", 0600), -1);
    assert_int_equal(errno, ENOENT);
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    assert_int_equal(trajd_file_replace_begin_as(&file, long_path, ".new", 0600), -1);
    assert_int_equal(errno, ENAMETOOLONG);
    unlink(path);
}

static void test_a_taken_name_stays(void **state)
{
    bool is_sure;

    (void)state;
    write_text(path_of("from"), "mine");
    write_text(path_of("to"), "theirs");
    assert_int_equal(trajd_file_rename_new(path_of("from"), path_of("to"), &is_sure), -1);
    assert_int_equal(errno, EEXIST);
    expect_text(path_of("to"), "theirs");
    assert_int_equal(trajd_file_rename_new(path_of("from"), path_of("free"), &is_sure), 0);
    assert_true(is_sure);
    expect_text(path_of("free"), "mine");
    unlink(path_of("to"));
    unlink(path_of("free"));
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_reading_long_files),
        cmocka_unit_test(test_replacing),
        cmocka_unit_test(test_replacing_over_a_killed_run),
        cmocka_unit_test(test_a_taken_name_stays),
    };
    return cmocka_run_group_tests_name("base/files", tests, make_folder, remove_folder);
}
