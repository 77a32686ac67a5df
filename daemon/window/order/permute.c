/* The keyed permutation, and the mixing of bits under it. What version 1 yields is recorded in
 * tests/golden/sampler and never changes. */
#include <math.h>
#include <string.h>

#include "daemon/window/order/permute.h"
#include "kernels/clones.h"

/* 2^64 over the golden ratio: successive multiples are far apart */
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* A bijection of 64-bit words in which each input bit changes each output bit (the finaliser of
 * splitmix64). */
TRAJD_INLINE uint64_t scramble(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t trajd_mix(const uint64_t *words, uint32_t count)
{
    uint64_t mixed = count;

    for (uint32_t i = 0; i < count; i++)
        mixed = scramble((mixed + GOLDEN) ^ words[i]);
    return scramble(mixed + GOLDEN);
}

#define GROUP_CELLS 16 /* that are moved together */

/* Returns the smallest a with a * a >= n, for n >= 1. */
static uint64_t square_root_up(uint64_t n)
{
    uint64_t a = (uint64_t)sqrt((double)n); /* a first guess; the two loops make it exact */

    while ((unsigned __int128)a * a >= n)
        a--;
    while ((unsigned __int128)a * a < n)
        a++;
    return a;
}

/* Returns x + y mod n, for x, y < n <= 2^32. */
TRAJD_INLINE uint64_t add_within(uint64_t n, uint64_t x, uint64_t y)
{
    const int64_t over = (int64_t)(x + y - n);

    return over < 0 ? x + y : (uint64_t)over;
}

/* Maps a scrambled word to a number below n <= 2^32 by its upper bits: returns word * n / 2^64, by
 * products of 32 bits, because vectors have no longer ones. The last term is for n = 2^32. */
TRAJD_INLINE uint64_t scale_below(uint64_t n, uint64_t word)
{
    const uint64_t low = (uint64_t)(uint32_t)word * (uint32_t)n,
                   high = (uint64_t)(uint32_t)(word >> 32) * (uint32_t)n;

    return ((high + (low >> 32)) >> 32) + ((word >> 32) & -(n >> 32));
}

void trajd_permutation_make(struct trajd_permutation *permutation, uint64_t key, uint64_t n)
{
    permutation->n = n;
    permutation->a = square_root_up(n);
    permutation->b = n / permutation->a + (n % permutation->a != 0);
    for (uint64_t round = 0; round < TRAJD_PERMUTATION_ROUNDS; round++)
        permutation->keys[round] = scramble(key + (round + 1) * GOLDEN);
}

/* Lays [0, n) out as a rectangle of a rows of b columns, with fewer than a cells too many. Each
 * round moves a cell along its column by an amount that depends on its column, or along its row by
 * an amount that depends on its row. Both are bijections of the rectangle. */
TRAJD_INLINE void move_cells(const struct trajd_permutation *permutation, uint64_t *positions,
                             uint32_t count)
{
    const uint64_t a = permutation->a, b = permutation->b;
    uint64_t rows[GROUP_CELLS], columns[GROUP_CELLS];

    for (uint32_t i = 0; i < count; i++) {
        rows[i] = positions[i] / b;
        columns[i] = positions[i] % b;
    }
    for (uint32_t round = 0; round < TRAJD_PERMUTATION_ROUNDS; round += 2) {
        const uint64_t down = permutation->keys[round], right = permutation->keys[round + 1];
        for (uint32_t i = 0; i < count; i++)
            rows[i] = add_within(a, rows[i], scale_below(a, scramble(down + columns[i])));
        for (uint32_t i = 0; i < count; i++)
            columns[i] = add_within(b, columns[i], scale_below(b, scramble(right + rows[i])));
    }
    for (uint32_t i = 0; i < count; i++)
        positions[i] = rows[i] * b + columns[i];
}

/* Moves GROUP_CELLS cells, some at a time in the lanes of vectors. */
TRAJD_WIDE_CLONES
static void move_group(const struct trajd_permutation *permutation, uint64_t *positions)
{
    move_cells(permutation, positions, GROUP_CELLS);
}

void trajd_permutation_map(const struct trajd_permutation *permutation, uint64_t *positions,
                           uint32_t count)
{
    uint64_t last[GROUP_CELLS] = {0};
    const uint32_t whole = count - count % GROUP_CELLS;

    for (uint32_t first = 0; first < whole; first += GROUP_CELLS)
        move_group(permutation, positions + first);
    if (count - whole > 1) {
        memcpy(last, positions + whole, (count - whole) * sizeof *last);
        move_group(permutation, last);
        memcpy(positions + whole, last, (count - whole) * sizeof *last);
    } else if (count > whole) {
        move_cells(permutation, &positions[whole], 1);
    }
    /* about one in sqrt(n) cells is outside [0, n) and is moved again */
    for (uint32_t i = 0; i < count; i++)
        while (positions[i] >= permutation->n)
            move_cells(permutation, &positions[i], 1);
}

uint64_t trajd_permute(uint64_t key, uint64_t n, uint64_t position)
{
    struct trajd_permutation permutation;

    trajd_permutation_make(&permutation, key, n);
    trajd_permutation_map(&permutation, &position, 1);
    return position;
}
