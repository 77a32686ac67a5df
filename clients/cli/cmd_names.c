/* trajctl names: prints the words that may come next on a command line, for completions. They come
 * from the table of commands, from a daemon, or from the installed layouts. Prints one word a line;
 * a word in capitals is a placeholder (FILE, FEED, NAME). */
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli_feed.h"
#include "daemon/base/paths.h"

#define CONNECT_MS 300 /* short, because a user waits at the terminal */

/* Prints the words between spaces, bars and brackets, without dots at their ends, up to an option. */
static void print_words(const char *text)
{
    static const char between[] = " |[]";

    while (*(text += strspn(text, between)) && *text != '-') {
        const size_t length = strcspn(text, between);
        size_t shown = length;
        while (shown && text[shown - 1] == '.')
            shown--;
        printf("%.*s\n", (int)shown, text);
        text += length;
    }
}

/* Prints the options and operands of the command, or the values of one option. */
static void print_command(const struct cli_command *command, const char *option)
{
    struct cli_option rows[CLI_OPTIONS_MAX];

    cli_list_options(command, rows);
    for (const struct cli_option *row = rows; row->kind; row++)
        if (!option)
            printf("%s\n", row->name);
        else if (!strcmp(option, row->name) && row->value)
            print_words(row->value);
    if (!option)
        print_words(command->operands);
}

static int print_feeds(const char *endpoint)
{
    const struct trajd_connect_options options = {
        .endpoint = endpoint, .client_name = "trajctl", .timeout_ms = CONNECT_MS};
    struct trajd_client *client = NULL;
    struct trajd_error error;
    char *json = NULL;
    const bool is_bad = trajd_client_connect(&options, &client, &error) ||
                        trajd_client_status(client, CONNECT_MS, &json, &error);

    trajd_client_close(&client);
    if (is_bad)
        return cli_fail("%s", error.message);
    struct trajd_yaml *yaml = cli_parse_answer(json);
    for (const struct trajd_yaml_node *feed = cli_first(trajd_yaml_root(yaml), "feeds"); feed;
         feed = feed->next)
        if (!strpbrk(cli_text(feed, "name"), ":#")) /* only feeds of the configuration */
            printf("%s\n", cli_text(feed, "name"));
    trajd_yaml_destroy(&yaml);
    free(json);
    return CLI_OK;
}

static int print_layouts(void)
{
    char path[PATH_MAX];
    DIR *folder = trajd_paths_layouts(path, sizeof path) ? opendir(path) : NULL;

    if (!folder)
        return cli_fail("the layouts were found neither beside this program nor below its prefix");
    for (const struct dirent *entry; (entry = readdir(folder));) {
        const size_t length = strlen(entry->d_name);
        if (length > 5 && strcmp(entry->d_name + length - 5, ".yaml") == 0)
            printf("%.*s\n", (int)length - 5, entry->d_name);
    }
    closedir(folder);
    return CLI_OK;
}

struct naming {
    const char *endpoint;
    bool layouts, feeds;
};

const struct cli_option cli_names_options[] = {
    {"--layouts", NULL, "print the installed layouts", CLI_FLAG, offsetof(struct naming, layouts)},
    {"--feeds", NULL, "print the feeds of a daemon", CLI_FLAG, offsetof(struct naming, feeds)},
    {"--endpoint", "DIR", "the daemon of --feeds", CLI_TEXT, offsetof(struct naming, endpoint)},
    {0}};

/* The word after a command may be one of its options, which is not an option here. */
int cli_names(int argc, char **argv)
{
    const struct cli_command *command = argc > 1 ? cli_find_command(argv[1]) : NULL;
    struct naming naming = {0};

    if (command && argc <= 3) {
        print_command(command, argc == 3 ? argv[2] : NULL);
        return CLI_OK;
    }
    if (cli_parse(argc, argv, &naming))
        cli_refuse("there is no command %s", argv[1]);
    if (naming.layouts)
        return print_layouts();
    if (naming.feeds)
        return print_feeds(naming.endpoint);
    for (size_t i = 0; cli_commands[i].name; i++)
        printf("%s\n", cli_commands[i].name);
    return CLI_OK;
}
