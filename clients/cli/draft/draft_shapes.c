/* Groups the files of a folder by the arrays of their first episode, and finds a path for each
 * group. */
#include "clients/cli/draft/draft.h"

#include <ctype.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "clients/cli/draft/draft_facts.h"
#include "daemon/base/memory.h"
#include "proto/array_len.h"

/* The files that are looked at, with the kind of each. */
struct folder {
    const char *path;
    struct trajd_file_list files;
    uint32_t count;
    uint64_t signatures[DRAFT_FILES_MAX]; /* 0: the file cannot be read */
};

enum trajd_status draft_list_files(const char *folder, struct trajd_file_list *list,
                                   struct trajd_error *error)
{
    static const char *const patterns[] = {"**/*.hdf5", "**/*.hdf", "**/*.he5"};
    enum trajd_status status = TRAJD_OK;

    *list = (struct trajd_file_list){0};
    for (size_t i = 0; i < ARRAY_LEN(patterns) && !status && !list->count; i++) {
        trajd_file_list_free(list);
        status = trajd_file_list_find_recordings(folder, patterns[i], list, error);
    }
    if (!status && !list->count)
        status = trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                                 "%s: no file ends in .hdf5, .h5, .hdf or .he5", folder);
    return status;
}

static enum trajd_status find_files(struct folder *folder, struct trajd_error *error)
{
    enum trajd_status status = draft_list_files(folder->path, &folder->files, error);

    folder->count = folder->files.count < DRAFT_FILES_MAX ? folder->files.count : DRAFT_FILES_MAX;
    return status;
}

/* Returns a number for the kind of the file: that of its first episode. 0: it cannot be read. */
static uint64_t read_signature(const struct cli_files *files, const char *path)
{
    struct draft_facts *facts = trajd_memory_or_exit(calloc(1, sizeof *facts));
    struct trajd_tree tree;
    struct trajd_error error;
    uint64_t signature = 0;

    facts->tree = &tree;
    if (!trajd_tree_read(files->helper, path, CLI_FILE_TIMEOUT_MS, &tree, &error) && !tree.refusal)
        draft_find_episodes(facts);
    if (facts->episode_count)
        signature = draft_signature(&tree, facts->groups[0]);
    draft_facts_free(facts);
    free(facts);
    trajd_tree_free(&tree);
    return signature;
}

/* Shortens `prefix` to what it has in common with the text. */
static void shorten(char *prefix, const char *text)
{
    size_t length = 0;

    while (prefix[length] && prefix[length] == text[length])
        length++;
    prefix[length] = '\0';
}

/* Returns whether all files below the folder `prefix` begins with are of the kind. */
static bool has_folder(const struct folder *folder, uint64_t signature, const char *prefix)
{
    const char *slash = strrchr(prefix, '/');
    const size_t length = slash ? (size_t)(slash - prefix) + 1 : 0;

    for (uint32_t i = 0; i < folder->count; i++) {
        if (!strncmp(folder->files.relative_paths[i], prefix, length) &&
            folder->signatures[i] != signature)
            return false;
    }
    return length > 0;
}

/* Names the shape after a path: letters, digits and _. */
static void write_name(struct draft_shape *shape, const char *path, size_t length)
{
    snprintf(shape->name, sizeof shape->name, "%.*s", (int)(length < 60 ? length : 60), path);
    for (char *c = shape->name; *c; c++)
        *c = isalnum((unsigned char)*c) ? *c : '_';
    for (length = strlen(shape->name); length && shape->name[length - 1] == '_';)
        shape->name[--length] = '\0';
    if (!length || !isalpha((unsigned char)shape->name[0]))
        snprintf(shape->name, sizeof shape->name, "data_%" PRIx64, shape->signature & 0xffff);
}

/* Finds what the files of a kind have in common: their folder, or the beginning of their names. */
static void write_path(const struct folder *folder, struct draft_shape *shape)
{
    const char *first = NULL, *dot;
    char prefix[CLI_PATH_SIZE] = "";
    size_t length;
    int written;

    for (uint32_t i = 0; i < folder->count; i++) {
        const char *relative = folder->files.relative_paths[i];
        if (folder->signatures[i] != shape->signature)
            continue;
        if (!first)
            snprintf(prefix, sizeof prefix, "%s", relative);
        first = first ? first : relative;
        shorten(prefix, relative);
    }
    dot = strrchr(first, '.');
    length = shape->file_count > 1 ? strlen(prefix) : (size_t)(dot - first);
    while (length && isdigit((unsigned char)prefix[length - 1]) && shape->file_count > 1)
        prefix[--length] = '\0';
    if (has_folder(folder, shape->signature, prefix)) {
        length = (size_t)(strrchr(prefix, '/') - prefix);
        written =
            snprintf(shape->path, sizeof shape->path, "%s/%.*s", folder->path, (int)length, prefix);
    } else if (shape->file_count == 1) {
        written = snprintf(shape->path, sizeof shape->path, "%s/%s", folder->path, first);
    } else {
        written = snprintf(shape->path, sizeof shape->path, "%s/%s*%s%s", folder->path, prefix,
                           strchr(first + length, '/') ? "/**/*" : "", dot);
    }
    if (written >= (int)sizeof shape->path)
        *shape->path = '\0'; /* takes no file */
    write_name(shape, first, length);
}

/* Returns whether the shape's path takes the file. */
static bool takes(const struct draft_shape *shape, const struct folder *folder, uint32_t file)
{
    char path[2 * CLI_PATH_SIZE];
    const size_t length = strlen(shape->path);

    snprintf(path, sizeof path, "%s/%s", folder->path, folder->files.relative_paths[file]);
    return !strcmp(shape->path, path) ||
           (!strncmp(path, shape->path, length) && path[length] == '/') ||
           (trajd_is_glob(shape->path) && !fnmatch(shape->path, path, FNM_PATHNAME));
}

/* Returns whether each file is taken by the path of its own shape and by no other. */
static bool are_separate(const struct draft_shape *shapes, uint32_t count,
                         const struct folder *folder)
{
    for (uint32_t i = 0; i < folder->count; i++) {
        for (uint32_t s = 0; s < count; s++) {
            if (folder->signatures[i] &&
                takes(&shapes[s], folder, i) != (folder->signatures[i] == shapes[s].signature))
                return false;
        }
    }
    return true;
}

static uint32_t group(const struct folder *folder, struct draft_shape shapes[DRAFT_SHAPES_MAX])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < folder->count; i++) {
        uint32_t s = 0;
        while (s < count && shapes[s].signature != folder->signatures[i])
            s++;
        if (s == DRAFT_SHAPES_MAX)
            return DRAFT_SHAPES_MAX + 1;
        if (!folder->signatures[i])
            continue;
        if (s == count)
            shapes[count++] = (struct draft_shape){.signature = folder->signatures[i]};
        shapes[s].file_count++;
    }
    return count;
}

uint32_t draft_find_shapes(const struct cli_files *files, const char *path,
                           struct draft_shape shapes[DRAFT_SHAPES_MAX], bool *are_mixed,
                           struct trajd_error *error)
{
    struct folder folder = {.path = path};
    struct stat about;
    uint32_t count = 1;

    *are_mixed = false;
    shapes[0] = (struct draft_shape){.name = "data"};
    snprintf(shapes[0].path, sizeof shapes[0].path, "%s", path);
    if (stat(path, &about) || !S_ISDIR(about.st_mode))
        return 1;
    if (find_files(&folder, error))
        count = 0;
    for (uint32_t i = 0; count && i < folder.count; i++) {
        char file[CLI_PATH_SIZE];
        snprintf(file, sizeof file, "%s/%s", path, folder.files.relative_paths[i]);
        folder.signatures[i] = read_signature(files, file);
    }
    if (count && folder.count > 1) {
        struct draft_shape found[DRAFT_SHAPES_MAX];
        const uint32_t kinds = group(&folder, found);
        for (uint32_t s = 0; kinds <= DRAFT_SHAPES_MAX && s < kinds; s++)
            write_path(&folder, &found[s]);
        *are_mixed = kinds > DRAFT_SHAPES_MAX || !are_separate(found, kinds, &folder);
        if (kinds > 1 && !*are_mixed) {
            memcpy(shapes, found, kinds * sizeof *found);
            count = kinds;
        }
        *are_mixed = *are_mixed && kinds > 1;
    }
    trajd_file_list_free(&folder.files);
    return count;
}
