/* The OpenMetrics text of status documents that are old, empty, odd or no documents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clients/cli/metrics/metrics.h"

/* Caller frees. */
static char *text_of(const char *json)
{
    struct trajd_error error;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    assert_non_null(out);
    assert_int_equal(metrics_write(json, out, &error), TRAJD_OK);
    fclose(out);
    assert_string_equal(text + length - 6, "# EOF\n");
    return text;
}

static void assert_has(const char *json, const char *line)
{
    char *text = text_of(json);

    if (!strstr(text, line))
        fail_msg("\"%s\" is not in:\n%s", line, text);
    free(text);
}

static void assert_lacks(const char *json, const char *piece)
{
    char *text = text_of(json);

    if (strstr(text, piece))
        fail_msg("\"%s\" is in:\n%s", piece, text);
    free(text);
}

static void test_what_is_missing_is_left_out(void **state)
{
    static const char old[] = "{\"version\":\"0.1.0\",\"instance\":\"a\",\"batches_sent\":3,"
                              "\"feeds\":[{\"name\":\"f\",\"feed_id\":1,\"ring_bytes\":8}]}";

    (void)state;
    assert_has(old, "\ntrajd_batches_sent_total 3\n");
    assert_has(old, "\ntrajd_memory_bytes{feed=\"f\",purpose=\"ring\"} 8\n");
    assert_lacks(old, "batches_done");
    assert_lacks(old, "wait_seconds");
    assert_lacks(old, "ready_to_sent");
    assert_has("{}", "trajd_info{version=\"\",instance_id=\"\"} 1\n");
    assert_lacks("{\"batches_sent\":null}", "batches_sent");
    assert_lacks("{\"batches_sent\":\"many\"}", "batches_sent");
    assert_lacks("{\"batches_sent\":[1]}", "batches_sent");
    assert_lacks("{\"datasets\":[1,{\"store\":2}]}", "rows");
}

static void test_labels_are_escaped(void **state)
{
    (void)state;
    assert_has("{\"datasets\":[{\"name\":\"a\\\"b\\\\c\\nd\",\"files\":1}]}",
               "trajd_dataset_files{dataset=\"a\\\"b\\\\c\\\\u000ad\",state=\"read\"} 1\n");
}

static void test_units(void **state)
{
    static const char json[] = "{\"producers\":[{\"name\":\"f\",\"load_ns\":1500000000}]}";

    (void)state;
    assert_has(json, "# UNIT trajd_feed_work_seconds seconds\n");
    assert_has(json, "trajd_feed_work_seconds_total{feed=\"f\",work=\"rows\"} 1.500000000\n");
}

static void test_only_workers_of_a_feed(void **state)
{
    static const char json[] =
        "{\"feeds\":[{\"name\":\"f\",\"feed_id\":7}],\"sessions\":["
        "{\"session\":1,\"client\":\"w\",\"pid\":5,\"feed_id\":7,\"rank\":2,\"held\":1},"
        "{\"session\":2,\"client\":\"trajctl\",\"pid\":6,\"feed_id\":0,\"rank\":0,\"held\":0}]}";

    (void)state;
    assert_has(json,
               "trajd_worker_batches_held{feed=\"f\",worker=\"w\",rank=\"2\",pid=\"5\",session="
               "\"1\"} 1\n");
    assert_lacks(json, "session=\"2\"");
}

static void test_the_histogram(void **state)
{
    char json[512] = "{\"ready_to_sent\":{\"sum_seconds\":0.25,\"below_power_of_two_ns\":[";

    (void)state;
    for (int k = 0; k < 40; k++) /* one below a microsecond, two in the next bucket, three above */
        strcat(json, k == 3 ? "1," : k == 11 ? "2," : k == 39 ? "3" : "0,");
    strcat(json, "]}}");
    assert_has(json, "trajd_ready_to_sent_seconds_bucket{le=\"0.000001024\"} 1\n");
    assert_has(json, "trajd_ready_to_sent_seconds_bucket{le=\"0.000002048\"} 3\n");
    assert_has(json, "trajd_ready_to_sent_seconds_bucket{le=\"17.179869184\"} 3\n");
    assert_has(json, "trajd_ready_to_sent_seconds_bucket{le=\"+Inf\"} 6\n");
    assert_has(json, "trajd_ready_to_sent_seconds_sum 0.25\n");
    assert_has(json, "trajd_ready_to_sent_seconds_count 6\n");
}

static void test_no_document(void **state)
{
    struct trajd_error error;

    (void)state;
    assert_int_equal(metrics_write("{\"a\":", stdout, &error), TRAJD_ERR_DATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_missing_is_left_out),
        cmocka_unit_test(test_labels_are_escaped),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_only_workers_of_a_feed),
        cmocka_unit_test(test_the_histogram),
        cmocka_unit_test(test_no_document),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
