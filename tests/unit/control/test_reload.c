/* reload_plan.c, reload_keys.c and reload.c: what a changed configuration
 * comes to. No feed is open here; tests/integration/test_reload.py reloads a running daemon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/control/reload_internal.h"
#include "unit/producer/small_dataset.h"

#define MIB (UINT64_C(1) << 20)
#define HEAD "version: 2\nmemory: {store: 4MiB, rings: 1MiB, reserve: 0}\n"
#define DATASETS                                                                                   \
    "datasets:\n  lab: {path: /nowhere/a.h5, layout: small}\n"                                     \
    "  far: {path: /nowhere/b.h5, layout: small}\n"
#define BODY "global_batch: 8, anchor: {clock: steps}, outputs: {pos: {at: 0}}"
#define TRAIN "  train: {dataset: lab, " BODY "}\n"
#define VALID "  valid: {dataset: far, statistics_from: train, " BODY "}\n"
#define BEFORE HEAD DATASETS "feeds:\n" TRAIN VALID

static const struct trajd_log quiet = {.fd = -1, .level = TRAJD_LOG_ERROR};

struct fixture {
    char path[64];
    struct small_dataset *lab, *far;
    struct trajd_control *control;
    struct trajd_open_config now, next;
    struct trajd_reload_change change;
    struct trajd_error error;
    char message[1024];
};

static struct trajd_config *load(struct fixture *f, const char *text)
{
    struct trajd_config *config;
    FILE *file = fopen(f->path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    if (trajd_config_load(f->path, NULL, 0, &config, &f->error))
        fail_msg("%s", f->error.message);
    return config;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    int fd;

    strcpy(f->path, "/tmp/trajd_reload_XXXXXX");
    fd = mkstemp(f->path);
    assert_true(fd >= 0);
    close(fd);
    f->lab = small_dataset_create("lab", 2 * MIB);
    f->far = small_dataset_create("far", 2 * MIB);
    f->now = (struct trajd_open_config){.config = load(f, BEFORE),
                                        .dataset_count = 2,
                                        .datasets = {&f->lab->dataset, &f->far->dataset}};
    f->control = calloc(1, sizeof *f->control);
    f->control->log = &quiet;
    f->control->now = &f->now;
    f->change = (struct trajd_reload_change){.control = f->control, .next = &f->next};
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    trajd_config_destroy(&f->now.config);
    trajd_config_destroy(&f->next.config);
    small_dataset_destroy(&f->lab);
    small_dataset_destroy(&f->far);
    unlink(f->path);
    free(f->control);
    free(f);
    return 0;
}

static enum trajd_status plan(struct fixture *f, const char *text)
{
    trajd_config_destroy(&f->next.config);
    memset(&f->next, 0, sizeof f->next);
    f->change = (struct trajd_reload_change){.control = f->control, .next = &f->next};
    f->next.config = load(f, text);
    return trajd_reload_plan(&f->change, &f->error);
}

static void plan_good(struct fixture *f, const char *text)
{
    if (plan(f, text))
        fail_msg("%s", f->error.message);
}

static void refused(struct fixture *f, const char *text, enum trajd_status status,
                    const char *message)
{
    assert_int_equal(plan(f, text), status);
    if (!strstr(f->error.message, message))
        fail_msg("\"%s\" lacks \"%s\"", f->error.message, message);
}

static const char *described(struct fixture *f)
{
    trajd_reload_describe(&f->change, f->message, sizeof f->message);
    return f->message;
}

/* ---- what stays ---- */

static void the_same_file_changes_nothing(void **state)
{
    struct fixture *f = *state;

    plan_good(f, BEFORE);
    for (uint32_t i = 0; i < 2; i++) {
        assert_false(f->change.is_new_dataset[i]);
        assert_int_equal(f->change.feed_reason[i], TRAJD_FEED_STAYS);
    }
    assert_ptr_equal(f->next.datasets[0], &f->lab->dataset);
    assert_ptr_equal(f->next.datasets[1], &f->far->dataset);
    assert_int_equal(f->change.cache_raise_bytes, 0);
    assert_string_equal(described(f), "nothing has changed");
}

static void spelling_and_comments_do_not_count(void **state)
{
    struct fixture *f = *state;

    plan_good(f, "# another comment\n" HEAD DATASETS
                 "feeds:\n  train:\n    dataset: lab  # the same\n    global_batch: 8\n"
                 "    anchor:\n      clock: steps\n    outputs:\n      pos: {at: 0}\n" VALID);
    assert_int_equal(f->change.feed_reason[0], TRAJD_FEED_STAYS);
    assert_string_equal(described(f), "nothing has changed");
}

static void a_changed_feed_takes_those_with_its_statistics_along(void **state)
{
    struct fixture *f = *state;

    plan_good(f, HEAD DATASETS "feeds:\n  train: {dataset: lab, seed: 1, " BODY "}\n" VALID
                               "  probe: {dataset: lab, " BODY "}\n");
    assert_int_equal(f->change.feed_reason[0], TRAJD_FEED_HAS_CHANGED);
    assert_null(f->change.feed_cause[0]);
    assert_int_equal(f->change.feed_reason[1], TRAJD_FEED_STATISTICS_HAVE_CHANGED);
    assert_string_equal(f->change.feed_cause[1], "train");
    assert_int_equal(f->change.feed_reason[2], TRAJD_FEED_HAS_CHANGED);
    assert_string_equal(described(f), "new feeds: probe; changed feeds: train, valid");
}

static void a_changed_dataset_takes_its_feeds_along(void **state)
{
    struct fixture *f = *state;

    /* memory.store is divided again: far keeps its 2 MiB, lab gets the remainder */
    plan_good(f, "version: 2\nmemory: {store: 5MiB, rings: 1MiB, reserve: 0}\n"
                 "datasets:\n  lab: {path: /nowhere/c.h5, layout: small}\n"
                 "  far: {path: /nowhere/b.h5, layout: small}\nfeeds:\n" TRAIN VALID);
    assert_true(f->change.is_new_dataset[0]);
    assert_false(f->change.is_new_dataset[1]);
    assert_int_equal(f->change.cache_share_bytes, 3 * MIB);
    assert_int_equal(f->change.feed_reason[0], TRAJD_FEED_DATASET_HAS_CHANGED);
    assert_string_equal(f->change.feed_cause[0], "lab");
    assert_int_equal(f->change.feed_reason[1], TRAJD_FEED_STATISTICS_HAVE_CHANGED);
    assert_false(trajd_reload_stays_open(&f->change, &f->lab->dataset));
    assert_true(trajd_reload_stays_open(&f->change, &f->far->dataset));
    f->next.datasets[0] = &f->lab->dataset; /* as if it were opened */
    assert_string_equal(
        described(f),
        "changed feeds: train, valid; new or changed datasets: lab; keys: memory.store");
}

static void another_rate_is_another_dataset(void **state)
{
    struct fixture *f = *state;

    plan_good(f, "version: 2\nmemory: {store: 5MiB, rings: 1MiB, reserve: 0}\n"
                 "datasets:\n  lab: {path: /nowhere/a.h5, layout: small, rate: 20}\n"
                 "  far: {path: /nowhere/b.h5, layout: small}\nfeeds:\n" TRAIN VALID);
    assert_true(f->change.is_new_dataset[0]);
    assert_false(f->change.is_new_dataset[1]);
    assert_int_equal(f->change.feed_reason[0], TRAJD_FEED_DATASET_HAS_CHANGED);
}

static void removed_datasets_are_named(void **state)
{
    struct fixture *f = *state;

    plan_good(f, HEAD "datasets:\n  lab: {path: /nowhere/a.h5, layout: small}\nfeeds:\n" TRAIN);
    assert_int_equal(f->change.cache_raise_bytes, 2 * MIB); /* lab gets the share of far */
    assert_string_equal(described(f), "datasets gone: far");
}

/* ---- keys ---- */

static void some_keys_may_change(void **state)
{
    struct fixture *f = *state;

    plan_good(f,
              "version: 2\nexit_idle: 9s\nlimits: {feeds: 20}\n"
              "memory: {store: 6MiB, rings: 1MiB, reserve: 0}\n" DATASETS "feeds:\n" TRAIN VALID);
    assert_int_equal(f->change.cache_raise_bytes, MIB); /* 2 MiB more for two datasets */
    assert_string_equal(described(f), "keys: exit_idle, memory.store, limits.feeds");
}

static void other_keys_need_a_restart(void **state)
{
    struct fixture *f = *state;

    refused(f, BEFORE "threads: {readers: 3}\nlimits: {credit: 4}\ngroup_access: true\n",
            TRAJD_ERR_UNSUPPORTED,
            "group_access, threads.readers, limits.credit: cannot change while the daemon runs: "
            "restart the daemon");
    refused(f, BEFORE "runtime: /run/other\n", TRAJD_ERR_UNSUPPORTED, "runtime: cannot change");
}

/* "50%" stays the number of bytes that it was at start. */
static void a_share_of_the_memory_stays_as_it_was(void **state)
{
    static const char text[] =
        "version: 2\nmemory: {store: 4MiB, rings: 1%, reserve: 0}\n" DATASETS;
    struct fixture *f = *state;
    struct trajd_config *now = load(f, text), *next = load(f, text);
    struct trajd_config *other = load(f, HEAD DATASETS);

    now->rings_bytes = 12345;
    trajd_reload_keep_shares(now, next);
    assert_int_equal(next->rings_bytes, 12345);
    trajd_reload_keep_shares(now, other); /* written otherwise */
    assert_int_equal(other->rings_bytes, MIB);
    trajd_config_destroy(&now);
    trajd_config_destroy(&next);
    trajd_config_destroy(&other);
}

static void values_are_compared_by_type(void **state)
{
    struct fixture *f = *state;
    struct trajd_config *other =
        load(f, "version: 2\ngroup_access: true\nfeed_idle: 1s\nlimits: {credit: 4}\ncache: /c\n"
                "memory: {store: 4MiB, rings: 1MiB, reserve: 0}\n" DATASETS);
    uint32_t different = 0;

    for (size_t k = 0; k < trajd_config_key_count; k++) {
        assert_true(trajd_reload_is_same_value(other, other, &trajd_config_keys[k]));
        different += !trajd_reload_is_same_value(f->now.config, other, &trajd_config_keys[k]);
    }
    assert_int_equal(different, 4);
    trajd_config_destroy(&other);
}

/* ---- refusals ---- */

static void memory_that_is_not_there_is_refused(void **state)
{
    struct fixture *f = *state;

    refused(f, "version: 2\nmemory: {store: 3MiB, rings: 1MiB, reserve: 0}\n" DATASETS,
            TRAJD_ERR_MEMORY,
            "memory.store: 3 MiB, but the datasets that stay have 4 MiB: it cannot shrink");
    refused(f, HEAD DATASETS "  new: {path: /nowhere/n.h5, layout: small}\n", TRAJD_ERR_MEMORY,
            "raise it to make room for datasets.new");
    refused(f, "version: 2\nmemory: {store: 4MiB, rings: 1024TiB, reserve: 0}\n" DATASETS,
            TRAJD_ERR_MEMORY, "memory.store and memory.rings need");
}

static void feeds_that_are_read_are_named_with_the_cause(void **state)
{
    static const struct {
        enum trajd_reload_reason reason;
        const char *cause, *message;
    } cases[] = {
        {TRAJD_FEED_IS_GONE, NULL, "feeds.train: was removed, but workers read it"},
        {TRAJD_FEED_HAS_CHANGED, NULL, "feeds.train: was changed, and workers read it"},
        {TRAJD_FEED_DATASET_HAS_CHANGED, "lab",
         "datasets.lab: was changed or removed, feed train uses it"},
        {TRAJD_FEED_STATISTICS_HAVE_CHANGED, "base",
         "feeds.base: was changed, feed train takes its statistics from it"},
    };
    const struct trajd_stats_service_options stats_options = {.log = &quiet};
    struct fixture *f = *state;
    struct trajd_dataset *const datasets[] = {&f->lab->dataset};
    struct trajd_producer_options options = {.name = "train",
                                             .spec = f->now.config->feeds[0],
                                             .datasets = datasets,
                                             .max_credit = 16,
                                             .rings_limit_bytes = MIB,
                                             .log = &quiet};
    struct trajd_stats_service *stats_service;

    assert_int_equal(trajd_stats_service_create(&stats_options, &stats_service, &f->error), 0);
    options.stats_service = stats_service;
    if (trajd_producer_create(&options, &f->change.out[0], &f->error))
        fail_msg("%s", f->error.message);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        f->change.out_reason[0] = cases[i].reason;
        f->change.out_cause[0] = cases[i].cause;
        assert_int_equal(trajd_reload_refuse_busy(&f->change, 0, &f->error), TRAJD_ERR_BUSY);
        if (!strstr(f->error.message, cases[i].message))
            fail_msg("\"%s\" lacks \"%s\"", f->error.message, cases[i].message);
    }
    trajd_producer_destroy(&f->change.out[0]);
    trajd_stats_service_destroy(&stats_service);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_same_file_changes_nothing),
        TEST(spelling_and_comments_do_not_count),
        TEST(a_changed_feed_takes_those_with_its_statistics_along),
        TEST(a_changed_dataset_takes_its_feeds_along),
        TEST(another_rate_is_another_dataset),
        TEST(removed_datasets_are_named),
        TEST(some_keys_may_change),
        TEST(other_keys_need_a_restart),
        TEST(a_share_of_the_memory_stays_as_it_was),
        TEST(values_are_compared_by_type),
        TEST(memory_that_is_not_there_is_refused),
        TEST(feeds_that_are_read_are_named_with_the_cause),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
