/* Writes a status document as OpenMetrics text. */
#ifndef TRAJD_CLI_METRICS_H
#define TRAJD_CLI_METRICS_H

#include <stdio.h>

#include "proto/error.h"

/* `json` is the document of STATUS. Members that an older daemon does not send are left out.
 * TRAJD_ERR_DATA: it is not valid JSON. */
enum trajd_status metrics_write(const char *json, FILE *out, struct trajd_error *error);

#endif
