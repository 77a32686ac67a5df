/* trajd-decoder, the helper program that decodes images and video for a parent
 * (decode_protocol.h). Only trajd and trajctl start it. As "trajd-decoder describe" it says what is
 * in an MP4 file (mp4/describe.h), for trajd.convert. */
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "daemon/decode/decode_child.h"
#include "daemon/decode/mp4/describe.h"
#include "daemon/sandbox/sandbox.h"

/* Each decode unit has a codec of its own. The frames of one are allocated where those of the codec
 * before it were, if malloc keeps them: 35 % of the time where units have two frames. */
static void keep_freed_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

int main(int argc, char **argv)
{
    const char *task = argc > 1 ? argv[1] : "";

    if (!strcmp(task, "codecs")) {
        trajd_decode_load_avcodec();
        trajd_decode_print_codecs();
        return 0;
    }
    if (!strcmp(task, "describe"))
        return trajd_describe_main();
    keep_freed_memory();
    if (!trajd_sandbox_end_with_parent() || !trajd_sandbox_limit(false)) {
        fprintf(stderr,
                "trajd-decoder: cannot start (is it run by hand? trajd and trajctl run it)\n");
        return 1;
    }
    if (!strcmp(task, TRAJD_DECODE_TASK_AVCODEC))
        trajd_decode_load_avcodec(); /* opens files, which the filter forbids */
    return trajd_sandbox_filter(false) && trajd_decode_serve(TRAJD_SANDBOX_SOCKET) ? 0 : 1;
}
