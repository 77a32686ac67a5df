/* How a job goes on after an interruption: from its journal, from a checkpoint, or from what its
 * sessions report that return after the daemon's death. */
#include "daemon/feed/feed_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- journals and checkpoints: where an epoch begins, and the state that is written ---- */

_Static_assert(TRAJD_JOURNAL_MAX_UNDONE >= TRAJD_CORE_MAX_SLOTS,
               "a journal has room for all slots");

/* Returns true if the worker reports an undone batch of the journal as DONE: the daemon died before
 * it received that. */
static bool is_reported_done(const struct trajd_wire_open *open,
                             const struct trajd_journal_state *state, uint32_t index)
{
    const uint64_t position = state->key.begin + state->undone[index] * state->key.batch;

    for (uint32_t i = 0; open->pass && open->pass == state->pass && i < open->done.count; i++)
        if (open->done.list[i] == position)
            return true;
    return false;
}

/* Begins from a recorded state. With another batch size G, batches have other rows: then the job
 * goes on at the first window that is not DONE, and the windows after it that were DONE come
 * again. */
static void start_from_state(const struct trajd_core_feed *feed,
                             const struct trajd_journal_state *state,
                             const struct trajd_wire_open *open, struct start *start)
{
    const struct trajd_journal_key *key = &state->key;
    const uint64_t length = feed->options.epoch_length, batch = feed->options.global_batch;
    uint32_t first = 0;

    start->requested = key->requested < length ? key->requested : length;
    if (key->batch == batch && key->length == length) {
        const uint64_t count = trajd_batches_from(feed, key->begin),
                       high = state->high < count ? state->high : count;
        start->begin = key->begin;
        start->high = key->begin + high * batch;
        /* a short last batch of the recorded epoch may not exist here: it is left out */
        for (uint32_t i = 0; i < state->undone_count && state->undone[i] < high; i++)
            start->todo[start->todo_count++] = key->begin + state->undone[i] * batch;
        return;
    }
    while (first < state->undone_count && is_reported_done(open, state, first))
        first++;
    start->begin = key->begin +
                   (first < state->undone_count ? state->undone[first] : state->high) * key->batch;
    if (start->begin > length)
        start->begin = length;
    start->high = start->begin;
}

static bool may_have_journal(const struct trajd_core_feed_options *options)
{
    return options->journal_directory &&
           options->epoch_length / options->global_batch <= TRAJD_JOURNAL_MAX_BATCH;
}

/* Returns the journal of the job that a production of the feed has open, or NULL. */
static const struct trajd_journal *find_open_journal(const struct trajd_core_feed *here,
                                                     struct trajd_wire_text name)
{
    for (const struct trajd_core_feed *feed = here->core->feeds; feed; feed = feed->next) {
        const struct job *job =
            trajd_core_is_same_feed(feed, here) ? trajd_job_find(feed, name) : NULL;
        if (job && job->journal)
            return job->journal;
    }
    return NULL;
}

bool trajd_job_load_journal(struct trajd_core_feed *feed, struct trajd_wire_text name,
                            struct trajd_journal_state *state)
{
    const struct trajd_journal *opened = find_open_journal(feed, name);
    char text[TRAJD_WIRE_MAX_NAME + 1], base[TRAJD_WIRE_MAX_NAME + 1];
    struct trajd_journal *journal;
    bool damaged = false, found = false;

    if (opened)
        return trajd_journal_load(opened, state);
    trajd_wire_text_copy(name, text, sizeof text);
    trajd_feed_base_name(feed, base);
    if (!may_have_journal(&feed->options))
        return false;
    if (!trajd_journal_open(feed->options.journal_directory, base, text, &journal, &damaged,
                            NULL)) {
        found = trajd_journal_load(journal, state);
        trajd_journal_close(&journal);
    }
    feed->core->stats.damaged_journals += damaged;
    return found;
}

/* Loads the job's journal. Returns true if it is of these windows in this order. */
static bool is_of_feed(struct trajd_core_feed *feed, const struct trajd_wire_open *open,
                       struct trajd_journal_state *state)
{
    return trajd_job_load_journal(feed, open->job, state) &&
           state->key.fingerprint == feed->options.fingerprint &&
           state->key.seed == feed->options.seed && state->key.begin <= feed->options.epoch_length;
}

bool trajd_job_is_in_next_epoch(struct trajd_core_feed *feed, const struct trajd_wire_open *open,
                                struct trajd_wire_open *later)
{
    const struct trajd_journal_state *state = &feed->core->from_journal;

    if (open->mode != TRAJD_WIRE_QUEUE || open->fresh || open->resume.size ||
        !is_of_feed(feed, open, &feed->core->from_journal) || state->key.epoch != open->epoch + 1)
        return false;
    *later = *open;
    later->epoch = state->key.epoch;
    later->next = state->key.requested;
    return true;
}

/* Returns true if the worker was in a pass whose begin could not be written, and the journal is of
 * another one. */
static bool is_other_pass(const struct trajd_wire_open *open,
                          const struct trajd_journal_state *state)
{
    return (open->pass & TRAJD_PASS_UNWRITTEN) && open->pass != state->pass;
}

static bool load_matching_journal(struct trajd_core_feed *feed, const struct trajd_wire_open *open,
                                  struct trajd_journal_state *state)
{
    if (!is_of_feed(feed, open, state) || state->key.epoch != open->epoch ||
        is_other_pass(open, state))
        return false;
    return open->next == 0 || open->next == state->key.requested || open->next == state->key.begin;
}

/* Makes the state of a pass that a worker returns to and that has no journal: no batch counts as
 * DONE, and those in slots may be with workers. Returns false if there is a journal, or the worker
 * has no pass. */
static bool make_early_state(struct trajd_core_feed *feed, const struct trajd_wire_open *open,
                             struct trajd_journal_state *state)
{
    const struct trajd_core_feed_options *options = &feed->options;
    uint64_t count;

    if (open->fresh || !open->pass || open->batch != options->global_batch ||
        open->next > options->epoch_length || !may_have_journal(options) ||
        (trajd_job_load_journal(feed, open->job, state) && !is_other_pass(open, state)))
        return false;
    count = trajd_batches_from(feed, open->next);
    state->key = (struct trajd_journal_key){
        options->fingerprint, options->seed,         open->epoch,          open->next,
        open->next,           options->epoch_length, options->global_batch};
    state->high = count < options->slot_count ? count : options->slot_count;
    state->pass = open->pass;
    state->sessions = TRAJD_JOURNAL_ANY_SESSIONS;
    state->wait = (struct trajd_journal_wait){0};
    for (state->undone_count = 0; state->undone_count < state->high; state->undone_count++)
        state->undone[state->undone_count] = state->undone_count;
    return true;
}

void trajd_job_find_start(struct trajd_core_feed *feed, const struct trajd_wire_open *open,
                          const struct trajd_journal_state *checkpoint, struct start *start)
{
    struct trajd_journal_state *state = &feed->core->from_journal;

    start->requested = start->begin = start->high = open->next;
    start->todo_count = start->awaited = 0;
    start->wait = (struct trajd_journal_wait){0};
    start->pass = 0;
    if (open->mode == TRAJD_WIRE_SHARD)
        return;
    if (checkpoint) {
        start_from_state(feed, checkpoint, open, start);
    } else if (!open->fresh &&
               (load_matching_journal(feed, open, state) || make_early_state(feed, open, state))) {
        start_from_state(feed, state, open, start);
        if (state->key.batch != feed->options.global_batch)
            return; /* the batches that sessions hold are other ones now */
        start->pass = state->pass;
        start->awaited = feed->options.rejoin_wait_ns ? state->sessions : 0;
        start->wait = state->wait;
    }
}

/* Returns true if a position is not below `end`. */
static bool has_position_from(const struct trajd_wire_positions *positions, uint64_t end)
{
    for (uint32_t i = 0; i < positions->count; i++)
        if (positions->list[i] >= end)
            return true;
    return false;
}

void trajd_job_report_unrecorded(const struct job *job, const struct trajd_wire_open *open,
                                 const struct start *start)
{
    const struct trajd_core *core = job->feed->core;
    char text[2 * TRAJD_WIRE_MAX_NAME + 256], base[TRAJD_WIRE_MAX_NAME + 1];

    if (job->mode != TRAJD_WIRE_QUEUE || open->resume.size || !core->options.report ||
        open->batch != job->feed->options.global_batch ||
        (start->pass && start->pass != open->pass) ||
        !(has_position_from(&open->done, start->high) ||
          has_position_from(&open->held, start->high)))
        return;
    trajd_feed_base_name(job->feed, base);
    snprintf(text, sizeof text,
             "job \"%s\" of feed %s begins epoch %llu again: its workers were beyond window %llu, "
             "but there is no journal of that; batches that they have finished or hold come again",
             job->name, base, (unsigned long long)job->epoch, (unsigned long long)start->high);
    core->options.report(core->options.context, text);
}

/* Reports the first failure of a job's journal, and the end of it. */
static void note_result(struct job *job, enum trajd_status status, const struct trajd_error *error)
{
    const struct trajd_core *core = job->feed->core;
    const bool had_failed = job->journal_failure[0];
    char text[2 * TRAJD_WIRE_MAX_REASON + 256], base[TRAJD_WIRE_MAX_NAME + 1];

    if (had_failed == (status != TRAJD_OK))
        return;
    trajd_feed_base_name(job->feed, base);
    if (status) {
        job->feed->core->stats.journals_refused++;
        trajd_wire_text_copy(trajd_wire_text(error->message), job->journal_failure,
                             sizeof job->journal_failure);
        snprintf(text, sizeof text,
                 "job \"%s\" of feed %s goes on without a journal: %s; if the daemon dies now, "
                 "batches that workers have finished or hold come again",
                 job->name, base, job->journal_failure);
    } else {
        job->journal_failure[0] = '\0';
        snprintf(text, sizeof text, "job \"%s\" of feed %s has its journal again", job->name, base);
    }
    if (core->options.report)
        core->options.report(core->options.context, text);
}

void trajd_job_use_journal(struct job *job)
{
    struct trajd_core_feed *feed = job->feed;
    const struct trajd_core_feed_options *options = &feed->options;
    char base[TRAJD_WIRE_MAX_NAME + 1];
    struct trajd_error error = {0};
    enum trajd_status status;
    bool damaged = false;

    if (job->journal && strcmp(job->journal_job, job->name) == 0)
        return;
    trajd_journal_close(&job->journal);
    if (strcmp(job->journal_job, job->name) != 0)
        job->journal_failure[0] = '\0';
    strcpy(job->journal_job, job->name);
    if (!options->journal_directory)
        return;
    trajd_feed_base_name(feed, base);
    status =
        may_have_journal(options)
            ? trajd_journal_open(options->journal_directory, base, job->name, &job->journal,
                                 &damaged, &error)
            : trajd_error_set(&error, TRAJD_ERR_UNSUPPORTED, 0, "the epoch has too many batches");
    note_result(job, status, &error);
    feed->core->stats.damaged_journals += damaged;
}

void trajd_job_save_journal(struct job *job)
{
    struct trajd_error error;

    if (job->journal && trajd_journal_is_unsaved(job->journal))
        note_result(job, trajd_journal_save(job->journal, &error), &error);
}

void trajd_job_flush_journal(struct job *job)
{
    struct trajd_error error;

    if (job->journal)
        note_result(job, trajd_journal_flush(job->journal, &error), &error);
}

/* ---- how long sessions that may return are waited for. Deaths of the daemon do not begin the wait
 * again: the journal has how long it was. ---- */

#define TOTAL_WAITS 3   /* a wait that deaths of daemons and sessions prolong ends after so many */
#define SHORTEST_PART 5 /* but each daemon waits this part of rejoin_wait at least */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t subtract(uint64_t from, uint64_t ns)
{
    return from - least(from, ns);
}

/* The sessions that return first count as those that were not waited for before: sessions that live
 * return soon. */
uint64_t trajd_rejoin_wait_ns(const struct trajd_core_feed *feed, uint32_t sessions,
                              const struct trajd_journal_wait *earlier)
{
    const uint64_t wait_ns = feed->options.rejoin_wait_ns;
    uint64_t rest_ns = subtract(wait_ns, earlier->waited_ms * 1000000);

    if (sessions > earlier->sessions) {
        rest_ns = subtract(TOTAL_WAITS * wait_ns, earlier->total_ms * 1000000);
        if (rest_ns < wait_ns / SHORTEST_PART)
            rest_ns = wait_ns / SHORTEST_PART;
    }
    return least(rest_ns, wait_ns);
}

/* Adds the wait of this daemon to the earlier ones. Returns what the journal keeps: either the
 * sessions that were waited for before, or all. */
static struct trajd_journal_wait
add_wait(uint32_t sessions, const struct trajd_journal_wait *earlier, uint64_t elapsed_ns)
{
    const uint64_t elapsed_ms = elapsed_ns / 1000000;
    struct trajd_journal_wait wait = {sessions, elapsed_ms, earlier->total_ms + elapsed_ms};

    if (!sessions)
        return (struct trajd_journal_wait){0};
    if (sessions <= earlier->sessions) {
        wait.waited_ms += earlier->waited_ms;
    } else if (elapsed_ms < earlier->waited_ms) {
        wait.sessions = earlier->sessions;
        wait.waited_ms += earlier->waited_ms;
    }
    return wait;
}

static struct trajd_journal_wait describe_wait(const struct job *job)
{
    return add_wait(job->awaited, &job->earlier_wait,
                    job->feed->accounted_ns - job->awaited_since_ns);
}

bool trajd_job_note_wait(const struct trajd_core_feed *feed, struct trajd_wire_text name,
                         const struct trajd_journal_state *state, uint64_t elapsed_ns)
{
    const struct trajd_journal_wait wait = add_wait(state->sessions, &state->wait, elapsed_ns);
    char text[TRAJD_WIRE_MAX_NAME + 1], base[TRAJD_WIRE_MAX_NAME + 1];
    struct trajd_journal *journal;
    bool damaged, saved;

    trajd_wire_text_copy(name, text, sizeof text);
    trajd_feed_base_name(feed, base);
    if (find_open_journal(feed, name) ||
        trajd_journal_open(feed->options.journal_directory, base, text, &journal, &damaged, NULL))
        return false;
    trajd_journal_set_sessions(journal, state->sessions, &wait);
    saved = !trajd_journal_save(journal, NULL);
    trajd_journal_close(&journal);
    return saved;
}

/* Below `high`, only the batches in slots and in job.todo can be undone. trajd_job_can_attach makes
 * sure that both together fit into the state. */
void trajd_job_journal_state(const struct job *job, struct trajd_journal_state *state)
{
    const struct trajd_core_feed *feed = job->feed;
    const struct trajd_core_feed_options *options = &feed->options;
    uint64_t batch = options->global_batch;

    state->key = (struct trajd_journal_key){
        options->fingerprint, options->seed,         job->epoch, job->requested,
        job->begin,           options->epoch_length, batch};
    state->undone_count = 0;
    state->pass = job->pass;
    state->sessions = job->member_count + job->awaited;
    state->wait = describe_wait(job);
    state->high = trajd_batches_from(feed, job->begin);
    if (job->phase == JOB_ENDED)
        return;
    state->high = (job->high - job->begin) / batch;
    for (uint32_t i = 0; i < job->todo_count; i++)
        state->undone[state->undone_count++] = (job->todo[i].position - job->begin) / batch;
    for (uint32_t i = 0; i < options->slot_count; i++) {
        const struct job_parts *job_parts = trajd_slot_job_parts(&feed->slots[i], job);
        if (job_parts &&
            (job_parts->parts[0].state == PART_PENDING || job_parts->parts[0].state == PART_LEASED))
            state->undone[state->undone_count++] = (feed->slots[i].position - job->begin) / batch;
    }
    trajd_journal_sort_undone(state);
}

/* ---- sessions of a queue job that return after the daemon's death. Each reports which batches
 * it still holds, and which it finished last: the messages about those may have died with the
 * daemon. A batch that a returned session holds stays in job.todo under its name, and is produced
 * again only if that session dies. ---- */

void trajd_job_note_sessions(const struct job *job)
{
    const struct trajd_journal_wait wait = describe_wait(job);

    if (job->journal && job->mode == TRAJD_WIRE_QUEUE)
        trajd_journal_set_sessions(job->journal, job->member_count + job->awaited, &wait);
}

/* Takes a batch that is not DONE from job.todo or from its slot. Returns false if a session has it,
 * or it is not of this pass. */
static bool take_undone(struct job *job, uint64_t position)
{
    struct trajd_core_feed *feed = job->feed;

    for (uint32_t i = 0; i < job->todo_count; i++) {
        if (job->todo[i].position != position)
            continue;
        if (job->todo[i].holder)
            return false;
        trajd_job_drop_todo(job, i);
        return true;
    }
    for (uint32_t i = 0; i < feed->options.slot_count; i++) {
        struct job_parts *job_parts = trajd_slot_job_parts(&feed->slots[i], job);
        if (!job_parts || feed->slots[i].position != position ||
            job_parts->parts[0].state != PART_PENDING)
            continue;
        job_parts->parts[0].state = PART_VOID;
        trajd_slot_free_unneeded(feed, i);
        return true;
    }
    return false;
}

static void count_done(struct job *job, struct session *session, uint64_t position)
{
    const struct trajd_core_feed_options *options = &job->feed->options;
    const uint64_t remaining = options->epoch_length - position;

    trajd_job_count_done(job, session, position,
                         remaining < options->global_batch ? (uint32_t)remaining
                                                           : options->global_batch);
}

/* Takes over what the session reports. Batches that are DONE, or that another session has, are
 * ignored. */
static void take_report(struct job *job, struct session *session,
                        const struct trajd_wire_open *open)
{
    for (uint32_t i = 0; i < open->done.count; i++)
        if (take_undone(job, open->done.list[i]))
            count_done(job, session, open->done.list[i]);
    for (uint32_t i = 0; i < open->held.count && job->todo_count < TRAJD_JOURNAL_MAX_UNDONE; i++) {
        if (!take_undone(job, open->held.list[i]))
            continue;
        job->todo[job->todo_count++] = (struct todo){open->held.list[i], session->id};
        session->carried++;
    }
}

void trajd_session_return(struct session *session, const struct trajd_wire_open *open)
{
    struct job *job = session->job;

    if (open->fresh || job->mode != TRAJD_WIRE_QUEUE)
        return;
    if (session->joined && job->phase == JOB_RUNNING && open->pass && open->pass == job->pass &&
        open->batch == job->feed->options.global_batch)
        take_report(job, session, open);
    /* trajd 0.1.0 does not know the pass; a session that has not joined returns to the epoch before
     */
    if (job->awaited && session->return_pass != job->pass &&
        (open->pass == job->pass || !open->pass || !session->joined)) {
        job->awaited--;
        trajd_job_note_sessions(job);
    }
    session->return_pass = job->pass;
}

bool trajd_session_finish_carried(struct session *session, uint64_t position)
{
    struct job *job = session->job;

    for (uint32_t i = 0; job && i < job->todo_count; i++) {
        if (job->todo[i].position != position || job->todo[i].holder != session->id)
            continue;
        trajd_job_drop_todo(job, i);
        session->carried--;
        count_done(job, session, position);
        return true;
    }
    return false;
}

void trajd_session_drop_carried(struct session *session)
{
    struct job *job = session->job;

    for (uint32_t i = 0; i < job->todo_count; i++)
        if (job->todo[i].holder == session->id)
            job->todo[i].holder = 0;
    session->carried = 0;
}

void trajd_job_end_return(struct job *job)
{
    if (!job->awaited)
        return;
    if (job->feed->accounted_ns - job->awaited_since_ns >=
        trajd_rejoin_wait_ns(job->feed, job->awaited, &job->earlier_wait))
        job->awaited = 0;
    trajd_job_note_sessions(job);
}
