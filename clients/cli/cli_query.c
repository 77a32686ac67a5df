#include "clients/cli/cli_query.h"

#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli.h"

const char *cli_text(const struct trajd_yaml_node *mapping, const char *key)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(mapping, key);
    return node && node->value ? node->value : "";
}

int64_t cli_number(const struct trajd_yaml_node *mapping, const char *key)
{
    return strtoll(cli_text(mapping, key), NULL, 10);
}

const struct trajd_yaml_node *cli_first(const struct trajd_yaml_node *mapping, const char *key)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(mapping, key);
    return node ? node->children : NULL;
}

bool cli_next_page(const struct trajd_yaml_node *page, uint64_t *first)
{
    const char *next = cli_text(page, "next");
    const uint64_t at = strtoull(next, NULL, 10);

    if (*next < '0' || *next > '9' || at <= *first)
        return false;
    *first = at;
    return true;
}

struct trajd_yaml *cli_query(struct trajd_client *client, const struct trajd_question *question,
                             char **json)
{
    struct trajd_yaml *yaml = NULL;
    struct trajd_error error;
    char *text = NULL;

    if (trajd_client_ask(client, question, 0, &text, &error) ||
        trajd_yaml_parse("answer", text, strlen(text), &yaml, &error))
        cli_die("%s", error.message);
    if (json)
        *json = text;
    else
        free(text);
    return yaml;
}

struct trajd_yaml *cli_query_status(struct trajd_client *client)
{
    struct trajd_yaml *yaml = NULL;
    struct trajd_error error;
    char *json = NULL;

    if (trajd_client_status(client, 0, &json, &error) ||
        trajd_yaml_parse("status", json, strlen(json), &yaml, &error))
        cli_die("%s", error.message);
    free(json);
    return yaml;
}

uint32_t cli_find_feed(struct trajd_client *client, const char *name)
{
    struct trajd_yaml *yaml = cli_query_status(client);
    char names[256] = "";
    uint32_t feed_id = 0;
    size_t used = 0;

    for (const struct trajd_yaml_node *feed = cli_first(trajd_yaml_root(yaml), "feeds");
         feed && !feed_id; feed = feed->next) {
        if (!strcmp(cli_text(feed, "name"), name))
            feed_id = (uint32_t)cli_number(feed, "feed_id");
        else if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                     cli_text(feed, "name"));
    }
    trajd_yaml_destroy(&yaml);
    if (!feed_id)
        cli_die("the daemon has no open feed %s (open feeds: %s)", name, used ? names : "none");
    return feed_id;
}
