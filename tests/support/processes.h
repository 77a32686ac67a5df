/* Child processes of a test: started with arguments, read line by line, killed. Everything waits
 * for conditions, with a limit. */
#ifndef TRAJD_TESTS_PROCESSES_H
#define TRAJD_TESTS_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

struct process {
    pid_t pid;
    int input; /* its standard input: it sees the end when the test dies */
    FILE *output;
};

/* `arguments` in one text, separated by blanks; argv[1] is `directory`. The program is in the build
 * folder. */
struct process process_start(const char *program, const char *directory, const char *arguments);
/* The next line without its end; false at the end of the output, or after a minute. */
bool process_read(struct process *process, char *line, size_t room);
void process_signal(struct process *process, int number);
/* Waits for its end (killing it after a minute); the exit status, or -signal. */
int process_wait(struct process *process);

#endif
