#include "daemon/window/target/return_rule.h"

enum trajd_status trajd_return_read(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *node,
                                    struct trajd_return_rule *rule, struct trajd_error *error)
{
    static const char *const keys[] = {"gamma", "until", NULL};
    static const char *const untils[] = {"episode", "chunk", NULL};
    const struct trajd_yaml_node *gamma = trajd_yaml_get(node, "gamma"),
                                 *until = trajd_yaml_get(node, "until");
    enum trajd_status status;
    int choice = 0;

    if (node->kind != TRAJD_YAML_MAPPING || !gamma)
        return trajd_yaml_error(yaml, node, error,
                                "expected {gamma: 0.99, until: episode|chunk}; gamma: 1 adds the "
                                "rows without a discount");
    if ((status = trajd_yaml_check_keys(yaml, node, keys, error)) ||
        (status = trajd_yaml_double(yaml, gamma, 0, 1, &rule->gamma, error)))
        return status;
    if (until && (status = trajd_yaml_choice(yaml, until, untils, &choice, error)))
        return status;
    rule->in_chunk = choice == 1;
    rule->is_given = true;
    return TRAJD_OK;
}
