/* The tree of a file: what is encoded comes back, and what breaks a rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/index/tree/tree.h"
#include "proto/array_len.h"

/* A group with two attributes, a dataset without, a text with one, and a link that is lost. */
struct sample {
    struct trajd_tree tree;
    struct trajd_tree_object objects[4];
    struct trajd_tree_attribute attributes[3];
};

static struct sample *make_sample(void)
{
    static struct sample s;

    s = (struct sample){
        .objects = {{TRAJD_TREE_GROUP, "", .type = "", .storage = "", .attribute_count = 2},
                    {TRAJD_TREE_DATASET,
                     "obs/q",
                     TRAJD_TREE_PLAIN,
                     TRAJD_F32,
                     "f32",
                     2,
                     {10, 7},
                     "contiguous"},
                    {TRAJD_TREE_DATASET, "note", TRAJD_TREE_TEXT, .type = "text",
                     .storage = "compact", .attribute_count = 1},
                    {TRAJD_TREE_PROBLEM, "lost", .type = "", .storage = "a lost link"}},
        .attributes = {{"fps", "30"}, {"name", ""}, {"x", "y"}}};
    s.tree = (struct trajd_tree){.is_cut = true,
                                 .object_count = ARRAY_LEN(s.objects),
                                 .objects = s.objects,
                                 .attribute_count = ARRAY_LEN(s.attributes),
                                 .attributes = s.attributes};
    return &s;
}

static enum trajd_status go_through(const struct trajd_tree *tree, struct trajd_tree *out,
                                    struct trajd_error *error)
{
    struct trajd_bytes bytes = {0};
    enum trajd_status status = trajd_tree_encode(tree, &bytes, error);

    if (!status)
        status = trajd_tree_decode(bytes.data, bytes.length, out, error);
    trajd_bytes_free(&bytes);
    return status;
}

static void test_accepted(void **state)
{
    struct trajd_tree tree;
    struct trajd_error error;

    (void)state;
    assert_int_equal(go_through(&make_sample()->tree, &tree, &error), TRAJD_OK);
    assert_int_equal(tree.object_count, 4);
    assert_int_equal(tree.attribute_count, 3);
    assert_true(tree.is_cut);
    assert_null(tree.refusal);
    assert_string_equal(tree.attributes[0].value, "30");
    assert_string_equal(tree.attributes[1].value, "");
    assert_int_equal(tree.objects[1].dtype, TRAJD_F32);
    assert_int_equal(tree.objects[1].rank, 2);
    assert_int_equal(tree.objects[1].shape[1], 7);
    assert_string_equal(tree.objects[1].storage, "contiguous");
    assert_int_equal(tree.objects[2].form, TRAJD_TREE_TEXT);
    assert_int_equal(tree.objects[2].first_attribute, 2);
    assert_string_equal(tree.objects[3].storage, "a lost link");
    trajd_tree_free(&tree);
    assert_int_equal(go_through(&(struct trajd_tree){.refusal = "not readable"}, &tree, &error),
                     TRAJD_OK);
    assert_string_equal(tree.refusal, "not readable");
    assert_int_equal(tree.object_count, 0);
    trajd_tree_free(&tree);
}

static void expect(const struct sample *s, const char *message)
{
    struct trajd_tree tree = {0};
    struct trajd_error error;

    assert_int_not_equal(go_through(&s->tree, &tree, &error), TRAJD_OK);
    assert_null(tree.objects);
    if (!strstr(error.message, message))
        fail_msg("'%s' lacks '%s'", error.message, message);
}

static void test_refused(void **state)
{
    struct sample *s = make_sample();

    (void)state;
    s->objects[2].attribute_count = 2;
    expect(s, "the tree of the file: attributes without an object, or too few");
    s = make_sample(), s->objects[0].attribute_count = 1;
    expect(s, "attributes without an object, or too few");
    s = make_sample(), s->objects[1].attribute_count = UINT32_MAX;
    expect(s, "attributes without an object, or too few");
    s = make_sample(), s->objects[1].dtype = TRAJD_DTYPE_NONE;
    expect(s, "the tree of the file: objects[1]: only a dataset of plain numbers has a type");
    s = make_sample(), s->objects[3].dtype = TRAJD_U8;
    expect(s, "objects[3]: only a dataset of plain numbers has a type");
    s = make_sample(), s->objects[2].form = TRAJD_TREE_FOREIGN + 1;
    expect(s, "objects[2].form: out of range");
    s = make_sample(), s->objects[2].path = "a\rb";
    expect(s, "objects[2].path: a text has control characters");
    s = make_sample(), s->objects[1].rank = TRAJD_ARRAY_MAX_RANK + 1;
    expect(s, "objects[1].shape: too many elements");
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
        {"/bin/true", "/", TRAJD_ERR_ARGUMENT, "a folder, not a regular file"},
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
        cmocka_unit_test(test_files_and_helpers_that_do_not_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
