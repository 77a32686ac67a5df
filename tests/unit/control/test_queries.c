/* query_episodes.c, query_position.c, query_explain.c and query_page.c: the documents about a feed
 * over a dataset made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/base/yaml.h"
#include "daemon/control/query.h"
#include "daemon/window/feed_spec/window_spec.h"
#include "unit/producer/small_dataset.h"

static const struct trajd_log quiet = {.fd = -1, .level = TRAJD_LOG_ERROR};
static const char feed_text[] =
    "dataset: small\nglobal_batch: 8\norder: sequential\nanchor: {clock: steps}\n"
    "pad: {before: 1, after: any, with: edge}\n"
    "outputs: {pos: {at: -1..0}, cmd: {at: 0..2, role: action}}";

struct fixture {
    struct small_dataset *small;
    struct trajd_stats_service *stats_service;
    struct trajd_window_spec *spec;
    struct trajd_producer *producer;
    struct trajd_yaml *document; /* of the last answer */
    struct trajd_error error;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    const struct trajd_stats_service_options stats_options = {.log = &quiet};
    struct trajd_dataset *datasets[1];
    struct trajd_producer_options options = {.name = "train",
                                             .datasets = datasets,
                                             .max_credit = 16,
                                             .rings_limit_bytes = 1 << 20,
                                             .log = &quiet};

    f->small = small_dataset_create("small", 1 << 20);
    datasets[0] = &f->small->dataset;
    f->spec = small_spec("train", feed_text);
    if (trajd_stats_service_create(&stats_options, &f->stats_service, &f->error))
        fail_msg("%s", f->error.message);
    options.spec = f->spec;
    options.stats_service = f->stats_service;
    if (trajd_producer_create(&options, &f->producer, &f->error))
        fail_msg("%s", f->error.message);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    trajd_yaml_destroy(&f->document);
    trajd_producer_destroy(&f->producer);
    trajd_window_spec_destroy(&f->spec);
    trajd_stats_service_destroy(&f->stats_service);
    small_dataset_destroy(&f->small);
    free(f);
    return 0;
}

/* Asks, and parses the answer: JSON is YAML. */
static enum trajd_status ask(struct fixture *f, trajd_query_result answer,
                             const struct trajd_query *query)
{
    char *text = NULL;
    size_t length = 0;
    struct trajd_json json = {.out = open_memstream(&text, &length)};
    const enum trajd_status status = answer(query, f->producer, &json, &f->error);

    fclose(json.out);
    trajd_yaml_destroy(&f->document);
    if (!status && trajd_yaml_parse("answer", text, length, &f->document, &f->error))
        fail_msg("%s in %s", f->error.message, text);
    free(text);
    return status;
}

/* Returns the value of a key of a mapping. */
static const char *value(const struct trajd_yaml_node *mapping, const char *key)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(mapping, key);

    if (!node)
        fail_msg("no key %s", key);
    return node->value;
}

static const char *member(const struct fixture *f, const char *key)
{
    return value(trajd_yaml_root(f->document), key);
}

static const struct trajd_yaml_node *item(const struct fixture *f, uint32_t index)
{
    const struct trajd_yaml_node *node =
        trajd_yaml_get(trajd_yaml_root(f->document), "items")->children;

    for (; index; index--)
        node = node->next;
    return node;
}

static uint32_t item_count(const struct fixture *f)
{
    return trajd_yaml_get(trajd_yaml_root(f->document), "items")->child_count;
}

/* ---- pages ---- */

static void pages_end_where_an_answer_is_full(void **state)
{
    static char long_text[TRAJD_QUERY_MAX_ANSWER];
    char *text = NULL;
    size_t size = 0;
    struct trajd_json json = {.out = open_memstream(&text, &size)};
    struct trajd_json_mark mark;

    (void)state;
    memset(long_text, 'x', sizeof long_text - 1);
    trajd_json_open_object(&json, NULL);
    trajd_json_open_array(&json, "items");
    mark = trajd_json_get_mark(&json);
    trajd_json_string(&json, NULL, "short");
    assert_true(trajd_query_fits(&json, mark));
    mark = trajd_json_get_mark(&json);
    trajd_json_string(&json, NULL, long_text);
    assert_false(trajd_query_fits(&json, mark));
    trajd_query_end_page(&json, 5, 9);
    fclose(json.out);
    assert_string_equal(text, "{\"items\":[\"short\"],\"next\":5}");
    free(text);
    json = (struct trajd_json){.out = open_memstream(&text, &size)};
    trajd_json_open_object(&json, NULL);
    trajd_json_open_array(&json, "items");
    trajd_query_end_page(&json, 9, 9);
    fclose(json.out);
    assert_string_equal(text, "{\"items\":[],\"next\":null}");
    free(text);
}

/* ---- episodes ---- */

static void episodes_are_listed(void **state)
{
    struct fixture *f = *state;
    struct trajd_query query = {.what = "episodes"};

    f->small->episodes[1].quarantine = "demo_1: bad \"stamp\"";
    assert_int_equal(ask(f, trajd_query_episodes, &query), TRAJD_OK);
    assert_string_equal(member(f, "feed"), "train");
    assert_string_equal(member(f, "episodes"), "2");
    assert_string_equal(member(f, "next"), "null");
    assert_int_equal(item_count(f), 2);
    assert_string_equal(value(item(f, 0), "dataset"), "small");
    assert_string_equal(value(item(f, 0), "file"), "rows.h5");
    assert_string_equal(value(item(f, 0), "episode"), "demo_0");
    assert_string_equal(value(item(f, 0), "rows"), "20");
    assert_string_equal(value(item(f, 0), "digest"), "0000000000000007");
    assert_null(trajd_yaml_get(item(f, 0), "quarantine"));
    assert_string_equal(value(item(f, 1), "quarantine"), "demo_1: bad \"stamp\"");
    assert_string_equal(value(item(f, 1), "rows"), "0");
    query.count = 1;
    assert_int_equal(ask(f, trajd_query_episodes, &query), TRAJD_OK);
    assert_int_equal(item_count(f), 1);
    assert_string_equal(member(f, "next"), "1");
}

static void episodes_that_do_not_exist(void **state)
{
    struct fixture *f = *state;
    struct trajd_query query = {.first = 2};

    assert_int_equal(ask(f, trajd_query_episodes, &query), TRAJD_ERR_NOT_FOUND);
    assert_string_equal(f->error.message, "episode 2 does not exist: the feed has 2 episodes");
    query = (struct trajd_query){.name = "task"};
    assert_int_equal(ask(f, trajd_query_episodes, &query), TRAJD_ERR_NOT_FOUND);
    assert_string_equal(f->error.message, "layout small has no meta task (metas: none)");
}

/* ---- positions ---- */

static void positions_name_their_windows(void **state)
{
    struct fixture *f = *state;
    struct trajd_query query = {.window = 3, .first = 19, .count = 2};

    assert_int_equal(ask(f, trajd_query_position, &query), TRAJD_OK);
    assert_string_equal(member(f, "epoch"), "3");
    assert_string_equal(member(f, "length"), "40");
    assert_string_equal(member(f, "next"), "21");
    assert_int_equal(item_count(f), 2);
    assert_string_equal(value(item(f, 0), "window_id"), "19");
    assert_string_equal(value(item(f, 0), "episode"), "demo_0");
    assert_string_equal(value(item(f, 0), "anchor"), "19");
    assert_string_equal(value(item(f, 1), "episode"), "demo_1");
    assert_string_equal(value(item(f, 1), "anchor"), "0");
    assert_string_equal(value(item(f, 1), "wrapped"), "false");
    query = (struct trajd_query){.first = 40};
    assert_int_equal(ask(f, trajd_query_position, &query), TRAJD_ERR_NOT_FOUND);
    assert_string_equal(f->error.message, "position 40 does not exist: an epoch has 40 positions");
}

/* ---- explain ---- */

/* Returns step `index` of output `output` of the answer. */
static const struct trajd_yaml_node *step(const struct fixture *f, uint32_t output, uint32_t index)
{
    const struct trajd_yaml_node *node =
        trajd_yaml_get(trajd_yaml_root(f->document), "outputs")->children;

    for (; output; output--)
        node = node->next;
    node = trajd_yaml_get(node, "items")->children;
    for (; index; index--)
        node = node->next;
    return node;
}

static void steps_name_their_rows_and_reasons(void **state)
{
    struct fixture *f = *state;
    const struct trajd_query query = {.window = 20}; /* the first of demo_1 */
    const struct trajd_yaml_node *source, *row;

    assert_int_equal(ask(f, trajd_query_explain, &query), TRAJD_OK);
    assert_string_equal(member(f, "episode"), "demo_1");
    assert_string_equal(member(f, "anchor"), "0");
    assert_string_equal(member(f, "steps"), "5");
    assert_string_equal(value(step(f, 0, 0), "mask"), "1");
    source = trajd_yaml_get(step(f, 0, 0), "sources")->children;
    assert_string_equal(value(source, "reason"), "before start: row -1");
    assert_string_equal(value(step(f, 0, 1), "mask"), "0");
    source = trajd_yaml_get(step(f, 1, 2), "sources")->children;
    assert_null(trajd_yaml_get(source, "reason"));
    row = trajd_yaml_get(source, "rows")->children->children; /* [row, ns, weight] */
    assert_string_equal(row->value, "2");
    assert_string_equal(row->next->value, "200000000");
    assert_string_equal(row->next->next->value, "1");
}

static void one_output_and_some_steps(void **state)
{
    struct fixture *f = *state;
    struct trajd_query query = {.window = 5, .first = 1, .count = 1, .name = "cmd"};

    assert_int_equal(ask(f, trajd_query_explain, &query), TRAJD_OK);
    assert_string_equal(member(f, "steps"), "3");
    assert_string_equal(member(f, "next"), "2");
    assert_string_equal(value(step(f, 0, 0), "step"), "1");
    query.first = 3;
    assert_int_equal(ask(f, trajd_query_explain, &query), TRAJD_ERR_NOT_FOUND);
    assert_string_equal(f->error.message, "step 3 does not exist: there are 3 steps");
    query = (struct trajd_query){.name = "cmb"};
    assert_int_equal(ask(f, trajd_query_explain, &query), TRAJD_ERR_NOT_FOUND);
    assert_string_equal(f->error.message, "no output cmb (did you mean cmd?)");
    query = (struct trajd_query){.window = 40};
    assert_int_equal(ask(f, trajd_query_explain, &query), TRAJD_ERR_NOT_FOUND);
    assert_string_equal(f->error.message, "window 40 does not exist: there are 40 windows");
}

static void unreadable_rows_are_named(void **state)
{
    struct fixture *f = *state;
    const struct trajd_query query = {.window = 0};

    unlink(f->small->data.path);
    assert_int_equal(ask(f, trajd_query_explain, &query), TRAJD_OK);
    assert_non_null(strstr(member(f, "unreadable"), "rows.h5"));
    /* without bad_rows: keep the steps are explained by their stamps */
    assert_string_equal(value(step(f, 0, 1), "mask"), "0");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_end_where_an_answer_is_full),
        TEST(episodes_are_listed),
        TEST(episodes_that_do_not_exist),
        TEST(positions_name_their_windows),
        TEST(steps_name_their_rows_and_reasons),
        TEST(one_output_and_some_steps),
        TEST(unreadable_rows_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
