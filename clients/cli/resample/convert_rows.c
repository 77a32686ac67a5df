/* Reads the source rows of a segment, resamples them, and puts the result into blocks of the
 * output. */
#include "clients/cli/resample/convert_rows.h"

#include <errno.h>
#include <inttypes.h>
#include <libdeflate.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

void convert_worker_begin(struct convert_worker *worker)
{
    const struct convert_plan *plan = worker->plan;
    const uint32_t level = plan->options->compress_level;
    uint32_t lanes = 1;
    bool compresses = false;

    for (uint32_t d = 0; d < plan->dataset_count; d++) {
        lanes += plan->datasets[d].lane_count;
        compresses = compresses || plan->datasets[d].is_compressed;
    }
    worker->members = zeroed(plan->dataset_count + 1, sizeof *worker->members);
    worker->brackets = zeroed(plan->dataset_count + 1, sizeof *worker->brackets);
    worker->streams = zeroed(lanes, sizeof *worker->streams);
    if (compresses)
        worker->compressor =
            trajd_memory_or_exit(libdeflate_alloc_compressor((int)(level ? level : LEVEL_DEFAULT)));
    if (trajd_array_reader_create(&worker->reader, NULL))
        trajd_memory_or_exit(NULL);
}

void convert_worker_end(struct convert_worker *worker)
{
    if (worker->source)
        close(worker->source_fd);
    trajd_array_reader_destroy(&worker->reader);
    libdeflate_free_compressor(worker->compressor);
    convert_engine_end(&worker->engine);
    for (int b = 0; b < CONVERT_BUFFERS; b++)
        free(worker->buffers[b].bytes);
    free(worker->members);
    free(worker->brackets);
    free(worker->streams);
}

/* ---- reading ---- */

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

enum trajd_status convert_worker_open(struct convert_worker *worker)
{
    const struct trajd_index *index = convert_index_of(worker->plan, worker->made);
    const struct trajd_index_file *file =
        &index->files[convert_source_of(worker->plan, worker->made)->file_index];
    enum trajd_status status;
    struct stat now;

    if (worker->source == file)
        return TRAJD_OK;
    if (worker->source)
        close(worker->source_fd);
    worker->source = NULL;
    status = trajd_open_regular(file->path, &worker->source_fd, worker->error);
    if (status)
        return status;
    worker->source = file;
    if (fstat(worker->source_fd, &now))
        return trajd_error_set(worker->error, TRAJD_ERR_IO, errno, "%s: %s", file->path,
                               strerror(errno));
    return convert_check_input(file, &now, worker->error);
}

/* Rows that the clock drops lie between those that it keeps. */
enum trajd_status convert_worker_read(struct convert_worker *worker,
                                      const struct convert_dataset *dataset, int64_t begin,
                                      int64_t end, uint8_t *rows)
{
    const struct convert_plan *plan = worker->plan;
    const uint32_t *kept = convert_source_of(plan, worker->made)->clocks[dataset->clock].kept_rows;
    const struct trajd_array *array =
        convert_extent_of(plan, worker->made, (uint32_t)(dataset - plan->datasets));
    const uint64_t first = kept ? kept[begin] : (uint64_t)begin,
                   count = (kept ? kept[end - 1] + UINT64_C(1) : (uint64_t)end) - first,
                   size = dataset->source_bytes;
    uint8_t *all = kept ? convert_worker_buffer(worker, CONVERT_ALL_ROWS, count * size) : rows;
    enum trajd_status status = trajd_array_read(worker->reader, worker->source_fd, array, first,
                                                count, all, worker->error);

    for (int64_t r = begin; kept && r < end && !status; r++)
        memcpy(rows + (uint64_t)(r - begin) * size, all + (kept[r] - first) * size, size);
    return status;
}

/* ---- the rows of a segment ---- */

static const struct trajd_episode_clock *clock_of(const struct convert_worker *worker)
{
    return &convert_source_of(worker->plan, worker->made)
                ->clocks[worker->plan->groups[worker->segment.group].clock];
}

static uint64_t count_steps(const struct convert_worker *worker)
{
    return worker->segment.step_end - worker->segment.step_begin;
}

static int64_t time_of(const struct convert_worker *worker, uint64_t step)
{
    return worker->made->begin_ns + convert_step_ns(worker->plan, step);
}

/* Finds the source rows that the steps need of a dataset, and widens those of all members. */
static void find_rows(struct convert_worker *worker, struct convert_member *member)
{
    const struct convert_dataset *dataset = member->dataset;
    const struct trajd_episode_clock *clock = clock_of(worker);
    const int64_t rows = member->array->rows,
                  first_ns = time_of(worker, worker->segment.step_begin),
                  last_ns = time_of(worker, worker->segment.step_end - 1);
    int64_t begin = trajd_clock_rows_until(clock, rows, first_ns) - 1,
            end = trajd_clock_rows_until(clock, rows, last_ns) + 1;

    for (uint32_t l = 0; l < dataset->lane_count; l++) {
        const struct trajd_convert_stream *stream = dataset->lanes[l].stream;
        if (stream->kind == TRAJD_KIND_MEAN) {
            const int64_t row = trajd_clock_rows_until(clock, rows, first_ns - stream->window_ns);
            begin = row < begin ? row : begin;
        } else if (stream->adds) {
            end =
                trajd_clock_rows_until(clock, rows, time_of(worker, worker->segment.step_end)) + 1;
        }
    }
    if (begin < member->array->first_row)
        begin = member->array->first_row;
    member->row_end = end < rows ? end : rows;
    if (begin < worker->row_begin)
        worker->row_begin = begin;
    if (member->row_end > worker->row_end)
        worker->row_end = member->row_end;
}

/* Finds the segment's datasets and the rows that they need. Returns the size of all those rows. */
static uint64_t find_members(struct convert_worker *worker)
{
    const struct convert_plan *plan = worker->plan;
    uint64_t bytes = 0;

    worker->member_count = 0;
    worker->row_begin = INT64_MAX;
    worker->row_end = 0;
    for (uint32_t a = 0; a < worker->made->array_count; a++) {
        const struct convert_array *array = &worker->made->arrays[a];
        const struct convert_dataset *dataset = &plan->datasets[array->dataset];
        struct convert_member *member = &worker->members[worker->member_count];
        if (dataset->group != worker->segment.group)
            continue;
        *member = (struct convert_member){.dataset = dataset, .array = array};
        find_rows(worker, member);
        worker->member_count++;
    }
    for (uint32_t m = 0; m < worker->member_count; m++) {
        struct convert_member *member = &worker->members[m];
        member->row_count = member->row_end - worker->row_begin;
        if (member->dataset->lane_count)
            bytes += (uint64_t)member->row_count * member->dataset->source_bytes;
    }
    return bytes;
}

/* Reads the rows of the members. *used: their bytes. */
static enum trajd_status read_members(struct convert_worker *worker, uint64_t bytes, size_t *used)
{
    uint8_t *rows = convert_worker_buffer(worker, CONVERT_SOURCE_ROWS,
                                          bytes + (size_t)worker->member_count * CONVERT_ALIGNMENT);
    enum trajd_status status = convert_worker_open(worker);

    *used = 0;
    for (uint32_t m = 0; m < worker->member_count && !status; m++) {
        struct convert_member *member = &worker->members[m];
        const uint64_t count = (uint64_t)member->row_count,
                       size = count * member->dataset->source_bytes;
        member->base = rows + *used;
        if (!member->dataset->lane_count)
            continue;
        status = convert_worker_read(worker, member->dataset, worker->row_begin, member->row_end,
                                     rows + *used);
        if (status)
            trajd_error_prefix(worker->error, "%s: %s: %s", worker->source->path,
                               convert_source_of(worker->plan, worker->made)->id,
                               member->dataset->path);
        *used = convert_align(*used + size);
        __atomic_fetch_add(&worker->report->rows_read, count, __ATOMIC_RELAXED);
        __atomic_fetch_add(&worker->report->bytes_read, size, __ATOMIC_RELAXED);
    }
    return status;
}

/* ---- resampling ---- */

/* Fills the times of the targets, and those of the source rows. */
static void make_times(struct convert_worker *worker)
{
    const struct trajd_episode_clock *clock = clock_of(worker);
    const uint64_t steps = count_steps(worker),
                   rows = (uint64_t)(worker->row_end - worker->row_begin);
    int64_t *targets = convert_worker_buffer(worker, CONVERT_TARGETS, steps * sizeof *targets),
            *stamps = convert_worker_buffer(worker, CONVERT_STAMPS, (rows + 1) * sizeof *stamps);

    for (uint64_t t = 0; t < steps; t++)
        targets[t] = time_of(worker, worker->segment.step_begin + t);
    for (uint64_t r = 0; r < rows; r++)
        stamps[r] = trajd_clock_row_ns(clock, worker->row_begin + (int64_t)r);
}

static struct trajd_stream stream_of(const struct convert_worker *worker,
                                     const struct convert_member *member,
                                     const struct convert_lane *lane, uint32_t bracket,
                                     uint8_t *mask)
{
    const struct convert_dataset *dataset = member->dataset;
    const struct trajd_convert_stream *stream = lane->stream;
    const uint64_t steps = count_steps(worker), end = worker->segment.step_end;

    return (struct trajd_stream){
        .bracket_index = bracket,
        .kind = stream->kind,
        .source_type = dataset->from,
        .feature_count = (uint32_t)lane->column_count,
        .first_column = (uint32_t)lane->first_column,
        .row_stride_bytes = dataset->source_bytes,
        .bases = &member->base,
        .edge = member->array->ends_early ? TRAJD_EDGE_NAN : TRAJD_EDGE_HOLD,
        .max_gap_ns = -1,
        .max_age_ns = -1,
        .mean_width = stream->window_ns,
        .total = stream->adds ? TRAJD_TOTAL_STEP : TRAJD_TOTAL_NONE,
        .total_width = stream->adds ? time_of(worker, end) - time_of(worker, end - 1) : 0,
        .angle_period = stream->angle_period,
        .angle_low = NAN,
        .output_type = dataset->to,
        .output = member->output + lane->first_column * trajd_dtype_size(dataset->to),
        .window_stride_bytes = steps * dataset->row_bytes,
        .step_stride_bytes = dataset->row_bytes,
        .mask = mask,
        .mask_window_stride_bytes = steps,
    };
}

/* Counts the steps that are masked NAN. The masks of all lanes follow one another. */
static void count_nan(const struct convert_worker *worker, const uint8_t *mask)
{
    const uint64_t steps = count_steps(worker);

    for (uint32_t m = 0; m < worker->member_count; m++)
        for (uint32_t l = 0; l < worker->members[m].dataset->lane_count; l++, mask += steps) {
            uint64_t nan_steps = 0;
            for (uint64_t t = 0; t < steps; t++)
                nan_steps += mask[t] == TRAJD_MASK_NAN;
            if (nan_steps)
                __atomic_fetch_add(&worker->members[m].dataset->lanes[l].stream->nan_steps,
                                   nan_steps, __ATOMIC_RELAXED);
        }
}

/* Resamples the segment as one window. The members share one clock, and each has its own rows of
 * it. */
static enum trajd_status resample(struct convert_worker *worker, struct trajd_block_memory memory)
{
    static const int64_t zero = 0;
    const uint64_t steps = count_steps(worker);
    const struct trajd_grid grid = {.unit = TRAJD_GRID_NS,
                                    .step_count = (uint32_t)steps,
                                    .offsets = (void *)worker->buffers[CONVERT_TARGETS].bytes};
    const struct trajd_clock clock = {.stamps_ns = (void *)worker->buffers[CONVERT_STAMPS].bytes};
    struct trajd_resample_request request = {.window_count = 1,
                                             .clock_count = 1,
                                             .grid_count = 1,
                                             .clocks = &clock,
                                             .grids = &grid,
                                             .brackets = worker->brackets,
                                             .streams = worker->streams};
    enum trajd_status status;

    for (uint32_t m = 0; m < worker->member_count; m++) {
        const struct convert_member *member = &worker->members[m];
        struct trajd_bracket *next = &worker->brackets[request.bracket_count];
        if (!member->dataset->lane_count)
            continue;
        *next = (struct trajd_bracket){
            .row_begin = &zero, .row_count = &member->row_count, .anchor = &zero};
        if (!request.bracket_count || *next->row_count != *next[-1].row_count)
            request.bracket_count++;
        for (uint32_t l = 0; l < member->dataset->lane_count; l++, request.stream_count++)
            worker->streams[request.stream_count] =
                stream_of(worker, member, &member->dataset->lanes[l], request.bracket_count - 1,
                          (uint8_t *)memory.mask + request.stream_count * steps);
    }
    if (!request.stream_count)
        return TRAJD_OK;
    memory.mask_bytes = request.stream_count * steps;
    status = convert_engine_run(&worker->engine, &request, &memory, worker->error);
    if (!status)
        count_nan(worker, memory.mask);
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

static void write_stamps(const struct convert_worker *worker, const struct convert_member *member)
{
    static const int64_t units_ns[] = {1, 1000, 1000000, 1000000000};
    const struct convert_dataset *dataset = member->dataset;
    const struct trajd_layout_clock *clock =
        &convert_index_of(worker->plan, worker->made)->layout->clocks[dataset->clock];
    const int64_t shift = convert_source_of(worker->plan, worker->made)->origin_ns -
                          clock->offset_ns + clock->latency_ns,
                  *targets = (void *)worker->buffers[CONVERT_TARGETS].bytes;
    uint8_t *out = member->output + dataset->stamps_column * trajd_dtype_size(dataset->to);

    for (uint64_t t = 0; t < count_steps(worker); t++, out += dataset->row_bytes)
        put_stamp(dataset->to, targets[t] + shift, units_ns[dataset->stamps_unit], out);
}

/* ---- a segment ---- */

/* Finds the places of the output's rows, and returns where they begin. Rows that are not compressed
 * are made in the block. NULL: the run stops. */
static uint8_t *place_output(struct convert_worker *worker, uint64_t *bytes)
{
    const uint64_t steps = count_steps(worker);
    uint8_t *output;
    size_t at = 0;

    *bytes = 0;
    for (uint32_t m = 0; m < worker->member_count; m++)
        *bytes = convert_align(*bytes + steps * worker->members[m].dataset->row_bytes);
    output = worker->members[0].dataset->is_compressed
                 ? convert_worker_buffer(worker, CONVERT_OUTPUT_ROWS, *bytes + 1)
                 : convert_worker_room(worker, *bytes, worker->member_count);
    for (uint32_t m = 0; m < worker->member_count && output; m++) {
        worker->members[m].output = output + at;
        at = convert_align(at + steps * worker->members[m].dataset->row_bytes);
    }
    return output;
}

/* Adds the finished rows to the block. */
static enum trajd_status put_rows(struct convert_worker *worker,
                                  const struct convert_member *member)
{
    const uint64_t steps = count_steps(worker), bytes = steps * member->dataset->row_bytes;
    const struct trajd_writer_rows rows = {.episode = worker->segment.episode,
                                           .array =
                                               (uint32_t)(member->array - worker->made->arrays),
                                           .place = {worker->segment.step_begin},
                                           .rows = steps};

    if (member->dataset->stamps_column != CONVERT_NO_COLUMN)
        write_stamps(worker, member);
    __atomic_fetch_add(&worker->report->rows_written, steps, __ATOMIC_RELAXED);
    __atomic_fetch_add(&worker->report->bytes_written, bytes, __ATOMIC_RELAXED);
    if (member->dataset->is_compressed)
        return convert_compress_rows(worker, member);
    convert_worker_add(worker, &rows, member->output, bytes);
    return TRAJD_OK;
}

/* Makes the rows of worker->segment, which needs these bytes of the source. */
static enum trajd_status run(struct convert_worker *worker, uint64_t bytes)
{
    struct trajd_block_memory memory;
    uint64_t masks = 1;
    enum trajd_status status = read_members(worker, bytes, &memory.rows_bytes);

    if (status)
        return status;
    memory.output = place_output(worker, &memory.output_bytes);
    if (!memory.output)
        return trajd_error_set(worker->error, TRAJD_ERR_CLOSED, 0, "stopped");
    for (uint32_t m = 0; m < worker->member_count; m++)
        masks += worker->members[m].dataset->lane_count * count_steps(worker);
    memory.rows = worker->buffers[CONVERT_SOURCE_ROWS].bytes;
    memory.mask = convert_worker_buffer(worker, CONVERT_MASKS, masks);
    make_times(worker);
    status = resample(worker, memory);
    for (uint32_t m = 0; m < worker->member_count && !status; m++)
        status = put_rows(worker, &worker->members[m]);
    return status;
}

/* Runs a segment. If many source rows lie between few targets, the segment is halved until its
 * source rows fit, but never below one chunk. */
enum trajd_status convert_worker_run(struct convert_worker *worker,
                                     const struct convert_segment *segment)
{
    const uint64_t unit = worker->plan->groups[segment->group].unit;
    struct convert_segment *current = &worker->segment;
    enum trajd_status status = TRAJD_OK;

    *current = *segment;
    worker->made = &worker->plan->episodes[segment->episode];
    while (current->step_begin < segment->step_end && !status) {
        const uint64_t bytes = find_members(worker), steps = count_steps(worker),
                       half = (steps / 2 + unit - 1) / unit * unit;
        if (bytes > source_bytes_goal && steps > unit) {
            current->step_end = current->step_begin + (half < steps ? half : unit);
            continue;
        }
        if (bytes > source_bytes_max)
            return trajd_error_set(
                worker->error, TRAJD_ERR_UNSUPPORTED, 0,
                "%s: one step averages %" PRIu64 " MiB of rows, more than the limit of %" PRIu64,
                worker->members[0].dataset->path, bytes >> 20, source_bytes_max >> 20);
        status = run(worker, bytes);
        current->step_begin = current->step_end;
        current->step_end = segment->step_end;
    }
    return status;
}
