/* What a worker of libtrajd knows. The functions fail the running test where there is no answer. */
#ifndef TRAJD_TESTS_CLIENT_FACTS_H
#define TRAJD_TESTS_CLIENT_FACTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trajd.h"

/* Returns a number of the status document. */
static inline uint64_t number_in_status(struct trajd_client *client, const char *name)
{
    char *json, pattern[64];
    const char *found;
    struct trajd_error error;
    uint64_t value;

    if (trajd_client_status(client, 60000, &json, &error))
        fail_msg("%s", error.message);
    snprintf(pattern, sizeof pattern, "\"%s\":", name);
    found = strstr(json, pattern);
    assert_non_null(found);
    value = strtoull(found + strlen(pattern), NULL, 10);
    free(json);
    return value;
}

static inline uint64_t position_of(const struct trajd_batch *batch)
{
    struct trajd_batch_info info;

    trajd_batch_get_info(batch, &info);
    return info.position;
}

#endif
