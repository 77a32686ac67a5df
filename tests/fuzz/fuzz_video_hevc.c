// libs: trajd_decode_child
/* Packets and extradata of HEVC: see video_unit.h. */
#include "video_unit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_loaded;

    if (!is_loaded)
        trajd_decode_load_avcodec();
    is_loaded = true;
    return run_video(TRAJD_VIDEO_HEVC, data, size);
}
