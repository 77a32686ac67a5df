// libs: trajd_window
/* A file of statistics, ours or others': any bytes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "daemon/window/feed_spec/statistics.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trajd_statistics *statistics = NULL;
    struct trajd_yaml *yaml = NULL;
    struct trajd_error error;

    if (!trajd_yaml_parse("stats.json", (const char *)data, size, &yaml, &error) &&
        !trajd_statistics_read_yaml(yaml, "actions", &statistics, &error))
        free(statistics);
    trajd_yaml_destroy(&yaml);
    return 0;
}
