/* Lists the names of links in a group. */
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/scan.h"

enum { NAME_LENGTH_MAX = 1024, LINK_COUNT_MAX = 1 << 20 };

bool trajd_scan_name_ok(const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return false;
    }
    return length > 0 && length <= NAME_LENGTH_MAX;
}

bool trajd_scan_names_add(struct trajd_scan *scan, struct trajd_scan_names *names, const char *name,
                          size_t length)
{
    if (names->count == names->capacity) {
        uint32_t capacity = names->capacity ? names->capacity * 2 : 32;
        const char **grown = capacity > 2 * LINK_COUNT_MAX
                                 ? NULL
                                 : trajd_arena_alloc(scan->arena, capacity * sizeof *grown);
        if (!grown)
            return false;
        if (names->count)
            memcpy(grown, names->names, names->count * sizeof *grown);
        names->names = grown;
        names->capacity = capacity;
    }
    names->names[names->count] = trajd_arena_copy(scan->arena, name, length);
    return names->names[names->count] && ++names->count;
}

struct link_visit {
    struct trajd_scan *scan;
    struct trajd_scan_names *names;
};

static herr_t visit_link(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    struct link_visit *visit = context;

    (void)group;
    (void)info;
    if (!trajd_scan_name_ok(name))
        return 0;
    return trajd_scan_names_add(visit->scan, visit->names, name, strlen(name)) ? 0 : 1;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void trajd_scan_links(struct trajd_scan *scan, hid_t group, struct trajd_scan_names *names)
{
    struct link_visit visit = {scan, names};
    hsize_t position = 0;

    if (H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, &position, visit_link, &visit) < 0)
        trajd_scan_error(scan);
    if (names->count)
        qsort(names->names, names->count, sizeof *names->names, compare_text);
}
