/* trajctl explain: shows where the steps of a window come from, and why a step is masked. Prints
 * the daemon's documents, one a line (--json), or a table; or the plan of the feed (--plan). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli_feed.h"
#include "daemon/base/json_read.h"
#include "proto/plural.h"

#define NOT_GIVEN UINT64_MAX

struct explaining {
    struct cli_connection connection;
    const char *output;
    uint64_t window, position, epoch, first, count;
    bool json, plan;
};

/* Finds the window at --position of --epoch, and returns the pass that it belongs to. */
static uint64_t find_window(struct trajd_client *client, uint32_t feed_id,
                            struct explaining *explaining)
{
    const struct trajd_question question = {.what = "position",
                                            .feed_id = feed_id,
                                            .window = explaining->epoch,
                                            .first = explaining->position,
                                            .count = 1};
    struct trajd_yaml *yaml = cli_query(client, &question, NULL);
    const struct trajd_yaml_node *item = cli_first(trajd_yaml_root(yaml), "items");
    uint64_t pass;

    if (!item)
        cli_die("the daemon has no window at that position");
    explaining->window = strtoull(cli_text(item, "window_id"), NULL, 10);
    pass = strtoull(cli_text(item, "pass"), NULL, 10);
    trajd_yaml_destroy(&yaml);
    return pass;
}

/* ---- the table ---- */

/* Describes rows and their weights: "41", "41 (66.7%), 42 (33.3%)", "30..41 (mean of 12)". */
static void describe_rows(const struct trajd_yaml_node *source, char *text, size_t size)
{
    const struct trajd_yaml_node *row = cli_first(source, "rows");
    const struct trajd_yaml_node *next_row = row ? row->next : NULL;

    if (!row || !row->children)
        snprintf(text, size, trajd_yaml_get(source, "added") ? "- (sum of 0)" : "-");
    else if (next_row && next_row->children && trajd_yaml_get(source, "averaged"))
        snprintf(text, size, "%s..%s (mean of %s)", row->children->value, next_row->children->value,
                 cli_text(source, "averaged"));
    else if (next_row && next_row->children && trajd_yaml_get(source, "added"))
        snprintf(text, size, "%s..%s (sum of %s)", row->children->value, next_row->children->value,
                 cli_text(source, "added"));
    else if (next_row && next_row->children && next_row->children->next &&
             next_row->children->next->next) {
        const double share = strtod(next_row->children->next->next->value, NULL);
        snprintf(text, size, "%s (%.1f%%), %s (%.1f%%)", row->children->value, 100 * (1 - share),
                 next_row->children->value, 100 * share);
    } else
        snprintf(text, size, "%s", row->children->value);
}

/* ---- images ---- */

/* Prints one step of an augmentation with what was drawn: "crop row 3 column 5", "hue 0.02". */
static void print_draw(const struct trajd_yaml_node *draw)
{
    static const struct {
        const char *kind, *names[4];
    } kinds[] = {
        {"crop", {" row", " column"}},
        {"affine", {" degrees", " down", " right", " scale"}},
        {"resize", {NULL}},
        {"random_resized_crop", {" row", " column", " height", " width"}},
        {"", {""}}, /* one number, which needs no name */
    };
    const struct trajd_yaml_node *value = cli_first(draw, "values");
    const char *kind = cli_text(draw, "kind");
    int k = 0;

    while (*kinds[k].kind && strcmp(kinds[k].kind, kind) != 0)
        k++;
    printf("%s", kind);
    for (int v = 0; v < 4 && value && kinds[k].names[v]; v++, value = value->next)
        printf("%s %.4g", kinds[k].names[v], strtod(value->value ? value->value : "nan", NULL));
}

static void print_draws(const struct trajd_yaml_node *step)
{
    const struct trajd_yaml_node *first = cli_first(step, "draws");

    for (const struct trajd_yaml_node *draw = first; draw; draw = draw->next) {
        printf("%s", draw == first ? "                         draws " : "; ");
        print_draw(draw);
    }
    if (first)
        putchar('\n');
}

/* Prints how frames are made: all words but those of the augmentation, which each step draws. */
static void print_image(const struct trajd_yaml_node *image)
{
    const char *before = "  frames: ";

    for (const struct trajd_yaml_node *word = image ? image->children : NULL; word;
         word = word->next) {
        if (!strncmp(word->key, "augment", strlen("augment")))
            continue;
        printf("%s%s %s", before, word->key, word->value ? word->value : "");
        before = ", ";
    }
    if (image)
        putchar('\n');
}

/* ---- steps ---- */

static void print_step(const struct trajd_yaml_node *step, int64_t anchor_ns)
{
    const struct trajd_yaml_node *source = cli_first(step, "sources");
    char rows[160], when[32];

    snprintf(when, sizeof when, "%+.6g ms", (double)(cli_number(step, "ns") - anchor_ns) * 1e-6);
    printf("  %5s %14s", cli_text(step, "step"), when);
    for (const char *before = "  "; source;
         source = source->next, before = "                         ") {
        describe_rows(source, rows, sizeof rows);
        if (cli_number(source, "mask"))
            printf("%s%-32s %s %s\n", before, rows, cli_text(source, "mask"),
                   cli_text(source, "reason"));
        else
            printf("%s%s\n", before, rows);
        if (trajd_yaml_get(source, "frame"))
            printf("                         the frame was not made: %s\n",
                   cli_text(source, "frame"));
    }
    print_draws(step);
}

static void print_output(const struct trajd_yaml_node *output, int64_t anchor_ns)
{
    printf("\n%s (%s)\n", cli_text(output, "name"), cli_text(output, "role"));
    if (trajd_yaml_get(output, "goal"))
        printf("  steps count from the goal: anchor %s at %.9g s\n", cli_text(output, "goal"),
               (double)cli_number(output, "goal_ns") * 1e-9);
    print_image(trajd_yaml_get(output, "picture"));
    for (const struct trajd_yaml_node *source = cli_first(output, "sources"); source;
         source = source->next) {
        const int64_t first = cli_number(source, "first_column");
        printf("  from %s: dataset %s, columns %" PRId64 " to %" PRId64
               ", clock %s, %s, %s visible row%s\n",
               cli_text(source, "stream"), cli_text(source, "path"), first,
               first + cli_number(source, "columns") - 1, cli_text(source, "clock"),
               cli_text(source, "kind"), cli_text(source, "visible_rows"),
               trajd_plural((uint64_t)cli_number(source, "visible_rows")));
    }
    printf("  %5s %14s  %-32s %s\n", "step", "from anchor", "rows", "mask and reason");
    for (const struct trajd_yaml_node *step = cli_first(output, "items"); step; step = step->next)
        print_step(step, anchor_ns);
}

static void print_head(const struct trajd_yaml_node *root)
{
    printf("window %s of feed %s: dataset %s, %s, %s; anchor %s at %.9g s\n",
           cli_text(root, "window_id"), cli_text(root, "feed"), cli_text(root, "dataset"),
           cli_text(root, "file"), cli_text(root, "episode"), cli_text(root, "anchor"),
           (double)cli_number(root, "anchor_ns") * 1e-9);
    if (trajd_yaml_get(root, "pass"))
        printf("goals and draws of images are those of pass %s over the dataset; each pass draws "
               "new ones\n",
               cli_text(root, "pass"));
    if (trajd_yaml_get(root, "unreadable"))
        printf("its rows cannot be read: %s\n", cli_text(root, "unreadable"));
}

/* Prints page by page, up to the last step or to --count steps. */
static void explain(struct trajd_client *client, uint32_t feed_id,
                    const struct explaining *explaining, uint64_t pass)
{
    struct trajd_question question = {.what = "explain",
                                      .name = explaining->output,
                                      .feed_id = feed_id,
                                      .window = explaining->window,
                                      .pass = pass,
                                      .first = explaining->first};
    uint64_t remaining = explaining->count;

    for (bool first = true, more = true; more; first = false) {
        const struct trajd_yaml_node *root;
        const uint64_t begin = question.first;
        struct trajd_yaml *yaml;
        char *json;

        question.count = remaining < UINT32_MAX ? (uint32_t)remaining : 0;
        yaml = cli_query(client, &question, &json);
        root = trajd_yaml_root(yaml);
        if (explaining->json)
            puts(json);
        else if (first)
            print_head(root);
        for (const struct trajd_yaml_node *output = cli_first(root, "outputs");
             output && !explaining->json; output = output->next)
            print_output(output, cli_number(root, "anchor_ns"));
        more = cli_next_page(root, &question.first);
        if (more && remaining != NOT_GIVEN) {
            remaining -= question.first - begin;
            more = remaining > 0;
        }
        trajd_yaml_destroy(&yaml);
        free(json);
    }
}

/* ---- the plan ---- */

/* Finds the elements of a page's outputs. */
static const char *elements_of(const char *json, size_t *length)
{
    const char *list;

    if (!trajd_json_field_span(json, strlen(json), "outputs", &list, length) || *length < 2)
        cli_die("the daemon's answer has no outputs");
    *length -= 2;
    return list + 1;
}

/* Prints the document of the feed's plan on a dataset, whose outputs come page by page. */
static void print_plan(struct trajd_client *client, uint32_t feed_id, uint64_t dataset)
{
    struct trajd_question question = {.what = "plan", .feed_id = feed_id, .window = dataset};
    bool more;

    do {
        const bool is_first = !question.first;
        char *json;
        struct trajd_yaml *yaml = cli_query(client, &question, &json);
        size_t length;
        const char *elements = elements_of(json, &length);

        if (is_first)
            printf("%.*s", (int)(elements - json), json);
        printf("%s%.*s", is_first ? "" : ",", (int)length, elements);
        more = cli_next_page(trajd_yaml_root(yaml), &question.first);
        trajd_yaml_destroy(&yaml);
        free(json);
    } while (more);
    puts("]}");
}

const struct cli_option cli_explain_options[] = {
    {"--window", "ID", "the window", CLI_U64, offsetof(struct explaining, window)},
    {"--position", "P", "the window at this position of the epoch", CLI_U64,
     offsetof(struct explaining, position)},
    {"--epoch", "E", "the epoch of the position (0)", CLI_U64, offsetof(struct explaining, epoch)},
    {"--output", "NAME", "one output (all)", CLI_TEXT, offsetof(struct explaining, output)},
    {"--first", "STEP", "the first step to show (0)", CLI_U64, offsetof(struct explaining, first)},
    {"--count", "N", "steps to show (all)", CLI_U64, offsetof(struct explaining, count),
     .least = 1},
    {"--plan", NULL, "print the rules of the feed as JSON; in a mixture: of dataset --window",
     CLI_FLAG, offsetof(struct explaining, plan)},
    {"--json", NULL, "print JSON documents, one a line", CLI_FLAG,
     offsetof(struct explaining, json)},
    {NULL, NULL, NULL, CLI_TABLE, offsetof(struct explaining, connection),
     .table = cli_daemon_options},
    {0}};

int cli_explain(int argc, char **argv)
{
    struct explaining explaining = {.window = NOT_GIVEN, .position = NOT_GIVEN, .count = NOT_GIVEN};
    struct trajd_client *client;
    uint64_t pass = 0;
    uint32_t feed_id;

    cli_parse(argc, argv, &explaining);
    if (!explaining.plan && (explaining.window == NOT_GIVEN) == (explaining.position == NOT_GIVEN))
        cli_refuse("name a window: --window ID, or --position P with --epoch E");
    client = cli_connect(&explaining.connection);
    feed_id = cli_find_feed(client, argv[1]);
    if (explaining.plan) {
        print_plan(client, feed_id, explaining.window == NOT_GIVEN ? 0 : explaining.window);
        return CLI_OK;
    }
    if (explaining.window == NOT_GIVEN)
        pass = find_window(client, feed_id, &explaining);
    explain(client, feed_id, &explaining, pass);
    return CLI_OK;
}
