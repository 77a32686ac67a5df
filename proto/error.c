/* Sets error messages, and puts context in front of them. */
#include "proto/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum trajd_status trajd_error_set(struct trajd_error *error, enum trajd_status status,
                                  int foreign_code, const char *format, ...)
{
    if (error) {
        va_list arguments;
        error->status = status;
        error->foreign_code = foreign_code;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof error->message, format, arguments);
        va_end(arguments);
    }
    return status;
}

/* Appends text to the first `used` bytes of the message, cut to the room that is there. Returns the
 * new length. */
static size_t append(struct trajd_error *error, size_t used, const char *text)
{
    const size_t room = sizeof error->message - 1 - used;
    const size_t length = strlen(text) < room ? strlen(text) : room;
    memcpy(error->message + used, text, length);
    error->message[used + length] = '\0';
    return used + length;
}

enum trajd_status trajd_error_prefix(struct trajd_error *error, const char *format, ...)
{
    char below[TRAJD_ERROR_MESSAGE_SIZE];
    va_list arguments;
    int used;

    if (!error)
        return TRAJD_ERR_SYSTEM;
    memcpy(below, error->message, sizeof below);
    va_start(arguments, format);
    used = vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    if (used >= 0 && (size_t)used < sizeof error->message)
        append(error, append(error, (size_t)used, ": "), below);
    return error->status;
}

const char *const trajd_status_words[] = {
    [TRAJD_OK] = "ok",
    [TRAJD_ERR_ARGUMENT] = "argument",
    [TRAJD_ERR_NOT_FOUND] = "not_found",
    [TRAJD_ERR_DATA] = "data",
    [TRAJD_ERR_UNSUPPORTED] = "unsupported",
    [TRAJD_ERR_IO] = "io",
    [TRAJD_ERR_MEMORY] = "memory",
    [TRAJD_ERR_PROTOCOL] = "protocol",
    [TRAJD_ERR_TIMEOUT] = "timeout",
    [TRAJD_ERR_CLOSED] = "closed",
    [TRAJD_ERR_BUSY] = "busy",
    [TRAJD_ERR_SYSTEM] = "system",
    [TRAJD_ERR_DEVICE] = "device",
    [TRAJD_END_OF_EPOCH] = "end_of_epoch",
    NULL,
};

const char *trajd_status_name(enum trajd_status status)
{
    return (unsigned)status <= TRAJD_END_OF_EPOCH ? trajd_status_words[status] : "unknown";
}
