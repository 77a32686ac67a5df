/* Sends the helper program the plan of the output: inputs, episodes, datasets, masks, rates and
 * provenance. */
#include "clients/cli/resample/convert_structure.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/json.h"
#include "daemon/base/memory.h"
#include "daemon/window/window_report.h"
#include "proto/array_len.h"
#include "proto/regular_file.h"

enum { PATH_SIZE = 4096, BATCH_MAX = 64, BATCH_STEPS_MAX = 1 << 14, LEVEL_DEFAULT = 4 };

static const struct trajd_episode *episode_of(const struct convert_plan *plan, uint32_t e)
{
    return convert_source_of(plan, &plan->episodes[e]);
}

/* Adds the folder of the masks, "" if the layout has none. */
static void put_mask_folder(struct convert_structure *s, const struct trajd_layout *layout)
{
    const char *filter = layout->filter_path;
    char folder[PATH_SIZE] = "";

    if (filter)
        snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(filter, '/') - filter), filter);
    trajd_bytes_add_text(&s->writer->frame, folder);
}

/* ---- episodes ---- */

void convert_episode_path(const struct trajd_index *index, const char *id, char *path, size_t size)
{
    const char *groups = index->layout->groups;
    size_t length = strcspn(groups, "*?[");

    if (!groups[length] && index->layout->split.kind) {
        snprintf(path, size, "%s/%s", groups[1] ? groups : "", id);
        return;
    }
    if (!groups[length]) {
        snprintf(path, size, "%s", groups);
        return;
    }
    while (length > 0 && groups[length - 1] != '/')
        length--;
    snprintf(path, size, "%.*s%s", (int)length, groups, id);
}

static void put_label(struct convert_structure *s, const struct trajd_index *index,
                      const struct trajd_episode *episode)
{
    const char *file = index->files[episode->file_index].relative_path;
    char label[PATH_SIZE];

    snprintf(label, sizeof label, "%s", file);
    if (strcmp(file, episode->id))
        snprintf(label, sizeof label, "%.2000s:%.1500s", file, episode->id);
    trajd_bytes_add_text(&s->writer->frame, label);
}

/* Returns whether a dataset is a stream, chosen or not, or holds times. The helper does not report
 * such a dataset as left out. */
static bool is_known(const struct trajd_index *index, uint32_t dataset)
{
    for (uint32_t s = 0; s < index->stream_count; s++)
        if (index->streams[s].array_index == dataset)
            return true;
    for (uint32_t k = 0; k < index->clock_count; k++) {
        const struct trajd_layout_clock *clock = &index->layout->clocks[k];
        if ((clock->stamps_path && !strcmp(clock->stamps_path, index->arrays[dataset].path)) ||
            (clock->start_path && !strcmp(clock->start_path, index->arrays[dataset].path)))
            return true;
    }
    return false;
}

/* Adds the paths that are neither copied nor reported. Numbers that cut longer arrays count the
 * rows of the source, so the output does not have them. */
static void put_known(struct convert_structure *s, const struct trajd_index *index)
{
    const struct trajd_layout_split *split = &index->layout->split;
    const bool has_numbers = split->kind && split->kind != TRAJD_SPLIT_FLAGS;
    uint32_t known = has_numbers;

    for (uint32_t d = 0; d < index->array_count; d++)
        known += is_known(index, d);
    trajd_bytes_add_u32(&s->writer->frame, known);
    if (has_numbers)
        trajd_bytes_add_text(&s->writer->frame, split->paths[0]);
    for (uint32_t d = 0; d < index->array_count; d++)
        if (is_known(index, d))
            trajd_bytes_add_text(&s->writer->frame, index->arrays[d].path);
}

static void put_row_counts(struct convert_structure *s, const struct trajd_index *index,
                           const struct trajd_episode *episode)
{
    uint32_t count = 0;

    for (uint32_t d = 0; d < index->array_count; d++)
        count += episode->extents[d].storage != TRAJD_STORAGE_ABSENT;
    trajd_bytes_add_u32(&s->writer->frame, count);
    for (uint32_t d = 0; d < index->array_count; d++)
        if (episode->extents[d].storage != TRAJD_STORAGE_ABSENT)
            trajd_bytes_add_u64(&s->writer->frame, trajd_array_row_count(&episode->extents[d]));
}

static bool has_encoded(const struct convert_plan *plan, const struct convert_episode *made)
{
    for (uint32_t a = 0; a < made->array_count; a++)
        if (plan->datasets[made->arrays[a].dataset].is_encoded)
            return true;
    return false;
}

/* Adds the rows that the steps take, for encoded frames and, with `all`, for datasets that no stream
 * names; then the arrays. */
static void put_arrays(struct convert_structure *s, const struct convert_episode *made, bool all)
{
    struct trajd_bytes *frame = &s->writer->frame;
    struct convert_pick picks[CONVERT_PICKS_MAX];
    uint32_t *of = trajd_memory_or_exit(malloc(made->array_count * sizeof *of));
    const uint32_t count = convert_picks_find(s->plan, made, picks, of);
    const bool sends_picks = all || has_encoded(s->plan, made);

    trajd_bytes_add_u32(frame, sends_picks ? count : 0);
    for (uint32_t i = 0; i < count && sends_picks; i++) {
        trajd_bytes_add_u64(frame, picks[i].row_count);
        for (uint64_t step = 0; step < made->step_count; step++)
            trajd_bytes_add_u64(frame, convert_pick_row(s->plan, made, &picks[i], step));
    }
    trajd_bytes_add_u32(frame, made->array_count);
    for (uint32_t a = 0; a < made->array_count; a++) {
        const uint32_t dataset = made->arrays[a].dataset;
        trajd_bytes_add_u32(frame, dataset);
        convert_writer_put_u8(s->writer, convert_extent_of(s->plan, made, dataset)->has_attributes);
        if (s->plan->datasets[dataset].is_encoded)
            trajd_bytes_add_u32(frame, of[a]);
    }
    free(of);
}

/* Adds the begin of each regular clock that stores its begin, as it would be recorded: without the
 * layout's offset and latency. */
static void put_starts(struct convert_structure *s, const struct trajd_index *index,
                       const struct trajd_episode *episode, int64_t begin_ns)
{
    uint32_t count = 0;

    for (uint32_t k = 0; k < index->clock_count; k++)
        count += index->layout->clocks[k].start_path != NULL;
    trajd_bytes_add_u32(&s->writer->frame, count);
    for (uint32_t k = 0; k < index->clock_count; k++) {
        const struct trajd_layout_clock *clock = &index->layout->clocks[k];
        if (!clock->start_path)
            continue;
        trajd_bytes_add_text(&s->writer->frame, clock->start_path);
        trajd_bytes_add_u64(&s->writer->frame, (uint64_t)(episode->origin_ns + begin_ns -
                                                          clock->offset_ns + clock->latency_ns));
        convert_writer_put_u8(s->writer, (uint8_t)clock->start_unit);
    }
}

/* Returns false if the plan covers all that the source's episode holds. The helper then skips its
 * search for other objects. */
static bool has_more(const struct trajd_index *index, const struct trajd_episode *episode,
                     const struct convert_episode *made)
{
    uint32_t present = 0;

    for (uint32_t k = 0; k < index->clock_count; k++)
        if (index->layout->clocks[k].start_path)
            return true;
    for (uint32_t d = 0; d < index->array_count; d++)
        present += episode->extents[d].storage != TRAJD_STORAGE_ABSENT;
    return !episode->is_plain || present != made->array_count;
}

static void put_episode(struct convert_structure *s, const struct convert_episode *made)
{
    const struct trajd_index *index = convert_index_of(s->plan, made);
    const struct trajd_episode *episode = convert_source_of(s->plan, made);
    const bool is_searched = has_more(index, episode, made);
    struct trajd_bytes *frame = &s->writer->frame;
    char path[PATH_SIZE], *part = convert_part_json(s->plan, made);

    convert_episode_path(index, episode->id, path, sizeof path);
    if (episode->all_rows) /* the group above has the arrays */
        path[strrchr(path, '/') == path ? 1 : strrchr(path, '/') - path] = '\0';
    trajd_bytes_add_text(frame, path);
    convert_episode_path(index, made->id, path, sizeof path);
    trajd_bytes_add_text(frame, path);
    put_label(s, index, episode);
    trajd_bytes_add_text(frame, part);
    free(part);
    trajd_bytes_add_u64(frame, made->step_count);
    trajd_bytes_add_u64(frame, episode->first_row);
    trajd_bytes_add_u64(frame, episode->all_rows);
    convert_writer_put_u8(s->writer, is_searched);
    put_row_counts(s, index, episode);
    put_arrays(s, made, is_searched);
    put_starts(s, index, episode, made->begin_ns);
}

/* ---- datasets and inputs ---- */

static enum trajd_status send_datasets(struct convert_structure *s)
{
    const struct convert_plan *plan = s->plan;
    const int level = plan->options->compress_level;
    struct trajd_bytes *frame = &s->writer->frame;

    convert_writer_begin(s->writer);
    trajd_bytes_add_u32(frame, plan->dataset_count);
    for (uint32_t i = 0; i < plan->dataset_count; i++) {
        const struct convert_dataset *dataset = &plan->datasets[i];
        trajd_bytes_add_text(frame, dataset->path);
        convert_writer_put_u8(s->writer, dataset->is_enum ? TRAJD_BOOL : (uint8_t)dataset->to);
        convert_writer_put_u8(s->writer, dataset->is_encoded ? 0 : (uint8_t)(dataset->rank + 1));
        if (dataset->is_encoded)
            continue;
        for (uint32_t d = 0; d < dataset->rank; d++)
            trajd_bytes_add_u64(frame, dataset->shape[d]);
        trajd_bytes_add_u64(frame, dataset->is_compressed ? dataset->chunk_rows : 0);
        for (uint32_t d = 0; d < dataset->rank; d++)
            trajd_bytes_add_u64(frame, dataset->chunk_shape[d]);
        convert_writer_put_u8(s->writer, (uint8_t)(level ? level < 9 ? level : 9 : LEVEL_DEFAULT));
    }
    return convert_writer_send(s->writer, TRAJD_WRITER_DATASETS, -1);
}

static enum trajd_status send_input(struct convert_structure *s, const struct trajd_index *index,
                                    uint32_t file, bool is_first)
{
    const struct trajd_layout *layout = index->layout;
    struct trajd_bytes *frame = &s->writer->frame;
    int fd;
    enum trajd_status status = trajd_open_regular(index->files[file].path, &fd, s->writer->error);

    if (status)
        return status;
    convert_writer_begin(s->writer);
    trajd_bytes_add_text(frame, index->files[file].relative_path);
    trajd_bytes_add_text(frame, layout->groups);
    put_mask_folder(s, layout);
    convert_writer_put_u8(s->writer, is_first);
    put_known(s, index);
    trajd_bytes_add_u32(frame, layout->table_count);
    for (uint32_t i = 0; i < layout->table_count; i++)
        trajd_bytes_add_text(frame, layout->tables[i]);
    status = convert_writer_send(s->writer, TRAJD_WRITER_INPUT, fd);
    close(fd);
    return status;
}

static bool is_of_one_file(const struct convert_plan *plan, uint32_t left, uint32_t right)
{
    return plan->episodes[left].source == plan->episodes[right].source &&
           episode_of(plan, left)->file_index == episode_of(plan, right)->file_index;
}

/* Returns the last episode that may be sent with this one. None is sent ahead of its rows, because
 * libhdf5 is slower with many open datasets. With compressed chunks, whose room is only found when
 * they are written, all are: else the file's layout would depend on the threads' speed. */
static uint32_t last_ahead(const struct convert_plan *plan, uint32_t episode)
{
    for (uint32_t d = 0; d < plan->dataset_count; d++)
        if (plan->datasets[d].is_compressed)
            return plan->episode_count - 1;
    return episode;
}

/* Sends the episodes in order, in batches: a frame for each would cost as much as the work itself.
 * An input is sent before its first episode. */
enum trajd_status convert_structure_reach(struct convert_structure *s, uint32_t episode)
{
    const struct convert_plan *plan = s->plan;
    const uint32_t last = last_ahead(plan, episode);
    enum trajd_status status = TRAJD_OK;

    while (s->sent <= episode && !status) {
        const uint32_t first = s->sent;
        const struct trajd_index *index = plan->options->indexes[plan->episodes[first].source];
        uint64_t steps = plan->episodes[first].step_count;
        if (!first || !is_of_one_file(plan, first - 1, first))
            status = send_input(s, index, episode_of(plan, first)->file_index, first == 0);
        if (status)
            return status;
        for (s->sent++; s->sent <= last && s->sent - first < BATCH_MAX && steps < BATCH_STEPS_MAX &&
                        is_of_one_file(plan, first, s->sent);
             s->sent++)
            steps += plan->episodes[s->sent].step_count;
        convert_writer_begin(s->writer);
        trajd_bytes_add_u32(&s->writer->frame, s->sent - first);
        for (uint32_t e = first; e < s->sent; e++)
            put_episode(s, &plan->episodes[e]);
        status = convert_writer_send(s->writer, TRAJD_WRITER_EPISODES, -1);
    }
    return status;
}

static bool is_small(const struct trajd_convert_options *options)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < options->index_count; i++)
        for (uint32_t f = 0; f < options->indexes[i]->file_count; f++)
            bytes += options->indexes[i]->files[f].stat.size_bytes;
    return bytes <= TRAJD_WRITER_SMALL_BYTES;
}

enum trajd_status convert_structure_begin(struct convert_structure *s, int fd)
{
    enum trajd_status status = convert_writer_start(s->writer, fd, is_small(s->plan->options));

    if (!status)
        status = send_datasets(s);
    return status ? status : convert_structure_reach(s, 0);
}

/* ---- what the file states about all episodes ---- */

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put_mask(struct convert_structure *s, const char *key)
{
    uint32_t count = 0;

    trajd_bytes_add_text(&s->writer->frame, key);
    for (uint32_t e = 0; e < s->plan->episode_count; e++)
        count += convert_has_key(episode_of(s->plan, e), key);
    trajd_bytes_add_u32(&s->writer->frame, count);
    for (uint32_t e = 0; e < s->plan->episode_count; e++)
        if (convert_has_key(episode_of(s->plan, e), key))
            trajd_bytes_add_text(&s->writer->frame, s->plan->episodes[e].id);
}

static enum trajd_status send_masks(struct convert_structure *s)
{
    const struct convert_plan *plan = s->plan;
    const char **keys;
    size_t count = 0, distinct = 0;

    if (!plan->first->layout->filter_path)
        return TRAJD_OK;
    for (uint32_t e = 0; e < plan->episode_count; e++)
        for (const char *const *own = episode_of(plan, e)->filter_keys; own && *own; own++)
            count++;
    keys = trajd_memory_or_exit(malloc((count + 1) * sizeof *keys));
    count = 0;
    for (uint32_t e = 0; e < plan->episode_count; e++)
        for (const char *const *own = episode_of(plan, e)->filter_keys; own && *own; own++)
            keys[count++] = *own;
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 0; i < count; i++)
        if (!i || strcmp(keys[i], keys[distinct - 1]))
            keys[distinct++] = keys[i];
    convert_writer_begin(s->writer);
    put_mask_folder(s, plan->first->layout);
    trajd_bytes_add_u32(&s->writer->frame, (uint32_t)distinct);
    for (size_t i = 0; i < distinct; i++)
        put_mask(s, keys[i]);
    free(keys);
    return distinct ? convert_writer_send(s->writer, TRAJD_WRITER_MASKS, -1) : TRAJD_OK;
}

/* Writes the rate as a number: 20, 12.5, 29.97. Returns false if no short number is exactly the
 * rate. */
static bool rate_number(struct trajd_rate rate, char *text, size_t size)
{
    static const int digits[] = {4, 6, 9, 15};
    struct trajd_rate back;

    for (size_t i = 0; i < ARRAY_LEN(digits); i++) {
        snprintf(text, size, "%.*g", digits[i], (double)rate.num / (double)rate.den);
        if (!strchr(text, 'e') && trajd_parse_rate(text, &back) && back.num == rate.num &&
            back.den == rate.den)
            return true;
    }
    return false;
}

/* Returns the number that states the rate of a clock: Hz, or a period in the layout's unit. */
static struct trajd_rate number_of(const struct trajd_layout_clock *clock, struct trajd_rate rate)
{
    const int64_t units = trajd_layout_units_per_second(clock);
    int64_t a, b;

    if (!units)
        return rate;
    rate = (struct trajd_rate){rate.den * units, rate.num};
    for (a = rate.num, b = rate.den; b;) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return (struct trajd_rate){rate.num / a, rate.den / a};
}

static bool clock_is_used(const struct convert_plan *plan, uint32_t clock)
{
    for (uint32_t d = 0; d < plan->dataset_count; d++)
        if (plan->datasets[d].clock == clock)
            return true;
    return false;
}

/* Adds the clock's rate where the layout reads it: one attribute, or one in each episode. */
static uint32_t put_rate(struct convert_structure *s, const struct trajd_layout_clock *clock,
                         const char *number)
{
    const struct convert_plan *plan = s->plan;
    const bool is_one = *clock->rate_attribute == '/';
    const uint32_t count = is_one ? 1 : plan->episode_count;
    const char *at = strchr(clock->rate_attribute, '@'); /* the layout checked that there is one */
    const int length = (int)(at - clock->rate_attribute);

    for (uint32_t e = 0; e < count; e++) {
        char object[2 * PATH_SIZE], group[PATH_SIZE];
        convert_episode_path(convert_index_of(plan, &plan->episodes[e]), plan->episodes[e].id,
                             group, sizeof group);
        snprintf(object, sizeof object, "%s%s%.*s", is_one ? "" : group,
                 is_one || !length ? "" : "/", length, clock->rate_attribute);
        trajd_bytes_add_text(&s->writer->frame, object);
        trajd_bytes_add_text(&s->writer->frame, at + 1);
        trajd_bytes_add_text(&s->writer->frame, clock->rate_json);
        trajd_bytes_add_text(&s->writer->frame, number);
    }
    return count;
}

/* Adds the new rate of each regular clock, so that a reader with the same layout finds it. */
static void put_rates(struct convert_structure *s)
{
    const struct convert_plan *plan = s->plan;
    const struct trajd_layout *layout = plan->first->layout;
    const struct trajd_rate rate = plan->options->rate;
    const size_t at = s->writer->frame.length;
    uint32_t count = 0;

    trajd_bytes_add_u32(&s->writer->frame, 0);
    for (uint32_t k = 0; k < layout->clock_count; k++) {
        const struct trajd_layout_clock *clock = &layout->clocks[k];
        char number[64];
        bool exact;
        if (clock->stamps_path || !clock_is_used(plan, k))
            continue;
        if (clock->rate_path)
            convert_note(plan->options,
                         "clock %s: the dataset %s is copied and keeps the rate of the source; "
                         "trajd reads the new rate from the attribute trajd_resample",
                         clock->name, clock->rate_path);
        if (!clock->rate_attribute)
            continue;
        exact = rate_number(number_of(clock, rate), number, sizeof number);
        count += put_rate(s, clock, number);
        if (!exact)
            convert_note(plan->options,
                         "clock %s: no decimal number is exactly the rate of %" PRId64 "/%" PRId64
                         " Hz; %s is written to %s",
                         clock->name, rate.num, rate.den, number, clock->rate_attribute);
    }
    if (!s->writer->frame.failed)
        memcpy(s->writer->frame.data + at, &count, sizeof count);
}

/* Writes the assumed rate of the sources, if one was used. */
static void write_assumption(struct trajd_json *json, const struct convert_plan *plan)
{
    for (uint32_t e = 0; e < plan->episode_count; e++) {
        const struct trajd_episode *episode = episode_of(plan, e);
        for (uint32_t d = 0; d < plan->dataset_count; d++) {
            const struct trajd_episode_clock *clock = &episode->clocks[plan->datasets[d].clock];
            if (clock->rate_source != TRAJD_RATE_ASSUMED)
                continue;
            trajd_json_format(json, "assumed_rate", "%" PRId64 "/%" PRId64, clock->rate.num,
                              clock->rate.den);
            return;
        }
    }
}

static void write_provenance(struct trajd_json *json, const struct convert_plan *plan)
{
    const struct trajd_convert_options *options = plan->options;
    size_t files = 0;

    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "by", "trajd " TRAJD_VERSION);
    trajd_json_string(json, "layout", plan->first->layout->name);
    trajd_json_format(json, "rate", "%" PRId64 "/%" PRId64, options->rate.num, options->rate.den);
    write_assumption(json, plan);
    if (plan->first->layout->split.kind)
        trajd_json_string(json, "split", TRAJD_SEPARATED);
    if (plan->is_on_gpu)
        trajd_json_string(json, "arithmetic", "gpu");
    trajd_json_open_array(json, "sources");
    for (uint32_t k = 0; k < options->index_count; k++)
        for (uint32_t f = 0; f < options->indexes[k]->file_count && files < 1000; f++, files++)
            trajd_json_string(json, NULL, options->indexes[k]->files[f].path);
    trajd_json_close_array(json);
    trajd_json_open_object(json, "streams");
    for (uint32_t s = 0; s < plan->stream_count; s++) {
        const struct trajd_convert_stream *stream = plan->streams[s];
        trajd_json_open_object(json, stream->source->name);
        trajd_json_string(json, "kind", trajd_convert_kind_name(stream));
        trajd_json_string(json, "from", trajd_dtype_name(stream->source->dtype));
        trajd_json_string(json, "to", trajd_dtype_name(stream->to));
        if (stream->window_ns)
            trajd_json_i64(json, "window_ns", stream->window_ns);
        trajd_json_close_object(json);
    }
    trajd_json_close_object(json);
    trajd_json_close_object(json);
}

/* Sends counts, rates, and {"by":...,"layout":...,"rate":...,"sources":[...],"streams":{...}}. */
static enum trajd_status send_summary(struct convert_structure *s)
{
    char *text = NULL;
    size_t size = 0;
    struct trajd_json json = {.out = trajd_memory_or_exit(open_memstream(&text, &size))};

    write_provenance(&json, s->plan);
    trajd_memory_close_or_exit(json.out, &text);
    convert_writer_begin(s->writer);
    trajd_bytes_add_u64(&s->writer->frame, s->plan->step_count);
    trajd_bytes_add_u64(&s->writer->frame, s->plan->episode_count);
    put_rates(s);
    trajd_bytes_add_text(&s->writer->frame, text);
    free(text);
    return convert_writer_send(s->writer, TRAJD_WRITER_SUMMARY, -1);
}

enum trajd_status convert_structure_end(struct convert_structure *s)
{
    enum trajd_status status = convert_structure_reach(s, s->plan->episode_count - 1);

    if (!status)
        status = convert_writer_wait(s->writer); /* its notes come before those of the summary */
    if (!status)
        status = send_masks(s);
    if (!status)
        status = send_summary(s);
    convert_writer_begin(s->writer);
    if (!status)
        status = convert_writer_send(s->writer, TRAJD_WRITER_CLOSE, -1);
    return status ? status : convert_writer_wait(s->writer);
}
