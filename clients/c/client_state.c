/* What the files of libtrajd share: checks of the process, bursts of releases, the wake-up
 * descriptor, and freeing a client. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/c/batch_internal.h"
#include "proto/array_len.h"
#include "proto/msgpack.h"

#define BURST_NS 100000000

bool trajd_client_is_forked(const struct trajd_client *client)
{
    return client->pid != getpid();
}

enum trajd_status trajd_client_check_process(const struct trajd_client *client,
                                             struct trajd_error *error)
{
    if (client->pid == getpid())
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "a client cannot be used in a child made by fork: connect again there");
}

enum trajd_status trajd_client_check_text(const char *what, const char *text, size_t limit,
                                          struct trajd_error *error)
{
    const size_t size = text ? strlen(text) : 0;
    if (size > limit)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: \"%.32s...\" is longer than %zu bytes", what, text, limit);
    for (size_t i = 0, length; i < size; i += length) {
        length = trajd_utf8_length(text + i, size - i);
        if (length == 0)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: not UTF-8 at byte %zu", what,
                                   i);
    }
    return TRAJD_OK;
}

void trajd_client_signal(int event_fd)
{
    const uint64_t one = 1;
    if (write(event_fd, &one, sizeof one) < 0)
        /* fails only when the counter is full, and then the descriptor is readable anyway */
        return;
}

/* ---- bursts ---- */

/* Bursts of releases on a GPU: which are pending, and when they are sent. Where processes share a
 * GPU in time slices, each turn of the daemon costs the training step some time, however many
 * batches it makes. So releases are sent together: half of what the session may hold, while there
 * is other work, and 100 ms after the first of them at the latest. */

/* Counts the deferred batches that were delivered after that sequence. Sequences count from 1. */
static uint32_t count_after(const struct trajd_client *client, uint64_t sequence)
{
    uint32_t count = 0;
    for (const struct trajd_batch *batch = client->deferred.first; batch;
         batch = batch->next_deferred)
        count += !batch->is_abandoned && batch->incarnation == client->incarnation &&
                 batch->info.sequence > sequence;
    return count;
}

uint32_t trajd_deferred_count(const struct trajd_client *client)
{
    return count_after(client, 0);
}

/* Counts the batches that the GPU has yet to work on. Earlier ones in the list are delayed by
 * something else: the GPU has already finished a later batch. */
static uint32_t count_ahead(const struct trajd_client *client)
{
    return count_after(client, client->ack.burst_sequence);
}

uint64_t trajd_release_burst_ns(const struct trajd_client *client)
{
    if (client->ack.burst_since_ns == 0 || client->closing ||
        client->ack.pending.released.count >= client->queue.count + count_ahead(client))
        return 0;
    const uint64_t now_ns = trajd_client_now_ns(), due_ns = client->ack.burst_since_ns + BURST_NS;
    return now_ns < due_ns ? due_ns - now_ns : 0;
}

/* ---- wake-ups ---- */

void trajd_client_update_poll_fd(struct trajd_client *client)
{
    uint64_t count;
    bool readable = client->queue.count > 0 || client->epoch_ended || client->is_over ||
                    (client->feed.info.credit > 0 &&
                     client->held.count - trajd_deferred_count(client) >= client->feed.info.credit);
    if (!client->poll_fd_used || readable == client->poll_fd_readable)
        return;
    client->poll_fd_readable = readable;
    if (readable)
        trajd_client_signal(client->poll_fd);
    else if (read(client->poll_fd, &count, sizeof count) < 0)
        client->poll_fd_readable = false; /* was not readable, because the user has read it */
}

void trajd_client_wake_sender(struct trajd_client *client)
{
    if (client->next_sleeps) {
        trajd_client_signal(client->wake_fd);
    } else if (!client->flush_scheduled) {
        client->flush_scheduled = true;
        trajd_client_signal(client->io_thread_fd);
    }
}

void trajd_leases_append(struct trajd_wire_leases *leases, const struct trajd_wire_lease *lease)
{
    if (leases->count < TRAJD_WIRE_MAX_LEASES) /* never full: see enqueue in session_batches.c */
        leases->list[leases->count++] = *lease;
}

void trajd_delivery_drop(struct trajd_client *client, struct trajd_delivery *delivery)
{
    free(delivery->failure);
    delivery->failure = NULL;
    trajd_buffers_give(delivery->is_carried ? delivery->buffers : client->feed.buffers,
                       delivery->payload);
    delivery->payload = NULL;
    trajd_mapping_drop(delivery->mapping);
    trajd_schema_drop(delivery->schema);
    delivery->mapping = NULL;
    delivery->schema = NULL;
}

void trajd_open_terms_free(struct trajd_open_terms *terms)
{
    free(terms->feed);
    free(terms->spec);
    free(terms->job);
    free(terms->gpu);
    free(terms->resume);
    *terms = (struct trajd_open_terms){0};
}

static void free_client(struct trajd_client *client)
{
    const int fds[] = {client->wake_fd, client->io_thread_fd, client->poll_fd};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    trajd_open_terms_free(&client->open.terms);
    trajd_schema_drop(client->feed.schema);
    trajd_buffers_drop(client->feed.buffers);
    pthread_mutex_destroy(&client->io_lock);
    pthread_mutex_destroy(&client->state_lock);
    free(client->endpoint);
    free(client->name);
    free(client->session.frame);
    free(client->session.tensors);
    free(client->query.answer);
    free(client);
}

void trajd_client_drop(struct trajd_client *client)
{
    /* acquire and release: all changes by other threads happen before the memory is freed */
    if (__atomic_sub_fetch(&client->references, 1, __ATOMIC_ACQ_REL) == 0)
        free_client(client);
}
