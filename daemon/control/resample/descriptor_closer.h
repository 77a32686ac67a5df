/* Closes descriptors that other programs have sent, on a thread of its own: close(2) waits as long
 * as it likes for a filesystem in user space that does not answer, or for a socket that lingers.
 *
 * The queue is bounded, and each user has a share of it. Where a close never returns, the thread
 * waits with it until the process ends. Used by one thread, that of resample_service.c. */
#ifndef TRAJD_CONTROL_DESCRIPTOR_CLOSER_H
#define TRAJD_CONTROL_DESCRIPTOR_CLOSER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/error.h"

#define TRAJD_CLOSER_SHARE 64u /* a user with more descriptors in the queue may send no more */

struct trajd_closer;

/* Starts the thread. */
enum trajd_status trajd_closer_create(struct trajd_closer **closer, struct trajd_error *error);
/* Waits up to a second for the queue to get empty, and clears the pointer. A thread that hangs
 * stays, with the descriptors behind it, until the process ends. NULL is fine. */
void trajd_closer_destroy(struct trajd_closer **closer);
/* Returns true if the queue has room for `count` more descriptors. */
bool trajd_closer_has_room(struct trajd_closer *closer, uint32_t count);
/* Returns true if the user has more than TRAJD_CLOSER_SHARE descriptors in the queue. */
bool trajd_closer_is_over_share(struct trajd_closer *closer, uid_t uid);
/* Closes the descriptor, now or later. The queue must have room for it. A memory file is closed at
 * once, because that cannot wait. */
void trajd_closer_close(struct trajd_closer *closer, int fd, uid_t uid);

#endif
