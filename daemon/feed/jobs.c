/* The epochs of a job: how one begins, runs and is over. */
#include <stdlib.h>
#include <string.h>

#include "daemon/feed/state.h"
#include "daemon/feed/token.h"

_Static_assert(TRAJD_JOURNAL_MAX_UNDONE >= TRAJD_CORE_MAX_SLOTS, "what is in slots fits a journal");

uint64_t trajd_batches_from(const struct trajd_core_feed *feed, uint64_t position)
{
    uint64_t length = feed->options.epoch_length, batch = feed->options.global_batch;
    uint64_t rest = position < length ? length - position : 0;

    return rest / batch + (feed->options.tail_short && rest % batch != 0);
}

uint64_t trajd_job_end(const struct trajd_core_feed *feed, uint64_t begin)
{
    return begin + trajd_batches_from(feed, begin) * feed->options.global_batch;
}

/* ---- what members are told ---- */

/* Where a rank goes on: at the first part that is not DONE. */
uint64_t trajd_rank_position(const struct trajd_core_feed *feed, uint32_t rank)
{
    const struct cursor *cursor = &feed->cursor;
    uint64_t position = feed->job.ranks[rank].next;

    if (feed->job.phase == JOB_ENDED)
        return feed->options.epoch_length;
    if (feed->job.phase != JOB_RUNNING)
        return position;
    if (cursor->epoch == feed->job.epoch && cursor->position > position)
        position = cursor->position;
    else if (cursor->epoch > feed->job.epoch)
        position = feed->options.epoch_length;
    for (uint32_t i = 0; i < feed->options.slot_count; i++) {
        const struct slot *slot = &feed->slots[i];
        if (slot->state != SLOT_FREE && slot->life == cursor->life && slot->epoch == feed->job.epoch &&
            (slot->parts[rank].state == PART_PENDING || slot->parts[rank].state == PART_LEASED) &&
            slot->position < position)
            position = slot->position;
    }
    return position < feed->options.epoch_length ? position : feed->options.epoch_length;
}

void trajd_job_send_opened(struct trajd_core_feed *feed, struct session *session)
{
    const struct trajd_core_feed_options *options = &feed->options;
    const struct job *job = &feed->job;
    struct trajd_wire_message message;
    uint64_t next = options->epoch_length; /* of an epoch that the job has gone past */

    if (session->joined)
        next = job->mode == TRAJD_WIRE_SHARD ? trajd_rank_position(feed, session->rank) : job->begin;
    message.op = TRAJD_WIRE_OPENED;
    message.opened = (struct trajd_wire_opened){
        .request = session->request,
        .feed_id = feed->id,
        .ring = feed->id,
        .ring_size_bytes = options->ring_size_bytes,
        .slot_count = options->slot_count,
        .slot_size_bytes = options->slot_size_bytes,
        .writable = options->writable,
        .batch = options->global_batch,
        .part = session->rank,
        .credit = session->credit,
        .epoch = session->epoch,
        .next = next,
        .length = options->epoch_length,
        .windows = options->window_count,
        .dropped = options->dropped_count,
        .fingerprint = options->fingerprint,
        .seed = options->seed,
        .tensor_count = options->tensor_count,
        .tensors = options->tensors,
    };
    trajd_part_rows(job, options->global_batch, session->rank, &message.opened.row_begin,
                    &message.opened.row_count);
    trajd_core_send(session, feed->core, &message);
}

void trajd_job_send_end(struct trajd_core_feed *feed, struct session *session)
{
    struct trajd_wire_message message;

    message.op = TRAJD_WIRE_EPOCH_END;
    message.epoch_end = session->end;
    trajd_core_send(session, feed->core, &message);
}

static uint64_t count_local_rows(const struct job *job, uint32_t row_count)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < job->local.count; i++) {
        uint32_t begin, count;
        trajd_part_rows(job, row_count, job->local.list[i], &begin, &count);
        rows += count;
    }
    return rows;
}

/* Of those in [begin, behind) that are read here. */
static uint64_t count_windows(const struct trajd_core_feed *feed, uint64_t begin, uint64_t behind)
{
    uint64_t batch = feed->options.global_batch, count = behind - begin;

    if (!feed->job.local.count)
        return count;
    return count / batch * count_local_rows(&feed->job, (uint32_t)batch) +
           count_local_rows(&feed->job, (uint32_t)(count % batch));
}

/* An epoch whose batches were counted from `begin` is over for a session. */
void trajd_job_tell_end(struct trajd_core_feed *feed, struct session *session, uint64_t begin)
{
    const struct trajd_core_feed_options *options = &feed->options;
    uint64_t behind = trajd_job_end(feed, begin);

    if (behind > options->epoch_length)
        behind = options->epoch_length;
    session->is_over = true;
    session->end = (struct trajd_wire_epoch_end){
        .feed_id = feed->id,
        .epoch = session->epoch,
        .batches = trajd_batches_from(feed, begin),
        .windows = count_windows(feed, begin, behind),
        .dropped = options->dropped_count + options->epoch_length - behind,
    };
    trajd_job_send_end(feed, session);
}

/* ---- the course of an epoch ---- */

/* Every part that is not DONE, which is all from each rank's own position on. */
static uint64_t count_parts(const struct trajd_core_feed *feed)
{
    uint64_t parts = 0;

    if (feed->job.mode == TRAJD_WIRE_SHARE)
        return trajd_batches_from(feed, feed->job.begin);
    for (uint32_t r = 0; r < feed->job.world; r++)
        if (!feed->job.ranks[r].is_remote)
            parts += trajd_batches_from(feed, feed->job.ranks[r].next);
    return parts;
}

/* The rank does not need what lies before `next`: neither what is in slots nor what will be. */
void trajd_rank_skip(struct trajd_core_feed *feed, uint32_t rank, uint64_t next)
{
    for (uint32_t i = 0; i < feed->options.slot_count; i++) {
        struct slot *slot = &feed->slots[i];
        if (slot->state == SLOT_FREE || slot->life != feed->cursor.life || slot->epoch != feed->job.epoch ||
            slot->position >= next || slot->parts[rank].state != PART_PENDING)
            continue;
        slot->parts[rank].state = PART_RELEASED;
        trajd_slot_settle(feed, i);
    }
}

static void move_production(struct trajd_core_feed *feed, uint64_t position)
{
    trajd_slots_retire(feed);
    feed->cursor.active = true;
    feed->cursor.epoch = feed->job.epoch;
    feed->cursor.position = position;
    feed->cursor.todo_count = feed->cursor.todo_next = 0;
}

/* What was produced ahead can be kept if the epoch begins where it began. */
static bool is_prefetched(const struct trajd_core_feed *feed)
{
    return feed->cursor.active && feed->cursor.epoch == feed->job.epoch && feed->job.begin == 0;
}

static void run_sharded(struct trajd_core_feed *feed)
{
    struct job *job = &feed->job;

    job->begin = UINT64_MAX;
    for (uint32_t r = 0; r < job->world; r++)
        if (!job->ranks[r].is_remote && job->ranks[r].next < job->begin)
            job->begin = job->ranks[r].next;
    if (!is_prefetched(feed))
        move_production(feed, job->begin);
    job->phase = JOB_RUNNING;
    job->parts_left = count_parts(feed);
    for (uint32_t r = 0; r < job->world; r++)
        trajd_rank_skip(feed, r, job->ranks[r].next);
    trajd_feed_wake(feed);
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

/* What is in slots and what a journal left is all that can be undone below the cursor: never more than there are
 * slots, or were. */
void trajd_job_record(const struct trajd_core_feed *feed, struct trajd_journal_state *state)
{
    const struct trajd_core_feed_options *options = &feed->options;
    const struct cursor *cursor = &feed->cursor;
    const struct job *job = &feed->job;
    uint64_t batch = options->global_batch;

    state->key = (struct trajd_journal_key){options->fingerprint,  options->seed, job->epoch, job->asked, job->begin,
                                            options->epoch_length, batch};
    state->undone_count = 0;
    state->high = trajd_batches_from(feed, job->begin);
    if (job->phase == JOB_ENDED)
        return;
    if (cursor->epoch == job->epoch)
        state->high = (cursor->position - job->begin) / batch;
    for (uint32_t i = cursor->todo_next; i < cursor->todo_count; i++)
        state->undone[state->undone_count++] = (cursor->todo[i] - job->begin) / batch;
    for (uint32_t i = 0; i < options->slot_count; i++) {
        const struct slot *slot = &feed->slots[i];
        if (slot->state != SLOT_FREE && slot->life == cursor->life && slot->epoch == job->epoch &&
            (slot->parts[0].state == PART_PENDING || slot->parts[0].state == PART_LEASED))
            state->undone[state->undone_count++] = (slot->position - job->begin) / batch;
    }
    qsort(state->undone, state->undone_count, sizeof state->undone[0], compare_numbers);
}

/* `found`: what a journal or a checkpoint says of this epoch, NULL: nothing. */
static void run_shared(struct trajd_core_feed *feed, const struct trajd_journal_state *found)
{
    struct cursor *cursor = &feed->cursor;
    struct job *job = &feed->job;
    uint64_t batch = feed->options.global_batch;

    if (found) {
        move_production(feed, job->begin + found->high * batch);
        for (uint32_t i = 0; i < found->undone_count; i++)
            cursor->todo[cursor->todo_count++] = job->begin + found->undone[i] * batch;
        job->parts_left = count_parts(feed) - found->high + found->undone_count;
    } else {
        if (!is_prefetched(feed))
            move_production(feed, job->begin);
        job->parts_left = count_parts(feed);
    }
    job->phase = JOB_RUNNING;
    if (feed->journal) {
        trajd_job_record(feed, &feed->core->recorded);
        trajd_journal_begin(feed->journal, &feed->core->recorded);
    }
    trajd_feed_wake(feed);
}

static bool has_all_ranks(const struct job *job)
{
    for (uint32_t r = 0; r < job->world; r++)
        if (!job->ranks[r].session && !job->ranks[r].is_remote)
            return false;
    return true;
}

void trajd_job_end_epoch(struct trajd_core_feed *feed)
{
    feed->job.phase = JOB_ENDED;
    for (uint32_t i = 0; i < feed->member_count; i++)
        if (feed->members[i]->joined)
            trajd_job_tell_end(feed, feed->members[i], feed->job.begin);
}

void trajd_job_advance(struct trajd_core_feed *feed)
{
    if (feed->core->going_away)
        return;
    if (feed->job.phase == JOB_GATHERING && has_all_ranks(&feed->job))
        run_sharded(feed);
    if (feed->job.phase == JOB_RUNNING && feed->job.parts_left == 0)
        trajd_job_end_epoch(feed);
    trajd_slots_deliver(feed);
}

/* ---- how an epoch begins ---- */

bool trajd_job_is(const struct job *job, const struct trajd_wire_open *open)
{
    return job->phase != JOB_NONE && trajd_wire_text_equals(open->job, job->name) &&
           open->mode == job->mode && open->world == job->world && open->local.count == job->local.count &&
           memcmp(open->local.list, job->local.list, open->local.count * sizeof open->local.list[0]) == 0;
}

uint32_t trajd_job_reader_count(const struct job *job)
{
    if (job->mode != TRAJD_WIRE_SHARD)
        return 1;
    return job->local.count ? job->local.count : job->world;
}

/* A feed without its journal still feeds; what is lost is told by a counter. */
static void use_journal(struct trajd_core_feed *feed)
{
    struct trajd_core_stats *stats = &feed->core->stats;
    const struct trajd_core_feed_options *options = &feed->options;
    bool damaged = false;

    if (feed->journal && strcmp(feed->journal_job, feed->job.name) == 0)
        return;
    trajd_journal_close(&feed->journal);
    if (!options->journal_directory)
        return;
    if (options->epoch_length / options->global_batch > TRAJD_JOURNAL_MAX_BATCH ||
        trajd_journal_open(options->journal_directory, trajd_core_family(feed), feed->job.name, &feed->journal,
                           &damaged, NULL))
        stats->journals_refused++;
    stats->damaged_journals += damaged;
    strcpy(feed->journal_job, feed->job.name);
}

/* The epoch begins where a journal or a checkpoint has it. With another G batches are other rows: then it goes on at
 * the first window that is not DONE, and what was DONE behind it comes again: NULL. */
static const struct trajd_journal_state *adopt(struct trajd_core_feed *feed, const struct trajd_journal_state *state)
{
    feed->job.asked = state->key.asked < feed->options.epoch_length ? state->key.asked : feed->options.epoch_length;
    if (state->key.batch == feed->options.global_batch && state->key.length == feed->options.epoch_length) {
        feed->job.begin = state->key.begin;
        return state;
    }
    feed->job.begin =
        state->key.begin + (state->undone_count ? state->undone[0] : state->high) * state->key.batch;
    if (feed->job.begin > feed->options.epoch_length)
        feed->job.begin = feed->options.epoch_length;
    return NULL;
}

/* What a journal says of the epoch that begins, or NULL. */
static const struct trajd_journal_state *recall(struct trajd_core_feed *feed,
                                                const struct trajd_wire_open *open)
{
    struct trajd_journal_state *state = &feed->core->recalled;

    if (open->fresh || !feed->journal || !trajd_journal_load(feed->journal, state))
        return NULL;
    if (state->key.fingerprint != feed->options.fingerprint || state->key.seed != feed->options.seed ||
        state->key.epoch != open->epoch || state->key.begin > feed->options.epoch_length)
        return NULL;
    if (open->next != 0 && open->next != state->key.asked && open->next != state->key.begin)
        return NULL;
    return adopt(feed, state);
}

bool trajd_job_size_ranks(struct job *job, const struct trajd_wire_open *open)
{
    struct rank *ranks;

    if (open->mode != TRAJD_WIRE_SHARD)
        return true;
    ranks = calloc(open->world, sizeof *ranks);
    if (!ranks)
        return false;
    for (uint32_t r = 0; r < open->world; r++)
        ranks[r].is_remote = open->local.count != 0;
    for (uint32_t i = 0; i < open->local.count; i++)
        ranks[open->local.list[i]].is_remote = false;
    free(job->ranks);
    job->ranks = ranks;
    return true;
}

void trajd_job_begin(struct trajd_core_feed *feed, const struct trajd_wire_open *open,
                     const struct trajd_journal_state *token)
{
    struct job *job = &feed->job;
    bool is_next =
        trajd_job_is(job, open) && job->phase == JOB_ENDED && open->epoch == job->epoch + 1 && !token;

    if (!is_next) {
        trajd_slots_retire(feed);
        feed->cursor.active = false;
    }
    for (uint32_t i = 0; i < feed->member_count; i++)
        feed->members[i]->joined = false;
    trajd_wire_text_copy(open->job, job->name, sizeof job->name);
    job->mode = open->mode;
    job->world = open->world;
    job->epoch = open->epoch;
    job->asked = job->begin = open->next;
    job->parts_left = 0;
    job->token_check = token ? trajd_token_check(open->resume.data, open->resume.size) : 0;
    job->local = open->local;
    if (job->mode == TRAJD_WIRE_SHARD) {
        job->phase = JOB_GATHERING;
        for (uint32_t r = 0; r < job->world; r++)
            job->ranks[r].away_since_ns = feed->accounted_ns;
        return;
    }
    use_journal(feed);
    run_shared(feed, token ? adopt(feed, token) : recall(feed, open));
}

void trajd_job_leave(struct trajd_core_feed *feed, struct session *session, uint64_t now_ns)
{
    trajd_feed_account(feed, now_ns);
    trajd_leases_abandon(feed, session);
    if (feed->job.mode == TRAJD_WIRE_SHARD && session->joined &&
        feed->job.ranks[session->rank].session == session) {
        feed->job.ranks[session->rank].session = NULL;
        feed->job.ranks[session->rank].away_since_ns = now_ns;
    }
    for (uint32_t i = 0; i < feed->member_count; i++)
        if (feed->members[i] == session)
            feed->members[i--] = feed->members[--feed->member_count];
    session->feed = NULL;
    session->joined = false;
    if (!feed->member_count)
        feed->idle_since_ns = now_ns;
}
