// libs: trajd_server
/* Any bytes as a connection of ZMTP 3, read at once and in two parts. */
#include <stdint.h>
#include <stdlib.h>

#include "daemon/server/transport/zmtp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte is where the second part begins. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trajd_zmtp whole, parts;

    if (size == 0)
        return 0;
    const size_t first = data[0] % size;
    trajd_zmtp_begin(&whole);
    trajd_zmtp_begin(&parts);
    const bool good = trajd_zmtp_read(&whole, data + 1, size - 1);
    if (trajd_zmtp_read(&parts, data + 1, first) &&
        trajd_zmtp_read(&parts, data + 1 + first, size - 1 - first) != good)
        abort();
    if (good && (whole.cost != parts.cost || whole.remaining != parts.remaining))
        abort();
    return 0;
}
