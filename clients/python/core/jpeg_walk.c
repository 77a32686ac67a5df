/* Reads the Huffman codes of all blocks, and makes no pixels of them (ITU T.81, annexes B and F). The
 * bytes are not trusted. Each block takes at least two bits, so the time is that of the bytes. */
#include "clients/python/core/jpeg_walk.h"

#include <stdbool.h>
#include <string.h>

enum {
    LOOK_BITS = 9,
    TABLES = 4,
    COMPONENTS_MAX = 4,
    BLOCK = 64,
    CODE_MAX = 16,
    MARKER_DHT = 0xC4,
    MARKER_RST0 = 0xD0,
    MARKER_EOI = 0xD9,
    MARKER_SOS = 0xDA,
    MARKER_DRI = 0xDD
};

struct table {
    bool is_given;
    uint16_t look[1 << LOOK_BITS]; /* length << 8 | value; 0: the code is longer, or is none */
    uint32_t first[CODE_MAX + 1];  /* code of each length */
    uint32_t count[CODE_MAX + 1], place[CODE_MAX + 1];
    uint8_t values[256];
};

struct component {
    uint8_t id, across, down;
    const struct table *dc, *ac;
};

struct walk {
    const uint8_t *next, *end;
    uint64_t bits; /* the next ones, left-aligned */
    uint32_t bit_count;
    const char *reason;
    uint32_t height, width, component_count, across_max, down_max, restart;
    struct component components[COMPONENTS_MAX], *scanned[COMPONENTS_MAX];
    uint32_t scanned_count;
    struct table tables[2][TABLES]; /* DC, AC */
};

static bool fail(struct walk *walk, const char *reason)
{
    if (!walk->reason)
        walk->reason = reason;
    return false;
}

/* ---- bits ---- */

/* Loads bytes up to a marker. 0xFF 0x00 is the byte 0xFF. */
static void fill(struct walk *walk)
{
    while (walk->bit_count <= 56 && walk->next < walk->end) {
        const uint8_t byte = *walk->next;
        const uint8_t *after = walk->next + 1;
        if (byte == 0xFF) {
            while (after < walk->end && *after == 0xFF)
                after++;
            if (after == walk->end || *after++)
                return;
        }
        walk->next = after;
        walk->bits |= (uint64_t)byte << (56 - walk->bit_count);
        walk->bit_count += 8;
    }
}

static bool skip(struct walk *walk, uint32_t count)
{
    if (walk->bit_count < count)
        fill(walk);
    if (walk->bit_count < count)
        return fail(walk, "its compressed data end too early");
    walk->bits <<= count;
    walk->bit_count -= count;
    return true;
}

/* Reads a code. Returns its value; 0 with a reason. */
static uint32_t read_code(struct walk *walk, const struct table *table)
{
    uint32_t entry;

    if (walk->bit_count < CODE_MAX)
        fill(walk);
    entry = table->look[walk->bits >> (64 - LOOK_BITS)];
    if (entry)
        return skip(walk, entry >> 8) ? entry & 0xFF : 0;
    for (uint32_t length = LOOK_BITS + 1; length <= CODE_MAX; length++) {
        const uint32_t ahead = (uint32_t)(walk->bits >> (64 - length)) - table->first[length];
        if (ahead < table->count[length])
            return skip(walk, length) ? table->values[table->place[length] + ahead] : 0;
    }
    fail(walk, "its compressed data have a wrong code");
    return 0;
}

static void walk_block(struct walk *walk, const struct component *component)
{
    skip(walk, read_code(walk, component->dc) & 15);
    for (uint32_t k = 1; k < BLOCK && !walk->reason; k++) {
        const uint32_t value = read_code(walk, component->ac), zeros = value >> 4;
        if (!(value & 15) && zeros != 15)
            return;
        k += zeros;
        skip(walk, value & 15);
    }
}

/* ---- scans ---- */

/* Checks that the data end where their blocks do. */
static bool end_data(struct walk *walk)
{
    fill(walk);
    if (!walk->reason && walk->bit_count >= 8)
        fail(walk, "its compressed data have more than its blocks");
    walk->bits = 0;
    walk->bit_count = 0;
    return !walk->reason;
}

static void take_restart(struct walk *walk, uint32_t number)
{
    if (!end_data(walk))
        return;
    while (walk->next < walk->end && *walk->next == 0xFF)
        walk->next++;
    if (walk->next == walk->end || *walk->next != MARKER_RST0 + number % 8)
        fail(walk, "a restart marker is missing in its compressed data");
    else
        walk->next++;
}

static uint64_t divide_up(uint64_t number, uint64_t by)
{
    return (number + by - 1) / by;
}

/* Returns how many units of blocks a scan has. */
static uint64_t count_units(const struct walk *walk)
{
    const struct component *only = walk->scanned[0];

    if (walk->scanned_count > 1)
        return divide_up(walk->width, 8 * walk->across_max) *
               divide_up(walk->height, 8 * walk->down_max);
    return divide_up(divide_up((uint64_t)walk->width * only->across, walk->across_max), 8) *
           divide_up(divide_up((uint64_t)walk->height * only->down, walk->down_max), 8);
}

static void walk_scan(struct walk *walk)
{
    const uint64_t units = count_units(walk);

    for (uint64_t unit = 0; unit < units && !walk->reason; unit++) {
        if (walk->restart && unit && unit % walk->restart == 0)
            take_restart(walk, (uint32_t)(unit / walk->restart - 1));
        for (uint32_t c = 0; c < walk->scanned_count; c++) {
            const struct component *component = walk->scanned[c];
            const uint32_t blocks =
                walk->scanned_count > 1 ? (uint32_t)component->across * component->down : 1;
            for (uint32_t b = 0; b < blocks && !walk->reason; b++)
                walk_block(walk, component);
        }
    }
    end_data(walk);
}

/* ---- segments ---- */

static bool make_table(struct walk *walk, struct table *table, const uint8_t *counts)
{
    uint32_t code = 0, place = 0;

    memset(table->look, 0, sizeof table->look);
    for (uint32_t length = 1; length <= CODE_MAX; length++, code <<= 1) {
        table->first[length] = code;
        table->count[length] = counts[length - 1];
        table->place[length] = place;
        if (code + counts[length - 1] > 1u << length)
            return fail(walk, "a table of its codes is damaged");
        for (uint32_t i = 0; i < counts[length - 1]; i++, code++, place++)
            for (uint32_t j = 0; length <= LOOK_BITS && j < 1u << (LOOK_BITS - length); j++)
                table->look[(code << (LOOK_BITS - length)) + j] =
                    (uint16_t)(length << 8 | table->values[place]);
    }
    table->is_given = true;
    return true;
}

static bool read_tables(struct walk *walk, const uint8_t *segment, size_t size)
{
    while (size > CODE_MAX) {
        const uint32_t class = segment[0] >> 4, number = segment[0] & 15;
        uint32_t total = 0;
        for (uint32_t i = 1; i <= CODE_MAX; i++)
            total += segment[i];
        if (class > 1 || number >= TABLES || total > 256 || total > size - CODE_MAX - 1)
            return fail(walk, "a table of its codes is damaged");
        memcpy(walk->tables[class][number].values, segment + CODE_MAX + 1, total);
        if (!make_table(walk, &walk->tables[class][number], segment + 1))
            return false;
        segment += CODE_MAX + 1 + total;
        size -= CODE_MAX + 1 + total;
    }
    return true;
}

static bool read_frame(struct walk *walk, const uint8_t *segment, size_t size)
{
    if (size < 6 || !segment[5] || segment[5] > COMPONENTS_MAX || size < 6 + 3u * segment[5])
        return fail(walk, "its frame header is damaged");
    walk->height = (uint32_t)segment[1] << 8 | segment[2];
    walk->width = (uint32_t)segment[3] << 8 | segment[4];
    walk->component_count = segment[5];
    walk->across_max = walk->down_max = 1;
    for (uint32_t c = 0; c < walk->component_count; c++) {
        const uint8_t *at = segment + 6 + 3 * c;
        struct component *component = &walk->components[c];
        *component = (struct component){.id = at[0], .across = at[1] >> 4, .down = at[1] & 15};
        if (!component->across || component->across > 4 || !component->down || component->down > 4)
            return fail(walk, "its frame header is damaged");
        if (component->across > walk->across_max)
            walk->across_max = component->across;
        if (component->down > walk->down_max)
            walk->down_max = component->down;
    }
    return true;
}

static bool read_scan(struct walk *walk, const uint8_t *segment, size_t size)
{
    walk->scanned_count = size ? segment[0] : 0;
    if (!walk->scanned_count || walk->scanned_count > walk->component_count ||
        size < 1 + 2 * walk->scanned_count)
        return fail(walk, "the header of its data is damaged");
    for (uint32_t s = 0; s < walk->scanned_count; s++) {
        const uint32_t dc = segment[2 + 2 * s] >> 4, ac = segment[2 + 2 * s] & 15;
        uint32_t c = 0;
        while (c < walk->component_count && walk->components[c].id != segment[1 + 2 * s])
            c++;
        if (c == walk->component_count || dc >= TABLES || ac >= TABLES ||
            !walk->tables[0][dc].is_given || !walk->tables[1][ac].is_given)
            return fail(walk, "the header of its data is damaged");
        walk->scanned[s] = &walk->components[c];
        walk->components[c].dc = &walk->tables[0][dc];
        walk->components[c].ac = &walk->tables[1][ac];
    }
    return true;
}

/* Returns the next marker, after which walk->next stands; 0 with a reason. */
static uint8_t read_marker(struct walk *walk)
{
    const uint8_t *begin = walk->next;

    while (walk->next < walk->end && *walk->next == 0xFF)
        walk->next++;
    if (walk->next > begin && walk->next < walk->end)
        return *walk->next++;
    fail(walk, "a marker is missing");
    return 0;
}

/* Takes a segment. Returns false at the end of what is looked through. */
static bool take_segment(struct walk *walk)
{
    const uint8_t marker = read_marker(walk), *segment = walk->next;
    size_t size;

    if (walk->reason || marker == MARKER_EOI)
        return false;
    size = walk->end - segment >= 2 ? (size_t)segment[0] << 8 | segment[1] : 0;
    if (size < 2 || size > (size_t)(walk->end - segment))
        return fail(walk, "a segment goes beyond its end");
    walk->next += size;
    segment += 2;
    size -= 2;
    if (marker == MARKER_DHT)
        return read_tables(walk, segment, size);
    if (marker == 0xC0 || marker == 0xC1)
        return read_frame(walk, segment, size);
    if (marker == 0xC2)
        return false;
    if (marker == MARKER_DRI && size >= 2)
        walk->restart = (uint32_t)segment[0] << 8 | segment[1];
    if (marker == MARKER_SOS && read_scan(walk, segment, size))
        walk_scan(walk);
    return !walk->reason;
}

const char *trajd_jpeg_walk(const uint8_t *bytes, size_t size)
{
    struct walk walk = {.next = bytes, .end = bytes + size};

    if (size < 2)
        return "it ends too early";
    walk.next += 2; /* the start marker */
    while (take_segment(&walk))
        ;
    return walk.reason;
}
