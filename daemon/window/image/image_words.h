/* Everything that decides the values of an output's images, as pairs of a key and a text. Equal
 * words mean equal values of equal frames, so a digest of them identifies the values, and a
 * difference between two lists names the key that changed. */
#ifndef TRAJD_WINDOW_IMAGE_WORDS_H
#define TRAJD_WINDOW_IMAGE_WORDS_H

#include <stdint.h>

#include "daemon/base/text/text.h"
#include "daemon/layout/layout_image.h"
#include "daemon/window/image/image_spec.h"

#define TRAJD_IMAGE_WORDS_MAX (15 + TRAJD_AUGMENT_STEPS_MAX)

struct trajd_image_words {
    uint32_t count;
    struct trajd_image_word {
        char key[16];
        char text[256];
    } list[TRAJD_IMAGE_WORDS_MAX];
};

/* Writes the words of images that the layout describes by `image`, stored as `encoding`, and that
 * the output prepares and augments. `norm:` is not among them: it is not a matter of images
 * alone. */
void trajd_image_write_words(const struct trajd_image_spec *spec,
                             const struct trajd_image_preparation *preparation,
                             const struct trajd_augment *augment,
                             const struct trajd_layout_image *image,
                             enum trajd_image_encoding encoding, struct trajd_image_words *words);

/* Writes the norm of a specification that has one: "imagenet", or "mean 0.5, std 0.2". */
void trajd_image_write_norm(const struct trajd_image_spec *spec, struct trajd_text *text);

#endif
