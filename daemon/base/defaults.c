/* Computes slots, credit and threads from the size of a batch, the memory for rings and the
 * cores. */
#include "daemon/base/defaults.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "proto/plural.h"

#define RING_BYTES ((uint64_t)64 << 20)

#define READERS 8 /* they mostly wait: a read from a network takes tens of milliseconds */

static uint32_t between(uint64_t count, uint32_t least, uint32_t most)
{
    return count < least ? least : count > most ? most : (uint32_t)count;
}

uint32_t trajd_default_slots(uint64_t slot_bytes, uint64_t room_bytes)
{
    return between((room_bytes < RING_BYTES ? room_bytes : RING_BYTES) / slot_bytes,
                   TRAJD_SLOTS_LEAST, TRAJD_SLOTS_MOST);
}

const char *trajd_slots_reason(uint32_t stated, uint64_t slot_bytes, uint32_t count)
{
    if (stated)
        return "as the feed says";
    if (count != trajd_default_slots(slot_bytes, UINT64_MAX))
        return "as the memory for rings allows";
    return count == TRAJD_SLOTS_MOST    ? "the most: batches are small"
           : count == TRAJD_SLOTS_LEAST ? "the least: batches are large"
                                        : "as many as 64 MiB hold";
}

uint32_t trajd_default_credit(uint32_t slot_count)
{
    const uint32_t most = slot_count - slot_count / 4;

    return most > TRAJD_SLOTS_LEAST ? most : between(slot_count, 0, TRAJD_SLOTS_LEAST);
}

/* Returns the cores that this process may use, which a container or a job may limit. */
static uint32_t count_cores(void)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t allowed;

    if (!sched_getaffinity(0, sizeof allowed, &allowed))
        return between((uint64_t)CPU_COUNT(&allowed), 1, CPU_SETSIZE);
    return online > 0 ? (uint32_t)online : 1; /* more cores than the set has room for */
}

struct trajd_thread_choice trajd_choose_threads(const struct trajd_thread_counts *stated)
{
    const uint32_t cores = count_cores(), rest = cores > 1 ? cores - 1 : 1;

    return (struct trajd_thread_choice){
        .cores = cores,
        .counts = {.resample = stated->resample ? stated->resample : rest,
                   .readers = stated->readers ? stated->readers : READERS,
                   .decoders = stated->decoders ? stated->decoders : cores},
        .eager_decoders = stated->decoders ? stated->decoders : rest};
}

void trajd_threads_text(const struct trajd_thread_counts *stated, char *text, size_t size)
{
    const struct trajd_thread_choice choice = trajd_choose_threads(stated);
    const struct trajd_thread_counts counts = choice.counts;
    const char *const rest = choice.cores > 1 ? "one core is left to training" : "the only core",
                      *const all = choice.cores > 1
                                       ? "one per core, of which one gives way to training"
                                       : "one per core";

    snprintf(text, size,
             "%u core%s: %u thread%s to resample (%s), %u decoder%s (%s), %u reader%s for each "
             "dataset (%s)",
             choice.cores, trajd_plural(choice.cores), counts.resample,
             trajd_plural(counts.resample), stated->resample ? "threads.resample" : rest,
             counts.decoders, trajd_plural(counts.decoders),
             stated->decoders ? "threads.decoders" : all, counts.readers,
             trajd_plural(counts.readers),
             stated->readers ? "threads.readers" : "they mostly wait for storage");
}
