/* The decoders of a process: few children for many threads and kinds of images. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "daemon/decode/decoder_pool.h"
#include "proto/array_len.h"

enum { HEIGHT = 29, WIDTH = 42, LARGEST = 1 << 16, THREADS = 5, ROUNDS = 12, MOST = 2, EAGER = 1 };

static const struct kind {
    const char *name;
    enum trajd_image_color color;
    uint32_t bits;
} kinds[] = {{"420.jpg", TRAJD_COLOR_RGB, 8},
             {"gray.jpg", TRAJD_COLOR_GRAY, 8},
             {"rgb.png", TRAJD_COLOR_RGB, 8},
             {"depth.png", TRAJD_COLOR_DEPTH, 16}};

static struct trajd_decoder_pool *pool;

static size_t load(const char *name, const char *end, uint8_t *bytes)
{
    char path[512];
    FILE *file;
    size_t size;

    snprintf(path, sizeof path, "%s/tests/golden/decoded/%s%s", TRAJD_SOURCE_DIR, name, end);
    file = fopen(path, "rb");
    size = file ? fread(bytes, 1, LARGEST, file) : 0;
    if (file)
        fclose(file);
    return size;
}

/* Calls visit for each child of this process. Returns how many there are. */
static int visit_children(void visit(pid_t))
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;

    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        char path[300];
        FILE *file;
        int pid;
        snprintf(path, sizeof path, "/proc/self/task/%s/children", task->d_name);
        file = fopen(path, "r");
        for (; file && fscanf(file, "%d", &pid) == 1; count++)
            if (visit)
                visit(pid);
        if (file)
            fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return count;
}

static int yielding_count;

static void count_yielding(pid_t pid)
{
    yielding_count += getpriority(PRIO_PROCESS, (id_t)pid) > getpriority(PRIO_PROCESS, 0);
}

static void kill_child(pid_t pid)
{
    kill(pid, SIGKILL);
}

/* Decodes a frame of the kind twice in one job. Returns whether both have the pixels of Pillow. */
static bool decode(const struct kind *kind, uint32_t timeout_ms)
{
    static __thread uint8_t bytes[LARGEST], expected[LARGEST], pixels[2][LARGEST];
    const size_t size = load(kind->name, "", bytes), whole = load(kind->name, ".pixels", expected);
    const struct trajd_decoder_options options = {
        .image = {.is_present = true,
                  .color = kind->color,
                  .height = HEIGHT,
                  .width = WIDTH,
                  .unit = kind->color == TRAJD_COLOR_DEPTH ? TRAJD_DEPTH_MM : TRAJD_DEPTH_NONE},
        .bits = kind->bits,
        .largest_frame_bytes = LARGEST,
        .timeout_ms = timeout_ms};
    struct trajd_decoder_frame frames[] = {
        {.bytes = bytes, .size = size, .room = size, .pixels = pixels[0]},
        {.bytes = bytes, .size = size, .room = size, .pixels = pixels[1]}};

    return size && whole && !trajd_decoder_pool_run(pool, &options, frames, 2, NULL) &&
           !frames[0].reason[0] && !frames[1].reason[0] && !memcmp(pixels[0], expected, whole) &&
           !memcmp(pixels[1], expected, whole);
}

static void *run_thread(void *context)
{
    size_t failed = 0;

    for (size_t i = 0; i < ROUNDS; i++)
        failed += !decode(&kinds[((size_t)context + i) % ARRAY_LEN(kinds)], 20000);
    return (void *)failed;
}

static void test_many_threads_share_few_children(void **state)
{
    pthread_t threads[THREADS];

    (void)state;
    for (size_t t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, run_thread, (void *)t), 0);
    for (size_t t = 0; t < THREADS; t++) {
        void *failed;
        pthread_join(threads[t], &failed);
        assert_null(failed);
    }
    yielding_count = 0;
    const int count = visit_children(count_yielding);
    assert_in_range(count, 0, MOST); /* 0: the kernel does not list children */
    assert_int_equal(yielding_count, count > EAGER ? count - EAGER : 0);
}

/* One thread needs one child, whatever it decodes: a killed one is replaced, and counts no frame as
 * bad. */
static void test_a_child_takes_other_kinds(void **state)
{
    (void)state;
    assert_int_equal(visit_children(NULL), 0);
    for (size_t i = 0; i < 3 * ARRAY_LEN(kinds); i++) {
        assert_true(decode(&kinds[i % ARRAY_LEN(kinds)], 20000));
        assert_true(visit_children(NULL) <= MOST);
        if (i % 3 == 2)
            visit_children(kill_child);
    }
}

static void test_mistakes(void **state)
{
    (void)state;
    assert_false(decode(&kinds[0], 0));
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) { /* a mistake costs no place in the pool */
        assert_false(decode(&(struct kind){kinds[0].name, kinds[0].color, 0}, 20000));
        assert_true(decode(&kinds[i], 20000));
    }
}

static void test_a_program_that_does_not_start(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * MOST; i++)
        assert_false(decode(&kinds[0], 20000));
}

static int make(const char *program)
{
    return trajd_decoder_pool_create(program, MOST, EAGER, &pool, NULL);
}

static int set_up(void **state)
{
    (void)state;
    return make(TRAJD_BINARY_DIR "/daemon/decode/trajd-decoder");
}

static int set_up_missing(void **state)
{
    (void)state;
    return make("/nonexistent/trajd-decoder");
}

static int tear_down(void **state)
{
    (void)state;
    trajd_decoder_pool_destroy(&pool);
    return visit_children(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_many_threads_share_few_children, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_child_takes_other_kinds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mistakes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_program_that_does_not_start, set_up_missing,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
