/* What the kept episodes of an index have in common. */
#include <inttypes.h>
#include <stdio.h>

#include "clients/cli/inspect/inspect.h"
#include "daemon/index/rows/encoded.h"

static const char *filter_name(uint16_t filter)
{
    switch (filter) {
    case TRAJD_FILTER_DEFLATE:
        return "gzip";
    case TRAJD_FILTER_SHUFFLE:
        return "shuffle";
    case TRAJD_FILTER_FLETCHER32:
        return "fletcher32";
    case TRAJD_FILTER_LZF:
        return "lzf";
    default:
        return "?";
    }
}

static void add_stamps(struct inspect_clock_summary *summary,
                       const struct trajd_episode_clock *clock)
{
    for (int64_t i = 1; i < clock->row_count; i++) {
        int64_t interval = clock->stamps_ns[i] - clock->stamps_ns[i - 1];
        if (!summary->intervals || interval < summary->shortest_ns)
            summary->shortest_ns = interval;
        if (interval > summary->longest_ns)
            summary->longest_ns = interval;
        summary->sum_s += (double)interval / 1e9;
        summary->intervals++;
    }
}

struct inspect_clock_summary inspect_summarize_clock(const struct trajd_index *index,
                                                     uint32_t which)
{
    struct inspect_clock_summary summary = {0};

    for (uint32_t i = 0; i < index->episode_count; i++) {
        const struct trajd_episode_clock *clock;
        if (index->episodes[i].quarantine)
            continue;
        clock = &index->episodes[i].clocks[which];
        summary.rows += (uint64_t)clock->row_count;
        summary.dropped += clock->dropped_rows;
        if (clock->stamps_ns)
            add_stamps(&summary, clock);
    }
    return summary;
}

const struct trajd_array *inspect_example_array(const struct trajd_index *index, uint32_t dataset)
{
    for (uint32_t i = 0; i < index->episode_count; i++) {
        const struct trajd_episode *episode = &index->episodes[i];
        if (!episode->quarantine && episode->extents[dataset].storage != TRAJD_STORAGE_ABSENT)
            return &episode->extents[dataset];
    }
    return NULL;
}

void inspect_describe_storage(const struct trajd_array *array,
                              const struct trajd_index_stream *stream, char *text, size_t size)
{
    static const char *const names[] = {"absent", "never written", "contiguous", "chunked",
                                        "compact"};
    size_t used = 0;

    if (array && trajd_array_is_encoded(array)) {
        char picture[TRAJD_PICTURE_TEXT_SIZE];
        used = (size_t)snprintf(text, size, "%s",
                                trajd_picture_text(&array->picture, &stream->image, picture));
        if (trajd_picture_channels(stream->image.color) == 3)
            used += (size_t)snprintf(text + used, size - used, " (%s)",
                                     stream->image.color == TRAJD_COLOR_UNDECIDED
                                         ? "rgb or bgr"
                                         : trajd_index_color_source(stream));
        used +=
            (size_t)snprintf(text + used, size - used, ", %s, ", trajd_row_form_name(array->form));
    }
    used +=
        (size_t)snprintf(text + used, size - used, "%s", array ? names[array->storage] : "absent");
    for (uint32_t i = 0; array && i < array->filter_count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, " %s", filter_name(array->filters[i]));
    if (stream->image.masks_zero_frames && used < size)
        used += (size_t)snprintf(text + used, size - used, ", frames of zeros masked");
    if (stream->preparation && used < size)
        snprintf(text + used, size - used, ", prepared: %s", stream->preparation);
}

void inspect_describe_shape(const struct trajd_index_stream *stream, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "(T");

    for (uint32_t i = 0; i < stream->rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, ",%" PRIu64, stream->shape[i]);
    if (used < size)
        snprintf(text + used, size - used, ")");
}

void inspect_count_rows(const struct trajd_index *index, uint32_t dataset, uint64_t *least,
                        uint64_t *most, uint32_t *episodes)
{
    *least = UINT64_MAX;
    *most = *episodes = 0;
    for (uint32_t i = 0; i < index->episode_count; i++) {
        const struct trajd_episode *episode = &index->episodes[i];
        const struct trajd_array *array = episode->quarantine ? NULL : &episode->extents[dataset];
        if (!array || array->storage == TRAJD_STORAGE_ABSENT || !array->size_bytes)
            continue;
        (*episodes)++;
        *least = array->shape[0] < *least ? array->shape[0] : *least;
        *most = array->shape[0] > *most ? array->shape[0] : *most;
    }
    if (!*episodes)
        *least = 0;
}
