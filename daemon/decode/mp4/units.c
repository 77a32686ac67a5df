#include "daemon/decode/mp4/units.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/digest.h"

enum {
    WINDOW_BYTES = 4096, /* at least TRAJD_PARAMETER_SET_MAX */
    SET_IDS = 256,
    OBU_HEAD_BYTES = 16 /* its header, its size and the first byte of its payload at most */
};

enum set_kind { SET_VIDEO, SET_SEQUENCE, SET_PICTURE, SET_KINDS };

/* A parameter set (of AV1: the sequence header) by its number. Digests; 0: there is none. */
struct set {
    uint64_t described; /* in the extradata */
    uint64_t current;   /* in the bitstream so far */
    uint64_t packet;    /* the number, from 1, of the packet that had it last */
};

/* What a sample is to the units. */
struct picture {
    uint32_t shown;    /* frames that it shows */
    bool begins;       /* from here on nothing before it is needed */
    bool is_tentative; /* the same, unless a leading picture behind it refers back */
    bool refers_back;  /* is such a leading picture */
    bool has_frame;    /* of AV1: a frame header came already */
};

struct finder {
    int fd;
    const struct trajd_mp4 *mp4;
    struct trajd_units *units;
    struct trajd_error *error;
    uint32_t packet, entry; /* of the current sample */
    uint32_t length_size;   /* of a NAL unit's length, in bytes */
    bool has_format;
    struct trajd_stream_format format; /* by the last sequence header */
    struct set sets[SET_KINDS][SET_IDS];
    bool is_tentative; /* the last unit may have to join the one before */
    uint64_t window_at;
    uint32_t window_bytes;
    uint8_t window[WINDOW_BYTES];
};

/* ---- bytes of samples ---- */

/* Returns `size` bytes of the file, which are valid until the next call. NULL where it cannot be
 * read. The caller has checked that they lie in a sample, and size <= WINDOW_BYTES. */
static const uint8_t *view(struct finder *finder, uint64_t offset, uint32_t size)
{
    const uint64_t file_bytes = finder->mp4->file_bytes;

    if (offset < finder->window_at || offset + size > finder->window_at + finder->window_bytes) {
        finder->window_bytes = 0;
        finder->window_at = offset;
        if (trajd_mp4_pread(finder->fd, offset, finder->window,
                            file_bytes - offset < WINDOW_BYTES ? file_bytes - offset : WINDOW_BYTES,
                            finder->error))
            return NULL;
        finder->window_bytes =
            file_bytes - offset < WINDOW_BYTES ? (uint32_t)(file_bytes - offset) : WINDOW_BYTES;
    }
    return finder->window + (offset - finder->window_at);
}

/* ---- parameter sets ---- */

/* Sets the format of the frames from here on. What the bitstream leaves open, the box colr may say. */
static void set_format(struct finder *finder, struct trajd_stream_format format)
{
    const struct trajd_mp4_entry *entry = &finder->mp4->entries[finder->entry];

    if (format.matrix == TRAJD_MATRIX_UNSPECIFIED)
        format.matrix = entry->matrix;
    if (format.range == TRAJD_RANGE_UNSPECIFIED)
        format.range = entry->range;
    finder->format = format;
    finder->has_format = true;
}

/* Reads the number of a set, and of a sequence's set the format. TRAJD_ERR_DATA: it is damaged. */
static enum trajd_status read_set(struct finder *finder, enum set_kind kind, const uint8_t *bytes,
                                  size_t size, uint32_t *id)
{
    struct trajd_stream_format format;
    enum trajd_status status;

    *id = kind == SET_VIDEO && size ? bytes[0] >> 4 : 0;
    if (kind == SET_VIDEO)
        return TRAJD_OK;
    if (kind == SET_PICTURE)
        return trajd_stream_picture_set_id(bytes, size, id)
                   ? TRAJD_OK
                   : trajd_error_set(finder->error, TRAJD_ERR_DATA, 0,
                                     "a picture parameter set is damaged");
    if (finder->mp4->codec == TRAJD_VIDEO_AV1)
        status = trajd_stream_format_av1(bytes, size, &format, finder->error);
    else if (finder->mp4->codec == TRAJD_VIDEO_H264)
        status = trajd_stream_format_h264(bytes, size, id, &format, finder->error);
    else
        status = trajd_stream_format_hevc(bytes, size, id, &format, finder->error);
    if (!status)
        set_format(finder, format);
    return status;
}

/* Takes a parameter set. */
static enum trajd_status take_set(struct finder *finder, enum set_kind kind, const uint8_t *bytes,
                                  size_t size, bool is_described)
{
    const uint64_t digest = trajd_digest_of(bytes, size) | 1;
    struct set *set;
    uint32_t id;

    if (read_set(finder, kind, bytes, size, &id))
        return finder->error->status;
    if (id >= SET_IDS)
        return trajd_error_set(finder->error, TRAJD_ERR_DATA, 0, "a parameter set is damaged");
    set = &finder->sets[kind][id];
    set->current = digest;
    if (is_described)
        set->described = digest;
    else
        set->packet = (uint64_t)finder->packet + 1;
    return TRAJD_OK;
}

/* Returns whether a decoder that gets the extradata and then the packets from the current one on has
 * the parameter sets that are valid now. Where they came in band and not again, it does not. */
static bool has_sets(const struct finder *finder)
{
    for (int kind = 0; kind < SET_KINDS; kind++)
        for (int id = 0; id < SET_IDS; id++) {
            const struct set *set = &finder->sets[kind][id];
            if (set->current != set->described && set->packet != (uint64_t)finder->packet + 1)
                return false;
        }
    return true;
}

/* ---- NAL units: H.264 and HEVC ---- */

/* Returns the kind of a NAL unit that is a parameter set; SET_KINDS for others. */
static enum set_kind nal_kind(enum trajd_video_codec codec, uint32_t type)
{
    if (codec == TRAJD_VIDEO_H264)
        return type == 7 ? SET_SEQUENCE : type == 8 ? SET_PICTURE : SET_KINDS;
    return type >= 32 && type <= 34 ? (enum set_kind)(SET_VIDEO + type - 32) : SET_KINDS;
}

static bool is_slice(enum trajd_video_codec codec, uint32_t type)
{
    return codec == TRAJD_VIDEO_H264 ? type >= 1 && type <= 5 : type < 32;
}

static struct picture picture_of(enum trajd_video_codec codec, uint32_t type)
{
    if (codec == TRAJD_VIDEO_H264)
        return (struct picture){.shown = 1, .begins = type == 5}; /* IDR */
    return (struct picture){.shown = 1,
                            .begins = type >= 16 && type <= 21, /* BLA, IDR, CRA */
                            .is_tentative = type == 21,         /* CRA */
                            .refers_back = type == 8 || type == 9 /* RASL */};
}

/* Takes one NAL unit of a sample. *is_done: it is the picture. Those of other layers do not count. */
static enum trajd_status take_nal(struct finder *finder, uint64_t offset, uint32_t size,
                                  struct picture *picture, bool *is_done)
{
    const enum trajd_video_codec codec = finder->mp4->codec;
    const uint32_t head = codec == TRAJD_VIDEO_H264 ? 1 : 2;
    const uint8_t *bytes;
    enum set_kind kind;
    uint32_t type;

    if (size < head)
        return TRAJD_OK;
    if (!(bytes = view(finder, offset, head)))
        return finder->error->status;
    type = codec == TRAJD_VIDEO_H264 ? bytes[0] & 31u : bytes[0] >> 1 & 63u;
    kind = nal_kind(codec, type);
    if (codec == TRAJD_VIDEO_HEVC && (bytes[0] & 1 || bytes[1] >> 3))
        return TRAJD_OK;
    if (is_slice(codec, type)) {
        *picture = picture_of(codec, type);
        *is_done = true;
    }
    if (kind == SET_KINDS)
        return TRAJD_OK;
    if (size > TRAJD_PARAMETER_SET_MAX)
        return trajd_error_set(finder->error, TRAJD_ERR_DATA, 0, "a parameter set is too long");
    if (!(bytes = view(finder, offset, size)))
        return finder->error->status;
    return take_set(finder, kind, bytes + head, size - head, false);
}

/* Finds the first slice of a sample. */
static enum trajd_status scan_nals(struct finder *finder, const struct trajd_mp4_sample *sample,
                                   struct picture *picture)
{
    bool is_done = false;
    uint32_t at = 0;

    while (!is_done && sample->bytes - at > finder->length_size) {
        const uint8_t *bytes = view(finder, sample->offset + at, finder->length_size);
        uint32_t size;
        if (!bytes)
            return finder->error->status;
        size = trajd_be(bytes, finder->length_size);
        at += finder->length_size;
        if (size > sample->bytes - at)
            return trajd_error_set(finder->error, TRAJD_ERR_DATA, 0, "a NAL unit is cut");
        if (take_nal(finder, sample->offset + at, size, picture, &is_done))
            return finder->error->status;
        at += size;
    }
    return TRAJD_OK;
}

/* Takes parameter sets of an avcC or hvcC, each behind its length. *at: advances. */
static enum trajd_status take_list(struct finder *finder, enum set_kind kind, uint32_t count,
                                   const uint8_t **at, const uint8_t *end)
{
    const uint32_t head = finder->mp4->codec == TRAJD_VIDEO_H264 ? 1 : 2;

    for (; count; count--) {
        const uint32_t size = end - *at < 2 ? UINT32_MAX : trajd_be(*at, 2);
        if (size > (uint64_t)(end - *at) - 2 || size < head || size > TRAJD_PARAMETER_SET_MAX)
            return trajd_error_set(finder->error, TRAJD_ERR_DATA, 0,
                                   "the parameter sets of its sample entry are cut or damaged");
        *at += 2;
        if (kind != SET_KINDS && take_set(finder, kind, *at + head, size - head, true))
            return finder->error->status;
        *at += size;
    }
    return TRAJD_OK;
}

static enum trajd_status describe_h264(struct finder *finder, const uint8_t *at, const uint8_t *end)
{
    if (end - at < 7)
        return trajd_error_set(finder->error, TRAJD_ERR_DATA, 0, "its box avcC is cut");
    finder->length_size = (at[4] & 3u) + 1;
    at += 6;
    if (take_list(finder, SET_SEQUENCE, at[-1] & 31u, &at, end))
        return finder->error->status;
    if (at == end)
        return TRAJD_OK;
    at++;
    return take_list(finder, SET_PICTURE, at[-1], &at, end);
}

static enum trajd_status describe_hevc(struct finder *finder, const uint8_t *at, const uint8_t *end)
{
    if (end - at < 23)
        return trajd_error_set(finder->error, TRAJD_ERR_DATA, 0, "its box hvcC is cut");
    finder->length_size = (at[21] & 3u) + 1;
    at += 23;
    for (uint32_t arrays = at[-1]; arrays; arrays--) {
        if (end - at < 3)
            return trajd_error_set(finder->error, TRAJD_ERR_DATA, 0, "its box hvcC is cut");
        at += 3;
        if (take_list(finder, nal_kind(TRAJD_VIDEO_HEVC, at[-3] & 63u), trajd_be(at - 2, 2), &at,
                      end))
            return finder->error->status;
    }
    return TRAJD_OK;
}

/* ---- OBUs: AV1 ---- */

struct obu {
    uint32_t type;
    uint32_t head, payload; /* bytes */
};

/* Reads the header of an OBU. Returns false where it does not fit into `size` bytes. `bytes`: at
 * least the first OBU_HEAD_BYTES of them, or all. */
static bool read_obu(const uint8_t *bytes, uint64_t size, struct obu *obu)
{
    const uint64_t most = size < OBU_HEAD_BYTES ? size : OBU_HEAD_BYTES;
    const bool has_extension = bytes[0] & 4, has_size = bytes[0] & 2;
    uint64_t payload = 0, head = 1 + has_extension;
    uint32_t shift = 0;
    bool goes_on = has_size;

    obu->type = bytes[0] >> 3 & 15u;
    while (goes_on && shift < 56 && head < most) { /* 7 bits a byte, the lowest first */
        payload |= (uint64_t)(bytes[head] & 127) << shift;
        shift += 7;
        goes_on = bytes[head++] & 128;
    }
    if (bytes[0] & 128 || goes_on || head > size)
        return false;
    obu->head = (uint32_t)head;
    obu->payload = (uint32_t)(has_size ? payload : size - head);
    return !has_size || payload <= size - head;
}

/* Takes what a frame header says first: show_existing_frame, frame_type, show_frame. A unit begins at
 * a key frame that is shown at once, before any other frame of its sample. */
static void take_frame(uint8_t first, struct picture *picture)
{
    const bool is_repeat = first & 0x80, is_key = !(first & 0x60), is_shown = first & 0x10;

    picture->begins |= !picture->has_frame && !is_repeat && is_key && is_shown;
    picture->has_frame = true;
    picture->shown += is_repeat || is_shown;
}

static enum trajd_status scan_obus(struct finder *finder, const struct trajd_mp4_sample *sample,
                                   struct picture *picture)
{
    enum { SEQUENCE_HEADER = 1, FRAME_HEADER = 3, FRAME = 6 };
    struct obu obu;

    for (uint32_t at = 0; at < sample->bytes; at += obu.head + obu.payload) {
        const uint32_t left = sample->bytes - at;
        const uint8_t *bytes =
            view(finder, sample->offset + at, left < OBU_HEAD_BYTES ? left : OBU_HEAD_BYTES);
        if (!bytes)
            return finder->error->status;
        if (!read_obu(bytes, left, &obu))
            return trajd_error_set(finder->error, TRAJD_ERR_DATA, 0, "an OBU is cut");
        if ((obu.type == FRAME_HEADER || obu.type == FRAME) && obu.payload)
            take_frame(bytes[obu.head], picture);
        if (obu.type != SEQUENCE_HEADER)
            continue;
        if (obu.payload > TRAJD_PARAMETER_SET_MAX)
            return trajd_error_set(finder->error, TRAJD_ERR_DATA, 0, "a parameter set is too long");
        bytes = view(finder, sample->offset + at + obu.head, obu.payload);
        if (!bytes || take_set(finder, SET_SEQUENCE, bytes, obu.payload, false))
            return finder->error->status;
    }
    return TRAJD_OK;
}

static enum trajd_status describe_av1(struct finder *finder, const uint8_t *at, const uint8_t *end)
{
    struct obu obu;

    if (end - at < 4)
        return trajd_error_set(finder->error, TRAJD_ERR_DATA, 0, "its box av1C is cut");
    for (at += 4; at < end; at += obu.head + obu.payload) {
        if (!read_obu(at, (uint64_t)(end - at), &obu) || obu.payload > TRAJD_PARAMETER_SET_MAX)
            return trajd_error_set(finder->error, TRAJD_ERR_DATA, 0, "its box av1C is damaged");
        if (obu.type == 1 && take_set(finder, SET_SEQUENCE, at + obu.head, obu.payload, true))
            return finder->error->status;
    }
    return TRAJD_OK;
}

/* ---- samples to units ---- */

/* Takes the extradata of an entry, in the place of all parameter sets so far. */
static enum trajd_status describe_entry(struct finder *finder, uint32_t number)
{
    const struct trajd_mp4_entry *entry = &finder->mp4->entries[number];
    const uint8_t *at = entry->extradata, *end = at + entry->extradata_bytes;

    finder->entry = number;
    memset(finder->sets, 0, sizeof finder->sets);
    if (finder->mp4->codec == TRAJD_VIDEO_AV1)
        return describe_av1(finder, at, end);
    return finder->mp4->codec == TRAJD_VIDEO_H264 ? describe_h264(finder, at, end)
                                                  : describe_hevc(finder, at, end);
}

/* Reads one sample. One that is damaged is a frame, and the decoder will say so. */
static enum trajd_status scan_sample(struct finder *finder, const struct trajd_mp4_sample *sample,
                                     struct picture *picture)
{
    enum trajd_status status;

    *picture = (struct picture){0};
    status = finder->mp4->codec == TRAJD_VIDEO_AV1 ? scan_obus(finder, sample, picture)
                                                   : scan_nals(finder, sample, picture);
    if (status == TRAJD_ERR_DATA)
        *picture = (struct picture){.shown = 1};
    else if (status)
        return status;
    return picture->shown < 2
               ? TRAJD_OK
               : trajd_error_set(finder->error, TRAJD_ERR_UNSUPPORTED, 0,
                                 "packet %u of its video track shows %u frames: one is supported",
                                 finder->packet, picture->shown);
}

/* All frames have the format of the first one. */
static enum trajd_status check_format(struct finder *finder)
{
    const struct trajd_stream_format *now = &finder->format, *first = &finder->units->format;
    char names[2][TRAJD_PIXEL_FORMAT_SIZE];

    if (!finder->has_format)
        return trajd_error_set(finder->error, TRAJD_ERR_DATA, 0,
                               "its video has no sequence header before its first frame");
    if (!first->height)
        finder->units->format = *now;
    if (now->height == first->height && now->width == first->width &&
        now->chroma == first->chroma && now->bits == first->bits && now->matrix == first->matrix &&
        now->range == first->range)
        return TRAJD_OK;
    return trajd_error_set(
        finder->error, TRAJD_ERR_UNSUPPORTED, 0,
        "its frames change at packet %u from %ux%u %s %s %s to %ux%u %s %s %s: all frames of a "
        "video must have one size and format",
        finder->packet, first->height, first->width,
        trajd_stream_pixel_format(finder->mp4->codec, first, names[0]),
        trajd_video_matrix_name(first->matrix), trajd_video_range_name(first->range), now->height,
        now->width, trajd_stream_pixel_format(finder->mp4->codec, now, names[1]),
        trajd_video_matrix_name(now->matrix), trajd_video_range_name(now->range));
}

/* Joins the last unit to the one before: a leading picture refers to what is before both. */
static enum trajd_status reopen_unit(struct finder *finder)
{
    struct trajd_unit *last = &finder->units->units[finder->units->unit_count - 1];

    finder->is_tentative = false;
    if (finder->units->unit_count == 1) {
        last->is_closed = false;
        return TRAJD_OK;
    }
    if (last->extradata != last[-1].extradata)
        return trajd_error_set(finder->error, TRAJD_ERR_UNSUPPORTED, 0,
                               "packet %u of its video track has another sample description, and "
                               "needs frames of the one before",
                               last->first_packet);
    finder->units->unit_count--;
    return TRAJD_OK;
}

/* Adds the current sample to the last unit, or begins one with it. */
static enum trajd_status add_packet(struct finder *finder, const struct picture *picture)
{
    struct trajd_units *units = finder->units;
    const bool begins = picture->begins && has_sets(finder);

    if (picture->begins)
        finder->is_tentative = begins && picture->is_tentative;
    if (begins || !finder->packet)
        units->units[units->unit_count++] = (struct trajd_unit){
            .first_packet = finder->packet, .extradata = finder->entry, .is_closed = begins};
    else if (finder->entry != units->units[units->unit_count - 1].extradata)
        return trajd_error_set(finder->error, TRAJD_ERR_UNSUPPORTED, 0,
                               "packet %u of its video track has another sample description, and "
                               "is no key frame",
                               finder->packet);
    return picture->refers_back && finder->is_tentative ? reopen_unit(finder) : TRAJD_OK;
}

static enum trajd_status scan_samples(struct finder *finder)
{
    struct trajd_units *units = finder->units;
    struct picture picture;

    for (uint32_t i = 0; i < finder->mp4->sample_count; i++) {
        const struct trajd_mp4_sample *sample = &finder->mp4->samples[i];
        finder->packet = i;
        if ((!i || sample->entry != finder->entry) && describe_entry(finder, sample->entry))
            return finder->error->status;
        if (scan_sample(finder, sample, &picture) || (picture.shown && check_format(finder)) ||
            add_packet(finder, &picture))
            return finder->error->status;
        if (picture.shown)
            units->rows[units->row_count++] =
                (struct trajd_unit_row){.time = sample->time, .packet = i};
    }
    return TRAJD_OK;
}

static enum trajd_status check_limits(const struct finder *finder)
{
    const struct trajd_units *units = finder->units;

    for (uint64_t u = 0; u < units->unit_count; u++) {
        const uint32_t first = units->units[u].first_packet;
        const uint32_t end = u + 1 < units->unit_count ? units->units[u + 1].first_packet
                                                       : (uint32_t)finder->mp4->sample_count;
        uint64_t bytes = 0;
        for (uint32_t i = first; i < end; i++)
            bytes += finder->mp4->samples[i].bytes;
        if (end - first > TRAJD_UNIT_PACKETS_MAX || bytes > TRAJD_UNIT_BYTES_MAX)
            return trajd_error_set(finder->error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "decoding can begin at packet %u and then not before packet "
                                   "%u, %llu MiB later: at most %u packets and 64 MiB are "
                                   "supported; encode it with more key frames, in closed GOPs",
                                   first, end, (unsigned long long)(bytes >> 20),
                                   TRAJD_UNIT_PACKETS_MAX);
    }
    return TRAJD_OK;
}

/* ---- rows ---- */

static int compare_rows(const void *left, const void *right)
{
    const struct trajd_unit_row *a = left, *b = right;

    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return (a->packet > b->packet) - (a->packet < b->packet);
}

/* Gives each row its unit, and puts them into the order in which they are shown. */
static void order_rows(struct trajd_units *units)
{
    uint32_t unit = 0;
    bool is_ordered = true;

    for (uint64_t i = 0; i < units->row_count; i++) {
        struct trajd_unit_row *row = &units->rows[i];
        while (unit + 1 < units->unit_count && units->units[unit + 1].first_packet <= row->packet)
            unit++;
        row->unit = unit;
        is_ordered &= !i || row->time >= row[-1].time;
    }
    if (!is_ordered)
        qsort(units->rows, units->row_count, sizeof *units->rows, compare_rows);
}

static enum trajd_status check_order(const struct finder *finder)
{
    const bool is_av1 = finder->mp4->codec == TRAJD_VIDEO_AV1;

    for (uint64_t i = 1; i < finder->units->row_count; i++) {
        const struct trajd_unit_row *row = &finder->units->rows[i];
        if (row->unit < row[-1].unit || (is_av1 && row->packet < row[-1].packet))
            return trajd_error_set(finder->error, TRAJD_ERR_DATA, 0,
                                   "the frame of packet %u is shown before that of packet %u, "
                                   "which the order of the packets excludes",
                                   row[-1].packet, row->packet);
        if (row->time == row[-1].time && finder->mp4->is_reordered)
            return trajd_error_set(finder->error, TRAJD_ERR_DATA, 0,
                                   "the frames of packets %u and %u are shown at the same time",
                                   row[-1].packet, row->packet);
    }
    return TRAJD_OK;
}

/* Applies the edit list, which may not hide a frame. */
static enum trajd_status edit_times(const struct finder *finder)
{
    const struct trajd_mp4_edit *edit = &finder->mp4->edit;
    struct trajd_unit_row *rows = finder->units->rows;
    const int64_t last = rows[finder->units->row_count - 1].time - edit->first_time;

    if (rows[0].time < edit->first_time ||
        (double)last / finder->mp4->timescale >= edit->last_seconds)
        return trajd_error_set(finder->error, TRAJD_ERR_UNSUPPORTED, 0,
                               "the edit list of its video track hides frames: only a delay, or "
                               "the start behind the delay of B frames, is read");
    for (uint64_t i = 0; i < finder->units->row_count; i++)
        rows[i].time += edit->delay - edit->first_time;
    return TRAJD_OK;
}

static enum trajd_status find_units(struct finder *finder)
{
    if (scan_samples(finder) || check_limits(finder))
        return finder->error->status;
    if (!finder->units->row_count)
        return trajd_error_set(finder->error, TRAJD_ERR_DATA, 0, "its video track shows no frame");
    order_rows(finder->units);
    return check_order(finder) ? finder->error->status : edit_times(finder);
}

enum trajd_status trajd_units_find(int fd, const struct trajd_mp4 *mp4, struct trajd_arena *arena,
                                   struct trajd_units *units, struct trajd_error *error)
{
    struct finder *finder = trajd_arena_array(arena, 1, sizeof *finder);

    *units = (struct trajd_units){0};
    units->units = trajd_arena_array(arena, mp4->sample_count, sizeof *units->units);
    units->rows = trajd_arena_array(arena, mp4->sample_count, sizeof *units->rows);
    if (arena->is_starved)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "its tables need too much memory");
    finder->fd = fd;
    finder->mp4 = mp4;
    finder->units = units;
    finder->error = error;
    return find_units(finder);
}
