/* Prepared frames that stay in a GPU's memory. They are those of one view (daemon/cache/frames.h),
 * and feeds that share the view share them. They are filled one by one, when a batch first needs
 * them, until the share of gpu.rows that the view got is full; then they stay. The other frames
 * travel with each batch.
 *
 * open and close are called by the thread that makes and closes feeds. The other functions are
 * thread-safe. One feed at a time brings frames: between begin_adding and end_adding it finds again
 * what is there, and takes, copies and adds the rest. So no two slots hold the same frame. */
#ifndef TRAJD_PRODUCER_GPU_FRAMES_H
#define TRAJD_PRODUCER_GPU_FRAMES_H

#include "daemon/cache/frames.h"
#include "daemon/producer/gpu.h"

struct trajd_gpu_frames;

/* Opens the frames of a view, or shares open ones. Takes memory for all frames of the stream, or
 * what gpu.rows has left. frame_bytes: of a prepared frame. The caller closes. TRAJD_ERR_MEMORY. */
enum trajd_status trajd_gpu_frames_open(struct trajd_gpu *gpu, const struct trajd_dataset *dataset,
                                        uint32_t stream_index, const struct trajd_frame_view *view,
                                        uint64_t frame_bytes, struct trajd_gpu_frames **frames,
                                        struct trajd_error *error);
/* Nothing on the GPU may read the frames any more. NULL is fine. */
void trajd_gpu_frames_close(struct trajd_gpu_frames **frames);

/* Returns true if there is memory for all frames. */
bool trajd_gpu_frames_fit(const struct trajd_gpu_frames *frames);
/* Returns the bytes from one frame to the next, a multiple of 256. */
uint64_t trajd_gpu_frames_stride(const struct trajd_gpu_frames *frames);

/* Returns the address of a frame on the GPU, or NULL if it is not there. */
const void *trajd_gpu_frames_find(struct trajd_gpu_frames *frames, uint32_t episode_index,
                                  uint32_t row);
/* Waits while another feed adds frames. */
void trajd_gpu_frames_begin_adding(struct trajd_gpu_frames *frames);
void trajd_gpu_frames_end_adding(struct trajd_gpu_frames *frames);
/* Returns memory for one more frame, or NULL if there is none. */
void *trajd_gpu_frames_take(struct trajd_gpu_frames *frames);
/* Gives back memory of `take` that no frame was added for. */
void trajd_gpu_frames_give_back(struct trajd_gpu_frames *frames, void *memory);
/* Adds the frame that was copied to memory of `take`; the copy has ended. Returns false, and gives
 * the memory back, if there is no host memory for the table. */
bool trajd_gpu_frames_add(struct trajd_gpu_frames *frames, uint32_t episode_index, uint32_t row,
                          void *memory);

/* Keeps of `uses` those that are not on the GPU. Returns how many there are. */
uint32_t trajd_gpu_frames_select_absent(struct trajd_gpu_frames *frames,
                                        struct trajd_frame_use *uses, uint32_t count);

#endif
