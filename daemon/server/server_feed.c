/* Adds, closes and removes feeds; the producer's take and publish. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/base/heartbeat.h"
#include "daemon/server/server_internal.h"

static uint64_t now(void)
{
    return (uint64_t)trajd_now_ns();
}

static size_t text_size(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

/* Copies the floats of a finish. They follow the tensors, so that they are aligned. */
static struct trajd_wire_bytes keep_floats(float **room, const float *values, uint32_t count)
{
    const struct trajd_wire_bytes kept = {*room, (uint32_t)(count * sizeof *values)};
    memcpy(*room, values, kept.size);
    *room += count;
    return kept;
}

static struct trajd_wire_text keep_text(char **room, const char *text)
{
    const size_t size = text_size(text);
    if (size == 0)
        return (struct trajd_wire_text){0};
    memcpy(*room, text, size);
    struct trajd_wire_text kept = trajd_wire_text(*room);
    *room += size;
    return kept;
}

/* Returns the schema in the form of OPENED: tensors with their texts behind them, in one
 * allocation. The caller frees it. Returns NULL if there is no memory. */
static struct trajd_wire_tensor *copy_schema(const struct trajd_feed_schema *schema)
{
    size_t size = schema->tensor_count * sizeof(struct trajd_wire_tensor);
    uint32_t floats = 0;
    for (uint32_t i = 0; i < schema->tensor_count; i++) {
        size += text_size(schema->tensors[i].name) + text_size(schema->tensors[i].role) +
                text_size(schema->tensors[i].of);
        floats += 2 * schema->tensors[i].finish.channel_count;
    }
    size += floats * sizeof(float);
    struct trajd_wire_tensor *tensors = calloc(1, size > 0 ? size : 1);
    if (!tensors)
        return NULL;
    float *values = (float *)(void *)(tensors + schema->tensor_count);
    char *room = (char *)(values + floats);
    for (uint32_t i = 0; i < schema->tensor_count; i++) {
        const struct trajd_feed_tensor *from = &schema->tensors[i];
        struct trajd_wire_tensor *to = &tensors[i];
        to->name = keep_text(&room, from->name);
        to->role = keep_text(&room, from->role);
        to->of = keep_text(&room, from->of);
        to->dtype = from->dtype;
        to->rank = from->rank;
        memcpy(to->shape, from->shape, sizeof to->shape);
        to->offset_bytes = from->offset_bytes;
        to->finished = from->finish.dtype;
        to->planes = from->finish.is_planes;
        to->scale = keep_floats(&values, from->finish.scale, from->finish.channel_count);
        to->shift = keep_floats(&values, from->finish.shift, from->finish.channel_count);
    }
    return tensors;
}

static struct trajd_wire_texts list_texts(const char *const texts[TRAJD_FEED_MAX_TEXTS])
{
    struct trajd_wire_texts list = {0};

    static_assert(TRAJD_FEED_MAX_TEXTS <= TRAJD_WIRE_MAX_TEXTS, "a list fits OPENED");
    while (list.count < TRAJD_FEED_MAX_TEXTS && texts[list.count]) {
        list.list[list.count] = trajd_wire_text(texts[list.count]);
        list.count++;
    }
    return list;
}

static struct trajd_core_feed_options core_options(const struct trajd_feed_options *options,
                                                   struct trajd_feed *feed)
{
    const struct trajd_feed_memory *device = options->device;

    return (struct trajd_core_feed_options){
        .name = options->name,
        .instance_of = options->instance_of,
        .is_hidden = options->is_hidden,
        .slot_count = options->slot_count,
        .max_credit = options->max_credit,
        .global_batch = options->schema->global_batch,
        .fingerprint = options->fingerprint,
        .norm_digest = options->norm_digest,
        .values_digest = options->values_digest,
        .changed_norm = options->changed_norm,
        .seed = options->seed,
        .window_count = options->window_count,
        .epoch_length = options->epoch_length,
        .dropped_count = options->dropped_count,
        .tail_short = options->tail_short,
        .journal_directory = options->journal_directory,
        .rank_timeout_ns = options->rank_timeout_ns,
        .rejoin_wait_ns = options->rejoin_wait_ns,
        .job_count = options->job_count,
        .slow_leaves = options->slow_leaves,
        .slow_after_ns = options->slow_after_ns,
        /* A ring in host memory that several jobs read is read-only. A GPU has no such memory. */
        .is_for_one_user = options->job_count <= 1 || device,
        .ring_size_bytes = feed->slot_sends->ring.size_bytes,
        .slot_size_bytes = feed->slot_sends->ring.slot_size_bytes,
        /* With one job, each row of a slot has one reader. */
        .writable = options->job_count <= 1,
        .has_unfinished = options->has_unfinished,
        .gpu = trajd_wire_text(device ? device->gpu : NULL),
        .handle = {device != NULL ? device->handle : NULL, device ? device->handle_size_bytes : 0},
        .tensor_count = options->schema->tensor_count,
        .tensors = feed->slot_sends->tensors,
        .found_count = options->data.found_count,
        .kept_count = options->data.kept_count,
        .used_count = options->data.used_count,
        .quarantined = list_texts(options->data.quarantined),
        .warnings = list_texts(options->data.warnings),
        .user = feed,
    };
}

static enum trajd_status enter_core(struct trajd_server *server,
                                    const struct trajd_feed_options *options,
                                    struct trajd_feed *feed, struct trajd_error *error)
{
    const struct trajd_feed_memory *device = options->device;
    const struct trajd_core_feed_options core = core_options(options, feed);
    pthread_mutex_lock(&server->mutex);
    enum trajd_status status = trajd_core_add_feed(server->core, &core, &feed->core, error);
    if (!status && !device)
        trajd_server_ring_name(&feed->slot_sends->ring, trajd_core_feed_id(feed->core),
                               server->options.instance_id);
    if (!status && device) {
        const struct trajd_ring_header header = trajd_server_ring_number(
            &feed->slot_sends->ring, trajd_core_feed_id(feed->core), server->options.instance_id);
        status = device->write_header(device->context, &header, sizeof header, error);
        if (status)
            trajd_core_remove_feed(server->core, &feed->core, now());
    }
    if (!status) {
        feed->next = server->feeds;
        server->feeds = feed;
    }
    pthread_mutex_unlock(&server->mutex);
    return status;
}

static void free_feed(struct trajd_feed *feed)
{
    trajd_slot_sends_drop(&feed->slot_sends);
    pthread_cond_destroy(&feed->wanted);
    free(feed);
}

static enum trajd_status make_ring(struct trajd_feed *feed,
                                   const struct trajd_feed_options *options,
                                   struct trajd_error *error)
{
    const uint64_t slot_size_bytes = options->schema->slot_size_bytes;
    struct trajd_server_ring ring = {.fd = -1, .share_fd = -1};
    enum trajd_status status =
        options->device ? trajd_server_ring_adopt(&ring, options->slot_count, slot_size_bytes,
                                                  options->device->memory, error)
                        : trajd_server_ring_create(&ring, options->slot_count, slot_size_bytes,
                                                   options->job_count <= 1, error);
    if (status)
        return status;
    struct trajd_wire_tensor *tensors = copy_schema(options->schema);
    if (tensors)
        feed->slot_sends = trajd_slot_sends_create(&ring, tensors, options->schema->tensor_count,
                                                   feed->server->wake_fd);
    if (feed->slot_sends)
        return TRAJD_OK;
    free(tensors);
    trajd_server_ring_destroy(&ring);
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed %s: out of memory", options->name);
}

enum trajd_status trajd_server_add_feed(struct trajd_server *server,
                                        const struct trajd_feed_options *options,
                                        struct trajd_feed **out, struct trajd_error *error)
{
    struct trajd_feed *feed = calloc(1, sizeof *feed);
    if (!feed)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed %s: out of memory", options->name);
    feed->server = server;
    trajd_heartbeat_init_condition(&feed->wanted);
    enum trajd_status status = make_ring(feed, options, error);
    if (!status)
        status = enter_core(server, options, feed, error);
    if (status) {
        free_feed(feed);
        return status;
    }
    *out = feed;
    return TRAJD_OK;
}

uint32_t trajd_feed_id(const struct trajd_feed *feed)
{
    return trajd_core_feed_id(feed->core);
}

static void forget_answers(struct trajd_server *server, const struct trajd_feed *feed)
{
    for (uint32_t i = 0; i < TRAJD_SERVER_MAX_REQUESTS; i++) {
        struct trajd_request *request = &server->requests[i];
        if (request->id == 0 || request->feed != feed)
            continue;
        request->feed = NULL;
        trajd_error_set(&request->error, TRAJD_ERR_CLOSED, 0, "the feed was closed");
    }
}

static void close_locked(struct trajd_feed *feed)
{
    feed->closed = true;
    pthread_cond_broadcast(&feed->wanted);
}

void trajd_feed_close(struct trajd_feed *feed)
{
    pthread_mutex_lock(&feed->server->mutex);
    close_locked(feed);
    pthread_mutex_unlock(&feed->server->mutex);
}

void trajd_feed_fail(struct trajd_feed *feed, const struct trajd_error *why)
{
    pthread_mutex_lock(&feed->server->mutex);
    trajd_core_fail_feed(feed->core, why);
    pthread_mutex_unlock(&feed->server->mutex);
}

static bool is_awaited(const struct trajd_feed *feed)
{
    for (uint32_t i = 0; i < TRAJD_SERVER_MAX_REQUESTS; i++) {
        const struct trajd_request *request = &feed->server->requests[i];
        if (request->id != 0 && request->answered && request->feed == feed)
            return true;
    }
    return false;
}

static bool is_idle(const struct trajd_feed *feed)
{
    struct trajd_core_feed_info info;
    trajd_core_feed_info(feed->core, &info);
    return info.members == 0 && !is_awaited(feed);
}

bool trajd_feed_is_held(const struct trajd_feed *feed)
{
    struct trajd_core_feed_info info;
    trajd_core_feed_info(feed->core, &info);
    return info.has_leases && !feed->slot_sends->ring.is_device;
}

/* Closes and hides an idle feed. An OPEN by name then makes a new feed, and does not enter this
 * one, which is removed soon. */
static void retire_locked(struct trajd_feed *feed)
{
    trajd_core_show_feed(feed->core, false);
    feed->slot_sends->ring.is_unused = !trajd_feed_is_held(feed);
    close_locked(feed);
}

bool trajd_feed_is_idle(struct trajd_feed *feed)
{
    pthread_mutex_lock(&feed->server->mutex);
    const bool idle = is_idle(feed);
    pthread_mutex_unlock(&feed->server->mutex);
    return idle;
}

uint64_t trajd_feed_idle_since_ns(struct trajd_feed *feed)
{
    struct trajd_core_feed_info info;
    pthread_mutex_lock(&feed->server->mutex);
    trajd_core_feed_info(feed->core, &info);
    const bool held = trajd_feed_is_held(feed);
    pthread_mutex_unlock(&feed->server->mutex);
    return held ? 0 : info.idle_since_ns;
}

enum trajd_status trajd_server_change(struct trajd_server *server,
                                      const struct trajd_server_change *change, uint32_t *busy)
{
    enum trajd_status status = TRAJD_OK;
    pthread_mutex_lock(&server->mutex);
    for (uint32_t i = 0; i < change->out_count && !status; i++) {
        if (!is_idle(change->out[i])) {
            *busy = i;
            status = TRAJD_ERR_BUSY;
        }
    }
    for (uint32_t i = 0; i < change->out_count && !status; i++)
        retire_locked(change->out[i]);
    for (uint32_t i = 0; i < change->in_count && !status; i++)
        trajd_core_show_feed(change->in[i]->core, true);
    if (!status) {
        trajd_core_set_feed_names(server->core, change->feed_names);
        server->options.feed_idle_ms = change->feed_idle_ms;
    }
    pthread_mutex_unlock(&server->mutex);
    return status;
}

bool trajd_feed_close_if_idle(struct trajd_feed *feed)
{
    pthread_mutex_lock(&feed->server->mutex);
    const bool closes = is_idle(feed) && !trajd_feed_is_held(feed);
    if (closes)
        retire_locked(feed);
    pthread_mutex_unlock(&feed->server->mutex);
    return closes;
}

bool trajd_feed_has_user(struct trajd_feed *feed)
{
    struct trajd_core_feed_info info;
    pthread_mutex_lock(&feed->server->mutex);
    trajd_core_feed_info(feed->core, &info);
    pthread_mutex_unlock(&feed->server->mutex);
    return info.has_user;
}

void trajd_server_remove_feed(struct trajd_server *server, struct trajd_feed **pointer)
{
    struct trajd_feed *feed = *pointer;
    if (!feed)
        return;
    pthread_mutex_lock(&server->mutex);
    feed->closed = true;
    pthread_cond_broadcast(&feed->wanted);
    while (feed->users > 0)
        pthread_cond_wait(&server->changed, &server->mutex);
    struct trajd_feed **link = &server->feeds;
    while (*link != feed)
        link = &(*link)->next;
    *link = feed->next;
    forget_answers(server, feed);
    trajd_core_remove_feed(server->core, &feed->core, now());
    trajd_server_wake(server);
    pthread_mutex_unlock(&server->mutex);
    free_feed(feed);
    *pointer = NULL;
}

/* ---- production ---- */

static enum trajd_status wait_for_slot(struct trajd_feed *feed, const struct timespec *deadline,
                                       struct trajd_core_fill *fill)
{
    struct trajd_server *server = feed->server;
    for (bool late = false;;) {
        if (feed->closed)
            return TRAJD_ERR_CLOSED;
        if (!trajd_core_take(feed->core, now(), fill))
            return TRAJD_OK;
        if (late)
            return TRAJD_ERR_TIMEOUT;
        late = pthread_cond_timedwait(&feed->wanted, &server->mutex, deadline) == ETIMEDOUT;
    }
}

enum trajd_status trajd_feed_take(struct trajd_feed *feed, uint32_t timeout_ms,
                                  struct trajd_fill *fill)
{
    struct trajd_server *server = feed->server;
    struct trajd_core_fill core = {0};
    const struct timespec deadline = trajd_deadline(timeout_ms);
    pthread_mutex_lock(&server->mutex);
    feed->users++;
    enum trajd_status status = wait_for_slot(feed, &deadline, &core);
    feed->users--;
    if (feed->closed)
        pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    if (!status)
        *fill = (struct trajd_fill){.slot = core.slot,
                                    .run_id = core.run_id,
                                    .epoch = core.epoch,
                                    .position = core.position,
                                    .row_count = core.row_count,
                                    .memory =
                                        trajd_server_ring_slot(&feed->slot_sends->ring, core.slot),
                                    .generation = core.generation,
                                    .range_count = core.range_count,
                                    .ranges = core.ranges};
    return status;
}

void trajd_feed_publish(struct trajd_feed *feed, const struct trajd_fill *fill,
                        const struct trajd_error *failure)
{
    struct trajd_server *server = feed->server;
    const struct trajd_slot_header header = {.generation = fill->generation,
                                             .epoch = fill->epoch,
                                             .position = fill->position,
                                             .row_count = fill->row_count};
    struct trajd_core_fill core = {.slot = fill->slot,
                                   .row_count = fill->row_count,
                                   .generation = fill->generation,
                                   .run_id = fill->run_id,
                                   .epoch = fill->epoch,
                                   .position = fill->position};
    memcpy(core.work_ns, fill->work_ns, sizeof core.work_ns);
    trajd_server_ring_stamp(&feed->slot_sends->ring, fill->slot, &header);
    pthread_mutex_lock(&server->mutex);
    trajd_core_publish(feed->core, &core, failure, now());
    trajd_server_wake_takers(server);
    bool found = server->outbox.size > 0;
    pthread_mutex_unlock(&server->mutex);
    if (found)
        trajd_server_flush(server);
}
