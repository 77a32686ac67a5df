/* The JSON writer: commas and nesting, escapes, numbers, and going back to a mark. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/json.h"

struct document {
    char *text;
    size_t size;
    struct trajd_json json;
};

static struct trajd_json *begin(struct document *document)
{
    document->json.out = open_memstream(&document->text, &document->size);
    assert_non_null(document->json.out);
    return &document->json;
}

static void end(struct document *document, const char *expected)
{
    fclose(document->json.out);
    assert_string_equal(document->text, expected);
    free(document->text);
}

static void test_values_are_separated(void **state)
{
    struct document document = {0};
    struct trajd_json *json = begin(&document);

    (void)state;
    trajd_json_open_object(json, NULL);
    trajd_json_open_array(json, "empty");
    trajd_json_close_array(json);
    trajd_json_open_array(json, "rows");
    trajd_json_u64(json, NULL, UINT64_MAX);
    trajd_json_i64(json, NULL, INT64_MIN);
    trajd_json_open_object(json, NULL);
    trajd_json_close_object(json);
    trajd_json_close_array(json);
    trajd_json_bool(json, "good", true);
    trajd_json_null(json, "none");
    trajd_json_close_object(json);
    end(&document, "{\"empty\":[],\"rows\":[18446744073709551615,-9223372036854775808,{}],"
                   "\"good\":true,\"none\":null}");
}

static void test_strings_are_escaped(void **state)
{
    struct document document = {0};
    struct trajd_json *json = begin(&document);

    (void)state;
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "a\"b", "back\\slash \"quoted\"\n\x01 \xc3\xa4 \xff");
    trajd_json_string(json, "hidden\xf3\xa0\x80\x81",
                      "\xe2\x80\xae\xf0\x9d\x85\xb3\xf0\x9f\xa4\x96");
    trajd_json_string(json, "missing", NULL);
    trajd_json_format(json, "id", "%04x", 0xabu);
    trajd_json_close_object(json);
    end(&document, "{\"a\\\"b\":\"back\\\\slash \\\"quoted\\\"\\u000a\\u0001 \xc3\xa4 \\ufffd\","
                   "\"hidden\\udb40\\udc01\":\"\\u202e\\ud834\\udd73\xf0\x9f\xa4\x96\","
                   "\"missing\":null,\"id\":\"00ab\"}");
}

static void test_a_string_of_yaml(void **state)
{
    struct document document = {0};

    (void)state;
    trajd_json_text(begin(&document)->out, "\xe2\x80\xae\xf3\xa0\x80\x81");
    end(&document, "\"\\u202e\\U000e0001\"");
}

static void test_numbers_that_json_lacks_are_null(void **state)
{
    struct document document = {0};
    struct trajd_json *json = begin(&document);

    (void)state;
    trajd_json_open_array(json, NULL);
    trajd_json_number(json, NULL, "%.1f", 2.25);
    trajd_json_number(json, NULL, "%.17g", -0.1);
    trajd_json_number(json, NULL, "%.1f", (double)NAN);
    trajd_json_number(json, NULL, "%.1f", -(double)INFINITY);
    trajd_json_number(json, NULL, "%.1f", 1e300);
    trajd_json_raw(json, NULL, "{\"made\":\"elsewhere\"}");
    trajd_json_close_array(json);
    fflush(json->out);
    assert_non_null(strstr(document.text, "[2.2,-0.10000000000000001,null,null,1000000000"));
    assert_non_null(strstr(document.text, ".0,{\"made\":\"elsewhere\"}]"));
    fclose(json->out);
    free(document.text);
}

static void test_a_mark_takes_back_what_came_after(void **state)
{
    char text[64] = "";
    struct trajd_json json = {.out = fmemopen(text, sizeof text, "w")};
    struct trajd_json_mark mark;

    (void)state;
    assert_non_null(json.out);
    trajd_json_open_array(&json, NULL);
    mark = trajd_json_get_mark(&json);
    trajd_json_string(&json, NULL, "does not fit");
    trajd_json_go_back(&json, mark);
    trajd_json_u64(&json, NULL, 1);
    mark = trajd_json_get_mark(&json);
    trajd_json_u64(&json, NULL, 2);
    trajd_json_go_back(&json, mark);
    trajd_json_u64(&json, NULL, 3);
    trajd_json_close_array(&json);
    fclose(json.out);
    assert_memory_equal(text, "[1,3]", 5);
}

static void test_lists_end_where_they_are_full(void **state)
{
    struct document document = {0};
    struct trajd_json *json = begin(&document);
    struct trajd_json_mark mark;
    uint64_t value = 100;
    bool fits = true;

    (void)state;
    trajd_json_open_object(json, NULL);
    trajd_json_open_array(json, "rows");
    while (fits) {
        mark = trajd_json_get_mark(json);
        trajd_json_u64(json, NULL, value++);
        fits = trajd_json_fits(json, mark, strlen("{\"rows\":[100,101"));
    }
    trajd_json_close_array(json);
    trajd_json_raw(json, NULL, "\"a\":1,\"b\":2");
    trajd_json_close_object(json);
    end(&document, "{\"rows\":[100,101],\"a\":1,\"b\":2}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_separated),
        cmocka_unit_test(test_strings_are_escaped),
        cmocka_unit_test(test_a_string_of_yaml),
        cmocka_unit_test(test_numbers_that_json_lacks_are_null),
        cmocka_unit_test(test_a_mark_takes_back_what_came_after),
        cmocka_unit_test(test_lists_end_where_they_are_full),
    };
    return cmocka_run_group_tests_name("base/json", tests, NULL, NULL);
}
