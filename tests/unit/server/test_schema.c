/* trajd_feed_schema_layout: offsets, slot sizes, and schemas that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/server/server.h"
#include "proto/array_len.h"

static struct trajd_wire_tensor byte_tensor(const char *name, uint64_t columns)
{
    return (struct trajd_wire_tensor){.name = trajd_wire_text(name),
                                      .role = trajd_wire_text("obs"),
                                      .dtype = TRAJD_U8,
                                      .rank = 2,
                                      .shape = {3, columns}};
}

static void test_tensors_are_aligned(void **state)
{
    (void)state;
    struct trajd_error error;
    struct trajd_wire_tensor tensors[] = {
        byte_tensor("a", 5),
        {.name = trajd_wire_text("b"),
         .role = trajd_wire_text("obs"),
         .dtype = TRAJD_F64,
         .rank = 1,
         .shape = {3}},
        byte_tensor("c", 1),
    };
    struct trajd_feed_schema schema = {.global_batch = 3, .tensor_count = 3, .tensors = tensors};
    assert_int_equal(trajd_feed_schema_layout(&schema, &error), TRAJD_OK);
    assert_int_equal(tensors[0].offset_bytes, 64); /* behind the slot header */
    assert_int_equal(tensors[1].offset_bytes, 128);
    assert_int_equal(tensors[2].offset_bytes, 192);
    assert_int_equal(schema.slot_size_bytes, 4096);
}

static struct trajd_wire_tensor frames(const char *name, const char *role, uint64_t width)
{
    return (struct trajd_wire_tensor){.name = trajd_wire_text(name),
                                      .role = trajd_wire_text(role),
                                      .dtype = TRAJD_U8,
                                      .rank = 5,
                                      .shape = {3, 2, 4, width, 3}};
}

static void test_cameras_that_are_alike_lie_side_by_side(void **state)
{
    (void)state;
    struct trajd_error error;
    struct trajd_wire_tensor tensors[] = {
        frames("a", "obs", 8), byte_tensor("a.mask", 2), frames("b", "obs", 9),
        frames("c", "obs", 8), byte_tensor("c.mask", 2), frames("d", "next", 8),
        frames("e", "obs", 8),
    };
    /* 576 bytes each, but b with 648; masks have 6 */
    static const uint64_t offsets[] = {64, 1792, 1856, 640, 2560, 2624, 1216};
    struct trajd_feed_schema schema = {
        .global_batch = 3, .tensor_count = ARRAY_LEN(tensors), .tensors = tensors};
    assert_int_equal(trajd_feed_schema_layout(&schema, &error), TRAJD_OK);
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++)
        assert_int_equal(tensors[i].offset_bytes, offsets[i]);
    assert_int_equal(schema.slot_size_bytes, 4096);
}

static void test_slots_are_whole_pages(void **state)
{
    (void)state;
    static const struct {
        uint64_t columns, slot_size_bytes;
    } cases[] = {{0, 4096}, {1344, 4096}, {1345, 8192}};
    struct trajd_error error;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_wire_tensor tensor = byte_tensor("a", cases[i].columns);
        struct trajd_feed_schema schema = {
            .global_batch = 3, .tensor_count = 1, .tensors = &tensor};
        assert_int_equal(trajd_feed_schema_layout(&schema, &error), TRAJD_OK);
        assert_int_equal(schema.slot_size_bytes, cases[i].slot_size_bytes);
    }
}

static void test_sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    struct trajd_error error;
    struct trajd_wire_tensor tensors[] = {byte_tensor("a", 5), byte_tensor("b", 5)};
    struct trajd_feed_schema schema = {.global_batch = 3, .tensor_count = 2, .tensors = tensors};
    static const uint64_t columns[] = {UINT64_C(1) << 63, UINT64_MAX / 3, UINT64_MAX / 6,
                                       (INT64_MAX / 3) - 1};
    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        tensors[0].shape[1] = tensors[1].shape[1] = columns[i];
        assert_int_equal(trajd_feed_schema_layout(&schema, &error), TRAJD_ERR_MEMORY);
        assert_non_null(strstr(error.message, "overflows"));
    }
}

static void test_invalid_tensors_are_named(void **state)
{
    (void)state;
    struct trajd_error error;
    struct trajd_wire_tensor tensors[] = {byte_tensor("good", 5), byte_tensor("bad", 5)};
    struct trajd_feed_schema schema = {.global_batch = 3, .tensor_count = 2, .tensors = tensors};
    const struct trajd_wire_tensor bad[] = {
        {.name = {"bad", 3}, .dtype = TRAJD_U8, .rank = 1, .shape = {4}}, /* not the global batch */
        {.name = {"bad", 3}, .dtype = TRAJD_U8, .rank = 0},
        {.name = {"bad", 3}, .dtype = TRAJD_U8, .rank = TRAJD_WIRE_MAX_RANK + 1, .shape = {3}},
        {.name = {"bad", 3}, .dtype = TRAJD_DTYPE_NONE, .rank = 1, .shape = {3}},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        tensors[1] = bad[i];
        assert_int_equal(trajd_feed_schema_layout(&schema, &error), TRAJD_ERR_ARGUMENT);
        assert_non_null(strstr(error.message, "tensor bad:"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_are_aligned),
        cmocka_unit_test(test_cameras_that_are_alike_lie_side_by_side),
        cmocka_unit_test(test_slots_are_whole_pages),
        cmocka_unit_test(test_sizes_that_overflow_are_refused),
        cmocka_unit_test(test_invalid_tensors_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
