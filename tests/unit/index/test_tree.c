/* The lines of a tree: what is accepted, and what breaks a rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/index/tree/tree.h"
#include "proto/array_len.h"

static enum trajd_status decode(const char *text, struct trajd_tree *tree)
{
    struct trajd_error error;

    return trajd_tree_decode(text, strlen(text), tree, &error);
}

static void test_accepted(void **state)
{
    struct trajd_tree tree;
    const struct trajd_tree_object *object;

    (void)state;
    assert_int_equal(decode("G\t\nA\tfps\t30\nA\tname\t\n"
                            "D\tobs/q\tplain\tf32\t10,7\tcontiguous\n"
                            "D\tnote\ttext\ttext\t-\tcompact\nA\tx\ty\n"
                            "L\tlost\ta link that leads nowhere\nM\n",
                            &tree),
                     TRAJD_OK);
    assert_int_equal(tree.object_count, 4);
    assert_int_equal(tree.attribute_count, 3);
    assert_true(tree.is_cut);
    assert_null(tree.refusal);
    object = tree.objects;
    assert_int_equal(object->kind, TRAJD_TREE_GROUP);
    assert_string_equal(object->path, "");
    assert_int_equal(object->attribute_count, 2);
    assert_string_equal(tree.attributes[0].value, "30");
    assert_string_equal(tree.attributes[1].value, "");
    object++;
    assert_int_equal(object->kind, TRAJD_TREE_DATASET);
    assert_int_equal(object->form, TRAJD_TREE_PLAIN);
    assert_int_equal(object->dtype, TRAJD_F32);
    assert_int_equal(object->rank, 2);
    assert_int_equal(object->shape[0], 10);
    assert_int_equal(object->shape[1], 7);
    assert_string_equal(object->storage, "contiguous");
    object++;
    assert_int_equal(object->form, TRAJD_TREE_TEXT);
    assert_int_equal(object->dtype, TRAJD_DTYPE_NONE);
    assert_int_equal(object->rank, 0);
    assert_int_equal(object->first_attribute, 2);
    object++;
    assert_int_equal(object->kind, TRAJD_TREE_PROBLEM);
    assert_string_equal(object->storage, "a link that leads nowhere");
    trajd_tree_free(&tree);

    assert_int_equal(decode("D\ta\tbytes\tu8\t3\tx\nD\tb\tforeign\tf32\t3\tx\n"
                            "D\tc\tstring\ttext\t3\tx\n",
                            &tree),
                     TRAJD_OK);
    assert_int_equal(tree.objects[0].form, TRAJD_TREE_BYTES);
    assert_int_equal(tree.objects[1].form, TRAJD_TREE_FOREIGN);
    assert_int_equal(tree.objects[2].form, TRAJD_TREE_STRING);
    trajd_tree_free(&tree);

    assert_int_equal(decode("X\tnot readable\n", &tree), TRAJD_OK);
    assert_string_equal(tree.refusal, "not readable");
    assert_int_equal(tree.object_count, 0);
    trajd_tree_free(&tree);
}

static void test_refused(void **state)
{
    static const char *const texts[] = {
        "G\t",
        "G\n",
        "G\ta\tb\n",
        "\n",
        "Q\ta\n",
        "GG\ta\n",
        "A\tname\tvalue\n",
        "G\ta\nA\tname\n",
        "G\ta\nA\tname\tvalue\tmore\n",
        "D\ta\tplain\tf32\t10\n",
        "D\ta\tplain\tf32\t10\tx\ty\n",
        "D\ta\tplain\tf99\t10\tx\n",
        "D\ta\tround\tf32\t10\tx\n",
        "D\ta\tplain\tf32\t\tx\n",
        "D\ta\tplain\tf32\t10,\tx\n",
        "D\ta\tplain\tf32\t-1\tx\n",
        "D\ta\tplain\tf32\t1,2,3,4,5,6,7\tx\n",
        "L\ta\n",
        "X\n",
        "G\ta\rb\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct trajd_tree tree;
        if (decode(texts[i], &tree) != TRAJD_ERR_PROTOCOL)
            fail_msg("accepted: %s", texts[i]);
        assert_null(tree.objects);
    }
}

static void test_zero_byte(void **state)
{
    struct trajd_tree tree;
    struct trajd_error error;

    (void)state;
    assert_int_equal(trajd_tree_decode("G\ta\0b\n", 6, &tree, &error), TRAJD_ERR_PROTOCOL);
}

/* A failure before the helper runs has its own status, and no descriptor stays open. */
static void test_files_and_helpers_that_do_not_start(void **state)
{
    static const struct {
        const char *helper, *path;
        enum trajd_status status;
        const char *words;
    } cases[] = {
        {"/bin/true", "/nonexistent.hdf5", TRAJD_ERR_NOT_FOUND, "/nonexistent.hdf5"},
        {"/bin/true", "/", TRAJD_ERR_ARGUMENT, "no regular file"},
        {"/nonexistent/helper", "/proc/self/exe", TRAJD_ERR_SYSTEM, "/nonexistent/helper"},
        {"/bin/true", "/proc/self/exe", TRAJD_ERR_DATA, "the helper program crashed on it"},
    };
    const int next = dup(0);

    (void)state;
    close(next);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_tree tree;
        struct trajd_error error;
        assert_int_equal(trajd_tree_read(cases[i].helper, cases[i].path, 60000, &tree, &error),
                         cases[i].status);
        if (!strstr(error.message, cases[i].words))
            fail_msg("'%s' lacks '%s'", error.message, cases[i].words);
        assert_int_equal(dup(0), next);
        close(next);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_zero_byte),
        cmocka_unit_test(test_files_and_helpers_that_do_not_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
