/* The windows of a feed over its datasets: one window plan per dataset, all with the same outputs,
 * and the order in which their windows come. A feed of one dataset has one member and no mixture. A
 * plan is constant once its normalisation is in force; then it is thread-safe. */
#ifndef TRAJD_WINDOW_MIXTURE_PLAN_H
#define TRAJD_WINDOW_MIXTURE_PLAN_H

#include "daemon/window/order/mixture.h"
#include "daemon/window/window_plan.h"

struct trajd_mixture_plan {
    struct trajd_arena arena; /* owns the tables */
    const struct trajd_window_spec *spec;
    uint32_t member_count;
    /* [member_count], in the order of `mix:`. The outputs of all have the same names, types and
     * shapes */
    struct trajd_window_plan **members;
    struct trajd_plan_peer *peers; /* [member_count] */
    struct trajd_mixture *mixture; /* NULL: a feed of one dataset */
    /* of the members in order, their weights and the epoch's length */
    uint64_t fingerprint;
};

/* Makes the plans of datasets[member_count], one for each spec->members. Caller destroys. Errors
 * are those of trajd_window_plan_create. TRAJD_ERR_ARGUMENT also where the types or shapes of an
 * output differ between datasets; the message names the line, the output, the datasets and both
 * shapes. spec and datasets must
 * outlive the plan. */
enum trajd_status trajd_mixture_plan_create(const struct trajd_window_spec *spec,
                                            struct trajd_dataset *const *datasets,
                                            struct trajd_mixture_plan **plan,
                                            struct trajd_error *error);
void trajd_mixture_plan_destroy(struct trajd_mixture_plan **plan);

/* Checks the quarantined episodes of each dataset against at_most[member_count]; -1: any number.
 * TRAJD_ERR_DATA: there are more in a dataset; the message has the counts and the first reason. */
enum trajd_status trajd_mixture_plan_check_quarantine(const struct trajd_mixture_plan *plan,
                                                      const int64_t *at_most,
                                                      struct trajd_error *error);

/* Returns the windows of an epoch before the tail's rule: N of one dataset, L of a mixture. */
uint64_t trajd_mixture_plan_window_count(const struct trajd_mixture_plan *plan);
uint64_t trajd_mixture_plan_epoch_length(const struct trajd_mixture_plan *plan);
uint64_t trajd_mixture_plan_dropped_count(const struct trajd_mixture_plan *plan);

/* Return trajd_window_norm_digest and trajd_window_values_digest over all members. */
uint64_t trajd_mixture_plan_norm_digest(const struct trajd_mixture_plan *plan);
uint64_t trajd_mixture_plan_values_digest(const struct trajd_mixture_plan *plan);

/* Writes the windows [position, position + count) of an epoch. dataset_index is the member's
 * index. */
void trajd_mixture_plan_run(const struct trajd_mixture_plan *plan, uint64_t epoch,
                            uint64_t position, uint32_t count, struct trajd_window *windows);
/* Returns how many window numbers there are: the windows of all datasets. */
uint64_t trajd_mixture_plan_number_count(const struct trajd_mixture_plan *plan);
/* Writes the window with that number. False: there is none. */
bool trajd_mixture_plan_window(const struct trajd_mixture_plan *plan, uint64_t window_id,
                               struct trajd_window *window);

#endif
