/* The helper program's end of the socket to its parent. The frames stand in daemon/index/helper.h
 * and daemon/index/writer_protocol.h. */
#ifndef TRAJD_HDF5_HELPER_SOCKET_H
#define TRAJD_HDF5_HELPER_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/index/helper.h"

/* Blocks until the next frame's header is there. *fd is the descriptor that came with it, or -1;
 * the caller closes it. False at the end of the socket, after an error, and where the header is not
 * one of ours. */
bool trajd_helper_receive(struct trajd_helper_header *header, int *fd);

/* Returns `memory`. Where it is NULL, ends the process: the parent tries the file again. */
void *trajd_helper_memory(void *memory);

/* Replaces the characters of a text that would end a line or move the cursor. */
void trajd_helper_make_plain(char *text, char by);

/* Sends a frame of `length` bytes. Blocks. False where the parent is gone. */
bool trajd_helper_send(uint32_t kind, const void *data, size_t length);

#endif
