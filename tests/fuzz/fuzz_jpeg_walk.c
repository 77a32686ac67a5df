// libs: trajd_jpeg_walk
/* The compressed data of a JPEG that a robot pushes. */
#include "clients/python/core/jpeg_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    trajd_jpeg_walk(data, size);
    return 0;
}
