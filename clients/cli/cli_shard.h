/* The option --shard I/N: one of N runs over a list of files, on any machines that share the folder
 * of the outputs. Each input becomes one output of the same name.
 *
 * The list is put in the natural order of the names, and file k of it belongs to shard k mod N. A
 * shard writes a record beside its outputs (cli_shard_record.h). A shard that is started again skips the
 * files that it has finished, and makes again the one at which it was killed. `trajctl merge` checks
 * that all shards are there. */
#ifndef TRAJD_CLI_SHARD_H
#define TRAJD_CLI_SHARD_H

#include "clients/cli/preprocess/prep_record.h"

enum { SHARD_COUNT_MAX = 10000 };

struct shard {
    uint32_t index, count; /* count 0: the option was not given */
};

/* Returns which shard makes a file of an inbox. It depends only on the name, because an inbox
 * changes while shards work on it. */
uint32_t shard_of_name(const char *name, uint32_t shard_count);

/* The options of one command line, which must be the same for all shards: its words but for
 * operands and what does not change the outputs, and a digest of each file that they name. Called
 * once, before cli_parse; the text stays until the program ends. */
const char *shard_recipe(int argc, char **argv);

/* What a command does with its list. */
struct shard_work {
    struct shard shard;
    const char *folder; /* of the outputs; it is made if it is missing */
    const char *recipe;
    char **inputs; /* files, or folders, which stand for all *.hdf5 and *.h5 below them */
    uint32_t input_count;
    /* Makes the output of an input and fills in the record: layout (a copy, which shard_do frees),
     * rate_hz, episodes, left_out and cut. *part_count: files, if the parts of an episode are files
     * of their own; else 0. `force`: an earlier run of this shard left something at the output's
     * place. Prints its errors. */
    int (*make)(void *context, const char *input, const char *output, bool force,
                struct prep_record *record, uint32_t *part_count);
    void *context;
};

/* Makes the outputs of a shard. Goes on with the next file after one that fails. Prints what it does,
 * and returns enum cli_exit. Ends the program if the list, the folder or the record has a fault. */
int shard_do(const struct shard_work *work);

/* Writes the record of a shard of an inbox, whose files have manifests in the folder. */
enum trajd_status shard_write_inbox(const struct shard *shard, const char *folder,
                                    const char *recipe, const char *const *names, uint32_t count,
                                    struct trajd_error *error);

#endif
