/* Tests the readers of values: their types, limits and errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/base/yaml.h"

/* One document holds every case: rows of a table name their value by key. */
static struct trajd_yaml *parse(const char *text)
{
    struct trajd_error error;
    struct trajd_yaml *yaml = NULL;

    if (trajd_yaml_parse("t.yaml", text, strlen(text), &yaml, &error))
        fail_msg("%s", error.message);
    return yaml;
}

static const struct trajd_yaml_node *child(const struct trajd_yaml *yaml, const char *key)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(trajd_yaml_root(yaml), key);

    assert_non_null(node);
    return node;
}

static void test_int(void **state)
{
    struct trajd_yaml *yaml =
        parse("good: [0, -5, +7, 9223372036854775807, -9223372036854775808]\n"
              "bad: [1.0, 0x10, 010, 1e3, abc, '5', ~, null, [1], {a: 1}, 9223372036854775808,"
              " 1_000, '', -x, 5 6]\n");
    static const int64_t values[] = {0, -5, 7, INT64_MAX, INT64_MIN};
    struct trajd_error error;
    int64_t out = 0;
    int i = 0;

    (void)state;
    for (const struct trajd_yaml_node *n = child(yaml, "good")->children; n; n = n->next) {
        assert_int_equal(trajd_yaml_int(yaml, n, INT64_MIN, INT64_MAX, &out, &error), TRAJD_OK);
        assert_int_equal(out, values[i++]);
    }
    assert_int_equal(i, 5);
    out = 42;
    i = 0;
    for (const struct trajd_yaml_node *n = child(yaml, "bad")->children; n; n = n->next, i++)
        assert_int_equal(trajd_yaml_int(yaml, n, INT64_MIN, INT64_MAX, &out, &error),
                         TRAJD_ERR_ARGUMENT);
    assert_int_equal(i, 15);
    assert_int_equal(out, 42);
    assert_int_equal(trajd_yaml_int(yaml, child(yaml, "good")->children->next, 0, 10, &out, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_string_equal(error.message, "t.yaml:1: good[1]: -5 is out of range (0 to 10)");
    assert_int_equal(trajd_yaml_int(yaml, child(yaml, "bad"), 0, 10, &out, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_string_equal(error.message, "t.yaml:2: bad: a whole number is expected, not a list");
    trajd_yaml_destroy(&yaml);
}

static void test_double(void **state)
{
    struct trajd_yaml *yaml =
        parse("good: [0, -1.5, .25, 1e-3, 2.E+2, +3]\n"
              "bad: [.inf, inf, nan, .nan, 0x1p3, 1e999, 1e, ., '1.5', 1.5x, ~, '', -x]\n");
    static const double values[] = {0, -1.5, .25, 1e-3, 200, 3};
    struct trajd_error error;
    double out = 0;
    int i = 0;

    (void)state;
    for (const struct trajd_yaml_node *n = child(yaml, "good")->children; n; n = n->next) {
        assert_int_equal(trajd_yaml_double(yaml, n, -10, 1000, &out, &error), TRAJD_OK);
        assert_true(out == values[i++]);
    }
    assert_int_equal(i, 6);
    out = 42;
    for (const struct trajd_yaml_node *n = child(yaml, "bad")->children; n; n = n->next)
        assert_int_equal(trajd_yaml_double(yaml, n, -1e300, 1e300, &out, &error),
                         TRAJD_ERR_ARGUMENT);
    assert_true(out == 42);
    assert_int_equal(
        trajd_yaml_double(yaml, child(yaml, "good")->children->next, 0, 1, &out, &error),
        TRAJD_ERR_ARGUMENT);
    assert_string_equal(error.message, "t.yaml:1: good[1]: -1.5 is out of range (0 to 1)");
    trajd_yaml_destroy(&yaml);
}

static void test_bool_and_string(void **state)
{
    struct trajd_yaml *yaml =
        parse("t: true\nf: false\nq: 'true'\ny: yes\nnull_text: 'null'\nnothing: null\n"
              "empty: ''\nnone:\n");
    struct trajd_error error;
    const char *text = NULL;
    bool out = false;

    (void)state;
    assert_int_equal(trajd_yaml_bool(yaml, child(yaml, "t"), &out, &error), TRAJD_OK);
    assert_true(out);
    assert_int_equal(trajd_yaml_bool(yaml, child(yaml, "q"), &out, &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_yaml_bool(yaml, child(yaml, "y"), &out, &error), TRAJD_ERR_ARGUMENT);
    assert_string_equal(error.message, "t.yaml:4: y: true or false is expected, not yes");
    assert_true(out);
    assert_int_equal(trajd_yaml_bool(yaml, child(yaml, "f"), &out, &error), TRAJD_OK);
    assert_false(out);
    assert_int_equal(trajd_yaml_string(yaml, child(yaml, "null_text"), &text, &error), TRAJD_OK);
    assert_string_equal(text, "null");
    assert_int_equal(trajd_yaml_string(yaml, child(yaml, "empty"), &text, &error), TRAJD_OK);
    assert_string_equal(text, "");
    assert_int_equal(trajd_yaml_string(yaml, child(yaml, "nothing"), &text, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_yaml_string(yaml, child(yaml, "none"), &text, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_string_equal(error.message, "t.yaml:8: none: a text is expected, not nothing");
    assert_int_equal(trajd_yaml_string(yaml, trajd_yaml_root(yaml), &text, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_string_equal(error.message, "t.yaml:1: a text is expected, not a mapping");
    trajd_yaml_destroy(&yaml);
}

static void test_quantities(void **state)
{
    struct trajd_yaml *yaml =
        parse("size: 64 MiB\nduration: '38ms'\nrate: 29.97\nbare: 38\nword: 20fps\n");
    struct trajd_error error;
    struct trajd_rate rate = {0};
    uint64_t size = 0;
    int64_t ns = 0;

    (void)state;
    assert_int_equal(trajd_yaml_size(yaml, child(yaml, "size"), &size, &error), TRAJD_OK);
    assert_int_equal(size, 64 << 20);
    assert_int_equal(trajd_yaml_duration(yaml, child(yaml, "duration"), &ns, &error), TRAJD_OK);
    assert_int_equal(ns, 38000000);
    assert_int_equal(trajd_yaml_rate(yaml, child(yaml, "rate"), &rate, &error), TRAJD_OK);
    assert_int_equal(rate.num, 30000);
    assert_int_equal(rate.den, 1001);
    assert_int_equal(trajd_yaml_duration(yaml, child(yaml, "bare"), &ns, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_string_equal(error.message,
                        "t.yaml:4: bare: 38 is not a duration in whole nanoseconds with its unit "
                        "(such as 38ms, 1.5s, 20us)");
    assert_int_equal(trajd_yaml_rate(yaml, child(yaml, "word"), &rate, &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_yaml_size(yaml, child(yaml, "word"), &size, &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_yaml_size(yaml, trajd_yaml_root(yaml), &size, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_int_equal(size, 64 << 20);
    assert_int_equal(ns, 38000000);
    trajd_yaml_destroy(&yaml);
}

static void test_choice_and_keys(void **state)
{
    static const char *const words[] = {"linear", "nearest", "previous", NULL};
    static const char *const keys[] = {"kind", "agentview_image", "other", NULL};
    struct trajd_yaml *yaml = parse("kind: nearest\nagentview_image: neerest\nother: spline\n");
    struct trajd_yaml *wrong = parse("kind: 1\nagentveiw_image: 1\n"), *far = parse("xyzzy: 1\n");
    struct trajd_error error;
    int choice = -1;

    (void)state;
    assert_int_equal(trajd_yaml_choice(yaml, child(yaml, "kind"), words, &choice, &error),
                     TRAJD_OK);
    assert_int_equal(choice, 1);
    assert_int_equal(
        trajd_yaml_choice(yaml, child(yaml, "agentview_image"), words, &choice, &error),
        TRAJD_ERR_ARGUMENT);
    assert_string_equal(
        error.message,
        "t.yaml:2: agentview_image: neerest is not one of the choices (did you mean nearest?)");
    assert_int_equal(trajd_yaml_choice(yaml, child(yaml, "other"), words, &choice, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_string_equal(
        error.message,
        "t.yaml:3: other: spline is not one of the choices (known: linear, nearest, previous)");
    assert_int_equal(choice, 1);
    assert_int_equal(trajd_yaml_check_keys(yaml, trajd_yaml_root(yaml), keys, &error), TRAJD_OK);
    assert_int_equal(trajd_yaml_check_keys(wrong, trajd_yaml_root(wrong), keys, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_string_equal(error.message,
                        "t.yaml:2: agentveiw_image: no such key (did you mean agentview_image?)");
    assert_int_equal(trajd_yaml_check_keys(far, trajd_yaml_root(far), keys, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_string_equal(error.message,
                        "t.yaml:1: xyzzy: no such key (known: kind, agentview_image, other)");
    assert_int_equal(trajd_yaml_check_keys(yaml, child(yaml, "kind"), keys, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_string_equal(error.message, "t.yaml:1: kind: a mapping is expected, not a single value");
    trajd_yaml_destroy(&yaml);
    trajd_yaml_destroy(&wrong);
    trajd_yaml_destroy(&far);
}

static void test_nearest(void **state)
{
    static const char *const names[] = {"at", "from", "kind", "normalisation", "max_age"};
    char long_word[300];

    (void)state;
    memset(long_word, 'a', sizeof long_word - 1);
    long_word[sizeof long_word - 1] = 0;
    assert_string_equal(trajd_yaml_nearest("form", names, 5), "from");
    assert_string_equal(trajd_yaml_nearest("from", names, 5), "from");
    assert_string_equal(trajd_yaml_nearest("max-age", names, 5), "max_age");
    assert_string_equal(trajd_yaml_nearest("normalization", names, 5), "normalisation");
    assert_null(trajd_yaml_nearest("x", names, 5));
    assert_null(trajd_yaml_nearest("", names, 5));
    assert_null(trajd_yaml_nearest("completely", names, 5));
    assert_null(trajd_yaml_nearest("at", names, 0));
    assert_null(trajd_yaml_nearest(long_word, names, 5));
}

static void test_error_is_one_line(void **state)
{
    struct trajd_yaml *yaml = parse("{\"a\\nb\": \"x\\ty\"}");
    struct trajd_error error;
    int64_t ns;

    (void)state;
    assert_int_equal(trajd_yaml_duration(yaml, trajd_yaml_root(yaml)->children, &ns, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_memory_equal(error.message, "t.yaml:1: a?b: x?y is not a", 27);
    assert_int_equal(trajd_yaml_error(yaml, trajd_yaml_root(yaml), NULL, "no place for it"),
                     TRAJD_ERR_ARGUMENT);
    trajd_yaml_destroy(&yaml);
}

struct object {
    uint32_t count;
    uint64_t seed;
    double gamma;
    bool is_on, is_second;
    int64_t wait_ns;
    struct trajd_rate rate;
    const char *name;
    int word;
};

static enum trajd_status read_twice(const struct trajd_yaml_reader *reader,
                                    const struct trajd_yaml_node *node, void *member)
{
    int64_t value = 0;
    const enum trajd_status status =
        trajd_yaml_int(reader->yaml, node, 0, 9, &value, reader->error);

    *(uint32_t *)member = 2 * (uint32_t)value;
    return status;
}

static const char *const words[] = {"one", "two", NULL};
static const struct trajd_yaml_key keys[] = {
    {"count", TRAJD_YAML_U32, .offset = offsetof(struct object, count), .low = 1, .high = 7,
     .is_needed = true},
    {"seed", TRAJD_YAML_U64, .offset = offsetof(struct object, seed), .low = 0,
     .high = (double)INT64_MAX},
    {"gamma", TRAJD_YAML_DOUBLE, .offset = offsetof(struct object, gamma), .low = 0, .high = 1},
    {"on", TRAJD_YAML_BOOL, .offset = offsetof(struct object, is_on)},
    {"second", TRAJD_YAML_FLAG, .offset = offsetof(struct object, is_second), .words = words},
    {"wait", TRAJD_YAML_DURATION, .offset = offsetof(struct object, wait_ns)},
    {"rate", TRAJD_YAML_RATE, .offset = offsetof(struct object, rate)},
    {"name", TRAJD_YAML_STRING, .offset = offsetof(struct object, name)},
    {"word", TRAJD_YAML_CHOICE, .offset = offsetof(struct object, word), .low = 5, .words = words},
    {"later", .type = TRAJD_YAML_LATER},
    {"twice", .offset = offsetof(struct object, count), .read = read_twice},
};

static void test_table_of_keys(void **state)
{
    static const struct {
        const char *text, *message; /* NULL: it is read */
    } cases[] = {
        {"{count: 3, seed: 9223372036854775807, gamma: 0.5, on: true, second: two, wait: 2ms, "
         "rate: 30, name: x, word: two}",
         NULL},
        {"{count: 3, later: [1], twice: 4}", NULL},
        {"{count: 8}", "t.yaml:1: count: 8 is out of range (1 to 7)"},
        {"{seed: 1}", "t.yaml:1: expected {count: 1}"},
        {"[1]", "t.yaml:1: expected {count: 1}"},
        {"{count: 1, wrod: one}", "t.yaml:1: wrod: no such key (did you mean word?)"},
        {"{count: 1, word: three}",
         "t.yaml:1: word: three is not one of the choices (known: one, two)"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trajd_arena arena = {.limit_bytes = SIZE_MAX};
        struct trajd_yaml *yaml = parse(cases[i].text);
        struct trajd_error error = {0};
        struct object object = {.gamma = 7};
        const struct trajd_yaml_reader reader = {yaml, &error, &arena};
        const enum trajd_status status =
            trajd_yaml_read_keys(&reader, trajd_yaml_root(yaml), "{count: 1}", keys,
                                 sizeof keys / sizeof *keys, &object);

        trajd_yaml_destroy(&yaml);
        assert_int_equal(status, cases[i].message ? TRAJD_ERR_ARGUMENT : TRAJD_OK);
        if (cases[i].message)
            assert_string_equal(error.message, cases[i].message);
        else if (i)
            assert_true(object.count == 8 && object.gamma == 7 && !object.name);
        else
            assert_true(object.count == 3 && object.seed == INT64_MAX && object.gamma == 0.5 &&
                        object.is_on && object.is_second && object.wait_ns == 2000000 &&
                        object.rate.num == 30 && strcmp(object.name, "x") == 0 && object.word == 6);
        trajd_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_int),
        cmocka_unit_test(test_double),
        cmocka_unit_test(test_bool_and_string),
        cmocka_unit_test(test_quantities),
        cmocka_unit_test(test_choice_and_keys),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_error_is_one_line),
        cmocka_unit_test(test_table_of_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
