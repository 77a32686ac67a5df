/* trajctl reload: makes a daemon on this machine read its configuration again (SIGHUP). With --wait
 * it prints the result. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "clients/cli/cli_feed.h"
#include "clients/cli/files/private_daemons.h"
#include "daemon/base/clock.h"

#define LOOK_NS 20000000L

struct reloading {
    struct cli_connection connection; /* its endpoint */
    bool wait;
};

/* Returns the process that listens on the daemon's socket, as this process sees it. Returns 0 after
 * it printed an error. A pid file could name a process that reuses the number, or one of another
 * namespace. */
static pid_t find_daemon(const char *directory)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    int fd;

    if (snprintf(address.sun_path, sizeof address.sun_path, "%s/fd.sock", directory) >=
        (int)sizeof address.sun_path)
        return cli_fail("%s: the path is too long for a socket", directory), 0;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address)) {
        cli_fail("%s: %s", address.sun_path,
                 errno == ENOENT || errno == ECONNREFUSED ? "no daemon is running there"
                                                          : strerror(errno));
    } else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)) {
        cli_fail("%s: %s", address.sun_path, strerror(errno));
        peer.pid = 0;
    } else if (peer.pid <= 0) {
        cli_fail("%s: the daemon is in another container: send it SIGHUP there", address.sun_path);
        peer.pid = 0;
    }
    if (fd >= 0)
        close(fd);
    return peer.pid;
}

/* Waits until the first reload that began at request_ns or later has ended. */
static int wait_for_end(struct trajd_client *client, int64_t request_ns)
{
    const struct timespec pause = {0, LOOK_NS};

    while (true) {
        struct trajd_yaml *yaml = cli_query_status(client);
        const struct trajd_yaml_node *reload = trajd_yaml_get(trajd_yaml_root(yaml), "reload");
        if (!reload)
            cli_die("the daemon does not report reloads: it is an earlier version");
        if (cli_number(reload, "began_ns") >= request_ns &&
            strcmp(cli_text(reload, "running"), "true") != 0) {
            if (strcmp(cli_text(reload, "applied"), "true") != 0)
                cli_die("the reload was refused, the configuration is unchanged: %s",
                        cli_text(reload, "message"));
            printf("%s\n", cli_text(reload, "message"));
            trajd_yaml_destroy(&yaml);
            return CLI_OK;
        }
        trajd_yaml_destroy(&yaml);
        nanosleep(&pause, NULL);
    }
}

const struct cli_option cli_reload_options[] = {
    {"--wait", NULL, "wait for the end, and print the result", CLI_FLAG,
     offsetof(struct reloading, wait)},
    {"--endpoint", "DIR", "the daemon; without it $TRAJD_ENDPOINT, else the service", CLI_TEXT,
     offsetof(struct reloading, connection.endpoint)},
    {0}};

int cli_reload(int argc, char **argv)
{
    struct reloading reloading = {0};
    struct trajd_client *client = NULL;
    int64_t request_ns;
    const char *directory;
    pid_t pid;

    cli_parse(argc, argv, &reloading);
    directory = reloading.connection.endpoint;
    if (!directory)
        directory = getenv("TRAJD_ENDPOINT");
    if (!directory || !*directory)
        directory = CLI_SERVICE_ENDPOINT;
    if (strncmp(directory, "tcp://", 6) == 0)
        cli_refuse("%s: only a daemon on this machine can be reloaded", directory);
    pid = find_daemon(directory);
    if (!pid)
        return CLI_FAILED;
    if (reloading.wait)
        client = cli_connect(&reloading.connection);
    request_ns = trajd_now_ns();
    if (kill(pid, SIGHUP))
        return cli_fail("process %ld: %s%s", (long)pid, strerror(errno),
                        errno == EPERM ? ": only its user and root can reload it" : "");
    return reloading.wait ? wait_for_end(client, request_ns) : CLI_OK;
}
