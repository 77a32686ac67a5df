/* Inside the frames: views, their slots, and the queues of the workers. frames_slot.c is at the
 * bottom; frames_worker.c (threads) uses it; frames.c makes and destroys.
 * The caller of every function here holds trajd_frames.lock unless the function says otherwise. */
#ifndef TRAJD_CACHE_FRAMES_INTERNAL_H
#define TRAJD_CACHE_FRAMES_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

#include "daemon/base/heartbeat.h"
#include "daemon/cache/frames.h"
#include "daemon/index/rows/packed_video.h"

#define TURNING_ALL 16u /* parts of the slots of a view */

enum frame_state { FRAME_FREE, FRAME_QUEUED, FRAME_LOADING, FRAME_READY, FRAME_BAD, FRAME_FAILED };
enum frame_queue { FRAME_QUEUE_DEMAND, FRAME_QUEUE_AHEAD, FRAME_QUEUE_COUNT };

/* Memory for one frame. */
struct frame_slot {
    struct trajd_frame_view *view;
    uint8_t *pixels;
    char *reason;                /* while bad or failed */
    struct frame_slot *next;     /* of the free list, of a queue, or of the extra frames */
    struct frame_slot **link;    /* in a list but the free one: what points to this slot */
    uint32_t episode_index, row; /* while not free */
    uint32_t pins;
    uint64_t wanted; /* the view's tick at which the last hint is due; 0: none since the last pin */
    enum trajd_status failure;
    uint8_t state, queue;
    bool is_extra; /* decoded beside others of its unit, and not asked for yet */
};

/* Slots that were allocated together. */
struct frame_block {
    uint8_t *pixels;
    uint32_t slot_count;
    struct frame_slot slots[];
};

struct frame_list {
    struct frame_slot *first, **last;
    uint32_t count;
};

struct trajd_frame_view {
    struct trajd_frames *frames;
    struct trajd_frame_view *next;
    uint32_t users;
    uint32_t stream_index;
    struct trajd_decoder_options decoder; /* without its program */
    struct trajd_image_preparation preparation;
    bool is_direct;       /* the rows in the files are the frames: nothing is to be done */
    uint64_t frame_bytes; /* of a slot, a multiple of 64 */
    uint32_t block_slots;
    uint32_t block_count;
    struct frame_block **blocks;
    struct frame_slot *free_slots;
    struct frame_list extras; /* the oldest first */
    bool is_ordered;          /* windows come in order, or in blocks */
    bool keeps_units;         /* ordered, and frames are read in units: of a video, or of rows */
    uint32_t loading_count;
    uint32_t turning;          /* of TURNING_ALL parts of the slots, whose frames take turns */
    uint64_t hand;             /* where the search for a frame to evict goes on */
    uint64_t tick;             /* calls of pin */
    struct frame_slot ***rows; /* [episode_count] of [rows], NULL until an episode is used */
};

struct trajd_frames {
    const struct trajd_index *index;
    struct trajd_cache *cache;
    struct trajd_decoder_pool *decoders;
    pthread_mutex_t lock;
    pthread_cond_t work; /* a queue has a frame */
    pthread_cond_t done; /* a frame is no longer loading */
    bool stopping;
    struct trajd_frame_view *views;
    struct frame_list queues[FRAME_QUEUE_COUNT];
    uint32_t decoder_count, worker_room, worker_count; /* worker_count: started */
    int64_t read_ns;                                   /* what a read of the last job took */
    /* [filesystems of the cache]: workers that read from it, and the most that may */
    uint32_t *readers, readers_most;
    /* decode units of videos that workers hold, up to 64 MiB each, and the most of them */
    uint32_t unit_count, units_most;
    pthread_t *workers;
    struct trajd_heartbeat *heartbeats; /* [worker_room] */
    struct trajd_frames_stats stats;
};

/* ---- frames_slot.c ---- */

/* Return the file of a slot's frame, its array, and its row in the file. They need no lock. */
uint32_t frames_file(const struct frame_slot *slot);
const struct trajd_array *frames_array(const struct frame_slot *slot);
uint64_t frames_file_row(const struct trajd_frame_view *view, uint32_t episode_index, uint32_t row);
/* Returns how many rows of an episode a view may use: those that its clock keeps. Needs no lock. */
uint32_t frames_row_count(const struct trajd_frame_view *view, uint32_t episode_index);

/* Returns the slot of a frame, or NULL. *place: where the view's table has it; NULL: no memory, or
 * there is no such row. */
struct frame_slot *frames_find(struct trajd_frame_view *view, uint32_t episode_index, uint32_t row,
                               struct frame_slot ***place);
/* Who needs a slot. A hint keeps the frames that other hints wait for. An extra frame evicts none,
 * unless the view keeps units: its unit is needed again soon. */
enum frame_need { FRAME_NEED_PIN, FRAME_NEED_HINT, FRAME_NEED_EXTRA };

/* Returns a slot for a frame that has none, from the free ones, from more memory, or from an
 * evicted frame. NULL: there is no room. */
struct frame_slot *frames_take_slot(struct trajd_frame_view *view, enum frame_need need);
/* Lets all hints expire. */
void frames_forget(struct trajd_frame_view *view);
/* Takes a frame from its slot, which becomes free. It is neither pinned nor loading. */
void frames_drop(struct frame_slot *slot);
bool frames_add_block(struct trajd_frame_view *view);
/* Lets all slots of an ordered view take turns, so that they hold the units that are in use. */
void frames_keep_units(struct trajd_frame_view *view);
/* Takes unused memory from other views, so that this one can have a block. Each keeps its first
 * block. Returns false where they have too little. */
bool frames_take_back(struct trajd_frame_view *view);
/* Frees a view that has left the list of views, with its frames. Called without the lock. */
void frames_free_view(struct trajd_frame_view *view);
void frames_enqueue(struct frame_slot *slot, enum frame_queue queue);
/* Takes a queued slot out of its queue. */
void frames_dequeue(struct frame_slot *slot);
/* Lists a frame that nobody has asked for; it is the first to be evicted. */
void frames_add_extra(struct frame_slot *slot);

/* ---- frames_unit.c: frames that are read together ---- */

#define FRAMES_JOB 32 /* images that a worker makes together, at most */

/* The bytes of a frame, as they are in the file. */
struct frame_bytes {
    uint8_t *data;
    uint64_t size, room;
};

/* A thread, and the frames that it makes together: of a video, those of one decode unit. */
struct frames_worker {
    struct trajd_frames *frames;
    struct trajd_heartbeat *heartbeat;
    struct trajd_array_reader *rows;
    struct trajd_encoded_reader *encoded;
    struct trajd_video_reader *video;
    uint32_t slot_count, slot_room;
    bool are_neighbours; /* images that lie side by side are read in one call */
    uint32_t read_count; /* calls for the job */
    /* [slot_room] */
    struct frame_slot **slots;
    struct frame_bytes *bytes;
    struct trajd_decoder_frame *requests;
    struct trajd_error *errors;
    enum trajd_status *statuses;
    struct trajd_unit_bytes unit; /* of a video; borrowed from its reader */
    uint64_t unit_bytes, read_bytes;
};

/* Makes room for the frames of a job. Needs no lock. */
enum trajd_status frames_reserve(struct frames_worker *worker, uint32_t count,
                                 struct trajd_error *error);

/* Adds the frames to a job of one frame that are read with it from slow storage: about 1 MiB of rows
 * beside it, those that are queued, and extra ones where there is room. */
void frames_add_neighbours(struct frames_worker *worker);

/* Reads the packets for the frames of a video: of the unit of the worker's first slot. First adds
 * further frames of that unit to the job: those that are queued, and extra ones where there is
 * room, because a unit is decoded as a whole. `fd`: of the file. Takes the lock meanwhile. */
enum trajd_status frames_read_unit(struct frames_worker *worker, int fd, struct trajd_error *error);

/* ---- frames_worker.c ---- */

enum trajd_status frames_start_workers(struct trajd_frames *frames, struct trajd_error *error);

#endif
