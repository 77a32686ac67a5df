/* The discounted sum of a stream's rows from each step on: the return of rewards. */
#ifndef TRAJD_WINDOW_TARGET_RETURN_RULE_H
#define TRAJD_WINDOW_TARGET_RETURN_RULE_H

#include <stdbool.h>

#include "daemon/base/yaml.h"

struct trajd_return_rule {
    bool is_given;
    double gamma;  /* in [0, 1] */
    bool in_chunk; /* the sum ends with the last step of the window; else with the episode */
};

/* Reads the mapping `return:` of an output. TRAJD_ERR_ARGUMENT with line and key. */
enum trajd_status trajd_return_read(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *node,
                                    struct trajd_return_rule *rule, struct trajd_error *error);

#endif
