#include "clients/python/core/py_dlpack.h"

#include <stdlib.h>
#include <string.h>

#include "clients/python/core/py_core.h"

/* A capsule's content: one block, freed by the consumer in any thread, with or without the GIL. */
struct export
{
    union {
        struct dlpack_managed managed;
        struct dlpack_versioned versioned;
    };
    struct trajd_lease *lease; /* NULL: the data is in `copy` */
    void *copy;
    int64_t shape[TRAJD_TENSOR_RANK_LIMIT], strides[TRAJD_TENSOR_RANK_LIMIT];
};

static void drop(struct export *export)
{
    trajd_lease_drop(export->lease);
    free(export->copy);
    free(export);
}

static void delete_managed(struct dlpack_managed *managed)
{
    drop(managed->context);
}

static void delete_versioned(struct dlpack_versioned *versioned)
{
    drop(versioned->context);
}

/* Frees a capsule that was not consumed. A consumer renames its capsule. */
static void destroy_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        delete_managed(PyCapsule_GetPointer(capsule, "dltensor"));
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        delete_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

static struct dlpack_dtype describe(enum trajd_dtype dtype)
{
    static const uint8_t codes[TRAJD_DTYPE_COUNT] = {
        [TRAJD_F16] = DLPACK_FLOAT, [TRAJD_BF16] = DLPACK_BFLOAT, [TRAJD_F32] = DLPACK_FLOAT,
        [TRAJD_F64] = DLPACK_FLOAT, [TRAJD_I8] = DLPACK_INT,      [TRAJD_I16] = DLPACK_INT,
        [TRAJD_I32] = DLPACK_INT,   [TRAJD_I64] = DLPACK_INT,     [TRAJD_U8] = DLPACK_UINT,
        [TRAJD_U16] = DLPACK_UINT,  [TRAJD_U32] = DLPACK_UINT,    [TRAJD_U64] = DLPACK_UINT,
        [TRAJD_BOOL] = DLPACK_BOOL,
    };
    return (struct dlpack_dtype){codes[dtype], (uint8_t)(8 * trajd_dtype_size(dtype)), 1};
}

static size_t size_of(const struct trajd_view *view)
{
    size_t size_bytes = trajd_dtype_size(view->dtype);
    for (int i = 0; i < view->rank; i++)
        size_bytes *= (size_t)view->shape[i];
    return size_bytes;
}

static struct export *create(struct trajd_lease *lease, const struct trajd_view *view, bool copy)
{
    struct export *export = calloc(1, sizeof *export);
    const size_t size_bytes = size_of(view);
    if (export && copy)
        export->copy = aligned_alloc(64, (size_bytes + 63) / 64 * 64 + 64);
    if (!export || (copy && !export->copy)) {
        free(export);
        return NULL;
    }
    if (copy)
        memcpy(export->copy, view->data, size_bytes);
    else
        export->lease = trajd_lease_hold(lease);
    for (int i = 0; i < view->rank; i++) {
        export->shape[i] = view->shape[i];
        export->strides[i] = view->strides_bytes[i] / (int64_t)trajd_dtype_size(view->dtype);
    }
    return export;
}

PyObject *trajd_py_dlpack(struct trajd_lease *lease, const struct trajd_view *view, bool versioned,
                          bool copy)
{
    struct export *export = create(lease, view, copy);
    if (!export)
        return PyErr_NoMemory();
    const struct dlpack_tensor tensor = {
        .data = copy ? export->copy : view->data,
        .device = {view->gpu < 0 ? DLPACK_CPU : DLPACK_CUDA, view->gpu < 0 ? 0 : view->gpu},
        .rank = view->rank,
        .dtype = describe(view->dtype),
        .shape = export->shape,
        .strides = export->strides};
    if (versioned)
        export->versioned = (struct dlpack_versioned){
            .major = 1,
            .context = export,
            .deleter = delete_versioned,
            .flags = copy ? DLPACK_IS_COPIED : (view->read_only ? DLPACK_READ_ONLY : 0),
            .tensor = tensor};
    else
        export->managed =
            (struct dlpack_managed){.tensor = tensor, .context = export, .deleter = delete_managed};
    PyObject *capsule =
        PyCapsule_New(export, versioned ? "dltensor_versioned" : "dltensor", destroy_capsule);
    if (!capsule)
        drop(export);
    return capsule;
}
