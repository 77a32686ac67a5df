/* Shows a stranger's file: what trajctl inspect prints where no layout fits. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "clients/cli/draft/draft.h"
#include "clients/cli/draft/draft_shapes.h"
#include "daemon/layout/glob.h"
#include "proto/plural.h"

enum { OK = 0, FAILED = 1 };

enum trajd_status draft_find_file(const char *path, char file[CLI_PATH_SIZE],
                                  struct trajd_error *error)
{
    char folder[CLI_PATH_SIZE];
    struct trajd_file_list list = {0};
    enum trajd_status status;
    struct stat about;
    size_t plain;

    if (!stat(path, &about) && S_ISREG(about.st_mode)) {
        snprintf(file, CLI_PATH_SIZE, "%s", path);
        return TRAJD_OK;
    }
    plain = strcspn(path, "*?[");
    while (path[plain] && plain && path[plain - 1] != '/')
        plain--;
    snprintf(folder, sizeof folder, "%.*s", (int)plain, path);
    if (path[plain])
        status = trajd_file_list_find(*folder ? folder : ".", path + plain, &list, error);
    else
        status = draft_list_files(path, &list, error);
    if (status)
        return status;
    if (!list.count || snprintf(file, CLI_PATH_SIZE, "%s/%s", *folder ? folder : ".",
                                list.relative_paths[0]) >= CLI_PATH_SIZE)
        status = trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "%s: no file matches", path);
    trajd_file_list_free(&list);
    return status;
}

/* Writes a result as one line: how many episodes the draft keeps, or why it reads none. */
static void describe_result(const struct trajd_index *index, const struct trajd_error *error,
                            char *text, size_t size)
{
    if (index)
        snprintf(text, size, "%u of %u episode%s kept", index->kept_count,
                 index->episode_count + index->refused_file_count,
                 trajd_plural(index->episode_count + index->refused_file_count));
    else
        snprintf(text, size, "%s", error->message);
}

/* Prints why the layouts do not fit, a reason a line. */
static void print_tried(const char *tried)
{
    static const char begin[] = "no layout fits: ";

    printf("  no layout of trajd reads it\n");
    if (!strncmp(tried, begin, strlen(begin)))
        tried += strlen(begin);
    while (*tried) {
        const char *end = strstr(tried, "; ");
        const size_t length = end ? (size_t)(end - tried) : strlen(tried);
        printf("    %.*s\n", (int)length, tried);
        tried += length + (end ? 2 : 0);
    }
}

static void print_draft(const char *path, const struct draft *draft, const char *file,
                        const char *tried, const char *result)
{
    printf("%s\n", path);
    print_tried(tried);
    printf(" tree%s%s\n", strcmp(path, file) ? " of " : "", strcmp(path, file) ? file : "");
    draft_print_tree(stdout, &draft->tree);
    if (!draft->layout) {
        printf(" no draft of a layout: %s\n", draft->why);
        return;
    }
    printf(" draft of a layout (%s); `trajctl init %s -o FILE.yaml` writes it into a file\n",
           result, path);
    for (const char *line = draft->layout; *line;) {
        const size_t length = strcspn(line, "\n");
        printf("  | %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

static void json_draft(struct trajd_json *json, const char *path, const struct draft *draft,
                       const char *tried, const char *result)
{
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "path", path);
    trajd_json_string(json, "layout", NULL);
    trajd_json_string(json, "error", tried);
    draft_json_tree(json, "tree", &draft->tree);
    trajd_json_string(json, "draft", draft->layout);
    trajd_json_string(json, "draft_result", draft->layout ? result : draft->why);
    trajd_json_close_object(json);
}

/* Shows that the path cannot be explained. */
static int fail(const char *path, const struct trajd_error *error, struct trajd_json *json)
{
    if (json) {
        trajd_json_open_object(json, NULL);
        trajd_json_string(json, "path", path);
        trajd_json_string(json, "error", error->message);
        trajd_json_close_object(json);
    }
    fprintf(stderr, "trajctl: %s%s%s\n", strstr(error->message, path) ? "" : path,
            strstr(error->message, path) ? "" : ": ", error->message);
    return FAILED;
}

int draft_explain(const struct cli_files *files, const char *path, const char *tried,
                  struct trajd_json *json)
{
    char file[CLI_PATH_SIZE], result[TRAJD_ERROR_MESSAGE_SIZE] = "";
    struct trajd_index *index = NULL;
    struct trajd_error error;
    struct draft draft;
    int status;

    if (draft_find_file(path, file, &error) || draft_make(files, file, "draft", &draft, &error))
        return fail(path, &error, json);
    if (draft.layout) {
        draft_open(files, &draft, path, &index, &error);
        describe_result(index, &error, result, sizeof result);
    }
    if (json)
        json_draft(json, path, &draft, tried, result);
    else
        print_draft(path, &draft, file, tried, result);
    status = index ? OK : FAILED;
    draft_free(&draft);
    trajd_index_destroy(&index);
    return status;
}
