// libs: trajd_cli_draft
/* Any bytes as the tree of a file: whatever is accepted can be searched and printed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "clients/cli/draft/draft.h"
#include "clients/cli/draft/draft_facts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void search(const struct trajd_tree *tree)
{
    struct draft_facts *facts = calloc(1, sizeof *facts);

    if (!facts)
        abort();
    facts->tree = tree;
    draft_find_episodes(facts);
    draft_collect_streams(facts);
    draft_plan_clocks(facts);
    draft_facts_free(facts);
    free(facts);
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
