/* Finds the private daemons of this user, which trajd.open of the Python package starts. Their
 * folders are those of clients/python/trajd/folders.py. */
#ifndef TRAJD_CLI_PRIVATE_DAEMONS_H
#define TRAJD_CLI_PRIVATE_DAEMONS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Where the daemon of the system serves. */
#define CLI_SERVICE_ENDPOINT "/run/trajd/main"

/* How the command line names a daemon. */
struct cli_connection {
    const char *endpoint; /* NULL: $TRAJD_ENDPOINT, else the service, else a private daemon */
    const char *key_file, *server_key; /* for a tcp:// endpoint */
};

enum {
    PRIVATE_DAEMONS_MAX = 64,
    PRIVATE_PATH_SIZE = 512,
    PRIVATE_TEXT_SIZE = 2 * PRIVATE_PATH_SIZE + 64
};

struct private_daemon {
    char endpoint[PRIVATE_PATH_SIZE];
    char config[PRIVATE_PATH_SIZE]; /* path of its configuration; "" where none is known */
    char job[PRIVATE_PATH_SIZE];
    struct timespec start;
};

struct private_daemons {
    char folder[PRIVATE_PATH_SIZE]; /* that has their folders */
    uint32_t count;
    struct private_daemon list[PRIVATE_DAEMONS_MAX]; /* the newest first */
};

/* Returns the folder in which their folder is made, unless it is there. */
const char *private_daemons_parent(void);
/* Finds the daemons that run, PRIVATE_DAEMONS_MAX at most. Waits for nothing. */
void private_daemons_find(struct private_daemons *daemons);
/* Returns whether all serve one job and one configuration, which then was edited meanwhile. The
 * newest serves it as it is. */
bool private_daemons_are_alike(const struct private_daemons *daemons);
/* Writes "for CONFIG, JOB, since TIME". */
void private_daemon_describe(const struct private_daemon *daemon, char text[PRIVATE_TEXT_SIZE]);

#endif
