/* Where an OPEN goes: which production of a feed, and which of its entries for jobs. */
#include <string.h>

#include "daemon/feed/feed_internal.h"
#include "daemon/feed/checkpoint_token.h"

/* The job's epoch can begin there: alone anywhere, beside others only where they are. */
bool trajd_job_has_place(const struct job *job, const struct trajd_wire_open *open,
                         const struct start *start)
{
    return !trajd_job_has_neighbours(job) || trajd_job_can_continue(job, open, start) ||
           trajd_job_can_attach(job, open->epoch, open, start);
}

/* The job of that name, or an entry for it: a free one, or that of a job which nobody is left of
 * where nobody reads. */
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

/* How well an OPEN would do there: 0 not at all, 1 by taking it from a job that nobody is left of,
 * 2 nobody has it, 3 beside the jobs that read it, 4 its job was there last, 5 its job is there. */
static int rate(struct trajd_core_feed *feed, const struct session *session,
                const struct trajd_wire_open *open, const struct start *start)
{
    const struct job *job = trajd_job_find(feed, open->job),
                     *entry = trajd_job_find_entry(feed, session, open->job);
    uint32_t others = feed->member_count - (session->feed == feed);

    if (job && trajd_job_count_others(job, session))
        return 5;
    if (!others)
        return job ? 4 : feed->jobs[0].phase == JOB_NONE ? 2 : 1;
    if (job && trajd_job_matches(job, open) && open->epoch == job->epoch && !open->fresh &&
        !open->resume.size)
        return 4; /* goes on where it stood */
    if (!entry || !trajd_job_has_place(entry, open, start))
        return 0;
    return job ? 4 : 3;
}

/* The OPEN that was granted, because the answer was lost. */
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
            return feed; /* which says so */
        checkpoint = &core->from_checkpoint;
    }
    trajd_job_find_start(feed, open, checkpoint, &core->start);
    for (struct trajd_core_feed *other = core->feeds; other; other = other->next) {
        int here = 0;
        if (!other->options.is_hidden &&
            strcmp(trajd_core_family(other), trajd_core_family(feed)) == 0)
            here = rate(other, session, open, &core->start);
        if (here && here >= best_rate) { /* the oldest of equals: it stands last */
            best = other;
            best_rate = here;
        }
    }
    return best;
}
