/* The words of video as files and pages have them, in the order of the enums. */
#include "daemon/layout/video.h"

#include <string.h>

#include "proto/array_len.h"

static const char *const codecs[] = {"none", "av1", "h264", "hevc"};
static const char *const matrices[] = {"unspecified", "bt601", "bt709", "bt2020"};
static const char *const ranges[] = {"unspecified", "limited", "full"};

static const char *name_of(const char *const *words, size_t count, unsigned value)
{
    return value < count ? words[value] : "?";
}

/* Returns the index of a word, or `count`. */
static unsigned find(const char *const *words, size_t count, const char *name)
{
    unsigned i = 0;

    while (i < count && strcmp(words[i], name) != 0)
        i++;
    return i;
}

const char *trajd_video_codec_name(enum trajd_video_codec codec)
{
    return name_of(codecs, ARRAY_LEN(codecs), codec);
}

const char *trajd_video_matrix_name(enum trajd_video_matrix matrix)
{
    return name_of(matrices, ARRAY_LEN(matrices), matrix);
}

const char *trajd_video_range_name(enum trajd_video_range range)
{
    return name_of(ranges, ARRAY_LEN(ranges), range);
}

bool trajd_video_codec_find(const char *name, enum trajd_video_codec *out)
{
    const unsigned i = find(codecs, ARRAY_LEN(codecs), name);

    if (i == TRAJD_VIDEO_NONE || i == ARRAY_LEN(codecs))
        return false;
    *out = (enum trajd_video_codec)i;
    return true;
}

bool trajd_video_matrix_find(const char *name, enum trajd_video_matrix *out)
{
    const unsigned i = find(matrices, ARRAY_LEN(matrices), name);

    if (i < ARRAY_LEN(matrices))
        *out = (enum trajd_video_matrix)i;
    return i < ARRAY_LEN(matrices);
}

bool trajd_video_range_find(const char *name, enum trajd_video_range *out)
{
    const unsigned i = find(ranges, ARRAY_LEN(ranges), name);

    if (i < ARRAY_LEN(ranges))
        *out = (enum trajd_video_range)i;
    return i < ARRAY_LEN(ranges);
}
