/* Helper programs that die, hang or break the protocol: only a frame that does it twice is bad, and
 * nothing is left of them. No frame is bad because something outside killed them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/decode/decoder.h"
#include "proto/array_len.h"
#include "tests/support/processes.h"

enum { HEIGHT = 29, WIDTH = 42, FRAME_BYTES = HEIGHT * WIDTH * 3, LARGEST = 1 << 16, MOST = 100 };

#define REAL TRAJD_BINARY_DIR "/daemon/decode/trajd-decoder"
#define IMAGE TRAJD_SOURCE_DIR "/tests/golden/decoded/rgb.png"
#define FAULTY TRAJD_BINARY_DIR "/tests/unit/decode/faulty_decoder"
static const char *const crashed = "the image library crashed, hung or got no memory on it";

struct fixture {
    struct trajd_decoder *decoder;
    struct trajd_decoder_frame frames[MOST];
    uint8_t *pixels;
};

static struct trajd_decoder_options options_of(const char *program, uint32_t timeout_ms)
{
    return (struct trajd_decoder_options){
        .program = program,
        .image = {.is_present = true, .color = TRAJD_COLOR_RGB, .height = HEIGHT, .width = WIDTH},
        .bits = 8,
        .largest_frame_bytes = LARGEST,
        .timeout_ms = timeout_ms};
}

static struct fixture make(const char *program, uint32_t timeout_ms)
{
    const struct trajd_decoder_options options = options_of(program, timeout_ms);
    struct fixture f = {.pixels = calloc(MOST, FRAME_BYTES)};
    struct trajd_error error;

    if (trajd_decoder_create(&options, &f.decoder, &error))
        fail_msg("%s", error.message);
    return f;
}

static void end(struct fixture *f)
{
    trajd_decoder_destroy(&f->decoder);
    free(f->pixels);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie */
    assert_int_equal(errno, ECHILD);
}

/* Decodes a frame for each letter. */
static enum trajd_status try(struct fixture *f, const char *letters, struct trajd_error *error)
{
    const uint32_t count = (uint32_t)strlen(letters);

    for (uint32_t i = 0; i < count; i++)
        f->frames[i] = (struct trajd_decoder_frame){.bytes = (const uint8_t *)letters + i,
                                                    .size = 1,
                                                    .room = 1,
                                                    .pixels = f->pixels + (size_t)i * FRAME_BYTES};
    return trajd_decoder_run(f->decoder, f->frames, count, error);
}

static void run(struct fixture *f, const char *letters)
{
    struct trajd_error error;

    if (try(f, letters, &error))
        fail_msg("%s", error.message);
}

/* The frames of the letters in `bad` crashed, and the others are good. */
static void check(const struct fixture *f, const char *letters, const char *bad)
{
    for (size_t i = 0; letters[i]; i++) {
        const uint8_t *pixels = f->frames[i].pixels;
        assert_string_equal(f->frames[i].reason, strchr(bad, letters[i]) ? crashed : "");
        if (!strchr(bad, letters[i]))
            assert_true(pixels[0] == letters[i] && pixels[FRAME_BYTES - 1] == letters[i]);
    }
}

static void test_a_child_that_dies(void **state)
{
    static const char letters[] =
        "aaaaaaaaKaaaaaaaaaaaaaaaaaaaaKKaabbbbkbbbbbbbbbbbbbbbbbbbbbbbbbbbbbK";
    struct fixture f = make(FAULTY, 20000);

    (void)state;
    run(&f, letters);
    check(&f, letters, "K");
    run(&f, "eeo"); /* it goes on */
    check(&f, "eeo", "");
    end(&f);
}

/* No frame is blamed for a kill from outside: the user learns that memory may be full. */
static void test_a_child_that_is_killed_twice(void **state)
{
    struct fixture f = make(FAULTY, 20000);
    struct trajd_error error;

    (void)state;
    assert_int_equal(try(&f, "aaOa", &error), TRAJD_ERR_SYSTEM);
    assert_string_equal(error.message,
                        FAULTY " was killed from outside twice, by signal 9 (Killed): "
                               "is memory full?");
    for (int i = 0; i < 4; i++)
        assert_string_equal(f.frames[i].reason, "");
    run(&f, "eeo"); /* it goes on */
    check(&f, "eeo", "");
    end(&f);
}

static void test_a_child_that_is_killed_while_it_starts(void **state)
{
    struct trajd_decoder_options options = options_of(FAULTY, 20000);
    struct trajd_decoder *decoder;
    struct trajd_error error;

    (void)state;
    options.bits = 16;
    assert_int_equal(trajd_decoder_create(&options, &decoder, &error), TRAJD_ERR_SYSTEM);
    assert_null(decoder);
    assert_string_equal(error.message, FAULTY " was killed from outside while it started, by "
                                              "signal 9 (Killed): is memory full?");
}

static void test_a_child_that_hangs(void **state)
{
    struct fixture f = make(FAULTY, 300);

    (void)state;
    run(&f, "aaahaaHaa");
    check(&f, "aaahaaHaa", "H");
    end(&f);
}

static void test_a_child_that_breaks_the_protocol(void **state)
{
    struct fixture f = make(FAULTY, 20000);

    (void)state;
    run(&f, "acatama");
    check(&f, "acatama", "ctm");
    run(&f, "ara");
    assert_int_equal(strlen(f.frames[1].reason), sizeof f.frames[1].reason - 1);
    for (const char *c = f.frames[1].reason; *c; c++)
        assert_int_equal(*c, ' ');
    assert_int_equal(f.pixels[FRAME_BYTES], 0); /* unchanged */
    end(&f);
}

/* Returns how many descriptors this process has. */
static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void test_a_thousand_restarts(void **state)
{
    struct fixture f = make(FAULTY, 20000);
    const int before = count_descriptors();

    (void)state;
    for (int i = 0; i < 500; i++) { /* each run kills two */
        run(&f, "K");
        assert_string_equal(f.frames[0].reason, crashed);
    }
    run(&f, "a");
    assert_int_equal(count_descriptors(), before);
    end(&f);
    f = make(FAULTY, 20000); /* all that the first decoder had is free again */
    assert_int_equal(count_descriptors(), before);
    end(&f);
}

/* Kills the child of the main thread `wanted` times, once in a run. */
struct killer {
    atomic_int wanted, killed;
    int signal;
};

static void *kill_children(void *context)
{
    struct killer *killer = context;

    for (int wanted; (wanted = atomic_load(&killer->wanted)) >= 0;) {
        pid_t child = wanted > atomic_load(&killer->killed) ? process_find_child() : 0;
        if (child && !kill(child, killer->signal))
            atomic_fetch_add(&killer->killed, 1);
    }
    return NULL;
}

static size_t load(const char *path, void *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    size_t size;

    assert_non_null(file);
    size = fread(bytes, 1, room, file);
    fclose(file);
    return size;
}

/* Runs jobs of the real program while another thread sends its children a signal. */
static void disturb(int signal, int runs, uint32_t timeout_ms)
{
    struct fixture f = make(REAL, timeout_ms);
    struct killer killer = {.signal = signal};
    uint8_t bytes[LARGEST], expected[FRAME_BYTES];
    struct trajd_error error;
    pthread_t thread;
    size_t size;

    if (!process_find_child()) { /* the kernel lists no children */
        end(&f);
        skip();
    }
    size = load(IMAGE, bytes, sizeof bytes);
    assert_int_equal(load(IMAGE ".pixels", expected, sizeof expected), FRAME_BYTES);
    assert_int_equal(pthread_create(&thread, NULL, kill_children, &killer), 0);
    for (int r = 0; r < runs; r++) {
        for (int i = 0; i < MOST; i++)
            f.frames[i] = (struct trajd_decoder_frame){
                .bytes = bytes,
                .size = size,
                .room = size,
                .pixels = memset(f.pixels + (size_t)i * FRAME_BYTES, 0, FRAME_BYTES)};
        atomic_fetch_add(&killer.wanted, 1);
        do
            assert_int_equal(trajd_decoder_run(f.decoder, f.frames, MOST, &error), TRAJD_OK);
        while (atomic_load(&killer.killed) <= r);
        for (int i = 0; i < MOST; i++) {
            assert_string_equal(f.frames[i].reason, "");
            assert_memory_equal(f.frames[i].pixels, expected, FRAME_BYTES);
        }
    }
    atomic_store(&killer.wanted, -1);
    pthread_join(thread, NULL);
    end(&f);
}

static void test_kills_in_the_middle_of_jobs(void **state)
{
    (void)state;
    disturb(SIGKILL, 40, 20000);
}

static void test_stops_in_the_middle_of_jobs(void **state)
{
    (void)state;
    disturb(SIGSTOP, 3, 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_child_that_dies),
        cmocka_unit_test(test_a_child_that_is_killed_twice),
        cmocka_unit_test(test_a_child_that_is_killed_while_it_starts),
        cmocka_unit_test(test_a_child_that_hangs),
        cmocka_unit_test(test_a_child_that_breaks_the_protocol),
        cmocka_unit_test(test_a_thousand_restarts),
        cmocka_unit_test(test_kills_in_the_middle_of_jobs),
        cmocka_unit_test(test_stops_in_the_middle_of_jobs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
