/* Statistics in files: what trajd writes as JSON reads back exactly, and damaged cache files are
 * ignored. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/stats/stats.h"

#define FEATURES 3

static struct trajd_statistics *make_statistics(void)
{
    struct trajd_statistics *s = trajd_statistics_new(TRAJD_STATISTICS_WINDOWS, FEATURES);

    assert_non_null(s);
    s->fingerprint = UINT64_C(0x0123456789abcdef);
    s->item_count = 10;
    s->step_count = 20;
    s->valid_count = 19;
    for (uint32_t d = 0; d < FEATURES; d++) {
        struct trajd_feature_statistics *f = &s->features[d];
        *f = (struct trajd_feature_statistics){.count = 19 - d,
                                               .nan = d,
                                               .mean = 1.0 / 3 + d,
                                               .std = 1e-300,
                                               .min = -1e300,
                                               .max = 0x1.1p+1023};
        for (int q = 0; q < TRAJD_STATISTICS_QUANTILES; q++)
            f->quantiles[q] = 0.1 * q + d;
    }
    s->features[1].std = NAN;
    return s;
}

static void read_back(const char *text, struct trajd_statistics **result)
{
    struct trajd_yaml *yaml;
    struct trajd_error error;

    if (trajd_yaml_parse("test", text, strlen(text), &yaml, &error) ||
        trajd_statistics_read_yaml(yaml, "x", result, &error))
        fail_msg("%s", error.message);
    trajd_yaml_destroy(&yaml);
}

static void test_json_reads_back_exactly(void **state)
{
    struct trajd_statistics *s = make_statistics(), *result;
    char *text = NULL;
    size_t size;
    struct trajd_json json = {.out = open_memstream(&text, &size)};

    (void)state;
    trajd_json_open_object(&json, NULL);
    trajd_json_u64(&json, "trajd_statistics", 1);
    trajd_json_open_object(&json, "outputs");
    trajd_json_open_object(&json, "x");
    trajd_statistics_write(s, 0, FEATURES, &json);
    trajd_json_close_object(&json);
    trajd_json_close_object(&json);
    trajd_json_close_object(&json);
    fclose(json.out);
    assert_non_null(strstr(text, "\"source\":\"windows\",\"fingerprint\":\"0123456789abcdef\""));
    assert_non_null(strstr(text, "\"windows\":10,\"steps\":20,\"valid_steps\":19"));
    assert_non_null(strstr(text, "\"count\":[19,18,17],\"nan\":[0,1,2]"));
    assert_non_null(strstr(text, "null"));
    read_back(text, &result);
    assert_int_equal(result->source, TRAJD_STATISTICS_FILE);
    assert_int_equal(result->feature_count, FEATURES);
    for (uint32_t d = 0; d < FEATURES; d++) {
        const struct trajd_feature_statistics *a = &s->features[d], *b = &result->features[d];
        assert_true(a->mean == b->mean && a->min == b->min && a->max == b->max);
        assert_true(d == 1 ? isnan(b->std) : a->std == b->std);
        for (int q = 0; q < TRAJD_STATISTICS_QUANTILES; q++)
            assert_true(a->quantiles[q] == b->quantiles[q]);
    }
    free(result);
    free(text);
    free(s);
}

static void test_json_of_some_features(void **state)
{
    static const float floats[] = {0.1f, NAN, INFINITY, -3};
    struct trajd_statistics *s = make_statistics();
    char *text = NULL;
    size_t size;
    struct trajd_json json = {.out = open_memstream(&text, &size)};

    (void)state;
    trajd_json_open_object(&json, NULL);
    trajd_statistics_write(s, 2, 1, &json);
    trajd_statistics_write_floats(floats, 4, "some", &json);
    trajd_statistics_write_floats(floats, 0, "none", &json);
    trajd_json_close_object(&json);
    fclose(json.out);
    assert_non_null(strstr(text, "\"features\":3,\"count\":[17],"));
    assert_non_null(strstr(text, ",\"some\":[0.100000001,null,null,-3],\"none\":[]}"));
    free(text);
    free(s);
}

struct folder {
    char path[64], file[128];
};

static void make_folder(struct folder *folder)
{
    strcpy(folder->path, "/tmp/trajd_stats_XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    snprintf(folder->file, sizeof folder->file, "%s/0123456789abcdef.statistics", folder->path);
}

static void test_saved_statistics_are_loaded(void **state)
{
    struct trajd_statistics *s = make_statistics(), *loaded;
    struct folder folder;

    (void)state;
    make_folder(&folder);
    assert_null(trajd_statistics_load(folder.path, s->fingerprint));
    trajd_statistics_save(folder.path, s);
    loaded = trajd_statistics_load(folder.path, s->fingerprint);
    assert_non_null(loaded);
    assert_memory_equal(loaded, s, sizeof *s + FEATURES * sizeof *s->features);
    free(loaded);
    assert_null(trajd_statistics_load(folder.path, s->fingerprint + 1));
    assert_null(trajd_statistics_load(NULL, s->fingerprint));
    trajd_statistics_save(NULL, s);
    assert_int_equal(unlink(folder.file), 0);
    assert_int_equal(rmdir(folder.path), 0); /* no temporary file is there */
    free(s);
}

/* Every byte that is flipped, and every length: such a file is not statistics. */
static void test_damaged_files_are_ignored(void **state)
{
    struct trajd_statistics *s = make_statistics(), *loaded;
    const off_t size = (off_t)(24 + sizeof *s + FEATURES * sizeof *s->features);
    struct folder folder;
    uint8_t byte;
    int fd;

    (void)state;
    make_folder(&folder);
    trajd_statistics_save(folder.path, s);
    fd = open(folder.file, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(lseek(fd, 0, SEEK_END), size);
    for (off_t at = 0; at < size; at++) {
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        assert_null(trajd_statistics_load(folder.path, s->fingerprint));
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    loaded = trajd_statistics_load(folder.path, s->fingerprint);
    assert_non_null(loaded);
    free(loaded);
    assert_int_equal(ftruncate(fd, size + 1), 0);
    assert_null(trajd_statistics_load(folder.path, s->fingerprint));
    for (off_t length = size - 1; length >= 0; length -= 7) {
        assert_int_equal(ftruncate(fd, length), 0);
        assert_null(trajd_statistics_load(folder.path, s->fingerprint));
    }
    close(fd);
    assert_int_equal(unlink(folder.file), 0);
    assert_int_equal(rmdir(folder.path), 0);
    free(s);
}

/* A link in the cache folder is not followed, even if it leads to good statistics. */
static void test_links_are_ignored(void **state)
{
    struct trajd_statistics *s = make_statistics();
    struct folder folder;
    char moved[140];

    (void)state;
    make_folder(&folder);
    trajd_statistics_save(folder.path, s);
    snprintf(moved, sizeof moved, "%s.moved", folder.file);
    assert_int_equal(rename(folder.file, moved), 0);
    assert_int_equal(symlink(moved, folder.file), 0);
    assert_null(trajd_statistics_load(folder.path, s->fingerprint));
    assert_int_equal(unlink(folder.file), 0);
    assert_int_equal(unlink(moved), 0);
    assert_int_equal(rmdir(folder.path), 0);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_reads_back_exactly),
        cmocka_unit_test(test_json_of_some_features),
        cmocka_unit_test(test_saved_statistics_are_loaded),
        cmocka_unit_test(test_damaged_files_are_ignored),
        cmocka_unit_test(test_links_are_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
