#include "clients/cli/cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/progress/progress.h"
#include "daemon/base/yaml.h"

enum { COMMANDS_MAX = 64 };

const struct cli_command *cli_commands, *cli_running;

const struct cli_command *cli_find_command(const char *name)
{
    for (const struct cli_command *command = cli_commands; command->name; command++)
        if (!strcmp(command->name, name))
            return command;
    return NULL;
}

int cli_refuse_command(const char *name)
{
    const char *names[COMMANDS_MAX], *nearest;
    size_t count = 0;

    for (; cli_commands[count].name && count < COMMANDS_MAX; count++)
        names[count] = cli_commands[count].name;
    nearest = trajd_yaml_nearest(name, names, count);
    cli_fail("unknown command: %s%s%s%s; `trajctl --help` shows all", name,
             nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
    return CLI_USAGE;
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

void cli_end(int status)
{
    trajd_progress_clear();
    if ((fflush(stdout) || ferror(stdout)) && status == CLI_OK)
        status = cli_fail("standard output: %m");
    exit(status);
}
