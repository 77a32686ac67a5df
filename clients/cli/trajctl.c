/* trajctl: the table of subcommands, and main. */
#include <string.h>

#include "clients/cli/cli.h"
#include "daemon/base/progress/progress.h"

static const struct cli_command commands[] = {
    {"inspect", "FILE-OR-FOLDER...",
     "show what is in HDF5 files: episodes, streams, clocks, storage, and problems", cli_inspect,
     cli_inspect_options, 1, CLI_MANY, "one or more files"},
    {"init", "FILE-OR-FOLDER",
     "print a first configuration, with a guessed layout and the rates of its clocks", cli_init,
     cli_init_options, 1, 1, "a file or folder"},
    {"check", "CONFIG",
     "show every output of a configuration with its source, clock, kind, grid and tensor",
     cli_check, NULL, 1, 1, "a configuration file"},
    {"validate", "FILE-OR-FOLDER...",
     "find faults in HDF5 files, with row numbers; the exit status is 1 if there are any",
     cli_validate, cli_validate_options, 1, CLI_MANY, "one or more files"},
    {"resample", "FILE... -o FILE --rate HZ",
     "resample every stream of HDF5 files to one regular grid, into a new file of the same layout",
     cli_resample, cli_resample_options, 1, CLI_MANY, "one or more files"},
    {"pack", "FILE... -o FILE-OR-FOLDER",
     "copy HDF5 files with their JPEG and PNG frames in one piece, which any reader finds by "
     "offsets, or decoded and resized as a feed asks for",
     cli_pack, cli_pack_options, 1, CLI_MANY, "one or more files, and the output with -o"},
    {"plot", "FILE [STREAM]",
     "draw a stream over time on the terminal, as recorded and as resampled; images as a film "
     "strip; without a stream, list the streams",
     cli_plot, cli_plot_options, 1, 2, "a file"},
    {"status", "",
     "show what a daemon is doing: feeds, workers, rates, stalls; without an endpoint, list your "
     "daemons",
     cli_status, cli_status_options, 0, 0, NULL},
    {"doctor", "[CONFIG]",
     "check that trajd works on this machine, and find what will be slow; the exit status is 1 if "
     "it does not work",
     cli_doctor, cli_doctor_options, 0, 1, NULL},
    {"metrics", "",
     "print a daemon's counters as OpenMetrics text, or answer one HTTP request with them",
     cli_metrics, cli_metrics_options, 0, 0, NULL},
    {"recv", "FEED", "read batches as a worker, and print what is in them", cli_recv,
     cli_recv_options, 1, 1, "a feed"},
    {"bench", "FEED", "read batches as fast as possible, and print rate, latency and stalls",
     cli_bench, cli_bench_options, 1, 1, "a feed"},
    {"explain", "FEED --window ID | --position P",
     "show where a window's steps come from: source rows, times, weights, and why a step is masked",
     cli_explain, cli_explain_options, 1, 1, "a feed"},
    {"diff", "ENDPOINT ENDPOINT FEED",
     "show which episodes make the fingerprints of a feed differ on two daemons; the exit status "
     "is 1 if they differ",
     cli_diff, cli_diff_options, 3, 3, "two endpoints and a feed"},
    {"stats", "FEED",
     "print mean, std, min, max and quantiles of a feed's outputs, or write them to a file for "
     "other tools",
     cli_stats, cli_stats_options, 1, 1, "a feed"},
    {"preprocess", "CONFIG",
     "validate, resample and publish the files of an inbox; quarantine faulty files with a report",
     cli_preprocess, cli_preprocess_options, 1, 1, "a configuration file"},
    {"merge", "DIR",
     "check that all shards have made their files in a folder, and join their manifests", cli_merge,
     cli_merge_options, 1, 1, "a folder"},
    {"reload", "",
     "make a daemon read its configuration again; --wait prints the result, and the exit status is "
     "1 if it was refused",
     cli_reload, cli_reload_options, 0, 0, NULL},
    {"keygen", "DIR", "make the CURVE keys of a daemon, or of a remote worker", cli_keygen,
     cli_keygen_options, 1, 1, "a folder"},
    {"names", "[COMMAND [OPTION]]",
     "print the words that may come next on a command line, for completions", cli_names,
     cli_names_options, 0, 2, NULL},
    {NULL}};

static void print_help(FILE *file)
{
    fprintf(file, "usage: trajctl COMMAND [OPTION...]\n\n");
    for (const struct cli_command *command = commands; command->name; command++)
        fprintf(file, "  trajctl %s %s\n      %s\n", command->name, command->operands,
                command->help);
    fprintf(file, "\n`trajctl COMMAND --help` lists the options of a command, and trajctl(1) "
                  "describes them.\n");
}

static int run(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";

    cli_running = cli_find_command(word);
    if (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help")) {
        print_help(stdout);
        return CLI_OK;
    }
    if (!strcmp(word, "--version")) {
        printf("trajctl %s\n", TRAJD_VERSION);
        return CLI_OK;
    }
    if (cli_running)
        return cli_running->run(argc - 1, argv + 1);
    if (argc > 1)
        return cli_refuse_command(word);
    print_help(stderr);
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    cli_commands = commands;
    trajd_progress_begin_on_stderr();
    cli_end(run(argc, argv));
}
