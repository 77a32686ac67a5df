/* Counters as data: the part that counts owns a table of these, the status document and the metrics
 * walk it. */
#ifndef TRAJD_BASE_COUNTER_H
#define TRAJD_BASE_COUNTER_H

#include <stdint.h>

enum trajd_counter_kind {
    TRAJD_COUNTER_TOTAL, /* only grows */
    TRAJD_COUNTER_GAUGE, /* what is now */
};

struct trajd_counter {
    const char *name; /* snake_case, with the unit last where it has one: "stall_ns" */
    const char *help; /* one sentence */
    const char *unit; /* "batches", "bytes", "ns" */
    enum trajd_counter_kind kind;
    uint64_t value;
};

/* Relaxed everywhere: a counter is read on its own and orders nothing; that no step is lost is what
 * matters, and atomicity alone gives that. */
static inline void trajd_counter_add(struct trajd_counter *counter, uint64_t step)
{
    __atomic_fetch_add(&counter->value, step, __ATOMIC_RELAXED);
}

static inline void trajd_counter_set(struct trajd_counter *counter, uint64_t value)
{
    __atomic_store_n(&counter->value, value, __ATOMIC_RELAXED);
}

static inline uint64_t trajd_counter_read(const struct trajd_counter *counter)
{
    return __atomic_load_n(&counter->value, __ATOMIC_RELAXED);
}

#endif
