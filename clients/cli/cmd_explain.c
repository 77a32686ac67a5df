/* trajctl explain: where the steps of a window come from, and why one is masked. The daemon's documents as they are, one a line
 * (--json), or a table. The feed is not opened: no job notices. JSON is YAML, so the same reader serves. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli.h"
#include "clients/cli/cli_feed.h"
#include "daemon/base/yaml.h"

#define NOT_GIVEN UINT64_MAX

static const char *text_of(const struct trajd_yaml_node *mapping, const char *key)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(mapping, key);
    return node && node->value ? node->value : "";
}

static long long number_of(const struct trajd_yaml_node *mapping, const char *key)
{
    return strtoll(text_of(mapping, key), NULL, 10);
}

/* Members of a mapping or a list that may be missing. */
static const struct trajd_yaml_node *first_of(const struct trajd_yaml_node *mapping, const char *key)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(mapping, key);
    return node ? node->children : NULL;
}

/* ---- questions ---- */

/* The parsed answer, and its text in *json; NULL: it has been said why. */
static struct trajd_yaml *ask(struct trajd_client *client, const struct trajd_question *question, char **json)
{
    struct trajd_yaml *yaml = NULL;
    struct trajd_error error;

    *json = NULL;
    if (trajd_client_ask(client, question, 0, json, &error) != TRAJD_OK ||
        trajd_yaml_parse("answer", *json, strlen(*json), &yaml, &error) != TRAJD_OK) {
        cli_fail("%s", error.message);
        free(*json);
        *json = NULL;
    }
    return yaml;
}

static bool find_feed(struct trajd_client *client, const char *name, uint32_t *feed_id)
{
    const struct trajd_yaml_node *feed;
    struct trajd_yaml *yaml = NULL;
    struct trajd_error error;
    char *json = NULL, names[256] = "";
    size_t used = 0;

    *feed_id = 0;
    if (trajd_client_status(client, 0, &json, &error) != TRAJD_OK ||
        trajd_yaml_parse("status", json, strlen(json), &yaml, &error) != TRAJD_OK) {
        free(json);
        return cli_fail("%s", error.message), false;
    }
    for (feed = first_of(trajd_yaml_root(yaml), "feeds"); feed && !*feed_id; feed = feed->next) {
        if (!strcmp(text_of(feed, "name"), name))
            *feed_id = (uint32_t)number_of(feed, "feed_id");
        else if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", text_of(feed, "name"));
    }
    if (!*feed_id)
        cli_fail("no feed %s is open in this daemon (there are: %s)", name, used ? names : "none");
    trajd_yaml_destroy(&yaml);
    free(json);
    return *feed_id != 0;
}

/* The window at --position of --epoch. */
static bool find_window(struct trajd_client *client, uint32_t feed_id, struct cli_feed_arguments *arguments)
{
    const struct trajd_question question = {
        .what = "position", .feed_id = feed_id, .window = arguments->epoch, .first = arguments->position, .count = 1};
    const struct trajd_yaml_node *item;
    struct trajd_yaml *yaml;
    char *json;

    yaml = ask(client, &question, &json);
    if (!yaml)
        return false;
    item = first_of(trajd_yaml_root(yaml), "items");
    if (item)
        arguments->window = strtoull(text_of(item, "window_id"), NULL, 10);
    trajd_yaml_destroy(&yaml);
    free(json);
    return item || (cli_fail("the daemon knows no window there"), false);
}

/* ---- the table ---- */

/* Rows with their shares: "41", "41 (66.7%), 42 (33.3%)", "30..41 (mean of 12)". */
static void describe_rows(const struct trajd_yaml_node *source, char *text, size_t size)
{
    const struct trajd_yaml_node *row = first_of(source, "rows");
    const struct trajd_yaml_node *behind = row ? row->next : NULL;

    if (!row || !row->children)
        snprintf(text, size, "-");
    else if (behind && behind->children && trajd_yaml_get(source, "averaged"))
        snprintf(text, size, "%s..%s (mean of %s)", row->children->value, behind->children->value, text_of(source, "averaged"));
    else if (behind && behind->children && behind->children->next && behind->children->next->next) {
        const double share = strtod(behind->children->next->next->value, NULL);
        snprintf(text, size, "%s (%.1f%%), %s (%.1f%%)", row->children->value, 100 * (1 - share), behind->children->value, 100 * share);
    } else
        snprintf(text, size, "%s", row->children->value);
}

static void print_step(const struct trajd_yaml_node *step, long long anchor_ns)
{
    const struct trajd_yaml_node *source = first_of(step, "sources");
    char rows[160], when[32];

    snprintf(when, sizeof when, "%+.6g ms", (double)(number_of(step, "ns") - anchor_ns) * 1e-6);
    printf("  %5s %14s", text_of(step, "step"), when);
    for (const char *before = "  "; source; source = source->next, before = "                         ") {
        describe_rows(source, rows, sizeof rows);
        if (number_of(source, "mask"))
            printf("%s%-32s %s %s\n", before, rows, text_of(source, "mask"), text_of(source, "reason"));
        else
            printf("%s%s\n", before, rows);
    }
}

static void print_output(const struct trajd_yaml_node *output, long long anchor_ns)
{
    printf("\n%s (%s)\n", text_of(output, "name"), text_of(output, "role"));
    for (const struct trajd_yaml_node *source = first_of(output, "sources"); source; source = source->next) {
        const long long first = number_of(source, "first_column");
        printf("  from %s: dataset %s, columns %lld to %lld, clock %s, %s, %s rows in sight\n", text_of(source, "stream"),
               text_of(source, "path"), first, first + number_of(source, "columns") - 1, text_of(source, "clock"),
               text_of(source, "kind"), text_of(source, "visible_rows"));
    }
    printf("  %5s %14s  %-32s %s\n", "step", "to the anchor", "rows", "mask, and why");
    for (const struct trajd_yaml_node *step = first_of(output, "items"); step; step = step->next)
        print_step(step, anchor_ns);
}

static void print_head(const struct trajd_yaml_node *root)
{
    printf("window %s of feed %s: dataset %s, %s, %s; anchor %s at %.9g s\n", text_of(root, "window_id"), text_of(root, "feed"),
           text_of(root, "dataset"), text_of(root, "file"), text_of(root, "episode"), text_of(root, "anchor"),
           (double)number_of(root, "anchor_ns") * 1e-9);
    if (trajd_yaml_get(root, "unreadable"))
        printf("its rows cannot be read: %s\n", text_of(root, "unreadable"));
}

/* Page by page, until the last or --count steps. */
static int explain(struct trajd_client *client, uint32_t feed_id, const struct cli_feed_arguments *arguments)
{
    struct trajd_question question = {.what = "explain",
                                      .name = arguments->output,
                                      .feed_id = feed_id,
                                      .window = arguments->window,
                                      .first = arguments->next};
    uint64_t left = arguments->count;

    for (bool first = true, more = true; more; first = false) {
        const struct trajd_yaml_node *root, *next;
        struct trajd_yaml *yaml;
        char *json;

        question.count = left < UINT32_MAX ? (uint32_t)left : 0;
        yaml = ask(client, &question, &json);
        if (!yaml)
            return CLI_FAILED;
        root = trajd_yaml_root(yaml);
        if (arguments->json)
            puts(json);
        else if (first)
            print_head(root);
        for (const struct trajd_yaml_node *output = first_of(root, "outputs"); output && !arguments->json; output = output->next)
            print_output(output, number_of(root, "anchor_ns"));
        next = trajd_yaml_get(root, "next");
        more = next && next->value && next->value[0] >= '0' && next->value[0] <= '9';
        if (more) {
            const uint64_t at = strtoull(next->value, NULL, 10);
            left = arguments->count == NOT_GIVEN ? NOT_GIVEN : left - (at - question.first);
            more = at > question.first && left > 0;
            question.first = at;
        }
        trajd_yaml_destroy(&yaml);
        free(json);
    }
    return CLI_OK;
}

int cli_explain(int argc, char **argv)
{
    static const char *const known[] = {"FEED",    "--window", "--position", "--epoch",    "--output",
                                        "--first", "--count",  "--endpoint", "--json", NULL};
    struct cli_feed_arguments arguments = {.window = NOT_GIVEN, .position = NOT_GIVEN, .count = NOT_GIVEN};
    struct trajd_client *client;
    int result = CLI_FAILED;
    uint32_t feed_id;

    if (!cli_parse_feed(argc, argv, known, &arguments))
        return cli_usage("explain");
    if ((arguments.window == NOT_GIVEN) == (arguments.position == NOT_GIVEN) || arguments.count == 0) {
        cli_fail(arguments.count == 0 ? "--count: at least 1" : "which window? --window ID, or --position P of --epoch E");
        return cli_usage("explain");
    }
    client = cli_connect(&arguments, false);
    if (!client)
        return CLI_FAILED;
    if (find_feed(client, arguments.feed, &feed_id) &&
        (arguments.window != NOT_GIVEN || find_window(client, feed_id, &arguments)))
        result = explain(client, feed_id, &arguments);
    trajd_client_close(&client);
    return result;
}
