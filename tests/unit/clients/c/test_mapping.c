/* Mappings of rings: the checks of terms, file and header, and who keeps a ring mapped. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "clients/c/mapping.h"
#include "proto/array_len.h"
#include "proto/ring_layout.h"

#define SLOTS 3u
#define SLOT_BYTES (2 * TRAJD_RING_ALIGNMENT)
#define RING_BYTES (TRAJD_RING_ALIGNMENT + SLOTS * SLOT_BYTES)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static const struct trajd_ring_header good_header = {.magic = TRAJD_RING_MAGIC,
                                                     .version = 1,
                                                     .slot_count = SLOTS,
                                                     .slot_size_bytes = SLOT_BYTES,
                                                     .instance_id = 42,
                                                     .ring_id = 7};
static const struct trajd_ring_terms good_terms = {.instance_id = 42,
                                                   .size_bytes = RING_BYTES,
                                                   .slot_size_bytes = SLOT_BYTES,
                                                   .ring_id = 7,
                                                   .slot_count = SLOTS,
                                                   .writable = true};

static int make_ring(const struct trajd_ring_header *header, size_t size_bytes, int seals)
{
    int fd = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size_bytes), 0);
    assert_int_equal(pwrite(fd, header, sizeof *header, 0), sizeof *header);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static enum trajd_status map(int fd, const struct trajd_ring_terms *terms,
                             struct trajd_error *error)
{
    struct trajd_mapping *mapping = NULL;
    enum trajd_status status = trajd_mapping_create(fd, terms, &mapping, error);
    assert_int_equal(status != TRAJD_OK, mapping == NULL);
    trajd_mapping_drop(mapping);
    return status;
}

static void test_slots_begin_behind_the_header(void **state)
{
    (void)state;
    struct trajd_error error;
    struct trajd_mapping *mapping;
    int fd = make_ring(&good_header, RING_BYTES, SEALS);
    assert_int_equal(trajd_mapping_create(fd, &good_terms, &mapping, &error), TRAJD_OK);
    for (uint32_t i = 0; i < SLOTS; i++)
        assert_int_equal(trajd_mapping_slot(mapping, i) - mapping->memory,
                         TRAJD_RING_ALIGNMENT + i * SLOT_BYTES);
    trajd_mapping_slot(mapping, SLOTS - 1)[SLOT_BYTES - 1] = 0x5a;
    unsigned char last = 0;
    assert_int_equal(pread(fd, &last, 1, RING_BYTES - 1), 1);
    assert_int_equal(last, 0x5a); /* one memory */
    close(fd);
    trajd_mapping_drop(mapping);
}

static void test_the_last_reference_unmaps(void **state)
{
    (void)state;
    struct trajd_error error;
    struct trajd_mapping *mapping;
    int fd = make_ring(&good_header, RING_BYTES, SEALS);
    assert_int_equal(trajd_mapping_create(fd, &good_terms, &mapping, &error), TRAJD_OK);
    close(fd);
    void *memory = mapping->memory;
    assert_ptr_equal(trajd_mapping_hold(mapping), mapping);
    trajd_mapping_drop(mapping);
    assert_int_equal(msync(memory, RING_BYTES, MS_ASYNC), 0);
    trajd_mapping_drop(mapping);
    assert_int_equal(msync(memory, RING_BYTES, MS_ASYNC), -1); /* ENOMEM: not mapped any more */
    trajd_mapping_drop(NULL);
}

/* The daemon seals a ring that several jobs read against new writable mappings. */
static void test_a_shared_ring_is_mapped_read_only(void **state)
{
    (void)state;
    struct trajd_error error;
    struct trajd_ring_terms terms = good_terms;
    int fd = make_ring(&good_header, RING_BYTES, SEALS | F_SEAL_WRITE);
    assert_int_equal(map(fd, &terms, &error), TRAJD_ERR_MEMORY);
    terms.writable = false;
    assert_int_equal(map(fd, &terms, &error), TRAJD_OK);
    close(fd);
}

static void test_impossible_terms_are_refused(void **state)
{
    (void)state;
    int fd = make_ring(&good_header, RING_BYTES, SEALS);
    const struct {
        uint64_t size_bytes, slot_size_bytes;
        uint32_t slot_count;
    } bad[] = {
        {RING_BYTES, SLOT_BYTES, 0},
        {RING_BYTES, 0, SLOTS},
        {RING_BYTES, SLOT_BYTES + 64, SLOTS},          /* not a multiple of the alignment */
        {RING_BYTES, SLOT_BYTES, SLOTS + 1},           /* longer than the ring */
        {RING_BYTES + 1, SLOT_BYTES, SLOTS},           /* bytes that no slot has */
        {RING_BYTES, UINT64_C(1) << 63, 2},            /* the product overflows */
        {0, UINT64_MAX - TRAJD_RING_ALIGNMENT + 1, 1}, /* the sum overflows */
        {(UINT64_C(1) << 63) + TRAJD_RING_ALIGNMENT, UINT64_C(1) << 63, 1}, /* beyond off_t */
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct trajd_error error;
        struct trajd_ring_terms terms = good_terms;
        terms.size_bytes = bad[i].size_bytes;
        terms.slot_size_bytes = bad[i].slot_size_bytes;
        terms.slot_count = bad[i].slot_count;
        assert_int_equal(map(fd, &terms, &error), TRAJD_ERR_PROTOCOL);
        assert_non_null(strstr(error.message, "ring 7"));
    }
    close(fd);
}

static void test_other_files_are_refused(void **state)
{
    (void)state;
    struct trajd_error error;
    const int seals[] = {0, F_SEAL_SHRINK, F_SEAL_GROW}; /* each leaves a way to SIGBUS */
    for (size_t i = 0; i < ARRAY_LEN(seals); i++) {
        int fd = make_ring(&good_header, RING_BYTES, seals[i]);
        assert_int_equal(map(fd, &good_terms, &error), TRAJD_ERR_PROTOCOL);
        close(fd);
    }
    int fd = make_ring(&good_header, RING_BYTES - TRAJD_RING_ALIGNMENT, SEALS);
    assert_int_equal(map(fd, &good_terms, &error), TRAJD_ERR_PROTOCOL);
    close(fd);
    assert_int_equal(map(-1, &good_terms, &error), TRAJD_ERR_PROTOCOL);
}

static void test_other_headers_are_refused(void **state)
{
    (void)state;
    struct trajd_ring_header bad[6];
    for (size_t i = 0; i < 6; i++)
        bad[i] = good_header;
    bad[0].magic++;
    bad[1].version = 2;
    bad[2].slot_count--;
    bad[3].slot_size_bytes += TRAJD_RING_ALIGNMENT;
    bad[4].instance_id++; /* another run of the daemon */
    bad[5].ring_id++;
    for (size_t i = 0; i < 6; i++) {
        struct trajd_error error;
        int fd = make_ring(&bad[i], RING_BYTES, SEALS);
        assert_int_equal(map(fd, &good_terms, &error), TRAJD_ERR_PROTOCOL);
        close(fd);
    }
}

/* Both are refused before a driver is loaded. */
static void test_impossible_device_rings_are_refused(void **state)
{
    (void)state;
    struct trajd_error error;
    struct trajd_mapping *mapping = NULL;
    struct trajd_ring_terms terms = good_terms;
    terms.is_device = true;
    terms.handle_offset_bytes = 64;
    assert_int_equal(trajd_mapping_create_device("GPU-0", &terms, &mapping, &error),
                     TRAJD_ERR_PROTOCOL);
    terms.handle_offset_bytes = 0;
    terms.slot_count = 0;
    assert_int_equal(trajd_mapping_create_device("GPU-0", &terms, &mapping, &error),
                     TRAJD_ERR_PROTOCOL);
    assert_null(mapping);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots_begin_behind_the_header),
        cmocka_unit_test(test_the_last_reference_unmaps),
        cmocka_unit_test(test_a_shared_ring_is_mapped_read_only),
        cmocka_unit_test(test_impossible_terms_are_refused),
        cmocka_unit_test(test_other_files_are_refused),
        cmocka_unit_test(test_other_headers_are_refused),
        cmocka_unit_test(test_impossible_device_rings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
