/* json_field.c: values by their path, texts that are not JSON, and escapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "daemon/layout/json_field.h"
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
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"a\\\"b\\\\c\\/d", "a\"b\\c/d"},
        {"\\b\\f\\n\\r\\t", "\b\f\n\r\t"},
        {"\\u0041\\u00e4\\u20AC", "A\xc3\xa4\xe2\x82\xac"},
        {"\\ud83d\\ude00", "\xf0\x9f\x98\x80"},
        {"\\ud83d", "\xef\xbf\xbd"},   /* half of a pair */
        {"\\ude00x", "\xef\xbf\xbdx"}, /* the other half alone */
        {"\\ud83d\\u0041", "\xef\xbf\xbd"
                           "A"},     /* a pair that is none */
        {"\\u0000", "\xef\xbf\xbd"}, /* would end the text */
        {"\\u12", "?12"},            /* wrong digits */
        {"\\q", "q"},
        {"\\", "\\"},
        {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char copy[64];
        strcpy(copy, cases[i][0]);
        trajd_json_field_unescape(copy);
        assert_string_equal(copy, cases[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_found_by_path),   cmocka_unit_test(broken_texts_have_no_values),
        cmocka_unit_test(cut_texts_end_in_time),      cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(values_are_cut_to_the_room), cmocka_unit_test(escapes_become_utf8),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
