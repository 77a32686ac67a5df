/* Frames on files that this test writes itself, with an index made by hand. The helper program is
 * the real one. Pauses and inflated chunks are counted by functions in the place of the real
 * ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/cache/frames.h"
#include "daemon/cache/frames_internal.h"
#include "daemon/index/index.h"
#include "daemon/index/rows/inflate.h"
#include "proto/array_len.h"

enum {
    FILES = 2,
    ROWS = 24,
    SIDE = 8,
    FRAME_BYTES = SIDE * SIDE * 3,
    CHUNK_ROWS = 8,
    CHUNKS = ROWS / CHUNK_ROWS,
    CHUNK_BYTES = CHUNK_ROWS * FRAME_BYTES,
    STORED_BYTES = CHUNK_BYTES + 11, /* a zlib stream with one block that is not compressed */
};

/* Stream 0 has contiguous frames, stream 1 the same in chunks with the filter deflate. */
struct world {
    char folder[64];
    char paths[FILES][96];
    struct trajd_index index;
    struct trajd_index_file files[FILES];
    struct trajd_index_array datasets[2];
    struct trajd_index_stream streams[2];
    struct trajd_index_clock clock;
    struct trajd_episode episodes[FILES];
    struct trajd_episode_clock episode_clock;
    struct trajd_array arrays[FILES][2];
    struct trajd_chunk chunks[CHUNKS];
    struct trajd_cache *cache;
    struct trajd_decoder_pool *decoders;
    struct trajd_frames *frames;
};

static unsigned pauses, inflated, killed_jobs;

int __wrap_nanosleep(const struct timespec *time, struct timespec *rest);
enum trajd_status __real_trajd_decoder_pool_run(struct trajd_decoder_pool *pool,
                                                const struct trajd_decoder_options *options,
                                                struct trajd_decoder_frame *frames, uint32_t count,
                                                struct trajd_error *error);
enum trajd_status __wrap_trajd_decoder_pool_run(struct trajd_decoder_pool *pool,
                                                const struct trajd_decoder_options *options,
                                                struct trajd_decoder_frame *frames, uint32_t count,
                                                struct trajd_error *error);
enum trajd_status __real_trajd_inflate_chunk(struct trajd_inflater *inflater,
                                             const struct trajd_filter_pipeline *pipeline,
                                             const uint8_t *stored, size_t size, size_t bytes,
                                             const uint8_t **chunk, struct trajd_error *error);
enum trajd_status __wrap_trajd_inflate_chunk(struct trajd_inflater *inflater,
                                             const struct trajd_filter_pipeline *pipeline,
                                             const uint8_t *stored, size_t size, size_t bytes,
                                             const uint8_t **chunk, struct trajd_error *error);

int __wrap_nanosleep(const struct timespec *time, struct timespec *rest)
{
    (void)time;
    (void)rest;
    __atomic_fetch_add(&pauses, 1, __ATOMIC_RELAXED);
    return 0;
}

enum trajd_status __wrap_trajd_inflate_chunk(struct trajd_inflater *inflater,
                                             const struct trajd_filter_pipeline *pipeline,
                                             const uint8_t *stored, size_t size, size_t bytes,
                                             const uint8_t **chunk, struct trajd_error *error)
{
    __atomic_fetch_add(&inflated, 1, __ATOMIC_RELAXED);
    return __real_trajd_inflate_chunk(inflater, pipeline, stored, size, bytes, chunk, error);
}

/* Fails as where the kernel kills helper programs, for the next `killed_jobs` jobs. */
enum trajd_status __wrap_trajd_decoder_pool_run(struct trajd_decoder_pool *pool,
                                                const struct trajd_decoder_options *options,
                                                struct trajd_decoder_frame *frames, uint32_t count,
                                                struct trajd_error *error)
{
    if (killed_jobs && killed_jobs--)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, 0, "killed by signal 9");
    return __real_trajd_decoder_pool_run(pool, options, frames, count, error);
}

static uint8_t value_at(uint32_t file, uint32_t row, uint32_t i)
{
    return (uint8_t)(file * 97 + row * 31 + i * 7);
}

/* Writes a chunk as zlib writes bytes that it does not compress. */
static void store_chunk(const uint8_t *bytes, uint8_t *stored)
{
    const uint8_t head[] = {0x78,
                            0x01,
                            0x01,
                            CHUNK_BYTES & 0xff,
                            CHUNK_BYTES >> 8,
                            ~CHUNK_BYTES & 0xff,
                            (~CHUNK_BYTES >> 8) & 0xff};
    uint32_t a = 1, b = 0;

    for (uint32_t i = 0; i < CHUNK_BYTES; i++) {
        a = (a + bytes[i]) % 65521;
        b = (b + a) % 65521;
    }
    memcpy(stored, head, sizeof head);
    memcpy(stored + sizeof head, bytes, CHUNK_BYTES);
    stored += sizeof head + CHUNK_BYTES;
    for (int i = 0; i < 4; i++)
        stored[i] = (uint8_t)((b << 16 | a) >> (24 - 8 * i));
}

static void write_file(struct world *world, uint32_t f)
{
    uint8_t frames[ROWS * FRAME_BYTES], stored[STORED_BYTES];
    char path[sizeof world->paths[f]];
    struct stat about;
    int fd;

    snprintf(path, sizeof path, "%s/%u.h5", world->folder, f);
    strcpy(world->paths[f], path);
    fd = open(world->paths[f], O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    for (uint32_t i = 0; i < sizeof frames; i++)
        frames[i] = value_at(f, i / FRAME_BYTES, i % FRAME_BYTES);
    assert_int_equal(write(fd, frames, sizeof frames), sizeof frames);
    for (uint32_t c = 0; c < CHUNKS; c++) {
        world->chunks[c] =
            (struct trajd_chunk){sizeof frames + c * sizeof stored, sizeof stored, 0};
        store_chunk(frames + c * CHUNK_BYTES, stored);
        assert_int_equal(write(fd, stored, sizeof stored), sizeof stored);
    }
    assert_int_equal(fstat(fd, &about), 0);
    close(fd);
    world->files[f] = (struct trajd_index_file){.path = world->paths[f],
                                                .relative_path = world->paths[f],
                                                .stat = trajd_file_stat_from(&about)};
    world->arrays[f][0] = (struct trajd_array){.storage = TRAJD_STORAGE_CONTIGUOUS,
                                               .dtype = TRAJD_U8,
                                               .rank = 4,
                                               .shape = {ROWS, SIDE, SIDE, 3},
                                               .size_bytes = ROWS * FRAME_BYTES};
    world->arrays[f][1] = world->arrays[f][0];
    world->arrays[f][1].storage = TRAJD_STORAGE_CHUNKED;
    world->arrays[f][1].filter_count = 1;
    world->arrays[f][1].filters[0] = TRAJD_FILTER_DEFLATE;
    memcpy(world->arrays[f][1].chunk_shape, (uint64_t[]){CHUNK_ROWS, SIDE, SIDE, 3}, 32);
    world->arrays[f][1].chunk_count = CHUNKS;
    world->arrays[f][1].chunks = world->chunks;
}

static int make_world(void **state)
{
    static const char *const names[] = {"plain", "packed"};
    struct world *world = calloc(1, sizeof *world);

    strcpy(world->folder, "/tmp/trajd_frames_XXXXXX");
    assert_non_null(mkdtemp(world->folder));
    world->clock.name = "steps";
    world->episode_clock = (struct trajd_episode_clock){.row_count = ROWS, .rate = {20, 1}};
    for (uint32_t d = 0; d < 2; d++) {
        world->datasets[d].path = names[d];
        world->streams[d] = (struct trajd_index_stream){.name = names[d],
                                                        .array_index = d,
                                                        .dtype = TRAJD_U8,
                                                        .rank = 3,
                                                        .shape = {SIDE, SIDE, 3}};
    }
    for (uint32_t f = 0; f < FILES; f++) {
        write_file(world, f);
        world->episodes[f] = (struct trajd_episode){.id = "/",
                                                    .file_index = f,
                                                    .extents = world->arrays[f],
                                                    .clocks = &world->episode_clock};
    }
    world->index = (struct trajd_index){.file_count = FILES,
                                        .files = world->files,
                                        .array_count = 2,
                                        .arrays = world->datasets,
                                        .stream_count = 2,
                                        .streams = world->streams,
                                        .clock_count = 1,
                                        .clocks = &world->clock,
                                        .episode_count = FILES,
                                        .episodes = world->episodes,
                                        .kept_count = FILES};
    *state = world;
    return 0;
}

static void drop_frames(struct world *world)
{
    trajd_frames_destroy(&world->frames);
    trajd_decoder_pool_destroy(&world->decoders);
    if (world->cache)
        trajd_cache_destroy(&world->cache);
}

static int drop_world(void **state)
{
    struct world *world = *state;

    drop_frames(world);
    for (uint32_t f = 0; f < FILES; f++)
        unlink(world->paths[f]);
    rmdir(world->folder);
    free(world);
    return 0;
}

/* Opens a view whose frames begin at row and column `offset` of the images. NULL with an
 * error. */
static struct trajd_frame_view *try_view(struct world *world, uint32_t stream, uint32_t offset,
                                         uint32_t least_frames, struct trajd_error *error)
{
    struct trajd_image_preparation preparation;
    struct trajd_frame_view *view;
    const uint32_t top = offset / SIDE, left = offset % SIDE;

    memset(&preparation, 0, sizeof preparation);
    preparation.source_height = preparation.source_width = SIDE;
    preparation.channels = 3;
    preparation.type = TRAJD_U8;
    preparation.crop = (struct trajd_image_box){top, left, SIDE - top, SIDE - left};
    preparation.filter = TRAJD_IMAGE_NEAREST;
    trajd_image_place(&preparation, TRAJD_IMAGE_STRETCH, SIDE, SIDE);
    trajd_frames_open_view(world->frames, stream, &preparation, least_frames, false, &view, error);
    return view;
}

static struct trajd_frame_view *open_view(struct world *world, uint32_t stream)
{
    struct trajd_error error;
    struct trajd_frame_view *view = try_view(world, stream, 0, 1, &error);

    if (!view)
        fail_msg("%s", error.message);
    return view;
}

static void make_frames_within(struct world *world, uint32_t workers, uint64_t bytes)
{
    const struct trajd_cache_options cache = {&world->index, bytes, 1};
    struct trajd_frames_options options = {
        .index = &world->index, .worker_count = workers, .decoder_count = workers};

    assert_int_equal(trajd_cache_create(&cache, &world->cache, NULL), TRAJD_OK);
    assert_int_equal(trajd_decoder_pool_create(TRAJD_BINARY_DIR "/daemon/decode/trajd-decoder",
                                               workers, workers, &world->decoders, NULL),
                     TRAJD_OK);
    options.cache = world->cache;
    options.decoders = world->decoders;
    assert_int_equal(trajd_frames_create(&options, &world->frames, NULL), TRAJD_OK);
    pauses = inflated = 0;
}

static void make_frames(struct world *world, uint32_t workers)
{
    make_frames_within(world, workers, 4 << 20);
}

static void list_uses(struct trajd_frame_use *uses, uint32_t episode)
{
    for (uint32_t row = 0; row < ROWS; row++)
        uses[row] = (struct trajd_frame_use){.episode_index = episode, .row = row};
}

static void check_pixels(const struct trajd_frame_use *uses)
{
    for (uint32_t u = 0; u < ROWS; u++) {
        const uint8_t *pixels = uses[u].pixels;
        assert_non_null(pixels);
        for (uint32_t i = 0; i < FRAME_BYTES; i++)
            assert_int_equal(pixels[i], value_at(uses[u].episode_index, uses[u].row, i));
    }
}

/* Rows of one chunk are inflated once for a job, and not once for each frame. */
static void frames_of_a_chunk_are_inflated_once(void **state)
{
    struct world *world = *state;
    struct trajd_frame_use uses[ROWS];
    struct trajd_frame_view *view;

    make_frames(world, 1);
    view = open_view(world, 1);
    for (uint32_t e = 0; e < FILES; e++) { /* chunks of both files lie at the same offsets */
        list_uses(uses, e);
        assert_int_equal(trajd_frames_pin(view, uses, ROWS, NULL), TRAJD_OK);
        check_pixels(uses);
        trajd_frames_unpin(view, uses, ROWS);
        assert_int_equal(inflated, (e + 1) * CHUNKS);
    }
    trajd_frames_close_view(&view);
}

/* A file that is gone costs the pauses of one frame. The frames of the other file are good. */
static void a_missing_file_is_tried_again_for_one_frame(void **state)
{
    struct world *world = *state;
    struct trajd_frame_use uses[ROWS];
    struct trajd_frame_view *view;

    unlink(world->paths[1]);
    make_frames(world, 1);
    view = open_view(world, 0);
    list_uses(uses, 1);
    assert_int_equal(trajd_frames_pin(view, uses, ROWS, NULL), TRAJD_OK);
    for (uint32_t u = 0; u < ROWS; u++) {
        assert_int_equal(uses[u].status, TRAJD_ERR_IO);
        assert_non_null(strstr(uses[u].reason, world->paths[1]));
    }
    trajd_frames_unpin(view, uses, ROWS);
    assert_int_equal(pauses, 3);
    list_uses(uses, 0);
    assert_int_equal(trajd_frames_pin(view, uses, ROWS, NULL), TRAJD_OK);
    check_pixels(uses);
    trajd_frames_unpin(view, uses, ROWS);
    trajd_frames_close_view(&view);
}

/* Frames whose helper program was killed are not bad frames: after some tries a pin fails, and the
 * next one decodes them. */
static void a_killed_helper_program_makes_no_bad_frame(void **state)
{
    struct world *world = *state;
    struct trajd_frame_use use = {0};
    struct trajd_frames_stats stats;
    struct trajd_frame_view *view;

    world->streams[0].image = (struct trajd_layout_image){
        .is_present = true, .encoding = TRAJD_ENCODING_RAW, .color = TRAJD_COLOR_BGR};
    make_frames(world, 1);
    view = open_view(world, 0);
    killed_jobs = 4;
    assert_int_equal(trajd_frames_pin(view, &use, 1, NULL), TRAJD_OK);
    assert_int_equal(use.status, TRAJD_ERR_SYSTEM);
    assert_string_equal(use.reason, "killed by signal 9");
    assert_int_equal(pauses, 3); /* memory is short for moments */
    trajd_frames_unpin(view, &use, 1);
    assert_int_equal(trajd_frames_pin(view, &use, 1, NULL), TRAJD_OK);
    assert_int_equal(use.status, TRAJD_OK);
    assert_int_equal(((const uint8_t *)use.pixels)[0], value_at(0, 0, 2)); /* red comes first */
    trajd_frames_unpin(view, &use, 1);
    trajd_frames_get_stats(world->frames, &stats);
    assert_int_equal(stats.bad_frames, 0);
    trajd_frames_close_view(&view);
}

struct pinning {
    struct trajd_frame_view *view;
    struct trajd_frame_use uses[ROWS];
    enum trajd_status status;
};

static void *run_pin(void *context)
{
    struct pinning *pinning = context;

    pinning->status = trajd_frames_pin(pinning->view, pinning->uses, ROWS, NULL);
    return NULL;
}

static void wait_for_uses(struct trajd_frames *frames, uint64_t count)
{
    struct trajd_frames_stats stats;

    do
        trajd_frames_get_stats(frames, &stats);
    while (stats.used_frames < count && !sched_yield());
}

/* File 1 becomes a pipe without a writer on another filesystem: opening it blocks, as on a dead
 * mount. Its frames are more than one job and come first, but the other file has its turn. */
static void a_hanging_filesystem_does_not_stop_others(void **state)
{
    struct world *world = *state;
    struct pinning hanging;
    struct trajd_frame_use uses[ROWS];
    struct stat here, there;
    pthread_t thread;
    char path[96];
    int release;

    snprintf(path, sizeof path, "/dev/shm/%s", world->folder + 5);
    if (stat("/tmp", &here) != 0 || stat("/dev/shm", &there) != 0 || here.st_dev == there.st_dev)
        skip();
    assert_int_equal(mkfifo(path, 0600), 0);
    world->files[1].path = path;
    make_frames(world, 2);
    hanging.view = open_view(world, 0);
    list_uses(hanging.uses, 1);
    list_uses(uses, 0);
    assert_int_equal(pthread_create(&thread, NULL, run_pin, &hanging), 0);
    wait_for_uses(world->frames, ROWS);
    assert_int_equal(trajd_frames_pin(hanging.view, uses, ROWS, NULL), TRAJD_OK);
    check_pixels(uses);
    trajd_frames_unpin(hanging.view, uses, ROWS);
    release = open(path, O_RDWR); /* a writer: opening continues, and finds another file */
    assert_true(release >= 0);
    pthread_join(thread, NULL);
    assert_int_equal(hanging.status, TRAJD_OK);
    assert_int_equal(hanging.uses[ROWS - 1].status, TRAJD_ERR_IO);
    trajd_frames_unpin(hanging.view, hanging.uses, ROWS);
    trajd_frames_close_view(&hanging.view);
    drop_frames(world);
    close(release);
    unlink(path);
}

/* A small store has room for the frames of many feeds. One that has none says how much is
 * missing. */
static void many_views_fit_into_a_small_store(void **state)
{
    struct world *world = *state;
    struct trajd_frame_view *views[40], *none;
    struct trajd_error error;

    make_frames(world, 1);
    for (uint32_t v = 0; v < ARRAY_LEN(views); v++) {
        views[v] = try_view(world, 0, v, 1, &error);
        assert_non_null(views[v]);
    }
    none = try_view(world, 0, 50, 30000, &error);
    assert_null(none);
    assert_string_equal(error.message,
                        "stream plain: a window has 30000 prepared frames of 192 bytes, and "
                        "memory.store has no room for them beside the rows and the frames of other "
                        "feeds: raise it by 11 MiB");
    for (uint32_t v = 0; v < ARRAY_LEN(views); v++)
        trajd_frames_close_view(&views[v]);
}

/* A view that is closed while its frames are being made is freed with its memory. */
static void a_closed_view_gives_its_memory_back(void **state)
{
    struct world *world = *state;
    struct trajd_frames_stats frames;
    struct trajd_cache_stats before, after;
    struct trajd_frame_use uses[ROWS];

    make_frames(world, 2);
    trajd_cache_get_stats(world->cache, &before);
    for (int i = 0; i < 50; i++) {
        struct trajd_frame_view *view = open_view(world, i % 2);
        list_uses(uses, (uint32_t)i / 2 % 2);
        trajd_frames_want(view, uses, ROWS, 1);
        if (i % 5 == 0) {
            assert_int_equal(trajd_frames_pin(view, uses, ROWS, NULL), TRAJD_OK);
            check_pixels(uses);
            trajd_frames_unpin(view, uses, ROWS);
        }
        trajd_frames_close_view(&view);
    }
    do /* the last worker frees it */
        trajd_frames_get_stats(world->frames, &frames);
    while (frames.resident_bytes && !sched_yield());
    trajd_cache_get_stats(world->cache, &after);
    assert_int_equal(after.budget_bytes, before.budget_bytes);
}

/* Makes the contiguous frames of episode 0 `rows`, all zeros, of which the clock keeps `kept` (NULL:
 * all). */
static void lengthen(struct world *world, uint32_t rows, const uint32_t *kept, uint32_t kept_count)
{
    struct stat about;
    const int fd = open(world->paths[0], O_RDWR);

    assert_int_equal(ftruncate(fd, rows * FRAME_BYTES), 0);
    assert_int_equal(fstat(fd, &about), 0);
    close(fd);
    world->files[0].stat = trajd_file_stat_from(&about);
    world->arrays[0][0].shape[0] = rows;
    world->arrays[0][0].size_bytes = (uint64_t)rows * FRAME_BYTES;
    world->episode_clock.row_count = kept ? kept_count : rows;
    world->episode_clock.kept_rows = kept;
}

/* Opens a view of windows that come in order, over storage that is slow or not. */
static struct trajd_frame_view *open_ordered(struct world *world, bool is_slow)
{
    struct trajd_frame_view *view = open_view(world, 0);

    pthread_mutex_lock(&world->frames->lock);
    view->is_ordered = true;
    world->frames->read_ns = is_slow ? 5000000 : 0;
    pthread_mutex_unlock(&world->frames->lock);
    return view;
}

static uint64_t made_frames(struct world *world)
{
    struct trajd_frames_stats stats;

    trajd_frames_get_stats(world->frames, &stats);
    return stats.direct_frames;
}

/* From slow storage the frames beside a frame are read with it: those that the clock keeps. */
static void neighbours_are_rows_that_the_clock_keeps(void **state)
{
    struct world *world = *state;
    struct trajd_frame_view *view;
    struct trajd_frame_use use = {.row = 39};
    uint32_t kept[40];

    for (uint32_t i = 0; i < ARRAY_LEN(kept); i++)
        kept[i] = i * 10;
    lengthen(world, 400, kept, ARRAY_LEN(kept));
    make_frames(world, 1);
    view = open_ordered(world, true);
    assert_int_equal(trajd_frames_pin(view, &use, 1, NULL), TRAJD_OK);
    trajd_frames_unpin(view, &use, 1);
    assert_int_equal(made_frames(world),
                     1); /* row 390 of the file; rows 384 to 415 are read together */
    pthread_mutex_lock(&world->frames->lock);
    world->frames->read_ns = 5000000;
    pthread_mutex_unlock(&world->frames->lock);
    use.row = 0;
    assert_int_equal(trajd_frames_pin(view, &use, 1, NULL), TRAJD_OK);
    trajd_frames_unpin(view, &use, 1);
    assert_int_equal(made_frames(world), 5); /* and rows 0, 10, 20, 30 */
    trajd_frames_close_view(&view);
}

/* Asks for `count` frames from `row` on. */
static bool want(struct trajd_frame_view *view, uint32_t row, uint32_t count, uint64_t pins)
{
    struct trajd_frame_use uses[512];

    for (uint32_t i = 0; i < count; i++)
        uses[i] = (struct trajd_frame_use){.row = row + i};
    return trajd_frames_want(view, uses, count, pins);
}

static enum trajd_status pin(struct trajd_frame_view *view, uint32_t row, uint32_t count)
{
    struct trajd_frame_use uses[512];
    enum trajd_status status;

    for (uint32_t i = 0; i < count; i++)
        uses[i] = (struct trajd_frame_use){.row = row + i};
    status = trajd_frames_pin(view, uses, count, NULL);
    if (!status)
        trajd_frames_unpin(view, uses, count);
    return status;
}

/* Who looks far ahead gets no room for what comes late, and keeps what comes soon. */
static void a_far_look_keeps_what_comes_soon(void **state)
{
    enum { ALL = 32768, BATCH = 8, AHEAD = 2048 * BATCH };
    struct world *world = *state;

    lengthen(world, ALL, NULL, 0);
    for (int slow = 0; slow < 2; slow++) {
        struct trajd_frame_view *view;
        uint32_t until = BATCH;
        make_frames_within(world, 2, 2 << 20);
        view = open_ordered(world, slow);
        want(view, 0, BATCH, 0);
        for (uint32_t row = 0; row < ALL; row += BATCH) {
            while (until < ALL && until <= row + AHEAD &&
                   want(view, until, BATCH, (until - row) / BATCH))
                until += BATCH;
            assert_int_equal(pin(view, row, BATCH), TRAJD_OK);
            assert_true(until > row + BATCH || until == ALL);
        }
        assert_true(made_frames(world) < ALL + ALL / 50);
        trajd_frames_close_view(&view);
        drop_frames(world);
    }
}

/* A batch that memory cannot hold at once is made in halves. Asking for all of it evicts none of
 * its own frames. */
static void a_batch_in_halves_is_made_once(void **state)
{
    enum { ALL = 16384, BATCH = 512 };
    struct world *world = *state;
    struct trajd_frame_view *view;

    lengthen(world, ALL, NULL, 0);
    make_frames_within(world, 2, 80 << 10);
    view = open_view(world, 0);
    for (uint32_t row = 0; row < ALL; row += BATCH)
        for (uint32_t done = 0, count = BATCH; done < BATCH;) {
            want(view, row + done, count, 0);
            if (pin(view, row + done, count))
                count /= 2;
            else
                done += count;
        }
    assert_true(made_frames(world) < ALL + ALL / 50);
    trajd_frames_close_view(&view);
}

/* What another run asked for gives way at once. */
static void a_forgotten_wish_gives_way(void **state)
{
    struct world *world = *state;
    struct trajd_frame_view *view;
    uint32_t row = 0;

    lengthen(world, 16384, NULL, 0);
    make_frames_within(world, 2, 80 << 10);
    view = open_view(world, 0);
    while (want(view, row, 8, 1000000))
        row += 8;
    assert_true(row > 8);
    assert_false(want(view, 8192, 8, 1));
    trajd_frames_forget(view);
    do /* frames that are being made stay */
        sched_yield();
    while (!want(view, 8192, 8, 1));
    trajd_frames_close_view(&view);
}

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, make_world, drop_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(frames_of_a_chunk_are_inflated_once),
        WITH_WORLD(a_missing_file_is_tried_again_for_one_frame),
        WITH_WORLD(a_killed_helper_program_makes_no_bad_frame),
        WITH_WORLD(a_hanging_filesystem_does_not_stop_others),
        WITH_WORLD(many_views_fit_into_a_small_store),
        WITH_WORLD(a_closed_view_gives_its_memory_back),
        WITH_WORLD(neighbours_are_rows_that_the_clock_keeps),
        WITH_WORLD(a_far_look_keeps_what_comes_soon),
        WITH_WORLD(a_batch_in_halves_is_made_once),
        WITH_WORLD(a_forgotten_wish_gives_way),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
