/* Reads the public keys of workers from their directory, and again when it has changed. */
#include "daemon/server/keyring.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define SUFFIX ".key"
#define SETTLED_S 2 /* more than the resolution of times in any file system */

struct client {
    char name[TRAJD_KEY_NAME_SIZE], public_key[TRAJD_KEY_SIZE];
};

struct trajd_keyring {
    struct trajd_key_file server;
    char *clients_path;
    struct client *clients, *earlier; /* earlier: those before the directory was read last */
    uint32_t count, earlier_count;
    struct timespec changed; /* modification time of the directory when it was read */
    bool settled; /* it was read without errors, long after `changed`; false: read it again */
};

/* Sets name to "alice" for "alice.key". Returns false for any other kind of file name. */
static bool name_of(const char *file, char name[TRAJD_KEY_NAME_SIZE])
{
    const size_t length = strlen(file), suffix = strlen(SUFFIX);
    if (length <= suffix || length - suffix >= TRAJD_KEY_NAME_SIZE ||
        strcmp(file + length - suffix, SUFFIX) != 0)
        return false;
    memcpy(name, file, length - suffix);
    name[length - suffix] = '\0';
    return trajd_key_name_is_valid(name);
}

/* Adds the worker of one file of the directory. Ignores a file with another kind of name. */
static enum trajd_status add_client(struct trajd_keyring *keyring, const char *file,
                                    struct trajd_error *error)
{
    struct client client;
    struct trajd_key_file keys;
    char path[4352];
    if (!name_of(file, client.name))
        return TRAJD_OK;
    snprintf(path, sizeof path, "%s/%s", keyring->clients_path, file);
    enum trajd_status status = trajd_key_read(path, &keys, error);
    if (status)
        return status;
    if (keyring->count == TRAJD_KEYRING_LIMIT)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: has keys of more than %u workers",
                               keyring->clients_path, TRAJD_KEYRING_LIMIT);
    memcpy(client.public_key, keys.public_key, sizeof client.public_key);
    explicit_bzero(&keys, sizeof keys);
    keyring->clients[keyring->count++] = client;
    return TRAJD_OK;
}

/* Returns whether the error is one of the machine: it says nothing about the keys. */
static bool is_of_the_machine(int code)
{
    return code == EMFILE || code == ENFILE || code == ENOMEM || code == EIO || code == ESTALE;
}

/* Adds the key that the worker of this file had before. */
static void keep_client(struct trajd_keyring *keyring, const char *file)
{
    char name[TRAJD_KEY_NAME_SIZE];
    for (uint32_t i = 0; name_of(file, name) && i < keyring->earlier_count; i++)
        if (strcmp(keyring->earlier[i].name, name) == 0 && keyring->count < TRAJD_KEYRING_LIMIT) {
            keyring->clients[keyring->count++] = keyring->earlier[i];
            return;
        }
}

static void exchange_clients(struct trajd_keyring *keyring)
{
    struct client *const clients = keyring->clients;
    const uint32_t count = keyring->count;
    keyring->clients = keyring->earlier;
    keyring->count = keyring->earlier_count;
    keyring->earlier = clients;
    keyring->earlier_count = count;
}

/* The directory cannot be read. Where the machine is to blame, all keys stay. */
static enum trajd_status lack_directory(struct trajd_keyring *keyring, int code,
                                        struct trajd_error *error)
{
    if (!is_of_the_machine(code))
        keyring->count = 0;
    return trajd_error_set(error, code == ENOENT ? TRAJD_ERR_NOT_FOUND : TRAJD_ERR_SYSTEM, code,
                           "%s: %s%s", keyring->clients_path, strerror(code),
                           code == ENOENT ? " (trajctl keygen makes this directory)" : "");
}

/* Reads all files of the directory, also after an error. Returns the first error. */
static enum trajd_status read_clients(struct trajd_keyring *keyring, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;
    struct stat before;
    DIR *directory = opendir(keyring->clients_path);
    keyring->settled = false;
    if (!directory || fstat(dirfd(directory), &before) != 0) {
        status = lack_directory(keyring, errno, error);
        if (directory)
            closedir(directory);
        return status;
    }
    keyring->changed = before.st_mtim;
    exchange_clients(keyring);
    keyring->count = 0;
    for (const struct dirent *entry; (errno = 0, entry = readdir(directory));) {
        struct trajd_error file_error;
        enum trajd_status added = add_client(keyring, entry->d_name, &file_error);
        if (added && is_of_the_machine(file_error.foreign_code))
            keep_client(keyring, entry->d_name);
        if (added && !status) {
            status = added;
            *error = file_error;
        }
    }
    if (errno) {
        exchange_clients(keyring);
        status = lack_directory(keyring, errno, error);
    }
    closedir(directory);
    keyring->settled = !status && time(NULL) > before.st_mtim.tv_sec + SETTLED_S;
    return status;
}

enum trajd_status trajd_keyring_create(const char *directory, struct trajd_keyring **out,
                                       struct trajd_error *error)
{
    char path[4352];
    struct trajd_keyring *keyring = calloc(1, sizeof *keyring);
    if (!keyring)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "%s: out of memory", directory);
    enum trajd_status status = TRAJD_OK;
    keyring->clients = calloc(TRAJD_KEYRING_LIMIT, sizeof *keyring->clients);
    keyring->earlier = calloc(TRAJD_KEYRING_LIMIT, sizeof *keyring->earlier);
    if (!keyring->clients || !keyring->earlier ||
        asprintf(&keyring->clients_path, "%s/clients", directory) < 0) {
        keyring->clients_path = NULL;
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "%s: out of memory", directory);
    }
    snprintf(path, sizeof path, "%s/server.key_secret", directory);
    if (!status)
        status = trajd_key_read_secret(path, &keyring->server, error);
    if (!status)
        status = read_clients(keyring, error);
    if (status) {
        trajd_keyring_destroy(&keyring);
        return status;
    }
    *out = keyring;
    return TRAJD_OK;
}

void trajd_keyring_destroy(struct trajd_keyring **pointer)
{
    struct trajd_keyring *keyring = *pointer;
    *pointer = NULL;
    if (!keyring)
        return;
    explicit_bzero(&keyring->server, sizeof keyring->server);
    free(keyring->clients);
    free(keyring->earlier);
    free(keyring->clients_path);
    free(keyring);
}

const struct trajd_key_file *trajd_keyring_server(const struct trajd_keyring *keyring)
{
    return &keyring->server;
}

uint32_t trajd_keyring_count(const struct trajd_keyring *keyring)
{
    return keyring->count;
}

static bool has_changed(const struct trajd_keyring *keyring)
{
    struct stat now;
    return !keyring->settled || stat(keyring->clients_path, &now) != 0 ||
           now.st_mtim.tv_sec != keyring->changed.tv_sec ||
           now.st_mtim.tv_nsec != keyring->changed.tv_nsec;
}

const char *trajd_keyring_find(struct trajd_keyring *keyring, const char *public_key,
                               struct trajd_error *error)
{
    error->status = TRAJD_OK;
    if (has_changed(keyring))
        read_clients(keyring, error);
    for (uint32_t i = 0; i < keyring->count; i++)
        if (strcmp(keyring->clients[i].public_key, public_key) == 0)
            return keyring->clients[i].name;
    return NULL;
}

bool trajd_keyring_is_gone(const struct trajd_keyring *keyring, const char *name,
                           const char *public_key)
{
    struct trajd_key_file keys;
    char path[4352];
    snprintf(path, sizeof path, "%s/%s" SUFFIX, keyring->clients_path, name);
    const enum trajd_status status = trajd_key_read(path, &keys, NULL);
    const bool is_other = !status && strcmp(keys.public_key, public_key) != 0;
    explicit_bzero(&keys, sizeof keys);
    return status == TRAJD_ERR_NOT_FOUND || is_other;
}
