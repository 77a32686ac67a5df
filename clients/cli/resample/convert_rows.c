#include "clients/cli/resample/convert_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/resample/convert_compress.h"

enum { ALIGNMENT = 64 };

static const uint64_t source_bytes_max = UINT64_C(1) << 30; /* of the rows that one step needs */
static const uint64_t source_bytes_goal = UINT64_C(32) << 20;

/* Grown when a segment needs more; segments are of one size, so it soon rests. */
struct buffer {
    uint8_t *bytes;
    size_t size;
};

/* One dataset of the segment. */
struct part {
    const struct convert_dataset *dataset;
    const struct convert_array *array;
    const struct trajd_array *source;
    int64_t row_begin, row_end;  /* as its clock counts them */
    size_t source_at, output_at; /* in the buffers */
};

struct convert_worker {
    const struct convert_plan *plan;
    const struct convert_group *groups;
    int output_fd;
    struct convert_spool *spool;
    uint64_t *nan_steps;
    struct convert_counts *counts;
    struct trajd_array_reader *reader;
    struct convert_compressor *compressor;
    struct convert_engine *engine;
    int source_fd;
    uint32_t source, file; /* what source_fd is of */
    struct buffer source_rows, output_rows, offsets, stamps, masks, raw;
    size_t source_used, output_used, masks_used;
    struct part *parts;
    struct trajd_bracket *brackets;
    struct trajd_stream *streams;
    uint32_t *stream_lanes; /* [streams]: of which plan stream, for counting */
    int64_t *row_counts;    /* [brackets] */
    const void **bases;     /* [streams] */
};

/* ---- life ---- */

static uint32_t lane_count(const struct convert_plan *plan)
{
    uint32_t count = 1;

    for (uint32_t d = 0; d < plan->dataset_count; d++)
        count += plan->datasets[d].lane_count;
    return count;
}

enum trajd_status convert_worker_create(const struct convert_plan *plan,
                                        const struct convert_group *groups, int output_fd,
                                        struct convert_spool *spool,
                                        struct convert_backend *backend, uint64_t *nan_steps,
                                        struct convert_counts *counts, struct convert_worker **out,
                                        struct trajd_error *error)
{
    struct convert_worker *worker = calloc(1, sizeof *worker);
    const uint32_t lanes = lane_count(plan);
    enum trajd_status status;

    *out = worker;
    if (!worker)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a worker");
    worker->plan = plan;
    worker->groups = groups;
    worker->output_fd = output_fd;
    worker->spool = spool;
    worker->nan_steps = nan_steps;
    worker->counts = counts;
    worker->source_fd = -1;
    worker->parts = calloc(plan->dataset_count + 1, sizeof *worker->parts);
    worker->brackets = calloc(plan->dataset_count + 1, sizeof *worker->brackets);
    worker->row_counts = calloc(plan->dataset_count + 1, sizeof *worker->row_counts);
    worker->streams = calloc(lanes, sizeof *worker->streams);
    worker->stream_lanes = calloc(lanes, sizeof *worker->stream_lanes);
    worker->bases = calloc(lanes, sizeof *worker->bases);
    status = trajd_array_reader_create(&worker->reader, error);
    if (!status)
        status = convert_engine_create(backend, &worker->engine, error);
    if (!status && spool)
        status = convert_compressor_create(spool->level, &worker->compressor, error);
    if (!status && (!worker->parts || !worker->brackets || !worker->row_counts ||
                    !worker->streams || !worker->stream_lanes || !worker->bases))
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a worker");
    return status;
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
    convert_compressor_destroy(&worker->compressor);
    convert_engine_destroy(&worker->engine);
    free(worker->source_rows.bytes);
    free(worker->output_rows.bytes);
    free(worker->offsets.bytes);
    free(worker->stamps.bytes);
    free(worker->masks.bytes);
    free(worker->raw.bytes);
    free(worker->parts);
    free(worker->brackets);
    free(worker->row_counts);
    free(worker->streams);
    free(worker->stream_lanes);
    free(worker->bases);
    free(worker);
}

static enum trajd_status make_room(struct buffer *buffer, size_t size, struct trajd_error *error)
{
    if (size <= buffer->size)
        return TRAJD_OK;
    free(buffer->bytes);
    buffer->size = 0;
    buffer->bytes = aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (!buffer->bytes)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for %zu bytes of rows", size);
    buffer->size = size;
    return TRAJD_OK;
}

static size_t align(size_t at)
{
    return (at + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* ---- reading ---- */

static const struct trajd_episode *episode_of(const struct convert_plan *plan,
                                              const struct convert_episode *made)
{
    return &plan->options->indexes[made->source]->episodes[made->episode];
}

enum trajd_status convert_check_input(const struct trajd_index_file *file, const struct stat *now,
                                      struct trajd_error *error)
{
    if ((uint64_t)now->st_size == file->size_bytes && now->st_ino == file->inode &&
        now->st_mtim.tv_sec * INT64_C(1000000000) + now->st_mtim.tv_nsec == file->mtime_ns)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                           "%s: has changed meanwhile (size, time or inode are not as indexed)",
                           file->path);
}

static enum trajd_status open_source(struct convert_worker *worker,
                                     const struct convert_episode *made, struct trajd_error *error)
{
    const struct trajd_index *index = worker->plan->options->indexes[made->source];
    const uint32_t file = index->episodes[made->episode].file_index;
    struct stat now;

    if (worker->source_fd >= 0 && worker->source == made->source && worker->file == file)
        return TRAJD_OK;
    if (worker->source_fd >= 0)
        close(worker->source_fd);
    worker->source_fd = open(index->files[file].path, O_RDONLY | O_CLOEXEC);
    worker->source = made->source;
    worker->file = file;
    if (worker->source_fd < 0 || fstat(worker->source_fd, &now))
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", index->files[file].path,
                               strerror(errno));
    return convert_check_input(&index->files[file], &now, error);
}

/* The source rows that steps from time `first` to `last` need. */
static void find_rows(const struct convert_dataset *dataset,
                      const struct trajd_episode_clock *clock, struct part *part, int64_t first,
                      int64_t last)
{
    const int64_t rows = part->array->rows, end = convert_row_at(clock, rows, last) + 2;

    part->row_begin = convert_row_at(clock, rows, first);
    for (uint32_t l = 0; l < dataset->lane_count; l++)
        if (dataset->lanes[l].kind == TRAJD_KIND_MEAN) {
            const int64_t row =
                convert_row_at(clock, rows, first - dataset->lanes[l].window_ns) + 1;
            part->row_begin = row < part->row_begin ? row : part->row_begin;
        }
    if (part->row_begin < part->array->first_row)
        part->row_begin = part->array->first_row;
    part->row_end = end < rows ? end : rows;
}

/* The segment's datasets and the rows that they need; *bytes of them altogether. */
static uint32_t find_parts(struct convert_worker *worker, const struct convert_segment *segment,
                           uint64_t *bytes)
{
    const struct convert_plan *plan = worker->plan;
    const struct convert_episode *made = &plan->episodes[segment->episode];
    const struct convert_group *group = &worker->groups[segment->group];
    const struct trajd_episode *episode = episode_of(plan, made);
    const int64_t first = made->begin_ns + convert_step_ns(plan, segment->step_begin),
                  last = made->begin_ns + convert_step_ns(plan, segment->step_end - 1);
    uint32_t count = 0;

    *bytes = 0;
    for (uint32_t a = 0, i = 0; a < made->array_count && i < group->dataset_count; a++) {
        struct part *part = &worker->parts[count];
        while (i < group->dataset_count && group->datasets[i] < made->arrays[a].dataset)
            i++;
        if (i == group->dataset_count || group->datasets[i] != made->arrays[a].dataset)
            continue;
        part->array = &made->arrays[a];
        part->dataset = &plan->datasets[part->array->dataset];
        part->source = &episode->extents[plan->source_datasets[made->source][part->array->dataset]];
        find_rows(part->dataset, &episode->clocks[part->dataset->clock], part, first, last);
        if (part->dataset->lane_count)
            *bytes += (uint64_t)(part->row_end - part->row_begin) * part->dataset->source_bytes;
        count++;
    }
    return count;
}

/* Rows that the clock has dropped lie between those that it kept. */
static enum trajd_status read_kept(struct convert_worker *worker, const struct part *part,
                                   const uint32_t *kept, uint8_t *rows, struct trajd_error *error)
{
    const uint64_t first = kept[part->row_begin], last = kept[part->row_end - 1],
                   size = part->dataset->source_bytes;
    enum trajd_status status = make_room(&worker->raw, (last - first + 1) * size, error);

    if (!status)
        status = trajd_array_read(worker->reader, worker->source_fd, part->source, first,
                                  last - first + 1, worker->raw.bytes, error);
    for (int64_t r = part->row_begin; r < part->row_end && !status; r++)
        memcpy(rows + (uint64_t)(r - part->row_begin) * size,
               worker->raw.bytes + (kept[r] - first) * size, size);
    return status;
}

static enum trajd_status read_parts(struct convert_worker *worker,
                                    const struct convert_episode *made, uint32_t count,
                                    uint64_t bytes, struct trajd_error *error)
{
    const struct trajd_index *index = worker->plan->options->indexes[made->source];
    const struct trajd_episode *episode = &index->episodes[made->episode];
    enum trajd_status status = open_source(worker, made, error);
    size_t at = 0;

    if (!status)
        status = make_room(&worker->source_rows, bytes + (size_t)count * ALIGNMENT, error);
    for (uint32_t p = 0; p < count && !status; p++) {
        struct part *part = &worker->parts[p];
        const uint32_t *kept = episode->clocks[part->dataset->clock].kept_rows;
        const uint64_t rows = (uint64_t)(part->row_end - part->row_begin);
        part->source_at = at;
        if (!part->dataset->lane_count)
            continue;
        status = kept ? read_kept(worker, part, kept, worker->source_rows.bytes + at, error)
                      : trajd_array_read(worker->reader, worker->source_fd, part->source,
                                         (uint64_t)part->row_begin, rows,
                                         worker->source_rows.bytes + at, error);
        if (status)
            trajd_error_prefix(error, "%s: %s: %s", index->files[episode->file_index].path,
                               episode->id, part->dataset->path);
        at = align(at + rows * part->dataset->source_bytes);
        __atomic_fetch_add(&worker->counts->rows_read, rows, __ATOMIC_RELAXED);
        __atomic_fetch_add(&worker->counts->bytes_read, rows * part->dataset->source_bytes,
                           __ATOMIC_RELAXED);
    }
    worker->source_used = at;
    return status;
}

/* ---- resampling ---- */

/* Times of the targets, and of the source rows that the parts have in sight: [lowest row, highest
 * row). */
static enum trajd_status make_times(struct convert_worker *worker,
                                    const struct convert_segment *segment, int64_t row_begin,
                                    int64_t row_end, struct trajd_error *error)
{
    const struct convert_episode *made = &worker->plan->episodes[segment->episode];
    const struct trajd_episode_clock *clock =
        &episode_of(worker->plan, made)
             ->clocks[worker->plan->datasets[worker->groups[segment->group].datasets[0]].clock];
    const uint64_t steps = segment->step_end - segment->step_begin;
    enum trajd_status status = make_room(&worker->offsets, steps * sizeof(int64_t), error);
    int64_t *times;

    if (!status)
        status = make_room(&worker->stamps, ((size_t)(row_end - row_begin) + 1) * sizeof(int64_t),
                           error);
    if (status)
        return status;
    times = (int64_t *)worker->offsets.bytes;
    for (uint64_t t = 0; t < steps; t++)
        times[t] = made->begin_ns + convert_step_ns(worker->plan, segment->step_begin + t);
    times = (int64_t *)worker->stamps.bytes;
    for (int64_t r = row_begin; r < row_end; r++)
        times[r - row_begin] = convert_row_ns(clock, r);
    return TRAJD_OK;
}

static void set_stream(struct trajd_stream *stream, const struct part *part,
                       const struct convert_lane *lane, uint32_t bracket, const void **base,
                       uint8_t *output, uint8_t *mask, uint64_t steps)
{
    const struct convert_dataset *dataset = part->dataset;

    *stream = (struct trajd_stream){
        .bracket_index = bracket,
        .kind = lane->kind,
        .source_type = dataset->from,
        .feature_count = (uint32_t)lane->column_count,
        .first_column = (uint32_t)lane->first_column,
        .row_stride_bytes = dataset->source_bytes,
        .bases = base,
        .edge = TRAJD_EDGE_HOLD,
        .max_gap_ns = -1,
        .max_age_ns = -1,
        .mean_width = lane->window_ns,
        .angle_period = lane->angle_period,
        .angle_low = NAN,
        .output_type = dataset->to,
        .output = output + part->output_at + lane->first_column * trajd_dtype_size(dataset->to),
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
            __atomic_fetch_add(&worker->nan_steps[worker->stream_lanes[s]], nan_steps,
                               __ATOMIC_RELAXED);
    }
}

/* One window: the segment. Each part sees its own rows of the one clock. */
static enum trajd_status resample(struct convert_worker *worker,
                                  const struct convert_segment *segment, uint32_t count,
                                  struct trajd_error *error)
{
    static const int64_t zero = 0;
    const uint64_t steps = segment->step_end - segment->step_begin;
    const struct trajd_grid grid = {TRAJD_GRID_NS, (uint32_t)steps,
                                    (const int64_t *)worker->offsets.bytes, 0};
    const struct trajd_clock clock = {.stamps_ns = (const int64_t *)worker->stamps.bytes};
    struct trajd_resample_request request = {.window_count = 1,
                                             .clock_count = 1,
                                             .grid_count = 1,
                                             .clocks = &clock,
                                             .grids = &grid,
                                             .brackets = worker->brackets,
                                             .streams = worker->streams};
    const struct trajd_block_memory memory = {worker->source_rows.bytes, worker->output_rows.bytes,
                                              worker->masks.bytes,       worker->source_used,
                                              worker->output_used,       worker->masks_used};
    enum trajd_status status;

    for (uint32_t p = 0; p < count; p++) {
        const struct part *part = &worker->parts[p];
        const uint32_t bracket = request.bracket_count;
        if (!part->dataset->lane_count)
            continue;
        worker->row_counts[bracket] = part->row_end - part->row_begin;
        worker->brackets[bracket] =
            (struct trajd_bracket){0, 0, &zero, &worker->row_counts[bracket], &zero};
        if (!bracket || worker->row_counts[bracket] != worker->row_counts[bracket - 1])
            request.bracket_count++;
        for (uint32_t l = 0; l < part->dataset->lane_count; l++) {
            const uint32_t s = request.stream_count++;
            worker->bases[s] = worker->source_rows.bytes + part->source_at;
            worker->stream_lanes[s] = part->dataset->lanes[l].stream;
            set_stream(&worker->streams[s], part, &part->dataset->lanes[l],
                       request.bracket_count - 1, &worker->bases[s], worker->output_rows.bytes,
                       worker->masks.bytes + s * steps, steps);
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
    const int64_t whole = unit_ns == 1 ? ns : (int64_t)llroundl(number);
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
        memcpy(out, &whole, trajd_dtype_size(dtype));
        break; /* little endian: the low bytes */
    }
}

static void write_stamps(const struct convert_worker *worker, const struct convert_episode *made,
                         const struct part *part, uint64_t steps)
{
    static const int64_t units_ns[] = {1, 1000, 1000000, 1000000000};
    const struct convert_dataset *dataset = part->dataset;
    const struct trajd_index *index = worker->plan->options->indexes[made->source];
    const struct trajd_layout_clock *clock = &index->layout->clocks[dataset->clock];
    const int64_t shift =
        index->episodes[made->episode].origin_ns - clock->offset_ns + clock->latency_ns;
    uint8_t *out = worker->output_rows.bytes + part->output_at +
                   dataset->stamps_column * trajd_dtype_size(dataset->to);

    for (uint64_t t = 0; t < steps; t++, out += dataset->row_bytes)
        put_stamp(dataset->to, ((const int64_t *)worker->offsets.bytes)[t] + shift,
                  units_ns[dataset->stamps_unit], out);
}

/* ---- writing ---- */

enum trajd_status convert_pwrite(int fd, const void *data, size_t size, uint64_t offset,
                                 const char *path, struct trajd_error *error)
{
    const uint8_t *next = data;

    while (size) {
        const ssize_t done = pwrite(fd, next, size, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return trajd_error_set(error, TRAJD_ERR_IO, done < 0 ? errno : EIO, "%s: %s", path,
                                   strerror(done < 0 ? errno : EIO));
        next += done;
        offset += (uint64_t)done;
        size -= (size_t)done;
    }
    return TRAJD_OK;
}

static enum trajd_status write_part(struct convert_worker *worker,
                                    const struct convert_segment *segment, const struct part *part,
                                    struct trajd_error *error)
{
    const uint64_t steps = segment->step_end - segment->step_begin;
    const uint8_t *rows = worker->output_rows.bytes + part->output_at;
    const struct convert_episode *made = &worker->plan->episodes[segment->episode];

    __atomic_fetch_add(&worker->counts->rows_written, steps, __ATOMIC_RELAXED);
    __atomic_fetch_add(&worker->counts->bytes_written, steps * part->dataset->row_bytes,
                       __ATOMIC_RELAXED);
    if (part->dataset->is_compressed)
        return convert_compress_rows(
            worker->compressor, worker->spool, worker->plan, part->dataset,
            worker->spool->chunks[segment->episode][part->array - made->arrays], made->step_count,
            segment->step_begin, steps, rows, error);
    return convert_pwrite(worker->output_fd, rows, steps * part->dataset->row_bytes,
                          part->array->offset + segment->step_begin * part->dataset->row_bytes,
                          worker->plan->options->output, error);
}

/* ---- a segment ---- */

static enum trajd_status place_output(struct convert_worker *worker, uint32_t count, uint64_t steps,
                                      struct trajd_error *error)
{
    uint32_t lanes = 0;
    size_t at = 0;

    for (uint32_t p = 0; p < count; p++) {
        worker->parts[p].output_at = at;
        at = align(at + steps * worker->parts[p].dataset->row_bytes);
        lanes += worker->parts[p].dataset->lane_count;
    }
    worker->output_used = at;
    worker->masks_used = lanes * steps;
    if (make_room(&worker->masks, lanes * steps + 1, error))
        return TRAJD_ERR_MEMORY;
    return make_room(&worker->output_rows, at + 1, error);
}

static enum trajd_status run(struct convert_worker *worker, const struct convert_segment *segment,
                             uint32_t count, uint64_t bytes, struct trajd_error *error)
{
    const struct convert_episode *made = &worker->plan->episodes[segment->episode];
    const uint64_t steps = segment->step_end - segment->step_begin;
    int64_t row_begin = worker->parts[0].row_begin, row_end = worker->parts[0].row_end;
    enum trajd_status status = place_output(worker, count, steps, error);

    for (uint32_t p = 1; p < count; p++) { /* the earliest for all: one clock in sight */
        row_begin = worker->parts[p].row_begin < row_begin ? worker->parts[p].row_begin : row_begin;
        row_end = worker->parts[p].row_end > row_end ? worker->parts[p].row_end : row_end;
    }
    for (uint32_t p = 0; p < count; p++) {
        bytes += worker->parts[p].dataset->lane_count
                     ? (uint64_t)(worker->parts[p].row_begin - row_begin) *
                           worker->parts[p].dataset->source_bytes
                     : 0;
        worker->parts[p].row_begin = row_begin;
    }
    if (!status)
        status = read_parts(worker, made, count, bytes, error);
    if (!status)
        status = make_times(worker, segment, row_begin, row_end, error);
    if (!status)
        status = resample(worker, segment, count, error);
    for (uint32_t p = 0; p < count && !status; p++) {
        if (worker->parts[p].dataset->stamps_column != CONVERT_NO_COLUMN)
            write_stamps(worker, made, &worker->parts[p], steps);
        status = write_part(worker, segment, &worker->parts[p], error);
    }
    return status;
}

/* Where many source rows lie between few targets the segment is halved until they fit, in whole
 * chunks. */
enum trajd_status convert_worker_run(struct convert_worker *worker,
                                     const struct convert_segment *segment,
                                     struct trajd_error *error)
{
    struct convert_segment part = *segment;

    while (part.step_begin < segment->step_end) {
        uint64_t bytes;
        uint32_t count = find_parts(worker, &part, &bytes);
        const struct convert_dataset *dataset = worker->parts[0].dataset;
        const uint64_t steps = part.step_end - part.step_begin,
                       unit = dataset->is_compressed ? dataset->chunk_rows : 1;
        enum trajd_status status;
        if (bytes > source_bytes_goal && steps > unit) {
            part.step_end = part.step_begin + (steps / 2 + unit - 1) / unit * unit;
            if (part.step_end - part.step_begin == steps)
                part.step_end = part.step_begin + unit;
            continue;
        }
        if (bytes > source_bytes_max)
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "%s: one step averages %" PRIu64
                                   " MiB of rows, at most %" PRIu64,
                                   dataset->path, bytes >> 20, source_bytes_max >> 20);
        status = run(worker, &part, count, bytes, error);
        if (status)
            return status;
        part.step_begin = part.step_end;
        part.step_end = segment->step_end;
    }
    return TRAJD_OK;
}
