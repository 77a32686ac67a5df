/* Child processes of a test: started with arguments, read line by line, killed. All functions wait
 * for conditions, with a time limit. */
#ifndef TRAJD_TESTS_PROCESSES_H
#define TRAJD_TESTS_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

struct process {
    pid_t pid;
    int input; /* standard input, which ends when the test dies */
    FILE *output;
};

/* Starts a program of the build folder. argv[1] is `directory`. `arguments` are further arguments,
 * separated by blanks. */
struct process process_start(const char *program, const char *directory, const char *arguments);
/* Reads the next line, without its end. Returns false at the end of the output or after one minute.
 */
bool process_read(struct process *process, char *line, size_t room);
void process_signal(struct process *process, int number);
/* Waits for the end of the child and kills it after one minute. Returns the exit status, or
 * -signal. */
int process_wait(struct process *process);
/* Returns a process that this one has started and that is still there. 0: there is none, or the
 * kernel does not list children. */
pid_t process_find_child(void);

#endif
