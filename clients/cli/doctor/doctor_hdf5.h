/* The HDF5 file of the self test. */
#ifndef TRAJD_CLI_DOCTOR_DOCTOR_HDF5_H
#define TRAJD_CLI_DOCTOR_DOCTOR_HDF5_H

#include <stdbool.h>

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

/* Writes a robomimic file with /data/demo_N/{actions,obs/position}. Returns false with errno if the
 * file cannot be written. */
bool doctor_write_hdf5(const char *path);

#endif
