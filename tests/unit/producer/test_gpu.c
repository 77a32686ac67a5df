/* gpu.c, gpu_resident_rows.c and gpu_fill.c over the stand-in GPU of tests/fake/device_host.c: the
 * two budgets, and which rows become resident. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/producer/gpu.h"
#include "unit/producer/small_dataset.h"

#define MIB (UINT64_C(1) << 20)
#define ROW_BYTES 512u /* of each array on the GPU: two episodes, each rounded up to 256 bytes */

static const uint32_t both[] = {0, 1};
static const struct trajd_selection selection = {both, 2, NULL};

struct fixture {
    struct trajd_pool *pool;
    struct small_dataset *small;
    struct trajd_gpu *gpu;
    const void *rows[SMALL_EPISODES * 2];
    bool unreadable[SMALL_EPISODES], held[2];
    struct trajd_error error;
    char text[2048];
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    f->small = small_dataset_create("small", MIB);
    if (trajd_pool_create(2, "test", &f->pool, &f->error))
        fail_msg("%s", f->error.message);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    trajd_gpu_close(&f->gpu);
    trajd_pool_destroy(&f->pool);
    small_dataset_destroy(&f->small);
    free(f);
    return 0;
}

static enum trajd_status open_gpu(struct fixture *f, uint32_t index, uint64_t rows_bytes,
                                  uint64_t rings_bytes)
{
    const struct trajd_gpu_options options = {
        .index = index, .rows_bytes = rows_bytes, .rings_bytes = rings_bytes, .pool = f->pool};

    return trajd_gpu_open(&options, &f->gpu, &f->error);
}

static enum trajd_status hold(struct fixture *f)
{
    memset(f->rows, 0, sizeof f->rows);
    memset(f->unreadable, 0, sizeof f->unreadable);
    return trajd_gpu_hold_rows(f->gpu, &f->small->dataset, &selection, f->rows, f->unreadable,
                               f->held, &f->error);
}

static void drop(struct fixture *f)
{
    trajd_gpu_drop_rows(f->gpu, &f->small->dataset, &selection, f->held);
}

static void expect_described(struct fixture *f, const char *part)
{
    struct trajd_json json = {.out = fmemopen(f->text, sizeof f->text, "w")};

    trajd_gpu_describe(f->gpu, &json);
    fclose(json.out);
    if (!strstr(f->text, part))
        fail_msg("%s lacks %s", f->text, part);
}

static void budgets_must_be_free(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(open_gpu(f, 0, UINT64_C(7) << 30, UINT64_C(2) << 30), TRAJD_ERR_MEMORY);
    assert_non_null(
        strstr(f->error.message, "gpu.rows and gpu.rings need 9216 MiB, but only 8192 MiB"));
    assert_null(f->gpu);
    assert_int_equal(open_gpu(f, 99, MIB, MIB), TRAJD_ERR_NOT_FOUND);
    assert_null(f->gpu);
}

static void rings_come_from_their_budget(void **state)
{
    struct fixture *f = *state;
    void *ring, *other;

    assert_int_equal(open_gpu(f, 0, MIB, 5 * MIB), TRAJD_OK);
    assert_int_equal(trajd_gpu_take_ring(f->gpu, MIB, "a ring", &ring, &f->error), TRAJD_OK);
    assert_non_null(ring);
    expect_described(f, "\"rings_bytes\":2097152"); /* whole allocations of the driver */
    assert_int_equal(trajd_gpu_take_ring(f->gpu, 3 * MIB, "a ring", &other, &f->error),
                     TRAJD_ERR_MEMORY);
    assert_null(other);
    assert_non_null(strstr(f->error.message, "a ring: needs 3145728 bytes, but gpu.rings on"));
    assert_non_null(strstr(f->error.message, "has only 3145728 bytes left"));
    assert_int_equal(trajd_gpu_take_ring(f->gpu, 2 * MIB, "a ring", &other, &f->error), TRAJD_OK);
    trajd_gpu_return_ring(f->gpu, other, 2 * MIB);
    trajd_gpu_return_ring(f->gpu, ring, MIB);
    trajd_gpu_return_ring(f->gpu, NULL, MIB);
    expect_described(f, "\"rings_bytes\":0");
}

/* Memory of the stand-in can be read by the host. */
static void resident_rows_are_those_of_the_file(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(open_gpu(f, 0, MIB, MIB), TRAJD_OK);
    if (hold(f))
        fail_msg("%s", f->error.message);
    assert_true(f->held[0] && f->held[1]);
    for (uint32_t e = 0; e < SMALL_EPISODES; e++) {
        const float(*pos)[SMALL_COLUMNS] = f->rows[e * 2];
        const float *cmd = f->rows[e * 2 + 1];
        assert_false(f->unreadable[e]);
        for (uint32_t row = 0; row < SMALL_ROWS; row++) {
            for (uint32_t c = 0; c < SMALL_COLUMNS; c++)
                assert_float_equal(pos[row][c], small_pos(e, row, c), 0);
            assert_float_equal(cmd[row], small_cmd(e, row), 0);
        }
    }
    expect_described(f, "\"rows_bytes\":1024");
    expect_described(f, "\"path\":\"obs/pos\",\"bytes\":512,\"place\":\"gpu\",\"feeds\":1");
    drop(f);
    expect_described(f, "\"rows_bytes\":0");
    expect_described(f, "\"resident\":[]");
}

static void feeds_share_resident_rows(void **state)
{
    struct fixture *f = *state;
    const void *first;

    assert_int_equal(open_gpu(f, 0, MIB, MIB), TRAJD_OK);
    assert_int_equal(hold(f), TRAJD_OK);
    first = f->rows[0];
    assert_int_equal(hold(f), TRAJD_OK);
    assert_ptr_equal(f->rows[0], first);
    expect_described(f, "\"rows_bytes\":1024");
    expect_described(f, "\"feeds\":2");
    drop(f);
    expect_described(f, "\"feeds\":1");
    drop(f);
    expect_described(f, "\"resident\":[]");
}

static void arrays_over_the_budget_stay_in_host_memory(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(open_gpu(f, 0, ROW_BYTES + 1, MIB), TRAJD_OK);
    assert_int_equal(hold(f), TRAJD_OK);
    assert_true(f->held[0]);
    assert_false(f->held[1]);
    assert_non_null(f->rows[0]);
    assert_null(f->rows[1]);
    assert_false(f->unreadable[0]); /* streamed, not unreadable */
    expect_described(f, "\"path\":\"cmd\",\"bytes\":512,\"place\":\"host\",\"feeds\":1");
    expect_described(f, "\"rows_bytes\":512");
    drop(f);
    expect_described(f, "\"resident\":[]");
}

static void unreadable_rows_are_marked(void **state)
{
    struct fixture *f = *state;

    unlink(f->small->data.path);
    assert_int_equal(open_gpu(f, 0, MIB, MIB), TRAJD_OK);
    assert_int_equal(hold(f), TRAJD_OK);
    for (uint32_t e = 0; e < SMALL_EPISODES; e++) {
        assert_true(f->unreadable[e]);
        assert_null(f->rows[e * 2]);
    }
    drop(f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(budgets_must_be_free),
        TEST(rings_come_from_their_budget),
        TEST(resident_rows_are_those_of_the_file),
        TEST(feeds_share_resident_rows),
        TEST(arrays_over_the_budget_stay_in_host_memory),
        TEST(unreadable_rows_are_marked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
