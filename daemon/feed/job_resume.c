/* Computes where an epoch begins, from a journal or a checkpoint, and the state that is written to
 * them. */
#include <string.h>

#include "daemon/feed/feed_internal.h"

_Static_assert(TRAJD_JOURNAL_MAX_UNDONE >= TRAJD_CORE_MAX_SLOTS,
               "a journal has room for all slots");

/* Begins from a recorded state. With another batch size G, batches have other rows: then the job
 * goes on at the first window that is not DONE, and the windows after it that were DONE come
 * again. */
static void start_from_state(const struct trajd_core_feed *feed,
                             const struct trajd_journal_state *state, struct start *start)
{
    const struct trajd_journal_key *key = &state->key;
    const uint64_t length = feed->options.epoch_length, batch = feed->options.global_batch;

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
    start->begin = key->begin + (state->undone_count ? state->undone[0] : state->high) * key->batch;
    if (start->begin > length)
        start->begin = length;
    start->high = start->begin;
}

static bool may_have_journal(const struct trajd_core_feed_options *options)
{
    return options->journal_directory &&
           options->epoch_length / options->global_batch <= TRAJD_JOURNAL_MAX_BATCH;
}

/* Loads the state in the job's journal. Returns false if there is no journal, or it is empty. */
static bool load_journal(struct trajd_core_feed *feed, struct trajd_wire_text name,
                         struct trajd_journal_state *state)
{
    const struct job *job = trajd_job_find(feed, name);
    char text[TRAJD_WIRE_MAX_NAME + 1], base[TRAJD_WIRE_MAX_NAME + 1];
    struct trajd_journal *journal;
    bool damaged = false, found = false;

    if (job && job->journal)
        return trajd_journal_load(job->journal, state);
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

static bool load_matching_journal(struct trajd_core_feed *feed, const struct trajd_wire_open *open,
                                  struct trajd_journal_state *state)
{
    if (!load_journal(feed, open->job, state))
        return false;
    if (state->key.fingerprint != feed->options.fingerprint ||
        state->key.seed != feed->options.seed || state->key.epoch != open->epoch ||
        state->key.begin > feed->options.epoch_length)
        return false;
    return open->next == 0 || open->next == state->key.requested || open->next == state->key.begin;
}

void trajd_job_find_start(struct trajd_core_feed *feed, const struct trajd_wire_open *open,
                          const struct trajd_journal_state *checkpoint, struct start *start)
{
    start->requested = start->begin = start->high = open->next;
    start->todo_count = 0;
    if (open->mode == TRAJD_WIRE_SHARD)
        return;
    if (checkpoint)
        start_from_state(feed, checkpoint, start);
    else if (!open->fresh && load_matching_journal(feed, open, &feed->core->from_journal))
        start_from_state(feed, &feed->core->from_journal, start);
}

/* The job goes on without a journal if it cannot be opened. The counter journals_refused shows
 * it. */
void trajd_job_use_journal(struct job *job)
{
    struct trajd_core_feed *feed = job->feed;
    const struct trajd_core_feed_options *options = &feed->options;
    char base[TRAJD_WIRE_MAX_NAME + 1];
    bool damaged = false;

    if (job->journal && strcmp(job->journal_job, job->name) == 0)
        return;
    trajd_journal_close(&job->journal);
    if (!options->journal_directory)
        return;
    trajd_feed_base_name(feed, base);
    if (!may_have_journal(options) || trajd_journal_open(options->journal_directory, base,
                                                         job->name, &job->journal, &damaged, NULL))
        feed->core->stats.journals_refused++;
    feed->core->stats.damaged_journals += damaged;
    strcpy(job->journal_job, job->name);
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
    state->high = trajd_batches_from(feed, job->begin);
    if (job->phase == JOB_ENDED)
        return;
    state->high = (job->high - job->begin) / batch;
    for (uint32_t i = 0; i < job->todo_count; i++)
        state->undone[state->undone_count++] = (job->todo[i] - job->begin) / batch;
    for (uint32_t i = 0; i < options->slot_count; i++) {
        const struct job_parts *job_parts = trajd_slot_job_parts(&feed->slots[i], job);
        if (job_parts &&
            (job_parts->parts[0].state == PART_PENDING || job_parts->parts[0].state == PART_LEASED))
            state->undone[state->undone_count++] = (feed->slots[i].position - job->begin) / batch;
    }
    trajd_journal_sort_undone(state);
}
