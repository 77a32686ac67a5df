/* One call of trajd.resample: its arguments as C, and the request made of them. The calling order
 * is read, allocate the outputs, plan (all with the GIL), then run (without it). */
#ifndef TRAJD_PYTHON_CORE_PY_RESAMPLE_H
#define TRAJD_PYTHON_CORE_PY_RESAMPLE_H

#include "clients/python/core/py_array.h"
#include "clients/python/core/py_plans.h"

/* The arguments of one stream. Objects are owned. */
struct trajd_py_stream {
    const char *label; /* of resample_many; NULL: of resample */
    PyObject *values_object, *out_object, *mask_object;
    struct trajd_py_array values, times, row_splits, out, mask;
    int64_t *splits; /* a copy of row_splits, which other threads may write into; NULL: not given */
    enum trajd_dtype source_type, output_type;
    enum trajd_kind kind;
    enum trajd_edge edge;
    int64_t max_gap_ns, max_age_ns, width_ns;
    double period, range_low;
    bool is_causal;
    uint32_t bracket_index; /* that of the first stream with the same rows */
    /* On a GPU: row_begin, row_count and anchor of struct trajd_bracket. 0: all rows of the batch
     * have S rows, one after the other. */
    uintptr_t row_arrays[3];
};

struct trajd_py_call {
    struct trajd_py_stream *streams;
    uint32_t stream_count;
    struct trajd_py_array targets;
    int64_t batch; /* B; -1: no argument has a batch dimension */
    int64_t step_count;
    int gpu;           /* TRAJD_PY_HOST, or the number of the GPU that has all arrays */
    void *cuda_stream; /* of that GPU */
};

/* py_resample_read.c: reads the tuple of a stream that trajd/resampling.py makes. With the GIL. */
enum trajd_status trajd_py_stream_read(PyObject *tuple, struct trajd_py_stream *stream,
                                       struct trajd_error *error);
void trajd_py_stream_clear(struct trajd_py_stream *stream);

/* py_resample_shapes.c: reads `targets`, copies row_splits, and checks that the types of times and
 * the shapes of all arguments agree. */
enum trajd_status trajd_py_call_settle(PyObject *targets, struct trajd_py_call *call,
                                       struct trajd_error *error);
/* Checks the outputs, which may be the caller's: shape, type, layout, and that they lie apart from
 * the inputs. */
enum trajd_status trajd_py_call_check_outputs(const struct trajd_py_call *call,
                                              struct trajd_error *error);

/* py_resample_run.c */
struct trajd_py_request; /* the request with its arrays of B, in one block of memory */
/* Makes the request of a call whose outputs exist. The caller frees it with free(). */
enum trajd_status trajd_py_request_create(const struct trajd_py_call *call,
                                          struct trajd_py_request **request,
                                          struct trajd_error *error);
const struct trajd_resample_request *trajd_py_request_shape(const struct trajd_py_request *request);
/* Converts the times, checks their order, and runs the request. On a GPU it does neither, and launches
 * the request. Uses no Python. */
enum trajd_status trajd_py_request_run(const struct trajd_py_call *call,
                                       struct trajd_py_request *request,
                                       const struct trajd_shape_plan *plan,
                                       struct trajd_error *error);

/* py_resample.c: the functions of the module. */
PyObject *trajd_py_resample(PyObject *module, PyObject *arguments);
PyObject *trajd_py_resample_cuda(PyObject *module, PyObject *arguments);

#endif
