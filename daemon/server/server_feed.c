/* Adds, closes and removes feeds; the layout of a slot; the producer's take and publish. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/base/heartbeat.h"
#include "daemon/server/server_internal.h"

enum { FRAME_RANK = 4 }; /* batch, steps, height, width; a fifth one are the channels */

static uint64_t now(void)
{
    return (uint64_t)trajd_now_ns();
}

static bool tensor_size(const struct trajd_wire_tensor *tensor, uint64_t *size_bytes)
{
    *size_bytes = trajd_dtype_size(tensor->dtype);
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (__builtin_mul_overflow(*size_bytes, tensor->shape[i], size_bytes))
            return false;
    return true;
}

/* Rounds up to a multiple of the alignment. Returns false on overflow. */
static bool align_up(uint64_t *value, uint64_t alignment)
{
    if (__builtin_add_overflow(*value, alignment - 1, value))
        return false;
    *value -= *value % alignment;
    return true;
}

static enum trajd_status check_tensor(const struct trajd_feed_schema *schema,
                                      const struct trajd_wire_tensor *tensor,
                                      struct trajd_error *error)
{
    if (tensor->rank == 0 || tensor->rank > TRAJD_WIRE_MAX_RANK ||
        tensor->shape[0] != schema->global_batch || trajd_dtype_size(tensor->dtype) == 0)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "tensor %.*s: needs 1 to %d dimensions, of which the first is the "
                               "batch, and an element type",
                               (int)tensor->name.size, tensor->name.data, (int)TRAJD_WIRE_MAX_RANK);
    return TRAJD_OK;
}

/* Places a tensor behind the others. Returns false on overflow. */
static bool place(struct trajd_wire_tensor *tensor, uint64_t *end_bytes)
{
    uint64_t size_bytes;
    bool fits = align_up(end_bytes, TRAJD_TENSOR_ALIGNMENT);

    tensor->offset_bytes = *end_bytes;
    return fits && tensor_size(tensor, &size_bytes) &&
           !__builtin_add_overflow(*end_bytes, size_bytes, end_bytes);
}

/* Returns whether both are images of one role, type and shape, such as two cameras. */
static bool are_alike(const struct trajd_wire_tensor *a, const struct trajd_wire_tensor *b)
{
    return a->rank >= FRAME_RANK && a->rank == b->rank && a->dtype == b->dtype &&
           !memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) &&
           a->role.size == b->role.size && !memcmp(a->role.data, b->role.data, a->role.size);
}

static bool is_placed(const struct trajd_feed_schema *schema, uint32_t tensor)
{
    for (uint32_t i = 0; i < tensor; i++)
        if (are_alike(&schema->tensors[i], &schema->tensors[tensor]))
            return true;
    return false;
}

/* Cameras that are alike lie side by side, behind the first of them: so a worker sees them as one
 * tensor without a copy. */
enum trajd_status trajd_feed_schema_layout(struct trajd_feed_schema *schema,
                                           struct trajd_error *error)
{
    uint64_t end_bytes = sizeof(struct trajd_slot_header);
    for (uint32_t i = 0; i < schema->tensor_count; i++) {
        struct trajd_wire_tensor *tensor = &schema->tensors[i];
        enum trajd_status status = check_tensor(schema, tensor, error);
        if (status)
            return status;
        if (is_placed(schema, i))
            continue;
        bool fits = place(tensor, &end_bytes);
        for (uint32_t k = i + 1; k < schema->tensor_count && fits; k++)
            if (are_alike(tensor, &schema->tensors[k]))
                fits = place(&schema->tensors[k], &end_bytes);
        if (!fits)
            return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                                   "tensor %.*s: the size of a batch overflows",
                                   (int)tensor->name.size, tensor->name.data);
    }
    if (!align_up(&end_bytes, TRAJD_RING_ALIGNMENT) || end_bytes > INT64_MAX)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "the size of a batch overflows");
    schema->slot_size_bytes = end_bytes;
    return TRAJD_OK;
}

/* ---- adding ---- */

/* Completes the options of the core by what follows from the schema and the ring. */
static struct trajd_core_feed_options core_options(const struct trajd_core_feed_options *options,
                                                   const struct trajd_feed_schema *schema,
                                                   const struct trajd_feed_memory *device,
                                                   struct trajd_feed *feed)
{
    struct trajd_core_feed_options core = *options;

    core.global_batch = schema->global_batch;
    /* A ring in host memory that several jobs read is read-only. A GPU has no such memory. */
    core.is_for_one_user = options->job_count <= 1 || device;
    core.writable = options->job_count <= 1; /* with one job, each row of a slot has one reader */
    core.ring_size_bytes = feed->slot_sends->ring.size_bytes;
    core.slot_size_bytes = feed->slot_sends->ring.slot_size_bytes;
    if (device) {
        core.gpu = trajd_wire_text(device->gpu);
        core.handle = (struct trajd_wire_bytes){device->handle, device->handle_size_bytes};
    }
    core.tensor_count = schema->tensor_count;
    core.tensors = feed->slot_sends->tensors;
    core.user = feed;
    return core;
}

static enum trajd_status enter_core(struct trajd_server *server,
                                    const struct trajd_core_feed_options *options,
                                    const struct trajd_feed_memory *device, struct trajd_feed *feed,
                                    struct trajd_error *error)
{
    pthread_mutex_lock(&server->mutex);
    enum trajd_status status = trajd_core_add_feed(server->core, options, &feed->core, error);
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
                                   const struct trajd_core_feed_options *options,
                                   const struct trajd_feed_schema *schema,
                                   const struct trajd_feed_memory *device,
                                   struct trajd_error *error)
{
    struct trajd_server_ring ring = {.fd = -1, .share_fd = -1};
    enum trajd_status status =
        device ? trajd_server_ring_adopt(&ring, options->slot_count, schema->slot_size_bytes,
                                         device->memory, error)
               : trajd_server_ring_create(&ring, options->slot_count, schema->slot_size_bytes,
                                          options->job_count <= 1, error);
    if (status)
        return status;
    feed->slot_sends = trajd_slot_sends_create(&ring, schema->tensors, schema->tensor_count,
                                               feed->server->wake_fd);
    if (feed->slot_sends)
        return TRAJD_OK;
    trajd_server_ring_destroy(&ring);
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed %s: out of memory", options->name);
}

enum trajd_status trajd_server_add_feed(struct trajd_server *server,
                                        const struct trajd_core_feed_options *options,
                                        const struct trajd_feed_schema *schema,
                                        const struct trajd_feed_memory *device,
                                        struct trajd_feed **out, struct trajd_error *error)
{
    struct trajd_feed *feed = calloc(1, sizeof *feed);
    if (!feed)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed %s: out of memory", options->name);
    feed->server = server;
    trajd_heartbeat_init_condition(&feed->wanted);
    enum trajd_status status = make_ring(feed, options, schema, device, error);
    if (!status) {
        const struct trajd_core_feed_options core = core_options(options, schema, device, feed);
        status = enter_core(server, &core, device, feed, error);
    }
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

bool trajd_feed_tell_waiting(struct trajd_feed *feed, uint64_t waited_ns, const char *text)
{
    pthread_mutex_lock(&feed->server->mutex);
    const bool is_told = trajd_core_tell_waiting(feed->core, waited_ns, text);
    pthread_mutex_unlock(&feed->server->mutex);
    return is_told;
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
                                       struct trajd_fill *fill)
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
    const struct timespec deadline = trajd_deadline(timeout_ms);
    pthread_mutex_lock(&server->mutex);
    feed->users++;
    enum trajd_status status = wait_for_slot(feed, &deadline, fill);
    feed->users--;
    if (feed->closed)
        pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    if (!status)
        fill->memory = trajd_server_ring_slot(&feed->slot_sends->ring, fill->slot);
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
    trajd_server_ring_stamp(&feed->slot_sends->ring, fill->slot, &header);
    pthread_mutex_lock(&server->mutex);
    trajd_core_publish(feed->core, fill, failure, now());
    trajd_server_wake_takers(server);
    bool found = server->outbox.size > 0;
    pthread_mutex_unlock(&server->mutex);
    if (found)
        trajd_server_flush(server);
}
