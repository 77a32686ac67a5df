/* Goes through all rows of a dataset and collects findings, for trajctl validate. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/files/examine_internal.h"
#include "daemon/base/memory.h"
#include "proto/plural.h"

#define BLOCK_BYTES (UINT64_C(4) << 20)
#define UNIT_TOLERANCE 1e-3

/* in the order of enum examine_rule */
const char *const examine_rule_names[EXAMINE_RULE_COUNT + 1] = {
    "refused",    "quarantined", "left-out",    "assumed-rate", "stamps",   "gaps",
    "ends-early", "frames",      "unreadable",  "not-finite",   "not-unit", "sign-flips",
    "constant",   "idle",        "quaternions", "angles",       "masks",    "drift",
    "duplicates", "stuck",       "lag"};

/* One stream over all episodes. */
struct scan {
    const struct trajd_index_stream *stream;
    bool as_bytes;      /* images: only changes are examined */
    uint64_t columns;   /* elements of a row that are examined */
    uint8_t *block;     /* rows as in the file */
    uint8_t *before;    /* the columns of the row before */
    double *values;     /* [columns] of one row */
    double *low, *high; /* [columns] over all rows */
    double *last;       /* [columns] of the row before */
    struct examine_wraps wraps;
    /* over all episodes: rows that follow another row, and those that equal it */
    uint64_t rows, repeated;
    struct examine_finding zero_frames, not_finite, not_unit, flips; /* of one episode */
    double worst_length;
};

static void examine_quaternion(struct scan *scan, const double *q, const double *last,
                               bool has_last, int64_t row)
{
    const double length = sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);

    if (fabs(length - 1) > UNIT_TOLERANCE) {
        examine_count(&scan->not_unit, row);
        if (fabs(length - 1) > fabs(scan->worst_length - 1))
            scan->worst_length = length;
    }
    if (has_last && q[0] * last[0] + q[1] * last[1] + q[2] * last[2] + q[3] * last[3] < -0.5)
        examine_count(&scan->flips, row);
}

static void examine_values(struct scan *scan, int64_t row)
{
    const enum trajd_kind kind = scan->stream->kind;
    bool finite = true;

    for (uint64_t d = 0; d < scan->columns; d++) {
        const double value = scan->values[d];
        finite = finite && isfinite(value);
        scan->low[d] = value < scan->low[d] ? value : scan->low[d];
        scan->high[d] = value > scan->high[d] ? value : scan->high[d];
    }
    if (!finite)
        examine_count(&scan->not_finite, row);
    if (finite && (kind == TRAJD_KIND_SLERP_XYZW || kind == TRAJD_KIND_SLERP_WXYZ))
        for (uint64_t d = 0; d + 4 <= scan->columns; d += 4)
            examine_quaternion(scan, scan->values + d, scan->last + d, row > 0, row);
    if (finite && row > 0 && kind == TRAJD_KIND_LINEAR)
        examine_wraps_add(&scan->wraps, scan->last, scan->values, scan->columns);
    memcpy(scan->last, scan->values, scan->columns * sizeof *scan->values);
}

static void examine_block(struct scan *scan, const struct trajd_array *array, int64_t first_row,
                          uint64_t row_count)
{
    const uint64_t size = trajd_dtype_size(array->dtype), row_bytes = trajd_array_row_bytes(array);
    const uint64_t bytes = scan->columns * size;

    for (uint64_t r = 0; r < row_count; r++) {
        const uint8_t *row = scan->block + r * row_bytes + scan->stream->first_column * size;
        const int64_t number = first_row + (int64_t)r;
        if (number > 0) {
            scan->rows++;
            scan->repeated += memcmp(row, scan->before, bytes) == 0;
        }
        memcpy(scan->before, row, bytes);
        if (scan->stream->image.color && bytes && !row[0] && !memcmp(row, row + 1, bytes - 1))
            examine_count(&scan->zero_frames, number);
        if (!scan->as_bytes && trajd_array_to_f64(array->dtype, row, scan->columns, scan->values))
            examine_values(scan, number);
    }
}

/* Begins the findings of an episode. `none` has no row. */
static void begin_episode(struct scan *scan, struct examine_finding none)
{
    scan->zero_frames = scan->not_finite = scan->not_unit = scan->flips = none;
    scan->zero_frames.rule = EXAMINE_FRAMES;
    scan->not_finite.rule = EXAMINE_NOT_FINITE;
    scan->not_unit.rule = EXAMINE_NOT_UNIT;
    scan->flips.rule = EXAMINE_SIGN_FLIPS;
    scan->worst_length = 1;
}

static void report_episode(const struct examiner *examiner, const struct scan *scan)
{
    examine_report(
        examiner, &scan->zero_frames,
        "%" PRIu64 " frame%s of zeros alone, the first is row %" PRId64
        ": the recorder probably failed to read them%s",
        scan->zero_frames.count, trajd_plural(scan->zero_frames.count), scan->zero_frames.row,
        scan->stream->image.masks_zero_frames ? "; feeds mask them"
                                              : "; zero_frames: mask in the layout masks them");
    examine_report(examiner, &scan->not_finite,
                   "%" PRIu64 " row%s with NaN or infinity, the first is row %" PRId64,
                   scan->not_finite.count, trajd_plural(scan->not_finite.count),
                   scan->not_finite.row);
    examine_report(examiner, &scan->not_unit,
                   "%" PRIu64 " quaternion%s not of unit length, the first in row %" PRId64
                   ", the worst of length %.6g",
                   scan->not_unit.count, trajd_plural(scan->not_unit.count), scan->not_unit.row,
                   scan->worst_length);
    examine_report(examiner, &scan->flips,
                   "%" PRIu64 " time%s a quaternion changes its sign, first at row %" PRId64
                   " (slerp takes the shorter arc)",
                   scan->flips.count, trajd_plural(scan->flips.count), scan->flips.row);
}

/* Examines the rows of one episode. Unreadable rows are a finding, but a storage failure is an
 * error: it tells nothing about the rows. */
static enum trajd_status examine_array(const struct examiner *examiner, struct scan *scan,
                                       const struct trajd_episode *episode, int fd,
                                       struct trajd_error *error)
{
    const struct trajd_array *array = &episode->extents[scan->stream->array_index];
    const uint64_t rows = trajd_array_row_count(array), row_bytes = trajd_array_row_bytes(array);
    const uint64_t chunk_rows = array->storage == TRAJD_STORAGE_CHUNKED ? array->chunk_shape[0] : 1;
    uint64_t step = row_bytes ? BLOCK_BYTES / row_bytes / chunk_rows * chunk_rows : 0;
    struct examine_finding finding =
        examine_at(examiner->index, EXAMINE_UNREADABLE, episode, scan->stream->name, 0);
    struct trajd_error cause;

    if (!row_bytes)
        return TRAJD_OK;
    step = step ? step : 1;
    begin_episode(scan, finding);
    for (uint64_t row = 0; row < rows; row += step) {
        const uint64_t count = rows - row < step ? rows - row : step;
        if (trajd_array_read(examiner->reader, fd, array, row, count, scan->block, &cause)) {
            if (cause.status == TRAJD_ERR_IO && cause.foreign_code)
                return trajd_error_set(error, cause.status, cause.foreign_code, "%s:%s: %s: %s",
                                       finding.file, finding.episode, finding.stream,
                                       cause.message);
            examine_count(&finding, (int64_t)row);
            examine_report(examiner, &finding, "%s", cause.message);
            break;
        }
        examine_block(scan, array, (int64_t)row, count);
    }
    report_episode(examiner, scan);
    return TRAJD_OK;
}

static void report_rotations(const struct examiner *examiner, const struct scan *scan,
                             struct examine_finding finding)
{
    char text[1024];

    finding.rule = EXAMINE_QUATERNIONS;
    finding.count = examine_quaternions(examiner->index, scan->stream, text);
    examine_report(examiner, &finding, "%s", text);
    finding.rule = EXAMINE_ANGLES;
    finding.count = scan->as_bytes ? 0
                                   : examine_wraps_end(&scan->wraps, scan->low, scan->high,
                                                       scan->columns, text, sizeof text);
    examine_report(examiner, &finding, "%s", text);
}

static void report_stream(const struct examiner *examiner, const struct scan *scan)
{
    struct examine_finding finding = {
        EXAMINE_CONSTANT, NULL, NULL, scan->stream->name, -1, 0, NULL};
    char columns[256] = "";
    size_t used = 0;

    for (uint64_t d = 0; !scan->as_bytes && scan->rows && d < scan->columns; d++) {
        if (scan->low[d] != scan->high[d])
            continue;
        finding.count++;
        if (used < sizeof columns - 32)
            used += (size_t)snprintf(columns + used, sizeof columns - used, "%s%" PRIu64 " (%.6g)",
                                     used ? ", " : "", d, scan->low[d]);
        else if (used < sizeof columns - 4)
            used += (size_t)snprintf(columns + used, sizeof columns - used, ", ..");
    }
    examine_report(examiner, &finding, "column %s: one value in all episodes", columns);
    finding.rule = EXAMINE_IDLE;
    finding.count = scan->repeated;
    if (scan->rows && scan->repeated * 2 >= scan->rows && examine_repeats_are_idle(scan->stream))
        examine_report(examiner, &finding, "%.0f%% of the rows repeat the row before",
                       100.0 * (double)scan->repeated / (double)scan->rows);
    report_rotations(examiner, scan, finding);
}

static uint64_t largest_row_bytes(const struct trajd_index *index, uint32_t dataset,
                                  uint64_t *largest_elements)
{
    uint64_t bytes = 0;

    *largest_elements = 0;
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_array *array = &index->episodes[e].extents[dataset];
        if (index->episodes[e].quarantine || array->storage == TRAJD_STORAGE_ABSENT)
            continue;
        bytes = trajd_array_row_bytes(array) > bytes ? trajd_array_row_bytes(array) : bytes;
        *largest_elements = trajd_array_row_elements(array) > *largest_elements
                                ? trajd_array_row_elements(array)
                                : *largest_elements;
    }
    return bytes;
}

static void start_scan(const struct trajd_index *index, const struct trajd_index_stream *stream,
                       struct scan *scan)
{
    uint64_t elements, row_bytes = largest_row_bytes(index, stream->array_index, &elements);
    const uint64_t columns = stream->feature_count;

    *scan = (struct scan){
        .stream = stream, .columns = columns, .as_bytes = columns > EXAMINE_WIDEST_ROW};
    scan->block = trajd_memory_or_exit(malloc(row_bytes > BLOCK_BYTES ? row_bytes : BLOCK_BYTES));
    scan->before = trajd_memory_or_exit(malloc(row_bytes + 1));
    if (scan->as_bytes)
        return;
    scan->values = trajd_memory_or_exit(calloc(5 * (columns + 1), sizeof *scan->values));
    scan->low = scan->values + columns;
    scan->high = scan->low + columns;
    scan->last = scan->high + columns;
    scan->wraps.moved = scan->last + columns;
    scan->wraps.radians =
        trajd_memory_or_exit(calloc(2 * (columns + 1), sizeof *scan->wraps.radians));
    scan->wraps.degrees = scan->wraps.radians + columns;
    for (uint64_t d = 0; d < columns; d++) {
        scan->low[d] = INFINITY;
        scan->high[d] = -INFINITY;
    }
}

static enum trajd_status examine_stream(const struct examiner *examiner,
                                        const struct trajd_index_stream *stream,
                                        struct trajd_error *error)
{
    const struct trajd_index *index = examiner->index;
    struct scan scan;
    struct episode_file file = {.index = index};
    enum trajd_status status = TRAJD_OK;

    start_scan(index, stream, &scan);
    for (uint32_t e = 0; e < index->episode_count && !status; e++) {
        const struct trajd_episode *episode = &index->episodes[e];
        if (episode->quarantine ||
            episode->extents[stream->array_index].storage == TRAJD_STORAGE_ABSENT)
            continue;
        status = episode_file_open(&file, episode, error);
        if (!status)
            status = trajd_array_is_encoded(&episode->extents[stream->array_index])
                         ? examine_frames(examiner, stream, episode, file.fd, error)
                         : examine_array(examiner, &scan, episode, file.fd, error);
    }
    episode_file_close(&file);
    if (!status)
        report_stream(examiner, &scan);
    free(scan.block);
    free(scan.before);
    free(scan.values);
    free(scan.wraps.radians);
    return status;
}

enum trajd_status examine_index(struct examiner *examiner, struct trajd_error *error)
{
    const struct trajd_index *index = examiner->index;
    enum trajd_status status = TRAJD_OK;

    trajd_array_reader_create(&examiner->reader, NULL);
    trajd_memory_or_exit(examiner->reader);
    trajd_encoded_reader_create(&examiner->encoded, NULL);
    trajd_memory_or_exit(examiner->encoded);
    examine_refusals(examiner);
    examine_rates(examiner);
    for (uint32_t e = 0; e < index->episode_count; e++)
        if (!index->episodes[e].quarantine)
            examine_clocks(examiner, &index->episodes[e]);
    for (uint32_t s = 0; s < index->stream_count && !status; s++)
        status = examine_stream(examiner, &index->streams[s], error);
    trajd_encoded_reader_destroy(&examiner->encoded);
    trajd_array_reader_destroy(&examiner->reader);
    return status;
}
