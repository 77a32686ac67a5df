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
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/feed/journal.h"
#include "journal_folder.h"
#include "proto/array_len.h"

#define IDLE_DAYS_AT offsetof(struct trajd_journal_head, idle_days)

static struct trajd_journal_state found;

static struct trajd_journal *reopen(bool expect_damaged)
{
    struct trajd_journal *journal = NULL;
    struct trajd_error error = {0};
    bool damaged = !expect_damaged;

    if (trajd_journal_open(journal_folder, "train", "job", &journal, &damaged, &error))
        fail_msg("%s", error.message);
    assert_int_equal(damaged, expect_damaged);
    return journal;
}

static void save(struct trajd_journal *journal)
{
    struct trajd_error error;

    if (trajd_journal_save(journal, &error))
        fail_msg("%s", error.message);
}

static void begin(struct trajd_journal *journal, uint64_t epoch)
{
    static struct trajd_journal_state state;

    state = (struct trajd_journal_state){.key = {11, 22, epoch, 0, 0, 1000, 10}};
    trajd_journal_begin(journal, &state);
    trajd_journal_produce(journal, 0);
    trajd_journal_done(journal, 0); /* there is a file from now on */
    trajd_journal_begin(journal, &state);
    trajd_journal_begin(journal, &state); /* in the second record */
    save(journal);
}

static void path_of_journal(char *path, size_t room)
{
    DIR *folder = opendir(journal_folder);

    assert_non_null(folder);
    path[0] = '\0';
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            snprintf(path, room, "%s/%s", journal_folder, entry->d_name);
    closedir(folder);
    assert_true(path[0]);
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
    assert_int_equal(trajd_journal_flush(journal, NULL), TRAJD_OK);
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

/* Sets in the file on how many days it was found unused, the last of them yesterday. */
static void set_days(const char *path, uint32_t days)
{
    const uint32_t words[2] = {days, (uint32_t)(time(NULL) / 86400) - 1};
    const int fd = open(path, O_RDWR | O_CLOEXEC);

    assert_int_equal(pwrite(fd, words, sizeof words, IDLE_DAYS_AT), sizeof words);
    close(fd);
}

static uint32_t read_days(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint32_t days;

    assert_int_equal(pread(fd, &days, sizeof days, IDLE_DAYS_AT), sizeof days);
    close(fd);
    return days;
}

/* A journal that is only flushed, by a job that waits, is in use: it is noted once an hour. */
static void test_flushes_keep_it_young(void **state)
{
    struct trajd_journal *journal = reopen(false);
    char path[512];
    struct stat status;

    (void)state;
    begin(journal, 3);
    path_of_journal(path, sizeof path);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode, S_IFREG | 0600); /* nobody else reads or changes it */
    for (int hour = 0; hour < 2; hour++) {
        set_days(path, 77);
        for (int second = 0; second < 3600; second++) {
            assert_int_equal(read_days(path), 77);
            assert_int_equal(trajd_journal_flush(journal, NULL), TRAJD_OK);
        }
        assert_int_equal(read_days(path), 0);
    }
    set_days(path, 77);
    trajd_journal_close(&journal);
    assert_int_equal(read_days(path), 0);
    set_days(path, 77);
    journal = reopen(false); /* to open it is to use it */
    assert_int_equal(read_days(path), 0);
    trajd_journal_close(&journal);
}

static void test_one_at_a_time(void **state)
{
    struct trajd_journal *journal = reopen(false), *second = NULL;
    struct trajd_error error = {0};
    bool damaged;

    (void)state;
    begin(journal, 3);
    assert_int_equal(trajd_journal_open(journal_folder, "train", "job", &second, &damaged, &error),
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
        trajd_journal_open(journal_folder, "spec:1/2", "../../etc\nx", &journal, &damaged, &error),
        TRAJD_OK);
    begin(journal, 3);
    trajd_journal_close(&journal);
    path_of_journal(path, sizeof path);
    assert_null(strchr(path + strlen(journal_folder) + 1, '/'));
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
    trajd_journal_close(&journal); /* saves it */
    path_of_journal(path, sizeof path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, good, 12288, 0), 12288);
    for (off_t at = 0; at < 12288; at += at < 24 || (at >= 8192 && at < 8600) ? 1 : 37) {
        uint8_t bad = good[at] ^ 0x40;
        bool damaged = false;
        assert_int_equal(pwrite(fd, &bad, 1, at), 1);
        assert_int_equal(
            trajd_journal_open(journal_folder, "train", "job", &journal, &damaged, NULL), TRAJD_OK);
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
        save(journal);
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

    if (trajd_journal_open(journal_folder, "train", job, &journal, &damaged, &error))
        fail_msg("%s", error.message);
    return journal;
}

/* Notes in all journals that they were found unused on that many days. */
static void age(uint32_t days)
{
    DIR *folder = opendir(journal_folder);
    char path[512];

    for (struct dirent *entry; (entry = readdir(folder));) {
        snprintf(path, sizeof path, "%s/%s", journal_folder, entry->d_name);
        if (entry->d_name[0] != '.' && strchr(entry->d_name, '@'))
            set_days(path, days);
    }
    closedir(folder);
}

static uint32_t sweep(int days)
{
    struct trajd_error error;
    uint32_t removed = 99;

    if (trajd_journal_sweep(journal_folder, days * INT64_C(86400000000000), &removed, &error))
        fail_msg("%s", error.message);
    return removed;
}

static void make_file(const char *name, size_t size_bytes)
{
    static const char bytes[3 * 4096] = "no journal";
    char path[128];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", journal_folder, name);
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
    begin(open, 3);
    begin(gone, 3);
    trajd_journal_close(&gone);
    assert_int_equal(sweep(1), 0); /* it was used today */
    age(8);
    assert_int_equal(sweep(10), 0); /* on the ninth day */
    assert_int_equal(sweep(9), 0);  /* of which this is still one */
    make_file("notes.txt", 10);
    make_file("short.journal", 100);
    make_file("other.journal", 3 * 4096);
    snprintf(path, sizeof path, "%s/link.journal", journal_folder);
    assert_int_equal(symlink("notes.txt", path), 0);
    age(9);
    assert_int_equal(sweep(10), 1); /* only gone's journal: the others are open, or no journals */
    trajd_journal_close(&open);
    assert_int_equal(sweep(1), 0); /* it was closed just now */
    age(9);
    late = open_of("open"); /* and opened again */
    trajd_journal_close(&late);
    assert_int_equal(sweep(1), 0);
    age(9);
    assert_int_equal(sweep(10), 1);
    gone = open_of("gone");
    assert_false(trajd_journal_load(gone, &found)); /* a new one, which is empty */
    begin(gone, 3);
    trajd_journal_close(&gone);
    assert_int_equal(trajd_journal_sweep("/nonexistent", 0, &removed, &error), TRAJD_ERR_IO);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        snprintf(path, sizeof path, "%s/%s", journal_folder, others[i]);
        assert_int_equal(unlink(path), 0);
    }
}

/* A journal that is written while old ones are removed has a file in the folder. */
static void test_opened_during_sweeps(void **state)
{
    const pid_t sweeper = fork();
    struct trajd_journal *last;

    (void)state;
    if (sweeper == 0) {
        for (;;) {
            age(50);
            sweep(1);
        }
    }
    assert_true(sweeper > 0);
    for (int round = 0; round < 2000; round++) {
        struct trajd_journal *journal = NULL;
        struct trajd_error error;
        char path[512];
        bool damaged;
        enum trajd_status status =
            trajd_journal_open(journal_folder, "train", "job", &journal, &damaged, &error);
        if (status == TRAJD_ERR_BUSY) /* it is being removed */
            continue;
        assert_int_equal(status, TRAJD_OK);
        begin(journal, 3);
        path_of_journal(path, sizeof path);
        trajd_journal_close(&journal);
    }
    kill(sweeper, SIGKILL);
    waitpid(sweeper, NULL, 0);
    last = open_of("job");
    begin(last, 3);
    trajd_journal_close(&last);
}

static uint32_t count_files(void)
{
    DIR *folder = opendir(journal_folder);
    uint32_t count = 0;

    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* A job that only opens feeds leaves no file. Each owner has a limited number of files; the oldest
 * ones that are not open are removed. */
static void test_files_of_an_owner_are_limited(void **state)
{
    struct trajd_journal *other, *first = NULL, *kept[TRAJD_JOURNAL_MAX_PER_OWNER];
    static struct trajd_journal_state begun = {.key = {11, 22, 1, 0, 0, 1000, 10}};
    char name[32];

    (void)state;
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "job%d", i);
        first = open_of(name);
        trajd_journal_begin(first, &begun);
        trajd_journal_produce(first, 0);
        trajd_journal_close(&first);
    }
    assert_int_equal(count_files(), 0);
    other = open_of("other");
    trajd_journal_set_owner(other, 1001);
    begin(other, 3);
    trajd_journal_close(&other);
    first = open_of("first");
    begin(first, 3); /* stays open */
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "job%d", i);
        kept[0] = open_of(name);
        begin(kept[0], 3);
        trajd_journal_close(&kept[0]);
    }
    assert_int_equal(count_files(), TRAJD_JOURNAL_MAX_PER_OWNER + 1);
    other = open_of("other");
    assert_true(trajd_journal_load(other, &found));
    trajd_journal_close(&other);
    for (int i = 300 - (int)TRAJD_JOURNAL_MAX_PER_OWNER + 1; i < 300; i++) {
        snprintf(name, sizeof name, "job%d", i);
        kept[300 - i] = open_of(name);
        assert_true(trajd_journal_load(kept[300 - i], &found));
    }
    kept[0] = open_of("one more");
    trajd_journal_begin(kept[0], &begun);
    trajd_journal_produce(kept[0], 0);
    trajd_journal_done(kept[0], 0);
    {
        struct trajd_error error;
        assert_int_equal(trajd_journal_save(kept[0], &error), TRAJD_ERR_BUSY);
        assert_non_null(strstr(error.message, "64"));
        trajd_journal_close(&first); /* now there is room */
        assert_int_equal(trajd_journal_flush(kept[0], &error), TRAJD_OK);
    }
    for (uint32_t i = 0; i < TRAJD_JOURNAL_MAX_PER_OWNER; i++)
        trajd_journal_close(&kept[i]);
    assert_int_equal(count_files(), TRAJD_JOURNAL_MAX_PER_OWNER + 1);
}

/* Another process cuts the file off or removes it at any time. The journal goes on, and a second
 * later its file is complete. */
static void test_cut_off_from_outside(void **state)
{
    struct trajd_journal *journal = reopen(false);
    uint64_t batch = 0;
    char path[512];
    struct stat status;
    pid_t cutter;

    (void)state;
    begin(journal, 3);
    path_of_journal(path, sizeof path);
    cutter = fork();
    assert_true(cutter >= 0);
    if (!cutter)
        for (;;)
            if (truncate(path, 4096 + rand() % 3 * 2000 - 4096))
                _exit(1);
    for (; batch < 90; batch++) {
        trajd_journal_produce(journal, batch);
        trajd_journal_done(journal, batch);
        save(journal);
        trajd_journal_begin(journal,
                            &(struct trajd_journal_state){.key = {11, 22, batch, 0, 0, 1000, 10},
                                                          .high = batch + 1});
        trajd_journal_flush(journal, NULL);
    }
    kill(cutter, SIGKILL);
    waitpid(cutter, NULL, 0);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(trajd_journal_flush(journal, NULL), TRAJD_OK);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, TRAJD_JOURNAL_SIZE_BYTES);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(trajd_journal_flush(journal, NULL), TRAJD_OK);
    trajd_journal_close(&journal);
    journal = reopen(false);
    assert_true(trajd_journal_load(journal, &found));
    assert_int_equal(found.high, 90);
    assert_int_equal(found.undone_count, 0);
    trajd_journal_close(&journal);
}

/* An epoch that cannot be written takes the earlier one of the file away: with it, workers of the
 * new epoch would get too few batches. */
static void test_full_disk(void **state)
{
    struct trajd_journal *journal = reopen(false);
    struct trajd_journal_state begun = {.key = {11, 22, 3, 0, 0, 1000, 10}};
    struct trajd_error error;
    struct rlimit all, none;
    char path[512];

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    begin(journal, 3);
    path_of_journal(path, sizeof path);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    none = all;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    trajd_journal_begin(journal, &begun);
    assert_int_equal(trajd_journal_save(journal, &error), TRAJD_ERR_IO);
    assert_non_null(strstr(error.message, path));
    assert_false(trajd_journal_is_unsaved(journal)); /* only flush tries again */
    trajd_journal_produce(journal, 0);
    trajd_journal_done(journal, 0);
    assert_int_equal(trajd_journal_save(journal, &error), TRAJD_OK);
    assert_int_equal(trajd_journal_flush(journal, &error), TRAJD_ERR_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_int_equal(count_files(), 0);
    assert_int_equal(trajd_journal_flush(journal, &error), TRAJD_OK);
    trajd_journal_close(&journal);
    journal = reopen(false);
    assert_true(trajd_journal_load(journal, &found));
    assert_int_equal(found.high, 1);
    assert_int_equal(found.undone_count, 0);
    trajd_journal_close(&journal);
}

/* A file gets its whole size at once, so that no later write fails for lack of room. What is in a
 * file of that size stays. */
static void test_the_file_gets_its_size_at_once(void **state)
{
    static const off_t sizes[] = {0, 4999, 5000, 5001};
    struct trajd_journal_place place = {0};
    struct trajd_error error;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        FILE *file = tmpfile();
        struct stat status;
        char first = 'x';
        assert_int_equal(pwrite(fileno(file), &first, 1, 0), 1);
        assert_int_equal(ftruncate(fileno(file), sizes[i]), 0);
        assert_int_equal(trajd_journal_file_allocate(&place, fileno(file), 5000, &error), TRAJD_OK);
        assert_int_equal(fstat(fileno(file), &status), 0);
        assert_int_equal(status.st_size, 5000);
        assert_int_equal(pread(fileno(file), &first, 1, 0), 1);
        assert_int_equal(first, sizes[i] == 5000 ? 'x' : 0);
        fclose(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_file_gets_its_size_at_once),
        cmocka_unit_test_setup_teardown(test_remembers, journal_folder_make, journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_flushes_keep_it_young, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_one_at_a_time, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_names_are_harmless, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_damage, journal_folder_make, journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_pages_of_different_ages, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_killed_anywhere, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_old_journals_are_removed, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_opened_during_sweeps, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_files_of_an_owner_are_limited, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_cut_off_from_outside, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_full_disk, journal_folder_make, journal_folder_remove),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
