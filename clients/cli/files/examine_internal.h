/* What the files that examine an index share. Private to them. */
#ifndef TRAJD_CLI_FILES_EXAMINE_INTERNAL_H
#define TRAJD_CLI_FILES_EXAMINE_INTERNAL_H

#include "clients/cli/files/examine.h"
#include "daemon/index/rows/encoded.h"

struct examiner {
    const struct trajd_index *index;
    struct trajd_array_reader *reader;
    struct trajd_encoded_reader *encoded;
    void (*report)(void *context, const struct examine_finding *finding);
    void *context;
};

/* Reports a finding with this text. */
void examine_report(struct examiner *examiner, const struct examine_finding *base,
                    const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- examine_clocks.c ---- */

/* Report what the index refused, quarantined and left out, and rates that are assumed. */
void examine_refusals(struct examiner *examiner);
void examine_rates(struct examiner *examiner);
/* Reports rows that were dropped and gaps of an episode. TRAJD_ERR_MEMORY. */
enum trajd_status examine_clocks(struct examiner *examiner, const struct trajd_episode *episode,
                                 struct trajd_error *error);

#endif
