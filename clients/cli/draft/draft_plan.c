#include "clients/cli/draft/draft_plan.h"

#include <stdio.h>
#include <string.h>

enum { NAMED_ALIKE = 100, ONE_COLUMN = 10 };

static bool is_generic(const char *word, size_t length)
{
    static const char *const words[] = {"time",   "times", "timestamp", "timestamps", "stamp",
                                        "stamps", "clock", "data",      "t"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i]) == length && !strncmp(words[i], word, length))
            return true;
    }
    return length < 2;
}

/* Returns how well the paths of stamps and of a stream go together: groups in common, and words of
 * the stamps' path that the stream's path has, too ("time/arm" and "arm/q"). */
static int affinity(const char *stamps, const char *stream)
{
    int score = 0;
    size_t common = 0;

    while (stamps[common] && stamps[common] == stream[common])
        score += stamps[common++] == '/';
    while (*stamps) {
        const size_t length = strcspn(stamps, "/_");
        char word[128];
        snprintf(word, sizeof word, "%.*s", (int)length, stamps);
        score += !is_generic(stamps, length) && strstr(stream, word) ? NAMED_ALIKE : 0;
        stamps += length + (stamps[length] != '\0');
    }
    return score;
}

/* Returns the best stamped clock for the stream, or DRAFT_NO_CLOCK. */
static int choose_stamped(const struct draft_episodes *episodes,
                          const struct draft_streams *streams, const struct draft_clocks *clocks,
                          uint32_t which, bool *is_row_longer)
{
    const struct draft_stream *stream = &streams->list[which];
    int best = DRAFT_NO_CLOCK, best_score = -1;

    for (uint32_t c = 0; c < clocks->count; c++) {
        const struct draft_stream *stamps = &streams->list[clocks->list[c].stream];
        const bool is_longer = draft_same_rows(episodes, stamps, 1, stream);
        const int score = affinity(stamps->path, stream->path) +
                          (stamps->example->rank == 1 ? ONE_COLUMN : 0) +
                          (clocks->list[c].stream == which ? 2 * NAMED_ALIKE : 0);
        if ((is_longer || draft_same_rows(episodes, stamps, 0, stream)) && score > best_score) {
            best = (int)c;
            best_score = score;
            *is_row_longer = is_longer;
        }
    }
    return best;
}

/* Returns the regular clock of the stream. Makes one where none has its rows. */
static int choose_regular(const struct draft_episodes *episodes,
                          const struct draft_streams *streams, struct draft_plan *plan,
                          uint32_t which)
{
    const struct draft_stream *stream = &streams->list[which];
    struct draft_regular *made = &plan->regular[plan->regular_count];

    for (uint32_t c = 0; c < plan->regular_count; c++) {
        const struct draft_stream *rows = &streams->list[plan->regular[c].stream];
        plan->is_row_longer[which] = draft_same_rows(episodes, rows, 1, stream);
        if (plan->is_row_longer[which] || draft_same_rows(episodes, rows, 0, stream))
            return (int)c;
    }
    if (plan->regular_count == DRAFT_REGULAR_MAX)
        return DRAFT_NO_CLOCK;
    *made = (struct draft_regular){which, 1};
    if (plan->regular_count)
        made->ratio =
            (double)stream->most_rows / (double)streams->list[plan->regular[0].stream].most_rows;
    return (int)plan->regular_count++;
}

/* Returns the number of streams that have as many rows as this one. */
static uint32_t count_alike(const struct draft_episodes *episodes,
                            const struct draft_streams *streams, uint32_t which)
{
    uint32_t count = 0;

    for (uint32_t s = 0; s < streams->count; s++)
        count += !streams->list[s].left_out &&
                 draft_same_rows(episodes, &streams->list[which], 0, &streams->list[s]);
    return count;
}

/* Returns the stream whose number of rows most streams have. Of T and T+1 rows it is T. */
static uint32_t find_main(const struct draft_episodes *episodes,
                          const struct draft_streams *streams)
{
    uint32_t best = 0, best_count = 0;

    for (uint32_t s = 0; s < streams->count; s++) {
        const uint32_t count = streams->list[s].left_out ? 0 : count_alike(episodes, streams, s);
        if (count > best_count) {
            best = s;
            best_count = count;
        }
    }
    for (uint32_t s = 0; s < streams->count; s++) {
        if (!streams->list[s].left_out &&
            draft_same_rows(episodes, &streams->list[s], 1, &streams->list[best]))
            return s;
    }
    return best;
}

/* Returns whether the stream has the same number of rows in each episode although the episodes differ
 * in length: a table, such as the matrix of a camera. */
static bool is_table(const struct draft_episodes *episodes, const struct draft_stream *stream,
                     const struct draft_stream *rows)
{
    return episodes->count > 1 && stream->least_rows == stream->most_rows &&
           rows->least_rows != rows->most_rows;
}

void draft_plan_clocks(const struct draft_episodes *episodes, struct draft_streams *streams,
                       const struct draft_clocks *stamped, struct draft_plan *plan)
{
    const uint32_t first = find_main(episodes, streams);

    *plan = (struct draft_plan){.stamped = *stamped};
    if (!stamped->count && streams->count && !streams->list[first].left_out)
        choose_regular(episodes, streams, plan, first);
    for (uint32_t s = 0; s < streams->count; s++) {
        struct draft_stream *stream = &streams->list[s];
        plan->clock_of[s] = DRAFT_NO_CLOCK;
        if (stream->left_out)
            continue;
        if (stamped->count)
            plan->clock_of[s] =
                choose_stamped(episodes, streams, stamped, s, &plan->is_row_longer[s]);
        else if (!is_table(episodes, stream, &streams->list[first]))
            plan->clock_of[s] = choose_regular(episodes, streams, plan, s);
        if (plan->clock_of[s] == DRAFT_NO_CLOCK)
            stream->left_out = stamped->count ? "no stamps have its number of rows"
                                              : "it has the same number of rows in each episode";
    }
    for (uint32_t c = 0; c < stamped->count; c++) {
        struct draft_stream *stream = &streams->list[stamped->list[c].stream];
        if (stream->example->rank == 1)
            stream->left_out = "its values are stamps";
    }
    for (uint32_t c = 0; c < stamped->count; c++) {
        struct draft_stream *stream = &streams->list[stamped->list[c].stream];
        if (stream->left_out && !draft_is_clock_used(streams, plan, (int)c))
            stream->left_out = "its values are stamps that no stream needs";
    }
}

bool draft_is_clock_used(const struct draft_streams *streams, const struct draft_plan *plan,
                         int clock)
{
    for (uint32_t s = 0; s < streams->count; s++) {
        if (!streams->list[s].left_out && plan->clock_of[s] == clock)
            return true;
    }
    return false;
}
