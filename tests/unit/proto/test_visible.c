/* visible.c: hidden characters and broken UTF-8 become escapes; all else stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "proto/array_len.h"
#include "proto/visible.h"

static void hidden_characters_become_escapes(void **state)
{
    static const struct {
        const char *text, *visible;
    } cases[] = {
        {"", ""},
        {"job 7 (caf\xc3\xa9, \xe6\x9c\xba\xe5\x99\xa8)",
         "job 7 (caf\xc3\xa9, \xe6\x9c\xba\xe5\x99\xa8)"},
        {"\xf0\x9f\xa4\x96", "\xf0\x9f\xa4\x96"},
        {"a\nb\tc\x1b[2J\x7f", "a\\u000ab\\u0009c\\u001b[2J\\u007f"},
        {"\xc2\x80\xc2\x9b"
         "2J\xc2\xa0",
         "\\u0080\\u009b2J\xc2\xa0"},
        {"gnp\xe2\x80\xae"
         "fdp",
         "gnp\\u202efdp"},
        {"\xe2\x80\x8b\xe2\x80\x8f\xe2\x80\xa8\xe2\x81\xa6\xe2\x81\xa9\xef\xbb\xbf\xd8\x9c",
         "\\u200b\\u200f\\u2028\\u2066\\u2069\\ufeff\\u061c"},
        {"\xf3\xa0\x81\x81", "\\U000e0041"},
        {"\xff\xc2", "\\xff\\xc2"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
    };
    char visible[128];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(trajd_visible(visible, sizeof visible, cases[i].text),
                         strlen(cases[i].visible));
        assert_string_equal(visible, cases[i].visible);
    }
}

static void a_text_is_not_cut_within_a_character(void **state)
{
    static const char text[] = "a\xe2\x80\xae\xe6\x9c\xba";
    static const char *const cuts[] = {"a", "a\\u202e", "a\\u202e\xe6\x9c\xba"};
    char visible[16];

    (void)state;
    for (size_t size = 1; size <= sizeof visible; size++) {
        const char *expected = size < 2 ? "" : size < 8 ? cuts[0] : size < 11 ? cuts[1] : cuts[2];
        memset(visible, 'x', sizeof visible);
        assert_int_equal(trajd_visible(visible, size, text), strlen(expected));
        assert_string_equal(visible, expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden_characters_become_escapes),
        cmocka_unit_test(a_text_is_not_cut_within_a_character),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
