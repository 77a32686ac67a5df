/* The trees of files whose groups lie deep, or are links to groups above them, or whose texts have
 * control characters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/index/tree/tree.h"
#include "tests/support/array_list.h"

#define HELPER TRAJD_BINARY_DIR "/daemon/hdf5/trajd-indexer"

static char folder[] = "/tmp/trajd_tree_XXXXXX";

/* Runs statements of Python with a new file f, and reads the file's tree. */
static void read_tree(const char *statements, struct trajd_tree *tree)
{
    char path[64], arguments[512];
    struct trajd_error error;

    snprintf(path, sizeof path, "%s/tree.hdf5", folder);
    snprintf(arguments, sizeof arguments,
             "-c \"import h5py; f = h5py.File('%s', 'w'); %s; f.close()\"", path, statements);
    assert_int_equal(run_python(arguments), 0);
    if (trajd_tree_read(HELPER, path, 60000, tree, &error))
        fail_msg("%s", error.message);
    assert_int_equal(unlink(path), 0);
}

/* Groups are listed down to the 32nd, with the file's root. What lies below it is a problem, and
 * the walk goes on beside it. */
static void deep_groups(void **state)
{
    struct trajd_tree tree;
    char path[96] = "";

    (void)state;
    read_tree("f.create_group('/'.join('g' * 40)); f['z'] = 1", &tree);
    assert_null(tree.refusal);
    assert_false(tree.is_cut);
    assert_int_equal(tree.object_count, 34);
    for (uint32_t i = 0; i < 33; i++) {
        assert_int_equal(tree.objects[i].kind, i < 32 ? TRAJD_TREE_GROUP : TRAJD_TREE_PROBLEM);
        assert_string_equal(tree.objects[i].path, path);
        strcat(path, i ? "/g" : "g");
    }
    assert_string_equal(tree.objects[32].storage, "a group that lies too deep");
    assert_int_equal(tree.objects[33].kind, TRAJD_TREE_DATASET);
    assert_string_equal(tree.objects[33].path, "z");
    trajd_tree_free(&tree);
}

static void links_to_groups_above(void **state)
{
    static const char *const paths[] = {"", "a", "a/b", "a/b/above", "a/b/root"};
    struct trajd_tree tree;

    (void)state;
    read_tree("b = f.create_group('a/b'); b['above'] = f['a']; b['root'] = f['/']", &tree);
    assert_int_equal(tree.object_count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(tree.objects[i].kind, i < 3 ? TRAJD_TREE_GROUP : TRAJD_TREE_PROBLEM);
        assert_string_equal(tree.objects[i].path, paths[i]);
        if (i >= 3)
            assert_string_equal(tree.objects[i].storage, "a link to a group above it");
    }
    trajd_tree_free(&tree);
}

static void texts_with_control_characters(void **state)
{
    struct trajd_tree tree;

    (void)state;
    read_tree("f.attrs['x'] = b'\\x1fa\\n\\x01 \\x7f~'", &tree);
    assert_int_equal(tree.attribute_count, 1);
    assert_string_equal(tree.attributes[0].name, "x");
    assert_string_equal(tree.attributes[0].value, " a    ~");
    trajd_tree_free(&tree);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deep_groups),
        cmocka_unit_test(links_to_groups_above),
        cmocka_unit_test(texts_with_control_characters),
    };

    if (run_python("-c 'import h5py'")) {
        fputs("skipped: Python has no h5py\n", stderr);
        return 77;
    }
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
