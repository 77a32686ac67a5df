/* trajd-indexer as "trajd-indexer write": makes the structure of a new HDF5 file, in a process of
 * its own because it copies from inputs that nobody trusts. Rows do not go through it: it makes
 * room for them and tells where, the parent writes them.
 *
 * Frames as in daemon/index/helper.h. The parent sends, in this order; texts are u32 length +
 * bytes, numbers of the machine's order:
 *
 *     OUTPUT   the new file's descriptor. Answer: READY, once the file is begun and the sandbox
 *              stands
 *     DATASETS u32 n, dataset[n]: what episodes are made of. No answer
 *                  dataset := text path, u8 dtype, u8 rank, u64 shape[rank - 1], u64 chunk[rank],
 *                    u8 level     shape: of a row; chunk[0] 0: contiguous
 *     INPUT    an input's descriptor; text label, groups, filter_folder; u8 is_first; u32 n, text
 *              known[n]. What stands beside the episodes is
 *                  copied from the first. Answer: READY
 *     EPISODES u32 n, episode[n], of that input
 *                  episode := text source, target, label, part; u64 steps; u8 has_more; u32 n, u64
 *                    row_counts[n]; u32 n, array[n]; u32 n, start[n]
 *                             has_more: something may stand in the source beside these arrays and
 *                               the episode's own attributes
 *                  array   := u32 which dataset, u8 has_attributes: whether the source's has some
 *                  start   := text path, i64 ns, u8 unit
 *              Answer: OFFSETS, u64[n of all arrays]: where their rows go in the file; UINT64_MAX
 *                for one in chunks
 *     MASKS    text folder; u32 n, key[n]; key := text name, u32 n, text episodes[n]
 *     FINISH   u64 steps, episodes; u32 n, rate[n]; text provenance; rate := text object, name,
 *              json, value
 *              Answer: DONE. The file is whole but for its rows
 *     CHUNKS   the descriptor of the file with compressed chunks; u32 n, array[n], after an OUTPUT
 *              with is_new 0
 *                  array := text path, u8 rank, u64 n, chunk[n]; chunk := u64 place[rank], u64
 *                    offset, u32 size, u32 mask
 *              Answer: DONE when all are in the file
 *
 * `known` are paths below the episode that are neither copied nor told of. Other datasets are left
 * out when their rows are as many as one of row_counts or one more, and copied as they are
 * otherwise; a NOTE tells of each path once. FAILED, u32 errno and text, ends it all. */
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
};

#define TRAJD_WRITER_SIGNATURE_SIZE 8
#define TRAJD_WRITER_FRAME_BYTES_MAX (1u << 30)

#endif
