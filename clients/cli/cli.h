/* trajctl has one file for each subcommand. trajctl.c has the table of them. */
#ifndef TRAJD_CLI_CLI_H
#define TRAJD_CLI_CLI_H

#include <stdbool.h>
#include <stdio.h>

/* Exit statuses of every subcommand. */
enum cli_exit { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the subcommand; returns enum cli_exit */
    const char *usage;                 /* the arguments, after the name */
    const char *help;                  /* one line */
};

/* The table of commands; the last one has the name NULL. main sets it before a command runs. */
extern const struct cli_command *cli_commands;

/* Returns the command of that name, or NULL. */
const struct cli_command *cli_find_command(const char *name);

int cli_inspect(int argc, char **argv);
int cli_init(int argc, char **argv);
int cli_check(int argc, char **argv);
int cli_validate(int argc, char **argv);
int cli_status(int argc, char **argv);
int cli_recv(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_diff(int argc, char **argv);
int cli_stats(int argc, char **argv);
int cli_reload(int argc, char **argv);
int cli_preprocess(int argc, char **argv);
int cli_names(int argc, char **argv);
int cli_plot(int argc, char **argv);
int cli_resample(int argc, char **argv);
int cli_pack(int argc, char **argv);
int cli_keygen(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_metrics(int argc, char **argv);

/* Prints "trajctl: MESSAGE" on stderr, and returns CLI_FAILED. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
struct trajd_error;
/* Prints the error of a file, with the file's path once, and returns CLI_FAILED. */
int cli_fail_at(const char *path, const struct trajd_error *error);
/* Prints the usage of the subcommand on stderr, and returns CLI_USAGE. */
int cli_usage(const char *command);
/* Prints why the subcommand does not take an option: the option is the last word and lacks its
 * value, or it is unknown, with the nearest option of the subcommand's usage. Returns CLI_USAGE. */
int cli_refuse_option(const char *command, const char *option);
/* Prints that a command is unknown, with the nearest one. Returns CLI_USAGE. */
int cli_refuse_command(const char *name);

#endif
