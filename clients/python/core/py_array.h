/* Arrays that Python passes to trajd.resample: views of numpy arrays, read through numpy's array
 * struct, and the times in them as int64 ns. */
#ifndef TRAJD_PYTHON_CORE_PY_ARRAY_H
#define TRAJD_PYTHON_CORE_PY_ARRAY_H

#include "clients/python/core/py_core.h"

#define TRAJD_ARRAY_RANK_LIMIT 3

/* The C side of numpy's array interface
 * (https://numpy.org/doc/stable/reference/arrays.interface.html). */
struct trajd_py_array_struct {
    int two;
    int rank;
    char kind;
    int item_size;
    int flags;
    Py_ssize_t *shape, *strides_bytes;
    void *data;
    PyObject *description;
};

enum {
    TRAJD_ARRAY_C_CONTIGUOUS = 0x1,
    TRAJD_ARRAY_ALIGNED = 0x100,
    TRAJD_ARRAY_NOT_SWAPPED = 0x200,
    TRAJD_ARRAY_WRITEABLE = 0x400
};

/* The name of an argument for messages: "times", or "streams['force']: times". */
struct trajd_argument {
    const char *label; /* the stream's name; NULL: there is only one */
    const char *name;
};

/* Borrowed from a Python object, which the caller keeps. */
struct trajd_py_array {
    char *data;
    int rank; /* 0: the argument was not given */
    int64_t shape[TRAJD_ARRAY_RANK_LIMIT], strides_bytes[TRAJD_ARRAY_RANK_LIMIT];
    enum trajd_dtype dtype;
    bool is_writeable, is_on_gpu;
};

/* Fills *error with "ARGUMENT: ..." or "streams['NAME']: ARGUMENT: ..." and returns
 * TRAJD_ERR_ARGUMENT. Needs no GIL. */
enum trajd_status trajd_argument_refuse(struct trajd_argument argument, struct trajd_error *error,
                                        const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for an object that Python could not read. Takes the exception that Python has set, if
 * any: where that is a lack of memory, the argument has no fault, and TRAJD_ERR_MEMORY is returned.
 * The caller holds the GIL. */
enum trajd_status trajd_argument_fail(struct trajd_argument argument, const char *message,
                                      struct trajd_error *error);

/* Views the array of an object with __array_struct__, or a tensor on a GPU, which is a tuple (address,
 * shape, strides in elements, name of its type, tensor). Refuses other objects, ranks outside
 * [min_rank, max_rank], and types that are not of enum trajd_dtype. `shapes` describes what is
 * expected: "[B, S, D] or [S, D]". */
enum trajd_status trajd_py_array_read(PyObject *object, struct trajd_argument argument,
                                      int min_rank, int max_rank, const char *shapes,
                                      struct trajd_py_array *array, struct trajd_error *error);

/* Writes "(256, 32, 7)", at most 80 bytes. */
const char *trajd_py_array_shape_text(const struct trajd_py_array *array, char text[80]);

/* int64 stamps of a times array: row w begins at stamps_ns + w * row_stride. */
struct trajd_py_times {
    const int64_t *stamps_ns;
    int64_t row_stride; /* in stamps; 0: all rows are the same */
};

/* Returns the stamps that trajd_py_times_read writes into `room`; 0 if the array itself serves.
 * is_packed: rows must follow each other without a gap. */
uint64_t trajd_py_times_room(const struct trajd_py_array *array, bool is_packed);

/* Refuses times that are neither int64 ns nor float64 seconds. */
enum trajd_status trajd_py_times_check_type(const struct trajd_py_array *array,
                                            struct trajd_argument argument,
                                            struct trajd_error *error);

/* Views or converts times whose type is checked: seconds are rounded to the nearest ns (half away
 * from zero). Refuses values that are not finite, and seconds so large that neighbouring
 * numbers are more than a ns apart. Uses no Python. */
enum trajd_status trajd_py_times_read(const struct trajd_py_array *array, bool is_packed,
                                      struct trajd_argument argument, int64_t *room,
                                      struct trajd_py_times *times, struct trajd_error *error);

/* Refuses a stamp before its neighbour on the left, in rows of `count` stamps. */
enum trajd_status trajd_py_times_check_order(const struct trajd_py_times *times, int64_t row_count,
                                             int64_t count, struct trajd_argument argument,
                                             struct trajd_error *error);

#endif
