/* Whole files onto a regular grid: the episodes of one or several indexed inputs resampled at one
 * rate into a new file of the same layout. What `trajctl resample` and `trajctl preprocess` do.
 *
 *   options x indexes -> plan: which datasets, episodes, grids          convert_plan.c
 *   an episode with holes -> the parts between them                     convert_gaps.c
 *   plan -> skeleton: groups, attributes, datasets with room for rows   convert_output.c asks
 *     trajd-indexer (writer_*.c), the only libhdf5
 *   plan -> rows: read, resample, write, on all threads                 convert_rows.c, in segments
 *     of a few MiB; convert_backend.c, by whom
 *   finished episodes -> journal, so that a killed run can go on        convert_journal.c
 *
 * The output is OUT.partial until the last row is on the disk, without the signature that makes it
 * an HDF5 file; then it is renamed. Times are those of the inputs: an episode's grid begins where
 * the last of its streams begins and ends before the first one ends, so that no value is invented.
 * Where rows are further apart than max_gap it is cut, and each part is an episode of the output.
 */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_H
#define TRAJD_CLI_RESAMPLE_CONVERT_H

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

enum trajd_convert_phase {
    TRAJD_CONVERT_PLANNED,
    TRAJD_CONVERT_RUNNING,
    TRAJD_CONVERT_CLOSING,
    TRAJD_CONVERT_DONE
};

struct trajd_convert_progress {
    enum trajd_convert_phase phase;
    uint64_t episodes_done, episode_count; /* those of an earlier run that is resumed counted in */
    uint64_t episodes_safe;                /* which a run that is killed now would find again */
    uint64_t bytes_done, byte_count;       /* of rows written */
};

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

struct trajd_convert_report {
    uint32_t stream_count;
    const struct trajd_convert_stream *streams;
    uint64_t episode_count, byte_count; /* of the output, as planned */
    uint64_t episodes_written, episodes_left_out, episodes_resumed;
    uint64_t episodes_cut;            /* of the inputs: each has given parts of its own */
    uint64_t rows_read, rows_written; /* rows of datasets */
    uint64_t bytes_read, bytes_written;
    uint64_t steps;                     /* over all episodes */
    enum trajd_convert_backend backend; /* as chosen */
    char backend_text[256];             /* for people: "the CPU", a GPU's name, which daemon */
    /* done; those done on the CPU because they were too large for the backend */
    uint64_t segments, segments_here;
    bool fell_back;       /* the backend failed, and the CPU went on */
    uint64_t duration_ns; /* of all grids */
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

/* TRAJD_ERR_ARGUMENT: output is an input, exists without force, unknown stream, kind that does not
 * fit, rate beyond sense. NOT_FOUND: no directory, no such filter. DATA: no episode is left, or
 * rows cannot be read (the partial file is kept for resume), or an input changed while it was read.
 * IO: the disk is full (the partial file is removed), storage failed (kept). BUSY: another run is
 * at the same output. CLOSED: cancelled, or the daemon that was to do it has ended (kept).
 * NOT_FOUND, UNSUPPORTED, DEVICE: the backend is not at hand, or has failed. *report is filled as
 * far as it came; its streams are freed by trajd_convert_report_clear. Blocks. */
enum trajd_status trajd_convert_file(const struct trajd_convert_options *options,
                                     struct trajd_convert_report *report,
                                     struct trajd_error *error);
void trajd_convert_report_clear(struct trajd_convert_report *report);

/* "cpu", "auto", "cuda", "daemon". */
const char *trajd_convert_backend_name(enum trajd_convert_backend backend);

/* "linear", "previous", "nearest", "slerp", "slerp_xyzw", "slerp_wxyz", "angle", "mean";
 * TRAJD_CONVERT_NO_KIND and an error that lists them for another word. "slerp" is in the layout's
 * order where it has one, else xyzw. */
enum trajd_kind trajd_convert_kind_parse(const char *word, struct trajd_error *error);

#endif
