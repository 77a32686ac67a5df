/* The goals of a feed: the moment of an episode from which a `goal` output is taken. A goal is an
 * anchor of the window's own episode, at or after the window's anchor. It is a pure function of its
 * arguments, so it does not depend on workers, ranks or restarts. */
#ifndef TRAJD_WINDOW_ORDER_GOAL_H
#define TRAJD_WINDOW_ORDER_GOAL_H

#include <stdbool.h>
#include <stdint.h>

enum trajd_goal_from {
    TRAJD_GOAL_NONE = 0,
    TRAJD_GOAL_LAST = 1,   /* the last anchor of the episode */
    TRAJD_GOAL_FUTURE = 2, /* an anchor that is drawn from those after the window's */
};

struct trajd_goal_rule {
    enum trajd_goal_from from;
    bool geometric; /* FUTURE: the distance is geometric; else uniform */
    double gamma;   /* of the geometric distance: P(distance > d) = gamma^d; else 0 */
};

/* What a draw depends on, beside its rule. */
struct trajd_goal_key {
    uint64_t fingerprint; /* of the plan */
    uint64_t seed;
    uint64_t pass;
    uint32_t episode_index;
    int64_t anchor;
};

bool trajd_goal_is_same(const struct trajd_goal_rule *a, const struct trajd_goal_rule *b);

/* Returns the anchor of the goal, at most last_anchor, which is that of the episode. Where no
 * anchor follows the window's, the goal is last_anchor. Rules that are the same give the same
 * goal. */
int64_t trajd_goal_draw(const struct trajd_goal_rule *rule, const struct trajd_goal_key *key,
                        int64_t last_anchor);

/* Writes the rule as text: "last", "future uniform", "future geometric 0.99". */
void trajd_goal_text(const struct trajd_goal_rule *rule, char *text, uint32_t size);

#endif
