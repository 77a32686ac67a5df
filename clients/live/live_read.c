/* Reads the description: clocks, streams, and which of them the anchors are on. */
#include <string.h>

#include "clients/live/live_reader.h"

#define VERSION 1
#define ASSUMED_INTERVAL_NS INT64_C(1000000000)

static const char *const document_keys[] = {
    "trajd_live",  "feed",   "dataset", "fingerprint", "norm_digest", "pad",  "anchor_clock",
    "anchor_rate", "clocks", "streams", "left_out",    "outputs",     "next", NULL};
static const char *const clock_keys[] = {"name",     "rate",       "interval_ns",
                                         "shift_ns", "latency_ns", NULL};
static const char *const stream_keys[] = {"name", "clock", "dtype", "shape", "encoded", NULL};
static const char *const encoded_keys[] = {"encoding", "color", "flip", NULL};
static const char *const encodings[] = {"auto", "jpeg", "png", NULL};
static const char *const colors[] = {"rgb", "bgr", "gray", "depth", NULL};
static const char *const flips[] = {"none", "v", "h", "180", NULL};
static const char *const edges[] = {"edge", "zero", "nan", NULL};

static void read_interval(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                          struct trajd_live_clock *clock)
{
    const struct trajd_yaml_node *interval = trajd_live_member(reader, node, "interval_ns");

    clock->has_interval = interval && !trajd_live_is_null(interval);
    clock->interval_ns =
        clock->has_interval ? trajd_live_read_int(reader, node, "interval_ns", 1, TRAJD_LIVE_FAR_NS)
                            : ASSUMED_INTERVAL_NS;
}

static void read_clocks(struct trajd_live_reader *reader, const struct trajd_yaml_node *root)
{
    struct trajd_live *live = reader->live;
    const struct trajd_yaml_node *list =
        trajd_live_read_list(reader, root, "clocks", 1, TRAJD_LIVE_MAX_CLOCKS);

    live->clocks = list ? trajd_live_alloc(reader, list->child_count, sizeof *live->clocks) : NULL;
    for (const struct trajd_yaml_node *node = live->clocks ? list->children : NULL;
         node && !reader->status; node = node->next) {
        struct trajd_live_clock *clock = &live->clocks[live->clock_count++];
        trajd_live_check_keys(reader, node, clock_keys);
        clock->name = trajd_live_read_text(reader, node, "name");
        clock->rate = trajd_live_read_rate(reader, node, "rate");
        read_interval(reader, node, clock);
        clock->shift_ns =
            trajd_live_read_int(reader, node, "shift_ns", -TRAJD_LIVE_FAR_NS, TRAJD_LIVE_FAR_NS);
        clock->latency_ns = -clock->shift_ns; /* of a description without it */
        if (trajd_yaml_get(node, "latency_ns"))
            clock->latency_ns = trajd_live_read_int(reader, node, "latency_ns", -TRAJD_LIVE_FAR_NS,
                                                    TRAJD_LIVE_FAR_NS);
    }
}

static void read_anchor(struct trajd_live_reader *reader, const struct trajd_yaml_node *root)
{
    struct trajd_live *live = reader->live;
    const struct trajd_yaml_node *clock = trajd_live_member(reader, root, "anchor_clock");

    live->anchor_clock = -1;
    if (clock && !trajd_live_is_null(clock))
        live->anchor_clock =
            trajd_live_read_int(reader, root, "anchor_clock", 0, (int64_t)live->clock_count - 1);
    live->anchor_rate = trajd_live_read_rate(reader, root, "anchor_rate");
    if (live->anchor_clock < 0 && !live->anchor_rate.num && !reader->status)
        trajd_live_wrong(reader, root, "the anchors have neither a clock nor a rate");
}

/* Checks how encoded frames are turned upright. trajd.Live in Python decodes them. */
static void check_encoded(struct trajd_live_reader *reader, const struct trajd_yaml_node *stream,
                          uint32_t rank)
{
    const struct trajd_yaml_node *node = reader->status ? NULL : trajd_yaml_get(stream, "encoded");

    if (!node)
        return;
    if (rank != 3)
        trajd_live_wrong(reader, node, "encoded: a frame has height, width and channels");
    trajd_live_check_keys(reader, node, encoded_keys);
    trajd_live_read_word(reader, node, "encoding", encodings);
    trajd_live_read_word(reader, node, "color", colors);
    trajd_live_read_word(reader, node, "flip", flips);
}

static void read_stream(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                        struct trajd_live_input *input)
{
    struct trajd_live *live = reader->live;

    trajd_live_check_keys(reader, node, stream_keys);
    input->name = trajd_live_read_text(reader, node, "name");
    input->clock =
        (uint32_t)trajd_live_read_int(reader, node, "clock", 0, (int64_t)live->clock_count - 1);
    input->dtype = trajd_live_read_dtype(reader, node, "dtype");
    input->column_count =
        (uint32_t)trajd_live_read_shape(reader, node, 0, &input->rank, input->shape);
    check_encoded(reader, node, input->rank);
    input->is_lead = (int64_t)input->clock == live->anchor_clock;
    input->may_lack = true;
    live->lead_count += input->is_lead;
    for (const struct trajd_live_input *other = live->inputs; other < input; other++)
        if (!reader->status && strcmp(other->name, input->name) == 0)
            trajd_live_wrong(reader, node, "a stream before it has the same name");
}

static void read_streams(struct trajd_live_reader *reader, const struct trajd_yaml_node *root)
{
    struct trajd_live *live = reader->live;
    const struct trajd_yaml_node *list =
        trajd_live_read_list(reader, root, "streams", 1, TRAJD_LIVE_MAX_INPUTS);

    live->inputs = list ? trajd_live_alloc(reader, list->child_count, sizeof *live->inputs) : NULL;
    for (const struct trajd_yaml_node *node = live->inputs ? list->children : NULL;
         node && !reader->status; node = node->next)
        read_stream(reader, node, &live->inputs[live->input_count++]);
}

enum trajd_status trajd_live_read(struct trajd_live *live, struct trajd_error *error)
{
    const struct trajd_yaml_node *root = trajd_yaml_root(live->yaml), *outputs;
    struct trajd_live_reader reader = {.live = live, .yaml = live->yaml, .error = error};

    if (root->kind != TRAJD_YAML_MAPPING || !trajd_yaml_get(root, "trajd_live"))
        return trajd_yaml_error(live->yaml, root, error,
                                "not a live description: Live.save and trajd_live_open use files "
                                "that begin with {\"trajd_live\": 1");
    trajd_live_read_int(&reader, root, "trajd_live", VERSION, VERSION);
    trajd_live_check_keys(&reader, root, document_keys);
    live->edge = (enum trajd_edge)trajd_live_read_word(&reader, root, "pad", edges);
    read_clocks(&reader, root);
    read_anchor(&reader, root);
    read_streams(&reader, root);
    outputs = trajd_live_read_list(&reader, root, "outputs", 1, TRAJD_LIVE_MAX_OUTPUTS);
    if (outputs)
        trajd_live_read_outputs(&reader, outputs);
    return reader.status;
}
