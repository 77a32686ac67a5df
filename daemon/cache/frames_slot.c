/* The slots of a view: which frame is in which, where memory for more comes from, which frame goes,
 * and what producers ask for. */
#include "daemon/cache/cache_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/base/heartbeat.h"
#include "daemon/cache/frames_internal.h"

#define TURNING_MAX (TURNING_ALL / 4) /* parts of the slots */
/* A hint that no pin has followed so many calls after it was due is forgotten. */
#define HINT_TICKS 64
#define PINS_MOST (UINT64_C(1) << 24) /* that a hint is ahead */

uint32_t frames_file(const struct frame_slot *slot)
{
    return slot->view->frames->index->episodes[slot->episode_index].file_index;
}

const struct trajd_array *frames_array(const struct frame_slot *slot)
{
    const struct trajd_index *index = slot->view->frames->index;

    return &index->episodes[slot->episode_index]
                .extents[index->streams[slot->view->stream_index].array_index];
}

uint64_t frames_file_row(const struct trajd_frame_view *view, uint32_t episode_index, uint32_t row)
{
    const struct trajd_index *index = view->frames->index;
    const struct trajd_episode_clock *clock =
        &index->episodes[episode_index].clocks[index->streams[view->stream_index].clock_index];

    return clock->kept_rows && row < clock->row_count ? clock->kept_rows[row] : row;
}

uint32_t frames_row_count(const struct trajd_frame_view *view, uint32_t episode_index)
{
    const struct trajd_index *index = view->frames->index;
    const struct trajd_index_stream *stream = &index->streams[view->stream_index];
    const struct trajd_episode *episode = &index->episodes[episode_index];
    const struct trajd_episode_clock *clock = &episode->clocks[stream->clock_index];
    const uint64_t rows = trajd_array_row_count(&episode->extents[stream->array_index]);

    return (uint32_t)(clock->kept_rows && (uint64_t)clock->row_count < rows
                          ? (uint64_t)clock->row_count
                          : rows);
}

struct frame_slot *frames_find(struct trajd_frame_view *view, uint32_t episode_index, uint32_t row,
                               struct frame_slot ***place)
{
    const struct trajd_index *index = view->frames->index;
    const struct trajd_episode *episode = &index->episodes[episode_index];
    const uint64_t rows =
        trajd_array_row_count(&episode->extents[index->streams[view->stream_index].array_index]);

    *place = NULL;
    if (row >= rows)
        return NULL;
    if (!view->rows[episode_index])
        view->rows[episode_index] = calloc(rows, sizeof **view->rows);
    if (!view->rows[episode_index])
        return NULL;
    *place = &view->rows[episode_index][row];
    return **place;
}

/* ---- lists ---- */

static void append(struct frame_list *list, struct frame_slot *slot)
{
    slot->next = NULL;
    slot->link = list->last;
    *list->last = slot;
    list->last = &slot->next;
    list->count++;
}

static void take_out(struct frame_list *list, struct frame_slot *slot)
{
    *slot->link = slot->next;
    if (slot->next)
        slot->next->link = slot->link;
    else
        list->last = slot->link;
    slot->next = NULL;
    list->count--;
}

void frames_enqueue(struct frame_slot *slot, enum frame_queue queue)
{
    slot->state = FRAME_QUEUED;
    slot->queue = (uint8_t)queue;
    append(&slot->view->frames->queues[queue], slot);
    pthread_cond_signal(&slot->view->frames->work);
}

void frames_dequeue(struct frame_slot *slot)
{
    take_out(&slot->view->frames->queues[slot->queue], slot);
}

void frames_add_extra(struct frame_slot *slot)
{
    slot->is_extra = true;
    append(&slot->view->extras, slot);
}

/* Somebody asks for a frame, which is no longer an extra one. While it is made, no list has it. */
static void claim(struct frame_slot *slot)
{
    if (slot->is_extra && slot->state != FRAME_LOADING)
        take_out(&slot->view->extras, slot);
    slot->is_extra = false;
}

/* ---- room ---- */

static void put_free(struct frame_slot *slot)
{
    slot->state = FRAME_FREE;
    slot->wanted = 0;
    slot->next = slot->view->free_slots;
    slot->view->free_slots = slot;
}

void frames_drop(struct frame_slot *slot)
{
    struct frame_slot **place;

    if (slot->state == FRAME_QUEUED)
        frames_dequeue(slot);
    claim(slot);
    frames_find(slot->view, slot->episode_index, slot->row, &place);
    *place = NULL;
    free(slot->reason);
    slot->reason = NULL;
    put_free(slot);
}

bool frames_add_block(struct trajd_frame_view *view)
{
    const uint64_t bytes = view->frame_bytes * view->block_slots;
    struct frame_block **blocks =
        realloc(view->blocks, (view->block_count + 1) * sizeof *view->blocks);
    struct frame_block *block;

    if (!blocks)
        return false;
    view->blocks = blocks;
    block = calloc(1, sizeof *block + view->block_slots * sizeof *block->slots);
    if (!block || !trajd_cache_lend(view->frames->cache, bytes)) {
        free(block);
        return false;
    }
    block->pixels = trajd_cache_allocate(trajd_cache_footprint(bytes));
    if (!block->pixels) {
        trajd_cache_give_back(view->frames->cache, bytes);
        free(block);
        return false;
    }
    block->slot_count = view->block_slots;
    for (uint32_t s = block->slot_count; s-- > 0;) {
        block->slots[s].view = view;
        block->slots[s].pixels = block->pixels + s * view->frame_bytes;
        put_free(&block->slots[s]);
    }
    blocks[view->block_count++] = block;
    view->frames->stats.resident_bytes += bytes;
    return true;
}

static void free_block(struct trajd_frame_view *view, uint32_t b)
{
    const uint64_t bytes = view->frame_bytes * view->block_slots;
    struct frame_block *block = view->blocks[b];

    for (uint32_t s = 0; s < block->slot_count; s++)
        free(block->slots[s].reason);
    trajd_cache_free(block->pixels, trajd_cache_footprint(bytes));
    free(block);
    view->blocks[b] = view->blocks[--view->block_count];
    trajd_cache_give_back(view->frames->cache, bytes);
}

void frames_free_view(struct trajd_frame_view *view)
{
    const uint64_t bytes = view->frame_bytes * view->block_slots * view->block_count;

    while (view->block_count)
        free_block(view, view->block_count - 1);
    pthread_mutex_lock(&view->frames->lock);
    view->frames->stats.resident_bytes -= bytes;
    pthread_mutex_unlock(&view->frames->lock);
    for (uint32_t e = 0; view->rows && e < view->frames->index->episode_count; e++)
        free(view->rows[e]);
    free(view->rows);
    free(view->blocks);
    free(view);
}

static bool is_in_use(const struct frame_block *block)
{
    for (uint32_t s = 0; s < block->slot_count; s++)
        if (block->slots[s].pins || block->slots[s].state == FRAME_LOADING)
            return true;
    return false;
}

/* Frees a block that is not in use. */
static void drop_block(struct trajd_frame_view *view, uint32_t b)
{
    struct frame_block *block = view->blocks[b];
    struct frame_slot **at = &view->free_slots;

    for (uint32_t s = 0; s < block->slot_count; s++)
        if (block->slots[s].state != FRAME_FREE)
            frames_drop(&block->slots[s]);
    while (*at)
        if (*at >= block->slots && *at < block->slots + block->slot_count) {
            *at = (*at)->next;
        } else {
            at = &(*at)->next;
        }
    free_block(view, b);
    view->frames->stats.resident_bytes -= view->frame_bytes * view->block_slots;
}

bool frames_take_back(struct trajd_frame_view *view)
{
    const uint64_t wanted = view->frame_bytes * view->block_slots;
    struct trajd_frame_view *from = view->frames->views;
    uint64_t bytes = 0;

    for (; from && bytes < wanted; from = from->next)
        for (uint32_t b = from == view ? 0 : from->block_count; b-- > 1 && bytes < wanted;)
            if (!is_in_use(from->blocks[b])) {
                drop_block(from, b);
                bytes += from->frame_bytes * from->block_slots;
            }
    return bytes >= wanted;
}

static bool may_go(const struct frame_slot *slot, bool is_hint)
{
    if (slot->pins || slot->state == FRAME_LOADING || slot->state == FRAME_FREE)
        return false;
    return !is_hint || (slot->state != FRAME_QUEUED &&
                        (!slot->wanted || slot->wanted + HINT_TICKS < slot->view->tick));
}

/* Searches the slots from `first` on, beginning behind the last frame that was evicted. */
static struct frame_slot *search(struct trajd_frame_view *view, uint64_t first, bool is_hint)
{
    const uint64_t length = (uint64_t)view->block_count * view->block_slots - first;

    for (uint64_t i = 0; i < length; i++) {
        const uint64_t at = first + (view->hand + i) % length;
        struct frame_slot *slot =
            &view->blocks[at / view->block_slots]->slots[at % view->block_slots];
        if (may_go(slot, is_hint)) {
            view->hand = (view->hand + i + 1) % length;
            return slot;
        }
    }
    return NULL;
}

/* Finds a frame to evict. Searches the slots that take turns for a frame without a hint. Where
 * there is none, more slots take turns from then on: a sixteenth at first, up to a quarter. Where
 * that does not help, a pin takes any unpinned frame of all slots. */
static struct frame_slot *find_evictable(struct trajd_frame_view *view, bool is_hint)
{
    const uint64_t count = (uint64_t)view->block_count * view->block_slots;
    struct frame_slot *found = search(view, count - count * view->turning / TURNING_ALL, true);

    while (!found && view->turning < TURNING_MAX) {
        view->turning++;
        found = search(view, count - count * view->turning / TURNING_ALL, true);
    }
    return found || is_hint ? found : search(view, 0, false);
}

void frames_keep_units(struct trajd_frame_view *view)
{
    view->keeps_units = true;
    view->turning = TURNING_ALL;
}

/* Finds the frame that makes room for another one: an extra one, if there is any. */
static struct frame_slot *find_victim(struct trajd_frame_view *view, enum frame_need need)
{
    if (need == FRAME_NEED_EXTRA && !view->keeps_units)
        return NULL;
    return view->extras.first ? view->extras.first : find_evictable(view, need != FRAME_NEED_PIN);
}

struct frame_slot *frames_take_slot(struct trajd_frame_view *view, enum frame_need need)
{
    struct frame_slot *slot;

    if (!view->free_slots && !frames_add_block(view)) {
        if (!(slot = find_victim(view, need)))
            return NULL;
        frames_drop(slot);
        view->frames->stats.evicted_frames++;
    }
    slot = view->free_slots;
    view->free_slots = slot->next;
    slot->next = NULL;
    return slot;
}

/* ---- asking for frames, pinning and unpinning them ---- */

/* Gives the frame of a use a slot and queues it. NULL: there is no room. */
static struct frame_slot *make(struct trajd_frame_view *view, const struct trajd_frame_use *use,
                               struct frame_slot **place, enum frame_need need,
                               enum frame_queue queue)
{
    struct frame_slot *slot = frames_take_slot(view, need);

    if (!slot)
        return NULL;
    slot->episode_index = use->episode_index;
    slot->row = use->row;
    slot->failure = TRAJD_OK;
    *place = slot;
    frames_enqueue(slot, queue);
    return slot;
}

/* Has a queued frame made before those that are wanted later. */
static void make_next(struct frame_slot *slot)
{
    if (slot->state != FRAME_QUEUED || slot->queue != FRAME_QUEUE_AHEAD)
        return;
    frames_dequeue(slot);
    frames_enqueue(slot, FRAME_QUEUE_DEMAND);
}

bool trajd_frames_want(struct trajd_frame_view *view, const struct trajd_frame_use *uses,
                       uint32_t count, uint64_t pins)
{
    const enum frame_queue queue = pins ? FRAME_QUEUE_AHEAD : FRAME_QUEUE_DEMAND;
    bool has_room = true;

    pthread_mutex_lock(&view->frames->lock);
    for (uint32_t i = 0; i < count; i++) {
        struct frame_slot **place,
            *slot = frames_find(view, uses[i].episode_index, uses[i].row, &place);
        if (!slot && place && has_room)
            has_room = (slot = make(view, &uses[i], place, FRAME_NEED_HINT, queue)) != NULL;
        if (slot) {
            claim(slot);
            slot->wanted = view->tick + 1 + (pins < PINS_MOST ? pins : PINS_MOST) * view->users;
        }
        if (slot && !pins)
            make_next(slot);
    }
    pthread_mutex_unlock(&view->frames->lock);
    return has_room;
}

void frames_forget(struct trajd_frame_view *view)
{
    view->tick += 1 + PINS_MOST * (view->users + 1) + HINT_TICKS;
}

void trajd_frames_forget(struct trajd_frame_view *view)
{
    pthread_mutex_lock(&view->frames->lock);
    frames_forget(view);
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

/* Returns whether frames are being made that nobody has pinned: they can go soon. */
static bool has_unpinned_loading(const struct trajd_frame_view *view)
{
    for (uint32_t b = 0; b < view->block_count; b++)
        for (uint32_t s = 0; s < view->block_slots; s++)
            if (view->blocks[b]->slots[s].state == FRAME_LOADING && !view->blocks[b]->slots[s].pins)
                return true;
    return false;
}

/* Finds the slot of a frame, or gives it one. Waits where a unit that is being decoded takes all
 * the room. NULL: there is no room. */
static struct frame_slot *find_or_make(struct trajd_frame_view *view,
                                       const struct trajd_frame_use *use,
                                       struct frame_slot ***place)
{
    struct frame_slot *slot;

    while (!(slot = frames_find(view, use->episode_index, use->row, place)) && *place &&
           !(slot = make(view, use, *place, FRAME_NEED_PIN, FRAME_QUEUE_DEMAND)) &&
           has_unpinned_loading(view) && !trajd_heartbeat_is_cancelled())
        trajd_heartbeat_wait_for(&view->frames->done, &view->frames->lock);
    return slot;
}

/* Pins the frames that have a slot, and gives one to the others. *pinned: how many it pinned. */
static enum trajd_status pin(struct trajd_frame_view *view, struct trajd_frame_use *uses,
                             uint32_t count, uint32_t *pinned, struct trajd_error *error)
{
    for (*pinned = 0; *pinned < count; ++*pinned) {
        struct trajd_frame_use *use = &uses[*pinned];
        struct frame_slot **place, *slot = find_or_make(view, use, &place);
        if (slot)
            make_next(slot);
        if (!slot)
            return trajd_error_set(error, TRAJD_ERR_MEMORY, place ? 0 : ENOMEM,
                                   "stream %s: there is no room for %u prepared frames of %llu "
                                   "bytes: raise memory.store, or lower batch",
                                   view->frames->index->streams[view->stream_index].name, count,
                                   (unsigned long long)view->frame_bytes);
        claim(slot);
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
