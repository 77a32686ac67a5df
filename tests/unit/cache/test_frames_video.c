/* Frames of videos, which are made by the decode unit, on a file that this test writes itself. A
 * function in the place of the helper program decodes: it counts how often it gets each unit, and
 * can be held, or fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <libdeflate.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/cache/frames.h"
#include "daemon/index/index.h"
#include "daemon/index/rows/packed_video.h"

enum {
    CAMERAS = 2,
    EPISODES = 2,
    ROWS = 24,
    GOP = 6,
    UNITS = ROWS / GOP,
    ALL = EPISODES * ROWS, /* frames of a camera */
    SIDE = 8,
    FRAME_BYTES = SIDE * SIDE * 3,
    PACKET_BYTES = 3, /* camera, episode, packet */
    ABSENT_ROW = 9,   /* of the last video: its packet has 0 bytes */
    LEAST = GOP - 2,  /* frames that each view has room for */
    AMPLE = 10 * ALL, /* room in the store, in frames */
};

/* What the file has of a camera in an episode. */
struct tables {
    int64_t rows[ROWS], packets[ROWS][3], units[UNITS][3], ends[1];
    uint8_t extradata[8], bytes[ROWS][PACKET_BYTES];
};

struct world {
    char path[64];
    struct trajd_index index;
    struct trajd_index_file file;
    struct trajd_index_array datasets[CAMERAS];
    struct trajd_index_stream streams[CAMERAS];
    struct trajd_index_clock clock;
    struct trajd_episode episodes[EPISODES];
    struct trajd_episode_clock episode_clock;
    struct trajd_array arrays[EPISODES][CAMERAS];
    struct trajd_video videos[EPISODES][CAMERAS];
    struct tables tables[EPISODES][CAMERAS];
    struct trajd_cache *cache;
    struct trajd_frames *frames;
};

/* ---- the decoder ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_held;             /* jobs wait */
    uint32_t waiting, killed; /* jobs that wait; that still fail as where the kernel kills */
    bool is_broken[CAMERAS];  /* each frame is bad */
    uint32_t runs[CAMERAS][EPISODES][UNITS], total;
} decoder = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

int __wrap_nanosleep(const struct timespec *time, struct timespec *rest);
enum trajd_status __wrap_trajd_decoder_pool_run_unit(struct trajd_decoder_pool *pool,
                                                     const struct trajd_decoder_options *options,
                                                     const struct trajd_decoder_unit *unit,
                                                     struct trajd_decoder_frame *frames,
                                                     uint32_t count, struct trajd_error *error);

int __wrap_nanosleep(const struct timespec *time, struct timespec *rest)
{
    (void)time;
    (void)rest;
    return 0;
}

/* Notes that the unit is decoded, and waits where the test holds it. Returns false where it fails. */
static bool run_unit(const uint8_t *packet)
{
    bool runs;

    pthread_mutex_lock(&decoder.lock);
    decoder.runs[packet[0]][packet[1]][packet[2] / GOP]++;
    decoder.total++;
    decoder.waiting++;
    pthread_cond_broadcast(&decoder.changed);
    while (decoder.is_held)
        pthread_cond_wait(&decoder.changed, &decoder.lock);
    decoder.waiting--;
    runs = !decoder.killed;
    decoder.killed -= !runs;
    pthread_mutex_unlock(&decoder.lock);
    return runs;
}

static uint8_t value_of(const uint8_t *packet)
{
    return (uint8_t)(1 + packet[0] * 100 + packet[1] * 40 + packet[2]);
}

/* Each pixel of a frame has the value of its packet. */
enum trajd_status __wrap_trajd_decoder_pool_run_unit(struct trajd_decoder_pool *pool,
                                                     const struct trajd_decoder_options *options,
                                                     const struct trajd_decoder_unit *unit,
                                                     struct trajd_decoder_frame *frames,
                                                     uint32_t count, struct trajd_error *error)
{
    (void)pool;
    assert_int_equal(options->video.codec, TRAJD_VIDEO_AV1);
    assert_int_equal(unit->bytes[2] % GOP, 0);
    assert_string_equal((const char *)unit->extradata, "extra");
    if (!run_unit(unit->bytes))
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, 0, "killed by signal 9");
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *packet = unit->bytes;
        assert_true(frames[i].packet < unit->packet_count);
        for (uint32_t p = 0; p < frames[i].packet; p++)
            packet += unit->sizes[p];
        if (decoder.is_broken[packet[0]])
            strcpy(frames[i].reason, "noise");
        else
            memset(frames[i].pixels, value_of(packet), FRAME_BYTES);
    }
    return TRAJD_OK;
}

static void hold(bool is_held)
{
    pthread_mutex_lock(&decoder.lock);
    decoder.is_held = is_held;
    pthread_cond_broadcast(&decoder.changed);
    pthread_mutex_unlock(&decoder.lock);
}

/* Waits until this number of jobs is held. */
static void wait_for_jobs(uint32_t count)
{
    pthread_mutex_lock(&decoder.lock);
    while (decoder.waiting < count)
        pthread_cond_wait(&decoder.changed, &decoder.lock);
    pthread_mutex_unlock(&decoder.lock);
}

/* ---- the world ---- */

/* Two neighbours change places: row t shows packet t ^ 1. */
static void fill_tables(struct tables *t, uint8_t camera, uint8_t episode)
{
    for (uint8_t p = 0; p < ROWS; p++) {
        const uint8_t packet[] = {camera, episode, p};
        memcpy(t->bytes[p], packet, PACKET_BYTES);
        t->rows[p] = p ^ 1;
        t->packets[p][0] = p * PACKET_BYTES;
        t->packets[p][1] = PACKET_BYTES;
        t->packets[p][2] = libdeflate_crc32(0, packet, PACKET_BYTES);
    }
    for (int u = 0; u < UNITS; u++)
        t->units[u][0] = t->units[u][1] = u * GOP;
    memcpy(t->extradata, "extra", 6);
    t->ends[0] = sizeof t->extradata;
    if (camera == CAMERAS - 1 && episode == EPISODES - 1)
        t->packets[ABSENT_ROW ^ 1][1] = t->packets[ABSENT_ROW ^ 1][2] = 0;
}

static void describe(struct world *world, uint32_t e, uint32_t c)
{
    const uint64_t at = (uint64_t)((uint8_t *)&world->tables[e][c] - (uint8_t *)world->tables);
    struct trajd_array *array = &world->arrays[e][c];

    world->videos[e][c] =
        (struct trajd_video){.format = {.codec = TRAJD_VIDEO_AV1},
                             .rows_offset = at + offsetof(struct tables, rows),
                             .row_count = ROWS,
                             .packets_offset = at + offsetof(struct tables, packets),
                             .packet_count = ROWS,
                             .units_offset = at + offsetof(struct tables, units),
                             .unit_count = UNITS,
                             .extradata_offset = at + offsetof(struct tables, extradata),
                             .extradata_bytes = sizeof world->tables[e][c].extradata,
                             .ends_offset = at + offsetof(struct tables, ends),
                             .extradata_count = 1,
                             .largest_unit_packets = GOP,
                             .largest_unit_bytes = GOP * PACKET_BYTES};
    *array = (struct trajd_array){.storage = TRAJD_STORAGE_CONTIGUOUS,
                                  .dtype = TRAJD_I64,
                                  .form = TRAJD_ROWS_VIDEO,
                                  .rank = 1,
                                  .shape = {ROWS},
                                  .offset = at + offsetof(struct tables, rows),
                                  .size_bytes = ROWS * sizeof(int64_t),
                                  .payload_offset = at + offsetof(struct tables, bytes),
                                  .payload_bytes = ROWS * PACKET_BYTES,
                                  .video = &world->videos[e][c]};
    assert_int_equal(trajd_array_check(array, sizeof world->tables, 0, NULL), TRAJD_OK);
}

/* Writes the tables to the file. */
static void write_tables(struct world *world)
{
    const int fd = open(world->path, O_WRONLY | O_CREAT, 0600);
    struct stat about;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, world->tables, sizeof world->tables), sizeof world->tables);
    assert_int_equal(fstat(fd, &about), 0);
    close(fd);
    world->file.stat = trajd_file_stat_from(&about);
}

static int make_world(void **state)
{
    static const char *const names[CAMERAS] = {"top", "wrist"}, *const ids[EPISODES] = {"0", "1"};
    struct world *world = calloc(1, sizeof *world);
    int fd;

    strcpy(world->path, "/tmp/trajd_frames_video_XXXXXX");
    fd = mkstemp(world->path);
    assert_true(fd >= 0);
    close(fd);
    world->file = (struct trajd_index_file){.path = world->path, .relative_path = world->path};
    world->clock.name = "steps";
    world->episode_clock = (struct trajd_episode_clock){.row_count = ROWS, .rate = {20, 1}};
    for (uint32_t c = 0; c < CAMERAS; c++) {
        world->datasets[c].path = names[c];
        world->streams[c] = (struct trajd_index_stream){.name = names[c],
                                                        .array_index = c,
                                                        .dtype = TRAJD_U8,
                                                        .rank = 3,
                                                        .shape = {SIDE, SIDE, 3},
                                                        .form = TRAJD_ROWS_VIDEO};
    }
    for (uint32_t e = 0; e < EPISODES; e++) {
        for (uint32_t c = 0; c < CAMERAS; c++) {
            fill_tables(&world->tables[e][c], (uint8_t)c, (uint8_t)e);
            describe(world, e, c);
        }
        world->episodes[e] = (struct trajd_episode){
            .id = ids[e], .extents = world->arrays[e], .clocks = &world->episode_clock};
    }
    world->index = (struct trajd_index){.file_count = 1,
                                        .files = &world->file,
                                        .array_count = CAMERAS,
                                        .arrays = world->datasets,
                                        .stream_count = CAMERAS,
                                        .streams = world->streams,
                                        .clock_count = 1,
                                        .clocks = &world->clock,
                                        .episode_count = EPISODES,
                                        .episodes = world->episodes,
                                        .kept_count = EPISODES};
    write_tables(world);
    memset(decoder.runs, 0, sizeof decoder.runs);
    memset(decoder.is_broken, 0, sizeof decoder.is_broken);
    decoder.total = decoder.killed = 0;
    *state = world;
    return 0;
}

static int drop_world(void **state)
{
    struct world *world = *state;

    trajd_frames_destroy(&world->frames);
    if (world->cache)
        trajd_cache_destroy(&world->cache);
    unlink(world->path);
    free(world);
    return 0;
}

/* Makes a store with room for this number of frames. Rows keep an eighth of it. */
static void make_frames(struct world *world, uint32_t room, uint32_t workers)
{
    const struct trajd_cache_options cache = {&world->index, (room * FRAME_BYTES * 8 + 6) / 7, 1};
    struct trajd_frames_options options = {
        .index = &world->index, .worker_count = workers, .decoder_count = workers};

    assert_int_equal(trajd_cache_create(&cache, &world->cache, NULL), TRAJD_OK);
    options.cache = world->cache;
    assert_int_equal(trajd_frames_create(&options, &world->frames, NULL), TRAJD_OK);
}

static struct trajd_frame_view *open_view(struct world *world, uint32_t camera, bool keeps_units)
{
    struct trajd_image_preparation preparation;
    struct trajd_frame_view *view;
    struct trajd_error error;

    memset(&preparation, 0, sizeof preparation);
    preparation.source_height = preparation.source_width = SIDE;
    preparation.channels = 3;
    preparation.type = TRAJD_U8;
    preparation.crop = (struct trajd_image_box){0, 0, SIDE, SIDE};
    preparation.filter = TRAJD_IMAGE_NEAREST;
    trajd_image_place(&preparation, TRAJD_IMAGE_STRETCH, SIDE, SIDE);
    if (trajd_frames_open_view(world->frames, camera, &preparation, LEAST, keeps_units, &view,
                               &error))
        fail_msg("%s", error.message);
    return view;
}

static struct trajd_frames_stats stats_of(struct world *world)
{
    struct trajd_frames_stats stats;

    trajd_frames_get_stats(world->frames, &stats);
    return stats;
}

/* Frame i of all of a camera. */
static struct trajd_frame_use use_of(uint32_t i)
{
    return (struct trajd_frame_use){.episode_index = i / ROWS, .row = i % ROWS};
}

static bool is_right(uint32_t camera, const struct trajd_frame_use *use)
{
    const uint8_t packet[] = {(uint8_t)camera, (uint8_t)use->episode_index,
                              (uint8_t)(use->row ^ 1)};
    const uint8_t *pixels = use->pixels;

    if (camera == CAMERAS - 1 && use->episode_index == EPISODES - 1 && use->row == ABSENT_ROW)
        return !pixels && use->status == TRAJD_ERR_NOT_FOUND &&
               strstr(use->reason, "1/wrist: row 9: the frame was not recorded");
    for (uint32_t i = 0; pixels && i < FRAME_BYTES; i++)
        if (pixels[i] != value_of(packet))
            return false;
    return pixels;
}

/* Pins `count` frames, `step` apart, checks and unpins them. */
static void use_frames(struct trajd_frame_view *view, uint32_t camera, uint32_t first,
                       uint32_t step, uint32_t count)
{
    struct trajd_frame_use uses[ALL];
    struct trajd_error error;

    for (uint32_t i = 0; i < count; i++)
        uses[i] = use_of((first + i * step) % ALL);
    if (trajd_frames_pin(view, uses, count, &error))
        fail_msg("%s", error.message);
    for (uint32_t i = 0; i < count; i++)
        assert_true(is_right(camera, &uses[i]));
    trajd_frames_unpin(view, uses, count);
}

/* ---- the tests ---- */

/* Of several cameras and in any order: of each unit one decoding, for all epochs. */
static void a_unit_is_decoded_once_where_its_frames_fit(void **state)
{
    struct world *world = *state;
    struct trajd_frame_view *views[CAMERAS];
    struct trajd_frames_stats stats;

    make_frames(world, AMPLE, 2);
    for (uint32_t c = 0; c < CAMERAS; c++)
        views[c] = open_view(world, c, false);
    for (uint32_t epoch = 0; epoch < 3; epoch++)
        for (uint32_t i = 0; i < ALL; i += 4)
            for (uint32_t c = 0; c < CAMERAS; c++)
                use_frames(views[c], c, i * 11, 11, 4);
    for (uint32_t c = 0; c < CAMERAS; c++)
        for (uint32_t e = 0; e < EPISODES; e++)
            for (uint32_t u = 0; u < UNITS; u++)
                assert_int_equal(decoder.runs[c][e][u], 1);
    stats = stats_of(world);
    assert_int_equal(stats.decoded_frames, CAMERAS * ALL);
    assert_int_equal(stats.used_frames, 3 * CAMERAS * ALL);
    assert_int_equal(stats.bad_frames, 1);
    assert_int_equal(stats.evicted_frames, 0);
    assert_int_equal(stats.read_bytes, (CAMERAS * ALL - 1) * PACKET_BYTES);
    for (uint32_t c = 0; c < CAMERAS; c++)
        trajd_frames_close_view(&views[c]);
}

/* In order, a store for two units suffices. */
static void windows_in_order_need_room_for_the_units_in_use(void **state)
{
    struct world *world = *state;
    struct trajd_frame_view *view;

    make_frames(world, 2 * GOP, 1);
    view = open_view(world, 0, true);
    for (uint32_t epoch = 1; epoch <= 3; epoch++) {
        for (uint32_t i = 0; i < ALL; i += 2)
            use_frames(view, 0, i, 1, 2);
        assert_int_equal(decoder.total, epoch * EPISODES * UNITS);
    }
    assert_int_equal(stats_of(world).resident_bytes, 2 * GOP * FRAME_BYTES);
    trajd_frames_close_view(&view);
}

/* In shuffled order, a part of the frames stays in a store that is too small, and of the others
 * each needs the frames of its unit in front of it, on average half of them. */
static void a_store_that_is_too_small_keeps_a_part(void **state)
{
    struct world *world = *state;
    struct trajd_frame_view *view;
    uint64_t first;

    make_frames(world, ALL / 2, 1);
    view = open_view(world, 0, false);
    for (uint32_t i = 0; i < ALL; i++)
        use_frames(view, 0, i * 11, 11, 1);
    first = stats_of(world).decoded_frames;
    assert_true(first <= ALL * (GOP + 1) / 2);
    for (uint32_t i = 0; i < ALL; i++)
        use_frames(view, 0, i * 29, 11, 1);
    assert_true(stats_of(world).decoded_frames - first <= (ALL - ALL / 4) * (GOP + 1) / 2);
    assert_int_equal(stats_of(world).resident_bytes, ALL / 2 * FRAME_BYTES);
    trajd_frames_close_view(&view);
}

/* With less room than a unit needs, each frame is still made. What never fits at once is an error,
 * after which nothing is pinned. */
static void a_store_without_room_for_a_unit(void **state)
{
    struct world *world = *state;
    struct trajd_frame_use uses[GOP];
    struct trajd_frame_view *view;
    struct trajd_error error;

    make_frames(world, LEAST, 2);
    for (int keeps_units = 0; keeps_units < 2; keeps_units++) {
        view = open_view(world, 0, keeps_units);
        for (uint32_t i = 0; i < ALL; i++)
            use_frames(view, 0, i * 5, 1, LEAST);
        for (uint32_t i = 0; i < GOP; i++)
            uses[i] = use_of(i);
        assert_int_equal(trajd_frames_pin(view, uses, GOP, &error), TRAJD_ERR_MEMORY);
        assert_string_equal(error.message,
                            "stream top: there is no room for 6 prepared frames of 192 bytes: "
                            "raise memory.store, or lower batch");
        use_frames(view, 0, ROWS, 5, LEAST);
        trajd_frames_close_view(&view);
    }
}

struct pinning {
    struct trajd_frame_view *view;
    struct trajd_frame_use use;
    enum trajd_status status;
};

static void *run_pin(void *context)
{
    struct pinning *pinning = context;

    pinning->status = trajd_frames_pin(pinning->view, &pinning->use, 1, NULL);
    return NULL;
}

/* A frame joins the unit that is being decoded, though nobody had asked for it. The frame of
 * another unit does not wait for it, but where there is no room. */
static void a_frame_of_a_unit_that_is_being_decoded(void **state)
{
    struct world *world = *state;
    struct trajd_frame_view *view;
    struct pinning same = {.use = {.row = 4}}, full = {.use = {.row = 2 * GOP}};
    struct trajd_frame_use first = {.row = 1};
    pthread_t threads[2];

    make_frames(world, 2 * GOP, 2);
    same.view = full.view = view = open_view(world, 0, false);
    hold(true);
    trajd_frames_want(view, &first, 1, 1);
    wait_for_jobs(1);
    assert_int_equal(pthread_create(&threads[0], NULL, run_pin, &same), 0);
    while (stats_of(world).used_frames < 1)
        sched_yield();
    first = use_of(GOP);
    trajd_frames_want(view, &first, 1,
                      false); /* the other worker takes it, and the rest of the store */
    wait_for_jobs(2);
    assert_int_equal(pthread_create(&threads[1], NULL, run_pin, &full), 0);
    hold(false);
    for (int t = 0; t < 2; t++)
        pthread_join(threads[t], NULL);
    assert_int_equal(same.status, TRAJD_OK);
    assert_int_equal(full.status, TRAJD_OK);
    assert_true(is_right(0, &same.use) && is_right(0, &full.use));
    trajd_frames_unpin(view, &same.use, 1);
    trajd_frames_unpin(view, &full.use, 1);
    for (uint32_t u = 0; u < UNITS; u++)
        assert_int_equal(decoder.runs[0][0][u], u < 3);
    trajd_frames_close_view(&view);
}

/* Frames that a camera's decoder finds bad stay bad, without another decoding. The other camera is
 * not concerned. */
static void a_unit_with_faults_is_decoded_once(void **state)
{
    struct world *world = *state;
    struct trajd_frame_view *top, *wrist;
    struct trajd_frame_use use;
    char expected[128];

    make_frames(world, AMPLE, 2);
    top = open_view(world, 0, false);
    wrist = open_view(world, 1, false);
    decoder.is_broken[0] = true;
    for (uint32_t i = 0; i < 2 * ROWS; i++) {
        use = use_of(i % ROWS);
        assert_int_equal(trajd_frames_pin(top, &use, 1, NULL), TRAJD_OK);
        assert_int_equal(use.status, TRAJD_ERR_DATA);
        snprintf(expected, sizeof expected, "%s: 0/top: row %u: noise", world->path, use.row);
        assert_string_equal(use.reason, expected);
        trajd_frames_unpin(top, &use, 1);
        use_frames(wrist, 1, i, 1, 1);
    }
    assert_int_equal(decoder.total, UNITS + EPISODES * UNITS);
    assert_int_equal(stats_of(world).bad_frames, ROWS + 1);
    trajd_frames_close_view(&top);
    trajd_frames_close_view(&wrist);
}

/* A packet that has changed costs its frame and those behind it in its unit. */
static void a_packet_that_has_changed(void **state)
{
    struct world *world = *state;
    struct trajd_frame_view *view;
    struct trajd_frame_use uses[ROWS];

    world->tables[0][0].bytes[GOP + 3][1] ^= 1;
    write_tables(world);
    make_frames(world, AMPLE, 1);
    view = open_view(world, 0, false);
    for (uint32_t i = 0; i < ROWS; i++)
        uses[i] = use_of(i);
    assert_int_equal(trajd_frames_pin(view, uses, ROWS, NULL), TRAJD_OK);
    for (uint32_t i = 0; i < ROWS; i++) {
        const bool is_bad = (i ^ 1) >= GOP + 3 && i < 2 * GOP;
        assert_int_equal(uses[i].status, is_bad ? TRAJD_ERR_DATA : TRAJD_OK);
        assert_true(is_bad ? strstr(uses[i].reason, "the bytes of packet 9 have changed since the "
                                                    "conversion") != NULL
                           : is_right(0, &uses[i]));
    }
    trajd_frames_unpin(view, uses, ROWS);
    trajd_frames_close_view(&view);
}

/* A unit whose helper program was killed again and again has no bad frames: the next pin decodes
 * it. A file that has changed is an error of the storage. */
static void a_unit_that_failed_is_decoded_again(void **state)
{
    struct world *world = *state;
    struct trajd_frame_view *view;
    struct trajd_frame_use uses[GOP];

    make_frames(world, AMPLE, 1);
    view = open_view(world, 0, false);
    for (uint32_t i = 0; i < GOP; i++)
        uses[i] = use_of(i);
    decoder.killed = 4;
    assert_int_equal(trajd_frames_pin(view, uses, GOP - 1, NULL), TRAJD_OK);
    for (uint32_t i = 0; i < GOP - 1; i++) {
        assert_int_equal(uses[i].status, TRAJD_ERR_SYSTEM);
        assert_string_equal(uses[i].reason, "killed by signal 9");
    }
    trajd_frames_unpin(view, uses, GOP - 1);
    use_frames(view, 0, 0, 1, GOP);
    assert_int_equal(decoder.runs[0][0][0], 5);
    assert_int_equal(truncate(world->path, 100), 0);
    uses[0] = use_of(ROWS - 1);
    assert_int_equal(trajd_frames_pin(view, uses, 1, NULL), TRAJD_OK);
    assert_int_equal(uses[0].status, TRAJD_ERR_IO);
    assert_non_null(strstr(uses[0].reason, "0/top: "));
    trajd_frames_unpin(view, uses, 1);
    use_frames(view, 0, 0, 1, GOP); /* is in memory */
    assert_int_equal(stats_of(world).bad_frames, 0);
    trajd_frames_close_view(&view);
}

/* A view that is closed while a unit is decoded gives its memory back; another one has it then. */
static void a_closed_view_gives_the_memory_of_its_units_back(void **state)
{
    struct world *world = *state;
    struct trajd_frame_view *view, *other;
    struct trajd_frame_use first = {.row = 1};
    struct trajd_cache_stats before, after;

    make_frames(world, 2 * GOP, 2);
    trajd_cache_get_stats(world->cache, &before);
    for (int i = 0; i < 20; i++) {
        view = open_view(world, 0, i % 2);
        hold(true);
        trajd_frames_want(view, &first, 1, 1);
        wait_for_jobs(1);
        trajd_frames_close_view(&view);
        hold(false);
        while (stats_of(world).resident_bytes) /* the last worker frees it */
            sched_yield();
        other = open_view(world, 1, i % 2);
        use_frames(other, 1, 0, 1, 2 * GOP);
        trajd_frames_close_view(&other);
    }
    trajd_cache_get_stats(world->cache, &after);
    assert_int_equal(after.budget_bytes, before.budget_bytes);
}

struct using
{
    struct trajd_frame_view *views[CAMERAS];
    unsigned seed;
    uint32_t wrong;
};

/* Wants and pins windows of both cameras at random. */
static void *run_using(void *context)
{
    struct using *using = context;

    for (int i = 0; i < 400 && !using->wrong; i++) {
        const uint32_t camera = (uint32_t)rand_r(&using->seed) % CAMERAS,
                       first = (uint32_t)rand_r(&using->seed) % (ALL - 2);
        struct trajd_frame_use uses[2] = {use_of(first + i % 2), use_of(first + 1)};
        trajd_frames_want(using->views[camera], uses, 2, 1);
        uses[0] = use_of(first);
        if (trajd_frames_pin(using->views[camera], uses, 2, NULL)) {
            using->wrong++;
            break;
        }
        for (uint32_t u = 0; u < 2; u++)
            using->wrong += !is_right(camera, &uses[u]);
        trajd_frames_unpin(using->views[camera], uses, 2);
    }
    return NULL;
}

/* The store has room for less than two units of each camera. */
static void threads_that_share_a_small_store(void **state)
{
    struct world *world = *state;
    struct using using[2];
    pthread_t threads[2];

    make_frames(world, 20, 2);
    for (unsigned t = 0; t < 2; t++) {
        for (uint32_t c = 0; c < CAMERAS; c++)
            using[t].views[c] = open_view(world, c, t == 1);
        using[t].seed = t;
        using[t].wrong = 0;
    }
    for (int t = 0; t < 2; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, run_using, &using[t]), 0);
    for (int t = 0; t < 2; t++) {
        pthread_join(threads[t], NULL);
        assert_int_equal(using[t].wrong, 0);
    }
    for (int t = 0; t < 2; t++)
        for (uint32_t c = 0; c < CAMERAS; c++)
            trajd_frames_close_view(&using[t].views[c]);
    assert_int_equal(stats_of(world).resident_bytes, 0);
}

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, make_world, drop_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(a_unit_is_decoded_once_where_its_frames_fit),
        WITH_WORLD(windows_in_order_need_room_for_the_units_in_use),
        WITH_WORLD(a_store_that_is_too_small_keeps_a_part),
        WITH_WORLD(a_store_without_room_for_a_unit),
        WITH_WORLD(a_frame_of_a_unit_that_is_being_decoded),
        WITH_WORLD(a_unit_with_faults_is_decoded_once),
        WITH_WORLD(a_packet_that_has_changed),
        WITH_WORLD(a_unit_that_failed_is_decoded_again),
        WITH_WORLD(a_closed_view_gives_the_memory_of_its_units_back),
        WITH_WORLD(threads_that_share_a_small_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
