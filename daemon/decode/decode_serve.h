/* The helper program's side of decode_protocol.h. */
#ifndef TRAJD_DECODE_DECODE_SERVE_H
#define TRAJD_DECODE_DECODE_SERVE_H

#include <stdbool.h>

/* Receives the setup and then jobs, until the end of the socket. False where the parent breaks the
 * protocol, or memory ran out. */
bool trajd_decode_serve(int socket);

#endif
