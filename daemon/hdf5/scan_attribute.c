/* Reads rates from attributes and datasets, and the lists of episodes that filter keys name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/layout/glob.h"
#include "daemon/base/json_read.h"
#include "daemon/hdf5/helper_socket.h"
#include "daemon/hdf5/scan.h"
#include "daemon/index/writer_protocol.h"

enum { RATE_TEXT_SIZE = 64, KEY_COUNT_MAX = 4096 };
static const uint64_t list_bytes_max = 64u << 20;
static const char unreadable[] = "(unreadable)"; /* no rate: the episode is quarantined */

/* Reads the text of a rate; "" where it is another type. False where the value is damaged. */
static bool read_rate_text(const struct trajd_scan_value *value, const char *json, char *out)
{
    const H5T_class_t class = H5Tget_class(value->type);
    const bool is_one = trajd_scan_value_is_one(value);
    bool is_read = true;
    double number;

    if (class == H5T_STRING) {
        char *text = trajd_scan_value_read_text(value);
        is_read = text || !is_one;
        if (text && json)
            trajd_json_field_read(text, strlen(text), json, out, RATE_TEXT_SIZE);
        else if (text)
            snprintf(out, RATE_TEXT_SIZE, "%s", text);
        free(text);
    } else if (!json && (class == H5T_INTEGER || class == H5T_FLOAT) && is_one) {
        is_read = trajd_scan_value_read(value, H5T_NATIVE_DOUBLE, &number);
        if (is_read) /* fixed point, because 1e3 is not a valid rate */
            snprintf(out, RATE_TEXT_SIZE, "%.9f", number);
    }
    return is_read;
}

/* Copies the text into the scan's arena, without control characters. */
static const char *keep_text(struct trajd_scan *scan, char *text)
{
    const char *copy;

    trajd_helper_make_plain(text, '?');
    copy = trajd_arena_copy(scan->arena, text, strlen(text));
    return copy ? copy : "";
}

/* Reads a rate from an attribute or, where `name` is NULL, from the dataset `object`; or from a
 * field of the JSON in either. Returns whether the value is there. */
static bool read_rate(hid_t group, const char *object, const char *name, const char *json,
                      char text[RATE_TEXT_SIZE])
{
    struct trajd_scan_value value = trajd_scan_value_open(group, object, name);
    const bool is_there =
        value.id >= 0 || (name ? H5Aexists_by_name(group, object, name, H5P_DEFAULT) > 0
                               : H5Oexists_by_name(group, object, H5P_DEFAULT) > 0);

    *text = '\0';
    if (is_there && (value.id < 0 || !read_rate_text(&value, json, text)))
        strcpy(text, unreadable);
    if (is_there && !name && !*text)
        strcpy(text, "(not one number)");
    trajd_scan_value_close(&value);
    return is_there;
}

const char *trajd_scan_resampled_rate(struct trajd_scan *scan)
{
    char text[RATE_TEXT_SIZE];

    if (read_rate(scan->file, "/", "trajd_resample", "rate", text) && !*text)
        strcpy(text, "none");
    return keep_text(scan, text);
}

bool trajd_scan_is_separated(hid_t file)
{
    char text[RATE_TEXT_SIZE];

    read_rate(file, "/", "trajd_resample", "split", text);
    return !strcmp(text, TRAJD_SEPARATED);
}

const char *trajd_scan_rate(struct trajd_scan *scan, hid_t group,
                            const struct trajd_layout_clock *clock)
{
    const char *at = clock->rate_attribute ? strchr(clock->rate_attribute, '@') : NULL;
    char object[2048] = ".", text[RATE_TEXT_SIZE];

    if (clock->rate_path) {
        read_rate(group, clock->rate_path, NULL, clock->rate_json, text);
        return keep_text(scan, text);
    }
    if (!at || (size_t)(at - clock->rate_attribute) >= sizeof object)
        return "";
    if (at != clock->rate_attribute)
        snprintf(object, sizeof object, "%.*s", (int)(at - clock->rate_attribute),
                 clock->rate_attribute);
    read_rate(group, object, at + 1, clock->rate_json, text);
    return keep_text(scan, text);
}

static struct trajd_record_episode *find_episode(struct trajd_record *record, const char *id)
{
    uint32_t low = 0, high = record->episode_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = trajd_natural_compare(record->episodes[middle].id, id);
        if (!order)
            return &record->episodes[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Adds the key to the episode with the name of at most `length` bytes. */
static void mark(struct trajd_scan *scan, const char *key, uint32_t key_count, const char *name,
                 size_t length)
{
    struct trajd_record_episode *episode;
    char id[1024];

    snprintf(id, sizeof id, "%.*s", (int)(length < sizeof id ? length : sizeof id - 1), name);
    episode = find_episode(scan->record, id);
    if (!episode || (episode->key_count && episode->filter_keys[episode->key_count - 1] == key))
        return;
    if (!episode->filter_keys)
        episode->filter_keys =
            trajd_arena_alloc(scan->arena, key_count * sizeof *episode->filter_keys);
    if (episode->filter_keys)
        episode->filter_keys[episode->key_count++] = key;
}

/* Refuses the file: without a filter key, `filter: train` would take other episodes. */
static void refuse_filter(struct trajd_scan *scan, const char *key, const char *rule)
{
    const char *failure = trajd_scan_error(scan);

    scan->record->refusal = trajd_arena_format(scan->arena, "%s: %s %s: %s",
                                               scan->layout->filter_path, key, rule, failure);
}

static void mark_list(struct trajd_scan *scan, const char *key, uint32_t key_count, hid_t dataset,
                      hid_t type, hid_t space)
{
    hssize_t count = H5Sget_simple_extent_npoints(space);
    bool variable = H5Tis_variable_str(type) > 0;
    size_t size = H5Tget_size(type);
    char *data;

    if (count < 1 || !size || (uint64_t)count > list_bytes_max / size)
        return;
    data = trajd_helper_memory(calloc((size_t)count, size));
    if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0) {
        refuse_filter(scan, key, "cannot be read");
    } else {
        for (hssize_t i = 0; i < count; i++) {
            const char *name = variable ? ((char **)data)[i] : data + (size_t)i * size;
            if (name)
                mark(scan, key, key_count, name, variable ? strlen(name) : strnlen(name, size));
        }
        if (variable)
            H5Dvlen_reclaim(type, space, H5P_DEFAULT, data);
    }
    free(data);
}

static void read_key(struct trajd_scan *scan, hid_t group, const char *key, uint32_t key_count)
{
    hid_t dataset = H5Oopen(group, key, H5P_DEFAULT);

    if (dataset >= 0 && H5Iget_type(dataset) == H5I_DATASET) {
        hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
        if (H5Tget_class(type) == H5T_STRING)
            mark_list(scan, key, key_count, dataset, type, space);
        H5Sclose(space);
        H5Tclose(type);
    }
    if (dataset >= 0)
        H5Oclose(dataset);
    else if (!trajd_scan_lost_link(group, key))
        refuse_filter(scan, key, "cannot be opened");
    H5Eclear2(H5E_DEFAULT);
}

void trajd_scan_filters(struct trajd_scan *scan)
{
    const char *path = scan->layout->filter_path;
    struct trajd_scan_names keys = {0};
    char folder[2048];
    hid_t group;

    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    group = H5Gopen2(scan->file, *folder ? folder : "/", H5P_DEFAULT);
    if (group >= 0) {
        const char *problem = trajd_scan_links(scan, group, &keys);
        if (problem)
            scan->record->refusal = trajd_arena_format(scan->arena, "%s: %s", folder, problem);
        for (uint32_t i = 0; i < keys.count && i < KEY_COUNT_MAX; i++)
            read_key(scan, group, keys.names[i], keys.count);
        H5Gclose(group);
    } else if (H5Lexists(scan->file, folder, H5P_DEFAULT) > 0 &&
               !trajd_scan_lost_link(scan->file, folder)) {
        refuse_filter(scan, folder, "cannot be opened");
    }
    H5Eclear2(H5E_DEFAULT);
}
