/* The state of a struct trajd_live. Everything is sized at open and does not change afterwards,
 * except what is marked: [push] is written by pushing threads, [observe] by the observing one.
 *
 * Files, in the order of their calls, the top one first:
 *   live.c           open, close, what is pushed and observed
 *   live_observe.c   an observation: anchor, rows, request, transforms
 *   live_anchor.c    which anchor, and where the steps lie
 *   live_push.c      a row
 *   live_picture.c   frames of a camera: prepared when they come, finished when they are observed
 *   live_memory.c    sizes and memory
 *   live_read.c, live_read_output.c, live_read_chain.c, live_read_picture.c, live_reader.c
 *                    the description
 *   live_ring.c      the last rows of a stream */
#ifndef TRAJD_LIVE_LIVE_STATE_H
#define TRAJD_LIVE_LIVE_STATE_H

#include "clients/live/live_ring.h"
#include "clients/live/trajd_live.h"
#include "daemon/base/arena.h"
#include "daemon/base/yaml.h"
#include "kernels/image/augment/augment.h"
#include "kernels/image/image_finish.h"
#include "kernels/resample.h"
#include "kernels/transform/transform.h"

#define TRAJD_LIVE_MAX_CLOCKS 257u
#define TRAJD_LIVE_MAX_INPUTS 257u
#define TRAJD_LIVE_MAX_OUTPUTS 64u
#define TRAJD_LIVE_MAX_SOURCES 32u
#define TRAJD_LIVE_MAX_STEPS 65536u
#define TRAJD_LIVE_FAR_NS (INT64_C(1) << 61) /* no stamp is beyond */

struct trajd_live_clock {
    const char *name;
    struct trajd_rate rate; /* num 0: stamped, or different between episodes */
    int64_t interval_ns;    /* without two rows in an episode a second is assumed */
    bool has_interval;      /* it is of the recordings */
    int64_t shift_ns;       /* is added to each stamp: offset minus latency */
    int64_t latency_ns;     /* how long after it was sensed a row comes */
    int64_t max_idle_ns; /* where the anchor is t_ns and no stream with rows is faster: how old the
                          * newest row of all streams may be */
};

/* A stream that is pushed. */
struct trajd_live_input {
    const char *name;
    uint32_t clock;
    enum trajd_dtype dtype;
    uint32_t rank;
    uint64_t shape[TRAJD_LIVE_MAX_RANK];
    uint32_t column_count;
    bool is_lead;                /* it is on the clock of the anchors */
    bool has_rows;               /* an output reads its rows */
    bool has_pictures;           /* an output shows them as frames */
    bool may_lack;               /* `missing: zero` in all its outputs: it need not come at all */
    int64_t span_ns;             /* how far before the anchor the outputs read */
    int64_t span_rows;           /* and how many rows, by steps that are rows */
    struct trajd_live_ring ring; /* [push] */
    uint32_t is_pushing;         /* [push] */
    uint64_t late, repeated, busy, off_rate; /* [push] */
    int64_t off_rate_ns;                     /* [push] */
    /* [observe]: rows of the ring, and copies of [first, first + count) */
    struct trajd_live_rows seen;
    uint64_t anchor_row, earlier_row; /* of a lead */
    uint64_t first, count;
    int64_t *stamps_ns;
    uint64_t *rows;
};

enum trajd_live_rule { TRAJD_LIVE_ROWS, TRAJD_LIVE_ANCHORS, TRAJD_LIVE_TIMES };

/* One stream of one output. Its struct trajd_stream has the same number in the request. */
struct trajd_live_source {
    int32_t input; /* -1: the dataset has no such stream */
    uint32_t output;
    enum trajd_live_rule rule;
    int64_t lookahead_ns;
    bool may_lack;
    /* [observe]: rows of the ring that it sees are before `end` */
    uint64_t end;
    int64_t row_begin, row_count, anchor; /* the arrays of its bracket */
    const void *base;
};

/* The frames of an output, as its preparation and the centre of its augmentation make them. */
struct trajd_live_picture {
    uint32_t output, input;
    struct trajd_image_preparation preparation;
    struct trajd_augment
        augment; /* steps that set a size; all others change nothing at the centre */
    struct trajd_image_finish finish;
    uint64_t frame_bytes, frame_words;
    struct trajd_image_plan *plan;           /* [push]; owned; NULL: frames stay as they are */
    struct trajd_augment_plan *augment_plan; /* [push]; owned; NULL: none */
    struct trajd_augment_params centre;
    uint8_t *swapped, *prepared,
        *cut;                 /* [push]: blue first, prepared, augmented; NULL: not needed */
    uint64_t *frames;         /* [push]: [capacity of the ring][frame_words] */
    uint8_t *frame, *padding; /* [observe]: one frame; a finished one for padded steps */
};

struct trajd_live_target {
    const char *name;
    bool is_hidden; /* the state that another output is relative to */
    enum trajd_dtype dtype, row_dtype;
    uint32_t rank;
    uint64_t shape[TRAJD_LIVE_MAX_RANK];
    uint32_t step_count, column_count, row_column_count;
    int64_t from;
    struct trajd_rate rate; /* num 0: the steps are the anchors, at their stamps */
    uint32_t first_source, source_count;
    bool is_picture;
    struct trajd_transform *transform; /* NULL: the rows are the output */
    uint32_t state;                    /* number of a hidden output, of a relative transform */
    uint32_t norm_steps;               /* with a scale of their own: 1 or step_count */
    float *scale, *offset;
    int64_t *step_ns, *row_offsets; /* [T] */
    uint64_t *step_fraction;        /* [T]; see daemon/window/window_plan.h */
    int64_t *offsets_ns;            /* [T] [observe] */
    uint8_t *rows, *row_mask;       /* [observe]: rows that are not part of the observation */
    uint64_t offset_bytes, mask_offset_bytes, size_bytes;
};

struct trajd_live {
    struct trajd_yaml *yaml;  /* owns the names */
    struct trajd_arena arena; /* owns everything else */
    enum trajd_edge edge;
    int64_t anchor_clock; /* -1: none */
    struct trajd_rate anchor_rate;
    int64_t history_ns, max_anchor_age_ns;
    uint32_t clock_count, input_count, output_count, source_count, visible_count;
    uint32_t row_source_count, picture_count; /* pictures have the last sources, one each */
    uint32_t lead_count;                      /* inputs on the clock of the anchors */
    struct trajd_live_clock *clocks;
    struct trajd_live_input *inputs;
    struct trajd_live_target *outputs;
    struct trajd_live_source *sources;
    struct trajd_live_picture *pictures;
    uint64_t size_bytes;
    uint32_t is_observing; /* [observe] */
    int64_t anchor_ns;     /* [observe] */
    /* [observe]: stamps that any stream on the anchor's clock has, from the anchor backwards. Stream
     * by stream they would be wrong: one of them may have lost a row. */
    int64_t *anchors_ns;
    int64_t steps_back;    /* how many of them before the anchor the outputs need */
    uint64_t anchor_count; /* how many there are, with the anchor; 0: no such stream has rows */
    struct trajd_clock *request_clocks;     /* one for each input, and one without rows */
    struct trajd_grid *request_grids;       /* two for each output: in ns, in rows */
    struct trajd_bracket *request_brackets; /* one for each source */
    struct trajd_stream *request_streams;   /* one for each source */
    struct trajd_resample_request request;
};

/* live_read.c: fills everything that the description has. The arena's limit must be set. */
enum trajd_status trajd_live_read(struct trajd_live *live, struct trajd_error *error);
/* live_memory.c: sizes and allocates the rest. */
enum trajd_status trajd_live_allocate(struct trajd_live *live, struct trajd_error *error);

/* live_picture.c: allocates what pictures need; makes the frames of a row that has begun; writes the
 * steps and masks of a picture; frees its plans. */
enum trajd_status trajd_live_picture_open(struct trajd_live *live,
                                          struct trajd_live_picture *picture,
                                          struct trajd_error *error);
enum trajd_status trajd_live_picture_take(const struct trajd_live *live, uint32_t input,
                                          uint64_t row, const void *pixels,
                                          struct trajd_error *error);
void trajd_live_picture_write(const struct trajd_live *live,
                              const struct trajd_live_picture *picture, uint8_t *out);
void trajd_live_picture_close(struct trajd_live_picture *picture);

/* live_anchor.c: finds the anchor of t_ns, and the steps of all outputs. */
enum trajd_status trajd_live_find_anchor(struct trajd_live *live, int64_t t_ns,
                                         struct trajd_error *error);
enum trajd_status trajd_live_place_steps(struct trajd_live *live, struct trajd_error *error);
/* Sets the error of an observation before which an input has no row. */
enum trajd_status trajd_live_not_yet(const struct trajd_live_input *input, int64_t t_ns,
                                     struct trajd_error *error);
/* Sets the error of an observation for which rows of an input are no longer kept. */
enum trajd_status trajd_live_too_far(const struct trajd_live *live,
                                     const struct trajd_live_input *input,
                                     struct trajd_error *error);

#endif
