/* convert_journal.c: a written journal is read again; a truncated or changed one, or one of another
 * plan, is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clients/cli/resample/convert_journal.h"

enum { HEAD = 8 * (5 + 4 + 1), RECORD = 8 * 2 + 2 * 16 + 8 };

static const struct trajd_convert_options options = {.output = "out.hdf5"};

/* Two episodes with a contiguous dataset of 8 bytes per row and a dataset in chunks of 3 rows; 5
 * and 6 steps: two chunks each. */
struct hand {
    struct convert_dataset datasets[2];
    struct convert_array arrays[2][2];
    struct convert_episode episodes[2];
    struct convert_plan plan;
    struct convert_chunk chunk_rows[2][2];
    struct convert_chunk *chunk_arrays[2][2];
    struct convert_chunk **chunks[2];
};

static void set_up(struct hand *hand)
{
    *hand = (struct hand){
        .datasets = {{.row_bytes = 8},
                     {.row_bytes = 8, .is_compressed = true, .chunk_rows = 3, .tile_count = 1}}};
    for (uint32_t e = 0; e < 2; e++) {
        hand->arrays[e][0] = (struct convert_array){.dataset = 0, .offset = 1000 + 100 * e};
        hand->arrays[e][1] = (struct convert_array){.dataset = 1, .offset = UINT64_MAX};
        hand->episodes[e] = (struct convert_episode){
            .step_count = 5 + e, .array_count = 2, .arrays = hand->arrays[e]};
        hand->chunk_arrays[e][1] = hand->chunk_rows[e];
        hand->chunks[e] = hand->chunk_arrays[e];
        for (uint32_t c = 0; c < 2; c++)
            hand->chunk_rows[e][c] = (struct convert_chunk){10 * e + c, 20 + c, 0};
    }
    hand->plan = (struct convert_plan){.options = &options,
                                       .dataset_count = 2,
                                       .datasets = hand->datasets,
                                       .episode_count = 2,
                                       .episodes = hand->episodes,
                                       .digest = 77};
}

/* Returns a journal with both episodes in memory. */
static uint8_t *write_journal(struct hand *hand)
{
    const struct convert_journal_head head = {.file_size = 5000, .signature = 0x1234};
    const int fd = memfd_create("journal", 0);
    uint8_t *bytes = malloc(HEAD + 2 * RECORD + 1);

    assert_int_equal(convert_journal_begin(fd, &hand->plan, &head, NULL), TRAJD_OK);
    assert_int_equal(convert_journal_append(fd, &hand->plan, 1, hand->chunks[1], NULL), TRAJD_OK);
    assert_int_equal(convert_journal_append(fd, &hand->plan, 0, hand->chunks[0], NULL), TRAJD_OK);
    assert_int_equal(pread(fd, bytes, HEAD + 2 * RECORD + 1, 0), HEAD + 2 * RECORD);
    close(fd);
    return bytes;
}

static enum trajd_status read_journal(struct hand *hand, const uint8_t *bytes, size_t length,
                                      bool *done, size_t *used)
{
    struct convert_journal_head head;
    struct trajd_error error;

    done[0] = done[1] = false;
    return convert_journal_read(bytes, length, &hand->plan, &head, done,
                                (struct convert_chunk *const *const *)hand->chunks, 100, used,
                                &error);
}

static void a_written_journal_is_read(void **state)
{
    struct hand hand;
    size_t used = 0;
    bool done[2];
    uint8_t *bytes;

    (void)state;
    set_up(&hand);
    bytes = write_journal(&hand);
    memset(hand.chunk_rows, 0, sizeof hand.chunk_rows);
    hand.arrays[1][0].offset = 0;
    assert_int_equal(read_journal(&hand, bytes, HEAD + 2 * RECORD, done, &used), TRAJD_OK);
    assert_int_equal(used, HEAD + 2 * RECORD);
    assert_true(done[0] && done[1]);
    assert_int_equal(hand.arrays[1][0].offset, 1100);
    assert_int_equal(hand.chunk_rows[1][1].offset, 11);
    assert_int_equal(hand.chunk_rows[1][1].size, 21);
    free(bytes);
}

/* At every length: the complete records are read, and none if the head is truncated. */
static void a_truncation_costs_only_the_lost_records(void **state)
{
    struct hand hand;
    size_t used = 0;
    bool done[2];
    uint8_t *bytes;

    (void)state;
    set_up(&hand);
    bytes = write_journal(&hand);
    for (size_t length = 0; length <= HEAD + 2 * RECORD; length++) {
        const enum trajd_status status = read_journal(&hand, bytes, length, done, &used);
        if (length < HEAD) {
            assert_int_equal(status, TRAJD_ERR_NOT_FOUND);
            continue;
        }
        assert_int_equal(status, TRAJD_OK);
        assert_int_equal(done[1], length >= HEAD + RECORD);
        assert_int_equal(done[0], length >= HEAD + 2 * RECORD);
        assert_int_equal(used, HEAD + (length - HEAD) / RECORD * RECORD);
    }
    free(bytes);
}

/* With each bit flipped: an episode is lost, or all; no wrong record is accepted. */
static void a_changed_bit_is_found(void **state)
{
    struct hand hand;
    size_t used = 0;
    bool done[2];
    uint8_t *bytes;

    (void)state;
    set_up(&hand);
    bytes = write_journal(&hand);
    for (size_t bit = 0; bit < 8 * (HEAD + 2 * RECORD); bit++) {
        enum trajd_status status;
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        status = read_journal(&hand, bytes, HEAD + 2 * RECORD, done, &used);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (bit / 8 < HEAD)
            assert_int_not_equal(status, TRAJD_OK);
        else
            assert_false(done[0]);
        assert_true(bit / 8 < HEAD || done[1] == (bit / 8 >= HEAD + RECORD));
    }
    free(bytes);
}

static void another_plan_or_file_is_refused(void **state)
{
    struct hand hand;
    size_t used = 0;
    bool done[2];
    uint8_t *bytes;

    (void)state;
    set_up(&hand);
    hand.chunk_rows[0][0].offset = 90; /* 20 bytes at 90 of a spool of 100 */
    bytes = write_journal(&hand);
    assert_int_equal(read_journal(&hand, bytes, HEAD + 2 * RECORD, done, &used), TRAJD_OK);
    assert_true(done[1] && !done[0]);
    hand.plan.digest++;
    assert_int_equal(read_journal(&hand, bytes, HEAD + 2 * RECORD, done, &used),
                     TRAJD_ERR_ARGUMENT);
    free(bytes);
    set_up(&hand);
    hand.arrays[1][0].offset = 4960; /* 48 bytes at 4960 of 5000 */
    bytes = write_journal(&hand);
    assert_int_equal(read_journal(&hand, bytes, HEAD + 2 * RECORD, done, &used), TRAJD_ERR_DATA);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_journal_is_read),
        cmocka_unit_test(a_truncation_costs_only_the_lost_records),
        cmocka_unit_test(a_changed_bit_is_found),
        cmocka_unit_test(another_plan_or_file_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
