#include "daemon/window/select/ranges.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/digest.h"

#define MAX_RANGES (1u << 24)

struct trajd_ranges *trajd_ranges_new(const char *source)
{
    struct trajd_ranges *made = calloc(1, sizeof *made);

    if (made && !(made->source = strdup(source))) {
        free(made);
        made = NULL;
    }
    return made;
}

void trajd_ranges_destroy(struct trajd_ranges **ranges)
{
    struct trajd_ranges *made = *ranges;

    *ranges = NULL;
    if (!made)
        return;
    free(made->source);
    free(made->entries);
    free(made->ranges);
    free(made->names);
    free(made);
}

const char *trajd_ranges_name(const struct trajd_ranges *ranges,
                              const struct trajd_ranges_entry *entry)
{
    return ranges->names + entry->name;
}

/* Makes room for `more` items behind `count`. The room doubles, so it follows from the count. */
static bool make_room(void **items, size_t size, size_t count, size_t more)
{
    size_t room = 64, wanted = 64;
    void *grown;

    while (room < count)
        room *= 2;
    while (wanted < count + more)
        wanted *= 2;
    if (*items && room >= count + more)
        return true;
    grown = realloc(*items, wanted * size);
    if (grown)
        *items = grown;
    return grown;
}

const char *trajd_ranges_add_entry(struct trajd_ranges *ranges, const char *name, size_t length)
{
    if (!length || length > TRAJD_RANGES_MAX_NAME || memchr(name, 0, length))
        return "a key must be 1 to 4095 bytes long, without zero bytes";
    if (ranges->entry_count == MAX_RANGES)
        return "there are more than 16,777,216 episodes";
    if (!make_room((void **)&ranges->entries, sizeof *ranges->entries, ranges->entry_count, 1) ||
        !make_room((void **)&ranges->names, 1, ranges->names_length, length + 1))
        return "no memory for the ranges";
    ranges->entries[ranges->entry_count++] =
        (struct trajd_ranges_entry){.name = ranges->names_length, .first = ranges->range_count};
    memcpy(ranges->names + ranges->names_length, name, length);
    ranges->names[ranges->names_length + length] = 0;
    ranges->names_length += length + 1;
    return NULL;
}

const char *trajd_ranges_add(struct trajd_ranges *ranges, int64_t begin, int64_t end)
{
    struct trajd_ranges_entry *entry = &ranges->entries[ranges->entry_count - 1];

    if (begin < 0)
        return "a range begins before row 0";
    if (end <= begin)
        return "a range is empty or reversed: expected [BEGIN, END] with BEGIN < END; row END is "
               "not in it";
    if (entry->count && begin < ranges->ranges[ranges->range_count - 1].end)
        return "the ranges overlap or do not ascend";
    if (ranges->range_count == MAX_RANGES)
        return "there are more than 16,777,216 ranges";
    if (!make_room((void **)&ranges->ranges, sizeof *ranges->ranges, ranges->range_count, 1))
        return "no memory for the ranges";
    ranges->ranges[ranges->range_count++] = (struct trajd_range){begin, end};
    entry->count++;
    return NULL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum trajd_status check_names(const struct trajd_ranges *ranges, struct trajd_error *error)
{
    const char **names = calloc((size_t)ranges->entry_count + 1, sizeof *names);
    enum trajd_status status = TRAJD_OK;

    if (!names)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the ranges");
    for (uint32_t e = 0; e < ranges->entry_count; e++)
        names[e] = trajd_ranges_name(ranges, &ranges->entries[e]);
    qsort(names, ranges->entry_count, sizeof *names, compare_names);
    for (uint32_t e = 1; e < ranges->entry_count && !status; e++)
        if (strcmp(names[e - 1], names[e]) == 0)
            status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: the key %.200s comes twice",
                                     ranges->source, names[e]);
    free(names);
    return status;
}

enum trajd_status trajd_ranges_finish(struct trajd_ranges *ranges, struct trajd_error *error)
{
    struct trajd_digest digest;

    if (!ranges->entry_count)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: names no episode",
                               ranges->source);
    trajd_digest_init(&digest);
    for (uint32_t e = 0; e < ranges->entry_count; e++) {
        const struct trajd_ranges_entry *entry = &ranges->entries[e];
        trajd_digest_add_text(&digest, trajd_ranges_name(ranges, entry));
        trajd_digest_add_u64(&digest, entry->count);
        for (uint32_t r = entry->first; r < entry->first + entry->count; r++) {
            trajd_digest_add_u64(&digest, (uint64_t)ranges->ranges[r].begin);
            trajd_digest_add_u64(&digest, (uint64_t)ranges->ranges[r].end);
        }
    }
    ranges->digest = trajd_digest_end(&digest);
    return check_names(ranges, error);
}
