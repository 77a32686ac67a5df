#include "clients/cli/cli_feed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/cli/files/private_daemons.h"
#include "proto/array_len.h"

/* also the wait for another job, which may be about to end */
#define OPEN_TIMEOUT_MS 10000u

/* --key and --server-key are known wherever --endpoint is. */
static bool is_known(const char *const *known, const char *name)
{
    if (strcmp(name, "--key") == 0 || strcmp(name, "--server-key") == 0)
        name = "--endpoint";
    for (; *known != NULL; known++)
        if (strcmp(*known, name) == 0)
            return true;
    return false;
}

static bool parse_number(const char *name, const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0)
        return true;
    cli_fail("%s: \"%s\" is %s", name, text, errno == ERANGE ? "too large" : "not a whole number");
    return false;
}

static bool set_option(struct cli_feed_arguments *arguments, const char *name, const char *value)
{
    const struct {
        const char *name;
        uint64_t *number;
        const char **text;
    } table[] = {
        {"--endpoint", NULL, &arguments->endpoint},
        {"--key", NULL, &arguments->key_file},
        {"--server-key", NULL, &arguments->server_key},
        {"--job", NULL, &arguments->job},
        {"--count", &arguments->count, NULL},
        {"--seconds", &arguments->seconds, NULL},
        {"--workers", &arguments->workers, NULL},
        {"--credit", &arguments->credit, NULL},
        {"--epoch", &arguments->epoch, NULL},
        {"--next", &arguments->next, NULL},
        {"--rank", &arguments->rank, NULL},
        {"--world", &arguments->world, NULL},
        {"--window", &arguments->window, NULL},
        {"--position", &arguments->position, NULL},
        {"--first", &arguments->next, NULL},
        {"--output", NULL, &arguments->output},
        {"--out", NULL, &arguments->out},
        {"-o", NULL, &arguments->out},
        {"--format", NULL, &arguments->format},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (strcmp(table[i].name, name) != 0)
            continue;
        if (table[i].number)
            return parse_number(name, value, table[i].number);
        *table[i].text = value;
        return true;
    }
    return false;
}

bool cli_parse_feed(int argc, char **argv, const char *const *known,
                    struct cli_feed_arguments *arguments)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            if (!is_known(known, "FEED") || arguments->feed)
                return cli_fail("unexpected argument: %s", argv[i]), false;
            arguments->feed = argv[i];
        } else if (!is_known(known, argv[i])) {
            return cli_refuse_option(argv[0], argv[i]), false;
        } else if (strcmp(argv[i], "--json") == 0) {
            arguments->json = true;
        } else if (strcmp(argv[i], "--watch") == 0) {
            arguments->watch = true;
        } else if (i + 1 >= argc) {
            return cli_fail("%s needs a value", argv[i]), false;
        } else if (!set_option(arguments, argv[i], argv[i + 1])) {
            return false;
        } else {
            i++;
        }
    }
    if (arguments->rank > UINT32_MAX || arguments->world > UINT32_MAX ||
        arguments->credit > UINT32_MAX)
        return cli_fail("--rank, --world or --credit is too large"), false;
    if (is_known(known, "FEED") && !arguments->feed)
        return cli_fail("name a feed"), false;
    return true;
}

bool cli_has_endpoint(const struct cli_feed_arguments *arguments)
{
    const char *environment = getenv("TRAJD_ENDPOINT");

    return arguments->endpoint || (environment && *environment);
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
static const char *choose_endpoint(const struct cli_feed_arguments *arguments,
                                   struct private_daemons *found)
{
    char text[PRIVATE_TEXT_SIZE];

    found->count = 0;
    if (cli_has_endpoint(arguments))
        return arguments->endpoint;
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

struct trajd_client *cli_connect(const struct cli_feed_arguments *arguments, bool reconnect)
{
    static struct private_daemons found;
    struct trajd_client *client = NULL;
    struct trajd_error error;
    const struct trajd_connect_options options = {.endpoint = choose_endpoint(arguments, &found),
                                                  .key_file = arguments->key_file,
                                                  .server_key = arguments->server_key,
                                                  .client_name = "trajctl",
                                                  .timeout_ms = 3000,
                                                  .reconnect = reconnect};
    if (!cli_has_endpoint(arguments) && !found.count && !cli_service_runs())
        cli_fail_without_daemon(&found);
    else if (trajd_client_connect(&options, &client, &error))
        fail_to_connect(&found, &error);
    return client;
}

enum trajd_status cli_open(struct trajd_client *client, const struct cli_feed_arguments *arguments,
                           struct trajd_error *error)
{
    const struct trajd_open_options options = {.feed = arguments->feed,
                                               .job = arguments->job,
                                               .mode = arguments->world > 0 ? TRAJD_MODE_SHARD
                                                                            : TRAJD_MODE_QUEUE,
                                               .rank = (uint32_t)arguments->rank,
                                               .world = (uint32_t)arguments->world,
                                               .credit = (uint32_t)arguments->credit,
                                               .epoch = arguments->epoch,
                                               .next = arguments->next,
                                               .timeout_ms = OPEN_TIMEOUT_MS};
    return trajd_client_open(client, &options, error);
}
