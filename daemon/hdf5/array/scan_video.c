/* Describes packed video: a group with tables in place of a dataset. `rows` (T) i64 is the packet
 * whose frame each row shows; daemon/index/rows/README.md lists the others. The parent reads the
 * tables and checks their numbers. */
#include <stdio.h>
#include <string.h>

#include "daemon/hdf5/scan.h"

enum { VERSION = 1, PATH_SIZE = TRAJD_CODEC_TEXT_MAX + 1 };
static const uint64_t row_count_max = 1u << 31;

/* Sets the places of the tables. */
static const char *find_tables(struct trajd_scan *scan, hid_t group, struct trajd_video *video,
                               struct trajd_array *array)
{
    const struct {
        const char *name;
        hid_t type;
        uint64_t width;
        uint64_t *offset, *count;
    } pieces[] = {
        {"rows", H5T_STD_I64LE, 1, &video->rows_offset, &video->row_count},
        {"packets", H5T_STD_I64LE, 3, &video->packets_offset, &video->packet_count},
        {"units", H5T_STD_I64LE, 3, &video->units_offset, &video->unit_count},
        {"extradata", H5T_STD_U8LE, 1, &video->extradata_offset, &video->extradata_bytes},
        {"extradata_ends", H5T_STD_I64LE, 1, &video->ends_offset, &video->extradata_count},
        {"bytes", H5T_STD_U8LE, 1, &array->payload_offset, &array->payload_bytes},
    };
    const size_t count = sizeof pieces / sizeof *pieces - (video->media != NULL);
    const char *why = NULL;

    for (size_t i = 0; i < count && !why; i++)
        why = trajd_scan_piece(scan, group, pieces[i].name, pieces[i].type, pieces[i].width,
                               pieces[i].offset, pieces[i].count);
    if (!why && !video->row_count)
        why = "it has no rows";
    if (!why && video->row_count > row_count_max)
        why = "it has more rows than an index can hold";
    return why;
}

/* Reads an attribute of one text of one line. NULL with the reason in *why. */
static const char *read_text(struct trajd_scan *scan, hid_t group, const char *name,
                             const char **why)
{
    char text[PATH_SIZE];
    const char *copy = NULL;

    trajd_scan_word(group, name, text, sizeof text);
    if (*text && strcmp(text, "?") && trajd_scan_name_ok(text))
        copy = trajd_arena_copy(scan->arena, text, strlen(text));
    if (!copy && !*why)
        *why = trajd_arena_format(scan->arena, "its attribute %s is not a text of one line", name);
    return copy;
}

static const char *unknown_word(struct trajd_scan *scan, const char *name, const char *word,
                                const char *known)
{
    return trajd_arena_format(scan->arena, "its attribute %s is %.64s, which is not supported: %s",
                              name, word, known);
}

/* Reads of which version the group is, and the limits that its writer kept. */
static const char *read_version(struct trajd_scan *scan, hid_t group, struct trajd_video *video)
{
    uint64_t version, largest[2];

    if (!trajd_scan_numbers(group, "version", 1, &version))
        return "its attribute version must be one number";
    if (version != VERSION)
        return trajd_arena_format(scan->arena,
                                  "its attribute version is %llu, this trajd reads version %d",
                                  (unsigned long long)version, VERSION);
    if (!trajd_scan_numbers(group, "largest_unit", 2, largest))
        return "its attribute largest_unit must be two numbers: packets and bytes";
    video->largest_unit_packets = largest[0];
    video->largest_unit_bytes = largest[1];
    return NULL;
}

/* Reads how the frames are compressed, and what their colours mean. */
static const char *read_format(struct trajd_scan *scan, hid_t group, struct trajd_video *video)
{
    const char *why = NULL, *codec = read_text(scan, group, "codec", &why),
               *matrix = read_text(scan, group, "matrix", &why),
               *range = read_text(scan, group, "range", &why);

    video->pixel_format = read_text(scan, group, "pixel_format", &why);
    if (why)
        return why;
    if (!trajd_video_codec_find(codec, &video->format.codec))
        return unknown_word(scan, "codec", codec, "av1, h264 and hevc are");
    if (!trajd_video_matrix_find(matrix, &video->format.matrix))
        return unknown_word(scan, "matrix", matrix, "bt601, bt709, bt2020 and unspecified are");
    if (!trajd_video_range_find(range, &video->format.range))
        return unknown_word(scan, "range", range, "limited, full and unspecified are");
    return NULL;
}

/* Reads where the packets are, if another file has them. */
static const char *read_media(struct trajd_scan *scan, hid_t group, struct trajd_video *video)
{
    const char *why = NULL;

    if (H5Aexists(group, "media") <= 0)
        return NULL;
    video->media = read_text(scan, group, "media", &why);
    if (!why && !trajd_scan_numbers(group, "media_size", 1, &video->media_size))
        why = "its attribute media_size must be one number";
    return why;
}

/* Compares the words and the size with the layout. */
static const char *read_image(struct trajd_scan *scan, hid_t group,
                              const struct trajd_layout_image *image, struct trajd_array *array)
{
    uint64_t size[2];

    if (image->color == TRAJD_COLOR_DEPTH)
        return "the layout says that its frames are depth, which video does not hold exactly";
    if (image->masks_zero_frames)
        return "the layout says zero_frames: mask, which video does not have";
    if (!trajd_scan_numbers(group, "size", 2, size) || !size[0] || !size[1] ||
        size[0] > TRAJD_FRAME_SIDE_MAX || size[1] > TRAJD_FRAME_SIDE_MAX)
        return "its attribute size must be height and width, of 1 to 8192 pixels";
    if (image->height && (size[0] != image->height || size[1] != image->width))
        return trajd_arena_format(scan->arena, "its frames are %ux%u, the layout says %ux%u",
                                  (unsigned)size[0], (unsigned)size[1], image->height,
                                  image->width);
    array->header = (struct trajd_image_header){.encoding = TRAJD_ENCODING_VIDEO,
                                                .height = (uint32_t)size[0],
                                                .width = (uint32_t)size[1],
                                                .channels = 3,
                                                .bits = 8};
    return trajd_scan_words(scan, group, image);
}

const char *trajd_scan_video(struct trajd_scan *scan, hid_t group,
                             const struct trajd_layout_image *image, struct trajd_array *array)
{
    struct trajd_video *video = trajd_arena_alloc(scan->arena, sizeof *video);
    const char *why = video ? read_version(scan, group, video) : "no memory";

    if (!why)
        why = read_format(scan, group, video);

    if (!why)
        why = read_media(scan, group, video);
    if (!why)
        why = find_tables(scan, group, video, array);
    if (!why)
        why = read_image(scan, group, image, array);
    if (why)
        return why;
    array->storage = TRAJD_STORAGE_CONTIGUOUS;
    array->dtype = TRAJD_I64;
    array->form = TRAJD_ROWS_VIDEO;
    array->rank = 1;
    array->offset = video->rows_offset;
    array->shape[0] = video->row_count;
    array->size_bytes = video->row_count * sizeof(int64_t);
    array->video = video;
    return NULL;
}
