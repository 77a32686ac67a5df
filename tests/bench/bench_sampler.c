// libs: trajd_window
/* Measures the order of windows near its beginning and far out: the time to look up a batch and to
 * find the first window after a resume, for one dataset and for a mixture of three; and the memory,
 * for few windows and for 10^10 windows in as many episodes. */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/window/order/mixture.h"

#define EPISODES 10000u
#define BATCH 256u
#define TURNS 2000u

static struct trajd_segment segments[EPISODES];
static struct trajd_window windows[BATCH];

static uint64_t now_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

static uint64_t heap_bytes(void)
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static struct trajd_sampler *make_sampler(uint64_t window_count, uint64_t seed)
{
    struct trajd_sampler_options options = {
        .segments = segments, .segment_count = EPISODES, .seed = seed, .global_batch = BATCH};
    struct trajd_sampler *sampler;
    struct trajd_error error;

    for (uint32_t i = 0; i < EPISODES; i++)
        segments[i] =
            (struct trajd_segment){.episode_index = i, .window_count = window_count / EPISODES};
    if (trajd_sampler_create(&options, &sampler, &error)) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return sampler;
}

static struct trajd_mixture *make_mixture(struct trajd_sampler *const *samplers)
{
    static const uint64_t weights[] = {70, 20, 10};
    const struct trajd_mixture_options options = {.samplers =
                                                      (const struct trajd_sampler *const *)samplers,
                                                  .weights = weights,
                                                  .dataset_count = 3,
                                                  .epoch_windows = UINT64_C(2000000000000000000),
                                                  .global_batch = BATCH};
    struct trajd_mixture *mixture;
    struct trajd_error error;

    if (trajd_mixture_create(&options, &mixture, &error)) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return mixture;
}

static void run(const struct trajd_sampler *sampler, const struct trajd_mixture *mixture,
                uint64_t position, uint32_t count)
{
    if (mixture)
        trajd_mixture_run(mixture, 1, position, count, windows);
    else
        trajd_sampler_run(sampler, 1, position, count, windows);
}

static double mean_ns(const struct trajd_sampler *sampler, const struct trajd_mixture *mixture,
                      uint64_t position, uint32_t count)
{
    uint64_t begin_ns;

    run(sampler, mixture, position, count);
    begin_ns = now_ns();
    for (uint64_t turn = 0; turn < TURNS; turn++)
        run(sampler, mixture, position + turn * count, count);
    return (double)(now_ns() - begin_ns) / TURNS;
}

static void print(const char *name, const struct trajd_sampler *sampler,
                  const struct trajd_mixture *mixture, uint64_t position)
{
    printf("%s, position %-20" PRIu64 " %8.0f ns one window %8.1f us a batch of %u\n", name,
           position, mean_ns(sampler, mixture, position, 1),
           mean_ns(sampler, mixture, position, BATCH) / 1000, BATCH);
}

int main(void)
{
    static const uint64_t sizes[] = {10000000, UINT64_C(10000000000)};

    for (int i = 0; i < 2; i++) {
        const uint64_t before = heap_bytes();
        struct trajd_sampler *samplers[3] = {make_sampler(sizes[i], 1)};
        const uint64_t one = heap_bytes() - before;
        struct trajd_mixture *mixture;

        samplers[1] = make_sampler(sizes[i], 2);
        samplers[2] = make_sampler(sizes[i], 3);
        mixture = make_mixture(samplers);
        printf("%" PRIu64 " windows in %u episodes: %" PRIu64
               " KiB; a mixture of three of them: %" PRIu64 " KiB\n",
               sizes[i], EPISODES, one / 1024, (heap_bytes() - before) / 1024);
        print("one dataset", samplers[0], NULL, 0);
        if (sizes[i] > 1000000000)
            print("one dataset", samplers[0], NULL, 1000000000);
        print("mixture", NULL, mixture, 0);
        print("mixture", NULL, mixture, 1000000000);
        print("mixture", NULL, mixture, UINT64_C(1000000000000000000));
        trajd_mixture_destroy(&mixture);
        for (int d = 0; d < 3; d++)
            trajd_sampler_destroy(&samplers[d]);
    }
    return 0;
}
