/* Reads the datasets of a feed: one, or a mixture with keys for each of them. */
#include <string.h>

#include "daemon/window/order/mixture.h"
#include "daemon/window/feed_spec/window_spec_internal.h"

#define MAX_WEIGHT 1000000

static const char *const member_keys[] = {"weight", "streams", "filter", "where", "episodes",
                                          "split",  "ranges",  "anchor", "pad",   NULL};

/* Reads `streams: {OUTPUT: STREAM or [STREAM...]}`: the sources of an output in this dataset. */
static enum trajd_status read_streams(struct trajd_spec_parser *p,
                                      const struct trajd_yaml_node *node)
{
    const char *names[TRAJD_SPEC_MAX_OUTPUTS + 1] = {NULL};
    enum trajd_status status;

    for (uint32_t o = 0; o < p->spec->output_count; o++)
        names[o] = p->spec->outputs[o].name;
    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(
            p->yaml, node, p->error,
            "expected {OUTPUT: STREAM}, the streams of this dataset that outputs are made from");
    status = trajd_yaml_check_keys(p->yaml, node, names, p->error);
    for (uint32_t o = 0; o < p->spec->output_count && !status; o++) {
        const struct trajd_yaml_node *child = trajd_yaml_get(node, names[o]);
        if (child)
            status = trajd_spec_read_sources(p, child, &p->spec->outputs[o]);
    }
    return status;
}

static enum trajd_status read_member_keys(struct trajd_spec_parser *p,
                                          const struct trajd_yaml_node *node,
                                          struct trajd_spec_member *member)
{
    enum trajd_status status = trajd_yaml_check_keys(p->yaml, node, member_keys, p->error);
    int64_t weight;

    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next) {
        if (strcmp(child->key, "weight") == 0) {
            status = trajd_yaml_int(p->yaml, child, 1, MAX_WEIGHT, &weight, p->error);
            member->weight = status ? 0 : (uint64_t)weight;
        } else {
            status = strcmp(child->key, "streams") == 0 ? read_streams(p, child)
                                                        : trajd_spec_read_key(p, child);
        }
    }
    return status;
}

/* Reads `NAME: 7` or `NAME: {weight: 7, ...}`. By size neither has a weight. */
static enum trajd_status read_member(struct trajd_spec_parser *p,
                                     const struct trajd_yaml_node *node, const char *name,
                                     struct trajd_spec_member *member)
{
    struct trajd_window_spec *feed = &p->owned->spec;
    enum trajd_status status = trajd_spec_copy_string(p, name, &member->dataset);
    int64_t weight;

    if (status)
        return status;
    p->spec = trajd_spec_copy(p, feed, sizeof *feed);
    if (!p->spec)
        return trajd_error_set(p->error, TRAJD_ERR_MEMORY, 0, "no memory for a feed");
    member->spec = p->spec;
    p->spec->dataset = member->dataset;
    p->spec->seed = trajd_mixture_seed(feed->seed, (uint32_t)(member - feed->members));
    /* the mixture applies the tail and counts the epoch: no window of a dataset is left out */
    p->spec->tail = TRAJD_TAIL_SHORT;
    p->spec->epoch_windows = 0;
    if (node->kind == TRAJD_YAML_MAPPING) {
        status = read_member_keys(p, node, member);
    } else if (!feed->mix_by_size) {
        status = trajd_yaml_int(p->yaml, node, 1, MAX_WEIGHT, &weight, p->error);
        member->weight = status ? 0 : (uint64_t)weight;
    }
    p->spec = feed;
    if (!status && !member->weight != feed->mix_by_size)
        return trajd_yaml_error(
            p->yaml, node, p->error,
            feed->mix_by_size ? "a mixture by size takes no `weight:`"
                              : "a dataset of a mixture needs `weight:`, a whole number such as 7");
    return status;
}

static enum trajd_status read_list(struct trajd_spec_parser *p, const struct trajd_yaml_node *node)
{
    struct trajd_window_spec *feed = p->spec;
    struct trajd_spec_member *members;
    enum trajd_status status = TRAJD_OK;

    if (node->kind == TRAJD_YAML_SCALAR || !node->child_count ||
        node->child_count > TRAJD_MIXTURE_MAX_DATASETS)
        return trajd_yaml_error(p->yaml, node, p->error, "expected 1 to %d datasets",
                                TRAJD_MIXTURE_MAX_DATASETS);
    feed->members = members = trajd_spec_copy(p, NULL, node->child_count * sizeof *members);
    if (!members)
        return trajd_error_set(p->error, TRAJD_ERR_MEMORY, 0, "no memory for a feed");
    memset(members, 0, node->child_count * sizeof *members);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next) {
        const char *name = child->key;
        if (!name)
            status = trajd_yaml_string(p->yaml, child, &name, p->error);
        for (uint32_t d = 0; d < feed->member_count && !status; d++)
            if (strcmp(members[d].dataset, name) == 0)
                status =
                    trajd_yaml_error(p->yaml, child, p->error, "dataset %s is listed twice", name);
        if (!status)
            status = read_member(p, child, name, &members[feed->member_count]);
        feed->member_count++;
    }
    return status;
}

/* Reads `{by: size, datasets: [droid, lab]}`. The list may also be a mapping with keys for each
 * dataset. */
static enum trajd_status read_by_size(struct trajd_spec_parser *p,
                                      const struct trajd_yaml_node *node)
{
    static const char *const keys[] = {"by", "datasets", NULL}, *const ways[] = {"size", NULL};
    const struct trajd_yaml_node *datasets = trajd_yaml_get(node, "datasets");
    enum trajd_status status = trajd_yaml_check_keys(p->yaml, node, keys, p->error);
    int choice;

    if (!status)
        status = trajd_yaml_choice(p->yaml, trajd_yaml_get(node, "by"), ways, &choice, p->error);
    if (status)
        return status;
    if (!datasets)
        return trajd_yaml_error(
            p->yaml, node, p->error,
            "`by: size` needs `datasets:`, for example {by: size, datasets: [droid, lab]}");
    if (p->spec->order != TRAJD_ORDER_GLOBAL)
        return trajd_yaml_error(
            p->yaml, node, p->error,
            "`by: size` shuffles all windows together: remove `order:`, or give "
            "small weights instead, for example {droid: 7, lab: 3}");
    p->spec->mix_by_size = true;
    return read_list(p, datasets);
}

static enum trajd_status read_epoch(struct trajd_spec_parser *p, const struct trajd_yaml_node *node)
{
    int64_t windows;
    enum trajd_status status =
        trajd_yaml_int(p->yaml, node, 1, (int64_t)TRAJD_MIXTURE_MAX_LENGTH, &windows, p->error);

    p->spec->epoch_windows = status ? 0 : (uint64_t)windows;
    return status;
}

/* Makes the list of members of a feed with one dataset: the feed itself. */
static enum trajd_status only_member(struct trajd_spec_parser *p)
{
    struct trajd_spec_member member = {.dataset = p->spec->dataset, .weight = 1, .spec = p->spec};

    p->spec->members = trajd_spec_copy(p, &member, sizeof member);
    p->spec->member_count = 1;
    return p->spec->members
               ? TRAJD_OK
               : trajd_error_set(p->error, TRAJD_ERR_MEMORY, 0, "no memory for a feed");
}

enum trajd_status trajd_spec_read_members(struct trajd_spec_parser *p,
                                          const struct trajd_yaml_node *feed)
{
    const struct trajd_yaml_node *mix = trajd_yaml_get(feed, "mix"),
                                 *epoch = trajd_yaml_get(feed, "epoch");
    enum trajd_status status = TRAJD_OK;

    if (!mix == !p->spec->dataset)
        return trajd_yaml_error(p->yaml, feed, p->error,
                                mix ? "a feed has either `dataset:` or `mix:`, not both"
                                    : "a feed needs `dataset:`, or `mix:` with several datasets");
    if (epoch)
        status = read_epoch(p, epoch);
    if (status)
        return status;
    if (!mix)
        return only_member(p);
    if (mix->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(p->yaml, mix, p->error,
                                "expected datasets with weights, for example {droid: 7, lab: 3}, "
                                "or {by: size, datasets: [droid, lab]}");
    p->spec->is_mixture = true;
    return trajd_yaml_get(mix, "by") ? read_by_size(p, mix) : read_list(p, mix);
}
