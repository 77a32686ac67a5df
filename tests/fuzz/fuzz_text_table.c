// libs: trajd_layout
/* The reader of texts in JSON files on any bytes: the first byte chooses the layout's keys. */
#include <stdlib.h>
#include <string.h>

#include "daemon/layout/text_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const keys[] = {"", "traj_2", "7", "007"};
    struct trajd_layout_meta meta = {.name = "text", .file = "a.json"};
    struct trajd_text_table *table;
    struct trajd_error error = {0};
    char out[64];

    if (!size)
        return 0;
    meta.list = data[0] & 1 ? "episodes" : NULL;
    meta.key = data[0] & 2 ? "id" : NULL;
    meta.by = (enum trajd_text_key)(data[0] >> 2 & 3);
    meta.json = data[0] & 16 ? "a.b" : NULL;
    meta.picks_by_hash = data[0] & 32;
    if (trajd_text_table_parse(&meta, (const char *)data + 1, size - 1, &table, &error)) {
        if (table || !*error.message)
            abort();
        return 0;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        memset(out, 'x', sizeof out);
        if (!trajd_text_table_find(table, &meta, keys[i], i, out, sizeof out, &error) &&
            !memchr(out, '\0', sizeof out))
            abort();
    }
    trajd_text_table_destroy(&table);
    return 0;
}
