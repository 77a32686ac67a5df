/* trajctl doctor: reads its options; clients/cli/doctor has the checks. */
#include "clients/cli/cli.h"
#include "clients/cli/cli_feed.h"
#include "clients/cli/doctor/doctor.h"

#define SECONDS_MAX 3600u

int cli_doctor(int argc, char **argv)
{
    static const char *const known[] = {"--endpoint", "--seconds", "--json", NULL};
    const int has_config = argc > 1 && argv[1][0] != '-';
    const char *config = has_config ? argv[1] : NULL;
    struct cli_feed_arguments arguments = {.seconds = 10};

    argv[has_config] = argv[0];
    if (!cli_parse_feed(argc - has_config, argv + has_config, known, &arguments) ||
        arguments.seconds > SECONDS_MAX)
        return cli_usage("doctor");
    return doctor_run(&(struct doctor_options){.config = config,
                                               .endpoint = arguments.endpoint,
                                               .key_file = arguments.key_file,
                                               .server_key = arguments.server_key,
                                               .seconds = arguments.seconds,
                                               .json = arguments.json})
               ? CLI_OK
               : CLI_FAILED;
}
