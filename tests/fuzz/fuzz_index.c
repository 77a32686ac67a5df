// libs: trajd_index
/* The decoder of records from helper programs and from the cache, on any bytes: no crash, and
 * accepted records encode, and decode to the same. The first byte is the number of clocks, the next
 * two are the file's size in units of 256 bytes. */
#include <stdlib.h>
#include <string.h>

#include "daemon/index/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_episode(const struct trajd_record_episode *episode, uint64_t file_size)
{
    for (uint32_t i = 0; i < episode->array_count; i++) {
        const struct trajd_record_array *dataset = &episode->arrays[i];
        if (!dataset->refusal &&
            trajd_array_check(&dataset->extent, file_size,
                              dataset->extent.inline_bytes ? dataset->extent.size_bytes : 0, NULL))
            abort();
    }
    for (uint32_t i = 0; episode->evaluated && i < episode->clock_count; i++) {
        for (uint64_t k = 1; k < episode->clocks[i].row_count; k++) {
            if (episode->clocks[i].stamps_ns[k] <= episode->clocks[i].stamps_ns[k - 1])
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trajd_arena arena = {.limit_bytes = 64 << 20};
    struct trajd_bytes bytes = {0}, again = {0};
    struct trajd_record record;
    struct trajd_error error;
    uint64_t file_size;

    if (size < 3)
        return 0;
    file_size = ((uint64_t)data[1] << 8 | data[2]) * 256;
    if (!trajd_record_decode(data + 3, size - 3, file_size, data[0] % 8, &arena, &record, &error)) {
        for (uint32_t i = 0; i < record.episode_count; i++)
            check_episode(&record.episodes[i], file_size);
        if (!trajd_record_encode(&record, &bytes) ||
            trajd_record_decode(bytes.data, bytes.length, file_size, data[0] % 8, &arena, &record,
                                NULL) ||
            !trajd_record_encode(&record, &again) || bytes.length != again.length ||
            memcmp(bytes.data, again.data, bytes.length) != 0)
            abort();
    } else if (error.status != TRAJD_ERR_PROTOCOL) {
        abort();
    }
    trajd_bytes_free(&bytes);
    trajd_bytes_free(&again);
    trajd_arena_free(&arena);
    return 0;
}
