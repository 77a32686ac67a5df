/* One daemon a runtime directory. libzmq unlinks and takes over the socket of a living daemon
 * without a word, so the lock comes before any socket. */
#ifndef TRAJD_SERVER_LOCK_H
#define TRAJD_SERVER_LOCK_H

#include "proto/error.h"

/* Takes DIRECTORY/lock until *fd is closed, by us or by our death. TRAJD_ERR_BUSY: the message
 * names the holder's pid. */
enum trajd_status trajd_lock_take(const char *directory, int *fd, struct trajd_error *error);
/* *fd of -1 is fine. The file stays: removing it would let two daemons lock two files of one name.
 */
void trajd_lock_release(int *fd);

#endif
