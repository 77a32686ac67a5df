#include "clients/live/live_reader.h"

#include <string.h>

#define MAX_ELEMENTS (UINT64_C(1) << 24)

void trajd_live_wrong(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                      const char *rule)
{
    if (!reader->status)
        reader->status = trajd_yaml_error(reader->yaml, node, reader->error, "%s", rule);
}

const struct trajd_yaml_node *trajd_live_member(struct trajd_live_reader *reader,
                                                const struct trajd_yaml_node *mapping,
                                                const char *key)
{
    const struct trajd_yaml_node *found;

    if (reader->status)
        return NULL;
    if (mapping->kind != TRAJD_YAML_MAPPING) {
        trajd_live_wrong(reader, mapping, "a mapping is expected");
        return NULL;
    }
    found = trajd_yaml_get(mapping, key);
    if (!found)
        reader->status =
            trajd_yaml_error(reader->yaml, mapping, reader->error, "%s is missing", key);
    return found;
}

bool trajd_live_is_null(const struct trajd_yaml_node *node)
{
    return node->kind == TRAJD_YAML_SCALAR && !node->quoted && strcmp(node->value, "null") == 0;
}

void trajd_live_check_keys(struct trajd_live_reader *reader, const struct trajd_yaml_node *mapping,
                           const char *const *keys)
{
    if (!reader->status)
        reader->status = trajd_yaml_check_keys(reader->yaml, mapping, keys, reader->error);
}

void *trajd_live_alloc(struct trajd_live_reader *reader, uint64_t count, uint64_t size_bytes)
{
    uint64_t bytes;
    void *memory = __builtin_mul_overflow(count, size_bytes, &bytes) || bytes > SIZE_MAX
                       ? NULL
                       : trajd_arena_alloc(&reader->live->arena, bytes ? (size_t)bytes : 1);

    if (!memory && !reader->status)
        reader->status =
            trajd_error_set(reader->error, TRAJD_ERR_MEMORY, 0,
                            "the observation needs more than %zu MiB, or there is no memory",
                            reader->live->arena.limit_bytes >> 20);
    return memory ? memset(memory, 0, (size_t)bytes) : NULL; /* maps the pages */
}

const char *trajd_live_read_text(struct trajd_live_reader *reader,
                                 const struct trajd_yaml_node *mapping, const char *key)
{
    const struct trajd_yaml_node *node = trajd_live_member(reader, mapping, key);
    const char *text = "";

    if (node)
        reader->status = trajd_yaml_string(reader->yaml, node, &text, reader->error);
    return text;
}

int64_t trajd_live_read_int(struct trajd_live_reader *reader, const struct trajd_yaml_node *mapping,
                            const char *key, int64_t low, int64_t high)
{
    const struct trajd_yaml_node *node = trajd_live_member(reader, mapping, key);
    int64_t value = low;

    if (node)
        reader->status = trajd_yaml_int(reader->yaml, node, low, high, &value, reader->error);
    return value;
}

double trajd_live_read_number(struct trajd_live_reader *reader,
                              const struct trajd_yaml_node *mapping, const char *key, double low,
                              double high)
{
    const struct trajd_yaml_node *node = trajd_live_member(reader, mapping, key);
    double value = low;

    if (node)
        reader->status = trajd_yaml_double(reader->yaml, node, low, high, &value, reader->error);
    return value;
}

bool trajd_live_read_bool(struct trajd_live_reader *reader, const struct trajd_yaml_node *mapping,
                          const char *key)
{
    const struct trajd_yaml_node *node = trajd_live_member(reader, mapping, key);
    bool value = false;

    if (node)
        reader->status = trajd_yaml_bool(reader->yaml, node, &value, reader->error);
    return value;
}

int trajd_live_read_word(struct trajd_live_reader *reader, const struct trajd_yaml_node *mapping,
                         const char *key, const char *const *words)
{
    const struct trajd_yaml_node *node = trajd_live_member(reader, mapping, key);
    int index = 0;

    if (node)
        reader->status = trajd_yaml_choice(reader->yaml, node, words, &index, reader->error);
    return index;
}

enum trajd_dtype trajd_live_read_dtype(struct trajd_live_reader *reader,
                                       const struct trajd_yaml_node *mapping, const char *key)
{
    const struct trajd_yaml_node *node = trajd_live_member(reader, mapping, key);
    const char *name = "u8";
    enum trajd_dtype dtype;

    if (node)
        reader->status = trajd_yaml_string(reader->yaml, node, &name, reader->error);
    dtype = trajd_dtype_parse(name);
    if (dtype == TRAJD_DTYPE_NONE)
        trajd_live_wrong(reader, node, "there is no such element type");
    return dtype ? dtype : TRAJD_U8;
}

struct trajd_rate trajd_live_read_rate(struct trajd_live_reader *reader,
                                       const struct trajd_yaml_node *mapping, const char *key)
{
    const struct trajd_yaml_node *node = trajd_live_member(reader, mapping, key);
    struct trajd_rate rate = {0};

    if (node && !trajd_live_is_null(node))
        reader->status = trajd_yaml_rate(reader->yaml, node, &rate, reader->error);
    return rate;
}

const struct trajd_yaml_node *trajd_live_read_list(struct trajd_live_reader *reader,
                                                   const struct trajd_yaml_node *mapping,
                                                   const char *key, uint32_t low, uint32_t high)
{
    const struct trajd_yaml_node *node = trajd_live_member(reader, mapping, key);

    if (node &&
        (node->kind != TRAJD_YAML_SEQUENCE || node->child_count < low || node->child_count > high))
        reader->status = trajd_yaml_error(reader->yaml, node, reader->error,
                                          "a list of %u to %u elements is expected", low, high);
    return reader->status ? NULL : node;
}

void trajd_live_read_ints(struct trajd_live_reader *reader, const struct trajd_yaml_node *mapping,
                          const char *key, uint32_t count, int64_t low, int64_t high,
                          int64_t *numbers)
{
    const struct trajd_yaml_node *list = trajd_live_read_list(reader, mapping, key, count, count);
    const struct trajd_yaml_node *node = list ? list->children : NULL;

    for (uint32_t i = 0; i < count; i++, node = node ? node->next : NULL) {
        numbers[i] = low;
        if (node && !reader->status)
            reader->status =
                trajd_yaml_int(reader->yaml, node, low, high, &numbers[i], reader->error);
    }
}

void trajd_live_read_numbers(struct trajd_live_reader *reader,
                             const struct trajd_yaml_node *mapping, const char *key, uint32_t count,
                             double *numbers)
{
    const struct trajd_yaml_node *list = trajd_live_read_list(reader, mapping, key, count, count);
    const struct trajd_yaml_node *node = list ? list->children : NULL;

    for (uint32_t i = 0; i < count; i++, node = node ? node->next : NULL) {
        numbers[i] = 0;
        if (node && !reader->status)
            reader->status =
                trajd_yaml_double(reader->yaml, node, -3.4e38, 3.4e38, &numbers[i], reader->error);
    }
}

uint64_t trajd_live_read_shape(struct trajd_live_reader *reader,
                               const struct trajd_yaml_node *mapping, uint32_t first,
                               uint32_t *rank, uint64_t shape[TRAJD_LIVE_MAX_RANK])
{
    const struct trajd_yaml_node *list =
        trajd_live_read_list(reader, mapping, "shape", first, TRAJD_LIVE_MAX_RANK);
    uint64_t product = 1;

    *rank = 0;
    for (const struct trajd_yaml_node *node = list ? list->children : NULL; node && !reader->status;
         node = node->next) {
        int64_t extent = 0;
        reader->status =
            trajd_yaml_int(reader->yaml, node, 0, MAX_ELEMENTS, &extent, reader->error);
        if (*rank >= first)
            product *= (uint64_t)extent;
        shape[(*rank)++] = (uint64_t)extent;
        if (product > MAX_ELEMENTS) {
            trajd_live_wrong(reader, node, "a row has at most 2^24 elements");
            product = 1;
        }
    }
    return product;
}
