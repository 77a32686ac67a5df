/* What a feed asks for, as written under `feeds: NAME:` or sent by a job: parsed and checked
 * against its own rules, not yet against a dataset (window_plan.h does that). Immutable after
 * parsing. */
#ifndef TRAJD_WINDOW_WINDOW_SPEC_H
#define TRAJD_WINDOW_WINDOW_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/yaml.h"
#include "daemon/window/order/sampler.h"
#include "kernels/resample.h"

struct trajd_statistics; /* statistics.h */

#define TRAJD_SPEC_MAX_OUTPUTS 64
#define TRAJD_SPEC_MAX_SOURCES 32
#define TRAJD_SPEC_MAX_STEPS 65536
#define TRAJD_SPEC_PAD_ANY UINT32_MAX
#define TRAJD_SPEC_KIND_FROM_STREAM TRAJD_KIND_COUNT

enum trajd_role { TRAJD_ROLE_OBS = 0, TRAJD_ROLE_ACTION = 1 };
/* How values become values * scale[d] + offset[d]: numbers as given, or by what statistics say. */
enum trajd_norm {
    TRAJD_NORM_NONE = 0,
    TRAJD_NORM_NUMBERS = 1,
    TRAJD_NORM_MEAN_STD = 2, /* (x - mean) / std */
    TRAJD_NORM_MIN_MAX = 3,  /* [min, max] onto [-1, 1] */
    /* [q01, q99] onto [-1, 1]; what lies outside stays outside: nothing is clipped */
    TRAJD_NORM_Q01_Q99 = 4,
};
enum trajd_missing { TRAJD_MISSING_ERROR = 0, TRAJD_MISSING_ZERO = 1, TRAJD_MISSING_SKIP = 2 };

/* `at: FROM..TO [@ RATE]`, both ends included. */
struct trajd_spec_range {
    bool in_time; /* ns; else steps */
    int64_t from, to;
    struct trajd_rate rate; /* after '@'; num 0: the feed's rate, else the anchor's clock */
};

struct trajd_spec_output {
    const char *name;
    uint32_t line;
    uint32_t source_count;
    const char *sources[TRAJD_SPEC_MAX_SOURCES]; /* stream names; default: the output's own name */
    struct trajd_spec_range at;
    enum trajd_role role; /* default: action for names that begin with "action", else obs */
    enum trajd_kind kind; /* or TRAJD_SPEC_KIND_FROM_STREAM */
    /* NONE: float32 where values blend or the source is floating, else the source's */
    enum trajd_dtype dtype;
    int64_t max_age_ns;    /* -1: not given */
    int64_t max_gap_ns;    /* -1: not given */
    int64_t lookahead_ns;  /* obs: rows up to anchor + lookahead exist */
    int64_t mean_width_ns; /* 0: one target step */
    enum trajd_missing missing;
    bool has_range; /* angle: result wrapped into [range_low, range_low + period) */
    double range_low;
    enum trajd_norm norm_by;
    uint32_t norm_count; /* of NUMBERS: the number of features */
    const float *scale;
    const float *offset;
    uint32_t norm_mask_count; /* 0, or the number of features */
    const bool *norm_mask;    /* false: passed on unchanged */
    /* statistics to be read, and which of those in it; NULL: computed; the output's name */
    const char *norm_file, *norm_key;
    /* read by trajd_spec_norm_load; owned by the spec */
    const struct trajd_statistics *norm_statistics;
};

struct trajd_window_spec;

/* One dataset of a feed. */
struct trajd_spec_member {
    const char *dataset;
    uint64_t weight; /* 0: by size */
    /* the feed's, with what is said for this dataset alone; of a feed without `mix:` itself */
    struct trajd_window_spec *spec;
};

/* One key of `filter:`. */
struct trajd_spec_episode_filter {
    const char *key;
    uint32_t line, value_count;
    const char *const *values;
};

struct trajd_window_spec {
    const char *feed_name;
    const char *dataset; /* NULL with `mix:` */
    /* the feed whose windows `norm:` takes its statistics of; NULL: this one */
    const char *statistics_from;
    bool is_mixture, mix_by_size;
    uint64_t epoch_windows; /* of a mixture; 0: as many as its datasets have */
    uint32_t member_count;  /* >= 1 */
    struct trajd_spec_member *members;
    const char *filter;            /* mask key or NULL */
    uint32_t episode_filter_count; /* episodes by their texts (layout: meta), all keys */
    const struct trajd_spec_episode_filter *episode_filters;
    double split_begin, split_end; /* episodes whose hash lies in [begin, end) of [0, 1) */
    uint32_t global_batch;
    struct trajd_rate rate;   /* num 0: steps are the anchor's */
    const char *anchor_clock; /* NULL: anchor_rate */
    struct trajd_rate anchor_rate;
    uint32_t pad_before, pad_after; /* steps, or TRAJD_SPEC_PAD_ANY */
    enum trajd_edge edge;
    enum trajd_order order;
    uint32_t block_windows, block_neighbours;
    enum trajd_tail tail;
    uint64_t seed;
    uint32_t slot_count; /* 0: not said */
    bool keep_bad_rows;  /* bad_rows: keep */
    uint32_t job_count;  /* fan_out: that may read the same slots; 1: without */
    bool slow_leaves;    /* fan_out: slow: leave; else block */
    int64_t slow_after_ns;
    int64_t rank_timeout_ns; /* shard: how long ranks wait for one that is away; 0: for ever */
    const char *variant;     /* resample.variant: "auto" or a kernel's name */
    uint32_t output_count;
    struct trajd_spec_output outputs[TRAJD_SPEC_MAX_OUTPUTS];
};

/* Parses the mapping `node`; strings and arrays are copied. TRAJD_ERR_ARGUMENT with line and key.
 */
enum trajd_status trajd_window_spec_parse(const struct trajd_yaml *yaml,
                                          const struct trajd_yaml_node *node, const char *feed_name,
                                          struct trajd_window_spec **spec,
                                          struct trajd_error *error);
void trajd_window_spec_destroy(struct trajd_window_spec **spec);

/* ---- window_spec_norm.c ---- */

/* Reads the files of statistics that the outputs name, relative to `folder`. Only for
 * specifications of the daemon's own configuration: whoever does not call this refuses them
 * (window_norm.c). */
enum trajd_status trajd_spec_norm_load(struct trajd_window_spec *spec, const char *folder,
                                       struct trajd_error *error);
/* Makes it an output without normalisation; frees nothing. */
void trajd_spec_norm_clear(struct trajd_spec_output *output);
/* "mean_std", ... */
const char *trajd_norm_name(enum trajd_norm norm);

/* The parsing of `at:` alone: "-1..14", "0", "-200ms..0ms @ 100". NULL, or what is wrong with the
 * text. */
const char *trajd_spec_range_parse(const char *text, struct trajd_spec_range *range);

#endif
