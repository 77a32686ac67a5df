/* The words of images: how a frame is stored, and what its pixels mean. */
#ifndef TRAJD_LAYOUT_LAYOUT_IMAGE_H
#define TRAJD_LAYOUT_LAYOUT_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

/* The longest side of an image, and its most pixels. */
#define TRAJD_FRAME_SIDE_MAX 8192u
#define TRAJD_FRAME_PIXELS_MAX 33000000u

enum trajd_image_encoding {
    TRAJD_ENCODING_AUTO = 0, /* each frame by its first bytes */
    TRAJD_ENCODING_RAW = 1,  /* the pixels, row by row */
    TRAJD_ENCODING_JPEG = 2,
    TRAJD_ENCODING_PNG = 3,
    TRAJD_ENCODING_VIDEO = 4 /* packets, of which one may need those before it (video.h) */
};

/* What a standard decoder gives. */
enum trajd_image_color {
    TRAJD_COLOR_DEPTH = 0, /* no colour: distances */
    TRAJD_COLOR_RGB = 1,
    TRAJD_COLOR_BGR = 2,
    TRAJD_COLOR_GRAY = 3,
    /* colour, and neither the family nor a file says whether a decoder gives red or blue first. Raw
     * frames are red first */
    TRAJD_COLOR_UNDECIDED = 4
};

/* How a stored frame is turned upright. */
enum trajd_image_flip {
    TRAJD_FLIP_NONE = 0,
    TRAJD_FLIP_VERTICAL = 1,   /* upside down */
    TRAJD_FLIP_HORIZONTAL = 2, /* mirrored */
    TRAJD_FLIP_180 = 3         /* both: turned by 180 degrees */
};

/* The unit of a depth image. */
enum trajd_depth_unit { TRAJD_DEPTH_NONE = 0, TRAJD_DEPTH_MM = 1, TRAJD_DEPTH_M = 2 };

/* What a layout says about the frames of a stream: the key `image`. */
struct trajd_layout_image {
    bool is_present;        /* false: the stream has no key `image` */
    bool masks_zero_frames; /* zero_frames: mask. A frame that is all zeros was not recorded */
    enum trajd_image_encoding encoding;
    enum trajd_image_color color; /* TRAJD_COLOR_DEPTH: `unit` is set */
    enum trajd_image_flip flip;
    enum trajd_depth_unit unit;
    uint32_t height, width; /* of each frame; 0: as the first one */
};

/* Returns what the layout's words become for frames that `trajctl pack --prepare` wrote: raw
 * pixels or JPEGs, upright, red first, of a size that the file has. */
struct trajd_layout_image trajd_layout_image_prepared(const struct trajd_layout_image *image,
                                                      enum trajd_image_encoding encoding);

/* Returns the values of a pixel: 3 in colour, 1 in grey and of depth. */
static inline uint32_t trajd_image_channels(enum trajd_image_color color)
{
    return color == TRAJD_COLOR_DEPTH || color == TRAJD_COLOR_GRAY ? 1 : 3;
}

/* Return the word of the configuration: "jpeg", "rgb" or "depth", "180", "mm". */
const char *trajd_image_encoding_name(enum trajd_image_encoding encoding);
const char *trajd_image_color_name(enum trajd_image_color color);
const char *trajd_image_flip_name(enum trajd_image_flip flip);
/* "none" for colour */
const char *trajd_depth_unit_name(enum trajd_depth_unit unit);

#endif
