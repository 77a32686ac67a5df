/* A Batch, its lease and its Ring. The lease is the batch and the count of its references. No
 * function of it needs Python, so the last reference may be dropped by a thread without the GIL, or
 * after the interpreter has ended. */
#include <stdlib.h>

#include "clients/python/core/py_core.h"
#include "proto/ring_layout.h"

struct trajd_lease {
    int64_t references; /* atomic */
    struct trajd_batch *batch;
};

struct trajd_lease *trajd_lease_create(struct trajd_batch *batch)
{
    struct trajd_lease *lease = malloc(sizeof *lease);
    if (lease)
        *lease = (struct trajd_lease){.references = 1, .batch = batch};
    return lease;
}

struct trajd_lease *trajd_lease_hold(struct trajd_lease *lease)
{
    /* relaxed: the caller already holds a reference */
    __atomic_add_fetch(&lease->references, 1, __ATOMIC_RELAXED);
    return lease;
}

void trajd_lease_drop(struct trajd_lease *lease)
{
    /* acquire and release: all reads by other threads happen before the memory goes back */
    if (!lease || __atomic_sub_fetch(&lease->references, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    trajd_batch_release(&lease->batch);
    free(lease);
}

void trajd_lease_abandon(struct trajd_lease *lease)
{
    if (__atomic_sub_fetch(&lease->references, 1, __ATOMIC_ACQ_REL) != 0) /* the same */
        return;
    trajd_batch_abandon(&lease->batch);
    free(lease);
}

int64_t trajd_lease_count(const struct trajd_lease *lease)
{
    /* acquire: earlier drops by other threads are complete */
    return __atomic_load_n(&lease->references, __ATOMIC_ACQUIRE);
}

struct trajd_batch *trajd_lease_batch(const struct trajd_lease *lease)
{
    return lease->batch;
}

/* ---- the batch ---- */

struct batch_object {
    PyObject_HEAD struct trajd_lease *lease; /* NULL after release */
    struct trajd_batch_info info;
    bool writable;
};

struct ring_object {
    PyObject_HEAD struct trajd_ring *ring;
    struct trajd_ring_info info;
};

PyTypeObject *trajd_py_batch_type, *trajd_py_ring_type;

PyObject *trajd_py_batch_create(struct trajd_batch *batch)
{
    struct batch_object *self = (struct batch_object *)PyType_GenericAlloc(trajd_py_batch_type, 0);
    struct trajd_lease *lease = self ? trajd_lease_create(batch) : NULL;
    if (!lease) {
        Py_XDECREF(self);
        trajd_batch_release(&batch);
        return PyErr_NoMemory();
    }
    trajd_batch_get_info(batch, &self->info);
    self->lease = lease;
    self->writable = trajd_batch_is_writable(batch);
    return (PyObject *)self;
}

static void batch_dealloc(PyObject *object)
{
    trajd_lease_drop(((struct batch_object *)object)->lease);
    trajd_py_free(object);
}

/* Returns the batch. NULL with an exception after its release. */
static struct trajd_batch *batch_of(PyObject *object)
{
    struct batch_object *self = (struct batch_object *)object;
    if (self->lease)
        return trajd_lease_batch(self->lease);
    PyErr_SetString(PyExc_ValueError, "this batch is released");
    return NULL;
}

/* ---- views ---- */

/* Returns (dtype, is_planes, scale, shift), or None for a finished tensor. */
static PyObject *describe_finish(const struct trajd_finish *finish)
{
    if (!finish)
        Py_RETURN_NONE;
    const Py_ssize_t size = (Py_ssize_t)(finish->channel_count * sizeof(float));
    return Py_BuildValue("(sOy#y#)", trajd_dtype_name(finish->dtype),
                         finish->is_planes ? Py_True : Py_False, (const char *)finish->scale, size,
                         (const char *)finish->shift, size);
}

static PyObject *batch_schema(PyObject *object, PyObject *unused)
{
    const struct trajd_batch *batch = batch_of(object);
    (void)unused;
    const uint32_t count = batch ? trajd_batch_tensor_count(batch) : 0;
    PyObject *list = batch ? PyList_New(0) : NULL;
    for (uint32_t i = 0; list && i < count; i++) {
        const struct trajd_tensor *tensor = trajd_batch_tensor(batch, i);
        PyObject *entry = Py_BuildValue(
            "(sszsNN)", tensor->name, tensor->role, tensor->of, trajd_dtype_name(tensor->dtype),
            trajd_py_shape(tensor->shape + 1, tensor->rank - 1), describe_finish(tensor->finish));
        if (!entry || PyList_Append(list, entry) != 0)
            Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    return list;
}

/* Describes the tensor with the index that `argument` is. Returns false with an exception. */
static bool view_of(PyObject *object, PyObject *argument, struct trajd_view *view)
{
    const struct batch_object *self = (const struct batch_object *)object;
    const struct trajd_batch *batch = batch_of(object);
    const unsigned long index = batch ? PyLong_AsUnsignedLong(argument) : 0;
    if (!batch || PyErr_Occurred())
        return false;
    const struct trajd_tensor *tensor =
        index < UINT32_MAX ? trajd_batch_tensor(batch, (uint32_t)index) : NULL;
    if (!tensor) {
        PyErr_Format(PyExc_IndexError, "tensor %lu of %u", index, trajd_batch_tensor_count(batch));
        return false;
    }
    *view = (struct trajd_view){.data = tensor->data,
                                .dtype = tensor->dtype,
                                .rank = (int)tensor->rank,
                                .read_only = !self->writable,
                                .gpu = trajd_batch_gpu(batch)};
    for (uint32_t i = 0; i < tensor->rank; i++) {
        view->shape[i] = (Py_ssize_t)tensor->shape[i];
        view->strides_bytes[i] = (Py_ssize_t)tensor->strides_bytes[i];
    }
    return true;
}

static PyObject *batch_tensor(PyObject *object, PyObject *argument)
{
    struct trajd_view view;
    return view_of(object, argument, &view)
               ? trajd_py_tensor_create(((struct batch_object *)object)->lease, &view)
               : NULL;
}

/* Older versions of torch do not take bool from DLPack. Its bytes are 0 and 1, so they go as u8. */
static PyObject *batch_capsule(PyObject *object, PyObject *argument)
{
    struct trajd_view view;
    if (!view_of(object, argument, &view))
        return NULL;
    if (view.dtype == TRAJD_BOOL)
        view.dtype = TRAJD_U8;
    return trajd_py_tensor_capsule(((struct batch_object *)object)->lease, &view);
}

/* Returns the bytes from the first tensor to the end of the last one. They begin at a multiple of
 * TRAJD_TENSOR_ALIGNMENT, which is enough for every dtype. */
static PyObject *batch_slab(PyObject *object, PyObject *unused)
{
    struct batch_object *self = (struct batch_object *)object;
    const struct trajd_batch *batch = batch_of(object);
    (void)unused;
    if (!batch)
        return NULL;
    uintptr_t begin = UINTPTR_MAX, end = 0;
    for (uint32_t i = 0; i < trajd_batch_tensor_count(batch); i++) {
        const struct trajd_tensor *tensor = trajd_batch_tensor(batch, i);
        const uintptr_t data = (uintptr_t)tensor->data;
        const uintptr_t tensor_end = data + tensor->shape[0] * (uint64_t)tensor->strides_bytes[0];
        begin = data < begin ? data : begin;
        end = tensor_end > end ? tensor_end : end;
    }
    begin = end == 0 ? 0 : begin - begin % TRAJD_TENSOR_ALIGNMENT;
    const struct trajd_view view = {.data = (void *)begin,
                                    .dtype = TRAJD_U8,
                                    .rank = 1,
                                    .shape = {(Py_ssize_t)(end - begin)},
                                    .strides_bytes = {1},
                                    .read_only = !self->writable,
                                    .gpu = trajd_batch_gpu(batch)};
    return trajd_py_tensor_create(self->lease, &view);
}

static PyObject *batch_ring(PyObject *object, PyObject *unused)
{
    const struct trajd_batch *batch = batch_of(object);
    struct trajd_ring_info info;
    (void)unused;
    if (!batch)
        return NULL;
    struct trajd_ring *ring = trajd_batch_hold_ring(batch, &info);
    if (!ring)
        Py_RETURN_NONE;
    struct ring_object *self = (struct ring_object *)PyType_GenericAlloc(trajd_py_ring_type, 0);
    if (!self) {
        trajd_ring_drop(&ring);
        return NULL;
    }
    self->ring = ring;
    self->info = info;
    return (PyObject *)self;
}

/* ---- streams and the end ---- */

static PyObject *batch_use_stream(PyObject *object, PyObject *argument)
{
    struct trajd_batch *batch = batch_of(object);
    struct trajd_error error = {0};
    const unsigned long long stream = batch ? PyLong_AsUnsignedLongLong(argument) : 0;
    if (!batch || PyErr_Occurred())
        return NULL;
    if (trajd_batch_use_stream(batch, (uintptr_t)stream, &error))
        return trajd_py_raise(&error);
    Py_RETURN_NONE;
}

static PyObject *batch_gpu(PyObject *object, void *unused)
{
    const struct trajd_batch *batch = batch_of(object);
    (void)unused;
    return batch ? PyLong_FromLong(trajd_batch_gpu(batch)) : NULL;
}

static PyObject *batch_done(PyObject *object, PyObject *unused)
{
    struct trajd_batch *batch = batch_of(object);
    (void)unused;
    if (!batch)
        return NULL;
    trajd_batch_done(batch);
    Py_RETURN_NONE;
}

static PyObject *batch_release(PyObject *object, PyObject *unused)
{
    struct batch_object *self = (struct batch_object *)object;
    (void)unused;
    const int64_t others = self->lease ? trajd_lease_count(self->lease) - 1 : 0;
    if (others > 0) {
        PyErr_Format(PyExc_BufferError,
                     "release: %lld tensors of this batch are in use: drop them first; the memory "
                     "goes back with the last one",
                     (long long)others);
        return NULL;
    }
    trajd_lease_drop(self->lease);
    self->lease = NULL;
    Py_RETURN_NONE;
}

static PyObject *batch_abandon(PyObject *object, PyObject *unused)
{
    struct batch_object *self = (struct batch_object *)object;
    (void)unused;
    if (self->lease)
        trajd_lease_abandon(self->lease);
    self->lease = NULL;
    Py_RETURN_NONE;
}

static PyObject *batch_live(PyObject *object, void *unused)
{
    const struct batch_object *self = (const struct batch_object *)object;
    (void)unused;
    return PyLong_FromLongLong(self->lease ? trajd_lease_count(self->lease) - 1 : 0);
}

static PyObject *batch_released(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(!((struct batch_object *)object)->lease);
}

static PyMethodDef batch_methods[] = {
    {"schema", batch_schema, METH_NOARGS,
     "Returns a list of (name, role, output of a mask or None, dtype, shape of one row)."},
    {"tensor", batch_tensor, METH_O, "Returns the Tensor of that index in the schema."},
    {"capsule", batch_capsule, METH_O,
     "Returns a DLPack capsule of the tensor of that index, bool as u8. On a GPU its streams are "
     "named by use_stream."},
    {"slab", batch_slab, METH_NOARGS, "Returns the bytes of all tensors as one Tensor."},
    {"ring", batch_ring, METH_NOARGS, "Returns the Ring that contains the batch, or None."},
    {"use_stream", batch_use_stream, METH_O, "Names a stream whose work reads the batch on a GPU."},
    {"done", batch_done, METH_NOARGS, "Counts the batch as worked on. The memory stays leased."},
    {"release", batch_release, METH_NOARGS,
     "Gives the memory back. BufferError while tensors of the batch are alive."},
    {"abandon", batch_abandon, METH_NOARGS,
     "Drops the batch right before close, without counting it as worked on."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef batch_properties[] = {
    {"live", batch_live, NULL, "The number of Tensors and exports that keep the memory.", NULL},
    {"released", batch_released, NULL, NULL, NULL},
    {"gpu", batch_gpu, NULL, "The GPU that has the batch; below 0: host memory.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef batch_members[] = {
    {"epoch", T_ULONGLONG, offsetof(struct batch_object, info.epoch), READONLY, NULL},
    {"position", T_ULONGLONG, offsetof(struct batch_object, info.position), READONLY,
     "The position of the global batch's first window."},
    {"row_begin", T_UINT, offsetof(struct batch_object, info.row_begin), READONLY, NULL},
    {"row_count", T_UINT, offsetof(struct batch_object, info.row_count), READONLY, NULL},
    {"ready_ns", T_ULONGLONG, offsetof(struct batch_object, info.ready_ns), READONLY,
     "CLOCK_MONOTONIC when the daemon had the batch ready."},
    {"sequence", T_ULONGLONG, offsetof(struct batch_object, info.sequence), READONLY, NULL},
    {"writable", T_BOOL, offsetof(struct batch_object, writable), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot batch_slots[] = {
    {Py_tp_dealloc, batch_dealloc},
    {Py_tp_methods, batch_methods},
    {Py_tp_getset, batch_properties},
    {Py_tp_members, batch_members},
    {Py_tp_doc, "The leased rows of one global batch. The lease ends when the batch and all its "
                "tensors are gone."},
    {0, NULL},
};
PyType_Spec trajd_py_batch_spec = {"trajd._core.Batch", sizeof(struct batch_object), 0,
                                   Py_TPFLAGS_DEFAULT, batch_slots};

/* ---- the ring ---- */

static void ring_dealloc(PyObject *object)
{
    trajd_ring_drop(&((struct ring_object *)object)->ring);
    trajd_py_free(object);
}

static PyMemberDef ring_members[] = {
    {"base", T_ULONGLONG, offsetof(struct ring_object, info.base), READONLY,
     "Its address in this process."},
    {"size_bytes", T_ULONGLONG, offsetof(struct ring_object, info.size_bytes), READONLY, NULL},
    {"writable", T_BOOL, offsetof(struct ring_object, info.writable), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot ring_slots[] = {
    {Py_tp_dealloc, ring_dealloc},
    {Py_tp_members, ring_members},
    {Py_tp_doc, "A mapped ring. It keeps the mapping, but no batch."},
    {0, NULL},
};
PyType_Spec trajd_py_ring_spec = {"trajd._core.Ring", sizeof(struct ring_object), 0,
                                  Py_TPFLAGS_DEFAULT, ring_slots};
