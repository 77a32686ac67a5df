/* trajctl diff: explains why a feed has different fingerprints on two daemons. It walks through
 * both lists of episodes together, and prints episodes that differ or that only one of them has. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli.h"
#include "clients/cli/cli_query.h"
#include "daemon/layout/glob.h"
#include "proto/plural.h"

#define LISTED_MAX 20u

/* One daemon's list of episodes, a page at a time. */
struct side {
    const char *endpoint, *key_file;
    struct trajd_client *client;
    struct trajd_question question;
    struct trajd_yaml *yaml;
    char *json;
    const struct trajd_yaml_node *item; /* NULL after the last one */
    bool failed;
};

static void turn_page(struct side *side)
{
    trajd_yaml_destroy(&side->yaml);
    free(side->json);
    side->yaml = cli_query(side->client, &side->question, &side->json);
    side->failed = !side->yaml;
    side->item = side->yaml ? cli_first(trajd_yaml_root(side->yaml), "items") : NULL;
}

static void advance(struct side *side)
{
    side->item = side->item->next;
    if (!side->item && cli_next_page(trajd_yaml_root(side->yaml), &side->question.first))
        turn_page(side);
}

static bool open_side(struct side *side, const char *feed, struct trajd_error *error)
{
    const struct trajd_connect_options options = {.endpoint = side->endpoint,
                                                  .client_name = "trajctl",
                                                  .timeout_ms = 3000,
                                                  .key_file = side->key_file};

    if (trajd_client_connect(&options, &side->client, error))
        return cli_fail("%s", error->message), false;
    side->question = (struct trajd_question){.what = "episodes"};
    if (!cli_find_feed(side->client, feed, &side->question.feed_id))
        return false;
    turn_page(side);
    return !side->failed;
}

static void close_side(struct side *side)
{
    trajd_yaml_destroy(&side->yaml);
    free(side->json);
    trajd_client_close(&side->client);
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
        snprintf(what, sizeof what, "%s at %s, %s at %s", *left ? left : "kept", a->endpoint,
                 *right ? right : "kept", b->endpoint);
    else if (cli_number(a->item, "rows") != cli_number(b->item, "rows"))
        snprintf(what, sizeof what, "%" PRId64 " row%s at %s, %" PRId64 " at %s",
                 cli_number(a->item, "rows"), trajd_plural((uint64_t)cli_number(a->item, "rows")),
                 a->endpoint, cli_number(b->item, "rows"), b->endpoint);
    else
        snprintf(what, sizeof what, "the content differs (stamps, rows, shapes or texts)");
    print_difference(a, what);
}

static uint64_t walk(struct side *a, struct side *b)
{
    uint64_t differences = 0;
    char what[300];

    while ((a->item || b->item) && !a->failed && !b->failed) {
        const int order = compare(a, b);
        const bool changed =
            order || strcmp(cli_text(a->item, "digest"), cli_text(b->item, "digest")) != 0;
        if (changed && differences++ < LISTED_MAX) {
            snprintf(what, sizeof what, "only at %s", order < 0 ? a->endpoint : b->endpoint);
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

    printf("feed %s: fingerprint %s at %s, %s at %s%s\n", feed, left, a->endpoint, right,
           b->endpoint, same ? ": the same" : "");
    if (same)
        return CLI_OK;
    differences = walk(a, b);
    if (!differences && !a->failed && !b->failed)
        printf("all episodes are the same: the feed's specification, the layout, or the files that "
               "hold no episode differ\n");
    return CLI_FAILED;
}

const struct cli_option cli_diff_options[] = {
    {"--key", "FILE", "the worker's key, for each endpoint that is tcp://HOST:PORT", CLI_TEXT,
     offsetof(struct side, key_file)},
    {0}};

int cli_diff(int argc, char **argv)
{
    struct side a = {0}, b = {0};
    struct trajd_error error;
    int result = CLI_FAILED;

    cli_parse(argc, argv, &a);
    b.key_file = a.key_file;
    a.endpoint = argv[1];
    b.endpoint = argv[2];
    if (open_side(&a, argv[3], &error) && open_side(&b, argv[3], &error))
        result = compare_feeds(&a, &b, argv[3]);
    close_side(&a);
    close_side(&b);
    return result;
}
