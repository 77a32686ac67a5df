/* The keyed permutation, and the mixing of bits under it. What version 1 yields is recorded in
 * tests/golden/sampler and never changes. */
#include <math.h>

#include "daemon/window/order/permute.h"

/* 2^64 over the golden ratio: successive multiples are far apart */
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* A bijection of 64-bit words in which each input bit changes each output bit (the finaliser of
 * splitmix64). */
static uint64_t scramble(uint64_t x)
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
static uint64_t add_within(uint64_t n, uint64_t x, uint64_t y)
{
    return x + y < n ? x + y : x + y - n;
}

/* Maps a scrambled word to a number below n by its upper bits. */
static uint64_t scale_below(uint64_t n, uint64_t word)
{
    return (uint64_t)((unsigned __int128)word * n >> 64);
}

void trajd_permutation_make(struct trajd_permutation *permutation, uint64_t key, uint64_t n)
{
    permutation->n = n;
    permutation->a = square_root_up(n);
    permutation->b = n / permutation->a + (n % permutation->a != 0);
    for (uint64_t round = 0; round < TRAJD_PERMUTATION_ROUNDS; round++)
        permutation->keys[round] = scramble(key + (round + 1) * GOLDEN);
}

/* A round is a chain of multiplications. Interleaving several cells keeps the processor busy. */
#define GROUP_CELLS 8

/* Lays [0, n) out as a rectangle of a rows of b columns, with fewer than a cells too many. Each
 * round moves a cell along its column by an amount that depends on its column, or along its row by
 * an amount that depends on its row. Both are bijections of the rectangle. */
static void move_cells(const struct trajd_permutation *permutation, uint64_t *cells, uint32_t count)
{
    const uint64_t a = permutation->a, b = permutation->b;
    uint64_t rows[GROUP_CELLS], columns[GROUP_CELLS];

    for (uint32_t i = 0; i < count; i++) {
        rows[i] = cells[i] / b;
        columns[i] = cells[i] % b;
    }
    for (uint32_t round = 0; round < TRAJD_PERMUTATION_ROUNDS; round += 2) {
        for (uint32_t i = 0; i < count; i++)
            rows[i] = add_within(a, rows[i],
                                 scale_below(a, scramble(permutation->keys[round] + columns[i])));
        for (uint32_t i = 0; i < count; i++)
            columns[i] = add_within(
                b, columns[i], scale_below(b, scramble(permutation->keys[round + 1] + rows[i])));
    }
    for (uint32_t i = 0; i < count; i++)
        cells[i] = rows[i] * b + columns[i];
}

void trajd_permutation_map(const struct trajd_permutation *permutation, uint64_t *positions,
                           uint32_t count)
{
    for (uint32_t first = 0; first < count; first += GROUP_CELLS)
        move_cells(permutation, positions + first,
                   count - first < GROUP_CELLS ? count - first : GROUP_CELLS);
    /* about one in sqrt(n) cells lies outside [0, n) and is moved again */
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
