/* Boxes are looked up by name, level by level: nothing recurses, so boxes that contain themselves
 * have no meaning. Where a box goes beyond its parent, it and those behind it are missing. */
#include "daemon/decode/mp4/mp4.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/decode/mp4/stream_format.h"
#include "daemon/sandbox/sandbox.h"
#include "proto/array_len.h"

enum {
    FILE_BOXES_MAX = 65536,
    ENTRY_BYTES = 78, /* of a video sample entry before its boxes */
    ONE = 0x10000     /* 1.0 as 16.16 */
};

enum trajd_status trajd_mp4_bad(struct trajd_error *error, const char *format, ...)
{
    char message[TRAJD_ERROR_MESSAGE_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return trajd_error_set(error, TRAJD_ERR_DATA, 0, "%s", message);
}

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "its tables need too much memory");
}

static uint64_t be64(const uint8_t *bytes)
{
    return (uint64_t)trajd_be(bytes, 4) << 32 | trajd_be(bytes + 4, 4);
}

enum trajd_status trajd_mp4_pread(int fd, uint64_t offset, void *bytes, size_t size,
                                  struct trajd_error *error)
{
    for (size_t done = 0; done < size;) {
        const ssize_t got = pread(fd, (uint8_t *)bytes + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return trajd_error_set(error, TRAJD_ERR_IO, errno, "it cannot be read: %s",
                                   got ? strerror(errno) : "it has become shorter");
        done += (size_t)got;
    }
    return TRAJD_OK;
}

/* ---- boxes in memory ---- */

/* The content of a box. */
struct box {
    const uint8_t *at, *end;
};

/* Takes the next box from those of a parent. Returns false at the end, and where the rest is not a
 * box. */
static bool next_box(struct box *parent, uint32_t *type, struct box *child)
{
    const uint64_t left = (uint64_t)(parent->end - parent->at);
    uint64_t size, head = 8;

    if (left < head)
        return false;
    size = trajd_be(parent->at, 4);
    *type = trajd_be(parent->at + 4, 4);
    if (size == 1) {
        head = 16;
        size = left < head ? 0 : be64(parent->at + 8);
    } else if (!size) {
        size = left;
    }
    if (size < head || size > left)
        return false;
    *child = (struct box){parent->at + head, parent->at + size};
    parent->at += size;
    return true;
}

/* Finds the first box of a name. */
static bool find(struct box parent, const char *name, struct box *child)
{
    uint32_t type;

    while (next_box(&parent, &type, child))
        if (type == trajd_be((const uint8_t *)name, 4))
            return true;
    return false;
}

/* Finds the first box of a name that has at least `bytes`. */
static bool find_long(struct box parent, const char *name, uint64_t bytes, struct box *child)
{
    return find(parent, name, child) && (uint64_t)(child->end - child->at) >= bytes;
}

/* A box that is a list behind its version and flags. */
struct table {
    const uint8_t *entries;
    uint32_t count;
    uint8_t version;
};

/* Reads a table whose entries have this size; in the second version of the box, `long_bytes`. */
static enum trajd_status read_table(struct box parent, const char *name, uint32_t bytes,
                                    uint32_t long_bytes, struct table *table,
                                    struct trajd_error *error)
{
    struct box box;

    if (!find_long(parent, name, 8, &box))
        return trajd_mp4_bad(error, "its table %s is missing", name);
    table->version = *box.at;
    table->count = trajd_be(box.at + 4, 4);
    table->entries = box.at + 8;
    if ((uint64_t)table->count * (table->version ? long_bytes : bytes) >
        (uint64_t)(box.end - table->entries))
        return trajd_mp4_bad(error,
                             "its table %s is cut: it has room for fewer than its %u entries", name,
                             table->count);
    return TRAJD_OK;
}

/* ---- the file ---- */

/* Finds the box moov among those of the file. A box that goes beyond the file means that it was
 * cut. */
static enum trajd_status find_moov(int fd, struct trajd_mp4 *mp4, struct trajd_error *error)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < FILE_BOXES_MAX && mp4->file_bytes - at >= 8; i++) {
        const uint64_t left = mp4->file_bytes - at;
        uint8_t head[16] = {0};
        uint64_t size;
        if (trajd_mp4_pread(fd, at, head, left < sizeof head ? left : sizeof head, error))
            return error->status;
        if (!i && memcmp(head + 4, "ftyp", 4) != 0)
            return trajd_mp4_bad(error, "it is not an MP4 file: it does not begin with a box ftyp");
        size = trajd_be(head, 4);
        size = size == 1 ? be64(head + 8) : size ? size : left;
        if (!memcmp(head + 4, "moof", 4))
            return trajd_mp4_bad(error, "it is fragmented (it has a box moof), which is not "
                                        "supported: write it without fragments");
        if (size < 8 || size > left)
            return trajd_mp4_bad(error,
                                 "it was cut or is damaged: its box at byte %llu says that it "
                                 "has %llu bytes, and the file has %llu more",
                                 (unsigned long long)at, (unsigned long long)size,
                                 (unsigned long long)left);
        if (!memcmp(head + 4, "moov", 4) && !mp4->moov_bytes) {
            mp4->moov_offset = at;
            mp4->moov_bytes = size;
        }
        at += size;
    }
    return mp4->moov_bytes
               ? TRAJD_OK
               : trajd_mp4_bad(error, "it has no box moov: its recording was not finished");
}

static enum trajd_status read_moov(int fd, struct trajd_arena *arena, struct trajd_mp4 *mp4,
                                   struct box *moov, struct trajd_error *error)
{
    struct box file;
    uint32_t type;
    uint8_t *bytes;

    if (mp4->moov_bytes > TRAJD_MP4_MOOV_BYTES_MAX)
        return trajd_mp4_bad(error, "its box moov has %llu bytes, which is more than 256 MiB",
                             (unsigned long long)mp4->moov_bytes);
    bytes = trajd_arena_array(arena, mp4->moov_bytes, 1);
    if (!bytes)
        return no_memory(error);
    if (trajd_mp4_pread(fd, mp4->moov_offset, bytes, mp4->moov_bytes, error))
        return error->status;
    file = (struct box){bytes, bytes + mp4->moov_bytes};
    if (!next_box(&file, &type, moov))
        return trajd_mp4_bad(error, "its box moov is damaged");
    if (find(*moov, "mvex", &file))
        return trajd_mp4_bad(error, "it is fragmented (it has a box mvex), which is not supported: "
                                    "write it without fragments");
    return TRAJD_OK;
}

/* Finds the track of moov that is video. Which one of several is meant, nobody can tell. */
static enum trajd_status find_track(struct box moov, struct box *trak, struct box *mdia,
                                    struct trajd_error *error)
{
    struct box one, media, hdlr;
    uint32_t type, count = 0;

    while (next_box(&moov, &type, &one))
        if (type == trajd_be((const uint8_t *)"trak", 4) && find(one, "mdia", &media) &&
            find_long(media, "hdlr", 12, &hdlr) && !memcmp(hdlr.at + 8, "vide", 4)) {
            *trak = one;
            *mdia = media;
            count++;
        }
    return count == 1 ? TRAJD_OK
                      : trajd_mp4_bad(error, "it has %u video tracks: one is supported", count);
}

/* Reads the timescale of a box mvhd or mdhd. */
static enum trajd_status read_timescale(struct box parent, const char *name, uint32_t *timescale,
                                        struct trajd_error *error)
{
    struct box box;

    *timescale = 0;
    if (find_long(parent, name, 24, &box))
        *timescale = trajd_be(box.at + (*box.at ? 20 : 12), 4);
    return *timescale ? TRAJD_OK
                      : trajd_mp4_bad(error, "its box %s is missing or has no timescale", name);
}

/* Refuses a track that is to be turned, mirrored or scaled. */
static enum trajd_status check_upright(struct box trak, struct trajd_error *error)
{
    static const uint32_t upright[] = {ONE, 0, 0, 0,
                                       ONE}; /* its first numbers: the rest moves it */
    struct box box;
    uint32_t begin;

    if (!find_long(trak, "tkhd", 84, &box) || (*box.at && box.end - box.at < 96))
        return trajd_mp4_bad(error, "its box tkhd is missing or cut");
    begin = *box.at ? 52 : 40;
    for (uint32_t i = 0; i < ARRAY_LEN(upright); i++)
        if (trajd_be(box.at + begin + 4 * i, 4) != upright[i])
            return trajd_mp4_bad(error, "its video track is to be turned, mirrored or scaled (the "
                                        "matrix of its box tkhd), which is not supported: write it "
                                        "upright");
    return TRAJD_OK;
}

/* ---- the edit list ---- */

struct edit {
    uint64_t ticks; /* how long it lasts, on the timescale of the file */
    int64_t begin;  /* on that of the track; -1: nothing is shown */
    uint32_t rate;
};

static struct edit get_edit(const struct table *table, uint32_t i)
{
    const uint8_t *at = table->entries + (size_t)i * (table->version ? 20 : 12);

    if (table->version)
        return (struct edit){be64(at), (int64_t)be64(at + 8), trajd_be(at + 16, 4)};
    return (struct edit){trajd_be(at, 4), (int32_t)trajd_be(at + 4, 4), trajd_be(at + 8, 4)};
}

/* Reads the edit list: any number of delays, which count for nothing because times are those since
 * the first frame, then one edit, which trajd_units_find compares with the frames. */
static enum trajd_status read_edits(struct box moov, struct box trak, struct trajd_mp4 *mp4,
                                    struct trajd_error *error)
{
    uint32_t timescale, i = 0;
    struct table table;
    struct edit edit;
    struct box edts;

    mp4->edit = (struct trajd_mp4_edit){INT64_MIN, INFINITY};
    if (!find(trak, "edts", &edts))
        return TRAJD_OK;
    if (read_timescale(moov, "mvhd", &timescale, error) ||
        read_table(edts, "elst", 12, 20, &table, error))
        return error->status;
    if (!table.count)
        return TRAJD_OK;
    while (i + 1 < table.count && get_edit(&table, i).begin == -1)
        i++;
    edit = get_edit(&table, i);
    if (i + 1 < table.count || edit.begin < 0 || edit.rate != ONE)
        return trajd_mp4_bad(error,
                             "the edit list of its video track, of %u entries, cuts it or changes "
                             "its speed: only a delay, or the start behind the delay of B "
                             "frames, is read",
                             table.count);
    /* the end was rounded to the file's timescale by the writer */
    mp4->edit = (struct trajd_mp4_edit){edit.begin, ((double)edit.begin / mp4->timescale) +
                                                        ((double)edit.ticks + 1) / timescale};
    return TRAJD_OK;
}

/* ---- sample entries ---- */

static const struct codec {
    const char *name, *configuration;
    enum trajd_video_codec codec;
} codecs[] = {{"avc1", "avcC", TRAJD_VIDEO_H264},
              {"avc3", "avcC", TRAJD_VIDEO_H264},
              {"hvc1", "hvcC", TRAJD_VIDEO_HEVC},
              {"hev1", "hvcC", TRAJD_VIDEO_HEVC},
              {"av01", "av1C", TRAJD_VIDEO_AV1}};

static enum trajd_status find_codec(uint32_t type, const struct codec **codec,
                                    struct trajd_error *error)
{
    char name[5] = {0};

    for (size_t i = 0; i < ARRAY_LEN(codecs); i++) {
        *codec = &codecs[i];
        if (type == trajd_be((const uint8_t *)codecs[i].name, 4))
            return TRAJD_OK;
    }
    for (int i = 0; i < 4; i++) {
        const uint8_t byte = type >> 8 * (3 - i) & 0xff;
        name[i] = byte > ' ' && byte < 0x7f ? (char)byte : '?';
    }
    return trajd_mp4_bad(error,
                         "its video is stored as '%s', which is not supported: only avc1, avc3, "
                         "hvc1, hev1 and av01 are",
                         name);
}

/* Reads the colours that the file states beside the bitstream. */
static enum trajd_status read_colors(struct box boxes, struct trajd_mp4_entry *entry,
                                     struct trajd_error *error)
{
    struct box colr;

    if (!find_long(boxes, "colr", 10, &colr) ||
        (memcmp(colr.at, "nclx", 4) != 0 && memcmp(colr.at, "nclc", 4) != 0))
        return TRAJD_OK;
    if (colr.at[3] == 'x' && colr.end - colr.at > 10)
        entry->range = colr.at[10] & 0x80 ? TRAJD_RANGE_FULL : TRAJD_RANGE_LIMITED;
    return trajd_stream_matrix(trajd_be(colr.at + 8, 2), &entry->matrix, error);
}

/* Returns whether the samples of an entry are in this file: bit 0 of the flags of its data
 * reference. */
static bool is_inside(struct box minf, uint32_t reference)
{
    struct box dinf, dref, entry;
    uint32_t type;

    if (!find(minf, "dinf", &dinf) || !find_long(dinf, "dref", 8, &dref))
        return false;
    dref.at += 8;
    while (reference && next_box(&dref, &type, &entry))
        reference--;
    return !reference && entry.end - entry.at >= 4 && entry.at[3] & 1;
}

static enum trajd_status read_entry(struct box minf, uint32_t type, struct box box,
                                    struct trajd_mp4 *mp4, struct trajd_mp4_entry *entry,
                                    struct trajd_error *error)
{
    const struct codec *codec;
    struct box configuration, clap;

    if (find_codec(type, &codec, error))
        return error->status;
    if (mp4->codec && mp4->codec != codec->codec)
        return trajd_mp4_bad(error, "its video track has two codecs, %s and %s",
                             trajd_video_codec_name(mp4->codec),
                             trajd_video_codec_name(codec->codec));
    mp4->codec = codec->codec;
    if (box.end - box.at < ENTRY_BYTES)
        return trajd_mp4_bad(error, "an entry of its table stsd is cut");
    if (!is_inside(minf, trajd_be(box.at + 6, 2)))
        return trajd_mp4_bad(error, "its frames are in another file (its box dref)");
    box.at += ENTRY_BYTES;
    if (find(box, "clap", &clap))
        return trajd_mp4_bad(error, "its frames are cropped by a box clap, which is not supported");
    if (!find(box, codec->configuration, &configuration))
        return trajd_mp4_bad(error, "its box %s is missing", codec->configuration);
    entry->extradata = configuration.at;
    entry->extradata_bytes = (uint32_t)(configuration.end - configuration.at);
    return read_colors(box, entry, error);
}

static enum trajd_status read_entries(struct box minf, struct box stbl, struct trajd_arena *arena,
                                      struct trajd_mp4 *mp4, struct trajd_error *error)
{
    struct box stsd, entry;
    struct table table;
    uint32_t type;

    if (!find(stbl, "stsd", &stsd) ||
        read_table(stbl, "stsd", 8 + ENTRY_BYTES, 8 + ENTRY_BYTES, &table, error) || !table.count)
        return trajd_mp4_bad(error, "its table stsd is missing or cut");
    mp4->entries = trajd_arena_array(arena, table.count, sizeof *mp4->entries);
    if (!mp4->entries)
        return no_memory(error);
    mp4->entry_count = table.count;
    stsd.at = table.entries;
    for (uint32_t i = 0; i < table.count; i++) {
        if (!next_box(&stsd, &type, &entry))
            return trajd_mp4_bad(error, "an entry of its table stsd is cut");
        if (read_entry(minf, type, entry, mp4, &mp4->entries[i], error))
            return error->status;
    }
    return TRAJD_OK;
}

/* ---- samples ---- */

/* Reads the sizes of the samples, which stsz or stz2 has. */
static enum trajd_status read_sizes(struct box stbl, struct trajd_arena *arena,
                                    struct trajd_mp4 *mp4, struct trajd_error *error)
{
    uint64_t total = 0;
    uint32_t bits = 32, fixed = 0;
    struct box box;

    if (find_long(stbl, "stsz", 12, &box))
        fixed = trajd_be(box.at + 4, 4);
    else if (find_long(stbl, "stz2", 12, &box))
        bits = box.at[7];
    else
        return trajd_mp4_bad(error, "its table stsz is missing");
    if (bits != 4 && bits != 8 && bits != 16 && bits != 32)
        return trajd_mp4_bad(error, "its table stz2 is damaged");
    mp4->sample_count = trajd_be(box.at + 8, 4);
    box.at += 12;
    if (!fixed && (mp4->sample_count * bits + 7) / 8 > (uint64_t)(box.end - box.at))
        return trajd_mp4_bad(error,
                             "its table stsz is cut: it has room for fewer than its %llu samples",
                             (unsigned long long)mp4->sample_count);
    if (!mp4->sample_count || mp4->sample_count > TRAJD_MP4_SAMPLES_MAX)
        return trajd_mp4_bad(error, "its video track has %llu samples: 1 to %llu are supported",
                             (unsigned long long)mp4->sample_count,
                             (unsigned long long)TRAJD_MP4_SAMPLES_MAX);
    mp4->samples = trajd_arena_array(arena, mp4->sample_count, sizeof *mp4->samples);
    if (!mp4->samples)
        return no_memory(error);
    for (uint64_t i = 0; i < mp4->sample_count; i++) {
        uint32_t size = fixed;
        if (!fixed && bits == 4)
            size = box.at[i / 2] >> (i % 2 ? 0 : 4) & 15;
        else if (!fixed)
            size = trajd_be(box.at + i * (bits / 8), bits / 8);
        if (!size || size > TRAJD_MP4_PACKET_BYTES_MAX)
            return trajd_mp4_bad(error,
                                 "sample %llu of its video track has %u bytes: 1 to %u are "
                                 "supported",
                                 (unsigned long long)i, size, TRAJD_MP4_PACKET_BYTES_MAX);
        mp4->samples[i].bytes = size;
        total += size;
    }
    /* Samples that overlap would make a small file as large as it likes. */
    if (total > mp4->file_bytes)
        return trajd_mp4_bad(error,
                             "its samples have %llu bytes and the file %llu: it was cut or is "
                             "damaged",
                             (unsigned long long)total, (unsigned long long)mp4->file_bytes);
    return TRAJD_OK;
}

/* Runs of equal values, as stts and ctts have them: count, value. */
struct runs {
    const uint8_t *at;
    uint32_t left; /* of the current run */
    uint32_t value;
};

static uint32_t next_value(struct runs *runs)
{
    for (; !runs->left; runs->at += 8) {
        runs->left = trajd_be(runs->at, 4);
        runs->value = trajd_be(runs->at + 4, 4);
    }
    runs->left--;
    return runs->value;
}

/* Reads a table of runs, which must have a value for each sample. */
static enum trajd_status read_runs(struct box stbl, const char *name, uint64_t samples,
                                   struct runs *runs, struct trajd_error *error)
{
    struct table table;
    uint64_t total = 0;

    if (read_table(stbl, name, 8, 8, &table, error))
        return error->status;
    for (uint32_t i = 0; i < table.count; i++)
        total += trajd_be(table.entries + (size_t)i * 8, 4);
    *runs = (struct runs){.at = table.entries};
    return total == samples
               ? TRAJD_OK
               : trajd_mp4_bad(error,
                               "its table %s has times of %llu samples, and there "
                               "are %llu",
                               name, (unsigned long long)total, (unsigned long long)samples);
}

static enum trajd_status read_times(struct box stbl, struct trajd_mp4 *mp4,
                                    struct trajd_error *error)
{
    struct runs durations, delays;
    struct box ctts;
    const bool is_reordered = find(stbl, "ctts", &ctts);
    int64_t time = 0;

    if (read_runs(stbl, "stts", mp4->sample_count, &durations, error) ||
        (is_reordered && read_runs(stbl, "ctts", mp4->sample_count, &delays, error)))
        return error->status;
    for (uint64_t i = 0; i < mp4->sample_count; i++) {
        const uint32_t duration = next_value(&durations);
        if (duration > INT32_MAX)
            return trajd_mp4_bad(error, "sample %llu of its video track has a negative duration",
                                 (unsigned long long)i);
        /* writers put negative delays into either version of the table */
        mp4->samples[i].time = time + (is_reordered ? (int32_t)next_value(&delays) : 0);
        time += duration;
    }
    return TRAJD_OK;
}

/* Where the chunks are, and which samples each has. */
struct chunks {
    struct table places, runs; /* stco or co64; stsc */
    uint32_t place_bytes;
};

static enum trajd_status read_chunks(struct box stbl, const struct trajd_mp4 *mp4,
                                     struct chunks *chunks, struct trajd_error *error)
{
    struct box box;

    chunks->place_bytes = find(stbl, "stco", &box) ? 4 : 8;
    if (read_table(stbl, chunks->place_bytes == 4 ? "stco" : "co64", chunks->place_bytes,
                   chunks->place_bytes, &chunks->places, error) ||
        read_table(stbl, "stsc", 12, 12, &chunks->runs, error))
        return error->status;
    for (uint32_t i = 0; i < chunks->runs.count; i++) {
        const uint8_t *run = chunks->runs.entries + (size_t)i * 12;
        const uint32_t first = trajd_be(run, 4), entry = trajd_be(run + 8, 4);
        if ((i ? first <= trajd_be(run - 12, 4) : first != 1) || !entry || entry > mp4->entry_count)
            return trajd_mp4_bad(error, "its table stsc is damaged");
    }
    return TRAJD_OK;
}

/* Places the samples of one chunk, one behind the other. *next: the next sample. */
static enum trajd_status place_chunk(struct trajd_mp4 *mp4, uint64_t offset, const uint8_t *run,
                                     uint64_t *next, struct trajd_error *error)
{
    const uint32_t entry = trajd_be(run + 8, 4) - 1;

    for (uint32_t left = trajd_be(run + 4, 4); left && *next < mp4->sample_count; left--) {
        struct trajd_mp4_sample *sample = &mp4->samples[*next];
        if (offset > mp4->file_bytes || sample->bytes > mp4->file_bytes - offset)
            return trajd_mp4_bad(error,
                                 "sample %llu of its video track, at byte %llu, is beyond the "
                                 "end of the file, which was cut",
                                 (unsigned long long)*next, (unsigned long long)offset);
        sample->offset = offset;
        sample->entry = entry;
        offset += sample->bytes;
        ++*next;
    }
    return TRAJD_OK;
}

static enum trajd_status place_samples(struct box stbl, struct trajd_mp4 *mp4,
                                       struct trajd_error *error)
{
    struct chunks chunks;
    uint64_t next = 0;
    uint32_t run = 0;

    if (read_chunks(stbl, mp4, &chunks, error))
        return error->status;
    for (uint32_t i = 0; i < chunks.places.count && chunks.runs.count; i++) {
        const uint8_t *place = chunks.places.entries + (size_t)i * chunks.place_bytes;
        if (run + 1 < chunks.runs.count &&
            trajd_be(chunks.runs.entries + ((size_t)run + 1) * 12, 4) == i + 1)
            run++;
        if (place_chunk(mp4, chunks.place_bytes == 4 ? trajd_be(place, 4) : be64(place),
                        chunks.runs.entries + (size_t)run * 12, &next, error))
            return error->status;
    }
    return next == mp4->sample_count
               ? TRAJD_OK
               : trajd_mp4_bad(error,
                               "its tables stsc and stco have places of "
                               "%llu samples, and there are %llu",
                               (unsigned long long)next, (unsigned long long)mp4->sample_count);
}

static enum trajd_status read_samples(struct box minf, struct box stbl, struct trajd_arena *arena,
                                      struct trajd_mp4 *mp4, struct trajd_error *error)
{
    if (read_entries(minf, stbl, arena, mp4, error) || read_sizes(stbl, arena, mp4, error) ||
        read_times(stbl, mp4, error) || place_samples(stbl, mp4, error))
        return error->status;
    return TRAJD_OK;
}

enum trajd_status trajd_mp4_read(int fd, struct trajd_arena *arena, struct trajd_mp4 *mp4,
                                 struct trajd_error *error)
{
    struct box moov, trak = {0}, mdia = {0}, minf, stbl;
    struct stat file;

    *mp4 = (struct trajd_mp4){0};
    if (trajd_sandbox_fstat(fd, &file) || !S_ISREG(file.st_mode))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "it is not a regular file");
    mp4->file_bytes = (uint64_t)file.st_size;
    if (find_moov(fd, mp4, error) || read_moov(fd, arena, mp4, &moov, error))
        return error->status;
    if (find_track(moov, &trak, &mdia, error))
        return error->status;
    if (!find(mdia, "minf", &minf) || !find(minf, "stbl", &stbl))
        return trajd_mp4_bad(error, "its video track has no box stbl");
    if (read_timescale(mdia, "mdhd", &mp4->timescale, error) || check_upright(trak, error) ||
        read_edits(moov, trak, mp4, error))
        return error->status;
    return read_samples(minf, stbl, arena, mp4, error);
}
