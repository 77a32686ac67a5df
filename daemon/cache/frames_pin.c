/* Asking for frames, pinning and unpinning them. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/base/heartbeat.h"
#include "daemon/cache/frames_internal.h"

/* Gives the frame of a use a slot and queues it. NULL: there is no room. */
static struct frame_slot *make(struct trajd_frame_view *view, const struct trajd_frame_use *use,
                               struct frame_slot **place, enum frame_queue queue)
{
    struct frame_slot *slot = frames_take_slot(view, queue == FRAME_QUEUE_AHEAD);

    if (!slot)
        return NULL;
    slot->episode_index = use->episode_index;
    slot->row = use->row;
    slot->failure = TRAJD_OK;
    *place = slot;
    frames_enqueue(slot, queue);
    return slot;
}

void trajd_frames_want(struct trajd_frame_view *view, const struct trajd_frame_use *uses,
                       uint32_t count)
{
    bool has_room = true;

    pthread_mutex_lock(&view->frames->lock);
    for (uint32_t i = 0; i < count; i++) {
        struct frame_slot **place,
            *slot = frames_find(view, uses[i].episode_index, uses[i].row, &place);
        if (!slot && place && has_room)
            has_room = (slot = make(view, &uses[i], place, FRAME_QUEUE_AHEAD)) != NULL;
        if (slot)
            slot->wanted = view->tick + 1;
    }
    pthread_mutex_unlock(&view->frames->lock);
}

static void unpin(const struct trajd_frame_use *uses, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct frame_slot *slot = uses[i].slot;
        slot->pins--;
        if (!slot->pins && slot->state == FRAME_FAILED)
            frames_drop(slot); /* storage recovers: the next pin tries again */
    }
}

/* Pins the frames that have a slot, and gives one to the others. *pinned: how many it pinned. */
static enum trajd_status pin(struct trajd_frame_view *view, struct trajd_frame_use *uses,
                             uint32_t count, uint32_t *pinned, struct trajd_error *error)
{
    for (*pinned = 0; *pinned < count; ++*pinned) {
        struct trajd_frame_use *use = &uses[*pinned];
        struct frame_slot **place, *slot = frames_find(view, use->episode_index, use->row, &place);
        if (slot && slot->state == FRAME_QUEUED && slot->queue == FRAME_QUEUE_AHEAD) {
            frames_dequeue(slot);
            frames_enqueue(slot, FRAME_QUEUE_DEMAND);
        } else if (!slot && place) {
            slot = make(view, use, place, FRAME_QUEUE_DEMAND);
        }
        if (!slot)
            return trajd_error_set(error, TRAJD_ERR_MEMORY, place ? 0 : ENOMEM,
                                   "stream %s: there is no room for %u prepared frames of %llu "
                                   "bytes: raise memory.store, or lower batch",
                                   view->frames->index->streams[view->stream_index].name, count,
                                   (unsigned long long)view->frame_bytes);
        use->slot = slot;
        slot->pins++;
        slot->wanted = 0;
        view->frames->stats.used_frames++;
    }
    return TRAJD_OK;
}

static enum trajd_status wait_for(struct trajd_frame_view *view, struct trajd_frame_use *use,
                                  struct trajd_error *error)
{
    const struct frame_slot *slot = use->slot;

    while (slot->state < FRAME_READY && !trajd_heartbeat_is_cancelled())
        trajd_heartbeat_wait_for(&view->frames->done, &view->frames->lock);
    if (slot->state < FRAME_READY)
        return trajd_heartbeat_check(error);
    use->pixels = slot->state == FRAME_READY ? slot->pixels : NULL;
    use->status = slot->failure;
    use->reason = use->pixels ? NULL : slot->reason ? slot->reason : "no memory for the reason";
    return TRAJD_OK;
}

enum trajd_status trajd_frames_pin(struct trajd_frame_view *view, struct trajd_frame_use *uses,
                                   uint32_t count, struct trajd_error *error)
{
    enum trajd_status status;
    uint32_t pinned;

    pthread_mutex_lock(&view->frames->lock);
    view->tick++;
    status = pin(view, uses, count, &pinned, error);
    for (uint32_t i = 0; i < count && !status; i++)
        status = wait_for(view, &uses[i], error);
    if (status)
        unpin(uses, pinned);
    pthread_mutex_unlock(&view->frames->lock);
    return status;
}

void trajd_frames_unpin(struct trajd_frame_view *view, const struct trajd_frame_use *uses,
                        uint32_t count)
{
    pthread_mutex_lock(&view->frames->lock);
    unpin(uses, count);
    pthread_mutex_unlock(&view->frames->lock);
}
