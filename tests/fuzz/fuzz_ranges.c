// libs: trajd_window
/* Any bytes as a file of ranges. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/window/select/ranges.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_entry(const struct trajd_ranges *ranges, const struct trajd_ranges_entry *entry)
{
    int64_t last = 0;

    if (!*trajd_ranges_name(ranges, entry) || entry->first > ranges->range_count ||
        entry->count > ranges->range_count - entry->first)
        abort();
    for (uint32_t r = entry->first; r < entry->first + entry->count; r++) {
        if (ranges->ranges[r].begin < last || ranges->ranges[r].end <= ranges->ranges[r].begin)
            abort();
        last = ranges->ranges[r].end;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trajd_ranges *ranges;
    struct trajd_error error;

    if (trajd_ranges_parse("fuzz", (const char *)data, size, &ranges, &error)) {
        if (ranges || strpbrk(error.message, "\r\n"))
            abort();
        return 0;
    }
    for (uint32_t e = 0; e < ranges->entry_count; e++)
        check_entry(ranges, &ranges->entries[e]);
    trajd_ranges_destroy(&ranges);
    return 0;
}
