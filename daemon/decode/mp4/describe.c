#include "daemon/decode/mp4/describe.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/json.h"
#include "daemon/decode/mp4/units.h"
#include "daemon/sandbox/sandbox.h"

/* below the address space that the sandbox leaves */
static const size_t memory_bytes_max = (size_t)1800 << 20;

static void put_numbers(FILE *out, int64_t a, int64_t b)
{
    const int64_t numbers[] = {a, b};

    fwrite(numbers, sizeof numbers, 1, out);
}

static void put_number(FILE *out, int64_t number)
{
    fwrite(&number, sizeof number, 1, out);
}

static void put_json(FILE *out, const struct trajd_mp4 *mp4, const struct trajd_units *units)
{
    char pixels[TRAJD_PIXEL_FORMAT_SIZE];
    struct trajd_json json = {.out = out};
    uint64_t end = 0;

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
    for (uint32_t i = 0; i < mp4->entry_count; i++)
        trajd_json_u64(&json, NULL, end += mp4->entries[i].extradata_bytes);
    trajd_json_close_array(&json);
    trajd_json_open_array(&json, "moov");
    trajd_json_u64(&json, NULL, mp4->moov_offset);
    trajd_json_u64(&json, NULL, mp4->moov_bytes);
    trajd_json_close_array(&json);
    trajd_json_u64(&json, "moov_crc32", mp4->moov_crc32);
    trajd_json_u64(&json, "file_bytes", mp4->file_bytes);
    trajd_json_close_object(&json);
    fputc('\n', out);
}

static void put_arrays(FILE *out, const struct trajd_mp4 *mp4, const struct trajd_units *units)
{
    for (uint64_t i = 0; i < units->row_count; i++)
        put_numbers(out, units->rows[i].packet, units->rows[i].unit);
    for (uint64_t i = 0; i < units->row_count; i++)
        put_number(out, units->rows[i].time);
    for (uint64_t i = 0; i < mp4->sample_count; i++)
        put_numbers(out, (int64_t)mp4->samples[i].offset, mp4->samples[i].bytes);
    for (uint64_t i = 0; i < units->unit_count; i++) {
        put_numbers(out, units->units[i].first_packet, units->units[i].is_closed);
        put_number(out, units->units[i].extradata);
    }
    for (uint32_t i = 0; i < mp4->entry_count; i++)
        fwrite(mp4->entries[i].extradata, 1, mp4->entries[i].extradata_bytes, out);
}

/* Depth is not colour: its 12 bits would be scaled down without a word. */
static enum trajd_status check_color(const struct trajd_units *units, struct trajd_error *error)
{
    if (units->format.chroma != TRAJD_CHROMA_NONE || units->format.bits == 8)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                           "its pixel format is gray%ule, that of depth, which is not supported",
                           units->format.bits);
}

enum trajd_status trajd_describe(int fd, FILE *out, struct trajd_error *error)
{
    struct trajd_arena arena = {.limit_bytes = memory_bytes_max};
    struct trajd_units units;
    struct trajd_mp4 mp4;
    enum trajd_status status = trajd_mp4_read(fd, &arena, &mp4, error);

    if (!status)
        status = trajd_units_find(fd, &mp4, &arena, &units, error);
    if (!status)
        status = check_color(&units, error);
    if (!status) {
        put_json(out, &mp4, &units);
        put_arrays(out, &mp4, &units);
        if (fflush(out) || ferror(out))
            status = trajd_error_set(error, TRAJD_ERR_IO, errno,
                                     "what is in it cannot be written: %s", strerror(errno));
    }
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
