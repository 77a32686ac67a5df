/* Writes what the file states about all its episodes: masks, rates, counts and provenance. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/json_read.h"
#include "daemon/hdf5/writer/writer.h"

enum {
    NAME_SIZE = 1025,
    LIST_MAX = 1 << 24,
    VALUE_SIZE = 64,
    PROVENANCE_SIZE = 1 << 20,
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
    trajd_writer_close(made);
    trajd_writer_close(creation);
    trajd_writer_close(space);
    trajd_writer_close(type);
    return ok || trajd_writer_fail("%s", key);
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
    names = trajd_helper_memory(calloc((size_t)count + 1, longest));
    for (uint32_t i = 0; i < count; i++) {
        trajd_writer_text(&again, name, sizeof name);
        memcpy(names + (size_t)i * longest, name, strlen(name));
    }
    ok = write_names(folder, key, names, count, longest);
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
    trajd_writer_close(group);
    return ok || trajd_writer_fail("masks");
}

/* ---- attributes ---- */

/* Returns the attribute's text, which the caller frees, or NULL. */
static char *get_text(hid_t object, const char *name, bool *variable)
{
    struct trajd_scan_value attribute = trajd_scan_value_open(object, ".", name);
    const bool is_text = attribute.type >= 0 && H5Tget_class(attribute.type) == H5T_STRING;
    char *text = is_text ? trajd_scan_value_read_text(&attribute) : NULL;

    *variable = is_text && H5Tis_variable_str(attribute.type) > 0;
    trajd_scan_value_close(&attribute);
    return text;
}

/* Sets a number: as a text where the attribute is a text now, else as a number. */
static bool set_number(hid_t object, const char *name, const char *value)
{
    const double number = strtod(value, NULL);
    bool variable, ok;
    char *text = get_text(object, name, &variable);
    hid_t space;

    if (text) {
        free(text);
        return trajd_writer_set_text(object, name, value, variable);
    }
    space = H5Screate(H5S_SCALAR);
    ok = trajd_writer_set(object, name, H5T_IEEE_F64LE, space, H5T_NATIVE_DOUBLE, &number);
    trajd_writer_close(space);
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
    made = trajd_helper_memory(malloc(size));
    snprintf(made, size, "%.*s%s%s", (int)(old - text), text, value, old + length);
    ok = trajd_writer_set_text(object, name, made, variable);
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
    trajd_writer_close(object);
    return ok || trajd_writer_fail("%s", where);
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
        trajd_writer_close(group);
    }
    ok = root >= 0 && trajd_writer_set_text(root, "trajd_resample", provenance, true);
    trajd_writer_close(root);
    return ok || trajd_writer_fail("attributes");
}

bool trajd_writer_summary(struct trajd_writer *writer, struct trajd_writer_frame *frame)
{
    const uint64_t steps = trajd_writer_u64(frame), episodes = trajd_writer_u64(frame);
    const uint32_t rates = trajd_writer_u32(frame);
    static char provenance[PROVENANCE_SIZE];
    struct missing missing = {.count = 0};

    for (uint32_t i = 0; i < rates; i++)
        if (!set_rate(writer, frame, &missing))
            return false;
    if (missing.count)
        trajd_writer_note(writer,
                          "the layout looks for a rate at %.300s, which is not taken (%u such "
                          "places): the new one does not stand there",
                          missing.first, missing.count);
    trajd_writer_text(frame, provenance, sizeof provenance);
    return frame->failed ? trajd_writer_fail("the recipe's end cannot be read")
                         : set_summary(writer, steps, episodes, provenance);
}
