/* trajctl has one file for each subcommand. trajctl.c has the table of them. Each subcommand has one
 * table of options, from which the parser, --help, the completions and the test of the manual
 * read. */
#ifndef TRAJD_CLI_CLI_H
#define TRAJD_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Exit statuses of every subcommand. */
enum cli_exit { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* What an option sets. All but the last two kinds set the member at `offset` of the command's
 * struct. */
enum cli_kind {
    CLI_END,    /* ends the table */
    CLI_FLAG,   /* a bool; the option has no value */
    CLI_TEXT,   /* a const char * */
    CLI_U32,    /* a uint32_t from `least` to `most`; most 0: no limit */
    CLI_U64,    /* the same as a uint64_t */
    CLI_TIME,   /* an int64_t in ns, not below `least` */
    CLI_RATE,   /* a struct trajd_rate */
    CLI_CHOICE, /* an enum that counts the words of `value`, which '|' separates */
    CLI_CALL,   /* what `set` sets */
    CLI_TABLE,  /* no option: `table` has more of them, whose struct is at `offset` */
};

struct cli_option {
    const char *name;  /* "--rate" or "-o" */
    const char *value; /* for people: "HZ", "cpu|cuda", "[HZ]" if it may be left out; NULL: none */
    const char *help;  /* one line */
    enum cli_kind kind;
    size_t offset;
    uint64_t least, most;
    /* Reads a value, which is NULL where it may be left out, or refuses it by cli_refuse. */
    void (*set)(void *options, const struct cli_option *option, char *value);
    const struct cli_option *table;
};

struct cli_command {
    const char *name;
    const char *operands; /* for people: the words that are not options, and options that must be */
    const char *help;     /* one line */
    int (*run)(int argc, char **argv); /* argv[0] is the subcommand; returns enum cli_exit */
    const struct cli_option *options;
    int least, most;     /* operands */
    const char *missing; /* what to name where there are too few, such as "a feed" */
};

enum { CLI_OPTIONS_MAX = 40, CLI_MANY = 1 << 30 };

int cli_inspect(int argc, char **argv);
int cli_init(int argc, char **argv);
int cli_check(int argc, char **argv);
int cli_validate(int argc, char **argv);
int cli_resample(int argc, char **argv);
int cli_pack(int argc, char **argv);
int cli_plot(int argc, char **argv);
int cli_status(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_metrics(int argc, char **argv);
int cli_recv(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_diff(int argc, char **argv);
int cli_stats(int argc, char **argv);
int cli_preprocess(int argc, char **argv);
int cli_reload(int argc, char **argv);
int cli_keygen(int argc, char **argv);
int cli_merge(int argc, char **argv);
int cli_names(int argc, char **argv);
extern const struct cli_option cli_inspect_options[], cli_init_options[], cli_validate_options[],
    cli_plot_options[], cli_status_options[], cli_doctor_options[], cli_metrics_options[],
    cli_recv_options[], cli_bench_options[], cli_explain_options[], cli_diff_options[],
    cli_stats_options[], cli_reload_options[], cli_keygen_options[], cli_names_options[],
    cli_resample_options[], cli_pack_options[], cli_preprocess_options[], cli_merge_options[];
/* The option --shard of struct shard (cli_shard.h), of several commands. */
extern const struct cli_option cli_shard_options[];
/* Options of struct frame_resize (frames/frame_read.h), of several commands. */
extern const struct cli_option cli_resize_options[];

/* The table of commands; the last one has the name NULL. main sets it, and the command that runs. */
extern const struct cli_command *cli_commands, *cli_running;

/* Returns the command of that name, or NULL. */
const struct cli_command *cli_find_command(const char *name);
/* Prints that a command is unknown, with the nearest one. Returns CLI_USAGE. */
int cli_refuse_command(const char *name);

/* Reads the options into the command's struct, which holds the defaults, and moves the operands to
 * argv[1] and on. Returns the number of operands. Ends the program after --help, and after a mistake,
 * which it prints with the command's usage. */
int cli_parse(int argc, char **argv, void *options);
/* Returns the name of the option of the running command at argv[*i], and its value, at which *i
 * then stands. NULL: there is none. For commands that repeat their options, before cli_parse. */
const char *cli_option_at(int argc, char **argv, int *i, const char **value);
/* Copies the options of the command, those of tables in its table too. CLI_END ends the copy. */
void cli_list_options(const struct cli_command *command, struct cli_option rows[CLI_OPTIONS_MAX]);
/* Reads a value of the kind into a place of its own, or refuses it. */
void cli_read(const struct cli_option *option, enum cli_kind kind, const char *text, void *place);

/* Prints "trajctl: MESSAGE" on stderr, and returns CLI_FAILED. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
struct trajd_error;
/* Prints the error of a file, with the file's path once, and returns CLI_FAILED. */
int cli_fail_at(const char *path, const struct trajd_error *error);
/* The same, and ends the program with CLI_FAILED. */
void cli_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Opens a file for writing, and makes or empties it. Ends the program where that fails, also for a
 * pipe that no process reads: open would wait for one. */
int cli_create(const char *path);
/* Prints the message and the usage of the command that runs, and ends with CLI_USAGE. */
void cli_refuse(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Prints the usage of the command that runs. */
void cli_print_usage(FILE *out);
/* SIGINT and SIGTERM set it after cli_catch_signals, atomically. Exceeding the limit of the size of a
 * file is an error of the write from then on. */
extern bool cli_is_interrupted;
void cli_catch_signals(void);
/* Prints "note: TEXT" on stderr. `context` is ignored: a callback may be it. */
void cli_note(void *context, const char *text);
/* Ends the program. A status of CLI_OK becomes CLI_FAILED if the output could not be written: on a
 * full disk, a truncated document must not end with status 0. */
void cli_end(int status) __attribute__((noreturn));

#endif
