/* The rings of rows: what is kept, what is searched, and a writer beside a reader. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "clients/live/live_ring.h"

#define COLUMNS 5

static void make(struct trajd_live_ring *ring, uint64_t capacity, size_t row_bytes)
{
    *ring = (struct trajd_live_ring){
        .capacity = capacity, .row_bytes = row_bytes, .row_words = (uint32_t)((row_bytes + 7) / 8)};
    ring->words = calloc(capacity, (1 + ring->row_words) * sizeof *ring->words);
    assert_non_null(ring->words);
}

static void push(struct trajd_live_ring *ring, int64_t value)
{
    int64_t row[COLUMNS];

    for (int i = 0; i < COLUMNS; i++)
        row[i] = value * 10 + i;
    trajd_live_ring_push(ring, value, row);
}

/* Copies rows and checks that each is whole. */
static void check_rows(const struct trajd_live_ring *ring, uint64_t begin, uint64_t end,
                       const int64_t *stamps, const uint64_t *words)
{
    for (uint64_t row = 0; row < end - begin; row++)
        for (uint32_t i = 0; i < ring->row_words; i++)
            assert_int_equal((int64_t)words[row * ring->row_words + i], stamps[row] * 10 + i);
}

static void rows_are_kept_and_found(void **state)
{
    struct trajd_live_ring ring;
    struct trajd_live_rows rows;
    int64_t stamps[8];
    uint64_t words[8 * COLUMNS];

    (void)state;
    make(&ring, 8, COLUMNS * sizeof(int64_t));
    assert_int_equal(trajd_live_ring_newest(&ring), INT64_MIN);
    for (int64_t value = 1; value <= 5; value++)
        push(&ring, value * 2);
    rows = trajd_live_ring_rows(&ring);
    assert_true(rows.begin == 0 && rows.end == 5 && !rows.is_cut);
    assert_int_equal(trajd_live_ring_newest(&ring), 10);
    assert_int_equal(ring.first_ns, 2);
    for (int64_t x = 0; x < 12; x++) /* stamps 2, 4, 6, 8, 10 */
        assert_int_equal(trajd_live_ring_after(&ring, rows, x), x / 2 < 5 ? x / 2 : 5);
    trajd_live_ring_copy(&ring, 1, 5, stamps, words);
    assert_int_equal(stamps[0], 4);
    check_rows(&ring, 1, 5, stamps, words);
    for (int64_t value = 6; value <= 100; value++)
        push(&ring, value * 2);
    rows = trajd_live_ring_rows(&ring);
    assert_true(rows.end == 100 && rows.begin == 94 && rows.is_cut); /* three quarters of 8 */
    assert_true(trajd_live_ring_kept(&ring, rows));
    push(&ring, 300);
    push(&ring, 301);
    assert_true(trajd_live_ring_kept(&ring, rows));
    push(&ring, 302); /* in the place of row 94 */
    assert_false(trajd_live_ring_kept(&ring, rows));
    free(ring.words);
}

static void a_reset_begins_anew(void **state)
{
    struct trajd_live_ring ring;
    struct trajd_live_rows rows;

    (void)state;
    make(&ring, 8, COLUMNS * sizeof(int64_t));
    for (int64_t value = 1; value <= 50; value++)
        push(&ring, value);
    trajd_live_ring_reset(&ring);
    rows = trajd_live_ring_rows(&ring);
    assert_true(rows.begin == 50 && rows.end == 50 && !rows.is_cut);
    assert_int_equal(trajd_live_ring_newest(&ring), INT64_MIN);
    push(&ring, 7);
    rows = trajd_live_ring_rows(&ring);
    assert_true(rows.begin == 50 && rows.end == 51 && !rows.is_cut);
    assert_int_equal(ring.first_ns, 7);
    free(ring.words);
}

static void rows_of_any_size(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 20; bytes++) {
        struct trajd_live_ring ring;
        uint8_t row[20], copied[24] = {0};
        int64_t stamp;
        make(&ring, 64, bytes);
        for (size_t i = 0; i < sizeof row; i++)
            row[i] = (uint8_t)(i + 1);
        trajd_live_ring_push(&ring, 3, bytes ? row : NULL);
        trajd_live_ring_copy(&ring, 0, 1, &stamp, (uint64_t *)copied);
        assert_memory_equal(copied, row, bytes);
        for (size_t i = bytes; i < sizeof copied; i++)
            assert_int_equal(copied[i], 0);
        free(ring.words);
    }
}

/* ---- a writer beside a reader ---- */

#define ROWS 300000

struct side {
    struct trajd_live_ring ring;
    bool is_done; /* the reader has seen enough */
};

static void *write_rows(void *context)
{
    struct side *side = context;

    for (int64_t value = 1; value <= ROWS || !__atomic_load_n(&side->is_done, __ATOMIC_ACQUIRE);
         value++)
        push(&side->ring, value);
    return NULL;
}

static void a_reader_sees_whole_rows_or_notices(void **state)
{
    static struct side side;
    static int64_t stamps[64];
    static uint64_t words[64 * COLUMNS];
    uint32_t kept = 0;
    pthread_t thread;

    (void)state;
    make(&side.ring, 64, COLUMNS * sizeof(int64_t));
    assert_int_equal(pthread_create(&thread, NULL, write_rows, &side), 0);
    while (kept < 500) {
        const struct trajd_live_rows rows = trajd_live_ring_rows(&side.ring);
        trajd_live_ring_copy(&side.ring, rows.begin, rows.end, stamps, words);
        if (rows.end == rows.begin || !trajd_live_ring_kept(&side.ring, rows))
            continue;
        check_rows(&side.ring, rows.begin, rows.end, stamps, words);
        for (uint64_t i = 0; i < rows.end - rows.begin; i++)
            assert_int_equal(stamps[i], (int64_t)(rows.begin + i + 1));
        kept++;
    }
    __atomic_store_n(&side.is_done, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    free(side.ring.words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_kept_and_found),
        cmocka_unit_test(a_reset_begins_anew),
        cmocka_unit_test(rows_of_any_size),
        cmocka_unit_test(a_reader_sees_whole_rows_or_notices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
