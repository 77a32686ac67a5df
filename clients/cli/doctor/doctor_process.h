/* Programs that the doctor runs. */
#ifndef TRAJD_CLI_DOCTOR_DOCTOR_PROCESS_H
#define TRAJD_CLI_DOCTOR_DOCTOR_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Runs a program to its end and reads the begin of its standard output and error. Returns false if
 * it cannot be started, or ends with another status than 0. `arguments` ends with NULL. */
bool doctor_read_output(const char *const *arguments, char *output, size_t size);

/* Starts a program with its output in the file `log` and descriptor 3 as the end of a pipe. Returns
 * its pid, and in *ready the other end of the pipe, or -1 with errno. */
pid_t doctor_start(const char *const *arguments, const char *log, int *ready);
/* Waits until the program writes to descriptor 3. Returns false if it closes it, or after the time.
 */
bool doctor_wait_ready(int ready, int timeout_ms);
/* Stops the program with SIGTERM, and after ten seconds with SIGKILL. */
void doctor_stop(pid_t pid);

#endif
