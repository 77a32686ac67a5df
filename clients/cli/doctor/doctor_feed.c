/* The self test: a daemon of its own, a feed of a small file, and a worker in this process. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clients/c/trajd.h"
#include "clients/cli/doctor/doctor.h"
#include "daemon/base/clock.h"
#include "daemon/base/files.h"
#include "daemon/base/memory.h"

enum {
    READY_TIMEOUT_MS = 60000,
    OPEN_TIMEOUT_MS = 10000,
    NEXT_TIMEOUT_MS = 5000,
    STEPS = 16, /* of a window of actions */
    BATCH = 256,
    SAMPLES = 65536,
    LOG_BYTES = 1 << 20,
    LOG_LINES = 3,
    READY_FD = 3,
    STOP_SLICES = 100, /* of SLICE_MS, until a daemon is killed */
    SLICE_MS = 100,
};

/* Slower than this is unusual: two busy cores of 2019 make ten times as many windows. */
#define WINDOWS_PER_SECOND_SLOW 50000.0
#define HAND_OVER_SLOW_US 5000.0

struct test {
    struct doctor *doctor;
    char folder[DOCTOR_PATH_SIZE];
    pid_t pid;
    uint64_t batches, windows;
    uint32_t *hand_over_us; /* of the last SAMPLES batches */
};

static bool has_signal; /* set by a signal */

static void on_signal(int number)
{
    (void)number;
    __atomic_store_n(&has_signal, true, __ATOMIC_RELAXED);
}

static bool is_interrupted(void *context)
{
    (void)context;
    return __atomic_load_n(&has_signal, __ATOMIC_RELAXED);
}

/* Writes FOLDER/NAME to `path`. */
static const char *file_in(const struct test *test, const char *name, char path[DOCTOR_PATH_SIZE])
{
    snprintf(path, DOCTOR_PATH_SIZE, "%.*s/%s", DOCTOR_PATH_SIZE - 32, test->folder, name);
    return path;
}

/* ---- programs ---- */

/* Starts a program. Its output goes to `output`; READY_FD is `ready` unless that is negative.
 * Returns its pid, or -1 with errno. */
static pid_t spawn(const char *const *arguments, int output, int ready)
{
    posix_spawn_file_actions_t actions;
    pid_t pid = -1;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    if (ready >= 0)
        posix_spawn_file_actions_adddup2(&actions, ready, READY_FD);
    errno = posix_spawn(&pid, arguments[0], &actions, NULL, (char *const *)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return errno ? -1 : pid;
}

bool doctor_read_output(const char *const *arguments, char *output, size_t size)
{
    int ends[2], status = 1;
    FILE *stream;
    pid_t pid;

    *output = '\0';
    if (pipe2(ends, O_CLOEXEC))
        return false;
    pid = spawn(arguments, ends[1], -1);
    close(ends[1]);
    stream = trajd_memory_or_exit(fdopen(ends[0], "r"));
    output[fread(output, 1, size - 1, stream)] = '\0';
    while (getc(stream) != EOF) /* to its end, so that the program can write all */
        continue;
    fclose(stream);
    return pid > 0 && waitpid(pid, &status, 0) == pid && !status;
}

/* Stops the daemon with SIGTERM, and after ten seconds with SIGKILL. */
static void stop(pid_t pid)
{
    pid_t gone = 0;

    kill(pid, SIGTERM);
    for (int i = 0; i < STOP_SLICES && !gone; i++) {
        gone = waitpid(pid, NULL, WNOHANG);
        if (!gone)
            poll(NULL, 0, SLICE_MS);
    }
    if (!gone) {
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
}

/* ---- the daemon ---- */

static bool write_config(const struct test *test, bool with_gpu)
{
    char path[DOCTOR_PATH_SIZE];
    FILE *file = fopen(file_in(test, "trajd.yaml", path), "we");

    if (!file)
        return false;
    fprintf(file,
            "version: 2\nruntime: run\nexit_idle: 60s\n"
            "memory: {store: %dMiB, rings: %dMiB, reserve: %dMiB}\n"
            "limits: {sessions: 16}\n"
            "datasets: {doctor: {path: doctor.hdf5, layout: robomimic}}\n"
            "feeds:\n  doctor:\n    {dataset: doctor, global_batch: %d, anchor: {clock: actions},\n"
            "     pad: {before: any, after: any, with: edge},\n"
            "     outputs: {actions: {at: 0..%d}, obs/position: {at: -1..0}}}\n%s",
            DOCTOR_STORE_MIB, DOCTOR_RINGS_MIB, DOCTOR_RESERVE_MIB, BATCH, STEPS - 1,
            with_gpu ? "gpu: {devices: all, rows: 64MiB, rings: 64MiB, fall_back: true}\n" : "");
    return fclose(file) == 0;
}

/* Adds a finding with the last lines of the daemon's log. */
static void fail_with_log(struct test *test, const char *what)
{
    char path[DOCTOR_PATH_SIZE], *log = NULL, *begin;
    size_t length = 0;
    struct trajd_error error;
    int lines = 0;

    trajd_file_read(file_in(test, "log", path), LOG_BYTES, &log, &length, &error);
    while (length && log[length - 1] == '\n')
        log[--length] = '\0';
    begin = log ? log + length : NULL;
    while (begin && begin > log && lines < LOG_LINES)
        lines += *--begin == '\n';
    while (begin && *begin == '\n')
        begin++;
    doctor_add(test->doctor, DOCTOR_FAIL, "selftest", "%s%s%s", what,
               begin ? ". Its log ends: " : "", begin ? begin : "");
    free(log);
}

/* Waits until the daemon writes to the pipe, and closes it. Returns false if the daemon closes its
 * end, or after the time. */
static bool wait_until_ready(int pipe_end)
{
    struct pollfd wait = {.fd = pipe_end, .events = POLLIN};
    char byte;
    const bool is_ready = poll(&wait, 1, READY_TIMEOUT_MS) == 1 && read(pipe_end, &byte, 1) == 1;

    close(pipe_end);
    return is_ready;
}

/* Starts the daemon. Returns the end of a pipe to which it writes when it is ready, or -1. */
static int start_daemon(struct test *test)
{
    char config[DOCTOR_PATH_SIZE], path[DOCTOR_PATH_SIZE];
    const char *const arguments[] = {
        test->doctor->daemon, "--config", file_in(test, "trajd.yaml", config),
        "--ready-fd",         "3",        NULL};
    int log, ends[2];

    log = open(file_in(test, "log", path), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0 || pipe2(ends, O_CLOEXEC)) {
        if (log >= 0)
            close(log);
        return -1;
    }
    test->pid = spawn(arguments, log, ends[1]);
    close(log);
    close(ends[1]);
    if (test->pid > 0)
        return ends[0];
    close(ends[0]);
    return -1;
}

/* Returns whether the daemon is ready, or adds a finding. */
static bool begin(struct test *test)
{
    char path[DOCTOR_PATH_SIZE];
    bool is_ready;
    int pipe_end;

    if (!doctor_write_hdf5(file_in(test, "doctor.hdf5", path)) ||
        !write_config(test, *test->doctor->gpu)) {
        doctor_add(test->doctor, DOCTOR_FAIL, "selftest", "%s: no file can be written: %s",
                   test->folder, strerror(errno));
        return false;
    }
    pipe_end = start_daemon(test);
    if (pipe_end < 0) {
        doctor_add(test->doctor, DOCTOR_FAIL, "selftest", "%s: %s", test->doctor->daemon,
                   strerror(errno));
        return false;
    }
    is_ready = wait_until_ready(pipe_end);
    if (is_interrupted(NULL))
        doctor_add(test->doctor, DOCTOR_FAIL, "selftest", "interrupted");
    else if (!is_ready)
        fail_with_log(test, "the daemon of the self test does not start");
    return is_ready && !is_interrupted(NULL);
}

/* ---- the worker ---- */

/* Compares a batch with the file. Returns false if a value is wrong. */
static bool is_right(const struct trajd_batch *batch)
{
    const struct trajd_tensor *actions = trajd_batch_find(batch, "actions"),
                              *position = trajd_batch_find(batch, "obs/position");
    const int last = DOCTOR_ROWS - 1; /* is repeated after the end */
    const float *action, *now;

    if (!actions || !position || actions->rank != 3 || position->rank != 3 ||
        actions->dtype != TRAJD_F32 || position->dtype != TRAJD_F32 || actions->shape[1] != STEPS ||
        actions->shape[2] != DOCTOR_ACTIONS || position->shape[1] != 2 ||
        position->shape[2] != DOCTOR_POSITIONS)
        return false;
    action = actions->data;
    now = position->data;
    for (uint64_t b = 0; b < actions->shape[0]; b++) {
        const int at = (int)now[(b * 2 + 1) * DOCTOR_POSITIONS], episode = at / 1000;
        if (at < 0 || episode >= DOCTOR_EPISODES || at % 1000 >= DOCTOR_ROWS)
            return false;
        for (int t = 0; t < STEPS; t++)
            for (int d = 0; d < DOCTOR_ACTIONS; d++)
                if (action[(b * STEPS + (uint64_t)t) * DOCTOR_ACTIONS + (uint64_t)d] !=
                    doctor_value(episode, at % 1000 + t < last ? at % 1000 + t : last, d))
                    return false;
    }
    return true;
}

static void note_batch(struct test *test, const struct trajd_batch *batch)
{
    struct trajd_batch_info info;
    const uint64_t now_ns = (uint64_t)trajd_now_ns();

    trajd_batch_get_info(batch, &info);
    test->hand_over_us[test->batches++ % SAMPLES] =
        now_ns > info.ready_ns ? (uint32_t)((now_ns - info.ready_ns) / 1000) : 0;
    test->windows += info.row_count;
}

/* Reads epochs for the time. Returns false after a finding. */
static bool read_feed(struct test *test, struct trajd_client *client,
                      struct trajd_open_options options, uint64_t seconds)
{
    const int64_t end_ns = trajd_now_ns() + (int64_t)seconds * INT64_C(1000000000);
    enum trajd_status status = TRAJD_OK;
    struct trajd_batch *batch = NULL;
    struct trajd_error error;
    bool is_good = true;

    while (!status && is_good && !is_interrupted(NULL) && trajd_now_ns() < end_ns) {
        status = trajd_client_next(client, NEXT_TIMEOUT_MS, &batch, &error);
        if (status == TRAJD_END_OF_EPOCH) {
            options.epoch++;
            status = trajd_client_open(client, &options, &error);
            continue;
        }
        if (status)
            break;
        note_batch(test, batch);
        is_good = trajd_batch_gpu(batch) >= 0 || is_right(batch);
        trajd_batch_release(&batch);
    }
    if (is_interrupted(NULL))
        doctor_add(test->doctor, DOCTOR_FAIL, "selftest", "interrupted");
    else if (status)
        fail_with_log(test, error.message);
    else if (!is_good)
        doctor_add(test->doctor, DOCTOR_FAIL, "selftest",
                   "a batch has wrong values: memory, a disk or this build is faulty");
    return !status && is_good && !is_interrupted(NULL);
}

/* Connects and opens the feed. Returns NULL after a finding. */
static struct trajd_client *open_feed(struct test *test, const struct trajd_open_options *feed)
{
    char endpoint[DOCTOR_PATH_SIZE];
    const struct trajd_connect_options options = {.endpoint = file_in(test, "run", endpoint),
                                                  .client_name = "trajctl doctor",
                                                  .interrupted = is_interrupted};
    struct trajd_client *client = NULL;
    struct trajd_error error;

    if (trajd_client_connect(&options, &client, &error) ||
        trajd_client_open(client, feed, &error)) {
        fail_with_log(test, error.message);
        trajd_client_close(&client);
    }
    return client;
}

static int compare(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

static void report_figures(struct test *test)
{
    const uint64_t count = test->batches < SAMPLES ? test->batches : SAMPLES;
    const double rate = (double)test->windows / (double)test->doctor->seconds;
    double p50 = 0, p99 = 0;

    qsort(test->hand_over_us, count, sizeof *test->hand_over_us, compare);
    if (count > 0) {
        p50 = test->hand_over_us[count / 2];
        p99 = test->hand_over_us[(count - 1) * 99 / 100];
    }
    doctor_add(
        test->doctor, rate < WINDOWS_PER_SECOND_SLOW ? DOCTOR_SLOW : DOCTOR_OK, "selftest",
        "%llu s, %llu batches with the right values, %.0f windows/s%s",
        (unsigned long long)test->doctor->seconds, (unsigned long long)test->batches, rate,
        rate < WINDOWS_PER_SECOND_SLOW
            ? ": less than 50000. Other programs use the processors, or a limit of the control "
              "group (cpu.max) holds the daemon back"
            : "");
    doctor_add(
        test->doctor, p99 > HAND_OVER_SLOW_US ? DOCTOR_SLOW : DOCTOR_OK, "handover",
        "from ready until the worker has the batch, with its time in the queue: p50 %.0f us, p99 "
        "%.0f us%s",
        p50, p99,
        p99 > HAND_OVER_SLOW_US ? ". More than 5000 us: processes wait for a processor here" : "");
}

static void test_host(struct test *test)
{
    const struct trajd_open_options options = {.feed = "doctor", .timeout_ms = OPEN_TIMEOUT_MS};
    struct trajd_client *client = open_feed(test, &options);

    if (client && read_feed(test, client, options, test->doctor->seconds))
        report_figures(test);
    trajd_client_close(&client);
}

/* Opens the feed on the GPU, and reads some batches: the IPC of the driver works, or a finding says
 * why not. */
static void test_gpu(struct test *test)
{
    const char *uuid = test->doctor->gpu;
    const struct trajd_open_options options = {
        .feed = "doctor", .job = "gpu", .gpu = uuid, .timeout_ms = OPEN_TIMEOUT_MS};
    struct trajd_client *client = open_feed(test, &options);

    if (client && !trajd_client_feed_info(client)->gpu)
        doctor_add(test->doctor, DOCTOR_SLOW, "gpu-ipc",
                   "batches come in host memory and are copied to the GPU: %s",
                   trajd_client_feed_info(client)->gpu_refusal);
    else if (client && read_feed(test, client, options, 1))
        doctor_add(test->doctor, DOCTOR_OK, "gpu-ipc", "the daemon's batches are read on GPU %s",
                   uuid);
    trajd_client_close(&client);
    test->batches = test->windows = 0;
}

/* ---- the folder ---- */

static int remove_entry(const char *path, const struct stat *found, int kind, struct FTW *place)
{
    (void)found;
    (void)kind;
    (void)place;
    return remove(path);
}

void doctor_check_feed(struct doctor *doctor)
{
    const struct sigaction action = {.sa_handler = on_signal};
    struct test test = {.doctor = doctor};

    if (!*doctor->daemon || !doctor->seconds)
        return;
    if (snprintf(test.folder, sizeof test.folder, "%s/trajd-doctor-XXXXXX", doctor->runtime) >=
            (int)sizeof test.folder ||
        !mkdtemp(test.folder)) {
        doctor_add(doctor, DOCTOR_FAIL, "selftest", "%s: no folder can be made: %s",
                   doctor->runtime, strerror(errno));
        return;
    }
    test.hand_over_us = trajd_memory_or_exit(malloc(SAMPLES * sizeof *test.hand_over_us));
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (begin(&test)) {
        if (*doctor->gpu)
            test_gpu(&test);
        test_host(&test);
    }
    if (test.pid > 0)
        stop(test.pid);
    nftw(test.folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(test.hand_over_us);
}
