/* Plans. */
#include <stdlib.h>

#include "kernels/image/augment/augment_step.h"

struct trajd_augment_plan {
    struct trajd_augment augment;
    struct trajd_augment_frame frame;
};

enum trajd_status trajd_augment_plan_create(const struct trajd_augment *augment,
                                            const struct trajd_augment_frame *frame,
                                            struct trajd_augment_plan **plan,
                                            struct trajd_error *error)
{
    uint32_t height, width;
    const enum trajd_status status = trajd_augment_check(augment, frame, &height, &width, error);

    *plan = NULL;
    if (status)
        return status;
    *plan = malloc(sizeof **plan);
    if (!*plan)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory to augment pictures");
    **plan = (struct trajd_augment_plan){*augment, *frame};
    return TRAJD_OK;
}

void trajd_augment_plan_destroy(struct trajd_augment_plan **plan)
{
    free(*plan);
    *plan = NULL;
}

enum trajd_status trajd_augment_apply(struct trajd_augment_plan *plan,
                                      const struct trajd_augment_params *params, const void *source,
                                      void *output)
{
    return trajd_augment_reference(&plan->augment, &plan->frame, params, source, output);
}
