/* Describes packed frames: a group with two datasets in place of one. `bytes` (N) u8 holds the
 * frames one after another, `offsets` (T + 1) i64 where each begins and the last ends. Attributes
 * of the group say what the pixels mean. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/scan.h"

enum { WORD_SIZE = 64, TEXT_SIZE = TRAJD_PREPARATION_TEXT_MAX + 1 };

const char *trajd_scan_piece(struct trajd_scan *scan, hid_t group, const char *name, hid_t type,
                             uint64_t width, uint64_t *offset, uint64_t *count)
{
    const hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT);
    const hid_t own = dataset < 0 ? -1 : H5Dget_type(dataset),
                space = dataset < 0 ? -1 : H5Dget_space(dataset);
    const haddr_t place = dataset < 0 ? HADDR_UNDEF : H5Dget_offset(dataset);
    hsize_t shape[H5S_MAX_RANK] = {0};
    const char *why = NULL;

    H5Eclear2(H5E_DEFAULT);
    if (dataset < 0)
        return trajd_arena_format(scan->arena, "its dataset %s cannot be opened", name);
    if (H5Tequal(own, type) <= 0)
        why = H5Tget_size(type) == 1 ? "u8" : "i64";
    else if (H5Sget_simple_extent_dims(space, shape, NULL) != (width > 1 ? 2 : 1))
        why = width > 1 ? "a table" : "of one axis";
    else if (width > 1 && shape[1] != width)
        why = width == 2 ? "a table with 2 columns" : "a table with 3 columns";
    else if (shape[0] && place == HADDR_UNDEF)
        why = "contiguous, without compression";
    *offset = place == HADDR_UNDEF ? 0 : place;
    *count = shape[0];
    H5Sclose(space);
    H5Tclose(own);
    H5Dclose(dataset);
    return why ? trajd_arena_format(scan->arena, "its dataset %s must be %s", name, why) : NULL;
}

void trajd_scan_word(hid_t group, const char *name, char *word, size_t word_size)
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

const char *trajd_scan_words(struct trajd_scan *scan, hid_t group,
                             const struct trajd_layout_image *image)
{
    const char *const names[] = {"color", "flip", "unit", "encoding"};
    const char *const expected[] = {
        trajd_image_color_name(image->color), trajd_image_flip_name(image->flip),
        trajd_depth_unit_name(image->unit), trajd_image_encoding_name(image->encoding)};
    char word[WORD_SIZE];

    for (size_t i = 0; i < 4; i++) {
        trajd_scan_word(group, names[i], word, sizeof word);
        if (!*word || !strcmp(word, expected[i]) || !strcmp(word, "auto") ||
            !strcmp(expected[i], "auto") || !strcmp(expected[i], "undecided"))
            continue;
        if (!trajd_scan_name_ok(word))
            snprintf(word, sizeof word, "unreadable");
        return trajd_arena_format(scan->arena, "its attribute %s is %s, the layout says %s",
                                  names[i], word, expected[i]);
    }
    return NULL;
}

bool trajd_scan_numbers(hid_t group, const char *name, uint64_t count, uint64_t *numbers)
{
    struct trajd_scan_value value = trajd_scan_value_open(group, ".", name);
    const bool ok = value.id >= 0 && H5Sget_simple_extent_npoints(value.space) == (hssize_t)count &&
                    trajd_scan_value_read(&value, H5T_NATIVE_UINT64, numbers);

    trajd_scan_value_close(&value);
    return ok;
}

/* Finds what packed frames are whose size is that of the attribute `size`: raw pixels, and prepared
 * frames, whose first row may have no header. Other frames have their size in their headers. */
static const char *read_sized(hid_t group, const struct trajd_layout_image *image,
                              enum trajd_image_encoding encoding, uint64_t rows,
                              struct trajd_array *array)
{
    const uint64_t channels = trajd_image_channels(image->color);
    uint64_t size[2], values, bits = 8;

    if (encoding == TRAJD_ENCODING_AUTO || !rows || !trajd_scan_numbers(group, "size", 2, size))
        return NULL;
    if (!size[0] || !size[1] || size[0] > TRAJD_FRAME_SIDE_MAX || size[1] > TRAJD_FRAME_SIDE_MAX)
        return "its attribute size is out of range";
    if (__builtin_mul_overflow(rows, size[0] * size[1] * channels, &values))
        values = UINT64_MAX;
    if (encoding == TRAJD_ENCODING_RAW)
        bits = array->payload_bytes % values ? 0 : array->payload_bytes / values * 8;
    if (bits != 8 && bits != 16 && bits != 32)
        return "bytes does not hold raw pixels of the attribute size";
    array->header = (struct trajd_image_header){.encoding = encoding,
                                                .height = (uint32_t)size[0],
                                                .width = (uint32_t)size[1],
                                                .channels = (uint8_t)channels,
                                                .bits = (uint8_t)bits};
    return NULL;
}

/* Reads how the frames were prepared: *text is NULL where they are as recorded. Another program
 * checks what the text says (window/image). */
static const char *read_preparation(struct trajd_scan *scan, hid_t group, const char **text)
{
    char word[TEXT_SIZE];

    *text = NULL;
    trajd_scan_word(group, "preparation", word, sizeof word);
    if (H5Aexists(group, "preparation") <= 0)
        return NULL;
    if (!*word || !strcmp(word, "?") || !trajd_scan_name_ok(word))
        return "its attribute preparation is not a text of one line";
    *text = trajd_arena_copy(scan->arena, word, strlen(word));
    return *text ? NULL : "no memory";
}

/* Finds what the frames are: raw ones, prepared ones, or encoded ones, which say it themselves. */
static const char *read_frames(struct trajd_scan *scan, hid_t group,
                               const struct trajd_layout_image *image, uint64_t rows,
                               struct trajd_array *array)
{
    const char *preparation, *why = read_preparation(scan, group, &preparation);
    enum trajd_image_encoding encoding = TRAJD_ENCODING_AUTO;
    struct trajd_layout_image words = *image;
    char word[WORD_SIZE];

    trajd_scan_word(group, "encoding", word, sizeof word);
    if (!strcmp(word, "raw"))
        encoding = TRAJD_ENCODING_RAW;
    else if (preparation && !strcmp(word, "jpeg"))
        encoding = TRAJD_ENCODING_JPEG;
    if (preparation)
        words = trajd_layout_image_prepared(image, encoding ? encoding : TRAJD_ENCODING_RAW);
    if (!why)
        why = trajd_scan_words(scan, group, &words);
    if (!why)
        why = read_sized(group, &words, encoding, rows, array);
    if (why || !preparation || !rows)
        return why;
    array->preparation = preparation;
    return array->header.encoding
               ? NULL
               : "it has the attribute preparation, and its attributes encoding and size do not "
                 "say what its frames are";
}

bool trajd_scan_has(hid_t group, const char *path, const char *const names[3])
{
    const hid_t folder = H5Gopen2(group, path, H5P_DEFAULT);
    bool has_all = folder >= 0;

    for (int i = 0; i < 3 && names[i]; i++)
        has_all = has_all && H5Lexists(folder, names[i], H5P_DEFAULT) > 0;
    if (folder >= 0)
        H5Gclose(folder);
    H5Eclear2(H5E_DEFAULT);
    return has_all;
}

const char *trajd_scan_packed(struct trajd_scan *scan, hid_t group,
                              const struct trajd_layout_image *image, struct trajd_array *array)
{
    uint64_t count = 0;
    const char *why = trajd_scan_piece(scan, group, "bytes", H5T_STD_U8LE, 1,
                                       &array->payload_offset, &array->payload_bytes);

    if (!why)
        why = trajd_scan_piece(scan, group, "offsets", H5T_STD_I64LE, 1, &array->offset, &count);
    if (!why && !count)
        why = "offsets must have one entry more than there are frames";
    if (!why)
        why = read_frames(scan, group, image, count - 1, array);
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
