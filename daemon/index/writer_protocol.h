/* The protocol with "trajd-indexer write", which writes a new HDF5 file. It is a process of its own
 * because it copies from inputs that cannot be trusted. Rows reach it in memory that it shares with
 * its parent, so that it writes them while the parent makes the next ones.
 *
 * Frames are those of daemon/index/helper.h. A text is a u32 length and its bytes; numbers are in
 * the machine's byte order. The child answers each frame in turn: NOTE as often as it has one, then
 * DONE, or FAILED (u32 errno and text), which ends the conversation. The parent sends
 *
 *     OUTPUT   the new file's descriptor; u8 is_small: as little room for metadata at a time as
 *              makes sense where the inputs have a few MiB
 *     MEMORY   the descriptor of a memory file that cannot shrink; u64 its size
 *     DATASETS u32 n, dataset[n]: the datasets of the episodes
 *              dataset := text path, u8 dtype, u8 rank, and unless the rank is 0:
 *                         u64 shape[rank - 1] (of a row),
 *                         u64 chunk[rank] (chunk[0] 0: contiguous), u8 level (of compression)
 *                         bool stands for any type of one byte that is copied: bool and enums.
 *                         rank 0: the child copies rows of the source's dataset along axis 0
 *     INPUT    an input's descriptor; text label, groups, filter_folder; u8 is_first;
 *              u32 n, text known[n]; u32 n, text tables[n]. Objects outside the episodes are copied
 *              from the first input
 *     EPISODES u32 n, episode[n], of that input. Episodes are counted from 0 in the order in which
 *              they are sent
 *              episode := text source, target, label, part; u64 steps, first_row, all_rows; u8 has_more;
 *                         u32 n, u64 row_counts[n]; u32 n, pick[n]; u32 n, array[n];
 *                         u32 n, start[n]
 *                         has_more: the source may hold more than these arrays and the episode's
 *                         own attributes
 *                         first_row, all_rows: where the episode begins in arrays that hold
 *                         several, and the rows of all; 0: they hold one. The rows of picks count
 *                         from first_row
 *              pick    := u64 rows (in the file), u64 row[steps]: the row that each step takes
 *              array   := u32 number of the dataset, u8 has_attributes (of the source), and for
 *                         rank 0: u32 number of the pick that has its rows
 *              start   := text path, i64 ns, u8 unit
 *     ROWS     struct trajd_writer_rows[]: rows and compressed chunks, which are in the memory.
 *              Each row and chunk of an array is sent once, in any order. The memory is free again
 *              when DONE comes
 *     MASKS    text folder; u32 n, key[n]
 *              key     := text name, u32 n, text episodes[n]
 *     SUMMARY  u64 steps, episodes; u32 n, rate[n]; text provenance
 *              rate    := text object, name, json, value
 *     CLOSE    The file is complete when DONE comes
 *
 * or, for `trajctl pack`, in place of DATASETS to SUMMARY:
 *
 *     COPY     an input's descriptor; text label; u32 n, text path[n] (from the root), ascending:
 *              the output becomes a copy of the input without these datasets
 *     FRAMES   text path; u64 rows, bytes; text encoding, color, flip, unit; u32 height, width;
 *              text preparation ("": none): makes a group of packed frames in place of a dataset
 *              that was left out. It counts as an episode with two arrays: the bytes, and the
 *              offsets. ROWS that follow are of this episode
 *
 * `known` are paths below the episode that are neither copied nor reported. Another dataset that
 * has as many elements along one axis as a pick has rows is copied by the rows of that pick. Where
 * two axes or two picks are possible, FAILED names the dataset. A dataset that matches a pattern of
 * `tables` is copied unchanged. Of the others, those whose row count is one of row_counts, or one
 * more, are left out, and all others are copied unchanged, where arrays hold several episodes once
 * for all of them. A NOTE reports each such path once. */
#ifndef TRAJD_INDEX_WRITER_PROTOCOL_H
#define TRAJD_INDEX_WRITER_PROTOCOL_H

#include <stdint.h>

enum trajd_writer_kind {
    TRAJD_WRITER_OUTPUT = 16,
    TRAJD_WRITER_MEMORY,
    TRAJD_WRITER_DATASETS,
    TRAJD_WRITER_INPUT,
    TRAJD_WRITER_EPISODES,
    TRAJD_WRITER_ROWS,
    TRAJD_WRITER_MASKS,
    TRAJD_WRITER_SUMMARY,
    TRAJD_WRITER_CLOSE,
    TRAJD_WRITER_COPY,
    TRAJD_WRITER_FRAMES,
    TRAJD_WRITER_NOTE,
    TRAJD_WRITER_DONE,
    TRAJD_WRITER_FAILED,
};

/* In the provenance, the value of "split" where the inputs' arrays held several episodes. */
#define TRAJD_SEPARATED "groups"

#define TRAJD_WRITER_SMALL_BYTES (UINT64_C(16) << 20) /* inputs up to this size are small */
#define TRAJD_WRITER_FRAME_BYTES_MAX (1u << 30)
#define TRAJD_WRITER_RANK_MAX 8

/* Rows of an array, or one chunk of it that is compressed already. */
struct trajd_writer_rows {
    uint32_t episode, array;
    uint64_t place[TRAJD_WRITER_RANK_MAX]; /* the first row; of a chunk its place on each axis */
    uint64_t rows;                         /* 0: a chunk */
    uint64_t at, size;                     /* in the memory */
};

#endif
