/* Files of keys: written files can be read, errors name the line, and a secret key that others
 * could read is refused. */
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

#include "proto/array_len.h"
#include "proto/key_file.h"

#define PUBLIC "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
#define SECRET "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"

static char directory[64], path[128];

static const struct trajd_key_file pair = {
    .name = "alice-1", .public_key = PUBLIC, .secret_key = SECRET, .server_key = PUBLIC};

static enum trajd_status parse(const char *text, struct trajd_key_file *keys,
                               struct trajd_error *error)
{
    return trajd_key_parse("some.key", text, strlen(text), keys, error);
}

static void test_written_files_can_be_read(void **state)
{
    (void)state;
    struct trajd_key_file keys;
    struct trajd_error error;
    struct stat file;
    assert_int_equal(trajd_key_write(path, &pair, &error), TRAJD_OK);
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 07777, 0600);
    assert_int_equal(trajd_key_read_secret(path, &keys, &error), TRAJD_OK);
    assert_memory_equal(&keys, &pair, sizeof keys);
    assert_int_equal(trajd_key_write(path, &pair, &error), TRAJD_ERR_BUSY); /* does not overwrite */
    struct trajd_key_file shown = pair;
    memset(shown.secret_key, 0, sizeof shown.secret_key);
    unlink(path);
    assert_int_equal(trajd_key_write(path, &shown, &error), TRAJD_OK);
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 07777, 0644);
    assert_int_equal(trajd_key_read(path, &keys, &error), TRAJD_OK);
    assert_string_equal(keys.public_key, PUBLIC);
    assert_string_equal(keys.secret_key, "");
}

static void test_certificates_of_other_tools_are_read(void **state)
{
    (void)state;
    struct trajd_key_file keys;
    struct trajd_error error;
    assert_int_equal(
        parse("#   ****  Generated on 2026-01-01 by CZMQ  ****\n\nmetadata\n    name = 'bob'\n"
              "    email = \"bob@example.org\"\ncurve\n    public-key = \"" PUBLIC
              "\"\r\n    secret-key = \"" SECRET "\"",
              &keys, &error),
        TRAJD_OK);
    assert_string_equal(keys.name, "bob");
    assert_string_equal(keys.public_key, PUBLIC);
    assert_string_equal(keys.secret_key, SECRET);
    assert_string_equal(keys.server_key, "");
}

static void test_other_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part; /* of the message */
    } bad[] = {
        {"", "no public-key"},
        {"curve\n secret-key = \"" SECRET "\"\n", "no public-key"},
        {"# x\npublic-key = \"short\"\n", "some.key:2: public-key"},
        {"public-key = \"" PUBLIC "0\"\n", "some.key:1: public-key"},
        {"public-key = \"Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{h~~\"\n", "some.key:1: public-key"},
        {"public-key = \"" PUBLIC "\"\npublic-key = \"" PUBLIC "\"\n",
         "some.key:2: public-key appears a second time"},
        {"public-key = \"" PUBLIC "\"\nname = \"../x\"\n", "some.key:2: name"},
        {"public-key = \"" PUBLIC "\"\nsecret-key = \n", "some.key:2: secret-key"},
    };
    struct trajd_key_file keys;
    struct trajd_error error;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(parse(bad[i].text, &keys, &error), TRAJD_ERR_ARGUMENT);
        assert_non_null(strstr(error.message, bad[i].part));
        assert_null(strstr(error.message, SECRET));
    }
    char line[400];
    memset(line, 'x', sizeof line);
    assert_int_equal(trajd_key_parse("some.key", line, sizeof line, &keys, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_key_parse("some.key", "a\0b", 3, &keys, &error), TRAJD_ERR_ARGUMENT);
}

/* What cannot be read is an error with the reason. */
static void test_a_directory_is_no_key_file(void **state)
{
    (void)state;
    struct trajd_key_file keys;
    struct trajd_error error;
    assert_int_equal(trajd_key_read(directory, &keys, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "a folder, not a regular file"));
    assert_int_equal(trajd_key_read(path, &keys, &error), TRAJD_ERR_NOT_FOUND);
}

static void test_a_secret_must_be_private(void **state)
{
    (void)state;
    struct trajd_key_file keys;
    struct trajd_error error;
    assert_int_equal(trajd_key_read_secret(path, &keys, &error), TRAJD_ERR_NOT_FOUND);
    assert_int_equal(trajd_key_write(path, &pair, &error), TRAJD_OK);
    static const mode_t modes[] = {0644, 0640, 0604, 0660, 0610};
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_int_equal(trajd_key_read_secret(path, &keys, &error), TRAJD_ERR_ARGUMENT);
        assert_non_null(strstr(error.message, "chmod 600"));
    }
    assert_int_equal(chmod(path, 0400), 0);
    assert_int_equal(trajd_key_read_secret(path, &keys, &error), TRAJD_OK);
    if (geteuid() != 0) /* only root can change the owner of a file */
        return;
    assert_int_equal(chown(path, 65534, 65534), 0);
    assert_int_equal(trajd_key_read_secret(path, &keys, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "uid 65534"));
}

static void test_a_secret_must_be_an_ordinary_file_with_a_secret_key(void **state)
{
    (void)state;
    struct trajd_key_file keys, shown = pair;
    struct trajd_error error;
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(trajd_key_read_secret(path, &keys, &error), TRAJD_ERR_ARGUMENT);
    unlink(path);
    memset(shown.secret_key, 0, sizeof shown.secret_key);
    assert_int_equal(trajd_key_write(path, &shown, &error), TRAJD_OK);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(trajd_key_read_secret(path, &keys, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "no secret-key"));
}

static int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/trajd-keys-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof path, "%s/some.key", directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_written_files_can_be_read, make_directory,
                                        remove_directory),
        cmocka_unit_test(test_certificates_of_other_tools_are_read),
        cmocka_unit_test(test_other_files_are_refused),
        cmocka_unit_test_setup_teardown(test_a_directory_is_no_key_file, make_directory,
                                        remove_directory),
        cmocka_unit_test_setup_teardown(test_a_secret_must_be_private, make_directory,
                                        remove_directory),
        cmocka_unit_test_setup_teardown(test_a_secret_must_be_an_ordinary_file_with_a_secret_key,
                                        make_directory, remove_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
