// libs: trajd_base
/* Any bytes as JSON: a value that is found by its path is in the text, and its text without
 * escapes is not longer; a document that is packed is written and packed again to the same bytes.
 * Input: the path of the value, a line feed, the text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/json_read.h"

enum { PATH_SIZE = 64, VALUE_SIZE = 40 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_value(const char *text, size_t size, const char *path)
{
    char value[VALUE_SIZE];
    size_t length, unescaped;

    if (!trajd_json_field_read(text, size, path, value, sizeof value))
        abort();
    length = strlen(value);
    trajd_json_unescape(value, length, value, &unescaped);
    if (unescaped > length)
        abort();
}

/* Writes msgpack as JSON, and packs that again. Returns false where JSON lacks a value or key. */
static bool pack_again(const struct trajd_bytes *bytes, struct trajd_bytes *again)
{
    struct trajd_json json = {0};
    char *written = NULL;
    size_t size = 0;
    bool is_written;

    json.out = open_memstream(&written, &size);
    if (!json.out)
        abort();
    is_written = trajd_json_unpack(&json, NULL, bytes->data, bytes->length);
    fclose(json.out);
    if (is_written && trajd_json_pack("again", written, size, again, NULL))
        abort();
    free(written);
    return is_written;
}

static void pack_document(const char *text, size_t size)
{
    struct trajd_bytes bytes[3] = {{0}, {0}, {0}};
    struct trajd_error error = {0};

    if (trajd_json_pack("fuzz", text, size, &bytes[0], &error)) {
        if (error.status != TRAJD_ERR_ARGUMENT || strpbrk(error.message, "\r\n"))
            abort();
    } else if (bytes[0].length > 5 * size / 2 + 8) {
        abort();
    } else if (pack_again(&bytes[0], &bytes[1]) && /* 1.0 has become 1 now, and stays it */
               (!pack_again(&bytes[1], &bytes[2]) || bytes[1].length != bytes[2].length ||
                memcmp(bytes[1].data, bytes[2].data, bytes[1].length) != 0)) {
        abort();
    }
    for (int i = 0; i < 3; i++)
        trajd_bytes_free(&bytes[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    const size_t path_length = end ? (size_t)(end - data) : 0;
    const char *text = end ? (const char *)end + 1 : NULL, *value;
    const size_t length = end ? size - path_length - 1 : 0;
    char path[PATH_SIZE] = "";
    size_t value_length;
    bool quoted;

    if (!end || path_length >= sizeof path)
        return 0;
    memcpy(path, data, path_length);
    pack_document(text, length);
    if (!trajd_json_field_find(text, length, path, &value, &value_length, &quoted))
        return 0;
    if (value < text || value_length > (size_t)(text + length - value))
        abort();
    read_value(text, length, path);
    return 0;
}
