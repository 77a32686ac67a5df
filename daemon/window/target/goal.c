#include "daemon/window/target/goal.h"

#include <stdio.h>
#include <string.h>

#include "daemon/window/order/sampler.h"
#include "proto/array_len.h"

/* Later versions never change what version 1 draws. */
#define GOAL_VERSION 1
/* The purpose of a key. Those of the order have smaller numbers. */
#define PURPOSE_GOAL 7

static enum trajd_status read_words(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *from,
                                    const struct trajd_yaml_node *p, struct trajd_goal_rule *rule,
                                    struct trajd_error *error)
{
    static const char *const froms[] = {"last", "future", NULL};
    static const char *const ps[] = {"uniform", "geometric", NULL};
    int choice;
    enum trajd_status status = trajd_yaml_choice(yaml, from, froms, &choice, error);

    if (status)
        return status;
    rule->from = (enum trajd_goal_from)(TRAJD_GOAL_LAST + choice);
    if (p && rule->from == TRAJD_GOAL_LAST)
        return trajd_yaml_error(yaml, p, error,
                                "from: last draws nothing: remove p:, or use from: future");
    if (p && (status = trajd_yaml_choice(yaml, p, ps, &choice, error)))
        return status;
    rule->geometric = p && choice == 1;
    return TRAJD_OK;
}

static enum trajd_status read_gamma(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *node,
                                    const struct trajd_yaml_node *gamma,
                                    struct trajd_goal_rule *rule, struct trajd_error *error)
{
    if (gamma && !rule->geometric)
        return trajd_yaml_error(yaml, gamma, error, "gamma: is for p: geometric");
    if (!gamma && rule->geometric)
        return trajd_yaml_error(
            yaml, node, error,
            "p: geometric needs gamma:, for example 0.99: a goal then lies more "
            "than d anchors ahead with probability gamma^d");
    return gamma ? trajd_yaml_double(yaml, gamma, 1e-6, 1 - 1e-6, &rule->gamma, error) : TRAJD_OK;
}

enum trajd_status trajd_goal_read(const struct trajd_yaml *yaml, const struct trajd_yaml_node *node,
                                  struct trajd_goal_rule *rule,
                                  const struct trajd_yaml_node **streams, struct trajd_error *error)
{
    static const char *const keys[] = {"from", "p", "gamma", "of", NULL};
    enum trajd_status status;

    if (node->kind != TRAJD_YAML_MAPPING || !trajd_yaml_get(node, "from") ||
        !trajd_yaml_get(node, "of"))
        return trajd_yaml_error(yaml, node, error,
                                "expected {from: last|future, p: uniform|geometric, of: STREAM or "
                                "[STREAMS]}");
    if ((status = trajd_yaml_check_keys(yaml, node, keys, error)))
        return status;
    *streams = trajd_yaml_get(node, "of");
    status = read_words(yaml, trajd_yaml_get(node, "from"), trajd_yaml_get(node, "p"), rule, error);
    return status ? status : read_gamma(yaml, node, trajd_yaml_get(node, "gamma"), rule, error);
}

bool trajd_goal_is_same(const struct trajd_goal_rule *a, const struct trajd_goal_rule *b)
{
    return a->from == b->from && a->geometric == b->geometric && a->gamma == b->gamma;
}

/* Returns a distance in [1, most] with P(distance > d) = gamma^d for d < most. It compares a number
 * in (0, 1] with the powers of gamma one by one: products of doubles are the same on every machine,
 * which a logarithm need not be. */
static int64_t geometric_distance(double gamma, uint64_t word, int64_t most)
{
    const double u = (double)((word >> 11) + 1) * 0x1p-53;
    int64_t distance = 1;

    for (double power = gamma; distance < most && u <= power; power *= gamma)
        distance++;
    return distance;
}

int64_t trajd_goal_draw(const struct trajd_goal_rule *rule, const struct trajd_goal_key *key,
                        int64_t last_anchor)
{
    const int64_t most = last_anchor - key->anchor;
    uint64_t words[] = {
        GOAL_VERSION,       key->fingerprint,      key->seed,       key->pass, PURPOSE_GOAL,
        key->episode_index, (uint64_t)key->anchor, rule->geometric, 0};
    uint64_t word;

    if (rule->from == TRAJD_GOAL_LAST || most <= 0)
        return last_anchor;
    memcpy(&words[ARRAY_LEN(words) - 1], &rule->gamma, sizeof rule->gamma);
    word = trajd_mix(words, ARRAY_LEN(words));
    return key->anchor + (rule->geometric
                              ? geometric_distance(rule->gamma, word, most)
                              : 1 + (int64_t)((unsigned __int128)word * (uint64_t)most >> 64));
}

void trajd_goal_text(const struct trajd_goal_rule *rule, char *text, uint32_t size)
{
    if (rule->from == TRAJD_GOAL_LAST)
        snprintf(text, size, "last");
    else if (rule->geometric)
        snprintf(text, size, "future geometric %.6g", rule->gamma);
    else
        snprintf(text, size, "future uniform");
}
