#include "clients/cli/cli.h"

#include <stdarg.h>
#include <string.h>

#include "daemon/base/progress/progress.h"
#include "daemon/base/yaml.h"

enum { NAMES_MAX = 64, NAME_SIZE = 32 };

const struct cli_command *cli_commands;

const struct cli_command *cli_find_command(const char *name)
{
    for (const struct cli_command *command = cli_commands; command->name; command++)
        if (!strcmp(command->name, name))
            return command;
    return NULL;
}

int cli_fail(const char *format, ...)
{
    va_list arguments;

    trajd_progress_clear();
    fprintf(stderr, "trajctl: ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    return CLI_FAILED;
}

int cli_fail_at(const char *path, const struct trajd_error *error)
{
    const bool is_named = strstr(error->message, path);

    return cli_fail("%s%s%s", is_named ? "" : path, is_named ? "" : ": ", error->message);
}

int cli_usage(const char *command)
{
    const struct cli_command *found = cli_find_command(command);

    fprintf(stderr, "usage: trajctl %s %s\n", command, found ? found->usage : "...");
    return CLI_USAGE;
}

/* Copies the options out of a usage, such as --rate of "[--rate HZ]". Returns their number. */
static size_t list_options(const char *usage, char names[NAMES_MAX][NAME_SIZE])
{
    static const char between[] = " []|=";
    size_t count = 0;

    while (*(usage += strspn(usage, between)) && count < NAMES_MAX) {
        const size_t length = strcspn(usage, between);
        if (*usage == '-' && length < NAME_SIZE)
            snprintf(names[count++], NAME_SIZE, "%.*s", (int)length, usage);
        usage += length;
    }
    return count;
}

int cli_refuse_option(const char *command, const char *option)
{
    const struct cli_command *found = cli_find_command(command);
    const char *value = strchr(option, '='), *nearest, *list[NAMES_MAX];
    char names[NAMES_MAX][NAME_SIZE], name[NAME_SIZE];
    const size_t count = found ? list_options(found->usage, names) : 0;

    for (size_t i = 0; i < count; i++)
        list[i] = names[i];
    snprintf(name, sizeof name, "%.*s", value ? (int)(value - option) : NAME_SIZE, option);
    nearest = trajd_yaml_nearest(name, list, count);
    if (nearest && strcmp(nearest, option) == 0)
        cli_fail("%s needs a value", option);
    else if (nearest)
        cli_fail("unknown option: %s (did you mean %s%s%s?)", option, nearest, value ? " " : "",
                 value ? value + 1 : "");
    else
        cli_fail("unknown option: %s", option);
    return CLI_USAGE;
}

int cli_refuse_command(const char *name)
{
    const char *names[NAMES_MAX], *nearest;
    size_t count = 0;

    while (cli_commands[count].name && count < NAMES_MAX) {
        names[count] = cli_commands[count].name;
        count++;
    }
    nearest = trajd_yaml_nearest(name, names, count);
    cli_fail("unknown command: %s%s%s%s; `trajctl --help` shows all", name,
             nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
    return CLI_USAGE;
}
