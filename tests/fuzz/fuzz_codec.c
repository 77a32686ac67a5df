// libs: trajd_base
/* Any bytes as a struct of the codec, in both forms: what is decoded encodes and decodes to the
 * same bytes, and no input claims much memory. The first byte chooses the form. */
#include <stdlib.h>
#include <string.h>

#include "daemon/base/arena.h"
#include "proto/array_len.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct leaf {
    int32_t number;
    const char *text;
};

struct tree {
    uint16_t version;
    float scale;
    const char *name;
    struct trajd_codec_view note;
    uint32_t rank, leaf_count, stamp_count;
    uint64_t shape[3];
    struct leaf *leaves, *extra;
    int64_t *stamps;
    bool has_seed;
    uint64_t seed;
};

#define ONE(type, member) TRAJD_CODEC_ONE(struct type, member)
#define OPTIONAL .flags = TRAJD_CODEC_OPTIONAL
static const struct trajd_codec_field leaf_fields[] = {
    {"number", TRAJD_CODEC_INT, ONE(leaf, number), .low = -5, .high = 70000},
    {"text", TRAJD_CODEC_TEXT, ONE(leaf, text), OPTIONAL},
};
static const struct trajd_codec_table leaf_table =
    TRAJD_CODEC_TABLE(struct leaf, leaf_fields, TRAJD_CODEC_ROW, NULL);
static const struct trajd_codec_field tree_fields[] = {
    {"version", TRAJD_CODEC_UINT, ONE(tree, version), .low = 1},
    {"scale", TRAJD_CODEC_FLOAT, ONE(tree, scale), OPTIONAL},
    {"name", TRAJD_CODEC_TEXT, ONE(tree, name), .high = 20},
    {"note", TRAJD_CODEC_PROSE, ONE(tree, note), OPTIONAL},
    {"shape", TRAJD_CODEC_UINT, TRAJD_CODEC_ARRAY(struct tree, shape, rank), OPTIONAL},
    {"leaves", TRAJD_CODEC_STRUCT, TRAJD_CODEC_LIST(struct tree, leaves, leaf_count, 1000),
     OPTIONAL, .table = &leaf_table},
    {"extra", TRAJD_CODEC_STRUCT, TRAJD_CODEC_POINTER(struct tree, extra), OPTIONAL,
     .table = &leaf_table},
    {"stamps", TRAJD_CODEC_INT, TRAJD_CODEC_LIST(struct tree, stamps, stamp_count, 1000),
     .flags = TRAJD_CODEC_OPTIONAL | TRAJD_CODEC_PACKED},
    {"seed", TRAJD_CODEC_UINT, ONE(tree, seed), OPTIONAL, TRAJD_CODEC_HAS(struct tree, has_seed)},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct trajd_codec_table table = TRAJD_CODEC_TABLE(
        struct tree, tree_fields, size && data[0] & 1 ? TRAJD_CODEC_MAP : TRAJD_CODEC_ROW, NULL);
    struct trajd_arena arenas[2] = {{.limit_bytes = 1 << 20}, {.limit_bytes = 1 << 20}};
    struct trajd_bytes bytes[2] = {{0}, {0}};
    struct tree trees[2] = {{0}, {0}};
    struct trajd_error error;

    if (!size)
        return 0;
    if (!trajd_arena_decode(&arenas[0], &table, data + 1, size - 1, &trees[0], NULL, &error)) {
        if (trajd_codec_encode(&table, &trees[0], &bytes[0], NULL) ||
            trajd_arena_decode(&arenas[1], &table, bytes[0].data, bytes[0].length, &trees[1], NULL,
                               NULL) ||
            trajd_codec_encode(&table, &trees[1], &bytes[1], NULL) ||
            bytes[0].length != bytes[1].length ||
            memcmp(bytes[0].data, bytes[1].data, bytes[0].length) != 0)
            abort();
    } else if (error.status != TRAJD_ERR_PROTOCOL ||
               arenas[0].total_bytes > 40 * size + (1 << 15)) {
        abort();
    }
    for (int i = 0; i < 2; i++) {
        trajd_bytes_free(&bytes[i]);
        trajd_arena_free(&arenas[i]);
    }
    return 0;
}
