/* A streaming 64-bit digest of bytes, for checksums of cache files, layout hashes and fingerprints.
 * It does not protect against forgery.
 *
 * Words of 8 little-endian bytes: s = (s ^ word) * 0x9E3779B97F4A7C15, s ^= s >> 29. Bytes are
 * buffered to whole words, so that the digest depends on the bytes alone and not on how they were
 * split. The last word is padded with zero bytes and followed by the total length; the result is
 * mixed once more (the finaliser of splitmix64). Cache files and fingerprints are defined by it, so
 * it never changes; a new version would replace it under a new name. */
#ifndef TRAJD_BASE_DIGEST_H
#define TRAJD_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

struct trajd_digest {
    uint64_t state;
    uint64_t length;
    uint64_t pending; /* length % 8 bytes that do not fill a word yet */
};

void trajd_digest_init(struct trajd_digest *digest);
void trajd_digest_add(struct trajd_digest *digest, const void *bytes, size_t length);
void trajd_digest_add_u64(struct trajd_digest *digest, uint64_t value);
/* Adds the text's length and then the text, so that "ab","c" and "a","bc" differ. NULL differs from
 * "". */
void trajd_digest_add_text(struct trajd_digest *digest, const char *text);
uint64_t trajd_digest_end(const struct trajd_digest *digest);

/* Returns the digest of these bytes alone. */
uint64_t trajd_digest_of(const void *bytes, size_t length);

/* FNV-1a, 64 bits: for splits, names and plan keys, whose values were fixed with it. Begin with
 * TRAJD_FNV_BEGIN and pass the result on to continue. */
#define TRAJD_FNV_BEGIN UINT64_C(0xcbf29ce484222325)
uint64_t trajd_fnv(uint64_t hash, const void *bytes, size_t length);

#endif
