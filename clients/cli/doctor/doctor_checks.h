/* The checks of trajctl doctor. Each one adds its findings to the report. */
#ifndef TRAJD_CLI_DOCTOR_DOCTOR_CHECKS_H
#define TRAJD_CLI_DOCTOR_DOCTOR_CHECKS_H

#include "clients/cli/doctor/doctor.h"
#include "clients/cli/doctor/doctor_report.h"

enum { DOCTOR_PATH_SIZE = 4096, DOCTOR_UUID_SIZE = 48 };

/* Memory that the daemon of the self test takes. */
enum { DOCTOR_STORE_MIB = 16, DOCTOR_RINGS_MIB = 32, DOCTOR_RESERVE_MIB = 256 };

/* The programs of this installation and their versions. Writes the daemon's path; returns false if
 * there is no daemon that runs. */
bool doctor_check_programs(struct doctor_report *report, char *daemon, size_t size);
/* The driver and the GPUs. Writes the UUID of the first GPU, or an empty text. */
void doctor_check_gpu(struct doctor_report *report, char uuid[DOCTOR_UUID_SIZE]);
/* Processors, memory, limits of the process, shared memory. */
void doctor_check_machine(struct doctor_report *report);
/* The folders of private daemons and of indexes, and the datasets and feeds of the configuration;
 * the feeds by the program `daemon`, if there is one. Writes the folder for private daemons. */
void doctor_check_files(struct doctor_report *report, const char *daemon, const char *config,
                        char *runtime, size_t size);
/* The daemon at the endpoint. */
void doctor_check_daemon(struct doctor_report *report, const struct doctor_options *options);
/* Starts a daemon in a new folder below `runtime`, and reads a feed for that time. `uuid` "": no
 * GPU. */
void doctor_check_feed(struct doctor_report *report, const char *daemon, const char *runtime,
                       const char *uuid, uint64_t seconds);

#endif
