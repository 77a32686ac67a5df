/* Whole files onto a regular grid: the episodes of one or several indexed inputs resampled at one
 * rate into a new file of the same layout. What `trajctl resample` and `trajctl preprocess` do.
 *
 *   options x indexes -> plan: which datasets, episodes, grids          convert_plan.c
 *   an episode with holes -> the parts between them                     convert_gaps.c
 *   plan -> skeleton: groups, attributes, datasets with room for rows   convert_output.c asks
 *     trajd-indexer (writer_*.c), the only libhdf5
 *   plan -> rows: read, resample, write, on all threads                 convert_rows.c, in segments
 *     of a few MiB; convert_backend.c, by whom
 *   finished episodes -> journal, so that a killed run can go on        convert_journal.c
 *
 * The output is OUT.partial until the last row is on the disk, without the signature that makes it
 * an HDF5 file; then it is renamed. Times are those of the inputs: an episode's grid begins where
 * the last of its streams begins and ends before the first one ends, so that no value is invented.
 * Where rows are further apart than max_gap it is cut, and each part is an episode of the output.
 */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_H
#define TRAJD_CLI_RESAMPLE_CONVERT_H

#include "clients/cli/resample/plan/convert_options.h"

enum trajd_convert_phase {
    TRAJD_CONVERT_PLANNED,
    TRAJD_CONVERT_RUNNING,
    TRAJD_CONVERT_CLOSING,
    TRAJD_CONVERT_DONE
};

struct trajd_convert_progress {
    enum trajd_convert_phase phase;
    uint64_t episodes_done, episode_count; /* those of an earlier run that is resumed counted in */
    uint64_t episodes_safe;                /* which a run that is killed now would find again */
    uint64_t bytes_done, byte_count;       /* of rows written */
};

struct trajd_convert_report {
    uint32_t stream_count;
    const struct trajd_convert_stream *streams;
    uint64_t episode_count, byte_count; /* of the output, as planned */
    uint64_t episodes_written, episodes_left_out, episodes_resumed;
    uint64_t episodes_cut;            /* of the inputs: each has given parts of its own */
    uint64_t rows_read, rows_written; /* rows of datasets */
    uint64_t bytes_read, bytes_written;
    uint64_t steps;                     /* over all episodes */
    enum trajd_convert_backend backend; /* as chosen */
    char backend_text[256];             /* for people: "the CPU", a GPU's name, which daemon */
    /* done; those done on the CPU because they were too large for the backend */
    uint64_t segments, segments_here;
    bool fell_back;       /* the backend failed, and the CPU went on */
    uint64_t duration_ns; /* of all grids */
};

/* TRAJD_ERR_ARGUMENT: output is an input, exists without force, unknown stream, kind that does not
 * fit, rate beyond sense. NOT_FOUND: no directory, no such filter. DATA: no episode is left, or
 * rows cannot be read (the partial file is kept for resume), or an input changed while it was read.
 * IO: the disk is full (the partial file is removed), storage failed (kept). BUSY: another run is
 * at the same output. CLOSED: cancelled, or the daemon that was to do it has ended (kept).
 * NOT_FOUND, UNSUPPORTED, DEVICE: the backend is not at hand, or has failed. *report is filled as
 * far as it came; its streams are freed by trajd_convert_report_clear. Blocks. */
enum trajd_status trajd_convert_file(const struct trajd_convert_options *options,
                                     struct trajd_convert_report *report,
                                     struct trajd_error *error);
void trajd_convert_report_clear(struct trajd_convert_report *report);

#endif
