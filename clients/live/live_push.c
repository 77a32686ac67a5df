/* A row comes. */
#include <inttypes.h>

#include "clients/live/live_state.h"

static void count(uint64_t *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

static bool is_off_rate(struct trajd_rate rate, int64_t interval_ns)
{
    const int64_t row_ns = rate.num ? trajd_rate_row_ns(rate, 1) : 0;
    return rate.num && (interval_ns < row_ns / 2 || interval_ns > row_ns + row_ns / 2);
}

static enum trajd_status refuse(struct trajd_live_input *input, int64_t behind_ns,
                                struct trajd_error *error)
{
    count(behind_ns ? &input->late : &input->repeated);
    if (!behind_ns)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "%s: the row is not used: it has the stamp of the row before",
                               input->name);
    return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                           "%s: the row is not used: its stamp is %.9g s before that of the newest "
                           "row, and stamps ascend. If the newest row's stamp is wrong, correct "
                           "the clock, then reset",
                           input->name, (double)behind_ns / 1e9);
}

static enum trajd_status take(struct trajd_live *live, struct trajd_live_input *input,
                              int64_t stamp_ns, const void *row, struct trajd_error *error)
{
    const int64_t newest_ns = trajd_live_ring_newest(&input->ring);
    enum trajd_status status;

    if (stamp_ns <= newest_ns)
        return refuse(input, newest_ns - stamp_ns, error);
    if (newest_ns != INT64_MIN &&
        is_off_rate(live->clocks[input->clock].rate, stamp_ns - newest_ns)) {
        count(&input->off_rate);
        __atomic_store_n(&input->off_rate_ns, stamp_ns - newest_ns, __ATOMIC_RELAXED);
    }
    if (input->has_images &&
        (status = trajd_live_image_take(live, (uint32_t)(input - live->inputs),
                                        trajd_live_ring_begin(&input->ring), row, error)))
        return status;
    trajd_live_ring_push(&input->ring, stamp_ns, row);
    return TRAJD_OK;
}

enum trajd_status trajd_live_push(struct trajd_live *live, uint32_t stream, int64_t t_ns,
                                  const void *row, struct trajd_error *error)
{
    struct trajd_live_input *input;
    enum trajd_status status;
    int64_t stamp_ns;

    if (stream >= live->input_count)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "there is no stream with the number %u", stream);
    input = &live->inputs[stream];
    if (__builtin_add_overflow(t_ns, live->clocks[input->clock].shift_ns, &stamp_ns) ||
        stamp_ns > TRAJD_LIVE_FAR_NS || stamp_ns < -TRAJD_LIVE_FAR_NS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: the stamp %" PRId64 " is beyond 2^61 ns", input->name, t_ns);
    if (__atomic_exchange_n(&input->is_pushing, 1, __ATOMIC_ACQUIRE)) {
        count(&input->busy);
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                               "%s: the row is not used: another thread is pushing to this stream",
                               input->name);
    }
    status = take(live, input, stamp_ns, row, error);
    __atomic_store_n(&input->is_pushing, 0, __ATOMIC_RELEASE);
    return status;
}

void trajd_live_get_counts(const struct trajd_live *live, uint32_t stream,
                           struct trajd_live_counts *counts)
{
    const struct trajd_live_input *input = &live->inputs[stream];

    *counts = (struct trajd_live_counts){
        .taken = __atomic_load_n(&input->ring.pushed, __ATOMIC_RELAXED),
        .late = __atomic_load_n(&input->late, __ATOMIC_RELAXED),
        .repeated = __atomic_load_n(&input->repeated, __ATOMIC_RELAXED),
        .busy = __atomic_load_n(&input->busy, __ATOMIC_RELAXED),
        .off_rate = __atomic_load_n(&input->off_rate, __ATOMIC_RELAXED),
        .off_rate_ns = __atomic_load_n(&input->off_rate_ns, __ATOMIC_RELAXED),
        .newest_ns = trajd_live_ring_newest(&input->ring)};
}

void trajd_live_reset(struct trajd_live *live)
{
    for (uint32_t i = 0; i < live->input_count; i++)
        trajd_live_ring_reset(&live->inputs[i].ring);
}
