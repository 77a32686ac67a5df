/* The CURVE keys of the tcp listener: the daemon's own pair, and the public keys of the workers
 * that may connect. Each worker has a file in one directory; trajctl keygen makes all these files.
 * The directory is read again when it has changed, so a worker can be admitted or shut out without
 * a restart. One thread at a time. */
#ifndef TRAJD_SERVER_KEYRING_H
#define TRAJD_SERVER_KEYRING_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/key_file.h"

#define TRAJD_KEYRING_LIMIT 4096u /* workers */

struct trajd_keyring;

/* Reads DIRECTORY/server.key_secret and DIRECTORY/clients/NAME.key. TRAJD_ERR_ARGUMENT,
 * TRAJD_ERR_NOT_FOUND, TRAJD_ERR_SYSTEM: the message names the file and the problem. */
enum trajd_status trajd_keyring_create(const char *directory, struct trajd_keyring **keyring,
                                       struct trajd_error *error);
void trajd_keyring_destroy(struct trajd_keyring **keyring);

/* Returns the daemon's own keys, borrowed from the keyring. */
const struct trajd_key_file *trajd_keyring_server(const struct trajd_keyring *keyring);
/* Returns the number of workers that may connect. */
uint32_t trajd_keyring_count(const struct trajd_keyring *keyring);
/* Returns the name of the worker with that public key (its file's name without ".key"), or NULL if
 * it may not connect. Borrowed until the next call. The worker of a file that cannot be read may
 * not connect: *error then names the file, in each call. Where no descriptor or memory is free, or
 * the storage fails, it may connect with the key that was read before. Otherwise the status of
 * *error is TRAJD_OK. */
const char *trajd_keyring_find(struct trajd_keyring *keyring, const char *public_key,
                               struct trajd_error *error);
/* Returns true if the worker `name` may no longer use that public key: its file is gone, or has
 * another key. Reads the file. A file that cannot be read at the moment (no descriptor is free, the
 * storage fails) shuts out no worker. */
bool trajd_keyring_is_gone(const struct trajd_keyring *keyring, const char *name,
                           const char *public_key);

#endif
