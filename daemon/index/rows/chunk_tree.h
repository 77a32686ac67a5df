/* The chunks of a dataset, listed from the file's own tree of them. libhdf5 before 1.10.10 lists n
 * chunks in O(n^2). Such a tree hangs on the object header of the dataset:
 *
 *     header  := u8 version 1, u8 0, u16 messages, u32 references, u32 bytes, 4 bytes 0, block
 *     block   := message*
 *     message := u16 type, u16 bytes, u8 flags, 3 bytes 0, data
 *     type 8  := u8 version 3, u8 class 2 (chunked), u8 rank + 1, u64 tree, ...
 *     type 16 := u64 offset, u64 bytes of a further block
 *     tree    := "TREE", u8 type 1, u8 level, u16 entries, u64 left, u64 right, entry*
 *     entry   := u32 stored bytes, u32 filter mask, u64 first element * rank, u64 0, u64 child
 *
 * A child is a tree of the next lower level; of level 0 it is a chunk. Other versions have other
 * trees, for which libhdf5 has to do. The bytes come from a file and are not trusted. */
#ifndef TRAJD_INDEX_CHUNK_TREE_H
#define TRAJD_INDEX_CHUNK_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/index/rows/array.h"

/* Called for each chunk with its first element. Returns false to end the walk. */
typedef bool trajd_chunk_visitor(void *context, const uint64_t first[TRAJD_ARRAY_MAX_RANK],
                                 const struct trajd_chunk *chunk);

/* Visits the chunks of the dataset whose object header lies at `header`, in a file whose offsets
 * have 8 bytes. *count becomes their number, at most `most`. Returns false where there is no such
 * tree, it is damaged, it has more chunks, or a visit returned false. Reads with pread. Blocks. */
bool trajd_chunk_tree_walk(int fd, uint64_t header, uint32_t rank, uint64_t most,
                           trajd_chunk_visitor *visit, void *context, uint64_t *count);

#endif
