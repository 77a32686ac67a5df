/* Completes the file: masks, rates and counts once all episodes are there, and compressed
 * chunks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/hdf5/helper_socket.h"
#include "daemon/layout/json_field.h"
#include "daemon/hdf5/writer/writer.h"

enum {
    NAME_SIZE = 1025,
    LIST_MAX = 1 << 24,
    VALUE_SIZE = 64,
    PROVENANCE_SIZE = 1 << 20,
    CHUNK_BYTES_MAX = 256 << 20
};

/* ---- masks ---- */

/* Writes a list of names as strings of fixed length, as numpy does. */
static bool write_names(hid_t folder, const char *key, const char *names, uint32_t count,
                        size_t size)
{
    const hsize_t extent = count;
    const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &extent, NULL),
                creation = H5Pcreate(H5P_DATASET_CREATE);
    hid_t made;
    bool ok;

    H5Tset_size(type, size);
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    H5Pset_obj_track_times(creation, 0);
    made = H5Dcreate2(folder, key, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    ok = made >= 0 && H5Dwrite(made, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, names) >= 0;
    if (made >= 0)
        H5Dclose(made);
    H5Pclose(creation);
    H5Sclose(space);
    H5Tclose(type);
    return ok || trajd_writer_fail(key);
}

/* Reads the names twice: for the longest one, then into one block. */
static bool make_mask(struct trajd_writer_frame *frame, hid_t folder)
{
    char key[NAME_SIZE], name[NAME_SIZE], *names;
    struct trajd_writer_frame again;
    size_t longest = 1;
    uint32_t count;
    bool ok;

    trajd_writer_text(frame, key, sizeof key);
    count = trajd_writer_u32(frame);
    again = *frame;
    for (uint32_t i = 0; i < count && !frame->failed; i++) {
        trajd_writer_text(frame, name, sizeof name);
        longest = strlen(name) > longest ? strlen(name) : longest;
    }
    if (frame->failed || count > LIST_MAX)
        return trajd_writer_fail("a mask of the recipe cannot be read");
    names = calloc((size_t)count + 1, longest);
    for (uint32_t i = 0; i < count && names; i++) {
        trajd_writer_text(&again, name, sizeof name);
        memcpy(names + (size_t)i * longest, name, strlen(name));
    }
    ok = names && write_names(folder, key, names, count, longest);
    free(names);
    return ok;
}

bool trajd_writer_masks(struct trajd_writer *writer, struct trajd_writer_frame *frame)
{
    char folder[TRAJD_WRITER_PATH_SIZE];
    uint32_t count;
    hid_t group;
    bool ok;

    trajd_writer_text(frame, folder, sizeof folder);
    count = trajd_writer_u32(frame);
    group = frame->failed ? -1 : trajd_writer_make_group(writer->output, folder);
    ok = group >= 0;
    for (uint32_t i = 0; i < count && ok; i++)
        ok = make_mask(frame, group);
    if (group >= 0)
        H5Gclose(group);
    return ok || trajd_writer_fail("masks");
}

/* ---- attributes ---- */

/* Returns the attribute's text, which the caller frees, or NULL. */
static char *get_text(hid_t object, const char *name, bool *variable)
{
    const struct trajd_writer_attribute attribute = trajd_writer_open_attribute(object, name);
    const hid_t type = attribute.type;
    char *copy = NULL;

    *variable = type >= 0 && H5Tis_variable_str(type) > 0;
    if (type >= 0 && H5Tget_class(type) == H5T_STRING &&
        H5Sget_simple_extent_npoints(attribute.space) == 1) {
        if (*variable) {
            copy = trajd_writer_variable_text(&attribute);
        } else {
            copy = calloc(1, H5Tget_size(type) + 1);
            if (copy && H5Aread(attribute.id, type, copy) < 0)
                *copy = '\0';
        }
    }
    trajd_writer_close_attribute(&attribute);
    return copy;
}

/* Sets a number: as a text where the attribute is a text now, else as a number. */
static bool set_number(hid_t object, const char *name, const char *value)
{
    const double number = strtod(value, NULL);
    bool variable, ok;
    char *text = get_text(object, name, &variable);
    hid_t attribute, space;

    if (text) {
        free(text);
        return trajd_writer_set_text(object, name, value, variable);
    }
    space = H5Screate(H5S_SCALAR);
    if (H5Aexists(object, name) > 0)
        H5Adelete(object, name);
    attribute = H5Acreate2(object, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    ok = attribute >= 0 && H5Awrite(attribute, H5T_NATIVE_DOUBLE, &number) >= 0;
    if (attribute >= 0)
        H5Aclose(attribute);
    H5Sclose(space);
    return ok;
}

/* Writes {"a": {"b": VALUE}} for the path a.b. */
static void nest(const char *path, const char *value, char *out, size_t size)
{
    size_t used = 0, depth = 0;

    for (const char *part = path; *part && used < size; depth++) {
        const size_t length = strcspn(part, ".");
        used += (size_t)snprintf(out + used, size - used, "{\"%.*s\": ", (int)length, part);
        part += length + (part[length] == '.');
    }
    used += used < size ? (size_t)snprintf(out + used, size - used, "%s", value) : 0;
    while (depth-- && used < size)
        used += (size_t)snprintf(out + used, size - used, "}");
}

/* Sets a value inside the JSON text of an attribute. */
static bool set_json(struct trajd_writer *writer, hid_t object, const char *name, const char *path,
                     const char *value)
{
    bool variable = true, quoted, ok;
    char *text = get_text(object, name, &variable), *made, small[1024];
    const char *old;
    size_t length, size;

    if (!text) {
        nest(path, value, small, sizeof small);
        return trajd_writer_set_text(object, name, small, true);
    }
    if (!trajd_json_field_find(text, strlen(text), path, &old, &length, &quoted)) {
        trajd_writer_note(writer, "attribute %s has no %s: the new rate %s does not stand there",
                          name, path, value);
        free(text);
        return true;
    }
    size = strlen(text) + strlen(value) + 1;
    made = malloc(size);
    if (made)
        snprintf(made, size, "%.*s%s%s", (int)(old - text), text, value, old + length);
    ok = made && trajd_writer_set_text(object, name, made, variable);
    free(made);
    free(text);
    return ok;
}

/* Objects that the output lacks, because their streams are not taken. */
struct missing {
    char first[TRAJD_WRITER_PATH_SIZE];
    uint32_t count;
};

/* Sets a rate in an attribute. The frame names the object from the root. */
static bool set_rate(struct trajd_writer *writer, struct trajd_writer_frame *frame,
                     struct missing *missing)
{
    char where[TRAJD_WRITER_PATH_SIZE], name[NAME_SIZE], json[NAME_SIZE], value[VALUE_SIZE];
    hid_t object;
    bool ok;

    trajd_writer_text(frame, where, sizeof where);
    trajd_writer_text(frame, name, sizeof name);
    trajd_writer_text(frame, json, sizeof json);
    trajd_writer_text(frame, value, sizeof value);
    if (frame->failed)
        return trajd_writer_fail("a rate of the recipe cannot be read");
    object = H5Oopen(writer->output, *where ? where : "/", H5P_DEFAULT);
    if (object < 0) {
        H5Eclear2(H5E_DEFAULT);
        if (!missing->count++)
            snprintf(missing->first, sizeof missing->first, "%s", where);
        return true;
    }
    ok = *json ? set_json(writer, object, name, json, value) : set_number(object, name, value);
    H5Oclose(object);
    return ok || trajd_writer_fail(where);
}

/* Sets the counts of the group that holds the episodes, and the provenance of the file. */
static bool set_summary(struct trajd_writer *writer, uint64_t steps, uint64_t episodes,
                        const char *provenance)
{
    const char *wild = strpbrk(writer->groups, "*?[");
    char folder[TRAJD_WRITER_PATH_SIZE];
    hid_t group, root = H5Gopen2(writer->output, "/", H5P_DEFAULT);
    size_t length = wild ? (size_t)(wild - writer->groups) : 0;
    bool ok;

    while (length > 0 && writer->groups[length - 1] != '/')
        length--;
    snprintf(folder, sizeof folder, "%.*s", (int)(length > 1 ? length - 1 : 0), writer->groups);
    group = wild ? trajd_writer_make_group(writer->output, folder) : -1;
    if (group >= 0) {
        trajd_writer_set_count(group, "total", steps);
        trajd_writer_set_count(group, "num_demos", episodes);
        trajd_writer_set_count(group, "num_episodes", episodes);
        H5Gclose(group);
    }
    ok = root >= 0 && trajd_writer_set_text(root, "trajd_resample", provenance, true);
    if (root >= 0)
        H5Gclose(root);
    return ok || trajd_writer_fail("attributes");
}

bool trajd_writer_close_output(struct trajd_writer *writer)
{
    if (writer->input >= 0)
        H5Fclose(writer->input);
    writer->input = -1;
    if (H5Fclose(writer->output) < 0)
        return trajd_writer_fail("the output cannot be closed");
    writer->output = -1;
    return trajd_helper_send(TRAJD_WRITER_DONE, NULL, 0);
}

bool trajd_writer_finish(struct trajd_writer *writer, struct trajd_writer_frame *frame)
{
    const uint64_t steps = trajd_writer_u64(frame), episodes = trajd_writer_u64(frame);
    const uint32_t rates = trajd_writer_u32(frame);
    char *provenance = malloc(PROVENANCE_SIZE);
    struct missing missing = {.count = 0};
    bool ok = provenance != NULL;

    for (uint32_t i = 0; i < rates && ok; i++)
        ok = set_rate(writer, frame, &missing);
    if (missing.count)
        trajd_writer_note(writer,
                          "the layout looks for a rate at %.300s, which is not taken (%u such "
                          "places): the new one does not stand there",
                          missing.first, missing.count);
    if (ok) {
        trajd_writer_text(frame, provenance, PROVENANCE_SIZE);
        ok = !frame->failed ? set_summary(writer, steps, episodes, provenance)
                            : trajd_writer_fail("the recipe's end cannot be read");
    }
    free(provenance);
    return ok && trajd_writer_close_output(writer);
}

/* ---- chunks ---- */

static bool write_chunk(struct trajd_writer_frame *frame, int fd, hid_t dataset, uint8_t rank,
                        uint8_t **buffer, size_t *capacity)
{
    hsize_t place[TRAJD_WRITER_RANK_MAX] = {0};
    uint64_t offset;
    uint32_t size, mask;
    size_t have = 0;

    for (uint8_t d = 0; d < rank && rank <= TRAJD_WRITER_RANK_MAX; d++)
        place[d] = trajd_writer_u64(frame);
    offset = trajd_writer_u64(frame);
    size = trajd_writer_u32(frame);
    mask = trajd_writer_u32(frame);
    if (frame->failed || rank > TRAJD_WRITER_RANK_MAX || size > CHUNK_BYTES_MAX)
        return false;
    if (size > *capacity) {
        uint8_t *grown = realloc(*buffer, size);
        if (!grown)
            return false;
        *buffer = grown;
        *capacity = size;
    }
    while (have < size) {
        const ssize_t got = pread(fd, *buffer + have, size - have, (off_t)(offset + have));
        if (got <= 0)
            return false;
        have += (size_t)got;
    }
    return H5Dwrite_chunk(dataset, H5P_DEFAULT, mask, place, size, *buffer) >= 0;
}

bool trajd_writer_chunks(struct trajd_writer *writer, struct trajd_writer_frame *frame, int fd)
{
    const uint32_t count = trajd_writer_u32(frame);
    char path[TRAJD_WRITER_PATH_SIZE] = "chunks";
    uint8_t *buffer = NULL;
    size_t capacity = 0;
    bool ok = !frame->failed;

    for (uint32_t i = 0; i < count && ok; i++) {
        uint64_t chunks;
        uint8_t rank;
        hid_t dataset;
        trajd_writer_text(frame, path, sizeof path);
        rank = trajd_writer_u8(frame);
        chunks = trajd_writer_u64(frame);
        dataset = frame->failed ? -1 : H5Dopen2(writer->output, path, H5P_DEFAULT);
        ok = dataset >= 0;
        for (uint64_t k = 0; k < chunks && ok; k++)
            ok = write_chunk(frame, fd, dataset, rank, &buffer, &capacity);
        if (dataset >= 0)
            H5Dclose(dataset);
    }
    free(buffer);
    return ok ? trajd_writer_close_output(writer) : trajd_writer_fail(path);
}
