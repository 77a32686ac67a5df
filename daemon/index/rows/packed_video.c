/* Reads the tables of packed video and the packets of a unit. The tables come from a file: each
 * number is checked where it is read, also after trajd_video_examine, because the file may have
 * changed since. */
#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/heartbeat.h"
#include "daemon/index/rows/packed_video.h"

enum { BLOCK_ENTRIES = 128, ENTRY_NUMBERS_MAX = 3, NUMBER_BYTES = 8, NAME_SIZE = 256 };

typedef unsigned long long number; /* for messages */

/* ---- places ---- */

static bool within(uint64_t offset, uint64_t count, uint64_t entry_bytes, uint64_t size)
{
    uint64_t bytes;

    return !__builtin_mul_overflow(count, entry_bytes, &bytes) && offset <= size &&
           bytes <= size - offset;
}

bool trajd_media_is_path(const char *media)
{
    size_t length;

    for (;; media += length + 1) {
        length = strcspn(media, "/");
        if (!length || length >= NAME_SIZE || (length == 1 && media[0] == '.') ||
            (length == 2 && media[0] == '.' && media[1] == '.'))
            return false;
        if (!media[length])
            return true;
    }
}

enum trajd_status trajd_video_check(const struct trajd_array *array, uint64_t file_size_bytes,
                                    struct trajd_error *error)
{
    const struct trajd_video *video = array->video;
    const uint64_t skipped = video ? array->offset - video->rows_offset : 0;

    if (!video || array->storage != TRAJD_STORAGE_CONTIGUOUS || array->dtype != TRAJD_I64 ||
        array->rank != 1)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "packed video: its rows are not a list of packets");
    if (!video->unit_count || video->unit_count > video->packet_count ||
        video->unit_count > video->row_count || !video->extradata_count)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "packed video: %llu rows, %llu packets, %llu units and %llu "
                               "extradata: each unit must have a row, a packet and an extradata",
                               (number)video->row_count, (number)video->packet_count,
                               (number)video->unit_count, (number)video->extradata_count);
    if (!within(video->rows_offset, video->row_count, NUMBER_BYTES, file_size_bytes) ||
        !within(video->packets_offset, video->packet_count, 3 * NUMBER_BYTES, file_size_bytes) ||
        !within(video->units_offset, video->unit_count, 3 * NUMBER_BYTES, file_size_bytes) ||
        !within(video->ends_offset, video->extradata_count, NUMBER_BYTES, file_size_bytes) ||
        !within(video->extradata_offset, video->extradata_bytes, 1, file_size_bytes) ||
        !within(array->payload_offset, array->payload_bytes, 1, file_size_bytes))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "packed video: a table or its bytes lie beyond the file's end");
    if (array->offset < video->rows_offset || skipped % NUMBER_BYTES ||
        !within(skipped / NUMBER_BYTES, array->shape[0], 1, video->row_count))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "packed video: its rows are not part of the table of rows");
    if (!video->largest_unit_packets || video->largest_unit_packets > TRAJD_UNIT_PACKETS_MAX ||
        video->largest_unit_bytes > TRAJD_UNIT_BYTES_MAX)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "packed video: its largest unit has %llu packets of %llu bytes, the "
                               "limits are %u and %llu",
                               (number)video->largest_unit_packets,
                               (number)video->largest_unit_bytes, TRAJD_UNIT_PACKETS_MAX,
                               (number)TRAJD_UNIT_BYTES_MAX);
    if (video->media && !trajd_media_is_path(video->media))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "packed video: its attribute media is %.512s: it must be a relative "
                               "path without \".\" and \"..\"",
                               video->media);
    if (video->media && (array->payload_bytes || video->media_size > INT64_MAX))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "packed video: its attribute media_size is out of range");
    return TRAJD_OK;
}

/* ---- tables ---- */

/* A table of the file, and the block of it that was read last. */
struct table {
    int fd;
    uint64_t offset, count;
    uint32_t width;
    uint64_t begin, end; /* of the block */
    uint8_t block[BLOCK_ENTRIES * ENTRY_NUMBERS_MAX * NUMBER_BYTES];
};

/* The tables of an array. */
struct tables {
    const struct trajd_array *array;
    struct table rows, packets, units, ends;
    struct trajd_error *error;
};

static void open_tables(struct tables *t, int fd, const struct trajd_array *array,
                        struct trajd_error *error)
{
    const struct trajd_video *video = array->video;

    t->array = array;
    t->error = error;
    t->rows = (struct table){fd, video->rows_offset, video->row_count, .width = 1};
    t->packets = (struct table){fd, video->packets_offset, video->packet_count, .width = 3};
    t->units = (struct table){fd, video->units_offset, video->unit_count, .width = 3};
    t->ends = (struct table){fd, video->ends_offset, video->extradata_count, .width = 1};
}

/* Reads entry i, which the table must have, with the block that it is in. */
static enum trajd_status read_entry(struct table *table, uint64_t i, uint64_t *numbers,
                                    struct trajd_error *error)
{
    const uint64_t bytes = (uint64_t)table->width * NUMBER_BYTES;

    if (i < table->begin || i >= table->end) {
        const uint64_t begin = i - i % BLOCK_ENTRIES, left = table->count - begin,
                       count = left < BLOCK_ENTRIES ? left : BLOCK_ENTRIES;
        const enum trajd_status status = trajd_read_exactly(
            table->fd, table->offset + begin * bytes, count * bytes, table->block, error);
        table->begin = begin;
        table->end = status ? begin : begin + count;
        if (status)
            return status;
    }
    for (uint32_t n = 0; n < table->width; n++)
        numbers[n] = trajd_u64_at(table->block + (i - table->begin) * bytes + n * NUMBER_BYTES);
    return TRAJD_OK;
}

/* A unit: a run of packets, and the run of rows that show their frames. */
struct unit {
    uint64_t packet, packet_count, row, row_count, extradata;
};

/* Says which rule the bounds of a unit break; NULL: none. */
static const char *check_bounds(uint64_t i, const uint64_t begin[3], const uint64_t end[3],
                                const struct tables *t)
{
    if (!i && (begin[0] || begin[1]))
        return "the first unit must begin at packet 0 and row 0";
    if (begin[0] >= end[0] || begin[1] >= end[1])
        return "units must ascend in packets and in rows";
    if (end[0] > t->packets.count || end[1] > t->rows.count)
        return "there are not so many";
    if (end[0] - begin[0] > t->array->video->largest_unit_packets)
        return "the attribute largest_unit says less";
    return end[1] - begin[1] > TRAJD_UNIT_PACKETS_MAX ? "the limit is 4096 rows" : NULL;
}

static enum trajd_status find_unit(struct tables *t, uint64_t i, struct unit *unit)
{
    uint64_t begin[3], end[3] = {t->packets.count, t->rows.count};
    const char *rule;
    enum trajd_status status;

    if (i >= t->units.count)
        return trajd_error_set(t->error, TRAJD_ERR_ARGUMENT, 0, "unit %llu of %llu", (number)i,
                               (number)t->units.count);
    status = read_entry(&t->units, i, begin, t->error);
    if (!status && i + 1 < t->units.count)
        status = read_entry(&t->units, i + 1, end, t->error);
    if (status)
        return status;
    rule = check_bounds(i, begin, end, t);
    if (rule)
        return trajd_error_set(
            t->error, TRAJD_ERR_DATA, 0,
            "unit %llu: packets from %lld to before %lld of %llu, rows from %lld "
            "to before %lld of %llu: %s",
            (number)i, (long long)begin[0], (long long)end[0], (number)t->packets.count,
            (long long)begin[1], (long long)end[1], (number)t->rows.count, rule);
    if (begin[2] >= t->ends.count)
        return trajd_error_set(t->error, TRAJD_ERR_DATA, 0,
                               "unit %llu: its extradata is number %lld of %llu", (number)i,
                               (long long)begin[2], (number)t->ends.count);
    *unit = (struct unit){begin[0], end[0] - begin[0], begin[1], end[1] - begin[1], begin[2]};
    return TRAJD_OK;
}

/* A run of bytes. */
struct span {
    uint64_t begin, size;
};

static enum trajd_status find_packet(struct tables *t, uint64_t i, struct span *packet,
                                     uint64_t *crc32)
{
    const uint64_t room =
        t->array->video->media ? t->array->video->media_size : t->array->payload_bytes;
    uint64_t numbers[3];
    const enum trajd_status status = read_entry(&t->packets, i, numbers, t->error);

    if (status)
        return status;
    *packet = (struct span){numbers[0], numbers[1]};
    *crc32 = numbers[2];
    if (packet->size <= TRAJD_PACKET_BYTES_MAX && within(packet->begin, packet->size, 1, room) &&
        *crc32 <= UINT32_MAX)
        return TRAJD_OK;
    return trajd_error_set(t->error, TRAJD_ERR_DATA, 0,
                           "packet %llu: %lld bytes at position %lld with crc32 %lld: there are "
                           "%llu bytes, and a packet has at most %llu",
                           (number)i, (long long)packet->size, (long long)packet->begin,
                           (long long)*crc32, (number)room, (number)TRAJD_PACKET_BYTES_MAX);
}

static enum trajd_status find_extradata(struct tables *t, uint64_t i, struct span *extradata)
{
    uint64_t begin = 0, end;
    enum trajd_status status = i ? read_entry(&t->ends, i - 1, &begin, t->error) : TRAJD_OK;

    if (!status)
        status = read_entry(&t->ends, i, &end, t->error);
    if (status)
        return status;
    if (begin > end || end > t->array->video->extradata_bytes ||
        end - begin > TRAJD_EXTRADATA_BYTES_MAX)
        return trajd_error_set(t->error, TRAJD_ERR_DATA, 0,
                               "extradata %llu: it begins at %lld and ends at %lld, of %llu bytes",
                               (number)i, (long long)begin, (long long)end,
                               (number)t->array->video->extradata_bytes);
    *extradata = (struct span){begin, end - begin};
    return TRAJD_OK;
}

/* Finds the packet, in the unit, that row `row` of the table shows. */
static enum trajd_status find_row(struct tables *t, uint64_t row, uint64_t at,
                                  const struct unit *unit, uint64_t *packet)
{
    uint64_t shown;
    const enum trajd_status status = read_entry(&t->rows, row, &shown, t->error);

    if (status)
        return status;
    *packet = shown - unit->packet;
    if (shown >= unit->packet && *packet < unit->packet_count)
        return TRAJD_OK;
    return trajd_error_set(t->error, TRAJD_ERR_DATA, 0,
                           "row %llu: it shows packet %lld, which is not in its unit %llu (packets "
                           "%llu to %llu)",
                           (number)row, (long long)shown, (number)at, (number)unit->packet,
                           (number)(unit->packet + unit->packet_count - 1));
}

/* Returns the row of the table that is row 0 of the array. */
static uint64_t first_row_of(const struct trajd_array *array)
{
    return (array->offset - array->video->rows_offset) / NUMBER_BYTES;
}

/* ---- all of them ---- */

/* Checks a unit with its packets and rows, and adds them to the digest. */
static enum trajd_status examine_unit(struct tables *t, uint64_t i, struct trajd_digest *digest)
{
    const uint64_t most = t->array->video->largest_unit_bytes;
    uint64_t bytes = 0, crc32 = 0, packet = 0;
    struct span span = {0, 0};
    struct unit unit;
    enum trajd_status status = find_unit(t, i, &unit);

    for (uint64_t p = 0; !status && p < unit.packet_count; p++) {
        status = find_packet(t, unit.packet + p, &span, &crc32);
        bytes += span.size;
        trajd_digest_add_u64(digest, span.size << 32 | crc32);
    }
    if (!status && bytes > most)
        status = trajd_error_set(t->error, TRAJD_ERR_DATA, 0,
                                 "unit %llu: %llu bytes, the attribute largest_unit says %llu",
                                 (number)i, (number)bytes, (number)most);
    for (uint64_t r = 0; !status && r < unit.row_count; r++) {
        status = find_row(t, unit.row + r, i, &unit, &packet);
        trajd_digest_add_u64(digest, packet);
    }
    if (!status)
        status = find_extradata(t, unit.extradata, &span);
    trajd_digest_add_u64(digest, span.size);
    return status;
}

/* Adds the extradata to the digest, as much as one unit may have. */
static enum trajd_status add_extradata(int fd, const struct trajd_video *video,
                                       struct trajd_digest *digest, struct trajd_error *error)
{
    const uint64_t bytes = video->extradata_bytes < TRAJD_EXTRADATA_BYTES_MAX
                               ? video->extradata_bytes
                               : TRAJD_EXTRADATA_BYTES_MAX;
    enum trajd_status status = TRAJD_OK;
    uint8_t block[4096];

    for (uint64_t at = 0, size; at < bytes && !status; at += size) {
        size = bytes - at < sizeof block ? bytes - at : sizeof block;
        status = trajd_read_exactly(fd, video->extradata_offset + at, size, block, error);
        if (!status)
            trajd_digest_add(digest, block, size);
    }
    return status;
}

enum trajd_status trajd_video_examine(int fd, const struct trajd_array *array,
                                      struct trajd_digest *digest, struct trajd_error *error)
{
    const struct trajd_video *video = array->video;
    struct tables t;
    enum trajd_status status = add_extradata(fd, video, digest, error);

    open_tables(&t, fd, array, error);
    trajd_digest_add_text(digest, trajd_video_codec_name(video->format.codec));
    trajd_digest_add_text(digest, trajd_video_matrix_name(video->format.matrix));
    trajd_digest_add_text(digest, trajd_video_range_name(video->format.range));
    trajd_digest_add_text(digest, video->pixel_format);
    for (uint64_t i = 0; i < t.units.count && !status; i++)
        status = examine_unit(&t, i, digest);
    return status;
}

/* ---- rows of a unit ---- */

/* Checks that the array has the rows. */
static enum trajd_status check_rows(const struct trajd_array *array, uint64_t row, uint64_t count,
                                    struct trajd_error *error)
{
    if (row <= array->shape[0] && count <= array->shape[0] - row)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "rows from %llu, %llu of them, of %llu",
                           (number)row, (number)count, (number)array->shape[0]);
}

enum trajd_status trajd_video_rows_of_unit(int fd, const struct trajd_array *array, uint64_t row,
                                           uint64_t *unit, uint64_t *first_row, uint64_t *row_count,
                                           struct trajd_error *error)
{
    const uint64_t base = first_row_of(array), wanted = base + row;
    uint64_t low = 0, high = array->video->unit_count, begin, end;
    struct unit bounds;
    struct tables t;
    enum trajd_status status = check_rows(array, row, 1, error);

    open_tables(&t, fd, array, error);
    while (!status && high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        uint64_t numbers[3] = {0};
        status = read_entry(&t.units, middle, numbers, error);
        *(numbers[1] <= wanted ? &low : &high) = middle;
    }
    if (!status)
        status = find_unit(&t, low, &bounds);
    if (status)
        return status;
    if (wanted < bounds.row || wanted - bounds.row >= bounds.row_count)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "row %llu: no unit has it", (number)row);
    begin = bounds.row > base ? bounds.row - base : 0;
    end = bounds.row + bounds.row_count - base;
    *unit = low;
    *first_row = begin;
    *row_count = (end < array->shape[0] ? end : array->shape[0]) - begin;
    return TRAJD_OK;
}

enum trajd_status trajd_video_locate(int fd, const struct trajd_array *array, uint64_t first_row,
                                     uint32_t count, uint64_t unit, uint32_t *packets,
                                     struct trajd_error *error)
{
    const uint64_t begin = first_row_of(array) + first_row;
    struct tables t;
    struct unit bounds;
    enum trajd_status status = check_rows(array, first_row, count, error);

    open_tables(&t, fd, array, error);
    if (!status)
        status = find_unit(&t, unit, &bounds);
    if (!status && (begin < bounds.row || begin + count > bounds.row + bounds.row_count))
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                 "rows from %llu, %u of them, are not all in unit %llu",
                                 (number)first_row, count, (number)unit);
    for (uint32_t i = 0; i < count && !status; i++) {
        uint64_t packet = 0;
        status = find_row(&t, begin + i, unit, &bounds, &packet);
        packets[i] = (uint32_t)packet;
    }
    return status;
}

/* ---- packets ---- */

enum { KEPT_BYTES_MAX = 4 << 20 };

struct trajd_video_reader {
    uint8_t *bytes; /* the packets, then the extradata */
    uint64_t capacity;
    uint64_t sizes[TRAJD_UNIT_PACKETS_MAX], positions[TRAJD_UNIT_PACKETS_MAX],
        crc32s[TRAJD_UNIT_PACKETS_MAX];
    char damage[96];
};

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory to read packets");
}

enum trajd_status trajd_video_reader_create(struct trajd_video_reader **reader,
                                            struct trajd_error *error)
{
    *reader = calloc(1, sizeof **reader);
    return *reader ? TRAJD_OK : no_memory(error);
}

void trajd_video_reader_destroy(struct trajd_video_reader **reader)
{
    if (*reader)
        free((*reader)->bytes);
    free(*reader);
    *reader = NULL;
}

void trajd_video_reader_trim(struct trajd_video_reader *reader)
{
    if (reader->capacity <= KEPT_BYTES_MAX)
        return;
    free(reader->bytes);
    reader->bytes = NULL;
    reader->capacity = 0;
}

static enum trajd_status reserve(struct trajd_video_reader *reader, uint64_t size,
                                 struct trajd_error *error)
{
    uint8_t *grown;

    if (reader->bytes && size <= reader->capacity)
        return TRAJD_OK;
    grown = realloc(reader->bytes, size ? size : 1);
    if (!grown)
        return no_memory(error);
    reader->bytes = grown;
    reader->capacity = size;
    return TRAJD_OK;
}

/* Reads bytes of packets, in the media file or in the payload. */
static enum trajd_status read_packets(int fd, int media_fd, const struct trajd_array *array,
                                      uint64_t position, uint64_t size, uint8_t *to,
                                      struct trajd_error *error)
{
    const bool is_media = array->video->media != NULL;
    const enum trajd_status status =
        trajd_read_exactly(is_media ? media_fd : fd,
                           is_media ? position : array->payload_offset + position, size, to, error);

    if (status && is_media)
        trajd_error_prefix(error, "media file %.256s", array->video->media);
    return status;
}

/* Finds `count` packets. *bytes becomes the sum of their sizes. */
static enum trajd_status find_packets(struct tables *t, uint64_t first, uint32_t count,
                                      struct trajd_video_reader *reader, uint64_t *bytes)
{
    const uint64_t most = t->array->video->largest_unit_bytes;
    enum trajd_status status = TRAJD_OK;

    *bytes = 0;
    for (uint32_t p = 0; p < count && !status; p++) {
        struct span packet = {0, 0};
        status = find_packet(t, first + p, &packet, &reader->crc32s[p]);
        reader->positions[p] = packet.begin;
        reader->sizes[p] = packet.size;
        *bytes += packet.size;
        if (!status && *bytes > most)
            status = trajd_error_set(t->error, TRAJD_ERR_DATA, 0,
                                     "packet %llu: its unit has more than %llu bytes, as the "
                                     "attribute largest_unit says",
                                     (number)(first + p), (number)most);
    }
    return status;
}

/* Reads the packets that were found. */
static enum trajd_status read_found(struct trajd_video_reader *reader, int fd, int media_fd,
                                    const struct trajd_array *array, uint32_t count,
                                    struct trajd_error *error)
{
    uint64_t done = 0;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t p = 0, next; p < count && !status; p = next) {
        uint64_t size = reader->sizes[p];
        for (next = p + 1; next < count; next++) {
            if (reader->positions[next] != reader->positions[p] + size)
                break;
            size += reader->sizes[next];
        }
        status = read_packets(fd, media_fd, array, reader->positions[p], size, reader->bytes + done,
                              error);
        done += size;
    }
    return status;
}

/* Returns how many of the packets that were read are as they were converted, up to the first one
 * that is not; then the reader has the text. */
static uint32_t count_good(struct trajd_video_reader *reader, uint64_t first, uint32_t count)
{
    const uint8_t *bytes = reader->bytes;

    for (uint32_t p = 0; p < count; bytes += reader->sizes[p++])
        if (libdeflate_crc32(0, bytes, reader->sizes[p]) != reader->crc32s[p]) {
            snprintf(reader->damage, sizeof reader->damage,
                     "the bytes of packet %llu have changed since the conversion",
                     (number)(first + p));
            return p;
        }
    return count;
}

enum trajd_status trajd_video_read_unit(struct trajd_video_reader *reader, int fd, int media_fd,
                                        const struct trajd_array *array, uint64_t unit,
                                        uint32_t last, struct trajd_unit_bytes *out,
                                        struct trajd_error *error)
{
    struct tables t;
    struct unit bounds;
    struct span extradata;
    uint64_t bytes = 0;
    uint32_t good;
    enum trajd_status status;

    open_tables(&t, fd, array, error);
    status = find_unit(&t, unit, &bounds);
    if (!status && last >= bounds.packet_count)
        status =
            trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "packet %u of unit %llu, which has %llu",
                            last, (number)unit, (number)bounds.packet_count);
    if (!status)
        status = find_extradata(&t, bounds.extradata, &extradata);
    if (!status)
        status = find_packets(&t, bounds.packet, last + 1, reader, &bytes);
    if (!status)
        status = reserve(reader, bytes + extradata.size, error);
    if (!status)
        status = read_found(reader, fd, media_fd, array, last + 1, error);
    if (!status)
        status = trajd_read_exactly(fd, array->video->extradata_offset + extradata.begin,
                                    extradata.size, reader->bytes + bytes, error);
    if (status)
        return status;
    good = count_good(reader, bounds.packet, last + 1);
    *out = (struct trajd_unit_bytes){
        reader->bytes,         reader->sizes, good, good > last ? NULL : reader->damage,
        reader->bytes + bytes, extradata.size};
    return TRAJD_OK;
}

enum trajd_status trajd_video_check_packet(struct trajd_video_reader *reader, int fd, int media_fd,
                                           const struct trajd_array *array, uint64_t packet,
                                           struct trajd_error *error)
{
    struct tables t;
    uint64_t bytes = 0;
    enum trajd_status status;

    open_tables(&t, fd, array, error);
    status = find_packets(&t, packet, 1, reader, &bytes);
    if (!status)
        status = reserve(reader, bytes, error);
    if (!status)
        status = read_found(reader, fd, media_fd, array, 1, error);
    if (!status && !count_good(reader, packet, 1))
        status = trajd_error_set(error, TRAJD_ERR_DATA, 0, "%s%.512s%s%s",
                                 array->video->media ? "media file " : "",
                                 array->video->media ? array->video->media : "",
                                 array->video->media ? ": " : "", reader->damage);
    return status;
}

/* ---- media files ---- */

/* Opens one component below the folder `at`. -1 with errno: ELOOP for a symbolic link, EINVAL for
 * what is not a regular file. Looks before it opens, because opening a device can act on it. */
static int open_component(int at, const char *name, bool is_last)
{
    struct stat about;

    if (fstatat(at, name, &about, AT_SYMLINK_NOFOLLOW))
        return -1;
    if (S_ISLNK(about.st_mode) || (is_last && !S_ISREG(about.st_mode))) {
        errno = S_ISLNK(about.st_mode) ? ELOOP : EINVAL;
        return -1;
    }
    return openat(at, name,
                  O_NOFOLLOW | O_CLOEXEC |
                      (is_last ? O_RDONLY | O_NONBLOCK | O_NOCTTY : O_PATH | O_DIRECTORY));
}

/* Walks down the path. -1 with errno. */
static int open_below(const char *folder, const char *media)
{
    int at = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);

    while (at >= 0) {
        const size_t length = strcspn(media, "/");
        const bool is_last = !media[length];
        char name[NAME_SIZE];
        int next, code;
        memcpy(name, media, length);
        name[length] = '\0';
        next = open_component(at, name, is_last);
        code = errno;
        close(at);
        errno = code;
        if (is_last)
            return next;
        at = next;
        media += length + 1;
    }
    return -1;
}

/* Says why a media file is not opened. What the paths decide is a fault of the data; anything else
 * is one of the storage. */
static enum trajd_status refuse_media(const char *folder, const char *media, int code,
                                      struct trajd_error *error)
{
    const bool is_data = code == ENOENT || code == ENOTDIR || code == ELOOP || code == EINVAL ||
                         code == ENAMETOOLONG;

    return trajd_error_set(error, is_data ? TRAJD_ERR_DATA : TRAJD_ERR_IO, is_data ? 0 : code,
                           "media file %.512s below %.512s: %s", media, folder,
                           code == ELOOP    ? "a symbolic link, which is not followed"
                           : code == EINVAL ? "it is not a regular file"
                                            : strerror(code));
}

enum trajd_status trajd_media_open(const char *folder, const char *media, int *fd,
                                   struct trajd_file_stat *stat, struct trajd_error *error)
{
    struct stat about = {0};
    int code = EINVAL;

    *stat = (struct trajd_file_stat){0};
    *fd = -1;
    if (trajd_media_is_path(media)) {
        trajd_heartbeat_wait(); /* storage may be slow */
        *fd = open_below(folder, media);
        code = errno;
        trajd_heartbeat_resume();
    }
    if (*fd < 0)
        return refuse_media(folder, media, code, error);
    if (fstat(*fd, &about) || !S_ISREG(about.st_mode)) {
        code = S_ISREG(about.st_mode) || !about.st_mode ? errno : EINVAL;
        close(*fd);
        *fd = -1;
        return refuse_media(folder, media, code, error);
    }
    *stat = trajd_file_stat_from(&about);
    return TRAJD_OK;
}
