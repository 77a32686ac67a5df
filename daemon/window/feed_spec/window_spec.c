#include "daemon/window/feed_spec/window_spec_internal.h"

#include <stdlib.h>

static enum trajd_status read_feed(struct trajd_spec_parser *p, const struct trajd_yaml_node *node)
{
    const struct trajd_window_spec *spec = p->spec;
    const enum trajd_status status = trajd_spec_read_keys(p, node);

    if (status)
        return status;
    if (!spec->output_count)
        return trajd_yaml_error(p->yaml, node, p->error, "a feed needs `outputs:`");
    if (!spec->anchor_clock && !spec->anchor_rate.num)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "a feed needs `anchor:`: {clock: NAME} for one window per row of a "
                                "clock, or {rate: HZ}");
    if (!spec->global_batch)
        return trajd_yaml_error(
            p->yaml, node, p->error,
            "a feed needs `global_batch:`, the number of windows in a batch over all ranks");
    if (spec->one_per_episode && spec->order == TRAJD_ORDER_BLOCKED)
        return trajd_yaml_error(p->yaml, trajd_yaml_get(node, "windows"), p->error,
                                "order: blocked shuffles neighbouring windows together, so it has "
                                "no use for one_per_episode: use order: global");
    return trajd_spec_read_members(p, node);
}

enum trajd_status trajd_window_spec_parse(const struct trajd_yaml *yaml,
                                          const struct trajd_yaml_node *node, const char *feed_name,
                                          struct trajd_window_spec **out, struct trajd_error *error)
{
    struct trajd_owned_spec *owned = calloc(1, sizeof *owned);
    struct trajd_spec_parser parser = {yaml, owned, NULL, error};
    struct trajd_window_spec *spec;
    enum trajd_status status;

    *out = NULL;
    if (!owned)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a feed");
    spec = parser.spec = &owned->spec;
    spec->select.split_end = 1;
    spec->pad_before = spec->pad_after = TRAJD_SPEC_PAD_ANY;
    spec->block_windows = 4096;
    spec->block_neighbours = 4;
    spec->rank_timeout_ns = INT64_C(600) * 1000000000;
    spec->rejoin_wait_ns = INT64_C(10) * 1000000000;
    spec->job_count = 1;
    spec->slow_after_ns = INT64_C(30) * 1000000000;
    spec->variant = "auto";
    status = trajd_spec_copy_string(&parser, feed_name, &spec->feed_name);
    if (!status)
        status = read_feed(&parser, node);
    if (status)
        trajd_window_spec_destroy(&spec);
    *out = spec;
    return status;
}

void trajd_window_spec_destroy(struct trajd_window_spec **spec)
{
    struct trajd_owned_spec *owned =
        (struct trajd_owned_spec *)*spec; /* the spec is its first member */

    if (owned) {
        for (uint32_t o = 0; o < owned->spec.output_count; o++)
            free((void *)(uintptr_t)owned->spec.outputs[o].norm_statistics);
        for (size_t i = 0; i < owned->block_count; i++)
            free(owned->blocks[i]);
        free(owned->blocks);
        for (struct trajd_ranges *next; owned->ranges; owned->ranges = next) {
            next = owned->ranges->next;
            trajd_ranges_destroy(&owned->ranges);
        }
        free(owned);
    }
    *spec = NULL;
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
