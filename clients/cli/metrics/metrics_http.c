#include "clients/cli/metrics/metrics_http.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/clock.h"

enum { REQUEST_BYTES_MAX = 8192, REQUEST_MS = 5000, MS = 1000000 };

/* Reads up to the empty line. Returns the length; 0: the client closed, or took too long. */
static size_t read_head(int fd, char *request, size_t size)
{
    const int64_t end_ns = trajd_now_ns() + (int64_t)REQUEST_MS * MS;
    size_t length = 0;

    while (length + 1 < size) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        const int64_t left_ms = (end_ns - trajd_now_ns()) / MS;
        ssize_t got;

        if (left_ms <= 0 || poll(&wait, 1, (int)left_ms) <= 0)
            return 0;
        got = read(fd, request + length, size - 1 - length);
        if (got <= 0)
            return 0;
        length += (size_t)got;
        request[length] = '\0';
        if (memmem(request, length, "\r\n\r\n", 4) || memmem(request, length, "\n\n", 2))
            return length;
    }
    return length;
}

/* Returns true if the request's target is that path, with or without a query. */
static bool has_target(const char *request, const char *path)
{
    const size_t length = strlen(path);

    return strncmp(request, path, length) == 0 && request[length] != '\0' &&
           strchr(" ?\r\n", request[length]);
}

bool metrics_read_request(int fd, const char **refusal)
{
    char request[REQUEST_BYTES_MAX];
    const size_t length = read_head(fd, request, sizeof request);

    *refusal = !length                               ? NULL
               : length + 1 >= sizeof request        ? "431 Request Header Fields Too Large"
               : strncmp(request, "GET ", 4) != 0    ? "405 Method Not Allowed"
               : has_target(request + 4, "/metrics") ? NULL
               : has_target(request + 4, "/")        ? NULL
                                                     : "404 Not Found";
    return length && !*refusal;
}

void metrics_write_answer(const char *status, const char *body, size_t length)
{
    printf("HTTP/1.1 %s\r\n"
           "Content-Type: %s; charset=utf-8\r\n"
           "Content-Length: %zu\r\nConnection: close\r\n\r\n",
           status,
           strncmp(status, "200", 3) == 0 ? "application/openmetrics-text; version=1.0.0"
                                          : "text/plain",
           length);
    fwrite(body, 1, length, stdout);
}
