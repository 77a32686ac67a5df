/* The datasets of the output: element types, columns, chunks. */

#include "clients/cli/resample/plan/convert_plan_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 << 10, CHUNK_BLOCK_BYTES_MAX = 64 << 20 };

/* Returns whether all streams of a dataset are events. */
static bool has_events(const struct trajd_index *index, uint32_t dataset)
{
    bool any = false;

    for (uint32_t s = 0; s < index->stream_count; s++)
        if (index->streams[s].array_index == dataset) {
            if (!index->streams[s].is_event)
                return false;
            any = true;
        }
    return any;
}

static struct convert_dataset *add_dataset(struct convert_plan *plan,
                                           const struct trajd_index *index, uint32_t dataset,
                                           uint32_t clock)
{
    struct convert_dataset *made = &plan->datasets[plan->dataset_count++];

    *made = (struct convert_dataset){.path = index->arrays[dataset].path,
                                     .index_dataset = dataset,
                                     .clock = clock,
                                     .is_event = has_events(index, dataset),
                                     .stamps_column = CONVERT_NO_COLUMN,
                                     .max_gap_ns = -1};
    return made;
}

const struct trajd_array *convert_first_array(const struct trajd_index *index, uint32_t dataset)
{
    for (uint32_t e = 0; e < index->episode_count; e++)
        if (!index->episodes[e].quarantine &&
            index->episodes[e].extents[dataset].storage != TRAJD_STORAGE_ABSENT &&
            index->episodes[e].extents[dataset].size_bytes)
            return &index->episodes[e].extents[dataset];
    return NULL;
}

static void take_shape(struct convert_dataset *dataset, const struct trajd_array *array)
{
    dataset->from = dataset->to = array->dtype;
    dataset->rank = array->rank - 1;
    dataset->elements = 1;
    for (uint32_t d = 1; d < array->rank; d++) {
        dataset->shape[d - 1] = array->shape[d];
        dataset->elements *= array->shape[d];
    }
    dataset->source_bytes = dataset->elements * trajd_dtype_size(array->dtype);
    dataset->is_compressed = array->storage == TRAJD_STORAGE_CHUNKED && array->filter_count > 0;
    dataset->chunk_rows = dataset->is_compressed ? array->chunk_shape[0] : 0;
    for (uint32_t d = 1; d < array->rank && dataset->is_compressed; d++)
        dataset->chunk_shape[d - 1] = array->chunk_shape[d];
}

/* Returns whether each step of the output is a row of the stream: the only clock is regular, and its
 * rate is a multiple of the output's. */
static bool takes_rows(const struct convert_plan *plan, const struct trajd_index *index,
                       uint32_t clock)
{
    bool all = index->clock_count == 1;

    for (uint32_t e = 0; e < index->episode_count && all; e++)
        all = index->episodes[e].quarantine ||
              trajd_rate_divides(plan->options->rate, index->episodes[e].clocks[clock].rate);
    return all;
}

/* Notes quaternions that a lane blends as plain numbers. */
static void note_quaternions(const struct convert_plan *plan, const struct convert_dataset *dataset,
                             const struct convert_lane *lane,
                             const struct trajd_index_stream *stream,
                             const struct trajd_index *index)
{
    const struct trajd_quaternion *quaternions;
    const uint32_t count = trajd_index_find_quaternions(
        index, dataset->index_dataset, lane->first_column, lane->first_column + lane->column_count,
        lane->kind, &quaternions);
    char text[TRAJD_QUATERNION_ADVICE_SIZE];

    if (!count || (lane->kind != TRAJD_KIND_MEAN && takes_rows(plan, index, dataset->clock)))
        return;
    trajd_index_advise_quaternions(index, stream, lane->kind, quaternions, count, text);
    convert_note(plan->options, "%s: %s", stream->name, text);
}

/* Makes one lane for each run of columns with the same owner. Owners are indexes of the plan's
 * streams, or UINT32_MAX for none. */
static enum trajd_status add_lanes(struct convert_plan *plan, struct convert_dataset *dataset,
                                   const uint32_t *owners, const struct convert_choice *choices,
                                   const struct trajd_index *index, const uint32_t *numbers,
                                   struct trajd_error *error)
{
    dataset->lanes = convert_alloc(plan, (index->stream_count * 2 + 1) * sizeof *dataset->lanes);
    for (uint64_t c = 0, end; c < dataset->elements; c = end) {
        const uint32_t owner = owners ? owners[c] : numbers[0];
        struct convert_lane lane = {
            .stream = UINT32_MAX, .kind = TRAJD_KIND_PREVIOUS, .first_column = c};
        for (end = owners ? c + 1 : dataset->elements;
             end < dataset->elements && owners[end] == owner; end++)
            ;
        lane.column_count = end - c;
        if (owner != UINT32_MAX) {
            lane.stream = owner;
            lane.kind = choices[owner].made.kind;
            lane.angle_period = choices[owner].angle_period;
            lane.window_ns = choices[owner].made.window_ns;
            lane.adds = choices[owner].made.adds;
            note_quaternions(plan, dataset, &lane, &index->streams[owner], index);
            if (convert_is_slerp(lane.kind) &&
                ((c - index->streams[owner].first_column) % 4 || lane.column_count % 4))
                return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                       "%s: another stream has some columns of its quaternions",
                                       index->streams[owner].name);
        } else {
            convert_note(plan->options,
                         "%s: columns %" PRIu64 " to %" PRIu64
                         " belong to no stream of the layout and are held (kind previous)",
                         dataset->path, c, end - 1);
        }
        dataset->lanes[dataset->lane_count++] = lane;
    }
    return TRAJD_OK;
}

/* Finds the owner of each column. A stream of some columns takes precedence over a stream of all
 * columns. */
static enum trajd_status share_columns(struct convert_plan *plan, struct convert_dataset *dataset,
                                       const struct trajd_index *index,
                                       const struct convert_choice *choices,
                                       struct trajd_error *error)
{
    uint32_t *owners = NULL, full_stream = UINT32_MAX, slices = 0;
    enum trajd_status status;

    for (uint32_t i = 0; i < index->stream_count; i++) {
        if (index->streams[i].array_index != dataset->index_dataset)
            continue;
        if (index->streams[i].feature_count == dataset->elements)
            full_stream = i;
        else
            slices++;
    }
    if (slices) {
        owners = trajd_memory_or_exit(malloc(dataset->elements * sizeof *owners));
        for (uint64_t c = 0; c < dataset->elements; c++)
            owners[c] = full_stream;
        for (uint32_t i = 0; i < index->stream_count; i++) {
            const struct trajd_index_stream *stream = &index->streams[i];
            if (stream->array_index == dataset->index_dataset &&
                stream->feature_count != dataset->elements)
                for (uint64_t c = 0; c < stream->feature_count; c++)
                    owners[stream->first_column + c] = i;
        }
    }
    status = add_lanes(plan, dataset, owners, choices, index, &full_stream, error);
    free(owners);
    return status;
}

/* Sets the element type, which all streams of the dataset share. */
static enum trajd_status settle_type(struct convert_plan *plan, struct convert_dataset *dataset,
                                     const struct trajd_index *index,
                                     struct convert_choice *choices, struct trajd_error *error)
{
    const char *by = NULL;

    for (uint32_t i = 0; i < index->stream_count; i++) {
        const struct trajd_convert_stream *made = &choices[i].made;
        if (index->streams[i].array_index != dataset->index_dataset || made->to == dataset->from)
            continue;
        if (by && made->to != dataset->to)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "%s and %s are columns of one dataset and cannot be %s and %s",
                                   by, made->name, trajd_dtype_name(dataset->to),
                                   trajd_dtype_name(made->to));
        by = made->name;
        dataset->to = made->to;
    }
    if (by && dataset->stamps_column != CONVERT_NO_COLUMN && convert_is_floating(dataset->from)) {
        convert_note(plan->options, "%s: holds stamps and therefore stays %s", dataset->path,
                     trajd_dtype_name(dataset->from));
        dataset->to = dataset->from;
    } else if (by && dataset->stamps_column != CONVERT_NO_COLUMN) {
        return trajd_error_set(
            error, TRAJD_ERR_UNSUPPORTED, 0,
            "%s: holds stamps as %s, but %s would make it %s: use kind previous or nearest",
            dataset->path, trajd_dtype_name(dataset->from), by, trajd_dtype_name(dataset->to));
    }
    dataset->row_bytes = dataset->elements * trajd_dtype_size(dataset->to);
    for (uint32_t i = 0; i < index->stream_count; i++)
        if (index->streams[i].array_index == dataset->index_dataset) {
            choices[i].made.to = dataset->to;
            choices[i].made.row_bytes =
                index->streams[i].feature_count * trajd_dtype_size(dataset->to);
            choices[i].made.is_compressed = dataset->is_compressed;
        }
    return TRAJD_OK;
}

static int64_t find_dataset(const struct trajd_index *index, const char *path)
{
    for (uint32_t d = 0; path && d < index->array_count; d++)
        if (!strcmp(index->arrays[d].path, path))
            return d;
    return -1;
}

static struct convert_dataset *find_made(struct convert_plan *plan, uint32_t index_dataset)
{
    for (uint32_t d = 0; d < plan->dataset_count; d++)
        if (plan->datasets[d].index_dataset == index_dataset)
            return &plan->datasets[d];
    return NULL;
}

/* Adds the stamps of each clock that a dataset of the output uses. */
static void add_stamps(struct convert_plan *plan, const struct trajd_index *index)
{
    const uint32_t count = plan->dataset_count;

    for (uint32_t k = 0; k < index->clock_count; k++) {
        const struct trajd_layout_clock *clock = &index->layout->clocks[k];
        const int64_t found = find_dataset(index, clock->stamps_path);
        struct convert_dataset *dataset;
        bool used = false;
        for (uint32_t d = 0; d < count; d++)
            used = used || plan->datasets[d].clock == k;
        if (!used || found < 0 || !convert_first_array(index, (uint32_t)found))
            continue;
        dataset = find_made(plan, (uint32_t)found);
        if (!dataset)
            dataset = add_dataset(plan, index, (uint32_t)found, k);
        dataset->stamps_column = clock->stamps_column;
        dataset->stamps_unit = clock->unit;
    }
}

/* Checks that the stamps' type can hold the grid's times without repeats. */
static enum trajd_status check_stamps(const struct convert_plan *plan,
                                      const struct convert_dataset *dataset,
                                      struct trajd_error *error)
{
    static const int64_t units_ns[] = {1, 1000, 1000000, 1000000000};
    const struct trajd_rate rate = plan->options->rate;

    if (dataset->stamps_column == CONVERT_NO_COLUMN)
        return TRAJD_OK;
    if (dataset->stamps_column >= dataset->elements)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "%s: has %" PRIu64
                               " columns, but the layout's stamps are column %" PRIu64,
                               dataset->path, dataset->elements, dataset->stamps_column);
    if (dataset->from == TRAJD_F16)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "%s: float16 is too coarse for stamps", dataset->path);
    if (!convert_is_floating(dataset->from) &&
        trajd_rate_row_ns(rate, 1) < units_ns[dataset->stamps_unit])
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "%s: holds stamps in whole units of %" PRId64 " ns, which would repeat at %.6g Hz",
            dataset->path, units_ns[dataset->stamps_unit], (double)rate.num / (double)rate.den);
    return TRAJD_OK;
}

/* Plans a dataset of encoded frames, whose rows are picked. */
static void add_encoded(struct convert_plan *plan, struct convert_dataset *dataset,
                        const struct trajd_index *index, const struct convert_choice *choices)
{
    dataset->is_encoded = true;
    dataset->from = dataset->to = TRAJD_U8;
    dataset->tile_count = 1;
    dataset->lanes = convert_alloc(plan, sizeof *dataset->lanes);
    for (uint32_t i = 0; i < index->stream_count && !dataset->lane_count; i++)
        if (index->streams[i].array_index == dataset->index_dataset && choices[i].comes_along)
            dataset->lanes[dataset->lane_count++] =
                (struct convert_lane){.stream = i, .kind = choices[i].made.kind};
}

/* Plans a dataset whose rows are resampled. */
static enum trajd_status add_plain(struct convert_plan *plan, struct convert_dataset *dataset,
                                   const struct trajd_index *index, struct convert_choice *choices,
                                   struct trajd_error *error)
{
    const struct trajd_array *first = convert_first_array(index, dataset->index_dataset);
    enum trajd_status status;

    take_shape(dataset, first);
    dataset->is_enum = first->is_enum && trajd_dtype_size(first->dtype) == 1;
    if (first->is_enum && !dataset->is_enum)
        convert_note(plan->options, "%s: an enum of more than one byte becomes plain integers",
                     dataset->path);
    if (plan->options->compress != TRAJD_CONVERT_KEEP)
        dataset->is_compressed = plan->options->compress == TRAJD_CONVERT_DEFLATE;
    status = check_stamps(plan, dataset, error);
    if (!status)
        status = settle_type(plan, dataset, index, choices, error);
    if (!status && !(dataset->stamps_column != CONVERT_NO_COLUMN && dataset->elements == 1))
        status = share_columns(plan, dataset, index, choices, error);
    return status;
}

enum trajd_status convert_add_datasets(struct convert_plan *plan, const struct trajd_index *index,
                                       struct convert_choice *choices, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    plan->datasets =
        convert_alloc(plan, (index->stream_count + index->clock_count) * sizeof *plan->datasets);
    for (uint32_t i = 0; i < index->stream_count; i++) {
        const struct trajd_index_stream *stream = &index->streams[i];
        struct convert_dataset *dataset = find_made(plan, stream->array_index);
        if (!choices[i].comes_along || !convert_first_array(index, stream->array_index))
            continue;
        if (dataset && dataset->clock != stream->clock_index)
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "%s: its columns have two clocks, %s and %s", dataset->path,
                                   index->clocks[dataset->clock].name,
                                   index->clocks[stream->clock_index].name);
        if (!dataset)
            dataset = add_dataset(plan, index, stream->array_index, stream->clock_index);
        if (choices[i].max_gap_ns > 0 &&
            (dataset->max_gap_ns < 0 || choices[i].max_gap_ns < dataset->max_gap_ns))
            dataset->max_gap_ns = choices[i].max_gap_ns;
    }
    add_stamps(plan, index);
    for (uint32_t d = 0; d < plan->dataset_count && !status; d++) {
        struct convert_dataset *dataset = &plan->datasets[d];
        if (trajd_array_is_encoded(convert_first_array(index, dataset->index_dataset)))
            add_encoded(plan, dataset, index, choices);
        else
            status = add_plain(plan, dataset, index, choices, error);
    }
    return status;
}

void convert_map_datasets(struct convert_plan *plan)
{
    const uint32_t count = plan->options->index_count;
    uint32_t **maps = convert_alloc(plan, count * sizeof *maps);

    for (uint32_t k = 0; k < count; k++) {
        maps[k] = convert_alloc(plan, plan->dataset_count * sizeof **maps);
        for (uint32_t d = 0; d < plan->dataset_count; d++) {
            const int64_t found = find_dataset(plan->options->indexes[k], plan->datasets[d].path);
            maps[k][d] = found < 0 ? UINT32_MAX : (uint32_t)found;
        }
    }
    plan->source_datasets = maps;
}

/* ---- chunks ---- */

/* Takes the input's chunk shape if there is one, so that the output compresses as well: images may
 * be in tiles that span many frames. Otherwise a chunk has whole rows. */
void convert_choose_chunks(struct convert_plan *plan)
{
    for (uint32_t d = 0; d < plan->dataset_count; d++) {
        struct convert_dataset *dataset = &plan->datasets[d];
        bool takes;
        if (dataset->is_encoded)
            continue;
        takes = dataset->chunk_rows &&
                dataset->chunk_rows <= CHUNK_BLOCK_BYTES_MAX / dataset->row_bytes;
        if (!takes)
            dataset->chunk_rows =
                dataset->row_bytes < CHUNK_BYTES ? CHUNK_BYTES / dataset->row_bytes : 1;
        dataset->tile_count = 1;
        for (uint32_t i = 0; i < dataset->rank; i++) {
            if (!takes || dataset->chunk_shape[i] > dataset->shape[i])
                dataset->chunk_shape[i] = dataset->shape[i];
            dataset->tile_count *=
                (dataset->shape[i] + dataset->chunk_shape[i] - 1) / dataset->chunk_shape[i];
        }
    }
}
