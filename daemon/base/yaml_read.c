/* Reads typed values. JSON quotes words that YAML does not: sizes, durations, rates and words are
 * therefore accepted in quotes, numbers and booleans are not. */
#include "daemon/base/yaml.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/array_len.h"

enum { MAX_WORD_BYTES = 127, MAX_KEYS = 32 };

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Returns how many insertions, deletions, replacements and swaps of neighbours turn one word into
 * the other. Both have at most MAX_WORD_BYTES. */
static uint32_t edit_distance(const char *a, const char *b)
{
    uint32_t rows[3][MAX_WORD_BYTES + 1];
    uint32_t *before = rows[0], *above = rows[1], *row = rows[2], *spare;
    size_t a_length = strlen(a), b_length = strlen(b);

    for (size_t j = 0; j <= b_length; j++)
        row[j] = (uint32_t)j;
    for (size_t i = 1; i <= a_length; i++) {
        spare = before;
        before = above;
        above = row;
        row = spare;
        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= b_length; j++) {
            row[j] =
                smaller(above[j - 1] + (a[i - 1] != b[j - 1]), smaller(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smaller(row[j], before[j - 2] + 1);
        }
    }
    return row[b_length];
}

const char *trajd_yaml_nearest(const char *word, const char *const *names, size_t count)
{
    const char *nearest = NULL;
    size_t length = strlen(word);
    uint32_t limit = 1 + (uint32_t)length / 4;

    if (length > MAX_WORD_BYTES)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        uint32_t distance =
            strlen(names[i]) > MAX_WORD_BYTES ? UINT32_MAX : edit_distance(word, names[i]);
        if (distance <= limit && distance < strlen(names[i])) {
            nearest = names[i];
            limit = distance - (distance > 0);
        }
    }
    return nearest;
}

struct trajd_yaml_suggestion trajd_yaml_suggest(const char *before, const char *word,
                                                const char *const *names, size_t count,
                                                const char *after)
{
    const char *nearest = trajd_yaml_nearest(word, names, count);
    struct trajd_yaml_suggestion made = {""};

    if (nearest)
        snprintf(made.text, sizeof made.text, "%sdid you mean %s?%s", before, nearest, after);
    return made;
}

void trajd_yaml_join(const char *const *names, char *out, size_t size)
{
    size_t used = 0;

    *out = 0;
    for (size_t i = 0; names[i] && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", names[i]);
}

static size_t count_words(const char *const *words)
{
    size_t count = 0;

    while (words[count])
        count++;
    return count;
}

static const char *kind_name(const struct trajd_yaml_node *node)
{
    static const char *const names[] = {"a single value", "a list", "a mapping"};

    return names[node->kind];
}

/* Sets the error for an unknown word, with the word that was probably meant. */
static enum trajd_status refuse_word(const struct trajd_yaml *yaml,
                                     const struct trajd_yaml_node *node, const char *what,
                                     const char *word, const char *const *words,
                                     struct trajd_error *error)
{
    const char *nearest = trajd_yaml_nearest(word, words, count_words(words));
    char list[TRAJD_ERROR_MESSAGE_SIZE / 2];

    if (nearest)
        return trajd_yaml_error(yaml, node, error, "%s (did you mean %s?)", what, nearest);
    trajd_yaml_join(words, list, sizeof list);
    return trajd_yaml_error(yaml, node, error, "%s (known: %s)", what, list);
}

enum trajd_status trajd_yaml_check_keys(const struct trajd_yaml *yaml,
                                        const struct trajd_yaml_node *mapping,
                                        const char *const *allowed, struct trajd_error *error)
{
    if (mapping->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(yaml, mapping, error, "a mapping is expected, not %s",
                                kind_name(mapping));
    for (const struct trajd_yaml_node *child = mapping->children; child; child = child->next) {
        size_t i = 0;
        while (allowed[i] && strcmp(allowed[i], child->key))
            i++;
        if (!allowed[i])
            return refuse_word(yaml, child, "no such key", child->key, allowed, error);
    }
    return TRAJD_OK;
}

static bool is_null(const struct trajd_yaml_node *node)
{
    return !node->quoted &&
           (!*node->value || !strcmp(node->value, "~") || !strcmp(node->value, "null"));
}

/* Checks that the node is a scalar and not null. `expected` describes the type ("a number"). */
static enum trajd_status check_scalar(const struct trajd_yaml *yaml,
                                      const struct trajd_yaml_node *node, const char *expected,
                                      struct trajd_error *error)
{
    if (node->kind != TRAJD_YAML_SCALAR)
        return trajd_yaml_error(yaml, node, error, "%s is expected, not %s", expected,
                                kind_name(node));
    if (is_null(node))
        return trajd_yaml_error(yaml, node, error, "%s is expected, not nothing", expected);
    return TRAJD_OK;
}

/* Checks that the node is a scalar without quotes. */
static enum trajd_status check_plain(const struct trajd_yaml *yaml,
                                     const struct trajd_yaml_node *node, const char *expected,
                                     struct trajd_error *error)
{
    enum trajd_status status = check_scalar(yaml, node, expected, error);

    if (!status && node->quoted)
        return trajd_yaml_error(yaml, node, error, "%s is expected, not a text in quotes",
                                expected);
    return status;
}

enum trajd_status trajd_yaml_string(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *node, const char **out,
                                    struct trajd_error *error)
{
    enum trajd_status status = check_scalar(yaml, node, "a text", error);

    if (!status)
        *out = node->value;
    return status;
}

static size_t count_digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* [-+]digits without a leading zero: 010 is eight in YAML 1.1 and ten in YAML 1.2. */
static bool is_integer(const char *text)
{
    size_t digits;

    text += *text == '-' || *text == '+';
    digits = count_digits(text);
    return digits && !text[digits] && (digits == 1 || *text != '0');
}

/* [-+]digits[.digits][e[-+]digits], the first digits optional: the notations of strtod without hex,
 * inf and nan. */
static bool is_decimal(const char *text)
{
    size_t whole, fraction = 0;

    text += *text == '-' || *text == '+';
    whole = count_digits(text);
    text += whole;
    if (*text == '.') {
        fraction = count_digits(++text);
        text += fraction;
    }
    if (!whole && !fraction)
        return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        text += *text == '-' || *text == '+';
        if (!count_digits(text))
            return false;
        text += count_digits(text);
    }
    return !*text;
}

enum trajd_status trajd_yaml_int(const struct trajd_yaml *yaml, const struct trajd_yaml_node *node,
                                 int64_t low, int64_t high, int64_t *out, struct trajd_error *error)
{
    enum trajd_status status = check_plain(yaml, node, "a whole number", error);
    long long value;

    if (status)
        return status;
    if (!is_integer(node->value))
        return trajd_yaml_error(yaml, node, error, "a whole number is expected, not %.64s",
                                node->value);
    errno = 0;
    value = strtoll(node->value, NULL, 10);
    if (errno || value < low || value > high)
        return trajd_yaml_error(yaml, node, error, "%.64s is out of range (%lld to %lld)",
                                node->value, (long long)low, (long long)high);
    *out = value;
    return TRAJD_OK;
}

enum trajd_status trajd_yaml_double(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *node, double low, double high,
                                    double *out, struct trajd_error *error)
{
    enum trajd_status status = check_plain(yaml, node, "a number", error);
    double value;

    if (status)
        return status;
    if (!is_decimal(node->value))
        return trajd_yaml_error(yaml, node, error, "a finite number is expected, not %.64s",
                                node->value);
    value = strtod(node->value, NULL);
    if (!isfinite(value) || value < low || value > high)
        return trajd_yaml_error(yaml, node, error, "%.64s is out of range (%g to %g)", node->value,
                                low, high);
    *out = value;
    return TRAJD_OK;
}

enum trajd_status trajd_yaml_bool(const struct trajd_yaml *yaml, const struct trajd_yaml_node *node,
                                  bool *out, struct trajd_error *error)
{
    enum trajd_status status = check_plain(yaml, node, "true or false", error);

    if (status)
        return status;
    if (strcmp(node->value, "true") && strcmp(node->value, "false"))
        return trajd_yaml_error(yaml, node, error, "true or false is expected, not %.64s",
                                node->value);
    *out = node->value[0] == 't';
    return TRAJD_OK;
}

enum trajd_status trajd_yaml_size(const struct trajd_yaml *yaml, const struct trajd_yaml_node *node,
                                  uint64_t *out, struct trajd_error *error)
{
    enum trajd_status status = check_scalar(yaml, node, "a size", error);

    if (!status && !trajd_parse_size(node->value, out))
        return trajd_yaml_error(
            yaml, node, error, "%.64s is not a size in whole bytes (such as 4096, 64 MiB, 1.5 GiB)",
            node->value);
    return status;
}

enum trajd_status trajd_yaml_duration(const struct trajd_yaml *yaml,
                                      const struct trajd_yaml_node *node, int64_t *out_ns,
                                      struct trajd_error *error)
{
    enum trajd_status status = check_scalar(yaml, node, "a duration", error);

    if (!status && !trajd_parse_duration(node->value, out_ns))
        return trajd_yaml_error(
            yaml, node, error,
            "%.64s is not a duration in whole nanoseconds with its unit (such as 38ms, 1.5s, 20us)",
            node->value);
    return status;
}

enum trajd_status trajd_yaml_rate(const struct trajd_yaml *yaml, const struct trajd_yaml_node *node,
                                  struct trajd_rate *out, struct trajd_error *error)
{
    enum trajd_status status = check_scalar(yaml, node, "a rate", error);

    if (!status && !trajd_parse_rate(node->value, out))
        return trajd_yaml_error(
            yaml, node, error,
            "%.64s is not a rate in Hz within 1e-6 to 1e9 (such as 20, 29.97, 30000/1001)",
            node->value);
    return status;
}

enum trajd_status trajd_yaml_choice(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *node, const char *const *words,
                                    int *out, struct trajd_error *error)
{
    enum trajd_status status = check_scalar(yaml, node, "a word", error);
    char what[96];

    if (status)
        return status;
    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], node->value)) {
            *out = i;
            return TRAJD_OK;
        }
    snprintf(what, sizeof what, "%.64s is not one of the choices", node->value);
    return refuse_word(yaml, node, what, node->value, words, error);
}

enum trajd_status trajd_yaml_choose_row(const struct trajd_yaml *yaml,
                                        const struct trajd_yaml_node *node, const void *rows,
                                        size_t row_count, size_t row_size, int *out,
                                        struct trajd_error *error)
{
    const char *words[32 + 1] = {NULL};

    for (size_t i = 0; i < row_count && i + 1 < ARRAY_LEN(words); i++)
        memcpy(&words[i], (const char *)rows + i * row_size, sizeof words[i]);
    return trajd_yaml_choice(yaml, node, words, out, error);
}

/* ---- tables of keys ---- */

void *trajd_yaml_alloc(const struct trajd_yaml_reader *reader, size_t size)
{
    void *memory = trajd_arena_alloc(reader->arena, size);

    if (!memory)
        trajd_error_set(reader->error, TRAJD_ERR_MEMORY, 0, "no memory for the keys of a file");
    return memory;
}

enum trajd_status trajd_yaml_keep(const struct trajd_yaml_reader *reader, const char *text,
                                  const char **out)
{
    const size_t size = strlen(text) + 1;
    char *copy = trajd_yaml_alloc(reader, size);

    *out = copy;
    if (!copy)
        return TRAJD_ERR_MEMORY;
    memcpy(copy, text, size);
    return TRAJD_OK;
}

enum trajd_status trajd_yaml_keep_string(const struct trajd_yaml_reader *reader,
                                         const struct trajd_yaml_node *node, const char **out)
{
    const char *text;
    const enum trajd_status status = trajd_yaml_string(reader->yaml, node, &text, reader->error);

    return status ? status : trajd_yaml_keep(reader, text, out);
}

static enum trajd_status read_number(const struct trajd_yaml_reader *reader,
                                     const struct trajd_yaml_node *node,
                                     const struct trajd_yaml_key *key, void *member)
{
    const int64_t high = key->high < 0x1p63 ? (int64_t)key->high : INT64_MAX;
    int64_t value = 0;
    const enum trajd_status status =
        trajd_yaml_int(reader->yaml, node, (int64_t)key->low, high, &value, reader->error);

    if (!status && key->type == TRAJD_YAML_U32)
        *(uint32_t *)member = (uint32_t)value;
    else if (!status)
        *(uint64_t *)member = (uint64_t)value;
    return status;
}

static enum trajd_status read_choice(const struct trajd_yaml_reader *reader,
                                     const struct trajd_yaml_node *node,
                                     const struct trajd_yaml_key *key, void *member)
{
    int choice = 0;
    const enum trajd_status status =
        trajd_yaml_choice(reader->yaml, node, key->words, &choice, reader->error);

    if (!status && key->type == TRAJD_YAML_FLAG)
        *(bool *)member = choice == 1;
    else if (!status)
        *(int *)member = (int)key->low + choice;
    return status;
}

enum trajd_status trajd_yaml_read_key(const struct trajd_yaml_reader *reader,
                                      const struct trajd_yaml_node *node,
                                      const struct trajd_yaml_key *key, void *object)
{
    void *member = (char *)object + key->offset;

    if (key->read)
        return key->read(reader, node, member);
    switch (key->type) {
    case TRAJD_YAML_U32:
    case TRAJD_YAML_U64:
        return read_number(reader, node, key, member);
    case TRAJD_YAML_DOUBLE:
        return trajd_yaml_double(reader->yaml, node, key->low, key->high, member, reader->error);
    case TRAJD_YAML_BOOL:
        return trajd_yaml_bool(reader->yaml, node, member, reader->error);
    case TRAJD_YAML_DURATION:
        return trajd_yaml_duration(reader->yaml, node, member, reader->error);
    case TRAJD_YAML_RATE:
        return trajd_yaml_rate(reader->yaml, node, member, reader->error);
    case TRAJD_YAML_STRING:
        return trajd_yaml_keep_string(reader, node, member);
    case TRAJD_YAML_CHOICE:
    case TRAJD_YAML_FLAG:
        return read_choice(reader, node, key, member);
    case TRAJD_YAML_LATER:
        break;
    }
    return TRAJD_OK;
}

static bool lacks_needed(const struct trajd_yaml_node *mapping, const struct trajd_yaml_key *keys,
                         size_t key_count)
{
    for (size_t k = 0; k < key_count; k++)
        if (keys[k].is_needed && !trajd_yaml_get(mapping, keys[k].name))
            return true;
    return false;
}

enum trajd_status trajd_yaml_read_keys(const struct trajd_yaml_reader *reader,
                                       const struct trajd_yaml_node *mapping, const char *expected,
                                       const struct trajd_yaml_key *keys, size_t key_count,
                                       void *object)
{
    const char *names[MAX_KEYS + 1] = {NULL};
    enum trajd_status status;

    if (expected && (mapping->kind != TRAJD_YAML_MAPPING || lacks_needed(mapping, keys, key_count)))
        return trajd_yaml_error(reader->yaml, mapping, reader->error, "expected %s", expected);
    for (size_t k = 0; k < key_count && k < MAX_KEYS; k++)
        names[k] = keys[k].name;
    status = trajd_yaml_check_keys(reader->yaml, mapping, names, reader->error);
    for (const struct trajd_yaml_node *child = mapping->children; child && !status;
         child = child->next) {
        size_t k = 0;
        while (strcmp(keys[k].name, child->key) != 0)
            k++;
        status = trajd_yaml_read_key(reader, child, &keys[k], object);
    }
    return status;
}
