/* Schemas: what trajd.h shows of an OPENED, and which tensors are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "clients/c/tensors.h"
#include "proto/array_len.h"
#include "proto/ring_layout.h"

#define SLOT_HEADER_BYTES sizeof(struct trajd_slot_header)
#define BATCH 4u

static struct trajd_wire_tensor make_tensor(const char *name, enum trajd_dtype dtype,
                                            uint64_t offset_bytes, uint32_t rank,
                                            const uint64_t *shape)
{
    struct trajd_wire_tensor tensor = {.name = trajd_wire_text(name),
                                       .role = trajd_wire_text("obs"),
                                       .dtype = dtype,
                                       .rank = rank,
                                       .offset_bytes = offset_bytes};
    memcpy(tensor.shape, shape, rank * sizeof *shape);
    return tensor;
}

static enum trajd_status create(const struct trajd_wire_tensor *tensors, uint32_t count,
                                uint64_t slot_size_bytes, struct trajd_schema **schema,
                                struct trajd_error *error)
{
    const struct trajd_wire_opened opened = {.batch = BATCH,
                                             .slot_size_bytes = slot_size_bytes,
                                             .tensor_count = count,
                                             .tensors = tensors};
    return trajd_schema_create(&opened, schema, error);
}

static void test_a_schema_is_an_owned_copy(void **state)
{
    (void)state;
    char name[] = "obs/image";
    struct trajd_error error;
    struct trajd_schema *schema;
    struct trajd_wire_tensor tensors[2] = {
        make_tensor(name, TRAJD_U8, 64, 4, (uint64_t[]){BATCH, 3, 5, 2}),
        make_tensor("actions.mask", TRAJD_I64, 256, 2, (uint64_t[]){BATCH, 2})};
    tensors[1].role = trajd_wire_text("mask");
    tensors[1].of = trajd_wire_text("actions");
    assert_int_equal(create(tensors, 2, 4096, &schema, &error), TRAJD_OK);
    memset(name, 'x', strlen(name));
    const struct trajd_schema_tensor *image = &schema->tensors[0], *mask = &schema->tensors[1];
    assert_int_equal(schema->tensor_count, 2);
    assert_int_equal(schema->global_batch, BATCH);
    assert_string_equal(image->shape.name, "obs/image");
    assert_string_equal(image->shape.role, "obs");
    assert_null(image->shape.of);
    assert_null(image->shape.data);
    assert_int_equal(image->shape.rank, 4);
    const int64_t strides_bytes[] = {30, 10, 2, 1};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(image->shape.strides_bytes[i], strides_bytes[i]);
    assert_int_equal(image->row_size_bytes, 30);
    assert_int_equal(image->offset_bytes, 64);
    assert_string_equal(mask->shape.of, "actions");
    assert_int_equal(mask->row_size_bytes, 16);
    assert_ptr_equal(trajd_schema_hold(schema), schema);
    trajd_schema_drop(schema);
    assert_string_equal(mask->shape.name, "actions.mask"); /* a reference is still held */
    trajd_schema_drop(schema);
    trajd_schema_drop(NULL);
}

static void test_a_schema_without_tensors(void **state)
{
    (void)state;
    struct trajd_error error;
    struct trajd_schema *schema;
    assert_int_equal(create(NULL, 0, 4096, &schema, &error), TRAJD_OK);
    assert_int_equal(schema->tensor_count, 0);
    trajd_schema_drop(schema);
}

static void test_a_tensor_may_fill_its_slot(void **state)
{
    (void)state;
    struct trajd_error error;
    struct trajd_schema *schema;
    const struct trajd_wire_tensor tensor = make_tensor(
        "x", TRAJD_U8, SLOT_HEADER_BYTES, 2, (uint64_t[]){BATCH, (4096 - SLOT_HEADER_BYTES) / 4});
    assert_int_equal(create(&tensor, 1, 4096, &schema, &error), TRAJD_OK);
    trajd_schema_drop(schema);
}

static void test_bad_tensors_are_refused(void **state)
{
    (void)state;
    const struct trajd_wire_tensor bad[] = {
        make_tensor("header", TRAJD_U8, SLOT_HEADER_BYTES - 1, 1, (uint64_t[]){BATCH}),
        make_tensor("behind", TRAJD_U8, 4093, 1, (uint64_t[]){BATCH}),
        make_tensor("far", TRAJD_U8, UINT64_MAX - 1, 1, (uint64_t[]){BATCH}),
        make_tensor("odd", TRAJD_F32, 66, 1, (uint64_t[]){BATCH}),
        make_tensor("rows", TRAJD_U8, 64, 1, (uint64_t[]){BATCH + 1}),
        make_tensor("wide", TRAJD_U8, 64, 2, (uint64_t[]){BATCH, UINT64_MAX}),
        make_tensor("product", TRAJD_F64, 64, 3,
                    (uint64_t[]){BATCH, UINT64_C(1) << 40, UINT64_C(1) << 40}),
        make_tensor("scalar", TRAJD_U8, 64, 0, (uint64_t[]){BATCH}),
        make_tensor("dtype", (enum trajd_dtype)99, 64, 1, (uint64_t[]){BATCH}),
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct trajd_error error;
        struct trajd_schema *schema = NULL;
        assert_int_equal(create(&bad[i], 1, 4096, &schema, &error), TRAJD_ERR_PROTOCOL);
        assert_null(schema);
        assert_non_null(strstr(error.message, bad[i].name.data));
    }
    struct trajd_wire_tensor deep = make_tensor("deep", TRAJD_U8, 64, 1, (uint64_t[]){BATCH});
    struct trajd_error error;
    struct trajd_schema *schema = NULL;
    deep.rank = TRAJD_TENSOR_RANK_LIMIT + 1; /* one more dimension than trajd.h has room for */
    assert_int_equal(create(&deep, 1, 4096, &schema, &error), TRAJD_ERR_PROTOCOL);
}

/* Tensors may overlap in a ring, but a payload has them one after the other. */
static void test_all_tensors_together_fit_a_slot(void **state)
{
    (void)state;
    struct trajd_error error;
    struct trajd_schema *schema;
    const struct trajd_wire_tensor half =
        make_tensor("half", TRAJD_U8, 64, 2, (uint64_t[]){BATCH, 512});
    const struct trajd_wire_tensor tensors[] = {half, half, half};
    assert_int_equal(create(tensors, 2, 4096, &schema, &error), TRAJD_OK);
    trajd_schema_drop(schema);
    assert_int_equal(create(tensors, 3, 4096, &schema, &error), TRAJD_ERR_PROTOCOL);
}

/* Images that the worker finishes: scale and shift are copied, and what does not fit is
 * refused. */
static void test_images_to_finish(void **state)
{
    (void)state;
    struct trajd_error error;
    struct trajd_schema *schema;
    float scale[] = {2, 3, 4, 5}, shift[] = {-1, 0, 1, 2};
    struct trajd_wire_tensor good =
        make_tensor("obs/image", TRAJD_U8, 64, 5, (uint64_t[]){BATCH, 1, 2, 5, 3});
    good.finished = TRAJD_F16;
    good.planes = 1;
    good.scale = (struct trajd_wire_bytes){scale, 3 * sizeof *scale};
    good.shift = (struct trajd_wire_bytes){shift, 3 * sizeof *shift};
    assert_int_equal(create(&good, 1, 4096, &schema, &error), TRAJD_OK);
    scale[1] = shift[1] = 9;
    const struct trajd_finish *finish = schema->tensors[0].shape.finish;
    assert_non_null(finish);
    assert_int_equal(finish->dtype, TRAJD_F16);
    assert_true(finish->is_planes);
    assert_int_equal(finish->channel_count, 3);
    assert_true(finish->scale[1] == 3 && finish->shift[1] == 0);
    trajd_schema_drop(schema);
    struct trajd_wire_tensor bad[8];
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        bad[i] = good;
    bad[0].dtype = TRAJD_I8;
    bad[1].rank = 4; /* planes of one number a pixel */
    bad[2].shape[4] = 5;
    bad[3].finished = TRAJD_I64;
    bad[4].finished = TRAJD_U8; /* with a scale */
    bad[5].scale.size = bad[5].shift.size = 0;
    bad[6].shift.size -= sizeof *shift;
    bad[7].scale.size = bad[7].shift.size = 2 * sizeof *scale;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(create(&bad[i], 1, 4096, &schema, &error), TRAJD_ERR_PROTOCOL);
        assert_non_null(strstr(error.message, "obs/image cannot be finished"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_schema_is_an_owned_copy),
        cmocka_unit_test(test_a_schema_without_tensors),
        cmocka_unit_test(test_a_tensor_may_fill_its_slot),
        cmocka_unit_test(test_bad_tensors_are_refused),
        cmocka_unit_test(test_all_tensors_together_fit_a_slot),
        cmocka_unit_test(test_images_to_finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
