/* Finds episodes that are nearly the same: one that was stored twice, or replayed. Only episodes with
 * equal first rows are compared. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/files/examine_internal.h"
#include "daemon/base/digest.h"
#include "daemon/base/memory.h"

enum { COMPARED_MAX = 256 };

struct duplicates {
    const struct trajd_index *index;
    const struct examine_limits *limits;
    struct examine_rows rows, others; /* of the earlier episode, and of a later one */
    double *tolerances;               /* [stream_count] of the earlier one; NAN: not measured yet */
};

static uint64_t count_rows(const struct trajd_episode *episode,
                           const struct trajd_index_stream *stream)
{
    return examine_is_motion(stream) ? trajd_array_row_count(&episode->extents[stream->array_index])
                                     : 0;
}

static int compare_doubles(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

/* Finds how far rows may be apart: by the median change from row to row of the earlier episode. */
static enum trajd_status find_tolerance(struct duplicates *d, const struct trajd_episode *episode,
                                        const struct trajd_index_stream *stream, double *tolerance,
                                        struct trajd_error *error)
{
    const uint64_t row_count = count_rows(episode, stream), columns = stream->feature_count;
    double *changes = trajd_memory_or_exit(malloc((row_count + 1) * sizeof *changes));
    enum trajd_status status = TRAJD_OK;
    uint64_t used = 0;

    for (uint64_t begin = 0, count; begin + 1 < row_count && !status; begin += count - 1) {
        status = examine_rows_read(&d->rows, episode, stream, begin, &count, error);
        for (uint64_t r = 1; r < count && !status; r++) {
            const double *row = d->rows.values + r * columns;
            changes[used] = examine_distance(row, row - columns, columns);
            used += isfinite(changes[used]) != 0;
        }
    }
    qsort(changes, used, sizeof *changes, compare_doubles);
    *tolerance = used ? d->limits->duplicate_changes * changes[used / 2] : 0;
    free(changes);
    return status;
}

/* Finds which part of the rows of a stream are near; rows that only one episode has are not. Begins
 * at the end, where episodes that only begin alike differ most. Gives up when too many rows are far:
 * then *part becomes 0. */
static enum trajd_status compare_rows(struct duplicates *d, const struct trajd_episode *one,
                                      const struct trajd_episode *other,
                                      const struct trajd_index_stream *stream, double tolerance,
                                      double *part, struct trajd_error *error)
{
    const uint64_t a = count_rows(one, stream), b = count_rows(other, stream),
                   columns = stream->feature_count, most = a > b ? a : b;
    const double allowed = (1 - d->limits->duplicate_rows / 100) * (double)most;
    uint64_t end = a < b ? a : b, far = most - end, begin, count;
    enum trajd_status status = TRAJD_OK;

    for (; end && (double)far <= allowed && !status; end = begin) {
        begin = (end - 1) / EXAMINE_BLOCK_ROWS * EXAMINE_BLOCK_ROWS;
        status = examine_rows_read(&d->rows, one, stream, begin, &count, error);
        if (!status)
            status = examine_rows_read(&d->others, other, stream, begin, &count, error);
        for (uint64_t r = 0; r < end - begin && !status; r++)
            far += !(examine_distance(d->rows.values + r * columns, d->others.values + r * columns,
                                      columns) <= tolerance);
    }
    *part = (double)far <= allowed ? 1 - (double)far / (double)most : 0;
    return status;
}

/* Compares two episodes whose first rows are equal, so they have the same streams. *least becomes the
 * part of near rows of the stream that differs most, or 0. */
static enum trajd_status compare_episodes(struct duplicates *d, const struct trajd_episode *one,
                                          const struct trajd_episode *other,
                                          const struct trajd_index_stream **worst, double *least,
                                          struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;
    double part;

    *worst = NULL;
    for (uint32_t s = 0; s < d->index->stream_count && (!*worst || *least > 0); s++) {
        const struct trajd_index_stream *stream = &d->index->streams[s];
        if (!count_rows(one, stream))
            continue;
        if (isnan(d->tolerances[s]))
            status = find_tolerance(d, one, stream, &d->tolerances[s], error);
        if (!status)
            status = compare_rows(d, one, other, stream, d->tolerances[s], &part, error);
        part = status ? 0 : part;
        if (!*worst || part < *least) {
            *worst = stream;
            *least = part;
        }
    }
    return examine_rows_failure(status, error);
}

/* Returns a digest of the first rows of an episode; 0: it has none. */
static enum trajd_status digest_start(struct duplicates *d, const struct trajd_episode *episode,
                                      uint64_t *start, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;
    struct trajd_digest digest;
    uint64_t count;

    trajd_digest_init(&digest);
    for (uint32_t s = 0; s < d->index->stream_count && !status && !episode->quarantine; s++) {
        const struct trajd_index_stream *stream = &d->index->streams[s];
        if (!count_rows(episode, stream))
            continue;
        status = examine_rows_read(&d->rows, episode, stream, 0, &count, error);
        trajd_digest_add_u64(&digest, s);
        trajd_digest_add(&digest, d->rows.values, stream->feature_count * sizeof(double));
    }
    *start = digest.length && !status ? trajd_digest_end(&digest) : 0;
    return examine_rows_failure(status, error);
}

static void report(const struct examiner *examiner, const struct duplicates *d,
                   const struct trajd_episode *one, const struct trajd_episode *other,
                   const struct trajd_index_stream *worst, double least)
{
    const struct examine_finding finding = examine_at(d->index, EXAMINE_DUPLICATES, other, NULL, 1);

    examine_report(examiner, &finding,
                   "nearly repeats %s: %s: the first rows are equal, and of %s, which differs "
                   "most, %.1f%% of the rows are within %g median changes from row to row (%g%% or "
                   "more is a finding)",
                   d->index->files[one->file_index].relative_path, one->id, worst->name,
                   100 * least, d->limits->duplicate_changes, d->limits->duplicate_rows);
}

/* Compares all pairs, of an episode the next COMPARED_MAX ones that begin alike: in some sets all
 * episodes do. An episode that repeats an earlier one is not compared with later ones. */
static enum trajd_status compare_pairs(const struct examiner *examiner, struct duplicates *d,
                                       uint64_t *starts, struct trajd_error *error)
{
    const struct trajd_episode *const episodes = d->index->episodes;
    const struct trajd_index_stream *worst;
    enum trajd_status status = TRAJD_OK;
    double least = 0;

    for (uint32_t a = 0; a < d->index->episode_count && !status; a++) {
        uint32_t compared = 0;
        for (uint32_t s = 0; s < d->index->stream_count; s++)
            d->tolerances[s] = NAN;
        for (uint32_t b = a + 1; b < d->index->episode_count && starts[a] && !status; b++) {
            if (starts[b] != starts[a])
                continue;
            if (compared++ == COMPARED_MAX)
                break;
            status = compare_episodes(d, &episodes[a], &episodes[b], &worst, &least, error);
            if (status || !(least > 0))
                continue;
            report(examiner, d, &episodes[a], &episodes[b], worst, least);
            starts[b] = 0;
        }
    }
    return status;
}

enum trajd_status examine_duplicates(const struct examiner *examiner, struct trajd_error *error)
{
    const struct trajd_index *index = examiner->index;
    struct duplicates d = {.index = index, .limits = examiner->limits};
    uint64_t *starts = trajd_memory_or_exit(calloc(index->episode_count + 1, sizeof *starts));
    enum trajd_status status = TRAJD_OK;

    d.tolerances = trajd_memory_or_exit(calloc(index->stream_count + 1, sizeof *d.tolerances));
    examine_rows_open(&d.rows, index);
    examine_rows_open(&d.others, index);
    for (uint32_t e = 0; e < index->episode_count && !status; e++)
        status = digest_start(&d, &index->episodes[e], &starts[e], error);
    if (!status)
        status = compare_pairs(examiner, &d, starts, error);
    examine_rows_close(&d.rows);
    examine_rows_close(&d.others);
    free(d.tolerances);
    free(starts);
    return status;
}
