/* Looks up values in a JSON text, by their path or one after another. Nothing is allocated. */
#ifndef TRAJD_LAYOUT_JSON_FIELD_H
#define TRAJD_LAYOUT_JSON_FIELD_H

#include <stdbool.h>
#include <stddef.h>

/* Finds the value at `path` ("a.b.c": keys of nested objects) in the JSON text of `length` bytes.
 * *value points into the text: at the characters between the quotes of a string (*quoted, escapes
 * as they are), or at a bare word such as a number, true or null. False where there is no such
 * value, where it is an object or an array, or where the text up to there is not JSON. */
bool trajd_json_field_find(const char *text, size_t length, const char *path, const char **value,
                           size_t *value_length, bool *quoted);

/* Copies the same value to `out`, cut to `size` bytes with the zero byte. Escapes stay as they
 * are. */
bool trajd_json_field_read(const char *text, size_t length, const char *path, char *out,
                           size_t size);

/* Finds the bytes of the value at `path`, of any type; of the whole document where `path` is NULL.
 * False where there is none, or where the text up to its end is not JSON. */
bool trajd_json_field_span(const char *text, size_t length, const char *path, const char **value,
                           size_t *value_length);

/* Calls `visit` for each member of the object, or element of the array, that the text is. The name
 * of a member is as it stands between the quotes; that of an element is NULL. Stops where `visit`
 * returns false. Returns false where the text is no object and no array, is not JSON, or where the
 * visit was stopped. */
bool trajd_json_field_visit(const char *text, size_t length,
                            bool (*visit)(void *context, const char *name, size_t name_length,
                                          const char *value, size_t value_length),
                            void *context);

/* Replaces the escapes in the characters of a JSON string by UTF-8, in place. */
void trajd_json_field_unescape(char *text);

#endif
