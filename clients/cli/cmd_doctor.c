/* trajctl doctor: reads its options; clients/cli/doctor has the checks. */
#include "clients/cli/cli_feed.h"
#include "clients/cli/doctor/doctor.h"

struct doctoring {
    struct cli_connection connection;
    struct doctor_options doctor;
};

const struct cli_option cli_doctor_options[] = {
    {"--seconds", "N", "how long it reads a feed of its own (10; 0: not at all)", CLI_U64,
     offsetof(struct doctoring, doctor.seconds), .most = 3600},
    {"--json", NULL, "print one JSON document", CLI_FLAG, offsetof(struct doctoring, doctor.json)},
    {NULL, NULL, NULL, CLI_TABLE, offsetof(struct doctoring, connection),
     .table = cli_daemon_options},
    {0}};

int cli_doctor(int argc, char **argv)
{
    struct doctoring doctoring = {.doctor.seconds = 10};
    const int count = cli_parse(argc, argv, &doctoring);

    doctoring.doctor.config = count ? argv[1] : NULL;
    doctoring.doctor.endpoint = doctoring.connection.endpoint;
    doctoring.doctor.key_file = doctoring.connection.key_file;
    doctoring.doctor.server_key = doctoring.connection.server_key;
    return doctor_run(&doctoring.doctor) ? CLI_OK : CLI_FAILED;
}
