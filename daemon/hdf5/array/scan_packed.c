/* Describes packed frames: a group with two datasets in place of one. `bytes` (N) u8 holds the
 * frames one after another, `offsets` (T + 1) i64 where each begins and the last ends. Attributes
 * of the group say what the pixels mean. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/scan.h"
#include "daemon/hdf5/scan_value.h"

enum { WORD_SIZE = 64, TEXT_SIZE = TRAJD_PREPARATION_TEXT_MAX + 1 };

/* Opens a dataset of one axis that lies in one piece in the file, and sets its place. */
static const char *find_piece(hid_t group, const char *name, hid_t type, uint64_t *offset,
                              uint64_t *count)
{
    const hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT);
    const hid_t own = dataset < 0 ? -1 : H5Dget_type(dataset),
                space = dataset < 0 ? -1 : H5Dget_space(dataset);
    const haddr_t place = dataset < 0 ? HADDR_UNDEF : H5Dget_offset(dataset);
    const char *why = NULL;
    hsize_t shape[H5S_MAX_RANK] = {0};

    if (dataset < 0)
        return "packed frames: a dataset of the group cannot be opened";
    if (H5Tequal(own, type) <= 0)
        why = "packed frames: bytes must be u8, and offsets i64";
    else if (H5Sget_simple_extent_dims(space, shape, NULL) != 1)
        why = "packed frames: bytes and offsets must have one axis";
    else if (shape[0] && place == HADDR_UNDEF)
        why = "packed frames: bytes and offsets must be contiguous, without compression";
    *offset = place == HADDR_UNDEF ? 0 : place;
    *count = shape[0];
    H5Eclear2(H5E_DEFAULT);
    H5Sclose(space);
    H5Tclose(own);
    H5Dclose(dataset);
    return why;
}

/* Reads an attribute of one text; "" where there is none, "?" where it is no text that fits. */
static void read_word(hid_t group, const char *name, char *word, size_t word_size)
{
    struct trajd_scan_value value = trajd_scan_value_open(group, ".", name);
    char *text = value.id >= 0 && H5Tget_class(value.type) == H5T_STRING &&
                         H5Tget_size(value.type) < word_size
                     ? trajd_scan_value_read_text(&value)
                     : NULL;

    snprintf(word, word_size, "%s", H5Aexists(group, name) > 0 ? "?" : "");
    if (text && strlen(text) < word_size)
        strcpy(word, text);
    free(text);
    trajd_scan_value_close(&value);
}

/* Compares what the file says with the layout. A layout that leaves the colour open takes any. */
static const char *check_words(struct trajd_scan *scan, hid_t group,
                               const struct trajd_layout_image *image)
{
    const char *const names[] = {"color", "flip", "unit", "encoding"};
    const char *const expected[] = {
        trajd_picture_color_name(image->color), trajd_picture_flip_name(image->flip),
        trajd_depth_unit_name(image->unit), trajd_picture_encoding_name(image->encoding)};
    char word[WORD_SIZE];

    for (size_t i = 0; i < 4; i++) {
        read_word(group, names[i], word, sizeof word);
        if (!*word || !strcmp(word, expected[i]) || !strcmp(word, "auto") ||
            !strcmp(expected[i], "auto") || !strcmp(expected[i], "undecided"))
            continue;
        if (!trajd_scan_name_ok(word))
            snprintf(word, sizeof word, "unreadable");
        return trajd_arena_format(scan->arena,
                                  "packed frames: their attribute %s is %s, the layout says %s",
                                  names[i], word, expected[i]);
    }
    return NULL;
}

/* Reads the attribute `size`. False where it is not two numbers. */
static bool read_size(hid_t group, uint64_t size[2])
{
    struct trajd_scan_value value = trajd_scan_value_open(group, ".", "size");
    const bool ok = value.id >= 0 && H5Sget_simple_extent_npoints(value.space) == 2 &&
                    trajd_scan_value_read(&value, H5T_NATIVE_UINT64, size);

    trajd_scan_value_close(&value);
    return ok;
}

/* Finds what packed frames are that are all raw pixels. Only the attribute `size` has their height
 * and width. Other frames have them in their headers. */
static const char *read_raw(hid_t group, const struct trajd_layout_image *image, uint64_t rows,
                            struct trajd_array *array)
{
    const uint64_t channels = trajd_picture_channels(image->color);
    uint64_t size[2], values, bits;
    char word[WORD_SIZE];

    read_word(group, "encoding", word, sizeof word);
    if (strcmp(word, "raw") || !rows || !read_size(group, size))
        return NULL;
    if (!size[0] || !size[1] || size[0] > TRAJD_PICTURE_SIDE_MAX ||
        size[1] > TRAJD_PICTURE_SIDE_MAX)
        return "packed frames: their attribute size is out of range";
    if (__builtin_mul_overflow(rows, size[0] * size[1] * channels, &values))
        values = UINT64_MAX;
    bits = array->payload_bytes / values * 8;
    if (array->payload_bytes % values || (bits != 8 && bits != 16 && bits != 32))
        return "packed frames: bytes does not hold raw pixels of the attribute size";
    array->picture = (struct trajd_picture){.encoding = TRAJD_PICTURE_RAW,
                                            .height = (uint32_t)size[0],
                                            .width = (uint32_t)size[1],
                                            .channels = (uint8_t)channels,
                                            .bits = (uint8_t)bits};
    return NULL;
}

/* Reads how the frames were prepared: *text is NULL where they are as recorded. Another program
 * checks what the text says (window/picture). */
static const char *read_preparation(struct trajd_scan *scan, hid_t group, const char **text)
{
    char word[TEXT_SIZE];

    *text = NULL;
    read_word(group, "preparation", word, sizeof word);
    if (H5Aexists(group, "preparation") <= 0)
        return NULL;
    if (!*word || !strcmp(word, "?") || !trajd_scan_name_ok(word))
        return "packed frames: their attribute preparation is no text of one line";
    *text = trajd_arena_copy(scan->arena, word, strlen(word));
    return *text ? NULL : "no memory";
}

/* Finds what the frames are: raw ones, prepared ones, or encoded ones, which say it themselves. */
static const char *read_frames(struct trajd_scan *scan, hid_t group,
                               const struct trajd_layout_image *image, uint64_t rows,
                               struct trajd_array *array)
{
    const char *preparation, *why = read_preparation(scan, group, &preparation);
    const struct trajd_layout_image words =
        preparation ? trajd_layout_image_prepared(image) : *image;

    if (!why)
        why = check_words(scan, group, &words);
    if (!why)
        why = read_raw(group, &words, rows, array);
    if (why || !preparation || !rows)
        return why;
    array->preparation = preparation;
    return array->picture.encoding == TRAJD_PICTURE_RAW
               ? NULL
               : "packed frames: they have the attribute preparation, and are not raw pixels of "
                 "the "
                 "attribute size";
}

bool trajd_scan_is_packed(hid_t group, const char *path)
{
    const hid_t folder = H5Gopen2(group, path, H5P_DEFAULT);
    const bool is_packed = folder >= 0 && H5Lexists(folder, "bytes", H5P_DEFAULT) > 0 &&
                           H5Lexists(folder, "offsets", H5P_DEFAULT) > 0;

    if (folder >= 0)
        H5Gclose(folder);
    H5Eclear2(H5E_DEFAULT);
    return is_packed;
}

const char *trajd_scan_packed(struct trajd_scan *scan, hid_t group, const char *path,
                              const struct trajd_layout_image *image, struct trajd_array *array)
{
    const hid_t folder = H5Gopen2(group, path, H5P_DEFAULT);
    uint64_t count = 0;
    const char *why = folder < 0 ? "packed frames: the group cannot be opened"
                                 : find_piece(folder, "bytes", H5T_STD_U8LE, &array->payload_offset,
                                              &array->payload_bytes);

    if (!why)
        why = find_piece(folder, "offsets", H5T_STD_I64LE, &array->offset, &count);
    if (!why && !count)
        why = "packed frames: offsets must have one entry more than there are frames";
    if (!why)
        why = read_frames(scan, folder, image, count - 1, array);
    if (folder >= 0)
        H5Gclose(folder);
    if (why)
        return why;
    array->storage = TRAJD_STORAGE_CONTIGUOUS;
    array->dtype = TRAJD_I64;
    array->form = TRAJD_ROWS_PACKED;
    array->rank = 1;
    array->shape[0] = count - 1;
    array->size_bytes = (count - 1) * sizeof(int64_t);
    return NULL;
}
