/* Where the bitstream is closed, by the headers of NAL units (H.264 7.3.1, HEVC 7.3.1.2) and OBUs (AV1
 * 5.3). The box stss, which says the same, is not read: it may be absent or wrong. */
#include "daemon/decode/mp4/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libdeflate.h>

enum { SET_IDS = 256, EXTRADATA_BYTES_MAX = 64 << 20 };

/* Of AV1 there is one sequence header. */
enum set_kind { SET_VIDEO, SET_SEQUENCE, SET_PICTURE, SET_KINDS };

/* Types of NAL units, and of OBUs. */
enum { IDR = 5, H264_SEQUENCE_SET = 7, H264_PICTURE_SET = 8 };
enum {
    RASL_N = 8,
    RASL_R = 9,
    BLA_FIRST = 16,
    BLA_LAST = 18,
    CRA = 21,
    VIDEO_SET = 32, /* behind it, the sets of sequence and picture */
    EOS = 36,
    EOB = 37,
    OTHER = 255
};
enum { SEQUENCE_HEADER = 1, FRAME_HEADER = 3, FRAME = 6 };

/* What a sample is. */
struct picture {
    uint32_t shown; /* frames that it shows */
    bool begins;    /* from here on nothing before it is needed */
    /* HEVC: of one that begins: unless a leading picture behind it refers back. Of another: it is such
     * a picture */
    bool is_tentative;
    bool has_frame; /* of AV1: a frame header came already */
};

struct finder {
    struct trajd_mp4 *mp4;
    struct trajd_units *units;
    uint32_t packet; /* the current sample */
    const struct trajd_mp4_entry *entry;
    bool is_h264;
    uint32_t length_size; /* of a NAL unit's length, in bytes */
    bool has_format;
    struct trajd_stream_format format; /* by the last sequence header */
    bool is_changed;                   /* the sets are not those of the entry */
    bool is_built;                     /* the last extradata are of the sets */
    bool is_tentative;                 /* the last unit may have to join the one before */
    bool is_ended;                     /* HEVC: the next picture begins a sequence */
    bool skips_leading;                /* HEVC: leading pictures that refer back are not shown */
    /* the sets that are in force, with the headers of their NAL units, or the payload of an AV1
     * sequence header; of no bytes: there is none of this number */
    uint32_t set_bytes[SET_KINDS][SET_IDS];
    uint8_t sets[SET_KINDS][SET_IDS][TRAJD_PARAMETER_SET_MAX];
};

/* ---- parameter sets ---- */

/* Reads the number of a set, and of a sequence's set the format. What the bitstream leaves open, the
 * box colr may say. */
static bool read_set(struct finder *finder, enum set_kind kind, const uint8_t *bytes, size_t size,
                     uint32_t *id)
{
    const bool is_av1 = finder->mp4->codec == TRAJD_VIDEO_AV1;
    const uint32_t head = is_av1 ? 0 : finder->is_h264 ? 1 : 2;
    struct trajd_error *error = finder->mp4->error;
    struct trajd_stream_format format;
    enum trajd_status status;

    *id = 0;
    if (kind == SET_VIDEO) {
        *id = size > head ? bytes[head] >> 4 : 0;
        return true;
    }
    bytes += head;
    size -= head;
    if (kind == SET_PICTURE)
        return trajd_stream_picture_set_id(bytes, size, id) ||
               trajd_mp4_refuse(finder->mp4, "a picture parameter set is damaged");
    status = is_av1            ? trajd_stream_format_av1(bytes, size, &format, error)
             : finder->is_h264 ? trajd_stream_format_h264(bytes, size, id, &format, error)
                               : trajd_stream_format_hevc(bytes, size, id, &format, error);
    if (status)
        return false;
    if (format.matrix == TRAJD_MATRIX_UNSPECIFIED)
        format.matrix = finder->entry->matrix;
    if (format.range == TRAJD_RANGE_UNSPECIFIED)
        format.range = finder->entry->range;
    finder->format = format;
    finder->has_format = true;
    return true;
}

static bool take_set(struct finder *finder, enum set_kind kind, const uint8_t *bytes, uint64_t size)
{
    uint32_t id;

    if (!size || size > TRAJD_PARAMETER_SET_MAX)
        return trajd_mp4_refuse(finder->mp4,
                                "a parameter set has %llu bytes: 1 to %u are supported",
                                (unsigned long long)size, TRAJD_PARAMETER_SET_MAX);
    if (finder->mp4->codec == TRAJD_VIDEO_AV1 && finder->set_bytes[kind][0] == size &&
        !memcmp(finder->sets[kind][0], bytes, size))
        return true; /* many samples repeat the header */
    if (!read_set(finder, kind, bytes, size, &id))
        return false;
    if (id >= (kind == SET_PICTURE ? SET_IDS - 1 : 31)) /* avcC counts no more */
        return trajd_mp4_refuse(finder->mp4, "a parameter set has number %u", id);
    if (finder->set_bytes[kind][id] == size && !memcmp(finder->sets[kind][id], bytes, size))
        return true;
    finder->set_bytes[kind][id] = (uint32_t)size;
    memcpy(finder->sets[kind][id], bytes, size);
    finder->is_changed = true;
    finder->is_built = false;
    return true;
}

/* ---- extradata ---- */

static void put(struct trajd_bytes *bytes, uint64_t number, uint32_t size)
{
    for (uint32_t i = size; i--;) {
        const uint8_t byte = (uint8_t)(number >> 8 * i);
        trajd_bytes_add(bytes, &byte, 1);
    }
}

/* Appends the sets of a kind, as avcC and hvcC have them: how many, in `count_size` bytes (with bits
 * above), and each behind its length. */
static void put_sets(struct finder *finder, enum set_kind kind, uint32_t count_size, uint32_t bits)
{
    struct trajd_bytes *bytes = &finder->units->extradata;
    uint32_t count = 0;

    for (int id = 0; id < SET_IDS; id++)
        count += finder->set_bytes[kind][id] > 0;
    put(bytes, bits | count, count_size);
    for (int id = 0; id < SET_IDS; id++) {
        const uint32_t size = finder->set_bytes[kind][id];
        put(bytes, size, size ? 2 : 0);
        trajd_bytes_add(bytes, finder->sets[kind][id], size);
    }
}

/* Appends what the entry's box would be with the sets that are in force. */
static void rebuild(struct finder *finder)
{
    struct trajd_bytes *bytes = &finder->units->extradata;
    const uint8_t *box = finder->entry->extradata;
    const uint32_t size = finder->set_bytes[SET_SEQUENCE][0];

    if (finder->is_h264) {
        trajd_bytes_add(bytes, box, 5);
        put_sets(finder, SET_SEQUENCE, 1, 0xe0);
        put_sets(finder, SET_PICTURE, 1, 0);
    } else if (finder->mp4->codec == TRAJD_VIDEO_HEVC) {
        trajd_bytes_add(bytes, box, 22);
        put(bytes, SET_KINDS, 1);
        for (int kind = 0; kind < SET_KINDS; kind++) {
            put(bytes, VIDEO_SET + kind, 1);
            put_sets(finder, (enum set_kind)kind, 2, 0);
        }
    } else { /* a sequence header with its size in two groups of 7 bits */
        trajd_bytes_add(bytes, box, 4);
        put(bytes, 0x0a8000 | (size & 127) << 8 | size >> 7, 3);
        trajd_bytes_add(bytes, finder->sets[SET_SEQUENCE][0], size);
    }
}

/* Makes the last extradata those that are in force. */
static bool build_extradata(struct finder *finder)
{
    struct trajd_bytes *bytes = &finder->units->extradata;
    struct trajd_bytes *ends = &finder->units->extradata_ends;
    uint64_t end;

    if (finder->is_built)
        return true;
    finder->is_built = true;
    if (finder->is_changed)
        rebuild(finder);
    else
        trajd_bytes_add(bytes, finder->entry->extradata, finder->entry->extradata_bytes);
    end = bytes->length;
    trajd_bytes_add(ends, &end, sizeof end);
    if (bytes->failed || ends->failed)
        return !trajd_error_set(finder->mp4->error, TRAJD_ERR_MEMORY, 0, "out of memory");
    return end <= EXTRADATA_BYTES_MAX ||
           trajd_mp4_refuse(finder->mp4, "its parameter sets have more than 64 MiB");
}

/* ---- NAL units: H.264 and HEVC ---- */

/* Returns the type of a NAL unit; OTHER where it has no header, or is of another layer. */
static uint32_t nal_type(const struct finder *finder, const uint8_t *bytes, uint32_t size)
{
    if (finder->is_h264)
        return size ? bytes[0] & 31 : OTHER;
    return size < 2 || bytes[0] & 1 || bytes[1] >> 3 ? OTHER : bytes[0] >> 1;
}

/* Takes a NAL unit if it is a parameter set. */
static bool take_if_set(struct finder *finder, const uint8_t *bytes, uint32_t size)
{
    const uint32_t type = nal_type(finder, bytes, size);
    const uint32_t first = finder->is_h264 ? H264_SEQUENCE_SET - SET_SEQUENCE : VIDEO_SET;
    const bool is_set = finder->is_h264 ? type == H264_SEQUENCE_SET || type == H264_PICTURE_SET
                                        : type >= VIDEO_SET && type < VIDEO_SET + SET_KINDS;

    return !is_set || take_set(finder, (enum set_kind)(type - first), bytes, size);
}

/* Takes a slice, of which the first of a picture counts. */
static void take_h264(uint32_t type, const uint8_t *bytes, uint32_t size, struct picture *picture)
{
    if (size < 2 || type < 1 || type > IDR || !(bytes[1] & 0x80)) /* first_mb_in_slice 0 */
        return;
    picture->begins |= !picture->shown && type == IDR;
    picture->shown++;
}

static void take_hevc(struct finder *finder, uint32_t type, const uint8_t *bytes, uint32_t size,
                      struct picture *picture)
{
    const bool refers_back = type == RASL_N || type == RASL_R; /* beyond the last key frame */

    finder->is_ended |= type == EOS || type == EOB;
    if (size < 3 || type >= VIDEO_SET || !(bytes[2] & 0x80)) /* first_slice_segment_in_pic_flag */
        return;
    if (type >= BLA_FIRST && type <= CRA) {
        finder->skips_leading = finder->is_ended || type <= BLA_LAST;
        picture->begins |= !picture->shown;
        picture->is_tentative = type == CRA && !finder->skips_leading;
    }
    finder->is_ended = false;
    if (refers_back && finder->skips_leading)
        return;
    picture->shown++;
    picture->is_tentative |= refers_back;
}

static bool scan_nals(struct finder *finder, const uint8_t *bytes, uint64_t size,
                      struct picture *picture)
{
    while (size > finder->length_size) {
        const uint32_t length = trajd_be(bytes, finder->length_size);
        uint32_t type;
        bytes += finder->length_size;
        size -= finder->length_size;
        if (length > size)
            return trajd_mp4_refuse(finder->mp4, "a NAL unit is cut");
        /* a damaged set is left out: the frames that need it will be damaged */
        if (!take_if_set(finder, bytes, length) &&
            finder->mp4->error->status == TRAJD_ERR_UNSUPPORTED)
            return false;
        type = nal_type(finder, bytes, length);
        if (finder->is_h264)
            take_h264(type, bytes, length, picture);
        else
            take_hevc(finder, type, bytes, length, picture);
        bytes += length;
        size -= length;
    }
    return true;
}

/* Takes `count` parameter sets of an avcC or hvcC, each behind its length. *at advances. */
static bool take_list(struct finder *finder, uint32_t count, const uint8_t **at, const uint8_t *end)
{
    for (; count; count--) {
        const uint32_t size = end - *at < 2 ? 0 : trajd_be(*at, 2);
        if (!size || size > (uint64_t)(end - *at) - 2)
            return trajd_mp4_refuse(finder->mp4, "the parameter sets of its table stsd are cut");
        if (!take_if_set(finder, *at + 2, size))
            return false;
        *at += 2 + size;
    }
    return true;
}

/* Takes those of an avcC, which may end behind its sequence sets: a list of them and one of picture
 * sets, each behind its count. */
static bool describe_h264(struct finder *finder, const uint8_t *at, const uint8_t *end)
{
    if (end - at < 7)
        return trajd_mp4_refuse(finder->mp4, "its box avcC is cut");
    finder->length_size = (at[4] & 3u) + 1;
    at += 6;
    if (!take_list(finder, at[-1] & 31u, &at, end))
        return false;
    at += at < end;
    return at == end || take_list(finder, at[-1], &at, end);
}

/* Takes those of a hvcC: lists behind their type and count. */
static bool describe_hevc(struct finder *finder, const uint8_t *at, const uint8_t *end)
{
    uint32_t lists;

    if (end - at < 23)
        return trajd_mp4_refuse(finder->mp4, "its box hvcC is cut");
    finder->length_size = (at[21] & 3u) + 1;
    lists = at[22];
    for (at += 23; lists && end - at >= 3; lists--) {
        at += 3;
        if (!take_list(finder, trajd_be(at - 2, 2), &at, end))
            return false;
    }
    return !lists || trajd_mp4_refuse(finder->mp4, "its box hvcC is cut");
}

/* ---- OBUs: AV1 ---- */

struct obu {
    uint32_t type;
    uint64_t head, payload; /* bytes */
};

/* Reads the header of an OBU. Returns false where it does not fit into the bytes, 1 or more. */
static bool read_obu(const uint8_t *bytes, uint64_t size, struct obu *obu)
{
    const bool has_size = bytes[0] & 2;
    bool goes_on = has_size;
    uint64_t payload = 0;

    obu->type = bytes[0] >> 3 & 15u;
    obu->head = 1 + (bytes[0] >> 2 & 1u);
    for (uint32_t shift = 0; goes_on && shift < 56 && obu->head < size; shift += 7) {
        payload |= (uint64_t)(bytes[obu->head] & 127) << shift;
        goes_on = bytes[obu->head++] & 128;
    }
    if (bytes[0] & 128 || goes_on || obu->head > size)
        return false;
    obu->payload = has_size ? payload : size - obu->head;
    return obu->payload <= size - obu->head;
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

static bool scan_obus(struct finder *finder, const uint8_t *bytes, uint64_t size,
                      struct picture *picture)
{
    struct obu obu;

    for (; size; bytes += obu.head + obu.payload, size -= obu.head + obu.payload) {
        if (!read_obu(bytes, size, &obu))
            return trajd_mp4_refuse(finder->mp4, "an OBU is cut");
        if (obu.type == SEQUENCE_HEADER &&
            !take_set(finder, SET_SEQUENCE, bytes + obu.head, obu.payload))
            return false;
        if ((obu.type == FRAME_HEADER || obu.type == FRAME) && obu.payload)
            take_frame(bytes[obu.head], picture);
    }
    return true;
}

/* ---- samples to units ---- */

/* Takes the parameter sets of an entry, in the place of all so far. */
static bool describe_entry(struct finder *finder, const struct trajd_mp4_entry *entry)
{
    const uint8_t *at = entry->extradata, *end = at + entry->extradata_bytes;
    struct picture none = {0};
    bool is_read;

    finder->entry = entry;
    memset(finder->set_bytes, 0, sizeof finder->set_bytes);
    if (finder->is_h264)
        is_read = describe_h264(finder, at, end);
    else if (finder->mp4->codec == TRAJD_VIDEO_HEVC)
        is_read = describe_hevc(finder, at, end);
    else if (end - at < 4)
        is_read = trajd_mp4_refuse(finder->mp4, "its box av1C is cut");
    else
        is_read = scan_obus(finder, at + 4, (uint64_t)(end - at) - 4, &none);
    finder->is_changed = finder->is_built = false;
    return is_read;
}

/* Reads one sample. One that is damaged is a frame, and the decoder will say so. */
static bool scan_sample(struct finder *finder, const uint8_t *bytes, uint32_t size,
                        struct picture *picture)
{
    bool is_read;

    *picture = (struct picture){0};
    is_read = finder->mp4->codec == TRAJD_VIDEO_AV1 ? scan_obus(finder, bytes, size, picture)
                                                    : scan_nals(finder, bytes, size, picture);
    if (!is_read) {
        if (finder->mp4->error->status != TRAJD_ERR_DATA)
            return !trajd_error_prefix(finder->mp4->error, "packet %u", finder->packet);
        *picture = (struct picture){.shown = 1};
    }
    return picture->shown < 2 ||
           trajd_mp4_refuse(finder->mp4, "packet %u of its video shows %u frames: one is supported",
                            finder->packet, picture->shown);
}

static const char *format_name(const struct finder *finder,
                               const struct trajd_stream_format *format, char text[64])
{
    char pixels[TRAJD_PIXEL_FORMAT_SIZE];

    snprintf(text, 64, "%ux%u %s %s %s", format->height, format->width,
             trajd_stream_pixel_format(finder->mp4->codec, format, pixels),
             trajd_video_matrix_name(format->matrix), trajd_video_range_name(format->range));
    return text;
}

/* All frames have the format of the first one. */
static bool check_format(struct finder *finder)
{
    struct trajd_stream_format *first = &finder->units->format;
    char before[64], now[64];

    if (!finder->has_format)
        return trajd_mp4_refuse(finder->mp4,
                                "its video has no sequence header before its first frame");
    if (!first->height)
        *first = finder->format;
    return !memcmp(&finder->format, first, sizeof *first) ||
           trajd_mp4_refuse(finder->mp4,
                            "its frames change at packet %u from %s to %s: all frames of a video "
                            "must have one size and format",
                            finder->packet, format_name(finder, first, before),
                            format_name(finder, &finder->format, now));
}

/* Begins a unit with the current sample. */
static bool begin_unit(struct finder *finder, bool is_tentative)
{
    struct trajd_units *units = finder->units;

    if (!build_extradata(finder))
        return false;
    finder->is_tentative = is_tentative;
    units->units[units->unit_count++] = (struct trajd_unit){
        .first_packet = finder->packet,
        .extradata = (uint32_t)(units->extradata_ends.length / sizeof(uint64_t)) - 1,
        .entry = finder->entry};
    return true;
}

/* Adds the current sample to the last unit. If it refers to what is before the unit, that joins the
 * one before it. */
static bool continue_unit(struct finder *finder, bool refers_back)
{
    struct trajd_units *units = finder->units;

    if (!units->unit_count)
        return trajd_mp4_refuse(finder->mp4, "decoding cannot begin at its first packet, which is "
                                             "neither IDR, BLA, CRA nor a shown key frame");
    if (refers_back && finder->is_tentative) {
        finder->is_tentative = false;
        units->unit_count--; /* never the first unit: nothing is shown that refers back beyond it */
    }
    return finder->entry == units->units[units->unit_count - 1].entry ||
           trajd_mp4_refuse(finder->mp4,
                            "packet %u of its video has another sample entry than the packets "
                            "that its frame needs",
                            finder->packet);
}

static bool scan_samples(struct finder *finder)
{
    uint8_t *buffer = trajd_mp4_alloc(finder->mp4, TRAJD_MP4_PACKET_BYTES_MAX, 1);
    struct trajd_units *units = finder->units;
    struct picture picture;

    for (uint32_t i = 0; buffer && i < finder->mp4->sample_count; i++) {
        struct trajd_mp4_sample *sample = &finder->mp4->samples[i];
        const struct trajd_mp4_entry *entry = &finder->mp4->entries[sample->entry];
        finder->packet = i;
        if ((entry != finder->entry && !describe_entry(finder, entry)) ||
            !trajd_mp4_pread(finder->mp4, sample->offset, buffer, sample->bytes))
            return false;
        sample->crc32 = libdeflate_crc32(0, buffer, sample->bytes);
        if (!scan_sample(finder, buffer, sample->bytes, &picture) ||
            (picture.shown && !check_format(finder)) ||
            !(picture.begins ? begin_unit(finder, picture.is_tentative)
                             : continue_unit(finder, picture.is_tentative)))
            return false;
        if (picture.shown)
            units->rows[units->row_count++] = (struct trajd_unit_row){sample->time, i};
    }
    return buffer != NULL;
}

static uint32_t end_of_unit(const struct finder *finder, uint64_t unit)
{
    return unit + 1 < finder->units->unit_count ? finder->units->units[unit + 1].first_packet
                                                : finder->mp4->sample_count;
}

static bool check_limits(const struct finder *finder)
{
    for (uint64_t u = 0; u < finder->units->unit_count; u++) {
        const uint32_t first = finder->units->units[u].first_packet, end = end_of_unit(finder, u);
        uint64_t bytes = 0;
        for (uint32_t i = first; i < end; i++)
            bytes += finder->mp4->samples[i].bytes;
        if (end - first > TRAJD_UNIT_PACKETS_MAX || bytes > TRAJD_UNIT_BYTES_MAX)
            return trajd_mp4_refuse(
                finder->mp4,
                "decoding can begin at packet %u and then not before packet %u, %llu MiB later: at "
                "most %u packets and 64 MiB are supported; encode it with more key frames, in "
                "closed GOPs",
                first, end, (unsigned long long)(bytes >> 20), TRAJD_UNIT_PACKETS_MAX);
    }
    return true;
}

/* ---- rows ---- */

static int compare_rows(const void *left, const void *right)
{
    const struct trajd_unit_row *a = left, *b = right;

    return (a->time > b->time) - (a->time < b->time);
}

/* Puts the rows into the order in which they are shown, which must be without doubt: no two at the
 * same time, all of a unit before those of the next one, and those of AV1 as they are decoded. */
static bool order_rows(const struct finder *finder)
{
    struct trajd_units *units = finder->units;
    const struct trajd_unit_row *row = units->rows, *before = row;
    bool is_ordered = true;
    uint64_t unit = 0;

    for (uint64_t i = 1; i < units->row_count && is_ordered; i++)
        is_ordered = row[i].time >= row[i - 1].time;
    if (!is_ordered)
        qsort(units->rows, units->row_count, sizeof *units->rows, compare_rows);
    for (uint64_t i = 0; i < units->row_count; i++, before = row++) {
        if (row->packet >= end_of_unit(finder, unit))
            units->units[++unit].first_row = (uint32_t)i;
        if (row->packet < units->units[unit].first_packet ||
            row->packet >= end_of_unit(finder, unit) ||
            (finder->mp4->codec == TRAJD_VIDEO_AV1 && row->packet < before->packet))
            return trajd_mp4_refuse(finder->mp4,
                                    "the frame of packet %u is shown before that of packet %u, "
                                    "which the order of the packets excludes",
                                    before->packet, i ? row->packet : 0);
        if (i && row->time == before->time)
            return trajd_mp4_refuse(finder->mp4,
                                    "the frames of packets %u and %u are shown at the same time",
                                    before->packet, row->packet);
    }
    return true;
}

/* Makes times those since the first frame. The edit list may not hide a frame. */
static bool edit_times(const struct finder *finder)
{
    const struct trajd_mp4 *mp4 = finder->mp4;
    struct trajd_unit_row *rows = finder->units->rows;
    const uint64_t count = finder->units->row_count;
    const int64_t first = rows[0].time;

    if (first < mp4->edit_begin || (double)rows[count - 1].time / mp4->timescale >= mp4->edit_end_s)
        return trajd_mp4_refuse(mp4, "the edit list of its video track hides frames: only a delay, "
                                     "or the start behind the delay of B frames, is read");
    for (uint64_t i = 0; i < count; i++)
        rows[i].time -= first;
    return true;
}

enum trajd_status trajd_units_find(int fd, struct trajd_mp4 *mp4, struct trajd_arena *arena,
                                   struct trajd_units *units, struct trajd_error *error)
{
    struct finder *finder;

    mp4->fd = fd;
    mp4->arena = arena;
    mp4->error = error;
    *units = (struct trajd_units){0};
    units->units = trajd_mp4_alloc(mp4, mp4->sample_count, sizeof *units->units);
    units->rows = trajd_mp4_alloc(mp4, mp4->sample_count, sizeof *units->rows);
    finder = trajd_mp4_alloc(mp4, 1, sizeof *finder);
    if (!units->units || !units->rows || !finder)
        return error->status;
    finder->mp4 = mp4;
    finder->units = units;
    finder->is_h264 = mp4->codec == TRAJD_VIDEO_H264;
    finder->is_ended = true;
    return scan_samples(finder) && check_limits(finder) && order_rows(finder) && edit_times(finder)
               ? TRAJD_OK
               : error->status;
}
