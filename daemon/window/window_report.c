/* Prints a window plan as a table, and what its selection leaves out. */
#include "daemon/window/window_report.h"

#include <string.h>

#include "daemon/window/image/image_preset.h"
#include "proto/array_len.h"
#include "proto/plural.h"

static const char *const kind_names[TRAJD_KIND_COUNT] = {
    "linear", "previous", "nearest", "slerp xyzw", "slerp wxyz", "angle", "mean"};

const char *trajd_window_kind_name(enum trajd_kind kind)
{
    return kind_names[kind];
}

const char *trajd_window_mask_name(enum trajd_mask mask)
{
    static const char *const names[] = {"valid",   "before start", "after end",
                                        "gap",     "bad stamp",    "NaN",
                                        "missing", "too old",      "bad frame"};

    return (unsigned)mask < ARRAY_LEN(names) ? names[mask] : "?";
}

static void write_clock(const struct trajd_window_plan *plan, uint32_t clock, char *text,
                        size_t size)
{
    const struct trajd_index *index = plan->dataset->index;
    struct trajd_index_rates rates = {0};
    char rate[TRAJD_RATES_TEXT_SIZE];

    trajd_index_rates_add(index, clock, &rates);
    snprintf(text, size, "%s %s", index->clocks[clock].name,
             *trajd_index_rates_text(&rates, rate) ? rate : "stamped");
}

static void write_grid(const struct trajd_window_plan *plan, const struct trajd_plan_grid *grid,
                       char *text, size_t size)
{
    const long long from = grid->from, to = grid->from + grid->step_count - 1;
    int used = 0;

    if (grid->goal) {
        char rule[64];
        trajd_goal_text(&plan->goals[grid->goal - 1], rule, sizeof rule);
        used = snprintf(text, size, "goal %s, ", rule);
        text += used;
        size -= (size_t)used;
    }
    if (grid->rule == TRAJD_TARGET_ROWS)
        snprintf(text, size, "rows %lld..%lld", from, to);
    else if (grid->rule == TRAJD_TARGET_OFFSETS)
        snprintf(text, size, "%lld..%lld @ %.6g Hz", from, to,
                 (double)grid->rate.num / (double)grid->rate.den);
    else if (plan->spec->anchor_clock)
        snprintf(text, size, "%lld..%lld of %s", from, to, plan->spec->anchor_clock);
    else
        snprintf(text, size, "%lld..%lld of the anchors, %.6g Hz", from, to,
                 (double)plan->rules.anchor_rate.num / (double)plan->rules.anchor_rate.den);
}

const char *trajd_window_target_kind_name(const struct trajd_window_plan *plan,
                                          const struct trajd_plan_target *target)
{
    return plan->spec->outputs[target->output_index].returns.is_given ? "return"
           : trajd_plan_adds(plan, target)                            ? "sum"
                                           : kind_names[trajd_plan_kind(plan, target)];
}

/* Returns the stream's name where the output's name does not tell it, else "". */
static const char *source_name(const struct trajd_window_plan *plan,
                               const struct trajd_plan_target *target)
{
    const char *name = trajd_plan_stream(plan, target)->name;

    if (target->stream_index == TRAJD_PLAN_ABSENT)
        return "(none: filled)";
    return strcmp(name, plan->rules.outputs[target->output_index].name) ? name : "";
}

enum { CELL_COUNT = 7 };

/* The cells of a line of the table. */
struct report_line {
    const char *cells[CELL_COUNT];
    char clock[2 * TRAJD_RATES_TEXT_SIZE], grid[160], tensor[128];
};

static void make_line(const struct trajd_window_plan *plan, uint32_t which,
                      struct report_line *line)
{
    const struct trajd_plan_target *target = &plan->rules.targets[which];
    const struct trajd_plan_output *output = &plan->rules.outputs[target->output_index];
    const struct trajd_plan_bracket *bracket = &plan->rules.brackets[target->bracket_index];
    struct trajd_text tensor = {line->tensor, sizeof line->tensor, 0};

    *line = (struct report_line){.cells = {output->name, line->clock,
                                           trajd_window_target_kind_name(plan, target), line->grid,
                                           trajd_role_name(output->role), line->tensor,
                                           source_name(plan, target)},
                                 .tensor = "not delivered"};
    write_clock(plan, bracket->clock_index, line->clock, sizeof line->clock);
    write_grid(plan, &plan->rules.grids[bracket->grid_index], line->grid, sizeof line->grid);
    if (!output->is_hidden)
        trajd_plan_write_tensor(output, plan->spec->global_batch, &tensor);
}

/* Widens the columns so that the line fits. */
static void measure_line(const struct report_line *line, int widths[CELL_COUNT])
{
    for (int c = 0; c < CELL_COUNT; c++)
        if ((int)strlen(line->cells[c]) > widths[c])
            widths[c] = (int)strlen(line->cells[c]);
}

/* Prints a line without the last column if that is empty. */
static void print_line(const struct report_line *line, const int widths[CELL_COUNT], FILE *out)
{
    const int last = *line->cells[CELL_COUNT - 1] ? CELL_COUNT - 1 : CELL_COUNT - 2;

    for (int c = 0; c < last; c++)
        fprintf(out, "  %-*s", widths[c], line->cells[c]);
    fprintf(out, "  %s\n", line->cells[last]);
}

static void report_targets(const struct trajd_window_plan *plan, FILE *out)
{
    struct report_line head = {.cells = {"output", "clock", "kind", "grid", "role", "tensor", ""}};
    int widths[CELL_COUNT] = {0};
    struct report_line line;

    measure_line(&head, widths);
    for (uint32_t t = 0; t < plan->rules.target_count; t++) {
        make_line(plan, t, &line);
        measure_line(&line, widths);
    }
    if (widths[CELL_COUNT - 1])
        head.cells[CELL_COUNT - 1] = "from";
    print_line(&head, widths, out);
    for (uint32_t t = 0; t < plan->rules.target_count; t++) {
        make_line(plan, t, &line);
        print_line(&line, widths, out);
    }
}

/* Says what `episodes:`, a split by count, `windows:` and `epoch:` select. */
static void report_selection(const struct trajd_window_plan *plan, FILE *out)
{
    const struct trajd_select_rules *rules = &plan->spec->select;

    if (rules->entry_count)
        fprintf(out, "  episodes: %u of %u are listed\n", plan->listed_count, plan->found_count);
    if (rules->hold_out)
        fprintf(out, "  split: %u episode%s held out for validation; this feed takes %s\n",
                rules->hold_out, trajd_plural(rules->hold_out),
                rules->takes_held_out ? "them" : "the others");
    if (rules->ranges)
        fprintf(out, "  ranges: %u range%s of %u episode%s in %s\n", rules->ranges->range_count,
                trajd_plural(rules->ranges->range_count), rules->ranges->entry_count,
                trajd_plural(rules->ranges->entry_count), rules->ranges->source);
    if (plan->spec->one_per_episode)
        fprintf(out, "  windows: each pass draws one of each episode's windows, %llu of %llu\n",
                (unsigned long long)trajd_sampler_pass_count(plan->sampler),
                (unsigned long long)trajd_sampler_number_count(plan->sampler));
    if (plan->spec->epoch_windows)
        fprintf(out, "  epoch: passes of %llu windows go on over the ends of epochs\n",
                (unsigned long long)trajd_sampler_pass_count(plan->sampler));
}

static void report_preset(const struct trajd_window_plan *plan, uint32_t output_index, FILE *out)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    const struct trajd_preset *preset = output->preset;
    char text[256];

    trajd_preset_describe(preset, output->chain && output->chain->rotation_count,
                          plan->spec->version, text, sizeof text);
    fprintf(out, "  preset of %s: %s is {%s}; keys of the output go first\n", output->name,
            preset->name, text);
    if (preset->note && plan->spec->version >= 2)
        fprintf(out, "    difference: %s\n", preset->note);
}

static void report_image_preset(const struct trajd_spec_output *output, FILE *out)
{
    const char *note = trajd_image_preset_note(&output->image);

    fprintf(out, "  image.preset of %s: %s%s is %s; keys of the output go first\n", output->name,
            trajd_image_preset_name(&output->image), output->image.is_wrist ? ", view: wrist," : "",
            trajd_image_preset_keys(&output->image));
    if (note)
        fprintf(out, "    difference: %s\n", note);
}

static void report_prepared(const struct trajd_window_plan *plan, FILE *out)
{
    char text[TRAJD_PREPARATION_WORDS_SIZE];

    for (uint32_t p = 0; p < plan->rules.image_count; p++)
        if (trajd_window_describe_prepared(plan, p, text))
            fprintf(out, "  frames of %s are prepared in the files: %s\n",
                    plan->rules
                        .outputs[plan->rules.targets[plan->rules.row_target_count + p].output_index]
                        .name,
                    text);
}

/* Says which colour encoded frames have first, and who says it. */
static void report_colors(const struct trajd_window_plan *plan, FILE *out)
{
    for (uint32_t p = 0; p < plan->rules.image_count; p++) {
        const struct trajd_plan_target *target =
            &plan->rules.targets[plan->rules.row_target_count + p];
        const struct trajd_index_stream *stream = trajd_plan_stream(plan, target);
        if (stream->form != TRAJD_ROWS_PLAIN && !stream->preparation &&
            trajd_image_channels(stream->image.color) == 3)
            fprintf(out, "  color of %s: %s (%s)\n", plan->rules.outputs[target->output_index].name,
                    trajd_image_color_name(stream->image.color),
                    stream->image.color == TRAJD_COLOR_UNDECIDED
                        ? "channels: cv2 needs none"
                        : trajd_index_color_source(stream));
    }
}

static void report_outputs(const struct trajd_window_plan *plan, FILE *out)
{
    char videos[TRAJD_VIDEOS_TEXT_SIZE];
    bool is_costly;

    report_selection(plan, out);
    report_targets(plan, out);
    for (uint32_t o = 0; o < plan->rules.visible_count; o++)
        if (plan->spec->outputs[o].preset)
            report_preset(plan, o, out);
    for (uint32_t o = 0; o < plan->rules.visible_count; o++)
        if (plan->spec->outputs[o].image.preset)
            report_image_preset(&plan->spec->outputs[o], out);
    report_colors(plan, out);
    report_prepared(plan, out);
    if (trajd_window_describe_videos(plan, &is_costly, videos) && !is_costly) /* else a warning */
        fprintf(out, "  %s\n", videos);
    for (uint32_t o = 0; o < plan->rules.visible_count; o++)
        if (plan->rules.outputs[o].transform) {
            char text[1024];
            trajd_chain_describe(plan->rules.outputs[o].transform, text, sizeof text);
            fprintf(out, "  columns of %s: %s\n", plan->rules.outputs[o].name, text);
        }
    trajd_plan_texts_print(&plan->quarantined, "  quarantined: ", out);
    trajd_plan_texts_print(&plan->warnings, "  warning: ", out);
}

/* Writes "48 of 50 kept, 2 quarantined". */
static void write_counts(const struct trajd_window_plan *plan, char *text, size_t size)
{
    const int used = snprintf(text, size, "%u of %u kept",
                              plan->found_count - plan->quarantined.count, plan->found_count);

    if (plan->quarantined.count)
        snprintf(text + used, size - (size_t)used, ", %u quarantined", plan->quarantined.count);
}

static void report_mixture(const struct trajd_mixture_plan *plan, FILE *out)
{
    const uint64_t sum = trajd_mixture_weight_sum(plan->mixture);

    fprintf(out,
            "feed %s: %u datasets, epochs of %llu windows, batches of %u, %llu left over\n"
            "  fingerprint %016llx\n",
            plan->spec->feed_name, plan->member_count,
            (unsigned long long)trajd_mixture_epoch_windows(plan->mixture),
            plan->spec->global_batch,
            (unsigned long long)trajd_mixture_dropped_count(plan->mixture),
            (unsigned long long)plan->fingerprint);
    for (uint32_t p = 0; p < plan->member_count; p++) {
        const struct trajd_window_plan *member = plan->members[p];
        const uint64_t weight = trajd_mixture_weight(plan->mixture, p);
        char counts[96];
        write_counts(member, counts, sizeof counts);
        fprintf(out, " %u %s: %llu of %llu windows (%.4g%%), %llu window%s of %u episode%s (%s)\n",
                p, member->dataset->name, (unsigned long long)weight, (unsigned long long)sum,
                100 * (double)weight / (double)sum,
                (unsigned long long)trajd_sampler_number_count(member->sampler),
                trajd_plural(trajd_sampler_number_count(member->sampler)), member->episode_count,
                trajd_plural(member->episode_count), counts);
        report_outputs(member, out);
    }
}

void trajd_window_report(const struct trajd_mixture_plan *plan, FILE *out)
{
    const struct trajd_window_plan *only = plan->members[0];
    char counts[96];

    if (plan->mixture) {
        report_mixture(plan, out);
        return;
    }
    write_counts(only, counts, sizeof counts);
    fprintf(out,
            "feed %s: %llu window%s of %u episode%s (%s), batches of %u, %llu left over\n"
            "  fingerprint %016llx\n",
            plan->spec->feed_name, (unsigned long long)trajd_sampler_window_count(only->sampler),
            trajd_plural(trajd_sampler_window_count(only->sampler)), only->episode_count,
            trajd_plural(only->episode_count), counts, plan->spec->global_batch,
            (unsigned long long)trajd_sampler_dropped_count(only->sampler),
            (unsigned long long)plan->fingerprint);
    report_outputs(only, out);
}
