/* Draws the goal of a window. */
#include "daemon/window/order/goal.h"

#include <stdio.h>
#include <string.h>

#include "daemon/window/order/permute.h"
#include "proto/array_len.h"

/* Later versions never change what version 1 draws. */
#define GOAL_VERSION 1
/* The purpose of a key. Those of the order have smaller numbers. */
#define PURPOSE_GOAL 7

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
