/* The digest and FNV-1a yield values that files and splits of earlier versions contain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "daemon/base/digest.h"

static void test_fnv_is_the_published_one(void **state)
{
    uint64_t hash;

    (void)state;
    assert_int_equal(trajd_fnv(TRAJD_FNV_BEGIN, "", 0), UINT64_C(0xcbf29ce484222325));
    assert_int_equal(trajd_fnv(TRAJD_FNV_BEGIN, "a", 1), UINT64_C(0xaf63dc4c8601ec8c));
    assert_int_equal(trajd_fnv(TRAJD_FNV_BEGIN, "foobar", 6), UINT64_C(0x85944171f73967e8));
    hash = trajd_fnv(TRAJD_FNV_BEGIN, "foo", 3);
    assert_int_equal(trajd_fnv(hash, "bar", 3), UINT64_C(0x85944171f73967e8));
}

static void test_how_bytes_are_split_does_not_matter(void **state)
{
    const char text[] = "twenty-three bytes long";
    const uint64_t whole = trajd_digest_of(text, 23);

    (void)state;
    for (size_t cut = 0; cut <= 23; cut++) {
        struct trajd_digest digest;
        trajd_digest_init(&digest);
        trajd_digest_add(&digest, text, cut);
        trajd_digest_add(&digest, text + cut, 23 - cut);
        assert_int_equal(trajd_digest_end(&digest), whole);
    }
    assert_int_not_equal(trajd_digest_of(text, 22), whole);
}

static void test_texts_do_not_run_together(void **state)
{
    const char *const pairs[][2] = {{"ab", "c"}, {"a", "bc"}, {"abc", ""}, {"abc", NULL}};
    uint64_t values[4];

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct trajd_digest digest;
        trajd_digest_init(&digest);
        trajd_digest_add_text(&digest, pairs[i][0]);
        trajd_digest_add_text(&digest, pairs[i][1]);
        values[i] = trajd_digest_end(&digest);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(values[k], values[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fnv_is_the_published_one),
        cmocka_unit_test(test_how_bytes_are_split_does_not_matter),
        cmocka_unit_test(test_texts_do_not_run_together),
    };
    return cmocka_run_group_tests_name("base/digest", tests, NULL, NULL);
}
