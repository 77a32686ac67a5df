/* Makes a draft of a layout for a file that no layout reads, and shows it for `trajctl inspect`. */
#include "clients/cli/draft/draft.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "clients/cli/draft/draft_facts.h"
#include "daemon/base/memory.h"
#include "proto/plural.h"

enum { OK = 0, FAILED = 1 };

enum trajd_status draft_open(const struct cli_files *files, const char *layout, const char *path,
                             struct trajd_index **index, struct trajd_error *error)
{
    const struct trajd_index_options options = cli_files_options(files, path);
    struct trajd_layout *parsed;
    enum trajd_status status = trajd_layout_parse("draft", layout, strlen(layout), &parsed, error);

    *index = NULL;
    return status ? status : trajd_index_open_as(&options, parsed, index, error);
}

/* Indexes the file with the probe. groups: the pattern of its episodes, or of some of them. */
static enum trajd_status try_probe(const struct cli_files *files, const char *path,
                                   const struct draft_facts *facts, const char *groups,
                                   struct trajd_index **index, struct trajd_error *error)
{
    char *probe = draft_write_probe(facts, groups);
    const enum trajd_status status = draft_open(files, probe, path, index, error);

    free(probe);
    return status;
}

/* Counts the streams, or those of them that some episodes lack. */
static uint32_t count_usable(const struct draft_facts *facts, bool only_optional)
{
    uint32_t count = 0;

    for (uint32_t s = 0; s < facts->stream_count; s++)
        count += !facts->streams[s].left_out &&
                 (!only_optional || facts->streams[s].episode_count < facts->episode_count);
    return count;
}

/* Tries to cut the arrays at flags and where the recording jumps. False, without an index, where that
 * gives one episode: there is no jump, or the next rows are none. */
static bool try_jumps(const struct cli_files *files, const char *path, struct draft_facts *facts,
                      struct trajd_index **index)
{
    struct trajd_error error;

    if (!facts->split_next)
        return false;
    if (!try_probe(files, path, facts, facts->pattern, index, &error) &&
        (*index)->episode_count > 1) {
        draft_apply_split(facts);
        return true;
    }
    if (*index)
        trajd_index_destroy(index);
    facts->split_rows = facts->split_next = NULL;
    return false;
}

/* Indexes the file with the probe. A few episodes are enough where there are many alike. Cuts the
 * arrays of a file that is one group into episodes where datasets give their lengths, or where flags do
 * and the arrays are not one episode. */
static enum trajd_status open_probe(const struct cli_files *files, const char *path,
                                    struct draft_facts *facts, struct trajd_index **index,
                                    struct trajd_error *error)
{
    enum trajd_status status = TRAJD_ERR_NOT_FOUND;
    char *few = count_usable(facts, true) ? NULL : draft_few_episodes(facts);
    const char *split;
    uint32_t split_count;

    if (few)
        status = try_probe(files, path, facts, few, index, error);
    free(few);
    if (facts->episode_count == 1)
        draft_find_split(facts);
    if (status && try_jumps(files, path, facts, index))
        return TRAJD_OK;
    split = facts->split;
    split_count = facts->split_count;
    facts->split = NULL;
    facts->split_count = 0;
    if (status && (!split || !strcmp(split, "flags")))
        status = try_probe(files, path, facts, facts->pattern, index, error);
    if (status && split) {
        facts->split = split;
        facts->split_count = split_count;
        draft_apply_split(facts);
        status = try_probe(files, path, facts, facts->pattern, index, error);
    }
    return status;
}

/* Looks at the rows, then plans the clocks and writes the draft. */
static enum trajd_status make_layout(const struct cli_files *files, const char *path,
                                     struct draft_facts *facts, struct draft *draft,
                                     struct trajd_error *error)
{
    struct trajd_index *index = NULL;
    enum trajd_status status = open_probe(files, path, facts, &index, error);

    facts->probe = index;
    if (!status)
        status = draft_find_clocks(facts, error);
    if (!status) {
        draft_plan_clocks(facts);
        draft->layout = draft_write_layout(facts);
    }
    trajd_index_destroy(&index);
    return status;
}

/* Says why a file without usable arrays has no draft: its rows may be in tables. */
static void explain_nothing(const struct trajd_tree *tree, char *why, size_t size)
{
    for (uint32_t i = 0; i < tree->object_count; i++) {
        if (!draft_is_table(&tree->objects[i]))
            continue;
        snprintf(why, size,
                 "%s is a table with named columns: %s. trajd does not read such tables, and the "
                 "file has no array of numbers with rows: store each column as an array of its own",
                 tree->objects[i].path, tree->objects[i].type);
        return;
    }
    snprintf(why, size, "the file has no array of numbers with rows");
}

/* Makes the draft of a tree, or says why there is none. */
static void draft_tree(const struct cli_files *files, const char *path, const char *name,
                       struct draft *draft)
{
    struct draft_facts *facts = trajd_memory_or_exit(calloc(1, sizeof *facts));
    const char *dot = strrchr(draft_last_name(path), '.');
    struct trajd_error why;
    uint32_t count;

    explain_nothing(&draft->tree, why.message, sizeof why.message);
    facts->name = name;
    facts->extension = dot && strlen(dot) < 16 ? dot : "";
    facts->tree = &draft->tree;
    draft_find_episodes(facts);
    draft_collect_streams(facts);
    count = count_usable(facts, false);
    if (count > TRAJD_LAYOUT_CLOCKS_MAX)
        snprintf(why.message, sizeof why.message,
                 "the file has %u arrays of numbers with rows, and a draft has at most %d: write a "
                 "layout with those that you need",
                 count, TRAJD_LAYOUT_CLOCKS_MAX);
    else if (count && !make_layout(files, path, facts, draft, &why))
        snprintf(why.message, sizeof why.message, "%s",
                 count_usable(facts, false)
                     ? ""
                     : "all arrays are left out: `trajctl inspect` shows why");
    snprintf(draft->why, sizeof draft->why, "%s", why.message);
    draft_facts_free(facts);
    free(facts);
}

enum trajd_status draft_make(const struct cli_files *files, const char *path, const char *name,
                             struct draft *draft, struct trajd_error *error)
{
    enum trajd_status status;

    *draft = (struct draft){0};
    status = trajd_tree_read(files->helper, path, CLI_FILE_TIMEOUT_MS, &draft->tree, error);
    if (!status && draft->tree.refusal)
        status = trajd_error_set(error, TRAJD_ERR_DATA, 0, "%s: %s", path, draft->tree.refusal);
    if (!status)
        draft_tree(files, path, name, draft);
    else
        draft_free(draft);
    return status;
}

void draft_free(struct draft *draft)
{
    trajd_tree_free(&draft->tree);
    free(draft->layout);
    *draft = (struct draft){0};
}

/* ---- trajctl inspect ---- */

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
        draft_open(files, draft.layout, path, &index, &error);
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
