/* Prepared frames on the stand-in GPU: their share of the budget, who shares them, and frames that
 * two feeds add at once. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/producer/gpu_frames.h"
#include "unit/producer/small_dataset.h"

#define MIB (UINT64_C(1) << 20)
#define FRAMES (SMALL_EPISODES * SMALL_ROWS)

struct fixture {
    struct small_dataset *small;
    struct trajd_gpu *gpu;
    struct trajd_error error;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    f->small = small_dataset_create("small", MIB);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    trajd_gpu_close(&f->gpu);
    small_dataset_destroy(&f->small);
    free(f);
    return 0;
}

static void open_gpu(struct fixture *f, uint64_t rows_bytes)
{
    const struct trajd_gpu_options options = {.rows_bytes = rows_bytes, .rings_bytes = MIB};

    if (trajd_gpu_open(&options, &f->gpu, &f->error))
        fail_msg("%s", f->error.message);
}

/* Views differ by their addresses alone. */
static struct trajd_gpu_frames *open_frames(struct fixture *f, const void *view, uint64_t bytes)
{
    struct trajd_gpu_frames *frames;

    if (trajd_gpu_frames_open(f->gpu, &f->small->dataset, 0, view, bytes, &frames, &f->error))
        fail_msg("%s", f->error.message);
    return frames;
}

static void expect_described(struct fixture *f, const char *part)
{
    char text[2048];
    struct trajd_json json = {.out = fmemopen(text, sizeof text, "w")};

    trajd_gpu_describe(f->gpu, &json);
    fclose(json.out);
    if (!strstr(text, part))
        fail_msg("%s lacks %s", text, part);
}

static void frames_are_found_once_they_are_added(void **state)
{
    struct fixture *f = *state;
    struct trajd_frame_use uses[] = {{.episode_index = 1, .row = 3}, {.row = 0}, {.row = 7}};

    open_gpu(f, MIB);
    struct trajd_gpu_frames *frames = open_frames(f, f, 100);
    assert_true(trajd_gpu_frames_fit(frames));
    assert_int_equal(trajd_gpu_frames_stride(frames), 256);
    assert_null(trajd_gpu_frames_find(frames, 1, 3));
    void *memory = trajd_gpu_frames_take(frames);
    assert_null(trajd_gpu_frames_find(frames, 1, 3)); /* taken, and not there yet */
    assert_true(trajd_gpu_frames_add(frames, 1, 3, memory));
    assert_ptr_equal(trajd_gpu_frames_find(frames, 1, 3), memory);
    assert_null(trajd_gpu_frames_find(frames, 0, 3));
    assert_null(trajd_gpu_frames_find(frames, 0, SMALL_ROWS)); /* no such row */
    assert_int_equal(trajd_gpu_frames_select_absent(frames, uses, 3), 2);
    assert_int_equal(uses[0].row, 0);
    assert_int_equal(uses[1].row, 7);
    expect_described(f, "\"bytes\":10240,\"place\":\"gpu\",\"feeds\":1,\"frames\":40,"
                        "\"resident_frames\":1");
    trajd_gpu_frames_close(&frames);
    assert_null(frames);
    expect_described(f, "\"rows_bytes\":0");
}

static void memory_that_is_given_back_is_taken_again(void **state)
{
    struct fixture *f = *state;
    const void *seen[FRAMES];

    open_gpu(f, MIB);
    struct trajd_gpu_frames *one = open_frames(f, f, 256), *other = open_frames(f, f, 256);
    assert_ptr_equal(one, other);
    void *first = trajd_gpu_frames_take(one), *second = trajd_gpu_frames_take(other);
    assert_true(trajd_gpu_frames_add(one, 0, 0, first));
    trajd_gpu_frames_give_back(other, second);
    second = trajd_gpu_frames_take(other);
    assert_false(
        trajd_gpu_frames_add(other, 0, SMALL_ROWS, second)); /* no such row: it has no place */
    seen[0] = first;
    for (uint32_t i = 1; i < FRAMES; i++) { /* no memory is lost, and no frame shares any */
        void *memory = trajd_gpu_frames_take(one);
        assert_non_null(memory);
        for (uint32_t k = 0; k < i; k++)
            assert_ptr_not_equal(memory, seen[k]);
        assert_true(trajd_gpu_frames_add(one, i / SMALL_ROWS, i % SMALL_ROWS, memory));
        seen[i] = memory;
    }
    assert_null(trajd_gpu_frames_take(one));
    trajd_gpu_frames_close(&one);
    assert_ptr_equal(trajd_gpu_frames_find(other, 0, 0), first); /* still open */
    trajd_gpu_frames_close(&other);
    expect_described(f, "\"resident\":[]");
}

/* Brings all frames as a feed does; `context` is the frames. */
static void *bring_all(void *context)
{
    struct trajd_gpu_frames *frames = context;
    bool fits = true;

    for (uint32_t i = 0; i < FRAMES; i++) {
        trajd_gpu_frames_begin_adding(frames);
        if (!trajd_gpu_frames_find(frames, i / SMALL_ROWS, i % SMALL_ROWS)) {
            void *memory = trajd_gpu_frames_take(frames);
            sched_yield();
            fits = fits && memory &&
                   trajd_gpu_frames_add(frames, i / SMALL_ROWS, i % SMALL_ROWS, memory);
        }
        trajd_gpu_frames_end_adding(frames);
    }
    return fits ? frames : NULL;
}

static void two_feeds_that_bring_the_same_frames(void **state)
{
    struct fixture *f = *state;
    pthread_t thread;
    void *other;

    open_gpu(f, MIB);
    struct trajd_gpu_frames *frames = open_frames(f, f, 256);
    assert_int_equal(pthread_create(&thread, NULL, bring_all, frames), 0);
    assert_non_null(bring_all(frames));
    assert_int_equal(pthread_join(thread, &other), 0);
    assert_non_null(other);
    assert_null(trajd_gpu_frames_take(frames));
    expect_described(f, "\"resident_frames\":40");
    trajd_gpu_frames_close(&frames);
}

static void frames_over_the_budget(void **state)
{
    struct fixture *f = *state;

    open_gpu(f, 64 * 1024);
    struct trajd_gpu_frames *some = open_frames(f, f, 4096), *none = open_frames(f, f->small, 4096);
    assert_false(trajd_gpu_frames_fit(some));
    for (uint32_t i = 0; i < 16; i++)
        assert_non_null(trajd_gpu_frames_take(some));
    assert_null(trajd_gpu_frames_take(some));
    assert_null(trajd_gpu_frames_take(none));
    expect_described(f, "\"rows_bytes\":65536");
    expect_described(f, "\"bytes\":0,\"place\":\"host\"");
    trajd_gpu_frames_close(&none);
    trajd_gpu_frames_close(&some);
    trajd_gpu_frames_close(&some); /* NULL is fine */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(frames_are_found_once_they_are_added),
        TEST(memory_that_is_given_back_is_taken_again),
        TEST(two_feeds_that_bring_the_same_frames),
        TEST(frames_over_the_budget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
