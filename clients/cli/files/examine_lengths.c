/* Compares the dataset compress_len of ACT's files with the lengths of the padded frames. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/files/examine_internal.h"
#include "daemon/base/memory.h"
#include "daemon/base/json.h"

#define LENGTHS_BYTES_MAX (UINT64_C(64) << 20)

struct lengths {
    const struct examiner *examiner;
    const struct trajd_index *index;
    struct trajd_error *error;
    struct trajd_encoded_reader *frames;
    struct trajd_array_reader *reader;
    double *values; /* [cameras * columns] of an episode */
    uint64_t cameras, columns;
};

/* ---- compress_len ---- */

static bool has_padded_frames(const struct trajd_index *index)
{
    for (uint32_t s = 0; s < index->stream_count; s++)
        if (index->streams[s].form == TRAJD_ROWS_PADDED)
            return true;
    return false;
}

/* Writes a layout of the same episodes whose only stream is compress_len. */
static char *write_layout(const struct trajd_layout *layout)
{
    char *text = NULL;
    size_t size;
    FILE *out = trajd_memory_or_exit(open_memstream(&text, &size));

    fprintf(out, "layout: lengths\nepisodes: {files: ");
    trajd_json_text(out, layout->files);
    fprintf(out, ", groups: ");
    trajd_json_text(out, layout->groups);
    fprintf(out, "}\n"
                 "clocks: {cameras: {rate: 1, rows: compress_len}}\n"
                 "streams:\n"
                 "  compress_len: {path: compress_len, clock: cameras, kind: previous}\n");
    trajd_memory_close_or_exit(out, &text);
    return text;
}

/* Indexes compress_len. *index stays NULL where no episode has it. */
static enum trajd_status open_lengths(const struct cli_files *files, const char *path,
                                      const struct trajd_index *index, struct trajd_index **lengths,
                                      struct trajd_error *error)
{
    const struct trajd_index_options options = cli_files_options(files, path);
    char *text = write_layout(index->layout);
    struct trajd_layout *layout;
    enum trajd_status status;

    *lengths = NULL;
    status = trajd_layout_parse("lengths", text, strlen(text), &layout, error);
    free(text);
    if (!status)
        status = trajd_index_open_as(&options, layout, lengths, error);
    return status == TRAJD_ERR_MEMORY || status == TRAJD_ERR_IO ? status : TRAJD_OK;
}

/* Reads the lengths of an episode. *columns stays 0 where they are not numbers (cameras, T). */
static enum trajd_status read_lengths(struct lengths *l, const struct trajd_array *array, int fd)
{
    uint8_t *bytes;
    enum trajd_status status;

    l->cameras = l->columns = 0;
    if (array->rank != 2 || !array->size_bytes || array->size_bytes > LENGTHS_BYTES_MAX)
        return TRAJD_OK;
    bytes = trajd_memory_or_exit(malloc(array->size_bytes));
    free(l->values);
    l->values = trajd_memory_or_exit(calloc(array->shape[0] * array->shape[1], sizeof *l->values));
    status = trajd_array_read(l->reader, fd, array, 0, array->shape[0], bytes, l->error);
    if (!status &&
        trajd_array_to_f64(array->dtype, bytes, array->shape[0] * array->shape[1], l->values)) {
        l->cameras = array->shape[0];
        l->columns = array->shape[1];
    }
    free(bytes);
    return status;
}

/* ---- frames ---- */

/* How one row of compress_len differs from a camera's frames. */
struct misfit {
    uint64_t count;
    uint64_t row; /* the first frame with another length */
    double listed;
    uint64_t length;
};

static void compare(const struct lengths *l, struct misfit *misfits, uint64_t row, uint64_t length)
{
    for (uint64_t c = 0; c < l->cameras; c++) {
        const double listed = row < l->columns ? l->values[c * l->columns + row] : 0;
        if (listed != (double)length && !misfits[c].count++)
            misfits[c] = (struct misfit){1, row, listed, length};
    }
}

static void report_misfit(const struct lengths *l, const struct trajd_episode *episode,
                          const struct trajd_index_stream *stream, const struct misfit *misfit)
{
    struct examine_finding finding =
        examine_at(l->index, EXAMINE_FRAMES, episode, stream->name, misfit->count);

    finding.row = (int64_t)misfit->row;
    examine_report(l->examiner, &finding,
                   "no row of compress_len has the lengths of these frames: the nearest one "
                   "differs for %" PRIu64 ", first for row %" PRIu64
                   ", with %.17g where the frame has %" PRIu64 " bytes",
                   misfit->count, misfit->row, misfit->listed, misfit->length);
}

/* Reads the frames of one camera. A row that cannot be read is a finding of examine_index. */
static enum trajd_status examine_camera(struct lengths *l, const struct trajd_episode *episode,
                                        const struct trajd_index_stream *stream, int fd)
{
    const struct trajd_array *array = &episode->extents[stream->array_index];
    const uint64_t size = l->index->files[episode->file_index].stat.size_bytes;
    struct misfit *misfits = trajd_memory_or_exit(calloc(l->cameras, sizeof *misfits)),
                  *nearest = misfits;
    const struct trajd_row_bytes *rows;
    enum trajd_status status = TRAJD_OK;

    for (uint64_t row = 0, done; row < array->shape[0] && !status; row += done) {
        status = trajd_encoded_read(l->frames, fd, size, array, row, array->shape[0] - row, &rows,
                                    &done, l->error);
        for (uint64_t r = 0; r < done && !status; r++)
            compare(l, misfits, row + r, rows[r].size);
    }
    for (uint64_t c = 1; c < l->cameras; c++)
        if (misfits[c].count < nearest->count)
            nearest = &misfits[c];
    if (!status && nearest->count)
        report_misfit(l, episode, stream, nearest);
    free(misfits);
    return status == TRAJD_ERR_DATA ? TRAJD_OK : status;
}

static enum trajd_status examine_episode(struct lengths *l, const struct trajd_episode *episode,
                                         const struct trajd_array *lengths, int fd)
{
    enum trajd_status status = read_lengths(l, lengths, fd);

    for (uint32_t s = 0; s < l->index->stream_count && !status && l->columns; s++) {
        const struct trajd_index_stream *stream = &l->index->streams[s];
        const struct trajd_array *array = &episode->extents[stream->array_index];
        if (array->storage != TRAJD_STORAGE_ABSENT && array->form == TRAJD_ROWS_PADDED)
            status = examine_camera(l, episode, stream, fd);
    }
    return status == TRAJD_ERR_DATA ? TRAJD_OK : status;
}

/* ---- episodes ---- */

/* Finds the same episode in the index of compress_len, which has them in the same order, from *next
 * on. */
static const struct trajd_episode *find_episode(const struct trajd_index *index,
                                                const struct trajd_index *among,
                                                const struct trajd_episode *wanted, uint32_t *next)
{
    const char *file = index->files[wanted->file_index].relative_path;

    for (uint32_t i = 0; i < among->episode_count; i++) {
        const uint32_t at = (*next + i) % among->episode_count;
        const struct trajd_episode *episode = &among->episodes[at];
        if (!strcmp(episode->id, wanted->id) &&
            !strcmp(among->files[episode->file_index].relative_path, file)) {
            *next = at + 1;
            return episode->quarantine ? NULL : episode;
        }
    }
    return NULL;
}

static enum trajd_status examine_episodes(struct lengths *l, const struct trajd_index *lengths)
{
    struct episode_file file = {.index = l->index};
    enum trajd_status status = TRAJD_OK;
    uint32_t next = 0;

    for (uint32_t e = 0; e < l->index->episode_count && !status; e++) {
        const struct trajd_episode *episode = &l->index->episodes[e], *found;
        if (episode->quarantine || !(found = find_episode(l->index, lengths, episode, &next)))
            continue;
        status = episode_file_open(&file, episode, l->error);
        if (!status)
            status = examine_episode(l, episode, &found->extents[0], file.fd);
    }
    episode_file_close(&file);
    return status;
}

enum trajd_status examine_lengths(const struct examiner *examiner, const struct cli_files *files,
                                  const char *path, struct trajd_error *error)
{
    const struct trajd_index *index = examiner->index;
    struct lengths l = {.examiner = examiner, .index = index, .error = error};
    struct trajd_index *lengths = NULL;
    enum trajd_status status;

    if (!has_padded_frames(index))
        return TRAJD_OK;
    status = open_lengths(files, path, index, &lengths, error);
    if (!lengths)
        return status;
    trajd_encoded_reader_create(&l.frames, NULL);
    trajd_memory_or_exit(l.frames);
    trajd_array_reader_create(&l.reader, NULL);
    trajd_memory_or_exit(l.reader);
    status = examine_episodes(&l, lengths);
    trajd_encoded_reader_destroy(&l.frames);
    trajd_array_reader_destroy(&l.reader);
    free(l.values);
    trajd_index_destroy(&lengths);
    return status;
}
