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

static int make_directory(const char *path)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return cli_fail("%s: %s", path, strerror(errno));
    return CLI_OK;
}

static int make_pair(const char *name, struct trajd_key_file *keys)
{
    *keys = (struct trajd_key_file){.name = ""};
    snprintf(keys->name, sizeof keys->name, "%s", name);
    if (zmq_curve_keypair(keys->public_key, keys->secret_key) != 0)
        return cli_fail("keygen: this libzmq was built without CURVE (libsodium)");
    return CLI_OK;
}

/* Writes the secret file first. A public key without its secret would be useless, and would make
 * the next attempt fail. */
static int write_pair(const char *secret_path, const char *public_path,
                      const struct trajd_key_file *pair)
{
    struct trajd_key_file shown = {.name = ""};
    struct trajd_error error;

    memcpy(shown.name, pair->name, sizeof shown.name);
    memcpy(shown.public_key, pair->public_key, sizeof shown.public_key);
    if (trajd_key_write(secret_path, pair, &error))
        return cli_fail("%s", error.message);
    if (trajd_key_write(public_path, &shown, &error)) {
        remove(secret_path);
        return cli_fail("%s", error.message);
    }
    return CLI_OK;
}

static int make_server(const char *directory)
{
    char secret_path[4224], public_path[4224];
    struct trajd_key_file pair;

    snprintf(secret_path, sizeof secret_path, "%s/server.key_secret", directory);
    snprintf(public_path, sizeof public_path, "%s/server.key", directory);
    if (make_pair("server", &pair) != CLI_OK ||
        write_pair(secret_path, public_path, &pair) != CLI_OK)
        return CLI_FAILED;
    printf("%s: the daemon's key pair, keep it on this machine\n%s: its public key %s\n",
           secret_path, public_path, pair.public_key);
    return CLI_OK;
}

static int make_client(const char *directory, const char *clients, const char *name)
{
    char secret_path[4224], public_path[4224], server_path[4224];
    struct trajd_key_file pair, server;
    struct trajd_error error;

    snprintf(secret_path, sizeof secret_path, "%s/%s.key_secret", directory, name);
    snprintf(public_path, sizeof public_path, "%s/%s.key", clients, name);
    snprintf(server_path, sizeof server_path, "%s/server.key", directory);
    if (trajd_key_read(server_path, &server, &error))
        return cli_fail("%s (the server's public key is needed: `trajctl keygen %s` makes one)",
                        error.message, directory);
    if (make_pair(name, &pair) != CLI_OK)
        return CLI_FAILED;
    memcpy(pair.server_key, server.public_key, sizeof pair.server_key);
    if (write_pair(secret_path, public_path, &pair) != CLI_OK)
        return CLI_FAILED;
    printf("%s: copy it to the worker's machine only\n%s: lets the worker connect\n", secret_path,
           public_path);
    return CLI_OK;
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
    if (make_directory(directory) != CLI_OK || make_directory(clients) != CLI_OK)
        return CLI_FAILED;
    return name ? make_client(directory, clients, name) : make_server(directory);
}
