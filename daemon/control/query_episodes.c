/* Answers "episodes": lists all episodes of the feed's datasets, kept or quarantined, with the
 * digests that the fingerprint is made from. Episodes are numbered through all datasets. */
#include <inttypes.h>
#include <string.h>

#include "daemon/control/query.h"
#include "daemon/base/json.h"
#include "daemon/window/mixture_plan.h"

/* of one text as JSON in a list: 16 of them fit a document */
#define TEXT_BYTES_MAX 2048

/* Returns the rows of the anchor's clock; where anchors have a rate of their own, of the clock with
 * the most rows. */
static int64_t row_count(const struct trajd_window_plan *plan, const struct trajd_episode *episode)
{
    int64_t rows = 0;

    if (episode->quarantine)
        return 0;
    if (plan->anchor_clock >= 0)
        return episode->clocks[plan->anchor_clock].row_count;
    for (uint32_t c = 0; c < plan->dataset->index->clock_count; c++)
        rows = episode->clocks[c].row_count > rows ? episode->clocks[c].row_count : rows;
    return rows;
}

/* Writes the episode's texts, or the one called `name`. Long texts are left out of a list and only
 * named; a query for one name gets the text. */
static void write_metas(const struct trajd_index *index, const struct trajd_episode *episode,
                        const char *name, FILE *out)
{
    const char *comma = "";
    uint64_t left_out = 0;

    fprintf(out, ",\"meta\":{");
    for (uint32_t m = 0; m < index->layout->meta_count; m++) {
        const char *key = index->layout->metas[m].name;
        const long mark = ftell(out);
        if (*name && strcmp(name, key) != 0)
            continue;
        fputs(comma, out);
        trajd_json_text(out, key);
        fputc(':', out);
        trajd_json_text(out, episode->metas[m]);
        if (ftell(out) - mark < TEXT_BYTES_MAX || *name) {
            comma = ",";
            continue;
        }
        fseek(out, mark, SEEK_SET);
        left_out |= UINT64_C(1) << m;
    }
    fputc('}', out);
    if (!left_out)
        return;
    fprintf(out, ",\"meta_left_out\":[");
    comma = "";
    for (uint32_t m = 0; m < index->layout->meta_count; m++) {
        if (!(left_out >> m & 1))
            continue;
        fputs(comma, out);
        trajd_json_text(out, index->layout->metas[m].name);
        comma = ",";
    }
    fputc(']', out);
}

static enum trajd_status check_name(const struct trajd_index *index, const char *name,
                                    struct trajd_error *error)
{
    char names[256] = "";
    size_t used = 0;

    for (uint32_t m = 0; m < index->layout->meta_count; m++) {
        if (!*name || strcmp(index->layout->metas[m].name, name) == 0)
            return TRAJD_OK;
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", m ? ", " : "",
                                     index->layout->metas[m].name);
    }
    if (!*name)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "layout %s has no meta %s (metas: %s)",
                           index->layout->name, name, used ? names : "none");
}

static uint64_t episode_count(const struct trajd_mixture_plan *plan)
{
    uint64_t count = 0;

    for (uint32_t p = 0; p < plan->member_count; p++)
        count += plan->members[p]->dataset->index->episode_count;
    return count;
}

/* Writes episode `number`, counted through all datasets. */
static void write_episode(const struct trajd_mixture_plan *mixture, uint64_t number,
                          const char *name, FILE *out)
{
    const struct trajd_window_plan *plan = mixture->members[0];
    const struct trajd_index *index;
    const struct trajd_episode *episode;

    for (uint32_t p = 0; number >= plan->dataset->index->episode_count;
         plan = mixture->members[++p])
        number -= plan->dataset->index->episode_count;
    index = plan->dataset->index;
    episode = &index->episodes[number];

    fprintf(out, "{\"dataset\":");
    trajd_json_text(out, plan->dataset->name);
    fprintf(out, ",\"episode_index\":%" PRIu64 ",\"file\":", number);
    trajd_json_text(out, index->files[episode->file_index].relative_path);
    fprintf(out, ",\"episode\":");
    trajd_json_text(out, episode->id);
    fprintf(out, ",\"rows\":%" PRId64 ",\"digest\":\"%016" PRIx64 "\"", row_count(plan, episode),
            episode->digest);
    if (episode->quarantine) {
        fprintf(out, ",\"quarantine\":");
        trajd_json_text(out, episode->quarantine);
    }
    write_metas(index, episode, name, out);
    fputc('}', out);
}

/* Checks that one of the datasets has a text of that name. */
static enum trajd_status check_names(const struct trajd_mixture_plan *plan, const char *name,
                                     struct trajd_error *error)
{
    enum trajd_status status = TRAJD_ERR_NOT_FOUND;

    for (uint32_t p = 0; p < plan->member_count && status; p++)
        status = check_name(plan->members[p]->dataset->index, name, error);
    return status;
}

enum trajd_status trajd_query_episodes(const struct trajd_query *query,
                                       const struct trajd_producer *producer, FILE *out,
                                       struct trajd_error *error)
{
    const struct trajd_mixture_plan *plan = trajd_producer_plan(producer);
    const uint64_t total = episode_count(plan);
    const uint64_t wanted = query->count ? query->count : total;
    uint64_t next = query->first;
    enum trajd_status status = check_names(plan, query->name, error);

    if (status)
        return status;
    if (query->first >= total)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "episode %" PRIu64 " does not exist: the feed has %" PRIu64
                               " episodes",
                               query->first, total);
    fprintf(out, "{\"feed\":");
    trajd_json_text(out, trajd_producer_name(producer));
    fprintf(out, ",\"fingerprint\":\"%016" PRIx64 "\",\"datasets\":[", plan->fingerprint);
    for (uint32_t p = 0; p < plan->member_count; p++) {
        fprintf(out, "%s{\"name\":", p ? "," : "");
        trajd_json_text(out, plan->members[p]->dataset->name);
        fprintf(out, ",\"fingerprint\":\"%016" PRIx64 "\"}",
                plan->members[p]->dataset->index->fingerprint);
    }
    fprintf(out, "],\"episodes\":%" PRIu64 ",\"first\":%" PRIu64 ",\"items\":[", total,
            query->first);
    for (; next < total && next - query->first < wanted; next++) {
        const long mark = ftell(out);
        if (next > query->first)
            fputc(',', out);
        write_episode(plan, next, query->name, out);
        if (!trajd_query_fits(out, mark))
            break;
    }
    trajd_query_end_page(out, next, total);
    return TRAJD_OK;
}
