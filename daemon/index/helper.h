/* trajd-indexer: the child that looks into HDF5 files, and how its parent speaks with it.
 *
 * One stream socket (descriptor TRAJD_HELPER_SOCKET in the child), frames of a header and `length`
 * bytes, native byte order since both ends are one build:
 *
 *     parent: LAYOUT (the YAML text), then FILE (u32 part, u32 of so many: which of its episodes;
 *       the file's descriptor by SCM_RIGHTS) one at a
 *             time
 *     child:  READY once the sandbox stands, then one RECORD (record.h) a file; exits at the
 *             socket's end */
#ifndef TRAJD_INDEX_HELPER_H
#define TRAJD_INDEX_HELPER_H

#include <stdint.h>
#include <sys/types.h>

#define TRAJD_HELPER_SOCKET 3
#define TRAJD_HELPER_MAGIC 0x58494A54u /* "TJIX" */

enum trajd_helper_kind {
    TRAJD_HELPER_LAYOUT = 1,
    TRAJD_HELPER_FILE = 2,
    TRAJD_HELPER_READY = 3,
    TRAJD_HELPER_RECORD = 4
};

struct trajd_helper_header {
    uint32_t magic;
    uint32_t kind;
    uint64_t length;
};

/* Starts the program at `path` with its end of the socket. `task`: "write", in a process group of
 * its own, since Ctrl-C is for the parent, which ends the child; NULL: it reads. 0, or an errno. */
int trajd_helper_spawn(const char *path, const char *task, int socket, pid_t *pid);

#endif
