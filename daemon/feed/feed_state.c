/* Looks things up in the state, counts the batches of an epoch, and sends messages. Every other
 * file of the core uses this one. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/feed/feed_internal.h"
#include "proto/visible.h"

void trajd_core_send(struct session *session, const struct trajd_core *core,
                     const struct trajd_wire_message *message)
{
    core->options.send(core->options.context, session->id, session->user, message);
}

struct session *trajd_session_find(const struct trajd_core *core, uint64_t id)
{
    struct session *session = &core->sessions[id % core->options.max_sessions];

    return id && session->id == id ? session : NULL;
}

void trajd_core_send_error(struct trajd_core *core, uint64_t session_id, uint64_t request,
                           const struct trajd_error *error)
{
    struct session *session = trajd_session_find(core, session_id);
    struct trajd_wire_message message;
    char text[TRAJD_ERROR_MESSAGE_SIZE];

    if (!session)
        return;
    trajd_visible(text, sizeof text, error->message); /* it may have names that others chose */
    message.op = TRAJD_WIRE_ERROR;
    message.error = (struct trajd_wire_error){
        .request = request, .status = error->status, .message = trajd_wire_text(text)};
    trajd_core_send(session, core, &message);
}

void trajd_session_refuse(struct trajd_core *core, struct session *session, uint64_t request,
                          enum trajd_status status, const char *format, ...)
{
    struct trajd_error error = {.status = status};
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(error.message, sizeof error.message, format, arguments);
    va_end(arguments);
    trajd_core_send_error(core, session->id, request, &error);
}

void trajd_session_send_removal(struct trajd_core *core, struct session *session,
                                enum trajd_status status, const char *reason)
{
    trajd_error_set(&session->removal, status, 0, "%s", reason);
    trajd_core_send_error(core, session->id, 0, &session->removal);
}

uint64_t trajd_core_find_token(const struct trajd_core *core,
                               const uint8_t token[TRAJD_WIRE_TOKEN_SIZE])
{
    for (uint32_t i = 0; i < core->options.max_sessions; i++)
        if (core->sessions[i].id &&
            memcmp(core->sessions[i].token, token, TRAJD_WIRE_TOKEN_SIZE) == 0)
            return core->sessions[i].id;
    return 0;
}

struct trajd_core_feed *trajd_core_find_feed(struct trajd_core *core, struct trajd_wire_text name)
{
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next)
        if (!feed->options.is_hidden && trajd_wire_text_equals(name, feed->options.name))
            return feed;
    return NULL;
}

uint32_t trajd_core_feed_id(const struct trajd_core_feed *feed)
{
    return feed->id;
}

void *trajd_core_feed_user(const struct trajd_core_feed *feed)
{
    return feed->options.user;
}

const char *trajd_core_family(const struct trajd_core_feed *feed)
{
    return feed->options.instance_of ? feed->options.instance_of : feed->options.name;
}

void trajd_feed_base_name(const struct trajd_core_feed *feed, char name[TRAJD_WIRE_MAX_NAME + 1])
{
    const char *family = trajd_core_family(feed);

    trajd_wire_text_copy(
        (struct trajd_wire_text){family, (uint32_t)(strchrnul(family, TRAJD_PLACE_MARK) - family)},
        name, TRAJD_WIRE_MAX_NAME + 1);
}

bool trajd_core_is_same_feed(const struct trajd_core_feed *a, const struct trajd_core_feed *b)
{
    char name[TRAJD_WIRE_MAX_NAME + 1], other[TRAJD_WIRE_MAX_NAME + 1];

    trajd_feed_base_name(a, name);
    trajd_feed_base_name(b, other);
    return strcmp(name, other) == 0;
}

uint64_t trajd_batches_from(const struct trajd_core_feed *feed, uint64_t position)
{
    uint64_t length = feed->options.epoch_length, batch = feed->options.global_batch;
    uint64_t remaining = position < length ? length - position : 0;

    return remaining / batch + (feed->options.tail_short && remaining % batch != 0);
}

uint64_t trajd_epoch_end(const struct trajd_core_feed *feed, uint64_t begin)
{
    return begin + trajd_batches_from(feed, begin) * feed->options.global_batch;
}

bool trajd_job_has_todo(const struct job *job)
{
    for (uint32_t i = 0; i < job->todo_count && !job->awaited; i++)
        if (!job->todo[i].holder)
            return true;
    return false;
}

/* Returns true if the batch at the cursor leaves each job what it needs: room in its journal, and
 * where the batch is of an epoch after the job's, a slot for its todo. */
static bool leaves_room(const struct trajd_core_feed *feed)
{
    const struct cursor *cursor = &feed->cursor;
    const uint32_t used = feed->filling.count + feed->ready.count;
    const uint64_t epoch =
        cursor->epoch + (cursor->position >= trajd_epoch_end(feed, cursor->begin));

    for (uint32_t j = 0; j < feed->options.job_count; j++) {
        const struct job *job = &feed->jobs[j];
        if (!job->is_attached || !job->todo_count)
            continue;
        if (job->todo_count + used >= TRAJD_JOURNAL_MAX_UNDONE ||
            (epoch > job->epoch && used + 1 >= feed->options.slot_count))
            return false;
    }
    return true;
}

bool trajd_feed_wants(const struct trajd_core_feed *feed)
{
    const struct cursor *cursor = &feed->cursor;
    uint64_t last = 0; /* the latest epoch of an attached job */
    bool is_read = false;

    if (feed->core->going_away || !cursor->active || !feed->member_count)
        return false;
    for (uint32_t j = 0; j < feed->options.job_count; j++) {
        const struct job *job = &feed->jobs[j];
        if (!job->is_attached)
            continue;
        if (trajd_job_has_todo(job))
            return true;
        is_read |= job->phase == JOB_RUNNING || job->phase == JOB_ENDED;
        last = job->epoch > last ? job->epoch : last;
    }
    if (!is_read || !leaves_room(feed))
        return false;
    if (cursor->epoch <= last && cursor->position < trajd_epoch_end(feed, cursor->begin))
        return true;
    return (cursor->epoch <= last ? 0 : cursor->position) < trajd_epoch_end(feed, 0);
}

void trajd_feed_wake(struct trajd_core_feed *feed)
{
    if (feed->filling.count + feed->ready.count < feed->options.slot_count &&
        trajd_feed_wants(feed))
        feed->core->options.wake(feed->core->options.context, feed);
}

struct job *trajd_job_find(const struct trajd_core_feed *feed, struct trajd_wire_text name)
{
    for (uint32_t j = 0; j < feed->options.job_count; j++)
        if (feed->jobs[j].phase != JOB_NONE && trajd_wire_text_equals(name, feed->jobs[j].name))
            return &feed->jobs[j];
    return NULL;
}

bool trajd_job_matches(const struct job *job, const struct trajd_wire_open *open)
{
    return job->phase != JOB_NONE && trajd_wire_text_equals(open->job, job->name) &&
           open->mode == job->mode && open->world == job->world &&
           open->local.count == job->local.count &&
           memcmp(open->local.list, job->local.list,
                  open->local.count * sizeof open->local.list[0]) == 0;
}

bool trajd_job_has_neighbours(const struct job *job)
{
    for (uint32_t i = 0; i < job->feed->member_count; i++)
        if (job->feed->members[i]->job != job)
            return true;
    return false;
}

uint32_t trajd_job_count_others(const struct job *job, const struct session *session)
{
    return job->member_count - (session->job == job);
}

uint32_t trajd_job_reader_count(const struct job *job)
{
    if (job->mode != TRAJD_WIRE_SHARD)
        return 1;
    return job->local.count ? job->local.count : job->world;
}

void trajd_job_drop_todo(struct job *job, uint32_t index)
{
    job->todo_count--;
    memmove(&job->todo[index], &job->todo[index + 1],
            (job->todo_count - index) * sizeof job->todo[0]);
}

struct job_parts *trajd_slot_job_parts(const struct slot *slot, const struct job *job)
{
    struct job_parts *job_parts = &slot->job_parts[job->index];

    return slot->state != SLOT_FREE && job_parts->run_id == job->run_id && slot->epoch == job->epoch
               ? job_parts
               : NULL;
}

void trajd_part_rows(const struct job *job, uint32_t row_count, uint32_t part_index,
                     uint32_t *begin, uint32_t *count)
{
    uint64_t world = job->mode == TRAJD_WIRE_SHARD ? job->world : 1;

    *begin = (uint32_t)(row_count * (uint64_t)part_index / world);
    *count = (uint32_t)(row_count * ((uint64_t)part_index + 1) / world) - *begin;
}
