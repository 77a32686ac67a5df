/* The pictures of batches in a GPU's memory.
 *
 *   producer's thread:  find the frame of each step -> frames that are not on the GPU: pin, copy, wait
 *                       -> a record for each frame --copy--> GPU; masks and draws --copy--> slot
 *   launching thread:   one launch for all pictures that are made alike: augment, finish
 *
 * A frame that stays on the GPU costs a pointer. A step without a frame is a copy of a finished
 * frame of padding. All functions but launch are called on the producer's thread. */
#ifndef TRAJD_PRODUCER_GPU_PICTURES_H
#define TRAJD_PRODUCER_GPU_PICTURES_H

#include "daemon/producer/producer_gpu_internal.h"

struct trajd_gpu_pictures;

/* Opens the pictures of the producer's members, whose rows are held. *pictures is NULL if the feed
 * has none. depth: batches under way at once. The caller destroys, also after an error.
 * TRAJD_ERR_MEMORY: over the GPU's budgets; TRAJD_ERR_UNSUPPORTED: no kernel makes them. */
enum trajd_status trajd_gpu_pictures_create(struct trajd_producer *producer, uint32_t depth,
                                            struct trajd_gpu_pictures **pictures,
                                            struct trajd_error *error);
/* The stream has finished all work. NULL is fine. */
void trajd_gpu_pictures_destroy(struct trajd_gpu_pictures **pictures);

/* Prepares the pictures of a batch. Writes the draws to `ids`, the staged tensors behind ids_offset
 * of the slot, which are copied later. Blocks until the frames are on the GPU. TRAJD_ERR_DEVICE:
 * the GPU has failed. Other errors: this batch cannot be made. */
enum trajd_status trajd_gpu_pictures_prepare(struct trajd_gpu_pictures *pictures,
                                             const struct trajd_gpu_batch *gpu_batch, uint8_t *ids,
                                             struct trajd_error *error);
/* Returns true if the last batch that was prepared had to wait for frames. */
bool trajd_gpu_pictures_has_brought(const struct trajd_gpu_pictures *pictures);
/* Launches what is prepared and not launched yet. Does not block. */
enum trajd_status trajd_gpu_pictures_launch(struct trajd_gpu_pictures *pictures,
                                            const struct trajd_gpu_batch *gpu_batch,
                                            struct trajd_error *error);

#endif
