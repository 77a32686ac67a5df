/* trajctl keygen: makes the CURVE keys of a daemon and of its remote workers, as files that the
 * daemon reads from one directory:
 *
 *     DIR/server.key_secret     the daemon's pair, mode 0600
 *     DIR/server.key            its public key, which a worker must know
 *     DIR/clients/NAME.key      the public keys of the workers that may connect
 *     DIR/NAME.key_secret       the worker's pair and the server's public key, mode 0600, to be
 *                               copied to the worker's machine */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <zmq.h>

#include "clients/cli/cli.h"
#include "proto/key_file.h"

enum { PATH_SIZE = 4224 };

static void make_directory(const char *path)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        cli_die("%s: %m", path);
}

/* Makes a pair of keys and writes both files; server_key may be "". Writes the secret file first: a
 * public key without its secret would be useless, and would make the next attempt fail. Returns the
 * public key. */
static struct trajd_key_file make_pair(const char *name, const char *server_key,
                                       const char *secret_path, const char *public_path)
{
    struct trajd_key_file pair = {.name = ""}, shown = {.name = ""};
    struct trajd_error error;

    if (zmq_curve_keypair(pair.public_key, pair.secret_key) != 0)
        cli_die("keygen: this libzmq was built without CURVE (libsodium)");
    snprintf(pair.name, sizeof pair.name, "%s", name);
    snprintf(pair.server_key, sizeof pair.server_key, "%s", server_key);
    memcpy(shown.name, pair.name, sizeof shown.name);
    memcpy(shown.public_key, pair.public_key, sizeof shown.public_key);
    if (trajd_key_write(secret_path, &pair, &error))
        cli_die("%s", error.message);
    if (trajd_key_write(public_path, &shown, &error)) {
        remove(secret_path);
        cli_die("%s", error.message);
    }
    return shown;
}

static void make_server(const char *directory)
{
    char secret_path[PATH_SIZE], public_path[PATH_SIZE];

    snprintf(secret_path, sizeof secret_path, "%s/server.key_secret", directory);
    snprintf(public_path, sizeof public_path, "%s/server.key", directory);
    const struct trajd_key_file shown = make_pair("server", "", secret_path, public_path);
    printf("%s: the daemon's key pair, keep it on this machine\n%s: its public key %s\n",
           secret_path, public_path, shown.public_key);
}

static void make_client(const char *directory, const char *clients, const char *name)
{
    char secret_path[PATH_SIZE], public_path[PATH_SIZE], server_path[PATH_SIZE];
    struct trajd_key_file server;
    struct trajd_error error;

    snprintf(secret_path, sizeof secret_path, "%s/%s.key_secret", directory, name);
    snprintf(public_path, sizeof public_path, "%s/%s.key", clients, name);
    snprintf(server_path, sizeof server_path, "%s/server.key", directory);
    if (trajd_key_read(server_path, &server, &error))
        cli_die("%s (the server's public key is needed: `trajctl keygen %s` makes one)",
                error.message, directory);
    make_pair(name, server.public_key, secret_path, public_path);
    printf("%s: copy it to the worker's machine only\n%s: lets the worker connect\n", secret_path,
           public_path);
}

static void set_client(void *place, const struct cli_option *option, char *value)
{
    if (!trajd_key_name_is_valid(value) || strcmp(value, "server") == 0)
        cli_refuse("%s %s: a name has 1 to 64 letters, digits, '-', '_' and '.', and is not "
                   "\"server\"",
                   option->name, value);
    *(const char **)place = value;
}

const struct cli_option cli_keygen_options[] = {
    {"--client", "NAME", "make the keys of a remote worker (without it, those of the daemon)",
     CLI_CALL, .set = set_client},
    {0}};

int cli_keygen(int argc, char **argv)
{
    const char *directory, *name = NULL;
    char clients[4096];

    cli_parse(argc, argv, &name);
    directory = argv[1];
    if (strlen(directory) > sizeof clients - 128)
        cli_refuse("%s: the path is too long", directory);
    snprintf(clients, sizeof clients, "%s/clients", directory);
    make_directory(directory);
    make_directory(clients);
    if (name)
        make_client(directory, clients, name);
    else
        make_server(directory);
    return CLI_OK;
}
