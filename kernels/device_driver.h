/* Which NVIDIA driver a release of CUDA needs, for messages. */
#ifndef TRAJD_KERNELS_DEVICE_DRIVER_H
#define TRAJD_KERNELS_DEVICE_DRIVER_H

#include <stdint.h>

#include "proto/error.h"

/* Fills *error with why GPU `index` cannot be used, and which driver to install. `supported` is the
 * CUDA release of the driver (12020: 12.2; 0: there is no driver). `needed` is that of the kernels.
 * Returns TRAJD_ERR_NOT_FOUND. */
enum trajd_status trajd_driver_refuse(uint32_t index, int supported, int needed,
                                      struct trajd_error *error);

#endif
