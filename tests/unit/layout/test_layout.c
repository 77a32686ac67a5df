/* The shipped layouts, every key, and the message for each mistake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "daemon/layout/layout.h"
#include "proto/array_len.h"

#define LAYOUTS TRAJD_SOURCE_DIR "/configs/layouts"

static const char good[] =
    "layout: lab\n"
    "version: 1\n"
    "episodes: {files: \"*/ep_*.h5\", groups: /}\n"
    "clocks:\n"
    "  arm: {path: q_t, unit: ns, repeated: drop, backward: keep_last, offset: -1.5s, "
    "lost_rows: 2.5%}\n"
    "  wrist: {path: cam, column: 2, unit: us, latency: 38ms}\n"
    "  ft: {rate: 29.97, start: {path: ft_t0, unit: ms}, rows: wrench}\n"
    "streams:\n"
    "  joints: {path: q, clock: arm, kind: angle, columns: \"0:6\", unit: deg}\n"
    "  grip: {path: q, clock: arm, kind: previous, columns: \"6:7\", max_gap: 200ms}\n"
    "  rot: {clock: arm, kind: slerp, order: wxyz, optional: true}\n"
    "  cams/*/rgb: {path: images/*/rgb, clock: wrist, kind: nearest}\n"
    "  wrench: {path: ft, clock: ft, kind: mean}\n"
    "meta:\n"
    "  language: {attribute: /data@info, json: a.b}\n"
    "  task: {path: ../task, required: true}\n";

static void every_key_is_read(void **state)
{
    struct trajd_layout *layout;
    struct trajd_error error;

    (void)state;
    if (trajd_layout_parse("lab", good, strlen(good), &layout, &error))
        fail_msg("%s", error.message);
    assert_string_equal(layout->name, "lab");
    assert_string_equal(layout->files, "*/ep_*.h5");
    assert_string_equal(layout->groups, "/");
    assert_null(layout->filter_path);
    assert_int_equal(layout->clock_count, 3);
    assert_string_equal(layout->clocks[0].stamps_path, "q_t");
    assert_int_equal(layout->clocks[0].repeated, TRAJD_STAMPS_DROP);
    assert_int_equal(layout->clocks[0].backward, TRAJD_STAMPS_KEEP_LAST);
    assert_int_equal(layout->clocks[0].offset_ns, -1500000000);
    assert_true(layout->clocks[0].lost_rows_percent == 2.5);
    assert_true(layout->clocks[1].lost_rows_percent == 10);
    assert_int_equal(layout->clocks[1].stamps_column, 2);
    assert_int_equal(layout->clocks[1].unit, TRAJD_UNIT_US);
    assert_int_equal(layout->clocks[1].latency_ns, 38000000);
    assert_int_equal(layout->clocks[2].rate.num, 30000);
    assert_int_equal(layout->clocks[2].rate.den, 1001);
    assert_string_equal(layout->clocks[2].start_path, "ft_t0");
    assert_int_equal(layout->clocks[2].start_unit, TRAJD_UNIT_MS);
    assert_string_equal(layout->clocks[2].rows, "wrench");
    assert_int_equal(layout->stream_count, 5);
    assert_int_equal(layout->streams[0].column_end, 6);
    assert_true(layout->streams[0].angle_period == 360.0);
    assert_int_equal(layout->streams[0].max_gap_ns, -1);
    assert_false(layout->streams[0].optional);
    assert_int_equal(layout->streams[1].max_gap_ns, 200000000);
    assert_int_equal(layout->streams[2].kind, TRAJD_KIND_SLERP_WXYZ);
    assert_string_equal(layout->streams[2].path, "rot");
    assert_true(layout->streams[3].optional);
    assert_int_equal(layout->meta_count, 2);
    assert_string_equal(layout->metas[0].name, "language");
    assert_string_equal(layout->metas[0].attribute, "/data@info");
    assert_string_equal(layout->metas[0].json, "a.b");
    assert_null(layout->metas[0].path);
    assert_false(layout->metas[0].required);
    assert_string_equal(layout->metas[1].path, "../task");
    assert_true(layout->metas[1].required);
    assert_int_equal(layout->text_length, strlen(good));
    trajd_layout_destroy(&layout);
    assert_null(layout);
}

static void the_hash_depends_on_the_content(void **state)
{
    struct trajd_layout *one, *two;
    char text[sizeof good + 64];

    (void)state;
    assert_int_equal(trajd_layout_parse("a", good, strlen(good), &one, NULL), TRAJD_OK);
    snprintf(text, sizeof text, "# a comment\n%s", good);
    assert_int_equal(trajd_layout_parse("b", text, strlen(text), &two, NULL), TRAJD_OK);
    assert_true(one->hash == two->hash);
    trajd_layout_destroy(&two);
    strcpy(text, good);
    memcpy(strstr(text, "38ms"), "39ms", 4);
    assert_int_equal(trajd_layout_parse("c", text, strlen(text), &two, NULL), TRAJD_OK);
    assert_true(one->hash != two->hash);
    trajd_layout_destroy(&two);
    snprintf(text, sizeof text, "%stables: [camera/K, \"depth_*\"]\n", good);
    assert_int_equal(trajd_layout_parse("d", text, strlen(text), &two, NULL), TRAJD_OK);
    assert_true(one->hash != two->hash && one->table_count == 0 && two->table_count == 2);
    assert_string_equal(two->tables[1], "depth_*");
    trajd_layout_destroy(&two);
    trajd_layout_destroy(&one);
}

/* Returns the layout of `good` with an `image` for the cameras. */
static struct trajd_layout *with_image(const char *image)
{
    struct trajd_layout *layout;
    struct trajd_error error;
    const char *place = strstr(good, "kind: nearest");
    char text[sizeof good + 128];

    snprintf(text, sizeof text, "%.*skind: nearest%s%s", (int)(place - good), good, image,
             place + strlen("kind: nearest"));
    if (trajd_layout_parse("lab", text, strlen(text), &layout, &error))
        fail_msg("%s", error.message);
    return layout;
}

static void what_a_frame_means_is_read(void **state)
{
    struct trajd_layout *none = with_image(""), *some, *other;
    const struct trajd_layout_image *image;

    (void)state;
    some = with_image(", image: {encoding: png, color: bgr, flip: \"180\", size: [480, 640]}");
    image = trajd_layout_image_of(some, "images/left/rgb");
    assert_non_null(image);
    assert_int_equal(image->encoding, TRAJD_ENCODING_PNG);
    assert_int_equal(image->color, TRAJD_COLOR_BGR);
    assert_int_equal(image->flip, TRAJD_FLIP_180);
    assert_int_equal(image->height, 480);
    assert_int_equal(image->width, 640);
    assert_null(trajd_layout_image_of(some, "images/left/depth"));
    assert_null(trajd_layout_image_of(some, "q"));
    assert_null(trajd_layout_image_of(none, "images/left/rgb"));
    other = with_image(", image: {unit: mm}");
    image = trajd_layout_image_of(other, "images/left/rgb");
    assert_int_equal(image->encoding, TRAJD_ENCODING_AUTO);
    assert_int_equal(image->color, TRAJD_COLOR_DEPTH);
    assert_int_equal(image->unit, TRAJD_DEPTH_MM);
    assert_true(none->hash != some->hash && none->hash != other->hash && some->hash != other->hash);
    trajd_layout_destroy(&some);
    some = with_image(", image: {color: undecided}");
    image = trajd_layout_image_of(some, "images/left/rgb");
    assert_int_equal(image->color, TRAJD_COLOR_UNDECIDED);
    assert_int_equal(trajd_image_channels(image->color), 3);
    assert_string_equal(trajd_image_color_name(image->color), "undecided");
    assert_int_equal(trajd_layout_image_prepared(image, TRAJD_ENCODING_JPEG).color,
                     TRAJD_COLOR_RGB);
    assert_int_equal(trajd_layout_image_prepared(image, TRAJD_ENCODING_JPEG).encoding,
                     TRAJD_ENCODING_JPEG);
    assert_true(none->order_hash == some->order_hash && none->order_hash == other->order_hash);
    assert_true(none->hash == none->order_hash);
    trajd_layout_destroy(&none);
    trajd_layout_destroy(&some);
    trajd_layout_destroy(&other);
}

/* Feeds keep their fingerprints: the number is that of the release before the key `image`. */
static void layouts_without_frames_keep_their_hash(void **state)
{
    static const char text[] = "layout: one\nepisodes: {files: \"*.h5\", groups: /}\n"
                               "clocks: {c: {rate: 20}}\n"
                               "streams: {\"cams/*\": {path: images/*, kind: previous}}\n";
    struct trajd_layout *layout;

    (void)state;
    assert_int_equal(trajd_layout_parse("one", text, strlen(text), &layout, NULL), TRAJD_OK);
    assert_true(layout->hash == UINT64_C(0xFA004A5A3A8C72C6));
    trajd_layout_destroy(&layout);
}

static void shipped_layouts_load(void **state)
{
    static const char *const names[] = {"robomimic", "robosuite_raw", "aloha",    "template",
                                        "libero",    "mimicgen",      "isaaclab", "maniskill",
                                        "minari",    "minari_jpeg",   "robotwin", "robotwin_bgr",
                                        "robomind",  "droid_raw",     "droid_im", "demo"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct trajd_layout *layout;
        struct trajd_error error;
        if (trajd_layout_load(names[i], LAYOUTS, 2, &layout, &error))
            fail_msg("%s", error.message);
        assert_string_equal(layout->name, names[i]);
        trajd_layout_destroy(&layout);
    }
}

struct mistake {
    const char *from, *to; /* in `good` */
    const char *message;   /* a part of it */
};

static void mistakes_are_reported_with_their_line(void **state)
{
    static const struct mistake mistakes[] = {
        {"kind: angle", "knid: angle", "lab:9: "},
        {"kind: angle", "knid: angle", "did you mean kind"},
        {"kind: angle", "kind: liner", "linear"},
        {"kind: mean", "kind: slerp", "order: missing"},
        {"2.5%", "2.5", "like 10%"},
        {"rate: 29.97", "rate: {attribute: \"/@control_dt\"}", "the name of a period: add unit"},
        {"rate: 29.97", "rate: {path: info/dt}", "the name of a period: add unit"},
        {"rate: 29.97", "rate: {path: info/dt, unit: min}", "not one of the choices"},
        {"rate: 29.97", "rate: {path: \"info/*\"}", "a dataset of one number"},
        {"rate: 29.97", "rate: {path: dt, attribute: \"@dt\"}", "one of them"},
        {"latency: 38ms}", "lost_rows: 5}", "like 10%"},
        {"rate: 29.97", "lost_rows: 5%, rate: 29.97", "does not belong to a regular"},
        {"kind: mean", "kind: mean, order: xyzw", "kind slerp only"},
        {"clock: wrist,", "clock: wirst,", "did you mean wrist"},
        {"columns: \"0:6\"", "columns: \"6:6\"", "BEGIN:END"},
        {"columns: \"0:6\"", "columns: \"0:6 \"", "BEGIN:END"},
        {"max_gap: 200ms", "max_gap: 0ms", "above 0"},
        {"max_gap: 200ms", "max_gap: 200", "max_gap"},
        {"unit: ns,", "", "unit: missing"},
        {", start: {path: ft_t0, unit: ms}", "", "start: missing"},
        {"rows: wrench", "rows: wrnch", "no stream of this clock"},
        {"rate: 29.97", "rate: 0", "rate"},
        {"rate: 29.97, ", "", "needs path"},
        {"column: 2", "column: -1", "column"},
        {"column: 2", "rate: 20", "does not belong"},
        {"path: images/*/rgb", "path: images/cam/rgb", "the path needs one, too"},
        {"path: q_t", "path: \"*/*_t\"", "only one '*'"},
        {"path: images/*/rgb", "path: \"*/*/rgb\"", "only one '*'"},
        {"path: images/*/rgb", "path: ../*/rgb", "relative"},
        {"path: q_t", "path: /q_t", "relative"},
        {"groups: /", "groups: data", "begins with '/'"},
        {"files: \"*/ep_*.h5\"", "files: /etc/*", "below the dataset"},
        {"version: 1", "version: 2", "version"},
        {"layout: lab\n", "", "layout: missing"},
        {"version: 1\n", "filter: /mask\n", "/mask/{key}"},
        {"version: 1\n", "layout: lab\n", "layout"},
        {"version: 1\n", "tables: K\n", "write a list"},
        {"version: 1\n", "tables: [/K]\n", "relative"},
        {"version: 1\n", "tables: [\"*/*\"]\n", "'*'"},
        {"optional: true", "optional: maybe", "optional"},
        {"attribute: /data@info", "attribute: /data/info", "OBJECT@NAME"},
        {"attribute: /data@info", "attribute: \"/data@\"", "OBJECT@NAME"},
        {"attribute: /data@info", "attribute: /../x@info", "OBJECT@NAME"},
        {"attribute: /data@info", "attribute: a/../x@info", "OBJECT@NAME"},
        {"attribute: /data@info", "atribute: /data@info", "did you mean attribute"},
        {"attribute: /data@info", "path: x, attribute: /data@info", "one of them"},
        {"path: ../task", "path: ../t*", "dataset of one text"},
        {"path: ../task", "path: ..//task", "dataset of one text"},
        {"{path: ../task, required: true}", "{required: true}", "one of them"},
        {"{path: ../task, required: true}", "../task", "mapping"},
        {"required: true", "required: 3", "required"},
        {"path: images/*/rgb,", "path: images/*/rgb, optional: false,", "always optional"},
        {"optional: true", "rows: last", "first"},
        {"kind: nearest", "kind: nearest, image: {}", "color: missing"},
        {"kind: nearest", "kind: nearest, image: {encoding: jpeg}", "no file says it"},
        {"kind: nearest", "kind: nearest, image: {color: rgb, unit: mm}", "write one of them"},
        {"kind: nearest", "kind: nearest, image: {encoding: jpeg, unit: mm}", "cannot hold depth"},
        {"kind: nearest", "kind: nearest, image: {colour: rgb}", "did you mean color"},
        {"kind: nearest", "kind: nearest, image: {color: rgba}", "image.color"},
        {"kind: nearest", "kind: nearest, image: {color: rgb, zero_frames: drop}", "keep, mask"},
        {"kind: nearest", "kind: nearest, image: {color: rgb, size: 480}", "[HEIGHT, WIDTH]"},
        {"kind: nearest", "kind: nearest, image: {color: rgb, size: [480]}", "[HEIGHT, WIDTH]"},
        {"kind: nearest", "kind: nearest, image: {color: rgb, size: [0, 9]}", "size"},
        {"kind: nearest", "kind: nearest, image: {color: rgb, size: [8192, 8192]}", "pixels"},
        {"kind: mean", "kind: mean, image: {color: rgb}", "never blended"},
        {"columns: \"6:7\"", "columns: \"6:7\", image: {color: rgb}", "no columns"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(mistakes); i++) {
        char text[2048];
        const char *place = strstr(good, mistakes[i].from);
        struct trajd_layout *layout = (struct trajd_layout *)1;
        struct trajd_error error = {0};

        assert_non_null(place);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(place - good), good, mistakes[i].to,
                 place + strlen(mistakes[i].from));
        assert_int_equal(trajd_layout_parse("lab", text, strlen(text), &layout, &error),
                         TRAJD_ERR_ARGUMENT);
        if (strncmp(error.message, "lab:", 4) || !strstr(error.message, mistakes[i].message))
            fail_msg("\"%s\" for \"%s\" gives: %s", mistakes[i].to, mistakes[i].from,
                     error.message);
    }
}

static void unknown_names_list_the_known_ones(void **state)
{
    struct trajd_layout *layout;
    struct trajd_error error;

    (void)state;
    assert_int_equal(trajd_layout_load("robomimik", LAYOUTS, 2, &layout, &error),
                     TRAJD_ERR_NOT_FOUND);
    assert_non_null(strstr(error.message, "robomimic"));
    assert_non_null(strstr(error.message, "aloha"));
    assert_int_equal(trajd_layout_load("./none.yaml", LAYOUTS, 2, &layout, &error),
                     TRAJD_ERR_NOT_FOUND);
    assert_null(layout);
    assert_int_equal(trajd_layout_load(LAYOUTS "/aloha.yaml", NULL, 2, &layout, &error), TRAJD_OK);
    trajd_layout_destroy(&layout);
}

/* A rate from outside replaces those of all regular clocks, so they must be one rate. */
static void one_rate_fits_clocks_of_one_rate(void **state)
{
    static const struct {
        const char *clocks, *message;
    } cases[] = {
        {"{a: {rate: 20}}", NULL},
        {"{a: {rate: {attribute: /x@y, default: 20}}, b: {rate: {attribute: /x@y, default: 20}}}",
         NULL},
        {"{a: {rate: 20, start: {path: s, unit: ns}}, b: {path: t, unit: ns}}", NULL},
        {"{a: {path: t, unit: ns}}", "recorded stamps (clock a)"},
        {"{a: {rate: 20}, b: {rate: 21}}", "clocks of different rates (a, b)"},
        {"{a: {rate: {attribute: /x@y, default: 20}}, b: {rate: {attribute: /x@z, default: 20}}}",
         "different rates"},
        {"{a: {rate: {attribute: /x@y, json: j}}, b: {rate: {attribute: /x@y, json: k}}}",
         "different rates"},
        {"{a: {rate: {attribute: /x@y, default: 2}}, b: {rate: {attribute: /x@y, default: 3}}}",
         "different rates"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_layout *layout;
        struct trajd_error error;
        char text[512];
        snprintf(text, sizeof text,
                 "layout: one\nepisodes: {files: \"*\", groups: /}\nclocks: %s\n"
                 "streams: {q: {clock: a, kind: linear}}\n",
                 cases[i].clocks);
        if (trajd_layout_parse("one", text, strlen(text), &layout, &error))
            fail_msg("%s", error.message);
        assert_int_equal(trajd_layout_check_one_rate(layout, &error),
                         cases[i].message ? TRAJD_ERR_ARGUMENT : TRAJD_OK);
        if (cases[i].message && !strstr(error.message, cases[i].message))
            fail_msg("%s gives: %s", cases[i].clocks, error.message);
        trajd_layout_destroy(&layout);
    }
}

static void a_star_stays_within_a_component(void **state)
{
    char capture[8];

    (void)state;
    assert_true(trajd_layout_match("obs/*_quat", "obs/a_quat", capture, sizeof capture));
    assert_string_equal(capture, "a");
    assert_true(trajd_layout_match("*", "abc", NULL, 0));
    assert_true(trajd_layout_match("a/b", "a/b", NULL, 0));
    assert_false(trajd_layout_match("a/b", "a/bc", NULL, 0));
    assert_false(trajd_layout_match("obs/*", "obs/a/b", NULL, 0));
    assert_false(trajd_layout_match("obs/*", "obs/", NULL, 0));
    assert_false(trajd_layout_match("ab*ba", "aba", NULL, 0));
    assert_false(trajd_layout_match("*", "12345678", capture, sizeof capture)); /* does not fit */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(the_hash_depends_on_the_content),
        cmocka_unit_test(what_a_frame_means_is_read),
        cmocka_unit_test(layouts_without_frames_keep_their_hash),
        cmocka_unit_test(shipped_layouts_load),
        cmocka_unit_test(mistakes_are_reported_with_their_line),
        cmocka_unit_test(unknown_names_list_the_known_ones),
        cmocka_unit_test(one_rate_fits_clocks_of_one_rate),
        cmocka_unit_test(a_star_stays_within_a_component),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
