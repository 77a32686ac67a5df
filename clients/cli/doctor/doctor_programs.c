#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "clients/cli/doctor/doctor_checks.h"
#include "clients/cli/doctor/doctor_process.h"
#include "daemon/base/paths.h"
#include "proto/array_len.h"
#include "proto/wire.h"

enum { VERSION_SIZE = 64 };

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
static bool find_parts(struct doctor_report *report, char *daemon, size_t size)
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
            doctor_add(report, DOCTOR_FAIL, "programs",
                       "%s: neither beside trajctl nor in its installation. Install trajd again.",
                       parts[i].name);
        has_all &= parts[i].is_there;
    }
    if (has_all)
        doctor_add(report, DOCTOR_OK, "programs", "%s, its two helpers, and %u layouts", daemon,
                   count_layouts(layouts));
    return has_all;
}

bool doctor_check_programs(struct doctor_report *report, char *daemon, size_t size)
{
    char output[VERSION_SIZE] = "", version[VERSION_SIZE] = "";

    if (!find_parts(report, daemon, size))
        return false;
    if (!doctor_read_output((const char *[]){daemon, "--version", NULL}, output, sizeof output) ||
        sscanf(output, "trajd %60s", version) != 1) {
        doctor_add(report, DOCTOR_FAIL, "version",
                   "%s --version prints no version: the program does not run here (%s)", daemon,
                   *output ? output : "no output");
        return false;
    }
    if (strcmp(version, TRAJD_VERSION) != 0) {
        doctor_add(report, DOCTOR_FAIL, "version",
                   "trajd has version %s and trajctl %s: two installations are mixed. Remove one.",
                   version, TRAJD_VERSION);
        return false;
    }
    doctor_add(report, DOCTOR_OK, "version", "trajd and trajctl %s, protocol %d.%d", version,
               TRAJD_WIRE_MAJOR, TRAJD_WIRE_MINOR);
    return true;
}
