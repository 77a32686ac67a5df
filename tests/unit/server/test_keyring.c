/* keyring.c: which workers may connect, where the folder of keys or one of its files cannot be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/server/keyring.h"

static char folder[] = "/tmp/trajd_keyring_XXXXXX";
static struct trajd_keyring *keyring;
static char keys[2][TRAJD_KEY_SIZE];

static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Lets the process open that many descriptors more. Gives the limit back with -1. */
static void allow_descriptors(int count)
{
    static struct rlimit before;
    struct rlimit limit;
    int next;

    if (count < 0) {
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        return;
    }
    next = open("/dev/null", O_RDONLY);
    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = (struct rlimit){(rlim_t)(next + count), before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static int make(void **state)
{
    static const char *const names[] = {"clients/alice.key", "clients/bob.key"};
    struct trajd_key_file pair = {.name = "someone"};
    struct trajd_error error;

    (void)state;
    memset(pair.public_key, 's', TRAJD_KEY_SIZE - 1);
    memset(pair.secret_key, 's', TRAJD_KEY_SIZE - 1);
    if (!mkdtemp(folder) || mkdir(path_of("clients"), 0700) ||
        trajd_key_write(path_of("server.key_secret"), &pair, &error))
        return -1;
    memset(pair.secret_key, 0, sizeof pair.secret_key);
    for (int i = 0; i < 2; i++) {
        memset(pair.public_key, 'a' + i, TRAJD_KEY_SIZE - 1);
        memcpy(keys[i], pair.public_key, sizeof keys[i]);
        if (trajd_key_write(path_of(names[i]), &pair, &error))
            return -1;
    }
    if (trajd_keyring_create(folder, &keyring, &error)) {
        print_error("%s\n", error.message);
        return -1;
    }
    return 0;
}

static int clean(void **state)
{
    char command[128];

    (void)state;
    trajd_keyring_destroy(&keyring);
    snprintf(command, sizeof command, "rm -r %s", folder);
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    return system(command);
}

static void check(int worker, const char *name, enum trajd_status status)
{
    struct trajd_error error;
    const char *found = trajd_keyring_find(keyring, keys[worker], &error);

    assert_int_equal(error.status, status);
    if (name)
        assert_string_equal(found, name);
    else
        assert_null(found);
}

/* The folder was written to within the last seconds, so each look reads it. */
static void no_descriptor_for_the_folder(void **state)
{
    (void)state;
    allow_descriptors(0);
    check(0, "alice", TRAJD_ERR_SYSTEM);
    check(1, "bob", TRAJD_ERR_SYSTEM);
    assert_int_equal(trajd_keyring_count(keyring), 2);
    allow_descriptors(-1);
    check(0, "alice", TRAJD_OK);
}

static void no_descriptor_for_its_files(void **state)
{
    (void)state;
    assert_int_equal(unlink(path_of("clients/bob.key")), 0);
    allow_descriptors(1);
    check(0, "alice", TRAJD_ERR_SYSTEM);
    check(1, NULL, TRAJD_ERR_SYSTEM); /* its file is gone, and that is known */
    assert_int_equal(trajd_keyring_count(keyring), 1);
    allow_descriptors(-1);
    check(0, "alice", TRAJD_OK);
}

static void no_folder(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -r %s/clients", folder);
    assert_int_equal(system(command), 0);
    check(0, NULL, TRAJD_ERR_NOT_FOUND);
    assert_int_equal(trajd_keyring_count(keyring), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_descriptor_for_the_folder, make, clean),
        cmocka_unit_test_setup_teardown(no_descriptor_for_its_files, make, clean),
        cmocka_unit_test_setup_teardown(no_folder, make, clean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
