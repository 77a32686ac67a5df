/* The daemon's side of a ring: a sealed memfd, its memory and its headers (proto/ring_layout.h says
 * what workers see). What a slot's state is, the core knows; here are only bytes. */
#ifndef TRAJD_SERVER_RING_H
#define TRAJD_SERVER_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/ring_layout.h"

struct trajd_server_ring {
    int fd;       /* -1: no ring */
    int share_fd; /* what is handed to workers: fd, or another one that can only be read */
    unsigned char *memory;
    uint64_t size_bytes;
    uint64_t slot_size_bytes;
    uint32_t slot_count;
    uint32_t ring_id;
    bool is_device; /* memory is a GPU's and somebody else's: nothing here reads or writes it */
};

/* Allocates and touches every page now, so that a full machine is an error here and not a SIGBUS
 * later; then seals the size. writable: workers may write into slots; else nobody maps it writable
 * from then on. slot_size_bytes must be a multiple of TRAJD_RING_ALIGNMENT. TRAJD_ERR_MEMORY:
 * overflow, or no room. */
enum trajd_status trajd_server_ring_create(struct trajd_server_ring *ring, uint32_t slot_count,
                                           uint64_t slot_size_bytes, bool writable,
                                           struct trajd_error *error);
/* A ring in memory that the caller has, on a GPU, and keeps until after the ring is destroyed. */
enum trajd_status trajd_server_ring_adopt(struct trajd_server_ring *ring, uint32_t slot_count,
                                          uint64_t slot_size_bytes, void *memory,
                                          struct trajd_error *error);
/* Numbers the ring; the header that goes to its first bytes. */
struct trajd_ring_header trajd_server_ring_number(struct trajd_server_ring *ring, uint32_t ring_id,
                                                  uint64_t instance_id);
/* Gives the ring its number and writes its header: before its descriptor is handed to anybody. */
void trajd_server_ring_name(struct trajd_server_ring *ring, uint32_t ring_id, uint64_t instance_id);
/* The daemon's mapping and descriptor; workers keep theirs. An empty ring (fd -1) is fine. */
void trajd_server_ring_destroy(struct trajd_server_ring *ring);

/* The slot's first byte, that is its header. */
void *trajd_server_ring_slot(const struct trajd_server_ring *ring, uint32_t slot);
/* Written whole before a batch is announced: a worker can write into a slot, so nothing of the last
 * use is trusted. */
void trajd_server_ring_stamp(const struct trajd_server_ring *ring, uint32_t slot,
                             const struct trajd_slot_header *header);

#endif
