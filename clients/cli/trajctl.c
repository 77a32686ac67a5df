#include <string.h>

#include "clients/cli/cli.h"
#include "daemon/base/progress/progress.h"

static const struct cli_command commands[] = {
    {"inspect", cli_inspect,
     "[--layout NAME] [--json] [--frame STREAM:ROW -o FILE.png [--episode ID] [--resize HxW] "
     "[--filter NAME] [--fit NAME]] FILE-OR-FOLDER...",
     "show what is in HDF5 files: episodes, streams, clocks, storage, and problems"},
    {"init", cli_init,
     "[--layout NAME] [--preset act|diffusion_policy|lerobot|openpi|robomimic] [-o FILE.yaml] "
     "FILE-OR-FOLDER",
     "print a first configuration, with a guessed layout and the rates of its clocks"},
    {"check", cli_check, "CONFIG",
     "show every output of a configuration with its source, clock, kind, grid and tensor"},
    {"validate", cli_validate,
     "[--layout NAME] [--ignore RULE]... [--decode] [--idle FILE.json [--idle-streams NAME,...] "
     "[--idle-tolerance X] [--idle-length TIME]] [--json] FILE-OR-FOLDER...",
     "find faults in HDF5 files, with row numbers; the exit status is 1 if there are any"},
    {"resample", cli_resample,
     "FILE... -o FILE --rate HZ [--layout NAME] [--streams NAME,...] [--kind STREAM=KIND]... "
     "[--window [STREAM=]TIME]... [--dtype [STREAM=]TYPE]... "
     "[--max-gap [STREAM=]TIME]... [--episodes ID,...|A..B] [--filter KEY] [--compress "
     "keep|none|gzip[:LEVEL]] [--assume-rate[=HZ]] [--threads N] "
     "[--backend auto|cpu|cuda|daemon] [--endpoint DIR] [--dry-run] [--force] [--resume] [--json]",
     "resample every stream of HDF5 files to one regular grid, into a new file of the same layout"},
    {"pack", cli_pack,
     "FILE... -o FILE-OR-FOLDER [--prepare CONFIG[:FEED[:DATASET]]|PRESET] [--layout NAME] "
     "[--force] "
     "[--resume]",
     "copy HDF5 files with their JPEG and PNG frames in one piece, which any reader finds by "
     "offsets, or decoded and resized as a feed asks for"},
    {"plot", cli_plot,
     "FILE STREAM [--layout NAME] [--episode ID] [--rate HZ] [--kind KIND] [--window TIME] [--from "
     "TIME] [--to TIME] [--resize HEIGHTxWIDTH [--filter NAME] [--fit HOW]] [-o FILE.svg|FILE.png]",
     "draw a stream over time, as recorded and as resampled, on the terminal or as SVG; pictures "
     "as "
     "a film strip"},
    {"status", cli_status, "[--endpoint DIR|tcp://HOST:PORT --key FILE] [--watch] [--json]",
     "show what a daemon is doing: feeds, workers, rates, stalls; without an endpoint, list your "
     "daemons"},
    {"doctor", cli_doctor,
     "[CONFIG] [--seconds N] [--endpoint DIR|tcp://HOST:PORT --key FILE] [--json]",
     "check that trajd works on this machine, and find what will be slow; the exit status is 1 if "
     "it "
     "does not work"},
    {"metrics", cli_metrics, "[--http] [--endpoint DIR|tcp://HOST:PORT --key FILE]",
     "print a daemon's counters as OpenMetrics text, or answer one HTTP request with them"},
    {"recv", cli_recv,
     "FEED [--count N] [--epoch N] [--next POSITION] [--rank R --world W] [--job NAME] [--credit "
     "N] [--endpoint DIR|tcp://HOST:PORT --key FILE] [--json]",
     "read batches as a worker, and print what is in them"},
    {"bench", cli_bench,
     "FEED [--seconds N] [--workers N] [--credit N] [--endpoint DIR|tcp://HOST:PORT --key FILE] "
     "[--json]",
     "read batches as fast as possible, and print rate, latency and stalls"},
    {"explain", cli_explain,
     "FEED --window ID | --position P [--epoch E] [--output NAME] [--first STEP] [--count N] "
     "[--endpoint DIR|tcp://HOST:PORT --key FILE] [--json]",
     "show where a window's steps come from: source rows, times, weights, and why a step is "
     "masked"},
    {"diff", cli_diff, "ENDPOINT ENDPOINT FEED [--key FILE]",
     "show which episodes make the fingerprints of a feed differ on two daemons; the exit status "
     "is 1 if they differ"},
    {"stats", cli_stats,
     "FEED [-o FILE] [--format trajd|openpi|lerobot] [--output NAME|stream:NAME] [--endpoint "
     "DIR|tcp://HOST:PORT --key FILE] [--json]",
     "print mean, std, min, max and quantiles of a feed's outputs, or write them to a file for "
     "other tools"},
    {"preprocess", cli_preprocess, "CONFIG [--shard I/N] [--once]",
     "validate, resample and publish the files of an inbox; quarantine faulty files with a report"},
    {"reload", cli_reload, "[--wait] [--endpoint DIR]",
     "make a daemon read its configuration again; --wait prints the result, and the exit status is "
     "1 if it was refused"},
    {"keygen", cli_keygen, "DIR [--client NAME]",
     "make the CURVE keys of a daemon, or of a remote worker"},
    {"names", cli_names, "[COMMAND [OPTION] | --layouts | --feeds [--endpoint DIR]]",
     "print the words that may come next on a command line, for completions"},
    {NULL, NULL, NULL, NULL},
};

static void print_help(FILE *file)
{
    fprintf(file, "usage: trajctl COMMAND ...\n\n");
    for (const struct cli_command *command = commands; command->name; command++)
        fprintf(file, "  trajctl %s %s\n      %s\n", command->name, command->usage, command->help);
}

static bool asks_for_help(const char *word)
{
    return !strcmp(word, "--help") || !strcmp(word, "-h");
}

static int run(int argc, char **argv)
{
    const struct cli_command *command = argc > 1 ? cli_find_command(argv[1]) : NULL;

    if (argc > 1 && (asks_for_help(argv[1]) || !strcmp(argv[1], "help"))) {
        print_help(stdout);
        return CLI_OK;
    }
    if (argc > 1 && !strcmp(argv[1], "--version")) {
        printf("trajctl %s\n", TRAJD_VERSION);
        return CLI_OK;
    }
    if (argc > 1 && !command)
        return cli_refuse_command(argv[1]);
    if (!command) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (argc == 3 && asks_for_help(argv[2])) {
        printf("usage: trajctl %s %s\n      %s\n", command->name, command->usage, command->help);
        return CLI_OK;
    }
    return command->run(argc - 1, argv + 1);
}

/* Checks that the output was written: on a full disk, a truncated document must not end with status
 * 0. */
int main(int argc, char **argv)
{
    int status;

    cli_commands = commands;
    trajd_progress_begin_on_stderr();
    status = run(argc, argv);
    trajd_progress_clear();
    if ((fflush(stdout) || ferror(stdout)) && status == CLI_OK)
        return cli_fail("standard output: %m");
    return status;
}
