/* Where the arithmetic of a conversion is done: on this process's CPU or GPU, or by a daemon
 * (RESAMPLE of proto/PROTOCOL.md). One backend for a run, an engine for each of its threads. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_BACKEND_H
#define TRAJD_CLI_RESAMPLE_CONVERT_BACKEND_H

#include "clients/cli/resample/plan/convert_plan.h"
#include "kernels/block.h"
#include "kernels/device.h"

struct convert_backend {
    /* atomic: never AUTO; CPU as well once another one has failed and may be done without */
    enum trajd_convert_backend kind;
    bool may_fall_back; /* nobody has asked for this one */
    bool is_on_gpu;     /* its results are a GPU's */
    const bool *cancel;
    struct trajd_device *device; /* of CUDA */
    char directory[256];         /* of the daemon */
    /* for people: "NVIDIA H200", "the daemon at /run/trajd/main, on its CPU" */
    char text[256];
    /* atomic counters: all, and those that were too large for anybody but this CPU */
    uint64_t segments, segments_here;
    bool has_failed; /* atomic, set when `failure` is filled */
    struct trajd_error failure;
};

/* What the options ask for, or the one that a rule takes to be the fastest; the daemon is asked,
 * the GPU opened. TRAJD_ERR_NOT_FOUND, TRAJD_ERR_UNSUPPORTED: what is asked for is not at hand, and
 * what there is instead. Cleared whatever the result. */
enum trajd_status convert_backend_choose(const struct convert_plan *plan, uint32_t thread_count,
                                         struct convert_backend *backend,
                                         struct trajd_error *error);
void convert_backend_clear(struct convert_backend *backend);
/* Threads that make sense: a GPU and a daemon do one segment at a time. */
uint32_t convert_backend_threads(const struct convert_backend *backend, uint32_t wanted);

struct convert_engine;

/* `backend` NULL: the CPU. */
enum trajd_status convert_engine_create(struct convert_backend *backend,
                                        struct convert_engine **engine, struct trajd_error *error);
void convert_engine_destroy(struct convert_engine **engine);
/* A request of one window, done when this returns. TRAJD_ERR_CLOSED: the daemon has ended, or the
 * run is cancelled. */
enum trajd_status convert_engine_run(struct convert_engine *engine,
                                     const struct trajd_resample_request *request,
                                     const struct trajd_block_memory *memory,
                                     struct trajd_error *error);

/* ---- convert_remote.c: a connection to a daemon, and the memory that is handed over ---- */

struct convert_remote;

/* Connects and asks who does the work: *device is "" for the daemon's CPU. TRAJD_ERR_NOT_FOUND:
 * nobody is there. */
enum trajd_status convert_remote_create(const char *directory, const bool *cancel, char *device,
                                        size_t device_size, struct convert_remote **remote,
                                        struct trajd_error *error);
void convert_remote_destroy(struct convert_remote **remote);
/* Room for a block, which the daemon reads and answers in. */
enum trajd_status convert_remote_room(struct convert_remote *remote, uint64_t size_bytes,
                                      void **room, struct trajd_error *error);
/* TRAJD_ERR_CLOSED: the daemon has ended, does not answer, or the run is cancelled. Else what it
 * says. */
enum trajd_status convert_remote_run(struct convert_remote *remote, uint64_t size_bytes,
                                     struct trajd_error *error);

#endif
