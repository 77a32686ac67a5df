/* Checks the shapes of the inputs of trajd.resample against each other, and the outputs for
 * overlaps. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clients/python/core/py_resample.h"

/* ---- inputs ---- */

/* Takes the size of a batch dimension, or compares it with the one that is known. */
static enum trajd_status take_batch(struct trajd_py_call *call, struct trajd_argument argument,
                                    const struct trajd_py_array *array, int64_t batch,
                                    struct trajd_error *error)
{
    char text[80];

    if (call->batch < 0)
        call->batch = batch;
    if (call->batch == batch)
        return TRAJD_OK;
    return trajd_argument_refuse(
        argument, error,
        "of shape %s is for B = %" PRId64 ", but an argument before it is for B = %" PRId64
        ": they must agree; leave the dimension out where all rows of the batch share the array",
        trajd_py_array_shape_text(array, text), batch, call->batch);
}

static enum trajd_status copy_splits(struct trajd_py_stream *stream, struct trajd_error *error)
{
    const struct trajd_py_array *splits = &stream->row_splits;

    stream->splits = malloc((size_t)splits->shape[0] * sizeof *stream->splits);
    if (!stream->splits)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "resample: no memory for row_splits");
    for (int64_t w = 0; w < splits->shape[0]; w++)
        stream->splits[w] = *(const int64_t *)(splits->data + w * splits->strides_bytes[0]);
    return TRAJD_OK;
}

static enum trajd_status check_splits(struct trajd_py_stream *stream, struct trajd_error *error)
{
    const struct trajd_argument argument = {stream->label, "row_splits"};
    const struct trajd_py_array *splits = &stream->row_splits;
    int64_t before = 0;
    enum trajd_status status;

    if (splits->dtype != TRAJD_I64 || splits->shape[0] < 1)
        return trajd_argument_refuse(argument, error, "must be int64 of shape [B + 1]");
    if (stream->values.rank != 2 || stream->times.rank != 1)
        return trajd_argument_refuse(argument, error,
                                     "needs values of shape [N, D] and times of shape [N]");
    if (splits->is_on_gpu) /* trajd/resampling/cuda_tensors.py keeps them within the rows */
        return TRAJD_OK;
    status = copy_splits(stream, error);
    if (status)
        return status;
    for (int64_t w = 0; w < splits->shape[0]; w++) {
        const int64_t split = stream->splits[w];
        if (split < before || split > stream->values.shape[0] || (w == 0 && split != 0))
            return trajd_argument_refuse(argument, error,
                                         "[%" PRId64 "] is %" PRId64
                                         ": splits must begin with 0, ascend, and stay within the "
                                         "%" PRId64 " rows of values",
                                         w, split, stream->values.shape[0]);
        before = split;
    }
    if (before != stream->values.shape[0])
        return trajd_argument_refuse(argument, error,
                                     "ends with %" PRId64 ", but values has %" PRId64 " rows",
                                     before, stream->values.shape[0]);
    return TRAJD_OK;
}

static enum trajd_status check_features(const struct trajd_py_stream *stream,
                                        struct trajd_error *error)
{
    const struct trajd_argument argument = {stream->label, "values"};
    const int64_t features = stream->values.shape[stream->values.rank - 1];
    char text[80];

    if (features < 1 || features > UINT32_MAX)
        return trajd_argument_refuse(argument, error,
                                     "has the shape %s: the last dimension, D, must be at least 1",
                                     trajd_py_array_shape_text(&stream->values, text));
    if ((stream->kind == TRAJD_KIND_SLERP_XYZW || stream->kind == TRAJD_KIND_SLERP_WXYZ) &&
        features % 4 != 0)
        return trajd_argument_refuse(argument, error,
                                     "has the shape %s: kind='slerp' needs D to be a multiple of "
                                     "4, one quaternion after the other",
                                     trajd_py_array_shape_text(&stream->values, text));
    return TRAJD_OK;
}

static enum trajd_status settle_stream(struct trajd_py_call *call, struct trajd_py_stream *stream,
                                       struct trajd_error *error)
{
    const struct trajd_py_array *values = &stream->values, *times = &stream->times;
    const struct trajd_argument of_values = {stream->label, "values"},
                                of_times = {stream->label, "times"};
    char text[80], other[80];
    enum trajd_status status = check_features(stream, error);

    if (status)
        return status;
    if (values->rank == 2 && times->rank == 2 && values->shape[0] == times->shape[0] &&
        values->shape[1] == times->shape[1] && values->shape[0] != values->shape[1])
        return trajd_argument_refuse(of_values, error,
                                     "has the shape %s, as times do: pass [B, S, D]; "
                                     "values[..., None] makes one column of it",
                                     trajd_py_array_shape_text(values, text));
    if (values->shape[values->rank - 2] != times->shape[times->rank - 1])
        return trajd_argument_refuse(of_times, error,
                                     "of shape %s does not fit values of shape %s: each row of "
                                     "values needs one time, so the last dimension of times must "
                                     "be %" PRId64,
                                     trajd_py_array_shape_text(times, text),
                                     trajd_py_array_shape_text(values, other),
                                     values->shape[values->rank - 2]);
    if (stream->row_splits.rank) {
        status = check_splits(stream, error);
        return status ? status
                      : take_batch(call, (struct trajd_argument){stream->label, "row_splits"},
                                   &stream->row_splits, stream->row_splits.shape[0] - 1, error);
    }
    if (values->rank == 3)
        status = take_batch(call, of_values, values, values->shape[0], error);
    if (!status && times->rank == 2)
        status = take_batch(call, of_times, times, times->shape[0], error);
    return status;
}

static enum trajd_status check_time_types(const struct trajd_py_call *call,
                                          const struct trajd_py_stream *stream,
                                          struct trajd_error *error)
{
    const struct trajd_argument argument = {NULL, "targets"};
    enum trajd_status status = trajd_py_times_check_type(
        &stream->times, (struct trajd_argument){stream->label, "times"}, error);

    if (!status)
        status = trajd_py_times_check_type(&call->targets, argument, error);
    if (status || stream->times.dtype == call->targets.dtype)
        return status;
    return trajd_argument_refuse(
        argument, error,
        "have type %s, but times have %s: pass both as int64 ns or both as float64 seconds",
        trajd_dtype_name(call->targets.dtype), trajd_dtype_name(stream->times.dtype));
}

enum trajd_status trajd_py_call_settle(PyObject *targets, struct trajd_py_call *call,
                                       struct trajd_error *error)
{
    const struct trajd_argument argument = {NULL, "targets"};
    enum trajd_status status = trajd_py_array_read(
        targets, argument, 1, 2, "[B, T], or [T] if all rows of the batch share them",
        &call->targets, error);

    call->batch = -1;
    for (uint32_t s = 0; s < call->stream_count && !status; s++) {
        status = settle_stream(call, &call->streams[s], error);
        if (!status)
            status = check_time_types(call, &call->streams[s], error);
    }
    if (!status && call->targets.rank == 2)
        status = take_batch(call, argument, &call->targets, call->targets.shape[0], error);
    if (status)
        return status;
    call->step_count = call->targets.shape[call->targets.rank - 1];
    if (call->batch > UINT32_MAX || call->step_count > UINT32_MAX)
        return trajd_argument_refuse(argument, error, "or the batch has 2^32 rows or more");
    return TRAJD_OK;
}

/* ---- outputs ---- */

/* The bytes from the first to the last element. Returns false if there are none. */
static bool span_of(const struct trajd_py_array *array, uintptr_t *begin, uintptr_t *end)
{
    *begin = *end = (uintptr_t)array->data;
    for (int i = 0; i < array->rank; i++) {
        if (array->shape[i] == 0)
            return false;
        if (array->strides_bytes[i] < 0)
            *begin += (uintptr_t)((array->shape[i] - 1) * array->strides_bytes[i]);
        else
            *end += (uintptr_t)((array->shape[i] - 1) * array->strides_bytes[i]);
    }
    *end += trajd_dtype_size(array->dtype);
    return array->rank > 0;
}

static bool overlap(const struct trajd_py_array *a, const struct trajd_py_array *b)
{
    uintptr_t a_begin, a_end, b_begin, b_end;

    return span_of(a, &a_begin, &a_end) && span_of(b, &b_begin, &b_end) && a_begin < b_end &&
           b_begin < a_end;
}

static enum trajd_status check_form(const struct trajd_py_call *call,
                                    const struct trajd_py_array *out,
                                    struct trajd_argument argument, enum trajd_dtype dtype,
                                    int64_t feature_count, struct trajd_error *error)
{
    struct trajd_py_array wanted = {.rank = 0};
    char text[80], other[80];
    const int last = out->rank - 1;

    if (call->batch >= 0)
        wanted.shape[wanted.rank++] = call->batch;
    wanted.shape[wanted.rank++] = call->step_count;
    if (feature_count)
        wanted.shape[wanted.rank++] = feature_count;
    if (out->rank != wanted.rank ||
        memcmp(out->shape, wanted.shape, (size_t)out->rank * sizeof out->shape[0]) != 0)
        return trajd_argument_refuse(argument, error, "has the shape %s, and the result has %s",
                                     trajd_py_array_shape_text(out, text),
                                     trajd_py_array_shape_text(&wanted, other));
    /* numpy has no bf16 */
    if (out->dtype != (dtype == TRAJD_BF16 && !out->is_on_gpu ? TRAJD_I16 : dtype))
        return trajd_argument_refuse(argument, error, "has type %s, and the result has %s",
                                     trajd_dtype_name(out->dtype), trajd_dtype_name(dtype));
    if (!out->is_writeable)
        return trajd_argument_refuse(argument, error, "is read-only");
    if (out->shape[last] > 1 && out->strides_bytes[last] != trajd_dtype_size(dtype))
        return trajd_argument_refuse(argument, error,
                                     "has gaps in its last dimension: pass an array whose last "
                                     "dimension is dense");
    for (int i = 0; i < last; i++)
        if (out->shape[i] > 1 &&
            out->strides_bytes[i] < out->shape[last] * out->strides_bytes[last])
            return trajd_argument_refuse(argument, error,
                                         "has rows that overlap or go backwards: pass a dense "
                                         "array");
    return TRAJD_OK;
}

/* Refuses an output that may share memory with an input or with another output. */
static enum trajd_status check_apart(const struct trajd_py_call *call, uint32_t index,
                                     const struct trajd_py_array *out,
                                     struct trajd_argument argument, struct trajd_error *error)
{
    bool shares = overlap(out, &call->targets);

    for (uint32_t s = 0; s < call->stream_count; s++) {
        const struct trajd_py_stream *stream = &call->streams[s];
        shares |= overlap(out, &stream->values) || overlap(out, &stream->times) ||
                  overlap(out, &stream->row_splits);
        shares |= out != &stream->out && s <= index && overlap(out, &stream->out);
        shares |= out != &stream->mask && s <= index && overlap(out, &stream->mask);
    }
    return shares ? trajd_argument_refuse(argument, error,
                                          "shares memory with another argument: pass an array of "
                                          "its own")
                  : TRAJD_OK;
}

enum trajd_status trajd_py_call_check_outputs(const struct trajd_py_call *call,
                                              struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t s = 0; s < call->stream_count && !status; s++) {
        const struct trajd_py_stream *stream = &call->streams[s];
        const struct trajd_argument of_out = {stream->label, "out"},
                                    of_mask = {stream->label, "out[1] (the mask)"};
        if (stream->out.rank) {
            status = check_form(call, &stream->out, of_out, stream->output_type,
                                stream->values.shape[stream->values.rank - 1], error);
            if (!status)
                status = check_apart(call, s, &stream->out, of_out, error);
        }
        if (!status && stream->mask.rank) {
            status = check_form(call, &stream->mask, of_mask, TRAJD_U8, 0, error);
            if (!status)
                status = check_apart(call, s, &stream->mask, of_mask, error);
        }
    }
    return status;
}
