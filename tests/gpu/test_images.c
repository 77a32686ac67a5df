/* Images on the GPU against the CPU, and against the recorded results of other programs.
 * `test_gpu_images [REQUESTS [KERNELS]]` sets the number of random requests, fewer with a sanitizer, and
 * which kernels to take where they can serve a request. Exits with 77 (skipped) without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/image_cases.h"

enum { MEMORY_BYTES = 64 << 20, SKIPPED = 77, POISON = 0xA5, GAP = 256, VARIANTS = 5 };

struct fixture {
    struct trajd_device *device;
    struct trajd_device_stream *stream;
    uint8_t *host, *result, *on_device; /* MEMORY_BYTES each: records, sources and outputs */
    uint64_t request_count;
    const char *requested; /* kernels; NULL: the best */
    uint32_t variants[VARIANTS];
};

static const char *const variant_names[VARIANTS] = {"strip", "resize", "matrix", "crop", "general"};

static void must(enum trajd_status status, const struct trajd_error *error)
{
    if (status)
        fail_msg("%s: %s", trajd_status_name(status), error->message);
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

/* Where the parts of a request are in the memory. */
struct room {
    uint64_t sources[IMAGE_FRAMES_MAX], outputs[IMAGE_FRAMES_MAX], end;
};

/* Outputs have gaps of poison around them. Some are not aligned to 16 bytes. */
static struct room make_room(const struct image_case *image, uint64_t records, uint64_t seed)
{
    const uint32_t size = trajd_dtype_size(image->spec.finish.type);
    struct room room = {.end = round_up(records)};

    for (uint32_t i = 0; i < image->frame_count; i++) {
        room.sources[i] = room.end;
        room.end += round_up(image->source_bytes);
        room.outputs[i] = room.end + GAP + (seed % 4 ? 0 : size);
        room.end = round_up(room.outputs[i] + image->output_bytes) + GAP;
    }
    assert_true(room.end <= MEMORY_BYTES);
    return room;
}

static void fill_sources(struct fixture *f, const struct image_case *image, const struct room *room,
                         uint64_t seed)
{
    uint32_t state = (uint32_t)seed * 2654435761U;

    memset(f->host, POISON, room->end);
    for (uint32_t i = 0; i < image->frame_count; i++)
        for (uint64_t k = 0; k < image->source_bytes; k++) {
            state = state * 1664525 + 1013904223;
            f->host[room->sources[i] + k] =
                (uint8_t)(state >> 20 & 3 ? state >> 24 : 255 * (state >> 19 & 1));
        }
    if (image->spec.frame.type == TRAJD_F32) /* no NaN: bits are compared */
        for (uint32_t i = 0; i < image->frame_count; i++)
            for (uint64_t k = 3; k < image->source_bytes; k += 4)
                f->host[room->sources[i] + k] = 0x42;
}

static struct trajd_image_gpu *make_plan(struct fixture *f, const struct image_case *image)
{
    struct trajd_image_gpu_spec spec = image->spec;
    struct trajd_image_gpu *plan;
    struct trajd_error error;
    const char *why, *name;

    spec.requested = f->requested;
    must(trajd_image_gpu_create(f->device, &spec, image->frame_count, &plan, &error), &error);
    name = trajd_image_gpu_variant(plan, &why);
    for (int i = 0; i < VARIANTS; i++)
        f->variants[i] += !strcmp(name, variant_names[i]);
    return plan;
}

/* Runs a request on the GPU: f->host becomes f->result, with the same parts at the same places. */
static void run(struct fixture *f, const struct image_case *image, const struct room *room,
                struct trajd_image_gpu *plan)
{
    const uint32_t bytes = trajd_image_gpu_record_bytes(plan);
    struct trajd_error error;

    for (uint32_t i = 0; i < image->frame_count; i++)
        must(trajd_image_gpu_write_record(plan, f->on_device + room->sources[i],
                                          f->on_device + room->outputs[i], &image->params[i],
                                          f->host + i * bytes, &error),
             &error);
    must(trajd_device_copy_async(f->on_device, f->host, room->end, f->stream, &error), &error);
    must(trajd_image_gpu_run(plan, f->on_device, image->frame_count,
                             trajd_device_stream_handle(f->stream), &error),
         &error);
    must(trajd_device_copy_async(f->result, f->on_device, room->end, f->stream, &error), &error);
    must(trajd_device_stream_wait(f->stream, &error), &error);
}

static void check_gaps(const struct fixture *f, const struct image_case *image,
                       const struct room *room, const char *name)
{
    for (uint32_t i = 0; i < image->frame_count; i++)
        for (uint64_t k = 1; k <= GAP / 2; k++)
            if (f->result[room->outputs[i] - k] != POISON ||
                f->result[room->outputs[i] + image->output_bytes + k - 1] != POISON)
                fail_msg("%s: wrote beyond tensor %u", name, i);
}

static void check_case(struct fixture *f, const struct image_case *image, uint64_t seed)
{
    struct trajd_image_gpu *plan = make_plan(f, image);
    const uint64_t records = (uint64_t)image->frame_count * trajd_image_gpu_record_bytes(plan);
    const struct room room = make_room(image, records, seed);
    void *expected = malloc(image->output_bytes);
    char name[512], what[128];
    const char *why;

    assert_non_null(expected);
    fill_sources(f, image, &room, seed);
    run(f, image, &room, plan);
    snprintf(what, sizeof what, "request %llu, %s", (unsigned long long)seed,
             trajd_image_gpu_variant(plan, &why));
    check_gaps(f, image, &room, what);
    for (uint32_t i = 0; i < image->frame_count; i++) {
        char text[128];
        image_case_run(image, i, f->host + room.sources[i], expected);
        if (!image_case_matches(image, expected, f->result + room.outputs[i], 0, text, sizeof text))
            fail_msg("%s: %s, frame %u: %s", what, image_case_name(image, name, sizeof name), i,
                     text);
    }
    free(expected);
    trajd_image_gpu_destroy(&plan);
}

static void test_random_requests(void **state)
{
    struct fixture *f = *state;
    int served = 0;

    memset(f->variants, 0, sizeof f->variants);
    for (uint64_t seed = 1; seed <= f->request_count; seed++) {
        struct image_case image;
        image_case_make(seed, &image);
        check_case(f, &image, seed);
    }
    for (int i = 0; i < VARIANTS; i++) {
        print_message("%u requests by %s\n", f->variants[i], variant_names[i]);
        served += f->variants[i] > 0;
    }
    assert_true(served >= (f->requested ? 1 : 3));
}

static void test_boxes(void **state)
{
    struct fixture *f = *state;

    for (uint64_t seed = 1; seed <= IMAGE_BOX_CASES; seed++) {
        struct image_case image;
        image_case_make_boxes(seed, &image);
        check_case(f, &image, seed);
    }
}

/* A case of one resize. */
static void make_resize(uint32_t height, uint32_t width, uint32_t to_height, uint32_t to_width,
                        enum trajd_image_filter filter, enum trajd_dtype type,
                        struct image_case *image)
{
    *image = (struct image_case){
        .preparation = {.source_height = height,
                        .source_width = width,
                        .channels = 3,
                        .type = TRAJD_U8,
                        .crop = {0, 0, height, width},
                        .filter = filter},
        .spec = {.frame = {to_height, to_width, 3, TRAJD_U8},
                 .finish =
                     {to_height, to_width, 3, TRAJD_U8, type, TRAJD_IMAGE_CHW, {1, 1, 1, 1}, {0}}},
        .frame_count = IMAGE_FRAMES_MAX,
        .inexact = 1,
        .source_bytes = (uint64_t)height * width * 3,
    };
    image->spec.preparation = &image->preparation;
    trajd_image_place(&image->preparation, TRAJD_IMAGE_STRETCH, to_height, to_width);
    image->output_bytes = trajd_image_finish_bytes(&image->spec.finish);
}

static void test_large_frames(void **state)
{
    static const uint32_t sizes[][4] = {
        {480, 640, 224, 224}, {480, 640, 96, 96},   {256, 256, 224, 224}, {720, 1280, 224, 224},
        {480, 640, 240, 320}, {240, 320, 224, 224}, {480, 640, 480, 640}, {96, 1024, 33, 35}};
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int filter = 0; filter < TRAJD_IMAGE_NEAREST; filter++) {
            struct image_case image;
            make_resize(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3],
                        (enum trajd_image_filter)filter, filter % 2 ? TRAJD_U8 : TRAJD_BF16,
                        &image);
            check_case(f, &image, i + 1);
        }
}

struct image_record {
    uint32_t filter, height, width, channels, to_height, to_width, bound;
};

static void make_source(uint32_t height, uint32_t width, uint64_t count, uint8_t *source)
{
    uint32_t state = height * 1000 + width;

    for (uint64_t i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223;
        source[i] = (uint8_t)(state >> 20 & 3 ? state >> 24 : 255 * (state >> 19 & 1));
    }
}

/* Runs one frame of u8 and compares it with a recorded one. Float sums may round the other way, so the
 * bound is a level at least. */
static void check_recorded(struct fixture *f, struct image_case *image, const char *name,
                           const uint8_t *expected, uint32_t bound, uint32_t exceptions)
{
    struct trajd_image_gpu *plan = make_plan(f, image);
    const struct room room = make_room(image, trajd_image_gpu_record_bytes(plan), 1);
    const uint8_t *got = f->result + room.outputs[0];
    uint32_t wrong = 0;

    memset(f->host, POISON, room.end);
    make_source(image->spec.preparation ? image->preparation.source_height
                                        : image->spec.frame.height,
                image->spec.preparation ? image->preparation.source_width : image->spec.frame.width,
                image->source_bytes, f->host + room.sources[0]);
    run(f, image, &room, plan);
    for (uint64_t i = 0; i < image->output_bytes; i++)
        wrong += (uint32_t)abs((int)got[i] - (int)expected[i]) > (bound ? bound : 1);
    if (wrong > exceptions)
        fail_msg("%s: %u bytes differ by more than %u", name, wrong, bound);
    trajd_image_gpu_destroy(&plan);
}

static int check_image_file(struct fixture *f, const char *folder, const char *name)
{
    struct image_record record;
    char path[512];
    int count = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/image/%s", folder, name);
    file = fopen(path, "rb");
    if (!file)
        return 0;
    for (; fread(&record, sizeof record, 1, file) == 1; count++) {
        uint8_t *expected = malloc((size_t)record.to_height * record.to_width * record.channels);
        struct image_case image;
        make_resize(record.height, record.width, record.to_height, record.to_width,
                    (enum trajd_image_filter)record.filter, TRAJD_U8, &image);
        image.frame_count = 1;
        image.preparation.channels = image.spec.frame.channels = image.spec.finish.channels =
            record.channels;
        image.spec.finish.layout = TRAJD_IMAGE_HWC;
        image.source_bytes = trajd_image_source_bytes(&image.preparation);
        image.output_bytes = trajd_image_finish_bytes(&image.spec.finish);
        assert_int_equal(fread(expected, 1, image.output_bytes, file), image.output_bytes);
        check_recorded(f, &image, name, expected, record.bound, 0);
        free(expected);
    }
    fclose(file);
    return count;
}

struct augment_record {
    uint32_t height, width, to_height, to_width, rounding, steps, bound, exceptions;
};

struct augment_step {
    uint32_t kind, filter, box;
    float values[TRAJD_AUGMENT_VALUES];
};

static void make_augment(const struct augment_record *record, const struct augment_step *steps,
                         struct image_case *image)
{
    *image = (struct image_case){
        .augment = {record->steps, {{0}}, (enum trajd_augment_rounding)record->rounding},
        .spec = {.frame = {record->height, record->width, 3, TRAJD_U8},
                 .finish = {record->to_height,
                            record->to_width,
                            3,
                            TRAJD_U8,
                            TRAJD_U8,
                            TRAJD_IMAGE_HWC,
                            {1, 1, 1, 1},
                            {0}}},
        .frame_count = 1,
        .source_bytes = (uint64_t)record->height * record->width * 3,
        .output_bytes = (uint64_t)record->to_height * record->to_width * 3,
    };
    image->spec.augment = &image->augment;
    for (uint32_t i = 0; i < record->steps; i++) {
        const struct augment_step *step = &steps[i];
        const bool has_size = step->kind == TRAJD_AUGMENT_CROP && step->values[2] > 0;
        image->augment.steps[i] = (struct trajd_augment_step){
            .kind = (enum trajd_augment_kind)step->kind,
            .probability = 1,
            .height = has_size ? (uint32_t)step->values[2] : record->to_height,
            .width = has_size ? (uint32_t)step->values[3] : record->to_width,
            .scale = {1, 1},
            .ratio = {1, 1},
            .box = (enum trajd_augment_box)step->box,
            .filter = (enum trajd_image_filter)step->filter,
            .factor = {0, step->kind == TRAJD_AUGMENT_HUE || step->kind == TRAJD_AUGMENT_SHIFT ? 0.5
                                                                                               : 2},
        };
        memcpy(image->params[0].values[i], step->values, sizeof step->values);
    }
}

static int check_augment_file(struct fixture *f, const char *folder, const char *name)
{
    struct augment_step steps[TRAJD_AUGMENT_STEPS_MAX];
    struct augment_record record;
    uint8_t expected[64 * 64 * 3];
    char path[512];
    int count = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/augment/%s", folder, name);
    file = fopen(path, "rb");
    if (!file)
        return 0;
    for (; fread(&record, sizeof record, 1, file) == 1; count++) {
        struct image_case image;
        const uint32_t exceptions = record.exceptions + 8; /* at a level's edge, as the CPU's */
        assert_true(record.steps <= TRAJD_AUGMENT_STEPS_MAX);
        assert_int_equal(fread(steps, sizeof *steps, record.steps, file), record.steps);
        make_augment(&record, steps, &image);
        assert_true(image.output_bytes <= sizeof expected);
        assert_int_equal(fread(expected, 1, image.output_bytes, file), image.output_bytes);
        check_recorded(f, &image, name, expected, record.bound, exceptions);
    }
    fclose(file);
    return count;
}

/* The recorded results are in the source tree, or beside the program in a bundle. */
static const char *golden_folder(char *path, size_t size)
{
    const char *bundle = getenv("GPU_GOLDEN");

    snprintf(path, size, "%s", bundle ? bundle : TRAJD_SOURCE_DIR "/tests/golden");
    return path;
}

static void test_recorded_results(void **state)
{
    static const char *const images[] = {"pillow.bin", "opencv.bin", "torchvision.bin", "jax.bin",
                                         "tensorflow.bin"};
    struct fixture *f = *state;
    char path[256];
    const char *folder = golden_folder(path, sizeof path);
    int count = 0;

    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        count += check_image_file(f, folder, images[i]);
    assert_true(count >= 40);
    assert_int_equal(check_augment_file(f, folder, "torchvision.bin"), 68);
    assert_int_equal(check_augment_file(f, folder, "tensorflow.bin"), 22);
}

static void test_addresses(void **state)
{
    struct fixture *f = *state;
    struct trajd_image_gpu *plan;
    struct trajd_error error;
    struct image_case image;
    uint8_t record[512] __attribute__((aligned(16)));

    make_resize(32, 32, 16, 16, TRAJD_IMAGE_PILLOW_BILINEAR, TRAJD_F32, &image);
    plan = make_plan(f, &image);
    assert_true(trajd_image_gpu_record_bytes(plan) <= sizeof record);
    assert_int_equal(
        trajd_image_gpu_write_record(plan, f->on_device + 8, f->on_device, NULL, record, &error),
        TRAJD_ERR_ARGUMENT);
    assert_int_equal(
        trajd_image_gpu_write_record(plan, f->on_device, f->on_device + 2, NULL, record, &error),
        TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_image_gpu_run(plan, f->on_device, image.frame_count + 1,
                                         trajd_device_stream_handle(f->stream), &error),
                     TRAJD_ERR_ARGUMENT);
    trajd_image_gpu_destroy(&plan);
}

static struct fixture the_fixture;

static int open_gpu(void **state)
{
    struct fixture *f = &the_fixture;
    struct trajd_error error;
    void *memory;

    *state = f;
    must(trajd_device_open(0, &f->device, &error), &error);
    must(trajd_device_stream_create(f->device, &f->stream, &error), &error);
    must(trajd_device_alloc(f->device, MEMORY_BYTES, &memory, &error), &error);
    f->on_device = memory;
    f->host = aligned_alloc(16, MEMORY_BYTES);
    f->result = malloc(MEMORY_BYTES);
    return f->host && f->result ? 0 : -1;
}

static int close_gpu(void **state)
{
    struct fixture *f = *state;

    trajd_device_free(f->device, f->on_device);
    trajd_device_stream_destroy(&f->stream);
    trajd_device_close(&f->device);
    free(f->host);
    free(f->result);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_requests), cmocka_unit_test(test_boxes),
        cmocka_unit_test(test_large_frames),    cmocka_unit_test(test_recorded_results),
        cmocka_unit_test(test_addresses),
    };

    the_fixture.request_count = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000;
    the_fixture.requested = argc > 2 ? argv[2] : NULL;
    if (trajd_device_count() == 0) {
        fputs("skipped: no GPU\n", stderr);
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
