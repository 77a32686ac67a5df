// libs: trajd_wire
/* Frames of any bytes: a decoded message encodes again, and decodes to the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t frames[2][TRAJD_WIRE_MAX_FRAME];

static void encode_again(const struct trajd_wire_message *message)
{
    static struct trajd_wire_tensor tensors[TRAJD_WIRE_MAX_TENSORS];
    static struct trajd_wire_message again;
    size_t sizes[2];
    uint64_t request;

    if (trajd_wire_encode(message, frames[0], sizeof frames[0], &sizes[0], NULL))
        abort();
    if (trajd_wire_decode(frames[0], sizes[0], tensors, &again, &request, NULL))
        abort();
    if (trajd_wire_encode(&again, frames[1], sizeof frames[1], &sizes[1], NULL))
        abort();
    if (sizes[0] != sizes[1] || memcmp(frames[0], frames[1], sizes[0]) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct trajd_wire_tensor tensors[TRAJD_WIRE_MAX_TENSORS];
    static struct trajd_wire_message message;
    struct trajd_error error;
    uint64_t request;

    trajd_wire_decode(data, size, NULL, &message, &request, &error);
    if (!trajd_wire_decode(data, size, tensors, &message, &request, &error))
        encode_again(&message);
    return 0;
}
