/* The codec: each kind and shape of member forth and back, and each rule that bytes can break. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/array_len.h"
#include "proto/codec.h"

enum fruit { NO_FRUIT, APPLE, PEAR };

struct chunk {
    uint64_t offset;
    uint32_t size, mask;
};

struct step {
    uint32_t count;
    const char *unit; /* may be NULL */
};

struct plan {
    uint8_t small;
    int16_t shift;
    uint64_t big;
    bool is_on;
    float narrow;
    double wide;
    enum fruit fruit;
    const char *name, *note;
    struct trajd_codec_view view, blob;
    uint32_t rank;
    uint64_t shape[4], grid[4]; /* grid: as long as shape */
    uint8_t fill[4];
    uint64_t step_count;
    struct step *steps;
    uint32_t word_count;
    const char **words; /* one may be NULL */
    uint32_t stamp_count;
    int64_t *stamps;
    uint64_t chunk_count;
    struct chunk *chunks;
    struct step inner, *extra; /* extra: may be NULL */
    bool has_seed;
    uint32_t seed;
};

static const char *const fruits[] = {[NO_FRUIT] = "", [APPLE] = "apple", [PEAR] = "pear", NULL};

static const struct trajd_codec_field step_fields[] = {
    {"count", TRAJD_CODEC_UINT, TRAJD_CODEC_ONE(struct step, count), .low = 1, .high = 100},
    {"unit", TRAJD_CODEC_TEXT, TRAJD_CODEC_ONE(struct step, unit), .high = 4,
     .flags = TRAJD_CODEC_OPTIONAL},
};
static const struct trajd_codec_table step_table =
    TRAJD_CODEC_TABLE(struct step, step_fields, TRAJD_CODEC_ROW, NULL);

static const char *check_plan(void *value, void *context)
{
    const struct plan *plan = value;

    return context && plan->small == *(const uint8_t *)context ? "small is the forbidden one"
                                                               : NULL;
}

#define ONE(member) TRAJD_CODEC_ONE(struct plan, member)
#define OPTIONAL .flags = TRAJD_CODEC_OPTIONAL
static const struct trajd_codec_field plan_fields[] = {
    {"small", TRAJD_CODEC_UINT, ONE(small), OPTIONAL},
    {"shift", TRAJD_CODEC_INT, ONE(shift), .low = -300, .high = 300, OPTIONAL},
    {"big", TRAJD_CODEC_UINT, ONE(big), OPTIONAL},
    {"is_on", TRAJD_CODEC_BOOL, ONE(is_on), OPTIONAL},
    {"narrow", TRAJD_CODEC_FLOAT, ONE(narrow), .low = -2, .high = 2, OPTIONAL},
    {"wide", TRAJD_CODEC_FLOAT, ONE(wide), OPTIONAL},
    {"fruit", TRAJD_CODEC_WORD, ONE(fruit), .words = fruits, OPTIONAL},
    {"name", TRAJD_CODEC_TEXT, ONE(name)},
    {"note", TRAJD_CODEC_TEXT, ONE(note), .flags = TRAJD_CODEC_OPTIONAL | TRAJD_CODEC_LINES},
    {"view", TRAJD_CODEC_VIEW, ONE(view), .high = 8, OPTIONAL},
    {"blob", TRAJD_CODEC_BLOB, ONE(blob), .high = 8, OPTIONAL},
    {"shape", TRAJD_CODEC_UINT, TRAJD_CODEC_ARRAY(struct plan, shape, rank), OPTIONAL},
    {"grid", TRAJD_CODEC_UINT, TRAJD_CODEC_ARRAY(struct plan, grid, rank),
     .flags = TRAJD_CODEC_OPTIONAL | TRAJD_CODEC_AS_LONG},
    {"fill", TRAJD_CODEC_UINT, TRAJD_CODEC_FIXED(struct plan, fill), .flags = TRAJD_CODEC_PACKED},
    {"steps", TRAJD_CODEC_STRUCT, TRAJD_CODEC_LIST(struct plan, steps, step_count, 5), OPTIONAL,
     .table = &step_table},
    {"words", TRAJD_CODEC_TEXT, TRAJD_CODEC_LIST(struct plan, words, word_count, 3),
     .flags = TRAJD_CODEC_OPTIONAL | TRAJD_CODEC_SPARSE},
    {"stamps", TRAJD_CODEC_INT, TRAJD_CODEC_LIST(struct plan, stamps, stamp_count, 100),
     .flags = TRAJD_CODEC_OPTIONAL | TRAJD_CODEC_PACKED},
    {"chunks", TRAJD_CODEC_UINT, TRAJD_CODEC_LIST(struct plan, chunks, chunk_count, 100),
     .flags = TRAJD_CODEC_OPTIONAL | TRAJD_CODEC_PACKED},
    {"inner", TRAJD_CODEC_STRUCT, ONE(inner), .table = &step_table},
    {"extra", TRAJD_CODEC_STRUCT, TRAJD_CODEC_POINTER(struct plan, extra), OPTIONAL,
     .table = &step_table},
    {"seed", TRAJD_CODEC_UINT, ONE(seed), OPTIONAL, TRAJD_CODEC_HAS(struct plan, has_seed)},
};
static const struct trajd_codec_table map_table =
    TRAJD_CODEC_TABLE(struct plan, plan_fields, TRAJD_CODEC_MAP, check_plan);
static const struct trajd_codec_table row_table =
    TRAJD_CODEC_TABLE(struct plan, plan_fields, TRAJD_CODEC_ROW, NULL);

static struct step steps[] = {{1, "ms"}, {100, NULL}};
static const char *words[] = {"a", NULL, ""};
static int64_t stamps[] = {INT64_MIN, -1, INT64_MAX};
static struct chunk chunks[] = {{UINT64_MAX, 7, 1}, {0, 0, 0}};
static const struct plan full = {.small = 255,
                                 .shift = -300,
                                 .big = UINT64_MAX,
                                 .is_on = true,
                                 .narrow = -1.5f,
                                 .wide = 1e300,
                                 .fruit = PEAR,
                                 .name = "Z\xfcrich",
                                 .note = "two\nlines\t.",
                                 .view = {"\xc3\xbc", 2},
                                 .blob = {"\0\xff", 2},
                                 .rank = 2,
                                 .shape = {3, UINT64_MAX},
                                 .grid = {0, 1},
                                 .fill = {1, 2, 3, 4},
                                 .step_count = 2,
                                 .steps = steps,
                                 .word_count = 3,
                                 .words = words,
                                 .stamp_count = 3,
                                 .stamps = stamps,
                                 .chunk_count = 2,
                                 .chunks = chunks,
                                 .inner = {5, "s"},
                                 .extra = &steps[0],
                                 .has_seed = true};

/* An allocator that fails at the given call, and frees all at the end. */
struct memory {
    void *blocks[64];
    uint32_t count, most;
    size_t bytes;
};

static void *allocate(void *context, size_t size_bytes)
{
    struct memory *memory = context;

    assert_true(size_bytes > 0 && memory->count < ARRAY_LEN(memory->blocks));
    if (memory->most && memory->count + 1 >= memory->most)
        return NULL;
    memory->bytes += size_bytes;
    return memory->blocks[memory->count++] = calloc(1, size_bytes);
}

static void free_all(struct memory *memory)
{
    while (memory->count)
        free(memory->blocks[--memory->count]);
}

static enum trajd_status decode(const struct trajd_codec_table *table, const void *data,
                                size_t length, struct plan *plan, struct memory *memory,
                                struct trajd_error *error)
{
    const struct trajd_codec_input input = {data, length, allocate, memory, NULL};

    *plan = (struct plan){0};
    return trajd_codec_decode(table, &input, plan, error);
}

static void expect_same(const struct plan *a, const struct plan *b)
{
    assert_int_equal(a->small, b->small);
    assert_int_equal(a->shift, b->shift);
    assert_true(a->big == b->big && a->is_on == b->is_on && a->narrow == b->narrow);
    assert_true(a->wide == b->wide && a->fruit == b->fruit && a->has_seed == b->has_seed);
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->note, b->note);
    assert_memory_equal(a->view.data, b->view.data, a->view.size);
    assert_memory_equal(a->blob.data, b->blob.data, a->blob.size);
    assert_memory_equal(a->shape, b->shape, sizeof a->shape);
    assert_memory_equal(a->grid, b->grid, sizeof a->grid);
    assert_memory_equal(a->fill, b->fill, sizeof a->fill);
    assert_int_equal(a->step_count, b->step_count);
    assert_string_equal(a->steps[0].unit, b->steps[0].unit);
    assert_null(a->steps[1].unit);
    assert_string_equal(a->words[0], b->words[0]);
    assert_null(a->words[1]);
    assert_string_equal(a->words[2], "");
    assert_memory_equal(a->stamps, b->stamps, sizeof stamps);
    assert_memory_equal(a->chunks, b->chunks, sizeof chunks);
    assert_int_equal(a->inner.count, b->inner.count);
    assert_int_equal(a->extra->count, b->extra->count);
}

static void test_both_forms_round_trip(void **state)
{
    const struct trajd_codec_table *const tables[] = {&map_table, &row_table};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        struct trajd_bytes bytes = {0}, again = {0};
        struct memory memory = {0};
        struct plan plan;
        assert_int_equal(trajd_codec_encode(tables[i], &full, &bytes, NULL), TRAJD_OK);
        assert_int_equal(decode(tables[i], bytes.data, bytes.length, &plan, &memory, NULL), 0);
        expect_same(&plan, &full);
        assert_int_equal(trajd_codec_encode(tables[i], &plan, &again, NULL), TRAJD_OK);
        assert_int_equal(again.length, bytes.length);
        assert_memory_equal(again.data, bytes.data, bytes.length);
        trajd_bytes_free(&bytes);
        trajd_bytes_free(&again);
        free_all(&memory);
    }
}

/* Optional members that are absent stay as the caller set them, and are not written. */
static void test_absent_members(void **state)
{
    const struct plan bare = {.name = "n", .inner = {1, NULL}};
    struct trajd_bytes bytes = {0};
    struct memory memory = {0};
    struct plan plan = {.small = 9, .is_on = true};
    const uint8_t expected[] = "\x84\xa5is_on\xc2\xa4name\xa1n\xa4"
                               "fill\xc4\x04\0\0\0\0\xa5inner\x92\x01\xc0";

    (void)state;
    assert_int_equal(trajd_codec_encode(&map_table, &bare, &bytes, NULL), TRAJD_OK);
    assert_int_equal(bytes.length, sizeof expected - 1);
    assert_memory_equal(bytes.data, expected, bytes.length);
    assert_int_equal(trajd_codec_decode(&map_table,
                                        &(struct trajd_codec_input){bytes.data, bytes.length,
                                                                    allocate, &memory, NULL},
                                        &plan, NULL),
                     TRAJD_OK);
    assert_int_equal(plan.small, 9);
    assert_false(plan.is_on || plan.has_seed);
    assert_null(plan.steps);
    trajd_bytes_free(&bytes);
    free_all(&memory);
}

struct fault {
    const char *body; /* of a map of `small`, or of what the test puts before it */
    size_t size;
    const char *message;
};
#define FAULT(body, message)                                                                       \
    {                                                                                              \
        body, sizeof body - 1, message                                                             \
    }
#define REST                                                                                       \
    "\xa4name\xa1n\xa4"                                                                            \
    "fill\xc4\x04"                                                                                 \
    "1234\xa5inner\x92\x01\xc0"

static void test_what_bytes_can_break(void **state)
{
    static const struct fault faults[] = {
        FAULT("", "cut off, or not msgpack"),
        FAULT("\xc0", "not a map"),
        FAULT("\x83" REST "\x00", "more bytes than one struct"),
        FAULT("\x82\xa4name\xa1n\xa4"
              "fill\xc4\x04"
              "1234",
              "inner: missing"),
        FAULT("\x84\xa4name\xa1n" REST, "name: there twice"),
        FAULT("\x84\x01\x02" REST, "not a text"),
        FAULT("\x84\xa1x\xc1" REST, "cut off, or not msgpack"),
        FAULT("\x84\xa5small\xcd\x01\x00" REST, "small: out of range"),
        FAULT("\x84\xa5small\xff" REST, "small: not an unsigned number"),
        FAULT("\x84\xa5shift\xcd\x01\x2d" REST, "shift: out of range"),
        FAULT("\x84\xa5shift\xd2\xff\xff\x00\x00" REST, "shift: out of range"),
        FAULT("\x84\xa5shift\xca\x00\x00\x00\x00" REST, "shift: not a whole number"),
        FAULT("\x84\xa5is_on\x01" REST, "is_on: not a boolean"),
        FAULT("\x84\xa6narrow\xcb\x7f\xf8\0\0\0\0\0\0" REST, "narrow: out of range"),
        FAULT("\x84\xa6narrow\x03" REST, "narrow: out of range"),
        FAULT("\x84\xa4wide\xa1x" REST, "wide: not a number"),
        FAULT("\x84\xa5"
              "fruit\xa4plum" REST,
              "fruit: an unknown word"),
        FAULT("\x84\xa5"
              "fruit\xa0" REST,
              "fruit: an unknown word"),
        FAULT("\x84\xa4note\xa1\x07" REST, "note: a text has control characters"),
        FAULT("\x84\xa4note\xa1\0" REST, "note: a text has control characters"),
        FAULT("\x83\xa4name\xa2"
              "a\n",
              "name: a text has control characters"),
        FAULT("\x84\xa4view\xa2\xc3\x28" REST, "view: not UTF-8"),
        FAULT("\x84\xa4view\xa9"
              "123456789" REST,
              "view: too long"),
        FAULT("\x84\xa4"
              "blob\xa1x" REST,
              "blob: not bytes"),
        FAULT("\x84\xa5shape\x95\x01\x01\x01\x01\x01" REST,
              "shape: another number of elements than allowed"),
        FAULT("\x85\xa5shape\x92\x01\x01\xa4grid\x91\x01" REST,
              "grid: another number of elements than allowed"),
        FAULT("\x84\xa5shape\x92\x01\xc0" REST, "shape[1]: not an unsigned number"),
        FAULT("\x81\xa4"
              "fill\xc4\x03"
              "123",
              "fill: another number of elements than allowed"),
        FAULT("\x84\xa5steps\x92\x92\x01\xc0\x92\x65\xc0" REST, "steps[1].count: out of range"),
        FAULT("\x84\xa5steps\x91\x92\x01\xa5"
              "12345" REST,
              "steps[0].unit: a text is too long"),
        FAULT("\x84\xa5steps\x91\x91\x01" REST,
              "steps[0]: another number of values than the struct has"),
        FAULT("\x84\xa5steps\xdd\x00\x00\x00\x0a" REST, "steps: more elements than bytes"),
        FAULT("\x84\xa5words\x91\x01" REST, "words[0]: not a text"),
        FAULT("\x84\xa6stamps\xc4\x07"
              "1234567" REST,
              "stamps: not a whole number of elements"),
        FAULT("\x84\xa6stamps\x90" REST, "stamps: not bytes"),
        FAULT("\x84\xa5"
              "extra\x01" REST,
              "extra: not a list"),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        struct memory memory = {0};
        struct trajd_error error;
        struct plan plan;
        char *copy = malloc(faults[i].size ? faults[i].size : 1); /* a sanitizer knows its end */
        assert_non_null(copy);
        memcpy(copy, faults[i].body, faults[i].size);
        assert_int_equal(decode(&map_table, copy, faults[i].size, &plan, &memory, &error),
                         TRAJD_ERR_PROTOCOL);
        assert_string_equal(error.message, faults[i].message);
        free(copy);
        free_all(&memory);
    }
}

/* Bytes that are cut anywhere are refused, as is each allocation that fails, with a status of its
 * own. No cut claims more memory than 30 times its bytes. */
static void test_cut_bytes_and_no_memory(void **state)
{
    struct trajd_bytes bytes = {0};
    struct memory memory = {0};
    struct trajd_error error;
    struct plan plan;

    (void)state;
    assert_int_equal(trajd_codec_encode(&row_table, &full, &bytes, NULL), TRAJD_OK);
    for (size_t cut = 0; cut < bytes.length; cut++) {
        uint8_t *copy = malloc(cut ? cut : 1);
        assert_non_null(copy);
        memcpy(copy, bytes.data, cut);
        memory = (struct memory){0};
        assert_int_equal(decode(&row_table, copy, cut, &plan, &memory, &error), TRAJD_ERR_PROTOCOL);
        assert_true(memory.bytes <= 30 * (cut + 1));
        free(copy);
        free_all(&memory);
    }
    for (uint32_t most = 1;; most++) {
        enum trajd_status status;
        memory = (struct memory){.most = most};
        status = decode(&row_table, bytes.data, bytes.length, &plan, &memory, &error);
        free_all(&memory);
        if (!status)
            break;
        assert_int_equal(status, TRAJD_ERR_MEMORY);
        assert_non_null(strstr(error.message, ": out of memory"));
    }
    trajd_bytes_free(&bytes);
}

static void test_rules_of_the_caller(void **state)
{
    struct trajd_bytes bytes = {0};
    struct memory memory = {0};
    struct trajd_error error;
    struct plan plan = {0};
    uint8_t forbidden = full.small;
    struct trajd_codec_input input = {NULL, 0, allocate, &memory, &forbidden};

    (void)state;
    assert_int_equal(trajd_codec_encode(&map_table, &full, &bytes, NULL), TRAJD_OK);
    input.data = bytes.data;
    input.length = bytes.length;
    assert_int_equal(trajd_codec_decode(&map_table, &input, &plan, &error), TRAJD_ERR_PROTOCOL);
    assert_string_equal(error.message, "small is the forbidden one");
    trajd_bytes_free(&bytes);
    free_all(&memory);
}

static void expect_refusal(const struct plan *plan, const char *message)
{
    struct trajd_bytes bytes = {0};
    struct trajd_error error;

    assert_int_equal(trajd_codec_encode(&map_table, plan, &bytes, &error), TRAJD_ERR_ARGUMENT);
    assert_string_equal(error.message, message);
    trajd_bytes_free(&bytes);
}

static void test_the_encoder_checks_limits(void **state)
{
    const struct trajd_codec_field fields[] = {
        {"prose", TRAJD_CODEC_PROSE, TRAJD_CODEC_ONE(struct plan, view), .high = 5}};
    const struct trajd_codec_table prose =
        TRAJD_CODEC_TABLE(struct plan, fields, TRAJD_CODEC_ROW, NULL);
    struct step many[6] = {{0}};
    struct trajd_bytes bytes = {0};
    struct plan plan = full;

    (void)state;
    plan.shift = 301;
    expect_refusal(&plan, "shift: out of range");
    plan = full;
    plan.fruit = PEAR + 1;
    expect_refusal(&plan, "fruit: an unknown number");
    plan = full;
    plan.view = (struct trajd_codec_view){"\xff", 1};
    expect_refusal(&plan, "view: not UTF-8");
    plan = full;
    plan.note = "a\x01";
    expect_refusal(&plan, "note: a text has control characters");
    plan = full;
    plan.steps = many;
    expect_refusal(&plan, "steps[0].count: out of range");
    plan.step_count = 6;
    expect_refusal(&plan, "steps: too many elements");
    plan.view = (struct trajd_codec_view){"ab\xff"
                                          "d\xc3\xbc",
                                          6};
    assert_int_equal(trajd_codec_encode(&prose, &plan, &bytes, NULL), TRAJD_OK);
    assert_memory_equal(bytes.data,
                        "\x91\xa4"
                        "ab?d",
                        bytes.length); /* no half character */
    trajd_bytes_free(&bytes);
}

static void test_a_fixed_buffer(void **state)
{
    struct trajd_bytes whole = {0};
    struct trajd_error error;

    (void)state;
    assert_int_equal(trajd_codec_encode(&map_table, &full, &whole, NULL), TRAJD_OK);
    for (size_t room = 0; room <= whole.length; room++) {
        uint8_t *memory = malloc(room ? room : 1);
        struct trajd_bytes bytes = {.data = memory, .capacity = room, .is_fixed = true};
        assert_int_equal(trajd_codec_encode(&map_table, &full, &bytes, &error),
                         room < whole.length ? TRAJD_ERR_MEMORY : TRAJD_OK);
        free(memory);
    }
    trajd_bytes_free(&whole);
}

/* Each number takes the fewest bytes, at each edge of each format. */
static void test_numbers(void **state)
{
    static const struct {
        int64_t value;
        size_t length;
    } numbers[] = {{0, 1},      {127, 1},    {128, 2},        {255, 2},           {256, 3},
                   {65535, 3},  {65536, 5},  {UINT32_MAX, 5}, {1ll << 32, 9},     {INT64_MAX, 9},
                   {-1, 1},     {-32, 1},    {-33, 2},        {-128, 2},          {-129, 3},
                   {-32768, 3}, {-32769, 5}, {INT32_MIN, 5},  {-2147483649ll, 9}, {INT64_MIN, 9}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        struct trajd_bytes bytes = {0};
        struct trajd_cursor cursor;
        struct trajd_token token;
        trajd_pack_int(&bytes, numbers[i].value);
        assert_int_equal(bytes.length, numbers[i].length);
        cursor = (struct trajd_cursor){bytes.data, bytes.data + bytes.length};
        assert_true(trajd_token_read(&cursor, &token));
        assert_int_equal(token.type, numbers[i].value < 0 ? TRAJD_TOKEN_INT : TRAJD_TOKEN_UINT);
        assert_true((int64_t)token.value == numbers[i].value && cursor.at == cursor.end);
        trajd_bytes_free(&bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_forms_round_trip),
        cmocka_unit_test(test_absent_members),
        cmocka_unit_test(test_what_bytes_can_break),
        cmocka_unit_test(test_cut_bytes_and_no_memory),
        cmocka_unit_test(test_rules_of_the_caller),
        cmocka_unit_test(test_the_encoder_checks_limits),
        cmocka_unit_test(test_a_fixed_buffer),
        cmocka_unit_test(test_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
