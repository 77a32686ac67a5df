/* Rings, the lock of a runtime directory, and the client's checks before it maps a ring. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "clients/c/mapping.h"
#include "clients/c/tensors.h"
#include "daemon/server/lock.h"
#include "daemon/server/ring.h"
#include "proto/array_len.h"

#define INSTANCE 42u

static struct trajd_ring_terms terms_of(const struct trajd_server_ring *ring)
{
    return (struct trajd_ring_terms){.instance_id = INSTANCE,
                                     .size_bytes = ring->size_bytes,
                                     .slot_size_bytes = ring->slot_size_bytes,
                                     .ring_id = ring->ring_id,
                                     .slot_count = ring->slot_count,
                                     .writable = true};
}

static void make_ring(struct trajd_server_ring *ring)
{
    struct trajd_error error;
    assert_int_equal(trajd_server_ring_create(ring, 3, 8192, true, &error), TRAJD_OK);
    trajd_server_ring_name(ring, 7, INSTANCE);
}

static void test_ring_cannot_be_resized(void **state)
{
    (void)state;
    struct trajd_server_ring ring;
    make_ring(&ring);
    assert_int_equal(ring.size_bytes, 4096 + 3 * 8192);
    assert_int_equal(ftruncate(ring.fd, 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(ring.fd, 1 << 20), -1);
    assert_int_equal(fcntl(ring.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    trajd_server_ring_destroy(&ring);
    trajd_server_ring_destroy(&ring); /* may be empty */
}

static void test_ring_refuses_impossible_sizes(void **state)
{
    (void)state;
    struct trajd_server_ring ring;
    struct trajd_error error;
    assert_int_equal(trajd_server_ring_create(&ring, 0, 4096, true, &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_server_ring_create(&ring, 3, 4095, true, &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_server_ring_create(&ring, 480, UINT64_C(1) << 60, true, &error),
                     TRAJD_ERR_MEMORY);
    assert_int_equal(trajd_server_ring_create(&ring, 4, UINT64_C(1) << 61, true, &error),
                     TRAJD_ERR_MEMORY);
    assert_int_equal(ring.fd, -1);
}

static void test_mapping_sees_what_the_ring_holds(void **state)
{
    (void)state;
    struct trajd_server_ring ring;
    struct trajd_mapping *mapping;
    struct trajd_error error;
    make_ring(&ring);
    const struct trajd_ring_terms terms = terms_of(&ring);
    const struct trajd_slot_header header = {
        .generation = 9, .epoch = 1, .position = 16, .row_count = 8};
    trajd_server_ring_stamp(&ring, 2, &header);
    assert_int_equal(trajd_mapping_create(ring.fd, &terms, &mapping, &error), TRAJD_OK);
    trajd_server_ring_destroy(&ring); /* the worker's mapping stays */
    assert_memory_equal(trajd_mapping_slot(mapping, 2), &header, sizeof header);
    trajd_mapping_drop(mapping);
}

/* The daemon has closed the feed while nobody read it. A worker has kept its mapping. */
static void test_an_unused_ring_holds_no_memory(void **state)
{
    (void)state;
    struct trajd_server_ring ring;
    struct trajd_mapping *mapping;
    struct stat file;
    make_ring(&ring);
    const struct trajd_ring_terms terms = terms_of(&ring);
    const unsigned char zeros[64] = {0};
    const int fd = dup(ring.fd);
    memset(trajd_server_ring_slot(&ring, 2), 7, sizeof zeros);
    assert_int_equal(trajd_mapping_create(fd, &terms, &mapping, NULL), TRAJD_OK);
    ring.is_unused = true;
    trajd_server_ring_destroy(&ring);
    assert_int_equal(fstat(fd, &file), 0);
    assert_int_equal(file.st_blocks, 0);
    assert_int_equal(file.st_size, terms.size_bytes);
    assert_memory_equal(trajd_mapping_slot(mapping, 2), zeros, sizeof zeros);
    trajd_mapping_drop(mapping);
    close(fd);
}

static void assert_refused(int fd, const struct trajd_ring_terms *terms)
{
    struct trajd_mapping *mapping = NULL;
    struct trajd_error error;
    assert_int_equal(trajd_mapping_create(fd, terms, &mapping, &error), TRAJD_ERR_PROTOCOL);
    assert_null(mapping);
    assert_true(error.message[0] != '\0');
}

static void test_mapping_refuses_other_terms(void **state)
{
    (void)state;
    struct trajd_server_ring ring;
    make_ring(&ring);
    struct trajd_ring_terms terms = terms_of(&ring);
    terms.instance_id++;
    assert_refused(ring.fd, &terms);
    terms = terms_of(&ring);
    terms.ring_id++;
    assert_refused(ring.fd, &terms);
    terms = terms_of(&ring);
    terms.slot_count = 6;
    terms.slot_size_bytes = 4096; /* the same total size */
    assert_refused(ring.fd, &terms);
    terms = terms_of(&ring);
    terms.size_bytes += 4096;
    assert_refused(ring.fd, &terms);
    terms = terms_of(&ring);
    terms.slot_count = 4;
    terms.size_bytes += 8192; /* consistent, but not of this file */
    assert_refused(ring.fd, &terms);
    terms = terms_of(&ring);
    terms.slot_size_bytes = UINT64_C(1) << 63;
    assert_refused(ring.fd, &terms);
    trajd_server_ring_destroy(&ring);
}

/* The check comes before any call of the CUDA driver. */
static void test_mapping_refuses_a_device_ring_between_boundaries(void **state)
{
    (void)state;
    struct trajd_server_ring ring;
    struct trajd_mapping *mapping = NULL;
    struct trajd_error error;
    make_ring(&ring);
    struct trajd_ring_terms terms = terms_of(&ring);
    terms.is_device = true;
    terms.handle_offset_bytes = 4096 + 64;
    assert_int_equal(trajd_mapping_create_device("GPU-none", &terms, &mapping, &error),
                     TRAJD_ERR_PROTOCOL);
    assert_null(mapping);
    assert_non_null(strstr(error.message, "offset of 4160 bytes"));
    trajd_server_ring_destroy(&ring);
}

static void test_mapping_refuses_files_that_are_no_rings(void **state)
{
    (void)state;
    struct trajd_server_ring ring;
    make_ring(&ring);
    const struct trajd_ring_terms terms = terms_of(&ring);
    int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(unsealed, (off_t)terms.size_bytes), 0);
    assert_refused(unsealed, &terms); /* could be truncated later: SIGBUS */
    assert_int_equal(fcntl(unsealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    assert_refused(unsealed, &terms); /* no header */
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_refused(ends[0], &terms);
    assert_refused(-1, &terms);
    close(ends[0]);
    close(ends[1]);
    close(unsealed);
    trajd_server_ring_destroy(&ring);
}

static void test_lock_names_its_holder(void **state)
{
    (void)state;
    char directory[] = "/tmp/trajd-lock-XXXXXX", path[64], pid[32];
    struct trajd_error error;
    int first, second;
    assert_non_null(mkdtemp(directory));
    assert_int_equal(trajd_lock_take(directory, &first, &error), TRAJD_OK);
    assert_int_equal(trajd_lock_take(directory, &second, &error), TRAJD_ERR_BUSY);
    snprintf(pid, sizeof pid, "pid %ld", (long)getpid());
    assert_non_null(strstr(error.message, pid));
    trajd_lock_release(&first);
    assert_int_equal(trajd_lock_take(directory, &second, &error),
                     TRAJD_OK); /* the file alone is not a lock */
    trajd_lock_release(&second);
    trajd_lock_release(&second);
    snprintf(path, sizeof path, "%s/lock", directory);
    unlink(path);
    rmdir(directory);
    assert_int_equal(trajd_lock_take(directory, &second, &error), TRAJD_ERR_SYSTEM);
}

static struct trajd_wire_tensor wire_tensor(uint64_t offset_bytes, uint64_t columns)
{
    return (struct trajd_wire_tensor){.name = trajd_wire_text("x"),
                                      .role = trajd_wire_text("obs"),
                                      .dtype = TRAJD_F32,
                                      .rank = 2,
                                      .shape = {4, columns},
                                      .offset_bytes = offset_bytes};
}

static void test_client_schema_stays_in_its_slot(void **state)
{
    (void)state;
    struct trajd_schema *schema;
    struct trajd_error error;
    struct trajd_wire_tensor tensor = wire_tensor(64, 4);
    struct trajd_wire_opened opened = {
        .batch = 4, .slot_size_bytes = 128, .tensor_count = 1, .tensors = &tensor};
    assert_int_equal(trajd_schema_create(&opened, &schema, &error), TRAJD_OK);
    assert_int_equal(schema->tensors[0].row_size_bytes, 16);
    trajd_schema_drop(schema);
    const struct {
        uint64_t offset_bytes, columns;
    } bad[] = {{64, 5},
               {68, 4},
               {0, 4},
               {65, 1},
               {UINT64_MAX - 3, 1},
               {64, UINT64_MAX / 4},
               {64, UINT64_C(1) << 62}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        tensor = wire_tensor(bad[i].offset_bytes, bad[i].columns);
        assert_int_equal(trajd_schema_create(&opened, &schema, &error), TRAJD_ERR_PROTOCOL);
    }
    tensor = wire_tensor(64, 1);
    tensor.shape[0] = 5; /* not the batch */
    assert_int_equal(trajd_schema_create(&opened, &schema, &error), TRAJD_ERR_PROTOCOL);
    tensor = wire_tensor(64, 0);
    tensor.rank = 3;
    tensor.shape[2] = UINT64_MAX; /* no elements, but an invalid extent */
    assert_int_equal(trajd_schema_create(&opened, &schema, &error), TRAJD_ERR_PROTOCOL);
}

/* Over tcp the tensors follow each other, so overlapping tensors of a slot could have a total size
 * that overflows. */
static void test_client_tensors_share_a_slot(void **state)
{
    (void)state;
    struct trajd_schema *schema;
    struct trajd_error error;
    struct trajd_wire_tensor tensors[] = {wire_tensor(64, 4), wire_tensor(128, 4)};
    struct trajd_wire_opened opened = {
        .batch = 4, .slot_size_bytes = 192, .tensor_count = 2, .tensors = tensors};
    assert_int_equal(trajd_schema_create(&opened, &schema, &error), TRAJD_OK);
    trajd_schema_drop(schema);
    tensors[0] = tensors[1] = wire_tensor(64, 8);
    assert_int_equal(trajd_schema_create(&opened, &schema, &error), TRAJD_ERR_PROTOCOL);
    tensors[0] = tensors[1] = wire_tensor(64, UINT64_C(1) << 59); /* 2^63 bytes each */
    opened.slot_size_bytes = UINT64_MAX;
    assert_int_equal(trajd_schema_create(&opened, &schema, &error), TRAJD_ERR_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_cannot_be_resized),
        cmocka_unit_test(test_ring_refuses_impossible_sizes),
        cmocka_unit_test(test_mapping_sees_what_the_ring_holds),
        cmocka_unit_test(test_an_unused_ring_holds_no_memory),
        cmocka_unit_test(test_mapping_refuses_other_terms),
        cmocka_unit_test(test_mapping_refuses_a_device_ring_between_boundaries),
        cmocka_unit_test(test_mapping_refuses_files_that_are_no_rings),
        cmocka_unit_test(test_lock_names_its_holder),
        cmocka_unit_test(test_client_schema_stays_in_its_slot),
        cmocka_unit_test(test_client_tensors_share_a_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
