/* Which episodes a feed takes, on an index made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/window/select/select.h"
#include "daemon/window/feed_spec/window_spec.h"
#include "proto/array_len.h"

#define EPISODES 12

static const char *const ids[EPISODES] = {"demo_0", "demo_1", "demo_2", "demo_3",
                                          "demo_4", "demo_5", "demo_6", "demo_7",
                                          "demo_0", "demo_1", "12",     "a:b"};

/* File a.h5 has the episodes 0..7, broken.h5 none, sub/c.h5 the others. Episode 2 is
 * quarantined. */
struct world {
    struct trajd_layout layout;
    struct trajd_index_file files[3];
    struct trajd_episode episodes[EPISODES];
    struct trajd_index index;
};

static void make_world(struct world *world)
{
    *world = (struct world){.layout = {.name = "test"},
                            .files = {{.relative_path = "a.h5"},
                                      {.relative_path = "broken.h5", .refusal = "broken.h5: bad"},
                                      {.relative_path = "sub/c.h5"}}};
    for (uint32_t e = 0; e < EPISODES; e++)
        world->episodes[e] = (struct trajd_episode){.id = ids[e], .file_index = e < 8 ? 0 : 2};
    world->episodes[2].quarantine = "a.h5: demo_2: bad";
    world->index = (struct trajd_index){.layout = &world->layout,
                                        .file_count = 3,
                                        .files = world->files,
                                        .episode_count = EPISODES,
                                        .episodes = world->episodes,
                                        .refused_file_count = 1};
}

/* Selects by a feed's keys. Writes "+" for each episode taken, "!" for one that is only listed. */
static enum trajd_status take(const struct world *world, const char *keys, char *taken,
                              struct trajd_select_refused *refused, struct trajd_error *error)
{
    uint8_t flags[EPISODES];
    struct trajd_window_spec *spec;
    struct trajd_yaml *yaml;
    enum trajd_status status;
    char text[512];

    snprintf(text, sizeof text,
             "dataset: d\nglobal_batch: 1\nanchor: {clock: c}\noutputs: {x: {at: 0}}\n%s", keys);
    assert_int_equal(trajd_yaml_parse("test", text, strlen(text), &yaml, error), TRAJD_OK);
    if (trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), "feed", 2, &spec, error))
        fail_msg("%s", error->message);
    trajd_yaml_destroy(&yaml);
    status = trajd_select_episodes(&spec->select, &world->index, flags, refused, error);
    for (uint32_t e = 0; e < world->index.episode_count && !status; e++)
        taken[e] = flags[e] & TRAJD_SELECT_TAKEN ? '+' : flags[e] & TRAJD_SELECT_LISTED ? '!' : '.';
    taken[world->index.episode_count] = 0;
    trajd_window_spec_destroy(&spec);
    return status;
}

static void test_numbers_names_and_files(void **state)
{
    static const struct {
        const char *keys, *taken;
        uint32_t refused;
    } cases[] = {
        {"", "++!+++++++++", 0},
        {"episodes: 0", "+...........", 0},
        {"episodes: [0..3, 5]", "++!+.+......", 0},
        {"episodes: [\"0..3\"]", "++!+........", 0},
        {"episodes: [7..9]", ".......++...", 1}, /* 8 is the file that gives no episode */
        {"episodes: [12]", "...........+", 0},
        {"episodes: [\"12\"]", "..........+.", 0},
        {"episodes: [demo_1]", ".+.......+..", 0},
        {"episodes: demo_2", "..!.........", 0},
        {"episodes: [a.h5]", "++!+++++....", 0},
        {"episodes: [sub/c.h5, 3, 3..4]", "...++...++++", 0},
        {"episodes: [\"sub/c.h5:demo_1\", \"a:b\"]", ".........+.+", 0},
        {"episodes: [broken.h5, 0]", "+...........", 1},
    };
    struct trajd_select_refused refused;
    struct trajd_error error;
    struct world world;
    char taken[EPISODES + 1];

    (void)state;
    make_world(&world);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (take(&world, cases[i].keys, taken, &refused, &error))
            fail_msg("%s: %s", cases[i].keys, error.message);
        if (strcmp(taken, cases[i].taken) || refused.count != cases[i].refused)
            fail_msg("%s: %s, %u refused", cases[i].keys, taken, refused.count);
        if (refused.count)
            assert_string_equal(refused.first, "broken.h5: bad");
    }
}

static void test_entries_that_match_nothing(void **state)
{
    static const struct {
        const char *keys, *message;
    } cases[] = {
        {"episodes: [0, 13]", "test:5: episodes[1]: there is no episode 13: the dataset has 13 "},
        {"episodes: [9..99999999999999999999]", "there is no episode 4294967294"},
        {"episodes:\n- 1\n- demo_8",
         "test:7: episodes[1]: no episode and no file of the dataset is called demo_8 (did you "
         "mean demo_0? "},
        {"episodes: c.h5",
         "test:5: episodes: no episode and no file of the dataset is called c.h5"},
        {"episodes: [\"a.h5:demo_9\"]", "is called a.h5:demo_9"},
        {"episodes: [\"12x\", 99]", "is called 12x"},
        {"episodes: [0..3..5]", "is called 0..3..5"},
        {"episodes: [-1]", "is called -1"},
    };
    struct trajd_select_refused refused;
    struct trajd_error error;
    struct world world;
    char taken[EPISODES + 1];

    (void)state;
    make_world(&world);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(take(&world, cases[i].keys, taken, &refused, &error), TRAJD_ERR_NOT_FOUND);
        if (!strstr(error.message, cases[i].message))
            fail_msg("%s: %s", cases[i].keys, error.message);
    }
}

static uint32_t count_taken(const char *taken)
{
    uint32_t count = 0;

    for (; *taken; taken++)
        count += *taken == '+';
    return count;
}

/* Takes the two parts of a split by count. They are disjoint, and together all. */
static void split(const struct world *world, const char *keys, uint32_t hold_out, uint32_t all,
                  char *validation)
{
    struct trajd_select_refused refused;
    struct trajd_error error;
    char train[EPISODES + 1], text[128];

    for (int part = 0; part < 2; part++) {
        snprintf(text, sizeof text, "%ssplit: {hold_out: %u, take: %s}", keys, hold_out,
                 part ? "validation" : "train");
        if (take(world, text, part ? validation : train, &refused, &error))
            fail_msg("%s: %s", text, error.message);
    }
    assert_int_equal(count_taken(validation), hold_out);
    assert_int_equal(count_taken(train), all - hold_out);
    for (uint32_t e = 0; e < world->index.episode_count; e++)
        assert_false(train[e] == '+' && validation[e] == '+');
}

static void test_a_split_by_count(void **state)
{
    char before[EPISODES + 1], after[EPISODES + 1];
    struct world world;

    (void)state;
    make_world(&world);
    for (uint32_t n = 1; n < EPISODES - 1; n++) {
        uint32_t moved = 0;
        make_world(&world);
        split(&world, "", n, EPISODES - 1, after);
        split(&world, "episodes: [0..7]\n", n < 7 ? n : 6, 7, before);
        /* one episode that is new, or becomes bad, moves at most one other */
        world.index.episode_count--;
        if (n < EPISODES - 2) {
            split(&world, "", n, EPISODES - 2, before);
            for (uint32_t e = 0; e < EPISODES - 1; e++)
                moved += before[e] != after[e];
            assert_true(moved <= 1);
        }
    }
}

/* The episodes with the smallest hashes are held out. They stay the same for ever. */
static void test_which_episodes_are_held_out(void **state)
{
    char validation[EPISODES + 1];
    struct world world;

    (void)state;
    make_world(&world);
    split(&world, "", 1, EPISODES - 1, validation);
    assert_string_equal(validation, "+!!!!!!!!!!!");
    split(&world, "", 4, EPISODES - 1, validation);
    assert_string_equal(validation, "+!!!!!!!+!++");
}

static void test_what_a_split_by_count_refuses(void **state)
{
    static const char *const keys[] = {"split: {hold_out: 11, take: train}",
                                       "split: {hold_out: 11, take: validation}",
                                       "episodes: [0..2]\nsplit: {hold_out: 2, take: validation}"};
    struct trajd_select_refused refused;
    struct trajd_error error;
    struct world world;
    char taken[EPISODES + 1];

    (void)state;
    make_world(&world);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        assert_int_equal(take(&world, keys[i], taken, &refused, &error), TRAJD_ERR_DATA);
        assert_non_null(strstr(error.message, "none would be left for training"));
    }
}

/* The digest is part of the fingerprint only where a rule of it is used. */
static void test_digests(void **state)
{
    static const char name[] = "demo_1";
    static const struct trajd_select_entry entries[] = {{.name = name}, {.first = 1, .last = 1}};
    struct trajd_select_rules rules = {.split_end = 0.5};
    uint64_t one;

    (void)state;
    assert_true(trajd_select_digest(&rules) == 0);
    rules.entries = entries;
    rules.entry_count = 1;
    one = trajd_select_digest(&rules);
    rules.entries = entries + 1;
    assert_true(one && trajd_select_digest(&rules) && trajd_select_digest(&rules) != one);
    rules = (struct trajd_select_rules){.hold_out = 3};
    one = trajd_select_digest(&rules);
    rules.takes_held_out = true;
    assert_true(one && trajd_select_digest(&rules) != one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_names_and_files),
        cmocka_unit_test(test_entries_that_match_nothing),
        cmocka_unit_test(test_a_split_by_count),
        cmocka_unit_test(test_which_episodes_are_held_out),
        cmocka_unit_test(test_what_a_split_by_count_refuses),
        cmocka_unit_test(test_digests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
