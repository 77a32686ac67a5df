/* trajd-decoder, the helper program that decodes pictures for a parent (decode_protocol.h). Only
 * trajd and trajctl start it. */
#include <stdio.h>

#include "daemon/decode/decode_child.h"
#include "daemon/sandbox/sandbox.h"

int main(void)
{
    if (!trajd_sandbox_end_with_parent() || !trajd_sandbox_limit(false) ||
        !trajd_sandbox_filter(false)) {
        fprintf(stderr,
                "trajd-decoder: cannot start (is it run by hand? trajd and trajctl run it)\n");
        return 1;
    }
    return trajd_decode_serve(TRAJD_SANDBOX_SOCKET) ? 0 : 1;
}
