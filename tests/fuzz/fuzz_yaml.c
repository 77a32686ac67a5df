// libs: trajd_base
/* Any bytes: parses them, then reads every value as every type, as the readers of configurations
 * and feeds do. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_scalar(const struct trajd_yaml *yaml, const struct trajd_yaml_node *node)
{
    static const char *const words[] = {"linear", "nearest", "previous", NULL};
    struct trajd_error error;
    struct trajd_rate rate;
    const char *text;
    uint64_t size;
    int64_t number;
    double real;
    bool flag;
    int choice;

    trajd_yaml_string(yaml, node, &text, &error);
    trajd_yaml_double(yaml, node, -1e9, 1e9, &real, &error);
    trajd_yaml_bool(yaml, node, &flag, &error);
    trajd_yaml_size(yaml, node, &size, &error);
    trajd_yaml_duration(yaml, node, &number, &error);
    trajd_yaml_choice(yaml, node, words, &choice, &error);
    if (!trajd_yaml_int(yaml, node, -5, 5, &number, &error) && (number < -5 || number > 5))
        abort();
    if (!trajd_yaml_rate(yaml, node, &rate, &error) &&
        (rate.num <= 0 || rate.den <= 0 || rate.num > INT32_MAX || rate.den > INT32_MAX))
        abort();
}

static void walk(const struct trajd_yaml *yaml, const struct trajd_yaml_node *node)
{
    static const char *const keys[] = {"version", "datasets", "feeds", "outputs", NULL};
    struct trajd_error error;
    uint32_t count = 0;

    if (trajd_yaml_check_keys(yaml, node, keys, &error) && strpbrk(error.message, "\r\n"))
        abort();
    if (node->kind == TRAJD_YAML_SCALAR)
        read_scalar(yaml, node);
    for (const struct trajd_yaml_node *child = node->children; child;
         child = child->next, count++) {
        if (strncmp(child->path, node->path, strlen(node->path)) ||
            (child->key != NULL) != (node->kind == TRAJD_YAML_MAPPING))
            abort();
        walk(yaml, child);
    }
    if (count != node->child_count)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trajd_error error = {0};
    struct trajd_yaml *yaml = NULL;

    if (trajd_yaml_parse("fuzz", (const char *)data, size, &yaml, &error)) {
        if (yaml || !error.status || strpbrk(error.message, "\r\n"))
            abort();
        return 0;
    }
    walk(yaml, trajd_yaml_root(yaml));
    trajd_yaml_destroy(&yaml);
    return 0;
}
