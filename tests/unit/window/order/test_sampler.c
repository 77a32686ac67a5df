/* sampler.c and permute.c: golden vectors of an independent implementation, exactness, evenness,
 * and the tail rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/window/order/sampler.h"
#include "proto/array_len.h"
#include "tests/unit/window/order/vector_lines.h"

static uint64_t key_of(uint64_t number)
{
    return trajd_mix(&number, 1);
}

static struct trajd_sampler *new_sampler(const struct trajd_sampler_options *options)
{
    struct trajd_sampler *sampler;
    struct trajd_error error;

    if (trajd_sampler_create(options, &sampler, &error))
        fail_msg("%s", error.message);
    return sampler;
}

/* Of the words of a line. Behind the segments, passes.txt has the epoch's length and whether one
 * window per episode is drawn. */
static struct trajd_sampler *sampler_of_line(const uint64_t *w, int count)
{
    struct trajd_segment segments[16];
    struct trajd_sampler_options options = {.segments = segments,
                                            .segment_count = (uint32_t)w[7],
                                            .seed = w[0],
                                            .fingerprint = w[1],
                                            .order = (enum trajd_order)w[2],
                                            .block_windows = (uint32_t)w[3],
                                            .block_neighbours = (uint32_t)w[4],
                                            .tail = (enum trajd_tail)w[5],
                                            .global_batch = (uint32_t)w[6]};

    for (uint32_t i = 0; i < options.segment_count; i++) {
        const uint64_t *s = w + 8 + 4 * i;
        segments[i] = (struct trajd_segment){(uint32_t)s[0], (uint32_t)s[1], (int64_t)s[2], s[3]};
    }
    if (count > 8 + 4 * (int)options.segment_count) {
        options.epoch_windows = w[8 + 4 * options.segment_count];
        options.one_per_episode = w[9 + 4 * options.segment_count];
    }
    return new_sampler(&options);
}

static void check_at(const struct trajd_sampler *sampler, const uint64_t *w)
{
    struct trajd_window at, by_id;

    trajd_sampler_at(sampler, w[0], w[1], &at);
    assert_true(at.window_id == w[2]);
    assert_true(at.dataset_index == w[3] && at.episode_index == w[4] && at.anchor == (int64_t)w[5]);
    assert_true(at.wrapped == w[6]);
    trajd_sampler_window(sampler, w[2], &by_id);
    assert_true(by_id.episode_index == at.episode_index && by_id.anchor == at.anchor &&
                by_id.wrapped == 0);
}

/* Checks the vectors of a file. Returns how many there are. */
static int check_vectors(const char *path)
{
    FILE *file = fopen(path, "r");
    struct trajd_sampler *sampler = NULL;
    uint64_t w[VECTOR_WORDS_MAX];
    char kind[16];
    int count, lines = 0;

    assert_non_null(file);
    for (; (count = read_vector(file, kind, w)) >= 0; lines++) {
        if (strcmp(kind, "mix") == 0) {
            assert_true(trajd_mix(w + 1, (uint32_t)w[0]) == w[count - 1]);
        } else if (strcmp(kind, "permute") == 0) {
            assert_true(trajd_permute(w[0], w[1], w[2]) == w[3]);
        } else if (strcmp(kind, "sampler") == 0) {
            trajd_sampler_destroy(&sampler);
            sampler = sampler_of_line(w, count);
        } else if (strcmp(kind, "length") == 0) {
            assert_true(trajd_sampler_window_count(sampler) == w[0]);
            assert_true(trajd_sampler_epoch_length(sampler) == w[1]);
            assert_true(trajd_sampler_dropped_count(sampler) == w[2]);
        } else if (strcmp(kind, "batches") == 0) {
            assert_true(trajd_sampler_batch_count(sampler, w[0]) == w[1]);
        } else {
            assert_string_equal(kind, "at");
            check_at(sampler, w);
        }
    }
    trajd_sampler_destroy(&sampler);
    fclose(file);
    return lines;
}

static void golden_vectors_hold(void **state)
{
    (void)state;
    assert_true(check_vectors(TRAJD_SOURCE_DIR "/tests/golden/sampler/vectors.txt") > 2500);
    assert_true(check_vectors(TRAJD_SOURCE_DIR "/tests/golden/sampler/passes.txt") > 1000);
}

static void permutation_is_a_bijection(void **state)
{
    uint8_t *seen = malloc(100003);

    (void)state;
    for (uint64_t n = 1; n <= 5000; n += n < 600 ? 1 : 37) {
        memset(seen, 0, n);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t at = trajd_permute(key_of(n), n, i);
            assert_true(at < n && !seen[at]);
            seen[at] = 1;
        }
    }
    memset(seen, 0, 100003); /* a larger prime */
    for (uint64_t i = 0; i < 100003; i++)
        seen[trajd_permute(99, 100003, i)]++;
    for (uint64_t i = 0; i < 100003; i++)
        assert_int_equal(seen[i], 1);
    free(seen);
}

static double chi_square(const uint64_t *counts, uint64_t cells, double expected)
{
    double sum = 0;

    for (uint64_t i = 0; i < cells; i++)
        sum += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
    return sum;
}

/* Six standard deviations above the mean of a chi-square of cells - 1 degrees of freedom. */
static double chi_limit(uint64_t cells)
{
    double degrees = (double)cells - 1, root = 1;

    while (root * root < 2 * degrees)
        root += 0.25;
    return degrees + 6 * root;
}

/* Over many keys each position must see each value equally often, and so must each pair of
 * neighbouring positions. */
static void permutation_is_even_over_keys(void **state)
{
    static const uint64_t sizes[] = {2, 3, 5, 7, 10, 16, 31};
    enum { KEYS = 40000 };

    (void)state;
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        uint64_t n = sizes[s], single[31 * 31] = {0}, pair[31 * 31] = {0}, pairs[31 * 31];
        uint64_t distinct = 0;
        for (uint64_t k = 0; k < KEYS; k++) {
            for (uint64_t i = 0; i < n; i++)
                single[i * n + trajd_permute(key_of(k), n, i)]++;
            pair[trajd_permute(key_of(k), n, 0) * n + trajd_permute(key_of(k), n, 1)]++;
        }
        assert_true(chi_square(single, n * n, (double)KEYS / (double)n) < chi_limit(n * n));
        for (uint64_t i = 0; i < n * n; i++)
            if (i / n != i % n)
                pairs[distinct++] = pair[i];
            else
                assert_int_equal(pair[i], 0);
        assert_true(chi_square(pairs, distinct, (double)KEYS / (double)distinct) <
                    chi_limit(distinct));
    }
}

/* Within one permutation: where the first tenth of positions lands, and how far neighbours come to
 * lie apart. */
static void permutation_spreads_positions(void **state)
{
    enum { N = 1000003, TAKEN = 100000, CELLS = 100 };
    uint64_t landed[CELLS] = {0}, apart[CELLS] = {0};

    (void)state;
    for (uint64_t i = 0; i < TAKEN; i++) {
        uint64_t here = trajd_permute(5, N, i), next = trajd_permute(5, N, i + 1);
        landed[here * CELLS / N]++;
        apart[(next + N - here) % N * CELLS / N]++;
    }
    assert_true(chi_square(landed, CELLS, TAKEN / CELLS) < chi_limit(CELLS));
    assert_true(chi_square(apart, CELLS, TAKEN / CELLS) < chi_limit(CELLS));
}

static void every_window_once_in_every_order(void **state)
{
    struct trajd_segment segments[7];
    struct trajd_sampler_options options = {.segments = segments,
                                            .segment_count = 7,
                                            .global_batch = 8,
                                            .tail = TRAJD_TAIL_SHORT,
                                            .block_neighbours = 3};
    uint64_t total = 0;
    uint8_t seen[700];

    (void)state;
    for (uint32_t i = 0; i < 7; i++) {
        segments[i] = (struct trajd_segment){0, i, 100 * (int64_t)i, 1 + 23 * (uint64_t)i};
        total += segments[i].window_count;
    }
    for (int order = TRAJD_ORDER_GLOBAL; order <= TRAJD_ORDER_SEQUENTIAL; order++)
        for (uint32_t block = 1; block < 600; block += 1 + block / 3) {
            struct trajd_sampler *sampler;
            options.order = (enum trajd_order)order;
            options.block_windows = block;
            sampler = new_sampler(&options);
            for (uint64_t epoch = 0; epoch < 3; epoch++) {
                memset(seen, 0, sizeof seen);
                for (uint64_t p = 0; p < total; p++) {
                    struct trajd_window window;
                    trajd_sampler_at(sampler, epoch, p, &window);
                    assert_true(window.window_id < total && !seen[window.window_id]++ &&
                                !window.wrapped);
                    assert_true(window.anchor >= 100 * (int64_t)window.episode_index);
                    assert_true((uint64_t)(window.anchor - 100 * (int64_t)window.episode_index) <
                                segments[window.episode_index].window_count);
                }
            }
            trajd_sampler_destroy(&sampler);
        }
}

/* A run of positions of order blocked touches few blocks, and other ones in the next epoch. */
static void blocked_order_stays_within_its_neighbours(void **state)
{
    struct trajd_segment segment = {0, 0, 0, 100050};
    struct trajd_sampler_options options = {.segments = &segment,
                                            .segment_count = 1,
                                            .global_batch = 1,
                                            .order = TRAJD_ORDER_BLOCKED,
                                            .block_windows = 100,
                                            .block_neighbours = 4};
    struct trajd_sampler *sampler = new_sampler(&options);
    uint64_t touched[2] = {0, 0}, first[2];

    (void)state;
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        uint8_t cells[1001] = {0};
        for (uint64_t p = 0; p < 400; p++) {
            struct trajd_window window;
            trajd_sampler_at(sampler, epoch, p, &window);
            touched[epoch] += !cells[window.window_id / 100];
            cells[window.window_id / 100] = 1;
            if (p == 0)
                first[epoch] = window.window_id;
        }
        assert_in_range(
            touched[epoch], 4,
            8); /* four blocks, each across a border of the numbering without rotation */
    }
    assert_true(first[0] / 100 != first[1] / 100);
    trajd_sampler_destroy(&sampler);
}

static void tails(void **state)
{
    struct trajd_segment segment = {0, 3, 10, 10};
    struct trajd_sampler_options options = {
        .segments = &segment, .segment_count = 1, .global_batch = 4, .seed = 1};
    struct trajd_window first, again;
    struct trajd_sampler *sampler;

    (void)state;
    options.tail = TRAJD_TAIL_DROP;
    sampler = new_sampler(&options);
    assert_int_equal(trajd_sampler_epoch_length(sampler), 8);
    assert_int_equal(trajd_sampler_dropped_count(sampler), 2);
    assert_int_equal(trajd_sampler_batch_count(sampler, 0), 2);
    assert_int_equal(trajd_sampler_batch_count(sampler, 3), 1);
    assert_int_equal(trajd_sampler_batch_count(sampler, UINT64_MAX), 0);
    trajd_sampler_destroy(&sampler);
    options.tail = TRAJD_TAIL_WRAP;
    sampler = new_sampler(&options);
    assert_int_equal(trajd_sampler_epoch_length(sampler), 12);
    assert_int_equal(trajd_sampler_dropped_count(sampler), 0);
    assert_int_equal(trajd_sampler_batch_count(sampler, 8), 1);
    trajd_sampler_at(sampler, 5, 0, &first);
    trajd_sampler_at(sampler, 5, 10, &again);
    assert_true(first.window_id == again.window_id && !first.wrapped && again.wrapped == 1);
    trajd_sampler_destroy(&sampler);
    options.tail = TRAJD_TAIL_SHORT;
    sampler = new_sampler(&options);
    assert_int_equal(trajd_sampler_epoch_length(sampler), 10);
    assert_int_equal(trajd_sampler_batch_count(sampler, 0), 3);
    trajd_sampler_destroy(&sampler);
}

/* The order does not depend on the batch size, so that a job may continue with another one. */
static void order_does_not_depend_on_the_batch(void **state)
{
    struct trajd_segment segment = {0, 0, 0, 1000};
    struct trajd_sampler_options options = {
        .segments = &segment, .segment_count = 1, .global_batch = 4, .seed = 1};
    struct trajd_sampler *four = new_sampler(&options), *nine, *other_data;
    uint64_t same = 0;

    (void)state;
    options.global_batch = 9;
    options.tail = TRAJD_TAIL_WRAP;
    nine = new_sampler(&options);
    options.fingerprint = 1;
    other_data = new_sampler(&options);
    for (uint64_t p = 0; p < 1000; p++) {
        struct trajd_window a, b, c;
        trajd_sampler_at(four, 2, p, &a);
        trajd_sampler_at(nine, 2, p, &b);
        trajd_sampler_at(other_data, 2, p, &c);
        assert_true(a.window_id == b.window_id);
        same += a.window_id == c.window_id;
    }
    assert_true(same < 10);
    trajd_sampler_destroy(&four);
    trajd_sampler_destroy(&nine);
    trajd_sampler_destroy(&other_data);
}

/* 10^10 windows in three segments: creation, and position 10^9, touch nothing that grows with the
 * windows. */
static void ten_thousand_million_windows_cost_three_segments(void **state)
{
    const struct trajd_segment segments[] = {
        {0, 0, 0, 4000000000}, {0, 1, 0, 1}, {0, 2, 0, 5999999999}};

    (void)state;
    for (int order = TRAJD_ORDER_GLOBAL; order <= TRAJD_ORDER_SEQUENTIAL; order++) {
        struct trajd_sampler_options options = {.segments = segments,
                                                .segment_count = 3,
                                                .global_batch = 256,
                                                .order = (enum trajd_order)order,
                                                .block_windows = 4096,
                                                .block_neighbours = 16};
        struct trajd_sampler *sampler = new_sampler(&options);
        struct trajd_window window;
        assert_true(trajd_sampler_window_count(sampler) == UINT64_C(10000000000));
        for (uint64_t p = 1000000000; p < 1000000000 + 1000; p++) {
            trajd_sampler_at(sampler, 3, p, &window);
            assert_true(window.window_id < UINT64_C(10000000000) && window.anchor >= 0);
        }
        trajd_sampler_destroy(&sampler);
    }
}

static void bad_options_are_refused(void **state)
{
    struct trajd_segment segments[2] = {{0, 0, 0, 10}, {0, 1, 0, 10}};
    struct trajd_sampler_options good = {.segments = segments,
                                         .segment_count = 2,
                                         .global_batch = 4},
                                 bad;
    struct trajd_sampler *sampler = (struct trajd_sampler *)1;
    struct trajd_error error;

    (void)state;
    bad = good, bad.segment_count = 0;
    assert_int_equal(trajd_sampler_create(&bad, &sampler, &error), TRAJD_ERR_ARGUMENT);
    assert_null(sampler);
    assert_non_null(strstr(error.message, "no windows"));
    bad = good, bad.global_batch = 0;
    assert_int_equal(trajd_sampler_create(&bad, &sampler, &error), TRAJD_ERR_ARGUMENT);
    bad = good, bad.global_batch = 21;
    assert_int_equal(trajd_sampler_create(&bad, &sampler, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "20 windows"));
    bad = good, bad.order = TRAJD_ORDER_BLOCKED;
    assert_int_equal(trajd_sampler_create(&bad, &sampler, &error), TRAJD_ERR_ARGUMENT);
    bad = good, bad.order = (enum trajd_order)9;
    assert_int_equal(trajd_sampler_create(&bad, &sampler, &error), TRAJD_ERR_ARGUMENT);
    segments[1].window_count = 0;
    assert_int_equal(trajd_sampler_create(&good, &sampler, &error), TRAJD_ERR_ARGUMENT);
    segments[1].window_count = INT64_MAX;
    assert_int_equal(trajd_sampler_create(&good, &sampler, &error), TRAJD_ERR_ARGUMENT);
    segments[1] = (struct trajd_segment){0, 1, INT64_MAX - 3, 10};
    assert_int_equal(trajd_sampler_create(&good, &sampler, &error), TRAJD_ERR_ARGUMENT);
    trajd_sampler_destroy(&sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_vectors_hold),
        cmocka_unit_test(permutation_is_a_bijection),
        cmocka_unit_test(permutation_is_even_over_keys),
        cmocka_unit_test(permutation_spreads_positions),
        cmocka_unit_test(every_window_once_in_every_order),
        cmocka_unit_test(blocked_order_stays_within_its_neighbours),
        cmocka_unit_test(tails),
        cmocka_unit_test(order_does_not_depend_on_the_batch),
        cmocka_unit_test(ten_thousand_million_windows_cost_three_segments),
        cmocka_unit_test(bad_options_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
