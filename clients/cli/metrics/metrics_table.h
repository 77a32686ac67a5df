/* The metrics of trajctl metrics, as data: where each number stands in the status document. */
#ifndef TRAJD_CLI_METRICS_METRICS_TABLE_H
#define TRAJD_CLI_METRICS_METRICS_TABLE_H

#include <stddef.h>

/* The parts of the status document. Each one gives its samples labels of its own. */
enum metrics_list {
    METRICS_DAEMON,        /* no label */
    METRICS_DATASETS,      /* dataset */
    METRICS_GPUS,          /* gpu */
    METRICS_FEEDS,         /* feed */
    METRICS_JOBS,          /* feed, job */
    METRICS_PRODUCERS,     /* feed */
    METRICS_FEED_DATASETS, /* feed, dataset */
    METRICS_WORKERS,       /* feed, worker, rank, pid, session */
};

struct metrics_sample {
    enum metrics_list list;
    const char *key; /* of an item of the list; a dot leads into a member: "store.total_bytes" */
    double scale;    /* from the document's unit to the metric's; 0: 1 */
    const char *label, *value; /* one more label, or NULL */
};

/* Names, types and labels are stable: a new version adds some, and changes none. */
struct metrics_family {
    const char *name; /* with the unit last; a counter's samples have _total behind it */
    const char *type; /* "counter" or "gauge" */
    const char *help;
    const struct metrics_sample *samples; /* ends with a key of NULL */
};

extern const struct metrics_family metrics_families[];
extern const size_t metrics_family_count;

#endif
