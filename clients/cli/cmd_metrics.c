/* trajctl metrics: prints the daemon's status as OpenMetrics text, or answers one HTTP request with
 * it: on standard input and output, as a socket unit with Accept=yes gives them. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
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

static bool is_name(const char *host, size_t length, const char *name)
{
    return length == strlen(name) && !strncasecmp(host, name, length);
}

/* Returns true if one of the names between commas is the host. */
static bool is_one_of(const char *host, size_t length, const char *names)
{
    for (size_t span; names && *names; names += span + (names[span] != '\0')) {
        span = strcspn(names, ",");
        if (span == length && !strncasecmp(host, names, span))
            return true;
    }
    return false;
}

/* Returns true for an address, and for a name of this machine. No other site's page can have one of
 * them for its origin. `host` is the value of a header field, with or without a port. */
static bool is_local(const char *host, size_t length)
{
    static const char below[] = ".localhost";
    char text[INET6_ADDRSTRLEN], own[256] = "";
    unsigned char address[sizeof(struct in6_addr)];

    gethostname(own, sizeof own - 1);
    if (is_name(host, length, "localhost") || (*own && is_name(host, length, own)) ||
        (length > strlen(below) && is_name(host + length - strlen(below), strlen(below), below)))
        return true;
    if (length >= sizeof text)
        return false;
    snprintf(text, sizeof text, "%.*s", (int)length, host);
    return inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1;
}

/* Returns true unless a Host field names something else. A browser always sends the field: a page
 * of another site whose name leads here (DNS rebinding) must not read the metrics. */
static bool is_host_allowed(const char *request, const char *allowed)
{
    for (const char *line = request; (line = strchr(line, '\n')) != NULL;) {
        size_t length;
        line++;
        if (strncasecmp(line, "Host:", 5))
            continue;
        line += 5 + strspn(line + 5, " \t");
        length = strcspn(line, "\r\n \t");
        if (*line == '[') /* IPv6 */
            length = strcspn(++line, "]\r\n");
        else if (memchr(line, ':', length))
            length = strcspn(line, ":");
        if (!is_local(line, length) && !is_one_of(line, length, allowed))
            return false;
    }
    return true;
}

/* Returns the status line of a refusal, or NULL for a request that is answered. */
static const char *refuse(const char *request, size_t length, const char *allowed)
{
    if (length + 1 >= REQUEST_BYTES_MAX)
        return "431 Request Header Fields Too Large";
    if (strncmp(request, "GET ", 4))
        return "405 Method Not Allowed";
    if (!is_host_allowed(request, allowed))
        return "421 Misdirected Request";
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

static int answer_request(const struct cli_connection *connection, const char *allowed)
{
    static const char failed[] = "the daemon does not answer; the log of this unit says why\n";
    static const char misdirected[] =
        "the request is for another host: --allow-host of trajctl metrics allows its name\n";
    static char request[REQUEST_BYTES_MAX];
    size_t length = read_request(request, sizeof request);
    const char *refusal = length ? refuse(request, length, allowed) : NULL;
    char *text;

    if (refusal && !strncmp(refusal, "421", 3))
        answer(refusal, "text/plain", misdirected, strlen(misdirected));
    else if (refusal)
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
    const char *allowed; /* names between commas, or NULL */
    bool http;
};

const struct cli_option cli_metrics_options[] = {
    {"--http", NULL, "answer one HTTP request from standard input", CLI_FLAG,
     offsetof(struct measuring, http)},
    {"--allow-host", "NAMES", "with --http: further names of this machine, between commas",
     CLI_TEXT, offsetof(struct measuring, allowed)},
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
        return answer_request(&measuring.connection, measuring.allowed);
    text = collect(&measuring.connection, &length);
    if (text)
        fwrite(text, 1, length, stdout);
    free(text);
    return text ? CLI_OK : CLI_FAILED;
}
