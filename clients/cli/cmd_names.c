/* trajctl names: prints the words that may come next on a command line, for completions. They come
 * from the table of commands, from a daemon, or from the installed layouts. Prints one word a line;
 * a word in capitals is a placeholder (FILE, FEED, NAME). */
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "clients/c/trajd.h"
#include "clients/cli/cli.h"
#include "clients/cli/cli_query.h"
#include "daemon/base/paths.h"

#define CONNECT_MS 300 /* short, because a user waits at the terminal */
#define MAX_USAGE 1024

/* Copies the usage without brackets and dots, up to the redirection of the output. */
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

/* Prints the command's options and its other arguments. */
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
        /* The word after an option is its value. After a flag comes another option or a bracket. */
        is_value = *word == '-';
        if (is_value && remainder && *remainder == ' ')
            is_value = false;
    }
}

/* Prints the value of the option, or nothing for a flag. */
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
        if (!strpbrk(cli_text(feed, "name"), ":#")) /* only feeds of the configuration */
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
        return cli_fail("the layouts were found neither beside this program nor below its prefix");
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
    command = cli_find_command(argv[1]);
    if (!command || argc > 3)
        return cli_usage("names");
    if (argc == 3)
        print_value(command->usage, argv[2]);
    else
        print_words(command->usage);
    return CLI_OK;
}
