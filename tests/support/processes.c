/* Starts child processes of a test, reads their lines and kills them. */
#include "tests/support/processes.h"

#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS 60000

static void run(const char *program, const char *directory, const char *arguments)
{
    char path[512], text[512], *argv[32] = {path, (char *)directory}, *rest = text;
    int count = 2;
    snprintf(path, sizeof path, "%s/tests/support/%s", TRAJD_BINARY_DIR, program);
    snprintf(text, sizeof text, "%s", arguments);
    for (char *word; count < 31 && (word = strsep(&rest, " ")) != NULL;)
        if (word[0] != '\0')
            argv[count++] = word;
    execv(path, argv);
    _exit(127);
}

struct process process_start(const char *program, const char *directory, const char *arguments)
{
    int input[2], output[2];
    if (pipe(input) != 0 || pipe(output) != 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(input[0], 0);
        dup2(output[1], 1);
        for (int fd = 3; fd < 256; fd++)
            close(fd);
        run(program, directory, arguments);
    }
    close(input[0]);
    close(output[1]);
    return (struct process){.pid = pid, .input = input[1], .output = fdopen(output[0], "r")};
}

bool process_read(struct process *process, char *line, size_t room)
{
    size_t length = 0;
    while (length < room - 1) { /* byte by byte: poll does not see a FILE's buffer */
        struct pollfd item = {.fd = fileno(process->output), .events = POLLIN};
        if (poll(&item, 1, PATIENCE_MS) <= 0 || read(item.fd, line + length, 1) <= 0)
            return false;
        if (line[length] == '\n')
            break;
        length++;
    }
    line[length] = '\0';
    return true;
}

void process_signal(struct process *process, int number)
{
    if (process->pid > 0)
        kill(process->pid, number);
}

int process_wait(struct process *process)
{
    int status;
    int handle = (int)syscall(SYS_pidfd_open, process->pid, 0);
    struct pollfd item = {.fd = handle, .events = POLLIN};
    if (poll(&item, 1, PATIENCE_MS) <= 0)
        kill(process->pid, SIGKILL);
    waitpid(process->pid, &status, 0);
    close(handle);
    close(process->input);
    fclose(process->output);
    process->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

pid_t process_find_child(void)
{
    pid_t child = 0;
    glob_t lists;

    if (glob("/proc/self/task/*/children", 0, NULL, &lists))
        return 0;
    for (size_t i = 0; i < lists.gl_pathc && !child; i++) {
        FILE *file = fopen(lists.gl_pathv[i], "r");
        if (!file || fscanf(file, "%d", &child) != 1)
            child = 0;
        if (file)
            fclose(file);
    }
    globfree(&lists);
    return child;
}
