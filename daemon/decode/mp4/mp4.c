/* Boxes are looked up by name, level by level: nothing recurses, so boxes that contain themselves
 * have no meaning. Where a box goes beyond its parent, it and those behind it are missing. The
 * functions that return bool return false after an error, whose message is then set. */
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

typedef unsigned long long number; /* for messages */

bool trajd_mp4_refuse(const struct trajd_mp4 *mp4, const char *format, ...)
{
    char message[TRAJD_ERROR_MESSAGE_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    trajd_error_set(mp4->error, TRAJD_ERR_DATA, 0, "%s", message);
    return false;
}

void *trajd_mp4_alloc(const struct trajd_mp4 *mp4, uint64_t count, size_t element_bytes)
{
    void *memory = trajd_arena_array(mp4->arena, count, element_bytes);

    if (!memory)
        trajd_error_set(mp4->error, TRAJD_ERR_MEMORY, 0, "its tables need too much memory");
    return memory;
}

bool trajd_mp4_pread(const struct trajd_mp4 *mp4, uint64_t offset, void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        const ssize_t got =
            pread(mp4->fd, (uint8_t *)bytes + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            trajd_error_set(mp4->error, TRAJD_ERR_IO, errno, "it cannot be read: %s",
                            got ? strerror(errno) : "it has become shorter");
            return false;
        }
        done += (size_t)got;
    }
    return true;
}

/* ---- boxes in memory ---- */

/* The content of a box. */
struct box {
    const uint8_t *at, *end;
};

static uint64_t size_of(struct box box)
{
    return (uint64_t)(box.end - box.at);
}

/* Returns whether a box of type `type` has this name. */
static bool is_named(const uint8_t *type, const char *name)
{
    return !memcmp(type, name, 4);
}

/* Takes the next box from those of a parent; *type is its name in the file. Returns false at the end,
 * and where the rest is not a box. */
static bool next_box(struct box *parent, const uint8_t **type, struct box *child)
{
    const uint64_t left = size_of(*parent);
    uint64_t size, head = 8;

    if (left < head)
        return false;
    size = trajd_be(parent->at, 4);
    *type = parent->at + 4;
    if (size == 1) {
        head = 16;
        size = left < head ? 0 : trajd_be(parent->at + 8, 8);
    } else if (!size) {
        size = left;
    }
    if (size < head || size > left)
        return false;
    *child = (struct box){parent->at + head, parent->at + size};
    parent->at += size;
    return true;
}

/* Finds the first box at a path of names, such as "mdia/minf". Returns false where it is missing or
 * has less than `bytes`. */
static bool find(struct box parent, const char *path, uint64_t bytes, struct box *found)
{
    for (;; path += 5) {
        const uint8_t *type;
        do {
            if (!next_box(&parent, &type, found))
                return false;
        } while (!is_named(type, path));
        if (!path[4])
            return size_of(*found) >= bytes;
        parent = *found;
    }
}

/* A list of numbers behind a version, flags and their count. */
struct table {
    const uint8_t *entries;
    uint32_t count, entry_bytes;
};

static bool read_table(const struct trajd_mp4 *mp4, struct box parent, const char *name,
                       uint32_t entry_bytes, struct table *table)
{
    struct box box;

    if (!find(parent, name, 8, &box))
        return trajd_mp4_refuse(mp4, "its table %s is missing", name);
    *table = (struct table){box.at + 8, trajd_be(box.at + 4, 4), entry_bytes};
    return (uint64_t)table->count * entry_bytes <= size_of(box) - 8 ||
           trajd_mp4_refuse(mp4, "its table %s is cut: it has room for fewer than its %u entries",
                            name, table->count);
}

/* Returns a number of 4 bytes of entry i. */
static uint32_t number_at(const struct table *table, uint64_t i, uint32_t column)
{
    return trajd_be(table->entries + i * table->entry_bytes + 4 * column, 4);
}

/* ---- the file ---- */

static bool refuse_fragments(const struct trajd_mp4 *mp4, const char *name)
{
    return trajd_mp4_refuse(mp4,
                            "it is fragmented (it has a box %s), which is not supported: write it "
                            "without fragments",
                            name);
}

/* Reads the first box moov among those of the file. A box that goes beyond the file means that it was
 * cut. */
static bool read_moov(const struct trajd_mp4 *mp4, struct box *moov)
{
    uint64_t at = 0, moov_at = 0, moov_bytes = 0;
    const uint8_t *type;
    struct box box;
    uint8_t *bytes;

    for (uint32_t i = 0; i < FILE_BOXES_MAX && mp4->file_bytes - at >= 8; i++) {
        const uint64_t left = mp4->file_bytes - at;
        uint8_t head[16] = {0};
        uint64_t size;
        if (!trajd_mp4_pread(mp4, at, head, left < sizeof head ? left : sizeof head))
            return false;
        if (!i && !is_named(head + 4, "ftyp"))
            return trajd_mp4_refuse(mp4,
                                    "it is not an MP4 file: it does not begin with a box ftyp");
        if (is_named(head + 4, "moof"))
            return refuse_fragments(mp4, "moof");
        size = trajd_be(head, 4);
        size = size == 1 ? trajd_be(head + 8, 8) : size ? size : left;
        if (size < 8 || size > left)
            return trajd_mp4_refuse(mp4,
                                    "it was cut or is damaged: its box at byte %llu says that it "
                                    "has %llu bytes, and the file has %llu more",
                                    (number)at, (number)size, (number)left);
        if (is_named(head + 4, "moov") && !moov_bytes) {
            moov_at = at;
            moov_bytes = size;
        }
        at += size;
    }
    if (!moov_bytes)
        return trajd_mp4_refuse(mp4, "it has no box moov: its recording was not finished");
    if (moov_bytes > TRAJD_MP4_MOOV_BYTES_MAX)
        return trajd_mp4_refuse(mp4, "its box moov has %llu bytes, which is more than 256 MiB",
                                (number)moov_bytes);
    bytes = trajd_mp4_alloc(mp4, moov_bytes, 1);
    if (!bytes || !trajd_mp4_pread(mp4, moov_at, bytes, moov_bytes))
        return false;
    box = (struct box){bytes, bytes + moov_bytes};
    if (!next_box(&box, &type, moov))
        return trajd_mp4_refuse(mp4, "its box moov is damaged");
    return !find(*moov, "mvex", 0, &box) || refuse_fragments(mp4, "mvex");
}

/* Finds the track of moov that is video. Which one of several is meant, nobody can tell. */
static bool find_track(const struct trajd_mp4 *mp4, struct box moov, struct box *trak)
{
    struct box box, hdlr;
    const uint8_t *type;
    uint32_t count = 0;

    while (next_box(&moov, &type, &box))
        if (is_named(type, "trak") && find(box, "mdia/hdlr", 12, &hdlr) &&
            is_named(hdlr.at + 8, "vide")) {
            *trak = box;
            count++;
        }
    return count == 1 || trajd_mp4_refuse(mp4, "it has %u video tracks: one is supported", count);
}

/* Reads the timescale of a box mvhd or mdhd. */
static bool read_timescale(const struct trajd_mp4 *mp4, struct box parent, const char *name,
                           uint32_t *timescale)
{
    struct box box;

    *timescale = 0;
    if (find(parent, name, 24, &box))
        *timescale = trajd_be(box.at + (*box.at ? 20 : 12), 4);
    return *timescale || trajd_mp4_refuse(mp4, "its box %s is missing or has no timescale", name);
}

/* Refuses a track that is to be turned, mirrored or scaled. */
static bool check_upright(const struct trajd_mp4 *mp4, struct box trak)
{
    /* the first numbers of the matrix: the rest moves it */
    static const uint32_t upright[] = {ONE, 0, 0, 0, ONE};
    struct box box;

    if (!find(trak, "tkhd", 84, &box) || (*box.at && size_of(box) < 96))
        return trajd_mp4_refuse(mp4, "its box tkhd is missing or cut");
    box.at += *box.at ? 52 : 40;
    for (uint32_t i = 0; i < ARRAY_LEN(upright); i++)
        if (trajd_be(box.at + 4 * i, 4) != upright[i])
            return trajd_mp4_refuse(mp4, "its video track is to be turned, mirrored or scaled (the "
                                         "matrix of its box tkhd), which is not supported: write "
                                         "it upright");
    return true;
}

/* Reads the edit list: any number of delays, which count for nothing because times are those since
 * the first frame, then one edit, which trajd_units_find compares with the frames. */
static bool read_edits(struct trajd_mp4 *mp4, struct box moov, struct box trak)
{
    uint32_t timescale, number_bytes;
    struct table table;
    struct box edts, elst;

    mp4->edit_begin = INT64_MIN;
    mp4->edit_end_s = INFINITY;
    if (!find(trak, "edts", 0, &edts))
        return true;
    number_bytes = find(edts, "elst", 8, &elst) && *elst.at ? 8 : 4;
    if (!read_timescale(mp4, moov, "mvhd", &timescale) ||
        !read_table(mp4, edts, "elst", 2 * number_bytes + 4, &table))
        return false;
    for (uint32_t i = 0; i < table.count; i++) {
        const uint8_t *at = table.entries + (size_t)i * table.entry_bytes;
        const uint64_t ticks = trajd_be(at, number_bytes); /* on the timescale of the file */
        const uint64_t begin = trajd_be(at + number_bytes, number_bytes);
        const int64_t begin_time = number_bytes == 8 ? (int64_t)begin : (int32_t)begin;
        if (i + 1 < table.count && begin_time == -1)
            continue; /* nothing is shown */
        if (i + 1 < table.count || begin_time < 0 || trajd_be(at + 2 * number_bytes, 4) != ONE)
            return trajd_mp4_refuse(mp4,
                                    "the edit list of its video track, of %u entries, cuts it or "
                                    "changes its speed: only a delay, or the start behind the "
                                    "delay of B frames, is read",
                                    table.count);
        mp4->edit_begin = begin_time;
        /* the end was rounded to the file's timescale by the writer */
        mp4->edit_end_s = (double)begin_time / mp4->timescale + ((double)ticks + 1) / timescale;
    }
    return true;
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

/* Returns the codec of a sample entry. NULL after an error. */
static const struct codec *find_codec(const struct trajd_mp4 *mp4, const uint8_t *type)
{
    char name[5] = {0};

    for (size_t i = 0; i < ARRAY_LEN(codecs); i++)
        if (is_named(type, codecs[i].name))
            return &codecs[i];
    for (int i = 0; i < 4; i++)
        name[i] = type[i] > ' ' && type[i] < 0x7f ? (char)type[i] : '?';
    trajd_mp4_refuse(mp4,
                     "its video is stored as '%s', which is not supported: only avc1, avc3, hvc1, "
                     "hev1 and av01 are",
                     name);
    return NULL;
}

/* Reads the colours that the file states beside the bitstream. */
static bool read_colors(const struct trajd_mp4 *mp4, struct box boxes,
                        struct trajd_mp4_entry *entry)
{
    struct box colr;

    if (!find(boxes, "colr", 10, &colr) ||
        (!is_named(colr.at, "nclx") && !is_named(colr.at, "nclc")))
        return true;
    if (is_named(colr.at, "nclx") && size_of(colr) > 10)
        entry->range = colr.at[10] & 0x80 ? TRAJD_RANGE_FULL : TRAJD_RANGE_LIMITED;
    return !trajd_stream_matrix(trajd_be(colr.at + 8, 2), &entry->matrix, mp4->error);
}

/* Returns whether the samples of an entry are in this file: bit 0 of the flags of its data
 * reference. */
static bool is_inside(struct box minf, uint32_t reference)
{
    struct box dref, entry = {NULL, NULL}; /* references count from 1 */
    const uint8_t *type;

    if (!find(minf, "dinf/dref", 8, &dref))
        return false;
    dref.at += 8;
    while (reference && next_box(&dref, &type, &entry))
        reference--;
    return !reference && size_of(entry) >= 4 && entry.at[3] & 1;
}

static bool read_entry(struct trajd_mp4 *mp4, struct box minf, const uint8_t *type, struct box box,
                       struct trajd_mp4_entry *entry)
{
    const struct codec *codec = find_codec(mp4, type);
    struct box found;

    if (!codec)
        return false;
    if (mp4->codec && mp4->codec != codec->codec)
        return trajd_mp4_refuse(mp4, "its video track has two codecs, %s and %s",
                                trajd_video_codec_name(mp4->codec),
                                trajd_video_codec_name(codec->codec));
    mp4->codec = codec->codec;
    if (size_of(box) < ENTRY_BYTES)
        return trajd_mp4_refuse(mp4, "an entry of its table stsd is cut");
    if (!is_inside(minf, trajd_be(box.at + 6, 2)))
        return trajd_mp4_refuse(mp4, "its frames are in another file (its box dref)");
    box.at += ENTRY_BYTES;
    if (find(box, "clap", 0, &found))
        return trajd_mp4_refuse(mp4,
                                "its frames are cropped by a box clap, which is not supported");
    if (!find(box, codec->configuration, 0, &found))
        return trajd_mp4_refuse(mp4, "its box %s is missing", codec->configuration);
    entry->extradata = found.at;
    entry->extradata_bytes = (uint32_t)size_of(found);
    return read_colors(mp4, box, entry);
}

static bool read_entries(struct trajd_mp4 *mp4, struct box minf)
{
    struct box stsd, entry;
    struct table table;
    const uint8_t *type;

    if (!find(minf, "stbl/stsd", 8, &stsd) ||
        !read_table(mp4, minf, "stbl/stsd", 8 + ENTRY_BYTES, &table) || !table.count)
        return trajd_mp4_refuse(mp4, "its table stsd is missing or cut");
    mp4->entries = trajd_mp4_alloc(mp4, table.count, sizeof *mp4->entries);
    if (!mp4->entries)
        return false;
    mp4->entry_count = table.count;
    stsd.at = table.entries;
    for (uint32_t i = 0; i < table.count; i++) {
        if (!next_box(&stsd, &type, &entry))
            return trajd_mp4_refuse(mp4, "an entry of its table stsd is cut");
        if (!read_entry(mp4, minf, type, entry, &mp4->entries[i]))
            return false;
    }
    return true;
}

/* ---- samples ---- */

/* Reads the sizes of the samples, which stsz or stz2 has. */
static bool read_sizes(struct trajd_mp4 *mp4, struct box stbl)
{
    uint64_t total = 0;
    uint32_t bits = 32, fixed = 0;
    struct box box;

    if (find(stbl, "stsz", 12, &box))
        fixed = trajd_be(box.at + 4, 4);
    else if (find(stbl, "stz2", 12, &box))
        bits = box.at[7];
    else
        return trajd_mp4_refuse(mp4, "its table stsz is missing");
    if (bits != 4 && bits != 8 && bits != 16 && bits != 32)
        return trajd_mp4_refuse(mp4, "its table stz2 is damaged");
    mp4->sample_count = trajd_be(box.at + 8, 4);
    box.at += 12;
    if (!fixed && ((uint64_t)mp4->sample_count * bits + 7) / 8 > size_of(box))
        return trajd_mp4_refuse(mp4,
                                "its table stsz is cut: it has room for fewer than its %u samples",
                                mp4->sample_count);
    if (!mp4->sample_count || mp4->sample_count > TRAJD_MP4_SAMPLES_MAX)
        return trajd_mp4_refuse(mp4, "its video track has %u samples: 1 to %u are supported",
                                mp4->sample_count, TRAJD_MP4_SAMPLES_MAX);
    mp4->samples = trajd_mp4_alloc(mp4, mp4->sample_count, sizeof *mp4->samples);
    if (!mp4->samples)
        return false;
    for (uint32_t i = 0; i < mp4->sample_count; i++) {
        uint32_t size = fixed;
        if (!fixed && bits == 4)
            size = box.at[i / 2] >> (i % 2 ? 0 : 4) & 15;
        else if (!fixed)
            size = trajd_be(box.at + (size_t)i * (bits / 8), bits / 8);
        if (!size || size > TRAJD_MP4_PACKET_BYTES_MAX)
            return trajd_mp4_refuse(
                mp4, "sample %u of its video track has %u bytes: 1 to %u are supported", i, size,
                TRAJD_MP4_PACKET_BYTES_MAX);
        mp4->samples[i].bytes = size;
        total += size;
    }
    /* Samples that overlap would make a small file as large as it likes. */
    return total <= mp4->file_bytes ||
           trajd_mp4_refuse(mp4,
                            "its samples have %llu bytes and the file %llu: it was cut or is "
                            "damaged",
                            (number)total, (number)mp4->file_bytes);
}

/* Runs of equal values, as stts and ctts have them: count, value. */
struct runs {
    struct table table;
    uint32_t next, left; /* the run behind the current one; values left of this */
};

static uint32_t next_value(struct runs *runs)
{
    while (!runs->left)
        runs->left = number_at(&runs->table, runs->next++, 0);
    runs->left--;
    return number_at(&runs->table, runs->next - 1, 1);
}

/* Reads a table of runs, which must have a value for each sample. */
static bool read_runs(const struct trajd_mp4 *mp4, struct box stbl, const char *name,
                      struct runs *runs)
{
    uint64_t total = 0;

    *runs = (struct runs){.next = 0};
    if (!read_table(mp4, stbl, name, 8, &runs->table))
        return false;
    for (uint32_t i = 0; i < runs->table.count; i++)
        total += number_at(&runs->table, i, 0);
    return total == mp4->sample_count ||
           trajd_mp4_refuse(mp4, "its table %s has times of %llu samples, and there are %u", name,
                            (number)total, mp4->sample_count);
}

static bool read_times(struct trajd_mp4 *mp4, struct box stbl)
{
    struct runs durations, delays;
    struct box ctts;
    const bool is_reordered = find(stbl, "ctts", 0, &ctts);
    int64_t time = 0;

    if (!read_runs(mp4, stbl, "stts", &durations) ||
        (is_reordered && !read_runs(mp4, stbl, "ctts", &delays)))
        return false;
    for (uint32_t i = 0; i < mp4->sample_count; i++) {
        const uint32_t duration = next_value(&durations);
        if (duration > INT32_MAX)
            return trajd_mp4_refuse(mp4, "sample %u of its video track has a negative duration", i);
        /* writers put negative delays into either version of the table */
        mp4->samples[i].time = time + (is_reordered ? (int32_t)next_value(&delays) : 0);
        time += duration;
    }
    return true;
}

/* Checks stsc, whose runs of chunks have: the first one's number, samples in each, their entry. */
static bool check_chunks(const struct trajd_mp4 *mp4, const struct table *runs)
{
    for (uint32_t i = 0, before = 0; i < runs->count; i++) {
        const uint32_t first = number_at(runs, i, 0), entry = number_at(runs, i, 2);
        if (first <= before || (!i && first != 1) || !entry || entry > mp4->entry_count)
            return trajd_mp4_refuse(mp4, "its table stsc is damaged");
        before = first;
    }
    return true;
}

/* Places up to `count` samples of one chunk, one behind the other. *next: the next sample. */
static bool place_chunk(struct trajd_mp4 *mp4, uint64_t offset, uint32_t count, uint32_t entry,
                        uint32_t *next)
{
    for (; count && *next < mp4->sample_count; count--) {
        struct trajd_mp4_sample *sample = &mp4->samples[*next];
        if (offset > mp4->file_bytes || sample->bytes > mp4->file_bytes - offset)
            return trajd_mp4_refuse(mp4,
                                    "sample %u of its video track, at byte %llu, is beyond the end "
                                    "of the file, which was cut",
                                    *next, (number)offset);
        sample->offset = offset;
        sample->entry = entry;
        offset += sample->bytes;
        ++*next;
    }
    return true;
}

static bool place_samples(struct trajd_mp4 *mp4, struct box stbl)
{
    struct box box;
    const bool is_short = find(stbl, "stco", 0, &box);
    struct table places, runs;
    uint32_t next = 0, run = 0;

    if (!read_table(mp4, stbl, is_short ? "stco" : "co64", is_short ? 4 : 8, &places) ||
        !read_table(mp4, stbl, "stsc", 12, &runs) || !check_chunks(mp4, &runs))
        return false;
    for (uint32_t i = 0; i < places.count && runs.count; i++) {
        const uint32_t bytes = places.entry_bytes;
        run += run + 1 < runs.count && number_at(&runs, run + 1, 0) == i + 1;
        if (!place_chunk(mp4, trajd_be(places.entries + (size_t)i * bytes, bytes),
                         number_at(&runs, run, 1), number_at(&runs, run, 2) - 1, &next))
            return false;
    }
    return next == mp4->sample_count ||
           trajd_mp4_refuse(mp4,
                            "its tables stsc and stco have places of %u samples, and there are %u",
                            next, mp4->sample_count);
}

static bool read_all(struct trajd_mp4 *mp4)
{
    struct box moov, trak = {0}, mdia, minf, stbl;

    if (!read_moov(mp4, &moov) || !find_track(mp4, moov, &trak))
        return false;
    if (!find(trak, "mdia", 0, &mdia) || !find(mdia, "minf", 0, &minf) ||
        !find(minf, "stbl", 0, &stbl))
        return trajd_mp4_refuse(mp4, "its video track has no box stbl");
    return read_timescale(mp4, mdia, "mdhd", &mp4->timescale) && check_upright(mp4, trak) &&
           read_edits(mp4, moov, trak) && read_entries(mp4, minf) && read_sizes(mp4, stbl) &&
           read_times(mp4, stbl) && place_samples(mp4, stbl);
}

enum trajd_status trajd_mp4_read(int fd, struct trajd_arena *arena, struct trajd_mp4 *mp4,
                                 struct trajd_error *error)
{
    struct stat file;

    *mp4 = (struct trajd_mp4){.fd = fd, .arena = arena, .error = error};
    if (trajd_sandbox_fstat(fd, &file) || !S_ISREG(file.st_mode))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "it is not a regular file");
    mp4->file_bytes = (uint64_t)file.st_size;
    return read_all(mp4) ? TRAJD_OK : error->status;
}
