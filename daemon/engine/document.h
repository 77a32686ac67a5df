/* The document of a plan: its rules with the names and types of streams and clocks, so that another
 * program can make the same values from rows of its own. It has no episodes, paths or guesses that
 * are still to be resolved. `trajctl explain --plan` prints the document of a feed, and trajd.Live
 * keeps that of its observations in a file: JSON, made from msgpack by the codec's tables.
 *
 *   plan (daemon/window) -> trajd_document -> JSON -> trajd_document -> rules (clients/live)
 *
 * README.md lists the keys. Lists are borrowed by the one who made the document, or are in the
 * arena of the one who reads it. */
#ifndef TRAJD_ENGINE_DOCUMENT_H
#define TRAJD_ENGINE_DOCUMENT_H

#include "daemon/base/arena.h"
#include "daemon/base/json_read.h"
#include "daemon/engine/rules.h"

#define TRAJD_DOCUMENT_VERSION 2 /* 1 has no digest */
enum { TRAJD_DOCUMENT_RATE_SIZE = 48 };

struct trajd_document_clock {
    const char *name;
    const char *rate_text; /* "20/1"; NULL: stamped, or different between episodes */
    struct trajd_rate rate;
    int64_t interval_ns; /* mean time from row to row; 0: no episode has two rows */
    int64_t shift_ns;    /* is added to each stamp: offset minus latency */
    bool has_latency;    /* without it, the clock has no offset */
    int64_t latency_ns;
};

/* The words of a layout that turn a decoded frame upright. */
struct trajd_document_encoded {
    const char *encoding, *color, *flip;
};

struct trajd_document_stream {
    const char *name;
    uint32_t clock; /* number in the list of clocks */
    enum trajd_dtype dtype;
    uint32_t rank;
    uint64_t shape[TRAJD_RULES_MAX_RANK];   /* of a row */
    struct trajd_document_encoded *encoded; /* NULL: rows are not encoded */
};

struct trajd_document_source {
    bool has_stream; /* else its steps are MISSING */
    uint32_t stream; /* number in the list of streams */
    uint32_t columns;
    enum trajd_target_rule rule;
    enum trajd_kind kind;
    enum trajd_missing missing;
    bool is_filled;
    int64_t lookahead_ns, max_gap_ns, max_age_ns;
    uint32_t too_old_intervals;       /* 0: a stream that has ended does not grow too old */
    int64_t mean_width, sum_width_ns; /* 0: no mean, no sum */
    bool is_return, in_chunk;
    double gamma;  /* of a return */
    double period; /* of an angle */
    bool has_low;  /* of an angle: the result is wrapped into [low, low + period) */
    double low;
};

/* Columns of a chain; see struct trajd_transform_part. */
struct trajd_document_part {
    enum trajd_part_kind kind;
    bool is_relative, has_turned_by;
    uint32_t first, count, output_first, output_count, reference_first, turned_by;
    double period;
    const char *from, *to, *reference_form; /* forms of a rotation, or NULL */
};

/* A transform; see struct trajd_transform. */
struct trajd_document_chain {
    const char *id; /* that of files of statistics, for people */
    enum trajd_frame frame;
    uint32_t step; /* what a part is relative to. 0: the anchor's state, 1: the step before */
    uint32_t columns, output_columns, reference_columns;
    uint32_t part_count;
    struct trajd_document_part parts[TRAJD_TRANSFORM_MAX_PARTS];
};

struct trajd_document_image {
    struct trajd_image_preparation preparation;
    struct trajd_augment augment; /* steps that set a size; the rest changes no shape */
    struct trajd_image_finish finish;
};

struct trajd_document_output {
    const char *name;
    enum trajd_role role;
    bool is_hidden;
    enum trajd_dtype dtype;
    uint32_t rank;                        /* with the steps */
    uint64_t shape[TRAJD_RULES_MAX_RANK]; /* [T, ...] */
    const char *goal; /* of role goal: "last", "future uniform", "future geometric 0.99" */
    int64_t from;
    const char *rate_text; /* NULL: the steps are the anchors */
    struct trajd_rate rate;
    uint32_t source_count;
    struct trajd_document_source *sources;
    enum trajd_dtype row_dtype;         /* NONE: dtype */
    struct trajd_document_chain *chain; /* NULL: the rows are the output */
    bool has_state;                     /* the hidden output that the chain is relative to */
    uint32_t state;
    uint32_t norm_count; /* D, or T * D */
    float *scale, *offset;
    struct trajd_document_image *image;
};

/* An output of the feed that is not in the document. */
struct trajd_document_left_out {
    const char *name;
    enum trajd_role role;
    enum trajd_dtype dtype;
    uint32_t rank;
    uint64_t shape[TRAJD_RULES_MAX_RANK];
    const char *reason;
};

struct trajd_document {
    uint32_t version;
    const char *digest; /* of the msgpack of the document without it; NULL in version 1 */
    const char *feed, *dataset, *fingerprint, *norm_digest;
    enum trajd_edge edge;
    bool has_anchor_clock;
    uint32_t anchor_clock;
    const char *anchor_rate_text;
    struct trajd_rate anchor_rate;
    uint32_t clock_count, stream_count, left_out_count, output_count;
    struct trajd_document_clock *clocks;
    struct trajd_document_stream *streams;
    struct trajd_document_left_out *left_out;
    struct trajd_document_output *outputs; /* hidden ones last; NULL: they are not written */
    uint32_t next;                         /* of a page: the first output of the next one */
};

/* Sets version and digest. The text of the digest is copied to the arena. TRAJD_ERR_ARGUMENT: a
 * value breaks a limit, with its name. */
enum trajd_status trajd_document_seal(struct trajd_document *document, struct trajd_arena *arena,
                                      struct trajd_error *error);

/* Write the members of an open object, without outputs; and one output. False: no memory. */
bool trajd_document_write_head(const struct trajd_document *document, struct trajd_json *json);
bool trajd_document_write_output(const struct trajd_document_output *output,
                                 struct trajd_json *json);

/* Reads JSON into the arena, and checks everything that is true of each document, the digest
 * included. `name` begins the messages. TRAJD_ERR_ARGUMENT: the text is not a document, with the
 * key; TRAJD_ERR_MEMORY. */
enum trajd_status trajd_document_read(const char *name, const char *text, size_t size,
                                      struct trajd_arena *arena, struct trajd_document *document,
                                      struct trajd_error *error);

/* Writes a transform as a chain, without its id. */
void trajd_document_set_chain(const struct trajd_transform *transform,
                              struct trajd_document_chain *chain);
/* Returns "20/1" in the arena; NULL for a rate with num 0, or without memory. */
const char *trajd_document_rate_text(struct trajd_arena *arena, struct trajd_rate rate);

/* Makes rules from a document, in the arena. Each stream has a clock of its own, with the number of
 * the stream; then comes the clock of the anchors, stream_count, and one without rows. Call
 * trajd_rules_clear_grids when they are no longer needed. TRAJD_ERR_ARGUMENT or TRAJD_ERR_MEMORY.
 * The rules borrow names, scales and chains of the document. */
enum trajd_status trajd_document_make_rules(const struct trajd_document *document,
                                            struct trajd_arena *arena,
                                            struct trajd_plan_rules *rules,
                                            struct trajd_error *error);

#endif
