/* mixture.c: golden vectors of an independent implementation, exact quotas, even passes, and very
 * large positions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/window/order/mixture.h"
#include "proto/array_len.h"
#include "tests/unit/window/order/vector_lines.h"

#define MAX_PARTS 8

/* A mixture with the samplers that it borrows. */
struct fixture {
    struct trajd_sampler *samplers[MAX_PARTS];
    uint32_t count;
    struct trajd_mixture *mixture;
};

static void add_sampler(struct fixture *f, const struct trajd_sampler_options *options)
{
    struct trajd_error error;

    assert_true(f->count < MAX_PARTS);
    if (trajd_sampler_create(options, &f->samplers[f->count++], &error))
        fail_msg("%s", error.message);
}

static enum trajd_status try_mixture(struct fixture *f, struct trajd_mixture_options options,
                                     struct trajd_error *error)
{
    options.samplers = (const struct trajd_sampler *const *)f->samplers;
    options.dataset_count = f->count;
    return trajd_mixture_create(&options, &f->mixture, error);
}

static void add_mixture(struct fixture *f, const struct trajd_mixture_options *options)
{
    struct trajd_error error;

    if (try_mixture(f, *options, &error))
        fail_msg("%s", error.message);
}

/* One segment for each dataset. */
static void make(struct fixture *f, const uint64_t *windows, uint32_t count, enum trajd_order order,
                 const struct trajd_mixture_options *options)
{
    *f = (struct fixture){.count = 0};
    for (uint32_t d = 0; d < count; d++) {
        const struct trajd_segment segment = {0, d, 0, windows[d]};
        const struct trajd_sampler_options sampler = {.segments = &segment,
                                                      .segment_count = 1,
                                                      .fingerprint = d,
                                                      .seed = trajd_mixture_seed(options->seed, d),
                                                      .order = order,
                                                      .block_windows = 4,
                                                      .block_neighbours = 2,
                                                      .tail = TRAJD_TAIL_SHORT,
                                                      .global_batch = 1};
        add_sampler(f, &sampler);
    }
    add_mixture(f, options);
}

static void clear(struct fixture *f)
{
    trajd_mixture_destroy(&f->mixture);
    while (f->count)
        trajd_sampler_destroy(&f->samplers[--f->count]);
}

static void part_of_line(struct fixture *f, const uint64_t *w)
{
    struct trajd_segment segments[8];
    const struct trajd_sampler_options options = {.segments = segments,
                                                  .segment_count = (uint32_t)w[5],
                                                  .seed = w[0],
                                                  .fingerprint = w[1],
                                                  .order = (enum trajd_order)w[2],
                                                  .block_windows = (uint32_t)w[3],
                                                  .block_neighbours = (uint32_t)w[4],
                                                  .tail = TRAJD_TAIL_SHORT,
                                                  .global_batch = 1};

    for (uint32_t i = 0; i < options.segment_count; i++) {
        const uint64_t *s = w + 6 + 4 * i;
        segments[i] = (struct trajd_segment){(uint32_t)s[0], (uint32_t)s[1], (int64_t)s[2], s[3]};
    }
    add_sampler(f, &options);
}

static void mixture_of_line(struct fixture *f, const uint64_t *w)
{
    const struct trajd_mixture_options options = {.weights = w[6] ? NULL : w + 7,
                                                  .seed = w[0],
                                                  .fingerprint = w[1],
                                                  .epoch_windows = w[2],
                                                  .tail = (enum trajd_tail)w[3],
                                                  .global_batch = (uint32_t)w[4]};

    add_mixture(f, &options);
    for (uint32_t d = 0; d < f->count; d++)
        assert_true(trajd_mixture_weight(f->mixture, d) == w[7 + d]);
}

static void check_at(const struct trajd_mixture *mixture, const uint64_t *w)
{
    struct trajd_window at, by_id;

    trajd_mixture_run(mixture, w[0], w[1], 1, &at);
    assert_true(at.window_id == w[2] && at.dataset_index == w[3] && at.episode_index == w[4]);
    assert_true(at.anchor == (int64_t)w[5] && at.wrapped == w[6]);
    trajd_mixture_window(mixture, w[2], &by_id);
    assert_true(by_id.window_id == w[2] && by_id.dataset_index == w[3] &&
                by_id.episode_index == w[4] && by_id.anchor == at.anchor && by_id.wrapped == 0);
}

static void golden_vectors_hold(void **state)
{
    FILE *file = fopen(TRAJD_SOURCE_DIR "/tests/golden/sampler/mixture.txt", "r");
    uint64_t w[VECTOR_WORDS_MAX], head[VECTOR_WORDS_MAX];
    struct fixture f = {.count = 0};
    char kind[16];
    int lines = 0;

    (void)state;
    assert_non_null(file);
    for (; read_vector(file, kind, w) >= 0; lines++) {
        if (strcmp(kind, "mixture") == 0) {
            clear(&f);
            memcpy(head, w, sizeof head);
        } else if (strcmp(kind, "part") == 0) {
            assert_true(w[0] == trajd_mixture_seed(head[0], f.count));
            part_of_line(&f, w);
            if (f.count == head[5])
                mixture_of_line(&f, head);
        } else if (strcmp(kind, "length") == 0) {
            assert_true(trajd_mixture_epoch_windows(f.mixture) == w[0]);
            assert_true(trajd_mixture_epoch_length(f.mixture) == w[1]);
            assert_true(trajd_mixture_dropped_count(f.mixture) == w[2]);
            assert_true(trajd_mixture_weight_sum(f.mixture) == w[3]);
        } else {
            assert_string_equal(kind, "at");
            check_at(f.mixture, w);
        }
    }
    assert_true(lines > 1500);
    clear(&f);
    fclose(file);
}

/* In any C positions that begin a round each dataset comes exactly as often as its weight, wherever
 * epochs end. */
static void quotas_are_exact(void **state)
{
    static const uint64_t windows[] = {100, 7, 1000}, weights[] = {7, 3, 2};
    const struct trajd_mixture_options options = {
        .weights = weights, .epoch_windows = 101, .global_batch = 1, .seed = 3};
    struct fixture f;

    (void)state;
    make(&f, windows, 3, TRAJD_ORDER_GLOBAL, &options);
    for (uint64_t round = 0; round < 300; round++) {
        uint64_t counts[3] = {0};
        for (uint64_t absolute = 12 * round; absolute < 12 * round + 12; absolute++) {
            struct trajd_window window;
            trajd_mixture_run(f.mixture, absolute / 101, absolute % 101, 1, &window);
            counts[window.dataset_index]++;
        }
        assert_memory_equal(counts, weights, sizeof counts);
    }
    clear(&f);
}

/* After any number of rounds each window has come as often as the mean, rounded up or down, in
 * every order. */
static void windows_of_a_dataset_take_turns(void **state)
{
    static const uint64_t windows[] = {41, 5}, weights[] = {3, 2};
    const struct trajd_mixture_options options = {
        .weights = weights, .epoch_windows = 33, .global_batch = 1, .seed = 8};

    (void)state;
    for (int order = TRAJD_ORDER_GLOBAL; order <= TRAJD_ORDER_SEQUENTIAL; order++) {
        uint64_t times[46] = {0};
        struct fixture f;
        make(&f, windows, 2, (enum trajd_order)order, &options);
        for (uint64_t absolute = 0; absolute < 5 * 200; absolute++) {
            const uint64_t rounds = (absolute + 1) / 5;
            struct trajd_window window;
            trajd_mixture_run(f.mixture, absolute / 33, absolute % 33, 1, &window);
            assert_true(window.window_id < 46 && window.dataset_index == (window.window_id >= 41));
            times[window.window_id]++;
            for (uint64_t i = 0; i < 46 && (absolute + 1) % 5 == 0; i++) {
                const uint64_t d = i >= 41, all = rounds * weights[d];
                assert_in_range(times[i], all / windows[d],
                                all / windows[d] + (all % windows[d] != 0));
            }
        }
        clear(&f);
    }
}

/* By size, with the default length: an epoch has every window once, and the next epoch has another
 * order. */
static void by_size_is_every_window_once(void **state)
{
    static const uint64_t windows[] = {120, 84, 300};
    const struct trajd_mixture_options options = {
        .tail = TRAJD_TAIL_SHORT, .global_batch = 64, .seed = 1};
    struct trajd_window run[2][504];
    uint64_t same = 0;
    struct fixture f;

    (void)state;
    make(&f, windows, 3, TRAJD_ORDER_GLOBAL, &options);
    assert_int_equal(trajd_mixture_weight_sum(f.mixture), 504 / 12);
    assert_int_equal(trajd_mixture_epoch_length(f.mixture), 504);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        uint8_t seen[504] = {0};
        trajd_mixture_run(f.mixture, epoch, 0, 504, run[epoch]);
        for (uint64_t p = 0; p < 504; p++)
            assert_true(run[epoch][p].window_id < 504 && !seen[run[epoch][p].window_id]++);
    }
    for (uint64_t p = 0; p < 504; p++)
        same += run[0][p].window_id == run[1][p].window_id;
    assert_true(same < 20);
    clear(&f);
}

static bool same_window(const struct trajd_window *a, const struct trajd_window *b)
{
    return a->window_id == b->window_id && a->dataset_index == b->dataset_index &&
           a->episode_index == b->episode_index && a->anchor == b->anchor &&
           a->wrapped == b->wrapped;
}

/* A run equals its positions one by one, at the beginning and at 10^18, for every batch size. */
static void any_position_at_once(void **state)
{
    static const uint64_t windows[] = {6000000000, 3000000000, 1000000000},
                          weights[] = {70, 20, 10};
    struct trajd_mixture_options options = {.weights = weights,
                                            .epoch_windows = UINT64_C(2000000000000000000),
                                            .global_batch = 256,
                                            .seed = 5};
    static const uint64_t begins[] = {0, 1000000000, UINT64_C(1000000000000000000)};
    struct trajd_window run[1000], one;
    struct fixture f, other;

    (void)state;
    make(&f, windows, 3, TRAJD_ORDER_GLOBAL, &options);
    options.global_batch = 31;
    options.tail = TRAJD_TAIL_WRAP;
    make(&other, windows, 3, TRAJD_ORDER_GLOBAL, &options);
    for (size_t b = 0; b < ARRAY_LEN(begins); b++) {
        trajd_mixture_run(f.mixture, 2, begins[b], 1000, run);
        for (uint32_t i = 0; i < 1000; i += 7) {
            trajd_mixture_run(other.mixture, 2, begins[b] + i, 1, &one);
            assert_true(same_window(&run[i], &one));
        }
    }
    clear(&f);
    clear(&other);
}

/* The same where rounds, passes and the epoch end within a run. */
static void runs_over_borders(void **state)
{
    static const uint64_t windows[] = {41, 5, 130}, weights[] = {3, 2, 40};
    const struct trajd_mixture_options options = {.weights = weights,
                                                  .epoch_windows = 333,
                                                  .tail = TRAJD_TAIL_WRAP,
                                                  .global_batch = 600,
                                                  .seed = 6};

    (void)state;
    for (int order = TRAJD_ORDER_GLOBAL; order <= TRAJD_ORDER_SEQUENTIAL; order++) {
        struct fixture f;
        make(&f, windows, 3, (enum trajd_order)order, &options);
        for (uint64_t epoch = 0; epoch < 20; epoch++) {
            struct trajd_window run[600], one;
            trajd_mixture_run(f.mixture, epoch, 17 * epoch, 600, run);
            for (uint32_t i = 0; i < 600; i++) {
                trajd_mixture_run(f.mixture, epoch, 17 * epoch + i, 1, &one);
                assert_true(same_window(&run[i], &one));
            }
        }
        clear(&f);
    }
}

static void tails(void **state)
{
    static const uint64_t windows[] = {10, 10}, weights[] = {1, 1};
    struct trajd_mixture_options options = {
        .weights = weights, .epoch_windows = 10, .global_batch = 4};
    struct trajd_window first[12], next;
    struct fixture f;

    (void)state;
    make(&f, windows, 2, TRAJD_ORDER_GLOBAL, &options);
    assert_int_equal(trajd_mixture_epoch_length(f.mixture), 8);
    assert_int_equal(trajd_mixture_dropped_count(f.mixture), 2);
    clear(&f);
    options.tail = TRAJD_TAIL_WRAP;
    make(&f, windows, 2, TRAJD_ORDER_GLOBAL, &options);
    assert_int_equal(trajd_mixture_epoch_length(f.mixture), 12);
    assert_int_equal(trajd_mixture_dropped_count(f.mixture), 0);
    trajd_mixture_run(f.mixture, 3, 0, 12, first);
    assert_true(first[9].wrapped == 0 && first[10].wrapped == 1 &&
                first[10].window_id == first[0].window_id);
    /* the next epoch continues where this one's L ends, not where its rows do */
    trajd_mixture_run(f.mixture, 4, 0, 1, &next);
    clear(&f);
    options.tail = TRAJD_TAIL_SHORT;
    make(&f, windows, 2, TRAJD_ORDER_GLOBAL, &options);
    assert_int_equal(trajd_mixture_epoch_length(f.mixture), 10);
    trajd_mixture_run(f.mixture, 4, 0, 1, first);
    assert_true(same_window(&first[0], &next));
    clear(&f);
}

static void bad_options_are_refused(void **state)
{
    static const uint64_t windows[] = {10, 10}, weights[] = {1, 1}, zero[] = {1, 0},
                          huge[] = {1, UINT64_C(1) << 60};
    const struct trajd_mixture_options good = {.weights = weights, .global_batch = 4};
    struct trajd_mixture_options bad;
    struct trajd_error error;
    struct fixture f;

    (void)state;
    make(&f, windows, 2, TRAJD_ORDER_GLOBAL, &good);
    trajd_mixture_destroy(&f.mixture);
    bad = good, bad.weights = zero;
    assert_int_equal(try_mixture(&f, bad, &error), TRAJD_ERR_ARGUMENT);
    assert_null(f.mixture);
    assert_non_null(strstr(error.message, "weight 1 is 0"));
    bad = good, bad.weights = huge;
    assert_int_equal(try_mixture(&f, bad, &error), TRAJD_ERR_ARGUMENT);
    bad = good, bad.global_batch = 0;
    assert_int_equal(try_mixture(&f, bad, &error), TRAJD_ERR_ARGUMENT);
    bad = good, bad.epoch_windows = 3;
    assert_int_equal(try_mixture(&f, bad, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "an epoch of 3 windows"));
    bad = good, bad.epoch_windows = UINT64_MAX;
    assert_int_equal(try_mixture(&f, bad, &error), TRAJD_ERR_ARGUMENT);
    bad = good, bad.tail = (enum trajd_tail)9;
    assert_int_equal(try_mixture(&f, bad, &error), TRAJD_ERR_ARGUMENT);
    clear(&f);
    assert_int_equal(try_mixture(&f, good, &error), TRAJD_ERR_ARGUMENT); /* without datasets */
}

/* A weight has 2^56 at most, and a mixture 64 datasets. */
static void limits_of_weights(void **state)
{
    static const uint64_t windows[] = {10, 10};
    uint64_t weights[] = {TRAJD_MIXTURE_MAX_LENGTH / TRAJD_MIXTURE_MAX_DATASETS, 1};
    struct trajd_mixture_options options = {
        .weights = weights, .epoch_windows = 10, .global_batch = 4};
    struct fixture f;
    struct trajd_mixture *mixture;
    struct trajd_error error;

    (void)state;
    make(&f, windows, 2, TRAJD_ORDER_GLOBAL, &options);
    assert_int_equal(trajd_mixture_weight_sum(f.mixture), weights[0] + 1);
    options.dataset_count = 2;
    weights[0]++;
    assert_int_equal(trajd_mixture_create(&options, &mixture, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "weight 0 is "));
    clear(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_of_weights),
        cmocka_unit_test(golden_vectors_hold),
        cmocka_unit_test(quotas_are_exact),
        cmocka_unit_test(windows_of_a_dataset_take_turns),
        cmocka_unit_test(by_size_is_every_window_once),
        cmocka_unit_test(any_position_at_once),
        cmocka_unit_test(runs_over_borders),
        cmocka_unit_test(tails),
        cmocka_unit_test(bad_options_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
