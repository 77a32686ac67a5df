/* Status codes and error messages, shared by daemon, kernels and clients. */
#ifndef TRAJD_PROTO_ERROR_H
#define TRAJD_PROTO_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* A caller handles each value differently. The words of trajd_status_name are on the wire. */
enum trajd_status {
    TRAJD_OK = 0,
    TRAJD_ERR_ARGUMENT = 1,  /* a mistake in the configuration or call: correct it and retry */
    TRAJD_ERR_NOT_FOUND = 2, /* there is no file, dataset, stream or feed of that name */
    /* the content of a file breaks a rule: quarantine the episode or file, and continue */
    TRAJD_ERR_DATA = 3,
    TRAJD_ERR_UNSUPPORTED = 4, /* valid, but this version cannot do it */
    /* the storage failed: retry, then give up; never a reason to quarantine */
    TRAJD_ERR_IO = 5,
    TRAJD_ERR_MEMORY = 6, /* a limit or the machine's memory is too small */
    /* the peer broke the protocol: drop the message and count it */
    TRAJD_ERR_PROTOCOL = 7,
    TRAJD_ERR_TIMEOUT = 8, /* not yet: call again */
    TRAJD_ERR_CLOSED = 9,  /* the peer has ended or is closing: reconnect or stop */
    TRAJD_ERR_BUSY = 10,   /* another process or job uses it: wait, or take another one */
    TRAJD_ERR_SYSTEM = 11, /* a system call failed, and the caller is not the cause */
    TRAJD_ERR_DEVICE = 12, /* the GPU failed: restart the process, or continue without it */
    /* not an error: every window of the epoch is DONE; open the next epoch or stop */
    TRAJD_END_OF_EPOCH = 13,
};

#define TRAJD_ERROR_MESSAGE_SIZE 512

/* Filled once, by the function that knows the object and the rule that it breaks. Callers pass it
 * on unchanged, or put a prefix before the message. */
struct trajd_error {
    enum trajd_status status;
    int foreign_code; /* errno, zmq_errno() or cudaError_t where one exists, else 0 */
    /* one line without a newline at its end: "FILE:LINE: KEY: problem (rule)" */
    char message[TRAJD_ERROR_MESSAGE_SIZE];
};

/* Fills *error, which may be NULL, and returns status, so that a failing function ends in one line.
 * foreign_code is 0 where no foreign library is involved. A message that is too long is cut. */
enum trajd_status trajd_error_set(struct trajd_error *error, enum trajd_status status,
                                  int foreign_code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "PREFIX: " before the message of *error, for callers that know the file or the feed. Returns
 * the status of *error, or TRAJD_ERR_SYSTEM if error is NULL. A message that becomes too long is
 * cut. */
enum trajd_status trajd_error_prefix(struct trajd_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns a short lower-case word ("argument", "data", ...), the one that the wire carries. Returns
 * "unknown" for another number, and never NULL. */
const char *trajd_status_name(enum trajd_status status);
/* The same words by number, with NULL at the end, for tables of the codec. */
extern const char *const trajd_status_words[];

#ifdef __cplusplus
}
#endif
#endif
