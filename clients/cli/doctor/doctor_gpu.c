#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/c/trajd.h"
#include "clients/cli/doctor/doctor_checks.h"

#define DRIVER_FILE "/proc/driver/nvidia/version"
#define GPUS_MAX 64

/* Reads the version of the kernel's driver, such as "580.65.06". */
static bool read_driver(char *version, size_t size)
{
    FILE *file = fopen(DRIVER_FILE, "re");
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

void doctor_check_gpu(struct doctor_report *report, char uuid[DOCTOR_UUID_SIZE])
{
    static const char without[] = "Processors make the batches; device=\"cuda\" is not possible.";
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    struct trajd_error error;
    char version[64] = "";
    const bool has_driver = read_driver(version, sizeof version);
    const enum trajd_status status = trajd_gpu_uuid(0, uuid, &error);

    if (has_driver)
        doctor_add(report, DOCTOR_OK, "driver", "NVIDIA %s", version);
    if (!status) {
        doctor_add(report, DOCTOR_OK, "gpu", "%d, the first is %s", count_gpus(), uuid);
        return;
    }
    *uuid = '\0';
    if (!has_driver && status == TRAJD_ERR_UNSUPPORTED)
        doctor_add(report, DOCTOR_SLOW, "gpu", "this machine has no NVIDIA driver (%s). %s",
                   error.message, without);
    else if (status == TRAJD_ERR_UNSUPPORTED)
        doctor_add(report, DOCTOR_SLOW, "gpu",
                   "the driver is loaded, but this process cannot use it: %s. In a container, pass "
                   "the GPU with the capability \"compute\". %s",
                   error.message, without);
    else
        doctor_add(report, DOCTOR_SLOW, "gpu", "%s (CUDA_VISIBLE_DEVICES is %s). %s", error.message,
                   visible ? visible : "not set", without);
}
