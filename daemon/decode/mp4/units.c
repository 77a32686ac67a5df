/* Where the bitstream is closed, by the headers of NAL units (H.264 7.3.1, HEVC 7.3.1.2) and OBUs (AV1
 * 5.3). The box stss, which says the same, is not read: it may be absent or wrong. */
#include "daemon/decode/mp4/units.h"

#include <stdlib.h>
#include <string.h>

#include <libdeflate.h>

enum { SET_IDS = 256, EXTRADATA_BYTES_MAX = 64 << 20 };

/* Of AV1 there is one sequence header. */
enum set_kind { SET_VIDEO, SET_SEQUENCE, SET_PICTURE, SET_KINDS };

/* A parameter set with the header of its NAL unit, or the payload of an AV1 sequence header. */
struct set {
    uint32_t size; /* 0: there is none of this number */
    uint8_t bytes[TRAJD_PARAMETER_SET_MAX];
};

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
    struct trajd_error *error;
    uint32_t packet, entry; /* of the current sample */
    uint32_t length_size;   /* of a NAL unit's length, in bytes */
    bool has_format;
    struct trajd_stream_format format;   /* by the last sequence header */
    bool is_changed;                     /* the sets are not those of the entry */
    bool is_built;                       /* the last extradata are of the sets */
    bool is_tentative;                   /* the last unit may have to join the one before */
    bool is_ended;                       /* HEVC: the next picture begins a sequence */
    bool skips_leading;                  /* HEVC: leading pictures that refer back are not shown */
    struct set sets[SET_KINDS][SET_IDS]; /* that are in force */
};

/* ---- parameter sets ---- */

/* Reads the number of a set, and of a sequence's set the format. What the bitstream leaves open, the
 * box colr may say. */
static enum trajd_status read_set(struct finder *finder, enum set_kind kind, const uint8_t *bytes,
                                  size_t size, uint32_t *id)
{
    const struct trajd_mp4_entry *entry = &finder->mp4->entries[finder->entry];
    struct trajd_stream_format format;
    enum trajd_status status;

    *id = kind == SET_VIDEO && size > 2 ? bytes[2] >> 4 : 0;
    if (kind == SET_VIDEO)
        return TRAJD_OK;
    if (finder->mp4->codec == TRAJD_VIDEO_AV1) {
        status = trajd_stream_format_av1(bytes, size, &format, finder->error);
    } else {
        const bool is_h264 = finder->mp4->codec == TRAJD_VIDEO_H264;
        bytes += is_h264 ? 1 : 2;
        size -= is_h264 ? 1 : 2;
        if (kind == SET_PICTURE)
            return trajd_stream_picture_set_id(bytes, size, id)
                       ? TRAJD_OK
                       : trajd_mp4_bad(finder->error, "a picture parameter set is damaged");
        status = is_h264 ? trajd_stream_format_h264(bytes, size, id, &format, finder->error)
                         : trajd_stream_format_hevc(bytes, size, id, &format, finder->error);
    }
    if (status)
        return status;
    if (format.matrix == TRAJD_MATRIX_UNSPECIFIED)
        format.matrix = entry->matrix;
    if (format.range == TRAJD_RANGE_UNSPECIFIED)
        format.range = entry->range;
    finder->format = format;
    finder->has_format = true;
    return TRAJD_OK;
}

/* Takes a parameter set. TRAJD_ERR_DATA: it is damaged. */
static enum trajd_status take_set(struct finder *finder, enum set_kind kind, const uint8_t *bytes,
                                  size_t size)
{
    enum trajd_status status;
    struct set *set;
    uint32_t id;

    if (!size || size > TRAJD_PARAMETER_SET_MAX)
        return trajd_mp4_bad(finder->error, "a parameter set has %zu bytes: 1 to %u are supported",
                             size, TRAJD_PARAMETER_SET_MAX);
    if ((status = read_set(finder, kind, bytes, size, &id)))
        return status;
    if (id >= (kind == SET_PICTURE ? SET_IDS - 1 : 31)) /* avcC counts no more */
        return trajd_mp4_bad(finder->error, "a parameter set has number %u", id);
    set = &finder->sets[kind][id];
    if (set->size == size && !memcmp(set->bytes, bytes, size))
        return TRAJD_OK;
    set->size = (uint32_t)size;
    memcpy(set->bytes, bytes, size);
    finder->is_changed = true;
    finder->is_built = false;
    return TRAJD_OK;
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
        count += finder->sets[kind][id].size > 0;
    put(bytes, bits | count, count_size);
    for (int id = 0; id < SET_IDS; id++) {
        const struct set *set = &finder->sets[kind][id];
        if (!set->size)
            continue;
        put(bytes, set->size, 2);
        trajd_bytes_add(bytes, set->bytes, set->size);
    }
}

/* Appends what the entry's box would be with the sets that are in force. */
static void rebuild(struct finder *finder, const struct trajd_mp4_entry *entry)
{
    struct trajd_bytes *bytes = &finder->units->extradata;
    const struct set *header = &finder->sets[SET_SEQUENCE][0];

    if (finder->mp4->codec == TRAJD_VIDEO_H264) {
        trajd_bytes_add(bytes, entry->extradata, 5);
        put_sets(finder, SET_SEQUENCE, 1, 0xe0);
        put_sets(finder, SET_PICTURE, 1, 0);
    } else if (finder->mp4->codec == TRAJD_VIDEO_HEVC) {
        trajd_bytes_add(bytes, entry->extradata, 22);
        put(bytes, SET_KINDS, 1);
        for (int kind = 0; kind < SET_KINDS; kind++) {
            put(bytes, 32 + kind, 1);
            put_sets(finder, (enum set_kind)kind, 2, 0);
        }
    } else { /* a sequence header with its size in two groups of 7 bits */
        trajd_bytes_add(bytes, entry->extradata, 4);
        put(bytes, 0x0a, 1);
        put(bytes, 0x80 | (header->size & 127), 1);
        put(bytes, header->size >> 7, 1);
        trajd_bytes_add(bytes, header->bytes, header->size);
    }
}

/* Makes the last extradata those that are in force. */
static enum trajd_status build_extradata(struct finder *finder)
{
    const struct trajd_mp4_entry *entry = &finder->mp4->entries[finder->entry];
    struct trajd_units *units = finder->units;
    struct trajd_bytes *bytes = &units->extradata;
    const size_t count = units->extradata_ends.length / sizeof(uint64_t), end = bytes->length;
    uint64_t first = 0, new_end;

    if (finder->is_built)
        return TRAJD_OK;
    finder->is_built = true;
    if (finder->is_changed)
        rebuild(finder, entry);
    else
        trajd_bytes_add(bytes, entry->extradata, entry->extradata_bytes);
    new_end = bytes->length;
    if (count > 1)
        memcpy(&first, units->extradata_ends.data + (count - 2) * sizeof first, sizeof first);
    if (!bytes->failed && count && new_end - end == end - first &&
        !memcmp(bytes->data + first, bytes->data + end, end - first)) {
        bytes->length = end; /* the same again */
        return TRAJD_OK;
    }
    trajd_bytes_add(&units->extradata_ends, &new_end, sizeof new_end);
    if (bytes->failed || units->extradata_ends.failed)
        return trajd_error_set(finder->error, TRAJD_ERR_MEMORY, 0, "out of memory");
    return new_end <= EXTRADATA_BYTES_MAX
               ? TRAJD_OK
               : trajd_mp4_bad(finder->error, "its parameter sets have more than 64 MiB");
}

/* ---- NAL units: H.264 and HEVC ---- */

/* Returns the kind of a NAL unit that is a parameter set of the base layer; SET_KINDS for others. */
static enum set_kind nal_kind(enum trajd_video_codec codec, const uint8_t *bytes, uint32_t size)
{
    if (codec == TRAJD_VIDEO_H264)
        return size < 1               ? SET_KINDS
               : (bytes[0] & 31) == 7 ? SET_SEQUENCE
               : (bytes[0] & 31) == 8 ? SET_PICTURE
                                      : SET_KINDS;
    if (size < 2 || bytes[0] >> 1 < 32 || bytes[0] >> 1 > 34 || bytes[0] & 1 || bytes[1] >> 3)
        return SET_KINDS;
    return (enum set_kind)(SET_VIDEO + (bytes[0] >> 1) - 32);
}

/* Takes a slice, of which the first of a picture counts. */
static void take_h264(const uint8_t *bytes, uint32_t size, struct picture *picture)
{
    const uint32_t type = bytes[0] & 31u;

    if (size < 2 || type < 1 || type > 5 || !(bytes[1] & 0x80)) /* first_mb_in_slice 0 */
        return;
    picture->begins |= !picture->shown && type == 5; /* IDR */
    picture->shown++;
}

static void take_hevc(struct finder *finder, const uint8_t *bytes, uint32_t size,
                      struct picture *picture)
{
    enum { RASL_N = 8, RASL_R = 9, BLA_FIRST = 16, BLA_LAST = 18, CRA = 21, EOS = 36, EOB = 37 };
    const uint32_t type = bytes[0] >> 1 & 63u;

    if (size < 2 || bytes[0] & 1 || bytes[1] >> 3) /* another layer */
        return;
    finder->is_ended |= type == EOS || type == EOB;
    if (size < 3 || type >= 32 || !(bytes[2] & 0x80)) /* first_slice_segment_in_pic_flag */
        return;
    if (type >= BLA_FIRST && type <= CRA) {
        finder->skips_leading = finder->is_ended || type <= BLA_LAST;
        picture->begins |= !picture->shown;
        picture->is_tentative = type == CRA && !finder->skips_leading;
    }
    finder->is_ended = false;
    if (type != RASL_N && type != RASL_R)
        picture->shown++;
    else if (!finder->skips_leading) { /* refers to what is before the last key frame */
        picture->shown++;
        picture->is_tentative = true;
    }
}

static enum trajd_status scan_nals(struct finder *finder, const uint8_t *bytes, uint32_t size,
                                   struct picture *picture)
{
    const enum trajd_video_codec codec = finder->mp4->codec;

    while (size > finder->length_size) {
        const uint32_t length = trajd_be(bytes, finder->length_size);
        enum set_kind kind;
        bytes += finder->length_size;
        size -= finder->length_size;
        if (length > size)
            return trajd_mp4_bad(finder->error, "a NAL unit is cut");
        kind = nal_kind(codec, bytes, length);
        /* a damaged set is left out: the frames that need it will be damaged */
        if (kind != SET_KINDS && take_set(finder, kind, bytes, length) == TRAJD_ERR_UNSUPPORTED)
            return TRAJD_ERR_UNSUPPORTED;
        if (length && codec == TRAJD_VIDEO_H264)
            take_h264(bytes, length, picture);
        else if (length)
            take_hevc(finder, bytes, length, picture);
        bytes += length;
        size -= length;
    }
    return TRAJD_OK;
}

/* Takes `count` parameter sets of an avcC or hvcC, each behind its length. *at advances. */
static enum trajd_status take_list(struct finder *finder, uint32_t count, const uint8_t **at,
                                   const uint8_t *end)
{
    for (; count; count--) {
        const uint32_t size = end - *at < 2 ? 0 : trajd_be(*at, 2);
        enum set_kind kind;
        if (!size || size > (uint64_t)(end - *at) - 2)
            return trajd_mp4_bad(finder->error, "the parameter sets of its table stsd are cut");
        kind = nal_kind(finder->mp4->codec, *at + 2, size);
        if (kind != SET_KINDS && take_set(finder, kind, *at + 2, size))
            return finder->error->status;
        *at += 2 + size;
    }
    return TRAJD_OK;
}

static enum trajd_status describe_h264(struct finder *finder, const uint8_t *at, const uint8_t *end)
{
    if (end - at < 7)
        return trajd_mp4_bad(finder->error, "its box avcC is cut");
    finder->length_size = (at[4] & 3u) + 1;
    at += 6;
    if (take_list(finder, at[-1] & 31u, &at, end) || at == end)
        return at == end ? TRAJD_OK : finder->error->status;
    at++;
    return take_list(finder, at[-1], &at, end);
}

static enum trajd_status describe_hevc(struct finder *finder, const uint8_t *at, const uint8_t *end)
{
    if (end - at < 23)
        return trajd_mp4_bad(finder->error, "its box hvcC is cut");
    finder->length_size = (at[21] & 3u) + 1;
    at += 23;
    for (uint32_t arrays = at[-1]; arrays; arrays--) {
        if (end - at < 3)
            return trajd_mp4_bad(finder->error, "its box hvcC is cut");
        at += 3;
        if (take_list(finder, trajd_be(at - 2, 2), &at, end))
            return finder->error->status;
    }
    return TRAJD_OK;
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

static enum trajd_status scan_obus(struct finder *finder, const uint8_t *bytes, uint64_t size,
                                   struct picture *picture)
{
    enum { SEQUENCE_HEADER = 1, FRAME_HEADER = 3, FRAME = 6 };
    struct obu obu;

    for (; size; bytes += obu.head + obu.payload, size -= obu.head + obu.payload) {
        if (!read_obu(bytes, size, &obu))
            return trajd_mp4_bad(finder->error, "an OBU is cut");
        if (obu.type == SEQUENCE_HEADER &&
            take_set(finder, SET_SEQUENCE, bytes + obu.head, obu.payload))
            return finder->error->status;
        if ((obu.type == FRAME_HEADER || obu.type == FRAME) && obu.payload)
            take_frame(bytes[obu.head], picture);
    }
    return TRAJD_OK;
}

/* ---- samples to units ---- */

/* Takes the parameter sets of an entry, in the place of all so far. */
static enum trajd_status describe_entry(struct finder *finder, uint32_t number)
{
    const struct trajd_mp4_entry *entry = &finder->mp4->entries[number];
    const uint8_t *at = entry->extradata, *end = at + entry->extradata_bytes;
    struct picture none = {0};
    enum trajd_status status;

    finder->entry = number;
    for (int kind = 0; kind < SET_KINDS; kind++)
        for (int id = 0; id < SET_IDS; id++)
            finder->sets[kind][id].size = 0;
    if (finder->mp4->codec == TRAJD_VIDEO_H264)
        status = describe_h264(finder, at, end);
    else if (finder->mp4->codec == TRAJD_VIDEO_HEVC)
        status = describe_hevc(finder, at, end);
    else if (end - at < 4)
        status = trajd_mp4_bad(finder->error, "its box av1C is cut");
    else
        status = scan_obus(finder, at + 4, (uint64_t)(end - at) - 4, &none);
    finder->is_changed = finder->is_built = false;
    return status;
}

/* Reads one sample. One that is damaged is a frame, and the decoder will say so. */
static enum trajd_status scan_sample(struct finder *finder, const uint8_t *bytes, uint32_t size,
                                     struct picture *picture)
{
    enum trajd_status status;

    *picture = (struct picture){0};
    status = finder->mp4->codec == TRAJD_VIDEO_AV1 ? scan_obus(finder, bytes, size, picture)
                                                   : scan_nals(finder, bytes, size, picture);
    if (status == TRAJD_ERR_DATA)
        *picture = (struct picture){.shown = 1};
    else if (status)
        return trajd_error_prefix(finder->error, "packet %u", finder->packet);
    return picture->shown < 2
               ? TRAJD_OK
               : trajd_mp4_bad(finder->error,
                               "packet %u of its video shows %u frames: one is supported",
                               finder->packet, picture->shown);
}

/* All frames have the format of the first one. */
static enum trajd_status check_format(struct finder *finder)
{
    const struct trajd_stream_format *now = &finder->format, *first = &finder->units->format;
    char names[2][TRAJD_PIXEL_FORMAT_SIZE];

    if (!finder->has_format)
        return trajd_mp4_bad(finder->error,
                             "its video has no sequence header before its first frame");
    if (!first->height)
        finder->units->format = *now;
    if (!memcmp(now, first, sizeof *now))
        return TRAJD_OK;
    return trajd_mp4_bad(
        finder->error,
        "its frames change at packet %u from %ux%u %s %s %s to %ux%u %s %s %s: all frames "
        "of a video must have one size and format",
        finder->packet, first->height, first->width,
        trajd_stream_pixel_format(finder->mp4->codec, first, names[0]),
        trajd_video_matrix_name(first->matrix), trajd_video_range_name(first->range), now->height,
        now->width, trajd_stream_pixel_format(finder->mp4->codec, now, names[1]),
        trajd_video_matrix_name(now->matrix), trajd_video_range_name(now->range));
}

/* Begins a unit with the current sample. */
static enum trajd_status begin_unit(struct finder *finder, bool is_tentative)
{
    struct trajd_units *units = finder->units;

    if (build_extradata(finder))
        return finder->error->status;
    finder->is_tentative = is_tentative;
    units->units[units->unit_count++] = (struct trajd_unit){
        .first_packet = finder->packet,
        .extradata = (uint32_t)(units->extradata_ends.length / sizeof(uint64_t)) - 1,
        .entry = finder->entry};
    return TRAJD_OK;
}

/* Adds the current sample to the last unit. If it refers to what is before the unit, that joins the
 * one before it. */
static enum trajd_status continue_unit(struct finder *finder, bool refers_back)
{
    struct trajd_units *units = finder->units;

    if (!units->unit_count)
        return trajd_mp4_bad(finder->error,
                             "decoding cannot begin at its first packet, which is neither "
                             "IDR, BLA, CRA nor a shown key frame");
    if (refers_back && finder->is_tentative) {
        finder->is_tentative = false;
        units->unit_count--; /* never the first unit: nothing is shown that refers back beyond it */
    }
    return finder->entry == units->units[units->unit_count - 1].entry
               ? TRAJD_OK
               : trajd_mp4_bad(
                     finder->error,
                     "packet %u of its video has another sample entry than the packets that its "
                     "frame needs",
                     finder->packet);
}

static enum trajd_status scan_samples(struct finder *finder, int fd, uint8_t *buffer)
{
    struct trajd_units *units = finder->units;
    struct picture picture;

    for (uint32_t i = 0; i < finder->mp4->sample_count; i++) {
        struct trajd_mp4_sample *sample = &finder->mp4->samples[i];
        finder->packet = i;
        if ((!i || sample->entry != finder->entry) && describe_entry(finder, sample->entry))
            return finder->error->status;
        if (trajd_mp4_pread(fd, sample->offset, buffer, sample->bytes, finder->error))
            return finder->error->status;
        sample->crc32 = libdeflate_crc32(0, buffer, sample->bytes);
        if (scan_sample(finder, buffer, sample->bytes, &picture) ||
            (picture.shown && check_format(finder)) ||
            (picture.begins ? begin_unit(finder, picture.is_tentative)
                            : continue_unit(finder, picture.is_tentative)))
            return finder->error->status;
        if (picture.shown)
            units->rows[units->row_count++] = (struct trajd_unit_row){sample->time, i};
    }
    return TRAJD_OK;
}

static uint32_t end_of_unit(const struct finder *finder, uint64_t unit)
{
    return unit + 1 < finder->units->unit_count ? finder->units->units[unit + 1].first_packet
                                                : (uint32_t)finder->mp4->sample_count;
}

static enum trajd_status check_limits(const struct finder *finder)
{
    for (uint64_t u = 0; u < finder->units->unit_count; u++) {
        const uint32_t first = finder->units->units[u].first_packet, end = end_of_unit(finder, u);
        uint64_t bytes = 0;
        for (uint32_t i = first; i < end; i++)
            bytes += finder->mp4->samples[i].bytes;
        if (end - first > TRAJD_UNIT_PACKETS_MAX || bytes > TRAJD_UNIT_BYTES_MAX)
            return trajd_mp4_bad(
                finder->error,
                "decoding can begin at packet %u and then not before packet %u, %llu MiB "
                "later: at most %u packets and 64 MiB are supported; encode it with more "
                "key frames, in closed GOPs",
                first, end, (unsigned long long)(bytes >> 20), TRAJD_UNIT_PACKETS_MAX);
    }
    return TRAJD_OK;
}

/* ---- rows ---- */

static int compare_rows(const void *left, const void *right)
{
    const struct trajd_unit_row *a = left, *b = right;

    return (a->time > b->time) - (a->time < b->time);
}

/* Puts the rows into the order in which they are shown, which must be without doubt: no two at the
 * same time, all of a unit before those of the next one, and those of AV1 as they are decoded. */
static enum trajd_status order_rows(const struct finder *finder)
{
    struct trajd_units *units = finder->units;
    bool is_ordered = true;
    uint64_t unit = 0;

    for (uint64_t i = 1; i < units->row_count && is_ordered; i++)
        is_ordered = units->rows[i].time >= units->rows[i - 1].time;
    if (!is_ordered)
        qsort(units->rows, units->row_count, sizeof *units->rows, compare_rows);
    for (uint64_t i = 0; i < units->row_count; i++) {
        const struct trajd_unit_row *row = &units->rows[i];
        if (row->packet >= end_of_unit(finder, unit))
            units->units[++unit].first_row = (uint32_t)i;
        if (row->packet < units->units[unit].first_packet ||
            row->packet >= end_of_unit(finder, unit) ||
            (finder->mp4->codec == TRAJD_VIDEO_AV1 && i && row->packet < row[-1].packet))
            return trajd_mp4_bad(
                finder->error,
                "the frame of packet %u is shown before that of packet %u, which the order "
                "of the packets excludes",
                i ? row[-1].packet : row->packet, i ? row->packet : 0);
        if (i && row->time == row[-1].time)
            return trajd_mp4_bad(finder->error,
                                 "the frames of packets %u and %u are shown at the same time",
                                 row[-1].packet, row->packet);
    }
    return TRAJD_OK;
}

/* Makes times those since the first frame. The edit list may not hide a frame. */
static enum trajd_status edit_times(const struct finder *finder)
{
    const struct trajd_mp4_edit *edit = &finder->mp4->edit;
    struct trajd_unit_row *rows = finder->units->rows;
    const uint64_t count = finder->units->row_count;
    const int64_t first = rows[0].time;

    if (first < edit->begin_time ||
        (double)rows[count - 1].time / finder->mp4->timescale >= edit->end_seconds)
        return trajd_mp4_bad(finder->error,
                             "the edit list of its video track hides frames: only a delay, or "
                             "the start behind the delay of B frames, is read");
    for (uint64_t i = 0; i < count; i++)
        rows[i].time -= first;
    return TRAJD_OK;
}

enum trajd_status trajd_units_find(int fd, struct trajd_mp4 *mp4, struct trajd_arena *arena,
                                   struct trajd_units *units, struct trajd_error *error)
{
    struct finder *finder = trajd_arena_array(arena, 1, sizeof *finder);
    uint8_t *buffer = trajd_arena_array(arena, TRAJD_MP4_PACKET_BYTES_MAX, 1);

    *units = (struct trajd_units){0};
    units->units = trajd_arena_array(arena, mp4->sample_count, sizeof *units->units);
    units->rows = trajd_arena_array(arena, mp4->sample_count, sizeof *units->rows);
    if (arena->is_starved)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "its tables need too much memory");
    finder->mp4 = mp4;
    finder->units = units;
    finder->error = error;
    finder->is_ended = true;
    if (scan_samples(finder, fd, buffer) || check_limits(finder) || order_rows(finder) ||
        edit_times(finder))
        return error->status;
    return TRAJD_OK;
}
