#include "clients/cli/resample/convert_journal.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/digest.h"
#include "daemon/index/record.h"
#include "clients/cli/resample/convert_rows.h"
#include "clients/cli/resample/convert_io.h"

static const uint64_t journal_magic = UINT64_C(0x314C4E4A57524A54); /* "TJRWJNL1" */

/* Reads the journal one word at a time. `failed` is set when a word is missing. */
struct reading {
    const uint8_t *data;
    size_t length, at;
    bool failed;
};

static uint64_t take(struct reading *reading)
{
    uint64_t value = 0;

    if (reading->failed || reading->length - reading->at < sizeof value) {
        reading->failed = true;
        return 0;
    }
    memcpy(&value, reading->data + reading->at, sizeof value);
    reading->at += sizeof value;
    return value;
}

static bool ends_well(struct reading *reading, size_t begin)
{
    const uint64_t digest =
        reading->failed ? 0 : trajd_digest_of(reading->data + begin, reading->at - begin);

    return take(reading) == digest && !reading->failed;
}

static uint64_t array_count(const struct convert_plan *plan)
{
    uint64_t count = 0;

    for (uint32_t e = 0; e < plan->episode_count; e++)
        count += plan->episodes[e].array_count;
    return count;
}

static enum trajd_status write_all(int fd, struct trajd_bytes *bytes, const char *path,
                                   struct trajd_error *error)
{
    const off_t end = lseek(fd, 0, SEEK_END);
    const uint64_t digest = trajd_digest_of(bytes->data, bytes->length);
    enum trajd_status status;

    trajd_bytes_add_u64(bytes, digest);
    status = bytes->failed || end < 0
                 ? trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the journal")
                 : convert_pwrite(fd, bytes->data, bytes->length, (uint64_t)end, path, error);
    trajd_bytes_free(bytes);
    return status;
}

enum trajd_status convert_journal_begin(int fd, const struct convert_plan *plan,
                                        const struct convert_journal_head *head,
                                        struct trajd_error *error)
{
    struct trajd_bytes bytes = {0};

    trajd_bytes_add_u64(&bytes, journal_magic);
    trajd_bytes_add_u64(&bytes, plan->digest);
    trajd_bytes_add_u64(&bytes, head->file_size);
    trajd_bytes_add_u64(&bytes, head->signature);
    trajd_bytes_add_u64(&bytes, array_count(plan));
    for (uint32_t e = 0; e < plan->episode_count; e++)
        for (uint32_t a = 0; a < plan->episodes[e].array_count; a++)
            trajd_bytes_add_u64(&bytes, plan->episodes[e].arrays[a].offset);
    return write_all(fd, &bytes, plan->options->output, error);
}

enum trajd_status convert_journal_append(int fd, const struct convert_plan *plan, uint32_t episode,
                                         struct convert_chunk *const *chunks,
                                         struct trajd_error *error)
{
    const struct convert_episode *made = &plan->episodes[episode];
    struct trajd_bytes bytes = {0};
    uint64_t count = 0;

    for (uint32_t a = 0; a < made->array_count; a++)
        count += convert_chunk_count(&plan->datasets[made->arrays[a].dataset], made->step_count);
    trajd_bytes_add_u64(&bytes, episode);
    trajd_bytes_add_u64(&bytes, count);
    for (uint32_t a = 0; a < made->array_count; a++)
        for (uint64_t c = 0;
             c < convert_chunk_count(&plan->datasets[made->arrays[a].dataset], made->step_count);
             c++) {
            trajd_bytes_add_u64(&bytes, chunks[a][c].offset);
            trajd_bytes_add_u32(&bytes, chunks[a][c].size);
            trajd_bytes_add_u32(&bytes, chunks[a][c].mask);
        }
    return write_all(fd, &bytes, plan->options->output, error);
}

static enum trajd_status read_head(struct reading *reading, struct convert_plan *plan,
                                   struct convert_journal_head *head, struct trajd_error *error)
{
    const uint64_t magic = take(reading), digest = take(reading);
    uint64_t count;

    head->file_size = take(reading);
    head->signature = take(reading);
    count = take(reading);
    if (reading->failed || magic != journal_magic)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "there is no journal of an earlier run");
    if (digest != plan->digest || count != array_count(plan))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "it was begun with other inputs or options, or by another version");
    for (uint32_t e = 0; e < plan->episode_count; e++)
        for (uint32_t a = 0; a < plan->episodes[e].array_count; a++) {
            struct convert_array *array = &plan->episodes[e].arrays[a];
            const struct convert_dataset *dataset = &plan->datasets[array->dataset];
            array->offset = take(reading);
            if (!reading->failed && !dataset->is_compressed && !dataset->is_encoded &&
                (array->offset > head->file_size ||
                 dataset->row_bytes * plan->episodes[e].step_count >
                     head->file_size - array->offset))
                return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                                       "its journal has the offset %" PRIu64
                                       ", outside the file of %" PRIu64 " bytes",
                                       array->offset, head->file_size);
        }
    return ends_well(reading, 0)
               ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "its journal is incomplete");
}

/* Reads one record. Returns false at the end, and at the first incomplete record. */
static bool read_record(struct reading *reading, const struct convert_plan *plan, bool *done,
                        struct convert_chunk *const *const *chunks, uint64_t spool_size)
{
    const size_t begin = reading->at;
    const uint64_t episode = take(reading), count = take(reading);
    const struct convert_episode *made =
        &plan->episodes[episode < plan->episode_count ? episode : 0];
    uint64_t expected = 0;

    if (reading->failed || episode >= plan->episode_count)
        return false;
    for (uint32_t a = 0; a < made->array_count; a++)
        expected += convert_chunk_count(&plan->datasets[made->arrays[a].dataset], made->step_count);
    if (count != expected)
        return false;
    for (uint32_t a = 0; a < made->array_count; a++)
        for (uint64_t c = 0;
             c < convert_chunk_count(&plan->datasets[made->arrays[a].dataset], made->step_count);
             c++) {
            const uint64_t offset = take(reading), remainder = take(reading);
            const struct convert_chunk chunk = {offset, (uint32_t)remainder,
                                                (uint32_t)(remainder >> 32)};
            if (reading->failed || !chunks || offset > spool_size ||
                chunk.size > spool_size - offset)
                return false;
            chunks[episode][a][c] = chunk;
        }
    if (!ends_well(reading, begin))
        return false;
    done[episode] = true;
    return true;
}

enum trajd_status convert_journal_read(const uint8_t *data, size_t length,
                                       struct convert_plan *plan, struct convert_journal_head *head,
                                       bool *done, struct convert_chunk *const *const *chunks,
                                       uint64_t spool_size, size_t *used, struct trajd_error *error)
{
    struct reading reading = {.data = data, .length = length};
    enum trajd_status status = read_head(&reading, plan, head, error);

    if (status)
        return status;
    do
        *used = reading.at;
    while (read_record(&reading, plan, done, chunks, spool_size));
    return TRAJD_OK;
}
