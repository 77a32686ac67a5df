/* Tests the YAML parser: its tree, its limits and its errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/base/yaml.h"
#include "proto/array_len.h"

static struct trajd_yaml *parse(const char *text)
{
    struct trajd_error error = {0};
    struct trajd_yaml *yaml = NULL;

    if (trajd_yaml_parse("t.yaml", text, strlen(text), &yaml, &error))
        fail_msg("%s", error.message);
    return yaml;
}

static void expect_refused(const char *text, const char *message)
{
    struct trajd_error error = {0};
    struct trajd_yaml *yaml = NULL;

    assert_int_equal(trajd_yaml_parse("t.yaml", text, strlen(text), &yaml, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_null(yaml);
    assert_int_equal(error.status, TRAJD_ERR_ARGUMENT);
    assert_string_equal(error.message, message);
}

/* `count` copies of `unit` between `head` and `tail`; caller frees. */
static char *repeat(const char *head, const char *unit, size_t count, const char *tail)
{
    size_t unit_length = strlen(unit), head_length = strlen(head);
    char *text = malloc(head_length + unit_length * count + strlen(tail) + 1);

    assert_non_null(text);
    memcpy(text, head, head_length);
    for (size_t i = 0; i < count; i++)
        memcpy(text + head_length + i * unit_length, unit, unit_length);
    strcpy(text + head_length + count * unit_length, tail);
    return text;
}

static void test_tree(void **state)
{
    struct trajd_yaml *yaml = parse("version: 1\n"
                                    "feeds:\n"
                                    "  train:          # a comment\n"
                                    "    outputs:\n"
                                    "      obs/eef: {at: -1..0}\n"
                                    "      actions:\n"
                                    "        from: [joints,\n"
                                    "               'grip per']\n"
                                    "empty:\n");
    const struct trajd_yaml_node *root = trajd_yaml_root(yaml), *train, *outputs, *from;

    (void)state;
    assert_int_equal(root->kind, TRAJD_YAML_MAPPING);
    assert_int_equal(root->child_count, 3);
    assert_string_equal(root->path, "");
    assert_null(root->key);
    assert_null(root->value);
    assert_string_equal(root->children->key, "version");
    assert_string_equal(root->children->value, "1");
    train = trajd_yaml_get(trajd_yaml_get(root, "feeds"), "train");
    assert_int_equal(train->line, 3);
    assert_string_equal(train->path, "feeds.train");
    outputs = trajd_yaml_get(train, "outputs");
    assert_string_equal(trajd_yaml_get(trajd_yaml_get(outputs, "obs/eef"), "at")->value, "-1..0");
    from = trajd_yaml_get(trajd_yaml_get(outputs, "actions"), "from");
    assert_int_equal(from->kind, TRAJD_YAML_SEQUENCE);
    assert_int_equal(from->child_count, 2);
    assert_int_equal(from->children->line, 7);
    assert_false(from->children->quoted);
    assert_null(from->children->key);
    assert_string_equal(from->children->next->value, "grip per");
    assert_string_equal(from->children->next->path, "feeds.train.outputs.actions.from[1]");
    assert_int_equal(from->children->next->line, 8);
    assert_true(from->children->next->quoted);
    assert_null(from->children->next->next);
    assert_string_equal(trajd_yaml_get(root, "empty")->value, "");
    assert_null(trajd_yaml_get(root, "absent"));
    assert_null(trajd_yaml_get(from, "joints"));
    trajd_yaml_destroy(&yaml);
    assert_null(yaml);
    trajd_yaml_destroy(&yaml);
}

static void test_other_roots(void **state)
{
    struct trajd_yaml *yaml = parse("[1, [2]]");

    (void)state;
    assert_string_equal(trajd_yaml_root(yaml)->children->next->children->path, "[1][0]");
    trajd_yaml_destroy(&yaml);
    yaml = parse("just text");
    assert_int_equal(trajd_yaml_root(yaml)->kind, TRAJD_YAML_SCALAR);
    trajd_yaml_destroy(&yaml);
    yaml = parse("%YAML 1.1\n--- {a: 1}\n...\n");
    assert_string_equal(trajd_yaml_get(trajd_yaml_root(yaml), "a")->value, "1");
    trajd_yaml_destroy(&yaml);
    yaml = parse("\xef\xbb\xbf"
                 "a: caf\xc3\xa9\n");
    assert_string_equal(trajd_yaml_get(trajd_yaml_root(yaml), "a")->value, "caf\xc3\xa9");
    trajd_yaml_destroy(&yaml);
}

static void test_json(void **state)
{
    struct trajd_yaml *yaml = parse("{\"dataset\":\"square\",\"global_batch\":256,\n"
                                    "\t\"outputs\": {\"a\\/b\": {\"at\":\"-1..0\"}},\n"
                                    "\t\"list\":[1,2.5,true,null,\"x\\u00e9\\n\"]}\n");
    const struct trajd_yaml_node *root = trajd_yaml_root(yaml), *item;
    struct trajd_error error;
    int64_t batch = 0;

    (void)state;
    assert_string_equal(trajd_yaml_get(root, "dataset")->value, "square");
    assert_int_equal(
        trajd_yaml_int(yaml, trajd_yaml_get(root, "global_batch"), 1, 999, &batch, &error),
        TRAJD_OK);
    assert_int_equal(batch, 256);
    assert_string_equal(trajd_yaml_get(root, "outputs")->children->key, "a/b");
    item = trajd_yaml_get(root, "list")->children;
    assert_string_equal(item->next->next->next->next->value, "x\xc3\xa9\n");
    trajd_yaml_destroy(&yaml);
}

static void test_refused(void **state)
{
    (void)state;
    expect_refused("", "t.yaml:1: the document is empty");
    expect_refused("# nothing\n", "t.yaml:2: the document is empty");
    expect_refused("a: 1\nb: {c: 1,\n  d: 2, c: 3}\n",
                   "t.yaml:3: b.c: given twice (first in line 2)");
    expect_refused("a: &x 1\n", "t.yaml:1: anchors are not supported: &x");
    expect_refused("a: &x {b: 1}\n", "t.yaml:1: anchors are not supported: &x");
    expect_refused("a: 1\nb: *x\n", "t.yaml:2: aliases are not supported: *x");
    expect_refused("*x : 1\n", "t.yaml:1: aliases are not supported: *x");
    expect_refused("a: !!str 1\n", "t.yaml:1: tags are not supported: tag:yaml.org,2002:str");
    expect_refused("a: ! 1\n", "t.yaml:1: tags are not supported: !");
    expect_refused("a: !mine [1]\n", "t.yaml:1: tags are not supported: !mine");
    expect_refused("# x\n%TAG !a! b\n--- 1\n", "t.yaml:2: %TAG is not supported");
    expect_refused("a: 1\n---\nb: 2\n", "t.yaml:2: a second document begins (one is read)");
    expect_refused("? [a]\n: 1\n", "t.yaml:1: a key must be a word, not a list or a mapping");
    expect_refused("\"\": 1\n", "t.yaml:1: an empty key");
    expect_refused("a: \"x\\0y\"\n", "t.yaml:1: a text with a zero byte");
    expect_refused("\"x\\0y\": 1\n", "t.yaml:1: a text with a zero byte");
    expect_refused(
        "a: [1\nb: 2\n",
        "t.yaml:2: did not find expected ',' or ']' while parsing a flow sequence (line 1)");
    expect_refused("a: 1\n b: 2\n", "t.yaml:2: mapping values are not allowed in this context");
    expect_refused("a:\n\tb: 2\n",
                   "t.yaml:2: found character that cannot start any token while scanning for the "
                   "next token (line 2)");
    expect_refused("a: 1\nb: \xff\n", "t.yaml:2: invalid leading UTF-8 octet");
    /* a key cannot forge a line of its own in the log */
    expect_refused("{\"a\\nb\": 1, \"a\\nb\": 2}", "t.yaml:1: a?b: given twice (first in line 1)");
}

static void test_zero_byte_in_the_text(void **state)
{
    struct trajd_error error;
    struct trajd_yaml *yaml = NULL;

    (void)state;
    assert_int_equal(trajd_yaml_parse("t", "a: 1\n\0", 6, &yaml, &error), TRAJD_ERR_ARGUMENT);
    assert_string_equal(error.message, "t:2: control characters are not allowed");
}

static void test_depth(void **state)
{
    char *deepest = repeat("", "[", 16, "]]]]]]]]]]]]]]]]"), *deeper = repeat("", "[", 17, ""),
         *bomb = repeat("", "[", 200000, ""), *blocks = repeat("", "- ", 20, "x");
    struct trajd_yaml *yaml = parse(deepest);

    (void)state;
    trajd_yaml_destroy(&yaml);
    expect_refused(deeper, "t.yaml:1: nested more than 16 deep");
    expect_refused(bomb, "t.yaml:1: nested more than 16 deep");
    expect_refused(blocks, "t.yaml:1: nested more than 16 deep");
    free(deepest);
    free(deeper);
    free(bomb);
    free(blocks);
}

static void test_sizes(void **state)
{
    char *full = repeat("[", "x,", 65535, "]"), *over = repeat("[", "x,", 65536, "]"),
         *long_text = repeat("a: ", "x", (1 << 20) - 3, ""),
         *too_long = repeat("a: ", "x", (1 << 20) - 2, ""), *key = repeat("", "k", 255, ": 1"),
         *long_key = repeat("? ", "k", 256, "\n: 1");
    struct trajd_error error;
    struct trajd_yaml *yaml = parse(full);

    (void)state;
    assert_int_equal(trajd_yaml_root(yaml)->child_count, 65535);
    trajd_yaml_destroy(&yaml);
    expect_refused(over, "t.yaml:1: more than 65536 values in one document");
    yaml = parse(long_text);
    trajd_yaml_destroy(&yaml);
    assert_int_equal(trajd_yaml_parse("t", too_long, strlen(too_long), &yaml, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_string_equal(error.message, "t: longer than 1048576 bytes");
    yaml = parse(key);
    trajd_yaml_destroy(&yaml);
    expect_refused(long_key, "t.yaml:1: a key of 256 bytes (at most 255)");
    free(full);
    free(over);
    free(long_text);
    free(too_long);
    free(key);
    free(long_key);
}

/* JSON has two escapes for a character above U+FFFF, which libyaml refuses. */
static void test_pairs_of_escapes(void **state)
{
    static const struct {
        const char *text, *value;
    } cases[] = {
        {"[\"a\\ud83e\\udd16b\\udb40\\udc01\"]", "a\xf0\x9f\xa4\x96"
                                                 "b\xf3\xa0\x80\x81"},
        {"[\"\\\\ud83e\\\\udd16\"]", "\\ud83e\\udd16"},
        {"[\"\\\"\", \"\\ud83e\\udd16\"]", "\""},
        {"['\\ud83e\\udd16']", "\\ud83e\\udd16"},
    };
    struct trajd_yaml *yaml = NULL;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(trajd_yaml_parse("t", cases[i].text, strlen(cases[i].text), &yaml, NULL),
                         TRAJD_OK);
        assert_string_equal(trajd_yaml_root(yaml)->children->value, cases[i].value);
        trajd_yaml_destroy(&yaml);
    }
    expect_refused("[\"\\ud83e\"]", "t.yaml:1: found invalid Unicode character escape code while "
                                    "parsing a quoted scalar (line 1)");
    expect_refused("[\"\\ud83e\\u0041\"]", "t.yaml:1: found invalid Unicode character escape code "
                                           "while parsing a quoted scalar (line 1)");
}

/* Fifteen keys of 250 bytes around 60,000 items: 4 KB of path each would be 240 MB. */
static void test_long_paths_are_bounded(void **state)
{
    char *key = repeat("{", "k", 250, ": "), *keys = repeat("", key, 15, "["),
         *text = repeat(keys, "1,", 60000, "]");

    (void)state;
    expect_refused(text, "t.yaml:1: the document needs more memory than a document may (32 MiB)");
    free(key);
    free(keys);
    free(text);
}

/* 60,000 keys, the last one twice: found by sorting, in milliseconds. */
static void test_many_keys(void **state)
{
    char *text = malloc(60001 * 12 + 2), *end = text;

    (void)state;
    assert_non_null(text);
    for (int i = 0; i < 60000; i++)
        end += sprintf(end, "k%d: 1\n", i);
    strcpy(end, "k59999: 1\n");
    expect_refused(text, "t.yaml:60001: k59999: given twice (first in line 60000)");
    free(text);
}

static void test_load(void **state)
{
    char path[] = "/tmp/trajd-yaml-XXXXXX";
    int fd = mkstemp(path);
    struct trajd_error error;
    struct trajd_yaml *yaml = NULL;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "a: 1\nb: *c\n", 11), 11);
    assert_int_equal(trajd_yaml_load(path, &yaml, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, ":2: aliases are not supported"));
    assert_memory_equal(error.message, path, strlen(path));
    assert_int_equal(ftruncate(fd, 5), 0);
    assert_int_equal(trajd_yaml_load(path, &yaml, &error), TRAJD_OK);
    trajd_yaml_destroy(&yaml);
    close(fd);
    unlink(path);
    assert_int_equal(trajd_yaml_load(path, &yaml, &error), TRAJD_ERR_NOT_FOUND);
    assert_int_equal(trajd_yaml_load("/", &yaml, &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_yaml_load("/dev/zero", &yaml, &error), TRAJD_ERR_ARGUMENT);
    assert_null(yaml);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_other_roots),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_zero_byte_in_the_text),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_long_paths_are_bounded),
        cmocka_unit_test(test_pairs_of_escapes),
        cmocka_unit_test(test_many_keys),
        cmocka_unit_test(test_load),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
