/* What libtrajd_live promises to a control loop: no allocation and no system call while rows are pushed
 * and observed, threads side by side, and the same observation over and over. */
#include <linux/seccomp.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "clients/live/trajd_live.h"
#include "tests/support/live_robot.h"

#define MS INT64_C(1000000)

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* ---- counting allocations ---- */

static uint64_t allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void __wrap_free(void *memory);

void *__wrap_malloc(size_t size)
{
    allocations++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    allocations++;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    allocations++;
    return __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    allocations++;
    return __real_aligned_alloc(alignment, size);
}

void __wrap_free(void *memory)
{
    allocations++;
    __real_free(memory);
}

/* ---- a robot ---- */

static struct trajd_live *open_robot(void)
{
    struct trajd_live *live;
    struct trajd_error error;

    if (trajd_live_open_text(live_robot, sizeof live_robot - 1, NULL, &live, &error))
        fail_msg("%s", error.message);
    return live;
}

/* Pushes all rows of millisecond `ms`. */
static enum trajd_status push_ms(struct trajd_live *live, int64_t ms)
{
    const double angle = (double)(ms % 3600000) * 1e-3;
    const double joints[7] = {angle, 2 * angle, 3, 4, 5, 6, 7}, position[3] = {angle, 0, 1},
                 turn[4] = {0, 0, sin(angle / 2), cos(angle / 2)};
    const float force[6] = {(float)angle, 1, 2, 3, 4, 5}, grip = (float)(ms / 20);
    int failed = 0;

    if (ms % 2 == 0) {
        failed |= (int)trajd_live_push(live, LIVE_ROBOT_JOINTS, ms * MS, joints, NULL);
        failed |= (int)trajd_live_push(live, LIVE_ROBOT_POSITION, ms * MS, position, NULL);
        failed |= (int)trajd_live_push(live, LIVE_ROBOT_TURN, ms * MS, turn, NULL);
    }
    failed |= (int)trajd_live_push(live, LIVE_ROBOT_FORCE, (ms + 1) * MS, force, NULL);
    if (ms % 20 == 0)
        failed |= (int)trajd_live_push(live, LIVE_ROBOT_GRIP, ms * MS, &grip, NULL);
    return (enum trajd_status)failed;
}

/* Runs the robot for some milliseconds: rows, and an observation at 50 Hz. Returns the first status
 * that is not OK. */
static enum trajd_status run_robot(struct trajd_live *live, int64_t from_ms, int64_t to_ms,
                                   void *out)
{
    enum trajd_status status = TRAJD_OK;
    struct trajd_error error;

    for (int64_t ms = from_ms; ms < to_ms && !status; ms++) {
        status = push_ms(live, ms);
        if (!status && ms % 20 == 0 && ms >= from_ms + 1000)
            status = trajd_live_observe(live, ms * MS, 0, out, NULL, &error);
    }
    return status;
}

static void what_it_sees_is_right(void **state)
{
    struct trajd_live *live = open_robot();
    struct trajd_live_output info;
    uint8_t *out = malloc(trajd_live_size_bytes(live));
    const float *values;

    (void)state;
    assert_int_equal(trajd_live_stream_count(live), 5);
    assert_int_equal(trajd_live_output_count(live), 4);
    assert_int_equal(trajd_live_find_stream(live, "force"), LIVE_ROBOT_FORCE);
    assert_int_equal(trajd_live_find_stream(live, "horse"), -1);
    assert_int_equal(run_robot(live, 0, 2001, out), TRAJD_OK);
    trajd_live_get_output(live, 0, &info);
    values = (const float *)(out + info.offset_bytes); /* joints[0] = seconds, scaled by 1 */
    for (int t = 0; t < 10; t++)
        assert_float_equal(values[7 * t], 2 - 0.02 * (9 - t), 1e-6);
    assert_float_equal(values[6], 7 * 7 + 1, 0);
    trajd_live_get_output(live, 1,
                          &info); /* the pose of 20 ms before, seen from that of the anchor */
    values = (const float *)(out + info.offset_bytes);
    assert_float_equal(values[0], -0.02 * cos(2), 1e-6);
    assert_float_equal(values[1], 0.02 * sin(2), 1e-6);
    assert_float_equal(values[9 + 3], 1, 1e-6);
    trajd_live_get_output(live, 2, &info); /* the mean of 20 rows up to the anchor */
    values = (const float *)(out + info.offset_bytes);
    assert_float_equal(values[24 * 6], 2 - 0.0095, 1e-6);
    trajd_live_get_output(live, 3, &info);
    assert_float_equal(*(const float *)(out + info.offset_bytes), 100, 0);
    for (uint32_t o = 0; o < 4; o++) {
        trajd_live_get_output(live, o, &info);
        for (uint64_t t = 0; t < info.shape[0]; t++)
            assert_int_equal(out[info.mask_offset_bytes + t], 0);
    }
    free(out);
    trajd_live_close(&live);
    assert_null(live);
}

#define RUN_MS (SANITIZED ? 60000 : 600000)

/* Ten minutes: 600,000 rows of force, 30,000 observations. bench_live runs an hour. */
static void minutes_allocate_nothing(void **state)
{
    struct trajd_live *live = open_robot();
    void *out = malloc(trajd_live_size_bytes(live));
    const uint64_t before = allocations;
    struct trajd_live_counts counts;

    (void)state;
    assert_int_equal(run_robot(live, 0, RUN_MS, out), TRAJD_OK);
    assert_int_equal(allocations, before);
    trajd_live_get_counts(live, LIVE_ROBOT_FORCE, &counts);
    assert_int_equal(counts.taken, RUN_MS);
    assert_true(!counts.late && !counts.repeated && !counts.busy && !counts.off_rate &&
                !counts.off_rate_ns);
    free(out);
    trajd_live_close(&live);
}

/* In strict mode the kernel kills a process that makes a system call other than read, write and
 * exit. */
static void nothing_calls_the_system(void **state)
{
    struct trajd_live *live;
    int status = 0;
    pid_t child;
    void *out;

    (void)state;
    if (SANITIZED)
        skip();
    live = open_robot();
    out = malloc(trajd_live_size_bytes(live));
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
            _exit(77);
        syscall(SYS_exit, (long)run_robot(live, 0, 20000, out));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    free(out);
    trajd_live_close(&live);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip(); /* the machine has no seccomp */
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- threads ---- */

#define SECONDS (SANITIZED ? 3 : 8)

struct sensor {
    struct trajd_live *live;
    uint32_t stream;
    int64_t period_ms;
    const int64_t *seen_ms; /* how far the policy is; it waits for the slowest sensor */
};

static void *push_rows(void *context)
{
    const struct sensor *sensor = context;
    struct trajd_live_stream info;

    trajd_live_get_stream(sensor->live, sensor->stream, &info);
    for (int64_t ms = 0; ms < SECONDS * 1000; ms += sensor->period_ms) {
        double row[7];
        float force[6];
        for (int i = 0; i < 7; i++)
            row[i] = (double)ms * 1e-3;
        for (int i = 0; i < 6; i++)
            force[i] = (float)ms * 1e-3f;
        if (sensor->stream == LIVE_ROBOT_TURN) {
            memset(row, 0, sizeof row);
            row[3] = 1;
        }
        while (ms > __atomic_load_n(sensor->seen_ms, __ATOMIC_ACQUIRE) + 700)
            sched_yield(); /* as far ahead as the history lets the policy look back */
        trajd_live_push(sensor->live, sensor->stream, ms * MS + info.latency_ns,
                        info.dtype == TRAJD_F32 ? (const void *)force : row, NULL);
    }
    return NULL;
}

static void check_observation(const struct trajd_live *live, const uint8_t *out, int64_t ms)
{
    struct trajd_live_output info;
    const float *values;

    trajd_live_get_output(live, 0, &info);
    values = (const float *)(out + info.offset_bytes);
    for (int t = 0; t < 10; t++)
        assert_float_equal(values[7 * t], (double)(ms - 20 * (9 - t)) * 1e-3, 2e-6);
    trajd_live_get_output(live, 2, &info);
    values = (const float *)(out + info.offset_bytes);
    for (int t = 0; t < 25; t++) /* the last mean may still lack rows that come */
        assert_float_equal(values[6 * t], (double)(ms - 20 * (24 - t)) * 1e-3 - 9.5e-3,
                           t < 24 ? 1e-5 : 2e-2);
}

static void sensors_push_while_the_policy_observes(void **state)
{
    struct trajd_live *live = open_robot();
    uint8_t *out = malloc(trajd_live_size_bytes(live));
    int64_t seen_ms = 0;
    struct sensor sensors[] = {{live, LIVE_ROBOT_JOINTS, 2, &seen_ms},
                               {live, LIVE_ROBOT_POSITION, 2, &seen_ms},
                               {live, LIVE_ROBOT_TURN, 2, &seen_ms},
                               {live, LIVE_ROBOT_FORCE, 1, &seen_ms},
                               {live, LIVE_ROBOT_GRIP, 20, &seen_ms}};
    pthread_t threads[5];
    struct trajd_error error;

    (void)state;
    for (int i = 0; i < 5; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, push_rows, &sensors[i]), 0);
    for (int64_t ms = 1000; ms < SECONDS * 1000 - 20; ms += 20) {
        __atomic_store_n(&seen_ms, ms, __ATOMIC_RELEASE);
        for (int i = 0; i < 5;) { /* until each sensor is there */
            struct trajd_live_counts counts;
            trajd_live_get_counts(live, (uint32_t)i, &counts);
            i += counts.newest_ns >= ms * MS;
            if (counts.newest_ns < ms * MS)
                sched_yield();
        }
        if (trajd_live_observe(live, ms * MS, 0, out, NULL, &error))
            fail_msg("%s", error.message);
        check_observation(live, out, ms);
    }
    __atomic_store_n(&seen_ms, INT64_MAX / 2, __ATOMIC_RELEASE);
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    free(out);
    trajd_live_close(&live);
}

/* ---- frames ---- */

/* A camera at 100 Hz whose frames of 24x32 become two steps of 3x8x10: a crop, a filter, the middle of
 * a drawn crop, 2 v + 1. */
static const char live_camera[] =
    "{\"trajd_live\": 1, \"feed\": \"f\", \"dataset\": \"d\", \"fingerprint\": \"0\", "
    "\"norm_digest\": \"0\", \"pad\": \"edge\", \"anchor_clock\": 0, \"anchor_rate\": null, "
    "\"left_out\": [], \"clocks\": [{\"name\": \"camera\", \"rate\": null, \"interval_ns\": "
    "10000000, \"shift_ns\": 0}], \"streams\": [{\"name\": \"camera\", \"clock\": 0, \"dtype\": "
    "\"u8\", \"shape\": [24, 32, 3]}], \"outputs\": [{\"name\": \"obs/camera\", \"role\": \"obs\", "
    "\"hidden\": false, \"dtype\": \"f32\", \"shape\": [2, 3, 8, 10], \"from\": -1, \"rate\": "
    "null, "
    "\"sources\": [{\"stream\": 0, \"columns\": 2304, \"rule\": \"rows\", \"lookahead_ns\": 0, "
    "\"kind\": \"previous\", \"max_gap_ns\": -1, \"max_age_ns\": 9223372036854775807, "
    "\"missing\": \"error\"}], \"picture\": {\"preparation\": {\"source\": [24, 32], \"channels\": "
    "3, "
    "\"type\": \"u8\", \"crop\": [2, 2, 20, 24], \"filter\": \"pillow-bilinear\", \"inner\": [10, "
    "12], "
    "\"corner\": [0, 0], \"output\": [10, 12], \"is_bgr\": true, \"pad_value\": 0}, \"augment\": "
    "[{\"kind\": \"crop\", \"output\": [8, 10], \"excludes_last\": false, \"filter\": "
    "\"pillow-bilinear\", \"box\": \"pixels\", \"ratio\": [1, 1]}], \"finish\": {\"size\": [8, "
    "10], "
    "\"channels\": 3, \"source\": \"u8\", \"type\": \"f32\", \"layout\": \"chw\", \"scale\": [2, "
    "2, "
    "2, 1], \"offset\": [1, 1, 1, 0]}}}]}";

#define FRAMES 3000

struct camera {
    struct trajd_live *live;
    bool is_done; /* the policy has seen enough */
};

/* Pushes frames that are one colour: red n, green n + 1, blue n + 2. */
static void *push_frames(void *context)
{
    struct camera *camera = context;

    for (int64_t n = 0; n < FRAMES || !__atomic_load_n(&camera->is_done, __ATOMIC_ACQUIRE); n++) {
        uint8_t frame[24 * 32 * 3];
        for (size_t i = 0; i < sizeof frame; i++)
            frame[i] = (uint8_t)(n + (int64_t)(i % 3));
        trajd_live_push(camera->live, 0, n * 10 * MS, frame, NULL);
        if (n % 16 == 0)
            sched_yield();
    }
    return NULL;
}

/* Checks both steps: whole frames of neighbouring rows, blue first. */
static void check_frames(const float *values, int64_t anchor_ns)
{
    for (int step = 0; step < 2; step++)
        for (int channel = 0; channel < 3; channel++)
            for (int pixel = 0; pixel < 80; pixel++) {
                const uint8_t level = (uint8_t)(anchor_ns / (10 * MS) - 1 + step + 2 - channel);
                assert_float_equal(values[(3 * step + channel) * 80 + pixel], 2 * level + 1, 0);
            }
}

static void a_camera_pushes_while_the_policy_observes(void **state)
{
    const struct trajd_live_options patient = {.max_anchor_age_ns = INT64_MAX};
    struct camera camera = {0};
    struct trajd_error error;
    pthread_t thread;
    uint64_t before;
    uint8_t *out;

    (void)state;
    if (trajd_live_open_text(live_camera, sizeof live_camera - 1, &patient, &camera.live, &error))
        fail_msg("%s", error.message);
    out = malloc(trajd_live_size_bytes(camera.live));
    assert_int_equal(pthread_create(&thread, NULL, push_frames, &camera), 0);
    before = allocations;
    for (int seen = 0; seen < 200;) {
        int64_t anchor_ns;
        if (trajd_live_observe(camera.live, INT64_C(1) << 60, 0, out, &anchor_ns, &error) ||
            anchor_ns == 0)
            continue; /* no frame yet, or the camera overtook this thread */
        check_frames((const float *)out, anchor_ns);
        seen++;
    }
    assert_int_equal(allocations, before);
    __atomic_store_n(&camera.is_done, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    free(out);
    trajd_live_close(&camera.live);
}

/* ---- sensors that stop ---- */

static void all_sensors_stop(void **state)
{
    const struct trajd_live_options patient = {.max_anchor_age_ns = 1000 * MS};
    struct trajd_live *live = open_robot();
    uint8_t *out = malloc(trajd_live_size_bytes(live));
    struct trajd_error error;
    uint64_t before;

    (void)state;
    assert_int_equal(run_robot(live, 0, 2001, out), TRAJD_OK);
    before = allocations;
    assert_int_equal(trajd_live_observe(live, 2204 * MS, 0, out, NULL, &error), TRAJD_OK);
    assert_int_equal(trajd_live_observe(live, 2204 * MS + 1, 0, out, NULL, &error), TRAJD_ERR_DATA);
    assert_int_equal(allocations, before); /* messages allocate nothing either */
    assert_string_equal(error.message, "joints: its newest row is 204.0 ms old, and max_anchor_age "
                                       "is 204.0 ms: all streams have stopped");
    trajd_live_close(&live);
    assert_int_equal(
        trajd_live_open_text(live_robot, sizeof live_robot - 1, &patient, &live, &error), TRAJD_OK);
    assert_int_equal(run_robot(live, 0, 2001, out), TRAJD_OK);
    assert_int_equal(trajd_live_observe(live, 3000 * MS, 0, out, NULL, &error), TRAJD_OK);
    assert_int_equal(trajd_live_observe(live, 3001 * MS, 0, out, NULL, &error), TRAJD_ERR_DATA);
    free(out);
    trajd_live_close(&live);
}

/* ---- misuse ---- */

static void wrong_calls_are_errors(void **state)
{
    struct trajd_live *live = open_robot();
    uint8_t *out = malloc(trajd_live_size_bytes(live));
    struct trajd_live_options options = {.history_ns = -1};
    const double row[7] = {0};
    struct trajd_error error;
    struct trajd_live *none;

    (void)state;
    assert_int_equal(trajd_live_push(live, 5, 0, row, &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_live_push(live, 0, INT64_MAX, row, &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_live_push(live, 3, INT64_MIN, row, &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_live_observe(live, INT64_MIN, 0, out, NULL, &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_live_observe(live, 0, 0, out, NULL, &error), TRAJD_ERR_TIMEOUT);
    assert_string_equal(error.message, "joints: no row at or before 0 ns has come yet");
    assert_int_equal(trajd_live_push(live, 0, 5, row, &error), TRAJD_OK);
    assert_int_equal(trajd_live_push(live, 0, 5, row, &error), TRAJD_ERR_DATA);
    assert_string_equal(error.message,
                        "joints: the row is not used: it has the stamp of the row before");
    assert_int_equal(trajd_live_push(live, 0, 4, row, NULL), TRAJD_ERR_DATA);
    assert_int_equal(trajd_live_push(live, 0, 3, row, &error), TRAJD_ERR_DATA);
    assert_non_null(strstr(error.message, "its stamp is 2e-09 s before that of the newest row"));
    assert_int_equal(
        trajd_live_open_text(live_robot, sizeof live_robot - 1, &options, &none, &error),
        TRAJD_ERR_ARGUMENT);
    assert_null(none);
    assert_int_equal(trajd_live_open_text("{}", 2, NULL, &none, &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_live_open_text(live_robot, sizeof live_robot - 1, NULL, &none, &error),
                     TRAJD_OK);
    assert_non_null(strstr(error.message, "has no digest")); /* it is of version 1 */
    trajd_live_close(&none);
    assert_int_equal(trajd_live_open("/nonexistent/a.live", NULL, &none, &error),
                     TRAJD_ERR_NOT_FOUND);
    free(out);
    trajd_live_close(&live);
    trajd_live_close(&live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_sees_is_right),
        cmocka_unit_test(minutes_allocate_nothing),
        cmocka_unit_test(nothing_calls_the_system),
        cmocka_unit_test(sensors_push_while_the_policy_observes),
        cmocka_unit_test(a_camera_pushes_while_the_policy_observes),
        cmocka_unit_test(all_sensors_stop),
        cmocka_unit_test(wrong_calls_are_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
