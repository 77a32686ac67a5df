/* Maps the ring behind a descriptor, checks its header, and unmaps it with the last reference. */
#include "clients/c/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "proto/ring_layout.h"

static enum trajd_status check_terms(const struct trajd_ring_terms *terms,
                                     struct trajd_error *error)
{
    uint64_t size_bytes;
    if (terms->slot_count == 0 || terms->slot_size_bytes < TRAJD_RING_ALIGNMENT ||
        terms->slot_size_bytes % TRAJD_RING_ALIGNMENT != 0 ||
        __builtin_mul_overflow((uint64_t)terms->slot_count, terms->slot_size_bytes, &size_bytes) ||
        __builtin_add_overflow(size_bytes, TRAJD_RING_ALIGNMENT, &size_bytes) ||
        size_bytes != terms->size_bytes || size_bytes > INT64_MAX)
        return trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0,
                               "ring %u: %llu bytes cannot hold %u slots of %llu bytes",
                               terms->ring_id, (unsigned long long)terms->size_bytes,
                               terms->slot_count, (unsigned long long)terms->slot_size_bytes);
    return TRAJD_OK;
}

static enum trajd_status check_file(int fd, const struct trajd_ring_terms *terms,
                                    struct trajd_error *error)
{
    struct stat file;
    if (fstat(fd, &file) != 0 || (uint64_t)file.st_size != terms->size_bytes)
        return trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0,
                               "ring %u: its file does not have the %llu bytes of OPENED",
                               terms->ring_id, (unsigned long long)terms->size_bytes);
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & wanted) != wanted)
        return trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0,
                               "ring %u: its file is not sealed against resizing", terms->ring_id);
    return TRAJD_OK;
}

static enum trajd_status check_header(const struct trajd_mapping *mapping,
                                      struct trajd_error *error)
{
    const struct trajd_ring_terms *terms = &mapping->terms;
    struct trajd_ring_header header;
    enum trajd_status status = TRAJD_OK;
    /* The header also proves that this is the daemon's memory: its instance is a random number. */
    if (mapping->gpu)
        status = trajd_cuda_read(mapping->gpu, &header, mapping->memory, sizeof header, error);
    else
        memcpy(&header, mapping->memory, sizeof header);
    if (status)
        return status;
    if (header.magic != TRAJD_RING_MAGIC || header.version != 1)
        return trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0,
                               "ring %u: its memory is not a ring of version 1", terms->ring_id);
    if (header.ring_id != terms->ring_id || header.slot_count != terms->slot_count ||
        header.slot_size_bytes != terms->slot_size_bytes ||
        header.instance_id != terms->instance_id)
        return trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0,
                               "ring %u: its header and OPENED disagree", terms->ring_id);
    return TRAJD_OK;
}

/* NULL: out of memory, and *error is set. */
static struct trajd_mapping *new_mapping(const struct trajd_ring_terms *terms,
                                         struct trajd_error *error)
{
    struct trajd_mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping) {
        trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "ring %u: out of memory", terms->ring_id);
        return NULL;
    }
    mapping->terms = *terms;
    mapping->references = 1;
    return mapping;
}

/* Checks the header of a mapping whose set-up returned `status`. Drops the mapping on failure. */
static enum trajd_status finish(struct trajd_mapping *mapping, enum trajd_status status,
                                struct trajd_mapping **out, struct trajd_error *error)
{
    if (!status)
        status = check_header(mapping, error);
    if (!status)
        *out = mapping;
    else
        trajd_mapping_drop(mapping);
    return status;
}

static enum trajd_status map_device(struct trajd_mapping *mapping, const char *gpu,
                                    struct trajd_error *error)
{
    const struct trajd_ring_terms *terms = &mapping->terms;
    enum trajd_status status = trajd_cuda_open(gpu, &mapping->gpu, error);
    if (!status)
        status = trajd_cuda_map(mapping->gpu, terms->handle, terms->handle_size_bytes,
                                &mapping->opened, error);
    if (!status)
        status = trajd_cuda_check_extent(mapping->gpu, mapping->opened, terms->handle_offset_bytes,
                                         terms->size_bytes, error);
    if (!status)
        mapping->memory = (unsigned char *)mapping->opened + terms->handle_offset_bytes;
    return status;
}

enum trajd_status trajd_mapping_create_device(const char *gpu, const struct trajd_ring_terms *terms,
                                              struct trajd_mapping **out, struct trajd_error *error)
{
    enum trajd_status status = check_terms(terms, error);
    /* kernels need aligned tensors: other loads trap */
    if (!status && terms->handle_offset_bytes % TRAJD_RING_ALIGNMENT != 0)
        status = trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0,
                                 "ring %u: its offset of %llu bytes is not a multiple of %u",
                                 terms->ring_id, (unsigned long long)terms->handle_offset_bytes,
                                 TRAJD_RING_ALIGNMENT);
    if (status)
        return status;
    struct trajd_mapping *mapping = new_mapping(terms, error);
    if (!mapping)
        return TRAJD_ERR_MEMORY;
    return finish(mapping, map_device(mapping, gpu, error), out, error);
}

enum trajd_status trajd_mapping_create(int fd, const struct trajd_ring_terms *terms,
                                       struct trajd_mapping **out, struct trajd_error *error)
{
    enum trajd_status status = check_terms(terms, error);
    if (!status)
        status = check_file(fd, terms, error);
    if (status)
        return status;
    struct trajd_mapping *mapping = new_mapping(terms, error);
    if (!mapping)
        return TRAJD_ERR_MEMORY;
    int protection = terms->writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *memory = mmap(NULL, terms->size_bytes, protection, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        status =
            trajd_error_set(error, TRAJD_ERR_MEMORY, errno, "ring %u: mapping %llu bytes: %s",
                            terms->ring_id, (unsigned long long)terms->size_bytes, strerror(errno));
        free(mapping);
        return status;
    }
    mapping->memory = memory;
    return finish(mapping, TRAJD_OK, out, error);
}

struct trajd_mapping *trajd_mapping_hold(struct trajd_mapping *mapping)
{
    /* relaxed: the caller's reference keeps the mapping */
    __atomic_add_fetch(&mapping->references, 1, __ATOMIC_RELAXED);
    return mapping;
}

void trajd_mapping_drop(struct trajd_mapping *mapping)
{
    if (!mapping)
        return;
    /* acquire and release: all reads by other threads happen before the unmapping */
    if (__atomic_sub_fetch(&mapping->references, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    if (mapping->opened)
        trajd_cuda_unmap(mapping->gpu, mapping->opened);
    if (mapping->terms.is_device)
        trajd_cuda_close(&mapping->gpu);
    else
        munmap(mapping->memory, mapping->terms.size_bytes);
    free(mapping);
}

unsigned char *trajd_mapping_slot(const struct trajd_mapping *mapping, uint32_t slot)
{
    return mapping->memory + TRAJD_RING_ALIGNMENT + slot * mapping->terms.slot_size_bytes;
}
