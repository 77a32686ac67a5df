// libs: trajd_preprocess
/* Any bytes as the configuration of a preprocessing, and as the record of a file. */
#include <stddef.h>
#include <stdint.h>

#include "clients/cli/preprocess/prep_config.h"
#include "clients/cli/preprocess/prep_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct prep_config config;
    struct prep_record record = {0};
    struct trajd_error error;

    (void)prep_config_parse("preprocess.yaml", (const char *)data, size, &config, &error);
    prep_config_clear(&config);
    (void)prep_record_parse("manifest.json", (const char *)data, size, &record, &error);
    prep_record_clear(&record);
    return 0;
}
