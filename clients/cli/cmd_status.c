#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli.h"
#include "clients/cli/cli_feed.h"

/* The document for reading: a line a member, and a line an element of the lists of feeds and sessions. */
static void print_readable(const char *json)
{
    int depth = 0;
    bool quoted = false, in_list = false;
    for (const char *c = json; *c != '\0'; c++) {
        const bool escaped = c > json && c[-1] == '\\' && quoted;
        if (*c == '"' && !escaped) {
            quoted = !quoted;
        } else if (quoted) {
            putchar(*c);
        } else if (*c == '{' || *c == '[') {
            depth++;
            if (depth == 2)
                in_list = *c == '[';
            if (depth == 3)
                printf("\n    ");
            else if (depth > 3 || (depth == 2 && *c == '{'))
                printf("(");
        } else if (*c == '}' || *c == ']') {
            if (depth > 3 || (depth == 2 && *c == '}'))
                printf(")");
            depth--;
        } else if (*c == ',') {
            printf(depth == 1 ? "\n" : depth == 2 && in_list ? "" : ", ");
        } else if (*c == ':') {
            printf(depth == 1 ? ": " : " ");
        } else {
            putchar(*c);
        }
    }
    putchar('\n');
}

int cli_status(int argc, char **argv)
{
    static const char *const known[] = {"--endpoint", "--json", NULL};
    struct cli_feed_arguments arguments = {0};
    struct trajd_error error;
    char *json;
    if (!cli_parse_feed(argc, argv, known, &arguments))
        return cli_usage("status");
    struct trajd_client *client = cli_connect(&arguments, false);
    if (client == NULL)
        return CLI_FAILED;
    int result = CLI_OK;
    if (trajd_client_status(client, 0, &json, &error) != TRAJD_OK) {
        result = cli_fail("%s", error.message);
    } else {
        if (arguments.json)
            puts(json);
        else
            print_readable(json);
        free(json);
    }
    trajd_client_close(&client);
    return result;
}
