/* producer_create.c, producer.c and producer_norm.c on the CPU: the tensors of a slot, the
 * values, masks and ids of a batch, rows that cannot be read, and normalisation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/producer/producer_internal.h"
#include "proto/ring_layout.h"
#include "unit/producer/small_dataset.h"

#define G 8u
#define OUTPUTS "outputs: {pos: {at: -1..0}, cmd: {at: 0..2, role: action}}"
#define FEED                                                                                       \
    "dataset: small\nglobal_batch: 8\norder: sequential\nanchor: {clock: steps}\n"                 \
    "pad: {before: 1, after: any, with: edge}\n"

static const struct trajd_log quiet = {.fd = -1, .level = TRAJD_LOG_ERROR};

struct fixture {
    struct small_dataset *small;
    struct trajd_stats_service *stats_service;
    struct trajd_window_spec *spec;
    struct trajd_producer *producer;
    uint8_t *slot;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    const struct trajd_stats_service_options options = {.log = &quiet};
    struct trajd_error error;

    f->small = small_dataset_create("small", 1 << 20);
    if (trajd_stats_service_create(&options, &f->stats_service, &error))
        fail_msg("%s", error.message);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    trajd_producer_destroy(&f->producer);
    trajd_window_spec_destroy(&f->spec);
    trajd_stats_service_destroy(&f->stats_service);
    small_dataset_destroy(&f->small);
    free(f->slot);
    free(f);
    return 0;
}

static struct trajd_producer_options options_of(const struct fixture *f,
                                                struct trajd_window_spec *spec,
                                                struct trajd_dataset *const *datasets)
{
    return (struct trajd_producer_options){.name = "feed",
                                           .spec = spec,
                                           .datasets = datasets,
                                           .max_credit = 16,
                                           .rings_limit_bytes = 1 << 20,
                                           .stats_service = f->stats_service,
                                           .log = &quiet};
}

/* Makes the producer of a feed without a server. */
static enum trajd_status try_feed(struct fixture *f, const char *text, struct trajd_error *error)
{
    struct trajd_dataset *const datasets[] = {&f->small->dataset};
    struct trajd_producer_options options;

    f->spec = small_spec("feed", text);
    options = options_of(f, f->spec, datasets);
    return trajd_producer_create(&options, &f->producer, error);
}

static void make_feed(struct fixture *f, const char *text)
{
    struct trajd_error error;

    if (try_feed(f, text, &error))
        fail_msg("%s", error.message);
}

/* Makes the batch at `position`; its rows [0, count) are read. */
static enum trajd_status make_batch(struct fixture *f, uint64_t position, uint32_t count,
                                    struct trajd_error *error)
{
    const struct trajd_rows rows = {0, count};
    struct trajd_fill fill = {
        .position = position, .row_count = count, .range_count = 1, .ranges = &rows};
    enum trajd_status status;

    if (!f->slot) {
        if (trajd_producer_load_rows(f->producer, error))
            fail_msg("%s", error->message);
        f->slot = calloc(1, f->producer->schema.slot_size_bytes);
    }
    fill.memory = f->slot;
    trajd_mixture_batch_look_up(f->producer->batch, 0, position, count);
    status = trajd_producer_make_rows(f->producer, &fill, rows, error);
    trajd_producer_write_ids(f->producer, &fill);
    return status;
}

static const struct trajd_wire_tensor *tensor(const struct fixture *f, const char *name)
{
    for (uint32_t t = 0; t < f->producer->schema.tensor_count; t++)
        if (trajd_wire_text_equals(f->producer->schema.tensors[t].name, name))
            return &f->producer->schema.tensors[t];
    fail_msg("no tensor %s", name);
    return NULL;
}

static const void *tensor_data(const struct fixture *f, const char *name)
{
    return f->slot + tensor(f, name)->offset_bytes;
}

/* ---- the schema ---- */

static void a_slot_holds_outputs_masks_and_ids(void **state)
{
    static const struct {
        const char *name, *role, *of;
        enum trajd_dtype dtype;
        uint32_t rank;
        uint64_t shape[3];
    } wanted[] = {
        {"pos", "obs", NULL, TRAJD_F32, 3, {G, 2, SMALL_COLUMNS}},
        {"pos.mask", "mask", "pos", TRAJD_U8, 2, {G, 2}},
        {"cmd", "action", NULL, TRAJD_F32, 2, {G, 3}},
        {"cmd.mask", "mask", "cmd", TRAJD_U8, 2, {G, 3}},
        {"window_id", "ids", NULL, TRAJD_I64, 1, {G}},
        {"dataset_index", "ids", NULL, TRAJD_I64, 1, {G}},
        {"episode_index", "ids", NULL, TRAJD_I64, 1, {G}},
        {"anchor_ns", "ids", NULL, TRAJD_I64, 1, {G}},
    };
    struct fixture *f = *state;
    const struct trajd_feed_schema *schema;

    make_feed(f, FEED OUTPUTS);
    schema = &f->producer->schema;
    assert_int_equal(schema->tensor_count, sizeof wanted / sizeof *wanted);
    for (uint32_t t = 0; t < schema->tensor_count; t++) {
        const struct trajd_wire_tensor *found = &schema->tensors[t];
        assert_true(trajd_wire_text_equals(found->name, wanted[t].name));
        assert_true(trajd_wire_text_equals(found->role, wanted[t].role));
        assert_true((found->of.size == 0) == (wanted[t].of == NULL));
        if (wanted[t].of)
            assert_true(trajd_wire_text_equals(found->of, wanted[t].of));
        assert_int_equal(found->dtype, wanted[t].dtype);
        assert_int_equal(found->rank, wanted[t].rank);
        for (uint32_t i = 0; i < found->rank; i++)
            assert_int_equal(found->shape[i], wanted[t].shape[i]);
        assert_int_equal(found->offset_bytes % TRAJD_TENSOR_ALIGNMENT, 0);
    }
    assert_int_equal(schema->slot_size_bytes % TRAJD_RING_ALIGNMENT, 0);
    assert_int_equal(f->producer->batch->members[0]->outputs[1].offset_bytes,
                     schema->tensors[2].offset_bytes);
    assert_int_equal(f->producer->batch->members[0]->outputs[1].mask_offset_bytes,
                     schema->tensors[3].offset_bytes);
}

static void wrap_adds_a_tensor(void **state)
{
    struct fixture *f = *state;
    struct trajd_error error;
    const uint8_t *wrapped;

    make_feed(f, FEED "tail: wrap\n" OUTPUTS);
    assert_int_equal(tensor(f, "wrapped")->dtype, TRAJD_BOOL);
    /* 40 windows fill five batches: none is repeated */
    assert_int_equal(make_batch(f, 32, G, &error), TRAJD_OK);
    wrapped = tensor_data(f, "wrapped");
    for (uint32_t row = 0; row < G; row++)
        assert_int_equal(wrapped[row], 0);
}

static void a_ring_over_the_budget_is_refused(void **state)
{
    struct fixture *f = *state;
    struct trajd_dataset *const datasets[] = {&f->small->dataset};
    struct trajd_producer_options options;
    struct trajd_error error;

    f->spec = small_spec("feed", FEED OUTPUTS);
    options = options_of(f, f->spec, datasets);
    options.rings_limit_bytes = 4096;
    assert_int_equal(trajd_producer_create(&options, &f->producer, &error), TRAJD_ERR_MEMORY);
    assert_null(f->producer);
    assert_non_null(strstr(error.message, "but memory.rings allows 4096: set memory.rings to "));
}

/* ---- rows ---- */

/* Row r of the dataset's window w (of episode e, anchor a) with edges repeated. */
static int64_t clamp(int64_t row)
{
    return row < 0 ? 0 : row >= SMALL_ROWS ? SMALL_ROWS - 1 : row;
}

static void check_row(const struct fixture *f, uint32_t row, uint64_t position)
{
    const float(*pos)[2][SMALL_COLUMNS] = tensor_data(f, "pos");
    const float(*cmd)[3] = tensor_data(f, "cmd");
    const uint8_t(*pos_mask)[2] = tensor_data(f, "pos.mask");
    const uint8_t(*cmd_mask)[3] = tensor_data(f, "cmd.mask");
    const uint32_t e = (uint32_t)(position / SMALL_ROWS);
    const int64_t a = (int64_t)(position % SMALL_ROWS);

    for (int64_t t = 0; t < 2; t++) {
        for (uint32_t c = 0; c < SMALL_COLUMNS; c++)
            assert_float_equal(pos[row][t][c], small_pos(e, clamp(a + t - 1), c), 0);
        assert_int_equal(pos_mask[row][t], a + t < 1 ? TRAJD_MASK_BEFORE_START : TRAJD_MASK_VALID);
    }
    for (int64_t t = 0; t < 3; t++) {
        assert_float_equal(cmd[row][t], small_cmd(e, clamp(a + t)), 0);
        assert_int_equal(cmd_mask[row][t],
                         a + t >= SMALL_ROWS ? TRAJD_MASK_AFTER_END : TRAJD_MASK_VALID);
    }
    assert_int_equal(((const int64_t *)tensor_data(f, "window_id"))[row], position);
    assert_int_equal(((const int64_t *)tensor_data(f, "dataset_index"))[row], 0);
    assert_int_equal(((const int64_t *)tensor_data(f, "episode_index"))[row], e);
    assert_int_equal(((const int64_t *)tensor_data(f, "anchor_ns"))[row], a * 100000000);
}

static void batches_hold_the_rows_of_the_file(void **state)
{
    struct fixture *f = *state;
    struct trajd_error error;

    make_feed(f, FEED OUTPUTS);
    assert_int_equal(trajd_mixture_plan_epoch_length(f->producer->plan),
                     SMALL_EPISODES * SMALL_ROWS);
    for (uint64_t position = 0; position < SMALL_EPISODES * SMALL_ROWS; position += G) {
        assert_int_equal(make_batch(f, position, G, &error), TRAJD_OK);
        for (uint32_t row = 0; row < G; row++)
            check_row(f, row, position + row);
    }
    assert_true(f->producer->members[0].resident);
    assert_int_equal(trajd_counter_read(&f->producer->members[0].windows),
                     SMALL_EPISODES * SMALL_ROWS);
}

/* Of a cache with room for one episode, a batch over both is made in halves. */
static void a_small_cache_makes_a_batch_in_halves(void **state)
{
    struct fixture *f = *state;
    struct trajd_cache_stats stats;
    struct trajd_error error;

    small_dataset_destroy(&f->small);
    f->small = small_dataset_create("small", 320);
    make_feed(f, FEED OUTPUTS);
    assert_int_equal(make_batch(f, SMALL_ROWS - 4, G, &error), TRAJD_OK);
    for (uint32_t row = 0; row < G; row++)
        check_row(f, row, SMALL_ROWS - 4 + row);
    assert_false(f->producer->members[0].resident);
    trajd_cache_get_stats(f->small->dataset.cache, &stats);
    assert_int_equal(stats.pinned_bytes, 0);
}

static void unreadable_rows_are_an_error(void **state)
{
    struct fixture *f = *state;
    struct trajd_error error;

    unlink(f->small->data.path);
    make_feed(f, FEED OUTPUTS);
    assert_int_not_equal(make_batch(f, 0, G, &error), TRAJD_OK);
    assert_non_null(strstr(error.message, "rows.h5"));
}

static void unreadable_rows_are_kept_as_nan(void **state)
{
    struct fixture *f = *state;
    struct trajd_error error;
    const float *pos;
    const uint8_t *mask;

    unlink(f->small->data.path);
    make_feed(f, FEED "bad_rows: keep\n" OUTPUTS);
    assert_int_equal(make_batch(f, 0, G, &error), TRAJD_OK);
    pos = tensor_data(f, "pos");
    mask = tensor_data(f, "pos.mask");
    for (uint32_t i = 0; i < G * 2 * SMALL_COLUMNS; i++)
        assert_true(isnan(pos[i]));
    for (uint32_t i = 0; i < G * 2; i++)
        assert_int_equal(mask[i], TRAJD_MASK_MISSING);
}

/* ---- normalisation ---- */

static enum trajd_status normalise(struct fixture *f, const struct trajd_window_spec *other,
                                   bool with_server, struct trajd_error *error)
{
    struct trajd_producer_options *options = &f->producer->options;
    enum trajd_status status;

    options->server = with_server ? (struct trajd_server *)f : NULL; /* only compared with NULL */
    options->statistics_spec = other;
    options->statistics_dataset = &f->small->dataset;
    status = trajd_producer_normalise(f->producer, error);
    options->server = NULL;
    return status;
}

static void min_max_maps_to_minus_one_and_one(void **state)
{
    struct fixture *f = *state;
    struct trajd_error error;
    const float *cmd;
    char text[512] = "";
    FILE *out;

    make_feed(f, FEED "outputs: {cmd: {at: 0..2, role: action, norm: min_max}}");
    assert_false(f->producer->norm_is_known); /* without a server nothing is computed */
    out = fmemopen(text, sizeof text - 1, "w");
    trajd_producer_report_norm(f->producer, out);
    fclose(out);
    assert_non_null(strstr(text, "norm cmd: min_max"));
    assert_non_null(strstr(text, "to be computed"));
    if (normalise(f, NULL, true, &error))
        fail_msg("%s", error.message);
    assert_true(f->producer->norm_is_known);
    assert_int_equal(make_batch(f, 0, G, &error), TRAJD_OK);
    cmd = tensor_data(f, "cmd");
    assert_float_equal(cmd[0], 1, 1e-6); /* cmd goes from 0 down to -119 */
    assert_int_equal(make_batch(f, 32, G, &error), TRAJD_OK);
    assert_float_equal(cmd[3 * G - 1], -1, 1e-6);
}

static void statistics_from_another_feed(void **state)
{
    struct fixture *f = *state;
    struct trajd_window_spec *other = small_spec("train", FEED OUTPUTS),
                             *chained =
                                 small_spec("train", FEED "statistics_from: first\n" OUTPUTS),
                             *lacking = small_spec("train", FEED "outputs: {pos: {at: 0}}");
    struct trajd_error error;

    make_feed(f, FEED OUTPUTS);
    trajd_producer_destroy(&f->producer);
    trajd_window_spec_destroy(&f->spec);
    assert_int_equal(
        try_feed(f, FEED "statistics_from: train\noutputs: {cmd: {at: 0, norm: mean_std}}", &error),
        TRAJD_ERR_NOT_FOUND);
    assert_non_null(strstr(error.message, "no feed train in this daemon's configuration"));
    f->producer = NULL;
    trajd_window_spec_destroy(&f->spec);
    make_feed(f, FEED "outputs: {cmd: {at: 0, norm: mean_std}}");
    f->spec->statistics_from = "train";
    assert_string_equal(trajd_producer_norm_source(f->producer), "train");
    assert_int_equal(normalise(f, chained, true, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "first"));
    assert_int_equal(normalise(f, lacking, true, &error), TRAJD_ERR_NOT_FOUND);
    assert_non_null(strstr(error.message, "has no output of that name"));
    if (normalise(f, other, true, &error))
        fail_msg("%s", error.message);
    assert_true(f->producer->norm_is_known);
    trajd_window_spec_destroy(&other);
    trajd_window_spec_destroy(&chained);
    trajd_window_spec_destroy(&lacking);
}

static void feeds_that_normalise_differently_are_found(void **state)
{
    static const char norm[] = FEED "outputs: {cmd: {at: 0, norm: mean_std}}";
    struct fixture *f = *state;
    struct trajd_dataset *const datasets[] = {&f->small->dataset};
    struct trajd_window_spec *same = small_spec("same", norm),
                             *narrow = small_spec("valid", FEED "split: 0..0.5\n"
                                                                "outputs: {cmd: {at: 1..2, role: "
                                                                "action, norm: mean_std}}");
    struct trajd_producer_options options = options_of(f, same, datasets);
    struct trajd_producer *other;
    struct trajd_error error;

    make_feed(f, norm);
    if (trajd_producer_create(&options, &other, &error))
        fail_msg("%s", error.message);
    assert_null(trajd_producer_norm_differs(f->producer, other));
    trajd_producer_destroy(&other);
    options.spec = narrow;
    if (!trajd_producer_create(&options, &other, &error)) {
        assert_string_equal(trajd_producer_norm_differs(f->producer, other), "cmd");
        trajd_producer_destroy(&other);
    }
    trajd_window_spec_destroy(&same);
    trajd_window_spec_destroy(&narrow);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_slot_holds_outputs_masks_and_ids),
        TEST(wrap_adds_a_tensor),
        TEST(a_ring_over_the_budget_is_refused),
        TEST(batches_hold_the_rows_of_the_file),
        TEST(a_small_cache_makes_a_batch_in_halves),
        TEST(unreadable_rows_are_an_error),
        TEST(unreadable_rows_are_kept_as_nan),
        TEST(min_max_maps_to_minus_one_and_one),
        TEST(statistics_from_another_feed),
        TEST(feeds_that_normalise_differently_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
