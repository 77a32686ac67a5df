/* Writes one JSON document to a stream, value by value. The writer sets commas and escapes texts.
 *
 *     struct trajd_json json = {.out = stdout};
 *     trajd_json_open_object(&json, NULL);
 *     trajd_json_string(&json, "name", "lift");
 *     trajd_json_open_array(&json, "rows");
 *     trajd_json_u64(&json, NULL, 12);
 *     trajd_json_close_array(&json);
 *     trajd_json_close_object(&json);          {"name":"lift","rows":[12]}
 *
 * `key` is the name of a member of an object; it is NULL for an element of an array and for the
 * document itself. Nothing is allocated. Errors are those of the stream (ferror). */
#ifndef TRAJD_BASE_JSON_H
#define TRAJD_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct trajd_json {
    FILE *out;
    bool needs_comma; /* before the next value */
};

void trajd_json_open_object(struct trajd_json *json, const char *key);
void trajd_json_close_object(struct trajd_json *json);
void trajd_json_open_array(struct trajd_json *json, const char *key);
void trajd_json_close_array(struct trajd_json *json);

/* A string; null where `text` is NULL. Bytes that are not UTF-8 become U+FFFD, and hidden characters
 * (proto/visible.h) become escapes. */
void trajd_json_string(struct trajd_json *json, const char *key, const char *text);
/* The same of `length` characters. */
void trajd_json_characters(struct trajd_json *json, const char *key, const char *text,
                           size_t length);
void trajd_json_u64(struct trajd_json *json, const char *key, uint64_t value);
void trajd_json_i64(struct trajd_json *json, const char *key, int64_t value);
void trajd_json_bool(struct trajd_json *json, const char *key, bool value);
void trajd_json_null(struct trajd_json *json, const char *key);

/* A number in printf's format, such as "%.1f". NaN and infinities become null. */
void trajd_json_number(struct trajd_json *json, const char *key, const char *format, double value);

/* A string in printf's format, such as "%016llx". It is cut at 255 bytes. */
void trajd_json_format(struct trajd_json *json, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A value that is JSON already; with key NULL also several members or elements with commas. */
void trajd_json_raw(struct trajd_json *json, const char *key, const char *value);

/* Writes one string in quotes, without a comma, for YAML. It is the same as in JSON, but for hidden
 * characters above U+FFFF. null where `text` is NULL. */
void trajd_json_text(FILE *out, const char *text);

/* A place in a document on a seekable stream. Going back to it removes what was written since: for
 * lists of which only as much is written as there is room for. */
struct trajd_json_mark {
    long at;
    bool needs_comma;
};

struct trajd_json_mark trajd_json_get_mark(const struct trajd_json *json);
void trajd_json_go_back(struct trajd_json *json, struct trajd_json_mark mark);
/* Returns true where the stream has at most `size` bytes so far. Otherwise goes back to the mark
 * and returns false. */
bool trajd_json_fits(struct trajd_json *json, struct trajd_json_mark mark, size_t size);

#endif
