/* The lock of a runtime directory, which only one daemon may use. It must be taken before any
 * socket is bound, because libzmq silently takes over the socket file of a running daemon. */
#ifndef TRAJD_SERVER_LOCK_H
#define TRAJD_SERVER_LOCK_H

#include "proto/error.h"

/* Takes DIRECTORY/lock. The lock ends when *fd is closed, or with the process. TRAJD_ERR_BUSY: the
 * message has the holder's pid. */
enum trajd_status trajd_lock_take(const char *directory, int *fd, struct trajd_error *error);
/* Closes *fd, unless it is -1. The file stays: if it were removed, two daemons could lock two
 * different files of the same name. */
void trajd_lock_release(int *fd);

#endif
