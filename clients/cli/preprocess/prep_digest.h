/* SHA-256, as lower-case hexadecimal. The only user of libsodium. */
#ifndef TRAJD_CLI_PREPROCESS_PREP_DIGEST_H
#define TRAJD_CLI_PREPROCESS_PREP_DIGEST_H

#include <stddef.h>

#include "proto/error.h"

enum { PREP_DIGEST_SIZE = 65 }; /* with its NUL */

void prep_digest_bytes(const void *bytes, size_t size, char digest[PREP_DIGEST_SIZE]);
/* All of the file, by pread. TRAJD_ERR_IO. `name` is what the error names. */
enum trajd_status prep_digest_file(int fd, const char *name, char digest[PREP_DIGEST_SIZE],
                                   struct trajd_error *error);

#endif
