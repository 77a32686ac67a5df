/* Walks the version 1 B-tree of a chunked dataset, and lists its chunks. */
#include "daemon/index/rows/chunk_tree.h"

#include <string.h>

#include "daemon/index/rows/file_bytes.h"

enum {
    HEADER_BYTES = 16,
    BLOCK_BYTES_MAX = 4096, /* of messages; more are not a header of a dataset with rows */
    BLOCKS_MAX = 64,
    MESSAGE_BYTES = 8,
    MESSAGE_LAYOUT = 8,
    MESSAGE_FURTHER = 16,
    NODE_BYTES = 24,
    NODE_ENTRIES_MAX = 1024, /* libhdf5 makes 64 */
    ENTRIES_AHEAD = 64,
    LEVEL_MAX = 8,
    ENTRY_BYTES_MAX = 8 + 8 * (TRAJD_ARRAY_MAX_RANK + 1) + 8
};

struct walk {
    int fd;
    uint32_t rank;
    uint64_t most, count;
    trajd_chunk_visitor *visit;
    void *context;
};

static bool read_at(const struct walk *walk, uint64_t offset, uint64_t size, uint8_t *to)
{
    return offset <= INT64_MAX - size && !trajd_read_exactly(walk->fd, offset, size, to, NULL);
}

/* ---- the header ---- */

/* What a block of messages tells. */
struct block {
    uint64_t offset, bytes; /* 0 bytes: none */
};

/* Reads the place of the tree from a layout message. */
static bool read_layout(const struct walk *walk, const uint8_t *data, uint32_t bytes,
                        uint64_t *tree)
{
    if (bytes < 11 || data[0] != 3 || data[1] != 2 || data[2] != walk->rank + 1)
        return false;
    *tree = trajd_u64_at(data + 3);
    return true;
}

/* Reads the messages of a block. *further becomes the next block. Returns true where one of them
 * has the place of the tree. */
static bool read_block(const struct walk *walk, struct block at, struct block *further,
                       uint64_t *tree)
{
    uint8_t bytes[BLOCK_BYTES_MAX];
    uint64_t next = 0;

    *further = (struct block){0};
    if (at.bytes > sizeof bytes || !read_at(walk, at.offset, at.bytes, bytes))
        return false;
    while (at.bytes - next >= MESSAGE_BYTES) {
        const uint8_t *message = bytes + next;
        const uint32_t type = trajd_u16_at(message), size = trajd_u16_at(message + 2);
        if (size > at.bytes - next - MESSAGE_BYTES)
            return false;
        if (type == MESSAGE_LAYOUT)
            return read_layout(walk, message + MESSAGE_BYTES, size, tree);
        if (type == MESSAGE_FURTHER && size >= 16)
            *further = (struct block){trajd_u64_at(message + MESSAGE_BYTES),
                                      trajd_u64_at(message + MESSAGE_BYTES + 8)};
        next += MESSAGE_BYTES + size;
    }
    return false;
}

static bool find_tree(const struct walk *walk, uint64_t header, uint64_t *tree)
{
    uint8_t head[HEADER_BYTES];
    struct block at, further;

    if (!read_at(walk, header, sizeof head, head) || head[0] != 1)
        return false;
    at = (struct block){header + HEADER_BYTES, trajd_u32_at(head + 8)};
    for (int i = 0; i < BLOCKS_MAX && at.bytes; i++, at = further)
        if (read_block(walk, at, &further, tree))
            return true;
    return false;
}

/* ---- the tree ---- */

static bool visit_chunk(struct walk *walk, const uint8_t *entry, uint64_t offset)
{
    const struct trajd_chunk chunk = {offset, trajd_u32_at(entry), trajd_u32_at(entry + 4)};
    uint64_t first[TRAJD_ARRAY_MAX_RANK] = {0};

    for (uint32_t d = 0; d < walk->rank; d++)
        first[d] = trajd_u64_at(entry + 8 + 8 * (uint64_t)d);
    return ++walk->count <= walk->most && walk->visit(walk->context, first, &chunk);
}

/* Visits the chunks below a node. Each node has an entry, so the number of chunks bounds that of
 * the nodes. */
static bool visit_node(struct walk *walk, uint64_t offset, uint32_t level)
{
    const uint64_t entry_bytes = 8 + 8 * ((uint64_t)walk->rank + 1) + 8;
    uint8_t head[NODE_BYTES], entries[ENTRIES_AHEAD * ENTRY_BYTES_MAX];
    uint32_t count;

    if (!read_at(walk, offset, sizeof head, head) || memcmp(head, "TREE\1", 5) || head[5] != level)
        return false;
    count = trajd_u16_at(head + 6);
    if (!count || count > NODE_ENTRIES_MAX)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t ahead = count - i < ENTRIES_AHEAD ? count - i : ENTRIES_AHEAD;
        const uint8_t *entry = entries + i % ENTRIES_AHEAD * entry_bytes;
        if (i % ENTRIES_AHEAD == 0 &&
            !read_at(walk, offset + NODE_BYTES + i * entry_bytes, ahead * entry_bytes, entries))
            return false;
        const uint64_t child = trajd_u64_at(entry + entry_bytes - 8);
        if (!(level ? visit_node(walk, child, level - 1) : visit_chunk(walk, entry, child)))
            return false;
    }
    return true;
}

bool trajd_chunk_tree_walk(int fd, uint64_t header, uint32_t rank, uint64_t most,
                           trajd_chunk_visitor *visit, void *context, uint64_t *count)
{
    struct walk walk = {fd, rank, most, 0, visit, context};
    uint8_t head[NODE_BYTES];
    uint64_t tree;
    bool ok = rank >= 1 && rank <= TRAJD_ARRAY_MAX_RANK && find_tree(&walk, header, &tree) &&
              read_at(&walk, tree, sizeof head, head) && head[5] <= LEVEL_MAX &&
              visit_node(&walk, tree, head[5]);

    *count = walk.count;
    return ok;
}
