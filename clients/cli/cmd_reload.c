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

#include "clients/cli/cli.h"
#include "clients/cli/cli_query.h"
#include "clients/cli/cli_feed.h"
#include "clients/cli/files/private_daemons.h"
#include "daemon/base/clock.h"

#define LOOK_NS 20000000L

struct reload_arguments {
    struct cli_feed_arguments feed; /* its endpoint */
    const char *directory;
    bool wait;
};

static bool parse(int argc, char **argv, struct reload_arguments *arguments)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--wait") == 0)
            arguments->wait = true;
        else if (strcmp(argv[i], "--endpoint") == 0 && i + 1 < argc)
            arguments->feed.endpoint = argv[++i];
        else if (argv[i][0] == '-')
            return cli_refuse_option(argv[0], argv[i]), false;
        else
            return cli_fail("unexpected argument: %s", argv[i]), false;
    }
    arguments->directory =
        arguments->feed.endpoint ? arguments->feed.endpoint : getenv("TRAJD_ENDPOINT");
    if (!arguments->directory || !*arguments->directory)
        arguments->directory = CLI_SERVICE_ENDPOINT;
    if (strncmp(arguments->directory, "tcp://", 6) == 0)
        return cli_fail("%s: only a daemon on this machine can be reloaded", arguments->directory),
               false;
    return true;
}

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

/* Returns the state of the daemon's last reload, owned by *yaml. Returns NULL after it printed an
 * error. */
static const struct trajd_yaml_node *query_reload(struct trajd_client *client,
                                                  struct trajd_yaml **yaml)
{
    const struct trajd_yaml_node *reload = NULL;
    struct trajd_error error;
    char *json = NULL;

    if (trajd_client_status(client, 0, &json, &error) ||
        trajd_yaml_parse("status", json, strlen(json), yaml, &error))
        cli_fail("%s", error.message);
    else if (!(reload = trajd_yaml_get(trajd_yaml_root(*yaml), "reload")))
        cli_fail("the daemon does not report reloads: it is an earlier version");
    free(json);
    return reload;
}

/* Waits until the first reload that began at request_ns or later has ended. */
static int wait_for_end(struct trajd_client *client, int64_t request_ns)
{
    const struct timespec pause = {0, LOOK_NS};
    int result = -1;

    while (result < 0) {
        struct trajd_yaml *yaml = NULL;
        const struct trajd_yaml_node *reload = query_reload(client, &yaml);
        if (!reload)
            result = CLI_FAILED;
        else if (cli_number(reload, "began_ns") < request_ns ||
                 !strcmp(cli_text(reload, "running"), "true"))
            nanosleep(&pause, NULL);
        else if (strcmp(cli_text(reload, "applied"), "true") != 0)
            result = cli_fail("the reload was refused, the configuration is unchanged: %s",
                              cli_text(reload, "message"));
        else
            result = printf("%s\n", cli_text(reload, "message")) < 0;
        trajd_yaml_destroy(&yaml);
    }
    return result;
}

int cli_reload(int argc, char **argv)
{
    struct reload_arguments arguments = {0};
    struct trajd_client *client = NULL;
    int result = CLI_OK;
    int64_t request_ns;
    pid_t pid;

    if (!parse(argc, argv, &arguments))
        return cli_usage("reload");
    pid = find_daemon(arguments.directory);
    if (!pid || (arguments.wait && !(client = cli_connect(&arguments.feed, false))))
        return CLI_FAILED;
    request_ns = trajd_now_ns();
    if (kill(pid, SIGHUP))
        result = cli_fail("process %ld: %s%s", (long)pid, strerror(errno),
                          errno == EPERM ? ": only its user and root can reload it" : "");
    else if (arguments.wait)
        result = wait_for_end(client, request_ns);
    trajd_client_close(&client);
    return result;
}
