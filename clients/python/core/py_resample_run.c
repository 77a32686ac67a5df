/* Makes the request of libtrajd_kernels from the arguments of trajd.resample, and runs it on
 * the CPU or a GPU. */
#include <stdlib.h>
#include <string.h>

#include "clients/python/core/py_resample.h"

/* The lists of the request, and behind them the arrays of B and the converted times. */
struct trajd_py_request {
    struct trajd_resample_request request;
    struct trajd_grid grid;
    struct trajd_clock *clocks;     /* one for each bracket */
    struct trajd_bracket *brackets; /* of streams with rows of their own */
    struct trajd_stream *streams;
    uint32_t *bracket_streams;               /* the first stream of each bracket */
    const void **bases;                      /* [stream][B] */
    int64_t *row_begin, *row_count, *anchor; /* [bracket][B], [bracket][B], [B] */
    int64_t *rooms;
};

static bool same_array(const struct trajd_py_array *a, const struct trajd_py_array *b)
{
    return a->data == b->data && a->rank == b->rank && a->dtype == b->dtype &&
           memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
           memcmp(a->strides_bytes, b->strides_bytes, sizeof a->strides_bytes) == 0;
}

static bool same_splits(const struct trajd_py_stream *a, const struct trajd_py_stream *b)
{
    if (!a->splits || !b->splits)
        return a->splits == b->splits;
    return a->row_splits.shape[0] == b->row_splits.shape[0] &&
           memcmp(a->splits, b->splits, (size_t)a->row_splits.shape[0] * sizeof *a->splits) == 0;
}

/* Gives streams with the same times, splits and view one bracket, so that targets are searched
 * once. Returns the number of brackets. */
static uint32_t share_brackets(const struct trajd_py_call *call)
{
    uint32_t count = 0;

    for (uint32_t s = 0; s < call->stream_count; s++) {
        struct trajd_py_stream *stream = &call->streams[s];
        uint32_t r = 0;
        while (r < s && !(same_array(&call->streams[r].times, &stream->times) &&
                          same_splits(&call->streams[r], stream) &&
                          memcmp(call->streams[r].row_arrays, stream->row_arrays,
                                 sizeof stream->row_arrays) == 0 &&
                          call->streams[r].is_causal == stream->is_causal))
            r++;
        stream->bracket_index = r < s ? call->streams[r].bracket_index : count++;
    }
    return count;
}

static struct trajd_stream stream_of(const struct trajd_py_stream *stream, int64_t batch,
                                     const void *const *bases)
{
    const struct trajd_py_array *values = &stream->values, *out = &stream->out,
                                *mask = &stream->mask;
    const int last = values->rank - 1;
    const uint64_t row = (uint64_t)values->shape[last] * trajd_dtype_size(stream->source_type);
    const bool is_batch = batch >= 0;

    return (struct trajd_stream){
        .bracket_index = stream->bracket_index,
        .kind = stream->kind,
        .source_type = stream->source_type,
        .feature_count = (uint32_t)values->shape[last],
        .row_stride_bytes =
            values->shape[last - 1] > 1 ? (uint64_t)values->strides_bytes[last - 1] : row,
        .bases = bases,
        .edge = stream->edge,
        .max_gap_ns = stream->max_gap_ns,
        .max_age_ns = stream->max_age_ns,
        .mean_width = stream->width_ns,
        .angle_period = stream->period,
        .angle_low = stream->range_low,
        .output_type = stream->output_type,
        .output = out->data,
        .window_stride_bytes = is_batch ? (uint64_t)out->strides_bytes[0] : 0,
        .step_stride_bytes = (uint64_t)out->strides_bytes[is_batch],
        .mask = (uint8_t *)mask->data,
        .mask_window_stride_bytes = is_batch ? (uint64_t)mask->strides_bytes[0] : 0,
    };
}

/* Places the lists behind the struct, and returns the bytes of all. With `made` NULL it only
 * counts. */
static uint64_t lay_out(const struct trajd_py_call *call, uint32_t brackets, uint64_t batch,
                        uint64_t room, struct trajd_py_request *made)
{
    const uint64_t streams = call->stream_count;
    char *at = (char *)made + sizeof *made;

    if (made) {
        made->streams = (struct trajd_stream *)at;
        made->clocks = (struct trajd_clock *)(made->streams + streams);
        made->brackets = (struct trajd_bracket *)(made->clocks + brackets);
        made->bases = (const void **)(made->brackets + brackets);
        made->row_begin = (int64_t *)(made->bases + streams * batch);
        made->row_count = made->row_begin + brackets * batch;
        made->anchor = made->row_count + brackets * batch;
        made->rooms = made->anchor + batch;
        made->bracket_streams = (uint32_t *)(made->rooms + room);
    }
    return sizeof *made + streams * sizeof *made->streams + brackets * sizeof *made->clocks +
           brackets * sizeof *made->brackets +
           8 * (streams * batch + 2 * brackets * batch + batch + room) + 4 * brackets;
}

static void fill(const struct trajd_py_call *call, uint32_t brackets, uint64_t batch,
                 struct trajd_py_request *made)
{
    made->grid = (struct trajd_grid){.step_count = (uint32_t)call->step_count};
    for (uint32_t s = call->stream_count; s-- > 0;) {
        const struct trajd_py_stream *stream = &call->streams[s];
        const uint32_t b = stream->bracket_index;
        made->streams[s] = stream_of(stream, call->batch, made->bases + s * batch);
        made->brackets[b] = (struct trajd_bracket){.clock_index = b,
                                                   .row_begin = made->row_begin + b * batch,
                                                   .row_count = made->row_count + b * batch,
                                                   .anchor = made->anchor};
        made->bracket_streams[b] = s;
        made->clocks[b] = (struct trajd_clock){.stamps_ns = NULL};
    }
    made->request = (struct trajd_resample_request){.window_count = (uint32_t)batch,
                                                    .clock_count = brackets,
                                                    .grid_count = 1,
                                                    .bracket_count = brackets,
                                                    .stream_count = call->stream_count,
                                                    .clocks = made->clocks,
                                                    .grids = &made->grid,
                                                    .brackets = made->brackets,
                                                    .streams = made->streams};
}

/* ---- on a GPU ---- */

/* Returns whether all windows see the same rows. They are one window of B * T steps then, which
 * needs no arrays of B. */
static bool is_one_window(const struct trajd_py_call *call)
{
    bool shares = call->batch >= 0;

    for (uint32_t s = 0; s < call->stream_count; s++) {
        const struct trajd_py_stream *stream = &call->streams[s];
        shares &= stream->values.rank == 2 && stream->times.rank == 1 && !stream->row_arrays[0];
    }
    return shares;
}

static enum trajd_status join_windows(const struct trajd_py_call *call,
                                      struct trajd_py_request *made, struct trajd_error *error)
{
    const int64_t steps = call->batch * call->step_count;

    for (uint32_t s = 0; s < call->stream_count; s++) {
        const struct trajd_stream *stream = &made->streams[s];
        if (call->batch > 1 && (steps > INT32_MAX ||
                                stream->window_stride_bytes !=
                                    stream->step_stride_bytes * (uint64_t)call->step_count ||
                                stream->mask_window_stride_bytes != (uint64_t)call->step_count))
            return trajd_argument_refuse((struct trajd_argument){call->streams[s].label, "out"},
                                         error, "is not dense");
    }
    made->request.window_count = 1;
    made->grid.step_count = (uint32_t)steps;
    made->grid.offsets_per_window = 0;
    return TRAJD_OK;
}

/* An empty array has no address, and nothing is read from it. */
static const void *address_of(const struct trajd_py_array *array, const void *otherwise)
{
    return array->data ? array->data : otherwise;
}

/* Fills in the arrays of the GPU. trajd/resampling/cuda_tensors.py has arranged them: values and times are
 * dense, or the rows of a window are named by row_arrays. */
static enum trajd_status place_on_gpu(const struct trajd_py_call *call,
                                      struct trajd_py_request *made, struct trajd_error *error)
{
    const void *targets = call->targets.data;

    made->grid.offsets = targets;
    made->grid.offsets_per_window = call->targets.rank == 2 ? (uint64_t)call->step_count : 0;
    for (uint32_t b = 0; b < made->request.bracket_count; b++) {
        const struct trajd_py_stream *stream = &call->streams[made->bracket_streams[b]];
        const uintptr_t *arrays = stream->row_arrays;
        made->clocks[b].stamps_ns = address_of(&stream->times, targets);
        made->brackets[b] = (struct trajd_bracket){
            .clock_index = b,
            .row_begin = (const int64_t *)arrays[0],
            .row_count = (const int64_t *)arrays[1],
            .anchor = (const int64_t *)arrays[2],
            .dense_row_count =
                arrays[0] ? 0 : (uint64_t)stream->times.shape[stream->times.rank - 1]};
    }
    for (uint32_t s = 0; s < call->stream_count; s++) {
        made->streams[s].bases = NULL;
        made->streams[s].base = address_of(&call->streams[s].values, targets);
    }
    return is_one_window(call) ? join_windows(call, made, error) : TRAJD_OK;
}

enum trajd_status trajd_py_request_create(const struct trajd_py_call *call,
                                          struct trajd_py_request **request,
                                          struct trajd_error *error)
{
    const bool is_on_gpu = call->gpu != TRAJD_PY_HOST;
    const uint64_t batch = call->batch >= 0 ? (uint64_t)call->batch : 1;
    const uint64_t listed = is_on_gpu ? 0 : batch; /* its arrays of B are on the GPU */
    const uint32_t brackets = share_brackets(call);
    uint64_t room = is_on_gpu ? 0 : trajd_py_times_room(&call->targets, true);

    for (uint32_t s = 0; s < call->stream_count && !is_on_gpu; s++)
        room += trajd_py_times_room(&call->streams[s].times, false);
    *request = malloc(lay_out(call, brackets, listed, room, NULL));
    if (!*request)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "resample: no memory for the times");
    lay_out(call, brackets, listed, room, *request);
    fill(call, brackets, batch, *request);
    return is_on_gpu ? place_on_gpu(call, *request, error) : TRAJD_OK;
}

const struct trajd_resample_request *trajd_py_request_shape(const struct trajd_py_request *request)
{
    return &request->request;
}

/* ---- without the GIL ---- */

/* Fills where the rows of each window begin in the stamps, and how many there are. */
static void fill_rows(const struct trajd_py_stream *stream, const struct trajd_py_times *times,
                      int64_t batch, struct trajd_py_request *made)
{
    int64_t *begin = made->row_begin + stream->bracket_index * batch;
    int64_t *count = made->row_count + stream->bracket_index * batch;

    for (int64_t w = 0; w < batch; w++) {
        if (stream->splits) {
            begin[w] = stream->splits[w];
            count[w] = stream->splits[w + 1] - begin[w];
        } else {
            begin[w] = w * times->row_stride;
            count[w] = stream->times.shape[stream->times.rank - 1];
        }
    }
}

/* Ends each window at the last row at or before its latest target. */
static void clip_rows(const struct trajd_py_call *call, uint32_t bracket, int64_t batch,
                      struct trajd_py_request *made)
{
    int64_t *begin = made->row_begin + bracket * batch, *count = made->row_count + bracket * batch;

    for (int64_t w = 0; w < batch; w++) {
        const int64_t *offsets =
            made->grid.offsets + (made->grid.offsets_per_window ? w * call->step_count : 0);
        int64_t latest = offsets[0];
        for (int64_t t = 1; t < call->step_count; t++)
            latest = offsets[t] > latest ? offsets[t] : latest;
        count[w] = trajd_stamps_until(made->clocks[bracket].stamps_ns + begin[w], count[w], latest);
    }
}

static enum trajd_status check_ragged(const struct trajd_py_stream *stream,
                                      const struct trajd_py_times *times, int64_t batch,
                                      const struct trajd_py_request *made,
                                      struct trajd_error *error)
{
    const int64_t *begin = made->row_begin + stream->bracket_index * batch;
    const int64_t *count = made->row_count + stream->bracket_index * batch;
    enum trajd_status status = TRAJD_OK;

    for (int64_t w = 0; w < batch && !status; w++)
        status = trajd_py_times_check_order(
            &(struct trajd_py_times){.stamps_ns = times->stamps_ns + begin[w]}, 1, count[w],
            (struct trajd_argument){stream->label, "times"}, error);
    return status;
}

static enum trajd_status fill_bracket(const struct trajd_py_call *call, uint32_t bracket,
                                      int64_t batch, int64_t **room, struct trajd_py_request *made,
                                      struct trajd_error *error)
{
    const struct trajd_py_stream *stream = &call->streams[made->bracket_streams[bracket]];
    const struct trajd_argument argument = {stream->label, "times"};
    struct trajd_py_times times;
    enum trajd_status status =
        trajd_py_times_read(&stream->times, false, argument, *room, &times, error);

    if (status)
        return status;
    *room += trajd_py_times_room(&stream->times, false);
    made->clocks[bracket].stamps_ns = times.stamps_ns;
    fill_rows(stream, &times, batch, made);
    status = stream->splits
                 ? check_ragged(stream, &times, batch, made, error)
                 : trajd_py_times_check_order(
                       &times, batch, stream->times.shape[stream->times.rank - 1], argument, error);
    if (!status && stream->is_causal)
        clip_rows(call, bracket, batch, made);
    return status;
}

static void fill_bases(const struct trajd_py_stream *stream, int64_t batch,
                       const struct trajd_py_request *made, const void **bases)
{
    const int64_t *begin = made->row_begin + stream->bracket_index * batch;
    const struct trajd_py_array *values = &stream->values;
    const char *base = stream->values.data;

    for (int64_t w = 0; w < batch; w++)
        bases[w] = stream->splits      ? base + begin[w] * values->strides_bytes[0]
                   : values->rank == 3 ? base + w * values->strides_bytes[0]
                                       : base;
}

static enum trajd_status fill_targets(const struct trajd_py_call *call, int64_t **room,
                                      struct trajd_py_request *made, struct trajd_error *error)
{
    const struct trajd_argument argument = {NULL, "targets"};
    struct trajd_py_times times;
    enum trajd_status status =
        trajd_py_times_read(&call->targets, true, argument, *room, &times, error);

    if (status)
        return status;
    *room += trajd_py_times_room(&call->targets, true);
    made->grid.offsets = times.stamps_ns;
    made->grid.offsets_per_window = times.row_stride ? (uint64_t)call->step_count : 0;
    return TRAJD_OK;
}

enum trajd_status trajd_py_request_run(const struct trajd_py_call *call,
                                       struct trajd_py_request *made,
                                       const struct trajd_shape_plan *plan,
                                       struct trajd_error *error)
{
    const int64_t batch = made->request.window_count;
    int64_t *room = made->rooms;
    enum trajd_status status;

    if (call->gpu != TRAJD_PY_HOST)
        return trajd_shape_plan_run(plan, &made->request, call->cuda_stream, error);
    status = fill_targets(call, &room, made, error);
    memset(made->anchor, 0, (size_t)batch * sizeof *made->anchor);
    for (uint32_t b = 0; b < made->request.bracket_count && !status; b++)
        status = fill_bracket(call, b, batch, &room, made, error);
    if (status)
        return status;
    for (uint32_t s = 0; s < call->stream_count; s++)
        fill_bases(&call->streams[s], batch, made, made->bases + s * batch);
    return trajd_shape_plan_run(plan, &made->request, NULL, error);
}
