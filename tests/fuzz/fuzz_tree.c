// libs: trajd_cli_draft
/* Any bytes as the tree of a file: whatever is accepted can be searched and printed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "clients/cli/draft/draft.h"
#include "clients/cli/draft/draft_plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void search(const struct trajd_tree *tree)
{
    struct draft_episodes episodes;
    struct draft_streams *streams = calloc(1, sizeof *streams);
    struct draft_plan *plan = calloc(1, sizeof *plan);

    if (!streams || !plan || !draft_find_episodes(tree, &episodes))
        abort();
    streams->arena.limit_bytes = 64 << 20;
    if (draft_collect_streams(tree, &episodes, streams))
        draft_plan_clocks(&episodes, streams, &(struct draft_clocks){0}, plan);
    trajd_arena_free(&streams->arena);
    free(episodes.groups);
    free(streams);
    free(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *nowhere;
    struct trajd_error error = {0};
    struct trajd_tree tree;

    if (!nowhere)
        nowhere = fopen("/dev/null", "w");
    if (trajd_tree_decode(data, size, &tree, &error)) {
        if (!error.status)
            abort();
        return 0;
    }
    search(&tree);
    draft_print_tree(nowhere, &tree);
    trajd_tree_free(&tree);
    return 0;
}
