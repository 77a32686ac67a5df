/* trajctl metrics: prints the daemon's status as OpenMetrics text, or answers one HTTP request with
 * it: on standard input and output, as a socket unit with Accept=yes gives them. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/cli_feed.h"
#include "clients/cli/metrics/metrics.h"
#include "daemon/base/clock.h"
#include "daemon/base/memory.h"

enum { STATUS_TIMEOUT_MS = 5000, REQUEST_BYTES_MAX = 8192, REQUEST_MS = 5000, MS = 1000000 };

/* Writes the metrics to *text, which the caller frees. Returns NULL after it printed an error. */
static char *collect(const struct cli_connection *connection, size_t *length)
{
    struct trajd_client *client = cli_try_connect(connection);
    char *json = NULL, *text = NULL;
    struct trajd_error error;

    if (!client)
        return NULL;
    if (trajd_client_status(client, STATUS_TIMEOUT_MS, &json, &error)) {
        cli_fail("%s", error.message);
    } else {
        FILE *out = trajd_memory_or_exit(open_memstream(&text, length));
        const bool is_bad = metrics_write(json, out, &error);
        trajd_memory_close_or_exit(out, &text);
        if (is_bad) {
            cli_fail("%s", error.message);
            free(text);
            text = NULL;
        }
    }
    free(json);
    trajd_client_close(&client);
    return text;
}

/* ---- HTTP ---- */

/* Reads a request up to its empty line, for five seconds at most. Returns the length; 0: the client
 * closed, or took too long. */
static size_t read_request(char *request, size_t size)
{
    const int64_t end_ns = trajd_now_ns() + (int64_t)REQUEST_MS * MS;
    size_t length = 0;

    while (length + 1 < size && !memmem(request, length, "\r\n\r\n", 4) &&
           !memmem(request, length, "\n\n", 2)) {
        struct pollfd wait = {.fd = STDIN_FILENO, .events = POLLIN};
        const int64_t left_ms = (end_ns - trajd_now_ns()) / MS;
        const bool has_more = left_ms > 0 && poll(&wait, 1, (int)left_ms) > 0;
        const ssize_t got = has_more ? read(STDIN_FILENO, request + length, size - 1 - length) : 0;
        if (got <= 0)
            return 0;
        length += (size_t)got;
        request[length] = '\0';
    }
    return length;
}

/* Returns true if the request's target is that path, with or without a query. */
static bool has_target(const char *request, const char *path)
{
    const size_t length = strlen("GET ") + strlen(path);

    return !strncmp(request + strlen("GET "), path, strlen(path)) && request[length] &&
           strchr(" ?\r\n", request[length]);
}

/* Returns the status line of a refusal, or NULL for a request that is answered. */
static const char *refuse(const char *request, size_t length)
{
    if (length + 1 >= REQUEST_BYTES_MAX)
        return "431 Request Header Fields Too Large";
    if (strncmp(request, "GET ", 4))
        return "405 Method Not Allowed";
    return has_target(request, "/metrics") || has_target(request, "/") ? NULL : "404 Not Found";
}

static void answer(const char *status, const char *type, const char *body, size_t length)
{
    printf("HTTP/1.1 %s\r\n"
           "Content-Type: %s; charset=utf-8\r\n"
           "Content-Length: %zu\r\nConnection: close\r\n\r\n",
           status, type, length);
    fwrite(body, 1, length, stdout);
}

static int answer_request(const struct cli_connection *connection)
{
    static const char failed[] = "the daemon does not answer; the log of this unit says why\n";
    static char request[REQUEST_BYTES_MAX];
    size_t length = read_request(request, sizeof request);
    const char *refusal = length ? refuse(request, length) : NULL;
    char *text;

    if (refusal)
        answer(refusal, "text/plain", "", 0);
    if (refusal || !length)
        return CLI_OK;
    text = collect(connection, &length);
    if (text)
        answer("200 OK", "application/openmetrics-text; version=1.0.0", text, length);
    else
        answer("503 Service Unavailable", "text/plain", failed, strlen(failed));
    free(text);
    return text ? CLI_OK : CLI_FAILED;
}

struct measuring {
    struct cli_connection connection;
    bool http;
};

const struct cli_option cli_metrics_options[] = {
    {"--http", NULL, "answer one HTTP request from standard input", CLI_FLAG,
     offsetof(struct measuring, http)},
    {NULL, NULL, NULL, CLI_TABLE, offsetof(struct measuring, connection),
     .table = cli_daemon_options},
    {0}};

int cli_metrics(int argc, char **argv)
{
    struct measuring measuring = {0};
    size_t length;
    char *text;

    cli_parse(argc, argv, &measuring);
    if (measuring.http)
        return answer_request(&measuring.connection);
    text = collect(&measuring.connection, &length);
    if (text)
        fwrite(text, 1, length, stdout);
    free(text);
    return text ? CLI_OK : CLI_FAILED;
}
