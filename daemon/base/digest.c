/* Computes the 64-bit digest, word by word. */
#include "daemon/base/digest.h"

#include <endian.h>
#include <string.h>

static uint64_t step(uint64_t state, uint64_t word)
{
    state = (state ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return state ^ (state >> 29);
}

void trajd_digest_init(struct trajd_digest *digest)
{
    *digest = (struct trajd_digest){.state = UINT64_C(0x74726A6464696731)};
}

static void add_byte(struct trajd_digest *digest, uint8_t byte)
{
    digest->pending |= (uint64_t)byte << (8 * (digest->length % 8));
    if (++digest->length % 8 == 0) {
        digest->state = step(digest->state, digest->pending);
        digest->pending = 0;
    }
}

void trajd_digest_add(struct trajd_digest *digest, const void *bytes, size_t length)
{
    const uint8_t *next = bytes;
    uint64_t state;
    size_t words;

    for (; length && digest->length % 8; length--)
        add_byte(digest, *next++);
    state = digest->state;
    words = length / 8;
    for (size_t i = 0; i < words; i++, next += 8) {
        uint64_t word;
        memcpy(&word, next, 8);
        state = step(state, le64toh(word));
    }
    digest->state = state;
    digest->length += words * 8;
    for (length %= 8; length; length--)
        add_byte(digest, *next++);
}

void trajd_digest_add_u64(struct trajd_digest *digest, uint64_t value)
{
    value = htole64(value);
    trajd_digest_add(digest, &value, sizeof value);
}

void trajd_digest_add_text(struct trajd_digest *digest, const char *text)
{
    size_t length = text ? strlen(text) : 0;

    trajd_digest_add_u64(digest, text ? length : UINT64_MAX);
    trajd_digest_add(digest, text ? text : "", length);
}

uint64_t trajd_digest_end(const struct trajd_digest *digest)
{
    uint64_t h = step(step(digest->state, digest->pending), digest->length);

    h = (h ^ (h >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    h = (h ^ (h >> 27)) * UINT64_C(0x94D049BB133111EB);
    return h ^ (h >> 31);
}

uint64_t trajd_digest_of(const void *bytes, size_t length)
{
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    trajd_digest_add(&digest, bytes, length);
    return trajd_digest_end(&digest);
}

uint64_t trajd_fnv(uint64_t hash, const void *bytes, size_t length)
{
    const uint8_t *next = bytes;

    for (size_t i = 0; i < length; i++)
        hash = (hash ^ next[i]) * UINT64_C(0x100000001b3);
    return hash;
}
