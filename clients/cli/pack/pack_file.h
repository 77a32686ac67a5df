/* Packs the frames of one file: a copy in which each dataset of frames is a group with the
 * datasets `bytes` (N) u8 and `offsets` (T + 1) i64. */
#ifndef TRAJD_CLI_PACK_PACK_FILE_H
#define TRAJD_CLI_PACK_PACK_FILE_H

#include "daemon/index/index.h"
#include "daemon/window/image/image_spec.h"

/* What an output of a feed asks for. */
struct pack_preparation {
    const char *stream; /* by its name; NULL: all with images of 8 bits */
    const char *output; /* its name, or that of a preset, for messages */
    const struct trajd_image_spec *image;
};

struct pack_options {
    const struct trajd_index *index; /* of the input alone */
    const char *output;
    const char *helper_path; /* of trajd-indexer */
    const struct pack_preparation *preparations;
    uint32_t preparation_count;
    uint32_t jpeg_quality; /* of prepared frames of 8 bits: they become JPEGs; 0: raw pixels */
    bool force;            /* an existing output is replaced */
    const bool *cancel;    /* set by a signal handler */
    void (*on_note)(void *context, const char *text); /* the copy leaves something out */
    void *context;
};

struct pack_result {
    uint32_t stream_count;   /* datasets that are packed, over all episodes */
    uint32_t left_count;     /* datasets of raw pixels that stay: each frame is in one piece */
    uint32_t prepared_count; /* those of stream_count whose frames are prepared */
    uint64_t frame_count;
    uint64_t bad_count; /* frames that cannot be decoded, of datasets that are prepared */
    uint64_t stored_bytes, packed_bytes; /* of these datasets, before and after */
    uint64_t size_before, size_after;    /* of the file */
};

/* Frames of a stream with a preparation are decoded, cropped, resized and padded; all others are
 * copied as they are. Writes the output beside its place as OUTPUT.partial, reads it again with the input's layout, and
 * renames it. Notes before how large prepared frames will be, if they are raw.
 * TRAJD_ERR_NOT_FOUND: the input has no frames to pack. TRAJD_ERR_UNSUPPORTED: its
 * layout finds datasets by a '*' or cuts arrays into episodes. TRAJD_ERR_ARGUMENT: something is at the
 * output's place, or a preparation does not fit its stream, or another one of the same stream.
 * TRAJD_ERR_IO: the output's filesystem has too little room; nothing was written.
 * TRAJD_ERR_DATA: a row cannot be read or looks like
 * another encoding, or the output is not as it should be.
 * TRAJD_ERR_CLOSED: cancelled. Other errors as those of convert_writer.h. */
enum trajd_status pack_file(const struct pack_options *options, struct pack_result *result,
                            struct trajd_error *error);

#endif
