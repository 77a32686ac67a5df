/* Hands finished batches to the server, for production on the CPU and on a GPU. */
#include "daemon/producer/producer_internal.h"
#include "proto/array_len.h"

/* The counters of the work that a worker may wait for. */
static const struct {
    enum trajd_work work;
    int counter;
} counted[] = {{TRAJD_WORK_ROWS, TRAJD_PRODUCER_LOAD_NS},
               {TRAJD_WORK_DECODE, TRAJD_PRODUCER_FRAMES_NS},
               {TRAJD_WORK_KERNELS, TRAJD_PRODUCER_RESAMPLE_NS}};

static void set_work(struct trajd_producer *producer, struct trajd_fill *fill)
{
    for (size_t i = 0; i < ARRAY_LEN(counted); i++) {
        const uint64_t sum_ns = trajd_counter_read(&producer->counters[counted[i].counter]);
        fill->work_ns[counted[i].work] = sum_ns - producer->published_work_ns[counted[i].work];
        producer->published_work_ns[counted[i].work] = sum_ns;
    }
}

void trajd_producer_publish(struct trajd_producer *producer, const struct trajd_fill *fill,
                            const struct trajd_error *failure)
{
    struct trajd_fill done = *fill;
    struct trajd_error error;

    if (failure) {
        error = *failure;
        trajd_producer_fail_batch(producer, fill, &error);
    }
    trajd_counter_add(&producer->counters[TRAJD_PRODUCER_BATCHES], 1);
    for (uint32_t r = 0; r < fill->range_count; r++)
        trajd_counter_add(&producer->counters[TRAJD_PRODUCER_WINDOWS], fill->ranges[r].count);
    set_work(producer, &done);
    trajd_feed_publish(producer->feed, &done, failure ? &error : NULL);
}
