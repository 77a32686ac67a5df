/* Compares names in natural order, and lists the files that match a glob. */
#include "daemon/layout/glob.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/base/heartbeat.h"

enum { DEPTH_MAX = 32, PATH_SIZE = 4096 };
static const uint32_t file_count_max = 1u << 22;

struct walk {
    const char *folder;
    struct trajd_file_list *list;
    struct trajd_error *error;
    bool lists_links; /* "**" adds linked folders to the list */
};

/* Compares the runs of digits at the front of both, without leading zeros, and steps over them. */
static int compare_digits(const char **a, const char **b)
{
    size_t length_a, length_b;
    int order;

    for (; **a == '0'; (*a)++)
        ;
    for (; **b == '0'; (*b)++)
        ;
    length_a = strspn(*a, "0123456789");
    length_b = strspn(*b, "0123456789");
    if (length_a != length_b)
        return length_a < length_b ? -1 : 1;
    order = strncmp(*a, *b, length_a);
    *a += length_a;
    *b += length_b;
    return order;
}

int trajd_natural_compare(const char *a, const char *b)
{
    const char *first_a = a, *first_b = b;

    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            int order = compare_digits(&a, &b);
            if (order)
                return order;
        } else if (*a != *b) {
            if (*a == '/' || *b == '/')
                return *a == '/' ? -1 : 1;
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    if (*a || *b)
        return *a ? 1 : -1;
    return strcmp(first_a, first_b); /* 01 and 1 are equal as numbers, but are two names */
}

bool trajd_is_glob(const char *text)
{
    return text[strcspn(text, "*?[")] != '\0';
}

static enum trajd_status add_file(struct walk *walk, const char *relative)
{
    struct trajd_file_list *list = walk->list;

    if (list->count == file_count_max)
        return trajd_error_set(walk->error, TRAJD_ERR_MEMORY, 0, "%s: more than %u files match",
                               walk->folder, file_count_max);
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? list->capacity * 2 : 64;
        char **paths = realloc(list->relative_paths, capacity * sizeof *paths);
        if (!paths)
            return trajd_error_set(walk->error, TRAJD_ERR_MEMORY, 0,
                                   "no memory for the list of files");
        list->relative_paths = paths;
        list->capacity = capacity;
    }
    list->relative_paths[list->count] = strdup(relative);
    if (!list->relative_paths[list->count])
        return trajd_error_set(walk->error, TRAJD_ERR_MEMORY, 0, "no memory for the list of files");
    list->count++;
    return TRAJD_OK;
}

static enum trajd_status visit(struct walk *walk, const char *relative, const char *pattern,
                               int depth);

/* Returns whether the path is a folder. `follow`: symbolic links count as what they lead to. */
static bool is_folder(const char *path, bool follow)
{
    struct stat status;

    return (follow ? stat(path, &status) : lstat(path, &status)) == 0 && S_ISDIR(status.st_mode);
}

/* Matches one entry of a folder against the pattern's first component. */
static enum trajd_status visit_entry(struct walk *walk, const char *relative, const char *name,
                                     bool may_be_folder, const char *pattern, int depth)
{
    char below[PATH_SIZE], full[PATH_SIZE], component[256];
    const char *slash = strchr(pattern, '/');
    size_t length = slash ? (size_t)(slash - pattern) : strlen(pattern);
    bool any = length == 2 && !strncmp(pattern, "**", 2);

    if (length >= sizeof component ||
        (size_t)snprintf(below, sizeof below, "%s%s%s", relative, *relative ? "/" : "", name) >=
            sizeof below ||
        (size_t)snprintf(full, sizeof full, "%s/%s", walk->folder, below) >= sizeof full)
        return TRAJD_OK;
    if (any && (name[0] == '.' || !may_be_folder || !is_folder(full, walk->lists_links)))
        return TRAJD_OK;
    if (any && walk->lists_links && !is_folder(full, false))
        return add_file(walk, below);
    if (any)
        return visit(walk, below, pattern, depth + 1);
    memcpy(component, pattern, length);
    component[length] = '\0';
    if (fnmatch(component, name, FNM_PERIOD))
        return TRAJD_OK;
    if (slash)
        return is_folder(full, true) ? visit(walk, below, slash + 1, depth + 1) : TRAJD_OK;
    return may_be_folder && is_folder(full, true) ? TRAJD_OK : add_file(walk, below);
}

static enum trajd_status visit(struct walk *walk, const char *relative, const char *pattern,
                               int depth)
{
    char full[PATH_SIZE];
    enum trajd_status status = TRAJD_OK;
    struct dirent *entry;
    DIR *folder;

    if (depth > DEPTH_MAX || (size_t)snprintf(full, sizeof full, "%s%s%s", walk->folder,
                                              *relative ? "/" : "", relative) >= sizeof full)
        return TRAJD_OK;
    folder = opendir(full);
    if (!folder)
        return trajd_error_set(walk->error, TRAJD_ERR_IO, errno, "%s: cannot be read: %s", full,
                               strerror(errno));
    while (!status && (errno = 0, entry = readdir(folder))) {
        trajd_heartbeat_turn(); /* a large folder on slow storage */
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        /* "**" may stand for no folder: then what follows it matches the entry, too */
        for (const char *rest = pattern; rest && !status;
             rest = strncmp(rest, "**/", 3) ? NULL : rest + 3)
            status =
                visit_entry(walk, relative, entry->d_name, entry->d_type != DT_REG, rest, depth);
    }
    if (!status && errno)
        status = trajd_error_set(walk->error, TRAJD_ERR_IO, errno, "%s: cannot be read: %s", full,
                                 strerror(errno));
    closedir(folder);
    return status;
}

static int compare_paths(const void *a, const void *b)
{
    return trajd_natural_compare(*(char *const *)a, *(char *const *)b);
}

/* Sorts the list and removes names that are in it twice, or that are in `found`, which may be
 * NULL. */
static void tidy(struct trajd_file_list *list, const struct trajd_file_list *found)
{
    uint32_t kept = 0;

    if (list->count)
        qsort(list->relative_paths, list->count, sizeof *list->relative_paths, compare_paths);
    for (uint32_t i = 0; i < list->count; i++) {
        char **path = &list->relative_paths[i];
        if ((kept && !strcmp(list->relative_paths[kept - 1], *path)) ||
            (found && found->count &&
             bsearch(path, found->relative_paths, found->count, sizeof *path, compare_paths)))
            free(*path);
        else
            list->relative_paths[kept++] = *path;
    }
    list->count = kept;
}

enum trajd_status trajd_file_list_find(const char *folder, const char *pattern,
                                       struct trajd_file_list *list, struct trajd_error *error)
{
    struct walk walk = {.folder = folder, .list = list, .error = error};
    enum trajd_status status;

    *list = (struct trajd_file_list){0};
    status = visit(&walk, "", pattern, 0);
    if (status)
        trajd_file_list_free(list);
    else
        tidy(list, NULL); /* a pattern with several "**" can find a file twice */
    return status;
}

enum trajd_status trajd_file_list_find_recordings(const char *folder, const char *pattern,
                                                  struct trajd_file_list *list,
                                                  struct trajd_error *error)
{
    struct walk walk = {.folder = folder, .list = list, .error = error};
    const char *dot = strrchr(pattern, '.');
    const bool is_short = dot && !strcmp(dot, ".h5");
    char other[PATH_SIZE];
    enum trajd_status status = trajd_file_list_find(folder, pattern, list, error);

    if (status || !dot || (!is_short && strcmp(dot, ".hdf5") != 0) ||
        (size_t)snprintf(other, sizeof other, "%.*s%s", (int)(dot - pattern), pattern,
                         is_short ? ".hdf5" : ".h5") >= sizeof other)
        return status;
    status = visit(&walk, "", other, 0);
    if (status)
        trajd_file_list_free(list);
    else
        tidy(list, NULL);
    return status;
}

enum trajd_status trajd_file_list_find_missed(const char *folder,
                                              const struct trajd_file_list *found,
                                              struct trajd_file_list *missed,
                                              struct trajd_error *error)
{
    struct walk walk = {.folder = folder, .list = missed, .error = error, .lists_links = true};
    enum trajd_status status;

    *missed = (struct trajd_file_list){0};
    status = visit(&walk, "", "**/*.hdf5", 0);
    if (!status)
        status = visit(&walk, "", "**/*.h5", 0);
    if (status)
        trajd_file_list_free(missed);
    else
        tidy(missed, found);
    return status;
}

void trajd_file_list_free(struct trajd_file_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        free(list->relative_paths[i]);
    free(list->relative_paths);
    *list = (struct trajd_file_list){0};
}
