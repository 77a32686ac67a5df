/* A client without a daemon, for unit tests of libtrajd's inner files. */
#ifndef TRAJD_TESTS_BARE_CLIENT_H
#define TRAJD_TESTS_BARE_CLIENT_H

#include "clients/c/client_internal.h"

/* Makes a client with one reference, eventfds and locks, without an I/O thread. Its link is that to
 * an empty directory. trajd_client_drop frees it; destroy its link before. */
struct trajd_client *bare_client_create(void);

/* Returns true and clears the eventfd if it was signalled. */
bool bare_client_was_signalled(int event_fd);

#endif
