/* A ring as the worker has it: mapped once, kept while a batch in it is held, also past the
 * daemon's death. */
#ifndef TRAJD_C_MAPPING_H
#define TRAJD_C_MAPPING_H

#include <stdbool.h>
#include <stdint.h>

#include "clients/c/cuda.h"
#include "proto/error.h"
#include "proto/wire.h"

/* What OPENED says about a ring. */
struct trajd_ring_terms {
    uint64_t instance_id;
    uint64_t size_bytes;
    uint64_t slot_size_bytes;
    uint32_t ring_id;
    uint32_t slot_count;
    bool writable;
    bool is_device;
    uint8_t handle[TRAJD_WIRE_MAX_HANDLE]; /* of a ring on a GPU */
    uint32_t handle_size_bytes;
    uint64_t handle_offset_bytes;
};

struct trajd_mapping {
    struct trajd_ring_terms terms;
    unsigned char *memory;
    struct trajd_cuda *gpu; /* where the memory is; NULL: the host's */
    void *opened;           /* on the GPU: what its handle opened */
    uint32_t references;    /* the client's and one a batch; changed atomically, by any thread */
};

/* Checks size, seals and header against the terms before anything is believed, and maps. The
 * descriptor stays the caller's. TRAJD_ERR_PROTOCOL: the ring is not what was told. */
enum trajd_status trajd_mapping_create(int fd, const struct trajd_ring_terms *terms,
                                       struct trajd_mapping **mapping, struct trajd_error *error);
/* The same for a ring on the GPU with that UUID. Also TRAJD_ERR_UNSUPPORTED, _NOT_FOUND, _DEVICE:
 * it cannot be opened from here. */
enum trajd_status trajd_mapping_create_device(const char *gpu, const struct trajd_ring_terms *terms,
                                              struct trajd_mapping **mapping,
                                              struct trajd_error *error);
struct trajd_mapping *trajd_mapping_hold(struct trajd_mapping *mapping);
/* The last one unmaps. NULL is fine. */
void trajd_mapping_drop(struct trajd_mapping *mapping);
unsigned char *trajd_mapping_slot(const struct trajd_mapping *mapping, uint32_t slot);

#endif
