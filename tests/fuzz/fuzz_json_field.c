// libs: trajd_layout
/* An attribute of an HDF5 file as JSON, with any bytes: a value that is found lies in the text, and
 * its text without escapes is not longer. Input: the path of the value, a line feed, the text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/layout/json_field.h"

enum { PATH_SIZE = 64, VALUE_SIZE = 40 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_value(const char *text, size_t size, const char *path)
{
    char value[VALUE_SIZE];
    size_t length;

    if (!trajd_json_field_read(text, size, path, value, sizeof value))
        abort();
    length = strlen(value);
    trajd_json_field_unescape(value);
    if (strlen(value) > length)
        abort();
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
    if (!trajd_json_field_find(text, length, path, &value, &value_length, &quoted))
        return 0;
    if (value < text || value_length > (size_t)(text + length - value))
        abort();
    read_value(text, length, path);
    return 0;
}
