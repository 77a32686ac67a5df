// libs: trajd_test_references
/* Any preparation of small frames against the reference. Input: the fields of a preparation, then
 * the pixels, which repeat. */
#include <stdlib.h>
#include <string.h>

#include "kernels/image/image.h"
#include "support/references/references.h"

enum { HEAD_BYTES = 16, SIDES = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct trajd_image_preparation read_preparation(const uint8_t *head)
{
    static const enum trajd_dtype types[] = {TRAJD_U8, TRAJD_U8, TRAJD_U16, TRAJD_F32};

    return (struct trajd_image_preparation){
        .source_height = head[0] % SIDES,
        .source_width = head[1] % SIDES,
        .channels = head[2] % 4,
        .type = types[head[3] % 4],
        .crop = {head[4] % SIDES, head[5] % SIDES, head[6] % SIDES, head[7] % SIDES},
        .filter = (enum trajd_image_filter)(head[8] % (TRAJD_IMAGE_FILTER_COUNT + 1)),
        .inner_height = head[9] % SIDES,
        .inner_width = head[10] % SIDES,
        .top = (int8_t)head[11],
        .left = (int8_t)head[12],
        .height = head[13] % SIDES,
        .width = head[14] % SIDES,
        .pad_value = head[15]};
}

/* Returns the levels by which a result may differ from the reference. */
static int bound_of(const struct trajd_image_preparation *p)
{
    if (p->type != TRAJD_U8 || p->filter == TRAJD_IMAGE_NEAREST ||
        p->filter == TRAJD_IMAGE_PILLOW_BICUBIC || p->filter == TRAJD_IMAGE_PILLOW_LANCZOS)
        return 0;
    return p->crop.height <= 8 * p->inner_height && p->crop.width <= 8 * p->inner_width ? 1 : 2;
}

static void compare(const struct trajd_image_preparation *p, const uint8_t *result,
                    const uint8_t *expected)
{
    const int bound = bound_of(p);

    for (uint64_t i = 0; i < trajd_image_bytes(p); i++)
        if (abs(result[i] - expected[i]) > bound)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trajd_image_preparation p;
    struct trajd_image_plan *plan;
    uint8_t *source, *result, *expected;

    if (size <= HEAD_BYTES)
        return 0;
    p = read_preparation(data);
    if (trajd_image_check(&p, NULL))
        return 0;
    source = malloc(trajd_image_source_bytes(&p)); /* exact: overruns are found */
    result = malloc(trajd_image_bytes(&p));
    expected = malloc(trajd_image_bytes(&p));
    if (!source || !result || !expected || trajd_image_plan_create(&p, &plan, NULL))
        abort();
    for (uint64_t i = 0; i < trajd_image_source_bytes(&p); i++)
        source[i] = data[HEAD_BYTES + i % (size - HEAD_BYTES)];
    trajd_image_prepare(plan, source, result);
    if (trajd_image_reference(&p, source, expected))
        abort();
    compare(&p, result, expected);
    trajd_image_plan_destroy(&plan);
    free(source);
    free(result);
    free(expected);
    return 0;
}
