/* Finds the private daemons of this user, which trajd.open of the Python package starts. Their
 * folders are those of clients/python/trajd/folders.py. */
#ifndef TRAJD_CLI_PRIVATE_DAEMONS_H
#define TRAJD_CLI_PRIVATE_DAEMONS_H

#include <stdint.h>

/* Where the daemon of the system serves. */
#define CLI_SERVICE_ENDPOINT "/run/trajd/main"

enum { PRIVATE_DAEMONS_MAX = 64, PRIVATE_PATH_SIZE = 512 };

struct private_daemons {
    char folder[PRIVATE_PATH_SIZE]; /* that has their folders */
    uint32_t count;
    char endpoints[PRIVATE_DAEMONS_MAX][PRIVATE_PATH_SIZE]; /* in the order of their names */
};

/* Finds the daemons that run, the first PRIVATE_DAEMONS_MAX. Waits for nothing. */
void private_daemons_find(struct private_daemons *daemons);

#endif
