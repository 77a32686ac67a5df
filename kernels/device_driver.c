/* Finds the oldest driver of a CUDA release, and refuses older ones with a message. */
#include "kernels/device_driver.h"

/* The first driver for Linux of each major release of CUDA. It runs all its minor releases. */
static int oldest_driver(int needed)
{
    return needed >= 13000 ? 580 : needed >= 12000 ? 525 : 450;
}

enum trajd_status trajd_driver_refuse(uint32_t index, int supported, int needed,
                                      struct trajd_error *error)
{
    const int oldest = oldest_driver(needed), major = needed / 1000, minor = needed % 1000 / 10;

    if (!supported)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "GPU %u: this machine has no NVIDIA driver; the kernels of CUDA "
                               "%d.%d need driver %d or later",
                               index, major, minor, oldest);
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                           "GPU %u: the NVIDIA driver is too old: it supports CUDA up to %d.%d, "
                           "and the kernels of CUDA %d.%d need driver %d or later",
                           index, supported / 1000, supported % 1000 / 10, major, minor, oldest);
}
