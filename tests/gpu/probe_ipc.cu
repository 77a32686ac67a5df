/* Measures how CUDA IPC and events behave with a second process on this machine, before code
 * depends on them. Prints one line of `name: value` per answer, for daemon/producer/README.md. Not
 * a test: it does not check the answers.
 *
 *   probe_ipc                    all questions but the last
 *   probe_ipc load RATE SECONDS  small launches at that rate (0: an idle context), as a load beside
 *                                other work
 *
 * Some questions need processes that die, so the program starts itself again: `export` holds a slab
 * and writes its handle to stdout; `import` reads a handle from stdin and reports what happens. */
#include <cuda_runtime.h>

#include <signal.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLAB_BYTES ((size_t)256 << 20)
#define WORDS (SLAB_BYTES / sizeof(uint64_t))
#define ROUNDS 20000

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static void need(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return;
    printf("%s: %s\n", what, cudaGetErrorName(code));
    fflush(stdout);
    _exit(1);
}

static __host__ __device__ uint64_t word_at(uint64_t seed, uint64_t i)
{
    return (seed + i) * UINT64_C(0x9e3779b97f4a7c15);
}

__global__ void fill(uint64_t *slab, uint64_t count, uint64_t seed)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x)
        slab[i] = word_at(seed, i);
}

/* Reads the slab again and again for a time. Counts the rounds, and the words that differ from the
 * written ones. */
__global__ void watch(const volatile uint64_t *slab, uint64_t count, uint64_t seed,
                      uint64_t nanoseconds, unsigned long long *rounds, unsigned long long *wrong)
{
    uint64_t begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
             i += (uint64_t)gridDim.x * blockDim.x)
            if (slab[i] != word_at(seed, i))
                atomicAdd(wrong, 1ull);
        if (blockIdx.x == 0 && threadIdx.x == 0)
            *rounds += 1;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}

__global__ void nothing(void)
{
}

/* ---- the two ends ---- */

static int run_export(int seed)
{
    uint64_t *slab;
    cudaIpcMemHandle_t handle;
    char word;

    need(cudaMalloc((void **)&slab, SLAB_BYTES), "export: cudaMalloc");
    fill<<<256, 256>>>(slab, WORDS, seed);
    need(cudaDeviceSynchronize(), "export: fill");
    need(cudaIpcGetMemHandle(&handle, slab), "export: cudaIpcGetMemHandle");
    if (write(1, &handle, sizeof handle) != (ssize_t)sizeof handle)
        return 1;
    while (read(0, &word, 1) == 1)
        if (word == 'f') { /* freed, and the memory is used for something else */
            uint64_t *other[8];
            cudaFree(slab);
            for (int i = 0; i < 8; i++) {
                need(cudaMalloc((void **)&other[i], SLAB_BYTES), "export: again");
                fill<<<256, 256>>>(other[i], WORDS, 4711 + i);
            }
            need(cudaDeviceSynchronize(), "export: fill again");
            if (write(1, "f", 1) != 1)
                return 1;
        }
    return 0;
}

struct end {
    pid_t pid;
    int to, from;
};

/* `flags`: namespaces to leave. `uid`: user to become, or 0. */
static struct end start(const char *role, const char *argument, int flags, uid_t uid)
{
    int to[2], from[2];
    struct end end;

    if (pipe(to) || pipe(from))
        exit(1);
    fflush(stdout);
    end.pid = fork();
    if (end.pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[0]), close(to[1]), close(from[0]), close(from[1]);
        if (flags && unshare(flags) != 0) {
            printf("cannot unshare\n");
            fflush(stdout);
            _exit(0);
        }
        if (flags & CLONE_NEWPID) {
            pid_t inner = fork();
            if (inner != 0) {
                int state;
                waitpid(inner, &state, 0);
                _exit(0);
            }
            if (flags & CLONE_NEWNS && (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
                                        mount("proc", "/proc", "proc", 0, NULL))) {
                printf("cannot mount /proc\n");
                fflush(stdout);
                _exit(0);
            }
        }
        if (uid && (setgid(uid) || setuid(uid))) {
            printf("cannot become %u\n", uid);
            fflush(stdout);
            _exit(0);
        }
        execl("/proc/self/exe", "probe_ipc", role, argument, (char *)NULL);
        _exit(127);
    }
    close(to[0]), close(from[1]);
    end.to = to[1], end.from = from[0];
    return end;
}

static void end_it(struct end *end, int signal)
{
    int state;
    close(end->to);
    if (signal)
        kill(end->pid, signal);
    waitpid(end->pid, &state, 0);
    close(end->from);
}

static int take_handle(int fd, cudaIpcMemHandle_t *handle)
{
    size_t have = 0;
    while (have < sizeof *handle) {
        ssize_t got = read(fd, (char *)handle + have, sizeof *handle - have);
        if (got <= 0)
            return -1;
        have += (size_t)got;
    }
    return 0;
}

static void show_text(const char *name, int fd)
{
    char text[512];
    ssize_t have = 0, got;
    while (have < (ssize_t)sizeof text - 1 &&
           (got = read(fd, text + have, sizeof text - 1 - have)) > 0)
        have += got;
    text[have] = 0;
    if (have && text[have - 1] == '\n')
        text[have - 1] = 0;
    printf("%s: %s\n", name, have ? text : "(no answer)");
}

static unsigned long long *results; /* rounds and wrong words, in pinned memory */

static cudaError_t look(const char *name, const uint64_t *slab, uint64_t seed, uint64_t nanoseconds)
{
    results[0] = results[1] = 0;
    watch<<<128, 256>>>(slab, WORDS, seed, nanoseconds, &results[0], &results[1]);
    cudaError_t code = cudaDeviceSynchronize();
    printf("%s: %s, %llu rounds, %llu wrong words\n", name, cudaGetErrorName(code), results[0],
           results[1]);
    return code;
}

/* Writes the GPU's clock into a word for the given time. */
__global__ void tick(volatile uint64_t *word, uint64_t nanoseconds)
{
    uint64_t begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        *word = now;
    } while (now - begin < nanoseconds);
}

/* ---- import: opens, reads, closes ---- */

static int run_import(void)
{
    cudaIpcMemHandle_t handle;
    uint64_t *slab, first = 0;

    if (take_handle(0, &handle))
        return 1;
    double begin = now_us();
    cudaError_t code = cudaFree(NULL);
    if (code != cudaSuccess) {
        printf("no context: %s\n", cudaGetErrorName(code));
        return 0;
    }
    double context = now_us();
    code = cudaIpcOpenMemHandle((void **)&slab, handle, cudaIpcMemLazyEnablePeerAccess);
    double opened = now_us();
    if (code == cudaSuccess)
        code = cudaMemcpy(&first, slab + 1, sizeof first, cudaMemcpyDeviceToHost);
    printf("%s, word %s, uid %u, pid %d; context %.0f ms, open %.0f us\n", cudaGetErrorName(code),
           code == cudaSuccess && first == word_at(1, 1) ? "right" : "not read", getuid(),
           (int)getpid(), (context - begin) / 1e3, opened - context);
    return 0;
}

/* Opens the slab and writes for seconds, until it is killed. */
static int run_write(void)
{
    cudaIpcMemHandle_t handle;
    uint64_t *slab;

    if (take_handle(0, &handle))
        return 1;
    need(cudaIpcOpenMemHandle((void **)&slab, handle, cudaIpcMemLazyEnablePeerAccess),
         "write: open");
    tick<<<1, 1>>>(slab, 5000000000ull);
    printf("w");
    fflush(stdout);
    cudaDeviceSynchronize();
    return 0;
}

/* Measures how long the queued work of a dead worker still writes, after its connection shows that
 * it died. */
static void ask_writer(void)
{
    struct end writer;
    cudaIpcMemHandle_t handle;
    uint64_t *slab, before, last, word;
    char byte;

    need(cudaMalloc((void **)&slab, SLAB_BYTES), "writer: cudaMalloc");
    need(cudaMemset(slab, 0, 64), "writer: memset");
    need(cudaIpcGetMemHandle(&handle, slab), "writer: handle");
    writer = start("write", "1", 0, 0);
    if (write(writer.to, &handle, sizeof handle) != (ssize_t)sizeof handle ||
        read(writer.from, &byte, 1) != 1)
        return;
    usleep(300000);
    const double killed = now_us();
    kill(writer.pid, SIGKILL);
    while (read(writer.from, &byte, 1) > 0)
        ;
    const double closed = now_us();
    need(cudaMemcpy(&before, slab, sizeof before, cudaMemcpyDeviceToHost), "writer: read");
    for (last = before;; last = word) {
        usleep(2000);
        need(cudaMemcpy(&word, slab, sizeof word, cudaMemcpyDeviceToHost), "writer: read");
        if (word == last)
            break;
    }
    const double quiet = now_us();
    waitpid(writer.pid, NULL, 0);
    printf("a worker is killed while its kernel writes: its pipe ends %.1f ms after the kill, the "
           "kernel wrote for %.3f ms more, reaped after "
           "%.1f ms\n",
           (closed - killed) / 1e3, before ? (last - before) * 1e-6 : -1.0,
           (now_us() - killed) / 1e3);
    (void)quiet;
    cudaFree(slab);
}

static void ask_opening(const char *name, int flags, uid_t uid)
{
    struct end exporter = start("export", "1", 0, 0), importer;
    cudaIpcMemHandle_t handle;

    if (take_handle(exporter.from, &handle) == 0) {
        importer = start("import", "1", flags, uid);
        if (write(importer.to, &handle, sizeof handle) == (ssize_t)sizeof handle)
            show_text(name, importer.from);
        end_it(&importer, 0);
    }
    end_it(&exporter, SIGTERM);
}

/* ---- questions about death ---- */

static size_t free_bytes(void)
{
    size_t left = 0, total;
    cudaMemGetInfo(&left, &total);
    return left;
}

static void ask_death(void)
{
    struct end exporter = start("export", "2", 0, 0);
    cudaIpcMemHandle_t handle;
    uint64_t *slab, *again;

    if (take_handle(exporter.from, &handle))
        return;
    const size_t before = free_bytes();
    need(cudaIpcOpenMemHandle((void **)&slab, handle, cudaIpcMemLazyEnablePeerAccess),
         "death: open");
    look("a kernel reads while the exporter lives", slab, 2, 100000000);
    results[0] = results[1] = 0;
    watch<<<128, 256>>>(slab, WORDS, 2, 3000000000ull, &results[0], &results[1]);
    cudaError_t launched = cudaGetLastError();
    usleep(500000);
    double killed = now_us();
    end_it(&exporter, SIGKILL);
    double dead = now_us();
    cudaError_t code = cudaDeviceSynchronize();
    printf("a kernel reads while the exporter is killed: %s, %s, %llu rounds, %llu wrong words; it "
           "was reaped after %.0f ms, the kernel was "
           "over %.0f ms after the kill\n",
           cudaGetErrorName(launched), cudaGetErrorName(code), results[0], results[1],
           (dead - killed) / 1e3, (now_us() - killed) / 1e3);
    if (code != cudaSuccess)
        return;
    if (look("a kernel reads after the exporter's death", slab, 2, 100000000) != cudaSuccess)
        return;
    const size_t held = free_bytes();
    double begin = now_us();
    code = cudaIpcCloseMemHandle(slab);
    printf("closing the handle after the exporter's death: %s, %.0f us\n", cudaGetErrorName(code),
           now_us() - begin);
    usleep(200000);
    const size_t after = free_bytes();
    printf("free memory: %zu MiB with exporter, %zu after its death, %zu after closing\n",
           before >> 20, held >> 20, after >> 20);
    code = cudaIpcOpenMemHandle((void **)&again, handle, cudaIpcMemLazyEnablePeerAccess);
    printf("opening a handle after the exporter's death: %s\n", cudaGetErrorName(code));
    cudaGetLastError();
}

static void ask_freed(void)
{
    struct end exporter = start("export", "3", 0, 0);
    cudaIpcMemHandle_t handle;
    uint64_t *slab;
    char word = 'f';

    if (take_handle(exporter.from, &handle))
        return;
    need(cudaIpcOpenMemHandle((void **)&slab, handle, cudaIpcMemLazyEnablePeerAccess),
         "freed: open");
    if (write(exporter.to, &word, 1) != 1 || read(exporter.from, &word, 1) != 1)
        printf("freed: the exporter failed\n");
    else
        look("a kernel reads what the exporter has freed and used again", slab, 3, 100000000);
    end_it(&exporter, SIGTERM);
}

/* ---- questions about time ---- */

static void say_cost(const char *name, double begin)
{
    printf("%s: %.3f us\n", name, (now_us() - begin) / ROUNDS);
}

static void ask_costs(void)
{
    cudaEvent_t *events = (cudaEvent_t *)malloc(ROUNDS * sizeof *events), event;
    cudaStream_t stream;
    double begin;

    need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    need(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
    begin = now_us();
    for (int i = 0; i < ROUNDS; i++)
        cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming);
    say_cost("event create (no timing)", begin);
    begin = now_us();
    for (int i = 0; i < ROUNDS; i++)
        cudaEventRecord(events[i], stream);
    say_cost("event record on an idle stream", begin);
    cudaStreamSynchronize(stream);
    begin = now_us();
    for (int i = 0; i < ROUNDS; i++)
        cudaEventQuery(events[i]);
    say_cost("event query, over", begin);
    watch<<<1, 1, 0, stream>>>(NULL, 0, 0, 300000000, &results[0], &results[1]);
    cudaEventRecord(event, stream);
    begin = now_us();
    for (int i = 0; i < ROUNDS; i++)
        cudaEventQuery(event);
    say_cost("event query, not over", begin);
    cudaStreamSynchronize(stream);
    begin = now_us();
    for (int i = 0; i < ROUNDS; i++)
        cudaStreamWaitEvent(stream, events[i], 0);
    say_cost("stream wait event", begin);
    begin = now_us();
    for (int i = 0; i < ROUNDS; i++)
        nothing<<<1, 32, 0, stream>>>();
    cudaStreamSynchronize(stream);
    say_cost("launch of an empty kernel, back to back", begin);
    begin = now_us();
    for (int i = 0; i < 1000; i++) {
        nothing<<<1, 32, 0, stream>>>();
        cudaEventRecord(event, stream);
        while (cudaEventQuery(event) == cudaErrorNotReady)
            ;
    }
    printf("launch, event, polled until over: %.2f us\n", (now_us() - begin) / 1000);
}

static void ask_copies(void)
{
    const int fd = memfd_create("probe", 0);
    void *slab, *ring;
    cudaStream_t stream;
    double begin;

    if (fd < 0 || ftruncate(fd, SLAB_BYTES))
        return;
    ring = mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    need(cudaMalloc(&slab, SLAB_BYTES), "copies: cudaMalloc");
    need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    begin = now_us();
    cudaError_t code = cudaHostRegister(ring, SLAB_BYTES, cudaHostRegisterPortable);
    printf("cudaHostRegister of 256 MiB of a memfd: %s, %.1f ms\n", cudaGetErrorName(code),
           (now_us() - begin) / 1e3);
    for (int direction = 0; direction < 2; direction++) {
        begin = now_us();
        for (int i = 0; i < 8; i++)
            cudaMemcpyAsync(direction ? ring : slab, direction ? slab : ring, SLAB_BYTES,
                            cudaMemcpyDefault, stream);
        cudaStreamSynchronize(stream);
        printf("%s the registered memfd: %.1f GB/s\n",
               direction ? "device to host into" : "host to device from",
               8 * SLAB_BYTES / (now_us() - begin) / 1e3);
    }
    for (size_t size = 16 << 10; size <= (4 << 20); size *= 16) {
        begin = now_us();
        for (int i = 0; i < 2000; i++)
            cudaMemcpyAsync(ring, slab, size, cudaMemcpyDefault, stream);
        cudaStreamSynchronize(stream);
        printf("device to host, %zu KiB a copy: %.2f us\n", size >> 10, (now_us() - begin) / 2000);
    }
    cudaHostUnregister(ring);
    cudaFree(slab);
}

static void ask_context(void)
{
    size_t before = free_bytes();
    struct end idle = start("load", "0", 0, 0);
    char word;
    if (read(idle.from, &word, 1) == 1)
        printf("memory of a second process's context: %zu MiB\n", (before - free_bytes()) >> 20);
    end_it(&idle, SIGTERM);
}

static int run_load(double rate, double seconds)
{
    cudaStream_t stream;
    float *buffer;
    uint64_t count = 0;

    need(cudaMalloc((void **)&buffer, 1 << 20), "load: cudaMalloc");
    need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "load: stream");
    /* like a batch: some us on some of the multiprocessors */
    fill<<<64, 128, 0, stream>>>((uint64_t *)buffer, 1 << 17, 1);
    cudaStreamSynchronize(stream);
    printf("r");
    fflush(stdout);
    const double begin = now_us();
    while (now_us() - begin < seconds * 1e6) {
        if (rate == 0 || count > (now_us() - begin) * 1e-6 * rate) {
            usleep(20);
            continue;
        }
        fill<<<64, 128, 0, stream>>>((uint64_t *)buffer, 1 << 17, 1);
        count++;
        if (count % 4 == 0)
            cudaStreamSynchronize(stream);
    }
    fprintf(stderr, "load: asked for %.0f launches/s, made %.0f\n", rate, count / seconds);
    return 0;
}

int main(int argc, char **argv)
{
    struct cudaDeviceProp properties;
    int driver = 0;

    if (argc >= 3 && strcmp(argv[1], "export") == 0)
        return run_export(atoi(argv[2]));
    if (argc >= 2 && strcmp(argv[1], "import") == 0)
        return run_import();
    if (argc >= 2 && strcmp(argv[1], "write") == 0)
        return run_write();
    if (argc >= 3 && strcmp(argv[1], "load") == 0)
        return run_load(atof(argv[2]), argc > 3 ? atof(argv[3]) : 60);
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* before this process has a context, because fork makes the children */
    ask_opening("another process, same uid", 0, 0);
    ask_opening("another uid", 0, 65534);
    ask_opening("another PID namespace, /proc of its own", CLONE_NEWPID | CLONE_NEWNS, 0);
    ask_opening("another IPC namespace", CLONE_NEWIPC, 0);
    ask_opening("other PID, IPC, UTS, network and mount namespaces",
                CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWNS, 0);
    need(cudaGetDeviceProperties(&properties, 0), "device");
    cudaDriverGetVersion(&driver);
    printf("device: %s, driver %d\n", properties.name, driver);
    need(cudaHostAlloc((void **)&results, 64, cudaHostAllocMapped), "results");
    ask_context();
    ask_costs();
    ask_copies();
    ask_death();
    ask_freed();
    ask_writer();
    return 0;
}
