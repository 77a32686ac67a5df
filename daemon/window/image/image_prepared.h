/* How frames of a given size are prepared, and how prepared frames become the tensor. Preparations
 * in files: `trajctl pack --prepare` writes prepared frames, and how they were made,
 * as the attribute `preparation` of a group of packed frames (clients/docs/how-to/pack.md). */
#ifndef TRAJD_WINDOW_IMAGE_PREPARED_H
#define TRAJD_WINDOW_IMAGE_PREPARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/window/image/image_spec.h"

/* The images of a stream. */
struct trajd_image_source {
    uint32_t height, width, channels;
    enum trajd_dtype type; /* U8; U16 and F32: depth */
    bool is_bgr_for_cv2;   /* OpenCV reads them with blue first */
};

/* Returns whether OpenCV reads frames with blue first: it decodes to the reverse of what a standard
 * decoder gives, which is what the layout names. */
bool trajd_image_is_bgr_for_cv2(enum trajd_image_encoding encoding, enum trajd_image_color color);

/* Makes how frames of a source are prepared. TRAJD_ERR_ARGUMENT says which key does not fit. */
enum trajd_status trajd_image_spec_prepare(const struct trajd_image_spec *spec,
                                           const struct trajd_image_source *source,
                                           struct trajd_image_preparation *preparation,
                                           struct trajd_error *error);

/* Makes how prepared frames are augmented, with all sizes in pixels; and how augmented frames
 * become the tensor, in `type`. TRAJD_ERR_ARGUMENT says which key does not fit. */
enum trajd_status trajd_image_spec_finish(const struct trajd_image_spec *spec,
                                          const struct trajd_image_preparation *preparation,
                                          enum trajd_dtype type, struct trajd_augment *augment,
                                          struct trajd_image_finish *finish,
                                          struct trajd_error *error);

/* Returns whether both make the same pixels of the same frames. A filter counts where it resizes,
 * and pad_value where there is padding. The order of the colours does not count. */
bool trajd_image_is_same(const struct trajd_image_preparation *a,
                         const struct trajd_image_preparation *b);

/* Writes the attribute's text, one line of JSON:
 *
 *     {"source": [480, 640], "crop": [0, 0, 480, 640], "filter": "pillow-bilinear",
 *      "resize": [168, 224], "at": [28, 0], "shape": [224, 224, 3], "pad_value": 0, "cv2": "bgr",
 *      "jpeg": 95}
 *
 * crop is [top, left, height, width]; `at` is where the resized frame is in the output. Its shape
 * has the rank of the recorded frames: grey and depth may be [H, W]. `cv2`: how OpenCV reads the
 * recorded frames. Red comes first in the prepared ones. `jpeg`: the quality, if they are JPEGs. */
struct trajd_image_prepared {
    struct trajd_image_preparation preparation;
    uint32_t rank; /* of the recorded frames, 2 or 3 */
    bool is_bgr_for_cv2;
    uint32_t jpeg_quality; /* 0: raw pixels */
};

#define TRAJD_PREPARATION_TEXT_SIZE 320
void trajd_image_prepared_write(const struct trajd_image_prepared *prepared,
                                char text[TRAJD_PREPARATION_TEXT_SIZE]);
/* Reads such a text, of frames with `channels` values of `type` a pixel. TRAJD_ERR_ARGUMENT: a key
 * or a number is wrong. */
enum trajd_status trajd_image_prepared_read(const char *text, uint32_t channels,
                                            enum trajd_dtype type,
                                            struct trajd_image_prepared *prepared,
                                            struct trajd_error *error);

/* Writes "480x640, crop 400x400 at (40, 120), resized to 224x224 by pillow-bilinear". Returns
 * `text`. */
#define TRAJD_PREPARATION_WORDS_SIZE 192
const char *trajd_image_describe(const struct trajd_image_preparation *preparation,
                                 char text[TRAJD_PREPARATION_WORDS_SIZE]);
/* Writes the keys of `image:` that ask for the preparation: "{crop: {top: 40, ...}, resize: [224,
 * 224], filter: area}". Returns `text`. */
const char *trajd_image_write_keys(const struct trajd_image_preparation *preparation,
                                   char text[TRAJD_PREPARATION_WORDS_SIZE]);

#endif
