/* The daemon's side of a ring: a sealed memfd, its mapping and its headers. proto/ring_layout.h has
 * the layout. The states of slots are in the core, and not here. */
#ifndef TRAJD_SERVER_RING_H
#define TRAJD_SERVER_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/ring_layout.h"

struct trajd_server_ring {
    int fd;       /* -1: no ring, or one on a GPU */
    int share_fd; /* for workers: equal to fd, or a descriptor that can only be read */
    unsigned char *memory;
    uint64_t size_bytes;
    uint64_t slot_size_bytes;
    uint32_t slot_count;
    uint32_t ring_id;
    bool is_unused; /* no session reads it: destroying it also empties the mappings of workers */
    bool is_device; /* memory on a GPU, owned by the caller; nothing here reads or writes it */
};

/* Creates a ring. Allocates every page now, so that a full machine is an error here and not a
 * SIGBUS later; then seals the size. writable: workers may write into slots; if false, no process
 * can map the ring writable from then on. slot_size_bytes must be a multiple of
 * TRAJD_RING_ALIGNMENT. TRAJD_ERR_ARGUMENT, TRAJD_ERR_SYSTEM, or TRAJD_ERR_MEMORY: overflow, or not
 * enough memory. */
enum trajd_status trajd_server_ring_create(struct trajd_server_ring *ring, uint32_t slot_count,
                                           uint64_t slot_size_bytes, bool writable,
                                           struct trajd_error *error);
/* Makes a ring of memory on a GPU. The caller owns the memory and keeps it until after the ring was
 * destroyed. */
enum trajd_status trajd_server_ring_adopt(struct trajd_server_ring *ring, uint32_t slot_count,
                                          uint64_t slot_size_bytes, void *memory,
                                          struct trajd_error *error);
/* Sets the ring's number, and returns the header that belongs to the ring's first bytes. */
struct trajd_ring_header trajd_server_ring_number(struct trajd_server_ring *ring, uint32_t ring_id,
                                                  uint64_t instance_id);
/* Sets the ring's number and writes its header. Called before the descriptor is sent to a worker.
 */
void trajd_server_ring_name(struct trajd_server_ring *ring, uint32_t ring_id, uint64_t instance_id);
/* Frees the daemon's mapping and descriptors; workers keep theirs. If the ring is unused and not
 * read-only, its pages are freed, too: then mappings that workers have kept hold no memory, and
 * read as zero. The ring may be empty (fd -1). */
void trajd_server_ring_destroy(struct trajd_server_ring *ring);

/* Returns the slot's first byte, where its header begins. */
void *trajd_server_ring_slot(const struct trajd_server_ring *ring, uint32_t slot);
/* Writes the slot's header. Called before each BATCH, because a worker may have overwritten the
 * header. Does nothing for a ring on a GPU. */
void trajd_server_ring_stamp(const struct trajd_server_ring *ring, uint32_t slot,
                             const struct trajd_slot_header *header);

#endif
