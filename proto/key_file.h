/* Files of CURVE keys, as text that ZeroMQ's other tools read too (ZPL, the certificates of czmq
 * and pyzmq):
 *
 *     metadata
 *         name = "alice"
 *         server-key = "..."      only in a worker's secret file: the daemon that it is for
 *     curve
 *         public-key = "..."
 *         secret-key = "..."      only in a secret file
 *
 * Keys are 40 characters of Z85. Lines that begin with '#' are comments; what is not known is
 * passed over. */
#ifndef TRAJD_PROTO_KEY_FILE_H
#define TRAJD_PROTO_KEY_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRAJD_KEY_SIZE 41u /* of a key's text, NUL included */
#define TRAJD_KEY_NAME_SIZE 65u
#define TRAJD_KEY_FILE_LIMIT 8192u

struct trajd_key_file { /* "" where the file has none */
    char name[TRAJD_KEY_NAME_SIZE];
    char public_key[TRAJD_KEY_SIZE], secret_key[TRAJD_KEY_SIZE], server_key[TRAJD_KEY_SIZE];
};

/* 40 characters of the Z85 alphabet, and nothing behind them. */
bool trajd_key_is_valid(const char *text);
/* 1 to 64 letters, digits, '-', '_' and '.', the first none of these three: it becomes a file's
 * name. */
bool trajd_key_name_is_valid(const char *name);

/* `path` is for messages alone. TRAJD_ERR_ARGUMENT: "PATH:LINE: what". There is a public key when
 * this returns TRAJD_OK. */
enum trajd_status trajd_key_parse(const char *path, const char *text, size_t size,
                                  struct trajd_key_file *keys, struct trajd_error *error);
enum trajd_status trajd_key_read(const char *path, struct trajd_key_file *keys,
                                 struct trajd_error *error);
/* The same for a file with a secret key, which must be an ordinary file of ours (or root's) that
 * nobody else may read or write: else TRAJD_ERR_ARGUMENT. */
enum trajd_status trajd_key_read_secret(const char *path, struct trajd_key_file *keys,
                                        struct trajd_error *error);
/* A new file, 0600 if there is a secret key in it, else 0644. TRAJD_ERR_BUSY: there is one already.
 */
enum trajd_status trajd_key_write(const char *path, const struct trajd_key_file *keys,
                                  struct trajd_error *error);

#ifdef __cplusplus
}
#endif
#endif
