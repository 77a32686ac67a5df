/* The options of a conversion. */
#ifndef TRAJD_CLI_RESAMPLE_PLAN_CONVERT_OPTIONS_H
#define TRAJD_CLI_RESAMPLE_PLAN_CONVERT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/index/index.h"
#include "proto/timebase.h"
#include "proto/error.h"

#define TRAJD_CONVERT_NO_KIND TRAJD_KIND_COUNT
#define TRAJD_CONVERT_RATE_MAX 1000000 /* in Hz; no robot is recorded faster */

enum trajd_convert_compress {
    TRAJD_CONVERT_KEEP = 0, /* deflate datasets that are compressed in the input */
    TRAJD_CONVERT_NONE = 1,
    TRAJD_CONVERT_DEFLATE = 2, /* deflate every dataset */
};

/* The device that does the arithmetic. A GPU's results differ from the CPU's within the error of
 * its kernels: it interpolates float32 streams in float32. */
enum trajd_convert_backend {
    TRAJD_CONVERT_CPU = 0,
    TRAJD_CONVERT_AUTO = 1,   /* the CPU: a word of earlier versions, which chose by a rule */
    TRAJD_CONVERT_CUDA = 2,   /* the first GPU that this process can use */
    TRAJD_CONVERT_DAEMON = 3, /* a running daemon, on its GPU if it has one */
};

#define TRAJD_CONVERT_ENDPOINT_DEFAULT "/run/trajd/main"

/* Changes how streams are converted. The layout gives the defaults, and later rules override
 * earlier ones. */
struct trajd_convert_rule {
    /* a name, or a pattern with one '*' that does not match '/'; NULL: all streams */
    const char *stream;
    enum trajd_kind kind; /* TRAJD_CONVERT_NO_KIND: unchanged */
    bool layout_order;    /* for kind slerp: use the layout's quaternion order if it has one */
    /* NONE: unchanged. Otherwise f16, f32 or f64. If stream is NULL, it applies only to
     * floating-point streams. */
    enum trajd_dtype dtype;
    int64_t window_ns; /* for kind mean; 0: unchanged, one step of the grid by default */
    /* An episode is split where two rows are further apart. 0: unchanged, the layout's value by
     * default. */
    int64_t max_gap_ns;
};

struct trajd_convert_report;   /* in convert.h */
struct trajd_convert_progress; /* in convert.h */

/* How one stream is made. Used for messages and for the output's attribute. */
struct trajd_convert_stream {
    const struct trajd_index_stream *source; /* of the first input */
    const char *clock;
    struct trajd_index_rates rates; /* of the clock, in all inputs */
    enum trajd_kind kind;
    bool adds; /* semantics: delta: a step is the sum of its rows; kind is previous */
    enum trajd_dtype to;
    double angle_period;
    int64_t window_ns;  /* for kind mean */
    int64_t max_gap_ns; /* <= 0: none */
    uint64_t nan_steps; /* steps that are masked NAN */
    bool is_compressed;
    bool is_taken;           /* chosen, or in a dataset with one that is */
    bool has_kind, has_type; /* a rule sets `kind`, `to` */
};

struct trajd_convert_options {
    /* [index_count], with equal streams; borrowed, and constant during the call */
    const struct trajd_index *const *indexes;
    uint32_t index_count;
    const char *output;      /* may be NULL with dry_run */
    const char *output_name; /* of the output in messages; NULL: its path */
    const char *helper_path; /* path of trajd-indexer, which makes the structure of the output */
    struct trajd_rate rate;
    bool accepts_assumed_rates; /* else a clock whose rate is assumed is refused */
    const char *const *streams; /* names or patterns; stream_count 0: all streams */
    uint32_t stream_count;
    const struct trajd_convert_rule *rules;
    uint32_t rule_count;
    /* Ids, patterns with '*', or numbers and ranges like 0..9 that are compared with the last
     * number of the id. episode_count 0: all episodes. */
    const char *const *episodes;
    uint32_t episode_count;
    const char *filter; /* a mask key, or NULL */
    enum trajd_convert_compress compress;
    uint32_t compress_level; /* of deflate, 1 to 12; 0: 4 */
    uint32_t thread_count;   /* 0: one per processor */
    enum trajd_convert_backend backend;
    /* directory of a daemon; NULL: none is named, and TRAJD_CONVERT_DAEMON uses the default */
    const char *endpoint;
    bool dry_run, force;
    /* NULL, or a flag that another thread or a signal handler sets atomically. The run then ends
     * soon with TRAJD_ERR_CLOSED, and its output is removed. */
    const bool *cancel;

    /* The callbacks run in the thread that called trajd_convert_file. Each may be NULL. */
    /* a line about something that was left out or changed */
    void (*on_note)(void *context, const char *text);
    /* called before anything is written */
    void (*on_plan)(void *context, const struct trajd_convert_report *plan);
    /* called at most four times a second, and at each phase */
    void (*on_progress)(void *context, const struct trajd_convert_progress *progress);
    void *context;
};

/* Returns "cpu", "auto", "cuda" or "daemon". */
const char *trajd_convert_backend_name(enum trajd_convert_backend backend);

/* Returns the name of a stream's kind; "sum" if its rows are added. */
const char *trajd_convert_kind_name(const struct trajd_convert_stream *stream);
/* Sets the rule's kind: "linear", "previous", "nearest", "slerp", "slerp_xyzw", "slerp_wxyz", "angle"
 * or "mean". "slerp" uses the layout's quaternion order if it has one, else xyzw. TRAJD_ERR_ARGUMENT
 * lists the names. */
enum trajd_status trajd_convert_rule_set_kind(struct trajd_convert_rule *rule, const char *word,
                                              struct trajd_error *error);

/* Passes a line of text to options->on_note. */
void convert_note(const struct trajd_convert_options *options, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
