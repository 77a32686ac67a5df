#include "clients/cli/draft/draft_clocks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS_MAX = 4096, EPISODES_MAX = 3, COLUMNS_MAX = 64 };

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

/* Tests the first column of a stream in one episode: other columns that grow are seldom stamps. */
static bool test_column(const struct draft_stream *stream, const double *values, uint64_t rows,
                        uint64_t columns, bool is_first, struct draft_clock *clock)
{
    const struct draft_steps steps = draft_add_steps(values, rows, columns);
    struct draft_clock found = *clock;

    if (!draft_is_clock(&steps, stream->path, &found) || (!is_first && found.unit != clock->unit))
        return false;
    found.has_repeats = found.has_repeats || (!is_first && clock->has_repeats);
    *clock = found;
    return true;
}

/* Looks at a stream in up to EPISODES_MAX kept episodes; all must agree. */
static bool test_stream(const struct trajd_index *index, struct sample *sample, uint32_t which,
                        const struct draft_stream *stream, struct draft_clock *clock)
{
    char name[32];
    int64_t found;
    uint32_t tested = 0;

    snprintf(name, sizeof name, "s%u", which);
    found = trajd_index_find_stream(index, name);
    *clock = (struct draft_clock){.stream = which};
    for (uint32_t e = 0; found >= 0 && e < index->episode_count && tested < EPISODES_MAX; e++) {
        const struct trajd_episode *episode = &index->episodes[e];
        const struct trajd_array *array = &episode->extents[index->streams[found].array_index];
        uint64_t rows;
        if (episode->quarantine || array->rank > 2 || trajd_array_row_count(array) < 3)
            continue;
        rows = read_rows(sample, array, 0);
        if (!rows || !test_column(stream, sample->values, rows, trajd_array_row_elements(array),
                                  !tested, clock))
            return false;
        if (read_rows(sample, array, trajd_array_row_count(array) - 1))
            clock->last = sample->values[0];
        tested++;
    }
    return tested > 0;
}

/* Returns the stream's array in the first kept episode, or NULL. */
static const struct trajd_array *find_array(const struct trajd_index *index, uint32_t which)
{
    const struct trajd_array *array = NULL;
    char name[32];
    int64_t found;

    snprintf(name, sizeof name, "s%u", which);
    found = trajd_index_find_stream(index, name);
    for (uint32_t e = 0; found >= 0 && !array && e < index->episode_count; e++)
        if (!index->episodes[e].quarantine)
            array = &index->episodes[e].extents[index->streams[found].array_index];
    return array;
}

/* Looks at the first row of padded bytes. */
static bool is_encoded(struct sample *sample, const struct trajd_array *array)
{
    static const uint8_t jpeg[] = {0xff, 0xd8, 0xff}, png[] = {0x89, 'P', 'N', 'G'};

    return array && array->rank == 2 && array->dtype == TRAJD_U8 && trajd_array_row_count(array) &&
           trajd_array_row_bytes(array) >= sizeof png &&
           trajd_array_row_bytes(array) <= ROWS_MAX * COLUMNS_MAX * sizeof(double) &&
           !trajd_array_read(sample->reader, sample->fd, array, 0, 1, sample->rows, NULL) &&
           (!memcmp(sample->rows, jpeg, sizeof jpeg) || !memcmp(sample->rows, png, sizeof png));
}

static bool are_matrices(struct sample *sample, const struct trajd_array *array)
{
    const bool is_float =
        array && (array->dtype == TRAJD_F32 || array->dtype == TRAJD_F64) && array->rank > 1;
    const uint64_t elements = is_float ? trajd_array_row_elements(array) : 0;

    return (elements == 9 || elements == 16) &&
           draft_are_matrices(sample->values, read_rows(sample, array, 0), elements);
}

enum trajd_status draft_find_clocks(const struct trajd_index *index, struct draft_streams *streams,
                                    struct draft_clocks *clocks, struct trajd_error *error)
{
    struct sample sample = {.fd = open(index->files[0].path, O_RDONLY | O_CLOEXEC)};
    enum trajd_status status = TRAJD_OK;

    *clocks = (struct draft_clocks){0};
    sample.values = malloc(ROWS_MAX * COLUMNS_MAX * sizeof *sample.values);
    sample.rows = malloc(ROWS_MAX * COLUMNS_MAX * sizeof(double));
    if (sample.fd < 0)
        status = trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", index->files[0].path,
                                 strerror(errno));
    else if (!sample.values || !sample.rows)
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory");
    else
        status = trajd_array_reader_create(&sample.reader, error);
    for (uint32_t s = 0; !status && s < streams->count && clocks->count < DRAFT_CLOCKS_MAX; s++) {
        struct draft_stream *stream = &streams->list[s];
        const struct trajd_array *array = find_array(index, s);
        if (stream->left_out || stream->example->form != TRAJD_TREE_PLAIN)
            continue;
        stream->is_encoded = is_encoded(&sample, array);
        stream->is_matrix = are_matrices(&sample, array);
        if (!stream->is_encoded &&
            test_stream(index, &sample, s, stream, &clocks->list[clocks->count]))
            clocks->count++;
    }
    draft_settle_units(clocks);
    trajd_array_reader_destroy(&sample.reader);
    free(sample.values);
    free(sample.rows);
    if (sample.fd >= 0)
        close(sample.fd);
    return status;
}
