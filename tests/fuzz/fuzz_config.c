// libs: trajd_config
/* Any bytes as trajd.yaml, and as a value of the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Loads the file. The first line is also a value of the command line. */
static void load(const char *path, const char *line)
{
    const struct trajd_config_value value = {line, false};
    struct trajd_config *config = NULL;
    struct trajd_error error = {0};
    FILE *nowhere;

    if (trajd_config_load(path, &value, line != NULL, &config, &error)) {
        if (config || !error.status || strpbrk(error.message, "\r\n"))
            abort();
        return;
    }
    if (config->dataset_count > TRAJD_CONFIG_MAX_DATASETS ||
        config->feed_count > TRAJD_CONFIG_MAX_FEEDS)
        abort();
    nowhere = fopen("/dev/null", "w");
    if (nowhere) {
        trajd_config_print(config, nowhere);
        trajd_config_print_json(config, nowhere);
        fclose(nowhere);
    }
    trajd_config_destroy(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int fd = memfd_create("fuzz_config", MFD_CLOEXEC);
    char path[64], line[128];
    const char *end = size ? memchr(data, '\n', size) : NULL;
    const size_t length = end ? (size_t)(end - (const char *)data) : size;

    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size))
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    load(path, NULL);
    snprintf(line, sizeof line, "%.*s", (int)(length < sizeof line ? length : sizeof line - 1),
             (const char *)data);
    load(path, line);
    close(fd);
    return 0;
}
