/* Reads the source rows of a segment, resamples them, and puts the result into blocks of the
 * output. */
#include <errno.h>
#include <inttypes.h>
#include <libdeflate.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/cli/resample/convert_rows_internal.h"
#include "daemon/base/memory.h"
#include "proto/regular_file.h"

enum { LEVEL_DEFAULT = 4 };

static const uint64_t source_bytes_max = UINT64_C(1) << 30; /* of the rows for one step */
static const uint64_t source_bytes_goal = UINT64_C(32) << 20;

/* ---- creation ---- */

static void *zeroed(size_t count, size_t size)
{
    return trajd_memory_or_exit(calloc(count, size));
}

enum trajd_status convert_worker_create(const struct convert_plan *plan,
                                        const struct convert_group *groups,
                                        const struct convert_sink *sink,
                                        struct convert_backend *backend,
                                        struct trajd_convert_report *report,
                                        struct convert_worker **out, struct trajd_error *error)
{
    struct convert_worker *worker = *out = zeroed(1, sizeof *worker);
    const uint32_t level = plan->options->compress_level;
    uint32_t lanes = 1;
    bool compresses = false;

    for (uint32_t d = 0; d < plan->dataset_count; d++) {
        lanes += plan->datasets[d].lane_count;
        compresses = compresses || plan->datasets[d].is_compressed;
    }
    worker->plan = plan;
    worker->groups = groups;
    worker->sink = sink;
    worker->report = report;
    worker->source_fd = -1;
    worker->engine = convert_engine_create(backend);
    worker->members = zeroed(plan->dataset_count + 1, sizeof *worker->members);
    worker->brackets = zeroed(plan->dataset_count + 1, sizeof *worker->brackets);
    worker->row_counts = zeroed(plan->dataset_count + 1, sizeof *worker->row_counts);
    worker->streams = zeroed(lanes, sizeof *worker->streams);
    worker->stream_lanes = zeroed(lanes, sizeof *worker->stream_lanes);
    worker->bases = zeroed(lanes, sizeof *worker->bases);
    if (compresses)
        worker->compressor =
            trajd_memory_or_exit(libdeflate_alloc_compressor((int)(level ? level : LEVEL_DEFAULT)));
    return trajd_array_reader_create(&worker->reader, error);
}

void convert_worker_destroy(struct convert_worker **out)
{
    struct convert_worker *worker = *out;

    *out = NULL;
    if (!worker)
        return;
    if (worker->source_fd >= 0)
        close(worker->source_fd);
    trajd_array_reader_destroy(&worker->reader);
    libdeflate_free_compressor(worker->compressor);
    convert_engine_destroy(&worker->engine);
    free(worker->source_rows.bytes);
    free(worker->output_rows.bytes);
    free(worker->offsets.bytes);
    free(worker->stamps.bytes);
    free(worker->masks.bytes);
    free(worker->raw.bytes);
    free(worker->chunk.bytes);
    free(worker->shuffled.bytes);
    free(worker->members);
    free(worker->brackets);
    free(worker->row_counts);
    free(worker->streams);
    free(worker->stream_lanes);
    free(worker->bases);
    free(worker);
}

/* ---- reading ---- */

static const struct trajd_episode *source_episode(const struct convert_plan *plan,
                                                  const struct convert_episode *made)
{
    return &plan->options->indexes[made->source]->episodes[made->episode];
}

enum trajd_status convert_check_input(const struct trajd_index_file *file, const struct stat *now,
                                      struct trajd_error *error)
{
    const struct trajd_file_stat found = trajd_file_stat_from(now);

    if (trajd_file_stat_is_same(&file->stat, &found))
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                           "%s: changed since it was indexed (size, times or inode differ)",
                           file->path);
}

static enum trajd_status open_source(struct convert_worker *worker,
                                     const struct convert_episode *made, struct trajd_error *error)
{
    const struct trajd_index *index = worker->plan->options->indexes[made->source];
    const uint32_t file = index->episodes[made->episode].file_index;
    enum trajd_status status;
    struct stat now;

    if (worker->source_fd >= 0 && worker->source == made->source && worker->file == file)
        return TRAJD_OK;
    if (worker->source_fd >= 0)
        close(worker->source_fd);
    status = trajd_open_regular(index->files[file].path, &worker->source_fd, error);
    worker->source = made->source;
    worker->file = file;
    if (status)
        return status;
    if (fstat(worker->source_fd, &now))
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", index->files[file].path,
                               strerror(errno));
    return convert_check_input(&index->files[file], &now, error);
}

/* Finds the source rows that the steps from time `first` to time `last` need; `next` is the time of
 * the step after them. */
static void find_rows(const struct convert_dataset *dataset,
                      const struct trajd_episode_clock *clock, struct convert_member *member,
                      int64_t first, int64_t last, int64_t next)
{
    const int64_t rows = member->array->rows;
    int64_t end = trajd_clock_rows_until(clock, rows, last) + 1;

    member->row_begin = trajd_clock_rows_until(clock, rows, first) - 1;
    for (uint32_t l = 0; l < dataset->lane_count; l++)
        if (dataset->lanes[l].kind == TRAJD_KIND_MEAN) {
            const int64_t row =
                trajd_clock_rows_until(clock, rows, first - dataset->lanes[l].window_ns);
            member->row_begin = row < member->row_begin ? row : member->row_begin;
        } else if (dataset->lanes[l].adds) {
            end = trajd_clock_rows_until(clock, rows, next) + 1;
        }
    if (member->row_begin < member->array->first_row)
        member->row_begin = member->array->first_row;
    member->row_end = end < rows ? end : rows;
}

/* Fills worker->members with the segment's datasets and the rows that they need. Returns the number
 * of members, and in *bytes the size of all those rows. */
static uint32_t find_members(struct convert_worker *worker, const struct convert_segment *segment,
                             uint64_t *bytes)
{
    const struct convert_plan *plan = worker->plan;
    const struct convert_episode *made = &plan->episodes[segment->episode];
    const struct convert_group *group = &worker->groups[segment->group];
    const struct trajd_episode *episode = source_episode(plan, made);
    const int64_t first = made->begin_ns + convert_step_ns(plan, segment->step_begin),
                  last = made->begin_ns + convert_step_ns(plan, segment->step_end - 1),
                  next = made->begin_ns + convert_step_ns(plan, segment->step_end);
    uint32_t count = 0;

    *bytes = 0;
    for (uint32_t a = 0, i = 0; a < made->array_count && i < group->dataset_count; a++) {
        struct convert_member *member = &worker->members[count];
        while (i < group->dataset_count && group->datasets[i] < made->arrays[a].dataset)
            i++;
        if (i == group->dataset_count || group->datasets[i] != made->arrays[a].dataset)
            continue;
        member->array = &made->arrays[a];
        member->dataset = &plan->datasets[member->array->dataset];
        member->source =
            &episode->extents[plan->source_datasets[made->source][member->array->dataset]];
        find_rows(member->dataset, &episode->clocks[member->dataset->clock], member, first, last,
                  next);
        if (member->dataset->lane_count)
            *bytes +=
                (uint64_t)(member->row_end - member->row_begin) * member->dataset->source_bytes;
        count++;
    }
    return count;
}

/* Reads the rows that the clock keeps. Rows that it drops lie between them. */
static enum trajd_status read_kept(struct convert_worker *worker,
                                   const struct convert_member *member, const uint32_t *kept,
                                   uint8_t *rows, struct trajd_error *error)
{
    const uint64_t first = kept[member->row_begin], last = kept[member->row_end - 1],
                   size = member->dataset->source_bytes;
    enum trajd_status status;

    convert_buffer_grow(&worker->raw, (last - first + 1) * size);
    status = trajd_array_read(worker->reader, worker->source_fd, member->source, first,
                              last - first + 1, worker->raw.bytes, error);
    for (int64_t r = member->row_begin; r < member->row_end && !status; r++)
        memcpy(rows + (uint64_t)(r - member->row_begin) * size,
               worker->raw.bytes + (kept[r] - first) * size, size);
    return status;
}

/* Reads the rows of worker->members into worker->source_rows. */
static enum trajd_status read_members(struct convert_worker *worker,
                                      const struct convert_episode *made, uint32_t count,
                                      uint64_t bytes, struct trajd_error *error)
{
    const struct trajd_index *index = worker->plan->options->indexes[made->source];
    const struct trajd_episode *episode = &index->episodes[made->episode];
    enum trajd_status status = open_source(worker, made, error);
    size_t at = 0;

    convert_buffer_grow(&worker->source_rows, bytes + (size_t)count * CONVERT_ALIGNMENT);
    for (uint32_t p = 0; p < count && !status; p++) {
        struct convert_member *member = &worker->members[p];
        const uint32_t *kept = episode->clocks[member->dataset->clock].kept_rows;
        const uint64_t rows = (uint64_t)(member->row_end - member->row_begin);
        member->source_at = at;
        if (!member->dataset->lane_count)
            continue;
        status = kept ? read_kept(worker, member, kept, worker->source_rows.bytes + at, error)
                      : trajd_array_read(worker->reader, worker->source_fd, member->source,
                                         (uint64_t)member->row_begin, rows,
                                         worker->source_rows.bytes + at, error);
        if (status)
            trajd_error_prefix(error, "%s: %s: %s", index->files[episode->file_index].path,
                               episode->id, member->dataset->path);
        at = convert_align(at + rows * member->dataset->source_bytes);
        __atomic_fetch_add(&worker->report->rows_read, rows, __ATOMIC_RELAXED);
        __atomic_fetch_add(&worker->report->bytes_read, rows * member->dataset->source_bytes,
                           __ATOMIC_RELAXED);
    }
    worker->source_used = at;
    return status;
}

/* ---- resampling ---- */

/* Fills the times of the targets, and those of the source rows from row_begin to before row_end. */
static void make_times(struct convert_worker *worker, const struct convert_segment *segment,
                       int64_t row_begin, int64_t row_end)
{
    const struct convert_episode *made = &worker->plan->episodes[segment->episode];
    const struct trajd_episode_clock *clock =
        &source_episode(worker->plan, made)
             ->clocks[worker->plan->datasets[worker->groups[segment->group].datasets[0]].clock];
    const uint64_t steps = segment->step_end - segment->step_begin;
    int64_t *times;

    convert_buffer_grow(&worker->offsets, steps * sizeof(int64_t));
    convert_buffer_grow(&worker->stamps, ((size_t)(row_end - row_begin) + 1) * sizeof(int64_t));
    times = (int64_t *)worker->offsets.bytes;
    for (uint64_t t = 0; t < steps; t++)
        times[t] = made->begin_ns + convert_step_ns(worker->plan, segment->step_begin + t);
    times = (int64_t *)worker->stamps.bytes;
    for (int64_t r = row_begin; r < row_end; r++)
        times[r - row_begin] = trajd_clock_row_ns(clock, r);
}

static void set_stream(struct trajd_stream *stream, const struct convert_member *member,
                       const struct convert_lane *lane, uint32_t bracket, const void **base,
                       uint8_t *output, uint8_t *mask, uint64_t steps, int64_t last_step_ns)
{
    const struct convert_dataset *dataset = member->dataset;

    *stream = (struct trajd_stream){
        .bracket_index = bracket,
        .kind = lane->kind,
        .source_type = dataset->from,
        .feature_count = (uint32_t)lane->column_count,
        .first_column = (uint32_t)lane->first_column,
        .row_stride_bytes = dataset->source_bytes,
        .bases = base,
        .edge = member->array->ends_early ? TRAJD_EDGE_NAN : TRAJD_EDGE_HOLD,
        .max_gap_ns = -1,
        .max_age_ns = -1,
        .mean_width = lane->window_ns,
        .total = lane->adds ? TRAJD_TOTAL_STEP : TRAJD_TOTAL_NONE,
        .total_width = lane->adds ? last_step_ns : 0,
        .angle_period = lane->angle_period,
        .angle_low = NAN,
        .output_type = dataset->to,
        .output = output + member->output_at + lane->first_column * trajd_dtype_size(dataset->to),
        .window_stride_bytes = steps * dataset->row_bytes,
        .step_stride_bytes = dataset->row_bytes,
        .mask = mask,
        .mask_window_stride_bytes = steps,
    };
}

static void count_nan(struct convert_worker *worker, uint32_t stream_count, uint64_t steps)
{
    for (uint32_t s = 0; s < stream_count; s++) {
        uint64_t nan_steps = 0;
        for (uint64_t t = 0; t < steps; t++)
            nan_steps += worker->streams[s].mask[t] == TRAJD_MASK_NAN;
        if (nan_steps && worker->stream_lanes[s] != UINT32_MAX)
            __atomic_fetch_add(&worker->plan->streams[worker->stream_lanes[s]].nan_steps, nan_steps,
                               __ATOMIC_RELAXED);
    }
}

/* Resamples the segment as one window. The members share one clock, and each has its own rows of
 * it. */
static enum trajd_status resample(struct convert_worker *worker,
                                  const struct convert_segment *segment, uint32_t count,
                                  struct trajd_error *error)
{
    static const int64_t zero = 0;
    const uint64_t steps = segment->step_end - segment->step_begin;
    const int64_t last_step_ns = convert_step_ns(worker->plan, segment->step_end) -
                                 convert_step_ns(worker->plan, segment->step_end - 1);
    const struct trajd_grid grid = {.unit = TRAJD_GRID_NS,
                                    .step_count = (uint32_t)steps,
                                    .offsets = (const int64_t *)worker->offsets.bytes};
    const struct trajd_clock clock = {.stamps_ns = (const int64_t *)worker->stamps.bytes};
    struct trajd_resample_request request = {.window_count = 1,
                                             .clock_count = 1,
                                             .grid_count = 1,
                                             .clocks = &clock,
                                             .grids = &grid,
                                             .brackets = worker->brackets,
                                             .streams = worker->streams};
    const struct trajd_block_memory memory = {worker->source_rows.bytes, worker->output,
                                              worker->masks.bytes,       worker->source_used,
                                              worker->output_used,       worker->masks_used};
    enum trajd_status status;

    for (uint32_t p = 0; p < count; p++) {
        const struct convert_member *member = &worker->members[p];
        const uint32_t bracket = request.bracket_count;
        if (!member->dataset->lane_count)
            continue;
        worker->row_counts[bracket] = member->row_end - member->row_begin;
        worker->brackets[bracket] = (struct trajd_bracket){
            .row_begin = &zero, .row_count = &worker->row_counts[bracket], .anchor = &zero};
        if (!bracket || worker->row_counts[bracket] != worker->row_counts[bracket - 1])
            request.bracket_count++;
        for (uint32_t l = 0; l < member->dataset->lane_count; l++) {
            const uint32_t s = request.stream_count++;
            worker->bases[s] = worker->source_rows.bytes + member->source_at;
            worker->stream_lanes[s] = member->dataset->lanes[l].stream;
            set_stream(&worker->streams[s], member, &member->dataset->lanes[l],
                       request.bracket_count - 1, &worker->bases[s], worker->output,
                       worker->masks.bytes + s * steps, steps, last_step_ns);
        }
    }
    if (!request.stream_count)
        return TRAJD_OK;
    status = convert_engine_run(worker->engine, &request, &memory, error);
    if (!status)
        count_nan(worker, request.stream_count, steps);
    return status;
}

/* ---- stamps ---- */

static void put_stamp(enum trajd_dtype dtype, int64_t ns, int64_t unit_ns, uint8_t *out)
{
    const long double number = (long double)ns / unit_ns;
    const int64_t integer = unit_ns == 1 ? ns : (int64_t)llroundl(number);
    const float single = (float)number;
    const double full = (double)number;

    switch (dtype) {
    case TRAJD_F64:
        memcpy(out, &full, sizeof full);
        break;
    case TRAJD_F32:
        memcpy(out, &single, sizeof single);
        break;
    default:
        memcpy(out, &integer, trajd_dtype_size(dtype));
        break; /* little endian: the low bytes */
    }
}

static void write_stamps(const struct convert_worker *worker, const struct convert_episode *made,
                         const struct convert_member *member, uint64_t steps)
{
    static const int64_t units_ns[] = {1, 1000, 1000000, 1000000000};
    const struct convert_dataset *dataset = member->dataset;
    const struct trajd_index *index = worker->plan->options->indexes[made->source];
    const struct trajd_layout_clock *clock = &index->layout->clocks[dataset->clock];
    const int64_t shift =
        index->episodes[made->episode].origin_ns - clock->offset_ns + clock->latency_ns;
    uint8_t *out =
        worker->output + member->output_at + dataset->stamps_column * trajd_dtype_size(dataset->to);

    for (uint64_t t = 0; t < steps; t++, out += dataset->row_bytes)
        put_stamp(dataset->to, ((const int64_t *)worker->offsets.bytes)[t] + shift,
                  units_ns[dataset->stamps_unit], out);
}

/* ---- a segment ---- */

/* Finds the places of the rows. Rows that are not compressed are made in the block. False: the run
 * stops. */
static bool place_output(struct convert_worker *worker, uint32_t count, uint64_t steps)
{
    uint32_t lanes = 0;
    size_t at = 0;

    for (uint32_t p = 0; p < count; p++) {
        worker->members[p].output_at = at;
        at = convert_align(at + steps * worker->members[p].dataset->row_bytes);
        lanes += worker->members[p].dataset->lane_count;
    }
    worker->output_used = at;
    worker->masks_used = lanes * steps;
    convert_buffer_grow(&worker->masks, lanes * steps + 1);
    if (worker->members[0].dataset->is_compressed) {
        convert_buffer_grow(&worker->output_rows, at + 1);
        worker->output = worker->output_rows.bytes;
    } else {
        worker->output = convert_worker_room(worker, at, count);
    }
    return worker->output;
}

/* Adds the finished rows to the block. */
static enum trajd_status put_rows(struct convert_worker *worker,
                                  const struct convert_segment *segment,
                                  const struct convert_member *member, struct trajd_error *error)
{
    const struct convert_episode *made = &worker->plan->episodes[segment->episode];
    const uint64_t steps = segment->step_end - segment->step_begin,
                   bytes = steps * member->dataset->row_bytes;
    const struct trajd_writer_rows rows = {.episode = segment->episode,
                                           .array = (uint32_t)(member->array - made->arrays),
                                           .place = {segment->step_begin},
                                           .rows = steps};

    if (member->dataset->stamps_column != CONVERT_NO_COLUMN)
        write_stamps(worker, made, member, steps);
    __atomic_fetch_add(&worker->report->rows_written, steps, __ATOMIC_RELAXED);
    __atomic_fetch_add(&worker->report->bytes_written, bytes, __ATOMIC_RELAXED);
    if (member->dataset->is_compressed)
        return convert_compress_rows(worker, segment, member, error);
    convert_worker_add(worker, &rows, worker->output + member->output_at, bytes);
    return TRAJD_OK;
}

static enum trajd_status run(struct convert_worker *worker, const struct convert_segment *segment,
                             uint32_t count, uint64_t bytes, struct trajd_error *error)
{
    const struct convert_episode *made = &worker->plan->episodes[segment->episode];
    const uint64_t steps = segment->step_end - segment->step_begin;
    int64_t row_begin = worker->members[0].row_begin, row_end = worker->members[0].row_end;
    enum trajd_status status;

    /* all members begin with the earliest row: they share one clock */
    for (uint32_t p = 1; p < count; p++) {
        row_begin =
            worker->members[p].row_begin < row_begin ? worker->members[p].row_begin : row_begin;
        row_end = worker->members[p].row_end > row_end ? worker->members[p].row_end : row_end;
    }
    for (uint32_t p = 0; p < count; p++) {
        bytes += worker->members[p].dataset->lane_count
                     ? (uint64_t)(worker->members[p].row_begin - row_begin) *
                           worker->members[p].dataset->source_bytes
                     : 0;
        worker->members[p].row_begin = row_begin;
    }
    status = read_members(worker, made, count, bytes, error);
    if (status)
        return status;
    if (!place_output(worker, count, steps))
        return trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "stopped");
    make_times(worker, segment, row_begin, row_end);
    status = resample(worker, segment, count, error);
    for (uint32_t p = 0; p < count && !status; p++)
        status = put_rows(worker, segment, &worker->members[p], error);
    return status;
}

/* Runs a segment. If many source rows lie between few targets, the segment is halved until its
 * source rows fit, but never below one chunk. */
enum trajd_status convert_worker_run(struct convert_worker *worker,
                                     const struct convert_segment *segment,
                                     struct trajd_error *error)
{
    struct convert_segment current = *segment;

    while (current.step_begin < segment->step_end) {
        uint64_t bytes;
        uint32_t count = find_members(worker, &current, &bytes);
        const struct convert_dataset *dataset = worker->members[0].dataset;
        const uint64_t steps = current.step_end - current.step_begin,
                       unit = dataset->is_compressed ? dataset->chunk_rows : 1;
        enum trajd_status status;
        if (bytes > source_bytes_goal && steps > unit) {
            current.step_end = current.step_begin + (steps / 2 + unit - 1) / unit * unit;
            if (current.step_end - current.step_begin == steps)
                current.step_end = current.step_begin + unit;
            continue;
        }
        if (bytes > source_bytes_max)
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "%s: one step averages %" PRIu64
                                   " MiB of rows, more than the limit of %" PRIu64,
                                   dataset->path, bytes >> 20, source_bytes_max >> 20);
        status = run(worker, &current, count, bytes, error);
        if (status)
            return status;
        current.step_begin = current.step_end;
        current.step_end = segment->step_end;
    }
    return TRAJD_OK;
}
