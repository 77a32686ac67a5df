// libs: trajd_decode_child
/* Packets and extradata of AV1: see video_unit.h. */
#include "video_unit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return run_video(TRAJD_VIDEO_AV1, data, size);
}
