/* The protocol with "trajd-indexer write", which makes the structure of a new HDF5 file. It is a
 * process of its own because it copies from inputs that cannot be trusted. The rows do not pass
 * through it: it makes room for them and sends their offsets, and the parent writes them.
 *
 * Frames are those of daemon/index/helper.h. A text is a u32 length and its bytes; numbers are in
 * the machine's byte order. The parent sends, in this order:
 *
 *     OUTPUT   the new file's descriptor; u8 is_new; u8 is_small: as little room for metadata at a time
 *              as makes sense where the inputs have a few MiB
 *              Answer: READY, once the file is begun and the sandbox stands
 *     DATASETS u32 n, dataset[n]: the datasets of the episodes. No answer
 *              dataset := text path, u8 dtype, u8 rank, and unless the rank is 0:
 *                         u64 shape[rank - 1] (of a row),
 *                         u64 chunk[rank] (chunk[0] 0: contiguous), u8 level (of compression)
 *                         bool stands for any type of one byte that is copied: bool and enums.
 *                         rank 0: the child copies rows of the source's dataset along axis 0
 *     INPUT    an input's descriptor; text label, groups, filter_folder; u8 is_first;
 *              u32 n, text known[n]; u32 n, text tables[n]. Objects outside the episodes are copied from the first input
 *              Answer: READY
 *     EPISODES u32 n, episode[n], of that input
 *              episode := text source, target, label, part; u64 steps; u8 has_more;
 *                         u32 n, u64 row_counts[n]; u32 n, pick[n]; u32 n, array[n];
 *                         u32 n, start[n]
 *                         has_more: the source may hold more than these arrays and the episode's
 *                         own attributes
 *              pick    := u64 rows (in the file), u64 row[steps]: the row that each step takes
 *              array   := u32 number of the dataset, u8 has_attributes (of the source), and for
 *                         rank 0: u32 number of the pick that has its rows
 *              start   := text path, i64 ns, u8 unit
 *              Answer: OFFSETS, u64 for each array of all episodes: where its rows go in the file;
 *              UINT64_MAX for a chunked one, and for rank 0
 *     MASKS    text folder; u32 n, key[n]
 *              key     := text name, u32 n, text episodes[n]
 *     FINISH   u64 steps, episodes; u32 n, rate[n]; text provenance
 *              rate    := text object, name, json, value
 *              Answer: DONE. The file is complete but for its rows
 *     CHUNKS   the descriptor of a file with compressed chunks; u32 n, array[n]. Comes after an
 *              OUTPUT with is_new 0
 *              array   := text path, u8 rank, u64 n, chunk[n]
 *              chunk   := u64 place[rank], u64 offset, u32 size, u32 mask
 *              Answer: DONE when all chunks are in the file
 *
 *     PACK     an input's descriptor; text label; u32 n, frames[n], ascending by path. Comes after an
 *              OUTPUT with is_new 1, and is the only other frame: the output becomes a copy of the
 *              input, with a group of packed frames in place of each listed dataset
 *              frames := text path (from the root), u64 rows, u64 bytes, text encoding, color, flip,
 *                        unit; u32 height, u32 width, text preparation ("": none)
 *              Answer: OFFSETS, two for each: where its bytes go (UINT64_MAX: there are none), and
 *              its offsets; then DONE
 *
 * `known` are paths below the episode that are neither copied nor reported. Another dataset that
 * has as many elements along one axis as a pick has rows is copied by the rows of that pick. Where
 * two axes or two picks are possible, FAILED names the dataset. A dataset that matches a pattern of
 * `tables` is copied unchanged. Of the others, those whose row count is one of row_counts, or one
 * more, are left out, and all others are copied unchanged. A NOTE reports each such path once.
 * FAILED, u32 errno and text, ends the conversation at any time. */
#ifndef TRAJD_INDEX_WRITER_PROTOCOL_H
#define TRAJD_INDEX_WRITER_PROTOCOL_H

enum trajd_writer_kind {
    TRAJD_WRITER_OUTPUT = 16,
    TRAJD_WRITER_DATASETS,
    TRAJD_WRITER_INPUT,
    TRAJD_WRITER_EPISODES,
    TRAJD_WRITER_MASKS,
    TRAJD_WRITER_FINISH,
    TRAJD_WRITER_CHUNKS,
    TRAJD_WRITER_READY,
    TRAJD_WRITER_OFFSETS,
    TRAJD_WRITER_NOTE,
    TRAJD_WRITER_DONE,
    TRAJD_WRITER_FAILED,
    TRAJD_WRITER_PACK,
};

#define TRAJD_WRITER_SIGNATURE_SIZE 8
#define TRAJD_WRITER_SMALL_BYTES (UINT64_C(16) << 20) /* inputs up to this size are small */
#define TRAJD_WRITER_FRAME_BYTES_MAX (1u << 30)

#endif
