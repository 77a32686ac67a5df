/* Chooses the production of a feed for an OPEN, and the entry for its job. */
#include <string.h>

#include "daemon/feed/feed_internal.h"
#include "daemon/feed/checkpoint_token.h"

bool trajd_job_has_place(const struct job *job, const struct trajd_wire_open *open,
                         const struct start *start)
{
    return !trajd_job_has_neighbours(job) || trajd_job_can_continue(job, open, start) ||
           trajd_job_can_attach(job, open->epoch, open, start);
}

struct job *trajd_job_find_entry(const struct trajd_core_feed *feed, const struct session *session,
                                 struct trajd_wire_text name)
{
    struct job *job = trajd_job_find(feed, name), *reusable = NULL;
    uint32_t others = feed->member_count - (session->feed == feed);

    for (uint32_t j = 0; !job && j < feed->options.job_count; j++) {
        if (feed->jobs[j].phase == JOB_NONE)
            job = &feed->jobs[j];
        else if (!others && !reusable)
            reusable = &feed->jobs[j];
    }
    return job ? job : reusable;
}

bool trajd_feed_admits(const struct trajd_core_feed *feed, const struct session *session,
                       struct trajd_wire_text job_name)
{
    const struct job *job;

    if (!feed->options.is_for_one_user || !feed->is_mapped)
        return true;
    if (session->maps_rings)
        return session->owner == feed->user;
    job = trajd_job_find(feed, job_name);
    return job && (job->member_count || job->owner == session->owner);
}

/* Returns how well a production suits an OPEN:
 *   5  its job has sessions there
 *   4  its job was there last
 *   3  it can read beside the jobs that are there
 *   2  no job is there
 *   1  it can replace a job that has no sessions
 *   0  not at all */
static int rate(struct trajd_core_feed *feed, const struct session *session,
                const struct trajd_wire_open *open, const struct start *start)
{
    const struct job *job = trajd_job_find(feed, open->job),
                     *entry = trajd_job_find_entry(feed, session, open->job);
    uint32_t others = feed->member_count - (session->feed == feed);

    if (job && trajd_job_count_others(job, session))
        return 5;
    if (!trajd_feed_admits(feed, session, open->job))
        return 0;
    if (!others)
        return job ? 4 : feed->jobs[0].phase == JOB_NONE ? 2 : 1;
    if (job && trajd_job_matches(job, open) && open->epoch == job->epoch && !open->fresh &&
        !open->resume.size)
        return 4; /* the job goes on where it stood */
    if (!entry || !trajd_job_has_place(entry, open, start))
        return 0;
    return job ? 4 : 3;
}

bool trajd_open_is_repeated(const struct session *session, const struct trajd_wire_open *open,
                            const struct trajd_core_feed *feed)
{
    return session && session->feed && session->request == open->request &&
           strcmp(trajd_core_family(session->feed), trajd_core_family(feed)) == 0;
}

struct trajd_core_feed *trajd_feed_choose(struct trajd_core *core, const struct session *session,
                                          const struct trajd_wire_open *open,
                                          struct trajd_core_feed *feed)
{
    const struct trajd_journal_state *checkpoint = NULL;
    struct trajd_core_feed *best = NULL;
    int best_rate = 0;

    if (trajd_open_is_repeated(session, open, feed))
        return session->feed;
    if (open->resume.size) {
        if (trajd_checkpoint_token_decode(open->resume.data, open->resume.size,
                                          &core->from_checkpoint, NULL))
            return feed; /* trajd_core_open refuses the checkpoint there */
        checkpoint = &core->from_checkpoint;
    }
    trajd_job_find_start(feed, open, checkpoint, &core->start);
    for (struct trajd_core_feed *other = core->feeds; other; other = other->next) {
        int here = 0;
        if (!other->options.is_hidden &&
            strcmp(trajd_core_family(other), trajd_core_family(feed)) == 0)
            here = rate(other, session, open, &core->start);
        /* among equal productions take the oldest, which is last in the list */
        if (here && here >= best_rate) {
            best = other;
            best_rate = here;
        }
    }
    return best;
}
