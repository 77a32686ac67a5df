/* A worker's mapping of a ring. It is mapped once and kept while a batch in it is held, also after
 * the daemon's death. Reference-counted; thread-safe. */
#ifndef TRAJD_C_MAPPING_H
#define TRAJD_C_MAPPING_H

#include <stdbool.h>
#include <stdint.h>

#include "clients/c/cuda.h"
#include "proto/error.h"
#include "proto/wire.h"

/* A ring as OPENED describes it. `size_bytes` is all of it: TRAJD_RING_ALIGNMENT bytes of header,
 * then slot_count slots of slot_size_bytes. */
struct trajd_ring_terms {
    uint64_t instance_id;
    uint64_t size_bytes;
    uint64_t slot_size_bytes;
    uint32_t ring_id;
    uint32_t slot_count;
    bool writable;
    bool is_device;
    uint8_t handle[TRAJD_WIRE_MAX_HANDLE]; /* on a GPU: its cudaIpcMemHandle */
    uint32_t handle_size_bytes;
    uint64_t handle_offset_bytes;
};

struct trajd_mapping {
    struct trajd_ring_terms terms;
    unsigned char *memory;
    struct trajd_cuda *gpu; /* the GPU that has the memory; NULL: host memory */
    /* on a GPU: the memory that the handle opened; `memory` lies handle_offset_bytes into it */
    void *opened;
    /* atomic; the client's, one for each batch and one for each trajd_ring */
    uint32_t references;
};

/* Maps a ring in host memory after checking the terms, the file's size and its seals, and then
 * checks the header. The caller keeps the descriptor and drops the mapping. TRAJD_ERR_PROTOCOL: the
 * ring does not match the terms; TRAJD_ERR_MEMORY. */
enum trajd_status trajd_mapping_create(int fd, const struct trajd_ring_terms *terms,
                                       struct trajd_mapping **mapping, struct trajd_error *error);
/* The same for a ring on the GPU with that UUID. Also TRAJD_ERR_UNSUPPORTED, _NOT_FOUND, _DEVICE:
 * its memory cannot be opened from this process. */
enum trajd_status trajd_mapping_create_device(const char *gpu, const struct trajd_ring_terms *terms,
                                              struct trajd_mapping **mapping,
                                              struct trajd_error *error);
struct trajd_mapping *trajd_mapping_hold(struct trajd_mapping *mapping);
/* Drops one reference. The last one unmaps. NULL is fine. */
void trajd_mapping_drop(struct trajd_mapping *mapping);
unsigned char *trajd_mapping_slot(const struct trajd_mapping *mapping, uint32_t slot);

#endif
