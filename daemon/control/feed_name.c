#include "daemon/control/control_internal.h"

#include <stdio.h>
#include <string.h>

#include "daemon/base/digest.h"

#define SPEC_PREFIX "spec:"
#define PLACE_MARK '@'
#define INSTANCE_MARK '#'

void trajd_feed_name_of_text(const char *text, char *name, size_t size)
{
    const uint64_t hash = trajd_fnv(TRAJD_FNV_BEGIN, text, strlen(text));

    snprintf(name, size, SPEC_PREFIX "%016llx", (unsigned long long)hash);
}

void trajd_feed_name_of_instance(const char *family, uint32_t number, char *name, size_t size)
{
    snprintf(name, size, "%s%c%u", family, INSTANCE_MARK, number);
}

size_t trajd_feed_name_family_length(const char *name)
{
    return strcspn(name, (const char[]){INSTANCE_MARK, 0});
}

size_t trajd_feed_name_base_length(const char *name)
{
    return strcspn(name, (const char[]){INSTANCE_MARK, PLACE_MARK, 0});
}

bool trajd_feed_name_is_in_family(const char *name, const char *family)
{
    const size_t length = strlen(family);

    return trajd_feed_name_family_length(name) == length && strncmp(name, family, length) == 0;
}

bool trajd_feed_name_is_configured(const char *name)
{
    return strncmp(name, SPEC_PREFIX, sizeof SPEC_PREFIX - 1) != 0;
}

bool trajd_feed_name_has_place(const char *name)
{
    return trajd_feed_name_base_length(name) != trajd_feed_name_family_length(name);
}

bool trajd_feed_name_may_close(const char *name)
{
    return !trajd_feed_name_is_configured(name) || name[trajd_feed_name_base_length(name)];
}
