/* What device_host.c offers to other simulated kernels. `stream` is a stream's handle. */
#ifndef TRAJD_FAKE_DEVICE_HOST_H
#define TRAJD_FAKE_DEVICE_HOST_H

#include "kernels/resample.h"

/* Aborts unless the memory is "device memory" of the stream's GPU. */
void trajd_fake_need_device(void *stream, const void *memory, const char *what);
/* Appends a call to the stream, which frees `context`, memory of malloc, behind it. A stream that
 * is lost does not call. */
enum trajd_status trajd_fake_call(void *stream, void (*call)(void *context), void *context,
                                  struct trajd_error *error);

/* Copies a request with its lists into one block of malloc. NULL: no memory. */
struct trajd_resample_request *trajd_fake_keep(const struct trajd_resample_request *request);

#endif
