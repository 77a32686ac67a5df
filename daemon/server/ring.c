/* Makes the memfd of a ring, maps and seals it. */
#include "daemon/server/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

static int open_memfd(void)
{
    int fd = memfd_create("trajd-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* a kernel without MFD_NOEXEC_SEAL */
        fd = memfd_create("trajd-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

static enum trajd_status allocate(int fd, uint64_t size_bytes, struct trajd_error *error)
{
    int code;
    do
        code = posix_fallocate(fd, 0, (off_t)size_bytes);
    while (code == EINTR);
    if (code != 0)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, code, "ring of %llu bytes: %s",
                               (unsigned long long)size_bytes, strerror(code));
    return TRAJD_OK;
}

static enum trajd_status ring_size(uint32_t slot_count, uint64_t slot_size_bytes,
                                   uint64_t *size_bytes, struct trajd_error *error)
{
    if (slot_count == 0 || slot_size_bytes == 0 || slot_size_bytes % TRAJD_RING_ALIGNMENT != 0)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "ring of %u slots of %llu bytes: needs a slot, and slot sizes in multiples of %u bytes",
            slot_count, (unsigned long long)slot_size_bytes, TRAJD_RING_ALIGNMENT);
    if (__builtin_mul_overflow((uint64_t)slot_count, slot_size_bytes, size_bytes) ||
        __builtin_add_overflow(*size_bytes, TRAJD_RING_ALIGNMENT, size_bytes) ||
        *size_bytes > INT64_MAX)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "ring of %u slots of %llu bytes: the size overflows", slot_count,
                               (unsigned long long)slot_size_bytes);
    return TRAJD_OK;
}

/* Seals the size of the ring. If workers may only read, also seals it against new writable
 * mappings, which works even if a worker opens the memory again through /proc. Before Linux 5.1
 * there is no such seal, and only the descriptor for workers is read-only. */
static enum trajd_status seal(struct trajd_server_ring *ring, bool writable,
                              struct trajd_error *error)
{
    const int size = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    char path[64];
    if (writable || fcntl(ring->fd, F_ADD_SEALS, size | F_SEAL_FUTURE_WRITE) != 0)
        if (fcntl(ring->fd, F_ADD_SEALS, size) != 0)
            return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "sealing a ring: %s",
                                   strerror(errno));
    ring->share_fd = ring->fd;
    if (writable)
        return TRAJD_OK;
    snprintf(path, sizeof path, "/proc/self/fd/%d", ring->fd);
    ring->share_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (ring->share_fd < 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno,
                               "%s: cannot open a ring read-only for workers: %s", path,
                               strerror(errno));
    return TRAJD_OK;
}

enum trajd_status trajd_server_ring_create(struct trajd_server_ring *ring, uint32_t slot_count,
                                           uint64_t slot_size_bytes, bool writable,
                                           struct trajd_error *error)
{
    *ring = (struct trajd_server_ring){
        .fd = -1, .share_fd = -1, .slot_count = slot_count, .slot_size_bytes = slot_size_bytes};
    enum trajd_status status = ring_size(slot_count, slot_size_bytes, &ring->size_bytes, error);
    if (status)
        return status;
    ring->fd = open_memfd();
    if (ring->fd < 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "memfd_create: %s", strerror(errno));
    status = allocate(ring->fd, ring->size_bytes, error);
    if (status)
        goto fail;
    void *memory = mmap(NULL, ring->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                        ring->fd, 0);
    if (memory == MAP_FAILED) {
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, errno, "mapping a ring of %llu bytes: %s",
                                 (unsigned long long)ring->size_bytes, strerror(errno));
        goto fail;
    }
    ring->memory = memory;
    status = seal(ring, writable, error);
    if (status)
        goto fail;
    return TRAJD_OK;
fail:
    trajd_server_ring_destroy(ring);
    return status;
}

enum trajd_status trajd_server_ring_adopt(struct trajd_server_ring *ring, uint32_t slot_count,
                                          uint64_t slot_size_bytes, void *memory,
                                          struct trajd_error *error)
{
    *ring = (struct trajd_server_ring){.fd = -1,
                                       .share_fd = -1,
                                       .memory = memory,
                                       .slot_count = slot_count,
                                       .slot_size_bytes = slot_size_bytes,
                                       .is_device = true};
    return ring_size(slot_count, slot_size_bytes, &ring->size_bytes, error);
}

struct trajd_ring_header trajd_server_ring_number(struct trajd_server_ring *ring, uint32_t ring_id,
                                                  uint64_t instance_id)
{
    ring->ring_id = ring_id;
    return (struct trajd_ring_header){
        .magic = TRAJD_RING_MAGIC,
        .version = 1,
        .slot_count = ring->slot_count,
        .slot_size_bytes = ring->slot_size_bytes,
        .instance_id = instance_id,
        .ring_id = ring_id,
    };
}

void trajd_server_ring_name(struct trajd_server_ring *ring, uint32_t ring_id, uint64_t instance_id)
{
    const struct trajd_ring_header header = trajd_server_ring_number(ring, ring_id, instance_id);
    memcpy(ring->memory, &header, sizeof header);
}

void trajd_server_ring_destroy(struct trajd_server_ring *ring)
{
    /* fails, without harm, if the ring is sealed against writing */
    if (ring->is_unused && ring->fd >= 0)
        fallocate(ring->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)ring->size_bytes);
    if (ring->memory && !ring->is_device)
        munmap(ring->memory, ring->size_bytes);
    if (ring->share_fd >= 0 && ring->share_fd != ring->fd)
        close(ring->share_fd);
    if (ring->fd >= 0)
        close(ring->fd);
    ring->memory = NULL;
    ring->fd = ring->share_fd = -1;
}

void *trajd_server_ring_slot(const struct trajd_server_ring *ring, uint32_t slot)
{
    return ring->memory + TRAJD_RING_ALIGNMENT + (uint64_t)slot * ring->slot_size_bytes;
}

void trajd_server_ring_stamp(const struct trajd_server_ring *ring, uint32_t slot,
                             const struct trajd_slot_header *header)
{
    if (!ring->is_device) /* workers do not read headers on a GPU, which would cost a copy */
        memcpy(trajd_server_ring_slot(ring, slot), header, sizeof *header);
}
