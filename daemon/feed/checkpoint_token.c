/* Writes and reads the token of a checkpoint. */
#include "daemon/feed/checkpoint_token.h"

#include <string.h>

#define CHECKPOINT_TOKEN_MAGIC                                                                     \
    UINT64_C(0x314e4b4f544a5254)                       /* "TRJTOKN1"; the digit is the version */
#define FIXED_WORDS (TRAJD_CHECKPOINT_TOKEN_WORDS - 1) /* before the list of undone batches */

static void put_word(uint8_t *bytes, size_t index, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        bytes[8 * index + (size_t)i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get_word(const uint8_t *bytes, size_t index)
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value |= (uint64_t)bytes[8 * index + (size_t)i] << 8 * i;
    return value;
}

static uint64_t check_words(const uint8_t *bytes, size_t count)
{
    uint64_t check = CHECKPOINT_TOKEN_MAGIC;

    for (size_t i = 0; i < count; i++) {
        check = (check ^ get_word(bytes, i)) * UINT64_C(0xbf58476d1ce4e5b9);
        check ^= check >> 29;
    }
    return check;
}

size_t trajd_checkpoint_token_encode(const struct trajd_journal_state *state,
                                     uint8_t bytes[TRAJD_CHECKPOINT_TOKEN_MAX_BYTES])
{
    const struct trajd_journal_key *key = &state->key;
    const uint64_t words[FIXED_WORDS] = {CHECKPOINT_TOKEN_MAGIC,
                                         key->fingerprint,
                                         key->seed,
                                         key->epoch,
                                         key->requested,
                                         key->begin,
                                         key->length,
                                         key->batch,
                                         state->high,
                                         state->undone_count};
    size_t count = 0;

    for (; count < FIXED_WORDS; count++)
        put_word(bytes, count, words[count]);
    for (uint32_t i = 0; i < state->undone_count; i++)
        put_word(bytes, count++, state->undone[i]);
    put_word(bytes, count, check_words(bytes, count));
    return 8 * (count + 1);
}

static bool is_possible(const struct trajd_journal_state *state)
{
    const struct trajd_journal_key *key = &state->key;

    if (!key->batch || key->batch > UINT32_MAX || key->length > INT64_MAX ||
        key->begin > key->length || key->requested > key->length)
        return false;
    if (state->high > (key->length - key->begin + key->batch - 1) / key->batch ||
        state->high > TRAJD_JOURNAL_MAX_BATCH)
        return false;
    for (uint32_t i = 0; i < state->undone_count; i++)
        if (state->undone[i] >= state->high || (i && state->undone[i] <= state->undone[i - 1]))
            return false;
    return true;
}

enum trajd_status trajd_checkpoint_token_decode(const void *data, size_t size,
                                                struct trajd_journal_state *state,
                                                struct trajd_error *error)
{
    const uint8_t *bytes = data;
    const size_t count = size / 8;

    if (size % 8 || count < TRAJD_CHECKPOINT_TOKEN_WORDS ||
        size > TRAJD_CHECKPOINT_TOKEN_MAX_BYTES || memcmp(bytes, "TRJTOKN", 7) != 0)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "resume: these %zu bytes are not a checkpoint of a queue job", size);
    if (get_word(bytes, 0) != CHECKPOINT_TOKEN_MAGIC)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "resume: the checkpoint has version %c, this daemon reads version 1",
                               bytes[7] >= ' ' && bytes[7] < 0x7f ? bytes[7] : '?');
    if (get_word(bytes, count - 1) != check_words(bytes, count - 1) ||
        get_word(bytes, 9) != count - TRAJD_CHECKPOINT_TOKEN_WORDS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "resume: the checkpoint is damaged (its checksum differs)");
    state->key = (struct trajd_journal_key){.fingerprint = get_word(bytes, 1),
                                            .seed = get_word(bytes, 2),
                                            .epoch = get_word(bytes, 3),
                                            .requested = get_word(bytes, 4),
                                            .begin = get_word(bytes, 5),
                                            .length = get_word(bytes, 6),
                                            .batch = get_word(bytes, 7)};
    state->high = get_word(bytes, 8);
    state->undone_count = (uint32_t)(count - TRAJD_CHECKPOINT_TOKEN_WORDS);
    for (uint32_t i = 0; i < state->undone_count; i++)
        state->undone[i] = get_word(bytes, FIXED_WORDS + i);
    if (!is_possible(state))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "resume: the checkpoint has impossible values");
    return TRAJD_OK;
}

uint64_t trajd_checkpoint_token_check(const void *bytes, size_t size)
{
    return get_word(bytes, size / 8 - 1);
}
