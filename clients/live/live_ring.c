/* Order of memory: the writer sets `begun` before the words of a row, which it stores with release.
 * A reader loads them with acquire: if it sees a word of a newer row, it also sees that row in
 * `begun`, and knows that its copy is spoilt. On x86 both are plain moves. */
#include "clients/live/live_ring.h"

#include <string.h>

static uint64_t *slot_of(const struct trajd_live_ring *ring, uint64_t row)
{
    return ring->words + (row & (ring->capacity - 1)) * (1 + (uint64_t)ring->row_words);
}

static uint64_t load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void store(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

void trajd_live_words_store(uint64_t *words, const void *bytes, size_t size)
{
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = 0;
        memcpy(&word, (const char *)bytes + at, size - at < 8 ? size - at : 8);
        store(words++, word);
    }
}

void trajd_live_words_load(const uint64_t *words, void *bytes, size_t size)
{
    for (size_t at = 0; at < size; at += 8) {
        const uint64_t word = load(words++);
        memcpy((char *)bytes + at, &word, size - at < 8 ? size - at : 8);
    }
}

uint64_t trajd_live_ring_begin(struct trajd_live_ring *ring)
{
    const uint64_t n = __atomic_load_n(&ring->pushed, __ATOMIC_RELAXED);

    __atomic_store_n(&ring->begun, n + 1, __ATOMIC_RELAXED);
    return n;
}

void trajd_live_ring_push(struct trajd_live_ring *ring, int64_t stamp_ns, const void *row)
{
    const uint64_t n = trajd_live_ring_begin(ring);
    uint64_t *slot = slot_of(ring, n);

    store(&slot[0], (uint64_t)stamp_ns);
    trajd_live_words_store(&slot[1], row, ring->row_bytes);
    if (n == __atomic_load_n(&ring->first, __ATOMIC_ACQUIRE))
        __atomic_store_n(&ring->first_ns, stamp_ns, __ATOMIC_RELAXED);
    store(&ring->pushed, n + 1);
}

int64_t trajd_live_ring_stamp(const struct trajd_live_ring *ring, uint64_t row)
{
    return (int64_t)load(slot_of(ring, row));
}

int64_t trajd_live_ring_newest(const struct trajd_live_ring *ring)
{
    const uint64_t n = load(&ring->pushed);

    return n > load(&ring->first) ? trajd_live_ring_stamp(ring, n - 1) : INT64_MIN;
}

struct trajd_live_rows trajd_live_ring_rows(const struct trajd_live_ring *ring)
{
    const uint64_t end = load(&ring->pushed), first = load(&ring->first);
    /* a quarter of the ring is left to the writer while the reader works */
    const uint64_t kept = ring->capacity - ring->capacity / 4;
    const uint64_t oldest = end > kept ? end - kept : 0;
    struct trajd_live_rows rows = {.begin = oldest > first ? oldest : first, .end = end};

    rows.begin = rows.begin < end ? rows.begin : end;
    rows.is_cut = rows.begin > first && rows.begin == oldest;
    return rows;
}

uint64_t trajd_live_ring_after(const struct trajd_live_ring *ring, struct trajd_live_rows rows,
                               int64_t x_ns)
{
    uint64_t low = rows.begin, high = rows.end;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (trajd_live_ring_stamp(ring, middle) <= x_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void trajd_live_ring_copy(const struct trajd_live_ring *ring, uint64_t begin, uint64_t end,
                          int64_t *stamps_ns, uint64_t *words)
{
    for (uint64_t row = begin; row < end; row++, words += ring->row_words) {
        const uint64_t *slot = slot_of(ring, row);
        stamps_ns[row - begin] = (int64_t)load(&slot[0]);
        for (uint32_t w = 0; w < ring->row_words; w++)
            words[w] = load(&slot[1 + w]);
    }
}

bool trajd_live_ring_kept(const struct trajd_live_ring *ring, struct trajd_live_rows rows)
{
    return load(&ring->begun) <= rows.begin + ring->capacity;
}

void trajd_live_ring_reset(struct trajd_live_ring *ring)
{
    store(&ring->first, load(&ring->pushed));
}
