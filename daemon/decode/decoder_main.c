/* trajd-decoder, the helper program that decodes pictures for a parent (decode_protocol.h). Only
 * trajd and trajctl start it. As "trajd-decoder describe" it says what is in an MP4 file
 * (mp4/describe.h), for trajd.convert. */
#include <stdio.h>
#include <string.h>

#include "daemon/decode/decode_child.h"
#include "daemon/decode/mp4/describe.h"
#include "daemon/sandbox/sandbox.h"

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "describe"))
        return trajd_describe_main();
    if (!trajd_sandbox_end_with_parent() || !trajd_sandbox_limit(false) ||
        !trajd_sandbox_filter(false)) {
        fprintf(stderr,
                "trajd-decoder: cannot start (is it run by hand? trajd and trajctl run it)\n");
        return 1;
    }
    return trajd_decode_serve(TRAJD_SANDBOX_SOCKET) ? 0 : 1;
}
