/* trajctl diff: explains why a feed has different fingerprints on two daemons. It walks through
 * both lists of episodes together, and prints episodes that differ or that only one of them has. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli.h"
#include "clients/cli/cli_feed.h"
#include "daemon/layout/glob.h"
#include "proto/plural.h"

#define LISTED_MAX 20u

/* One daemon's list of episodes, a page at a time. */
struct side {
    struct cli_connection connection;
    struct trajd_client *client;
    struct trajd_question question;
    struct trajd_yaml *yaml;
    const struct trajd_yaml_node *item; /* NULL after the last one */
};

static void turn_page(struct side *side)
{
    trajd_yaml_destroy(&side->yaml);
    side->yaml = cli_query(side->client, &side->question, NULL);
    side->item = cli_first(trajd_yaml_root(side->yaml), "items");
}

static void advance(struct side *side)
{
    side->item = side->item->next;
    if (!side->item && cli_next_page(trajd_yaml_root(side->yaml), &side->question.first))
        turn_page(side);
}

static void open_side(struct side *side, const char *feed)
{
    side->client = cli_connect(&side->connection);
    side->question =
        (struct trajd_question){.what = "episodes", .feed_id = cli_find_feed(side->client, feed)};
    turn_page(side);
}

/* Returns which of the feed's datasets has the episode. */
static int dataset_number(const struct side *side)
{
    const struct trajd_yaml_node *dataset = cli_first(trajd_yaml_root(side->yaml), "datasets");
    int number = 0;

    for (; dataset && strcmp(cli_text(dataset, "name"), cli_text(side->item, "dataset")) != 0;
         dataset = dataset->next)
        number++;
    return number;
}

/* Compares in the order of the lists: by dataset, by file, then by episode, in natural order. */
static int compare(const struct side *a, const struct side *b)
{
    int order;

    if (!a->item || !b->item)
        return a->item ? -1 : b->item ? 1 : 0;
    order = dataset_number(a) - dataset_number(b);
    if (order)
        return order;
    order = trajd_natural_compare(cli_text(a->item, "file"), cli_text(b->item, "file"));
    return order
               ? order
               : trajd_natural_compare(cli_text(a->item, "episode"), cli_text(b->item, "episode"));
}

static void print_difference(const struct side *side, const char *what)
{
    printf("dataset %s: %s: %s: %s\n", cli_text(side->item, "dataset"),
           cli_text(side->item, "file"), cli_text(side->item, "episode"), what);
}

/* Prints what differs in an episode that both have. The first difference explains the others. */
static void print_change(const struct side *a, const struct side *b)
{
    const char *left = cli_text(a->item, "quarantine"), *right = cli_text(b->item, "quarantine");
    char what[1200];

    if (strcmp(left, right) != 0)
        snprintf(what, sizeof what, "%s at %s, %s at %s", *left ? left : "kept",
                 a->connection.endpoint, *right ? right : "kept", b->connection.endpoint);
    else if (cli_number(a->item, "rows") != cli_number(b->item, "rows"))
        snprintf(what, sizeof what, "%" PRId64 " row%s at %s, %" PRId64 " at %s",
                 cli_number(a->item, "rows"), trajd_plural((uint64_t)cli_number(a->item, "rows")),
                 a->connection.endpoint, cli_number(b->item, "rows"), b->connection.endpoint);
    else
        snprintf(what, sizeof what, "the content differs (stamps, rows, shapes or texts)");
    print_difference(a, what);
}

static uint64_t walk(struct side *a, struct side *b)
{
    uint64_t differences = 0;
    char what[300];

    while ((a->item || b->item)) {
        const int order = compare(a, b);
        const bool changed =
            order || strcmp(cli_text(a->item, "digest"), cli_text(b->item, "digest")) != 0;
        if (changed && differences++ < LISTED_MAX) {
            snprintf(what, sizeof what, "only at %s",
                     order < 0 ? a->connection.endpoint : b->connection.endpoint);
            if (order)
                print_difference(order < 0 ? a : b, what);
            else
                print_change(a, b);
        }
        if (order <= 0)
            advance(a);
        if (order >= 0)
            advance(b);
    }
    if (differences > LISTED_MAX)
        printf("... %" PRIu64 " episodes differ\n", differences);
    return differences;
}

static int compare_feeds(struct side *a, struct side *b, const char *feed)
{
    const char *left = cli_text(trajd_yaml_root(a->yaml), "fingerprint"),
               *right = cli_text(trajd_yaml_root(b->yaml), "fingerprint");
    const bool same = strcmp(left, right) == 0;
    uint64_t differences;

    printf("feed %s: fingerprint %s at %s, %s at %s%s\n", feed, left, a->connection.endpoint, right,
           b->connection.endpoint, same ? ": the same" : "");
    if (same)
        return CLI_OK;
    differences = walk(a, b);
    if (!differences)
        printf("all episodes are the same: the feed's specification, the layout, or the files that "
               "hold no episode differ\n");
    return CLI_FAILED;
}

const struct cli_option cli_diff_options[] = {
    {"--key", "FILE", "the worker's key, for each endpoint that is tcp://HOST:PORT", CLI_TEXT,
     offsetof(struct side, connection.key_file)},
    {0}};

int cli_diff(int argc, char **argv)
{
    struct side a = {0}, b;
    int result;

    cli_parse(argc, argv, &a);
    b = a;
    a.connection.endpoint = argv[1];
    b.connection.endpoint = argv[2];
    open_side(&a, argv[3]);
    open_side(&b, argv[3]);
    result = compare_feeds(&a, &b, argv[3]);
    trajd_yaml_destroy(&a.yaml);
    trajd_yaml_destroy(&b.yaml);
    return result;
}
