/* Loads a layout by its name or path. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/files.h"
#include "daemon/layout/glob.h"
#include "daemon/layout/layout.h"

enum { TEXT_SIZE_MAX = 1 << 20 };

/* Writes the names of the layouts in the folder to `list`, as many as fit, or "none". */
static void list_names(const char *directory, char *list, size_t size)
{
    struct trajd_file_list files;
    size_t used = 0;

    snprintf(list, size, "none");
    if (trajd_file_list_find(directory, "*.yaml", &files, NULL))
        return;
    for (uint32_t i = 0; i < files.count; i++) {
        const char *name = files.relative_paths[i];
        int length = (int)(strlen(name) - strlen(".yaml"));
        if (used + (size_t)length + 3 > size)
            break;
        used +=
            (size_t)snprintf(list + used, size - used, "%s%.*s", used ? ", " : "", length, name);
    }
    trajd_file_list_free(&files);
}

enum trajd_status trajd_layout_load(const char *name, const char *directory,
                                    struct trajd_layout **layout, struct trajd_error *error)
{
    size_t name_length = strlen(name), length = 0;
    bool is_path =
        strchr(name, '/') || (name_length > 5 && !strcmp(name + name_length - 5, ".yaml"));
    char path[4096], names[300];
    char *text = NULL;
    enum trajd_status status;

    *layout = NULL;
    if (!is_path && !directory)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "layout %s: no folder of layouts is known", name);
    if ((size_t)(is_path
                     ? snprintf(path, sizeof path, "%s", name)
                     : snprintf(path, sizeof path, "%s/%s.yaml", directory, name)) >= sizeof path)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "layout %.64s...: the name is too long", name);
    if (!is_path && access(path, F_OK)) {
        list_names(directory, names, sizeof names);
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "layout %s: not in %s (there are: %s)", name, directory, names);
    }
    status = trajd_file_read(path, TEXT_SIZE_MAX, &text, &length, error);
    if (!status)
        status = trajd_layout_parse(path, text, length, layout, error);
    free(text);
    return status;
}
