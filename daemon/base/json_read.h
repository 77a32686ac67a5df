/* The one reader of JSON. It takes what Python's json.dumps writes: NaN, Infinity and -Infinity are
 * numbers. It builds no tree and allocates nothing:
 *
 *     trajd_json_pack     turns a document into msgpack, which the codec reads into structs
 *     trajd_json_unpack   writes msgpack as JSON
 *     trajd_json_field_*  look up values in a text
 *     trajd_json_take_*   step through a text, for documents of tens of MiB */
#ifndef TRAJD_BASE_JSON_READ_H
#define TRAJD_BASE_JSON_READ_H

#include "daemon/base/json.h"
#include "proto/codec.h"

#define TRAJD_JSON_DEPTH_MAX 64
#define TRAJD_JSON_NUMBER_SIZE 32

/* ---- documents ---- */

/* Appends the document as msgpack, at most 2.5 times as many bytes. A whole number that 64 bits do
 * not hold becomes a float64. Errors begin with "NAME:LINE: ". TRAJD_ERR_ARGUMENT: the text is not
 * JSON. TRAJD_ERR_MEMORY: the bytes cannot grow. */
enum trajd_status trajd_json_pack(const char *name, const char *text, size_t length,
                                  struct trajd_bytes *bytes, struct trajd_error *error);

/* Writes one msgpack value as JSON. Numbers have as few digits as give them back exactly. False if
 * the bytes are not one value, or have bin, a key that is not a text of up to 255 bytes, or more
 * than TRAJD_JSON_DEPTH_MAX levels. */
bool trajd_json_unpack(struct trajd_json *json, const char *key, const void *data, size_t length);

/* The same of a map, whose members become members of an open object. */
bool trajd_json_unpack_members(struct trajd_json *json, const void *data, size_t length);

/* Returns whether the word is a number as JSON writes it, and whether it is a whole one. */
bool trajd_json_is_number(const char *word, bool *is_whole);
/* Prints a number with as few digits as give it back exactly; as NaN, Infinity or -Infinity if it
 * is not finite. `is_narrow`: the number is a float32. Returns `text`. */
const char *trajd_json_shortest(double number, bool is_narrow, char text[TRAJD_JSON_NUMBER_SIZE]);

/* ---- values in a text ---- */

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
 * returns false. Returns false where the text is neither an object nor an array, is not JSON, or
 * where the visit was stopped. */
bool trajd_json_field_visit(const char *text, size_t length,
                            bool (*visit)(void *context, const char *name, size_t name_length,
                                          const char *value, size_t value_length),
                            void *context);

/* Replaces the escapes in the characters of a JSON string by UTF-8, and adds a zero byte. `out` has
 * room for length + 1 bytes, and may be the text itself. Returns NULL, or what is wrong with the
 * first bad escape: that becomes U+FFFD, '?' or its letter. */
const char *trajd_json_unescape(const char *text, size_t length, char *out, size_t *out_length);

/* ---- step by step ---- */

struct trajd_json_reader {
    const char *at, *end;
    uint32_t line; /* of `at`; 1 at the beginning */
};

/* Returns the next character that is not space, or 0 at the end. */
char trajd_json_peek(struct trajd_json_reader *reader);
/* Takes that character if it is the wanted one. */
bool trajd_json_take(struct trajd_json_reader *reader, char wanted);
/* Takes a string. *text are the characters between its quotes, escapes as they are. */
bool trajd_json_take_string(struct trajd_json_reader *reader, const char **text, size_t *length);
/* Takes a number, true, false or null, without checking it. */
bool trajd_json_take_word(struct trajd_json_reader *reader, const char **text, size_t *length);
/* Takes a value of any type. */
bool trajd_json_skip(struct trajd_json_reader *reader);

#endif
