/* The findings of trajctl doctor, and the checks of programs, the GPU, the machine and the daemon. */
#include "clients/cli/doctor/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "clients/c/trajd.h"
#include "clients/cli/files/answer.h"
#include "daemon/base/memory.h"
#include "daemon/base/paths.h"
#include "proto/array_len.h"
#include "proto/plural.h"
#include "proto/wire.h"

#define MIB UINT64_C(1048576)

enum { TEXT_SIZE = 2048, TEXT_COLUMN = 20, COLUMNS = 100, VERSION_SIZE = 64, GPUS_MAX = 64 };
enum { CONNECT_TIMEOUT_MS = 3000 };

enum {
    DEFAULT_MIB = 2304, /* store, rings and reserve of a configuration without the key memory */
    NEEDED_MIB = DOCTOR_STORE_MIB + DOCTOR_RINGS_MIB + DOCTOR_RESERVE_MIB,
    /* that a daemon needs with limits.sessions 16, and with its default of 256
     * (trajd_connections_descriptors) */
    FEW_DESCRIPTORS = 208,
    DESCRIPTORS = 1408,
};

/* ---- findings ---- */

/* Prints a text from TEXT_COLUMN on, and breaks its lines between words. */
static void print_wrapped(const char *text)
{
    size_t column = TEXT_COLUMN;

    while (*text) {
        const size_t length = strcspn(text, " \n");
        if (column > TEXT_COLUMN && column + 1 + length > COLUMNS) {
            printf("\n%*s", TEXT_COLUMN, "");
            column = TEXT_COLUMN;
        }
        if (column > TEXT_COLUMN)
            column += (size_t)printf(" ");
        column += (size_t)printf("%.*s", (int)length, text);
        text += length;
        if (*text == '\n') {
            printf("\n%*s", TEXT_COLUMN, "");
            column = TEXT_COLUMN;
        }
        text += *text != '\0';
    }
    putchar('\n');
}

void doctor_add(struct doctor *doctor, enum doctor_level level, const char *topic,
                const char *format, ...)
{
    static const char *const level_names[DOCTOR_LEVELS] = {"ok", "slow", "fail"};
    char text[TEXT_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    doctor->counts[level]++;
    if (doctor->is_json) {
        trajd_json_open_object(&doctor->json, NULL);
        trajd_json_string(&doctor->json, "level", level_names[level]);
        trajd_json_string(&doctor->json, "topic", topic);
        trajd_json_string(&doctor->json, "text", text);
        trajd_json_close_object(&doctor->json);
    } else {
        printf("  %-5s %-11s ", level_names[level], topic);
        print_wrapped(text);
    }
    fflush(stdout);
}

/* ---- programs ---- */

static uint32_t count_layouts(const char *path)
{
    DIR *folder = opendir(path);
    uint32_t count = 0;

    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        count += strstr(entry->d_name, ".yaml") != NULL;
    if (folder)
        closedir(folder);
    return count;
}

/* Finds what the daemon needs beside itself. */
static bool find_parts(struct doctor *doctor, char *daemon, size_t size)
{
    char helper[DOCTOR_PATH_SIZE], decoder[DOCTOR_PATH_SIZE], layouts[DOCTOR_PATH_SIZE] = "";
    const struct {
        const char *name;
        bool is_there;
    } parts[] = {{"trajd", trajd_paths_daemon(daemon, size)},
                 {"trajd-indexer", trajd_paths_helper(helper, sizeof helper)},
                 {"trajd-decoder", trajd_paths_decoder(decoder, sizeof decoder)},
                 {"layouts", trajd_paths_layouts(layouts, sizeof layouts)}};
    bool has_all = true;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (!parts[i].is_there)
            doctor_add(doctor, DOCTOR_FAIL, "programs",
                       "%s: neither beside trajctl nor in its installation. Install trajd again.",
                       parts[i].name);
        has_all &= parts[i].is_there;
    }
    if (has_all)
        doctor_add(doctor, DOCTOR_OK, "programs", "%s, its two helpers, and %u layouts", daemon,
                   count_layouts(layouts));
    return has_all;
}

static void check_programs(struct doctor *doctor)
{
    char path[DOCTOR_PATH_SIZE], output[VERSION_SIZE] = "", version[VERSION_SIZE] = "";

    if (!find_parts(doctor, path, sizeof path))
        return;
    if (!doctor_read_output((const char *[]){path, "--version", NULL}, output, sizeof output) ||
        sscanf(output, "trajd %60s", version) != 1) {
        doctor_add(doctor, DOCTOR_FAIL, "version",
                   "%s --version prints no version: the program does not run here (%s)", path,
                   *output ? output : "no output");
    } else if (strcmp(version, TRAJD_VERSION)) {
        doctor_add(doctor, DOCTOR_FAIL, "version",
                   "trajd has version %s and trajctl %s: two installations are mixed. Remove one.",
                   version, TRAJD_VERSION);
    } else {
        doctor_add(doctor, DOCTOR_OK, "version", "trajd and trajctl %s, protocol %d.%d", version,
                   TRAJD_WIRE_MAJOR, TRAJD_WIRE_MINOR);
        strcpy(doctor->daemon, path);
    }
}

/* Names the codecs of video, and the package that one of them lacks. */
static void check_video(struct doctor *doctor)
{
    char decoder[DOCTOR_PATH_SIZE], output[2 * VERSION_SIZE] = "";

    if (!trajd_paths_decoder(decoder, sizeof decoder))
        return;
    if (doctor_read_output((const char *[]){decoder, "codecs", NULL}, output, sizeof output)) {
        output[strcspn(output, "\n")] = '\0';
        doctor_add(doctor, DOCTOR_OK, "video", "%s", output);
    } else {
        doctor_add(doctor, DOCTOR_FAIL, "video", "%s does not run here (%s)", decoder, output);
    }
}

/* ---- the GPU ---- */

/* Reads the version of the kernel's driver, such as "580.65.06". */
static bool read_driver(char *version, size_t size)
{
    FILE *file = fopen("/proc/driver/nvidia/version", "re");
    char line[512], *word, *next = line;
    bool is_found = false;

    if (!file)
        return false;
    if (fgets(line, sizeof line, file))
        while (!is_found && (word = strsep(&next, " \t\n")) != NULL)
            if (strspn(word, "0123456789.") == strlen(word) && strchr(word, '.')) {
                snprintf(version, size, "%s", word);
                is_found = true;
            }
    fclose(file);
    return is_found;
}

static int count_gpus(void)
{
    char uuid[DOCTOR_UUID_SIZE];
    int count = 0;

    while (count < GPUS_MAX && !trajd_gpu_uuid(count, uuid, NULL))
        count++;
    return count;
}

static void check_gpu(struct doctor *doctor)
{
    static const char without[] = "Processors make the batches; device=\"cuda\" is not possible.";
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    struct trajd_error error;
    char version[64] = "";
    const bool has_driver = read_driver(version, sizeof version);
    const enum trajd_status status = trajd_gpu_uuid(0, doctor->gpu, &error);

    if (has_driver)
        doctor_add(doctor, DOCTOR_OK, "driver", "NVIDIA %s", version);
    if (!status) {
        doctor_add(doctor, DOCTOR_OK, "gpu", "%d, the first is %s", count_gpus(), doctor->gpu);
        return;
    }
    *doctor->gpu = '\0';
    if (!has_driver && status == TRAJD_ERR_UNSUPPORTED)
        doctor_add(doctor, DOCTOR_SLOW, "gpu", "this machine has no NVIDIA driver (%s). %s",
                   error.message, without);
    else if (status == TRAJD_ERR_UNSUPPORTED)
        doctor_add(doctor, DOCTOR_SLOW, "gpu",
                   "the driver is loaded, but this process cannot use it: %s. In a container, pass "
                   "the GPU with the capability \"compute\". %s",
                   error.message, without);
    else
        doctor_add(doctor, DOCTOR_SLOW, "gpu", "%s (CUDA_VISIBLE_DEVICES is %s). %s", error.message,
                   visible ? visible : "not set", without);
}

/* ---- the machine ---- */

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

static void check_processors(struct doctor *doctor)
{
    const double limit = processor_limit();
    struct utsname system;
    cpu_set_t set;
    const int count = sched_getaffinity(0, sizeof set, &set) ? 0 : CPU_COUNT(&set);

    uname(&system);
    doctor_add(doctor, DOCTOR_OK, "machine", "%s %s, glibc %s", system.sysname, system.release,
               gnu_get_libc_version());
    if (limit > 0 && limit < count)
        doctor_add(
            doctor, DOCTOR_SLOW, "processors",
            "the control group allows the time of %.1f of %d processors (cpu.max): the daemon "
            "starts a thread for each of the %d, and they stop when the time is used up. Set "
            "threads.resample to %.0f, or raise the limit.",
            limit, count, count, limit < 1 ? 1 : limit);
    else if (count == 1)
        doctor_add(doctor, DOCTOR_SLOW, "processors",
                   "this process may use 1 processor: the daemon and the training take turns");
    else
        doctor_add(doctor, DOCTOR_OK, "processors", "%d", count);
}

static uint64_t address_space_bytes(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX
                                                                           : limit.rlim_cur;
}

static void check_memory(struct doctor *doctor)
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
        doctor_add(doctor, DOCTOR_FAIL, "memory",
                   "%llu MiB are %s. The smallest daemon needs %d MiB. Give it more memory, or end "
                   "other programs.",
                   (unsigned long long)(available / MIB), source, NEEDED_MIB);
    else if (available < DEFAULT_MIB * MIB)
        doctor_add(doctor, DOCTOR_SLOW, "memory",
                   "%llu MiB are %s, less than the defaults of memory.store, rings and reserve (%d "
                   "MiB). Datasets that do not fit into memory.store are read again in each epoch.",
                   (unsigned long long)(available / MIB), source, DEFAULT_MIB);
    else
        doctor_add(doctor, DOCTOR_OK, "memory", "%.1f GiB are %s",
                   (double)available / (double)(MIB << 10), source);
}

static void check_descriptors(struct doctor *doctor)
{
    struct rlimit limit = {0, 0};

    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    /* the daemon raises the soft limit to the hard one */
    doctor_add(
        doctor,
        limit.rlim_max < FEW_DESCRIPTORS ? DOCTOR_FAIL
        : limit.rlim_max < DESCRIPTORS   ? DOCTOR_SLOW
                                         : DOCTOR_OK,
        "limits", "%llu open files (ulimit -Hn)%s", (unsigned long long)limit.rlim_max,
        limit.rlim_max >= DESCRIPTORS
            ? ""
            : ". A daemon for 256 workers needs 1408: lower limits.sessions, or raise the limit.");
}

/* Batches are in sealed memory files, which workers map. */
static void check_shared_memory(struct doctor *doctor)
{
    const int fd = memfd_create("trajd-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const bool works =
        fd >= 0 && !ftruncate(fd, 4096) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);

    if (works)
        doctor_add(doctor, DOCTOR_OK, "ipc", "sealed memory files (memfd_create) work");
    else
        doctor_add(
            doctor, DOCTOR_FAIL, "ipc",
            "sealed memory files (memfd_create) do not work: %s. Workers cannot share batches. "
            "A container's seccomp profile may forbid it.",
            strerror(errno));
    if (fd >= 0)
        close(fd);
}

/* ---- the daemon ---- */

enum holder { HOLDER_NONE, HOLDER_ALIVE, HOLDER_DEAD, HOLDER_UNKNOWN };

/* Looks whether a process holds the lock of the runtime directory. The lock ends with its process,
 * so a file without a lock means that the daemon has ended. */
static enum holder find_holder(const char *endpoint)
{
    char path[DOCTOR_PATH_SIZE];
    enum holder holder;
    int fd;

    snprintf(path, sizeof path, "%s/lock", endpoint);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? HOLDER_NONE : HOLDER_UNKNOWN;
    holder = flock(fd, LOCK_SH | LOCK_NB) == 0 ? HOLDER_DEAD
             : errno == EWOULDBLOCK            ? HOLDER_ALIVE
                                               : HOLDER_UNKNOWN;
    close(fd);
    return holder;
}

static void explain_silence(struct doctor *doctor, const char *endpoint, const char *message)
{
    const bool is_remote = strncmp(endpoint, "tcp://", 6) == 0;

    switch (is_remote ? HOLDER_UNKNOWN : find_holder(endpoint)) {
    case HOLDER_NONE:
        doctor_add(
            doctor, DOCTOR_FAIL, "daemon",
            "none has run at %s. Start it (systemctl start trajd, or trajd --config FILE), or "
            "unset TRAJD_ENDPOINT: trajd.open() then starts a private daemon.",
            endpoint);
        break;
    case HOLDER_DEAD:
        doctor_add(
            doctor, DOCTOR_FAIL, "daemon",
            "the daemon at %s is dead: its folder is there, and no process holds the lock. Its "
            "log (journalctl -u trajd) says why; `dmesg` shows an out-of-memory kill. Start it "
            "again: its journals let jobs continue.",
            endpoint);
        break;
    case HOLDER_ALIVE:
        doctor_add(doctor, DOCTOR_FAIL, "daemon",
                   "a process holds the lock of %s and does not answer: it is starting (a large "
                   "dataset is indexed first), stopped, or it belongs to another user (%s)",
                   endpoint, message);
        break;
    case HOLDER_UNKNOWN:
        doctor_add(doctor, DOCTOR_FAIL, "daemon", "%s", message);
        break;
    }
}

static void check_version(struct doctor *doctor, const char *endpoint,
                          const struct trajd_yaml_node *root)
{
    const char *version = cli_text(root, "version");

    if (strcmp(version, TRAJD_VERSION) == 0)
        doctor_add(doctor, DOCTOR_OK, "daemon", "trajd %s answers at %s", version, endpoint);
    else
        doctor_add(
            doctor, DOCTOR_SLOW, "daemon",
            "trajd %s answers at %s, and this is version %s. They speak with each other; some "
            "features are missing. Restart the daemon with the newer program.",
            version, endpoint, TRAJD_VERSION);
}

static void check_data(struct doctor *doctor, const struct trajd_yaml_node *root)
{
    for (const struct trajd_yaml_node *item = cli_first(root, "datasets"); item;
         item = item->next) {
        const uint64_t count = strtoull(cli_text(item, "quarantined"), NULL, 10);
        if (count)
            doctor_add(doctor, DOCTOR_SLOW, "data",
                       "the daemon leaves out %" PRIu64
                       " episode%s of %s: `trajctl validate` and the "
                       "daemon's log name them",
                       count, trajd_plural(count), cli_text(item, "name"));
    }
}

static void check_status(struct doctor *doctor, const char *endpoint, struct trajd_client *client)
{
    struct trajd_yaml *yaml = NULL;
    struct trajd_error error;
    char *json = NULL;

    if (trajd_client_status(client, CONNECT_TIMEOUT_MS, &json, &error) ||
        trajd_yaml_parse("status", json, strlen(json), &yaml, &error)) {
        doctor_add(doctor, DOCTOR_FAIL, "daemon", "%s: %s", endpoint, error.message);
    } else {
        check_version(doctor, endpoint, trajd_yaml_root(yaml));
        check_data(doctor, trajd_yaml_root(yaml));
    }
    trajd_yaml_destroy(&yaml);
    free(json);
}

/* Tells how many private daemons run, where no service does. */
static void add_private(struct doctor *doctor)
{
    static struct private_daemons found;

    private_daemons_find(&found);
    if (found.count)
        doctor_add(
            doctor, DOCTOR_OK, "daemon",
            "none runs at " CLI_SERVICE_ENDPOINT "; %u private daemon%s of yours run%s in %s "
            "(trajctl status)",
            found.count, trajd_plural(found.count), found.count == 1 ? "s" : "", found.folder);
    else
        doctor_add(doctor, DOCTOR_OK, "daemon",
                   "none runs at " CLI_SERVICE_ENDPOINT
                   ", and TRAJD_ENDPOINT is not set: trajd.open() "
                   "starts a private daemon");
}

static void check_daemon(struct doctor *doctor)
{
    const char *given = doctor->connection.endpoint ? doctor->connection.endpoint
                                                    : getenv("TRAJD_ENDPOINT"),
               *endpoint = given && *given ? given : CLI_SERVICE_ENDPOINT;
    const struct trajd_connect_options connect = {.endpoint = endpoint,
                                                  .key_file = doctor->connection.key_file,
                                                  .server_key = doctor->connection.server_key,
                                                  .client_name = "trajctl doctor",
                                                  .timeout_ms = CONNECT_TIMEOUT_MS};
    struct trajd_client *client = NULL;
    struct trajd_error error;

    if (endpoint != given && access(endpoint, F_OK)) {
        add_private(doctor);
        return;
    }
    if (trajd_client_connect(&connect, &client, &error))
        explain_silence(doctor, endpoint, error.message);
    else
        check_status(doctor, endpoint, client);
    trajd_client_close(&client);
}

/* ---- all checks ---- */

static void print_result(const struct doctor *doctor)
{
    const uint32_t slow = doctor->counts[DOCTOR_SLOW], failed = doctor->counts[DOCTOR_FAIL];

    if (failed)
        printf("result: trajd does not work here: %u check%s failed (\"fail\")\n", failed,
               trajd_plural(failed));
    else if (slow)
        printf("result: trajd works here; %u finding%s it slow (\"slow\")\n", slow,
               slow == 1 ? " makes" : "s make");
    else
        printf("result: trajd works here\n");
}

bool doctor_run(struct doctor *doctor)
{
    static void (*const checks[])(struct doctor *) = {
        check_programs,      check_video,       check_gpu,           check_processors,
        check_memory,        check_descriptors, check_shared_memory, doctor_check_folders,
        doctor_check_config, check_daemon,      doctor_check_feed};

    doctor->json = (struct trajd_json){.out = stdout};
    if (doctor->is_json) {
        trajd_json_open_object(&doctor->json, NULL);
        trajd_json_string(&doctor->json, "version", TRAJD_VERSION);
        trajd_json_open_array(&doctor->json, "findings");
    } else {
        printf("trajctl %s\n", TRAJD_VERSION);
    }
    for (size_t i = 0; i < ARRAY_LEN(checks); i++)
        checks[i](doctor);
    if (doctor->is_json) {
        trajd_json_close_array(&doctor->json);
        trajd_json_u64(&doctor->json, "slow", doctor->counts[DOCTOR_SLOW]);
        trajd_json_u64(&doctor->json, "failed", doctor->counts[DOCTOR_FAIL]);
        trajd_json_close_object(&doctor->json);
        putchar('\n');
    } else {
        print_result(doctor);
    }
    return !doctor->counts[DOCTOR_FAIL];
}
