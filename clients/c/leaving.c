/* Batches on a GPU between their release and the moment at which the consumer's streams have passed what reads them. Events are recorded by
 * whoever releases and asked about by whoever has time: the keeper, next(). Nothing waits in a stream: a worker that dies leaves no
 * wait behind that somebody else would hang on. */
#include <time.h>

#include "clients/c/client.h"

#define NAP_NS 50000

enum trajd_status trajd_batch_use_stream(struct trajd_batch *batch, uintptr_t stream, struct trajd_error *error)
{
    struct trajd_client *client = batch->client;
    enum trajd_status status = TRAJD_OK;
    if (batch->mapping == NULL || batch->mapping->gpu == NULL || trajd_client_is_foreign(client))
        return TRAJD_OK;
    pthread_mutex_lock(&client->state);
    uint32_t known = 0;
    while (known < batch->stream_count && batch->streams[known] != stream)
        known++;
    if (known == TRAJD_BATCH_MAX_STREAMS)
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "a batch is used on %u streams already", TRAJD_BATCH_MAX_STREAMS);
    else if (known == batch->stream_count)
        batch->streams[batch->stream_count++] = stream;
    pthread_mutex_unlock(&client->state);
    return status;
}

int trajd_batch_gpu(const struct trajd_batch *batch)
{
    return batch->mapping != NULL && batch->mapping->gpu != NULL ? trajd_cuda_ordinal(batch->mapping->gpu) : -1;
}

enum trajd_status trajd_gpu_uuid(int ordinal, char uuid[48], struct trajd_error *error)
{
    struct trajd_error own;
    return trajd_cuda_uuid(ordinal, uuid, error != NULL ? error : &own);
}

/* A stream that takes no event takes no kernel either: its context is gone. */
bool trajd_batch_mark(struct trajd_batch *batch)
{
    const struct trajd_cuda *gpu = batch->mapping != NULL ? batch->mapping->gpu : NULL;
    for (uint32_t i = 0; gpu != NULL && i < batch->stream_count; i++) {
        void *event = trajd_cuda_mark(gpu, NULL, batch->streams[i]);
        if (event != NULL)
            batch->events[batch->event_count++] = event;
    }
    return batch->event_count > 0;
}

void trajd_leaving_add(struct trajd_client *client, struct trajd_batch *batch)
{
    batch->next_leaving = NULL;
    *client->leaving_end = batch;
    client->leaving_end = &batch->next_leaving;
    trajd_client_kick(client->keeper_fd);
}

static bool has_passed(struct trajd_batch *batch)
{
    while (batch->event_count > 0) {
        const struct trajd_cuda *gpu = batch->mapping->gpu;
        void *event = batch->events[batch->event_count - 1];
        if (!trajd_cuda_has_passed(gpu, event))
            return false;
        trajd_cuda_forget(gpu, event);
        batch->event_count--;
    }
    return true;
}

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = NAP_NS};
    nanosleep(&pause, NULL);
}

void trajd_leaving_await(struct trajd_batch *batch)
{
    while (!has_passed(batch))
        nap();
}

void trajd_leaving_end(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state);
    client->finished = true;
    pthread_mutex_unlock(&client->state);
    while (trajd_leaving_collect(client))
        nap();
}

bool trajd_leaving_collect(struct trajd_client *client)
{
    struct trajd_batch *over = NULL;
    pthread_mutex_lock(&client->state);
    struct trajd_batch **link = &client->leaving;
    while (*link != NULL) {
        struct trajd_batch *batch = *link;
        if (!has_passed(batch)) {
            link = &batch->next_leaving;
            continue;
        }
        *link = batch->next_leaving;
        batch->next_leaving = over;
        over = batch;
        if (!batch->abandoned && batch->life == client->life)
            trajd_batch_give_back(batch);
    }
    client->leaving_end = link;
    const bool left = client->leaving != NULL;
    pthread_mutex_unlock(&client->state);
    while (over != NULL) {
        struct trajd_batch *batch = over;
        over = batch->next_leaving;
        trajd_batch_free(batch);
    }
    return left;
}
