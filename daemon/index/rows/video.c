/* Reads the tables of packed video and the packets of a unit. The tables come from a file: each
 * number is checked where it is read, also after trajd_video_examine, because the file may have
 * changed since. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/heartbeat.h"
#include "daemon/index/rows/file_bytes.h"
#include "daemon/index/rows/video.h"

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

static enum trajd_status check_media(const struct trajd_array *array, struct trajd_error *error)
{
    const struct trajd_video *video = array->video;

    if (!trajd_media_is_path(video->media))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "packed video: its attribute media is %.512s: it must be a relative "
                               "path without \".\" and \"..\"",
                               video->media);
    if (array->payload_bytes || video->media_size > INT64_MAX ||
        video->moov_size > TRAJD_MOOV_BYTES_MAX ||
        !within(video->moov_offset, video->moov_size, 1, video->media_size))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "packed video: its attributes media_size and media_moov are out of "
                               "range");
    return TRAJD_OK;
}

enum trajd_status trajd_video_check(const struct trajd_array *array, uint64_t file_size_bytes,
                                    struct trajd_error *error)
{
    const struct trajd_video *video = array->video;

    if (!video || array->storage != TRAJD_STORAGE_CONTIGUOUS || array->dtype != TRAJD_I64 ||
        array->rank != 2 || array->shape[1] != 2)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "packed video: its rows are no table of packet and unit");
    if (!video->packet_count || !video->unit_count || video->unit_count > video->packet_count ||
        !video->extradata_count)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "packed video: %llu packets, %llu units and %llu extradata: each "
                               "unit must have a packet and an extradata",
                               (number)video->packet_count, (number)video->unit_count,
                               (number)video->extradata_count);
    if (!within(video->packets_offset, video->packet_count, 2 * NUMBER_BYTES, file_size_bytes) ||
        !within(video->units_offset, video->unit_count, 3 * NUMBER_BYTES, file_size_bytes) ||
        !within(video->ends_offset, video->extradata_count, NUMBER_BYTES, file_size_bytes) ||
        !within(video->extradata_offset, video->extradata_bytes, 1, file_size_bytes) ||
        !within(array->payload_offset, array->payload_bytes, 1, file_size_bytes))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "packed video: a table or its bytes lie beyond the file's end");
    if (video->largest_unit_packets > TRAJD_UNIT_PACKETS_MAX ||
        video->largest_unit_bytes > TRAJD_UNIT_BYTES_MAX + TRAJD_EXTRADATA_BYTES_MAX)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "packed video: a unit is too large");
    return video->media ? check_media(array, error) : TRAJD_OK;
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
    t->rows = (struct table){fd, array->offset, array->shape[0], .width = 2};
    t->packets = (struct table){fd, video->packets_offset, video->packet_count, .width = 2};
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

struct unit {
    uint64_t first, count; /* packets */
    uint64_t is_closed, extradata;
};

static enum trajd_status find_unit(struct tables *t, uint64_t i, struct unit *unit)
{
    uint64_t numbers[3], next[3] = {t->packets.count};
    enum trajd_status status;

    if (i >= t->units.count)
        return trajd_error_set(t->error, TRAJD_ERR_ARGUMENT, 0, "unit %llu of %llu", (number)i,
                               (number)t->units.count);
    status = read_entry(&t->units, i, numbers, t->error);
    if (!status && i + 1 < t->units.count)
        status = read_entry(&t->units, i + 1, next, t->error);
    if (status)
        return status;
    if (numbers[0] >= next[0] || next[0] > t->packets.count || (!i && numbers[0]))
        return trajd_error_set(
            t->error, TRAJD_ERR_DATA, 0,
            "unit %llu: it begins at packet %lld and ends before packet %lld, of "
            "%llu packets",
            (number)i, (long long)numbers[0], (long long)next[0], (number)t->packets.count);
    *unit = (struct unit){numbers[0], next[0] - numbers[0], numbers[1], numbers[2]};
    if (unit->count > TRAJD_UNIT_PACKETS_MAX)
        return trajd_error_set(t->error, TRAJD_ERR_DATA, 0,
                               "unit %llu: %llu packets, the limit is %u", (number)i,
                               (number)unit->count, TRAJD_UNIT_PACKETS_MAX);
    if (unit->is_closed > 1 || unit->extradata >= t->ends.count)
        return trajd_error_set(t->error, TRAJD_ERR_DATA, 0,
                               "unit %llu: closed is %lld, which must be 0 or 1, and its extradata "
                               "is number %lld of %llu",
                               (number)i, (long long)unit->is_closed, (long long)unit->extradata,
                               (number)t->ends.count);
    return TRAJD_OK;
}

/* A run of bytes. */
struct span {
    uint64_t begin, size;
};

static enum trajd_status find_packet(struct tables *t, uint64_t i, struct span *packet)
{
    const uint64_t room =
        t->array->video->media ? t->array->video->media_size : t->array->payload_bytes;
    uint64_t numbers[2];
    const enum trajd_status status = read_entry(&t->packets, i, numbers, t->error);

    if (status)
        return status;
    *packet = (struct span){numbers[0], numbers[1]};
    if (packet->size <= TRAJD_PACKET_BYTES_MAX && packet->begin <= room &&
        packet->size <= room - packet->begin)
        return TRAJD_OK;
    return trajd_error_set(t->error, TRAJD_ERR_DATA, 0,
                           "packet %llu: %lld bytes at position %lld: there are %llu bytes, and a "
                           "packet has at most %llu",
                           (number)i, (long long)packet->size, (long long)packet->begin,
                           (number)room, (number)TRAJD_PACKET_BYTES_MAX);
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

/* Finds the packet and the unit of a row. The packet is not yet known to be in the unit. */
static enum trajd_status find_row(struct tables *t, uint64_t row, uint64_t *packet, uint64_t *unit)
{
    uint64_t numbers[2];
    const enum trajd_status status = read_entry(&t->rows, row, numbers, t->error);

    if (status)
        return status;
    *packet = numbers[0];
    *unit = numbers[1];
    return *packet < t->packets.count && *unit < t->units.count
               ? TRAJD_OK
               : trajd_error_set(t->error, TRAJD_ERR_DATA, 0,
                                 "row %llu: it shows packet %lld of unit %lld, and there are %llu "
                                 "packets and %llu units",
                                 (number)row, (long long)*packet, (long long)*unit,
                                 (number)t->packets.count, (number)t->units.count);
}

static enum trajd_status check_row(struct tables *t, uint64_t row, uint64_t packet, uint64_t at,
                                   const struct unit *unit)
{
    if (packet >= unit->first && packet - unit->first < unit->count)
        return TRAJD_OK;
    return trajd_error_set(t->error, TRAJD_ERR_DATA, 0,
                           "row %llu: it shows packet %llu, which is not in its unit %llu "
                           "(packets %llu to %llu)",
                           (number)row, (number)packet, (number)at, (number)unit->first,
                           (number)(unit->first + unit->count - 1));
}

/* ---- all of them ---- */

/* Checks the packets of a unit, and adds their sizes to the digest. */
static enum trajd_status examine_unit(struct tables *t, uint64_t i, struct trajd_video *video,
                                      struct trajd_digest *digest)
{
    struct unit unit;
    struct span span = {0, 0};
    uint64_t bytes = 0;
    enum trajd_status status = find_unit(t, i, &unit);

    for (uint64_t p = 0; !status && p < unit.count; p++) {
        status = find_packet(t, unit.first + p, &span);
        bytes += span.size;
        trajd_digest_add_u64(digest, span.size);
    }
    if (!status && bytes > TRAJD_UNIT_BYTES_MAX)
        status =
            trajd_error_set(t->error, TRAJD_ERR_DATA, 0, "unit %llu: %llu bytes, the limit is %llu",
                            (number)i, (number)bytes, (number)TRAJD_UNIT_BYTES_MAX);
    if (!status)
        status = find_extradata(t, unit.extradata, &span);
    if (status)
        return status;
    trajd_digest_add_u64(digest, unit.first << 1 | unit.is_closed);
    trajd_digest_add_u64(digest, span.size);
    bytes += span.size;
    if (bytes > video->largest_unit_bytes)
        video->largest_unit_bytes = bytes;
    if (unit.count > video->largest_unit_packets)
        video->largest_unit_packets = unit.count;
    return TRAJD_OK;
}

/* Checks all rows. The units of rows ascend, and a unit is shown by a run of rows of limited
 * length. */
static enum trajd_status examine_rows(struct tables *t, struct trajd_digest *digest)
{
    uint64_t packet, at, last = 0, run = 0;
    struct unit unit;
    enum trajd_status status = TRAJD_OK;

    for (uint64_t row = 0; row < t->rows.count && !status; row++) {
        status = find_row(t, row, &packet, &at);
        if (!status && row && at < last)
            status = trajd_error_set(t->error, TRAJD_ERR_DATA, 0,
                                     "row %llu: it is in unit %llu, and the row before it in unit "
                                     "%llu: units must not descend",
                                     (number)row, (number)at, (number)last);
        run = !row || at != last ? 0 : run + 1;
        if (!status && !run)
            status = find_unit(t, at, &unit);
        if (!status && run >= TRAJD_UNIT_PACKETS_MAX)
            status = trajd_error_set(t->error, TRAJD_ERR_DATA, 0,
                                     "row %llu: more than %u rows are in unit %llu", (number)row,
                                     TRAJD_UNIT_PACKETS_MAX, (number)at);
        if (!status)
            status = check_row(t, row, packet, at, &unit);
        if (!status)
            trajd_digest_add_u64(digest, packet);
        last = at;
    }
    return status;
}

enum trajd_status trajd_video_examine(int fd, const struct trajd_array *array,
                                      struct trajd_video *video, struct trajd_digest *digest,
                                      struct trajd_error *error)
{
    struct tables t;
    struct span span;
    enum trajd_status status = TRAJD_OK;

    open_tables(&t, fd, array, error);
    video->largest_unit_bytes = video->largest_unit_packets = 0;
    trajd_digest_add_text(digest, trajd_video_codec_name(video->format.codec));
    trajd_digest_add_text(digest, trajd_video_matrix_name(video->format.matrix));
    trajd_digest_add_text(digest, trajd_video_range_name(video->format.range));
    trajd_digest_add_text(digest, video->pixel_format);
    for (uint64_t i = 0; i < t.ends.count && !status; i++)
        status = find_extradata(&t, i, &span);
    for (uint64_t i = 0; i < t.units.count && !status; i++)
        status = examine_unit(&t, i, video, digest);
    return status ? status : examine_rows(&t, digest);
}

/* ---- rows of a unit ---- */

enum trajd_status trajd_video_rows_of_unit(int fd, const struct trajd_array *array, uint64_t row,
                                           uint64_t *unit, uint64_t *first_row, uint64_t *row_count,
                                           struct trajd_error *error)
{
    uint64_t first = row, end = row + 1, packet, at;
    struct tables t;
    enum trajd_status status;

    open_tables(&t, fd, array, error);
    if (row >= t.rows.count)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "row %llu of %llu", (number)row,
                               (number)t.rows.count);
    status = find_row(&t, row, &packet, unit);
    for (at = status ? 0 : *unit; !status && first && row - first < TRAJD_UNIT_PACKETS_MAX;) {
        status = find_row(&t, first - 1, &packet, &at);
        if (status || at != *unit)
            break;
        first--;
    }
    while (!status && end < t.rows.count && end - first < TRAJD_UNIT_PACKETS_MAX) {
        status = find_row(&t, end, &packet, &at);
        if (status || at != *unit)
            break;
        end++;
    }
    *first_row = first;
    *row_count = end - first;
    return status;
}

enum trajd_status trajd_video_locate(int fd, const struct trajd_array *array, uint64_t first_row,
                                     uint32_t count, uint64_t unit, uint32_t *packets,
                                     struct trajd_error *error)
{
    struct tables t;
    struct unit bounds;
    enum trajd_status status;

    open_tables(&t, fd, array, error);
    if (first_row > t.rows.count || count > t.rows.count - first_row)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "rows from %llu, %u of them, of %llu",
                               (number)first_row, count, (number)t.rows.count);
    status = find_unit(&t, unit, &bounds);
    for (uint32_t i = 0; i < count && !status; i++) {
        uint64_t packet = 0, at;
        status = find_row(&t, first_row + i, &packet, &at);
        if (!status && at != unit)
            status = trajd_error_set(error, TRAJD_ERR_DATA, 0,
                                     "row %llu: it is in unit %llu, not in unit %llu",
                                     (number)(first_row + i), (number)at, (number)unit);
        if (!status)
            status = check_row(&t, first_row + i, packet, unit, &bounds);
        if (!status)
            packets[i] = (uint32_t)(packet - bounds.first);
    }
    return status;
}

/* ---- packets ---- */

struct trajd_video_reader {
    uint8_t *bytes; /* the packets, then the extradata */
    uint64_t capacity;
    uint64_t sizes[TRAJD_UNIT_PACKETS_MAX];
    uint64_t positions[TRAJD_UNIT_PACKETS_MAX];
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

static enum trajd_status reserve(struct trajd_video_reader *reader, uint64_t size,
                                 struct trajd_error *error)
{
    uint8_t *grown;

    if (size <= reader->capacity)
        return TRAJD_OK;
    grown = realloc(reader->bytes, size);
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

/* Finds the packets 0 to `last` of the unit. *bytes becomes the sum of their sizes. */
static enum trajd_status find_packets(struct tables *t, const struct unit *unit, uint32_t last,
                                      struct trajd_video_reader *reader, uint64_t *bytes)
{
    enum trajd_status status = TRAJD_OK;

    *bytes = 0;
    for (uint32_t p = 0; p <= last && !status; p++) {
        struct span packet = {0, 0};
        status = find_packet(t, unit->first + p, &packet);
        reader->positions[p] = packet.begin;
        reader->sizes[p] = packet.size;
        *bytes += packet.size;
        if (!status && *bytes > TRAJD_UNIT_BYTES_MAX)
            status = trajd_error_set(t->error, TRAJD_ERR_DATA, 0,
                                     "a unit has more than %llu bytes, the limit",
                                     (number)TRAJD_UNIT_BYTES_MAX);
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

enum trajd_status trajd_video_read_unit(struct trajd_video_reader *reader, int fd, int media_fd,
                                        const struct trajd_array *array, uint64_t unit,
                                        uint32_t last, struct trajd_unit_bytes *out,
                                        struct trajd_error *error)
{
    struct tables t;
    struct unit bounds;
    struct span extradata;
    uint64_t bytes = 0;
    enum trajd_status status;

    open_tables(&t, fd, array, error);
    status = find_unit(&t, unit, &bounds);
    if (!status && last >= bounds.count)
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                 "packet %u of unit %llu, which has "
                                 "%llu",
                                 last, (number)unit, (number)bounds.count);
    if (!status)
        status = find_extradata(&t, bounds.extradata, &extradata);
    if (!status)
        status = find_packets(&t, &bounds, last, reader, &bytes);
    if (!status)
        status = reserve(reader, bytes + extradata.size, error);
    if (!status)
        status = read_found(reader, fd, media_fd, array, last + 1, error);
    if (!status)
        status = trajd_read_exactly(fd, array->video->extradata_offset + extradata.begin,
                                    extradata.size, reader->bytes + bytes, error);
    if (status)
        return status;
    *out = (struct trajd_unit_bytes){reader->bytes, reader->sizes, last + 1, reader->bytes + bytes,
                                     extradata.size};
    return TRAJD_OK;
}

enum trajd_status trajd_video_sample(int fd, int media_fd, const struct trajd_array *array,
                                     uint64_t packet, uint8_t bytes[TRAJD_PACKET_SAMPLE_BYTES],
                                     uint64_t *size, struct trajd_error *error)
{
    struct tables t;
    struct span span;
    enum trajd_status status;

    open_tables(&t, fd, array, error);
    status = find_packet(&t, packet, &span);
    if (status)
        return status;
    *size = span.size;
    return read_packets(fd, media_fd, array, span.begin, trajd_video_sample_bytes(span.size), bytes,
                        error);
}

/* ---- media files ---- */

/* Opens one component below the folder `at`. -1 with errno: ELOOP for a symbolic link, EINVAL for
 * what is no regular file. Looks before it opens, because opening a device can act on it. */
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
