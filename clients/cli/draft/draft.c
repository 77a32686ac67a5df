#include "clients/cli/draft/draft.h"

#include <stdlib.h>
#include <string.h>

#include "clients/cli/draft/draft_layout.h"

/* Reads a layout's text and indexes the path with it. */
static enum trajd_status open_text(const struct cli_files *files, const char *text,
                                   const char *path, struct trajd_index **index,
                                   struct trajd_error *error)
{
    const struct trajd_index_options options = cli_files_options(files, path);
    struct trajd_layout *layout;
    enum trajd_status status = trajd_layout_parse("draft", text, strlen(text), &layout, error);

    *index = NULL;
    return status ? status : trajd_index_open_as(&options, layout, index, error);
}

/* Returns what a function writes, which the caller frees; NULL where memory ran out. */
static char *write_text(void (*write)(FILE *, const struct draft_facts *),
                        const struct draft_facts *facts)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    write(out, facts);
    if (fclose(out)) {
        free(text);
        return NULL;
    }
    return text;
}

static enum trajd_status try_probe(const struct cli_files *files, const char *path,
                                   const struct draft_facts *facts, struct trajd_index **index,
                                   struct trajd_error *error)
{
    char *probe = write_text(draft_write_probe, facts);
    enum trajd_status status = probe ? open_text(files, probe, path, index, error)
                                     : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory");

    free(probe);
    return status;
}

/* Returns whether some episodes lack a stream that others have. */
static bool has_optional(const struct draft_facts *facts)
{
    for (uint32_t s = 0; s < facts->streams->count; s++) {
        if (!facts->streams->list[s].left_out &&
            facts->streams->list[s].episode_count < facts->episodes->count)
            return true;
    }
    return false;
}

/* Indexes the file with the probe. A few episodes are enough where there are many alike. Cuts the arrays of a file that is one group into episodes where
 * datasets give their lengths, or where flags do and the arrays are not one episode. */
static enum trajd_status open_probe(const struct cli_files *files, const char *path,
                                    struct draft_facts *facts, struct draft_streams *streams,
                                    struct trajd_index **index, struct trajd_error *error)
{
    const struct draft_split split =
        facts->episodes->count == 1 ? draft_find_split(streams) : (struct draft_split){0};
    const bool are_flags = split.kind && !strcmp(split.kind, "flags");
    enum trajd_status status = TRAJD_ERR_NOT_FOUND;

    char few[DRAFT_PATTERN_SIZE];

    if (!has_optional(facts) && draft_few_episodes(facts->tree, facts->episodes, few)) {
        facts->few = few;
        status = try_probe(files, path, facts, index, error);
        facts->few = NULL;
    }
    if (status && (!split.kind || are_flags))
        status = try_probe(files, path, facts, index, error);
    if (split.kind && status) {
        draft_apply_split(&split, streams);
        facts->split = split;
        status = try_probe(files, path, facts, index, error);
    }
    return status;
}

/* Looks at the rows, then plans the clocks and writes the draft. */
static enum trajd_status make_layout(const struct cli_files *files, const char *path,
                                     struct draft_facts *facts, struct draft_streams *streams,
                                     struct draft *draft, struct trajd_error *error)
{
    struct trajd_index *index = NULL;
    struct draft_clocks clocks;
    struct draft_plan *plan = malloc(sizeof *plan);
    enum trajd_status status = TRAJD_OK;

    if (!plan)
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory");
    if (!status)
        status = open_probe(files, path, facts, streams, &index, error);
    if (!status)
        status = draft_find_clocks(index, streams, &clocks, error);
    if (!status) {
        draft_plan_clocks(facts->episodes, streams, &clocks, plan);
        facts->plan = plan;
        facts->probe = index;
        draft->layout = write_text(draft_write_layout, facts);
    }
    trajd_index_destroy(&index);
    free(plan);
    return status;
}

static uint32_t count_usable(const struct draft_streams *streams)
{
    uint32_t count = 0;

    for (uint32_t s = 0; s < streams->count; s++)
        count += !streams->list[s].left_out;
    return count;
}

static const char *extension_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');

    return dot && strlen(dot) < 16 ? dot : "";
}

enum trajd_status draft_make(const struct cli_files *files, const char *path, const char *name,
                             struct draft *draft, struct trajd_error *error)
{
    struct draft_streams *streams = calloc(1, sizeof *streams);
    struct draft_episodes episodes = {0};
    struct draft_facts facts = {.name = name,
                                .extension = extension_of(path),
                                .tree = &draft->tree,
                                .episodes = &episodes,
                                .streams = streams};
    enum trajd_status status;
    struct trajd_error why;

    *draft = (struct draft){0};
    status = trajd_tree_read(files->helper, path, CLI_FILE_TIMEOUT_MS, &draft->tree, error);
    if (!status && draft->tree.refusal)
        status = trajd_error_set(error, TRAJD_ERR_DATA, 0, "%s: %s", path, draft->tree.refusal);
    if (!status && streams)
        streams->arena.limit_bytes = SIZE_MAX;
    if (!status && (!streams || !draft_find_episodes(&draft->tree, &episodes) ||
                    !draft_collect_streams(&draft->tree, &episodes, streams)))
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory");
    if (!status && !count_usable(streams))
        snprintf(draft->why, sizeof draft->why, "the file has no array of numbers with rows");
    else if (!status && count_usable(streams) > TRAJD_LAYOUT_CLOCKS_MAX)
        snprintf(draft->why, sizeof draft->why,
                 "the file has %u arrays of numbers with rows, and a draft has at most %d: write a "
                 "layout with those that you need",
                 count_usable(streams), TRAJD_LAYOUT_CLOCKS_MAX);
    else if (!status && make_layout(files, path, &facts, streams, draft, &why))
        snprintf(draft->why, sizeof draft->why, "%s", why.message);
    else if (!status && !count_usable(streams))
        snprintf(draft->why, sizeof draft->why,
                 "all arrays are left out: `trajctl inspect` shows why");
    free(episodes.groups);
    if (streams)
        trajd_arena_free(&streams->arena);
    free(streams);
    if (status)
        draft_free(draft);
    return status;
}

void draft_free(struct draft *draft)
{
    trajd_tree_free(&draft->tree);
    free(draft->layout);
    *draft = (struct draft){0};
}

enum trajd_status draft_open(const struct cli_files *files, const struct draft *draft,
                             const char *path, struct trajd_index **index,
                             struct trajd_error *error)
{
    return open_text(files, draft->layout, path, index, error);
}
