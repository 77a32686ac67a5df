/* The definition of a finished frame: one element at a time. */
#include <string.h>

#include "kernels/element_convert.h"
#include "support/references/references.h"

void trajd_image_finish_reference(const struct trajd_image_finish *finish, const void *frame,
                                  void *output)
{
    const struct trajd_image_finish *f = finish;
    const uint64_t pixels = (uint64_t)f->height * f->width;
    const uint32_t size = trajd_dtype_size(f->type), source_size = trajd_dtype_size(f->source);

    for (uint64_t i = 0; i < pixels; i++)
        for (uint32_t c = 0; c < f->channels; c++) {
            const uint64_t from = i * f->channels + c;
            const uint64_t to = f->layout == TRAJD_IMAGE_CHW ? c * pixels + i : from;
            const float value =
                (float)trajd_element_load(f->source, (const uint8_t *)frame + from * source_size);
            const float product = value * f->scale[c];
            if (f->type == f->source)
                memcpy((uint8_t *)output + to * size, (const uint8_t *)frame + from * size, size);
            else
                trajd_element_store(f->type, (uint8_t *)output + to * size, product + f->offset[c]);
        }
}
