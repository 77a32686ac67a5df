/* trajctl doctor: whether trajd works on this machine, and what will be slow. */
#ifndef TRAJD_CLI_DOCTOR_DOCTOR_H
#define TRAJD_CLI_DOCTOR_DOCTOR_H

#include "clients/cli/files/private_daemons.h"
#include "daemon/base/json.h"

enum { DOCTOR_PATH_SIZE = 4096, DOCTOR_UUID_SIZE = 48 };

/* Memory that the daemon of the self test takes. */
enum { DOCTOR_STORE_MIB = 16, DOCTOR_RINGS_MIB = 32, DOCTOR_RESERVE_MIB = 256 };

enum doctor_level {
    DOCTOR_OK,
    DOCTOR_SLOW, /* it works, but slower than it could */
    DOCTOR_FAIL, /* it does not work */
    DOCTOR_LEVELS,
};

/* The caller sets the first members and zeroes the others. */
struct doctor {
    struct cli_connection connection;
    const char *config; /* a configuration to look at; NULL: none */
    uint64_t seconds;   /* of the self test; 0: none */
    bool is_json;
    struct trajd_json json;
    uint32_t counts[DOCTOR_LEVELS]; /* of findings */
    /* what checks find for those that follow */
    char daemon[DOCTOR_PATH_SIZE];  /* the program; "": none runs */
    char gpu[DOCTOR_UUID_SIZE];     /* the UUID of the first GPU; "": none */
    char runtime[DOCTOR_PATH_SIZE]; /* the folder for private daemons */
};

/* Makes all checks and prints the findings. Returns true if nothing failed. */
bool doctor_run(struct doctor *doctor);

/* For the checks: prints one finding, at once, because the next check may take seconds. `topic` is
 * one word, and stays the same from version to version. */
void doctor_add(struct doctor *doctor, enum doctor_level level, const char *topic,
                const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Runs a program to its end and reads the begin of its standard output and error. Returns false if
 * it cannot be started, or ends with another status than 0. `arguments` ends with NULL. */
bool doctor_read_output(const char *const *arguments, char *output, size_t size);

/* The checks. Folders that trajd writes to, and the datasets and feeds of the configuration. */
void doctor_check_folders(struct doctor *doctor);
void doctor_check_config(struct doctor *doctor);
/* Starts a daemon in a new folder, and reads a feed of a file of its own. */
void doctor_check_feed(struct doctor *doctor);

/* ---- the HDF5 file of the self test ---- */

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
