/* Makes and destroys the store of prepared frames, and its views. */
#include "daemon/cache/frames.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/heartbeat.h"
#include "daemon/cache/frames_internal.h"

/* As large as several huge pages: with pages of 4 KiB a new frame of 640x480 takes 270 us
 * longer. */
#define BLOCK_BYTES (UINT64_C(32) << 20)
/* The minimum number of blocks of a budget, unless frames are larger: the first blocks of 44 views
 * fit into half of it. */
#define BLOCKS_MIN 64
#define FRAME_ALIGNMENT 64u
#define TIMEOUT_MS 20000 /* of a helper program, for one job */

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for prepared frames");
}

enum trajd_status trajd_frames_create(const struct trajd_frames_options *options,
                                      struct trajd_frames **frames, struct trajd_error *error)
{
    struct trajd_frames *made = calloc(1, sizeof *made);
    uint32_t filesystems, share;

    *frames = made;
    if (!made)
        return no_memory(error);
    made->index = options->index;
    made->cache = options->cache;
    filesystems = trajd_cache_filesystem_count(options->cache);
    share = filesystems < 2 ? 1 : 2;
    made->worker_room = options->worker_count * share;
    made->decoder_count = options->decoder_count;
    made->units_most = options->decoder_count * share;
    made->readers_most = options->worker_count; /* a dead mount leaves as many threads to others */
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->work, NULL);
    trajd_heartbeat_init_condition(&made->done);
    for (int q = 0; q < FRAME_QUEUE_COUNT; q++)
        made->queues[q].last = &made->queues[q].first;
    made->decoders = options->decoders;
    made->workers = calloc(made->worker_room, sizeof *made->workers);
    made->heartbeats = calloc(made->worker_room, sizeof *made->heartbeats);
    made->readers = calloc(filesystems + 1, sizeof *made->readers);
    if (made->workers && made->heartbeats && made->readers)
        return TRAJD_OK;
    trajd_frames_destroy(frames);
    return no_memory(error);
}

void trajd_frames_destroy(struct trajd_frames **frames)
{
    struct trajd_frames *made = *frames;

    *frames = NULL;
    if (!made)
        return;
    pthread_mutex_lock(&made->lock);
    made->stopping = true;
    pthread_cond_broadcast(&made->work);
    pthread_mutex_unlock(&made->lock);
    trajd_heartbeat_wait(); /* joining waits for reads under way */
    for (uint32_t i = 0; i < made->worker_count; i++)
        pthread_join(made->workers[i], NULL);
    trajd_heartbeat_resume();
    pthread_cond_destroy(&made->done);
    pthread_cond_destroy(&made->work);
    pthread_mutex_destroy(&made->lock);
    free(made->readers);
    free(made->heartbeats);
    free(made->workers);
    free(made);
}

/* ---- views ---- */

static uint64_t largest_frame(const struct trajd_index_stream *stream,
                              const struct trajd_image_preparation *preparation)
{
    const uint64_t pixels = trajd_image_source_bytes(preparation);

    return stream->form == TRAJD_ROWS_PLAIN ? pixels : pixels + TRAJD_DECODER_HEADER_BYTES;
}

/* Returns the bytes of the largest decode unit of a stream of videos; 0 for images. */
static uint64_t largest_unit(const struct trajd_index *index,
                             const struct trajd_index_stream *stream)
{
    uint64_t largest = 0;

    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_array *array =
            index->episodes[e].quarantine ? NULL : &index->episodes[e].extents[stream->array_index];
        const uint64_t room =
            array && array->form == TRAJD_ROWS_VIDEO ? trajd_video_unit_room(array->video) : 0;
        largest = room > largest ? room : largest;
    }
    return largest;
}

/* Returns whether the rows in the files are the frames of the view: raw pixels that are upright,
 * with red first, and of which the whole is wanted. */
static bool is_direct(const struct trajd_frame_view *view, enum trajd_row_form form)
{
    const struct trajd_layout_image *image = &view->decoder.image;
    const struct trajd_image_preparation *p = &view->preparation;

    return (form == TRAJD_ROWS_PLAIN || form == TRAJD_ROWS_PACKED) &&
           image->encoding == TRAJD_ENCODING_RAW && image->color != TRAJD_COLOR_BGR &&
           image->flip == TRAJD_FLIP_NONE && trajd_image_is_whole(p);
}

/* Returns how many frames are allocated together: few, where the budget is small. */
static uint32_t block_slots(const struct trajd_frames *frames, uint64_t frame_bytes)
{
    struct trajd_cache_stats stats;
    uint64_t bytes;

    trajd_cache_get_stats(frames->cache, &stats);
    bytes = stats.budget_bytes / BLOCKS_MIN < BLOCK_BYTES ? stats.budget_bytes / BLOCKS_MIN
                                                          : BLOCK_BYTES;
    return bytes > frame_bytes ? (uint32_t)(bytes / frame_bytes) : 1;
}

static struct trajd_frame_view *make_view(struct trajd_frames *frames, uint32_t stream_index,
                                          const struct trajd_image_preparation *preparation)
{
    const struct trajd_index_stream *stream = &frames->index->streams[stream_index];
    const uint64_t bytes = trajd_image_bytes(preparation);
    struct trajd_frame_view *view = calloc(1, sizeof *view);

    if (!view)
        return NULL;
    view->frames = frames;
    view->stream_index = stream_index;
    view->preparation = *preparation;
    view->decoder.image = stream->image;
    view->decoder.image.height = preparation->source_height;
    view->decoder.image.width = preparation->source_width;
    if (stream->form == TRAJD_ROWS_PLAIN)
        view->decoder.image.encoding = TRAJD_ENCODING_RAW;
    if (!stream->image.is_present) { /* pixels as they are */
        view->decoder.image.is_present = true;
        view->decoder.image.color = preparation->channels == 3 ? TRAJD_COLOR_RGB : TRAJD_COLOR_GRAY;
    }
    if (preparation->is_bgr)
        view->decoder.image.color =
            view->decoder.image.color == TRAJD_COLOR_BGR ? TRAJD_COLOR_RGB : TRAJD_COLOR_BGR;
    view->decoder.bits = 8 * trajd_dtype_size(preparation->type);
    view->decoder.upright = true;
    view->decoder.largest_frame_bytes = largest_frame(stream, preparation);
    view->decoder.largest_unit_bytes = largest_unit(frames->index, stream);
    view->decoder.timeout_ms = TIMEOUT_MS;
    view->is_direct = is_direct(view, stream->form);
    view->frame_bytes = (bytes + FRAME_ALIGNMENT - 1) / FRAME_ALIGNMENT * FRAME_ALIGNMENT;
    view->block_slots = block_slots(frames, view->frame_bytes);
    view->extras.last = &view->extras.first;
    view->turning = 1;
    view->rows = calloc(frames->index->episode_count + 1, sizeof *view->rows);
    if (!view->rows) {
        free(view);
        view = NULL;
    }
    return view;
}

static struct trajd_frame_view *find_view(struct trajd_frames *frames, uint32_t stream_index,
                                          const struct trajd_image_preparation *preparation)
{
    struct trajd_frame_view *view = frames->views;

    while (view && (view->stream_index != stream_index ||
                    memcmp(&view->preparation, preparation, sizeof *preparation) != 0))
        view = view->next;
    return view;
}

static enum trajd_status add_view(struct trajd_frames *frames, uint32_t stream_index,
                                  const struct trajd_image_preparation *preparation,
                                  struct trajd_frame_view **view, struct trajd_error *error)
{
    enum trajd_status status = trajd_image_check(preparation, error);

    if (!status)
        status = frames_start_workers(frames, error);
    if (status)
        return status;
    *view = make_view(frames, stream_index, preparation);
    if (!*view)
        return no_memory(error);
    (*view)->next = frames->views;
    frames->views = *view;
    return TRAJD_OK;
}

/* Says how much more memory is needed. Rows may keep half of what is added. */
static enum trajd_status no_room(const struct trajd_frame_view *view, uint32_t least_frames,
                                 struct trajd_error *error)
{
    const uint64_t slots = (least_frames + view->block_slots - 1) / view->block_slots *
                           (uint64_t)view->block_slots,
                   mib = (2 * slots * view->frame_bytes >> 20) + 1;

    return trajd_error_set(
        error, TRAJD_ERR_MEMORY, 0,
        "stream %s: a window has %u prepared frames of %llu bytes, and memory.store has no room "
        "for "
        "them beside the rows and the frames of other feeds: raise it by %llu MiB",
        view->frames->index->streams[view->stream_index].name, least_frames,
        (unsigned long long)view->frame_bytes, (unsigned long long)mib);
}

static enum trajd_status reserve(struct trajd_frame_view *view, uint32_t least_frames,
                                 struct trajd_error *error)
{
    while ((uint64_t)view->block_count * view->block_slots < least_frames)
        if (!frames_add_block(view) && !(frames_take_back(view) && frames_add_block(view)))
            return no_room(view, least_frames, error);
    return TRAJD_OK;
}

/* Takes one user from a view. Returns true where it was the last one and no worker loads a frame:
 * the caller then frees the view, without the lock.
 * Where workers still write to its frames, the last of them frees it. */
static bool leave(struct trajd_frame_view *view)
{
    struct trajd_frames *frames = view->frames;
    struct trajd_frame_view **at = &frames->views;

    frames_forget(view); /* what this user asked for */
    if (--view->users)
        return false;
    while (*at != view)
        at = &(*at)->next;
    *at = view->next;
    for (int q = 0; q < FRAME_QUEUE_COUNT; q++)
        for (struct frame_slot *slot = frames->queues[q].first, *next; slot; slot = next) {
            next = slot->next;
            if (slot->view == view)
                frames_drop(slot);
        }
    return !view->loading_count;
}

enum trajd_status trajd_frames_open_view(struct trajd_frames *frames, uint32_t stream_index,
                                         const struct trajd_image_preparation *preparation,
                                         uint32_t least_frames, bool is_ordered,
                                         struct trajd_frame_view **view, struct trajd_error *error)
{
    struct trajd_frame_view *unused = NULL;
    enum trajd_status status = TRAJD_OK;

    pthread_mutex_lock(&frames->lock);
    *view = find_view(frames, stream_index, preparation);
    if (!*view)
        status = add_view(frames, stream_index, preparation, view, error);
    if (!status) {
        (*view)->users++;
        (*view)->is_ordered |= is_ordered;
        if (is_ordered && (*view)->decoder.largest_unit_bytes)
            frames_keep_units(*view);
        status = reserve(*view, least_frames, error);
        if (status) {
            unused = leave(*view) ? *view : NULL;
            *view = NULL;
        }
    }
    pthread_mutex_unlock(&frames->lock);
    if (unused)
        frames_free_view(unused);
    return status;
}

void trajd_frames_close_view(struct trajd_frame_view **view)
{
    struct trajd_frames *frames;
    bool is_last;

    if (!*view)
        return;
    frames = (*view)->frames;
    pthread_mutex_lock(&frames->lock);
    is_last = leave(*view);
    pthread_mutex_unlock(&frames->lock);
    if (is_last) /* unmapping gigabytes takes long */
        frames_free_view(*view);
    *view = NULL;
}

const char *trajd_frames_find_hung(const struct trajd_frames *frames, int64_t now_ns,
                                   int64_t limit_ns)
{
    const char *mount = NULL;

    for (uint32_t i = 0; i < frames->worker_room && !mount; i++)
        mount = trajd_heartbeat_hung_storage(&frames->heartbeats[i], now_ns, limit_ns);
    return mount;
}

void trajd_frames_get_stats(struct trajd_frames *frames, struct trajd_frames_stats *stats)
{
    pthread_mutex_lock(&frames->lock);
    *stats = frames->stats;
    pthread_mutex_unlock(&frames->lock);
}
