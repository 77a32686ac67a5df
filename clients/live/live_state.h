/* The state of a struct trajd_live. Everything is sized at open and does not change afterwards,
 * except what is marked: [push] is written by pushing threads, [observe] by the observing one.
 *
 * Files, in the order of their calls, the top one first:
 *   live.c           open, close, what is pushed and observed
 *   live_observe.c   an observation: anchor, rows, request, transforms
 *   live_anchor.c    which anchor, and where the steps lie
 *   live_push.c      a row
 *   live_image.c   frames of a camera: prepared when they come, finished when they are observed
 *   live_memory.c    sizes and memory
 *   live_ring.c      the last rows of a stream */
#ifndef TRAJD_LIVE_LIVE_STATE_H
#define TRAJD_LIVE_LIVE_STATE_H

#include "clients/live/live_ring.h"
#include "clients/live/trajd_live.h"
#include "daemon/engine/bind.h"
#include "daemon/engine/document.h"

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

/* A stream that is pushed. Its rows are a clock of their own in the view, with the same number. */
struct trajd_live_input {
    const struct trajd_document_stream *stream;
    const char *name;
    uint32_t clock;
    uint32_t column_count;
    bool is_lead;                /* it is on the clock of the anchors */
    bool has_rows;               /* an output reads its rows */
    bool has_images;             /* an output shows them as frames */
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

/* The frames of an output, as its preparation and the centre of its augmentation make them. */
struct trajd_live_image {
    const struct trajd_plan_image *rules;
    uint32_t output, input;
    uint64_t frame_bytes, frame_words;
    struct trajd_image_plan *plan;           /* [push]; owned; NULL: frames stay as they are */
    struct trajd_augment_plan *augment_plan; /* [push]; owned; NULL: none */
    struct trajd_augment_params centre;
    uint8_t *swapped, *prepared,
        *cut;                 /* [push]: blue first, prepared, augmented; NULL: not needed */
    uint64_t *frames;         /* [push]: [capacity of the ring][frame_words] */
    uint8_t *frame, *padding; /* [observe]: one frame; a finished one for padded steps */
};

struct trajd_live {
    struct trajd_arena arena; /* owns everything but grids, batch and image plans */
    struct trajd_document document;
    struct trajd_plan_rules rules; /* of the document */
    int64_t history_ns, max_anchor_age_ns;
    uint32_t input_count, lead_count; /* leads: inputs on the clock of the anchors */
    struct trajd_live_clock *clocks;  /* [document.clock_count] */
    struct trajd_live_input *inputs;
    struct trajd_live_image *images; /* [rules.image_count] */
    uint64_t *size_bytes;            /* [rules.visible_count]: of each output */
    uint64_t total_bytes;            /* of an observation */
    uint32_t is_observing;           /* [observe] */
    int64_t anchor_ns;               /* [observe] */
    /* [observe]: stamps that any stream on the anchor's clock has, ascending; the anchor is the
     * last one. Stream by stream they would be wrong: one of them may have lost a row. */
    int64_t *anchors_ns;   /* [steps_back + 1], filled from the end */
    int64_t steps_back;    /* how many of them before the anchor the outputs need */
    uint64_t anchor_count; /* how many there are, with the anchor; 0: no such stream has rows */
    /* [observe]: the rows that were copied, as the engine reads them: a clock for each input, that
     * of the anchors, and one without rows */
    struct trajd_episode_clock *view_clocks;
    struct trajd_view view;
    struct trajd_clock *request_clocks;
    struct trajd_binding *batch; /* of one window */
};

/* Returns the anchor `back` anchors before the last one; back < anchor_count. */
static inline int64_t trajd_live_anchor_back(const struct trajd_live *live, int64_t back)
{
    return live->anchors_ns[live->steps_back - back];
}

/* Returns the stream's clock. */
static inline const struct trajd_live_clock *
trajd_live_clock_of(const struct trajd_live *live, const struct trajd_live_input *input)
{
    return &live->clocks[input->clock];
}

/* live_memory.c: sizes and allocates everything beside the rules. */
enum trajd_status trajd_live_allocate(struct trajd_live *live, struct trajd_error *error);
/* Returns zeroed memory of the arena whose pages are mapped: a real-time loop must not wait for one.
 * NULL with an error. */
void *trajd_live_alloc(struct trajd_live *live, uint64_t count, uint64_t size_bytes,
                       struct trajd_error *error);

/* live_image.c: allocates what images need; makes the frames of a row that has begun; writes the
 * steps and masks of an image; frees its plans. */
enum trajd_status trajd_live_image_open(struct trajd_live *live, struct trajd_live_image *image,
                                        struct trajd_error *error);
enum trajd_status trajd_live_image_take(const struct trajd_live *live, uint32_t input, uint64_t row,
                                        const void *pixels, struct trajd_error *error);
void trajd_live_image_write(const struct trajd_live *live, const struct trajd_live_image *image,
                            uint8_t *out);
void trajd_live_image_close(struct trajd_live_image *image);

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
