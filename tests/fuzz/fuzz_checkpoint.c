// libs: trajd_feed
/* Any bytes as the token of a checkpoint: what is accepted encodes to the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "daemon/feed/checkpoint_token.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Gives the words a valid check, as in checkpoint_token.c: they are then any ones. */
static void give_check(uint8_t *token, size_t size)
{
    uint64_t check = UINT64_C(0x314e4b4f544a5254), word;
    size_t at = 0;

    if (size < TRAJD_CHECKPOINT_TOKEN_WORDS * 8u)
        return;
    for (; at + sizeof word < size; at += sizeof word) {
        memcpy(&word, token + at, sizeof word);
        check = (check ^ word) * UINT64_C(0xbf58476d1ce4e5b9);
        check ^= check >> 29;
    }
    memcpy(token + at, &check, size - at);
}

static void decode(const uint8_t *token, size_t size)
{
    static uint8_t again[TRAJD_CHECKPOINT_TOKEN_MAX_BYTES];
    static struct trajd_journal_state state;
    struct trajd_error error = {0};

    if (trajd_checkpoint_token_decode(token, size, &state, &error)) {
        if (error.status != TRAJD_ERR_ARGUMENT || strpbrk(error.message, "\r\n"))
            abort();
        return;
    }
    if (trajd_checkpoint_token_encode(&state, again) != size || memcmp(again, token, size))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *token = calloc(1, size ? size : 1);

    if (!token)
        return 0;
    if (size)
        memcpy(token, data, size);
    decode(token, size);
    give_check(token, size);
    decode(token, size);
    free(token);
    return 0;
}
