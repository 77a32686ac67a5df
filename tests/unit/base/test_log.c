/* Tests the log: plain lines, the journal's form, JSON, rotation and threads. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/base/log.h"

enum { THREADS = 4, LINES = 500 };

/* A file as the log's target: what was written is read back from the start. */
static int open_target(void)
{
    char path[] = "/tmp/trajd-log-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
    return fd;
}

static size_t read_back(int fd, char *out, size_t size)
{
    ssize_t length = pread(fd, out, size - 1, 0);

    assert_true(length >= 0);
    out[length] = 0;
    return (size_t)length;
}

static void name_stream(int fd, char *out, size_t size, const char *tail)
{
    struct stat status;

    assert_int_equal(fstat(fd, &status), 0);
    snprintf(out, size, "%llu:%llu%s", (unsigned long long)status.st_dev,
             (unsigned long long)status.st_ino, tail);
}

static void test_plain_lines(void **state)
{
    struct trajd_log log;
    char text[256];
    int fd = open_target(), year, ms;

    (void)state;
    trajd_log_init(&log, fd, TRAJD_LOG_INFO, NULL);
    assert_false(log.journal);
    LOG(&log, DEBUG, "not written");
    LOG(&log, WARNING, "feed %s: %d", "train", 7);
    read_back(fd, text, sizeof text);
    assert_int_equal(sscanf(text, "%d-%*d-%*dT%*d:%*d:%*d.%dZ", &year, &ms), 2);
    assert_true(year >= 2024);
    assert_string_equal(text + 24, " warning: feed train: 7\n");
    close(fd);
}

static void test_journal(void **state)
{
    struct trajd_log log;
    char stream[64], text[256];
    int fd = open_target(), other = open_target();

    (void)state;
    name_stream(fd, stream, sizeof stream, "");
    trajd_log_init(&log, fd, TRAJD_LOG_DEBUG, stream);
    assert_true(log.journal);
    LOG(&log, ERROR, "a");
    LOG(&log, WARNING, "b");
    LOG(&log, INFO, "c");
    LOG(&log, DEBUG, "d");
    read_back(fd, text, sizeof text);
    assert_string_equal(text, "<3>a\n<4>b\n<6>c\n<7>d\n");
    trajd_log_init(&log, other, TRAJD_LOG_DEBUG, stream);
    assert_false(log.journal);
    name_stream(fd, stream, sizeof stream, "x");
    trajd_log_init(&log, fd, TRAJD_LOG_DEBUG, stream);
    assert_false(log.journal);
    trajd_log_init(&log, fd, TRAJD_LOG_DEBUG, "");
    assert_false(log.journal);
    trajd_log_init(&log, -1, TRAJD_LOG_DEBUG, stream);
    assert_false(log.journal);
    close(fd);
    close(other);
}

static void test_one_line_whatever_comes(void **state)
{
    char stream[64], text[4096], long_text[4000];
    struct trajd_log log;
    int fd = open_target();

    (void)state;
    name_stream(fd, stream, sizeof stream, "");
    trajd_log_init(&log, fd, TRAJD_LOG_INFO, stream);
    LOG(&log, INFO, "key a\n<0>forged\x7f caf\xc3\xa9 \xe2\x80\xae");
    read_back(fd, text, sizeof text);
    assert_string_equal(text, "<6>key a?<0>forged? caf\xc3\xa9 \\u202e\n");
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    errno = EBUSY;
    LOG(&log, INFO, "%s", long_text);
    assert_int_equal(errno, EBUSY);
    assert_int_equal(read_back(fd, text, sizeof text), 2047);
    assert_string_equal(text + 2047 - 6, "xx...\n");
    close(fd);
    errno = EBUSY;
    LOG(&log, INFO, "into nowhere");
    assert_int_equal(errno, EBUSY);
}

static void test_json(void **state)
{
    struct trajd_log log;
    char text[2048], stream[64];
    int fd = open_target();

    (void)state;
    trajd_log_init(&log, fd, TRAJD_LOG_INFO, NULL);
    log.json = true;
    LOG(&log, WARNING, "feed \"%s\":\n C:\\ \xff", "train");
    read_back(fd, text, sizeof text);
    assert_memory_equal(text, "{\"time\":\"20", 11);
    assert_string_equal(
        text + 9 + 24,
        "\",\"level\":\"warning\",\"message\":\"feed \\\"train\\\":? C:\\\\ \\ufffd\"}\n");
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    name_stream(fd, stream, sizeof stream, "");
    trajd_log_init(&log, fd, TRAJD_LOG_INFO, stream);
    log.json = true;
    LOG(&log, INFO, "a");
    read_back(fd, text, sizeof text);
    assert_memory_equal(text, "<6>{\"time\":", 11);
    close(fd);
}

static void test_longest_json(void **state)
{
    char text[16384], quotes[4000];
    struct trajd_log log;
    int fd = open_target();

    (void)state;
    memset(quotes, '"', sizeof quotes - 1);
    quotes[sizeof quotes - 1] = 0;
    trajd_log_init(&log, fd, TRAJD_LOG_INFO, NULL);
    log.json = true;
    LOG(&log, INFO, "%s", quotes);
    read_back(fd, text, sizeof text);
    assert_non_null(strstr(text, "\\\"...\"}\n"));
    close(fd);
}

static void read_file(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    out[fread(out, 1, size - 1, file)] = 0;
    fclose(file);
}

static void test_rotation(void **state)
{
    char folder[] = "/tmp/trajd-log-XXXXXX", path[64], old[80], none[64], text[4096];
    struct trajd_log log;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/log", folder);
    snprintf(old, sizeof old, "%s.1", path);
    trajd_log_init(&log, open_target(), TRAJD_LOG_INFO, NULL);
    trajd_log_rotate(&log, 0); /* without a path */
    assert_true(trajd_log_to_file(&log, path));
    LOG(&log, INFO, "first");
    trajd_log_rotate(&log, 1000);
    LOG(&log, INFO, "second");
    trajd_log_rotate(&log, 60);
    LOG(&log, INFO, "third");
    read_file(old, text, sizeof text);
    assert_non_null(strstr(text, "first\n"));
    assert_non_null(strstr(text, "second\n"));
    read_file(path, text, sizeof text);
    assert_string_equal(text + 24, " info: third\n");
    snprintf(none, sizeof none, "%s/none/log", folder);
    assert_false(trajd_log_to_file(&log, none));
    assert_int_equal(errno, ENOENT);
    close(log.fd);
    unlink(log.path), unlink(old), rmdir(folder);
}

static void *write_lines(void *argument)
{
    struct trajd_log *log = argument;

    for (int i = 0; i < LINES; i++)
        LOG(log, INFO, "%s", "0123456789012345678901234567890123456789");
    return NULL;
}

static void test_threads(void **state)
{
    static char text[THREADS * LINES * 44 + 1];
    struct trajd_log log;
    pthread_t threads[THREADS];
    char stream[64];
    int fd = open_target();

    (void)state;
    name_stream(fd, stream, sizeof stream, "");
    trajd_log_init(&log, fd, TRAJD_LOG_INFO, stream);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, &log), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(read_back(fd, text, sizeof text), THREADS * LINES * 44);
    for (size_t i = 0; i < THREADS * LINES; i++)
        assert_memory_equal(text + 44 * i, "<6>0123456789012345678901234567890123456789\n", 44);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_lines),
        cmocka_unit_test(test_journal),
        cmocka_unit_test(test_one_line_whatever_comes),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_longest_json),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
