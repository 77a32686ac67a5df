/* What went wrong, said once where the facts are known. Shared by daemon, kernels and clients. */
#ifndef TRAJD_PROTO_ERROR_H
#define TRAJD_PROTO_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Each value is something that a caller does differently. */
enum trajd_status {
    TRAJD_OK = 0,
    TRAJD_ERR_ARGUMENT = 1,  /* the caller's mistake (config, call): correct it, then try again */
    TRAJD_ERR_NOT_FOUND = 2, /* no file, dataset, stream or feed of that name */
    /* a file's content breaks a rule: quarantine what it concerns, go on */
    TRAJD_ERR_DATA = 3,
    TRAJD_ERR_UNSUPPORTED = 4, /* understood and refused: another file, filter, version or kernel */
    /* the storage failed: retry, then fatal; never a reason to quarantine */
    TRAJD_ERR_IO = 5,
    TRAJD_ERR_MEMORY = 6, /* a limit or the machine's memory is too small for what is asked */
    /* the peer sent what the protocol forbids: drop the message, count it */
    TRAJD_ERR_PROTOCOL = 7,
    TRAJD_ERR_TIMEOUT = 8, /* not yet: call again */
    TRAJD_ERR_CLOSED = 9,  /* the peer is gone or closing: reconnect or stop */
    TRAJD_ERR_BUSY = 10,   /* somebody else holds it: wait for them, or take another */
    TRAJD_ERR_SYSTEM = 11, /* a system call failed for a reason that is not the caller's */
    TRAJD_ERR_DEVICE = 12, /* the GPU failed: the process must restart, or go on without one */
    /* no error: every window of the epoch is done; open the next one or stop */
    TRAJD_END_OF_EPOCH = 13,
};

#define TRAJD_ERROR_MESSAGE_SIZE 512

/* Filled once, by the function that knows object and rule; callers above pass it on untouched. */
struct trajd_error {
    enum trajd_status status;
    int foreign_code; /* errno, zmq_errno() or cudaError_t where one exists, else 0 */
    /* one line, no final newline: "FILE:LINE: KEY: what (rule)" */
    char message[TRAJD_ERROR_MESSAGE_SIZE];
};

/* Fills *error (which may be NULL) and returns status, so that a failing function ends in one line.
 * foreign_code is 0 where no foreign library is involved. A message that is too long is cut. */
enum trajd_status trajd_error_set(struct trajd_error *error, enum trajd_status status,
                                  int foreign_code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "PREFIX: " before a message that was set below: for callers that know the file or the feed.
 */
enum trajd_status trajd_error_prefix(struct trajd_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A short lower-case word ("argument", "data", ...), also what the wire carries. Never NULL. */
const char *trajd_status_name(enum trajd_status status);

#ifdef __cplusplus
}
#endif
#endif
