/* Reads the texts of an episode that the layout names: attributes, datasets of one text, fields of
 * JSON in either. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/json_read.h"
#include "daemon/hdf5/helper_socket.h"
#include "daemon/hdf5/scan.h"

enum { PLACE_SIZE = 8192 };

/* Resolves the layout's path, of `length` bytes, against the group of the episode. *place is ""
 * where it is too long. */
static void resolve(const char *episode, const char *text, size_t length, char *place)
{
    size_t base = strcmp(episode, "/") ? strlen(episode) : 0;

    if (length && *text == '/') {
        base = 0;
        text++;
        length--;
    }
    while (length >= 2 && !strncmp(text, "..", 2) && (length == 2 || text[2] == '/')) {
        while (base && episode[base - 1] != '/')
            base--;
        base -= base > 0;
        text += length == 2 ? 2 : 3;
        length -= length == 2 ? 2 : 3;
    }
    if ((size_t)snprintf(place, PLACE_SIZE, "%.*s%s%.*s", (int)base, episode,
                         length || !base ? "/" : "", (int)length, text) >= PLACE_SIZE)
        *place = '\0';
}

static struct trajd_scan_value open_source(const struct trajd_scan *scan, const char *episode,
                                           const struct trajd_layout_meta *meta)
{
    const char *at = meta->attribute ? strchr(meta->attribute, '@') : NULL;
    char place[PLACE_SIZE];

    if (at)
        resolve(episode, meta->attribute, (size_t)(at - meta->attribute), place);
    else
        resolve(episode, meta->path, strlen(meta->path), place);
    if (!*place)
        return (struct trajd_scan_value){-1, -1, -1, false};
    return trajd_scan_value_open(scan->file, place, at ? at + 1 : NULL);
}

/* Prints a number with as few digits as give it back exactly. The caller frees. */
static char *print_number(const struct trajd_scan_value *source, bool integer)
{
    char *text = trajd_helper_memory(calloc(1, TRAJD_JSON_NUMBER_SIZE));
    long long integer_value;
    double number;

    if (integer && trajd_scan_value_read(source, H5T_NATIVE_LLONG, &integer_value)) {
        snprintf(text, 32, "%lld", integer_value);
        return text;
    }
    if (!integer && trajd_scan_value_read(source, H5T_NATIVE_DOUBLE, &number)) {
        snprintf(text, 32, "%g", number); /* nan, inf */
        if (isfinite(number))
            trajd_json_shortest(number, false, text);
        return text;
    }
    free(text);
    return NULL;
}

/* Returns the source's text, which the caller frees; or NULL with the reason in *why. */
static char *read_source(const struct trajd_scan_value *source, const char **why)
{
    const H5T_class_t class = H5Tget_class(source->type);
    char *text = NULL;

    if (!trajd_scan_value_is_one(source))
        *why = "it is not one value";
    else if (class != H5T_STRING && class != H5T_ENUM && class != H5T_INTEGER && class != H5T_FLOAT)
        *why = "it is neither a text nor a number";
    else if (!(text = class == H5T_STRING ? trajd_scan_value_read_text(source)
                      : class == H5T_ENUM ? trajd_scan_value_read_enum(source)
                                          : print_number(source, class == H5T_INTEGER)))
        *why = "it cannot be read";
    return text;
}

/* Replaces the JSON text by the value at `path`, in place. False where there is none or where it is
 * null. */
static bool pick_json(char *text, const char *path)
{
    const char *value;
    size_t length;
    bool quoted;

    if (!trajd_json_field_find(text, strlen(text), path, &value, &length, &quoted) ||
        (!quoted && length == 4 && !memcmp(value, "null", 4)))
        return false;
    memmove(text, value, length);
    text[length] = '\0';
    if (quoted)
        trajd_json_unescape(text, length, text, &length);
    return true;
}

const char *trajd_scan_text(struct trajd_scan *scan, const char *episode_path,
                            const char *episode_id, const struct trajd_layout_meta *meta)
{
    struct trajd_scan_value source = open_source(scan, episode_path, meta);
    const char *why = NULL, *copy = NULL;
    char *text;

    if (source.id < 0)
        return NULL;
    text = read_source(&source, &why);
    if (!text && why)
        trajd_scan_error(scan); /* the storage may have failed, which it records */
    if (text && (!meta->json || meta->file || pick_json(text, meta->json))) {
        for (unsigned char *c = (unsigned char *)text; *c; c++)
            if ((*c < 0x20 && *c != '\n' && *c != '\t') || *c == 0x7f)
                *c = ' ';
        if (strlen(text) > TRAJD_RECORD_META_MAX)
            why = "it is longer than 4096 bytes";
        else
            copy = trajd_arena_copy(scan->arena, text, strlen(text));
    }
    if (why)
        trajd_scan_note(scan, episode_id, meta->name, why);
    free(text);
    trajd_scan_value_close(&source);
    return copy;
}
