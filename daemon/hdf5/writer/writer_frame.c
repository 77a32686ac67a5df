/* Reads the values of a frame; sends notes and errors. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/writer/writer.h"

enum { TEXTS_MAX = 1 << 20, NOTES_MAX = 200, TEXT_SIZE = 512 };

/* ---- values of a frame ---- */

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

char **trajd_writer_texts(struct trajd_writer_frame *frame, uint32_t *count)
{
    const uint32_t wanted = trajd_writer_u32(frame);
    char text[TRAJD_WRITER_PATH_SIZE], **texts;

    frame->failed = frame->failed || wanted > TEXTS_MAX;
    texts = trajd_helper_memory(calloc(frame->failed ? 1 : (size_t)wanted + 1, sizeof *texts));
    for (*count = 0; !frame->failed && *count < wanted; ++*count) {
        trajd_writer_text(frame, text, sizeof text);
        texts[*count] = trajd_helper_memory(strdup(text));
    }
    return texts;
}

/* ---- notes and failures ---- */

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
    trajd_helper_make_plain(text, '?');
    trajd_helper_send(TRAJD_WRITER_NOTE, text, strlen(text));
}

void trajd_writer_send_failed(uint32_t code, const char *what, const char *why)
{
    uint8_t body[sizeof code + TEXT_SIZE + TEXT_SIZE];
    char *text = (char *)body + sizeof code;

    memcpy(body, &code, sizeof code);
    snprintf(text, sizeof body - sizeof code, "%s%s%s", what, *why ? ": " : "", why);
    trajd_helper_make_plain(text, '?');
    trajd_helper_send(TRAJD_WRITER_FAILED, body, sizeof code + strlen(text));
}

bool trajd_writer_fail(const char *format, ...)
{
    char what[TRAJD_WRITER_PATH_SIZE], why[TRAJD_LIBRARY_ERROR_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    trajd_library_error(why);
    trajd_writer_send_failed(0, what, why);
    return false;
}

bool trajd_writer_fail_group(const char *label, const char *path, const char *problem)
{
    return trajd_writer_fail(
        "%.200s: the group %.100s is damaged, so objects in it may be lost: %s", label,
        *path ? path : "of the episode", problem);
}
