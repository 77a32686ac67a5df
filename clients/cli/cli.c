#include "clients/cli/cli.h"

#include <stdarg.h>
#include <string.h>

#include "daemon/base/progress/progress.h"

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

int cli_usage(const char *command)
{
    const struct cli_command *found = cli_find_command(command);

    fprintf(stderr, "usage: trajctl %s %s\n", command, found ? found->usage : "...");
    return CLI_USAGE;
}
