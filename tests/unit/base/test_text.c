/* Texts in memory of a fixed size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/base/text/text.h"

static void text_is_cut_at_the_end_of_its_buffer(void **state)
{
    char buffer[12];
    struct trajd_text text = {buffer, sizeof buffer, 0};

    (void)state;
    trajd_text_add(&text, "%s", "0123456");
    assert_int_equal(text.used, 7);
    trajd_text_add(&text, "%s", "789abcdef");
    assert_string_equal(buffer, "0123456789a");
    assert_int_equal(text.used, 11);
    trajd_text_add(&text, "%s", "more");
    assert_string_equal(buffer, "0123456789a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_cut_at_the_end_of_its_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
