/* The extension module trajd._core: its functions, its types and the exceptions that it raises. */
#include "clients/python/core/py_core.h"
#include "clients/python/core/py_resample.h"
#include "proto/array_len.h"

/* The exception classes of the package, by status, and ForkError after them. errors.py sets them
 * once. */
static PyObject *error_classes;

PyObject *trajd_py_raise(const struct trajd_error *error)
{
    PyObject *class = error_classes ? PyList_GetItem(error_classes, error->status) : NULL;
    if (!class)
        return PyErr_Format(PyExc_RuntimeError, "%s: %s", trajd_status_name(error->status),
                            error->message);
    PyObject *message =
        PyUnicode_DecodeUTF8(error->message, (Py_ssize_t)strlen(error->message), "replace");
    if (!message)
        return NULL;
    PyErr_SetObject(class, message);
    Py_DECREF(message);
    return NULL;
}

void trajd_py_raise_fork(void)
{
    PyObject *class = error_classes ? PyList_GetItem(error_classes, TRAJD_END_OF_EPOCH + 1) : NULL;
    PyErr_SetString(class ? class : PyExc_RuntimeError,
                    "this process was forked after its parent connected, and a connection belongs "
                    "to one process: "
                    "connect again here, or start processes by spawn");
}

void trajd_py_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_Free(object);
    Py_DECREF(type);
}

PyObject *trajd_py_shape(const uint64_t *shape, uint32_t rank)
{
    PyObject *tuple = PyTuple_New(rank);
    for (uint32_t i = 0; tuple && i < rank; i++) {
        PyObject *extent = PyLong_FromUnsignedLongLong(shape[i]);
        if (!extent || PyTuple_SetItem(tuple, i, extent) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *set_errors(PyObject *module, PyObject *list)
{
    (void)module;
    if (!PyList_Check(list) || PyList_Size(list) != TRAJD_END_OF_EPOCH + 2)
        return PyErr_Format(PyExc_TypeError, "set_errors needs a list of %d classes",
                            TRAJD_END_OF_EPOCH + 2);
    Py_INCREF(list);
    Py_XDECREF(error_classes);
    error_classes = list;
    Py_RETURN_NONE;
}

static PyObject *gpu_uuid(PyObject *module, PyObject *argument)
{
    char uuid[48];
    struct trajd_error error = {0};
    const long ordinal = PyLong_AsLong(argument);
    (void)module;
    if (PyErr_Occurred())
        return NULL;
    if (trajd_gpu_uuid(ordinal >= 0 && ordinal < INT16_MAX ? (int)ordinal : -1, uuid, &error))
        return trajd_py_raise(&error);
    return PyUnicode_FromString(uuid);
}

static PyMethodDef functions[] = {
    {"gpu_uuid", gpu_uuid, METH_O,
     "Returns the UUID of the GPU that this process counts as the argument."},
    {"set_errors", set_errors, METH_O,
     "Sets the exception classes, by the number of their status."},
    {"resample", trajd_py_resample, METH_VARARGS,
     "Resamples streams on one grid of targets: see _core.pyi."},
    {"resample_cuda", trajd_py_resample_cuda, METH_VARARGS,
     "Launches the same for tensors on a GPU: see _core.pyi."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "trajd._core",
                                        .m_doc = "libtrajd for Python.", .m_size = -1,
                                        .m_methods = functions};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    static PyTypeObject *client_type, *live_type;
    const struct {
        const char *name;
        PyType_Spec *spec;
        PyTypeObject **type;
    } types[] = {{"Client", &trajd_py_client_spec, &client_type},
                 {"Batch", &trajd_py_batch_spec, &trajd_py_batch_type},
                 {"Tensor", &trajd_py_tensor_spec, &trajd_py_tensor_type},
                 {"Ring", &trajd_py_ring_spec, &trajd_py_ring_type},
                 {"Live", &trajd_py_live_spec, &live_type}};
    PyObject *module = PyModule_Create(&definition);
    for (size_t i = 0; module && i < ARRAY_LEN(types); i++) {
        /* one reference for the module, one for the static variable */
        PyObject *type = PyType_FromSpec(types[i].spec);
        *types[i].type = (PyTypeObject *)type;
        Py_XINCREF(type);
        if (!type || PyModule_AddObject(module, types[i].name, type) != 0) {
            Py_XDECREF(type);
            Py_CLEAR(module);
        }
    }
    if (module && PyModule_AddStringConstant(module, "version", TRAJD_VERSION) != 0)
        Py_CLEAR(module);
    return module;
}
