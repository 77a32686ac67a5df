/* The rule for numbers that no key and no worker states: slots, credit and threads follow from the
 * bytes of a batch, the memory for rings, and the cores. It stands here and nowhere else.
 * `trajctl check` and `trajctl status` print what it gives, and why.
 *
 *   slots      of a ring: 4 to 16, as many as 64 MiB hold. More than 4 only where memory.rings has
 *              room for them. To hand a small batch over takes longer than to make it, unless several
 *              are returned at once while others are on their way: us per batch of 4 MiB that nobody
 *              looks at, credit 4: 43, 8: 21, 16: 11. More than 16 slots are not faster. A large
 *              batch takes long to make, which 4 slots hide.
 *   credit     of a worker: three quarters of the slots, 4 or all where there are no more, up to
 *              limits.credit. The rest stays for production, and for processes that join the job
 *              later. Of the workers of a job the one that holds the fewest gets the next batch.
 *   resample   threads: one per core, but one. That core is training's.
 *   decoders   one per core. The last one gives way to everything else: it gets training's core only
 *              while training waits.
 *   readers    of a dataset: one for two cores, 2 to 8. They mostly wait for storage. */
#ifndef TRAJD_BASE_DEFAULTS_H
#define TRAJD_BASE_DEFAULTS_H

#include <stddef.h>
#include <stdint.h>

enum { TRAJD_SLOTS_LEAST = 4, TRAJD_SLOTS_MOST = 16, TRAJD_THREADS_TEXT_SIZE = 256 };

/* Returns the slots of a ring. `room_bytes`: for all of them. */
uint32_t trajd_default_slots(uint64_t slot_bytes, uint64_t room_bytes);
/* Returns why a ring has `count` slots, in words. `stated`: by the feed, or 0. */
const char *trajd_slots_reason(uint32_t stated, uint64_t slot_bytes, uint32_t count);

/* Returns the credit of a worker in a ring of so many slots. */
uint32_t trajd_default_credit(uint32_t slot_count);

struct trajd_thread_counts {
    uint32_t resample, readers, decoders; /* 0: not stated */
};

struct trajd_thread_choice {
    uint32_t cores; /* that this process may use */
    struct trajd_thread_counts counts;
    uint32_t eager_decoders; /* the others give way */
};

/* Returns the counts that are stated, and in place of the others those of the rule. */
struct trajd_thread_choice trajd_choose_threads(const struct trajd_thread_counts *stated);
/* Writes the same with its reasons, as one line of text. */
void trajd_threads_text(const struct trajd_thread_counts *stated, char *text, size_t size);

#endif
