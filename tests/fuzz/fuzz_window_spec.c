// libs: trajd_window
/* Any bytes as the specification of a feed in OPEN. */
#include <stddef.h>
#include <stdint.h>

#include "daemon/window/feed_spec/window_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trajd_window_spec *spec = NULL;
    struct trajd_yaml *yaml = NULL;
    struct trajd_error error;

    if (!trajd_yaml_parse("spec", (const char *)data, size, &yaml, &error) &&
        !trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), "spec", 2, &spec, &error))
        trajd_window_spec_destroy(&spec);
    trajd_yaml_destroy(&yaml);
    return 0;
}
