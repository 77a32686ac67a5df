/* trajctl check: runs the daemon with --check, so that both give the same result. */
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/cli/files/cli_files.h"
#include "daemon/base/paths.h"

int cli_check(int argc, char **argv)
{
    char daemon[CLI_PATH_SIZE];

    cli_parse(argc, argv, NULL);
    if (!trajd_paths_daemon(daemon, sizeof daemon))
        return cli_fail("trajd was found neither beside this program nor in its installation");
    execl(daemon, "trajd", "--config", argv[1], "--check", (char *)NULL);
    return cli_fail("cannot run %s", daemon);
}
