/* A checkpoint of a queue job as bytes that its program keeps: which epoch of which feed, and what
 * of it was DONE. What a journal says, in a form that outlives daemon and node. It comes back from
 * outside, so it is input.
 *
 *     "TRJTOKN1", then little-endian u64: fingerprint, seed, epoch, asked, begin, length, G, high,
 *       count of the undone,
 *     the undone in ascending order, check over all before it */
#ifndef TRAJD_FEED_CHECKPOINT_TOKEN_H
#define TRAJD_FEED_CHECKPOINT_TOKEN_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/feed/journal.h"
#include "proto/error.h"

#define TRAJD_CHECKPOINT_TOKEN_WORDS 11u /* beside the undone */
#define TRAJD_CHECKPOINT_TOKEN_MAX_BYTES                                                           \
    (8u * (TRAJD_CHECKPOINT_TOKEN_WORDS + TRAJD_JOURNAL_MAX_UNDONE))

/* Returns the length. */
size_t trajd_checkpoint_token_encode(const struct trajd_journal_state *state,
                                     uint8_t bytes[TRAJD_CHECKPOINT_TOKEN_MAX_BYTES]);
/* TRAJD_ERR_ARGUMENT: not a token, of another version, damaged, or saying what cannot be. */
enum trajd_status trajd_checkpoint_token_decode(const void *bytes, size_t size,
                                                struct trajd_journal_state *state,
                                                struct trajd_error *error);
/* Tells one token from another: of one that was decoded. */
uint64_t trajd_checkpoint_token_check(const void *bytes, size_t size);

#endif
