/* SHA-256 in lower-case hexadecimal. Only this file uses libsodium. */
#ifndef TRAJD_CLI_PREPROCESS_PREP_DIGEST_H
#define TRAJD_CLI_PREPROCESS_PREP_DIGEST_H

#include <stddef.h>

#include "proto/error.h"

enum { PREP_DIGEST_SIZE = 65 }; /* includes the NUL */

void prep_digest_bytes(const void *bytes, size_t size, char digest[PREP_DIGEST_SIZE]);
/* Computes the digest of the whole file with pread. `name` is the file's name for errors.
 * TRAJD_ERR_IO. */
enum trajd_status prep_digest_file(int fd, const char *name, char digest[PREP_DIGEST_SIZE],
                                   struct trajd_error *error);

#endif
