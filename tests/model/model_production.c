/* Production in the model: takes, publishes, and the checks after every step. */
#include "model.h"

/* Checks that ranges are ascending and within the batch, and cover it if all ranks are on this
 * node. */
static void check_ranges(struct world *world, const struct trajd_fill *fill)
{
    uint32_t behind = 0, rows = 0;
    bool has_remote = false;

    for (uint32_t j = 0; j < world->job_count; j++)
        has_remote |= world->jobs[j].has_remote;
    for (uint32_t r = 0; r < fill->range_count; r++) {
        if ((r && fill->ranges[r].begin <= behind) || !fill->ranges[r].count)
            model_fail(&world->jobs[0], "range %u begins at %u, after %u", r, fill->ranges[r].begin,
                       behind);
        behind = fill->ranges[r].begin + fill->ranges[r].count;
        rows += fill->ranges[r].count;
    }
    if (behind > fill->row_count || (!has_remote && rows != fill->row_count))
        model_fail(&world->jobs[0], "%u rows in ranges of a batch of %u", rows, fill->row_count);
}

void world_take(struct world *world, uint32_t feed)
{
    struct trajd_fill fill;

    if (feed >= world->feed_count || world->fill_count[feed] == MODEL_SLOTS ||
        trajd_core_take(world->feeds[feed], world->now_ns, &fill))
        return;
    model_trace(&world->jobs[0], "take %u: slot %u epoch %llu position %llu", feed, fill.slot,
                (unsigned long long)fill.epoch, (unsigned long long)fill.position);
    if (fill.generation != ++world->generations[feed][fill.slot])
        model_fail(&world->jobs[0], "generation %llu of slot %u",
                   (unsigned long long)fill.generation, fill.slot);
    if (world->sends[feed][fill.slot])
        model_fail(&world->jobs[0], "slot %u of feed %u is filled again while it is being sent",
                   fill.slot, feed);
    if (!fill.row_count || fill.position + fill.row_count > world->options.epoch_length)
        model_fail(&world->jobs[0], "%u rows at %llu", fill.row_count,
                   (unsigned long long)fill.position);
    check_ranges(world, &fill);
    for (uint32_t j = 0; j < world->job_count; j++)
        books_check_unread(&world->jobs[j], feed, fill.slot);
    world->fills[feed][world->fill_count[feed]++] = fill;
}

void world_publish(struct world *world, uint32_t feed)
{
    struct trajd_error failure = {TRAJD_ERR_DATA, 0, "a file went bad"};
    struct trajd_fill *fill;

    if (feed >= world->feed_count || !world->fill_count[feed])
        return;
    fill = &world->fills[feed][world_random(world, world->fill_count[feed])];
    model_trace(&world->jobs[0], "publish %u: slot %u", feed, fill->slot);
    if (!trajd_core_publish(world->feeds[feed], fill, world_random(world, 10) ? NULL : &failure,
                            world->now_ns))
        model_fail(&world->jobs[0], "the publish of slot %u is refused", fill->slot);
    if (trajd_core_publish(world->feeds[feed], fill, NULL, world->now_ns))
        model_fail(&world->jobs[0], "slot %u is published twice", fill->slot);
    *fill = world->fills[feed][--world->fill_count[feed]];
}

void world_tick(struct world *world)
{
    trajd_core_tick(world->core, world->now_ns);
}

void world_check(struct world *world)
{
    struct trajd_core_feed_info info;
    struct trajd_core_stats stats;

    for (uint32_t j = 0; j < world->job_count; j++)
        books_check(&world->jobs[j]);
    if (!world->core)
        return;
    trajd_core_get_stats(world->core, &stats);
    if (stats.batches_done != world->done_total - world->core_done)
        model_fail(&world->jobs[0], "the core counts %llu DONE, the books %llu",
                   (unsigned long long)stats.batches_done,
                   (unsigned long long)(world->done_total - world->core_done));
    if (stats.journals_refused || stats.damaged_journals)
        model_fail(&world->jobs[0], "a journal cannot be opened");
    for (uint32_t f = 0; f < world->feed_count; f++) {
        trajd_core_feed_info(world->feeds[f], &info);
        if (info.slots_free + info.slots_filling + info.slots_ready != world->options.slot_count ||
            info.slots_filling < world->fill_count[f])
            model_fail(&world->jobs[0],
                       "a slot is lost: %u free, %u filling, %u ready, %u fills are taken",
                       info.slots_free, info.slots_filling, info.slots_ready, world->fill_count[f]);
    }
}
