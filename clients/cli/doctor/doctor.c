#include "clients/cli/doctor/doctor.h"

#include "clients/cli/doctor/doctor_checks.h"

bool doctor_run(const struct doctor_options *options)
{
    struct doctor_report report = {.is_json = options->json};
    char daemon[DOCTOR_PATH_SIZE], runtime[DOCTOR_PATH_SIZE], uuid[DOCTOR_UUID_SIZE];
    bool has_daemon;

    doctor_begin(&report);
    has_daemon = doctor_check_programs(&report, daemon, sizeof daemon);
    doctor_check_gpu(&report, uuid);
    doctor_check_machine(&report);
    doctor_check_files(&report, has_daemon ? daemon : NULL, options->config, runtime,
                       sizeof runtime);
    doctor_check_daemon(&report, options);
    if (has_daemon && options->seconds)
        doctor_check_feed(&report, daemon, runtime, uuid, options->seconds);
    return doctor_end(&report);
}
