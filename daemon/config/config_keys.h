/* The table of the keys that are single values, shared by the reader (config.c) and the printer
 * (config_print.c). */
#ifndef TRAJD_CONFIG_CONFIG_KEYS_H
#define TRAJD_CONFIG_CONFIG_KEYS_H

#include <stddef.h>

#include "daemon/config/config.h"

enum trajd_config_key_type { KEY_STRING, KEY_BOOL, KEY_SIZE, KEY_COUNT, KEY_DURATION };

/* One row a key: where it stands, what it is, where it goes, what it may be. */
struct trajd_config_key {
    const char *section; /* NULL: the top level */
    const char *name;
    enum trajd_config_key_type type;
    size_t offset; /* in struct trajd_config */
    int64_t low, high, preset;
};

extern const struct trajd_config_key trajd_config_keys[];
extern const size_t trajd_config_key_count;

#endif
