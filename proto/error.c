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
        snprintf(error->message + used, sizeof error->message - (size_t)used, ": %s", below);
    return error->status;
}

const char *trajd_status_name(enum trajd_status status)
{
    switch (status) {
    case TRAJD_OK:
        return "ok";
    case TRAJD_ERR_ARGUMENT:
        return "argument";
    case TRAJD_ERR_NOT_FOUND:
        return "not_found";
    case TRAJD_ERR_DATA:
        return "data";
    case TRAJD_ERR_UNSUPPORTED:
        return "unsupported";
    case TRAJD_ERR_IO:
        return "io";
    case TRAJD_ERR_MEMORY:
        return "memory";
    case TRAJD_ERR_PROTOCOL:
        return "protocol";
    case TRAJD_ERR_TIMEOUT:
        return "timeout";
    case TRAJD_ERR_CLOSED:
        return "closed";
    case TRAJD_ERR_BUSY:
        return "busy";
    case TRAJD_ERR_SYSTEM:
        return "system";
    case TRAJD_ERR_DEVICE:
        return "device";
    case TRAJD_END_OF_EPOCH:
        return "end_of_epoch";
    }
    return "unknown";
}
