#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "clients/cli/doctor/doctor_checks.h"
#include "daemon/base/memory.h"

#define MIB UINT64_C(1048576)

enum {
    DEFAULT_MIB = 2304, /* store, rings and reserve of a configuration without the key memory */
    NEEDED_MIB = DOCTOR_STORE_MIB + DOCTOR_RINGS_MIB + DOCTOR_RESERVE_MIB,
    /* that a daemon needs with limits.sessions 16, and with its default of 256
     * (trajd_connections_descriptors) */
    FEW_DESCRIPTORS = 208,
    DESCRIPTORS = 1408,
};

/* Returns the number of processors whose time the control group allows (cpu.max of version 2, as a
 * container sees it). 0: there is no limit. */
static double processor_limit(void)
{
    unsigned long long quota_us, period_us;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    const bool is_limited =
        file && fscanf(file, "%llu %llu", &quota_us, &period_us) == 2 && period_us > 0;

    if (file)
        fclose(file);
    return is_limited ? (double)quota_us / (double)period_us : 0;
}

static void check_processors(struct doctor_report *report)
{
    const double limit = processor_limit();
    struct utsname system;
    cpu_set_t set;
    const int count = sched_getaffinity(0, sizeof set, &set) ? 0 : CPU_COUNT(&set);

    uname(&system);
    doctor_add(report, DOCTOR_OK, "machine", "%s %s, glibc %s", system.sysname, system.release,
               gnu_get_libc_version());
    if (limit > 0 && limit < count)
        doctor_add(
            report, DOCTOR_SLOW, "processors",
            "the control group allows the time of %.1f of %d processors (cpu.max): the daemon "
            "starts a thread for each of the %d, and they stop when the time is used up. Set "
            "threads.resample to %.0f, or raise the limit.",
            limit, count, count, limit < 1 ? 1 : limit);
    else if (count == 1)
        doctor_add(report, DOCTOR_SLOW, "processors",
                   "this process may use 1 processor: the daemon and the training take turns");
    else
        doctor_add(report, DOCTOR_OK, "processors", "%d", count);
}

static uint64_t address_space_bytes(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX
                                                                           : limit.rlim_cur;
}

static void check_memory(struct doctor_report *report)
{
    const uint64_t space = address_space_bytes();
    struct trajd_memory memory;
    uint64_t available;
    const char *source = "free on this machine";

    trajd_memory_read(&memory);
    available = trajd_memory_available(&memory);
    if (memory.cgroup_bytes < memory.machine_bytes)
        source = "left in the control group of this process (its memory limit)";
    if (space < available) {
        available = space;
        source = "allowed by the limit of the address space (ulimit -v)";
    }
    if (available < NEEDED_MIB * MIB)
        doctor_add(report, DOCTOR_FAIL, "memory",
                   "%llu MiB are %s. The smallest daemon needs %d MiB. Give it more memory, or end "
                   "other programs.",
                   (unsigned long long)(available / MIB), source, NEEDED_MIB);
    else if (available < DEFAULT_MIB * MIB)
        doctor_add(report, DOCTOR_SLOW, "memory",
                   "%llu MiB are %s, less than the defaults of memory.store, rings and reserve (%d "
                   "MiB). Datasets that do not fit into memory.store are read again in each epoch.",
                   (unsigned long long)(available / MIB), source, DEFAULT_MIB);
    else
        doctor_add(report, DOCTOR_OK, "memory", "%.1f GiB are %s",
                   (double)available / (double)(MIB << 10), source);
}

static void check_descriptors(struct doctor_report *report)
{
    struct rlimit limit = {0, 0};

    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    /* the daemon raises the soft limit to the hard one */
    doctor_add(
        report,
        limit.rlim_max < FEW_DESCRIPTORS ? DOCTOR_FAIL
        : limit.rlim_max < DESCRIPTORS   ? DOCTOR_SLOW
                                         : DOCTOR_OK,
        "limits", "%llu open files (ulimit -Hn)%s", (unsigned long long)limit.rlim_max,
        limit.rlim_max >= DESCRIPTORS
            ? ""
            : ". A daemon for 256 workers needs 1408: lower limits.sessions, or raise the limit.");
}

/* Batches lie in sealed memory files, which workers map. */
static void check_shared_memory(struct doctor_report *report)
{
    const int fd = memfd_create("trajd-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const bool works =
        fd >= 0 && !ftruncate(fd, 4096) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);

    if (works)
        doctor_add(report, DOCTOR_OK, "ipc", "sealed memory files (memfd_create) work");
    else
        doctor_add(
            report, DOCTOR_FAIL, "ipc",
            "sealed memory files (memfd_create) do not work: %s. Workers cannot share batches. "
            "A container's seccomp profile may forbid it.",
            strerror(errno));
    if (fd >= 0)
        close(fd);
}

void doctor_check_machine(struct doctor_report *report)
{
    check_processors(report);
    check_memory(report);
    check_descriptors(report);
    check_shared_memory(report);
}
