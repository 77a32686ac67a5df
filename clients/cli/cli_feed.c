/* Connecting to a daemon, opening its feeds, and asking it. */
#include "clients/cli/cli_feed.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "clients/cli/files/private_daemons.h"

/* also the wait for another job, which may be about to end */
#define OPEN_TIMEOUT_MS 10000u

const struct cli_option cli_daemon_options[] = {
    {"--endpoint", "DIR|tcp://HOST:PORT",
     "the daemon; without it $TRAJD_ENDPOINT, else the service, "
     "else your private daemon",
     CLI_TEXT, offsetof(struct cli_connection, endpoint)},
    {"--key", "FILE", "the worker's key, for a tcp:// endpoint", CLI_TEXT,
     offsetof(struct cli_connection, key_file)},
    {"--server-key", "KEY", "the daemon's public key, if FILE does not contain it", CLI_TEXT,
     offsetof(struct cli_connection, server_key)},
    {0}};

bool cli_has_endpoint(const struct cli_connection *connection)
{
    const char *environment = getenv("TRAJD_ENDPOINT");

    return connection->endpoint || (environment && *environment);
}

bool cli_service_runs(void)
{
    return !access(CLI_SERVICE_ENDPOINT "/feed.sock", F_OK);
}

int cli_fail_without_daemon(const struct private_daemons *found)
{
    return cli_fail("no daemon runs: neither at " CLI_SERVICE_ENDPOINT
                    " nor a private one of yours in %s. Keep the feed open in Python "
                    "(trajd.open), or run `trajd --config CONFIG`; --endpoint DIR names a daemon "
                    "elsewhere",
                    found->folder);
}

/* Returns the endpoint to connect to, and the private daemons that run if none is named. If no
 * service runs, the only one is meant, or the newest of one configuration that was edited. */
static const char *choose_endpoint(const struct cli_connection *connection,
                                   struct private_daemons *found)
{
    char text[PRIVATE_TEXT_SIZE];

    found->count = 0;
    if (cli_has_endpoint(connection))
        return connection->endpoint;
    private_daemons_find(found);
    if (!private_daemons_are_alike(found) || cli_service_runs())
        return NULL;
    private_daemon_describe(found->list, text);
    fprintf(stderr, "trajctl: private daemon %s %s%s\n", found->list[0].endpoint, text,
            found->count > 1 ? ", the newest of several" : "");
    return found->list[0].endpoint;
}

/* Prints why no daemon answers, and the private daemons of which one may be meant. */
static void fail_to_connect(const struct private_daemons *found, const struct trajd_error *error)
{
    char text[PRIVATE_TEXT_SIZE];

    cli_fail("%s", error->message);
    for (uint32_t i = 0; i < found->count; i++) {
        private_daemon_describe(&found->list[i], text);
        fprintf(stderr, "%s  --endpoint %s\n    %s\n", i ? "" : "private daemons that run:\n",
                found->list[i].endpoint, text);
    }
}

struct trajd_client *cli_try_connect(const struct cli_connection *connection)
{
    static struct private_daemons found;
    struct trajd_client *client = NULL;
    struct trajd_error error;
    const struct trajd_connect_options options = {.endpoint = choose_endpoint(connection, &found),
                                                  .key_file = connection->key_file,
                                                  .server_key = connection->server_key,
                                                  .client_name = "trajctl",
                                                  .timeout_ms = 3000};
    if (!cli_has_endpoint(connection) && !found.count && !cli_service_runs())
        cli_fail_without_daemon(&found);
    else if (trajd_client_connect(&options, &client, &error))
        fail_to_connect(&found, &error);
    return client;
}

static struct trajd_client *connected[2]; /* diff has two */

static void close_connected(void)
{
    trajd_client_close(&connected[0]);
    trajd_client_close(&connected[1]);
}

struct trajd_client *cli_connect(const struct cli_connection *connection)
{
    struct trajd_client **client = &connected[connected[0] != NULL];

    *client = cli_try_connect(connection);
    if (!*client)
        cli_end(CLI_FAILED);
    atexit(close_connected);
    return *client;
}

enum trajd_status cli_open(struct trajd_client *client, struct trajd_open_options options,
                           struct trajd_error *error)
{
    options.mode = options.world > 0 ? TRAJD_MODE_SHARD : TRAJD_MODE_QUEUE;
    options.timeout_ms = OPEN_TIMEOUT_MS;
    return trajd_client_open(client, &options, error);
}

/* ---- queries ---- */

struct trajd_yaml *cli_parse_answer(const char *text)
{
    struct trajd_yaml *yaml;
    struct trajd_error error;

    if (trajd_yaml_parse("answer", text, strlen(text), &yaml, &error))
        cli_die("%s", error.message);
    return yaml;
}

struct trajd_yaml *cli_query(struct trajd_client *client, const struct trajd_question *question,
                             char **json)
{
    struct trajd_yaml *yaml;
    struct trajd_error error;
    char *text;

    if (trajd_client_ask(client, question, 0, &text, &error))
        cli_die("%s", error.message);
    yaml = cli_parse_answer(text);
    if (json)
        *json = text;
    else
        free(text);
    return yaml;
}

struct trajd_yaml *cli_query_status(struct trajd_client *client)
{
    struct trajd_yaml *yaml;
    struct trajd_error error;
    char *text;

    if (trajd_client_status(client, 0, &text, &error))
        cli_die("%s", error.message);
    yaml = cli_parse_answer(text);
    free(text);
    return yaml;
}

uint32_t cli_find_feed(struct trajd_client *client, const char *name)
{
    struct trajd_yaml *yaml = cli_query_status(client);
    const struct trajd_yaml_node *root = trajd_yaml_root(yaml);
    const uint32_t feed_id =
        (uint32_t)cli_number(cli_find_item(root, "feeds", "name", name), "feed_id");
    char names[256] = "";
    size_t used = 0;

    if (!feed_id) {
        for (const struct trajd_yaml_node *feed = cli_first(root, "feeds");
             feed && used < sizeof names; feed = feed->next)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                     cli_text(feed, "name"));
        cli_die("the daemon has no open feed %s (open feeds: %s)", name, used ? names : "none");
    }
    trajd_yaml_destroy(&yaml);
    return feed_id;
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
