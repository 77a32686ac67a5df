/* Writes the HDF5 file of the self test. It needs no libhdf5, which only the helper program links:
 * the format of version 0 with links in the headers of groups is short enough to be written by
 * hand. */
#ifndef TRAJD_CLI_DOCTOR_DOCTOR_HDF5_H
#define TRAJD_CLI_DOCTOR_DOCTOR_HDF5_H

#include "proto/error.h"

enum {
    DOCTOR_EPISODES = 16,
    DOCTOR_ROWS = 250, /* of each episode */
    DOCTOR_ACTIONS = 7,
    DOCTOR_POSITIONS = 3,
};

/* The value of `actions` and `obs/position`, exact in f32. */
static inline float doctor_value(int episode, int row, int feature)
{
    return (float)(episode * 1000 + row) + (float)feature / 8;
}

/* Writes a robomimic file with /data/demo_N/{actions,obs/position}. TRAJD_ERR_IO: the file cannot
 * be written. */
enum trajd_status doctor_write_hdf5(const char *path, struct trajd_error *error);

#endif
