/* Reads the keys of a feed, with one function each. `outputs:`, `mix:` and the keys that select
 * episodes are in other files. */
#include <stdlib.h>
#include <string.h>

#include "daemon/window/feed_spec/window_spec_internal.h"
#include "proto/array_len.h"

static enum trajd_status read_anchor(struct trajd_spec_parser *p,
                                     const struct trajd_yaml_node *node)
{
    static const char *const keys[] = {"clock", "rate", NULL};
    struct trajd_window_spec *spec = p->spec;
    const struct trajd_yaml_node *clock, *rate;
    enum trajd_status status;

    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(p->yaml, node, p->error, "expected {clock: NAME} or {rate: HZ}");
    if ((status = trajd_yaml_check_keys(p->yaml, node, keys, p->error)))
        return status;
    clock = trajd_yaml_get(node, "clock");
    rate = trajd_yaml_get(node, "rate");
    if (!clock == !rate)
        return trajd_yaml_error(p->yaml, node, p->error, "expected exactly one of clock and rate");
    spec->anchor_clock = NULL; /* a member of a mixture replaces the feed's anchor */
    spec->anchor_rate = (struct trajd_rate){0};
    return clock ? trajd_spec_read_string(p, clock, &spec->anchor_clock)
                 : trajd_yaml_rate(p->yaml, rate, &spec->anchor_rate, p->error);
}

static enum trajd_status read_pad_steps(struct trajd_spec_parser *p,
                                        const struct trajd_yaml_node *node, uint32_t *out)
{
    int64_t steps;
    enum trajd_status status;

    if (node->kind == TRAJD_YAML_SCALAR && strcmp(node->value, "any") == 0) {
        *out = TRAJD_SPEC_PAD_ANY;
        return TRAJD_OK;
    }
    status = trajd_yaml_int(p->yaml, node, 0, TRAJD_SPEC_MAX_STEPS, &steps, p->error);
    if (!status)
        *out = (uint32_t)steps;
    return status;
}

static enum trajd_status read_pad(struct trajd_spec_parser *p, const struct trajd_yaml_node *node)
{
    static const char *const keys[] = {"before", "after", "with", NULL};
    static const char *const edges[] = {"edge", "zero", "nan", NULL};
    struct trajd_window_spec *spec = p->spec;
    const struct trajd_yaml_node *child;
    enum trajd_status status;
    int choice;

    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "expected {before: STEPS, after: STEPS, with: edge|zero|nan}");
    if ((status = trajd_yaml_check_keys(p->yaml, node, keys, p->error)))
        return status;
    if ((child = trajd_yaml_get(node, "before")) &&
        (status = read_pad_steps(p, child, &spec->pad_before)))
        return status;
    if ((child = trajd_yaml_get(node, "after")) &&
        (status = read_pad_steps(p, child, &spec->pad_after)))
        return status;
    if ((child = trajd_yaml_get(node, "with"))) {
        if ((status = trajd_yaml_choice(p->yaml, child, edges, &choice, p->error)))
            return status;
        spec->edge = (enum trajd_edge)choice;
    }
    return TRAJD_OK;
}

static enum trajd_status read_block(struct trajd_spec_parser *p, const struct trajd_yaml_node *node)
{
    static const char *const keys[] = {"windows", "neighbours", NULL};
    struct trajd_window_spec *spec = p->spec;
    const struct trajd_yaml_node *child;
    enum trajd_status status;
    int64_t value;

    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(p->yaml, node, p->error, "expected {windows: N, neighbours: K}");
    if ((status = trajd_yaml_check_keys(p->yaml, node, keys, p->error)))
        return status;
    if ((child = trajd_yaml_get(node, "windows"))) {
        if ((status = trajd_yaml_int(p->yaml, child, 1, 1 << 30, &value, p->error)))
            return status;
        spec->block_windows = (uint32_t)value;
    }
    if ((child = trajd_yaml_get(node, "neighbours"))) {
        if ((status = trajd_yaml_int(p->yaml, child, 1, 1 << 20, &value, p->error)))
            return status;
        spec->block_neighbours = (uint32_t)value;
    }
    return TRAJD_OK;
}

static enum trajd_status read_word(struct trajd_spec_parser *p, const struct trajd_yaml_node *node)
{
    static const char *const orders[] = {"global", "blocked", "sequential", NULL};
    static const char *const tails[] = {"drop", "wrap", "short", NULL};
    static const char *const bad_rows[] = {"error", "keep", NULL};
    static const char *const windows[] = {"all", "one_per_episode", NULL};
    struct trajd_window_spec *spec = p->spec;
    const bool is_order = strcmp(node->key, "order") == 0, is_tail = strcmp(node->key, "tail") == 0,
               is_windows = strcmp(node->key, "windows") == 0;
    enum trajd_status status;
    int choice;

    status = trajd_yaml_choice(p->yaml, node,
                               is_order     ? orders
                               : is_tail    ? tails
                               : is_windows ? windows
                                            : bad_rows,
                               &choice, p->error);
    if (status)
        return status;
    if (is_order)
        spec->order = (enum trajd_order)choice;
    else if (is_tail)
        spec->tail = (enum trajd_tail)choice;
    else if (is_windows)
        spec->one_per_episode = choice == 1;
    else
        spec->keep_bad_rows = choice == 1;
    return TRAJD_OK;
}

static enum trajd_status read_number(struct trajd_spec_parser *p,
                                     const struct trajd_yaml_node *node)
{
    struct trajd_window_spec *spec = p->spec;
    const bool is_batch = strcmp(node->key, "global_batch") == 0,
               is_seed = strcmp(node->key, "seed") == 0;
    int64_t value,
        low = is_batch  ? 1
              : is_seed ? 0
                        : 3,
        high = is_batch  ? 1 << 20
               : is_seed ? INT64_MAX
                         : TRAJD_SPEC_MAX_SLOTS;
    enum trajd_status status = trajd_yaml_int(p->yaml, node, low, high, &value, p->error);

    if (status)
        return status;
    if (is_batch)
        spec->global_batch = (uint32_t)value;
    else if (is_seed)
        spec->seed = (uint64_t)value;
    else
        spec->slot_count = (uint32_t)value;
    return TRAJD_OK;
}

static enum trajd_status read_resample(struct trajd_spec_parser *p,
                                       const struct trajd_yaml_node *node)
{
    static const char *const keys[] = {"variant", NULL};
    enum trajd_status status =
        node->kind == TRAJD_YAML_MAPPING
            ? trajd_yaml_check_keys(p->yaml, node, keys, p->error)
            : trajd_yaml_error(p->yaml, node, p->error, "expected {variant: auto|NAME}");
    const struct trajd_yaml_node *child;

    if (status)
        return status;
    child = trajd_yaml_get(node, "variant");
    return child ? trajd_spec_read_string(p, child, &p->spec->variant) : TRAJD_OK;
}

static enum trajd_status read_string_into_dataset(struct trajd_spec_parser *p,
                                                  const struct trajd_yaml_node *node)
{
    return trajd_spec_read_string(p, node, &p->spec->dataset);
}

static enum trajd_status read_statistics_from(struct trajd_spec_parser *p,
                                              const struct trajd_yaml_node *node)
{
    return trajd_spec_read_string(p, node, &p->spec->statistics_from);
}

static enum trajd_status read_rate(struct trajd_spec_parser *p, const struct trajd_yaml_node *node)
{
    return trajd_yaml_rate(p->yaml, node, &p->spec->rate, p->error);
}

/* Reads a time of 0 or more. `zero` says what 0 means. */
static enum trajd_status read_wait(struct trajd_spec_parser *p, const struct trajd_yaml_node *node,
                                   const char *zero, int64_t *wait_ns)
{
    enum trajd_status status;

    if (node->kind == TRAJD_YAML_SCALAR && strcmp(node->value, "0") == 0) {
        *wait_ns = 0;
        return TRAJD_OK;
    }
    status = trajd_yaml_duration(p->yaml, node, wait_ns, p->error);
    if (!status && (*wait_ns < 0 || *wait_ns > TRAJD_SPEC_MAX_NS))
        return trajd_yaml_error(p->yaml, node, p->error, "%s: expected 0 (%s) to %lld s",
                                node->value, zero, (long long)(TRAJD_SPEC_MAX_NS / 1000000000));
    return status;
}

static enum trajd_status read_rank_timeout(struct trajd_spec_parser *p,
                                           const struct trajd_yaml_node *node)
{
    return read_wait(p, node, "no limit", &p->spec->rank_timeout_ns);
}

static enum trajd_status read_rejoin_wait(struct trajd_spec_parser *p,
                                          const struct trajd_yaml_node *node)
{
    return read_wait(p, node, "no wait", &p->spec->rejoin_wait_ns);
}

static enum trajd_status read_slow(struct trajd_spec_parser *p, const struct trajd_yaml_node *slow,
                                   const struct trajd_yaml_node *after)
{
    static const char *const policies[] = {"block", "leave", NULL};
    struct trajd_window_spec *spec = &p->owned->spec;
    enum trajd_status status = TRAJD_OK;
    int choice = 0;

    if (slow)
        status = trajd_yaml_choice(p->yaml, slow, policies, &choice, p->error);
    spec->slow_leaves = choice == 1;
    if (status || !after)
        return status;
    if (!spec->slow_leaves)
        return trajd_yaml_error(
            p->yaml, after, p->error,
            "`after` is how long a feed with `slow: leave` waits for a slow job: "
            "add `slow: leave`");
    status = trajd_yaml_duration(p->yaml, after, &spec->slow_after_ns, p->error);
    if (!status && (spec->slow_after_ns < 1000000 || spec->slow_after_ns > TRAJD_SPEC_MAX_NS))
        return trajd_yaml_error(p->yaml, after, p->error, "%s: expected 1ms to %lld s",
                                after->value, (long long)(TRAJD_SPEC_MAX_NS / 1000000000));
    return status;
}

static enum trajd_status read_fan_out(struct trajd_spec_parser *p,
                                      const struct trajd_yaml_node *node)
{
    static const char *const keys[] = {"jobs", "slow", "after", NULL};
    const struct trajd_yaml_node *jobs;
    enum trajd_status status;
    int64_t count;

    if (node->kind != TRAJD_YAML_MAPPING || !(jobs = trajd_yaml_get(node, "jobs")))
        return trajd_yaml_error(p->yaml, node, p->error,
                                "expected {jobs: N, slow: block|leave, after: 30s}");
    if ((status = trajd_yaml_check_keys(p->yaml, node, keys, p->error)) ||
        (status = trajd_yaml_int(p->yaml, jobs, 1, 16, &count, p->error)))
        return status;
    p->owned->spec.job_count = (uint32_t)count;
    return read_slow(p, trajd_yaml_get(node, "slow"), trajd_yaml_get(node, "after"));
}

static const struct {
    const char *key;
    enum trajd_status (*read)(struct trajd_spec_parser *p, const struct trajd_yaml_node *node);
} feed_keys[] = {
    {"dataset", read_string_into_dataset},
    {"filter", trajd_spec_read_filter},
    {"episodes", trajd_spec_read_episodes},
    {"split", trajd_spec_read_split},
    {"ranges", trajd_spec_read_ranges},
    {"global_batch", read_number},
    {"rate", read_rate},
    {"anchor", read_anchor},
    {"pad", read_pad},
    {"order", read_word},
    {"windows", read_word},
    {"block", read_block},
    {"tail", read_word},
    {"seed", read_number},
    {"slots", read_number},
    {"bad_rows", read_word},
    {"resample", read_resample},
    {"outputs", trajd_spec_read_outputs},
    {"rank_timeout", read_rank_timeout},
    {"rejoin_wait", read_rejoin_wait},
    {"statistics_from", read_statistics_from},
    {"fan_out", read_fan_out},
    {"where", trajd_spec_read_where},
};
#define FEED_KEY_COUNT ARRAY_LEN(feed_keys)

enum trajd_status trajd_spec_read_key(struct trajd_spec_parser *p,
                                      const struct trajd_yaml_node *node)
{
    for (size_t i = 0; i < FEED_KEY_COUNT; i++)
        if (strcmp(feed_keys[i].key, node->key) == 0)
            return feed_keys[i].read(p, node);
    return TRAJD_OK; /* `mix` and `epoch` are read after all others */
}

enum trajd_status trajd_spec_read_keys(struct trajd_spec_parser *p,
                                       const struct trajd_yaml_node *feed)
{
    const char *names[FEED_KEY_COUNT + 3] = {NULL};
    enum trajd_status status;

    if (feed->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(p->yaml, feed, p->error, "a feed must be a mapping");
    for (size_t i = 0; i < FEED_KEY_COUNT; i++)
        names[i] = feed_keys[i].key;
    names[FEED_KEY_COUNT] = "mix";
    names[FEED_KEY_COUNT + 1] = "epoch";
    status = trajd_yaml_check_keys(p->yaml, feed, names, p->error);
    for (const struct trajd_yaml_node *child = feed->children; child && !status;
         child = child->next)
        status = trajd_spec_read_key(p, child);
    return status;
}
