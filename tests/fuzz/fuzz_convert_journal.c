// libs: trajd_convert
/* Any bytes as the journal of a small plan: all accepted records lie inside the file and the spool.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/resample/convert_journal.h"

enum { SPOOL_SIZE = 100 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct trajd_convert_options options = {.output = "out.hdf5"};
    struct convert_dataset datasets[2] = {
        {.row_bytes = 8},
        {.row_bytes = 8, .is_compressed = true, .chunk_rows = 3, .tile_count = 1}};
    struct convert_array arrays[2] = {{.dataset = 0}, {.dataset = 1}};
    struct convert_episode episode = {.step_count = 5, .array_count = 2, .arrays = arrays};
    struct convert_plan plan = {.options = &options,
                                .dataset_count = 2,
                                .datasets = datasets,
                                .episode_count = 1,
                                .episodes = &episode,
                                .digest = 77};
    struct convert_chunk rows[2] = {{0}}, *by_array[2] = {NULL, rows}, **by_episode[1] = {by_array};
    struct convert_journal_head head;
    struct trajd_error error = {0};
    bool done[1] = {false};
    size_t used = 0;

    if (convert_journal_read(data, size, &plan, &head, done,
                             (struct convert_chunk *const *const *)by_episode, SPOOL_SIZE, &used,
                             &error)) {
        if (!error.status || strpbrk(error.message, "\r\n"))
            abort();
        return 0;
    }
    if (used > size || arrays[0].offset > head.file_size ||
        head.file_size - arrays[0].offset < 5 * 8)
        abort();
    for (int c = 0; c < 2 && done[0]; c++)
        if (rows[c].offset > SPOOL_SIZE || rows[c].size > SPOOL_SIZE - rows[c].offset)
            abort();
    return 0;
}
