/* Reads and writes files of CURVE keys. Their text format is ZPL, the certificates of czmq and
 * pyzmq, so that ZeroMQ's other tools can read them:
 *
 *     metadata
 *         name = "alice"
 *         server-key = "..."      the daemon's public key; only in a worker's secret file
 *     curve
 *         public-key = "..."
 *         secret-key = "..."      only in a secret file
 *
 * A key is 40 characters of Z85. Lines that begin with '#' are comments. Unknown keys and lines are
 * ignored. */
#ifndef TRAJD_PROTO_KEY_FILE_H
#define TRAJD_PROTO_KEY_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRAJD_KEY_SIZE 41u /* of a key's text, with the NUL */
#define TRAJD_KEY_NAME_SIZE 65u
#define TRAJD_KEY_FILE_LIMIT 8192u

struct trajd_key_file { /* "" for each value that the file lacks */
    char name[TRAJD_KEY_NAME_SIZE];
    char public_key[TRAJD_KEY_SIZE], secret_key[TRAJD_KEY_SIZE], server_key[TRAJD_KEY_SIZE];
};

/* Returns true if the text is exactly 40 characters of the Z85 alphabet. */
bool trajd_key_is_valid(const char *text);
/* Returns true if the name can be the name of a file: 1 to 64 letters, digits, '-', '_' and '.', of
 * which the first is a letter or digit. */
bool trajd_key_name_is_valid(const char *name);

/* Parses the text of a key file. `path` is used in messages only. TRAJD_ERR_ARGUMENT: the message
 * begins with "PATH:LINE:". After TRAJD_OK *keys has a public key. */
enum trajd_status trajd_key_parse(const char *path, const char *text, size_t size,
                                  struct trajd_key_file *keys, struct trajd_error *error);
/* Reads and parses a file. TRAJD_ERR_NOT_FOUND, TRAJD_ERR_SYSTEM, or an error of trajd_key_parse.
 */
enum trajd_status trajd_key_read(const char *path, struct trajd_key_file *keys,
                                 struct trajd_error *error);
/* Reads a file with a secret key. TRAJD_ERR_ARGUMENT also if it has no secret key, is not an
 * ordinary file, belongs neither to the effective user nor to root, or if group or others may use
 * it. */
enum trajd_status trajd_key_read_secret(const char *path, struct trajd_key_file *keys,
                                        struct trajd_error *error);
/* Writes a new file, with mode 0600 if it has a secret key, else 0644. TRAJD_ERR_BUSY: the file
 * exists already. */
enum trajd_status trajd_key_write(const char *path, const struct trajd_key_file *keys,
                                  struct trajd_error *error);

#ifdef __cplusplus
}
#endif
#endif
