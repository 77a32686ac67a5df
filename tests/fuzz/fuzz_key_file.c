// libs: trajd_proto
/* Any bytes as a key file: accepted keys have the format of keys. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/key_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trajd_key_file keys;
    struct trajd_error error = {0};

    if (trajd_key_parse("fuzz", (const char *)data, size, &keys, &error)) {
        if (!error.status || strpbrk(error.message, "\r\n"))
            abort();
        return 0;
    }
    if (!trajd_key_is_valid(keys.public_key) ||
        (keys.secret_key[0] && !trajd_key_is_valid(keys.secret_key)) ||
        (keys.server_key[0] && !trajd_key_is_valid(keys.server_key)) ||
        (keys.name[0] && !trajd_key_name_is_valid(keys.name)))
        abort();
    return 0;
}
