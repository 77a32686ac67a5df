/* For LD_PRELOAD: memory that runs out, a wall clock that jumps, and a state folder on a bad disk.
 * The page in the file TRAJD_TEST_FAULTS controls them while the program runs (struct page;
 * tests/support/faults.py).
 *
 * Memory: an allocation counts where trajd's own code asks for it, directly or through libc,
 * libyaml, libdeflate, libjpeg, libpng and zlib. So the call stack is followed to the first address
 * that is in trajd's program or libtrajd, or in another library. What libzmq, libstdc++ or libhdf5
 * ask for never fails: libzmq aborts by design where it gets no memory. The program
 * TRAJD_TEST_PROGRAM counts, no other one. In a program that contains libhdf5, TRAJD_TEST_OWN is
 * the part BEGIN-END that is trajd's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <link.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

#define PRELOADED __attribute__((visibility("default")))
#define RANGES_MAX 32
#define CALLS_MAX 8192

/* A counted allocation: its place as addr2line wants it, and a hash of trajd's functions that led
 * to it. */
struct call {
    uint64_t place, stack;
};

/* All numbers are native. 0 everywhere: nothing fails. */
struct page {
    uint64_t allocations;            /* that counted so far */
    uint64_t fail_begin, fail_count; /* these allocations fail; the first one is 1 */
    uint64_t failed, failed_place;   /* how many did, and where the last of them is */
    uint64_t fail_stack;  /* the first fail_count allocations of these callers fail instead */
    int64_t wall_shift_s; /* added to the wall clock */
    uint64_t disk_error;  /* an errno */
    uint64_t disk_calls;  /* calls that fail, bits of enum disk_call */
    uint64_t disk_failed; /* how many calls failed */
    struct call calls[CALLS_MAX];
};

enum disk_call { OPEN = 1, WRITE = 2, SYNC = 4, RENAME = 8, ALLOCATE = 16, READ = 32 };

/* Addresses of trajd's own code, and of the libraries through which its calls are followed. */
struct range {
    uintptr_t base, begin, end;
    bool is_own;
};

static struct page no_faults, *page = &no_faults;
static struct range ranges[RANGES_MAX];
static int range_count;
static bool counts;
static char folder[PATH_MAX];
static __thread bool is_inside __attribute__((tls_model("initial-exec")));

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

/* ---- memory ---- */

static const struct range *range_of(uintptr_t address)
{
    for (int i = 0; i < range_count; i++)
        if (address >= ranges[i].begin && address < ranges[i].end)
            return &ranges[i];
    return NULL;
}

/* Follows the call stack. Ends at once if the first address that is not of a followed library is
 * not trajd's. */
static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *data)
{
    struct call *call = data;
    const uintptr_t address = _Unwind_GetIP(context);
    const struct range *range = range_of(address);

    if (!range)
        return _URC_END_OF_STACK;
    if (range->is_own && !call->place)
        call->place = address - range->base;
    if (range->is_own)
        call->stack = (call->stack + address - range->base) * UINT64_C(0x9e3779b97f4a7c15);
    return _URC_NO_REASON;
}

/* Returns true if this allocation fails. `caller` is the address that it returns to. */
static bool allocation_fails(const void *caller)
{
    struct call call = {0};
    uint64_t number;

    if (!counts || is_inside || !range_of((uintptr_t)caller))
        return false;
    is_inside = true;
    _Unwind_Backtrace(visit, &call);
    is_inside = false;
    if (!call.place)
        return false;
    number = __atomic_add_fetch(&page->allocations, 1, __ATOMIC_RELAXED);
    if (number < CALLS_MAX)
        page->calls[number] = call;
    if (page->fail_stack
            ? call.stack != page->fail_stack || page->failed >= page->fail_count
            : number < page->fail_begin || number - page->fail_begin >= page->fail_count)
        return false;
    __atomic_add_fetch(&page->failed, 1, __ATOMIC_RELAXED);
    page->failed_place = call.place;
    errno = ENOMEM;
    return true;
}

#define FAILS() allocation_fails(__builtin_return_address(0))

PRELOADED void *malloc(size_t size)
{
    return FAILS() ? NULL : __libc_malloc(size);
}

PRELOADED void *calloc(size_t count, size_t size)
{
    return FAILS() ? NULL : __libc_calloc(count, size);
}

PRELOADED void *realloc(void *block, size_t size)
{
    return FAILS() ? NULL : __libc_realloc(block, size);
}

PRELOADED void *aligned_alloc(size_t alignment, size_t size)
{
    return FAILS() ? NULL : __libc_memalign(alignment, size);
}

PRELOADED int posix_memalign(void **block, size_t alignment, size_t size)
{
    void *made = FAILS() ? NULL : __libc_memalign(alignment, size);

    if (made)
        *block = made;
    return made ? 0 : ENOMEM;
}

PRELOADED void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    const struct range *caller = range_of((uintptr_t)__builtin_return_address(0));

    if (caller && caller->is_own && FAILS())
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}

PRELOADED int memfd_create(const char *name, unsigned flags)
{
    return FAILS() ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

/* trajd starts its helper with an environment of its own. The helper gets this library too. */
PRELOADED int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                          const posix_spawnattr_t *attributes, char *const arguments[],
                          char *const environment[])
{
    static const char *const names[] = {"LD_PRELOAD", "TRAJD_TEST_FAULTS", "TRAJD_TEST_PROGRAM",
                                        "TRAJD_TEST_FOLDER", "TRAJD_TEST_OWN"};
    int (*next)(pid_t *, const char *, const posix_spawn_file_actions_t *,
                const posix_spawnattr_t *, char *const[], char *const[]);
    void *symbol = dlsym(RTLD_NEXT, "posix_spawn");
    char texts[5][PATH_MAX], *all[16];
    int count = 0;

    while (environment[count] && count < 11) {
        all[count] = environment[count];
        count++;
    }
    for (int i = 0; i < 5; i++)
        if (getenv(names[i])) {
            snprintf(texts[i], sizeof texts[i], "%s=%s", names[i], getenv(names[i]));
            all[count++] = texts[i];
        }
    all[count] = NULL;
    memcpy(&next, &symbol, sizeof next);
    return next(pid, path, actions, attributes, arguments, all);
}

/* ---- the wall clock ---- */

PRELOADED int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int result = (int)syscall(SYS_clock_gettime, clock, now);

    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        now->tv_sec += page->wall_shift_s;
    return result;
}

PRELOADED time_t time(time_t *now)
{
    struct timespec wall;

    clock_gettime(CLOCK_REALTIME, &wall);
    if (now)
        *now = wall.tv_sec;
    return wall.tv_sec;
}

PRELOADED int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    const int result = (int)syscall(SYS_gettimeofday, now, zone);

    now->tv_sec += page->wall_shift_s;
    return result;
}

/* ---- the disk ---- */

static bool disk_fails(enum disk_call call, const char *path)
{
    if (!page->disk_error || !(page->disk_calls & call) || !folder[0] ||
        strncmp(path, folder, strlen(folder)) != 0)
        return false;
    __atomic_add_fetch(&page->disk_failed, 1, __ATOMIC_RELAXED);
    errno = (int)page->disk_error;
    return true;
}

static bool descriptor_fails(enum disk_call call, int fd, const char *name)
{
    char link[64], path[2 * PATH_MAX];
    ssize_t length;

    if (!page->disk_error)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return false;
    snprintf(path + length, PATH_MAX, "/%s", name);
    return disk_fails(call, path);
}

static mode_t mode_of(int flags, va_list arguments)
{
    return flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
}

PRELOADED int open(const char *path, int flags, ...)
{
    va_list arguments;
    mode_t mode;

    va_start(arguments, flags);
    mode = mode_of(flags, arguments);
    va_end(arguments);
    if ((flags & O_ACCMODE) != O_RDONLY && disk_fails(OPEN, path))
        return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

PRELOADED int openat(int at, const char *path, int flags, ...)
{
    va_list arguments;
    mode_t mode;

    va_start(arguments, flags);
    mode = mode_of(flags, arguments);
    va_end(arguments);
    if ((flags & O_ACCMODE) != O_RDONLY && descriptor_fails(OPEN, at, path))
        return -1;
    return (int)syscall(SYS_openat, at, path, flags, mode);
}

PRELOADED int mkostemp(char *path, int flags)
{
    int (*next)(char *, int);
    void *symbol = dlsym(RTLD_NEXT, "mkostemp");

    memcpy(&next, &symbol, sizeof next);
    return disk_fails(OPEN, path) ? -1 : next(path, flags);
}

PRELOADED ssize_t read(int fd, void *data, size_t size)
{
    return descriptor_fails(READ, fd, "") ? -1 : syscall(SYS_read, fd, data, size);
}

PRELOADED ssize_t write(int fd, const void *data, size_t size)
{
    return descriptor_fails(WRITE, fd, "") ? -1 : syscall(SYS_write, fd, data, size);
}

PRELOADED ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    return descriptor_fails(WRITE, fd, "") ? -1 : syscall(SYS_pwrite64, fd, data, size, at);
}

PRELOADED int fsync(int fd)
{
    return descriptor_fails(SYNC, fd, "") ? -1 : (int)syscall(SYS_fsync, fd);
}

PRELOADED int sync_file_range(int fd, off64_t at, off64_t size, unsigned flags)
{
    return descriptor_fails(SYNC, fd, "") ? -1
                                          : (int)syscall(SYS_sync_file_range, fd, at, size, flags);
}

PRELOADED int rename(const char *from, const char *to)
{
    return disk_fails(RENAME, to) ? -1
                                  : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

PRELOADED int ftruncate(int fd, off_t size)
{
    return descriptor_fails(ALLOCATE, fd, "") ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

PRELOADED int posix_fallocate(int fd, off_t at, off_t size)
{
    if (descriptor_fails(ALLOCATE, fd, ""))
        return errno;
    return syscall(SYS_fallocate, fd, 0, at, size) ? errno : 0;
}

/* ---- begin ---- */

static int add_range(struct dl_phdr_info *info, size_t size, void *data)
{
    static const char *const followed[] = {"/libc.so", "/ld-linux", "/libyaml", "/libdeflate",
                                           "/libjpeg", "/libpng",   "/libz.so", "/libfaults"};
    bool is_own = !info->dlpi_name[0] || strstr(info->dlpi_name, "/libtrajd.so");
    bool is_followed = is_own;

    (void)size;
    (void)data;
    for (size_t i = 0; i < sizeof followed / sizeof followed[0]; i++)
        is_followed |= strstr(info->dlpi_name, followed[i]) != NULL;
    for (int i = 0; is_followed && i < info->dlpi_phnum && range_count < RANGES_MAX; i++) {
        const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X)
            ranges[range_count++] =
                (struct range){info->dlpi_addr, begin, begin + info->dlpi_phdr[i].p_memsz, is_own};
    }
    return 0;
}

/* Leaves of the program's range the two parts "BEGIN-END,BEGIN-END": libhdf5 and the CUDA runtime
 * lie between trajd's own code and behind it. */
static void limit_own_range(const char *text)
{
    uintptr_t begin[2], end[2];
    int program = 0;

    if (!text || sscanf(text, "%" SCNxPTR "-%" SCNxPTR ",%" SCNxPTR "-%" SCNxPTR, &begin[0],
                        &end[0], &begin[1], &end[1]) != 4)
        return;
    while (program < range_count && !ranges[program].is_own)
        program++;
    if (program == range_count || range_count == RANGES_MAX)
        return;
    ranges[range_count] = ranges[program];
    for (int i = 0; i < 2; i++) {
        struct range *part = &ranges[i ? range_count : program];
        part->begin = part->base + begin[i];
        part->end = part->base + end[i];
    }
    range_count++;
}

static _Unwind_Reason_Code ignore(struct _Unwind_Context *context, void *data)
{
    (void)context;
    (void)data;
    return _URC_END_OF_STACK;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("TRAJD_TEST_FAULTS"), *program = getenv("TRAJD_TEST_PROGRAM");
    const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *mapped;

    if (fd < 0)
        return;
    mapped =
        (void *)syscall(SYS_mmap, NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED)
        return;
    dl_iterate_phdr(add_range, NULL);
    _Unwind_Backtrace(ignore, NULL); /* the first walk loads tables */
    snprintf(folder, sizeof folder, "%s",
             getenv("TRAJD_TEST_FOLDER") ? getenv("TRAJD_TEST_FOLDER") : "");
    page = mapped;
    counts = program && strcmp(program, program_invocation_short_name) == 0;
    limit_own_range(counts ? getenv("TRAJD_TEST_OWN") : NULL);
}
