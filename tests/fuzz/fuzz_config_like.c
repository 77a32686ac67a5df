// libs: trajd_config
/* Any bytes as the feed that a job sends: it may be like a feed of the configuration. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct trajd_config *load(void)
{
    static const char text[] =
        "{version: 2, datasets: {d: {path: d, layout: l}}, feeds: {train: {dataset: d, "
        "global_batch: 2, anchor: {rate: 1}, where: {a: b}, outputs: {x: {at: 0}, y: {at: 0}}}, "
        "valid: {like: train, outputs: {y: null}}}}";
    char path[] = "/tmp/trajd_fuzz_XXXXXX";
    const int fd = mkstemp(path);
    struct trajd_config *config = NULL;
    struct trajd_error error;

    if (fd < 0 || write(fd, text, sizeof text - 1) != (ssize_t)sizeof text - 1 ||
        trajd_config_load(path, NULL, 0, &config, &error))
        abort();
    close(fd);
    unlink(path);
    return config;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct trajd_config *config;
    struct trajd_yaml *yaml = NULL;
    struct trajd_error error;
    char *expanded, *text = strndup((const char *)data, size);

    config = config ? config : load();
    if (!text)
        abort();
    if (!trajd_config_expand_feed(config, text, &expanded, &error) && expanded &&
        trajd_yaml_parse("expanded", expanded, strlen(expanded), &yaml, &error) &&
        strlen(expanded) < 1 << 20)
        abort();
    trajd_yaml_destroy(&yaml);
    free(expanded);
    free(text);
    return 0;
}
