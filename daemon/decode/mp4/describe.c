/* Opens an MP4 file in the sandbox, and prints its samples and decode units. */
#include "daemon/decode/mp4/describe.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/json.h"
#include "daemon/decode/mp4/units.h"
#include "daemon/sandbox/sandbox.h"

/* below the address space that the sandbox leaves */
static const size_t memory_bytes_max = (size_t)1800 << 20;

static void put_number(FILE *out, uint64_t number)
{
    fwrite(&number, sizeof number, 1, out);
}

static void put_json(FILE *out, const struct trajd_mp4 *mp4, const struct trajd_units *units)
{
    char pixels[TRAJD_PIXEL_FORMAT_SIZE];
    struct trajd_json json = {.out = out};
    uint64_t end;

    trajd_json_open_object(&json, NULL);
    trajd_json_string(&json, "codec", trajd_video_codec_name(mp4->codec));
    trajd_json_u64(&json, "height", units->format.height);
    trajd_json_u64(&json, "width", units->format.width);
    trajd_json_string(&json, "pixel_format",
                      trajd_stream_pixel_format(mp4->codec, &units->format, pixels));
    trajd_json_string(&json, "matrix", trajd_video_matrix_name(units->format.matrix));
    trajd_json_string(&json, "range", trajd_video_range_name(units->format.range));
    trajd_json_u64(&json, "timescale", mp4->timescale);
    trajd_json_u64(&json, "rows", units->row_count);
    trajd_json_u64(&json, "packets", mp4->sample_count);
    trajd_json_u64(&json, "units", units->unit_count);
    trajd_json_open_array(&json, "extradata_ends");
    for (size_t at = 0; at < units->extradata_ends.length; at += sizeof end) {
        memcpy(&end, units->extradata_ends.data + at, sizeof end);
        trajd_json_u64(&json, NULL, end);
    }
    trajd_json_close_array(&json);
    trajd_json_u64(&json, "file_bytes", mp4->file_bytes);
    trajd_json_close_object(&json);
    fputc('\n', out);
}

static void put_arrays(FILE *out, const struct trajd_mp4 *mp4, const struct trajd_units *units)
{
    for (uint64_t i = 0; i < units->row_count; i++)
        put_number(out, units->rows[i].packet);
    for (uint64_t i = 0; i < units->row_count; i++)
        put_number(out, (uint64_t)units->rows[i].time);
    for (uint64_t i = 0; i < mp4->sample_count; i++) {
        put_number(out, mp4->samples[i].offset);
        put_number(out, mp4->samples[i].bytes);
        put_number(out, mp4->samples[i].crc32);
    }
    for (uint64_t i = 0; i < units->unit_count; i++) {
        put_number(out, units->units[i].first_packet);
        put_number(out, units->units[i].first_row);
        put_number(out, units->units[i].extradata);
    }
    fwrite(units->extradata.data, 1, units->extradata.length, out);
}

enum trajd_status trajd_describe(int fd, FILE *out, struct trajd_error *error)
{
    struct trajd_arena arena = {.limit_bytes = memory_bytes_max};
    struct trajd_units units = {0};
    struct trajd_mp4 mp4;
    enum trajd_status status = trajd_mp4_read(fd, &arena, &mp4, error);

    if (!status)
        status = trajd_units_find(fd, &mp4, &arena, &units, error);
    if (!status) {
        put_json(out, &mp4, &units);
        put_arrays(out, &mp4, &units);
        if (fflush(out) || ferror(out))
            status = trajd_error_set(error, TRAJD_ERR_IO, errno,
                                     "what is in it cannot be written: %s", strerror(errno));
    }
    trajd_bytes_free(&units.extradata);
    trajd_bytes_free(&units.extradata_ends);
    trajd_arena_free(&arena);
    return status;
}

int trajd_describe_main(void)
{
    struct trajd_error error;

    close(TRAJD_SANDBOX_SOCKET); /* it serves nobody */
    if (!trajd_sandbox_limit(false) || !trajd_sandbox_filter(false)) {
        fprintf(stderr, "the sandbox cannot be entered\n");
        return 1;
    }
    if (!trajd_describe(STDIN_FILENO, stdout, &error))
        return 0;
    fprintf(stderr, "%s\n", error.message);
    return 1;
}
