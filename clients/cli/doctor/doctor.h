/* trajctl doctor: whether trajd works on this machine, and what will be slow. */
#ifndef TRAJD_CLI_DOCTOR_DOCTOR_H
#define TRAJD_CLI_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

struct doctor_options {
    const char *config;                /* a configuration to look at; NULL: none */
    const char *endpoint;              /* NULL: $TRAJD_ENDPOINT, else /run/trajd/main */
    const char *key_file, *server_key; /* for a tcp:// endpoint */
    uint64_t seconds;                  /* of the self test; 0: none */
    bool json;
};

/* Makes all checks and prints the findings. Returns true if nothing failed. */
bool doctor_run(const struct doctor_options *options);

#endif
