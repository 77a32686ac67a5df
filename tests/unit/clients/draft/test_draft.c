/* What a draft takes from the tree of a file: episodes, streams, clocks. Trees are
 * made of lines of text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clients/cli/draft/draft.h"
#include "clients/cli/draft/draft_facts.h"

struct world {
    struct trajd_tree tree;
    struct draft_facts facts;
};

static const char *copy(struct trajd_tree *tree, const char *text)
{
    return trajd_arena_copy(&tree->arena, text, strlen(text));
}

/* Adds what a line says: "G;path", "D;path;form;type;shape;storage", "L;path;problem", "A;name;value"
 * of the object above, or "M": there are more objects. */
static void add_line(struct trajd_tree *tree, char *line)
{
    static const char *const forms[] = {"plain", "string", "text", "bytes", "foreign"};
    struct trajd_tree_object *object = &tree->objects[tree->object_count];
    char *fields[6] = {line, "", "", "", "", ""};

    for (int i = 1; i < 6 && (line = strchr(fields[i - 1], ';')); i++) {
        *line = '\0';
        fields[i] = line + 1;
    }
    if (*fields[0] == 'A') {
        tree->attributes[tree->attribute_count++] =
            (struct trajd_tree_attribute){copy(tree, fields[1]), copy(tree, fields[2])};
        object[-1].attribute_count++;
        return;
    }
    tree->is_cut |= *fields[0] == 'M';
    if (*fields[0] == 'M')
        return;
    *object = (struct trajd_tree_object){.kind = *fields[0] == 'G'   ? TRAJD_TREE_GROUP
                                                 : *fields[0] == 'D' ? TRAJD_TREE_DATASET
                                                                     : TRAJD_TREE_PROBLEM,
                                         .path = copy(tree, fields[1]),
                                         .type = copy(tree, fields[3]),
                                         .storage = copy(tree, fields[*fields[0] == 'D' ? 5 : 2]),
                                         .first_attribute = tree->attribute_count};
    tree->object_count++;
    if (object->kind != TRAJD_TREE_DATASET)
        return;
    while (strcmp(forms[object->form], fields[2]) != 0)
        object->form++;
    if (object->form == TRAJD_TREE_PLAIN)
        object->dtype = trajd_dtype_parse(fields[3]);
    for (char *at = fields[4]; *at && *at != '-'; at += *at == ',')
        object->shape[object->rank++] = strtoull(at, &at, 10);
}

/* Makes the tree of the lines. */
static struct world *make(const char *text)
{
    struct world *world = calloc(1, sizeof *world);
    struct trajd_tree *tree = &world->tree;
    char *const lines = strdup(text), *rest = lines, *line;

    tree->arena.limit_bytes = 1 << 26;
    tree->objects = trajd_arena_alloc(&tree->arena, strlen(text) * sizeof *tree->objects);
    tree->attributes = trajd_arena_alloc(&tree->arena, strlen(text) * sizeof *tree->attributes);
    assert_true(tree->objects && tree->attributes);
    while ((line = strsep(&rest, "\n")) && *line)
        add_line(tree, line);
    free(lines);
    world->facts.tree = tree;
    draft_find_episodes(&world->facts);
    draft_collect_streams(&world->facts);
    return world;
}

static void destroy(struct world *world)
{
    draft_facts_free(&world->facts);
    trajd_tree_free(&world->tree);
    free(world);
}

static void assert_episodes(const char *text, const char *pattern, uint32_t count)
{
    struct world *world = make(text);

    assert_string_equal(world->facts.pattern, pattern);
    assert_int_equal(world->facts.episode_count, count);
    destroy(world);
}

#define DATASET(path, rows) "D;" path ";plain;f32;" rows ",7;contiguous\n"

static void test_numbered_groups(void **state)
{
    (void)state;
    assert_episodes("G;\nG;data\nG;data/demo_0\n" DATASET("data/demo_0/q", "10") //
                    "G;data/demo_10\n" DATASET("data/demo_10/q", "12")           //
                    "G;data/demo_2\n" DATASET("data/demo_2/q", "14"),
                    "/data/demo_*", 3);
    /* one episode is enough, if nothing lies beside it */
    assert_episodes("G;\nG;traj_0\n" DATASET("traj_0/q", "10"), "/traj_*", 1);
    /* groups in groups */
    assert_episodes("G;\nG;task_1\nG;task_1/demo_1\n" DATASET("task_1/demo_1/q", "10") //
                    "G;task_1/demo_2\n" DATASET("task_1/demo_2/q", "11")               //
                    "G;task_2\nG;task_2/demo_1\n" DATASET("task_2/demo_1/q", "12"),
                    "/task_*/demo_*", 3);
}

static void test_groups_without_numbers(void **state)
{
    (void)state;
    assert_episodes("G;\nG;runs\nG;runs/ab\n" DATASET("runs/ab/q", "10") //
                    "G;runs/cd\n" DATASET("runs/cd/q", "12"),
                    "/runs/*", 2);
    /* other arrays: they are parts of one recording */
    assert_episodes("G;\nG;arm\n" DATASET("arm/q", "10") //
                    "G;hand\n" DATASET("hand/force", "10"),
                    "/", 1);
}

static void test_cameras_are_no_episodes(void **state)
{
    (void)state;
    assert_episodes("G;\n" DATASET("action", "10")          //
                    "G;cam_0\n" DATASET("cam_0/rgb", "10")  //
                    "G;cam_1\n" DATASET("cam_1/rgb", "10"), //
                    "/", 1);
    assert_episodes("G;\nG;obs\n" DATASET("obs/q", "11") //
                    "G;obs/cam_0\n" DATASET("obs/cam_0/rgb", "11") DATASET("obs/cam_0/depth", "11"),
                    "/", 1);
}

static void test_streams(void **state)
{
    struct world *world = make("G;\nG;d_1\n" DATASET("d_1/q", "10")  //
                               "D;d_1/K;plain;f64;3,3;contiguous\n"  //
                               "D;d_1/jpeg;plain;u8;10,99;chunks\n"  //
                               "D;d_1/mode;foreign;compound;10;x\n"  //
                               "D;d_1/note;text;text;-;contiguous\n" //
                               "G;d_2\n" DATASET("d_2/q", "12")      //
                               "D;d_2/K;plain;f64;3,3;contiguous\n"  //
                               "D;d_2/jpeg;plain;u8;12,77;chunks\n"  //
                               "D;d_2/extra;plain;f32;12;contiguous\n");
    const struct draft_stream *list = world->facts.streams;

    (void)state;
    assert_int_equal(world->facts.stream_count, 6);
    assert_string_equal(list[0].path, "q");
    assert_null(list[0].left_out);
    assert_int_equal(list[0].episode_count, 2);
    assert_int_equal(list[0].least_rows, 10);
    assert_int_equal(list[0].most_rows, 12);
    assert_null(list[2].left_out); /* another width in each episode */
    assert_false(list[2].differs);
    assert_non_null(strstr(list[3].left_out, "it is a table with named columns"));
    assert_string_equal(list[4].left_out, "it is one value");
    assert_string_equal(list[5].path, "extra");
    assert_int_equal(list[5].episode_count, 1);

    draft_plan_clocks(&world->facts);
    assert_int_equal(world->facts.clock_count, 1);
    assert_int_equal(world->facts.streams[0].clock, 0);
    assert_int_equal(world->facts.streams[1].clock, DRAFT_NO_CLOCK); /* the matrix of a camera */
    assert_non_null(list[1].left_out);
    destroy(world);
}

static void test_rows_and_clocks(void **state)
{
    struct world *world = make("G;\nG;d_1\n" DATASET("d_1/action", "10") DATASET("d_1/obs", "11") //
                               DATASET("d_1/force", "100")                                        //
                               "G;d_2\n" DATASET("d_2/action", "20") DATASET("d_2/obs", "21")     //
                               DATASET("d_2/force", "200"));

    (void)state;
    draft_plan_clocks(&world->facts);
    assert_int_equal(world->facts.clock_count, 2);
    assert_int_equal(world->facts.streams[0].clock, 0);
    assert_int_equal(world->facts.streams[1].clock, 0);
    assert_false(world->facts.streams[0].is_row_longer);
    assert_true(world->facts.streams[1].is_row_longer);
    assert_int_equal(world->facts.streams[2].clock, 1);
    assert_true(world->facts.clocks[1].ratio == 10);
    destroy(world);
}

/* Makes two streams the stamps of the file. */
static void set_stamps(struct draft_facts *facts, uint32_t first, uint32_t second)
{
    facts->clock_count = 2;
    facts->clocks[0].stream = first;
    facts->clocks[1].stream = second;
}

static void test_stamps(void **state)
{
    static const char text[] = "G;\nG;d_1\n" DATASET("d_1/arm/q", "10")         //
        "D;d_1/time/arm;plain;f64;10;contiguous\n"                              //
        "D;d_1/time/hand;plain;f64;10;contiguous\n" DATASET("d_1/hand/q", "10") //
        DATASET("d_1/other", "7");
    struct world *world = make(text);

    (void)state;
    set_stamps(&world->facts, 1, 2);
    draft_plan_clocks(&world->facts);
    assert_int_equal(world->facts.streams[0].clock, 0);
    assert_int_equal(world->facts.streams[3].clock, 1);
    assert_string_equal(world->facts.streams[1].left_out, "its values are stamps");
    assert_string_equal(world->facts.streams[4].left_out, "no stamps have its number of rows");
    assert_true(draft_is_clock_used(&world->facts, 1));
    destroy(world);
}

static void test_stamps_that_no_stream_needs(void **state)
{
    struct world *world = make("G;\nG;d_1\n" DATASET("d_1/q", "10") //
                               "D;d_1/received;plain;f64;10;contiguous\n"
                               "D;d_1/sent;plain;f64;10;contiguous\n");

    (void)state;
    set_stamps(&world->facts, 1, 2);
    draft_plan_clocks(&world->facts);
    assert_string_equal(world->facts.streams[1].left_out, "its values are stamps");
    assert_string_equal(world->facts.streams[2].left_out,
                        "its values are stamps that no stream needs");
    destroy(world);
}

#define FLAG(path, rows) "D;" path ";plain;bool;" rows ";contiguous\n"

/* Arrays that hold several episodes: flags of other lengths do not count, and lengths come
 * first. */
static void test_split(void **state)
{
    static const char flags[] = "G;\n" DATASET("action", "90") FLAG("info/dones", "7") //
        FLAG("terminals", "90") FLAG("timeouts", "90") DATASET("weights", "64");
    static const char lengths[] = "G;\n" DATASET("action", "90") FLAG("terminals", "90") //
        "D;episode_lengths;plain;i64;7;contiguous\n";
    struct world *world = make(flags);

    (void)state;
    world->facts.streams[1].left_out = "it is of no use";
    draft_find_split(&world->facts);
    assert_string_equal(world->facts.split, "flags");
    assert_int_equal(world->facts.split_count, 2);
    assert_string_equal(world->facts.streams[world->facts.split_streams[1]].path, "timeouts");
    draft_apply_split(&world->facts);
    assert_null(world->facts.streams[0].left_out);
    assert_non_null(world->facts.streams[4].left_out);
    destroy(world);

    world = make(lengths);
    draft_find_split(&world->facts);
    assert_string_equal(world->facts.split, "lengths");
    draft_apply_split(&world->facts);
    assert_null(world->facts.streams[0].left_out);
    assert_null(world->facts.streams[1].left_out);
    destroy(world);

    world = make("G;\n" DATASET("action", "90"));
    draft_find_split(&world->facts);
    assert_null(world->facts.split);
    destroy(world);
}

/* Makes a file of `count` episodes. Returns whether a few of them, which the pattern matches, stand
 * for all. */
static bool find_few(uint32_t count, const char *name, const char *pattern)
{
    char *text = NULL, *few;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    struct world *world;
    bool found;

    fprintf(out, "G;\n");
    for (uint32_t i = 0; i < count; i++) {
        fprintf(out, "G;");
        fprintf(out, name, i);
        fprintf(out, "\nD;");
        fprintf(out, name, i);
        fprintf(out, "/q;plain;f32;9,7;contiguous\n");
    }
    fclose(out);
    world = make(text);
    few = draft_few_episodes(&world->facts);
    found = few != NULL;
    if (found)
        assert_string_equal(few, pattern);
    free(few);
    assert_int_equal(world->facts.episode_count, count);
    destroy(world);
    free(text);
    return found;
}

static void test_few_episodes(void **state)
{
    (void)state;
    assert_true(find_few(200, "demo_%u", "/demo_10[0-9]"));
    assert_false(find_few(20, "demo_%u", ""));
    assert_false(find_few(200, "demo_%u_a", ""));
    assert_false(find_few(200, "d[%u]0", ""));
}

static void test_print(void **state)
{
    struct world *world = make("G;\nA;fps;30\nG;demo_0\n" DATASET("demo_0/q", "10") //
                               "G;demo_1\n" DATASET("demo_1/q", "12")               //
                               "G;demo_2\n" DATASET("demo_2/q", "14")               //
                               "L;lost;a link that leads nowhere\nM\n");
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    draft_print_tree(out, &world->tree);
    fclose(out);
    assert_string_equal(text, "  /  @fps=30\n"
                              "    demo_0/\n"
                              "      q                        f32 (10,7) contiguous\n"
                              "    ... 2 more like it, up to demo_2\n"
                              "    lost  ! a link that leads nowhere\n"
                              "  ... the file has more than 200000 objects\n");
    free(text);
    destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbered_groups),
        cmocka_unit_test(test_groups_without_numbers),
        cmocka_unit_test(test_cameras_are_no_episodes),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_rows_and_clocks),
        cmocka_unit_test(test_stamps),
        cmocka_unit_test(test_stamps_that_no_stream_needs),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_few_episodes),
        cmocka_unit_test(test_print),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
