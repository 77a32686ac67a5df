#include <stdlib.h>
#include <string.h>

#include "clients/c/client_internal.h"

#define BUSY_NS (1000 * UINT64_C(1000000))
#define OPEN_TIMEOUT_MS 60000u
#define DEFAULT_CREDIT 4u
#define DEFAULT_GPU_CREDIT 16u

static uint64_t deadline_after(int64_t timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX
                          : trajd_client_now_ns() + (uint64_t)timeout_ms * UINT64_C(1000000);
}

static enum trajd_status refuse_foreign(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "a client cannot be used in a child made by fork: connect again there");
}

/* ---- open ---- */

static bool is_rank_list(const struct trajd_open_options *options, const uint32_t *ranks,
                         uint32_t count, uint32_t world)
{
    bool found = false;
    if (count > TRAJD_WIRE_MAX_LOCAL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (ranks[i] >= world || (i > 0 && ranks[i] <= ranks[i - 1]))
            return false;
        found = found || ranks[i] == options->rank;
    }
    return found;
}

static void keep_ranks(struct trajd_wire_ranks *kept, const uint32_t *ranks, uint32_t count)
{
    kept->count = count;
    if (count > 0)
        memcpy(kept->list, ranks, count * sizeof *ranks);
}

/* What no message could say: an OPEN that cannot be sent would be waited for. */
static enum trajd_status check_words(const struct trajd_open_options *options,
                                     struct trajd_error *error)
{
    enum trajd_status status =
        trajd_client_check_text("open: feed", options->feed, TRAJD_WIRE_MAX_NAME, error);
    if (!status)
        status = trajd_client_check_text("open: spec", options->spec, TRAJD_WIRE_MAX_SPEC, error);
    if (!status)
        status = trajd_client_check_text("open: job", options->job, TRAJD_WIRE_MAX_NAME, error);
    if (!status)
        status = trajd_client_check_text("open: gpu", options->gpu, TRAJD_WIRE_MAX_GPU, error);
    if (!status && options->epoch == UINT64_MAX)
        status =
            trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "open: epoch %llu is beyond the last",
                            (unsigned long long)options->epoch);
    return status;
}

static enum trajd_status check_options(const struct trajd_open_options *options,
                                       struct trajd_error *error)
{
    const uint32_t world = options->world > 0 ? options->world : 1;
    if ((options->feed != NULL && options->feed[0] != '\0') ==
        (options->spec != NULL && options->spec[0] != '\0'))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "open: either feed or spec");
    if (options->mode != TRAJD_MODE_QUEUE && options->mode != TRAJD_MODE_SHARD)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "open: mode %d is neither share nor shard", (int)options->mode);
    if (options->rank >= world || (options->mode == TRAJD_MODE_QUEUE && world != 1))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "open: rank %u of %u (rank below world; share has no ranks)",
                               options->rank, world);
    if (options->local_rank_count > 0 &&
        (options->mode != TRAJD_MODE_SHARD ||
         !is_rank_list(options, options->local_ranks, options->local_rank_count, world)))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "open: local_ranks: at most %u ranks below %u, ascending, rank %u "
                               "among them (of shard)",
                               TRAJD_WIRE_MAX_LOCAL, world, options->rank);
    if (options->resume_size_bytes > TRAJD_WIRE_MAX_CHECKPOINT ||
        (options->resume_size_bytes > 0 && options->mode != TRAJD_MODE_QUEUE))
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "open: resume: the token of a checkpoint, at most %u bytes (of share)",
            TRAJD_WIRE_MAX_CHECKPOINT);
    if (options->gpu_rank_count > 0 &&
        (!options->gpu || options->mode != TRAJD_MODE_SHARD ||
         !is_rank_list(options, options->gpu_ranks, options->gpu_rank_count, world)))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "open: gpu_ranks: at most %u ranks below %u, ascending, rank %u "
                               "among them (of shard, with gpu)",
                               TRAJD_WIRE_MAX_LOCAL, world, options->rank);
    if (options->credit == 1)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "open: credit 1 (at least 2: one in use, one under way)");
    return check_words(options, error);
}

static char *copy_text(const char *text, bool *good)
{
    char *copy = strdup(text ? text : "");
    *good = *good && copy != NULL;
    return copy;
}

static void free_terms(struct trajd_open_terms *terms)
{
    free(terms->feed);
    free(terms->spec);
    free(terms->job);
    free(terms->gpu);
    free(terms->resume);
    *terms = (struct trajd_open_terms){0};
}

static enum trajd_status keep_terms(struct trajd_client *client,
                                    const struct trajd_open_options *options,
                                    struct trajd_error *error)
{
    struct trajd_open_terms terms = {
        .mode = options->mode,
        .rank = options->rank,
        .world = options->world > 0 ? options->world : 1,
        .credit = options->credit > 0 ? options->credit
                  : options->gpu      ? DEFAULT_GPU_CREDIT
                                      : DEFAULT_CREDIT,
        .epoch = options->epoch,
        .next = options->next,
        .fingerprint = options->fingerprint,
    };
    bool good = true;
    terms.feed = copy_text(options->feed, &good);
    terms.spec = copy_text(options->spec, &good);
    terms.job = copy_text(options->job, &good);
    terms.gpu = copy_text(options->gpu, &good);
    keep_ranks(&terms.local, options->local_ranks, options->local_rank_count);
    keep_ranks(&terms.on_gpu, options->gpu_ranks, options->gpu_rank_count);
    if (options->resume_size_bytes > 0) {
        terms.resume = malloc(options->resume_size_bytes);
        good = good && terms.resume != NULL;
        terms.resume_size = (uint32_t)options->resume_size_bytes;
        if (terms.resume)
            memcpy(terms.resume, options->resume, terms.resume_size);
    }
    if (!good) {
        free_terms(&terms);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "open: out of memory");
    }
    free_terms(&client->wanted);
    client->wanted = terms;
    client->gpu_refused = false;
    return TRAJD_OK;
}

void trajd_client_forget_terms(struct trajd_client *client)
{
    free_terms(&client->wanted);
}

/* A failed feed may be followed by another; a lost daemon only by its return. */
static enum trajd_status prepare_open(struct trajd_client *client, struct trajd_error *error)
{
    if (client->phase == TRAJD_PHASE_FAILED && !trajd_link_is_attached(&client->link)) {
        *error = client->failure;
        return client->failure.status;
    }
    if (client->phase >= TRAJD_PHASE_READY)
        client->phase = TRAJD_PHASE_READY;
    trajd_session_leave(client);
    client->open_fresh = true;
    client->refused = false;
    client->has_feed = false;
    client->retry_at_ns = 0;
    client->failure = (struct trajd_error){.status = TRAJD_OK};
    client->open_request = 0; /* an answer to an earlier OPEN is none to this */
    trajd_session_begin(client);
    return TRAJD_OK;
}

static enum trajd_status await_opened(struct trajd_client *client, uint64_t deadline_ns,
                                      struct trajd_error *error)
{
    while (client->phase != TRAJD_PHASE_OPEN && client->phase != TRAJD_PHASE_FAILED &&
           !client->refused) {
        const uint64_t now_ns = trajd_client_now_ns();
        if (client->phase == TRAJD_PHASE_READY && now_ns >= client->retry_at_ns)
            trajd_session_open(client);
        if (trajd_session_is_cancelled(client) || now_ns >= deadline_ns) {
            client->phase = client->phase > TRAJD_PHASE_READY ? TRAJD_PHASE_READY : client->phase;
            client->open_request = 0;
            if (client->failure.status == TRAJD_ERR_BUSY) {
                *error = client->failure;
                return TRAJD_ERR_BUSY;
            }
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0,
                                   "open: no answer from the daemon at %s in time",
                                   client->directory);
        }
        trajd_session_wait(client, deadline_ns);
    }
    if (client->refused || client->phase == TRAJD_PHASE_FAILED) {
        *error = client->failure;
        return client->failure.status;
    }
    return TRAJD_OK;
}

enum trajd_status trajd_client_open(struct trajd_client *client,
                                    const struct trajd_open_options *options,
                                    struct trajd_error *error)
{
    struct trajd_error own;
    error = error ? error : &own;
    if (trajd_client_is_foreign(client))
        return refuse_foreign(error);
    enum trajd_status status = check_options(options, error);
    if (status)
        return status;
    pthread_mutex_lock(&client->io_lock);
    status = prepare_open(client, error);
    if (!status)
        status = keep_terms(client, options, error);
    if (!status)
        status = await_opened(
            client, deadline_after(options->timeout_ms > 0 ? options->timeout_ms : OPEN_TIMEOUT_MS),
            error);
    pthread_mutex_unlock(&client->io_lock);
    return status;
}

const struct trajd_feed_info *trajd_client_feed_info(const struct trajd_client *client)
{
    return client->schema ? &client->info : NULL;
}

/* ---- next ---- */

static bool take_delivery(struct trajd_client *client, struct trajd_delivery *delivery)
{
    pthread_mutex_lock(&client->state);
    bool found = client->queue_count > 0 && client->phase == TRAJD_PHASE_OPEN;
    if (found) {
        *delivery = client->queue[client->queue_first];
        client->queue_first = (client->queue_first + 1) % TRAJD_CLIENT_QUEUE;
        client->queue_count--;
        trajd_client_notify(client);
    }
    pthread_mutex_unlock(&client->state);
    return found;
}

static void advance_position(struct trajd_client *client, uint64_t position)
{
    uint64_t behind = position + client->info.global_batch;
    client->next_position = behind < client->info.epoch_length ? behind : client->info.epoch_length;
}

/* A batch that could not be made is DONE and given back by being told. */
static enum trajd_status tell_failure(struct trajd_client *client, struct trajd_delivery *delivery,
                                      struct trajd_error *error)
{
    trajd_error_set(error, TRAJD_ERR_DATA, 0, "%s", delivery->failure);
    free(delivery->failure);
    pthread_mutex_lock(&client->state);
    /* its release may wait for others */
    trajd_leases_append(&client->pending.done, &delivery->lease);
    trajd_leases_append(&client->pending.released, &delivery->lease);
    pthread_mutex_unlock(&client->state);
    trajd_session_flush(client);
    return TRAJD_ERR_DATA;
}

static bool is_stamped(const struct trajd_client *client, const struct trajd_delivery *delivery)
{
    struct trajd_slot_header header;
    if (!client->mapping)
        return delivery->payload != NULL;
    if (client->mapping->gpu) /* to look would be a copy from the GPU, for each batch */
        return true;
    memcpy(&header, trajd_mapping_slot(client->mapping, delivery->lease.slot), sizeof header);
    return header.generation == delivery->lease.generation;
}

static enum trajd_status hand_out(struct trajd_client *client, struct trajd_delivery *delivery,
                                  struct trajd_batch **out, struct trajd_error *error)
{
    advance_position(client, delivery->position);
    if (delivery->failure)
        return tell_failure(client, delivery, error);
    if (!is_stamped(client, delivery)) {
        trajd_error_set(&client->failure, TRAJD_ERR_PROTOCOL, 0,
                        "the daemon breaks the protocol: slot %u is not of generation %llu",
                        delivery->lease.slot, (unsigned long long)delivery->lease.generation);
        struct trajd_error failure = client->failure;
        trajd_session_fail(client, &failure);
        *error = failure;
        return TRAJD_ERR_PROTOCOL;
    }
    struct trajd_batch *batch = trajd_batch_create(client, delivery);
    if (!batch) {
        trajd_delivery_drop(client, delivery);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "next: out of memory");
    }
    pthread_mutex_lock(&client->state);
    batch->incarnation = client->incarnation;
    batch->held_index = client->held_count;
    client->held[client->held_count++] = batch;
    client->previous = batch;
    trajd_client_notify(client);
    pthread_mutex_unlock(&client->state);
    *out = batch;
    return TRAJD_OK;
}

/* Why there will be no batch, or TRAJD_OK: there may be one. */
static enum trajd_status validate(struct trajd_client *client, struct trajd_error *error)
{
    pthread_mutex_lock(&client->state);
    bool ended = client->ended;
    pthread_mutex_unlock(&client->state);
    if (client->phase == TRAJD_PHASE_FAILED) {
        *error = client->failure;
        return client->failure.status;
    }
    if (ended)
        return TRAJD_END_OF_EPOCH;
    if (client->goaway && !client->reconnect)
        return trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "the daemon at %s goes away",
                               client->directory);
    if (!client->wanted.feed || (client->phase == TRAJD_PHASE_READY && !client->has_feed))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "next: open a feed first");
    return TRAJD_OK;
}

/* By the caller: what streams still read goes back without its doing. */
static uint32_t count_held(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state);
    uint32_t count = client->held_count - trajd_deferred_count(client);
    pthread_mutex_unlock(&client->state);
    return count;
}

/* The next call says DONE for the batch before; what is unsaid leaves in bursts of half the credit
 * while batches are here. */
static void settle_previous(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state);
    if (client->previous && !client->explicit_done)
        trajd_batch_say_done(client->previous);
    const struct trajd_wire_ack *pending = &client->pending;
    const uint32_t released = trajd_deferred_burst_ns(client) == 0 ? pending->released.count : 0;
    const uint32_t unsaid = released > pending->done.count ? released : pending->done.count;
    bool flush =
        unsaid > 0 && (client->queue_count == 0 || unsaid >= (client->info.credit + 1) / 2);
    if (unsaid > 0 && !flush)
        trajd_client_wake_sender(
            client); /* not later than in a moment, however long the caller works now */
    pthread_mutex_unlock(&client->state);
    if (flush)
        trajd_session_exchange(client);
}

static bool was_interrupted(struct trajd_client *client)
{
    return __atomic_exchange_n(&client->interrupted, false,
                               __ATOMIC_ACQ_REL); /* what came before the interrupt is seen */
}

static enum trajd_status await_batch(struct trajd_client *client, int timeout_ms,
                                     struct trajd_batch **batch, struct trajd_error *error)
{
    const uint64_t deadline_ns = deadline_after(timeout_ms);
    const uint64_t timeout_ns = trajd_client_now_ns() + BUSY_NS;
    const uint64_t busy_ns = timeout_ns < deadline_ns ? timeout_ns : deadline_ns;
    struct trajd_delivery delivery;
    for (bool turned = false;; turned = true) {
        if (trajd_session_is_cancelled(client)) /* before a batch is taken, which would be lost */
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "next: interrupted");
        if (take_delivery(client, &delivery))
            return hand_out(client, &delivery, batch, error);
        enum trajd_status status = validate(client, error);
        if (status)
            return status;
        const uint64_t now_ns = trajd_client_now_ns();
        const uint32_t held = count_held(client);
        const bool exhausted = client->info.credit > 0 && held >= client->info.credit;
        if (turned && exhausted && now_ns >= busy_ns)
            return trajd_error_set(
                error, TRAJD_ERR_BUSY, 0,
                "next: %u batches are held, and the credit is %u: release one first", held,
                client->info.credit);
        if (was_interrupted(client))
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "next: interrupted");
        if (turned && now_ns >= deadline_ns)
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "next: no batch in time");
        if (!turned)
            trajd_session_exchange(client);
        else
            trajd_session_wait(client, exhausted ? busy_ns : deadline_ns);
    }
}

enum trajd_status trajd_client_next(struct trajd_client *client, int timeout_ms,
                                    struct trajd_batch **batch, struct trajd_error *error)
{
    struct trajd_error own;
    error = error ? error : &own;
    *batch = NULL;
    if (trajd_client_is_foreign(client))
        return refuse_foreign(error);
    trajd_deferred_collect(client);
    pthread_mutex_lock(&client->io_lock);
    trajd_session_begin(client);
    settle_previous(client);
    enum trajd_status status = await_batch(client, timeout_ms, batch, error);
    pthread_mutex_unlock(&client->io_lock);
    return status;
}
