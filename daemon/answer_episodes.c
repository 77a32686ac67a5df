/* "episodes": what the feed's dataset holds, episode by episode, kept or not, with the digest that the fingerprint is made from. */
#include <inttypes.h>

#include "daemon/asker.h"
#include "daemon/base/json.h"
#include "daemon/dataset/window_plan.h"

/* Rows of the anchor's clock; where anchors have a rate of their own, of the clock with most. */
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

static void write_episode(const struct trajd_window_plan *plan, uint32_t number, FILE *out)
{
    const struct trajd_index *index = plan->dataset->index;
    const struct trajd_episode *episode = &index->episodes[number];

    fprintf(out, "{\"dataset\":");
    trajd_json_text(out, plan->dataset->name);
    fprintf(out, ",\"episode_index\":%u,\"file\":", number);
    trajd_json_text(out, index->files[episode->file_index].relative_path);
    fprintf(out, ",\"episode\":");
    trajd_json_text(out, episode->id);
    fprintf(out, ",\"rows\":%" PRId64 ",\"digest\":\"%016" PRIx64 "\"", row_count(plan, episode), episode->digest);
    if (episode->quarantine) {
        fprintf(out, ",\"quarantine\":");
        trajd_json_text(out, episode->quarantine);
    }
    fputc('}', out);
}

enum trajd_status trajd_answer_episodes(const struct trajd_ask *ask, const struct trajd_feeder *feeder, FILE *out,
                                        struct trajd_error *error)
{
    const struct trajd_window_plan *plan = trajd_feeder_plan(feeder);
    const struct trajd_index *index = plan->dataset->index;
    const uint64_t total = index->episode_count;
    const uint64_t wanted = ask->count ? ask->count : total;
    uint64_t next = ask->first;

    if (ask->first >= total)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "episode %" PRIu64 " is beyond the last: there are %" PRIu64, ask->first,
                               total);
    fprintf(out, "{\"feed\":");
    trajd_json_text(out, trajd_feeder_name(feeder));
    fprintf(out, ",\"fingerprint\":\"%016" PRIx64 "\",\"datasets\":[{\"name\":", plan->fingerprint);
    trajd_json_text(out, plan->dataset->name);
    fprintf(out, ",\"fingerprint\":\"%016" PRIx64 "\"}],\"episodes\":%" PRIu64 ",\"first\":%" PRIu64 ",\"items\":[", index->fingerprint,
            total, ask->first);
    for (; next < total && next - ask->first < wanted; next++) {
        const long mark = ftell(out);
        if (next > ask->first)
            fputc(',', out);
        write_episode(plan, (uint32_t)next, out);
        if (!trajd_answer_fits(out, mark))
            break;
    }
    if (next < total)
        fprintf(out, "],\"next\":%" PRIu64 "}", next);
    else
        fprintf(out, "],\"next\":null}");
    return TRAJD_OK;
}
