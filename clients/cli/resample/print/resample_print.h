/* What trajctl resample prints: progress, notes, the plan and the result, as text or as lines
 * of JSON. */
#ifndef TRAJD_CLI_RESAMPLE_PRINT_RESAMPLE_PRINT_H
#define TRAJD_CLI_RESAMPLE_PRINT_RESAMPLE_PRINT_H

#include "clients/cli/resample/convert.h"

struct resample_printer {
    struct trajd_rate rate;
    const char *output; /* the output's path */
    bool json;          /* one JSON object a line on stdout, progress too */
};

/* Callbacks of struct trajd_convert_options. `context` is the struct resample_printer. */
void resample_print_note(void *context, const char *text);
void resample_print_plan(void *context, const struct trajd_convert_report *plan);
void resample_print_progress(void *context, const struct trajd_convert_progress *progress);

/* Prints the result of a finished conversion. */
void resample_print_report(const struct resample_printer *printer,
                           const struct trajd_convert_report *report);
#endif
