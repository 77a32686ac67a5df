/* What decoding the videos of a feed costs. A frame of a video needs the frames of its decode unit
 * before it, so frames that do not stay in memory.store are decoded more than once. */
#include <stdio.h>
#include <string.h>

#include "daemon/index/rows/packed_video.h"
#include "daemon/window/window_plan_internal.h"

/* What frames can count on of memory.store. Groups of blocks as large as seven eighths of it were
 * decoded 1.8 times: rows, and frames that are made ahead, need room, too. */
static const double frames_share = 0.75;

/* The videos of a feed, all cameras together. */
struct videos {
    uint32_t cameras;
    uint64_t frames, units;
    uint64_t prepared_bytes; /* of all frames, and of all other images of the feed */
};

static void add_image(const struct trajd_window_plan *plan, uint32_t image, struct videos *videos)
{
    const struct trajd_plan_target *target =
        &plan->rules.targets[plan->rules.row_target_count + image];
    const struct trajd_index *index = plan->dataset->index;
    bool is_video = false;

    if (target->stream_index == TRAJD_PLAN_ABSENT)
        return;
    for (uint32_t e = 0; e < plan->episode_count; e++) {
        const struct trajd_array *array =
            &index->episodes[plan->episodes[e]]
                 .extents[index->streams[target->stream_index].array_index];
        const uint64_t rows = trajd_array_row_count(array);
        videos->prepared_bytes += rows * trajd_image_bytes(&plan->rules.images[image].preparation);
        if (array->form == TRAJD_ROWS_VIDEO) {
            is_video = true;
            videos->frames += rows;
            videos->units += array->video->unit_count;
        }
    }
    videos->cameras += is_video;
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (1 << 30);
}

bool trajd_window_describe_videos(const struct trajd_window_plan *plan, bool *is_costly,
                                  char text[TRAJD_VIDEOS_TEXT_SIZE])
{
    const struct trajd_window_spec *spec = plan->spec;
    const double block_windows = spec->block_windows,
                 group_windows = block_windows * spec->block_neighbours;
    struct videos videos = {0};
    struct trajd_cache_stats store;
    double unit, mixed, blocked, decoded, room;
    bool has_all, has_group;
    size_t used;

    for (uint32_t p = 0; p < plan->rules.image_count; p++)
        add_image(plan, p, &videos);
    if (!videos.units)
        return false;
    trajd_cache_get_stats(plan->dataset->cache, &store);
    unit = (double)videos.frames / (double)videos.units;
    room = frames_share * (double)store.budget_bytes;
    has_all = (double)videos.prepared_bytes <= room;
    has_group =
        group_windows / (double)videos.frames * videos.cameras * (double)videos.prepared_bytes <=
        room;
    mixed = has_all ? 1 : (unit + 1) / 2;
    blocked = has_all ? 1 : has_group ? 1 + unit / 2 / block_windows : mixed;
    decoded = spec->order == TRAJD_ORDER_GLOBAL    ? mixed
              : spec->order == TRAJD_ORDER_BLOCKED ? blocked
                                                   : 1;
    *is_costly = decoded > 1.25;
    snprintf(text, TRAJD_VIDEOS_TEXT_SIZE,
             "videos: %llu frames in units of %.3g; all images prepared have %.1f GiB, and "
             "memory.store has %.1f GiB: up to %.2f frames are decoded for each that is delivered",
             (unsigned long long)videos.frames, unit, gib(videos.prepared_bytes),
             gib(store.budget_bytes), decoded);
    used = strlen(text);
    if (*is_costly && blocked < decoded)
        snprintf(text + used, TRAJD_VIDEOS_TEXT_SIZE - used, "; with order: blocked, %.2f",
                 blocked);
    else if (*is_costly)
        snprintf(text + used, TRAJD_VIDEOS_TEXT_SIZE - used,
                 "; raise memory.store, or use order: blocked with a smaller block.windows");
    return true;
}
