#include "clients/cli/preprocess/prep_digest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

enum { BLOCK_BYTES = 1 << 20 };

static void finish(crypto_hash_sha256_state *state, char digest[PREP_DIGEST_SIZE])
{
    unsigned char bytes[crypto_hash_sha256_BYTES];

    crypto_hash_sha256_final(state, bytes);
    sodium_bin2hex(digest, PREP_DIGEST_SIZE, bytes, sizeof bytes);
}

void prep_digest_bytes(const void *bytes, size_t size, char digest[PREP_DIGEST_SIZE])
{
    crypto_hash_sha256_state state;

    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, bytes, size);
    finish(&state, digest);
}

enum trajd_status prep_digest_file(int fd, const char *name, char digest[PREP_DIGEST_SIZE],
                                   struct trajd_error *error)
{
    unsigned char *block = malloc(BLOCK_BYTES);
    crypto_hash_sha256_state state;
    ssize_t got = 1;

    if (!block)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "%s: no memory", name);
    crypto_hash_sha256_init(&state);
    for (off_t at = 0; got; at += got) {
        got = pread(fd, block, BLOCK_BYTES, at);
        if (got < 0) {
            free(block);
            return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", name, strerror(errno));
        }
        crypto_hash_sha256_update(&state, block, (unsigned long long)got);
    }
    free(block);
    finish(&state, digest);
    return TRAJD_OK;
}
