/* Between the stages of a conversion: convert.c, which calls them in order; convert_resume.c, where
 * it goes on or begins; convert_work.c, its rows; convert_publish.c, the end. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_INTERNAL_H
#define TRAJD_CLI_RESAMPLE_CONVERT_INTERNAL_H

#include <pthread.h>

#include "clients/cli/resample/convert.h"
#include "clients/cli/resample/convert_journal.h"
#include "clients/cli/resample/convert_rows.h"

enum { CONVERT_PATH_SIZE = 4096 };

/* One conversion under way. */
struct conversion {
    const struct trajd_convert_options *options;
    struct trajd_convert_report *report;
    struct trajd_error *error;
    struct convert_plan plan;
    struct convert_group *groups;
    uint32_t group_count;
    char partial[CONVERT_PATH_SIZE], journal_path[CONVERT_PATH_SIZE], spool_path[CONVERT_PATH_SIZE],
        folder[CONVERT_PATH_SIZE];
    int fd, journal_fd, spool_fd;
    bool has_files;  /* partial files exist, ours or of the run that is resumed */
    bool is_empty;   /* made just now */
    bool is_begun;   /* begun anew */
    bool began_rows; /* rows are in them */
    bool is_spent;   /* nothing can go on with them */
    struct convert_journal_head head;
    struct convert_spool spool;
    bool has_spool;
    bool *done;          /* [episode_count] */
    uint64_t *remaining; /* [episode_count]: segments not finished */
    uint32_t *finished;  /* [episode_count]: in the order of finishing */
    uint32_t finished_count, committed_count;
    uint64_t resumed_bytes;
    struct convert_counts counts;
    struct convert_backend backend;
    bool noted_backend_failure; /* that it has failed */
    uint64_t digest;            /* the plan's, of the CPU */
    uint64_t *nan_steps;
    /* threads */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct convert_cursor cursor;
    enum trajd_status status; /* of the worker that failed first */
    struct trajd_error worker_error;
    bool stop;
    uint32_t running;
};

/* ---- convert_state.c ---- */

/* Of the plan's arrays. */
enum trajd_status convert_no_memory(struct conversion *r);
/* As errno says. */
enum trajd_status convert_io_error(struct conversion *r, const char *path);
void convert_report_progress(const struct conversion *r, enum trajd_convert_phase phase);

/* ---- convert_resume.c ---- */

bool convert_is_all_chunks(const struct conversion *r);
/* TRAJD_ERR_NOT_FOUND, TRAJD_ERR_DATA: there is nothing to go on with, and why. */
enum trajd_status convert_resume(struct conversion *r);
enum trajd_status convert_begin(struct conversion *r);

/* ---- convert_work.c ---- */

uint32_t convert_thread_count(const struct conversion *r);
/* All rows that are not there yet, by threads that have ended when it returns. */
enum trajd_status convert_write_rows(struct conversion *r);
enum trajd_status convert_commit(struct conversion *r);

/* ---- convert_publish.c ---- */

/* The partial file becomes the output. */
enum trajd_status convert_publish(struct conversion *r);

#endif
