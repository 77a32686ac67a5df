// libs: trajd_live_core
/* A live description: any bytes. One that is accepted must also take rows and give observations. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "clients/live/trajd_live.h"

#define MOST_BYTES (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void push_all(struct trajd_live *live, int64_t t_ns, const void *row)
{
    struct trajd_live_stream info;

    for (uint32_t s = 0; s < trajd_live_stream_count(live); s++) {
        trajd_live_get_stream(live, s, &info);
        if (info.row_bytes <= MOST_BYTES)
            trajd_live_push(live, s, t_ns + info.latency_ns, row, NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trajd_live *live;
    struct trajd_error error;
    void *row, *out;

    if (trajd_live_open_text((const char *)data, size, NULL, &live, &error))
        return 0;
    row = calloc(1, MOST_BYTES);
    out = malloc(trajd_live_size_bytes(live));
    for (int64_t step = 0; row && out && step < 4; step++) {
        push_all(live, step * 50000000, row);
        trajd_live_observe(live, step * 50000000, TRAJD_LIVE_PARTIAL, out, NULL, &error);
    }
    free(row);
    free(out);
    trajd_live_close(&live);
    return 0;
}
