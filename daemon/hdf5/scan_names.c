/* Lists the names of links in a group. */
#include <string.h>

#include "daemon/hdf5/group_links.h"
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

bool trajd_scan_names_have(const struct trajd_scan_names *names, const char *name)
{
    for (uint32_t i = 0; i < names->count; i++) {
        if (!strcmp(names->names[i], name))
            return true;
    }
    return false;
}

const char *trajd_scan_lost_link(hid_t group, const char *path)
{
    H5L_info_t info;
    const bool is_known = H5Lget_info(group, path, &info, H5P_DEFAULT) >= 0;

    H5Eclear2(H5E_DEFAULT);
    if (!is_known || info.type == H5L_TYPE_HARD)
        return NULL;
    return info.type == H5L_TYPE_SOFT ? "a link that leads nowhere"
                                      : "an external link is refused (it names another file)";
}

struct link_visit {
    struct trajd_scan *scan;
    struct trajd_scan_names *names;
    const char *problem;
};

static herr_t visit_link(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    struct link_visit *visit = context;

    (void)group;
    (void)info;
    if (!trajd_scan_name_ok(name))
        visit->problem = "it has a link whose name is too long or has control characters";
    else if (!trajd_scan_names_add(visit->scan, visit->names, name, strlen(name)))
        visit->problem = "it has too many links";
    return visit->problem ? 1 : 0;
}

const char *trajd_scan_links(struct trajd_scan *scan, hid_t group, struct trajd_scan_names *names)
{
    struct link_visit visit = {scan, names, NULL};
    char damage[TRAJD_LINKS_PROBLEM_SIZE];

    if (trajd_links_visit(group, visit_link, &visit, damage))
        return visit.problem;
    trajd_scan_error(scan); /* finds out whether the storage failed */
    visit.problem = trajd_arena_format(scan->arena, "the group is damaged: %s", damage);
    return visit.problem ? visit.problem : "the group is damaged";
}
