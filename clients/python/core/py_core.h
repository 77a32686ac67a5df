/* trajd._core: libtrajd for Python, in the limited API of 3.9. A Client connects and waits, a Batch
 * owns a lease, and a Tensor is a view of it, as DLPack producer and as numpy's array struct. The
 * modules in ../trajd build the public package on it.
 *
 * Threads: one thread at a time may be in a call of a Client; other threads get RuntimeError. All
 * other objects may be used by any thread. The GIL is released wherever libtrajd may wait. The last
 * reference to a lease may be dropped without the GIL by any thread, even after the client is
 * closed and the interpreter has ended (py_batch.c). */
#ifndef TRAJD_PYTHON_CORE_PY_CORE_H
#define TRAJD_PYTHON_CORE_PY_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "clients/c/trajd.h"

/* A batch with a count of references: those of the Batch, its Tensors and their exports. */
struct trajd_lease;
/* Returns a lease with one reference. It takes over the batch. NULL: out of memory. */
struct trajd_lease *trajd_lease_create(struct trajd_batch *batch);
struct trajd_lease *trajd_lease_hold(struct trajd_lease *lease);
/* the last reference releases the batch; NULL is fine */
void trajd_lease_drop(struct trajd_lease *lease);
/* Drops a reference. The last one abandons the batch, which then does not count as worked on. */
void trajd_lease_abandon(struct trajd_lease *lease);
int64_t trajd_lease_count(const struct trajd_lease *lease);
struct trajd_batch *trajd_lease_batch(const struct trajd_lease *lease);

/* The memory of a Tensor, dense in C order. `data` is valid while the lease is held. */
struct trajd_view {
    void *data;
    enum trajd_dtype dtype;
    int rank;
    Py_ssize_t shape[TRAJD_TENSOR_RANK_LIMIT], strides_bytes[TRAJD_TENSOR_RANK_LIMIT];
    bool read_only;
    int gpu; /* the number by which this process counts the GPU; below 0: host memory */
};

/* The types, which py_module.c makes of their specs: of py_client.c, py_batch.c, py_tensor.c and py_live.c. */
extern PyTypeObject *trajd_py_batch_type, *trajd_py_tensor_type, *trajd_py_ring_type;
extern PyType_Spec trajd_py_client_spec, trajd_py_batch_spec, trajd_py_tensor_spec,
    trajd_py_ring_spec, trajd_py_live_spec;
/* Frees an object of these types, when its parts are gone. */
void trajd_py_free(PyObject *object);

/* A new tuple of extents; NULL with an exception. */
PyObject *trajd_py_shape(const uint64_t *shape, uint32_t rank);

/* New references; NULL with an exception. The first takes over the batch, even if it fails. */
PyObject *trajd_py_batch_create(struct trajd_batch *batch);
PyObject *trajd_py_tensor_create(struct trajd_lease *lease, const struct trajd_view *view);
/* A DLPack capsule of the view, which holds the lease: versioned where the memory is read-only. */
PyObject *trajd_py_tensor_capsule(struct trajd_lease *lease, const struct trajd_view *view);

/* py_module.c: raises the exception class of the status with the error's message, and returns
 * NULL. */
PyObject *trajd_py_raise(const struct trajd_error *error);
void trajd_py_raise_fork(void);

#endif
