// libs: trajd_layout
/* The layout reader on any bytes: no crash, and accepted layouts are consistent. */
#include <stdlib.h>
#include <string.h>

#include "daemon/layout/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trajd_layout *layout, *again;
    struct trajd_error error;

    if (trajd_layout_parse("fuzz", (const char *)data, size, &layout, &error)) {
        if (layout || strncmp(error.message, "fuzz", 4))
            abort();
        return 0;
    }
    if (!layout->clock_count || !layout->stream_count || !layout->name || !layout->files ||
        !layout->groups)
        abort();
    for (uint32_t i = 0; i < layout->clock_count; i++) {
        const struct trajd_layout_clock *clock = &layout->clocks[i];
        if (!clock->stamps_path && !clock->rate.num && !trajd_layout_rate_place(clock))
            abort();
    }
    for (uint32_t i = 0; i < layout->stream_count; i++) {
        const struct trajd_layout_stream *stream = &layout->streams[i];
        if (!stream->path || !stream->clock || stream->kind >= TRAJD_KIND_COUNT ||
            (stream->column_end && stream->column_begin >= stream->column_end))
            abort();
    }
    if (trajd_layout_parse("again", layout->text, layout->text_length, &again, &error) ||
        again->hash != layout->hash)
        abort();
    trajd_layout_destroy(&again);
    trajd_layout_destroy(&layout);
    return 0;
}
