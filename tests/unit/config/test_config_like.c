/* `like:` of a feed: what it takes over, what it changes, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/config/config.h"
#include "proto/array_len.h"

#define HEAD "version: 2\ndatasets: {lab: {path: rows.h5, layout: small}}\nfeeds:\n"
#define TRAIN                                                                                      \
    "  train: {dataset: lab, global_batch: 8, anchor: {clock: steps}, split: {hold_out: 3, take: " \
    "train}, outputs: {pos: {at: -1..0, norm: {by: mean_std, min_std: 0.1}}, vel: {at: 0}}}\n"

static enum trajd_status load(const char *feeds, struct trajd_config **config,
                              struct trajd_error *error)
{
    char path[] = "/tmp/trajd_like_XXXXXX";
    const int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    enum trajd_status status;

    assert_non_null(file);
    fprintf(file, HEAD "%s", feeds);
    fclose(file);
    status = trajd_config_load(path, NULL, 0, config, error);
    unlink(path);
    return status;
}

/* Returns the feeds of the printed configuration. Caller frees. */
static char *printed_feeds(const char *feeds)
{
    struct trajd_config *config;
    struct trajd_error error;
    char *text = NULL, *found;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (load(feeds, &config, &error))
        fail_msg("%s", error.message);
    trajd_config_print_json(config, out);
    fclose(out);
    trajd_config_destroy(&config);
    found = strstr(text, "\"feeds\":{");
    assert_non_null(found);
    found = strdup(found);
    free(text);
    return found;
}

static void a_feed_like_another_is_printed_in_full(void **state)
{
    char *found = printed_feeds(
        "  valid: {like: train, statistics_from: train, split: {take: validation}, outputs: {vel: "
        "null, force: {at: 0}, pos: {at: 0}}}\n" TRAIN);

    (void)state;
    assert_string_equal(
        found,
        "\"feeds\":{\"valid\":{\"dataset\":\"lab\",\"global_batch\":8,\"anchor\":{\"clock\":"
        "\"steps\"},\"split\":{\"hold_out\":3,\"take\":\"validation\"},\"outputs\":{\"pos\":{"
        "\"at\":0,\"norm\":{\"by\":\"mean_std\",\"min_std\":0.1}},\"force\":{\"at\":0}},"
        "\"statistics_from\":\"train\"},\"train\":{\"dataset\":\"lab\",\"global_batch\":8,"
        "\"anchor\":{\"clock\":\"steps\"},\"split\":{\"hold_out\":3,\"take\":\"train\"},"
        "\"outputs\":{\"pos\":{\"at\":\"-1..0\",\"norm\":{\"by\":\"mean_std\",\"min_std\":0.1}},"
        "\"vel\":{\"at\":0}}}}}\n");
    free(found);
}

/* A chain is followed to its end, in whichever order the feeds stand. */
static void a_chain(void **state)
{
    struct trajd_config *config;
    struct trajd_error error;

    (void)state;
    if (load("  c: {like: b, seed: 3}\n  a: {like: train, global_batch: 2}\n  b: {like: a, split: "
             "0..0.5, anchor: {clock: null, rate: 10}}\n" TRAIN,
             &config, &error))
        fail_msg("%s", error.message);
    assert_int_equal(config->feed_count, 4);
    assert_string_equal(config->feeds[0]->feed_name, "c");
    assert_true(config->feeds[0]->seed == 3 && config->feeds[0]->global_batch == 2 &&
                config->feeds[0]->select.split_end == 0.5 && !config->feeds[0]->select.hold_out &&
                config->feeds[0]->anchor_rate.num == 10);
    assert_true(config->feeds[3]->global_batch == 8 && config->feeds[3]->select.hold_out == 3);
    trajd_config_destroy(&config);
}

static void mistakes_name_their_line(void **state)
{
    static const struct {
        const char *feeds, *message;
    } bad[] = {
        {TRAIN "  v: {like: trian}\n",
         ":5: feeds.v.like: the configuration has no feed trian (did you mean train?)"},
        {"  a: {like: b}\n  b: {like: a}\n", "feeds.a.like: the feeds are like each other"},
        {TRAIN "  a: {like: a}\n", ":5: feeds.a.like: the feeds are like each other in a circle"},
        {TRAIN "  a: {like: [train]}\n", ":5: feeds.a.like: a text is expected"},
        {TRAIN "  a: {like: train, sed: 3}\n", ":5: feeds.a.sed: no such key (did you mean seed?)"},
        {TRAIN "  a: {like: train, anchor: {rate: 10}}\n", ":5: feeds.a.anchor: expected exactly"},
        {TRAIN "  a: {like: train, global_batch: null}\n", "feeds.a: a feed needs `global_batch:`"},
        {TRAIN "  a: {like: train, outputs: {velo: null}}\n", ":5: feeds.a.outputs.velo: "},
        {"  t: 5\n  a: {like: t}\n", "a mapping"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct trajd_config *config;
        struct trajd_error error;
        assert_int_equal(load(bad[i].feeds, &config, &error), TRAJD_ERR_ARGUMENT);
        if (!strstr(error.message, bad[i].message))
            fail_msg("\n%s\nsaid: %s\nnot: %s", bad[i].feeds, error.message, bad[i].message);
    }
}

/* A job's feed takes the keys of a configured one. Its own text stands for what it says in full. */
static void a_feed_that_a_job_sends(void **state)
{
    struct trajd_config *config;
    struct trajd_error error;
    char *text;

    (void)state;
    if (load("  small: {like: train, global_batch: 2}\n" TRAIN, &config, &error))
        fail_msg("%s", error.message);
    assert_int_equal(trajd_config_expand_feed(config, "{seed: 1}", &text, &error), TRAJD_OK);
    assert_null(text);
    if (trajd_config_expand_feed(config,
                                 "{\"like\": \"small\", \"seed\": 4, \"outputs\": {\"pos\": null}}",
                                 &text, &error))
        fail_msg("%s", error.message);
    assert_string_equal(
        text, "{\"dataset\":\"lab\",\"global_batch\":2,\"anchor\":{\"clock\":\"steps\"},\"split\":{"
              "\"hold_out\":3,\"take\":\"train\"},\"outputs\":{\"vel\":{\"at\":0}},\"seed\":4}");
    free(text);
    assert_int_equal(trajd_config_expand_feed(config, "{like: smal}", &text, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "spec:1: like: the configuration has no feed smal (did "
                                          "you mean small?)"));
    assert_null(text);
    trajd_config_destroy(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_feed_like_another_is_printed_in_full),
        cmocka_unit_test(a_chain),
        cmocka_unit_test(mistakes_name_their_line),
        cmocka_unit_test(a_feed_that_a_job_sends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
