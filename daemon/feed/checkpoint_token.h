/* Encodes a checkpoint of a queue job as bytes, which the training program keeps: the epoch, the
 * feed, and which batches were DONE. It has the contents of a journal, in a form that does not
 * depend on daemon and node. The bytes come back from outside, so the decoder checks everything.
 *
 *     "TRJTOKN1", then little-endian u64: fingerprint, seed, epoch, requested, begin, length, G,
 *       high, count of undone batches,
 *     the undone batches in ascending order, a check over all words before it */
#ifndef TRAJD_FEED_CHECKPOINT_TOKEN_H
#define TRAJD_FEED_CHECKPOINT_TOKEN_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/feed/journal.h"
#include "proto/error.h"

#define TRAJD_CHECKPOINT_TOKEN_WORDS 11u /* without the undone batches */
#define TRAJD_CHECKPOINT_TOKEN_MAX_BYTES                                                           \
    (8u * (TRAJD_CHECKPOINT_TOKEN_WORDS + TRAJD_JOURNAL_MAX_UNDONE))

/* Returns the length in bytes. */
size_t trajd_checkpoint_token_encode(const struct trajd_journal_state *state,
                                     uint8_t bytes[TRAJD_CHECKPOINT_TOKEN_MAX_BYTES]);
/* TRAJD_ERR_ARGUMENT: no token, another version, damaged, or an impossible state. */
enum trajd_status trajd_checkpoint_token_decode(const void *bytes, size_t size,
                                                struct trajd_journal_state *state,
                                                struct trajd_error *error);
/* Returns the check of a token that was decoded. Different tokens have different checks. */
uint64_t trajd_checkpoint_token_check(const void *bytes, size_t size);

#endif
