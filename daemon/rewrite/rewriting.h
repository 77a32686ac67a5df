/* Between the stages of a rewriting: rewrite.c, which calls them in order; rewrite_resume.c, where it goes on or begins; rewrite_work.c, its rows;
 * rewrite_publish.c, the end. */
#ifndef TRAJD_REWRITE_REWRITING_H
#define TRAJD_REWRITE_REWRITING_H

#include "daemon/rewrite/rewrite.h"

struct rewriting;

/* ---- rewrite.c ---- */

/* Of the plan's arrays. */
enum trajd_status rewrite_no_memory(struct rewriting *r);
/* As errno says. */
enum trajd_status rewrite_io_error(struct rewriting *r, const char *path);
void rewrite_tell(const struct rewriting *r, enum trajd_rewrite_phase phase);

/* ---- rewrite_resume.c ---- */

bool rewrite_is_all_chunks(const struct rewriting *r);
/* TRAJD_ERR_NOT_FOUND, TRAJD_ERR_DATA: there is nothing to go on with, and why. */
enum trajd_status rewrite_resume(struct rewriting *r);
enum trajd_status rewrite_begin(struct rewriting *r);

/* ---- rewrite_work.c ---- */

uint32_t rewrite_thread_count(const struct rewriting *r);
/* All rows that are not there yet, by threads that have ended when it returns. */
enum trajd_status rewrite_write_rows(struct rewriting *r);
enum trajd_status rewrite_commit(struct rewriting *r);

/* ---- rewrite_publish.c ---- */

/* The partial file becomes the output. */
enum trajd_status rewrite_publish(struct rewriting *r);

#endif
