/* Helper programs as processes, and the protocol with trajd-indexer, the one that reads HDF5 files.
 *
 * Parent and child share one stream socket, descriptor TRAJD_HELPER_SOCKET in the child. A frame is
 * a header and `length` bytes. Numbers are in the machine's byte order: both ends are of one build.
 *
 *     parent: LAYOUT, the YAML text; then FILE, one at a time: u32 slice, u32 slice count
 *             (which of the file's episodes, or TRAJD_HELPER_PROBE), and the file's descriptor by
 *             SCM_RIGHTS. Or TREE in place of LAYOUT and FILE: no bytes, and the file's descriptor
 *     child:  READY when the sandbox stands; then one RECORD (record.h) for each FILE. It exits at
 *             the end of the socket. Or one TREE (tree/tree.h), and it exits */
#ifndef TRAJD_INDEX_HELPER_H
#define TRAJD_INDEX_HELPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/sandbox/sandbox.h"
#include "proto/error.h"

/* As the slice count: only the first TRAJD_HELPER_PROBED episodes of the file. */
#define TRAJD_HELPER_PROBE UINT32_MAX
#define TRAJD_HELPER_PROBED 8
#define TRAJD_HELPER_SOCKET TRAJD_SANDBOX_SOCKET
#define TRAJD_HELPER_MAGIC 0x58494A54u /* "TJIX" */

enum trajd_helper_kind {
    TRAJD_HELPER_LAYOUT = 1,
    TRAJD_HELPER_FILE = 2,
    TRAJD_HELPER_READY = 3,
    TRAJD_HELPER_RECORD = 4,
    TRAJD_HELPER_TREE = 5
};

/* The exit status of a helper that got no memory. The parent tries its file again. */
enum { TRAJD_HELPER_NO_MEMORY = 75 };

struct trajd_helper_header {
    uint32_t magic;
    uint32_t kind;
    uint64_t length;
};

/* Starts the program at `path` with one end of a new socket of `type` (SOCK_STREAM,
 * SOCK_SEQPACKET). *socket becomes the other end, which the caller closes. `task`, its
 * argument: NULL, or "write" for a program that writes a file (writer_protocol.h), or
 * TRAJD_DECODE_TASK_AVCODEC. With a task it is in a process group of its own, so that Ctrl-C reaches
 * only the parent, which then ends it. The kernel kills it if this process ends, whichever
 * thread called. TRAJD_ERR_SYSTEM: *pid is 0 and *socket -1. */
enum trajd_status trajd_helper_start(const char *path, const char *task, int type, int *socket,
                                     pid_t *pid, struct trajd_error *error);

/* Waits up to one second for a child to end without a signal from here. Returns whether it has
 * ended. Its exit status can still be asked for. Meant for a child that has closed its socket. */
bool trajd_helper_has_ended(pid_t pid);

/* Returns whether a child with this exit status (of waitpid) ended for lack of memory, or by a
 * signal that comes from outside, not from a fault of the program. SIGXCPU is among them: the limit
 * of the processor's time counts over all that a child does. */
bool trajd_helper_is_killed(int status);

#endif
