/* One HTTP request on standard input, as a socket unit with Accept=yes gives it, and its answer on
 * standard output. */
#ifndef TRAJD_CLI_METRICS_METRICS_HTTP_H
#define TRAJD_CLI_METRICS_METRICS_HTTP_H

#include <stdbool.h>
#include <stddef.h>

/* Reads a request from the descriptor, up to its empty line. Returns true for GET / and GET
 * /metrics. Otherwise returns false and the status line of the answer in *refusal; NULL there: the
 * client sent nothing, so there is no answer. Waits five seconds at most. */
bool metrics_read_request(int fd, const char **refusal);

/* Writes an answer with the headers. `status` is the status line without the version: "200 OK". */
void metrics_write_answer(const char *status, const char *body, size_t length);

#endif
