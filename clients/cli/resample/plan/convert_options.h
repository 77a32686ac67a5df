/* What a conversion is asked to do. */
#ifndef TRAJD_CLI_RESAMPLE_PLAN_CONVERT_OPTIONS_H
#define TRAJD_CLI_RESAMPLE_PLAN_CONVERT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/index/index.h"
#include "proto/timebase.h"
#include "proto/error.h"

#define TRAJD_CONVERT_NO_KIND TRAJD_KIND_COUNT
#define TRAJD_CONVERT_RATE_MAX 1000000 /* Hz: beyond is no recording of a robot */

enum trajd_convert_compress {
    TRAJD_CONVERT_KEEP = 0, /* deflate where the input is compressed */
    TRAJD_CONVERT_NONE = 1,
    TRAJD_CONVERT_DEFLATE = 2, /* every dataset */
};

/* Who does the arithmetic. A GPU's results are within its kernels' error of the CPU's (float32
 * streams are blended in float32 there). */
enum trajd_convert_backend {
    TRAJD_CONVERT_CPU = 0,
    /* the fastest at hand, by a rule: the GPU of the daemon that `endpoint` names, one of this
     * process, the CPU */
    TRAJD_CONVERT_AUTO = 1,
    TRAJD_CONVERT_CUDA = 2,   /* the first GPU that this process can use */
    TRAJD_CONVERT_DAEMON = 3, /* a running daemon, on its GPU if it has one */
};

#define TRAJD_CONVERT_ENDPOINT_DEFAULT "/run/trajd/main"

/* What the caller wants of streams beside what the layout says. Later rules win. */
struct trajd_convert_rule {
    const char *stream;   /* a name, or a pattern with one '*' (not crossing '/'); NULL: all */
    enum trajd_kind kind; /* TRAJD_CONVERT_NO_KIND: no wish */
    bool layout_order;    /* of kind slerp: the layout's order where it has one */
    /* NONE: no wish. f16, f32 or f64; touches floating-point streams alone when stream is NULL */
    enum trajd_dtype dtype;
    int64_t window_ns; /* of kind mean; 0: no wish, one step of the grid by default */
    /* an episode is cut where two rows are further apart; 0: no wish, the layout's by default */
    int64_t max_gap_ns;
};

struct trajd_convert_report;   /* convert.h */
struct trajd_convert_progress; /* convert.h */

/* How one stream is made; text for people and for the file's attribute. */
struct trajd_convert_stream {
    const char *name;
    const char *clock;
    enum trajd_kind kind;
    enum trajd_dtype from, to;
    uint64_t feature_count;
    uint64_t row_bytes; /* of the output's rows */
    int64_t window_ns;  /* of kind mean */
    uint64_t nan_steps; /* steps whose source is NaN, and so is the value */
    bool is_compressed;
};

struct trajd_convert_options {
    /* [index_count], of equal streams; must stay as they are during the call */
    const struct trajd_index *const *indexes;
    uint32_t index_count;
    const char *output;      /* NULL with dry_run: the plan alone */
    const char *helper_path; /* the trajd-indexer that makes the file's structure */
    struct trajd_rate rate;
    const char *const *streams; /* names or patterns; stream_count 0: all */
    uint32_t stream_count;
    const struct trajd_convert_rule *rules;
    uint32_t rule_count;
    /* ids, patterns with '*', or numbers and ranges like 0..9 of the ids' last number;
     * episode_count 0: all */
    const char *const *episodes;
    uint32_t episode_count;
    const char *filter; /* a mask key, or NULL */
    enum trajd_convert_compress compress;
    uint32_t compress_level; /* of deflate, 1..12; 0: 4 */
    uint32_t thread_count;   /* 0: one per processor */
    enum trajd_convert_backend backend;
    /* a daemon's directory; NULL: none is named, and TRAJD_CONVERT_DAEMON takes the default one */
    const char *endpoint;
    bool dry_run, force, resume;
    /* NULL, or set (atomically) from elsewhere: the run ends soon with TRAJD_ERR_CLOSED and keeps
     * the partial file */
    const bool *cancel;

    /* All called in the thread that called trajd_convert_file. Each may be NULL. */
    /* what could not be carried over or was left out, a line each */
    void (*on_note)(void *context, const char *text);
    /* before anything is written */
    void (*on_plan)(void *context, const struct trajd_convert_report *plan);
    /* four times a second at most, and at each phase */
    void (*on_progress)(void *context, const struct trajd_convert_progress *progress);
    void *context;
};

/* "cpu", "auto", "cuda", "daemon". */
const char *trajd_convert_backend_name(enum trajd_convert_backend backend);

/* "linear", "previous", "nearest", "slerp", "slerp_xyzw", "slerp_wxyz", "angle", "mean";
 * TRAJD_CONVERT_NO_KIND and an error that lists them for another word. "slerp" is in the layout's
 * order where it has one, else xyzw. */
enum trajd_kind trajd_convert_kind_parse(const char *word, struct trajd_error *error);

/* Passes a line of text to options->on_note. */
void convert_note(const struct trajd_convert_options *options, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
