/* Resampling of whole files: the episodes of one or several indexed inputs are resampled at one
 * rate into a new file of the same layout. `trajctl resample` and `trajctl preprocess` do this.
 *
 *   options and indexes -> plan: datasets, episodes, grids                     plan/
 *   plan -> rows: read, resampled and compressed by all threads, in segments   convert_rows.c
 *     of a few MiB                                     (on a CPU or GPU: convert_backend.c)
 *   rows -> blocks of shared memory -> trajd-indexer, the only program with    convert_work.c
 *     libhdf5, which writes the whole file             (daemon/hdf5/writer)
 *   plan -> groups, attributes, datasets, masks: the same program              convert_structure.c
 *
 * The output is OUT.partial until it is complete and on the disk. Then it is read again, compared
 * with the plan, and renamed. The output keeps the times of the inputs: an episode's grid begins at
 * the time when the last of its streams begins, and ends at or before the time when the first one
 * ends, so that no value is invented. An episode is split where two rows are further apart than
 * max_gap, and each part is an episode of the output. If the layout has one episode per file, each
 * part is a file of its own. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_H
#define TRAJD_CLI_RESAMPLE_CONVERT_H

#include "clients/cli/resample/plan/convert_options.h"
#include "daemon/base/arena.h"

enum trajd_convert_phase {
    TRAJD_CONVERT_PLANNED,
    TRAJD_CONVERT_RUNNING,
    TRAJD_CONVERT_CLOSING,
    TRAJD_CONVERT_DONE
};

struct trajd_convert_progress {
    enum trajd_convert_phase phase;
    uint64_t episodes_done, episode_count;
    uint64_t bytes_done, byte_count; /* bytes of rows written */
};

struct trajd_convert_report {
    uint32_t stream_count;
    struct trajd_convert_stream *const *streams;
    struct trajd_arena arena;           /* has the streams */
    uint64_t episode_count, byte_count; /* of the output, as planned */
    uint64_t episodes_written;          /* all of their rows are made */
    uint64_t episodes_left_out;
    uint64_t episodes_cut; /* episodes of the inputs that were split into parts */
    uint32_t part_count;   /* files, if the parts of an episode are files of their own; else 0 */
    uint64_t rows_read, rows_written; /* rows of datasets */
    uint64_t bytes_read, bytes_written;
    uint64_t steps;                     /* sum over all episodes */
    enum trajd_convert_backend backend; /* the chosen backend */
    /* for people: "the CPU", the name of a GPU, or the daemon */
    char backend_text[256];
    /* finished segments; those that this CPU made because they were too large for the backend */
    uint64_t segments, segments_here;
    uint64_t duration_ns; /* sum of all grids */
};

/* Converts the inputs. Blocks until the output is complete, or an error ends the run. Fills *report
 * as far as the run came; the caller frees its streams with trajd_convert_report_clear.
 * TRAJD_ERR_ARGUMENT: the output is an input or exists without `force`, or a file has the name of a
 * part that this run does not write; a kind does not fit its
 * stream, or the rate is out of range.
 * TRAJD_ERR_NOT_FOUND: no such directory, stream, filter or backend.
 * TRAJD_ERR_DATA: no episode is left, rows cannot be read, or an input changed while it was read.
 * TRAJD_ERR_IO: the disk is full, or the storage failed.
 * TRAJD_ERR_BUSY: another run writes the same output.
 * TRAJD_ERR_CLOSED: cancelled, or the daemon of the backend has ended.
 * TRAJD_ERR_UNSUPPORTED, TRAJD_ERR_DEVICE: the backend is not available, or has failed.
 * After an error nothing of the output is left. */
enum trajd_status trajd_convert_file(const struct trajd_convert_options *options,
                                     struct trajd_convert_report *report,
                                     struct trajd_error *error);
/* Writes the path of a part of an output that has files of its own, counted from 0: OUT_part0.hdf5 for
 * OUT.hdf5. Returns false if it is too long. */
bool trajd_convert_part_path(const char *output, uint32_t part, char *path, size_t size);
void trajd_convert_report_clear(struct trajd_convert_report *report);

#endif
