/* trajd._core: libtrajd for Python, through the limited API (3.9). Client attaches and waits, Batch
 * owns a lease, Tensor is a view of it: DLPack producer and numpy's array struct. What batches mean
 * is Python's part, ../trajd.
 *
 * Threads: a Client is used by one thread at a time, which is looked after here (RuntimeError); all
 * else by any. The GIL is released wherever libtrajd may wait. The last reference to a lease may be
 * dropped without it, by any thread, also after the client was closed and the interpreter has
 * ended: see py_lease.c. */
#ifndef TRAJD_PYTHON_CORE_PY_CORE_H
#define TRAJD_PYTHON_CORE_PY_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "clients/c/trajd.h"

/* A batch and how many hold it: the Batch, its Tensors and what was exported of them. Knows nothing
 * of Python. */
struct trajd_lease;
/* with one reference; NULL: no memory */
struct trajd_lease *trajd_lease_create(struct trajd_batch *batch);
struct trajd_lease *trajd_lease_hold(struct trajd_lease *lease);
void trajd_lease_drop(struct trajd_lease *lease); /* the last one gives the memory back */
/* The same, but nothing is said of the batch: it goes back undone with the session. */
void trajd_lease_abandon(struct trajd_lease *lease);
int64_t trajd_lease_count(const struct trajd_lease *lease);
struct trajd_batch *trajd_lease_batch(const struct trajd_lease *lease);

/* What a Tensor shows. Strides in bytes, C order; data is valid while the lease is held. */
struct trajd_view {
    void *data;
    enum trajd_dtype dtype;
    int rank;
    Py_ssize_t shape[TRAJD_TENSOR_RANK_LIMIT], strides_bytes[TRAJD_TENSOR_RANK_LIMIT];
    bool read_only;
    int gpu; /* as this process counts; below 0: host memory */
};

/* py_client.c, py_batch.c, py_tensor.c: types; NULL with an exception */
PyObject *trajd_py_client_type(void);
PyObject *trajd_py_batch_type(void);
PyObject *trajd_py_tensor_type(void);
PyObject *trajd_py_ring_type(void);

/* Take the batch over, also when they fail. */
PyObject *trajd_py_batch_create(struct trajd_batch *batch);
PyObject *trajd_py_tensor_create(struct trajd_lease *lease, const struct trajd_view *view);

/* py_dlpack.c: a capsule, "dltensor_versioned" if `versioned`, that holds the lease or memory of
 * its own (`copy`). */
PyObject *trajd_py_dlpack(struct trajd_lease *lease, const struct trajd_view *view, bool versioned,
                          bool copy);

/* py_module.c: raises the exception of that status with the daemon's message, and returns NULL. */
PyObject *trajd_py_raise(const struct trajd_error *error);
void trajd_py_raise_fork(void);

#endif
