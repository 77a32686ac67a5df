/* Examines rows of a file: which columns are stamps, and in which unit; which rows are matrices or
 * encoded images. What it finds are guesses by the values and the names. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/draft/draft_facts.h"
#include "daemon/base/memory.h"
#include "proto/regular_file.h"

enum { ROWS_MAX = 4096, EPISODES_MAX = 3, COLUMNS_MAX = 64 };

/* A clock of a robot has a rate in this range. */
static const double rate_min_hz = 1, rate_max_hz = 5000;
/* one that other stamps confirm may also be that of a battery or a GPS receiver */
static const double confirmed_min_hz = 0.01;
/* stamps since 1970 of the years 2001 to 2100 */
static const double epoch_min_s = 1e9, epoch_max_s = 4.1e9;
static const double repeats_max = 0.5;       /* of all steps */
static const double matrix_tolerance = 1e-3; /* of an element */

static const struct {
    double per_second;
    const char *names; /* of datasets in this unit */
} units[] = {
    [TRAJD_UNIT_NS] = {1e9, "nano|._ns$"},
    [TRAJD_UNIT_US] = {1e6, "micro|._us$"},
    [TRAJD_UNIT_MS] = {1e3, "milli|._ms$"},
    [TRAJD_UNIT_S] = {1, "seconds|._s$|._sec$"},
};

static bool is_rate(double rate_hz)
{
    return rate_hz >= rate_min_hz && rate_hz <= rate_max_hz;
}

/* Decides the unit: the one in which the stamps are times since 1970, that of the name, or one that
 * gives a plausible rate. Floats are rather seconds, integers rather ns. */
static bool find_unit(double first, double mean_step, bool is_integer, const char *name,
                      struct draft_clock *clock, bool *is_epoch)
{
    for (int i = TRAJD_UNIT_NS; i <= TRAJD_UNIT_S; i++) {
        clock->unit = (enum trajd_stamp_unit)i;
        *is_epoch = first >= epoch_min_s * units[i].per_second &&
                    first <= epoch_max_s * units[i].per_second;
        clock->is_unit_known = true;
        if (*is_epoch)
            return true;
    }
    for (int i = TRAJD_UNIT_NS; i <= TRAJD_UNIT_S; i++) {
        if (!draft_matches(name, units[i].names, REG_ICASE))
            continue;
        clock->unit = (enum trajd_stamp_unit)i;
        if (is_rate(units[i].per_second / mean_step))
            return true;
        break;
    }
    clock->is_unit_known = false;
    for (int i = 0; i <= TRAJD_UNIT_S - TRAJD_UNIT_NS; i++) {
        clock->unit = (enum trajd_stamp_unit)(is_integer ? TRAJD_UNIT_NS + i : TRAJD_UNIT_S - i);
        if (is_rate(units[clock->unit].per_second / mean_step))
            return true;
    }
    return false;
}

bool draft_is_clock(const double *values, uint64_t rows, uint64_t stride, const char *name,
                    struct draft_clock *clock)
{
    const char *last_name = draft_last_name(name);
    double smallest = INFINITY, largest = 0, mean;
    bool is_integer = true, is_epoch;
    uint64_t equal = 0;

    if (rows < 3)
        return false;
    for (uint64_t i = 0; i < rows; i++) {
        const double value = values[i * stride];
        const double step = i ? value - values[(i - 1) * stride] : INFINITY;
        is_integer = is_integer && value == floor(value);
        if (!(step >= 0)) /* also NaN */
            return false;
        equal += step == 0;
        smallest = step > 0 ? fmin(smallest, step) : smallest;
        largest = i ? fmax(largest, step) : largest;
    }
    clock->first = values[0];
    clock->last = values[(rows - 1) * stride];
    mean = (clock->last - clock->first) / (double)(rows - 1);
    if (!isfinite(mean) || mean <= 0 ||
        (double)(rows - 1 - equal) < (1 - repeats_max) * (double)(rows - 1) ||
        !find_unit(clock->first, mean, is_integer, name, clock, &is_epoch))
        return false;
    clock->rate_hz = units[clock->unit].per_second / mean;
    clock->has_repeats = equal > 0;
    clock->jitter_percent = 100 * fmax(largest / mean - 1, 1 - fmin(1, smallest / mean));
    if (draft_matches(name, "time|stamp|clock|t_ns|t_us|t_ms|sec", REG_ICASE) ||
        !strcmp(last_name, "t"))
        return is_rate(clock->rate_hz);
    /* numbers that often grow, and that are not times */
    if (draft_matches(name, "index|step|frame|progress|count|_id|rew|return|offset", REG_ICASE))
        return false;
    return is_epoch ? is_rate(clock->rate_hz)
                    : clock->jitter_percent < 20 && mean != 1 && smallest > 0;
}

/* Returns whether the numbers of both, without their units, lie mostly in the same range. */
static bool have_same_range(const struct draft_clock *a, const struct draft_clock *b)
{
    const double common = fmin(a->last, b->last) - fmax(a->first, b->first);

    return common > 0.5 * fmax(a->last - a->first, b->last - b->first);
}

/* Returns the rate that the clock has in another unit. */
static double rate_in(const struct draft_clock *clock, enum trajd_stamp_unit unit)
{
    return clock->rate_hz * units[unit].per_second / units[clock->unit].per_second;
}

void draft_settle_units(struct draft_clock *clocks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct draft_clock *clock = &clocks[i];
        for (uint32_t j = 0; j < count && !clock->is_unit_known; j++) {
            const struct draft_clock *other = &clocks[j];
            const double rate_hz = rate_in(clock, other->unit);
            if (other->unit == clock->unit || !have_same_range(clock, other) ||
                rate_hz < confirmed_min_hz || rate_hz > rate_max_hz ||
                (!other->is_unit_known && is_rate(rate_in(other, clock->unit))))
                continue;
            clock->unit = other->unit;
            clock->rate_hz = rate_hz;
        }
    }
}

bool draft_have_common_time(const struct draft_clock *a, const struct draft_clock *b)
{
    const double a_second = units[a->unit].per_second, b_second = units[b->unit].per_second;

    return a->last / a_second >= b->first / b_second && b->last / b_second >= a->first / a_second;
}

/* ---- matrices ---- */

static bool is_near(double value, double expected)
{
    return fabs(value - expected) < matrix_tolerance; /* false for NaN */
}

/* Tests four elements of a 4x4 matrix, the last row or the last column. */
static bool is_edge(const double *values, int step)
{
    return is_near(values[0], 0) && is_near(values[step], 0) && is_near(values[2 * step], 0) &&
           is_near(values[3 * step], 1);
}

/* Returns whether the rows of a 3x3 matrix, `stride` elements apart, have unit length and are
 * orthogonal. */
static bool is_rotation(const double *values, int stride)
{
    for (int i = 0; i < 3; i++) {
        for (int j = i; j < 3; j++) {
            const double *a = values + i * stride, *b = values + j * stride;
            if (!is_near(a[0] * b[0] + a[1] * b[1] + a[2] * b[2], i == j))
                return false;
        }
    }
    return true;
}

bool draft_are_matrices(const double *values, uint64_t rows, uint64_t elements)
{
    bool are_matrices = rows > 0 && (elements == 9 || elements == 16);

    for (uint64_t i = 0; i < rows && are_matrices; i++) {
        const double *row = values + i * elements;
        are_matrices = is_rotation(row, elements == 16 ? 4 : 3) &&
                       (elements == 9 || is_edge(row + 12, 1) || is_edge(row + 3, 4));
    }
    return are_matrices;
}

/* ---- reading ---- */

/* What is read of one episode. */
struct sample {
    struct trajd_array_reader *reader;
    int fd;
    double *values; /* [ROWS_MAX * COLUMNS_MAX] */
    void *rows;
};

/* Reads up to ROWS_MAX rows from `first` on as numbers. Returns their count; 0 where they cannot be
 * read. */
static uint64_t read_rows(struct sample *sample, const struct trajd_array *array, uint64_t first)
{
    const uint64_t elements = trajd_array_row_elements(array), rows = trajd_array_row_count(array);
    const uint64_t count = rows - first < ROWS_MAX ? rows - first : ROWS_MAX;

    if (!count || !elements || elements > COLUMNS_MAX ||
        trajd_array_read(sample->reader, sample->fd, array, first, count, sample->rows, NULL) ||
        !trajd_array_to_f64(array->dtype, sample->rows, count * elements, sample->values))
        return 0;
    return count;
}

/* Tests the first column of a stream in up to EPISODES_MAX kept episodes, which must agree: other
 * columns that grow are seldom stamps. */
static bool test_stream(const struct draft_facts *facts, struct sample *sample, uint32_t which,
                        struct draft_clock *clock)
{
    const struct trajd_index_stream *stream = draft_probed(facts, which);
    const struct trajd_index *index = facts->probe;
    bool has_repeats = false;
    uint32_t tested = 0;

    for (uint32_t e = 0; stream && e < index->episode_count && tested < EPISODES_MAX; e++) {
        const struct trajd_array *array = &index->episodes[e].extents[stream->array_index];
        const enum trajd_stamp_unit unit = clock->unit;
        uint64_t rows;
        if (index->episodes[e].quarantine || array->rank > 2 || trajd_array_row_count(array) < 3)
            continue;
        rows = read_rows(sample, array, 0);
        if (!rows ||
            !draft_is_clock(sample->values, rows, trajd_array_row_elements(array),
                            facts->streams[which].path, clock) ||
            (tested++ && clock->unit != unit))
            return false;
        has_repeats = clock->has_repeats = clock->has_repeats || has_repeats;
        if (read_rows(sample, array, trajd_array_row_count(array) - 1))
            clock->last = sample->values[0];
    }
    clock->stream = which;
    return tested > 0;
}

const struct trajd_index_stream *draft_probed(const struct draft_facts *facts, uint32_t stream)
{
    char name[32];
    int64_t found;

    snprintf(name, sizeof name, "s%u", stream);
    found = trajd_index_find_stream(facts->probe, name);
    return found < 0 ? NULL : &facts->probe->streams[found];
}

/* Looks at the rows of the array in the first kept episode: frames in padded bytes, or matrices. */
static void examine_rows(struct sample *sample, const struct trajd_array *array,
                         struct draft_stream *stream)
{
    static const uint8_t jpeg[] = {0xff, 0xd8, 0xff}, png[] = {0x89, 'P', 'N', 'G'};
    const uint64_t elements = trajd_array_row_elements(array), bytes = trajd_array_row_bytes(array);

    if (array->rank == 2 && array->dtype == TRAJD_U8 && trajd_array_row_count(array) &&
        bytes >= sizeof png && bytes <= ROWS_MAX * COLUMNS_MAX * sizeof(double) &&
        !trajd_array_read(sample->reader, sample->fd, array, 0, 1, sample->rows, NULL))
        stream->is_encoded =
            !memcmp(sample->rows, jpeg, sizeof jpeg) || !memcmp(sample->rows, png, sizeof png);
    if ((array->dtype == TRAJD_F32 || array->dtype == TRAJD_F64) && array->rank > 1 &&
        (elements == 9 || elements == 16))
        stream->is_matrix =
            draft_are_matrices(sample->values, read_rows(sample, array, 0), elements);
}

enum trajd_status draft_find_clocks(struct draft_facts *facts, struct trajd_error *error)
{
    const struct trajd_index *index = facts->probe;
    struct sample sample = {0};
    enum trajd_status status = trajd_open_regular(index->files[0].path, &sample.fd, error);
    uint32_t kept = 0;

    if (status)
        return status;
    sample.values = trajd_memory_or_exit(calloc(ROWS_MAX * COLUMNS_MAX, sizeof *sample.values));
    sample.rows = trajd_memory_or_exit(calloc(ROWS_MAX * COLUMNS_MAX, sizeof(double)));
    status = trajd_array_reader_create(&sample.reader, error);
    while (kept < index->episode_count && index->episodes[kept].quarantine)
        kept++;
    for (uint32_t s = 0; !status && s < facts->stream_count; s++) {
        struct draft_stream *stream = &facts->streams[s];
        const struct trajd_index_stream *probed = draft_probed(facts, s);
        struct draft_clock clock = {0};
        if (stream->left_out || stream->example->form != TRAJD_TREE_PLAIN ||
            facts->clock_count == DRAFT_CLOCKS_MAX)
            continue;
        if (probed && kept < index->episode_count)
            examine_rows(&sample, &index->episodes[kept].extents[probed->array_index], stream);
        if (!stream->is_encoded && test_stream(facts, &sample, s, &clock))
            facts->clocks[facts->clock_count++] = clock;
    }
    draft_settle_units(facts->clocks, facts->clock_count);
    trajd_array_reader_destroy(&sample.reader);
    free(sample.values);
    free(sample.rows);
    close(sample.fd);
    return status;
}
