/* An index as JSON. */
#include <inttypes.h>

#include "clients/cli/inspect/inspect.h"
#include "daemon/window/window_report.h"

static void json_clock(struct trajd_json *json, const struct trajd_index *index, uint32_t which)
{
    const struct inspect_clock_summary summary = inspect_summarize_clock(index, which);
    struct trajd_index_rates rates = {0};

    trajd_index_rates_add(index, which, &rates);
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "name", index->clocks[which].name);
    trajd_json_bool(json, "regular", index->clocks[which].regular);
    trajd_json_u64(json, "rows", summary.rows);
    trajd_json_u64(json, "dropped_rows", summary.dropped);
    if (index->clocks[which].regular) {
        trajd_json_number(json, "lowest_rate_hz", "%.9g", rates.lowest_hz);
        trajd_json_number(json, "highest_rate_hz", "%.9g", rates.highest_hz);
    } else if (summary.intervals) {
        trajd_json_number(json, "mean_rate_hz", "%.9g", (double)summary.intervals / summary.sum_s);
        trajd_json_i64(json, "shortest_interval_ns", summary.shortest_ns);
        trajd_json_i64(json, "longest_interval_ns", summary.longest_ns);
    }
    trajd_json_string(json, "rate_source", trajd_rate_source_name(rates.source));
    trajd_json_u64(json, "assumed_episodes", rates.assumed_count);
    trajd_json_close_object(json);
}

static void json_stream(struct trajd_json *json, const struct trajd_index *index,
                        const struct trajd_index_stream *stream)
{
    const struct trajd_array *array = inspect_example_array(index, stream->array_index);
    uint64_t least, most;
    uint32_t episodes;
    char storage[INSPECT_STORAGE_SIZE];

    inspect_describe_storage(array, stream, storage, sizeof storage);
    inspect_count_rows(index, stream->array_index, &least, &most, &episodes);
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "name", stream->name);
    trajd_json_string(json, "dataset", index->arrays[stream->array_index].path);
    trajd_json_string(json, "dtype", trajd_dtype_name(stream->dtype));
    trajd_json_open_array(json, "row_shape");
    for (uint32_t i = 0; i < stream->rank; i++)
        trajd_json_u64(json, NULL, stream->shape[i]);
    trajd_json_close_array(json);
    trajd_json_string(json, "kind", trajd_window_kind_name(stream->kind));
    trajd_json_string(json, "clock", index->clocks[stream->clock_index].name);
    trajd_json_string(json, "storage", storage);
    if (trajd_picture_channels(stream->image.color) == 3) {
        trajd_json_string(json, "color", trajd_picture_color_name(stream->image.color));
        trajd_json_string(json, "color_from", trajd_index_color_source(stream));
    }
    trajd_json_u64(json, "fewest_rows", least);
    trajd_json_u64(json, "most_rows", most);
    trajd_json_u64(json, "episodes", episodes);
    trajd_json_close_object(json);
}

/* `number` is that of `episodes:` of a feed. */
static void json_episode(struct trajd_json *json, const struct trajd_index *index,
                         const struct trajd_episode *episode, uint32_t number)
{
    trajd_json_open_object(json, NULL);
    trajd_json_u64(json, "number", number);
    trajd_json_string(json, "file", index->files[episode->file_index].relative_path);
    trajd_json_string(json, "id", episode->id);
    trajd_json_string(json, "quarantine", episode->quarantine);
    trajd_json_open_array(json, "filter_keys");
    for (uint32_t i = 0; episode->filter_keys[i]; i++)
        trajd_json_string(json, NULL, episode->filter_keys[i]);
    trajd_json_close_array(json);
    trajd_json_open_object(json, "rows");
    for (uint32_t i = 0; !episode->quarantine && i < index->clock_count; i++)
        trajd_json_i64(json, index->clocks[i].name, episode->clocks[i].row_count);
    trajd_json_close_object(json);
    trajd_json_open_object(json, "matches");
    for (uint32_t i = 0; !episode->quarantine && episode->matches && i < index->array_count; i++)
        if (episode->matches[i])
            trajd_json_string(json, index->arrays[i].path, episode->matches[i]);
    trajd_json_close_object(json);
    trajd_json_open_object(json, "meta");
    for (uint32_t i = 0; i < index->layout->meta_count; i++)
        trajd_json_string(json, index->layout->metas[i].name, episode->metas[i]);
    trajd_json_close_object(json);
    trajd_json_close_object(json);
}

static void json_episodes(struct trajd_json *json, const struct trajd_index *index)
{
    uint32_t refused_before = 0, file = 0;

    for (uint32_t i = 0; i < index->episode_count; i++) {
        for (; file < index->episodes[i].file_index; file++)
            refused_before += index->files[file].refusal != NULL;
        json_episode(json, index, &index->episodes[i], i + refused_before);
    }
}

static void json_files(struct trajd_json *json, const struct trajd_index *index)
{
    trajd_json_open_array(json, "files");
    for (uint32_t i = 0; i < index->file_count; i++) {
        trajd_json_open_object(json, NULL);
        trajd_json_string(json, "path", index->files[i].relative_path);
        trajd_json_u64(json, "size_bytes", index->files[i].stat.size_bytes);
        trajd_json_string(json, "refusal", index->files[i].refusal);
        trajd_json_close_object(json);
    }
    trajd_json_close_array(json);
}

void inspect_write(struct trajd_json *json, const char *path, const struct trajd_index *index)
{
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "path", path);
    trajd_json_string(json, "layout", index->layout->name);
    trajd_json_format(json, "fingerprint", "%016" PRIx64, index->fingerprint);
    trajd_json_u64(json, "episode_count", index->episode_count);
    trajd_json_u64(json, "found_count", index->episode_count + index->refused_file_count);
    trajd_json_u64(json, "kept_count", index->kept_count);
    trajd_json_u64(json, "quarantined_count",
                   index->episode_count + index->refused_file_count - index->kept_count);
    trajd_json_u64(json, "refused_file_count", index->refused_file_count);
    trajd_json_u64(json, "trimmed_rows", index->trimmed_row_count);
    json_files(json, index);
    trajd_json_open_array(json, "clocks");
    for (uint32_t i = 0; i < index->clock_count; i++)
        json_clock(json, index, i);
    trajd_json_close_array(json);
    trajd_json_open_array(json, "streams");
    for (uint32_t i = 0; i < index->stream_count; i++)
        json_stream(json, index, &index->streams[i]);
    trajd_json_close_array(json);
    trajd_json_open_array(json, "notes");
    for (uint32_t i = 0; i < index->note_count; i++)
        trajd_json_string(json, NULL, index->notes[i]);
    trajd_json_close_array(json);
    trajd_json_open_array(json, "episodes");
    json_episodes(json, index);
    trajd_json_close_array(json);
    trajd_json_close_object(json);
}
