/* The list of producers, and the grammar of feed names. */
#include "daemon/control/control_internal.h"

#include <stdio.h>
#include <string.h>

#include "daemon/base/digest.h"

/* ---- names ---- */

#define SPEC_PREFIX "spec:"
#define PLACE_MARK '@'
#define INSTANCE_MARK '#'

void trajd_feed_name_of_text(const char *text, char *name, size_t size)
{
    const uint64_t hash = trajd_fnv(TRAJD_FNV_BEGIN, text, strlen(text));

    snprintf(name, size, SPEC_PREFIX "%016llx", (unsigned long long)hash);
}

void trajd_feed_name_of_instance(const char *family, uint32_t number, char *name, size_t size)
{
    snprintf(name, size, "%s%c%u", family, INSTANCE_MARK, number);
}

size_t trajd_feed_name_family_length(const char *name)
{
    return strcspn(name, (const char[]){INSTANCE_MARK, 0});
}

size_t trajd_feed_name_base_length(const char *name)
{
    return strcspn(name, (const char[]){INSTANCE_MARK, PLACE_MARK, 0});
}

bool trajd_feed_name_is_in_family(const char *name, const char *family)
{
    const size_t length = strlen(family);

    return trajd_feed_name_family_length(name) == length && strncmp(name, family, length) == 0;
}

bool trajd_feed_name_is_configured(const char *name)
{
    return strncmp(name, SPEC_PREFIX, sizeof SPEC_PREFIX - 1) != 0;
}

bool trajd_feed_name_has_place(const char *name)
{
    return trajd_feed_name_base_length(name) != trajd_feed_name_family_length(name);
}

bool trajd_feed_name_may_close(const char *name)
{
    return !trajd_feed_name_is_configured(name) || name[trajd_feed_name_base_length(name)];
}

/* ---- the list ---- */

struct trajd_producer *trajd_feed_list_find(const struct trajd_feed_list *feeds, const char *name)
{
    for (uint32_t f = 0; f < feeds->count; f++)
        if (strcmp(feeds->producers[f]->name, name) == 0)
            return feeds->producers[f];
    return NULL;
}

uint64_t trajd_feed_list_ring_bytes(const struct trajd_feed_list *feeds)
{
    uint64_t bytes = 0;

    for (uint32_t f = 0; f < feeds->count; f++)
        if (__builtin_add_overflow(bytes, trajd_producer_ring_bytes(feeds->producers[f]), &bytes))
            return UINT64_MAX;
    return bytes;
}

void trajd_feed_list_add(struct trajd_feed_list *feeds, struct trajd_producer *producer)
{
    feeds->is_idle[feeds->count] = false;
    feeds->producers[feeds->count++] = producer;
}

void trajd_feed_list_mark_idle(struct trajd_feed_list *feeds, const struct trajd_feed *feed)
{
    for (uint32_t f = 0; f < feeds->count; f++)
        if (feeds->producers[f]->feed == feed)
            feeds->is_idle[f] = true;
}

/* ---- removal ---- */

static struct trajd_producer *remove_at(struct trajd_feed_list *feeds, uint32_t index)
{
    struct trajd_producer *producer = feeds->producers[index];

    feeds->producers[index] = feeds->producers[--feeds->count];
    feeds->is_idle[index] = feeds->is_idle[feeds->count];
    return producer;
}

struct trajd_producer *trajd_feed_list_remove_last(struct trajd_feed_list *feeds)
{
    return feeds->count ? feeds->producers[--feeds->count] : NULL;
}

struct trajd_producer *trajd_feed_list_remove_unread(struct trajd_feed_list *feeds)
{
    struct trajd_producer *oldest = NULL;
    uint64_t oldest_ns = UINT64_MAX;
    uint32_t index = 0;

    for (uint32_t f = 0; f < feeds->count; f++) {
        struct trajd_producer *producer = feeds->producers[f];
        const uint64_t since_ns = trajd_feed_idle_since_ns(producer->feed);
        if (!since_ns || since_ns >= oldest_ns || producer == feeds->acquired ||
            !trajd_feed_name_may_close(producer->name))
            continue;
        oldest = producer;
        oldest_ns = since_ns;
        index = f;
    }
    if (!oldest || !trajd_feed_close_if_idle(oldest->feed))
        return NULL;
    return remove_at(feeds, index);
}

struct trajd_producer *trajd_feed_list_remove_used(struct trajd_feed_list *feeds,
                                                   const char *family)
{
    for (uint32_t f = 0; f < feeds->count; f++) {
        struct trajd_producer *producer = feeds->producers[f];
        struct trajd_feed *feed = producer->feed;
        if (producer != feeds->acquired && trajd_feed_name_is_in_family(producer->name, family) &&
            trajd_feed_has_user(feed) && trajd_feed_close_if_idle(feed))
            return remove_at(feeds, f);
    }
    return NULL;
}

struct trajd_producer *trajd_feed_list_remove_idle(struct trajd_feed_list *feeds)
{
    for (uint32_t f = 0; f < feeds->count; f++) {
        struct trajd_producer *producer = feeds->producers[f];
        if (!feeds->is_idle[f] || producer == feeds->acquired)
            continue;
        feeds->is_idle[f] = false;
        if (trajd_feed_name_may_close(producer->name) && trajd_feed_close_if_idle(producer->feed))
            return remove_at(feeds, f);
    }
    return NULL;
}

struct trajd_producer *trajd_feed_list_remove_on_gpu(struct trajd_feed_list *feeds)
{
    struct trajd_error why;

    for (uint32_t f = 0; f < feeds->count; f++) {
        struct trajd_producer *producer = feeds->producers[f];
        if (!producer->options.gpu || producer == feeds->acquired)
            continue;
        trajd_error_set(&why, TRAJD_ERR_DEVICE, 0,
                        "a GPU of the daemon has failed: feed %s continues in host memory",
                        producer->name);
        trajd_feed_fail(producer->feed, &why);
        trajd_feed_close(producer->feed);
        return remove_at(feeds, f);
    }
    return NULL;
}

static bool contains(struct trajd_producer *const *producers, uint32_t count,
                     const struct trajd_producer *producer)
{
    for (uint32_t i = 0; i < count; i++)
        if (producers[i] == producer)
            return true;
    return false;
}

void trajd_feed_list_replace(struct trajd_feed_list *feeds, struct trajd_producer *const *out,
                             uint32_t out_count, struct trajd_producer *const *in,
                             uint32_t in_count)
{
    uint32_t count = 0;

    for (uint32_t f = 0; f < feeds->count; f++) {
        if (contains(out, out_count, feeds->producers[f]))
            continue;
        feeds->is_idle[count] = feeds->is_idle[f];
        feeds->producers[count++] = feeds->producers[f];
    }
    feeds->count = count;
    for (uint32_t f = 0; f < in_count; f++)
        trajd_feed_list_add(feeds, in[f]);
}

/* ---- with the mutex taken here ---- */

struct trajd_producer *trajd_control_find_producer(struct trajd_control *control, const char *name)
{
    struct trajd_producer *found;

    pthread_mutex_lock(&control->mutex);
    found = trajd_feed_list_find(&control->feeds, name);
    pthread_mutex_unlock(&control->mutex);
    return found;
}

struct trajd_producer *trajd_control_acquire_producer(struct trajd_control *control,
                                                      uint32_t feed_id)
{
    struct trajd_feed_list *feeds = &control->feeds;

    pthread_mutex_lock(&control->mutex);
    for (uint32_t f = 0; f < feeds->count; f++)
        if (trajd_feed_id(feeds->producers[f]->feed) == feed_id)
            feeds->acquired = feeds->producers[f];
    pthread_mutex_unlock(&control->mutex);
    return feeds->acquired; /* written by this thread only */
}

void trajd_control_return_producer(struct trajd_control *control)
{
    pthread_mutex_lock(&control->mutex);
    control->feeds.acquired = NULL;
    pthread_cond_signal(&control->wake); /* the opener may close the producer now */
    pthread_mutex_unlock(&control->mutex);
}
