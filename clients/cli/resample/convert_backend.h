/* The backend does the arithmetic of a conversion: this process's CPU or GPU, or a daemon (RESAMPLE
 * in proto/PROTOCOL.md). A run has one backend, and each of its threads has one engine. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_BACKEND_H
#define TRAJD_CLI_RESAMPLE_CONVERT_BACKEND_H

#include "clients/cli/resample/plan/convert_plan.h"
#include "kernels/block.h"
#include "kernels/device.h"

enum { CONVERT_THREADS_MAX = 64 };

struct convert_backend {
    enum trajd_convert_backend kind; /* never AUTO */
    bool is_on_gpu;                  /* a GPU computes the results */
    const bool *cancel;
    uint32_t thread_count;       /* that the options ask for */
    struct trajd_device *device; /* for CUDA */
    char directory[256];         /* of the daemon */
    /* for people: "NVIDIA H200", "the daemon at /run/trajd/main, on its CPU" */
    char text[256];
    /* Atomic counters: all segments, and those that were too large for the backend, so that this
     * CPU made them. */
    uint64_t segments, segments_here;
};

/* Takes the backend that the options name. Connects to the daemon or opens the GPU to check that it
 * works. TRAJD_ERR_NOT_FOUND, TRAJD_ERR_UNSUPPORTED: the named
 * backend is not available; the message names an alternative. The caller clears *backend in any
 * case. */
enum trajd_status convert_backend_choose(const struct convert_plan *plan,
                                         struct convert_backend *backend,
                                         struct trajd_error *error);
void convert_backend_clear(struct convert_backend *backend);
/* Returns how many threads are useful: a GPU or a daemon runs one segment at a time. */
uint32_t convert_backend_threads(const struct convert_backend *backend);

/* What one thread computes with. Zeroed but for the backend. */
struct convert_engine {
    struct convert_backend *backend;
    struct trajd_runner *runner; /* for CUDA */
    struct convert_remote *remote;
};

void convert_engine_end(struct convert_engine *engine);
/* Runs a request of one window and waits until it is done. TRAJD_ERR_CLOSED: the daemon has ended,
 * or the run is cancelled. */
enum trajd_status convert_engine_run(struct convert_engine *engine,
                                     const struct trajd_resample_request *request,
                                     const struct trajd_block_memory *memory,
                                     struct trajd_error *error);

/* ---- convert_remote.c: a connection to a daemon, and the memory shared with it ---- */

struct convert_remote;

/* Connects to a daemon and queries its device. `device` (NULL: not wanted) becomes the GPU's name,
 * or "" for the daemon's CPU. TRAJD_ERR_NOT_FOUND: no daemon listens there. */
enum trajd_status convert_remote_create(const char *directory, const bool *cancel,
                                        char device[TRAJD_DEVICE_NAME_SIZE],
                                        struct convert_remote **remote, struct trajd_error *error);
void convert_remote_destroy(struct convert_remote **remote);
/* Returns shared memory of at least size_bytes in *room. The daemon reads a block from it and
 * writes the reply into it. Owned by `remote`, and valid until the next call. */
enum trajd_status convert_remote_room(struct convert_remote *remote, uint64_t size_bytes,
                                      void **room, struct trajd_error *error);
/* Sends the block in the shared memory and waits for the reply. TRAJD_ERR_CLOSED: the daemon has
 * ended, does not reply, or the run is cancelled. Other errors come from the daemon. */
enum trajd_status convert_remote_run(struct convert_remote *remote, uint64_t size_bytes,
                                     struct trajd_error *error);

#endif
