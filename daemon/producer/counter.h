/* Counters as data. A producer owns a table of them, which the status document lists. */
#ifndef TRAJD_PRODUCER_COUNTER_H
#define TRAJD_PRODUCER_COUNTER_H

#include <stdint.h>

enum trajd_counter_kind {
    TRAJD_COUNTER_TOTAL, /* only grows */
    TRAJD_COUNTER_GAUGE, /* a current value */
};

struct trajd_counter {
    const char *name; /* snake_case, with the unit last where it has one: "stall_ns" */
    const char *help; /* one sentence */
    const char *unit; /* "batches", "bytes", "ns" */
    enum trajd_counter_kind kind;
    uint64_t value;
};

/* All accesses are relaxed: a counter orders no other memory. Atomicity alone makes sure that no
 * step is lost. */
static inline void trajd_counter_add(struct trajd_counter *counter, uint64_t step)
{
    __atomic_fetch_add(&counter->value, step, __ATOMIC_RELAXED);
}

static inline uint64_t trajd_counter_read(const struct trajd_counter *counter)
{
    return __atomic_load_n(&counter->value, __ATOMIC_RELAXED);
}

#endif
