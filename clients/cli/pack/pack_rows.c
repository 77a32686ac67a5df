/* Reads the frames of a dataset twice: once to find how long each is, once to write them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/pack/pack_internal.h"
#include "daemon/base/files.h"
#include "daemon/base/memory.h"
#include "daemon/base/progress/progress.h"

#define BLOCK_BYTES                                                                                \
    (UINT64_C(2) << 20)          /* of stored rows that are read at a time: they stay in cache */
#define BLOCK_ROWS UINT64_C(256) /* that are read and written at a time at most */

static bool is_raw(const struct pack_dataset *dataset)
{
    return !trajd_array_is_encoded(&dataset->array);
}

/* ---- reading ---- */

/* Returns how many rows are read at a time. Of raw pixels in chunks these are whole chunks, so that
 * none is inflated twice. */
static uint64_t block_rows(const struct pack_dataset *dataset, uint64_t row)
{
    const struct trajd_array *array = &dataset->array;
    const uint64_t rest = array->shape[0] - row,
                   width = array->form == TRAJD_ROWS_HEAP ? BLOCK_BYTES / 64
                                                          : trajd_array_row_bytes(array),
                   fit =
                       width && BLOCK_BYTES / width < BLOCK_ROWS ? BLOCK_BYTES / width : BLOCK_ROWS;
    uint64_t rows = fit ? fit : 1;

    if (is_raw(dataset)) {
        const uint64_t chunk = array->chunk_shape[0];
        rows = chunk > BLOCK_ROWS ? BLOCK_ROWS : (rows + chunk - 1) / chunk * chunk;
        rows = rows > BLOCK_ROWS ? BLOCK_ROWS : rows;
    }
    return rest < rows ? rest : rows;
}

enum trajd_status pack_read_failed(struct pack *p, const struct pack_dataset *dataset,
                                   enum trajd_status status)
{
    if (status)
        trajd_error_prefix(p->error, "%s: %s", p->options->index->files[0].relative_path,
                           dataset->path);
    return status;
}

enum trajd_status pack_check_cancelled(struct pack *p)
{
    if (p->options->cancel && __atomic_load_n(p->options->cancel, __ATOMIC_RELAXED))
        return trajd_error_set(p->error, TRAJD_ERR_CLOSED, 0, "interrupted");
    return TRAJD_OK;
}

void pack_report_rows(struct pack *p, uint64_t count)
{
    p->rows_done += count;
    trajd_progress_report("pack", "frames", p->rows_done, p->row_total);
}

/* Reads some rows. Those of raw pixels are read as padded ones, whose length is not asked for. */
static enum trajd_status read_rows(struct pack *p, const struct pack_dataset *dataset, uint64_t row,
                                   const struct trajd_row_bytes **rows, uint64_t *done)
{
    const struct trajd_index_file *file = &p->options->index->files[0];
    struct trajd_array array = dataset->array;
    enum trajd_status status = pack_check_cancelled(p);

    if (status)
        return status;
    if (is_raw(dataset))
        array.form = TRAJD_ROWS_PADDED;
    status = trajd_encoded_read(p->reader, p->input, file->stat.size_bytes, &array, row,
                                block_rows(dataset, row), rows, done, p->error);
    if (!status)
        pack_report_rows(p, *done);
    return pack_read_failed(p, dataset, status);
}

uint64_t pack_count_rows(const struct pack_dataset *dataset)
{
    return dataset->array.shape[0] * (is_raw(dataset) || dataset->is_prepared ? 1 : 2);
}

/* ---- measuring ---- */

static uint64_t stored_bytes(const struct trajd_array *array)
{
    uint64_t bytes = 0;

    if (array->form == TRAJD_ROWS_PACKED || array->form == TRAJD_ROWS_VIDEO)
        return array->size_bytes + array->payload_bytes;
    if (array->storage != TRAJD_STORAGE_CHUNKED)
        return array->size_bytes;
    for (uint64_t i = 0; i < array->chunk_count; i++)
        if (array->chunks[i].offset != TRAJD_ARRAY_MISSING_CHUNK)
            bytes += array->chunks[i].stored_size;
    return bytes;
}

/* All rows of raw pixels have one length, as have prepared frames, unless they become JPEGs: the
 * lengths of these are found as they are made. */
static void measure_raw(struct pack_dataset *dataset)
{
    const int64_t width = (int64_t)(dataset->is_prepared ? trajd_image_bytes(&dataset->preparation)
                                                         : trajd_array_row_bytes(&dataset->array));

    dataset->encoding = dataset->jpeg_quality ? TRAJD_ENCODING_JPEG : TRAJD_ENCODING_RAW;
    for (uint64_t row = 0; row < dataset->array.shape[0] && !dataset->jpeg_quality; row++)
        dataset->offsets[row + 1] = dataset->offsets[row] + width;
}

static enum trajd_status measure_encoded(struct pack *p, struct pack_dataset *dataset)
{
    const struct trajd_row_bytes *rows;
    enum trajd_status status = TRAJD_OK;

    for (uint64_t row = 0, done; row < dataset->array.shape[0] && !status; row += done) {
        status = read_rows(p, dataset, row, &rows, &done);
        for (uint64_t r = row; r < row + done && !status; r++) {
            struct trajd_image_header header;
            dataset->offsets[r + 1] = dataset->offsets[r] + (int64_t)trajd_encoded_frame_bytes(
                                                                &dataset->array, &rows[r - row],
                                                                &dataset->image, &header);
            if (r == 0)
                dataset->encoding = header.encoding;
            else if (header.encoding != dataset->encoding)
                dataset->encoding = TRAJD_ENCODING_AUTO;
        }
    }
    return status;
}

enum trajd_status pack_measure(struct pack *p, struct pack_dataset *dataset)
{
    const uint64_t rows = dataset->array.shape[0];
    enum trajd_status status = TRAJD_OK;

    if (is_raw(dataset) || dataset->is_prepared)
        measure_raw(dataset);
    else
        status = measure_encoded(p, dataset);
    p->result->stream_count++;
    p->result->frame_count += rows;
    p->result->stored_bytes += stored_bytes(&dataset->array);
    if (dataset->array.form == TRAJD_ROWS_HEAP && !dataset->is_prepared)
        p->result->stored_bytes += (uint64_t)dataset->offsets[rows];
    p->result->packed_bytes += (uint64_t)dataset->offsets[rows] + 8 * (rows + 1);
    return status;
}

/* ---- writing ---- */

/* Sends the block that is being filled, and takes an empty one. */
static enum trajd_status exchange_block(struct pack *p)
{
    enum trajd_status status = p->rows ? convert_writer_send_block(&p->writer, p->rows) : TRAJD_OK;

    p->rows = status ? NULL : convert_writer_take(&p->writer);
    return p->rows ? TRAJD_OK : p->error->status;
}

/* Returns the entry to which elements from `first` on are added. */
static struct trajd_writer_rows *find_entry(struct pack *p, uint32_t array, uint64_t first)
{
    struct convert_block *block = p->rows;
    struct trajd_writer_rows *last = block->count ? &block->rows[block->count - 1] : NULL;

    if (last && last->episode == p->written && last->array == array &&
        last->place[0] + last->rows == first)
        return last;
    last = &block->rows[block->count++];
    *last = (struct trajd_writer_rows){
        .episode = p->written, .array = array, .place = {first}, .at = block->at + block->used};
    return last;
}

enum trajd_status pack_put(struct pack *p, uint32_t array, uint64_t first, const void *data,
                           uint64_t length)
{
    const uint64_t width = array == PACK_OFFSETS ? sizeof(int64_t) : 1;
    const uint8_t *next = data;

    while (length) {
        struct trajd_writer_rows *entry;
        uint64_t size;
        if (!p->rows || p->rows->size - p->rows->used < width ||
            p->rows->count == CONVERT_BLOCK_ROWS) {
            enum trajd_status status = exchange_block(p);
            if (status)
                return status;
        }
        size = (p->rows->size - p->rows->used) / width * width;
        size = length < size ? length : size;
        entry = find_entry(p, array, first);
        memcpy(p->rows->bytes + p->rows->used, next, size);
        entry->rows += size / width;
        entry->size += size;
        p->rows->used += size;
        next += size;
        first += size / width;
        length -= size;
    }
    return TRAJD_OK;
}

/* Checks that a frame has the length that was measured, because the input may change meanwhile. Packed
 * rows have no type: the first bytes of raw pixels must not make them a JPEG or PNG. */
static enum trajd_status check_frame(struct pack *p, const struct pack_dataset *dataset,
                                     uint64_t row, const struct trajd_row_bytes *bytes)
{
    const uint64_t size = (uint64_t)(dataset->offsets[row + 1] - dataset->offsets[row]);
    struct trajd_image_header header;

    if (!is_raw(dataset))
        return trajd_encoded_frame_bytes(&dataset->array, bytes, &dataset->image, &header) == size
                   ? TRAJD_OK
                   : trajd_error_set(p->error, TRAJD_ERR_DATA, 0,
                                     "%s: row %llu changed while it was packed", dataset->path,
                                     (unsigned long long)row);
    return !trajd_image_examine(bytes->data, size, size, &dataset->image, &header, NULL) &&
                   header.encoding == TRAJD_ENCODING_RAW
               ? TRAJD_OK
               : trajd_error_set(p->error, TRAJD_ERR_DATA, 0,
                                 "%s: the raw pixels of row %llu begin like a JPEG or PNG; write "
                                 "encoding: raw into the stream's image: in the layout",
                                 dataset->path, (unsigned long long)row);
}

enum trajd_status pack_write(struct pack *p, const struct pack_dataset *dataset)
{
    const int64_t *offsets = dataset->offsets;
    const struct trajd_row_bytes *rows;
    enum trajd_status status = TRAJD_OK;

    for (uint64_t row = 0, done; row < dataset->array.shape[0] && !status; row += done) {
        status = read_rows(p, dataset, row, &rows, &done);
        for (uint64_t r = row; r < row + done && !status; r++) {
            status = check_frame(p, dataset, r, &rows[r - row]);
            if (!status)
                status = pack_put(p, PACK_BYTES, (uint64_t)offsets[r], rows[r - row].data,
                                  (uint64_t)(offsets[r + 1] - offsets[r]));
        }
    }
    return status;
}

enum trajd_status pack_write_offsets(struct pack *p, const struct pack_dataset *dataset)
{
    const uint64_t rows = dataset->array.shape[0];
    enum trajd_status status =
        pack_put(p, PACK_OFFSETS, 0, dataset->offsets, (rows + 1) * sizeof *dataset->offsets);

    if (!status)
        status = convert_writer_send_block(&p->writer, p->rows);
    p->rows = NULL;
    p->written++;
    /* Only begins to write to the disk, which goes on during the next reads and the check. */
    sync_file_range(p->output.fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    return status;
}

/* ---- the spool ---- */

static enum trajd_status spool_failed(struct pack *p)
{
    return trajd_error_set(p->error, TRAJD_ERR_IO, errno,
                           "%s: a temporary file beside it, for the JPEGs of a dataset: %s",
                           p->options->output, strerror(errno));
}

enum trajd_status pack_spool(struct pack *p, const void *data, uint64_t size)
{
    char name[OUTPUT_PATH_SIZE + 8];

    if (p->spool < 0) {
        snprintf(name, sizeof name, "%s.XXXXXX", p->output.partial);
        p->spool = mkostemp(name, O_CLOEXEC);
        if (p->spool < 0 || unlink(name))
            return spool_failed(p);
    }
    return trajd_file_write_all(p->spool, data, size) ? spool_failed(p) : TRAJD_OK;
}

enum trajd_status pack_write_spooled(struct pack *p, const struct pack_dataset *dataset)
{
    const uint64_t bytes = (uint64_t)dataset->offsets[dataset->array.shape[0]];
    uint8_t *block = trajd_memory_or_exit(malloc(BLOCK_BYTES));
    enum trajd_status status = TRAJD_OK;

    p->result->packed_bytes += bytes;
    for (uint64_t at = 0; at < bytes && !status;) {
        const ssize_t size = pread(p->spool, block, BLOCK_BYTES, (off_t)at);
        status = size <= 0 ? spool_failed(p) : pack_put(p, PACK_BYTES, at, block, (uint64_t)size);
        at += (uint64_t)size;
    }
    free(block);
    if (!status && bytes && (ftruncate(p->spool, 0) || lseek(p->spool, 0, SEEK_SET)))
        return spool_failed(p);
    return status;
}
