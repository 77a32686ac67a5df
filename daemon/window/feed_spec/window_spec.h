/* The specification of a feed, as written under `feeds: NAME:` or sent by a job. It is parsed and
 * checked by its own rules; window_plan.h resolves it on a dataset. Immutable after parsing and
 * the loading of its files, and then thread-safe. */
#ifndef TRAJD_WINDOW_WINDOW_SPEC_H
#define TRAJD_WINDOW_WINDOW_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/yaml.h"
#include "daemon/engine/rules.h"
#include "daemon/window/order/goal.h"
#include "daemon/window/order/sampler.h"
#include "daemon/window/image/image_spec.h"
#include "daemon/window/select/select.h"

struct trajd_preset; /* transform/chain_spec.h */
struct trajd_chain_spec;
struct trajd_statistics; /* statistics.h */

#define TRAJD_SPEC_MAX_OUTPUTS 64
#define TRAJD_SPEC_MAX_NAME 96 /* bytes of the name of an output */
#define TRAJD_SPEC_MAX_SOURCES 32
#define TRAJD_SPEC_MAX_STEPS 65536
#define TRAJD_SPEC_MAX_SLOTS 480 /* TRAJD_CORE_MAX_SLOTS, so that --check accepts no other number */
#define TRAJD_SPEC_PAD_ANY UINT32_MAX
#define TRAJD_SPEC_KIND_FROM_STREAM TRAJD_KIND_COUNT

/* How values become values * scale[d] + offset[d]: by given numbers, or by a rule on statistics. */
enum trajd_norm {
    TRAJD_NORM_NONE = 0,
    TRAJD_NORM_NUMBERS = 1,
    TRAJD_NORM_MEAN_STD = 2, /* (x - mean) / std */
    TRAJD_NORM_MIN_MAX = 3,  /* [min, max] onto [-1, 1] */
    /* [q01, q99] onto [-1, 1]; values outside are not clipped */
    TRAJD_NORM_Q01_Q99 = 4,
};

/* Which features `norm:` changes, by what they are. Other features pass unchanged. */
enum trajd_norm_features {
    TRAJD_NORM_ALL_FEATURES = 0,
    TRAJD_NORM_POSITIONS = 1,         /* the three features before each rotation */
    TRAJD_NORM_ALL_BUT_ROTATIONS = 2, /* all that are not part of a rotation */
};

/* `at: FROM..TO [@ RATE]`. Both ends are included. */
struct trajd_spec_range {
    bool in_time; /* from and to are ns; else steps */
    int64_t from, to;
    struct trajd_rate rate; /* after '@'; num 0: the feed's rate, else the anchor clock's */
};

/* `return:`: the discounted sum of a stream's rows from each step on. */
struct trajd_return_rule {
    bool is_given;
    double gamma;  /* in [0, 1] */
    bool in_chunk; /* the sum ends with the last step of the window; else with the episode */
};

struct trajd_spec_output {
    const char *name;
    uint32_t line;
    uint32_t source_count;
    const char *sources[TRAJD_SPEC_MAX_SOURCES]; /* stream names; default: the output's name */
    struct trajd_spec_range at;
    struct trajd_goal_rule goal; /* of role goal; its steps count from the goal */
    struct trajd_return_rule returns;
    enum trajd_role role; /* default: action for names that begin with "action", else obs */
    enum trajd_kind kind; /* or TRAJD_SPEC_KIND_FROM_STREAM */
    /* NONE: float32 where values blend or the source is floating, else the source's type */
    enum trajd_dtype dtype;
    int64_t max_age_ns;    /* -1: not given */
    int64_t max_gap_ns;    /* -1: not given */
    int64_t lookahead_ns;  /* obs: rows up to anchor + lookahead are visible */
    int64_t mean_width_ns; /* 0: one target step */
    enum trajd_missing missing;
    bool has_range; /* angle: the result is wrapped into [range_low, range_low + period) */
    double range_low;
    enum trajd_norm norm_by;
    /* may be given without a rule: then only the statistics that a client asks for follow it */
    enum trajd_norm_over norm_over;
    double norm_min_std; /* mean_std: the smallest std that is divided by; 0: not given */
    bool norm_per_step;  /* each step has statistics of its own */
    uint32_t norm_count; /* of NUMBERS: the number of features */
    const float *scale;
    const float *offset;
    enum trajd_norm_features norm_features; /* `mask:` as a word */
    uint32_t norm_mask_count;               /* 0, or the number of features */
    const bool *norm_mask;                  /* false: the feature passes unchanged */
    /* the file of statistics and the name in it. File NULL: statistics are computed. Key NULL: the
     * output's name */
    const char *norm_file, *norm_key;
    /* set by trajd_spec_norm_load; owned by the spec */
    const struct trajd_statistics *norm_statistics;
    struct trajd_image_spec image;
    const struct trajd_preset *preset; /* NULL: not given; its keys are set */
    bool norm_is_presets;              /* the output has no norm of its own */
    /* what `rotation:` and `relative_to:` do; NULL: neither is given */
    const struct trajd_chain_spec *chain;
    /* of an output with `relative_to:`: the hidden output that has its state; else 0 */
    uint32_t reference_output;
    /* not delivered: the state of `relative_to:`. These come after all others */
    bool is_hidden;
};

struct trajd_window_spec;

/* One dataset of a feed. */
struct trajd_spec_member {
    const char *dataset;
    uint64_t weight; /* 0: by size */
    /* the feed's specification with the changes for this dataset; without `mix:` the feed's own */
    struct trajd_window_spec *spec;
};

struct trajd_window_spec {
    const char *feed_name;
    uint32_t version;    /* of the configuration: 1 keeps the values of trajd 0.1.0 */
    const char *dataset; /* NULL with `mix:` */
    /* the feed whose windows give the statistics for `norm:`; NULL: this one */
    const char *statistics_from;
    bool is_mixture, mix_by_size;
    uint64_t epoch_windows; /* 0: one pass; of a mixture: all windows of its datasets */
    bool one_per_episode;   /* a pass has one window of each episode, drawn again */
    uint32_t member_count;  /* >= 1 */
    struct trajd_spec_member *members;
    struct trajd_select_rules select; /* which episodes */
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
    uint32_t slot_count; /* 0: not given */
    bool keep_bad_rows;  /* bad_rows: keep */
    uint32_t job_count;  /* fan_out: jobs that may share slots; 1: without fan_out */
    bool slow_leaves;    /* fan_out: slow: leave; else block */
    int64_t slow_after_ns;
    int64_t rank_timeout_ns; /* shard: how long ranks wait for a missing one; 0: no limit */
    int64_t rejoin_wait_ns;  /* queue: how long a new worker waits for those of an earlier run */
    const char *variant;     /* resample.variant: "auto" or a kernel's name */
    uint32_t output_count;
    struct trajd_spec_output outputs[TRAJD_SPEC_MAX_OUTPUTS];
};

/* Parses the mapping `node` by the rules of a version of the configuration; copies strings and
 * arrays. Caller destroys. TRAJD_ERR_ARGUMENT with line and key. */
enum trajd_status trajd_window_spec_parse(const struct trajd_yaml *yaml,
                                          const struct trajd_yaml_node *node, const char *feed_name,
                                          uint32_t version, struct trajd_window_spec **spec,
                                          struct trajd_error *error);
void trajd_window_spec_destroy(struct trajd_window_spec **spec);

/* ---- window_spec.c ---- */

/* Returns the i-th file that the feed names, as it is written: `ranges:` of its members, then
 * `norm: {stats: FILE}`. NULL: there are no more. */
const char *trajd_spec_file(const struct trajd_window_spec *spec, uint32_t i);

/* ---- window_spec_select.c ---- */

/* Reads the files of `ranges:`, relative to `folder`. As with trajd_spec_norm_load, a plan rejects
 * a specification whose files were not read. */
enum trajd_status trajd_spec_ranges_load(struct trajd_window_spec *spec, const char *folder,
                                         struct trajd_error *error);
/* Returns a digest of the content of all `ranges:` of the feed. */
uint64_t trajd_spec_ranges_digest(const struct trajd_window_spec *spec);

/* ---- window_spec_output.c ---- */

/* Returns "obs", "action", "next" or "goal". */
const char *trajd_role_name(enum trajd_role role);
/* Returns whether a batch needs the name for its ids and masks. */
bool trajd_spec_name_is_reserved(const char *name);

/* ---- window_spec_norm.c ---- */

/* Reads the files of statistics that the outputs name, relative to `folder`. Call it only for
 * specifications of the daemon's own configuration, and for files that this configuration names;
 * without it, trajd_window_plan_create rejects an output with a file. */
enum trajd_status trajd_spec_norm_load(struct trajd_window_spec *spec, const char *folder,
                                       struct trajd_error *error);
/* Removes an output's normalisation. Frees nothing. */
void trajd_spec_norm_clear(struct trajd_spec_output *output);
/* Returns "mean_std", ... */
const char *trajd_norm_name(enum trajd_norm norm);
/* Returns "positions" or "all_but_rotations". */
const char *trajd_norm_features_name(enum trajd_norm_features which);
/* Returns "rows" or "windows". */
const char *trajd_norm_over_name(enum trajd_norm_over over);

/* Parses the text of `at:`: "-1..14", "0", "-200ms..0ms @ 100". Returns NULL, or what is wrong with
 * the text. */
const char *trajd_spec_range_parse(const char *text, struct trajd_spec_range *range);

#endif
