/* Walks over the links of a group and checks that none is lost. */
#include "daemon/hdf5/group_links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/helper_socket.h"

struct walk {
    H5L_iterate_t visit;
    void *context;
    char *problem;
    char *previous; /* the name before; NULL: none */
};

/* Returns why a listed name shows damage, or NULL. */
static const char *find_damage(const struct walk *walk, hid_t group, const char *name)
{
    /* Both kinds of groups list names in the order of strcmp: the old kind keeps them sorted in the
     * file, and libhdf5 sorts those of the new kind. */
    if (walk->previous && strcmp(walk->previous, name) >= 0)
        return "is out of order";
    if (!strcmp(name, ".") || H5Lexists(group, name, H5P_DEFAULT) <= 0)
        return "is listed but not found";
    return NULL;
}

static herr_t check_link(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    struct walk *walk = context;
    const char *damage = find_damage(walk, group, name);

    if (damage) {
        snprintf(walk->problem, TRAJD_LINKS_PROBLEM_SIZE, "the link \"%.200s\" %s", name, damage);
        return 1;
    }
    free(walk->previous);
    walk->previous = strdup(name);
    return walk->visit(group, name, info, walk->context) ? 1 : 0;
}

bool trajd_links_visit(hid_t group, H5L_iterate_t visit, void *context,
                       char problem[TRAJD_LINKS_PROBLEM_SIZE])
{
    struct walk walk = {.visit = visit, .context = context, .problem = problem};
    hsize_t position = 0;
    herr_t end;

    *problem = '\0';
    end = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &position, check_link, &walk);
    if (end < 0)
        snprintf(problem, TRAJD_LINKS_PROBLEM_SIZE, "the list of its links cannot be read");
    free(walk.previous);
    return !*problem;
}

/* Returns the place of an address: where it is, or a free one. */
static uint32_t place_of(const struct trajd_links_met *met, haddr_t address)
{
    uint32_t at = (uint32_t)((address * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (met->capacity - 1);

    while (met->addresses[at] != HADDR_UNDEF && met->addresses[at] != address)
        at = (at + 1) & (met->capacity - 1);
    return at;
}

static void grow(struct trajd_links_met *met)
{
    const struct trajd_links_met old = *met;

    met->capacity = old.capacity ? 2 * old.capacity : 256;
    met->addresses = trajd_helper_memory(malloc(met->capacity * sizeof *met->addresses));
    for (uint32_t i = 0; i < met->capacity; i++)
        met->addresses[i] = HADDR_UNDEF;
    for (uint32_t i = 0; i < old.capacity; i++)
        if (old.addresses[i] != HADDR_UNDEF)
            met->addresses[place_of(met, old.addresses[i])] = old.addresses[i];
    free(old.addresses);
}

bool trajd_links_meet(struct trajd_links_met *met, haddr_t address)
{
    uint32_t at;

    if (2 * met->count >= met->capacity)
        grow(met);
    at = place_of(met, address);
    if (met->addresses[at] == address) {
        met->repeats++;
        return true;
    }
    met->addresses[at] = address;
    met->count++;
    return false;
}

void trajd_links_met_free(struct trajd_links_met *met)
{
    free(met->addresses);
    *met = (struct trajd_links_met){0};
}
