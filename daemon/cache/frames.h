/* Prepared frames in memory. A prepared frame is an image of a file, decoded, cropped, resized and
 * padded. It depends on no window, so it is made once and shared by all windows and feeds.
 *
 * A view is one stream with one preparation. Feeds that ask for the same share a view and its
 * frames. Frames are made one by one on demand: worker threads read their bytes, and helper
 * programs (daemon/decode) decode them. Frames of a video are made by the decode unit: all that
 * wait, and the others too where there is room.
 *
 *   absent --want or pin--> queued --a worker--> ready, or bad (with a reason)
 *
 * The memory is taken from the row cache's budget as it is needed. When no more can be had, the
 * first frames of a view stay, and a sixteenth to a quarter takes turns: in shuffled order, that
 * saves more decoding than to replace the frame used longest ago.
 *
 * All functions but create and destroy are thread-safe. */
#ifndef TRAJD_CACHE_FRAMES_H
#define TRAJD_CACHE_FRAMES_H

#include <stdint.h>

#include "daemon/cache/cache.h"
#include "daemon/decode/decoder_pool.h"
#include "kernels/image/image.h"

struct trajd_frames;
struct trajd_frame_view;

struct trajd_frames_options {
    const struct trajd_index *index; /* borrowed, as is the cache; both must outlive the frames */
    struct trajd_cache *cache;
    struct trajd_decoder_pool *decoders; /* borrowed, like the index */
    /* threads, >= 1; with several filesystems twice as many, of which half read from one */
    uint32_t worker_count;
    uint32_t decoder_count; /* of these, how many suffice on storage without a latency, >= 1 */
};

struct frame_slot;

/* A frame that a batch uses. */
struct trajd_frame_use {
    uint32_t episode_index;
    uint32_t row; /* of the stream, after the stamp policies */
    /* Set by pin, and valid until unpin. */
    const void *pixels; /* a prepared frame; NULL: there is none */
    /* Why there is none. TRAJD_ERR_DATA: the frame is bad; TRAJD_ERR_NOT_FOUND: it is all
     * zeros, which the layout masks; TRAJD_ERR_IO: the file could not be read,
     * and the next pin tries again; TRAJD_ERR_SYSTEM: no helper program starts */
    enum trajd_status status;
    const char *reason;      /* with file, array, row and rule; NULL with pixels */
    struct frame_slot *slot; /* for trajd_frames_unpin */
};

struct trajd_frames_stats {
    uint64_t resident_bytes; /* memory of frames, taken from the row cache's budget */
    /* made by a helper program, good or bad; of videos also those that others need before them */
    uint64_t decoded_frames;
    uint64_t direct_frames; /* taken as they are in the file, good or bad */
    uint64_t read_bytes;    /* of frames in the files, from the page cache or the disk */
    uint64_t bad_frames;
    uint64_t used_frames; /* pinned; what is more than the first two was reused */
    uint64_t evicted_frames;
    uint64_t decode_ns; /* time of the workers in reading and decoding */
};

enum trajd_status trajd_frames_create(const struct trajd_frames_options *options,
                                      struct trajd_frames **frames, struct trajd_error *error);
/* Joins the workers and frees everything. No view may be open. */
void trajd_frames_destroy(struct trajd_frames **frames);

/* Opens the view of a stream, or shares an open one. The caller closes it. The first view starts
 * the workers. is_ordered: windows come in order or in blocks, so frames that lie side by side, such
 * as those of a video's decode unit, are needed at about the same time, and take the place of frames
 * used longer ago.
 * TRAJD_ERR_ARGUMENT: the preparation is wrong. TRAJD_ERR_MEMORY: the budget has no room for
 * least_frames frames. */
enum trajd_status trajd_frames_open_view(struct trajd_frames *frames, uint32_t stream_index,
                                         const struct trajd_image_preparation *preparation,
                                         uint32_t least_frames, bool is_ordered,
                                         struct trajd_frame_view **view, struct trajd_error *error);
/* No frame may be pinned by this caller. Frees the frames with the view's last user. */
void trajd_frames_close_view(struct trajd_frame_view **view);

/* Asks for frames that will be pinned soon. Never blocks. A hint: nothing is guaranteed. `pins`: how
 * many calls of pin by this user may come before theirs; 0: they are pinned next, and are made before
 * others. Returns false where there was no room for all of them. */
bool trajd_frames_want(struct trajd_frame_view *view, const struct trajd_frame_use *uses,
                       uint32_t count, uint64_t pins);
/* Forgets what was asked for: another run begins. The frames may be evicted. */
void trajd_frames_forget(struct trajd_frame_view *view);
/* Makes the frames and keeps them until unpin. Blocks until each is ready, or cannot be made. A use
 * may come several times. TRAJD_ERR_MEMORY: there is no room for all of them at present;
 * TRAJD_ERR_CLOSED: the calling thread was cancelled. Nothing is pinned then. */
enum trajd_status trajd_frames_pin(struct trajd_frame_view *view, struct trajd_frame_use *uses,
                                   uint32_t count, struct trajd_error *error);
void trajd_frames_unpin(struct trajd_frame_view *view, const struct trajd_frame_use *uses,
                        uint32_t count);

/* Returns the mount of which a read of frames has not returned for limit_ns, or NULL. */
const char *trajd_frames_find_hung(const struct trajd_frames *frames, int64_t now_ns,
                                   int64_t limit_ns);
void trajd_frames_get_stats(struct trajd_frames *frames, struct trajd_frames_stats *stats);

#endif
