/* Prepared frames against the recorded results of other programs (tests/tools/image_vectors.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/image/image.h"

struct record {
    uint32_t filter, height, width, channels, to_height, to_width, bound;
};

/* The source of a record, as make_source in the script. */
static uint8_t *make_source(const struct record *record)
{
    const size_t size = (size_t)record->height * record->width * record->channels;
    uint32_t state = record->height * 1000 + record->width;
    uint8_t *source = malloc(size);

    assert_non_null(source);
    for (size_t i = 0; i < size; i++) {
        state = state * 1664525 + 1013904223;
        source[i] = (uint8_t)(state >> 20 & 3 ? state >> 24 : 255 * (state >> 19 & 1));
    }
    return source;
}

static void check(const char *program, const struct record *record, const uint8_t *expected)
{
    struct trajd_image_preparation p = {.source_height = record->height,
                                        .source_width = record->width,
                                        .channels = record->channels,
                                        .type = TRAJD_U8,
                                        .crop = {0, 0, record->height, record->width},
                                        .filter = (enum trajd_image_filter)record->filter};
    struct trajd_image_plan *plan;
    struct trajd_error error;
    uint8_t *source = make_source(record), *output;

    trajd_image_place(&p, TRAJD_IMAGE_STRETCH, record->to_height, record->to_width);
    output = malloc(trajd_image_bytes(&p));
    assert_non_null(output);
    if (trajd_image_plan_create(&p, &plan, &error))
        fail_msg("%s", error.message);
    trajd_image_prepare(plan, source, output);
    for (size_t i = 0; i < trajd_image_bytes(&p); i++)
        if ((uint32_t)abs((int)output[i] - (int)expected[i]) > record->bound)
            fail_msg("%s, %s, %ux%u to %ux%u: byte %zu is %u, not %u", program,
                     trajd_image_filter_name(p.filter), record->height, record->width,
                     record->to_height, record->to_width, i, output[i], expected[i]);
    trajd_image_plan_destroy(&plan);
    free(source);
    free(output);
}

/* Checks all records of a program. Returns their number. */
static int check_file(const char *name)
{
    char path[512];
    struct record record;
    int count = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/tests/golden/image/%s", TRAJD_SOURCE_DIR, name);
    file = fopen(path, "rb");
    assert_non_null(file);
    while (fread(&record, sizeof record, 1, file) == 1) {
        const size_t size = (size_t)record.to_height * record.to_width * record.channels;
        uint8_t *expected = malloc(size);
        assert_int_equal(fread(expected, 1, size, file), size);
        check(name, &record, expected);
        free(expected);
        count++;
    }
    fclose(file);
    return count;
}

static void test_programs(void **state)
{
    DIR *folder = opendir(TRAJD_SOURCE_DIR "/tests/golden/image");
    int count = 0;

    (void)state;
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strstr(entry->d_name, ".bin"))
            count += check_file(entry->d_name);
    closedir(folder);
    assert_true(count >= 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
