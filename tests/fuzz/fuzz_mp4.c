// libs: trajd_mp4 m
/* A foreign MP4 file, as `trajd-decoder describe` reads it. Input: the file. What is accepted has
 * rows and units in order, and packets inside the file. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/decode/mp4/units.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct trajd_mp4 *mp4, const struct trajd_units *units, size_t size)
{
    const size_t extradata_count = units->extradata_ends.length / sizeof(uint64_t);

    for (uint64_t i = 0; i < mp4->sample_count; i++)
        if (!mp4->samples[i].bytes || mp4->samples[i].offset > size ||
            mp4->samples[i].bytes > size - mp4->samples[i].offset)
            abort();
    for (uint64_t i = 0; i < units->row_count; i++)
        if (units->rows[i].packet >= mp4->sample_count ||
            (i ? units->rows[i].time <= units->rows[i - 1].time : units->rows[i].time != 0))
            abort();
    for (uint64_t u = 0; u < units->unit_count; u++) {
        const struct trajd_unit *unit = &units->units[u];
        if (unit->extradata >= extradata_count || unit->first_row >= units->row_count ||
            unit->first_packet >= mp4->sample_count)
            abort();
        if (u ? unit->first_packet <= unit[-1].first_packet || unit->first_row <= unit[-1].first_row
              : unit->first_packet || unit->first_row)
            abort();
    }
    if (!units->unit_count || !units->format.height || !units->format.width)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trajd_arena arena = {.limit_bytes = (size_t)256 << 20};
    const int fd = memfd_create("mp4", MFD_CLOEXEC);
    struct trajd_units units = {0};
    struct trajd_error error;
    struct trajd_mp4 mp4;

    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    if (!trajd_mp4_read(fd, &arena, &mp4, &error) &&
        !trajd_units_find(fd, &mp4, &arena, &units, &error))
        check(&mp4, &units, size);
    trajd_bytes_free(&units.extradata);
    trajd_bytes_free(&units.extradata_ends);
    trajd_arena_free(&arena);
    close(fd);
    return 0;
}
