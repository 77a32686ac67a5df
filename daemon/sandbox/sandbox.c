/* Sets resource limits, and installs a seccomp filter of system calls. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/sandbox/sandbox.h"
#include "proto/array_len.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
/* a sanitizer's shadow memory takes terabytes, and its reports need more system calls */
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif
#else
static const bool sanitized = false;
#endif

static const rlim_t memory_bytes_max = (rlim_t)2 << 30;
/* Over all files of a child; the parent limits the time of each file. */
static const rlim_t cpu_seconds_max = 3600;
/* SIGXCPU comes before SIGKILL, so that the parent knows the cause */
static const rlim_t cpu_seconds_grace = 5;

static bool set_limits(int resource, rlim_t soft, rlim_t hard)
{
    struct rlimit limit = {soft, hard}, now;

    if (!getrlimit((__rlimit_resource_t)resource, &now) && now.rlim_max < hard)
        limit = (struct rlimit){now.rlim_max < soft ? now.rlim_max : soft, now.rlim_max};
    return !setrlimit((__rlimit_resource_t)resource, &limit);
}

static bool set_limit(int resource, rlim_t value)
{
    return set_limits(resource, value, value);
}

static void close_others(void)
{
#ifdef SYS_close_range
    if (!syscall(SYS_close_range, TRAJD_SANDBOX_SOCKET + 1, ~0u, 0))
        return;
#endif
    for (int fd = TRAJD_SANDBOX_SOCKET + 1; fd < 1024; fd++)
        close(fd);
}

/* Makes the kernel kill the child before its parent if out of memory. The parent holds the
 * rows and rings of all workers, and it starts a child again. */
static void go_first(void)
{
    static const char score[] = "800";
    const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    (void)!write(fd, score, sizeof score - 1); /* refused where the score is higher already */
    close(fd);
}

/* The parent may end before prctl: then this process has another parent. */
bool trajd_sandbox_end_with_parent(void)
{
    struct ucred maker = {0};
    socklen_t size = sizeof maker;

    return !prctl(PR_SET_PDEATHSIG, SIGKILL) &&
           !getsockopt(TRAJD_SANDBOX_SOCKET, SOL_SOCKET, SO_PEERCRED, &maker, &size) &&
           maker.pid == getppid();
}

bool trajd_sandbox_limit(bool writes)
{
    close_others();
    go_first();
    return set_limit(RLIMIT_CORE, 0) && (writes || set_limit(RLIMIT_FSIZE, 0)) &&
           set_limit(RLIMIT_NOFILE, 32) && (sanitized || set_limit(RLIMIT_AS, memory_bytes_max));
}

bool trajd_sandbox_limit_time(void)
{
    return set_limits(RLIMIT_CPU, cpu_seconds_max, cpu_seconds_max + cpu_seconds_grace);
}

#if defined(__x86_64__)
static const uint32_t architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
static const uint32_t architecture = AUDIT_ARCH_AARCH64;
#else
static const uint32_t architecture = 0;
#endif

/* The system calls that libhdf5, malloc and stdio need once they have started. All others fail with
 * EPERM: no file can be opened, because libhdf5 reads through a descriptor (descriptor_file.h). */
static const int allowed_calls[] = {
    SYS_read,          SYS_pread64,      SYS_write,           SYS_close,  SYS_fstat,
    SYS_lseek,         SYS_recvmsg,      SYS_recvfrom,        SYS_sendto, SYS_munmap,
    SYS_mremap,        SYS_brk,          SYS_madvise,         SYS_futex,  SYS_exit,
    SYS_exit_group,    SYS_rt_sigreturn, SYS_rt_sigprocmask,  SYS_getpid, SYS_gettid,
    SYS_clock_gettime, SYS_getrandom,    SYS_restart_syscall,
#ifdef SYS_gettimeofday
    SYS_gettimeofday,
#endif
};

/* Further system calls for a child that writes a file. */
static const int writing_calls[] = {SYS_pwrite64, SYS_ftruncate};

enum {
    FILTER_SIZE = 40 + 2 * (sizeof allowed_calls + sizeof writing_calls) / sizeof *allowed_calls
};

static void add(struct sock_filter *filter, unsigned short *n, struct sock_filter step)
{
    filter[(*n)++] = step;
}

static void add_calls(struct sock_filter *filter, unsigned short *n, const int *calls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        add(filter, n,
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i], 0, 1));
        add(filter, n, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
}

/* Loads an argument of the system call. Only its low word: the arguments that are compared are
 * ints. */
static struct sock_filter load_argument(int argument)
{
    return (struct sock_filter)BPF_STMT(
        BPF_LD | BPF_W | BPF_ABS,
        (uint32_t)(offsetof(struct seccomp_data, args) + sizeof(uint64_t) * (size_t)argument));
}

/* Allows `call` where its first argument has this value. */
static void add_own(struct sock_filter *filter, unsigned short *n, int call, uint32_t value)
{
    add(filter, n, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 4));
    add(filter, n, load_argument(0));
    add(filter, n, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0));
    add(filter, n, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
    add(filter, n, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

/* Allows `call` where none of `bits` is set in its argument. */
static void add_masked(struct sock_filter *filter, unsigned short *n, int call, int argument,
                       uint32_t bits)
{
    add(filter, n, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 4));
    add(filter, n, load_argument(argument));
    add(filter, n, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1));
    add(filter, n, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
    add(filter, n, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

bool trajd_sandbox_filter(bool writes)
{
    struct sock_filter filter[FILTER_SIZE];
    struct sock_fprog program = {.filter = filter};

    if (sanitized || !architecture)
        return true;
    add(filter, &program.len,
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                     offsetof(struct seccomp_data, arch)));
    add(filter, &program.len,
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, architecture, 1, 0));
    add(filter, &program.len,
        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    add(filter, &program.len,
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    add_calls(filter, &program.len, allowed_calls, ARRAY_LEN(allowed_calls));
    if (writes)
        add_calls(filter, &program.len, writing_calls, ARRAY_LEN(writing_calls));
    add_masked(filter, &program.len, SYS_mmap, 2, PROT_EXEC);
    add_masked(filter, &program.len, SYS_mprotect, 2, PROT_EXEC);
    add_own(filter, &program.len, SYS_tgkill, (uint32_t)getpid()); /* for abort() */
    add(filter, &program.len,
        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return false;
    /* A kernel without filters returns EINVAL. A child in a container that has confined it already
     * may have to run without. */
    return !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) || errno == EINVAL;
}

int trajd_sandbox_fstat(int fd, struct stat *status)
{
    return (int)syscall(SYS_fstat, fd, status);
}
