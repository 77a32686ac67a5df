/* Presets of images: each leads to the same as its keys, an output's own keys go first, and what
 * does not fit is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/window/image/image_prepared.h"
#include "daemon/window/image/image_preset.h"
#include "proto/array_len.h"

static const char *const names[] = {"robomimic",   "act",   "act++", "act++_diffusion",  "umi",
                                    "lerobot_act", "gr00t", "octo",  "diffusion_policy", "openpi",
                                    "openpi_torch"};

/* Reads an output as the daemon does: the preset, then the output's own keys. */
static enum trajd_status read_output(const char *text, struct trajd_image_spec *spec,
                                     struct trajd_error *error)
{
    struct trajd_yaml *yaml;
    const struct trajd_yaml_node *root, *node;
    enum trajd_status status;

    *spec = (struct trajd_image_spec){0};
    assert_int_equal(trajd_yaml_parse("t", text, strlen(text), &yaml, error), TRAJD_OK);
    const struct trajd_yaml_reader reader = {yaml, error, NULL};
    root = trajd_yaml_root(yaml);
    status = trajd_image_preset_read(yaml, root, spec, error);
    if (!status && (node = trajd_yaml_get(root, "image")))
        status = trajd_image_spec_read(&reader, node, spec);
    if (!status && (node = trajd_yaml_get(root, "layout")))
        status = trajd_image_spec_read_layout(&reader, node, spec);
    if (!status && (node = trajd_yaml_get(root, "norm")))
        status = trajd_image_spec_read_norm(&reader, node, spec);
    trajd_yaml_destroy(&yaml);
    return status;
}

/* What a specification does to frames of 480x640. */
struct work {
    struct trajd_image_preparation preparation;
    struct trajd_augment augment;
    struct trajd_image_finish finish;
};

static struct work work_of(const char *text)
{
    const struct trajd_image_source source = {480, 640, 3, TRAJD_U8, true};
    struct trajd_image_spec spec;
    struct trajd_error error;
    struct work work;

    memset(&work, 0, sizeof work);
    if (read_output(text, &spec, &error) ||
        trajd_image_spec_prepare(&spec, &source, &work.preparation, &error) ||
        trajd_image_spec_finish(&spec, &work.preparation, spec.has_norm ? TRAJD_F32 : TRAJD_U8,
                                &work.augment, &work.finish, &error))
        fail_msg("%s: %s", text, error.message);
    return work;
}

static void test_a_preset_is_its_keys(void **state)
{
    char text[256];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (int is_wrist = 0; is_wrist <= (names[i][0] == 'o'); is_wrist++) /* octo, openpi */ {
            struct trajd_image_spec spec;
            struct trajd_error error;
            struct work preset, keys;
            snprintf(text, sizeof text, "image: {preset: %s, view: %s}", names[i],
                     is_wrist ? "wrist" : "scene");
            preset = work_of(text);
            assert_int_equal(read_output(text, &spec, &error), TRAJD_OK);
            assert_string_equal(trajd_image_preset_name(&spec), names[i]);
            keys = work_of(trajd_image_preset_keys(&spec));
            assert_memory_equal(&preset, &keys, sizeof keys);
        }
}

static void test_sizes_and_quirks(void **state)
{
    struct work work;

    (void)state;
    work = work_of("image: {preset: robomimic}");
    assert_true(work.augment.steps[0].excludes_last);
    assert_int_equal(work.finish.height, 435); /* 480 * 0.90625 */
    work = work_of("image: {preset: act++_diffusion}");
    assert_int_equal(work.preparation.is_bgr, 1);
    assert_int_equal(work.augment.steps[0].height, 456);
    assert_int_equal(work.augment.steps[0].width, 608);
    assert_int_equal(work.augment.steps[1].height, 480);
    assert_int_equal(work.augment.rounding, TRAJD_AUGMENT_ROUND_EACH);
    work = work_of("image: {preset: octo}");
    assert_int_equal(work.augment.steps[0].height, 256);
    assert_int_equal(work.finish.type, TRAJD_U8);
    work = work_of("image: {preset: octo, view: wrist}");
    assert_int_equal(work.finish.height, 128);
    assert_int_equal(work.augment.steps[0].kind, TRAJD_AUGMENT_SHIFT);
    work = work_of("image: {preset: openpi}");
    assert_int_equal(work.preparation.top, 28); /* 480x640 becomes 168x224, in the middle */
    assert_true(work.augment.steps[2].follows && work.augment.steps[3].follows);
    assert_true(work.augment.steps[3].probability == 0.5);
    work = work_of("image: {preset: openpi_torch, view: wrist}");
    assert_int_equal(work.augment.count, 3);
    assert_int_equal(work.augment.rounding, TRAJD_AUGMENT_ROUND_END);
    work = work_of("image: {preset: diffusion_policy}");
    assert_int_equal(work.finish.width, 288);
    assert_true(work.finish.offset[0] < -6); /* (-1 - 0.485) / 0.229: ImageNet on top of [-1, 1] */
}

static void test_keys_of_the_output_go_first(void **state)
{
    struct work work =
        work_of("norm: signed\nlayout: hwc\nimage: {preset: umi, resize: 96, draw_per: "
                "frame, augment: [], channels: bgr}\n");

    (void)state;
    assert_int_equal(work.finish.height, 96);
    assert_int_equal(work.preparation.filter, TRAJD_IMAGE_AREA);
    assert_int_equal(work.finish.layout, TRAJD_IMAGE_HWC);
    assert_true(work.finish.offset[0] == -1);
    assert_int_equal(work.augment.count, 0);
    assert_int_equal(work.preparation.is_bgr, 1);
    work = work_of("image: {preset: umi, resize: 96}");
    assert_int_equal(work.augment.steps[0].height, 91);
    assert_int_equal(work.augment.steps[1].height, 96);
}

static void test_channels(void **state)
{
    const struct {
        const char *text;
        bool is_bgr_for_cv2;
        uint32_t channels, is_bgr;
    } cases[] = {
        {"image: {}", true, 3, 0},
        {"image: {channels: rgb}", true, 3, 0},
        {"image: {channels: bgr}", false, 3, 1},
        {"image: {channels: bgr}", false, 1, 0},
        {"image: {channels: cv2}", false, 3, 0},
        {"image: {channels: cv2}", true, 3, 1},
    };
    struct trajd_image_preparation preparation;
    struct trajd_image_spec spec;
    struct trajd_error error;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct trajd_image_source source = {10, 10, cases[i].channels, TRAJD_U8,
                                                  cases[i].is_bgr_for_cv2};
        assert_int_equal(read_output(cases[i].text, &spec, &error), TRAJD_OK);
        assert_int_equal(trajd_image_spec_prepare(&spec, &source, &preparation, &error), TRAJD_OK);
        assert_int_equal(preparation.is_bgr, cases[i].is_bgr);
    }
}

/* A preset with a norm makes floats. Who wants uint8 has to drop the norm. */
static void test_uint8_needs_no_norm(void **state)
{
    const struct trajd_image_source source = {10, 10, 3, TRAJD_U8, false};
    const char *const texts[] = {"image: {preset: act}", "image: {preset: act}\nnorm: none"};

    (void)state;
    for (int has_none = 0; has_none < 2; has_none++) {
        struct trajd_image_spec spec;
        struct trajd_error error;
        struct work work;
        assert_int_equal(read_output(texts[has_none], &spec, &error), TRAJD_OK);
        assert_int_equal(trajd_image_spec_prepare(&spec, &source, &work.preparation, &error),
                         TRAJD_OK);
        assert_int_equal(trajd_image_spec_finish(&spec, &work.preparation, TRAJD_U8, &work.augment,
                                                 &work.finish, &error),
                         has_none ? TRAJD_OK : TRAJD_ERR_ARGUMENT);
        if (!has_none)
            assert_non_null(strstr(error.message, "for uint8, write norm: none"));
    }
}

static void test_what_does_not_fit_is_refused(void **state)
{
    const struct {
        const char *text, *error;
    } cases[] = {
        {"image: {preset: octoo}", "did you mean octo?"},
        {"image: {preset: act, view: wrist}", "preset: act takes all cameras alike"},
        {"image: {view: wrist}", "there is no preset:"},
        {"image: {preset: octo, view: top}", "known: scene, wrist"},
        {"image: {augment: [{crop: 1.5}]}", "out of range (0.001 to 1)"},
        {"image: {augment: [{resize: forth}]}", "forth"},
        {"image: {augment: [{hue: 0.1, p: same}]}", "this is the first step"},
        {"image: {augment: [{hsv_contrast: 1}]}", "out of range (0 to 0.99)"},
    };
    struct trajd_image_spec spec;
    struct trajd_error error;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(read_output(cases[i].text, &spec, &error), TRAJD_ERR_ARGUMENT);
        if (!strstr(error.message, cases[i].error))
            fail_msg("%s: %s", cases[i].text, error.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_preset_is_its_keys),
        cmocka_unit_test(test_sizes_and_quirks),
        cmocka_unit_test(test_keys_of_the_output_go_first),
        cmocka_unit_test(test_channels),
        cmocka_unit_test(test_uint8_needs_no_norm),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
