/* What trajctl doctor checks of files: folders, datasets, and the feeds of a configuration. */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "clients/cli/doctor/doctor.h"
#include "daemon/config/config.h"
#include "proto/array_len.h"
#include "proto/plural.h"

#define GIB 1073741824.0

enum {
    FOLDERS_MAX = 16,      /* that are open at the same time while a tree is walked */
    PLANS_BYTES = 1 << 18, /* of the output of --check */
};

struct filesystem {
    const char *name;
    uint32_t magic; /* statfs.f_type */
    bool is_remote;
};

static const struct filesystem *find_filesystem(const char *path)
{
    static const struct filesystem known[] = {
        {"nfs", 0x6969, true},          {"cifs", 0xff534d42, true},   {"smb", 0xfe534d42, true},
        {"lustre", 0x0bd00bd0, true},   {"gpfs", 0x47504653, true},   {"ceph", 0x00c36400, true},
        {"beegfs", 0x19830326, true},   {"9p", 0x01021997, true},     {"afs", 0x5346414f, true},
        {"fuse", 0x65735546, true},     {"tmpfs", 0x01021994, false}, {"ext4", 0xef53, false},
        {"xfs", 0x58465342, false},     {"btrfs", 0x9123683e, false}, {"zfs", 0x2fc12fc1, false},
        {"overlay", 0x794c7630, false}, {"f2fs", 0xf2f52010, false},
    };
    static const struct filesystem other = {"another file system", 0, false};
    struct statfs found;

    if (statfs(path, &found))
        return &other;
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (known[i].magic == (uint32_t)found.f_type)
            return &known[i];
    return &other;
}

static double free_gib(const char *path)
{
    struct statfs found;

    return statfs(path, &found) ? 0 : (double)found.f_bavail * (double)found.f_bsize / GIB;
}

/* ---- folders that trajd writes to ---- */

/* Cuts a path to the first folder that exists: trajd makes those below it. */
static void cut_to_existing(char *path)
{
    char *slash;

    while (access(path, F_OK) && (slash = strrchr(path, '/')) && slash != path)
        *slash = '\0';
}

static void check_runtime(struct doctor *doctor)
{
    const struct filesystem *filesystem;
    char *path = doctor->runtime;

    snprintf(path, sizeof doctor->runtime, "%s", private_daemons_parent());
    cut_to_existing(path);
    filesystem = find_filesystem(path);
    if (access(path, W_OK | X_OK))
        doctor_add(doctor, DOCTOR_FAIL, "runtime",
                   "%s: %s. Private daemons have their sockets there: set TRAJD_RUNTIME_DIR to "
                   "another folder.",
                   path, strerror(errno));
    else
        doctor_add(doctor, filesystem->is_remote ? DOCTOR_SLOW : DOCTOR_OK, "runtime",
                   "%s is on %s, %.1f GiB free%s", path, filesystem->name, free_gib(path),
                   filesystem->is_remote
                       ? ". Sockets and locks of private daemons belong on a local "
                         "disk: set TRAJD_RUNTIME_DIR"
                       : "");
}

/* Finds the folder of indexes, or the one in which it will be made. */
static void check_cache(struct doctor *doctor)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char path[DOCTOR_PATH_SIZE];

    snprintf(path, sizeof path, "%s%s/trajd",
             base && *base ? base
             : home        ? home
                           : "/",
             base && *base ? "" : "/.cache");
    cut_to_existing(path);
    if (access(path, W_OK | X_OK))
        doctor_add(doctor, DOCTOR_SLOW, "cache",
                   "%s: %s. Each private daemon reads the structure of all files again: set "
                   "XDG_CACHE_HOME to a folder that you may write to.",
                   path, strerror(errno));
    else
        doctor_add(doctor, DOCTOR_OK, "cache", "%s is on %s, %.1f GiB free", path,
                   find_filesystem(path)->name, free_gib(path));
}

void doctor_check_folders(struct doctor *doctor)
{
    check_runtime(doctor);
    check_cache(doctor);
}

/* ---- datasets ---- */

static uint64_t tree_bytes; /* nftw passes nothing to its callback */

static int add_size(const char *path, const struct stat *found, int kind, struct FTW *place)
{
    (void)path;
    (void)place;
    tree_bytes += kind == FTW_F ? (uint64_t)found->st_size : 0;
    return 0;
}

/* Returns whether the dataset can be read. */
static bool check_dataset(struct doctor *doctor, const struct trajd_config *config,
                          const struct trajd_config_dataset *dataset)
{
    const struct filesystem *filesystem = find_filesystem(dataset->path);
    const uint64_t share = config->cache_bytes / config->dataset_count;

    tree_bytes = 0;
    if (access(dataset->path, R_OK) || nftw(dataset->path, add_size, FOLDERS_MAX, 0)) {
        doctor_add(doctor, DOCTOR_FAIL, "data", "%s: %s: %s", dataset->name, dataset->path,
                   strerror(errno));
        return false;
    }
    doctor_add(doctor, tree_bytes > share ? DOCTOR_SLOW : DOCTOR_OK, "data",
               "%s: %.2f GiB on %s%s%s; memory.store holds %.2f GiB of its rows%s", dataset->name,
               (double)tree_bytes / GIB, filesystem->name,
               filesystem->is_remote ? " (not a local disk: the first epoch reads over the network)"
                                     : "",
               access(dataset->path, W_OK) ? ", read-only" : "", (double)share / GIB,
               tree_bytes > share
                   ? ". Rows that do not fit are read again in each epoch; only the streams of the "
                     "feeds count. `trajctl status` of a running daemon shows them as \"evicted\"."
                   : "");
    return true;
}

/* Plans all feeds as `trajctl check` does, and reports the error that it prints. */
static void check_plans(struct doctor *doctor)
{
    static const char mark[] = " error: ";
    static char output[PLANS_BYTES];
    const char *const arguments[] = {
        doctor->daemon, "--config", doctor->config, "--check", "--log-level", "error", NULL};

    if (doctor_read_output(arguments, output, sizeof output)) {
        doctor_add(doctor, DOCTOR_OK, "plans", "all feeds of %s can be made (trajctl check)",
                   doctor->config);
        return;
    }
    const char *found = strstr(output, mark), *text = found ? found + strlen(mark) : output;
    doctor_add(doctor, DOCTOR_FAIL, "plans", "%s: %.*s", doctor->config, (int)strcspn(text, "\n"),
               text);
}

void doctor_check_config(struct doctor *doctor)
{
    bool has_data = true;
    struct trajd_config *config = NULL;
    struct trajd_error error;

    if (!doctor->config)
        return;
    if (trajd_config_load(doctor->config, NULL, 0, &config, &error)) {
        doctor_add(doctor, DOCTOR_FAIL, "config", "%s", error.message);
        return;
    }
    doctor_add(doctor, DOCTOR_OK, "config", "%s: %u dataset%s, %u feed%s", doctor->config,
               config->dataset_count, trajd_plural(config->dataset_count), config->feed_count,
               trajd_plural(config->feed_count));
    for (uint32_t i = 0; i < config->dataset_count; i++)
        has_data &= check_dataset(doctor, config, &config->datasets[i]);
    if (*doctor->daemon && has_data)
        check_plans(doctor);
    trajd_config_destroy(&config);
}
