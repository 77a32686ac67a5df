/* Opens a feed: checks the options, sends OPEN and waits for OPENED. */
#include <stdlib.h>
#include <string.h>

#include "clients/c/session/session.h"

#define OPEN_TIMEOUT_MS 60000u

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

static void copy_ranks(struct trajd_wire_ranks *kept, const uint32_t *ranks, uint32_t count)
{
    kept->count = count;
    if (count > 0)
        memcpy(kept->list, ranks, count * sizeof *ranks);
}

/* Refuses texts that no message can carry: open would wait for the reply to an OPEN that was never
 * sent. */
static enum trajd_status check_texts(const struct trajd_open_options *options,
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
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "open: epoch %llu is too large",
                                 (unsigned long long)options->epoch);
    return status;
}

static enum trajd_status check_options(const struct trajd_open_options *options,
                                       struct trajd_error *error)
{
    const uint32_t world = options->world > 0 ? options->world : 1;
    if ((options->feed != NULL && options->feed[0] != '\0') ==
        (options->spec != NULL && options->spec[0] != '\0'))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "open: give either feed or spec");
    if (options->mode != TRAJD_MODE_QUEUE && options->mode != TRAJD_MODE_SHARD)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "open: mode %d is neither queue nor shard", (int)options->mode);
    if (options->rank >= world || (options->mode == TRAJD_MODE_QUEUE && world != 1))
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "open: rank %u of %u: the rank must be below world, and mode queue has no ranks",
            options->rank, world);
    if (options->local_rank_count > 0 &&
        (options->mode != TRAJD_MODE_SHARD ||
         !is_rank_list(options, options->local_ranks, options->local_rank_count, world)))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "open: local_ranks must be at most %u ascending ranks below %u that "
                               "include rank %u, in mode shard",
                               TRAJD_WIRE_MAX_LOCAL, world, options->rank);
    if (options->resume_size_bytes > TRAJD_WIRE_MAX_CHECKPOINT ||
        (options->resume_size_bytes > 0 && options->mode != TRAJD_MODE_QUEUE))
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "open: resume must be a checkpoint token of at most %u bytes, in mode queue",
            TRAJD_WIRE_MAX_CHECKPOINT);
    if (options->gpu_rank_count > 0 &&
        (!options->gpu || options->mode != TRAJD_MODE_SHARD ||
         !is_rank_list(options, options->gpu_ranks, options->gpu_rank_count, world)))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "open: gpu_ranks must be at most %u ascending ranks below %u that "
                               "include rank %u, in mode shard with a gpu",
                               TRAJD_WIRE_MAX_LOCAL, world, options->rank);
    if (options->credit == 1)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "open: credit 1 is too low: at least 2 are needed, one batch in use "
                               "and one on its way");
    return check_texts(options, error);
}

static char *copy_text(const char *text, bool *good)
{
    char *copy = strdup(text ? text : "");
    *good = *good && copy != NULL;
    return copy;
}

static enum trajd_status store_terms(struct trajd_client *client,
                                     const struct trajd_open_options *options,
                                     struct trajd_error *error)
{
    struct trajd_open_terms terms = {
        .mode = options->mode,
        .rank = options->rank,
        .world = options->world > 0 ? options->world : 1,
        .credit = options->credit > 0 ? options->credit : TRAJD_WIRE_ANY_CREDIT,
        .epoch = options->epoch,
        .next = options->next,
        .fingerprint = options->fingerprint,
        .unfinished = options->unfinished,
    };
    bool good = true;
    terms.feed = copy_text(options->feed, &good);
    terms.spec = copy_text(options->spec, &good);
    terms.job = copy_text(options->job, &good);
    terms.gpu = copy_text(options->gpu, &good);
    copy_ranks(&terms.local, options->local_ranks, options->local_rank_count);
    copy_ranks(&terms.on_gpu, options->gpu_ranks, options->gpu_rank_count);
    if (options->resume_size_bytes > 0) {
        terms.resume = malloc(options->resume_size_bytes);
        good = good && terms.resume != NULL;
        terms.resume_size = (uint32_t)options->resume_size_bytes;
        if (terms.resume)
            memcpy(terms.resume, options->resume, terms.resume_size);
    }
    if (!good) {
        trajd_open_terms_free(&terms);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "open: out of memory");
    }
    trajd_open_terms_free(&client->open.terms);
    client->open.terms = terms;
    client->open.gpu_refused = false;
    return TRAJD_OK;
}

/* Another feed can be opened after a failed one. After a lost daemon only its return helps. */
static enum trajd_status prepare_open(struct trajd_client *client, struct trajd_error *error)
{
    if (client->session.phase == TRAJD_PHASE_FAILED && !trajd_link_is_attached(&client->link)) {
        *error = client->session.failure;
        return client->session.failure.status;
    }
    if (client->session.phase >= TRAJD_PHASE_READY)
        client->session.phase = TRAJD_PHASE_READY;
    trajd_session_end_epoch(client);
    client->open.is_fresh = true;
    client->open.is_refused = false;
    client->open.wait_until_ns = 0;
    client->notice.is_new = false;
    client->feed.is_granted = false;
    client->session.retry_at_ns = 0;
    client->session.failure = (struct trajd_error){.status = TRAJD_OK};
    client->open.request = 0; /* replies to earlier OPENs do not count */
    trajd_session_begin_call(client);
    return TRAJD_OK;
}

static enum trajd_status await_opened(struct trajd_client *client, uint32_t timeout_ms,
                                      struct trajd_error *error)
{
    uint64_t deadline_ns = trajd_client_deadline_ns(timeout_ms);
    while (client->session.phase != TRAJD_PHASE_OPEN &&
           client->session.phase != TRAJD_PHASE_FAILED && !client->open.is_refused) {
        const uint64_t now_ns = trajd_client_now_ns();
        if (client->session.phase == TRAJD_PHASE_READY && now_ns >= client->session.retry_at_ns)
            trajd_session_send_open(client);
        if (client->open.wait_until_ns > deadline_ns)
            deadline_ns = client->open.wait_until_ns;
        if (trajd_session_is_cancelled(client) || now_ns >= deadline_ns) {
            client->session.phase = client->session.phase > TRAJD_PHASE_READY
                                        ? TRAJD_PHASE_READY
                                        : client->session.phase;
            client->open.request = 0;
            if (client->session.failure.status == TRAJD_ERR_BUSY &&
                client->session.phase == TRAJD_PHASE_READY) {
                *error = client->session.failure;
                return TRAJD_ERR_BUSY;
            }
            return trajd_session_time_out(client, "open", timeout_ms, error);
        }
        trajd_session_wait(client, deadline_ns);
    }
    if (client->open.is_refused || client->session.phase == TRAJD_PHASE_FAILED) {
        *error = client->session.failure;
        return client->session.failure.status;
    }
    return TRAJD_OK;
}

enum trajd_status trajd_client_open(struct trajd_client *client,
                                    const struct trajd_open_options *options,
                                    struct trajd_error *error)
{
    struct trajd_error own;
    error = error ? error : &own;
    enum trajd_status status = trajd_client_check_process(client, error);
    if (!status)
        status = check_options(options, error);
    if (status)
        return status;
    pthread_mutex_lock(&client->io_lock);
    status = prepare_open(client, error);
    if (!status)
        status = store_terms(client, options, error);
    if (!status)
        status = await_opened(
            client, options->timeout_ms > 0 ? options->timeout_ms : OPEN_TIMEOUT_MS, error);
    pthread_mutex_unlock(&client->io_lock);
    return status;
}

const struct trajd_feed_info *trajd_client_feed_info(const struct trajd_client *client)
{
    return client->feed.schema ? &client->feed.info : NULL;
}
