/* Completes a child's record: reads the stamps, compares the first rows with libhdf5's reading,
 * forms digests, finds quaternions. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/heartbeat.h"
#include "daemon/base/digest.h"
#include "daemon/index/index_internal.h"
#include "daemon/index/rows/encoded.h"
#include "daemon/index/stamps.h"
#include "proto/plural.h"

enum { SAMPLE_ROWS = 64, SAMPLE_FRAMES = 4, EMPTY_FRAMES_MAX = 64 };
static const uint64_t sample_bytes = 256u << 10;   /* of one array, but at least two rows */
static const uint64_t small_bytes = 64u << 10;     /* smaller arrays are read at once */
static const uint64_t small_file_bytes = 1u << 20; /* smaller files are read at once */
static const uint64_t check_bytes_max = 64u << 20; /* the most that a child may have compared */
static const uint64_t clock_bytes_max = 1u << 30;

struct evaluation {
    const struct trajd_layout *layout;
    struct trajd_array_reader *reader;
    struct trajd_encoded_reader *encoded; /* made on first use */
    int fd;
    uint64_t file_size;
    struct trajd_index_media *media;
    struct trajd_arena *arena;
    struct trajd_record_episode *episode;
    struct trajd_error *error;
    uint8_t *buffer;
    size_t buffer_size;
    uint8_t *file;                    /* all of a small file; NULL: it is read array by array */
    const struct trajd_array *loaded; /* the array of which all rows are in the buffer; or NULL */
    struct trajd_quaternion_search search; /* in the sampled rows of one array */
};

static enum trajd_status no_memory(struct evaluation *e)
{
    return trajd_error_set(e->error, TRAJD_ERR_MEMORY, 0,
                           "no memory to evaluate the records of a file");
}

static enum trajd_status reserve(struct evaluation *e, uint64_t size)
{
    uint8_t *grown;

    if (size <= e->buffer_size)
        return TRAJD_OK;
    if (size > clock_bytes_max) /* a fault of the file, no lack of memory */
        return trajd_error_set(e->error, TRAJD_ERR_DATA, 0,
                               "%" PRIu64 " bytes must be read to check it, the limit is %" PRIu64,
                               size, clock_bytes_max);
    grown = realloc(e->buffer, size);
    if (!grown)
        return no_memory(e);
    e->buffer = grown;
    e->buffer_size = size;
    return TRAJD_OK;
}

/* Reads rows of an array. *rows is borrowed until the next call. */
static enum trajd_status read_rows(struct evaluation *e, const struct trajd_array *extent,
                                   uint64_t begin, uint64_t count, const uint8_t **rows)
{
    uint64_t row_bytes = trajd_array_row_bytes(extent);
    bool all = extent->size_bytes <= small_bytes;
    enum trajd_status status = TRAJD_OK;

    if (e->file && extent->storage == TRAJD_STORAGE_CONTIGUOUS && extent->offset <= e->file_size &&
        extent->size_bytes <= e->file_size - extent->offset) {
        *rows = e->file + extent->offset + begin * row_bytes;
        return TRAJD_OK;
    }
    if (!all || e->loaded != extent) {
        e->loaded = NULL;
        status = reserve(e, all ? extent->size_bytes : count * row_bytes);
        if (!status)
            status = trajd_array_read(e->reader, e->fd, extent, all ? 0 : begin,
                                      all ? extent->shape[0] : count, e->buffer, e->error);
        if (!status && all)
            e->loaded = extent;
    }
    *rows = status ? NULL : e->buffer + (all ? begin * row_bytes : 0);
    return status;
}

/* Compares the first rows of an array with what libhdf5 read. */
static enum trajd_status check_first_rows(struct evaluation *e,
                                          const struct trajd_record_array *array)
{
    uint64_t size = array->check_rows * trajd_array_row_bytes(&array->extent);
    const uint8_t *rows;
    enum trajd_status status;

    if (!size)
        return TRAJD_OK;
    if (size > check_bytes_max)
        return trajd_error_set(e->error, TRAJD_ERR_DATA, 0, "too many rows to compare");
    status = read_rows(e, &array->extent, 0, array->check_rows, &rows);
    if (!status && trajd_digest_of(rows, size) != array->check_digest)
        status =
            trajd_error_set(e->error, TRAJD_ERR_DATA, 0,
                            "its first rows read from the file differ from what libhdf5 reads");
    return status;
}

static void start_search(struct evaluation *e, const struct trajd_array *extent)
{
    const enum trajd_dtype dtype = extent->dtype;
    const bool is_floating = dtype == TRAJD_F16 || dtype == TRAJD_F32 || dtype == TRAJD_F64;

    trajd_quaternion_search_start(&e->search, is_floating ? trajd_array_row_elements(extent) : 0,
                                  extent->rank > 1 ? extent->shape[extent->rank - 1] : 0);
}

static void search_rows(struct evaluation *e, const struct trajd_array *extent, const uint8_t *rows,
                        uint64_t count)
{
    double values[TRAJD_QUATERNION_ROW_MAX];

    for (uint64_t r = 0; r < count && e->search.count; r++)
        if (trajd_array_to_f64(extent->dtype, rows + r * trajd_array_row_bytes(extent),
                               trajd_array_row_elements(extent), values))
            trajd_quaternion_search_add_row(&e->search, values);
}

static enum trajd_status keep_quaternions(struct evaluation *e, struct trajd_array *array)
{
    struct trajd_quaternion found[TRAJD_QUATERNIONS_MAX], *kept;

    array->quaternion_count = trajd_quaternion_search_end(&e->search, found);
    if (!array->quaternion_count)
        return TRAJD_OK;
    kept = trajd_arena_alloc(e->arena, array->quaternion_count * sizeof *kept);
    if (!kept)
        return no_memory(e);
    memcpy(kept, found, array->quaternion_count * sizeof *kept);
    array->quaternions = kept;
    return TRAJD_OK;
}

/* Adds up to 64 rows to the digest, and searches them for quaternions: four runs over the array, or
 * two where rows are large. The choice depends on the shape alone. */
static enum trajd_status sample_rows(struct evaluation *e, struct trajd_array *extent,
                                     struct trajd_digest *digest)
{
    uint64_t row_bytes = trajd_array_row_bytes(extent), rows = extent->shape[0], sample, run, runs;
    const uint8_t *data;
    enum trajd_status status = TRAJD_OK;

    if (!row_bytes || !rows)
        return TRAJD_OK;
    sample = sample_bytes / row_bytes;
    sample = sample > SAMPLE_ROWS ? SAMPLE_ROWS : sample < 2 ? 2 : sample;
    runs = rows <= sample ? 1 : row_bytes > 4096 ? 2 : 4;
    run = rows <= sample ? rows : sample / runs;
    start_search(e, extent);
    for (uint64_t i = 0; i < runs && !status; i++) {
        uint64_t begin = runs == 1 ? 0 : (rows - run) / (runs - 1) * i;
        status = read_rows(e, extent, begin, run, &data);
        if (!status)
            trajd_digest_add(digest, data, run * row_bytes);
        if (!status)
            search_rows(e, extent, data, run);
    }
    return status ? status : keep_quaternions(e, extent);
}

/* Reads one encoded row. *row is borrowed until the next call. */
static enum trajd_status read_frame(struct evaluation *e, const struct trajd_array *extent,
                                    uint64_t at, struct trajd_row_bytes *row)
{
    const struct trajd_row_bytes *rows;
    uint64_t done;
    enum trajd_status status =
        e->encoded ? TRAJD_OK : trajd_encoded_reader_create(&e->encoded, e->error);

    if (!status)
        status = trajd_encoded_read(e->encoded, e->fd, e->file_size, extent, at, 1, &rows, &done,
                                    e->error);
    *row = status ? (struct trajd_row_bytes){0} : rows[0];
    return status;
}

/* Finds the first frame that is not empty, and what it is. */
static enum trajd_status find_image(struct evaluation *e, const struct trajd_layout_image *image,
                                    struct trajd_array *extent)
{
    const uint64_t rows = extent->shape[0];
    struct trajd_row_bytes row = {0};
    enum trajd_status status = TRAJD_OK;
    uint64_t at = 0;

    for (; at < rows && at < EMPTY_FRAMES_MAX && !status && !row.size; at++)
        status = read_frame(e, extent, at, &row);
    if (!status && !row.size)
        return trajd_error_set(e->error, TRAJD_ERR_DATA, 0, "the first %" PRIu64 " rows are empty",
                               at);
    if (status)
        return status;
    status = trajd_image_examine(row.data, row.size, trajd_encoded_row_room(extent, row.size),
                                 image, &extent->header, e->error);
    if (status)
        trajd_error_prefix(e->error, "row %" PRIu64, at - 1);
    return status;
}

/* Returns the layout's words with the size that packed raw or prepared frames have in the file. */
static struct trajd_layout_image image_of(const struct trajd_layout_image *image,
                                          const struct trajd_array *extent)
{
    struct trajd_layout_image sized =
        extent->preparation ? trajd_layout_image_prepared(image, extent->header.encoding) : *image;

    if (extent->header.encoding && !sized.height) {
        sized.height = extent->header.height;
        sized.width = extent->header.width;
    }
    return sized;
}

/* Returns the row of a frame whose bytes go into the digest. Few frames are enough: the first, the
 * last and two others. */
static uint64_t sampled_frame(uint64_t rows, uint64_t i)
{
    return rows <= SAMPLE_FRAMES ? i : (rows - 1) * i / (SAMPLE_FRAMES - 1);
}

static void add_frame(struct trajd_digest *digest, const uint8_t *bytes, uint64_t size)
{
    trajd_digest_add_u64(digest, size);
    if (size)
        trajd_digest_add(digest, bytes, size);
}

/* Finds the size of the frames, and adds some of them to the digest: their bytes, wherever they
 * lie. */
static enum trajd_status sample_frames(struct evaluation *e, const struct trajd_layout_image *image,
                                       struct trajd_array *extent, struct trajd_digest *digest)
{
    const uint64_t rows = extent->shape[0];
    struct trajd_layout_image sized;
    struct trajd_image_header header;
    enum trajd_status status;

    if (!rows)
        return TRAJD_OK;
    if (!image)
        return trajd_error_set(e->error, TRAJD_ERR_DATA, 0,
                               "has encoded rows, but no stream has the key image");
    sized = image_of(image, extent);
    status = extent->preparation ? TRAJD_OK : find_image(e, &sized, extent);
    for (uint64_t i = 0; i < SAMPLE_FRAMES && i < rows && !status; i++) {
        struct trajd_row_bytes row;
        status = read_frame(e, extent, sampled_frame(rows, i), &row);
        if (!status)
            add_frame(digest, row.data, trajd_encoded_frame_bytes(extent, &row, &sized, &header));
    }
    return status;
}

/* Adds some frames of raw pixels to the digest, as sample_frames does: compression and `trajctl
 * pack` do not change it. */
static enum trajd_status sample_raw_frames(struct evaluation *e, const struct trajd_array *extent,
                                           struct trajd_digest *digest)
{
    const uint64_t rows = extent->shape[0];
    enum trajd_status status = TRAJD_OK;

    for (uint64_t i = 0; i < SAMPLE_FRAMES && i < rows && !status; i++) {
        const uint8_t *bytes;
        status = read_rows(e, extent, sampled_frame(rows, i), 1, &bytes);
        if (!status)
            add_frame(digest, bytes, trajd_array_row_bytes(extent));
    }
    return status;
}

static enum trajd_status sample(struct evaluation *e, const char *path, struct trajd_array *extent,
                                struct trajd_digest *digest)
{
    const struct trajd_layout_image *image = trajd_layout_image_of(e->layout, path);

    if (extent->form == TRAJD_ROWS_VIDEO)
        return trajd_index_media_sample(e->media, e->fd, extent, digest, e->error);
    if (trajd_array_is_encoded(extent))
        return sample_frames(e, image, extent, digest);
    return image ? sample_raw_frames(e, extent, digest) : sample_rows(e, extent, digest);
}

static const struct trajd_record_array *find_array(const struct trajd_record_episode *episode,
                                                   const char *path)
{
    for (uint32_t i = 0; path && i < episode->array_count; i++) {
        if (!strcmp(episode->arrays[i].path, path))
            return &episode->arrays[i];
    }
    return NULL;
}

/* Reads all stamps of a clock into the arena and applies the policies. */
static enum trajd_status read_stamps(struct evaluation *e, const struct trajd_layout_clock *clock,
                                     const struct trajd_array *extent,
                                     struct trajd_record_clock *out)
{
    uint64_t rows = extent->shape[0], width = trajd_array_row_elements(extent), kept = 0;
    const uint8_t *data = NULL;
    int64_t *stamps;
    uint32_t *kept_rows;
    enum trajd_status status;

    e->episode->is_misfit = extent->rank > 2 || (rows && clock->stamps_column >= width);
    if (extent->rank > 2)
        return trajd_error_set(e->error, TRAJD_ERR_DATA, 0,
                               "stamps must be rows or columns, not of rank %u", extent->rank);
    if (rows && clock->stamps_column >= width)
        return trajd_error_set(e->error, TRAJD_ERR_DATA, 0,
                               "has %" PRIu64 " column%s, but the layout's stamps are in column %u",
                               width, trajd_plural(width), clock->stamps_column);
    stamps = trajd_arena_alloc(e->arena, rows * sizeof *stamps);
    kept_rows = stamps ? trajd_arena_alloc(e->arena, rows * sizeof *kept_rows) : NULL;
    if (!kept_rows && e->arena->is_starved)
        return no_memory(e);
    if (!kept_rows)
        return trajd_error_set(e->error, TRAJD_ERR_DATA, 0,
                               "has %" PRIu64 " stamps, and there is no room for them", rows);
    status = rows ? read_rows(e, extent, 0, rows, &data) : TRAJD_OK;
    if (!status && rows)
        status = trajd_stamps_convert(
            extent->dtype, data + (size_t)clock->stamps_column * trajd_dtype_size(extent->dtype),
            rows, width, clock->unit, stamps, e->error);
    if (!status)
        status = trajd_stamps_filter(stamps, kept_rows, rows, clock->repeated, clock->backward,
                                     &kept, e->error);
    if (status)
        return status;
    *out = (struct trajd_record_clock){.present = true,
                                       .source_rows = rows,
                                       .dropped_rows = rows - kept,
                                       .row_count = kept,
                                       .stamps_ns = stamps,
                                       .kept_rows = kept == rows ? NULL : kept_rows};
    return TRAJD_OK;
}

static enum trajd_status read_start(struct evaluation *e, const struct trajd_layout_clock *clock,
                                    const struct trajd_array *extent,
                                    struct trajd_record_clock *out)
{
    const uint8_t *data;
    enum trajd_status status;

    e->episode->is_misfit = trajd_array_row_elements(extent) * extent->shape[0] != 1;
    if (e->episode->is_misfit)
        return trajd_error_set(e->error, TRAJD_ERR_DATA, 0,
                               "a start must be one value, this has %" PRIu64 " rows",
                               extent->shape[0]);
    status = read_rows(e, extent, 0, 1, &data);
    if (!status)
        status = trajd_stamps_convert(extent->dtype, data, 1, 1, clock->start_unit, &out->start_ns,
                                      e->error);
    out->has_start = !status;
    return status;
}

/* Turns an error of the data into the episode's problem. */
static enum trajd_status set_problem(struct evaluation *e, const char *path,
                                     enum trajd_status status)
{
    if (!status || status == TRAJD_ERR_IO || status == TRAJD_ERR_MEMORY)
        return status;
    e->episode->problem = trajd_arena_format(e->arena, "%s: %s", path, e->error->message);
    return e->episode->problem ? TRAJD_OK : no_memory(e);
}

static enum trajd_status evaluate_clock(struct evaluation *e,
                                        const struct trajd_layout_clock *clock,
                                        struct trajd_record_clock *out, struct trajd_digest *digest)
{
    const struct trajd_record_array *stamps = find_array(e->episode, clock->stamps_path);
    const struct trajd_record_array *start = find_array(e->episode, clock->start_path);
    enum trajd_status status = TRAJD_OK;

    if (stamps)
        status = set_problem(e, stamps->path, read_stamps(e, clock, &stamps->extent, out));
    if (!status && start && !e->episode->problem)
        status = set_problem(e, start->path, read_start(e, clock, &start->extent, out));
    trajd_digest_add_u64(digest, out->row_count);
    for (uint64_t i = 0; i < out->row_count; i++)
        trajd_digest_add_u64(digest, (uint64_t)out->stamps_ns[i]);
    trajd_digest_add_u64(digest, (uint64_t)out->start_ns);
    return status;
}

static enum trajd_status evaluate_episode(struct evaluation *e)
{
    const struct trajd_layout *layout = e->layout;
    struct trajd_record_episode *episode = e->episode;
    struct trajd_digest digest;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < episode->array_count && !episode->problem; i++) {
        const char *refusal = episode->arrays[i].refusal;
        if (!refusal)
            continue;
        episode->problem = trajd_arena_format(e->arena, "%s: %s", episode->arrays[i].path, refusal);
        episode->is_misfit = !strcmp(refusal, TRAJD_RECORD_NO_DATASET);
    }
    episode->clock_count = layout->clock_count;
    episode->clocks = trajd_arena_alloc(e->arena, layout->clock_count * sizeof *episode->clocks);
    if (!episode->clocks)
        return no_memory(e);
    trajd_digest_init(&digest);
    for (uint32_t i = 0; i < episode->array_count && !status; i++)
        if (!episode->arrays[i].refusal && episode->arrays[i].extent.video)
            status =
                trajd_index_media_note(e->media, e->arena, &episode->arrays[i].extent, e->error);
    for (uint32_t i = 0; i < episode->array_count && !episode->problem && !status; i++) {
        struct trajd_record_array *array = &episode->arrays[i];
        trajd_digest_add_text(&digest, array->path);
        status = check_first_rows(e, array);
        if (!status)
            status = sample(e, array->path, &array->extent, &digest);
        status = set_problem(e, array->path, status);
    }
    for (uint32_t i = 0; i < layout->clock_count && !episode->problem && !status; i++)
        status = evaluate_clock(e, &layout->clocks[i], &episode->clocks[i], &digest);
    episode->evaluated = true;
    episode->content_digest = trajd_digest_end(&digest);
    return status;
}

/* Reads a small file, because many calls for its arrays take longer. Does nothing where that fails:
 * then the array that cannot be read is named. */
static void read_small_file(struct evaluation *e)
{
    if (!e->file_size || e->file_size > small_file_bytes)
        return;
    e->file = malloc(e->file_size);
    if (e->file && trajd_read_exactly(e->fd, 0, e->file_size, e->file, NULL)) {
        free(e->file);
        e->file = NULL;
    }
}

enum trajd_status trajd_index_evaluate(const struct trajd_layout *layout,
                                       struct trajd_array_reader *reader, int fd,
                                       uint64_t file_size, struct trajd_index_media *media,
                                       struct trajd_arena *arena, struct trajd_record *record,
                                       struct trajd_error *error)
{
    struct trajd_error local;
    struct evaluation e = {.layout = layout,
                           .reader = reader,
                           .fd = fd,
                           .file_size = file_size,
                           .media = media,
                           .arena = arena,
                           .error = error ? error : &local};
    enum trajd_status status = TRAJD_OK;

    read_small_file(&e);
    trajd_array_reader_keep(reader, layout->split.kind != TRAJD_SPLIT_NONE);
    for (uint32_t i = 0; i < record->episode_count && !status; i++) {
        e.episode = &record->episodes[i];
        e.loaded = NULL;
        trajd_heartbeat_turn();
        status = trajd_heartbeat_check(e.error);
        if (!status)
            status = evaluate_episode(&e);
    }
    trajd_array_reader_keep(reader, false);
    trajd_encoded_reader_destroy(&e.encoded);
    free(e.file);
    free(e.buffer);
    return status;
}
