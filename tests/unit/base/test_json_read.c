/* The reader of JSON: values by their path, texts that are not JSON, escapes, and documents as
 * msgpack. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/arena.h"
#include "daemon/base/json_read.h"
#include "proto/array_len.h"

static const char text[] =
    "{\"env\": \"Lift\", \"list\": [1, {\"rate\": 5}, \"}\"], \"none\": null,\n"
    " \"env_kwargs\": {\"control_freq\": 20.0, \"deep\": {\"yes\": true, \"say\": \"a "
    "\\\"b\\\"\"}},"
    " \"last\":-3e2 }";

struct lookup {
    const char *path, *value; /* NULL: there is none */
    bool quoted;
};

static void values_are_found_by_path(void **state)
{
    static const struct lookup lookups[] = {
        {"env", "Lift", true},
        {"none", "null", false},
        {"env_kwargs.control_freq", "20.0", false},
        {"env_kwargs.deep.yes", "true", false},
        {"env_kwargs.deep.say", "a \\\"b\\\"", true},
        {"last", "-3e2", false},
        {"env_kwargs", NULL, false},      /* an object is not a value */
        {"list", NULL, false},            /* nor is an array */
        {"list.rate", NULL, false},       /* paths do not enter arrays */
        {"control_freq", NULL, false},    /* only the root's own keys */
        {"env.Lift", NULL, false},        /* a string has no keys */
        {"env_kwargs.deep", NULL, false}, /* an object */
        {"", NULL, false},
        {"env_", NULL, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lookups); i++) {
        const struct lookup *lookup = &lookups[i];
        const char *value;
        size_t length;
        bool quoted;
        const bool found =
            trajd_json_field_find(text, strlen(text), lookup->path, &value, &length, &quoted);

        if (found != (lookup->value != NULL))
            fail_msg("%s: %s", lookup->path, found ? "found" : "not found");
        if (!found)
            continue;
        assert_int_equal(length, strlen(lookup->value));
        assert_memory_equal(value, lookup->value, length);
        assert_int_equal(quoted, lookup->quoted);
    }
}

static void broken_texts_have_no_values(void **state)
{
    static const char *const broken[] = {
        "",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\" 1}",
        "{\"a",
        "{\"a\": \"b",
        "{\"a\": \"b\\",
        "[\"a\", 1]",
        "\"a\"",
        "{a: 1}",
        "{\"b\": }",
        "{\"b\": [1, }",
        "{\"b\": {\"c\": 1]}, \"a\": 1}",
    };
    char value[8];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(broken); i++)
        if (trajd_json_field_read(broken[i], strlen(broken[i]), "a", value, sizeof value))
            fail_msg("%s: found %s", broken[i], value);
}

/* Every cut of a good text ends without a read behind its end, which a sanitizer would report. */
static void cut_texts_end_in_time(void **state)
{
    char copy[sizeof text], value[16];

    (void)state;
    for (size_t length = 0; length < strlen(text); length++) {
        memset(copy, 'x', sizeof copy);
        memcpy(copy, text, length);
        assert_false(trajd_json_field_read(copy, length, "absent", value, sizeof value));
    }
}

static void deep_nesting_is_refused(void **state)
{
    char deep[600] = "{\"b\": ";
    char value[8];

    (void)state;
    memset(deep + strlen(deep), '[', 200);
    memset(deep + strlen(deep), ']', 200);
    strcat(deep, ", \"a\": 1}");
    assert_false(trajd_json_field_read(deep, strlen(deep), "a", value, sizeof value));
}

static void values_are_cut_to_the_room(void **state)
{
    char value[4];

    (void)state;
    assert_true(trajd_json_field_read(text, strlen(text), "env", value, sizeof value));
    assert_string_equal(value, "Lif");
    assert_true(
        trajd_json_field_read(text, strlen(text), "env_kwargs.control_freq", value, sizeof value));
    assert_string_equal(value, "20.");
}

static void escapes_become_utf8(void **state)
{
    static const struct {
        const char *text, *utf8, *wrong;
    } cases[] = {
        {"plain", "plain", NULL},
        {"a\\\"b\\\\c\\/d", "a\"b\\c/d", NULL},
        {"\\b\\f\\n\\r\\t", "\b\f\n\r\t", NULL},
        {"\\u0041\\u00e4\\u20AC", "A\xc3\xa4\xe2\x82\xac", NULL},
        {"\\ud83d\\ude00", "\xf0\x9f\x98\x80", NULL},
        {"\\ud83d", "\xef\xbf\xbd", "\\u with half of a character, or zero"}, /* half of a pair */
        {"\\ude00x", "\xef\xbf\xbdx",
         "\\u with half of a character, or zero"}, /* the other half alone */
        {"\\ud83d\\u0041",
         "\xef\xbf\xbd"
         "A",
         "\\u with half of a character, or zero"}, /* a pair that is none */
        {"\\u0000", "\xef\xbf\xbd",
         "\\u with half of a character, or zero"},             /* would end the text */
        {"\\u12", "?12", "\\u needs four hexadecimal digits"}, /* wrong digits */
        {"\\q", "q", "an unknown escape"},
        {"\\", "\\", NULL},
        {"", "", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *wrong;
        char copy[64];
        size_t length;
        strcpy(copy, cases[i].text);
        wrong = trajd_json_unescape(copy, strlen(copy), copy, &length);
        assert_string_equal(copy, cases[i].utf8);
        assert_int_equal(length, strlen(copy));
        assert_string_equal(wrong ? wrong : "", cases[i].wrong ? cases[i].wrong : "");
    }
}

/* Packs the text and writes it as JSON again. */
static void expect_json(const char *json, const char *expected)
{
    struct trajd_bytes bytes = {0};
    struct trajd_json out = {0};
    struct trajd_error error;
    char *written = NULL;
    size_t size = 0;

    if (trajd_json_pack("x", json, strlen(json), &bytes, &error))
        fail_msg("%s: %s", json, error.message);
    out.out = open_memstream(&written, &size);
    assert_non_null(out.out);
    assert_true(trajd_json_unpack(&out, NULL, bytes.data, bytes.length));
    fclose(out.out);
    assert_string_equal(written, expected);
    free(written);
    trajd_bytes_free(&bytes);
}

static void documents_go_forth_and_back(void **state)
{
    (void)state;
    expect_json(" {\"a\" : [ 1 , -2.5e-1, true,\n false, null ], \"b\":{}, \"c\": []} ",
                "{\"a\":[1,-0.25,true,false,null],\"b\":{},\"c\":[]}");
    expect_json("[NaN, Infinity, -Infinity]", "[NaN,Infinity,-Infinity]");
    expect_json("[0, 18446744073709551615, -9223372036854775808]",
                "[0,18446744073709551615,-9223372036854775808]");
    expect_json("[0.1, 3.0, 1e-300, -0, -0.0, 1E+2, 0.30000000000000004]",
                "[0.1,3,1e-300,-0.0,-0.0,100,0.30000000000000004]");
    /* beyond 64 bits */
    expect_json("[18446744073709551616, -9223372036854775809]",
                "[1.8446744073709552e+19,-9.223372036854776e+18]");
    expect_json("\"\\u00e9\\ud83d\\ude00\\\"\\n \xc3\xbc\"",
                "\"\xc3\xa9\xf0\x9f\x98\x80\\\"\\u000a \xc3\xbc\"");
}

struct robot {
    const char *name;
    float scale;
    uint32_t count;
    double *limits;
};

/* What the codec's tables read from JSON is what was written, to the bit. */
static void the_codec_reads_json(void **state)
{
    static const struct trajd_codec_field fields[] = {
        {"name", TRAJD_CODEC_TEXT, TRAJD_CODEC_ONE(struct robot, name)},
        {"scale", TRAJD_CODEC_FLOAT, TRAJD_CODEC_ONE(struct robot, scale)},
        {"limits", TRAJD_CODEC_FLOAT, TRAJD_CODEC_LIST(struct robot, limits, count, 4)},
    };
    static const struct trajd_codec_table table =
        TRAJD_CODEC_TABLE(struct robot, fields, TRAJD_CODEC_MAP, NULL);
    double limits[] = {0.1, -1.0 / 3, 1e308};
    const struct robot robot = {"Zo\xc3\xab", 0.1f, 3, limits};
    struct trajd_arena arena = {.limit_bytes = 1 << 20};
    struct trajd_bytes bytes = {0}, packed = {0};
    struct trajd_json json = {0};
    struct robot again = {0};
    char *written = NULL;
    size_t size = 0;

    (void)state;
    assert_int_equal(trajd_codec_encode(&table, &robot, &bytes, NULL), TRAJD_OK);
    json.out = open_memstream(&written, &size);
    assert_true(trajd_json_unpack(&json, NULL, bytes.data, bytes.length));
    fclose(json.out);
    assert_string_equal(written, "{\"name\":\"Zo\xc3\xab\",\"scale\":0.1,"
                                 "\"limits\":[0.1,-0.3333333333333333,1e+308]}");
    assert_int_equal(trajd_json_pack("x", written, size, &packed, NULL), TRAJD_OK);
    assert_int_equal(
        trajd_arena_decode(&arena, &table, packed.data, packed.length, &again, NULL, NULL),
        TRAJD_OK);
    assert_memory_equal(&again.scale, &robot.scale, sizeof robot.scale);
    assert_memory_equal(again.limits, limits, sizeof limits);
    free(written);
    trajd_bytes_free(&bytes);
    trajd_bytes_free(&packed);
    trajd_arena_free(&arena);
}

static void broken_documents_are_refused(void **state)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "x:1: expected a value"},
        {"{", "x:1: expected a name in quotes"},
        {"{\"a", "x:1: the text ends inside a string"},
        {"{\"a\"}", "x:1: expected ':' behind a name"},
        {"{\"a\":}", "x:1: expected a value"},
        {"{\"a\": 1,}", "x:1: expected a name in quotes"},
        {"{a: 1}", "x:1: expected a name in quotes"},
        {"{\"a\": 1\n\"b\": 2}", "x:2: expected ',' or '}'"},
        {"[1,\n\n2", "x:3: expected ',' or ']'"},
        {"[1,]", "x:1: expected a value"},
        {"[1] 2", "x:1: there is more text behind the document"},
        {"01", "x:1: expected a value"},
        {"1.", "x:1: expected a value"},
        {".5", "x:1: expected a value"},
        {"1e", "x:1: expected a value"},
        {"+1", "x:1: expected a value"},
        {"nul", "x:1: expected a value"},
        {"\"a\nb\"", "x:1: a control character in a string"},
        {"\"\\q\"", "x:1: an unknown escape"},
        {"\"\\ud800\"", "x:1: \\u with half of a character, or zero"},
        {"\"\xff\"", "x:1: a string that is not UTF-8"},
    };
    struct trajd_error error;
    char deep[200];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct trajd_bytes bytes = {0};
        char *copy = malloc(strlen(bad[i].text) + 1); /* without a zero byte behind it */
        memcpy(copy, bad[i].text, strlen(bad[i].text));
        assert_int_equal(trajd_json_pack("x", copy, strlen(bad[i].text), &bytes, &error),
                         TRAJD_ERR_ARGUMENT);
        assert_string_equal(error.message, bad[i].message);
        free(copy);
        trajd_bytes_free(&bytes);
    }
    for (size_t depth = 64; depth < 66; depth++) {
        struct trajd_bytes bytes = {0};
        memset(deep, '[', depth);
        memset(deep + depth, ']', depth);
        assert_int_equal(trajd_json_pack("x", deep, 2 * depth, &bytes, &error),
                         depth == 64 ? TRAJD_OK : TRAJD_ERR_ARGUMENT);
        trajd_bytes_free(&bytes);
    }
    assert_string_equal(error.message, "x:1: more than 64 levels");
}

/* The output may be a fixed buffer: what does not fit is a status of its own. */
static void documents_in_a_fixed_buffer(void **state)
{
    static const char document[] = "{\"name\": [1.5, \"text\", null]}";
    struct trajd_bytes whole = {0};

    (void)state;
    assert_int_equal(trajd_json_pack("x", document, strlen(document), &whole, NULL), TRAJD_OK);
    for (size_t room = 0; room < whole.length; room++) {
        uint8_t *memory = malloc(room ? room : 1);
        struct trajd_bytes bytes = {.data = memory, .capacity = room, .is_fixed = true};
        assert_int_equal(trajd_json_pack("x", document, strlen(document), &bytes, NULL),
                         TRAJD_ERR_MEMORY);
        free(memory);
    }
    trajd_bytes_free(&whole);
}

static void msgpack_that_json_lacks(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
    } bad[] = {{"\xc4\x01x", 3}, {"\x81\x01\x02", 3}, {"\x92\x01", 2}, {"\x01\x02", 2}, {"", 0}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct trajd_json json = {.out = fopen("/dev/null", "w")};
        assert_false(trajd_json_unpack(&json, NULL, bad[i].bytes, bad[i].size));
        fclose(json.out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_found_by_path),
        cmocka_unit_test(broken_texts_have_no_values),
        cmocka_unit_test(cut_texts_end_in_time),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(values_are_cut_to_the_room),
        cmocka_unit_test(escapes_become_utf8),
        cmocka_unit_test(documents_go_forth_and_back),
        cmocka_unit_test(the_codec_reads_json),
        cmocka_unit_test(broken_documents_are_refused),
        cmocka_unit_test(documents_in_a_fixed_buffer),
        cmocka_unit_test(msgpack_that_json_lacks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
