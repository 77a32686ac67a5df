/* Passes of a sampler: one window of each episode, drawn again in each pass, and epochs of a
 * declared length, which go on from pass to pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "daemon/window/order/mixture.h"
#include "proto/array_len.h"

/* Three episodes; the second has two segments. */
static const struct trajd_segment segments[] = {
    {0, 4, 0, 6}, {0, 5, 10, 3}, {0, 5, 20, 5}, {0, 9, 7, 1}};
#define NUMBERS 15
#define EPISODES 3

static struct trajd_sampler *make(bool one_per_episode, uint64_t epoch_windows,
                                  enum trajd_tail tail)
{
    const struct trajd_sampler_options options = {.segments = segments,
                                                  .segment_count = ARRAY_LEN(segments),
                                                  .fingerprint = 77,
                                                  .seed = 5,
                                                  .tail = tail,
                                                  .global_batch = 2,
                                                  .one_per_episode = one_per_episode,
                                                  .epoch_windows = epoch_windows};
    struct trajd_sampler *sampler;
    struct trajd_error error;

    if (trajd_sampler_create(&options, &sampler, &error))
        fail_msg("%s", error.message);
    return sampler;
}

/* Every epoch has each episode once; over many epochs each window comes about as often as the
 * others of its episode. */
static void each_episode_once_and_each_window_alike(void **state)
{
    struct trajd_sampler *sampler = make(true, 0, TRAJD_TAIL_SHORT);
    uint32_t drawn[NUMBERS] = {0}, first_is_4 = 0;

    (void)state;
    assert_int_equal(trajd_sampler_number_count(sampler), NUMBERS);
    assert_int_equal(trajd_sampler_window_count(sampler), EPISODES);
    assert_int_equal(trajd_sampler_epoch_length(sampler), EPISODES);
    for (uint64_t epoch = 0; epoch < 24000; epoch++) {
        struct trajd_window windows[EPISODES];
        uint32_t seen = 0;
        trajd_sampler_run(sampler, epoch, 0, EPISODES, windows);
        for (int i = 0; i < EPISODES; i++) {
            seen |= 1u << windows[i].episode_index;
            drawn[windows[i].window_id]++;
        }
        assert_int_equal(seen, 1 << 4 | 1 << 5 | 1 << 9);
        first_is_4 += windows[0].episode_index == 4;
    }
    /* the deviation of a count of 24,000 / 6 is 58, of 24,000 / 8 is 51 */
    for (int w = 0; w < 6; w++)
        assert_in_range(drawn[w], 4000 - 300, 4000 + 300);
    for (int w = 6; w < 14; w++)
        assert_in_range(drawn[w], 3000 - 260, 3000 + 260);
    assert_int_equal(drawn[14], 24000);
    assert_in_range(first_is_4, 8000 - 370, 8000 + 370);
    trajd_sampler_destroy(&sampler);
}

/* A run of any length from any position is what the positions give one by one. */
static void runs_are_their_positions(void **state)
{
    static const struct {
        bool one;
        uint64_t epoch_windows;
    } cases[] = {{true, 0}, {true, 2}, {true, 7}, {false, 4}, {false, 40}, {true, 100}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_sampler *sampler = make(cases[i].one, cases[i].epoch_windows, TRAJD_TAIL_WRAP);
        const uint64_t length = trajd_sampler_window_count(sampler) + 3;
        for (uint64_t begin = 0; begin < length; begin++) {
            struct trajd_window run[128], one;
            const uint32_t count = (uint32_t)(length - begin);
            trajd_sampler_run(sampler, 6, begin, count, run);
            for (uint32_t p = 0; p < count; p++) {
                trajd_sampler_at(sampler, 6, begin + p, &one);
                assert_memory_equal(&one, &run[p], sizeof one);
                assert_int_equal(one.wrapped, begin + p >= length - 3);
            }
        }
        trajd_sampler_destroy(&sampler);
    }
}

/* After any number of positions each window (or episode) has come as often as the others, or once
 * more. */
static void passes_go_on_over_the_ends_of_epochs(void **state)
{
    static const uint64_t lengths[] = {1, 2, 7, 15, 16, 100};

    (void)state;
    for (int one = 0; one < 2; one++)
        for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
            struct trajd_sampler *sampler = make(one, lengths[i], TRAJD_TAIL_SHORT);
            const uint64_t pass = trajd_sampler_pass_count(sampler);
            uint32_t count[NUMBERS] = {0};
            assert_int_equal(pass, one ? EPISODES : NUMBERS);
            assert_int_equal(trajd_sampler_window_count(sampler), lengths[i]);
            for (uint64_t absolute = 0; absolute < 5 * pass; absolute++) {
                struct trajd_window window;
                trajd_sampler_at(sampler, absolute / lengths[i], absolute % lengths[i], &window);
                count[one ? (window.episode_index - 4) / 2 + (window.episode_index == 5)
                          : window.window_id]++;
                for (uint64_t w = 0; w < pass; w++)
                    assert_in_range(count[w], absolute / pass, absolute / pass + 1);
            }
            trajd_sampler_destroy(&sampler);
        }
}

/* A mixture's member draws in its passes, and window numbers of all members stay apart. */
static void a_mixture_of_such_passes(void **state)
{
    struct trajd_sampler *one = make(true, 0, TRAJD_TAIL_SHORT),
                         *all = make(false, 0, TRAJD_TAIL_SHORT);
    const struct trajd_sampler *const samplers[] = {one, all};
    const uint64_t weights[] = {1, 1};
    struct trajd_mixture_options options = {.samplers = samplers,
                                            .weights = weights,
                                            .dataset_count = 2,
                                            .epoch_windows = 30,
                                            .global_batch = 2};
    struct trajd_mixture *mixture;
    uint32_t episodes[10] = {0}, numbers[2 * NUMBERS] = {0};
    struct trajd_window windows[30], by_id;
    struct trajd_error error;

    (void)state;
    assert_int_equal(trajd_mixture_create(&options, &mixture, &error), TRAJD_OK);
    trajd_mixture_run(mixture, 0, 0, 30, windows);
    for (int i = 0; i < 30; i++) {
        assert_in_range(windows[i].window_id, windows[i].dataset_index ? NUMBERS : 0,
                        windows[i].dataset_index ? 2 * NUMBERS - 1 : NUMBERS - 1);
        numbers[windows[i].window_id]++;
        episodes[windows[i].dataset_index ? 0 : windows[i].episode_index]++;
        trajd_mixture_window(mixture, windows[i].window_id, &by_id);
        assert_true(by_id.episode_index == windows[i].episode_index &&
                    by_id.anchor == windows[i].anchor);
    }
    assert_true(episodes[4] == 5 && episodes[5] == 5 && episodes[9] == 5);
    for (int n = NUMBERS; n < 2 * NUMBERS; n++)
        assert_int_equal(numbers[n], 1);
    trajd_mixture_destroy(&mixture);
    options.weights = NULL; /* by size: three episodes against fifteen windows */
    options.epoch_windows = 0;
    assert_int_equal(trajd_mixture_create(&options, &mixture, &error), TRAJD_OK);
    assert_int_equal(trajd_mixture_epoch_windows(mixture), EPISODES + NUMBERS);
    assert_int_equal(trajd_mixture_weight(mixture, 0), 1);
    assert_int_equal(trajd_mixture_weight(mixture, 1), 5);
    trajd_mixture_destroy(&mixture);
    trajd_sampler_destroy(&one);
    trajd_sampler_destroy(&all);
}

static void what_is_refused(void **state)
{
    struct trajd_sampler_options options = {.segments = segments,
                                            .segment_count = ARRAY_LEN(segments),
                                            .global_batch = 4,
                                            .one_per_episode = true};
    struct trajd_sampler *sampler;
    struct trajd_error error;

    (void)state;
    assert_int_equal(trajd_sampler_create(&options, &sampler, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "3 windows are fewer than a global batch of 4"));
    options.tail = TRAJD_TAIL_SHORT;
    options.order = TRAJD_ORDER_BLOCKED;
    options.block_windows = options.block_neighbours = 1;
    assert_int_equal(trajd_sampler_create(&options, &sampler, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "one window per episode"));
    options.order = TRAJD_ORDER_GLOBAL;
    options.epoch_windows = (UINT64_C(1) << 62) + 1;
    assert_int_equal(trajd_sampler_create(&options, &sampler, &error), TRAJD_ERR_ARGUMENT);
    assert_null(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_episode_once_and_each_window_alike),
        cmocka_unit_test(runs_are_their_positions),
        cmocka_unit_test(passes_go_on_over_the_ends_of_epochs),
        cmocka_unit_test(a_mixture_of_such_passes),
        cmocka_unit_test(what_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
