/* trajctl metrics: prints the daemon's status as OpenMetrics text, or answers one HTTP request with
 * it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/cli_feed.h"
#include "clients/cli/metrics/metrics_http.h"
#include "clients/cli/metrics/metrics_write.h"

enum { STATUS_TIMEOUT_MS = 5000 };

/* Writes the metrics to *text, which the caller frees. Returns NULL after it printed an error. */
static char *collect(const struct cli_connection *connection, size_t *length)
{
    struct trajd_client *client = cli_try_connect(connection);
    struct trajd_error error = {.status = TRAJD_OK};
    char *json = NULL, *text = NULL;
    FILE *out = NULL;

    if (!client)
        return NULL;
    if (!trajd_client_status(client, STATUS_TIMEOUT_MS, &json, &error))
        out = open_memstream(&text, length);
    if (out) {
        metrics_write(json, out, &error);
        fclose(out);
    }
    free(json);
    trajd_client_close(&client);
    if (!error.status && text)
        return text;
    cli_fail("%s", error.status ? error.message : "out of memory");
    free(text);
    return NULL;
}

static int answer_request(const struct cli_connection *connection)
{
    static const char failed[] = "the daemon does not answer; the log of this unit says why\n";
    const char *refusal;
    size_t length = 0;
    char *text;

    if (!metrics_read_request(STDIN_FILENO, &refusal)) {
        if (refusal)
            metrics_write_answer(refusal, "", 0);
        return CLI_OK;
    }
    text = collect(connection, &length);
    if (text)
        metrics_write_answer("200 OK", text, length);
    else
        metrics_write_answer("503 Service Unavailable", failed, strlen(failed));
    free(text);
    return text ? CLI_OK : CLI_FAILED;
}

struct measuring {
    struct cli_connection connection;
    bool http;
};

const struct cli_option cli_metrics_options[] = {
    {"--http", NULL, "answer one HTTP request from standard input", CLI_FLAG,
     offsetof(struct measuring, http)},
    {NULL, NULL, NULL, CLI_TABLE, offsetof(struct measuring, connection),
     .table = cli_daemon_options},
    {0}};

int cli_metrics(int argc, char **argv)
{
    struct measuring measuring = {0};
    size_t length;
    char *text;

    cli_parse(argc, argv, &measuring);
    if (measuring.http)
        return answer_request(&measuring.connection);
    text = collect(&measuring.connection, &length);
    if (text)
        fwrite(text, 1, length, stdout);
    free(text);
    return text ? CLI_OK : CLI_FAILED;
}
