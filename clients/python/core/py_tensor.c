/* A Tensor: a view of a leased batch, for numpy and as DLPack producer. */
#include <stdlib.h>
#include <string.h>

#include "clients/python/core/py_array.h"
#include "clients/python/core/py_core.h"

/* ---- the structs of DLPack 1.0 (https://dmlc.github.io/dlpack/latest/c_api.html) ---- */

#define DLPACK_CPU 1
#define DLPACK_CUDA 2
#define DLPACK_READ_ONLY UINT64_C(1)
#define DLPACK_IS_COPIED UINT64_C(2)

enum dlpack_code {
    DLPACK_INT = 0,
    DLPACK_UINT = 1,
    DLPACK_FLOAT = 2,
    DLPACK_BFLOAT = 4,
    DLPACK_BOOL = 6
};

struct dlpack_device {
    int32_t type, id;
};

struct dlpack_dtype {
    uint8_t code, bits;
    uint16_t lanes;
};

struct dlpack_tensor {
    void *data;
    struct dlpack_device device;
    int32_t rank;
    struct dlpack_dtype dtype;
    int64_t *shape, *strides; /* the strides count elements */
    uint64_t offset_bytes;
};

struct dlpack_managed {
    struct dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct dlpack_managed *);
};

struct dlpack_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dlpack_versioned *);
    uint64_t flags;
    struct dlpack_tensor tensor;
};

/* ---- the object ---- */

struct tensor_object {
    PyObject_HEAD struct trajd_lease *lease;
    struct trajd_view view;
    struct trajd_py_array_struct array;
};

PyTypeObject *trajd_py_tensor_type;

static char kind_of(enum trajd_dtype dtype)
{
    switch (dtype) {
    case TRAJD_F16:
    case TRAJD_F32:
    case TRAJD_F64:
        return 'f';
    case TRAJD_I8:
    case TRAJD_I16:
    case TRAJD_I32:
    case TRAJD_I64:
        return 'i';
    case TRAJD_BOOL:
        return 'b';
    default:
        return 'u'; /* bf16 appears as uint16, because numpy has no such type */
    }
}

PyObject *trajd_py_tensor_create(struct trajd_lease *lease, const struct trajd_view *view)
{
    struct tensor_object *self =
        (struct tensor_object *)PyType_GenericAlloc(trajd_py_tensor_type, 0);
    if (!self)
        return NULL;
    self->lease = trajd_lease_hold(lease);
    self->view = *view;
    self->array = (struct trajd_py_array_struct){
        .two = 2,
        .rank = view->rank,
        .kind = kind_of(view->dtype),
        .item_size = (int)trajd_dtype_size(view->dtype),
        .flags = TRAJD_ARRAY_C_CONTIGUOUS | TRAJD_ARRAY_ALIGNED | TRAJD_ARRAY_NOT_SWAPPED |
                 (view->read_only ? 0 : TRAJD_ARRAY_WRITEABLE),
        .shape = self->view.shape,
        .strides_bytes = self->view.strides_bytes,
        .data = view->data};
    return (PyObject *)self;
}

static void tensor_dealloc(PyObject *object)
{
    struct tensor_object *self = (struct tensor_object *)object;
    trajd_lease_drop(self->lease);
    trajd_py_free(object);
}

/* ---- DLPack ---- */

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

/* Returns a capsule, "dltensor_versioned" if `versioned`. It holds the lease, or with `copy` memory
 * of its own. */
static PyObject *dlpack(struct trajd_lease *lease, const struct trajd_view *view, bool versioned,
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

PyObject *trajd_py_tensor_capsule(struct trajd_lease *lease, const struct trajd_view *view)
{
    return dlpack(lease, view, view->read_only, false);
}

static int is_this_device(PyObject *device, const struct trajd_view *view)
{
    int type, id;
    if (device == Py_None)
        return 1;
    if (!PyArg_Parse(device, "(ii);dl_device is a pair of integers", &type, &id))
        return -1;
    return view->gpu < 0 ? type == DLPACK_CPU && id == 0 : type == DLPACK_CUDA && id == view->gpu;
}

/* Names the stream on which the consumer will read. It need not wait for anything, because a batch
 * is delivered after the GPU has made it. None is the legacy default stream. -1 means that the
 * consumer names its streams by Batch.use_stream. Returns false with an exception. */
static bool note_stream(const struct tensor_object *self, PyObject *stream)
{
    struct trajd_error error = {0};
    const long long number = stream == Py_None ? 1 : PyLong_AsLongLong(stream);
    if (PyErr_Occurred())
        return false;
    if (number < -1) {
        PyErr_SetString(PyExc_ValueError, "stream: must be a stream's handle, 1, 2 or -1");
        return false;
    }
    if (self->view.gpu < 0 && stream != Py_None && number != -1) {
        PyErr_SetString(PyExc_ValueError,
                        "stream: this batch is in host memory, which has no streams");
        return false;
    }
    if (self->view.gpu < 0 || number == -1)
        return true;
    if (!trajd_batch_use_stream(trajd_lease_batch(self->lease), (uintptr_t)number, &error))
        return true;
    trajd_py_raise(&error);
    return false;
}

static int is_versioned_wanted(PyObject *max_version)
{
    unsigned major, minor;
    if (max_version == Py_None)
        return 0;
    if (!PyArg_Parse(max_version, "(II);max_version is a pair of integers", &major, &minor))
        return -1;
    return major >= 1;
}

static PyObject *refuse_read_only(void)
{
    PyErr_SetString(PyExc_BufferError,
                    "other jobs read this memory, so it is read-only, which an unversioned DLPack "
                    "capsule cannot say: use copy=True, or a consumer that passes "
                    "max_version=(1, 0)");
    return NULL;
}

static PyObject *tensor_dlpack(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    struct tensor_object *self = (struct tensor_object *)object;
    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO", names, &stream, &max_version,
                                     &device, &copy))
        return NULL;
    const int same_device = is_this_device(device, &self->view),
              versioned = is_versioned_wanted(max_version);
    const int copies = copy == Py_None ? 0 : PyObject_IsTrue(copy);
    if (same_device < 0 || versioned < 0 || copies < 0)
        return NULL;
    if (!same_device || (copies && self->view.gpu >= 0)) {
        PyErr_SetString(
            PyExc_BufferError,
            self->view.gpu < 0
                ? "dl_device: this batch is in host memory, device (1, 0)"
                : "dl_device, copy: this batch is on a GPU, and can only be read there");
        return NULL;
    }
    if (!note_stream(self, stream))
        return NULL;
    if (self->view.read_only && !versioned && !copies)
        return refuse_read_only();
    return dlpack(self->lease, &self->view, versioned, copies);
}

static PyObject *tensor_dlpack_device(PyObject *object, PyObject *unused)
{
    const int gpu = ((struct tensor_object *)object)->view.gpu;
    (void)unused;
    return gpu < 0 ? Py_BuildValue("(ii)", DLPACK_CPU, 0) : Py_BuildValue("(ii)", DLPACK_CUDA, gpu);
}

/* ---- numpy and the rest ---- */

static void drop_array_capsule(PyObject *capsule)
{
    Py_XDECREF((PyObject *)PyCapsule_GetContext(capsule));
}

static PyObject *tensor_array_struct(PyObject *object, void *unused)
{
    struct tensor_object *self = (struct tensor_object *)object;
    (void)unused;
    if (self->view.gpu >= 0) {
        PyErr_SetString(PyExc_AttributeError, "this batch is on a GPU, where numpy cannot read it");
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(&self->array, NULL, drop_array_capsule);
    if (!capsule)
        return NULL;
    Py_INCREF(object);
    PyCapsule_SetContext(capsule, object);
    return capsule;
}

static PyObject *tensor_shape(PyObject *object, void *unused)
{
    const struct tensor_object *self = (const struct tensor_object *)object;
    (void)unused;
    PyObject *shape = PyTuple_New(self->view.rank);
    for (int i = 0; shape && i < self->view.rank; i++) {
        PyObject *extent = PyLong_FromSsize_t(self->view.shape[i]);
        if (!extent || PyTuple_SetItem(shape, i, extent) != 0)
            Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *tensor_dtype(PyObject *object, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(trajd_dtype_name(((struct tensor_object *)object)->view.dtype));
}

static PyMethodDef methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))tensor_dlpack, METH_VARARGS | METH_KEYWORDS,
     "Returns a DLPack capsule, versioned if max_version is (1, 0) or later. The memory stays "
     "leased until the consumer frees it."},
    {"__dlpack_device__", tensor_dlpack_device, METH_NOARGS,
     "Returns (1, 0) for host memory, (2, N) for GPU N."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"__array_struct__", tensor_array_struct, NULL,
     "numpy's array interface. bf16 appears as uint16.", NULL},
    {"shape", tensor_shape, NULL, "The shape; the first dimension is this worker's rows.", NULL},
    {"dtype", tensor_dtype, NULL, "trajd's name of the dtype: f32, bf16, i64, u8, ...", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"address", T_ULONGLONG, offsetof(struct tensor_object, view.data), READONLY,
     "The address of the first element."},
    {"read_only", T_BOOL, offsetof(struct tensor_object, view.read_only), READONLY,
     "True if other jobs read the same memory."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot tensor_slots[] = {
    {Py_tp_dealloc, tensor_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_tp_members, members},
    {Py_tp_doc, "A view of a leased batch. It keeps the lease."},
    {0, NULL},
};
PyType_Spec trajd_py_tensor_spec = {"trajd._core.Tensor", sizeof(struct tensor_object), 0,
                                    Py_TPFLAGS_DEFAULT, tensor_slots};
