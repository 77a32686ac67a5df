/* What the subcommands share: the table of commands, failures and usage, output files, and the
 * end of the program. */
#include "clients/cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/base/progress/progress.h"
#include "daemon/base/yaml.h"

enum { COMMANDS_MAX = 64 };

const struct cli_command *cli_commands, *cli_running;
bool cli_is_interrupted;

const struct cli_command *cli_find_command(const char *name)
{
    for (const struct cli_command *command = cli_commands; command->name; command++)
        if (!strcmp(command->name, name))
            return command;
    return NULL;
}

int cli_refuse_command(const char *name)
{
    const char *names[COMMANDS_MAX];
    size_t count = 0;

    for (; cli_commands[count].name && count < COMMANDS_MAX; count++)
        names[count] = cli_commands[count].name;
    cli_fail("unknown command: %s%s; `trajctl --help` shows all", name,
             trajd_yaml_suggest(" (", name, names, count, ")").text);
    return CLI_USAGE;
}

static void print_failure(const char *format, va_list arguments)
{
    trajd_progress_clear();
    fprintf(stderr, "trajctl: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
}

int cli_fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_failure(format, arguments);
    va_end(arguments);
    return CLI_FAILED;
}

void cli_die(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_failure(format, arguments);
    va_end(arguments);
    cli_end(CLI_FAILED);
}

void cli_refuse(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_failure(format, arguments);
    va_end(arguments);
    cli_print_usage(stderr);
    fprintf(stderr, "`trajctl %s --help` shows the options\n", cli_running->name);
    cli_end(CLI_USAGE);
}

void cli_print_usage(FILE *out)
{
    fprintf(out, "usage: trajctl %s%s%s%s\n", cli_running->name, *cli_running->operands ? " " : "",
            cli_running->operands, cli_running->options ? " [OPTION...]" : "");
}

int cli_fail_at(const char *path, const struct trajd_error *error)
{
    const bool is_named = strstr(error->message, path);

    return cli_fail("%s%s%s", is_named ? "" : path, is_named ? "" : ": ", error->message);
}

int cli_create(const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
    const int code = errno;
    struct stat about;

    if (fd < 0 && code == ENXIO && !stat(path, &about) && S_ISFIFO(about.st_mode))
        cli_die("%s: a pipe that no process reads: start its reader first", path);
    errno = code;
    if (fd < 0 || fcntl(fd, F_SETFL, O_WRONLY))
        cli_die("%s: %m", path);
    return fd;
}

static void on_signal(int number)
{
    (void)number;
    __atomic_store_n(&cli_is_interrupted, true, __ATOMIC_RELAXED);
}

void cli_catch_signals(void)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN);
}

void cli_note(void *context, const char *text)
{
    (void)context;
    trajd_progress_clear();
    fprintf(stderr, "note: %s\n", text);
}

void cli_end(int status)
{
    trajd_progress_clear();
    if ((fflush(stdout) || ferror(stdout)) && status == CLI_OK)
        status = cli_fail("standard output: %m");
    exit(status);
}
