/* Describes packed frames: a group with two datasets in place of one. `bytes` (N) u8 holds the frames
 * one after another, `offsets` (T + 1) i64 where each begins and the last ends. Attributes of the
 * group say what the pixels mean. */
#include <stdio.h>
#include <string.h>

#include "daemon/hdf5/scan.h"

enum { WORD_SIZE = 64 };

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

/* Reads an attribute of one text; "" where there is none. */
static void read_word(hid_t group, const char *name, char word[WORD_SIZE])
{
    const hid_t attribute = H5Aexists(group, name) > 0 ? H5Aopen(group, name, H5P_DEFAULT) : -1;
    const hid_t type = attribute < 0 ? -1 : H5Aget_type(attribute),
                space = attribute < 0 ? -1 : H5Aget_space(attribute);
    char *text = NULL;

    memset(word, 0, WORD_SIZE);
    if (attribute < 0)
        return;
    if (H5Tget_class(type) != H5T_STRING || H5Sget_simple_extent_npoints(space) != 1) {
        snprintf(word, WORD_SIZE, "?");
    } else if (H5Tis_variable_str(type) > 0) {
        if (H5Aread(attribute, type, &text) >= 0 && text)
            snprintf(word, WORD_SIZE, "%s", text);
        H5free_memory(text);
    } else if (H5Tget_size(type) < WORD_SIZE) {
        H5Aread(attribute, type, word);
    }
    H5Eclear2(H5E_DEFAULT);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attribute);
}

/* Compares what the file says with the layout. */
static const char *check_words(struct trajd_scan *scan, hid_t group,
                               const struct trajd_layout_image *image)
{
    const char *const names[] = {"color", "flip", "unit"};
    const char *const expected[] = {trajd_picture_color_name(image->color),
                                    trajd_picture_flip_name(image->flip),
                                    trajd_depth_unit_name(image->unit)};
    char word[WORD_SIZE];

    for (size_t i = 0; i < 3; i++) {
        read_word(group, names[i], word);
        if (!*word || !strcmp(word, expected[i]))
            continue;
        if (!trajd_scan_name_ok(word))
            snprintf(word, sizeof word, "unreadable");
        return trajd_arena_format(scan->arena,
                                  "packed frames: their attribute %s is %s, the layout says %s",
                                  names[i], word, expected[i]);
    }
    return NULL;
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
        why = check_words(scan, folder, image);
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
