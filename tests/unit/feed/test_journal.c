/* The journal: its state after the death of its writer, and damaged files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/feed/journal.h"
#include "proto/array_len.h"

static char directory[] = "/tmp/trajd-journal-XXXXXX";
static struct trajd_journal_state found;

static struct trajd_journal *reopen(bool expect_damaged)
{
    struct trajd_journal *journal = NULL;
    struct trajd_error error = {0};
    bool damaged = !expect_damaged;

    if (trajd_journal_open(directory, "train", "job", &journal, &damaged, &error))
        fail_msg("%s", error.message);
    assert_int_equal(damaged, expect_damaged);
    return journal;
}

static void begin(struct trajd_journal *journal, uint64_t epoch)
{
    static struct trajd_journal_state state;

    state = (struct trajd_journal_state){.key = {11, 22, epoch, 0, 0, 1000, 10}};
    trajd_journal_begin(journal, &state);
}

static void path_of_journal(char *path, size_t room)
{
    DIR *folder = opendir(directory);

    assert_non_null(folder);
    path[0] = '\0';
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            snprintf(path, room, "%s/%s", directory, entry->d_name);
    closedir(folder);
    assert_true(path[0]);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/trajd-journal-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int tear_down(void **state)
{
    char path[512];

    (void)state;
    path_of_journal(path, sizeof path);
    unlink(path);
    return rmdir(directory);
}

static void test_remembers(void **state)
{
    struct trajd_journal *journal = reopen(false);

    (void)state;
    assert_false(trajd_journal_load(journal, &found));
    begin(journal, 3);
    for (uint64_t batch = 0; batch < 6; batch++)
        trajd_journal_produce(journal, batch);
    trajd_journal_done(journal, 0);
    trajd_journal_done(journal, 4);
    trajd_journal_done(journal, 4); /* a repeated one and an unknown one change nothing */
    trajd_journal_done(journal, 77);
    trajd_journal_flush(journal);
    trajd_journal_close(&journal);
    assert_null(journal);
    journal = reopen(false);
    assert_true(trajd_journal_load(journal, &found));
    assert_int_equal(found.key.epoch, 3);
    assert_int_equal(found.high, 6);
    assert_int_equal(found.undone_count, 4);
    assert_int_equal(found.undone[0], 1);
    assert_int_equal(found.undone[3], 5);
    begin(journal, 4); /* the other record */
    trajd_journal_close(&journal);
    journal = reopen(false);
    assert_true(trajd_journal_load(journal, &found));
    assert_int_equal(found.key.epoch, 4);
    assert_int_equal(found.high, 0);
    assert_int_equal(found.undone_count, 0);
    trajd_journal_close(&journal);
}

/* The sweep removes journals by their age. A journal that is only flushed, by a job that waits, is
 * in use: its time of change moves once an hour. */
static void test_flushes_keep_it_young(void **state)
{
    const struct timespec old[2] = {{1000, 0}, {1000, 0}};
    struct trajd_journal *journal = reopen(false);
    char path[512];
    struct stat status;

    (void)state;
    begin(journal, 3);
    path_of_journal(path, sizeof path);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode, S_IFREG | 0600); /* nobody else reads or changes it */
    for (int hour = 0; hour < 2; hour++) {
        assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
        for (int second = 0; second < 3600; second++) {
            assert_int_equal(stat(path, &status), 0);
            assert_int_equal(status.st_mtime, 1000);
            trajd_journal_flush(journal);
        }
        assert_int_equal(stat(path, &status), 0);
        assert_true(status.st_mtime > 1000);
    }
    trajd_journal_close(&journal);
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    journal = reopen(false); /* to open it is to use it */
    assert_int_equal(stat(path, &status), 0);
    assert_true(status.st_mtime > 1000);
    trajd_journal_close(&journal);
}

static void test_one_at_a_time(void **state)
{
    struct trajd_journal *journal = reopen(false), *second = NULL;
    struct trajd_error error = {0};
    bool damaged;

    (void)state;
    assert_int_equal(trajd_journal_open(directory, "train", "job", &second, &damaged, &error),
                     TRAJD_ERR_BUSY);
    assert_null(second);
    trajd_journal_close(&journal);
    assert_int_equal(trajd_journal_open("/nonexistent", "train", "job", &second, &damaged, &error),
                     TRAJD_ERR_IO);
    assert_non_null(strstr(error.message, "/nonexistent"));
}

static void test_names_are_harmless(void **state)
{
    struct trajd_journal *journal = NULL;
    struct trajd_error error = {0};
    char path[512];
    bool damaged;

    (void)state;
    assert_int_equal(
        trajd_journal_open(directory, "spec:1/2", "../../etc\nx", &journal, &damaged, &error),
        TRAJD_OK);
    trajd_journal_close(&journal);
    path_of_journal(path, sizeof path);
    assert_null(strchr(path + strlen(directory) + 1, '/'));
    assert_null(strchr(path, '\n'));
}

/* Changes each byte of the file in turn: the damage is noticed, or the state is the same. */
static void test_damage(void **state)
{
    struct trajd_journal *journal = reopen(false);
    uint8_t *good = malloc(12288);
    uint32_t noticed = 0;
    char path[512];
    int fd;

    (void)state;
    assert_non_null(good);
    begin(journal, 3);
    for (uint64_t batch = 0; batch < 5; batch++)
        trajd_journal_produce(journal, batch);
    trajd_journal_done(journal, 2);
    trajd_journal_close(&journal);
    path_of_journal(path, sizeof path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, good, 12288, 0), 12288);
    for (off_t at = 0; at < 12288; at += at < 24 || (at >= 8192 && at < 8600) ? 1 : 37) {
        uint8_t bad = good[at] ^ 0x40;
        bool damaged = false;
        assert_int_equal(pwrite(fd, &bad, 1, at), 1);
        assert_int_equal(trajd_journal_open(directory, "train", "job", &journal, &damaged, NULL),
                         TRAJD_OK);
        noticed += damaged;
        if (damaged) {
            assert_false(trajd_journal_load(journal, &found));
        } else {
            assert_true(trajd_journal_load(journal, &found));
            assert_int_equal(found.high, 5);
            assert_int_equal(found.undone_count, 4);
        }
        trajd_journal_close(&journal);
        assert_int_equal(pwrite(fd, good, 12288, 0), 12288);
    }
    assert_true(noticed > 300);
    assert_int_equal(ftruncate(fd, 5000), 0);
    journal = reopen(true);
    assert_false(trajd_journal_load(journal, &found));
    trajd_journal_close(&journal);
    close(fd);
    free(good);
}

/* Death of the host: the switch to the new record is on the disk, but the record is not. Its page
 * has the record of two runs before. */
static void test_pages_of_different_ages(void **state)
{
    struct trajd_journal *journal = reopen(false);
    uint8_t page[4096];
    char path[512];
    int fd;

    (void)state;
    begin(journal, 3);
    for (uint64_t batch = 0; batch < 5; batch++)
        trajd_journal_produce(journal, batch);
    for (uint64_t batch = 0; batch < 5; batch++)
        trajd_journal_done(journal, batch);
    trajd_journal_close(&journal);
    path_of_journal(path, sizeof path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, page, sizeof page, 2 * 4096), sizeof page);
    journal = reopen(false);
    begin(journal, 3); /* begins the same epoch again, twice */
    begin(journal, 3);
    trajd_journal_close(&journal);
    assert_int_equal(pwrite(fd, page, sizeof page, 2 * 4096), sizeof page);
    close(fd);
    journal = reopen(true);
    assert_false(trajd_journal_load(journal, &found));
    trajd_journal_close(&journal);
}

/* A child works through an epoch and writes to a pipe what is DONE. It is killed at any point. */
static void work(int fd)
{
    struct trajd_journal *journal = reopen(false);
    static struct trajd_journal_state state;

    state = (struct trajd_journal_state){.key = {11, 22, 1, 0, 0, 1000000, 1}};
    trajd_journal_begin(journal, &state);
    for (uint64_t batch = 0; batch < 1000000; batch++) {
        trajd_journal_produce(journal, batch);
        if (batch < 5)
            continue;
        uint64_t done =
            batch % 2 ? batch : batch - 2; /* out of order; the first ones never become DONE */
        trajd_journal_done(journal, done);
        if (write(fd, &done, sizeof done) != sizeof done)
            break;
    }
    _exit(0);
}

static void test_killed_anywhere(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 20; round++) {
        struct trajd_journal *journal;
        uint64_t done, reported = 0;
        int ends[2];
        pid_t child;
        assert_int_equal(pipe(ends), 0);
        child = fork();
        assert_true(child >= 0);
        if (!child)
            work(ends[1]);
        close(ends[1]);
        for (unsigned i = 0; i < 50 + 37 * round; i++)
            assert_int_equal(read(ends[0], &done, sizeof done), sizeof done);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        journal = reopen(false);
        assert_true(trajd_journal_load(journal, &found));
        while (read(ends[0], &done, sizeof done) == sizeof done) { /* what it had written */
            reported++;
            assert_true(done < found.high);
            for (uint32_t i = 0; i < found.undone_count; i++)
                assert_int_not_equal(found.undone[i], done);
        }
        assert_true(reported <= found.high);
        trajd_journal_close(&journal);
        close(ends[0]);
    }
}

static struct trajd_journal *open_of(const char *job)
{
    struct trajd_journal *journal = NULL;
    struct trajd_error error;
    bool damaged;

    if (trajd_journal_open(directory, "train", job, &journal, &damaged, &error))
        fail_msg("%s", error.message);
    return journal;
}

/* Sets the times of all files in the folder to `days` ago. */
static void age(int days)
{
    const struct timespec times[2] = {{time(NULL) - days * 86400, 0},
                                      {time(NULL) - days * 86400, 0}};
    DIR *folder = opendir(directory);

    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            assert_int_equal(utimensat(dirfd(folder), entry->d_name, times, AT_SYMLINK_NOFOLLOW),
                             0);
    closedir(folder);
}

static uint32_t sweep(int days)
{
    struct trajd_error error;
    uint32_t removed = 99;

    if (trajd_journal_sweep(directory, days * INT64_C(86400000000000), &removed, &error))
        fail_msg("%s", error.message);
    return removed;
}

static void make_file(const char *name, size_t size_bytes)
{
    static const char bytes[3 * 4096] = "no journal";
    char path[128];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size_bytes, file), size_bytes);
    fclose(file);
}

static void test_old_journals_are_removed(void **state)
{
    struct trajd_journal *open = open_of("open"), *gone = open_of("gone"), *late;
    struct trajd_error error;
    static const char *const others[] = {"notes.txt", "short.journal", "other.journal",
                                         "link.journal"};
    char path[128];
    uint32_t removed;

    (void)state;
    begin(gone, 3);
    trajd_journal_close(&gone);
    assert_int_equal(sweep(10), 0);
    age(9);
    assert_int_equal(sweep(10), 0);
    age(-9); /* the clock was ahead */
    assert_int_equal(sweep(10), 0);
    make_file("notes.txt", 10);
    make_file("short.journal", 100);
    make_file("other.journal", 3 * 4096);
    snprintf(path, sizeof path, "%s/link.journal", directory);
    assert_int_equal(symlink("notes.txt", path), 0);
    age(11);
    assert_int_equal(sweep(10), 1); /* only gone's journal: the others are open, or no journals */
    trajd_journal_close(&open);
    assert_int_equal(sweep(10), 0); /* it was closed just now */
    age(11);
    late = open_of("open"); /* and opened again */
    trajd_journal_close(&late);
    assert_int_equal(sweep(10), 0);
    age(11);
    assert_int_equal(sweep(10), 1);
    gone = open_of("gone");
    assert_false(trajd_journal_load(gone, &found)); /* a new one, which is empty */
    trajd_journal_close(&gone);
    assert_int_equal(trajd_journal_sweep("/nonexistent", 0, &removed, &error), TRAJD_ERR_IO);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        snprintf(path, sizeof path, "%s/%s", directory, others[i]);
        assert_int_equal(unlink(path), 0);
    }
}

/* A journal that is opened while old ones are removed has a file in the folder. */
static void test_opened_during_sweeps(void **state)
{
    const pid_t sweeper = fork();
    struct trajd_journal *last;

    (void)state;
    if (sweeper == 0) {
        for (;;)
            sweep(-1); /* all of them are older than tomorrow */
    }
    assert_true(sweeper > 0);
    for (int round = 0; round < 2000; round++) {
        struct trajd_journal *journal = NULL;
        struct trajd_error error;
        char path[512];
        bool damaged;
        enum trajd_status status =
            trajd_journal_open(directory, "train", "job", &journal, &damaged, &error);
        if (status == TRAJD_ERR_BUSY) /* it is being removed */
            continue;
        assert_int_equal(status, TRAJD_OK);
        path_of_journal(path, sizeof path);
        trajd_journal_close(&journal);
    }
    kill(sweeper, SIGKILL);
    waitpid(sweeper, NULL, 0);
    last = open_of("job"); /* tear_down needs one */
    trajd_journal_close(&last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_remembers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_flushes_keep_it_young, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_at_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names_are_harmless, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pages_of_different_ages, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_killed_anywhere, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_old_journals_are_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_opened_during_sweeps, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
