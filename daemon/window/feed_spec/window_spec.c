/* Parses the specification of a feed: the table of its keys, and its datasets: one, or a mixture
 * with keys for each of them. */
#include "daemon/window/feed_spec/window_spec_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/window/order/mixture.h"
#include "proto/array_len.h"

#define AT(member) offsetof(struct trajd_window_spec, member)
#define MAX_WEIGHT 1000000

/* A specification and everything that it points to, freed together. */
struct owned_spec {
    struct trajd_window_spec spec;
    struct trajd_arena arena;
};

static const char *const edges[] = {"edge", "zero", "nan", NULL};
static const char *const orders[] = {"global", "blocked", "sequential", NULL};
static const char *const tails[] = {"drop", "wrap", "short", NULL};
static const char *const bad_rows[] = {"error", "keep", NULL};
static const char *const windows[] = {"all", "one_per_episode", NULL};
static const char *const policies[] = {"block", "leave", NULL};

static enum trajd_status read_anchor(const struct trajd_yaml_reader *r,
                                     const struct trajd_yaml_node *node, void *member)
{
    static const struct trajd_yaml_key keys[] = {
        {"clock", TRAJD_YAML_STRING, .offset = AT(anchor_clock)},
        {"rate", TRAJD_YAML_RATE, .offset = AT(anchor_rate)},
    };
    struct trajd_window_spec *spec = member;

    spec->anchor_clock = NULL; /* a member of a mixture replaces the feed's anchor */
    spec->anchor_rate = (struct trajd_rate){0};
    if (trajd_yaml_get(node, "clock") && trajd_yaml_get(node, "rate"))
        return trajd_yaml_error(r->yaml, node, r->error, "expected exactly one of clock and rate");
    if (node->kind == TRAJD_YAML_MAPPING && !node->child_count)
        return trajd_yaml_error(r->yaml, node, r->error, "expected exactly one of clock and rate");
    return trajd_yaml_read_keys(r, node, "{clock: NAME} or {rate: HZ}", keys, ARRAY_LEN(keys),
                                spec);
}

static enum trajd_status read_pad_steps(const struct trajd_yaml_reader *r,
                                        const struct trajd_yaml_node *node, void *steps)
{
    static const struct trajd_yaml_key number = {.type = TRAJD_YAML_U32,
                                                 .high = TRAJD_SPEC_MAX_STEPS};

    if (node->kind != TRAJD_YAML_SCALAR || strcmp(node->value, "any") != 0)
        return trajd_yaml_read_key(r, node, &number, steps);
    *(uint32_t *)steps = TRAJD_SPEC_PAD_ANY;
    return TRAJD_OK;
}

static enum trajd_status read_pad(const struct trajd_yaml_reader *r,
                                  const struct trajd_yaml_node *node, void *spec)
{
    static const struct trajd_yaml_key keys[] = {
        {"before", .offset = AT(pad_before), .read = read_pad_steps},
        {"after", .offset = AT(pad_after), .read = read_pad_steps},
        {"with", TRAJD_YAML_CHOICE, .offset = AT(edge), .words = edges},
    };

    return trajd_yaml_read_keys(r, node, "{before: STEPS, after: STEPS, with: edge|zero|nan}", keys,
                                ARRAY_LEN(keys), spec);
}

static enum trajd_status read_block(const struct trajd_yaml_reader *r,
                                    const struct trajd_yaml_node *node, void *spec)
{
    static const struct trajd_yaml_key keys[] = {
        {"windows", TRAJD_YAML_U32, .offset = AT(block_windows), .low = 1, .high = 1 << 30},
        {"neighbours", TRAJD_YAML_U32, .offset = AT(block_neighbours), .low = 1, .high = 1 << 20},
    };

    return trajd_yaml_read_keys(r, node, "{windows: N, neighbours: K}", keys, ARRAY_LEN(keys),
                                spec);
}

static enum trajd_status read_resample(const struct trajd_yaml_reader *r,
                                       const struct trajd_yaml_node *node, void *spec)
{
    static const struct trajd_yaml_key keys[] = {
        {"variant", TRAJD_YAML_STRING, .offset = AT(variant)},
    };

    return trajd_yaml_read_keys(r, node, "{variant: auto|NAME}", keys, ARRAY_LEN(keys), spec);
}

/* Reads `rank_timeout:` or `rejoin_wait:`, a time of 0 or more. */
static enum trajd_status read_wait(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, void *member)
{
    const char *zero = strcmp(node->key, "rank_timeout") == 0 ? "no limit" : "no wait";
    int64_t *wait_ns = member;
    enum trajd_status status;

    if (node->kind == TRAJD_YAML_SCALAR && strcmp(node->value, "0") == 0) {
        *wait_ns = 0;
        return TRAJD_OK;
    }
    status = trajd_yaml_duration(r->yaml, node, wait_ns, r->error);
    if (!status && (*wait_ns < 0 || *wait_ns > TRAJD_SPEC_MAX_NS))
        return trajd_yaml_error(r->yaml, node, r->error, "%s: expected 0 (%s) to %lld s",
                                node->value, zero, (long long)(TRAJD_SPEC_MAX_NS / 1000000000));
    return status;
}

static enum trajd_status read_fan_out(const struct trajd_yaml_reader *r,
                                      const struct trajd_yaml_node *node, void *member)
{
    static const struct trajd_yaml_key keys[] = {
        {"jobs", TRAJD_YAML_U32, .offset = AT(job_count), .low = 1, .high = 16, .is_needed = true},
        {"slow", TRAJD_YAML_FLAG, .offset = AT(slow_leaves), .words = policies},
        {"after", TRAJD_YAML_DURATION, .offset = AT(slow_after_ns)},
    };
    struct trajd_window_spec *spec = member;
    const struct trajd_yaml_node *after = trajd_yaml_get(node, "after");
    const enum trajd_status status = trajd_yaml_read_keys(
        r, node, "{jobs: N, slow: block|leave, after: 30s}", keys, ARRAY_LEN(keys), spec);

    if (status || !after)
        return status;
    if (!spec->slow_leaves)
        return trajd_yaml_error(
            r->yaml, after, r->error,
            "`after` is how long a feed with `slow: leave` waits for a slow job: "
            "add `slow: leave`");
    if (spec->slow_after_ns < 1000000 || spec->slow_after_ns > TRAJD_SPEC_MAX_NS)
        return trajd_yaml_error(r->yaml, after, r->error, "%s: expected 1ms to %lld s",
                                after->value, (long long)(TRAJD_SPEC_MAX_NS / 1000000000));
    return TRAJD_OK;
}

static const struct trajd_yaml_key feed_keys[] = {
    {"dataset", TRAJD_YAML_STRING, .offset = AT(dataset)},
    {"filter", TRAJD_YAML_STRING, .offset = AT(select.filter)},
    {"episodes", .offset = AT(select), .read = trajd_spec_read_episodes},
    {"split", .offset = AT(select), .read = trajd_spec_read_split},
    {"ranges", .offset = AT(select), .read = trajd_spec_read_ranges},
    {"global_batch", TRAJD_YAML_U32, .offset = AT(global_batch), .low = 1, .high = 1 << 20},
    {"rate", TRAJD_YAML_RATE, .offset = AT(rate)},
    {"anchor", .read = read_anchor},
    {"pad", .read = read_pad},
    {"order", TRAJD_YAML_CHOICE, .offset = AT(order), .words = orders},
    {"windows", TRAJD_YAML_FLAG, .offset = AT(one_per_episode), .words = windows},
    {"block", .read = read_block},
    {"tail", TRAJD_YAML_CHOICE, .offset = AT(tail), .words = tails},
    {"seed", TRAJD_YAML_U64, .offset = AT(seed), .high = (double)INT64_MAX},
    {"slots", TRAJD_YAML_U32, .offset = AT(slot_count), .low = 3, .high = TRAJD_SPEC_MAX_SLOTS},
    {"bad_rows", TRAJD_YAML_FLAG, .offset = AT(keep_bad_rows), .words = bad_rows},
    {"resample", .read = read_resample},
    {"outputs", .read = trajd_spec_read_outputs},
    {"rank_timeout", .offset = AT(rank_timeout_ns), .read = read_wait},
    {"rejoin_wait", .offset = AT(rejoin_wait_ns), .read = read_wait},
    {"statistics_from", TRAJD_YAML_STRING, .offset = AT(statistics_from)},
    {"fan_out", .read = read_fan_out},
    {"where", .offset = AT(select), .read = trajd_spec_read_where},
    {"mix", .type = TRAJD_YAML_LATER},
    {"epoch", .type = TRAJD_YAML_LATER},
};

/* ---- the datasets: one, or a mixture with keys for each of them ---- */

static const struct trajd_yaml_key weight_key = {
    "weight", TRAJD_YAML_U64, .offset = offsetof(struct trajd_spec_member, weight), .low = 1,
    .high = MAX_WEIGHT};

/* Reads `outputs: {OUTPUT: {from: STREAM, at: 0..15}}`, in what outputs differ in this dataset, or
 * `streams: {OUTPUT: STREAM or [STREAM...]}`, their sources alone. Errors that the plan finds then
 * name the line here. */
static enum trajd_status read_changes(const struct trajd_yaml_reader *r,
                                      const struct trajd_yaml_node *node,
                                      struct trajd_window_spec *spec)
{
    const bool is_streams = strcmp(node->key, "streams") == 0;
    const char *names[TRAJD_SPEC_MAX_OUTPUTS + 1] = {NULL};
    enum trajd_status status;

    /* the hidden outputs come last; they have streams of their own and no other key */
    for (uint32_t o = 0; o < spec->output_count; o++)
        names[o] = is_streams || !spec->outputs[o].is_hidden ? spec->outputs[o].name : NULL;
    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(
            r->yaml, node, r->error,
            is_streams
                ? "expected {OUTPUT: STREAM}, the streams of this dataset that outputs are made "
                  "from"
                : "expected {OUTPUT: {from: STREAM, at: FROM..TO}}, in what outputs differ in this "
                  "dataset");
    status = trajd_yaml_check_keys(r->yaml, node, names, r->error);
    for (uint32_t o = 0; names[o] && !status; o++) {
        const struct trajd_yaml_node *child = trajd_yaml_get(node, names[o]);
        if (!child)
            continue;
        spec->outputs[o].line = child->line;
        status = is_streams ? trajd_spec_read_sources(r, child, &spec->outputs[o])
                            : trajd_spec_read_member_output(r, child, &spec->outputs[o]);
    }
    return status;
}

/* Refuses two lists of streams for one output of a dataset. */
static enum trajd_status check_streams(const struct trajd_yaml_reader *r,
                                       const struct trajd_yaml_node *member)
{
    const struct trajd_yaml_node *streams = trajd_yaml_get(member, "streams"),
                                 *outputs = trajd_yaml_get(member, "outputs");

    for (const struct trajd_yaml_node *child = outputs && streams ? outputs->children : NULL; child;
         child = child->next) {
        const struct trajd_yaml_node *from = trajd_yaml_get(child, "from");
        if (from && child->key && trajd_yaml_get(streams, child->key))
            return trajd_yaml_error(r->yaml, from, r->error,
                                    "`streams:` names the streams of this output, too: remove "
                                    "one of the two");
    }
    return TRAJD_OK;
}

/* Reads one of the feed's keys. */
static enum trajd_status read_key(const struct trajd_yaml_reader *r,
                                  const struct trajd_yaml_node *node,
                                  struct trajd_window_spec *spec)
{
    size_t k = 0;

    while (strcmp(feed_keys[k].name, node->key) != 0)
        k++;
    return trajd_yaml_read_key(r, node, &feed_keys[k], spec);
}

static enum trajd_status read_member_keys(const struct trajd_yaml_reader *r,
                                          const struct trajd_yaml_node *node,
                                          struct trajd_spec_member *member)
{
    static const char *const names[] = {"weight", "streams",  "outputs", "filter",
                                        "where",  "episodes", "split",   "ranges",
                                        "rate",   "anchor",   "pad",     NULL};
    enum trajd_status status = trajd_yaml_check_keys(r->yaml, node, names, r->error);

    if (!status)
        status = check_streams(r, node);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next) {
        if (strcmp(child->key, "weight") == 0)
            status = trajd_yaml_read_key(r, child, &weight_key, member);
        else if (strcmp(child->key, "streams") == 0 || strcmp(child->key, "outputs") == 0)
            status = read_changes(r, child, member->spec);
        else
            status = read_key(r, child, member->spec);
    }
    return status;
}

/* Reads `NAME: 7` or `NAME: {weight: 7, ...}`. By size neither has a weight. */
static enum trajd_status read_member(const struct trajd_yaml_reader *r,
                                     const struct trajd_yaml_node *node, const char *name,
                                     const struct trajd_window_spec *feed,
                                     struct trajd_spec_member *member)
{
    enum trajd_status status = trajd_yaml_keep(r, name, &member->dataset);

    if (status || !(member->spec = trajd_yaml_alloc(r, sizeof *feed)))
        return TRAJD_ERR_MEMORY;
    *member->spec = *feed;
    member->spec->dataset = member->dataset;
    member->spec->seed = trajd_mixture_seed(feed->seed, (uint32_t)(member - feed->members));
    /* the mixture applies the tail and counts the epoch: no window of a dataset is left out */
    member->spec->tail = TRAJD_TAIL_SHORT;
    member->spec->epoch_windows = 0;
    if (node->kind == TRAJD_YAML_MAPPING)
        status = read_member_keys(r, node, member);
    else if (!feed->mix_by_size)
        status = trajd_yaml_read_key(r, node, &weight_key, member);
    if (!status && !member->weight != feed->mix_by_size)
        return trajd_yaml_error(
            r->yaml, node, r->error,
            feed->mix_by_size ? "a mixture by size takes no `weight:`"
                              : "a dataset of a mixture needs `weight:`, a whole number such as 7");
    return status;
}

static enum trajd_status read_list(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_window_spec *feed)
{
    enum trajd_status status = TRAJD_OK;

    if (node->kind == TRAJD_YAML_SCALAR || !node->child_count ||
        node->child_count > TRAJD_MIXTURE_MAX_DATASETS)
        return trajd_yaml_error(r->yaml, node, r->error, "expected 1 to %d datasets",
                                TRAJD_MIXTURE_MAX_DATASETS);
    feed->members = trajd_yaml_alloc(r, node->child_count * sizeof *feed->members);
    if (!feed->members)
        return TRAJD_ERR_MEMORY;
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next) {
        const char *name = child->key;
        if (!name)
            status = trajd_yaml_string(r->yaml, child, &name, r->error);
        for (uint32_t d = 0; d < feed->member_count && !status; d++)
            if (strcmp(feed->members[d].dataset, name) == 0)
                status =
                    trajd_yaml_error(r->yaml, child, r->error, "dataset %s is listed twice", name);
        if (!status)
            status = read_member(r, child, name, feed, &feed->members[feed->member_count]);
        feed->member_count++;
    }
    return status;
}

/* Reads `{by: size, datasets: [droid, lab]}`. The list may also be a mapping with keys for each
 * dataset. */
static enum trajd_status read_by_size(const struct trajd_yaml_reader *r,
                                      const struct trajd_yaml_node *node,
                                      struct trajd_window_spec *feed)
{
    static const char *const keys[] = {"by", "datasets", NULL}, *const ways[] = {"size", NULL};
    const struct trajd_yaml_node *datasets = trajd_yaml_get(node, "datasets");
    enum trajd_status status = trajd_yaml_check_keys(r->yaml, node, keys, r->error);
    int choice;

    if (!status)
        status = trajd_yaml_choice(r->yaml, trajd_yaml_get(node, "by"), ways, &choice, r->error);
    if (status)
        return status;
    if (!datasets)
        return trajd_yaml_error(
            r->yaml, node, r->error,
            "`by: size` needs `datasets:`, for example {by: size, datasets: [droid, lab]}");
    if (feed->order != TRAJD_ORDER_GLOBAL)
        return trajd_yaml_error(
            r->yaml, node, r->error,
            "`by: size` shuffles all windows together: remove `order:`, or give "
            "small weights instead, for example {droid: 7, lab: 3}");
    feed->mix_by_size = true;
    return read_list(r, datasets, feed);
}

static enum trajd_status read_members(const struct trajd_yaml_reader *r,
                                      const struct trajd_yaml_node *feed,
                                      struct trajd_window_spec *spec)
{
    static const struct trajd_yaml_key epoch_key = {"epoch", TRAJD_YAML_U64,
                                                    .offset = AT(epoch_windows), .low = 1,
                                                    .high = (double)TRAJD_MIXTURE_MAX_LENGTH};
    const struct trajd_yaml_node *mix = trajd_yaml_get(feed, "mix"),
                                 *epoch = trajd_yaml_get(feed, "epoch");
    enum trajd_status status = TRAJD_OK;

    if (!mix == !spec->dataset)
        return trajd_yaml_error(r->yaml, feed, r->error,
                                mix ? "a feed has either `dataset:` or `mix:`, not both"
                                    : "a feed needs `dataset:`, or `mix:` with several datasets");
    if (epoch)
        status = trajd_yaml_read_key(r, epoch, &epoch_key, spec);
    if (status)
        return status;
    if (mix && mix->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(r->yaml, mix, r->error,
                                "expected datasets with weights, for example {droid: 7, lab: 3}, "
                                "or {by: size, datasets: [droid, lab]}");
    spec->is_mixture = mix;
    if (mix)
        return trajd_yaml_get(mix, "by") ? read_by_size(r, mix, spec) : read_list(r, mix, spec);
    spec->members = trajd_yaml_alloc(r, sizeof *spec->members);
    if (!spec->members)
        return TRAJD_ERR_MEMORY;
    *spec->members =
        (struct trajd_spec_member){.dataset = spec->dataset, .weight = 1, .spec = spec};
    spec->member_count = 1;
    return TRAJD_OK;
}

/* ---- the feed ---- */

static enum trajd_status read_feed(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_window_spec *spec)
{
    enum trajd_status status;

    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(r->yaml, node, r->error, "a feed must be a mapping");
    status = trajd_yaml_read_keys(r, node, NULL, feed_keys, ARRAY_LEN(feed_keys), spec);
    if (status)
        return status;
    if (!spec->output_count)
        return trajd_yaml_error(r->yaml, node, r->error, "a feed needs `outputs:`");
    if (!spec->anchor_clock && !spec->anchor_rate.num)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "a feed needs `anchor:`: {clock: NAME} for one window per row of a "
                                "clock, or {rate: HZ}");
    if (!spec->global_batch)
        return trajd_yaml_error(
            r->yaml, node, r->error,
            "a feed needs `global_batch:`, the number of windows in a batch over all ranks");
    if (spec->one_per_episode && spec->order == TRAJD_ORDER_BLOCKED)
        return trajd_yaml_error(r->yaml, trajd_yaml_get(node, "windows"), r->error,
                                "order: blocked shuffles neighbouring windows together, so it has "
                                "no use for one_per_episode: use order: global");
    return read_members(r, node, spec);
}

enum trajd_status trajd_window_spec_parse(const struct trajd_yaml *yaml,
                                          const struct trajd_yaml_node *node, const char *feed_name,
                                          uint32_t version, struct trajd_window_spec **out,
                                          struct trajd_error *error)
{
    struct owned_spec *owned = calloc(1, sizeof *owned);
    struct trajd_yaml_reader reader = {yaml, error, NULL};
    struct trajd_window_spec *spec;
    enum trajd_status status;

    *out = NULL;
    if (!owned)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a feed");
    reader.arena = &owned->arena;
    reader.arena->limit_bytes = SIZE_MAX;
    spec = &owned->spec;
    spec->version = version;
    spec->select.split_end = 1;
    spec->pad_before = spec->pad_after = TRAJD_SPEC_PAD_ANY;
    spec->block_windows = 4096;
    spec->block_neighbours = 4;
    spec->rank_timeout_ns = INT64_C(600) * 1000000000;
    spec->rejoin_wait_ns = INT64_C(10) * 1000000000;
    spec->job_count = 1;
    spec->slow_after_ns = INT64_C(30) * 1000000000;
    spec->variant = "auto";
    status = trajd_yaml_keep(&reader, feed_name, &spec->feed_name);
    if (!status)
        status = read_feed(&reader, node, spec);
    if (status)
        trajd_window_spec_destroy(&spec);
    *out = spec;
    return status;
}

/* Frees the ranges of a specification that are not those of `feed`. */
static void free_ranges(struct trajd_window_spec *spec, const struct trajd_window_spec *feed)
{
    struct trajd_ranges *ranges = (struct trajd_ranges *)(uintptr_t)spec->select.ranges;

    if (!feed || ranges != feed->select.ranges)
        trajd_ranges_destroy(&ranges);
}

void trajd_window_spec_destroy(struct trajd_window_spec **out)
{
    struct owned_spec *owned = (struct owned_spec *)*out; /* the spec is its first member */
    struct trajd_window_spec *spec = *out;

    *out = NULL;
    if (!owned)
        return;
    for (uint32_t o = 0; o < spec->output_count; o++)
        free((void *)(uintptr_t)spec->outputs[o].norm_statistics);
    for (uint32_t m = 0; m < spec->member_count; m++)
        if (spec->members[m].spec)
            free_ranges(spec->members[m].spec, spec);
    free_ranges(spec, NULL);
    trajd_arena_free(&owned->arena);
    free(owned);
}

const char *trajd_spec_file(const struct trajd_window_spec *spec, uint32_t i)
{
    for (uint32_t m = 0; m < spec->member_count; m++)
        if (spec->members[m].spec->select.ranges_file && !i--)
            return spec->members[m].spec->select.ranges_file;
    for (uint32_t o = 0; o < spec->output_count; o++)
        if (spec->outputs[o].norm_file && !i--)
            return spec->outputs[o].norm_file;
    return NULL;
}
