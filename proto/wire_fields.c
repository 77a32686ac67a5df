#include "proto/wire_fields.h"

#include "proto/array_len.h"

#define AT(type, member) ((uint32_t)offsetof(struct trajd_wire_##type, member))

static const struct trajd_wire_field hello_fields[] = {
    {"minor", TRAJD_WIRE_KIND_U32, AT(hello, minor), false, 0, UINT32_MAX},
    {"client", TRAJD_WIRE_KIND_PROSE, AT(hello, client), true, 0, TRAJD_WIRE_MAX_CLIENT},
    {"pid", TRAJD_WIRE_KIND_U64, AT(hello, pid), true, 0, UINT64_MAX},
    {"token", TRAJD_WIRE_KIND_TOKEN, AT(hello, token), true, 0, 0},
    {"instance", TRAJD_WIRE_KIND_U64, AT(hello, instance), true, 0, UINT64_MAX},
    {"received", TRAJD_WIRE_KIND_U64, AT(hello, received), true, 0, UINT64_MAX},
    {"held", TRAJD_WIRE_KIND_LEASES, AT(hello, held), true, 0, TRAJD_WIRE_MAX_LEASES},
    {"done", TRAJD_WIRE_KIND_LEASES, AT(hello, done), true, 0, TRAJD_WIRE_MAX_LEASES},
};

static const struct trajd_wire_field open_fields[] = {
    {"request", TRAJD_WIRE_KIND_U64, AT(open, request), false, 1, UINT64_MAX},
    {"feed", TRAJD_WIRE_KIND_NAME, AT(open, feed), true, 0, TRAJD_WIRE_MAX_NAME},
    {"spec", TRAJD_WIRE_KIND_NAME, AT(open, spec), true, 0, TRAJD_WIRE_MAX_SPEC},
    {"job", TRAJD_WIRE_KIND_NAME, AT(open, job), true, 0, TRAJD_WIRE_MAX_NAME},
    {"mode", TRAJD_WIRE_KIND_MODE, AT(open, mode), false, 0, 0},
    {"rank", TRAJD_WIRE_KIND_U32, AT(open, rank), true, 0, UINT32_MAX},
    {"world", TRAJD_WIRE_KIND_U32, AT(open, world), true, 1, UINT32_MAX},
    {"credit", TRAJD_WIRE_KIND_U32, AT(open, credit), false, 2, UINT32_MAX},
    /* below the maximum, because the epoch after it is produced ahead */
    {"epoch", TRAJD_WIRE_KIND_U64, AT(open, epoch), true, 0, UINT64_MAX - 1},
    {"next", TRAJD_WIRE_KIND_U64, AT(open, next), true, 0, UINT64_MAX},
    {"fingerprint", TRAJD_WIRE_KIND_U64, AT(open, fingerprint), true, 0, UINT64_MAX},
    {"fresh", TRAJD_WIRE_KIND_BOOL, AT(open, fresh), true, 0, 0},
    {"local", TRAJD_WIRE_KIND_RANKS, AT(open, local), true, 0, TRAJD_WIRE_MAX_LOCAL},
    {"resume", TRAJD_WIRE_KIND_BYTES, AT(open, resume), true, 0, TRAJD_WIRE_MAX_CHECKPOINT},
    {"gpu", TRAJD_WIRE_KIND_NAME, AT(open, gpu), true, 0, TRAJD_WIRE_MAX_GPU},
    {"norm", TRAJD_WIRE_KIND_U64, AT(open, norm), true, 0, UINT64_MAX},
    {"pass", TRAJD_WIRE_KIND_U64, AT(open, pass), true, 0, UINT64_MAX},
    {"batch", TRAJD_WIRE_KIND_U32, AT(open, batch), true, 0, UINT32_MAX},
    {"held", TRAJD_WIRE_KIND_POSITIONS, AT(open, held), true, 0, TRAJD_WIRE_MAX_LEASES},
    {"done", TRAJD_WIRE_KIND_POSITIONS, AT(open, done), true, 0, TRAJD_WIRE_MAX_LEASES},
    {"unfinished", TRAJD_WIRE_KIND_U32, AT(open, unfinished), true, 0, UINT32_MAX},
};

static const struct trajd_wire_field ack_fields[] = {
    {"done", TRAJD_WIRE_KIND_LEASES, AT(ack, done), true, 0, TRAJD_WIRE_MAX_LEASES},
    {"released", TRAJD_WIRE_KIND_LEASES, AT(ack, released), true, 0, TRAJD_WIRE_MAX_LEASES},
    {"positions", TRAJD_WIRE_KIND_POSITIONS, AT(ack, positions), true, 0, TRAJD_WIRE_MAX_LEASES},
};

static const struct trajd_wire_field ping_fields[] = {
    {"time", TRAJD_WIRE_KIND_U64, AT(ping, time), false, 0, UINT64_MAX},
};

static const struct trajd_wire_field status_fields[] = {
    {"request", TRAJD_WIRE_KIND_U64, AT(status, request), false, 1, UINT64_MAX},
};

static const struct trajd_wire_field ask_fields[] = {
    {"request", TRAJD_WIRE_KIND_U64, AT(ask, request), false, 1, UINT64_MAX},
    {"feed_id", TRAJD_WIRE_KIND_U32, AT(ask, feed_id), true, 0, UINT32_MAX},
    {"what", TRAJD_WIRE_KIND_NAME, AT(ask, what), false, 0, TRAJD_WIRE_MAX_NAME},
    {"name", TRAJD_WIRE_KIND_NAME, AT(ask, name), true, 0, TRAJD_WIRE_MAX_NAME},
    {"window", TRAJD_WIRE_KIND_U64, AT(ask, window), true, 0, UINT64_MAX},
    {"first", TRAJD_WIRE_KIND_U64, AT(ask, first), true, 0, UINT64_MAX},
    {"count", TRAJD_WIRE_KIND_U32, AT(ask, count), true, 0, UINT32_MAX},
    {"pass", TRAJD_WIRE_KIND_U64, AT(ask, pass), true, 0, UINT64_MAX},
};

static const struct trajd_wire_field checkpoint_fields[] = {
    {"request", TRAJD_WIRE_KIND_U64, AT(checkpoint, request), false, 1, UINT64_MAX},
};

static const struct trajd_wire_field welcome_fields[] = {
    {"minor", TRAJD_WIRE_KIND_U32, AT(welcome, minor), false, 0, UINT32_MAX},
    {"instance", TRAJD_WIRE_KIND_U64, AT(welcome, instance), false, 0, UINT64_MAX},
    {"token", TRAJD_WIRE_KIND_TOKEN, AT(welcome, token), false, 0, 0},
    {"session", TRAJD_WIRE_KIND_U64, AT(welcome, session), false, 1, UINT64_MAX},
    {"resumed", TRAJD_WIRE_KIND_BOOL, AT(welcome, resumed), false, 0, 0},
    {"version", TRAJD_WIRE_KIND_PROSE, AT(welcome, version), true, 0, TRAJD_WIRE_MAX_NAME},
    {"silence", TRAJD_WIRE_KIND_U32, AT(welcome, silence_ms), true, 0, UINT32_MAX},
    {"feeds", TRAJD_WIRE_KIND_FEEDS, AT(welcome, feed_count), true, 0, TRAJD_WIRE_MAX_FEEDS},
};

static const struct trajd_wire_field tensor_fields[] = {
    {"name", TRAJD_WIRE_KIND_NAME, AT(tensor, name), false, 0, TRAJD_WIRE_MAX_NAME},
    {"role", TRAJD_WIRE_KIND_NAME, AT(tensor, role), false, 0, TRAJD_WIRE_MAX_NAME},
    {"dtype", TRAJD_WIRE_KIND_DTYPE, AT(tensor, dtype), false, 0, 0},
    {"shape", TRAJD_WIRE_KIND_SHAPE, AT(tensor, rank), false, 0, TRAJD_WIRE_MAX_RANK},
    {"offset", TRAJD_WIRE_KIND_U64, AT(tensor, offset_bytes), false, 0, UINT64_MAX},
    {"of", TRAJD_WIRE_KIND_NAME, AT(tensor, of), true, 0, TRAJD_WIRE_MAX_NAME},
    {"finished", TRAJD_WIRE_KIND_DTYPE, AT(tensor, finished), true, 0, 0},
    {"planes", TRAJD_WIRE_KIND_U32, AT(tensor, planes), true, 0, 1},
    {"scale", TRAJD_WIRE_KIND_BYTES, AT(tensor, scale), true, 0,
     TRAJD_WIRE_MAX_CHANNELS * sizeof(float)},
    {"shift", TRAJD_WIRE_KIND_BYTES, AT(tensor, shift), true, 0,
     TRAJD_WIRE_MAX_CHANNELS * sizeof(float)},
};

static const struct trajd_wire_field opened_fields[] = {
    {"request", TRAJD_WIRE_KIND_U64, AT(opened, request), false, 1, UINT64_MAX},
    {"feed_id", TRAJD_WIRE_KIND_U32, AT(opened, feed_id), false, 0, UINT32_MAX},
    {"ring", TRAJD_WIRE_KIND_U32, AT(opened, ring), false, 0, UINT32_MAX},
    {"ring_size", TRAJD_WIRE_KIND_U64, AT(opened, ring_size_bytes), false, 0, UINT64_MAX},
    {"slot_count", TRAJD_WIRE_KIND_U32, AT(opened, slot_count), false, 0, UINT32_MAX},
    {"slot_size", TRAJD_WIRE_KIND_U64, AT(opened, slot_size_bytes), false, 0, UINT64_MAX},
    {"writable", TRAJD_WIRE_KIND_BOOL, AT(opened, writable), false, 0, 0},
    {"batch", TRAJD_WIRE_KIND_U32, AT(opened, batch), false, 1, UINT32_MAX},
    {"rows", TRAJD_WIRE_KIND_ROWS, AT(opened, row_begin), false, 0, UINT32_MAX},
    {"part", TRAJD_WIRE_KIND_U32, AT(opened, part), false, 0, UINT32_MAX},
    {"credit", TRAJD_WIRE_KIND_U32, AT(opened, credit), false, 2, TRAJD_WIRE_MAX_LEASES},
    {"epoch", TRAJD_WIRE_KIND_U64, AT(opened, epoch), false, 0, UINT64_MAX},
    {"next", TRAJD_WIRE_KIND_U64, AT(opened, next), false, 0, UINT64_MAX},
    {"length", TRAJD_WIRE_KIND_U64, AT(opened, length), false, 0, UINT64_MAX},
    {"windows", TRAJD_WIRE_KIND_U64, AT(opened, windows), false, 0, UINT64_MAX},
    {"dropped", TRAJD_WIRE_KIND_U64, AT(opened, dropped), false, 0, UINT64_MAX},
    {"fingerprint", TRAJD_WIRE_KIND_U64, AT(opened, fingerprint), false, 0, UINT64_MAX},
    {"seed", TRAJD_WIRE_KIND_U64, AT(opened, seed), false, 0, UINT64_MAX},
    {"tensors", TRAJD_WIRE_KIND_TENSORS, AT(opened, tensor_count), false, 0,
     TRAJD_WIRE_MAX_TENSORS},
    {"gpu", TRAJD_WIRE_KIND_NAME, AT(opened, gpu), true, 0, TRAJD_WIRE_MAX_GPU},
    {"handle", TRAJD_WIRE_KIND_BYTES, AT(opened, handle), true, 0, TRAJD_WIRE_MAX_HANDLE},
    {"handle_offset", TRAJD_WIRE_KIND_U64, AT(opened, handle_offset_bytes), true, 0, UINT64_MAX},
    {"norm", TRAJD_WIRE_KIND_U64, AT(opened, norm), true, 0, UINT64_MAX},
    {"values", TRAJD_WIRE_KIND_U64, AT(opened, values), true, 0, UINT64_MAX},
    {"found", TRAJD_WIRE_KIND_U32, AT(opened, found), true, 0, UINT32_MAX},
    {"kept", TRAJD_WIRE_KIND_U32, AT(opened, kept), true, 0, UINT32_MAX},
    {"used", TRAJD_WIRE_KIND_U32, AT(opened, used), true, 0, UINT32_MAX},
    {"quarantined", TRAJD_WIRE_KIND_TEXTS, AT(opened, quarantined), true, 0, TRAJD_WIRE_MAX_TEXTS},
    {"warnings", TRAJD_WIRE_KIND_TEXTS, AT(opened, warnings), true, 0, TRAJD_WIRE_MAX_TEXTS},
    {"pass", TRAJD_WIRE_KIND_U64, AT(opened, pass), true, 0, UINT64_MAX},
    {"held", TRAJD_WIRE_KIND_POSITIONS, AT(opened, held), true, 0, TRAJD_WIRE_MAX_LEASES},
};

static const struct trajd_wire_field batch_fields[] = {
    {"seq", TRAJD_WIRE_KIND_U64, AT(batch, seq), false, 1, UINT64_MAX},
    {"feed_id", TRAJD_WIRE_KIND_U32, AT(batch, feed_id), false, 0, UINT32_MAX},
    {"ring", TRAJD_WIRE_KIND_U32, AT(batch, ring), false, 0, UINT32_MAX},
    {"slot", TRAJD_WIRE_KIND_U32, AT(batch, slot), false, 0, UINT32_MAX},
    {"generation", TRAJD_WIRE_KIND_U64, AT(batch, generation), false, 1, UINT64_MAX},
    {"part", TRAJD_WIRE_KIND_U32, AT(batch, part), false, 0, UINT32_MAX},
    {"epoch", TRAJD_WIRE_KIND_U64, AT(batch, epoch), false, 0, UINT64_MAX},
    {"position", TRAJD_WIRE_KIND_U64, AT(batch, position), false, 0, UINT64_MAX},
    {"rows", TRAJD_WIRE_KIND_ROWS, AT(batch, row_begin), false, 0, UINT32_MAX},
    {"ready", TRAJD_WIRE_KIND_U64, AT(batch, ready_ns), false, 0, UINT64_MAX},
    {"error", TRAJD_WIRE_KIND_PROSE, AT(batch, error), true, 0, TRAJD_WIRE_MAX_REASON},
};

static const struct trajd_wire_field epoch_end_fields[] = {
    {"feed_id", TRAJD_WIRE_KIND_U32, AT(epoch_end, feed_id), false, 0, UINT32_MAX},
    {"epoch", TRAJD_WIRE_KIND_U64, AT(epoch_end, epoch), false, 0, UINT64_MAX},
    {"batches", TRAJD_WIRE_KIND_U64, AT(epoch_end, batches), false, 0, UINT64_MAX},
    {"windows", TRAJD_WIRE_KIND_U64, AT(epoch_end, windows), false, 0, UINT64_MAX},
    {"dropped", TRAJD_WIRE_KIND_U64, AT(epoch_end, dropped), false, 0, UINT64_MAX},
};

static const struct trajd_wire_field goaway_fields[] = {
    {"reason", TRAJD_WIRE_KIND_PROSE, AT(goaway, reason), true, 0, TRAJD_WIRE_MAX_REASON},
};

static const struct trajd_wire_field state_fields[] = {
    {"request", TRAJD_WIRE_KIND_U64, AT(state, request), false, 1, UINT64_MAX},
    {"status", TRAJD_WIRE_KIND_NAME, AT(state, status), false, 0, TRAJD_WIRE_MAX_STATUS},
};

static const struct trajd_wire_field error_fields[] = {
    {"request", TRAJD_WIRE_KIND_U64, AT(error, request), true, 0, UINT64_MAX},
    {"status", TRAJD_WIRE_KIND_STATUS_WORD, AT(error, status), false, 0, 0},
    {"message", TRAJD_WIRE_KIND_PROSE, AT(error, message), true, 0, TRAJD_WIRE_MAX_REASON},
    {"wait", TRAJD_WIRE_KIND_U32, AT(error, wait_ms), true, 0, UINT32_MAX},
};

static const struct trajd_wire_field checkpointed_fields[] = {
    {"request", TRAJD_WIRE_KIND_U64, AT(checkpointed, request), false, 1, UINT64_MAX},
    {"token", TRAJD_WIRE_KIND_BYTES, AT(checkpointed, token), false, 0, TRAJD_WIRE_MAX_CHECKPOINT},
};

static const struct trajd_wire_field resample_fields[] = {
    {"request", TRAJD_WIRE_KIND_U64, AT(resample, request), false, 1, UINT64_MAX},
    {"size", TRAJD_WIRE_KIND_U64, AT(resample, size_bytes), true, 0, UINT64_MAX},
};

static const struct trajd_wire_field resampled_fields[] = {
    {"request", TRAJD_WIRE_KIND_U64, AT(resampled, request), false, 1, UINT64_MAX},
    {"device", TRAJD_WIRE_KIND_PROSE, AT(resampled, device), true, 0, TRAJD_WIRE_MAX_NAME},
};

static const struct trajd_wire_table tables[] = {
    {TRAJD_WIRE_HELLO, "HELLO", hello_fields, ARRAY_LEN(hello_fields),
     sizeof(struct trajd_wire_hello)},
    {TRAJD_WIRE_OPEN, "OPEN", open_fields, ARRAY_LEN(open_fields), sizeof(struct trajd_wire_open)},
    {TRAJD_WIRE_ACK, "ACK", ack_fields, ARRAY_LEN(ack_fields), sizeof(struct trajd_wire_ack)},
    {TRAJD_WIRE_PING, "PING", ping_fields, ARRAY_LEN(ping_fields), sizeof(struct trajd_wire_ping)},
    {TRAJD_WIRE_BYE, "BYE", NULL, 0, 0},
    {TRAJD_WIRE_STATUS, "STATUS", status_fields, ARRAY_LEN(status_fields),
     sizeof(struct trajd_wire_status)},
    {TRAJD_WIRE_ASK, "ASK", ask_fields, ARRAY_LEN(ask_fields), sizeof(struct trajd_wire_ask)},
    {TRAJD_WIRE_CHECKPOINT, "CHECKPOINT", checkpoint_fields, ARRAY_LEN(checkpoint_fields),
     sizeof(struct trajd_wire_checkpoint)},
    {TRAJD_WIRE_RESAMPLE, "RESAMPLE", resample_fields, ARRAY_LEN(resample_fields),
     sizeof(struct trajd_wire_resample)},
    {TRAJD_WIRE_WELCOME, "WELCOME", welcome_fields, ARRAY_LEN(welcome_fields),
     sizeof(struct trajd_wire_welcome)},
    {TRAJD_WIRE_OPENED, "OPENED", opened_fields, ARRAY_LEN(opened_fields),
     sizeof(struct trajd_wire_opened)},
    {TRAJD_WIRE_BATCH, "BATCH", batch_fields, ARRAY_LEN(batch_fields),
     sizeof(struct trajd_wire_batch)},
    {TRAJD_WIRE_EPOCH_END, "EPOCH_END", epoch_end_fields, ARRAY_LEN(epoch_end_fields),
     sizeof(struct trajd_wire_epoch_end)},
    {TRAJD_WIRE_PONG, "PONG", ping_fields, ARRAY_LEN(ping_fields), sizeof(struct trajd_wire_ping)},
    {TRAJD_WIRE_GOAWAY, "GOAWAY", goaway_fields, ARRAY_LEN(goaway_fields),
     sizeof(struct trajd_wire_goaway)},
    {TRAJD_WIRE_STATE, "STATE", state_fields, ARRAY_LEN(state_fields),
     sizeof(struct trajd_wire_state)},
    {TRAJD_WIRE_ERROR, "ERROR", error_fields, ARRAY_LEN(error_fields),
     sizeof(struct trajd_wire_error)},
    {TRAJD_WIRE_CHECKPOINTED, "CHECKPOINTED", checkpointed_fields, ARRAY_LEN(checkpointed_fields),
     sizeof(struct trajd_wire_checkpointed)},
    {TRAJD_WIRE_RESAMPLED, "RESAMPLED", resampled_fields, ARRAY_LEN(resampled_fields),
     sizeof(struct trajd_wire_resampled)},
};

const struct trajd_wire_table trajd_wire_tensor_table = {
    0, "tensor", tensor_fields, ARRAY_LEN(tensor_fields), sizeof(struct trajd_wire_tensor)};

const struct trajd_wire_table *trajd_wire_table(unsigned op)
{
    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        if ((unsigned)tables[i].op == op)
            return &tables[i];
    return NULL;
}

uint32_t trajd_wire_character(const uint8_t *text, size_t remaining)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t lead = text[0];
    uint32_t length = lead < 0x80   ? 1
                      : lead < 0xc0 ? 0
                      : lead < 0xe0 ? 2
                      : lead < 0xf0 ? 3
                      : lead < 0xf8 ? 4
                                    : 0;
    uint32_t code = length == 1 ? lead : lead & (0x7fu >> length);

    if (!length || length > remaining || !lead)
        return 0;
    for (uint32_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    return length;
}
