/* The keys of the tcp socket: the daemon's file_error pair, and the workers that may connect, a file each
 * in one directory (trajctl keygen makes both). That directory is read again when it has changed,
 * so a worker is let in or shut out without a restart; connections that exist stay. One thread at a
 * time. */
#ifndef TRAJD_SERVER_KEYRING_H
#define TRAJD_SERVER_KEYRING_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/key_file.h"

#define TRAJD_KEYRING_LIMIT 4096u /* workers */

struct trajd_keyring;

/* Reads DIRECTORY/server.key_secret and DIRECTORY/clients/NAME.key. TRAJD_ERR_ARGUMENT,
 * TRAJD_ERR_NOT_FOUND: which file, and why. */
enum trajd_status trajd_keyring_create(const char *directory, struct trajd_keyring **keyring,
                                       struct trajd_error *error);
void trajd_keyring_destroy(struct trajd_keyring **keyring);

const struct trajd_key_file *trajd_keyring_server(const struct trajd_keyring *keyring);
uint32_t trajd_keyring_count(const struct trajd_keyring *keyring);
/* The name (of the file, without ".key") of the worker with that public key, as text; NULL: it may
 * not connect. Valid until the next call. A file that cannot be read any more lets nobody in:
 * *error says so, each time (TRAJD_OK: none). */
const char *trajd_keyring_find(struct trajd_keyring *keyring, const char *public_key,
                               struct trajd_error *error);

#endif
