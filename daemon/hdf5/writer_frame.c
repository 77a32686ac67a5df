/* Reads the values of a frame; sends notes and errors. */
#include <hdf5.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/helper_socket.h"
#include "daemon/hdf5/writer.h"

enum { NOTES_MAX = 200, TEXT_SIZE = 512 };

static void take(struct trajd_writer_frame *frame, void *out, size_t size)
{
    memset(out, 0, size);
    if (frame->failed || (size_t)(frame->end - frame->next) < size) {
        frame->failed = true;
        return;
    }
    memcpy(out, frame->next, size);
    frame->next += size;
}

uint64_t trajd_writer_u64(struct trajd_writer_frame *frame)
{
    uint64_t value;

    take(frame, &value, sizeof value);
    return value;
}

uint32_t trajd_writer_u32(struct trajd_writer_frame *frame)
{
    uint32_t value;

    take(frame, &value, sizeof value);
    return value;
}

uint8_t trajd_writer_u8(struct trajd_writer_frame *frame)
{
    uint8_t value;

    take(frame, &value, sizeof value);
    return value;
}

void trajd_writer_text(struct trajd_writer_frame *frame, char *text, size_t size)
{
    const uint32_t length = trajd_writer_u32(frame);

    if (length >= size)
        frame->failed = true;
    take(frame, text, frame->failed ? 0 : length);
    text[frame->failed ? 0 : length] = '\0';
}

void trajd_writer_note(struct trajd_writer *writer, const char *format, ...)
{
    char text[TEXT_SIZE];
    va_list arguments;

    if (writer->note_count++ >= NOTES_MAX)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (writer->note_count == NOTES_MAX)
        snprintf(text, sizeof text, "more objects are left out than are listed here");
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    trajd_helper_send(TRAJD_WRITER_NOTE, text, strlen(text));
}

struct failure {
    uint32_t code;
    char text[TEXT_SIZE];
};

/* Keeps the text of the innermost entry, and the first errno that an entry names. */
static herr_t visit_error(unsigned depth, const H5E_error2_t *entry, void *context)
{
    struct failure *failure = context;
    const char *code = entry->desc ? strstr(entry->desc, "errno = ") : NULL;

    if (depth == 0 && entry->desc)
        snprintf(failure->text, sizeof failure->text, "%s", entry->desc);
    if (code && !failure->code)
        failure->code = (uint32_t)atoi(code + strlen("errno = "));
    return 0;
}

bool trajd_writer_fail(const char *what)
{
    struct failure failure = {0};
    uint8_t body[sizeof failure.code + TEXT_SIZE + TEXT_SIZE];
    int length;

    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, visit_error, &failure);
    memcpy(body, &failure.code, sizeof failure.code);
    length = snprintf((char *)body + sizeof failure.code, sizeof body - sizeof failure.code,
                      "%s%s%s", what, *failure.text ? ": " : "", failure.text);
    for (int i = 0; i < length; i++)
        if (body[sizeof failure.code + (size_t)i] < 0x20)
            body[sizeof failure.code + (size_t)i] = ' ';
    trajd_helper_send(TRAJD_WRITER_FAILED, body, sizeof failure.code + (size_t)length);
    return false;
}

bool trajd_writer_fail_group(const char *label, const char *path, const char *problem)
{
    char what[TEXT_SIZE];

    snprintf(what, sizeof what,
             "%.200s: the group %.100s is damaged, so objects in it may be lost: %s", label,
             *path ? path : "of the episode", problem);
    return trajd_writer_fail(what);
}
