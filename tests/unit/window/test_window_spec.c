/* Tests the reader of feed specifications: every key, its limits and its error with the line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/window/feed_spec/window_spec.h"
#include "proto/array_len.h"

static void test_ranges(void **state)
{
    static const struct {
        const char *text;
        bool in_time;
        int64_t from, to, num, den;
    } good[] = {
        {"0", false, 0, 0, 0, 0},
        {"-1..14", false, -1, 14, 0, 0},
        {" -1 .. 14 ", false, -1, 14, 0, 0},
        {"0..15 @ 30", false, 0, 15, 30, 1},
        {"-200ms..0ms @ 100", true, -200000000, 0, 100, 1},
        {"-200ms..0 @ 29.97", true, -200000000, 0, 30000, 1001},
        {"-0.5s..0.25s", true, -500000000, 250000000, 0, 0},
    };
    static const char *const bad[] = {
        "",
        "..",
        "1..",
        "a..b",
        "3..1",
        "-1..5ms",
        "1.5..2",
        "0..1 @",
        "0..1 @ -3",
        "0..99999999999999999999",
        "0..1e400s",
        "0...2",
        "-1..2 @ 10 @ 20",
        "0..70000 and much more text than any range will ever need, whatever it says"};
    struct trajd_spec_range range;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_null(trajd_spec_range_parse(good[i].text, &range));
        assert_int_equal(range.in_time, good[i].in_time);
        assert_int_equal(range.from, good[i].from);
        assert_int_equal(range.to, good[i].to);
        assert_int_equal(range.rate.num, good[i].num);
        assert_int_equal(range.rate.den, good[i].den);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (!trajd_spec_range_parse(bad[i], &range))
            fail_msg("'%s' was taken for a range", bad[i]);
}

static enum trajd_status parse_version(const char *text, uint32_t version,
                                       struct trajd_window_spec **spec, struct trajd_error *error)
{
    struct trajd_yaml *yaml;
    enum trajd_status status = trajd_yaml_parse("test", text, strlen(text), &yaml, error);

    *spec = NULL;
    if (!status)
        status = trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), "feed", version, spec, error);
    trajd_yaml_destroy(&yaml);
    return status;
}

static enum trajd_status parse(const char *text, struct trajd_window_spec **spec,
                               struct trajd_error *error)
{
    return parse_version(text, 2, spec, error);
}

static void test_a_spec_outlives_its_text(void **state)
{
    struct trajd_window_spec *spec;
    struct trajd_error error;

    (void)state;
    assert_int_equal(
        parse("dataset: d\nfilter: train\nwhere: {language: [\"a b\", c], task: lift}\nsplit: "
              "0.25..1\nglobal_batch: 12\nrate: 29.97\nanchor: {rate: 15}\n"
              "pad: {before: 3, after: any, with: nan}\norder: blocked\nblock: {windows: 64, "
              "neighbours: 2}\n"
              "tail: wrap\nseed: 9\nslots: 5\nbad_rows: keep\nresample: {variant: reference}\n"
              "outputs:\n  x: {at: 0, max_age: 50ms, missing: zero, norm: {scale: [2, 3]}}\n"
              "  action_y: {from: [a, b], at: 0..3, kind: mean, width: 10ms, dtype: float16}\n",
              &spec, &error),
        TRAJD_OK);
    assert_string_equal(spec->dataset, "d");
    assert_string_equal(spec->select.filter, "train");
    assert_int_equal(spec->select.text_count, 2);
    assert_string_equal(spec->select.texts[0].key, "language");
    assert_int_equal(spec->select.texts[0].value_count, 2);
    assert_string_equal(spec->select.texts[0].values[0], "a b");
    assert_string_equal(spec->select.texts[1].values[0], "lift");
    assert_true(spec->select.split_begin == 0.25 && spec->select.split_end == 1);
    assert_int_equal(spec->rate.num, 30000);
    assert_int_equal(spec->anchor_rate.num, 15);
    assert_int_equal(spec->pad_before, 3);
    assert_int_equal(spec->pad_after, TRAJD_SPEC_PAD_ANY);
    assert_int_equal(spec->edge, TRAJD_EDGE_NAN);
    assert_int_equal(spec->order, TRAJD_ORDER_BLOCKED);
    assert_int_equal(spec->block_windows, 64);
    assert_int_equal(spec->block_neighbours, 2);
    assert_int_equal(spec->seed, 9);
    assert_int_equal(spec->slot_count, 5);
    assert_int_equal(spec->global_batch, 12);
    assert_int_equal(spec->tail, TRAJD_TAIL_WRAP);
    assert_true(spec->keep_bad_rows);
    assert_string_equal(spec->variant, "reference");
    assert_int_equal(spec->output_count, 2);
    assert_int_equal(spec->outputs[0].role, TRAJD_ROLE_OBS);
    assert_string_equal(spec->outputs[0].sources[0], "x");
    assert_int_equal(spec->outputs[0].max_age_ns, 50000000);
    assert_true(spec->outputs[0].scale[1] == 3 && spec->outputs[0].offset[1] == 0);
    assert_int_equal(spec->outputs[1].role, TRAJD_ROLE_ACTION);
    assert_int_equal(spec->outputs[1].source_count, 2);
    assert_int_equal(spec->outputs[1].kind, TRAJD_KIND_MEAN);
    assert_int_equal(spec->outputs[1].dtype, TRAJD_F16);
    trajd_window_spec_destroy(&spec);
    assert_null(spec);
}

static void test_a_split_begins_and_ends_at_whole_numbers_too(void **state)
{
    static const struct {
        const char *text;
        double begin, end;
    } splits[] = {{"0..1", 0, 1}, {"0..0.9", 0, 0.9}, {"0.9..1", 0.9, 1}, {"0.0..1.0", 0, 1}};
    struct trajd_window_spec *spec;
    struct trajd_error error;
    char text[160];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(splits); i++) {
        snprintf(
            text, sizeof text,
            "dataset: d\nsplit: %s\nglobal_batch: 1\nanchor: {rate: 1}\noutputs: {x: {at: 0}}\n",
            splits[i].text);
        assert_int_equal(parse(text, &spec, &error), TRAJD_OK);
        assert_true(spec->select.split_begin == splits[i].begin &&
                    spec->select.split_end == splits[i].end);
        trajd_window_spec_destroy(&spec);
    }
}

/* The smallest values, and the keys that are absent. */
static void test_the_least_numbers(void **state)
{
    struct trajd_window_spec *spec;
    struct trajd_error error;

    (void)state;
    if (parse("mix: {a: 1}\nepoch: 1\nglobal_batch: 1\nanchor: {rate: 1}\norder: blocked\n"
              "block: {windows: 1}\npad: {before: 0}\noutputs: {x: {at: 0}}",
              &spec, &error))
        fail_msg("%s", error.message);
    assert_int_equal(spec->epoch_windows, 1);
    assert_int_equal(spec->global_batch, 1);
    assert_int_equal(spec->block_windows, 1);
    assert_int_equal(spec->block_neighbours, 4);
    assert_int_equal(spec->pad_before, 0);
    assert_int_equal(spec->pad_after, TRAJD_SPEC_PAD_ANY);
    trajd_window_spec_destroy(&spec);
    if (parse("dataset: d\nglobal_batch: 1\nanchor: {rate: 1}\norder: blocked\n"
              "block: {neighbours: 1}\noutputs: {x: {at: 0}}",
              &spec, &error))
        fail_msg("%s", error.message);
    assert_int_equal(spec->block_neighbours, 1);
    assert_int_equal(spec->block_windows, 4096);
    assert_false(spec->slow_leaves);
    assert_int_equal(spec->slow_after_ns, INT64_C(30000000000));
    assert_int_equal(spec->rank_timeout_ns, INT64_C(600000000000));
    assert_int_equal(spec->job_count, 1);
    trajd_window_spec_destroy(&spec);
}

static void test_slow_jobs(void **state)
{
    static const struct {
        const char *fan_out;
        bool leaves;
        int64_t after_ns;
    } cases[] = {{"{jobs: 2}", false, INT64_C(30000000000)},
                 {"{jobs: 2, slow: block}", false, INT64_C(30000000000)},
                 {"{jobs: 2, slow: leave}", true, INT64_C(30000000000)},
                 {"{jobs: 2, slow: leave, after: 1ms}", true, 1000000}};
    struct trajd_window_spec *spec;
    struct trajd_error error;
    char text[200];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        snprintf(text, sizeof text,
                 "dataset: d\nfan_out: %s\nglobal_batch: 1\nanchor: {rate: 1}\noutputs: {x: {at: "
                 "0}}\n",
                 cases[i].fan_out);
        if (parse(text, &spec, &error))
            fail_msg("%s", error.message);
        assert_int_equal(spec->job_count, 2);
        assert_int_equal(spec->slow_leaves, cases[i].leaves);
        assert_int_equal(spec->slow_after_ns, cases[i].after_ns);
        trajd_window_spec_destroy(&spec);
    }
}

static void test_a_mixture(void **state)
{
    const char *const text = "mix: {droid: {weight: 7, filter: train, pad: {before: 2}, streams: "
                             "{x: [p, q]}}, lab: {weight: 3, "
                             "anchor: {rate: 5}, split: 0..0.5}}\nepoch: 1000000\nfilter: "
                             "valid\nglobal_batch: 8\nseed: 4\n"
                             "order: blocked\ntail: wrap\nanchor: {clock: c}\noutputs: {x: {from: "
                             "y, at: 0}, z: {at: 0}}";
    const struct trajd_window_spec *droid, *lab;
    struct trajd_window_spec *spec;
    struct trajd_error error;

    (void)state;
    if (parse(text, &spec, &error))
        fail_msg("%s", error.message);
    assert_true(spec->is_mixture && !spec->mix_by_size && !spec->dataset &&
                spec->epoch_windows == 1000000);
    assert_int_equal(spec->member_count, 2);
    assert_true(spec->members[0].weight == 7 && spec->members[1].weight == 3);
    assert_string_equal(spec->members[0].dataset, "droid");
    droid = spec->members[0].spec;
    lab = spec->members[1].spec;
    assert_string_equal(droid->select.filter, "train");
    assert_string_equal(lab->select.filter, "valid");
    assert_int_equal(droid->pad_before, 2);
    assert_int_equal(lab->pad_before, TRAJD_SPEC_PAD_ANY);
    assert_int_equal(droid->outputs[0].source_count, 2);
    assert_string_equal(droid->outputs[0].sources[1], "q");
    assert_string_equal(lab->outputs[0].sources[0], "y");
    assert_string_equal(lab->outputs[1].sources[0], "z");
    assert_true(!lab->anchor_clock && lab->anchor_rate.num == 5 && lab->select.split_end == 0.5);
    assert_string_equal(droid->anchor_clock, "c");
    assert_true(droid->tail == TRAJD_TAIL_SHORT && spec->tail == TRAJD_TAIL_WRAP &&
                lab->order == TRAJD_ORDER_BLOCKED);
    assert_true(droid->seed != 4 && droid->seed != lab->seed);
    trajd_window_spec_destroy(&spec);
    assert_int_equal(parse("mix: {by: size, datasets: [a, b, c]}\nglobal_batch: 8\nanchor: {clock: "
                           "c}\noutputs: {x: {at: 0}}",
                           &spec, &error),
                     TRAJD_OK);
    assert_true(spec->mix_by_size && spec->member_count == 3 && spec->members[2].weight == 0 &&
                spec->epoch_windows == 0);
    trajd_window_spec_destroy(&spec);
    assert_int_equal(parse("dataset: d\nglobal_batch: 8\nanchor: {clock: c}\noutputs: {x: {at: 0}}",
                           &spec, &error),
                     TRAJD_OK);
    assert_true(!spec->is_mixture && spec->member_count == 1 && spec->members[0].spec == spec);
    trajd_window_spec_destroy(&spec);
}

/* A dataset's own keys replace those of the feed's outputs one by one, and no other dataset sees
 * them. */
static void test_outputs_of_one_dataset(void **state)
{
    const char *const text = "mix:\n"
                             "  sim: 1\n"
                             "  real:\n"
                             "    weight: 1\n"
                             "    rate: 15\n"
                             "    anchor: {rate: 15}\n"
                             "    streams: {actions.relative_to: state}\n"
                             "    outputs:\n"
                             "      actions: {at: -1..98, from: [arm, grip], max_gap: 200ms}\n"
                             "      x: {lookahead: 5ms, kind: previous}\n"
                             "      r: {at: 0..9}\n"
                             "      g: {from: h}\n"
                             "global_batch: 8\nanchor: {clock: c}\n"
                             "outputs:\n"
                             "  x: {at: 0..1, lookahead: 1s, max_age: 3s}\n"
                             "  actions: {at: 0..99 @ 50, norm: mean_std, relative_to: qpos}\n"
                             "  r: {at: 0..1, return: {gamma: 1}, role: next}\n"
                             "  g: {goal: {from: last, of: q}}\n";
    const struct trajd_spec_output *sim, *real;
    struct trajd_window_spec *spec;
    struct trajd_error error;

    (void)state;
    for (uint32_t version = 1; version <= 2; version++) {
        if (parse_version(text, version, &spec, &error))
            fail_msg("%s", error.message);
        assert_true(!spec->rate.num && !spec->members[0].spec->rate.num);
        assert_true(spec->members[1].spec->rate.num == 15 && spec->members[1].spec->rate.den == 1);
        sim = spec->members[0].spec->outputs;
        real = spec->members[1].spec->outputs;
        assert_int_equal(spec->output_count, 5);
        assert_memory_equal(sim, spec->outputs, 5 * sizeof *sim);
        assert_true(sim[1].at.from == 0 && sim[1].at.to == 99 && sim[1].at.rate.num == 50);
        assert_true(real[1].at.from == -1 && real[1].at.to == 98 && !real[1].at.rate.num);
        assert_true(real[1].source_count == 2 && !strcmp(real[1].sources[1], "grip"));
        assert_true(real[1].max_gap_ns == 200000000 && sim[1].max_gap_ns == -1);
        assert_true(real[1].norm_by == TRAJD_NORM_MEAN_STD && real[1].chain == sim[1].chain);
        assert_true(real[1].line == 9 && sim[1].line == 17);
        assert_true(real[0].lookahead_ns == 5000000 && real[0].at.to == 1 &&
                    real[0].max_age_ns == sim[0].max_age_ns);
        assert_true(real[0].kind == TRAJD_KIND_PREVIOUS &&
                    sim[0].kind == TRAJD_SPEC_KIND_FROM_STREAM);
        assert_true(real[2].role == TRAJD_ROLE_NEXT && real[2].at.to == 9);
        assert_true(!strcmp(real[3].sources[0], "h") && !strcmp(sim[3].sources[0], "q") &&
                    real[3].role == TRAJD_ROLE_GOAL);
        assert_true(real[4].is_hidden && !strcmp(real[4].sources[0], "state") &&
                    !strcmp(sim[4].sources[0], "qpos"));
        trajd_window_spec_destroy(&spec);
    }
}

static void test_every_error_names_its_line(void **state)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
#define REST "\noutputs: {x: {at: 0}}\nglobal_batch: 1\nanchor: {rate: 1}"
        {"dataset: d\nmix: {a: 1}" REST, "either `dataset:` or `mix:`"},
        {"dataset: d\nepoch: 0" REST, "test:2: epoch: "},
        {"dataset: d\nepoch: 9e18" REST, "test:2: epoch: "},
        {"dataset: d\nwindows: one" REST, "known: all, one_per_episode"},
        {"dataset: d\norder: blocked\nwindows: one_per_episode" REST,
         "test:3: windows: order: blocked shuffles"},
        {"mix: {a: 1}\nepoch: 0" REST, "test:2: epoch"},
        {"mix: [a, b]" REST, "test:1: mix: expected datasets with weights"},
        {"mix: {}" REST, "expected 1 to 64 datasets"},
        {"mix: {a: 0, b: 1}" REST, "test:1: mix.a"},
        {"mix: {a: 0.5, b: 1}" REST, "test:1: mix.a"},
        {"mix: {a: {filter: f}, b: 1}" REST, "mix.a: a dataset of a mixture needs `weight:`"},
        {"mix: {a: {weight: 1, fliter: f}}" REST, "did you mean filter"},
        {"mix: {a: {weight: 1, streams: {y: q}}}" REST, "mix.a.streams.y"},
        {"mix: {a: {weight: 1, streams: {x: []}}}" REST, "a stream or a list"},
        {"mix: {a: {weight: 1, streams: [x]}}" REST, "expected {OUTPUT: STREAM}, the streams"},
        {"mix: {a: {weight: 1, rate: 0}}" REST, "test:1: mix.a.rate"},
        {"mix: {a: {weight: 1, raet: 15}}" REST, "did you mean rate"},
        {"mix:\n  a:\n    weight: 1\n    outputs: {y: {at: 0}}" REST,
         "test:4: mix.a.outputs.y: no such key (known: x)"},
        {"mix:\n  a:\n    weight: 1\n    outputs:\n      x: {att: 0}" REST,
         "test:5: mix.a.outputs.x.att: no such key (did you mean at?)"},
        {"mix: {a: {weight: 1, outputs: [x]}}" REST,
         "test:1: mix.a.outputs: expected {OUTPUT: {from: STREAM, at: FROM..TO}}, in what outputs"},
        {"mix: {a: {weight: 1, outputs: {x: 0..1}}}" REST,
         "test:1: mix.a.outputs.x: expected {from"},
        {"mix: {a: {weight: 1, outputs: {x: {at: 0, norm: mean_std}}}}" REST,
         "test:1: mix.a.outputs.x.norm: all datasets of a mixture share this key: only from, at, "},
        {"mix: {a: {weight: 1, outputs: {x: {role: action}}}}" REST, "share this key"},
        {"mix: {a: {weight: 1, outputs: {x: {preset: act}}}}" REST, "share this key"},
        {"mix: {a: {weight: 1, outputs: {x: {at: 1..0}}}}" REST, "FROM is greater than TO"},
        {"mix: {a: {weight: 1, outputs: {x: {at: 0..1}}}}" REST,
         "test:1: mix.a.outputs.x.at: an observation reads nothing after its anchor"},
        {"mix: {a: {weight: 1, outputs: {x: {lookahead: 0s}}}}\nglobal_batch: 1\nanchor: {rate: "
         "1}\noutputs: {x: {at: 0..1, lookahead: 1s}}",
         "test:1: mix.a.outputs.x: an observation reads nothing after its anchor"},
        {"mix: {a: {weight: 1, outputs: {x: {max_gap: 2d}}}}" REST, "between 0 and one day"},
        {"mix: {a: {weight: 1, streams: {x: q}, outputs: {x: {from: p}}}}" REST,
         "test:1: mix.a.outputs.x.from: `streams:` names the streams of this output, too"},
        {"mix: {a: {weight: 1, streams: [x], outputs: {x: {from: p}}}}" REST, "expected {OUTPUT: "},
        {"mix: {a: {weight: 1, outputs: {actions.relative_to: {at: -1}}}}\nglobal_batch: "
         "1\nanchor: "
         "{rate: 1}\noutputs: {actions: {at: 0, relative_to: q}}",
         "mix.a.outputs.actions.relative_to: no such key"},
        {"mix: {a: {weight: 1, outputs: {actions: {kind: mean}}}}\nglobal_batch: 1\nanchor: "
         "{rate: 1}\noutputs: {actions: {at: 0, return: {gamma: 1}}}",
         "mix.a.outputs.actions: a return adds rows as they are recorded: remove kind"},
        {"mix: {by: count, datasets: [a]}" REST, "mix.by"},
        {"mix: {by: size}" REST, "needs `datasets:`"},
        {"mix: {by: size, datasets: [a, a]}" REST, "dataset a is listed twice"},
        {"mix: {by: size, datasets: {a: {weight: 1}}}" REST, "takes no `weight:`"},
        {"mix: {by: size, datasets: [a]}\norder: blocked" REST, "small weights"},
        {"dataset: d\nglobal_batch: 1", "a feed needs `outputs:`"},
        {"outputs: {x: {at: 0}}\nglobal_batch: 1\nanchor: {rate: 1}", "a feed needs `dataset:`"},
        {"dataset: d\noutputs: {x: {at: 0}}\nglobal_batch: 1", "a feed needs `anchor:`"},
        {"dataset: d\noutputs: {x: {at: 0}}\nanchor: {rate: 1}", "a feed needs `global_batch:`"},
        {"dataset: d\nanchor: {rate: 1, clock: c}",
         "test:2: anchor: expected exactly one of clock and rate"},
        {"dataset: d\nfan_out: {jobs: 2, after: 5s}", "add `slow: leave`"},
        {"dataset: d\nfan_out: {jobs: 2, slow: block, after: 5s}", "add `slow: leave`"},
        {"dataset: d\nfan_out: {jobs: 2, slow: leave, after: 500us}", "expected 1ms to "},
        {"dataset: d\noutputs: {}", "test:2: outputs: expected a mapping of 1 to "},
        {"dataset: d\noutputs: [x]", "test:2: outputs: expected a mapping of 1 to "},
        {"dataset: d\noutputs: {x: 3}", "test:2: outputs.x: expected a mapping"},
        {"dataset: d\noutputs:\n  x: {form: y, at: 0}", "test:3: outputs.x"},
        {"dataset: d\noutputs:\n  x: {from: y}", "an output needs `at:`"},
        {"dataset: d\noutputs:\n  x: {at: 0..1}", "reads nothing after its anchor"},
        {"dataset: d\noutputs:\n  x: {at: [-1, 0]}", "not a list: write -1..0"},
        {"dataset: d\noutputs:\n  x: {at: [-200ms, 0ms]}", "not a list: write -200ms..0ms"},
        {"dataset: d\noutputs:\n  x: {at: [-2, -1, 0]}", "not a list: write FROM..TO"},
        {"dataset: d\noutputs:\n  x: {at: [0, 0.1]}", "not a list: write FROM..TO"},
        {"dataset: d\noutputs:\n  x: {at: [[0], 1]}", "not a list: write FROM..TO"},
        {"dataset: d\noutputs:\n  x: {at: 0, norm: {scale: [1, 2], offset: [1]}}", "1 numbers"},
        {"dataset: d\noutputs:\n  x: {at: 0, norm: {scale: [.nan]}}",
         "test:3: outputs.x.norm.scale"},
        {"dataset: d\noutputs:\n  x: {at: 0, dtype: float31}", "float31 is not a type"},
        {"dataset: d\noutputs:\n  x: {at: 0, max_age: -5ms}", "must be between 0 and one day"},
        {"dataset: d\noutputs:\n  x.mask: {at: 0}", "the name is reserved"},
        {"dataset: d\noutputs:\n  window_id: {at: 0}", "the name is reserved"},
        {"dataset: d\noutputs:\n  x: {at: 0, lookahead: 2000000s}",
         "must be between 0 and one day"},
        {"dataset: d\noutputs:\n  action: {at: 0, lookahead: 2ms}", "reads ahead anyway"},
        {"dataset: d\noutputs:\n  x: {at: 0, role: goal}", "role: goal needs goal:"},
        {"dataset: d\noutputs:\n  x: {goal: last}", "test:3: outputs.x.goal: expected {from:"},
        {"dataset: d\noutputs:\n  x: {goal: {from: last}}", "expected {from:"},
        {"dataset: d\noutputs:\n  x: {goal: {from: first, of: y}}", "(known: last, future)"},
        {"dataset: d\noutputs:\n  x: {goal: {from: last, p: uniform, of: y}}", "draws nothing"},
        {"dataset: d\noutputs:\n  x: {goal: {from: future, p: even, of: y}}",
         "(known: uniform, geometric)"},
        {"dataset: d\noutputs:\n  x: {goal: {from: future, p: geometric, of: y}}", "needs gamma:"},
        {"dataset: d\noutputs:\n  x: {goal: {from: future, gamma: 0.9, of: y}}",
         "gamma: is for p: geometric"},
        {"dataset: d\noutputs:\n  x: {goal: {from: future, p: geometric, gamma: 1, of: y}}",
         "test:3: outputs.x.goal.gamma"},
        {"dataset: d\noutputs:\n  x: {goal: {from: last, of: []}}", "list of 1 to"},
        {"dataset: d\noutputs:\n  x: {goal: {from: last, off: y}}", "expected {from:"},
        {"dataset: d\noutputs:\n  x: {goal: {from: last, of: y, at: 0}}", "outputs.x.goal"},
        {"dataset: d\noutputs:\n  x: {from: y, goal: {from: last, of: y}}", "remove from:"},
        {"dataset: d\noutputs:\n  x: {role: obs, goal: {from: last, of: y}}", "remove role:"},
        {"dataset: d\noutputs:\n  x: {at: 0..1, goal: {from: last, of: y}}", "end at 0"},
        {"dataset: d\noutputs:\n  x: {relative_to: z, goal: {from: last, of: y}}",
         "delivered as it is observed"},
        {"dataset: d\noutputs:\n  x: {at: 0, relative_to: z, return: {gamma: 1}}",
         "remove relative_to and rotation"},
        {"dataset: d\noutputs:\n  x: {lookahead: 1s, goal: {from: last, of: y}}",
         "a goal sees nothing after itself"},
        {"dataset: d\noutputs:\n  x: {norm: {over: windows}, goal: {from: last, of: y}}",
         "use over: rows"},
        {"dataset: d\noutputs:\n  x: {at: 1, lookahead: 1s, role: next}", "reads ahead anyway"},
        {"dataset: d\npad: {before: -1}", "test:2: pad.before"},
        {"dataset: d\npad: {befor: 1}", "did you mean before"},
        {"dataset: d\npad: {with: edges}", "test:2: pad.with"},
        {"dataset: d\nanchor: {clock: c, rates: 1}", "did you mean rate"},
        {"dataset: d\nanchor: {rate: 0}", "test:2: anchor.rate"},
        {"dataset: d\nblock: {window: 3}", "did you mean windows"},
        {"dataset: d\nblock: {windows: 0}", "test:2: block.windows"},
        {"dataset: d\nblock: {neighbours: 0}", "test:2: block.neighbours"},
        {"dataset: d\nblock: 64", "test:2: block: expected {windows"},
        {"dataset: d\nsplit: 0..2", "test:2: split"},
        {"dataset: d\nwhere: language", "test:2: where: expected {KEY: TEXT"},
        {"dataset: d\nwhere: {}", "test:2: where"},
        {"dataset: d\nwhere: {language: []}", "test:2: where.language: expected a text or a list"},
        {"dataset: d\nwhere: {language: {a: b}}",
         "test:2: where.language: expected a text or a list"},
        {"dataset: d\nwhere: {language: [[a]]}", "test:2: where.language"},
        {"dataset: d\nsplit: 0x..1", "0x is not a number"},
        {"dataset: d\nsplit: ..1", "test:2: split"},
        {"dataset: d\nsplit: {hold_out: 3}", "test:2: split: expected {hold_out: EPISODES, "},
        {"dataset: d\nsplit: {hold_out: 0, take: train}", "test:2: split.hold_out"},
        {"dataset: d\nsplit: {hold_out: 1, take: valid}", "known: train, validation"},
        {"dataset: d\nsplit: {holdout: 1, take: train}", "did you mean hold_out"},
        {"dataset: d\nepisodes: {a: b}", "test:2: episodes: expected a list of episodes"},
        {"dataset: d\nepisodes: []", "test:2: episodes: expected a list of episodes"},
        {"dataset: d\nepisodes: [1, [2]]", "test:2: episodes[1]: a text is expected"},
        {"dataset: d\nepisodes:\n- 1\n- 9..7", "test:4: episodes[1]: 9..7: the last number"},
        {"dataset: d\nepisode: 3", "did you mean episodes"},
        {"dataset: [d]", "test:1: dataset"},
        {"[1, 2]", "a feed must be a mapping"},
    };
    struct trajd_window_spec *spec;
    struct trajd_error error;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(parse(bad[i].text, &spec, &error), TRAJD_ERR_ARGUMENT);
        assert_null(spec);
        if (!strstr(error.message, bad[i].message))
            fail_msg("\n%s\nsaid: %s\nnot: %s", bad[i].text, error.message, bad[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_a_spec_outlives_its_text),
        cmocka_unit_test(test_a_split_begins_and_ends_at_whole_numbers_too),
        cmocka_unit_test(test_the_least_numbers),
        cmocka_unit_test(test_slow_jobs),
        cmocka_unit_test(test_a_mixture),
        cmocka_unit_test(test_outputs_of_one_dataset),
        cmocka_unit_test(test_every_error_names_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
