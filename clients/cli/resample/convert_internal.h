/* The state of a conversion into one file, shared by its stages: convert.c calls them in order;
 * convert_resume.c begins or resumes the file; convert_work.c makes the rows; convert_publish.c
 * finishes the file. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_INTERNAL_H
#define TRAJD_CLI_RESAMPLE_CONVERT_INTERNAL_H

#include <pthread.h>

#include "clients/cli/resample/convert.h"
#include "clients/cli/resample/convert_journal.h"
#include "clients/cli/resample/convert_rows.h"

enum { CONVERT_PATH_SIZE = 4096 };

/* One running conversion. */
struct conversion {
    const struct trajd_convert_options *options;
    struct trajd_convert_report *report;
    struct trajd_error *error;
    struct convert_plan plan;
    struct convert_group *groups;
    uint32_t group_count;
    char partial[CONVERT_PATH_SIZE], journal_path[CONVERT_PATH_SIZE], spool_path[CONVERT_PATH_SIZE];
    int fd, journal_fd, spool_fd;
    bool has_files;  /* partial files of this run, or of the resumed run, exist */
    bool is_empty;   /* the partial files are new */
    bool is_begun;   /* the output was begun again */
    bool began_rows; /* rows may be in the files */
    bool is_spent;   /* the files cannot be resumed */
    bool is_part;    /* the output is one of several, which get their names together */
    struct convert_journal_head head;
    struct convert_spool spool;
    bool has_spool;
    bool *done;          /* [episode_count] */
    uint64_t *remaining; /* [episode_count]: segments that are not finished */
    uint32_t *finished;  /* [episode_count]: in the order in which they were finished */
    uint32_t finished_count, committed_count;
    uint64_t resumed_bytes;
    struct convert_counts counts;
    struct convert_backend backend;
    bool noted_backend_failure; /* the note about the failure was sent */
    uint64_t digest;            /* of the plan, for the CPU */
    uint64_t *nan_steps;
    /* Shared by the threads. `lock` protects the members from here on, and `remaining` and
     * `finished`. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct convert_cursor cursor;
    enum trajd_status status; /* of the worker that failed first */
    struct trajd_error worker_error;
    bool stop;
    uint32_t running;
};

/* ---- convert_io.c ---- */

/* Sets TRAJD_ERR_MEMORY for the plan's arrays, and returns it. */
enum trajd_status convert_no_memory(struct conversion *r);
/* Sets TRAJD_ERR_IO from errno, and returns it. */
enum trajd_status convert_io_error(struct conversion *r, const char *path);
void convert_report_progress(const struct conversion *r, enum trajd_convert_phase phase);

/* ---- convert.c ---- */

/* Sets the names of the partial file and of those beside it, from the output's. */
enum trajd_status convert_name_files(struct conversion *r);
/* Sets these names, and checks that the output's place is free or may be replaced. */
enum trajd_status convert_check_output(struct conversion *r);
/* Converts the episodes of the plan into one file. Takes over the plan. */
enum trajd_status convert_file(struct conversion *r, const struct convert_plan *plan);

/* ---- convert_resume.c ---- */

bool convert_is_all_chunks(const struct conversion *r);
/* Reads the journal and takes over the finished episodes. TRAJD_ERR_NOT_FOUND, TRAJD_ERR_DATA: the
 * files cannot be resumed; the error says why. */
enum trajd_status convert_resume(struct conversion *r);
enum trajd_status convert_begin(struct conversion *r);

/* ---- convert_work.c ---- */

uint32_t convert_thread_count(const struct conversion *r);
/* Makes the missing rows. All threads have ended when it returns. */
enum trajd_status convert_write_rows(struct conversion *r);
enum trajd_status convert_commit(struct conversion *r);

/* ---- convert_publish.c ---- */

/* Turns the partial file into the output. A part is only marked as finished. */
enum trajd_status convert_publish(struct conversion *r);
/* Returns whether a part was finished by this plan: its file is there, under either name. */
bool convert_is_finished(const struct conversion *r);
/* Gives a finished part the output's name, unless it has it. */
enum trajd_status convert_name_part(struct conversion *r);

#endif
