/* cpu_rows: every kind, in double. The result equals the reference bit for bit (slerp: within its
 * error bound).
 *
 * Math      resample.h.
 * Shapes    any.
 * Requires  nothing.
 * Moves     stamps once per bracket, source rows once per step that uses them, outputs once.
 * Threads   a caller runs a range of windows. For each bracket it finds up to
 *           TRAJD_CPU_CHUNK_STEPS targets: of several windows, or of a piece of one long window.
 *           Then every stream of the bracket makes its moves while the targets are in L1.
 * Numerics  as the reference. The result does not depend on how windows are divided among
 *           threads.
 * Chosen    for everything that runs on the CPU; measurements in kernels/README.md. */
#include "kernels/cpu/cpu.h"
#include "kernels/resample_target.h"

#include <string.h>

#include "kernels/element_convert.h"
#include "kernels/total.h"

/* The part of a bracket in work: windows [window, window + window_count) at steps [step,
 * step + step_count). */
struct chunk {
    const struct trajd_resample_request *request;
    const struct trajd_bracket *bracket;
    const struct trajd_clock *clock;
    const struct trajd_grid *grid;
    bool is_run;                     /* streams that can be copied as runs are skipped here */
    const struct trajd_stream *only; /* NULL: all other streams */
    uint32_t window, window_count;
    uint32_t step, step_count;
    struct trajd_cpu_step steps[TRAJD_CPU_CHUNK_STEPS];
};

static struct trajd_cpu_window window_of(const struct chunk *chunk, uint32_t w)
{
    const struct trajd_bracket *bracket = chunk->bracket;
    const int64_t *stamps_ns = chunk->clock->stamps_ns;

    return (struct trajd_cpu_window){
        .stamps_ns = stamps_ns ? stamps_ns + trajd_row_begin(bracket, w) : NULL,
        .rate = chunk->clock->rate,
        .row_count = trajd_row_count(bracket, w),
        .anchor = trajd_anchor(bracket, w),
    };
}

static const int64_t *offsets_of(const struct chunk *chunk, uint32_t w)
{
    return chunk->grid->offsets + w * chunk->grid->offsets_per_window + chunk->step;
}

static const char *rows_of(const struct chunk *chunk, const struct trajd_stream *stream, uint32_t w)
{
    const char *rows = stream->bases ? stream->bases[w] : stream->base;

    if (!rows)
        return NULL;
    if (!stream->bases)
        rows += trajd_row_begin(chunk->bracket, w) * (int64_t)stream->row_stride_bytes;
    return rows + (uint64_t)stream->first_column * trajd_dtype_size(stream->source_type);
}

/* Applies the edge rule, the age limit and the gap limit to a step. Returns the mask code, and sets
 * *reads to whether a row is read. */
static uint8_t validate(const struct trajd_stream *stream, const struct trajd_cpu_window *window,
                        enum trajd_grid_unit unit, const struct trajd_cpu_step *step, bool *reads)
{
    switch (step->mask) {
    case TRAJD_MASK_VALID:
        *reads = true;
        return step->a > 0 && stream->max_gap_ns >= 0 && step->ns > (uint64_t)stream->max_gap_ns
                   ? TRAJD_MASK_GAP
                   : TRAJD_MASK_VALID;
    case TRAJD_MASK_BEFORE_START:
        *reads = stream->edge == TRAJD_EDGE_HOLD && window->row_count > 0;
        return TRAJD_MASK_BEFORE_START;
    case TRAJD_MASK_AFTER_END:
        *reads = stream->edge == TRAJD_EDGE_HOLD || stream->max_age_ns >= 0;
        if (stream->max_age_ns < 0)
            return TRAJD_MASK_AFTER_END;
        return unit == TRAJD_GRID_NS && step->ns > (uint64_t)stream->max_age_ns ? TRAJD_MASK_TOO_OLD
                                                                                : TRAJD_MASK_VALID;
    default:
        *reads = step->has_target;
        return TRAJD_MASK_BAD_STAMP;
    }
}

/* Returns the first row of a mean, the first one after x - mean_width. The last is the step's
 * row. */
static int64_t mean_first(const struct trajd_stream *stream, const struct trajd_cpu_window *window,
                          enum trajd_grid_unit unit, int64_t x, int64_t row)
{
    int64_t before;

    if (unit == TRAJD_GRID_ROWS) {
        if (__builtin_sub_overflow(x, stream->mean_width - 1, &before))
            return 0;
        return before > 0 ? before : 0;
    }
    if (__builtin_sub_overflow(x, stream->mean_width, &before))
        before = INT64_MIN;
    return trajd_cpu_row_at(window, before, row) + 1;
}

static void place_mean(const struct trajd_stream *stream, const struct trajd_cpu_window *window,
                       const struct chunk *chunk, const struct trajd_cpu_step *step, int64_t offset,
                       struct trajd_cpu_move *move)
{
    int64_t x = (int64_t)((uint64_t)window->anchor + (uint64_t)offset);
    int64_t first = step->mask == TRAJD_MASK_BEFORE_START
                        ? 0
                        : mean_first(stream, window, chunk->grid->unit, x, step->row);

    if (first >= step->row)
        return;
    move->row -= (step->row - first) * (int64_t)stream->row_stride_bytes;
    move->row_count = step->row - first + 1;
}

static void place_row(const struct trajd_stream *stream, const struct trajd_cpu_step *step,
                      const char *rows, struct trajd_cpu_move *move)
{
    int64_t row = step->mask == TRAJD_MASK_BEFORE_START ? 0 : step->row;

    if (stream->kind == TRAJD_KIND_NEAREST)
        row += step->upper_nearer;
    else if (stream->kind != TRAJD_KIND_PREVIOUS && stream->kind != TRAJD_KIND_MEAN)
        move->a = step->a;
    move->row = rows + row * (int64_t)stream->row_stride_bytes;
}

/* Finds the rows of a sum over a step of time. */
static void place_total(const struct chunk *chunk, const struct trajd_stream *stream,
                        const struct trajd_cpu_window *window, const int64_t *offsets, uint32_t t,
                        const char *rows, struct trajd_cpu_move *move)
{
    const uint32_t step = chunk->step + t;
    int64_t x, end, row, row_end;

    move->code = TRAJD_MASK_BAD_STAMP;
    if (offsets[step] == TRAJD_NO_TARGET)
        return;
    x = (int64_t)((uint64_t)window->anchor + (uint64_t)offsets[step]);
    end = (int64_t)((uint64_t)window->anchor + (uint64_t)trajd_total_end(stream->total_width,
                                                                         chunk->grid->step_count,
                                                                         offsets, step));
    move->code = TRAJD_MASK_BEFORE_START;
    if (window->row_count == 0 || x < trajd_cpu_stamp_of(window, 0))
        return;
    row = x == INT64_MIN ? 0 : trajd_cpu_row_at(window, x - 1, 0) + 1;
    row_end = end == INT64_MIN ? 0 : trajd_cpu_row_at(window, end - 1, row) + 1;
    move->code = TRAJD_MASK_AFTER_END;
    if (row == window->row_count)
        return;
    row_end = row_end < row ? row : row_end;
    move->code = trajd_total_mask(window->stamps_ns, window->rate, window->row_count,
                                  stream->max_gap_ns, x, end, row, row_end);
    move->row = rows + row * (int64_t)stream->row_stride_bytes;
    move->row_count = row_end - row;
}

static void plan_window(const struct chunk *chunk, const struct trajd_stream *stream, uint32_t w,
                        const struct trajd_cpu_step *steps, struct trajd_cpu_move *moves)
{
    struct trajd_cpu_window window = window_of(chunk, w);
    const int64_t *offsets = offsets_of(chunk, w);
    const char *rows = rows_of(chunk, stream, w);
    const uint64_t row = trajd_window_row(chunk->request, w);
    char *out = (char *)stream->output + row * stream->window_stride_bytes +
                chunk->step * stream->step_stride_bytes;

    for (uint32_t t = 0; t < chunk->step_count; t++, out += stream->step_stride_bytes) {
        bool reads = false;

        moves[t] = (struct trajd_cpu_move){.out = out, .row_count = 1, .code = TRAJD_MASK_MISSING};
        if (!rows)
            continue;
        if (stream->total == TRAJD_TOTAL_STEP) {
            place_total(chunk, stream, &window, offsets - chunk->step, t, rows, &moves[t]);
            continue;
        }
        moves[t].code = validate(stream, &window, chunk->grid->unit, &steps[t], &reads);
        if (!reads)
            continue;
        place_row(stream, &steps[t], rows, &moves[t]);
        if (stream->total)
            moves[t].row_count =
                window.row_count - (moves[t].row - rows) / (int64_t)stream->row_stride_bytes;
        if (stream->kind == TRAJD_KIND_MEAN)
            place_mean(stream, &window, chunk, &steps[t], offsets[t], &moves[t]);
        /* windows lie anywhere in the cache: a third of the time of a policy batch was spent
         * waiting */
        __builtin_prefetch(moves[t].row);
    }
    if (stream->derivative)
        trajd_cpu_derivatives(stream, &window, rows, steps, chunk->step_count,
                              (char *)stream->derivative +
                                  row * stream->derivative_window_stride_bytes +
                                  chunk->step * stream->derivative_step_stride_bytes);
}

static void write_masks(const struct chunk *chunk, const struct trajd_stream *stream,
                        const struct trajd_cpu_move *moves)
{
    for (uint32_t w = 0; w < chunk->window_count; w++) {
        const uint64_t row = trajd_window_row(chunk->request, chunk->window + w);
        uint8_t *mask = stream->mask + row * stream->mask_window_stride_bytes + chunk->step;
        for (uint32_t t = 0; t < chunk->step_count; t++, moves++)
            if (moves->code > mask[t])
                mask[t] = moves->code;
    }
}

static void run_stream(const struct chunk *chunk, const struct trajd_stream *stream)
{
    struct trajd_cpu_move moves[TRAJD_CPU_CHUNK_STEPS];

    for (uint32_t w = 0; w < chunk->window_count; w++)
        plan_window(chunk, stream, chunk->window + w, chunk->steps + w * chunk->step_count,
                    moves + w * chunk->step_count);
    trajd_cpu_mover_of(stream)(stream, moves, chunk->window_count * chunk->step_count);
    if (stream->mask)
        write_masks(chunk, stream, moves);
}

/* Returns whether a pass over a bracket includes the stream: only one stream, or all that are not
 * copied as runs. */
static bool takes(const struct chunk *chunk, const struct trajd_stream *stream)
{
    if (chunk->only)
        return stream == chunk->only;
    return &chunk->request->brackets[stream->bracket_index] == chunk->bracket &&
           !(chunk->is_run && trajd_cpu_stream_runs(chunk->grid, stream));
}

/* Starts to load the stamps with which the searches of all windows begin: windows lie anywhere in
 * the cache, and each search would wait three times. Fills a first guess for each window. */
static void fetch_stamps(const struct chunk *chunk, int64_t *guesses)
{
    for (uint32_t w = 0; w < chunk->window_count; w++) {
        const struct trajd_cpu_window window = window_of(chunk, chunk->window + w);
        trajd_cpu_fetch_ends(&window);
    }
    for (uint32_t w = 0; w < chunk->window_count; w++) {
        const struct trajd_cpu_window window = window_of(chunk, chunk->window + w);
        guesses[w] = trajd_cpu_fetch_guess(&window, *offsets_of(chunk, chunk->window + w));
    }
}

static void run_chunk(struct chunk *chunk)
{
    const struct trajd_resample_request *request = chunk->request;
    int64_t guesses[TRAJD_CPU_CHUNK_STEPS] = {0};

    if (chunk->clock->stamps_ns && chunk->grid->unit == TRAJD_GRID_NS)
        fetch_stamps(chunk, guesses);
    for (uint32_t w = 0; w < chunk->window_count; w++) {
        struct trajd_cpu_window window = window_of(chunk, chunk->window + w);
        trajd_cpu_find_steps(&window, chunk->grid->unit, offsets_of(chunk, chunk->window + w),
                             chunk->step_count, guesses[w], chunk->steps + w * chunk->step_count);
    }
    for (uint32_t s = 0; s < request->stream_count; s++)
        if (takes(chunk, &request->streams[s]))
            run_stream(chunk, &request->streams[s]);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void run_windows(struct chunk *chunk, uint32_t window_begin, uint32_t window_end)
{
    const uint32_t step_count = chunk->grid->step_count;
    const uint32_t windows =
        step_count < TRAJD_CPU_CHUNK_STEPS ? TRAJD_CPU_CHUNK_STEPS / step_count : 1;

    for (uint32_t w = window_begin; w < window_end; w += chunk->window_count) {
        chunk->window = w;
        chunk->window_count = least(windows, window_end - w);
        for (uint32_t t = 0; t < step_count; t += chunk->step_count) {
            chunk->step = t;
            chunk->step_count = least(TRAJD_CPU_CHUNK_STEPS, step_count - t);
            run_chunk(chunk);
        }
    }
}

/* Copies one stream as runs of rows. Windows that cannot be copied take the general path. */
static void run_in_runs(struct chunk *chunk, const struct trajd_stream *stream, uint32_t begin,
                        uint32_t end)
{
    chunk->only = stream;
    for (uint32_t w = begin; w < end; w++) {
        w = trajd_cpu_copy_runs(chunk->request, stream, w, end);
        if (w < end)
            run_windows(chunk, w, w + 1);
    }
    chunk->only = NULL;
}

static void run_bracket(const struct trajd_resample_request *request,
                        const struct trajd_bracket *bracket, uint32_t window_begin,
                        uint32_t window_end)
{
    struct chunk chunk = {.request = request,
                          .bracket = bracket,
                          .clock = &request->clocks[bracket->clock_index],
                          .grid = &request->grids[bracket->grid_index]};
    bool has_others = false;

    chunk.is_run = trajd_cpu_grid_is_run(chunk.grid);
    for (uint32_t s = 0; s < request->stream_count; s++) {
        const struct trajd_stream *stream = &request->streams[s];
        if (&request->brackets[stream->bracket_index] != bracket)
            continue;
        if (takes(&chunk, stream))
            has_others = true;
        else
            run_in_runs(&chunk, stream, window_begin, window_end);
    }
    if (has_others)
        run_windows(&chunk, window_begin, window_end);
}

/* Sets masks to VALID. Later code only raises them, so streams that share a mask may come in any
 * order. */
static void clear_masks(const struct trajd_resample_request *request, uint32_t window_begin,
                        uint32_t window_end)
{
    for (uint32_t s = 0; s < request->stream_count; s++) {
        const struct trajd_stream *stream = &request->streams[s];
        uint32_t step_count =
            request->grids[request->brackets[stream->bracket_index].grid_index].step_count;

        if (!stream->mask || stream->mask_joins_previous)
            continue;
        if (!request->window_rows && stream->mask_window_stride_bytes == step_count)
            memset(stream->mask + (uint64_t)window_begin * step_count, TRAJD_MASK_VALID,
                   (uint64_t)(window_end - window_begin) * step_count);
        else
            for (uint32_t w = window_begin; w < window_end; w++)
                memset(stream->mask +
                           trajd_window_row(request, w) * stream->mask_window_stride_bytes,
                       TRAJD_MASK_VALID, step_count);
    }
}

/* Masks the steps that a bracket calls too old, unless the window lacks the stream. */
static void mark_too_old(const struct trajd_resample_request *request,
                         const struct trajd_stream *stream, uint32_t window_begin,
                         uint32_t window_end)
{
    const struct trajd_bracket *bracket = &request->brackets[stream->bracket_index];
    const uint32_t step_count = request->grids[bracket->grid_index].step_count;

    for (uint32_t w = window_begin; w < window_end; w++) {
        uint8_t *mask =
            stream->mask + trajd_window_row(request, w) * stream->mask_window_stride_bytes;
        if (stream->bases && !stream->bases[w])
            continue;
        for (uint32_t t = bracket->too_old_begin[w]; t < bracket->too_old_end[w] && t < step_count;
             t++)
            if (mask[t] < TRAJD_MASK_TOO_OLD)
                mask[t] = TRAJD_MASK_TOO_OLD;
    }
}

void trajd_resample_cpu(const struct trajd_resample_request *request, uint32_t window_begin,
                        uint32_t window_end)
{
    clear_masks(request, window_begin, window_end);
    for (uint32_t b = 0; b < request->bracket_count; b++)
        run_bracket(request, &request->brackets[b], window_begin, window_end);
    for (uint32_t s = 0; s < request->stream_count; s++)
        if (request->streams[s].mask &&
            request->brackets[request->streams[s].bracket_index].too_old_begin)
            mark_too_old(request, &request->streams[s], window_begin, window_end);
}
