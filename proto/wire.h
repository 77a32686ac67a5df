/* The messages of PROTOCOL.md as plain structs, with their encoder and decoder. Daemon and libtrajd
 * use the same code. No other part of the programs knows msgpack.
 *
 * The decoder first scans a frame: depth, item count, and every length against the remaining bytes.
 * Only a frame that passes is decoded. Nothing here allocates, and every function is thread-safe.
 * Texts of a decoded message are borrowed from the frame, and not NUL-terminated. */
#ifndef TRAJD_PROTO_WIRE_H
#define TRAJD_PROTO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRAJD_WIRE_MAJOR 1
#define TRAJD_WIRE_MINOR 7
#define TRAJD_WIRE_HEADER_SIZE 8u
#define TRAJD_WIRE_MAX_FRAME (TRAJD_WIRE_HEADER_SIZE + 65536u) /* no frame of trajd is longer */
#define TRAJD_WIRE_MAX_DEPTH 4u
#define TRAJD_WIRE_MAX_ITEMS 1024u        /* every map, array, key and value is one item */
#define TRAJD_WIRE_MAX_ITEMS_OPENED 8192u /* more, for the list of tensors */
/* Leases in one list. It is also the largest credit, so that HELLO can list all leases of a
 * session. */
#define TRAJD_WIRE_MAX_LEASES 64u
/* In OPEN: the credit of a worker that states none. A daemon before 0.2.0 grants as many as it has. */
#define TRAJD_WIRE_ANY_CREDIT TRAJD_WIRE_MAX_LEASES
#define TRAJD_WIRE_MAX_TENSORS 256u
#define TRAJD_WIRE_MAX_RANK 8u
#define TRAJD_WIRE_MAX_FEEDS 64u
#define TRAJD_WIRE_MAX_NAME 128u /* bytes of a feed, job, tensor or version */
#define TRAJD_WIRE_MAX_CLIENT 64u
#define TRAJD_WIRE_MAX_SPEC 49152u
#define TRAJD_WIRE_MAX_STATUS 61440u /* bytes of the document in STATE */
#define TRAJD_WIRE_MAX_REASON 512u   /* bytes of a message or reason */
#define TRAJD_WIRE_MAX_TEXTS 8u      /* texts in one list */
#define TRAJD_WIRE_MAX_TEXT 384u     /* bytes of one of them */
#define TRAJD_WIRE_MAX_WARNING 2048u /* of a warning */
#define TRAJD_WIRE_TOKEN_SIZE 16u
#define TRAJD_WIRE_MAX_LOCAL 512u            /* ranks of one node */
#define TRAJD_WIRE_MAX_CHECKPOINT 8192u      /* bytes of a checkpoint token */
#define TRAJD_WIRE_MAX_GPU 64u               /* "GPU-" and a UUID */
#define TRAJD_WIRE_MAX_HANDLE 64u            /* bytes of a CUDA IPC handle */
#define TRAJD_WIRE_MAX_CHANNELS 4u           /* of an image */
#define TRAJD_WIRE_MAX_PAYLOAD_FRAME 262144u /* over tcp: bytes of a payload frame */

enum trajd_wire_op {
    TRAJD_WIRE_HELLO = 1,
    TRAJD_WIRE_OPEN = 2,
    TRAJD_WIRE_ACK = 3,
    TRAJD_WIRE_PING = 4,
    TRAJD_WIRE_BYE = 5,
    TRAJD_WIRE_STATUS = 6,
    TRAJD_WIRE_ASK = 7,
    TRAJD_WIRE_CHECKPOINT = 8,
    TRAJD_WIRE_RESAMPLE = 9,
    TRAJD_WIRE_WELCOME = 65,
    TRAJD_WIRE_OPENED = 66,
    TRAJD_WIRE_BATCH = 67,
    TRAJD_WIRE_EPOCH_END = 68,
    TRAJD_WIRE_PONG = 69,
    TRAJD_WIRE_GOAWAY = 70,
    TRAJD_WIRE_STATE = 71,
    TRAJD_WIRE_ERROR = 72,
    TRAJD_WIRE_CHECKPOINTED = 73,
    TRAJD_WIRE_RESAMPLED = 74,
    TRAJD_WIRE_NOTICE = 75,
};

/* QUEUE: each batch goes to the next free session; its word on the wire is "share", as in 0.1.0.
 * SHARD: each rank gets its rows of every batch. */
enum trajd_wire_mode { TRAJD_WIRE_QUEUE = 0, TRAJD_WIRE_SHARD = 1 };

/* UTF-8 without NUL. If size is 0, data may be NULL. An absent key has size 0. */
struct trajd_wire_text {
    const char *data;
    uint32_t size;
};

/* Whether a session finishes images itself: casts, normalises and permutes frames of u8. */
enum trajd_wire_unfinished {
    TRAJD_WIRE_FINISHED = 0,   /* it cannot */
    TRAJD_WIRE_UNFINISHED = 1, /* it can, where its job does */
    TRAJD_WIRE_RATHER_UNFINISHED = 2,
};

struct trajd_wire_lease {
    uint32_t ring;
    uint32_t slot;
    uint64_t generation;
    uint32_t part;
};

struct trajd_wire_leases {
    uint32_t count; /* <= TRAJD_WIRE_MAX_LEASES */
    struct trajd_wire_lease list[TRAJD_WIRE_MAX_LEASES];
};

/* Batches of a queue job, by their positions. */
struct trajd_wire_positions {
    uint32_t count; /* <= TRAJD_WIRE_MAX_LEASES */
    uint64_t list[TRAJD_WIRE_MAX_LEASES];
};

/* Like a text, but any bytes. */
struct trajd_wire_bytes {
    const void *data;
    uint32_t size;
};

/* Texts for people. */
struct trajd_wire_texts {
    uint32_t count; /* <= TRAJD_WIRE_MAX_TEXTS */
    struct trajd_wire_text list[TRAJD_WIRE_MAX_TEXTS];
};

struct trajd_wire_ranks {
    uint32_t count; /* <= TRAJD_WIRE_MAX_LOCAL */
    uint32_t list[TRAJD_WIRE_MAX_LOCAL];
};

struct trajd_wire_hello {
    uint32_t minor;
    struct trajd_wire_text client;
    uint64_t pid;
    bool has_token; /* false: token, instance, received, held and done are empty */
    uint8_t token[TRAJD_WIRE_TOKEN_SIZE];
    uint64_t instance;
    uint64_t received;
    struct trajd_wire_leases held, done;
};

struct trajd_wire_open {
    uint64_t request;
    struct trajd_wire_text feed; /* either feed or spec is empty, and not both */
    struct trajd_wire_text spec;
    struct trajd_wire_text job;
    enum trajd_wire_mode mode;
    uint32_t rank, world; /* rank < world, world >= 1 */
    uint32_t credit;      /* >= 2; the daemon grants at most its limit */
    uint64_t epoch;
    uint64_t next;
    uint64_t fingerprint, norm;     /* 0: any */
    bool fresh;                     /* true if absent */
    struct trajd_wire_ranks local;  /* ascending, with `rank`, all < world; empty: all ranks */
    struct trajd_wire_bytes resume; /* a checkpoint token; empty: none */
    /* UUID of the GPU whose memory gets the batches; empty: the host's memory */
    struct trajd_wire_text gpu;
    /* queue, not fresh: what this worker knows of the pass through the epoch that it was in. `pass`
     * is the number in its OPENED, `batch` the G; `held` has the batches that it still has, `done`
     * those that it finished last. */
    uint64_t pass;
    uint32_t batch;
    struct trajd_wire_positions held, done;
    uint32_t unfinished; /* enum trajd_wire_unfinished */
};

struct trajd_wire_ack {
    struct trajd_wire_leases done, released;
    struct trajd_wire_positions positions; /* DONE, of the batches in `held` of OPENED */
};

struct trajd_wire_ping { /* PING and PONG */
    uint64_t time;
};

struct trajd_wire_status {
    uint64_t request;
};

struct trajd_wire_ask {
    uint64_t request;
    uint32_t feed_id;            /* 0: the query is about no feed */
    struct trajd_wire_text what; /* never empty */
    struct trajd_wire_text name; /* this and the members below may be absent; `what` defines them */
    uint64_t window, first;
    uint32_t count;
    uint64_t pass;
};

struct trajd_wire_checkpoint {
    uint64_t request;
};

struct trajd_wire_resample {
    uint64_t request;
    /* bytes of the block, at the beginning of the file whose descriptor comes with the message; 0:
     * no descriptor comes, and the answer only names the device */
    uint64_t size_bytes;
};

struct trajd_wire_resampled {
    uint64_t request;
    struct trajd_wire_text device; /* the GPU that resamples; empty: the CPU */
};

struct trajd_wire_welcome {
    uint32_t minor;
    uint64_t instance;
    uint8_t token[TRAJD_WIRE_TOKEN_SIZE];
    uint64_t session;
    bool resumed;
    struct trajd_wire_text version;
    /* over tcp: a session ends if it sends nothing for this time; 0: it does not end so */
    uint32_t silence_ms;
    uint32_t feed_count;
    struct trajd_wire_text feeds[TRAJD_WIRE_MAX_FEEDS];
};

struct trajd_wire_tensor {
    struct trajd_wire_text name;
    /* "obs", "action", "next", "goal", "ids", "mask", "augment" or "missing"; later versions may have
     * other words */
    struct trajd_wire_text role;
    struct trajd_wire_text of; /* the output that a mask belongs to; empty for other tensors */
    enum trajd_dtype dtype;
    uint32_t rank;
    uint64_t shape[TRAJD_WIRE_MAX_RANK];
    uint64_t offset_bytes;
    /* Images of u8, channels last, that the worker finishes: the type that they get; NONE: this
     * tensor is finished. `planes` is 1 if the channels come first then. `scale` and `shift` have
     * one float32 a channel; empty: the values stay. */
    enum trajd_dtype finished;
    uint32_t planes;
    struct trajd_wire_bytes scale, shift;
};

struct trajd_wire_opened {
    uint64_t request;
    uint32_t feed_id, ring;
    uint64_t ring_size_bytes;
    uint32_t slot_count;
    uint64_t slot_size_bytes;
    bool writable;
    uint32_t batch; /* G */
    uint32_t row_begin, row_count;
    uint32_t part;
    uint32_t credit;
    uint64_t epoch, next, length, windows, dropped, fingerprint, seed;
    uint64_t norm;   /* digest of all scales and offsets; 1: nothing is normalised; 0: not known */
    uint64_t values; /* digest of how images are made; 1: there are none; 0: not known */
    uint32_t tensor_count;
    const struct trajd_wire_tensor *tensors;
    struct trajd_wire_text gpu;     /* UUID of the ring's GPU; empty: a memfd, sent on fd.sock */
    struct trajd_wire_bytes handle; /* the CUDA IPC handle of the GPU's memory */
    uint64_t handle_offset_bytes;   /* of the ring's beginning in that memory */
    /* Episodes of the feed's datasets; files that give none count as one each. All 0: unknown.
     * found - kept of them are quarantined, and the feed has windows of `used`. */
    uint32_t found, kept, used;
    struct trajd_wire_texts quarantined, warnings; /* the first reasons; of the feed's plan */
    uint64_t pass;                    /* queue: numbers the job's pass through the epoch; 0: none */
    struct trajd_wire_positions held; /* those batches of OPEN that this session still has */
};

struct trajd_wire_batch {
    uint64_t seq;
    uint32_t feed_id, ring, slot;
    uint64_t generation;
    uint32_t part;
    uint64_t epoch, position;
    uint32_t row_begin, row_count;
    uint64_t ready_ns;
    struct trajd_wire_text error; /* empty: the batch is valid */
};

struct trajd_wire_epoch_end {
    uint32_t feed_id;
    uint64_t epoch, batches, windows, dropped;
};

struct trajd_wire_goaway {
    struct trajd_wire_text reason;
};

struct trajd_wire_state {
    uint64_t request;
    struct trajd_wire_text status; /* one JSON document */
};

struct trajd_wire_error {
    uint64_t request;         /* 0: the error answers no request */
    enum trajd_status status; /* an unknown word decodes as TRAJD_ERR_SYSTEM */
    struct trajd_wire_text message;
    uint32_t wait_ms; /* BUSY: how long the daemon holds this OPEN back; 0: it does not */
};

struct trajd_wire_notice {
    struct trajd_wire_text message;
    uint32_t wait_ms; /* how long the session may wait for what the message names; 0: it does not */
};

struct trajd_wire_checkpointed {
    uint64_t request;
    struct trajd_wire_bytes token;
};

/* Requests are numbered from 1: 0 means "no request" in every message. */
struct trajd_wire_message {
    enum trajd_wire_op op;
    union {
        struct trajd_wire_hello hello;
        struct trajd_wire_open open;
        struct trajd_wire_ack ack;
        struct trajd_wire_ping ping;
        struct trajd_wire_ping pong;
        struct trajd_wire_status status;
        struct trajd_wire_ask ask;
        struct trajd_wire_checkpoint checkpoint;
        struct trajd_wire_welcome welcome;
        struct trajd_wire_opened opened;
        struct trajd_wire_batch batch;
        struct trajd_wire_epoch_end epoch_end;
        struct trajd_wire_goaway goaway;
        struct trajd_wire_state state;
        struct trajd_wire_error error;
        struct trajd_wire_checkpointed checkpointed;
        struct trajd_wire_notice notice;
        struct trajd_wire_resample resample;
        struct trajd_wire_resampled resampled;
    };
};

/* Returns a NUL-terminated string, or NULL, as a text. The text borrows the string. */
struct trajd_wire_text trajd_wire_text(const char *string);
bool trajd_wire_text_equals(struct trajd_wire_text text, const char *string);
/* Copies at most room - 1 bytes and adds a NUL. Never cuts a character in two. room >= 1. */
void trajd_wire_text_copy(struct trajd_wire_text text, char *buffer, size_t room);

/* Writes the frame to `buffer` of `room` bytes, and its length to *size. TRAJD_ERR_ARGUMENT: a
 * value breaks a limit above. TRAJD_ERR_MEMORY: room is too small. TRAJD_WIRE_MAX_FRAME bytes fit
 * every message but an OPENED with an absurd list of tensors; an ACK or BATCH has less than 4 KiB.
 */
enum trajd_status trajd_wire_encode(const struct trajd_wire_message *message, void *buffer,
                                    size_t room, size_t *size, struct trajd_error *error);

/* Decodes one frame. `tensors` has room for TRAJD_WIRE_MAX_TENSORS and receives the tensors of an
 * OPENED. The daemon, which expects no OPENED, passes NULL: an OPENED is then an unknown op.
 * Status:
 *   TRAJD_OK                every member of the op's struct is set and in range; an absent key has
 *                           its default
 *   TRAJD_ERR_DATA          the frame fails on magic, size or scan, so no trajd program sent it:
 *                           drop and count it, without an answer
 *   TRAJD_ERR_UNSUPPORTED   another major version: answer ERROR `unsupported`
 *   TRAJD_ERR_PROTOCOL      an unknown op, or a key that is missing, of the wrong type or out of
 *                           range: answer ERROR `protocol`
 * After an error, *message has no valid member but `op` (0: not known), and *request is the number
 * of the refused request, or 0 if it has none. */
enum trajd_status trajd_wire_decode(const void *frame, size_t size,
                                    struct trajd_wire_tensor *tensors,
                                    struct trajd_wire_message *message, uint64_t *request,
                                    struct trajd_error *error);

/* Scans without decoding. Returns true if `body` is exactly one msgpack map within the limits. */
bool trajd_wire_scan(const void *body, size_t size, uint32_t max_items);

#ifdef __cplusplus
}
#endif
#endif
