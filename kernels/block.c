/* Writes, opens and checks blocks. */
#include "kernels/block.h"

#include <inttypes.h>
#include <string.h>

static const uint64_t block_magic = UINT64_C(0x314B434F4C425254); /* "TRBLOCK1" */
/* limit of the steps of all brackets */
static const uint64_t searches_max = UINT64_C(1) << 24;
/* differences of such times and windows do not overflow */
static const int64_t time_max = INT64_C(1) << 61;

enum { ALIGNMENT = 64 };

struct head {
    uint64_t magic;
    uint64_t stamp_count, rows_bytes, output_bytes, mask_bytes;
    uint32_t step_count, bracket_count, stream_count, zero;
};

struct stream_record {
    uint32_t bracket, kind, source_type, output_type, feature_count, first_column, edge, zero;
    uint64_t row_stride_bytes, rows_at; /* rows_at: offset within rows; likewise for the outputs */
    uint64_t step_stride_bytes, output_at, mask_at;
    int64_t max_gap_ns, max_age_ns, mean_width;
    double angle_period, angle_low;
};

struct bracket_record { /* the arrays of a bracket, for one window */
    int64_t row_begin, row_count, anchor;
};

/* Offsets of the sections in the block. */
struct sections {
    uint64_t streams, brackets, targets, stamps, rows, output, mask, end;
};

static uint64_t align(uint64_t at)
{
    return (at + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Computes the offsets of the sections. Returns false if a limit is exceeded. */
static bool lay_out(const struct head *head, struct sections *sections)
{
    if (!head->step_count || head->step_count > TRAJD_BLOCK_MAX_STEPS || !head->stream_count ||
        head->stream_count > TRAJD_BLOCK_MAX_STREAMS || !head->bracket_count ||
        head->bracket_count > head->stream_count ||
        (uint64_t)head->bracket_count * head->step_count > searches_max ||
        head->stamp_count > TRAJD_BLOCK_MAX_BYTES / sizeof(int64_t) ||
        head->rows_bytes > TRAJD_BLOCK_MAX_BYTES || head->output_bytes > TRAJD_BLOCK_MAX_BYTES ||
        head->mask_bytes > TRAJD_BLOCK_MAX_BYTES)
        return false;
    sections->streams = align(sizeof *head);
    sections->brackets =
        align(sections->streams + head->stream_count * sizeof(struct stream_record));
    sections->targets =
        align(sections->brackets + head->bracket_count * sizeof(struct bracket_record));
    sections->stamps = align(sections->targets + head->step_count * sizeof(int64_t));
    sections->rows = align(sections->stamps + head->stamp_count * sizeof(int64_t));
    sections->output = align(sections->rows + head->rows_bytes);
    sections->mask = align(sections->output + head->output_bytes);
    sections->end = align(sections->mask + head->mask_bytes);
    return sections->end <= TRAJD_BLOCK_MAX_BYTES;
}

/* ---- the work of means ---- */

/* Returns whether the elements that means average are within the limit. Uses a simple bound first,
 * and counts exactly only if the bound is too high. */
static bool means_are_bounded(const struct trajd_stream *streams, uint32_t count,
                              const int64_t *const row_counts[], const int64_t *targets,
                              uint32_t steps, const int64_t *stamps)
{
    uint64_t remaining = TRAJD_BLOCK_MAX_WORK;

    for (uint32_t s = 0; s < count; s++) {
        const int64_t row_count = *row_counts[streams[s].bracket_index];
        const uint64_t rows = (uint64_t)row_count, features = streams[s].feature_count;
        if (streams[s].kind != TRAJD_KIND_MEAN || !rows)
            continue;
        if (features > remaining)
            return false;
        if (rows <= remaining / features / steps) {
            remaining -= rows * features * steps;
            continue;
        }
        for (uint32_t t = 0; t < steps; t++) {
            const int64_t begin = targets[t] - streams[s].mean_width;
            const uint64_t averaged = (uint64_t)trajd_stamps_until(stamps, row_count, targets[t]) -
                                      (uint64_t)trajd_stamps_until(stamps, row_count, begin);
            if (averaged > remaining / features)
                return false;
            remaining -= averaged * features;
        }
    }
    return true;
}

/* Returns whether the outputs fit beside each other into the output section. Otherwise the same
 * bytes could be written once per stream, which is work without a bound. */
static bool outputs_fit(const struct trajd_stream *streams, uint32_t count, uint64_t steps,
                        uint64_t output_bytes)
{
    uint64_t remaining = output_bytes;

    for (uint32_t s = 0; s < count; s++) {
        const uint64_t bytes =
            steps * streams[s].feature_count * trajd_dtype_size(streams[s].output_type);
        if (bytes > remaining)
            return false;
        remaining -= bytes;
    }
    return true;
}

/* ---- writing ---- */

static enum trajd_status unsupported(struct trajd_error *error, const char *reason)
{
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "a block cannot hold %s", reason);
}

static const uint8_t *base_of(const struct trajd_stream *stream)
{
    return stream->bases ? stream->bases[0] : stream->base;
}

static bool lies_in(const void *pointer, const void *memory, uint64_t bytes)
{
    return (uintptr_t)pointer >= (uintptr_t)memory &&
           (uintptr_t)pointer - (uintptr_t)memory <= bytes;
}

/* Makes the head of the request's block. */
static struct head head_of(const struct trajd_resample_request *request,
                           const struct trajd_block_memory *memory)
{
    struct head head = {.magic = block_magic,
                        .rows_bytes = memory->rows_bytes,
                        .output_bytes = memory->output_bytes,
                        .mask_bytes = memory->mask_bytes,
                        .step_count = request->grids[0].step_count,
                        .bracket_count = request->bracket_count,
                        .stream_count = request->stream_count};

    for (uint32_t b = 0; b < request->bracket_count; b++)
        if ((uint64_t)*request->brackets[b].row_count > head.stamp_count)
            head.stamp_count = (uint64_t)*request->brackets[b].row_count;
    return head;
}

static enum trajd_status check_form(const struct trajd_resample_request *request,
                                    const struct trajd_block_memory *memory,
                                    struct trajd_error *error)
{
    if (request->window_count != 1 || request->clock_count != 1 || request->grid_count != 1 ||
        request->window_rows)
        return unsupported(error, "more than one window, clock or grid");
    if (!request->clocks[0].stamps_ns || request->grids[0].unit != TRAJD_GRID_NS)
        return unsupported(error, "a clock without stamps or a grid in rows");
    for (uint32_t b = 0; b < request->bracket_count; b++)
        if (request->brackets[b].dense_row_count || *request->brackets[b].row_begin ||
            *request->brackets[b].anchor || request->brackets[b].too_old_begin)
            return unsupported(error, "dense windows, or rows that do not begin at 0");
    for (uint32_t s = 0; s < request->stream_count; s++) {
        const struct trajd_stream *stream = &request->streams[s];
        if (!base_of(stream) || stream->scale || stream->offset || stream->derivative ||
            stream->mask_joins_previous)
            return unsupported(error, "missing, normalised or derived streams");
        if (!lies_in(base_of(stream), memory->rows, memory->rows_bytes) ||
            !lies_in(stream->output, memory->output, memory->output_bytes) ||
            (stream->mask && !lies_in(stream->mask, memory->mask, memory->mask_bytes)))
            return unsupported(error, "streams outside the given memory");
    }
    return TRAJD_OK;
}

enum trajd_status trajd_block_measure(const struct trajd_resample_request *request,
                                      const struct trajd_block_memory *memory, uint64_t *size_bytes,
                                      struct trajd_error *error)
{
    const int64_t *row_counts[TRAJD_BLOCK_MAX_STREAMS];
    struct sections sections;
    struct head head;
    enum trajd_status status = check_form(request, memory, error);

    if (status)
        return status;
    head = head_of(request, memory);
    if (!lay_out(&head, &sections))
        return unsupported(error, "more than 96 MiB, 256 streams or 2^20 steps");
    for (uint32_t b = 0; b < request->bracket_count; b++)
        row_counts[b] = request->brackets[b].row_count;
    if (!means_are_bounded(request->streams, request->stream_count, row_counts,
                           request->grids[0].offsets, head.step_count,
                           request->clocks[0].stamps_ns))
        return unsupported(error, "means over more than 2^30 elements");
    *size_bytes = sections.end;
    return TRAJD_OK;
}

void trajd_block_write(const struct trajd_resample_request *request,
                       const struct trajd_block_memory *memory, void *bytes)
{
    const struct head head = head_of(request, memory);
    struct sections sections = {0};
    uint8_t *block = bytes;

    lay_out(&head, &sections);
    memset(block, 0, sections.targets);
    memcpy(block, &head, sizeof head);
    for (uint32_t s = 0; s < request->stream_count; s++) {
        const struct trajd_stream *stream = &request->streams[s];
        const struct stream_record record = {
            .bracket = stream->bracket_index,
            .kind = stream->kind,
            .source_type = stream->source_type,
            .output_type = stream->output_type,
            .feature_count = stream->feature_count,
            .first_column = stream->first_column,
            .edge = stream->edge,
            .row_stride_bytes = stream->row_stride_bytes,
            .rows_at = (uint64_t)(base_of(stream) - (const uint8_t *)memory->rows),
            .step_stride_bytes = stream->step_stride_bytes,
            .output_at =
                (uint64_t)((const uint8_t *)stream->output - (const uint8_t *)memory->output),
            .mask_at = stream->mask ? (uint64_t)(stream->mask - (const uint8_t *)memory->mask)
                                    : UINT64_MAX,
            .max_gap_ns = stream->max_gap_ns,
            .max_age_ns = stream->max_age_ns,
            .mean_width = stream->mean_width,
            .angle_period = stream->angle_period,
            .angle_low = stream->angle_low,
        };
        memcpy(block + sections.streams + s * sizeof record, &record, sizeof record);
    }
    for (uint32_t b = 0; b < request->bracket_count; b++) {
        const struct bracket_record record = {.row_count = *request->brackets[b].row_count};
        memcpy(block + sections.brackets + b * sizeof record, &record, sizeof record);
    }
    memcpy(block + sections.targets, request->grids[0].offsets, head.step_count * sizeof(int64_t));
    memcpy(block + sections.stamps, request->clocks[0].stamps_ns,
           head.stamp_count * sizeof(int64_t));
    memcpy(block + sections.rows, memory->rows, memory->rows_bytes);
}

void trajd_block_read_answer(const struct trajd_resample_request *request, const void *bytes,
                             const struct trajd_block_memory *memory)
{
    const struct head head = head_of(request, memory);
    const uint8_t *block = bytes;
    struct sections sections = {0};

    lay_out(&head, &sections);
    memcpy(memory->output, block + sections.output, memory->output_bytes);
    memcpy(memory->mask, block + sections.mask, memory->mask_bytes);
}

/* ---- reading ---- */

static enum trajd_status wrong(struct trajd_error *error, const char *list, uint32_t index)
{
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "block: %s[%u]: out of range", list,
                           index);
}

static enum trajd_status check_times(const int64_t *times, uint64_t count, bool ascend,
                                     const char *list, struct trajd_error *error)
{
    for (uint64_t i = 0; i < count; i++)
        if (times[i] > time_max || times[i] < -time_max || (ascend && i && times[i] < times[i - 1]))
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "block: %s[%" PRIu64 "]: out of range or not ascending", list,
                                   i);
    return TRAJD_OK;
}

static bool fits(uint64_t at, uint64_t count, uint64_t stride, uint64_t last, uint64_t bytes)
{
    uint64_t end;

    if (!count)
        return at <= bytes;
    return !__builtin_mul_overflow(count - 1, stride, &end) &&
           !__builtin_add_overflow(end, last, &end) && !__builtin_add_overflow(end, at, &end) &&
           end <= bytes;
}

/* Reads a stream's record. Checks what trajd_resample_check cannot see: that the stream stays
 * inside the block. */
static enum trajd_status read_stream(const struct head *head, const struct sections *sections,
                                     const struct stream_record *record,
                                     const int64_t *const row_counts[], uint8_t *base,
                                     uint32_t index, struct trajd_block *block,
                                     struct trajd_error *error)
{
    const uint64_t source_size =
        record->source_type < TRAJD_DTYPE_COUNT ? trajd_dtype_size(record->source_type) : 0;
    const uint64_t output_size =
        record->output_type < TRAJD_DTYPE_COUNT ? trajd_dtype_size(record->output_type) : 0;
    const uint64_t columns = (uint64_t)record->first_column + record->feature_count;
    uint64_t step_stride_bytes, row_stride_bytes; /* a single step or row may have any stride */

    if (record->bracket >= head->bracket_count || record->kind >= TRAJD_KIND_COUNT ||
        record->edge >= TRAJD_EDGE_COUNT || !source_size || !output_size || record->zero ||
        record->mean_width > time_max || record->max_gap_ns > time_max ||
        record->max_age_ns > time_max ||
        !fits(record->rows_at, (uint64_t)*row_counts[record->bracket], record->row_stride_bytes,
              columns * source_size, head->rows_bytes) ||
        !fits(record->output_at, head->step_count, record->step_stride_bytes,
              record->feature_count * output_size, head->output_bytes) ||
        (record->mask_at != UINT64_MAX &&
         !fits(record->mask_at, head->step_count, 1, 1, head->mask_bytes)))
        return wrong(error, "streams", index);
    step_stride_bytes =
        head->step_count > 1 ? record->step_stride_bytes : record->feature_count * output_size;
    row_stride_bytes =
        *row_counts[record->bracket] > 1 ? record->row_stride_bytes : columns * source_size;
    block->streams[index] = (struct trajd_stream){
        .bracket_index = record->bracket,
        .kind = record->kind,
        .source_type = record->source_type,
        .feature_count = record->feature_count,
        .first_column = record->first_column,
        .row_stride_bytes = row_stride_bytes,
        .base = base + sections->rows + record->rows_at,
        .edge = record->edge,
        .max_gap_ns = record->max_gap_ns,
        .max_age_ns = record->max_age_ns,
        .mean_width = record->mean_width,
        .angle_period = record->angle_period,
        .angle_low = record->angle_low,
        .output_type = record->output_type,
        .output = base + sections->output + record->output_at,
        .window_stride_bytes = head->step_count * step_stride_bytes,
        .step_stride_bytes = step_stride_bytes,
        .mask = record->mask_at == UINT64_MAX ? NULL : base + sections->mask + record->mask_at,
        .mask_window_stride_bytes = head->step_count,
    };
    return TRAJD_OK;
}

enum trajd_status trajd_block_open(const void *bytes, uint64_t size_bytes, void *base,
                                   struct trajd_block *block, struct trajd_error *error)
{
    const int64_t *row_counts[TRAJD_BLOCK_MAX_STREAMS], *targets, *stamps;
    const uint8_t *from = bytes;
    uint8_t *to = base;
    struct sections sections;
    struct head head;
    enum trajd_status status;

    if (size_bytes < sizeof head)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "block: %" PRIu64 " bytes are too few for a head", size_bytes);
    memcpy(&head, from, sizeof head);
    if (head.magic != block_magic || head.zero)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "block: bad magic number, or another version");
    if (!lay_out(&head, &sections) || sections.end != size_bytes)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "block: its sections do not add up to its size, or exceed a limit");
    targets = (const int64_t *)(const void *)(from + sections.targets);
    stamps = (const int64_t *)(const void *)(from + sections.stamps);
    status = check_times(targets, head.step_count, false, "targets", error);
    if (!status)
        status = check_times(stamps, head.stamp_count, true, "stamps", error);
    for (uint32_t b = 0; b < head.bracket_count && !status; b++) {
        const uint64_t at = sections.brackets + b * sizeof(struct bracket_record);
        const struct bracket_record *record = (const void *)(from + at);
        int64_t *arrays = (int64_t *)(void *)(to + at);
        if (record->row_begin || record->anchor || record->row_count < 0 ||
            (uint64_t)record->row_count > head.stamp_count)
            status = wrong(error, "brackets", b);
        row_counts[b] = &record->row_count;
        block->brackets[b] = (struct trajd_bracket){
            .row_begin = arrays, .row_count = arrays + 1, .anchor = arrays + 2};
    }
    for (uint32_t s = 0; s < head.stream_count && !status; s++) {
        struct stream_record record;
        memcpy(&record, from + sections.streams + s * sizeof record, sizeof record);
        status = read_stream(&head, &sections, &record, row_counts, to, s, block, error);
    }
    if (status)
        return status;
    block->clock =
        (struct trajd_clock){.stamps_ns = (const int64_t *)(const void *)(to + sections.stamps)};
    block->grid =
        (struct trajd_grid){.unit = TRAJD_GRID_NS,
                            .step_count = head.step_count,
                            .offsets = (const int64_t *)(const void *)(to + sections.targets)};
    block->request = (struct trajd_resample_request){.window_count = 1,
                                                     .clock_count = 1,
                                                     .grid_count = 1,
                                                     .bracket_count = head.bracket_count,
                                                     .stream_count = head.stream_count,
                                                     .clocks = &block->clock,
                                                     .grids = &block->grid,
                                                     .brackets = block->brackets,
                                                     .streams = block->streams};
    block->answer_at = sections.output;
    block->answer_bytes = sections.end - sections.output;
    status = trajd_resample_check(&block->request, error);
    if (!status &&
        !outputs_fit(block->streams, head.stream_count, head.step_count, head.output_bytes))
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                 "block: streams write to the same outputs");
    if (!status && !means_are_bounded(block->streams, head.stream_count, row_counts, targets,
                                      head.step_count, stamps))
        status = unsupported(error, "means over more than 2^30 elements");
    return status;
}
