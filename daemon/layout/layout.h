/* A layout: how a family of HDF5 files maps to episodes, clocks and streams. Read from YAML
 * (configs/layouts/), strict. configs/layouts/template.yaml documents every key. Immutable after
 * loading; safe to share between threads. */
#ifndef TRAJD_LAYOUT_LAYOUT_H
#define TRAJD_LAYOUT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/resample.h"
#include "proto/timebase.h"
#include "proto/error.h"

enum trajd_stamp_unit { TRAJD_UNIT_NS, TRAJD_UNIT_US, TRAJD_UNIT_MS, TRAJD_UNIT_S };

/* What to do with a stamp that repeats the one before it, or goes back behind it. NaN and infinite
 * stamps are always errors. */
enum trajd_stamp_policy {
    TRAJD_STAMPS_ERROR = 0, /* the episode is quarantined, naming the row */
    TRAJD_STAMPS_DROP = 1,  /* the later row is dropped, counted */
    TRAJD_STAMPS_KEEP_LAST =
        2, /* the earlier rows with a stamp not below the later one are dropped, counted */
};

struct trajd_layout_clock {
    const char *name;
    /* regular: a rate given here, or in an attribute, or in a JSON text inside an attribute */
    struct trajd_rate rate; /* num 0: not given here */
    /* "/data@env_args", "@fs": OBJECT@NAME, object relative to the episode unless it begins with
     * '/' */
    const char *rate_attribute;
    const char *rate_json; /* "env_kwargs.control_freq" inside the attribute's text, or NULL */
    /* if the attribute is absent; num 0: then the episode is quarantined */
    struct trajd_rate rate_default;
    const char *rows; /* stream whose row count the regular clock has; NULL: its streams' largest */
    /* stamped: a dataset, or one of its columns */
    const char *stamps_path; /* NULL for a regular clock */
    uint32_t stamps_column;
    enum trajd_stamp_unit unit;
    enum trajd_stamp_policy repeated; /* policy for equal stamps */
    enum trajd_stamp_policy backward; /* policy for stamps that go back */
    /* both */
    /* scalar or 1-row dataset with the first row's time (regular clocks beside stamped ones), or
     * NULL */
    const char *start_path;
    enum trajd_stamp_unit start_unit;
    int64_t offset_ns;  /* added to every stamp: clocks of different machines */
    int64_t latency_ns; /* subtracted from every stamp: when it was sensed, not when it arrived */
};

enum trajd_rotation_order { TRAJD_ORDER_NONE, TRAJD_ORDER_XYZW, TRAJD_ORDER_WXYZ };

/* A stream, or a family of them: name and path may hold one '*' each, the same text in both
 * (robomimic: any name that ends in _quat). A dataset belongs to the first stream in file order
 * whose path matches it; a stream without '*' may share its dataset with others. */
struct trajd_layout_stream {
    const char *name;
    const char *path; /* relative to the episode's group */
    const char *clock;
    enum trajd_kind kind;  /* slerp carries its order */
    uint32_t column_begin; /* columns [begin, end) of a rank-2 dataset; end 0: all */
    uint32_t column_end;
    double angle_period; /* of kind angle: 2 pi, or 360 with unit deg */
    const char *unit;    /* free text for people, or NULL */
    int64_t max_gap_ns;  /* < 0: none */
    /* false: an episode without it is quarantined. Families are always optional */
    bool optional;
};

#define TRAJD_LAYOUT_METAS_MAX 16
#define TRAJD_LAYOUT_META_NAME_MAX 64

/* A text of an episode, like what its task is in words: an attribute or a dataset of one text, or a
 * field of the JSON in it. Objects and datasets are relative to the episode unless they begin with
 * '/'; "../" goes one group up. */
struct trajd_layout_meta {
    const char *name;
    const char *attribute; /* OBJECT@NAME, or */
    const char *path;
    const char *json; /* "a.b" inside the text, or NULL */
    bool required;    /* an episode without it is quarantined */
};

struct trajd_layout {
    const char *name;
    /* glob below the dataset's path, '**' allowed; used when that path is a folder */
    const char *files;
    /* glob of episode groups: "/", "/data/demo_*"; '*' stays within one component */
    const char *groups;
    const char *filter_path; /* "/mask/{key}": a string dataset that lists episode names, or NULL */
    uint32_t clock_count;
    const struct trajd_layout_clock *clocks;
    uint32_t stream_count;
    const struct trajd_layout_stream *streams;
    uint32_t meta_count;
    const struct trajd_layout_meta *metas;
    uint64_t hash;    /* of the normalised content: part of the cache key and of the fingerprint */
    const char *text; /* the YAML as read: what the indexing child is given */
    size_t text_length;
};

/* `name` is a path to a .yaml, or a bare name looked up in `directory`. Unknown name: lists those
 * there are. */
enum trajd_status trajd_layout_load(const char *name, const char *directory,
                                    struct trajd_layout **layout, struct trajd_error *error);
enum trajd_status trajd_layout_parse(const char *name, const char *text, size_t length,
                                     struct trajd_layout **layout, struct trajd_error *error);
void trajd_layout_destroy(struct trajd_layout **layout);

/* Matches with at most one '*' (not crossing '/'). On a match with '*', copies what it stood for
 * into capture. */
bool trajd_layout_match(const char *pattern, const char *text, char *capture, size_t capture_size);

#endif
