// libs: trajd_kernels
/* Blocks of any bytes: a block that can be opened can be run, and touches only its own memory. */
#include <string.h>

#include "kernels/dispatch/runner.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct trajd_runner *runner;
    struct trajd_error error;
    uint64_t answer_at, answer_bytes;
    void *room;

    if ((!runner && trajd_runner_create(NULL, NULL, &runner, &error)) ||
        trajd_runner_room(runner, size, &room, &error))
        return 0;
    if (size)
        memcpy(room, data, size);
    trajd_runner_run(runner, size, &answer_at, &answer_bytes, &error);
    return 0;
}
