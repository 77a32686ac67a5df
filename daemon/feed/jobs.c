/* Begins, runs and ends the epochs of jobs. */
#include <stdlib.h>
#include <string.h>

#include "daemon/feed/feed_internal.h"
#include "daemon/feed/checkpoint_token.h"

/* ---- messages to members ---- */

uint64_t trajd_rank_position(const struct job *job, uint32_t rank)
{
    const struct trajd_core_feed *feed = job->feed;
    /* the rank has passed everything before this position, even leased parts */
    const uint64_t next = job->ranks[rank].next;
    uint64_t position = job->high > next ? job->high : next;

    if (job->phase == JOB_ENDED)
        return feed->options.epoch_length;
    if (job->phase != JOB_RUNNING)
        return next;
    for (uint32_t i = 0; i < feed->options.slot_count; i++) {
        const struct slot *slot = &feed->slots[i];
        const struct job_parts *job_parts = trajd_slot_job_parts(slot, job);
        if (job_parts &&
            (job_parts->parts[rank].state == PART_PENDING ||
             job_parts->parts[rank].state == PART_LEASED) &&
            slot->position >= next && slot->position < position)
            position = slot->position;
    }
    return position < feed->options.epoch_length ? position : feed->options.epoch_length;
}

static void list_carried(const struct session *session, struct trajd_wire_positions *positions)
{
    const struct job *job = session->job;

    for (uint32_t i = 0; session->carried && i < job->todo_count; i++)
        if (job->todo[i].holder == session->id && positions->count < TRAJD_WIRE_MAX_LEASES)
            positions->list[positions->count++] = job->todo[i].position;
}

void trajd_session_send_opened(struct session *session)
{
    const struct trajd_core_feed *feed = session->feed;
    const struct trajd_core_feed_options *options = &feed->options;
    const struct job *job = session->job;
    struct trajd_wire_message message;
    uint64_t next = options->epoch_length; /* if the job has finished that epoch */

    if (session->joined)
        next = job->mode == TRAJD_WIRE_SHARD ? trajd_rank_position(job, session->rank) : job->begin;
    message.op = TRAJD_WIRE_OPENED;
    message.opened = (struct trajd_wire_opened){
        .request = session->request,
        .feed_id = feed->id,
        .ring = feed->id,
        .ring_size_bytes = options->ring_size_bytes,
        .slot_count = options->slot_count,
        .slot_size_bytes = options->slot_size_bytes,
        .writable = options->writable,
        .gpu = options->gpu,
        .handle = options->handle,
        .batch = options->global_batch,
        .part = job->index * TRAJD_CORE_MAX_WORLD + session->rank,
        .credit = session->credit,
        .epoch = session->epoch,
        .next = next,
        .length = options->epoch_length,
        .windows = options->window_count,
        .dropped = options->dropped_count,
        .fingerprint = options->fingerprint,
        .norm = options->norm_digest,
        .values = options->values_digest,
        .seed = options->seed,
        .tensor_count = options->tensor_count,
        .tensors = options->tensors,
        .found = options->data.found_count,
        .kept = options->data.kept_count,
        .used = options->data.used_count,
        .quarantined = options->data.quarantined,
        .warnings = options->data.warnings,
        .pass = job->mode == TRAJD_WIRE_QUEUE && session->joined ? job->pass : 0,
    };
    list_carried(session, &message.opened.held);
    trajd_part_rows(job, options->global_batch, session->rank, &message.opened.row_begin,
                    &message.opened.row_count);
    trajd_core_send(session, feed->core, &message);
}

void trajd_session_send_end(struct session *session)
{
    struct trajd_wire_message message;

    message.op = TRAJD_WIRE_EPOCH_END;
    message.epoch_end = session->end;
    trajd_core_send(session, session->feed->core, &message);
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

/* Returns how many of the windows [begin, behind) are read on this node. */
static uint64_t count_windows(const struct job *job, uint64_t begin, uint64_t behind)
{
    uint64_t batch = job->feed->options.global_batch, count = behind - begin;

    if (!job->local.count)
        return count;
    return count / batch * count_local_rows(job, (uint32_t)batch) +
           count_local_rows(job, (uint32_t)(count % batch));
}

void trajd_session_end_epoch(const struct job *job, struct session *session, uint64_t begin)
{
    const struct trajd_core_feed *feed = job->feed;
    const struct trajd_core_feed_options *options = &feed->options;
    uint64_t behind = trajd_epoch_end(feed, begin);

    if (behind > options->epoch_length)
        behind = options->epoch_length;
    session->is_over = true;
    session->end = (struct trajd_wire_epoch_end){
        .feed_id = feed->id,
        .epoch = session->epoch,
        .batches = trajd_batches_from(feed, begin),
        .windows = count_windows(job, begin, behind),
        .dropped = options->dropped_count + options->epoch_length - behind,
    };
    trajd_session_send_end(session);
}

/* ---- how an epoch runs ---- */

/* Returns how many parts are not DONE: those from each rank's own position on. */
static uint64_t count_parts(const struct job *job)
{
    uint64_t parts = 0;

    for (uint32_t r = 0; r < job->world; r++)
        if (!job->ranks[r].is_remote)
            parts += trajd_batches_from(job->feed, job->ranks[r].next);
    return parts;
}

void trajd_rank_skip(struct job *job, uint32_t rank, uint64_t next)
{
    struct trajd_core_feed *feed = job->feed;

    for (uint32_t i = 0; i < feed->options.slot_count; i++) {
        struct slot *slot = &feed->slots[i];
        struct job_parts *job_parts = trajd_slot_job_parts(slot, job);
        if (!job_parts || slot->position >= next || job_parts->parts[rank].state != PART_PENDING)
            continue;
        job_parts->parts[rank].state = PART_RELEASED;
        trajd_slot_free_unneeded(feed, i);
    }
}

/* Starts the epoch when all ranks are here. The batches that the job has got meanwhile can be used
 * if the epoch begins at the first of them. Where other jobs read the feed, it begins there or a
 * little later: trajd_job_validate has checked that. */
static void run_shard(struct job *job)
{
    struct start *start = &job->feed->core->start;

    job->begin = UINT64_MAX;
    for (uint32_t r = 0; r < job->world; r++)
        if (!job->ranks[r].is_remote && job->ranks[r].next < job->begin)
            job->begin = job->ranks[r].next;
    if (!job->is_attached || (job->begin != job->attached_from && !trajd_job_has_neighbours(job))) {
        start->requested = start->begin = start->high = job->begin;
        start->todo_count = start->awaited = 0;
        trajd_job_move_production(job, start);
    }
    job->phase = JOB_RUNNING;
    job->parts_remaining = count_parts(job);
    for (uint32_t r = 0; r < job->world; r++)
        trajd_rank_skip(job, r, job->ranks[r].next);
    trajd_feed_wake(job->feed);
}

/* Writes the begin of the epoch to the job's journal. */
static void write_begin(struct job *job)
{
    struct trajd_journal_state *state = &job->feed->core->progress;

    if (job->journal) {
        trajd_job_journal_state(job, state);
        trajd_journal_set_owner(job->journal, job->owner);
        trajd_journal_begin(job->journal, state);
        trajd_job_save_journal(job);
    }
    if (!job->journal_failure[0] || (job->pass & TRAJD_PASS_UNWRITTEN))
        return;
    job->pass |= TRAJD_PASS_UNWRITTEN;
    if (job->journal) {
        state->pass = job->pass;
        trajd_journal_begin(job->journal, state);
    }
}

static void run_queue(struct job *job, const struct start *start)
{
    const struct trajd_core_feed *feed = job->feed;

    job->parts_remaining = trajd_batches_from(feed, job->begin) -
                           (start->high - start->begin) / feed->options.global_batch +
                           start->todo_count;
    job->phase = JOB_RUNNING;
    write_begin(job);
    trajd_feed_wake(job->feed);
}

static bool has_all_ranks(const struct job *job)
{
    for (uint32_t r = 0; r < job->world; r++)
        if (!job->ranks[r].session && !job->ranks[r].is_remote)
            return false;
    return true;
}

void trajd_job_end_epoch(struct job *job)
{
    const struct trajd_core_feed *feed = job->feed;

    job->phase = JOB_ENDED;
    for (uint32_t i = 0; i < feed->member_count; i++)
        if (feed->members[i]->job == job && feed->members[i]->joined)
            trajd_session_end_epoch(job, feed->members[i], job->begin);
}

void trajd_feed_advance(struct trajd_core_feed *feed)
{
    for (uint32_t j = 0; j < feed->options.job_count; j++)
        trajd_job_save_journal(&feed->jobs[j]);
    if (feed->core->going_away)
        return;
    for (uint32_t j = 0; j < feed->options.job_count; j++) {
        struct job *job = &feed->jobs[j];
        if (job->phase == JOB_GATHERING && has_all_ranks(job))
            run_shard(job);
        if (job->phase == JOB_RUNNING && job->parts_remaining == 0)
            trajd_job_end_epoch(job);
        trajd_job_deliver(job);
    }
}

/* ---- how an epoch begins ---- */

bool trajd_job_size_ranks(struct job *job, const struct trajd_wire_open *open)
{
    struct rank *ranks;

    if (!trajd_slots_make_room(job, open->mode == TRAJD_WIRE_SHARD ? open->world : 1))
        return false;
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

bool trajd_job_can_continue(const struct job *job, const struct trajd_wire_open *open,
                            const struct start *start)
{
    const struct cursor *cursor = &job->feed->cursor;

    if (!trajd_job_matches(job, open) || job->phase != JOB_ENDED || open->epoch != job->epoch + 1 ||
        !job->is_attached || open->resume.size || start->todo_count ||
        start->begin % job->feed->options.global_batch)
        return false;
    if (open->mode == TRAJD_WIRE_QUEUE && start->high)
        return false;
    return cursor->epoch >= open->epoch ||
           (cursor->epoch == job->epoch &&
            cursor->position >= trajd_epoch_end(job->feed, cursor->begin));
}

/* Returns a number that no other pass of any daemon is likely to have. */
static uint64_t make_pass(struct trajd_core *core)
{
    uint64_t mixed = core->options.instance_id * UINT64_C(0x9e3779b97f4a7c15) + ++core->last_pass;

    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return (mixed % (TRAJD_JOURNAL_MAX_PASS - 1) + 2) & ~TRAJD_PASS_UNWRITTEN;
}

static void set_epoch(struct job *job, const struct trajd_wire_open *open,
                      const struct start *start)
{
    for (uint32_t i = 0; i < job->feed->member_count; i++)
        if (job->feed->members[i]->job == job)
            job->feed->members[i]->joined = false;
    job->past_token_check =
        trajd_job_matches(job, open) && open->epoch == job->epoch + 1 ? job->token_check : 0;
    trajd_wire_text_copy(open->job, job->name, sizeof job->name);
    job->mode = open->mode;
    job->world = open->world;
    job->epoch = open->epoch;
    job->requested = start->requested;
    job->begin = start->begin;
    job->parts_remaining = 0;
    job->token_check =
        open->resume.size ? trajd_checkpoint_token_check(open->resume.data, open->resume.size) : 0;
    job->local = open->local;
    job->blocking_ns = 0;
    job->pass = start->pass ? start->pass : make_pass(job->feed->core);
    job->awaited = start->awaited;
    job->awaited_since_ns = job->feed->accounted_ns;
    job->earlier_wait = start->wait;
}

/* Attaches the job to the production that other jobs read, or moves the production for it alone. */
static void attach_or_move(struct job *job, const struct start *start, bool continues)
{
    if (continues)
        trajd_job_continue(job);
    else if (trajd_job_has_neighbours(job))
        trajd_job_attach(job, start);
    else
        trajd_job_move_production(job, start);
}

void trajd_job_begin(struct job *job, const struct trajd_wire_open *open, const struct start *start)
{
    struct trajd_core_feed *feed = job->feed;
    bool continues = trajd_job_can_continue(job, open, start);

    if (!continues && trajd_job_has_neighbours(job))
        trajd_job_detach(job);
    else if (!continues)
        trajd_job_stop_production(job);
    set_epoch(job, open, start);
    if (job->mode == TRAJD_WIRE_SHARD) {
        /* the entry may have had a queue job before, which may return elsewhere with this
         * journal */
        trajd_journal_close(&job->journal);
        job->phase = JOB_GATHERING;
        for (uint32_t r = 0; r < job->world; r++)
            job->ranks[r].away_since_ns = feed->accounted_ns;
        /* on a feed for several jobs, others can attach while the ranks gather */
        if (continues || trajd_job_has_neighbours(job) ||
            (feed->options.job_count > 1 && open->fresh))
            attach_or_move(job, start, continues);
        return;
    }
    trajd_job_use_journal(job);
    attach_or_move(job, start, continues);
    run_queue(job, start);
}

void trajd_session_leave(struct session *session, uint64_t now_ns)
{
    struct trajd_core_feed *feed = session->feed;
    struct job *job = session->job;

    trajd_feed_account(feed, now_ns);
    trajd_leases_abandon(feed, session);
    trajd_session_drop_carried(session);
    if (job->mode == TRAJD_WIRE_SHARD && session->joined &&
        job->ranks[session->rank].session == session) {
        job->ranks[session->rank].session = NULL;
        job->ranks[session->rank].away_since_ns = now_ns;
    }
    for (uint32_t i = 0; i < feed->member_count; i++)
        if (feed->members[i] == session)
            feed->members[i--] = feed->members[--feed->member_count];
    session->feed = NULL;
    session->job = NULL;
    session->joined = false;
    if (--job->member_count == 0)
        job->sent_bye = false;
    trajd_job_note_sessions(job);
    if (!feed->member_count)
        feed->idle_since_ns = now_ns;
}
