/* The decoders of a process: a child for each job under way, at most as many as the pool may have,
 * whatever the number of threads, feeds and kinds of images. All functions are thread-safe. */
#ifndef TRAJD_DECODE_DECODER_POOL_H
#define TRAJD_DECODE_DECODER_POOL_H

#include "daemon/decode/decoder.h"

struct trajd_decoder_pool;

/* `program`: the path of trajd-decoder, copied. `most` >= 1: children that run at the same time. The
 * children above `eager` of them have a lower priority, and work only while the others do. Starts
 * none. The caller destroys the pool. */
enum trajd_status trajd_decoder_pool_create(const char *program, uint32_t most, uint32_t eager,
                                            struct trajd_decoder_pool **pool,
                                            struct trajd_error *error);
/* No job may run. NULL is fine. */
void trajd_decoder_pool_destroy(struct trajd_decoder_pool **pool);

/* Does what trajd_decoder_run does, by a decoder for these options, whose `program` is not used:
 * one that was used for the same, a new one, or one that was used for something else. Blocks until
 * one is free. */
enum trajd_status trajd_decoder_pool_run(struct trajd_decoder_pool *pool,
                                         const struct trajd_decoder_options *options,
                                         struct trajd_decoder_frame *frames, uint32_t count,
                                         struct trajd_error *error);

/* The same for trajd_decoder_run_unit. */
enum trajd_status trajd_decoder_pool_run_unit(struct trajd_decoder_pool *pool,
                                              const struct trajd_decoder_options *options,
                                              const struct trajd_decoder_unit *unit,
                                              struct trajd_decoder_frame *frames, uint32_t count,
                                              struct trajd_error *error);

#endif
