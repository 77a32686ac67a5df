/* Allocates buffers for the payloads of a remote daemon, counts their references and keeps them
 * for later batches. */
#include "clients/c/buffers.h"

#include <pthread.h>
#include <stdlib.h>

struct trajd_buffers {
    size_t buffer_size_bytes;
    pthread_mutex_t mutex; /* protects the members below */
    uint32_t references;   /* the owner's, and one for each buffer in use */
    uint32_t keep, idle_count;
    void *idle[];
};

struct trajd_buffers *trajd_buffers_create(size_t buffer_size_bytes, uint32_t keep)
{
    struct trajd_buffers *buffers = calloc(1, sizeof *buffers + keep * sizeof *buffers->idle);
    if (!buffers)
        return NULL;
    pthread_mutex_init(&buffers->mutex, NULL);
    buffers->references = 1;
    buffers->keep = keep;
    buffers->buffer_size_bytes = (buffer_size_bytes + TRAJD_BUFFERS_ALIGNMENT - 1) /
                                 TRAJD_BUFFERS_ALIGNMENT * TRAJD_BUFFERS_ALIGNMENT;
    return buffers;
}

/* Drops one reference. The caller holds the mutex, which is unlocked here. */
static void drop_reference(struct trajd_buffers *buffers)
{
    const uint32_t remaining = --buffers->references;
    pthread_mutex_unlock(&buffers->mutex);
    if (remaining > 0)
        return;
    while (buffers->idle_count > 0)
        free(buffers->idle[--buffers->idle_count]);
    pthread_mutex_destroy(&buffers->mutex);
    free(buffers);
}

void trajd_buffers_drop(struct trajd_buffers *buffers)
{
    if (!buffers)
        return;
    pthread_mutex_lock(&buffers->mutex);
    while (buffers->idle_count > 0) /* buffers in use are freed when they are given back */
        free(buffers->idle[--buffers->idle_count]);
    buffers->keep = 0;
    drop_reference(buffers);
}

size_t trajd_buffers_size(const struct trajd_buffers *buffers)
{
    return buffers->buffer_size_bytes;
}

void *trajd_buffers_take(struct trajd_buffers *buffers)
{
    pthread_mutex_lock(&buffers->mutex);
    void *buffer = buffers->idle_count > 0 ? buffers->idle[--buffers->idle_count] : NULL;
    if (!buffer)
        buffer = aligned_alloc(TRAJD_BUFFERS_ALIGNMENT, buffers->buffer_size_bytes > 0
                                                            ? buffers->buffer_size_bytes
                                                            : TRAJD_BUFFERS_ALIGNMENT);
    buffers->references += buffer != NULL;
    pthread_mutex_unlock(&buffers->mutex);
    return buffer;
}

void trajd_buffers_give(struct trajd_buffers *buffers, void *buffer)
{
    if (!buffer)
        return;
    pthread_mutex_lock(&buffers->mutex);
    if (buffers->idle_count < buffers->keep)
        buffers->idle[buffers->idle_count++] = buffer;
    else
        free(buffer);
    drop_reference(buffers);
}
