/* The findings of trajctl doctor. Each one is printed at once, because the next check may take
 * seconds. */
#ifndef TRAJD_CLI_DOCTOR_DOCTOR_REPORT_H
#define TRAJD_CLI_DOCTOR_DOCTOR_REPORT_H

#include <stdint.h>

#include "daemon/base/json.h"

enum doctor_level {
    DOCTOR_OK,
    DOCTOR_SLOW, /* it works, but slower than it could */
    DOCTOR_FAIL, /* it does not work */
    DOCTOR_LEVELS,
};

/* The caller zeroes it, and sets is_json. */
struct doctor_report {
    bool is_json;
    struct trajd_json json;
    uint32_t counts[DOCTOR_LEVELS];
};

void doctor_begin(struct doctor_report *report);
/* Prints one finding. `topic` is one word, and stays the same from version to version. */
void doctor_add(struct doctor_report *report, enum doctor_level level, const char *topic,
                const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Prints the result. Returns true if no finding is DOCTOR_FAIL. */
bool doctor_end(struct doctor_report *report);

#endif
