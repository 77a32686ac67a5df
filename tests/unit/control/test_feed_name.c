/* feed_list.c: the grammar of feed names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/control/control_internal.h"

static void equal_texts_are_one_feed(void **state)
{
    char a[64], b[64], c[64];

    (void)state;
    trajd_feed_name_of_text("dataset: lab", a, sizeof a);
    trajd_feed_name_of_text("dataset: lab", b, sizeof b);
    trajd_feed_name_of_text("dataset: lap", c, sizeof c);
    assert_string_equal(a, b);
    assert_string_not_equal(a, c);
    assert_string_equal(a, "spec:c7adc2ef8affadc0");
    assert_int_equal(strlen(a), strlen("spec:0123456789abcdef"));
    trajd_feed_name_of_text("", a, sizeof a);
    assert_string_equal(a, "spec:cbf29ce484222325"); /* FNV-1a of nothing */
}

static void names_have_parts(void **state)
{
    static const struct {
        const char *name;
        size_t family, base;
        bool is_configured, is_on_gpu, may_close;
    } names[] = {
        {"train", 5, 5, true, false, false},      {"train#2", 5, 5, true, false, true},
        {"train@GPU-1", 11, 5, true, true, true}, {"train@GPU-1#3", 11, 5, true, true, true},
        {"spec:00", 7, 7, false, false, true},    {"spec:00@GPU-1#2", 13, 7, false, true, true},
        {"specs", 5, 5, true, false, false},      {"", 0, 0, true, false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(trajd_feed_name_family_length(names[i].name), names[i].family);
        assert_int_equal(trajd_feed_name_base_length(names[i].name), names[i].base);
        assert_int_equal(trajd_feed_name_is_configured(names[i].name), names[i].is_configured);
        assert_int_equal(trajd_feed_name_has_place(names[i].name), names[i].is_on_gpu);
        assert_int_equal(trajd_feed_name_may_close(names[i].name), names[i].may_close);
    }
}

static void instances_are_of_one_family(void **state)
{
    char name[64];

    (void)state;
    trajd_feed_name_of_instance("train@GPU-1", 7, name, sizeof name);
    assert_string_equal(name, "train@GPU-1#7");
    assert_true(trajd_feed_name_is_in_family(name, "train@GPU-1"));
    assert_true(trajd_feed_name_is_in_family("train", "train"));
    assert_false(trajd_feed_name_is_in_family(name, "train"));
    assert_false(trajd_feed_name_is_in_family("trains#2", "train"));
    assert_false(trajd_feed_name_is_in_family("tra#2", "train"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_texts_are_one_feed),
        cmocka_unit_test(names_have_parts),
        cmocka_unit_test(instances_are_of_one_family),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
