/* trajctl doctor: reads its options; clients/cli/doctor has the checks. */
#include "clients/cli/cli_feed.h"
#include "clients/cli/doctor/doctor.h"

const struct cli_option cli_doctor_options[] = {
    {"--seconds", "N", "how long it reads a feed of its own (10; 0: not at all)", CLI_U64,
     offsetof(struct doctor, seconds), .most = 3600},
    {"--json", NULL, "print one JSON document", CLI_FLAG, offsetof(struct doctor, is_json)},
    {NULL, NULL, NULL, CLI_TABLE, offsetof(struct doctor, connection), .table = cli_daemon_options},
    {0}};

int cli_doctor(int argc, char **argv)
{
    static struct doctor doctor = {.seconds = 10};

    if (cli_parse(argc, argv, &doctor))
        doctor.config = argv[1];
    return doctor_run(&doctor) ? CLI_OK : CLI_FAILED;
}
