#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "clients/c/trajd.h"
#include "clients/cli/doctor/doctor_checks.h"
#include "clients/cli/files/private_daemons.h"
#include "daemon/base/yaml.h"
#include "proto/plural.h"

enum { CONNECT_TIMEOUT_MS = 3000 };

enum holder { HOLDER_NONE, HOLDER_ALIVE, HOLDER_DEAD, HOLDER_UNKNOWN };

/* Looks whether a process holds the lock of the runtime directory. The lock ends with its process,
 * so a file without a lock means that the daemon has ended. */
static enum holder find_holder(const char *endpoint)
{
    char path[DOCTOR_PATH_SIZE];
    enum holder holder;
    int fd;

    snprintf(path, sizeof path, "%s/lock", endpoint);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? HOLDER_NONE : HOLDER_UNKNOWN;
    holder = flock(fd, LOCK_SH | LOCK_NB) == 0 ? HOLDER_DEAD
             : errno == EWOULDBLOCK            ? HOLDER_ALIVE
                                               : HOLDER_UNKNOWN;
    close(fd);
    return holder;
}

static void explain_silence(struct doctor_report *report, const char *endpoint, const char *message)
{
    const bool is_remote = strncmp(endpoint, "tcp://", 6) == 0;

    switch (is_remote ? HOLDER_UNKNOWN : find_holder(endpoint)) {
    case HOLDER_NONE:
        doctor_add(
            report, DOCTOR_FAIL, "daemon",
            "none has run at %s. Start it (systemctl start trajd, or trajd --config FILE), or "
            "unset TRAJD_ENDPOINT: trajd.open() then starts a private daemon.",
            endpoint);
        break;
    case HOLDER_DEAD:
        doctor_add(
            report, DOCTOR_FAIL, "daemon",
            "the daemon at %s is dead: its folder is there, and no process holds the lock. Its "
            "log (journalctl -u trajd) says why; `dmesg` shows whether memory ran out. Start it "
            "again: its journals let jobs continue.",
            endpoint);
        break;
    case HOLDER_ALIVE:
        doctor_add(report, DOCTOR_FAIL, "daemon",
                   "a process holds the lock of %s and does not answer: it is starting (a large "
                   "dataset is indexed first), stopped, or it belongs to another user (%s)",
                   endpoint, message);
        break;
    case HOLDER_UNKNOWN:
        doctor_add(report, DOCTOR_FAIL, "daemon", "%s", message);
        break;
    }
}

static const char *text_of(const struct trajd_yaml_node *mapping, const char *key)
{
    const struct trajd_yaml_node *node = mapping ? trajd_yaml_get(mapping, key) : NULL;
    return node && node->value ? node->value : "";
}

static void check_version(struct doctor_report *report, const char *endpoint,
                          const struct trajd_yaml_node *root)
{
    const char *version = text_of(root, "version");

    if (strcmp(version, TRAJD_VERSION) == 0)
        doctor_add(report, DOCTOR_OK, "daemon", "trajd %s answers at %s", version, endpoint);
    else
        doctor_add(
            report, DOCTOR_SLOW, "daemon",
            "trajd %s answers at %s, and this is version %s. They speak with each other; some "
            "features are missing. Restart the daemon with the newer program.",
            version, endpoint, TRAJD_VERSION);
}

static void check_data(struct doctor_report *report, const struct trajd_yaml_node *root)
{
    const struct trajd_yaml_node *list = trajd_yaml_get(root, "datasets");

    for (const struct trajd_yaml_node *item = list ? list->children : NULL; item;
         item = item->next) {
        const uint64_t count = strtoull(text_of(item, "quarantined"), NULL, 10);
        if (count)
            doctor_add(report, DOCTOR_SLOW, "data",
                       "the daemon leaves out %" PRIu64
                       " episode%s of %s: `trajctl validate` and the "
                       "daemon's log name them",
                       count, trajd_plural(count), text_of(item, "name"));
    }
}

static void check_status(struct doctor_report *report, const char *endpoint,
                         struct trajd_client *client)
{
    struct trajd_yaml *yaml = NULL;
    struct trajd_error error;
    char *json = NULL;

    if (trajd_client_status(client, CONNECT_TIMEOUT_MS, &json, &error) ||
        trajd_yaml_parse("status", json, strlen(json), &yaml, &error)) {
        doctor_add(report, DOCTOR_FAIL, "daemon", "%s: %s", endpoint, error.message);
    } else {
        check_version(report, endpoint, trajd_yaml_root(yaml));
        check_data(report, trajd_yaml_root(yaml));
    }
    trajd_yaml_destroy(&yaml);
    free(json);
}

/* Tells how many private daemons run, where no service does. */
static void add_private(struct doctor_report *report)
{
    static struct private_daemons found;

    private_daemons_find(&found);
    if (found.count)
        doctor_add(
            report, DOCTOR_OK, "daemon",
            "none runs at " CLI_SERVICE_ENDPOINT "; %u private daemon%s of yours run%s in %s "
            "(trajctl status)",
            found.count, trajd_plural(found.count), found.count == 1 ? "s" : "", found.folder);
    else
        doctor_add(report, DOCTOR_OK, "daemon",
                   "none runs at " CLI_SERVICE_ENDPOINT
                   ", and TRAJD_ENDPOINT is not set: trajd.open() "
                   "starts a private daemon");
}

void doctor_check_daemon(struct doctor_report *report, const struct doctor_options *options)
{
    const char *given = options->endpoint ? options->endpoint : getenv("TRAJD_ENDPOINT"),
               *endpoint = given && *given ? given : CLI_SERVICE_ENDPOINT;
    const struct trajd_connect_options connect = {.endpoint = endpoint,
                                                  .key_file = options->key_file,
                                                  .server_key = options->server_key,
                                                  .client_name = "trajctl doctor",
                                                  .timeout_ms = CONNECT_TIMEOUT_MS};
    struct trajd_client *client = NULL;
    struct trajd_error error;

    if (endpoint != given && access(endpoint, F_OK)) {
        add_private(report);
        return;
    }
    if (trajd_client_connect(&connect, &client, &error))
        explain_silence(report, endpoint, error.message);
    else
        check_status(report, endpoint, client);
    trajd_client_close(&client);
}
