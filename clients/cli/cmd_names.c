/* trajctl names: what may stand next on the command line, for completions: from the table of
 * commands itself, from a daemon, from the installed layouts. A word of its own a line; in capitals
 * what is to be put there (FILE, FEED, NAME). */
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "clients/c/trajd.h"
#include "clients/cli/cli.h"
#include "clients/cli/cli_query.h"
#include "daemon/base/paths.h"

#define CONNECT_MS 300 /* somebody waits at a terminal */
#define MAX_USAGE 1024

/* The usage without what only groups (brackets, dots), up to where output goes. */
static void strip(const char *usage, char *words, size_t size)
{
    size_t length = 0;

    for (; *usage && *usage != '>' && length + 1 < size; usage++) {
        const bool is_dots = strncmp(usage, "...", 3) == 0;
        words[length++] = is_dots || strchr("[]()", *usage) ? ' ' : *usage;
        usage += is_dots ? 2 : 0;
    }
    words[length] = 0;
}

static void print_alternatives(const char *word)
{
    for (size_t length; *word; word += length + (word[length] == '|')) {
        length = strcspn(word, "|");
        if (length)
            printf("%.*s\n", (int)length, word);
    }
}

/* Its options, and what it takes beside them. */
static void print_words(const char *usage)
{
    char words[MAX_USAGE], *remainder = words;
    bool is_value = false;

    strip(usage, words, sizeof words);
    for (char *word; (word = strsep(&remainder, " "));) {
        if (!*word || strcmp(word, "|") == 0)
            continue;
        if (*word == '-')
            printf("%s\n", word);
        else if (!is_value)
            print_alternatives(word);
        /* what follows an option is its value; a flag is followed by an option or a bracket's end
         */
        is_value = *word == '-';
        if (is_value && remainder && *remainder == ' ')
            is_value = false;
    }
}

/* What stands behind the option; nothing if it is a flag. */
static void print_value(const char *usage, const char *option)
{
    char words[MAX_USAGE], *remainder = words;

    strip(usage, words, sizeof words);
    for (char *word; (word = strsep(&remainder, " "));)
        if (strcmp(word, option) == 0 && remainder && *remainder && *remainder != ' ' &&
            *remainder != '-') {
            print_alternatives(strsep(&remainder, " "));
            return;
        }
}

static int print_feeds(const char *endpoint)
{
    const struct trajd_connect_options options = {
        .endpoint = endpoint, .client_name = "trajctl", .timeout_ms = CONNECT_MS};
    struct trajd_client *client = NULL;
    struct trajd_yaml *yaml = NULL;
    struct trajd_error error;
    char *json = NULL;
    enum trajd_status status = trajd_client_connect(&options, &client, &error);

    if (!status)
        status = trajd_client_status(client, CONNECT_MS, &json, &error);
    if (!status)
        status = trajd_yaml_parse("status", json, strlen(json), &yaml, &error);
    for (const struct trajd_yaml_node *feed = status ? NULL
                                                     : cli_first(trajd_yaml_root(yaml), "feeds");
         feed; feed = feed->next)
        if (!strpbrk(cli_text(feed, "name"), ":#")) /* those of the configuration */
            printf("%s\n", cli_text(feed, "name"));
    trajd_yaml_destroy(&yaml);
    free(json);
    trajd_client_close(&client);
    return status ? cli_fail("%s", error.message) : CLI_OK;
}

static int print_layouts(void)
{
    char path[PATH_MAX];
    DIR *folder = trajd_paths_layouts(path, sizeof path) ? opendir(path) : NULL;

    if (!folder)
        return cli_fail("the layouts are neither beside this program nor below its prefix");
    for (const struct dirent *entry; (entry = readdir(folder));) {
        const size_t length = strlen(entry->d_name);
        if (length > 5 && strcmp(entry->d_name + length - 5, ".yaml") == 0)
            printf("%.*s\n", (int)length - 5, entry->d_name);
    }
    closedir(folder);
    return CLI_OK;
}

int cli_names(int argc, char **argv)
{
    const struct cli_command *command;

    if (argc == 1) {
        for (command = cli_commands; command->name; command++)
            printf("%s\n", command->name);
        return CLI_OK;
    }
    if (strcmp(argv[1], "--layouts") == 0 && argc == 2)
        return print_layouts();
    if (strcmp(argv[1], "--feeds") == 0 &&
        (argc == 2 || (argc == 4 && strcmp(argv[2], "--endpoint") == 0)))
        return print_feeds(argc == 4 ? argv[3] : NULL);
    for (command = cli_commands; command->name && strcmp(command->name, argv[1]) != 0; command++)
        ;
    if (!command->name || argc > 3)
        return cli_usage("names");
    if (argc == 3)
        print_value(command->usage, argv[2]);
    else
        print_words(command->usage);
    return CLI_OK;
}
