/* Finds episodes that are nearly the same: one that was stored twice, or replayed. Only episodes with
 * equal first rows are compared. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/files/examine_idle.h"
#include "clients/cli/files/examine_internal.h"
#include "daemon/base/digest.h"
#include "daemon/base/memory.h"

enum { BLOCK_ROWS = 64 };

/* Rows of one episode, as numbers. */
struct side {
    const struct trajd_episode *episode;
    struct episode_file file;
    uint8_t *bytes;
    double *values; /* [rows][feature_count] */
};

struct start {
    uint64_t digest; /* of the first rows of all compared streams */
    uint32_t episode;
};

struct duplicates {
    struct examiner *examiner;
    const struct examine_limits *limits;
    struct side one, other;
    double *tolerances; /* [stream_count] of `one`; NAN: not measured yet */
};

static const struct trajd_array *array_of(const struct side *side,
                                          const struct trajd_index_stream *stream)
{
    return &side->episode->extents[stream->array_index];
}

/* Returns the status if nothing more can be read. Rows that are damaged are findings of
 * examine_index; here, their episode is no duplicate. */
static enum trajd_status keep_failure(enum trajd_status status, const struct trajd_error *error)
{
    const bool is_storage = status == TRAJD_ERR_IO && error->foreign_code;

    return is_storage || status == TRAJD_ERR_MEMORY ? status : TRAJD_OK;
}

static enum trajd_status read_rows(struct duplicates *duplicates, struct side *side,
                                   const struct trajd_index_stream *stream, uint64_t begin,
                                   uint64_t count, struct trajd_error *error)
{
    const struct trajd_array *array = array_of(side, stream);
    const uint64_t row_bytes = trajd_array_row_bytes(array), columns = stream->feature_count;
    const uint8_t *bytes;
    enum trajd_status status = episode_file_open(&side->file, side->episode, error);

    side->bytes = trajd_memory_or_exit(realloc(side->bytes, count * row_bytes + 1));
    side->values =
        trajd_memory_or_exit(realloc(side->values, (count * columns + 1) * sizeof(double)));
    if (!status)
        status = trajd_array_read(duplicates->examiner->reader, side->file.fd, array, begin, count,
                                  side->bytes, error);
    bytes = side->bytes + stream->first_column * trajd_dtype_size(array->dtype);
    for (uint64_t r = 0; r < count && !status; r++)
        trajd_array_to_f64(array->dtype, bytes + r * row_bytes, columns,
                           side->values + r * columns);
    return status;
}

/* Returns how far two rows are apart. Columns that are equal, or NaN in both, are not. */
static double find_distance(const double *row, const double *other, uint64_t columns)
{
    double sum = 0;

    for (uint64_t d = 0; d < columns; d++)
        if (memcmp(&row[d], &other[d], sizeof *row))
            sum += (row[d] - other[d]) * (row[d] - other[d]);
    return sqrt(sum);
}

static int compare_doubles(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

/* Finds how far a row of `other` may be from one of `one`: by the median change of `one`. */
static enum trajd_status find_tolerance(struct duplicates *duplicates,
                                        const struct trajd_index_stream *stream, double *tolerance,
                                        struct trajd_error *error)
{
    struct side *one = &duplicates->one;
    const uint64_t rows = trajd_array_row_count(array_of(one, stream));
    double *changes = trajd_memory_or_exit(malloc((rows + 1) * sizeof *changes));
    enum trajd_status status = TRAJD_OK;
    uint64_t used = 0;

    for (uint64_t begin = 0; begin + 1 < rows && !status; begin += BLOCK_ROWS) {
        const uint64_t rest = rows - begin, count = rest < BLOCK_ROWS + 1 ? rest : BLOCK_ROWS + 1;
        status = read_rows(duplicates, one, stream, begin, count, error);
        for (uint64_t r = 1; r < count && !status; r++) {
            const double *row = one->values + r * stream->feature_count;
            const double change =
                find_distance(row, row - stream->feature_count, stream->feature_count);
            if (isfinite(change))
                changes[used++] = change;
        }
    }
    qsort(changes, used, sizeof *changes, compare_doubles);
    *tolerance = used ? duplicates->limits->duplicate_changes * changes[used / 2] : 0;
    free(changes);
    return status;
}

/* Finds which part of the rows of a stream are near; rows that only one episode has are not. Begins
 * at the end, where episodes that only begin in the same way differ most, and gives up once too many
 * do: then *part becomes 0. */
static enum trajd_status compare_rows(struct duplicates *duplicates,
                                      const struct trajd_index_stream *stream, double tolerance,
                                      double *part, struct trajd_error *error)
{
    struct side *one = &duplicates->one, *other = &duplicates->other;
    const uint64_t a = trajd_array_row_count(array_of(one, stream)),
                   b = trajd_array_row_count(array_of(other, stream)), most = a > b ? a : b;
    const double allowed = (1 - duplicates->limits->duplicate_rows / 100) * (double)most;
    uint64_t end = a < b ? a : b, far = most - end;
    enum trajd_status status = TRAJD_OK;

    while (end && (double)far <= allowed && !status) {
        const uint64_t count = end < BLOCK_ROWS ? end : BLOCK_ROWS, columns = stream->feature_count;
        end -= count;
        status = read_rows(duplicates, one, stream, end, count, error);
        if (!status)
            status = read_rows(duplicates, other, stream, end, count, error);
        for (uint64_t r = 0; r < count && !status; r++)
            far += !(find_distance(one->values + r * columns, other->values + r * columns,
                                   columns) <= tolerance);
    }
    *part = (double)far <= allowed && most ? 1 - (double)far / (double)most : 0;
    return status;
}

/* Compares two episodes whose first rows are equal, so they have the same streams. */
static enum trajd_status compare_episodes(struct duplicates *duplicates, bool *is_duplicate,
                                          struct trajd_error *error)
{
    const struct trajd_index *index = duplicates->examiner->index;
    const struct examine_limits *limits = duplicates->limits;
    const struct trajd_episode *one = duplicates->one.episode, *other = duplicates->other.episode;
    const struct trajd_index_stream *worst = NULL;
    enum trajd_status status = TRAJD_OK;
    double least = 2, part = 1;

    for (uint32_t s = 0; s < index->stream_count && part > 0 && !status; s++) {
        const struct trajd_index_stream *stream = &index->streams[s];
        double *tolerance = &duplicates->tolerances[s];
        if (!examine_is_motion(stream) ||
            !trajd_array_row_count(&one->extents[stream->array_index]))
            continue;
        if (isnan(*tolerance))
            status = find_tolerance(duplicates, stream, tolerance, error);
        if (!status)
            status = compare_rows(duplicates, stream, *tolerance, &part, error);
        if (part < least)
            worst = stream;
        least = part < least ? part : least;
    }
    *is_duplicate = !status && worst && least > 0;
    if (*is_duplicate)
        examine_report(duplicates->examiner,
                       &(struct examine_finding){EXAMINE_DUPLICATES,
                                                 index->files[other->file_index].relative_path,
                                                 other->id, NULL, -1, 1, NULL},
                       "nearly repeats %s: %s: the first rows are equal, and of %s, which differs "
                       "most, %.1f%% of the rows are within %g median changes from row to row "
                       "(%g%% or more is a finding)",
                       index->files[one->file_index].relative_path, one->id, worst->name,
                       100 * least, limits->duplicate_changes, limits->duplicate_rows);
    return keep_failure(status, error);
}

/* Compares episodes with equal first rows. One that repeats an earlier one is not compared with
 * others. */
static enum trajd_status compare_starts(struct duplicates *duplicates, struct start *starts,
                                        uint32_t count, struct trajd_error *error)
{
    const struct trajd_index *index = duplicates->examiner->index;
    enum trajd_status status = TRAJD_OK;
    bool is_duplicate;

    for (uint32_t a = 0; a + 1 < count && !status; a++) {
        duplicates->one.episode = &index->episodes[starts[a].episode];
        for (uint32_t s = 0; s < index->stream_count; s++)
            duplicates->tolerances[s] = NAN;
        for (uint32_t b = a + 1; b < count && !status; b++) {
            duplicates->other.episode = &index->episodes[starts[b].episode];
            status = compare_episodes(duplicates, &is_duplicate, error);
            if (is_duplicate) {
                memmove(starts + b, starts + b + 1, (count - b - 1) * sizeof *starts);
                count--;
                b--;
            }
        }
    }
    return status;
}

/* Digests the first rows of an episode. One that cannot be read gets no start. */
static enum trajd_status add_start(struct duplicates *duplicates, uint32_t e, struct start *starts,
                                   uint32_t *count, struct trajd_error *error)
{
    const struct trajd_index *index = duplicates->examiner->index;
    struct side *one = &duplicates->one;
    enum trajd_status status = TRAJD_OK;
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    one->episode = &index->episodes[e];
    for (uint32_t s = 0; s < index->stream_count && !status; s++) {
        const struct trajd_index_stream *stream = &index->streams[s];
        if (!examine_is_motion(stream) || !trajd_array_row_count(array_of(one, stream)))
            continue;
        status = read_rows(duplicates, one, stream, 0, 1, error);
        trajd_digest_add_u64(&digest, s);
        trajd_digest_add(&digest, one->values, stream->feature_count * sizeof *one->values);
    }
    if (!status)
        starts[(*count)++] = (struct start){trajd_digest_end(&digest), e};
    return keep_failure(status, error);
}

static int order_starts(const void *a, const void *b)
{
    const struct start *left = a, *right = b;

    if (left->digest != right->digest)
        return left->digest < right->digest ? -1 : 1;
    return (left->episode > right->episode) - (left->episode < right->episode);
}

enum trajd_status examine_duplicates(struct examiner *examiner, const struct examine_limits *limits,
                                     struct trajd_error *error)
{
    const struct trajd_index *index = examiner->index;
    struct duplicates duplicates = {examiner, limits, .one.file.index = index,
                                    .other.file.index = index};
    struct start *starts =
        trajd_memory_or_exit(malloc((index->episode_count + 1) * sizeof *starts));
    enum trajd_status status = TRAJD_OK;
    uint32_t count = 0, end;

    duplicates.tolerances = trajd_memory_or_exit(calloc(index->stream_count + 1, sizeof(double)));
    for (uint32_t e = 0; e < index->episode_count && !status; e++)
        if (!index->episodes[e].quarantine)
            status = add_start(&duplicates, e, starts, &count, error);
    qsort(starts, count, sizeof *starts, order_starts);
    for (uint32_t begin = 0; begin < count && !status; begin = end) {
        for (end = begin + 1; end < count && starts[end].digest == starts[begin].digest; end++)
            ;
        status = compare_starts(&duplicates, starts + begin, end - begin, error);
    }
    episode_file_close(&duplicates.one.file);
    episode_file_close(&duplicates.other.file);
    free(duplicates.one.bytes);
    free(duplicates.one.values);
    free(duplicates.other.bytes);
    free(duplicates.other.values);
    free(duplicates.tolerances);
    free(starts);
    return status;
}
