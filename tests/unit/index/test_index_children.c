/* Child processes that crash, hang, are killed or break the protocol. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/index/helper.h"
#include "daemon/index/record.h"
#include "proto/array_len.h"
#include "tests/support/index_files.h"

/* Kills or stops the child that has `slow.hdf5` open. */
struct killer {
    int signal;
    int times;         /* 0: each such child */
    int oom_score_adj; /* of the last child that it hit */
    int64_t pause_ns;  /* the shortest time after which the file had a child again */
    atomic_bool done;
};

static bool has_file_open(const char *pid, const char *file)
{
    char name[300], target[512];
    DIR *fds;
    bool found = false;

    snprintf(name, sizeof name, "/proc/%s/fd", pid);
    fds = opendir(name);
    for (struct dirent *entry; fds && !found && (entry = readdir(fds));) {
        char link[600];
        ssize_t length;
        snprintf(link, sizeof link, "%s/%s", name, entry->d_name);
        length = readlink(link, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        found = strstr(target, file) != NULL;
    }
    if (fds)
        closedir(fds);
    return found;
}

static int read_number(const char *format, const char *pid)
{
    char name[300];
    int number = 0;
    FILE *file;

    snprintf(name, sizeof name, format, pid);
    file = fopen(name, "r");
    if (file && fscanf(file, "%d", &number) != 1)
        number = 0;
    if (file)
        fclose(file);
    return number;
}

static void *kill_children(void *context)
{
    struct killer *killer = context;
    struct timespec pause = {0, 1000000};
    int64_t hit_ns = 0;
    int killed = 0;

    killer->pause_ns = INT64_MAX;

    for (int hits = 0; (!killer->times || hits < killer->times) && !killer->done;
         nanosleep(&pause, NULL)) {
        char list[128];
        FILE *children;
        bool hit = false;
        snprintf(list, sizeof list, "pgrep -x trajd-indexer -P %d", getpid());
        children = popen(list, "r");
        while (children && !hit && fgets(list, sizeof list, children)) {
            list[strcspn(list, "\n")] = '\0';
            /* the one before may take a moment to die */
            if (atoi(list) != killed && has_file_open(list, "slow.hdf5")) {
                const int64_t waited_ns = trajd_now_ns() - hit_ns;
                if (hit_ns && waited_ns < killer->pause_ns)
                    killer->pause_ns = waited_ns;
                killer->oom_score_adj = read_number("/proc/%s/oom_score_adj", list);
                killed = atoi(list);
                hit_ns = trajd_now_ns();
                kill(killed, killer->signal);
                hit = true;
                hits++;
            }
        }
        if (children)
            pclose(children);
    }
    return NULL;
}

static void a_lost_child_costs_its_file_only(int signal_number, uint32_t timeout_ms,
                                             const char *reason)
{
    char path[512] = "";
    struct trajd_index_options options = options_for(path, "robomimic");
    struct killer killer = {.signal = signal_number, .times = 1};
    struct trajd_index *index;
    pthread_t thread;
    uint32_t refused = 0;

    snprintf(path, sizeof path, "%s/deadly", index_folder);
    options.file_timeout_ms = timeout_ms;
    if (signal_number)
        assert_int_equal(pthread_create(&thread, NULL, kill_children, &killer), 0);
    index = must_open(&options);
    killer.done = true;
    if (signal_number)
        pthread_join(thread, NULL);
    assert_int_equal(index->file_count, 4);
    assert_int_equal(index->kept_count, 6 + 4 + 1);
    for (uint32_t i = 0; i < index->file_count; i++) {
        if (!index->files[i].refusal)
            continue;
        refused++;
        if (strncmp(index->files[i].refusal, "slow.hdf5: ", 11) ||
            !strstr(index->files[i].refusal, reason))
            fail_msg("%s", index->files[i].refusal);
    }
    assert_int_equal(refused, 1);
    trajd_index_destroy(&index);
}

static void crashed_stopped_and_slow_children_are_replaced(void **state)
{
    (void)state;
    make_folder("deadly", "good.hdf5 slow.hdf5 storage.hdf5 zero_width.hdf5");
    /* a signal that no sanitizer handles */
    a_lost_child_costs_its_file_only(SIGABRT, 60000, "killed by signal 6");
    a_lost_child_costs_its_file_only(SIGSTOP, 3000, "took longer than ");
}

static enum trajd_status open_while_killing(struct killer *killer, struct trajd_index **index,
                                            struct trajd_error *error)
{
    char path[512] = "";
    const struct trajd_index_options options = options_for(path, "robomimic");
    enum trajd_status status;
    pthread_t thread;

    snprintf(path, sizeof path, "%s/killed", index_folder);
    assert_int_equal(pthread_create(&thread, NULL, kill_children, killer), 0);
    status = trajd_index_open(&options, index, error);
    killer->done = true;
    pthread_join(thread, NULL);
    return status;
}

/* A kill from outside says nothing about the file. The file is tried again; when its child is
 * killed each time, indexing fails. */
static void killed_children_refuse_no_file(void **state)
{
    static const int signals[] = {SIGINT, SIGKILL};
    struct trajd_error error;
    struct trajd_index *index;

    (void)state;
    make_folder("killed", "good.hdf5 slow.hdf5 storage.hdf5 zero_width.hdf5");
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        struct killer killer = {.signal = signals[i]};
        assert_int_equal(open_while_killing(&killer, &index, &error), TRAJD_ERR_SYSTEM);
        assert_null(index);
        assert_non_null(
            strstr(error.message, "slow.hdf5: the indexing child was killed by signal "));
        assert_non_null(strstr(error.message, " from outside"));
        assert_non_null(strstr(error.message, ", 3 times: is memory full?"));
        assert_true(killer.oom_score_adj >= 800); /* the kernel kills it before its parent */
        assert_true(killer.pause_ns >= 490000000 && killer.pause_ns < INT64_MAX);
    }
    shell("cp %s/less_slow.hdf5 %s/killed/slow.hdf5", index_folder, index_folder);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        struct killer twice = {.signal = signals[i], .times = 2};
        assert_int_equal(open_while_killing(&twice, &index, &error), TRAJD_OK);
        assert_int_equal(index->file_count, 4);
        for (uint32_t f = 0; f < index->file_count; f++)
            if (index->files[f].refusal)
                fail_msg("%s", index->files[f].refusal);
        trajd_index_destroy(&index);
    }
}

/* Indexes a file of index_folder with a script as helper, which sends READY, runs `body`, and sends
 * a record that refuses the file. */
static void index_with_helper(const char *name, const char *body, uint32_t timeout_ms,
                              struct trajd_error *error)
{
    const struct trajd_record record = {.refusal = "seen at last"};
    struct trajd_helper_header ready = {TRAJD_HELPER_MAGIC, TRAJD_HELPER_READY, 0},
                               header = {TRAJD_HELPER_MAGIC, TRAJD_HELPER_RECORD, 0};
    struct trajd_bytes bytes = {0};
    char path[512] = "";
    struct trajd_index_options options = options_for(path, "robomimic");
    struct trajd_index *index;
    char helper[512];
    FILE *file;

    assert_true(trajd_record_encode(&record, &bytes));
    header.length = bytes.length;
    snprintf(path, sizeof path, "%s/timeout_frames", index_folder);
    file = fopen(path, "w");
    assert_int_equal(fwrite(&ready, sizeof ready, 1, file), 1);
    assert_int_equal(fwrite(&header, sizeof header, 1, file), 1);
    assert_int_equal(fwrite(bytes.data, 1, bytes.length, file), bytes.length);
    fclose(file);
    trajd_bytes_free(&bytes);
    snprintf(helper, sizeof helper, "%s/timeout", index_folder);
    file = fopen(helper, "w");
    fprintf(file, "#!/bin/sh\nhead -c %zu %s >&3\n%s\ntail -c +%zu %s >&3\nexec sleep 60\n",
            sizeof ready, path, body, sizeof ready + 1, path);
    fclose(file);
    chmod(helper, 0755);
    snprintf(path, sizeof path, "%s/%s", index_folder, name);
    options.helper_path = helper;
    options.file_timeout_ms = timeout_ms;
    assert_int_equal(trajd_index_open(&options, &index, error), TRAJD_ERR_DATA);
}

/* With slow storage a child waits and reads in turns. It gets more time, but not without limit; a
 * child that only waits or only computes gets no more. */
static void a_child_that_still_reads_gets_more_time(void **state)
{
    char line[512], body[1024];
    struct trajd_error error;
    FILE *file;

    (void)state;
    snprintf(line, sizeof line, "%s/timeout_line", index_folder);
    file = fopen(line, "w");
    fputs("a line\n", file);
    fclose(file);
    snprintf(body, sizeof body, "for i in $(seq 60); do read x <%s; sleep 0.1; done", line);
    index_with_helper("good.hdf5", body, 3000, &error);
    assert_non_null(strstr(error.message, "good.hdf5: seen at last"));
    snprintf(body, sizeof body, "while sleep 0.05; do read x <%s; done", line);
    index_with_helper("good.hdf5", body, 200, &error);
    assert_non_null(strstr(error.message, "good.hdf5: the indexing child took longer than "));
    snprintf(body, sizeof body, "while :; do read x <%s; done", line);
    index_with_helper("good.hdf5", body, 200, &error);
    assert_non_null(strstr(error.message, "good.hdf5: the indexing child took longer than "));
    index_with_helper("good.hdf5", "exec sleep 60", 200, &error);
    assert_non_null(strstr(error.message, "good.hdf5: the indexing child took longer than "));
}

/* The child is killed from outside, so its file is tried again alone. By then the file is empty: it
 * is refused, and nothing is left to do. */
static void a_file_that_is_emptied_before_its_next_attempt(void **state)
{
    struct trajd_error error;
    char body[1024];

    (void)state;
    shell("cp %s/good.hdf5 %s/emptied.hdf5", index_folder, index_folder);
    snprintf(body, sizeof body,
             "until ls -l /proc/$PPID/fd | grep -q emptied.hdf5; do :; done\n"
             ": >%s/emptied.hdf5\nkill -9 $$",
             index_folder);
    index_with_helper("emptied.hdf5", body, 60000, &error);
    assert_non_null(strstr(error.message, "emptied.hdf5: the file is empty (0 bytes)"));
}

/* READY comes once. What comes again is not an answer to a file. */
static void a_child_that_is_ready_twice_is_refused(void **state)
{
    struct trajd_error error;
    char body[1024];

    (void)state;
    snprintf(body, sizeof body, "head -c %zu %s/timeout_frames >&3",
             sizeof(struct trajd_helper_header), index_folder);
    index_with_helper("good.hdf5", body, 5000, &error);
    assert_non_null(
        strstr(error.message, "good.hdf5: the indexing child sent an unexpected frame"));
}

static void a_broken_helper_is_an_error(void **state)
{
    static const char *const bodies[] = {"exit 3",
                                         "printf 'no frame at all, but some bytes' >&3; sleep 1"};
    char helper[512], path[512] = "";
    struct trajd_index_options options = options_for(path, "robomimic");
    struct trajd_index *index;
    struct trajd_error error;

    (void)state;
    snprintf(path, sizeof path, "%s/good.hdf5", index_folder);
    options.helper_path = "/nonexistent/trajd-indexer";
    assert_int_equal(trajd_index_open(&options, &index, &error), TRAJD_ERR_SYSTEM);
    assert_non_null(strstr(error.message, "/nonexistent"));
    snprintf(helper, sizeof helper, "%s/fake", index_folder);
    options.helper_path = helper;
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        FILE *file = fopen(helper, "w");
        fprintf(file, "#!/bin/sh\n%s\n", bodies[i]);
        fclose(file);
        chmod(helper, 0755);
        assert_int_equal(trajd_index_open(&options, &index, &error), TRAJD_ERR_SYSTEM);
        assert_non_null(strstr(error.message, "does not start"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crashed_stopped_and_slow_children_are_replaced),
        cmocka_unit_test(killed_children_refuse_no_file),
        cmocka_unit_test(a_child_that_still_reads_gets_more_time),
        cmocka_unit_test(a_file_that_is_emptied_before_its_next_attempt),
        cmocka_unit_test(a_child_that_is_ready_twice_is_refused),
        cmocka_unit_test(a_broken_helper_is_an_error),
    };

    if (!index_files_choose("make_index_files.py"))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
