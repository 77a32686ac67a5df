// libs: trajd_control
/* Messages of any bytes on resample.sock, with any descriptors: each is answered with a message of
 * the protocol, or the connection ends. All descriptors are closed.
 *
 * Input: the kind of the descriptors, their number, the seals of a memory file, its pages, two
 * bytes of the length of the frame; then the frame, and after it the memory file's bytes (a block
 * is fuzz_block.c's subject). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/control/resample/resample_service.h"
#include "proto/wire.h"

enum { HEAD_BYTES = 6, MOST_DESCRIPTORS = 4, PAGE = 4096, ANSWER_BYTES = 2048 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct trajd_device *no_device(void *context)
{
    (void)context;
    return NULL;
}

static void no_device_lost(void *context)
{
    (void)context;
}

static struct trajd_resample_service *make_service(const char *directory)
{
    static const struct trajd_log log = {.level = TRAJD_LOG_ERROR};
    const struct trajd_resample_service_options options = {.directory = directory,
                                                           .log = &log,
                                                           .thread_count = 1,
                                                           .device = no_device,
                                                           .device_lost = no_device_lost};
    struct trajd_resample_service *service;
    struct trajd_error error;

    if (trajd_resample_service_create(&options, &service, &error))
        abort();
    return service;
}

static char directory[] = "/tmp/fuzz_resample.XXXXXX";
static struct sockaddr_un address = {.sun_family = AF_UNIX};

static void remove_directory(void)
{
    unlink(address.sun_path);
    rmdir(directory);
}

/* Returns a connection to the service, which ends with the process. */
static int connect_to_service(void)
{
    static struct trajd_resample_service *service;
    const int peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (!service) {
        if (!mkdtemp(directory) || atexit(remove_directory))
            abort();
        service = make_service(directory);
        snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", directory,
                 TRAJD_RESAMPLE_SERVICE_SOCKET);
    }
    if (peer < 0 || connect(peer, (const struct sockaddr *)&address, sizeof address))
        abort();
    return peer;
}

/* The head's fourth byte: its lowest bits are the number of pages, the next one allocates them. */
static int make_memory_file(const uint8_t *head, const uint8_t *block, size_t size)
{
    const int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const off_t length = (off_t)(head[3] % 8) * PAGE;

    if (fd < 0 || ftruncate(fd, length) || (head[3] & 8 && posix_fallocate(fd, 0, length)) ||
        (size && pwrite(fd, block, size, 0) < 0) || fcntl(fd, F_ADD_SEALS, head[2] & 0xf))
        return fd; /* such a file, too */
    return fd;
}

static int make_descriptor(const uint8_t *head, const uint8_t *block, size_t size)
{
    switch (head[0] % 4) {
    case 0:
        return make_memory_file(head, block, size);
    case 1:
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    case 2:
        return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    default:
        return open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
}

static void send_message(int peer, const uint8_t *head, const uint8_t *frame, size_t frame_size,
                         const uint8_t *block, size_t block_size)
{
    const uint8_t count = head[1] % (MOST_DESCRIPTORS + 1);
    char control[CMSG_SPACE(MOST_DESCRIPTORS * sizeof(int))] = {0};
    struct iovec part = {(void *)(uintptr_t)frame, frame_size};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = count ? control : NULL,
                             .msg_controllen = count ? CMSG_SPACE(count * sizeof(int)) : 0};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    int descriptors[MOST_DESCRIPTORS];

    for (uint8_t i = 0; i < count; i++)
        descriptors[i] = make_descriptor(head, block, block_size);
    if (rights) {
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(rights), descriptors, count * sizeof(int));
    }
    sendmsg(peer, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    for (uint8_t i = 0; i < count; i++)
        close(descriptors[i]);
}

static void check_answer(int peer)
{
    static uint8_t frame[ANSWER_BYTES];
    struct trajd_wire_message message;
    struct trajd_error error;
    uint64_t request;
    const ssize_t size = recv(peer, frame, sizeof frame, 0);

    if (size < 0 && errno != ECONNRESET)
        abort();
    if (size > 0 && (trajd_wire_decode(frame, (size_t)size, NULL, &message, &request, &error) ||
                     (message.op != TRAJD_WIRE_RESAMPLED && message.op != TRAJD_WIRE_ERROR)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t frame_size;
    int peer;

    if (size < HEAD_BYTES)
        return 0;
    frame_size = (size_t)data[4] | (size_t)data[5] << 8;
    if (frame_size > size - HEAD_BYTES)
        frame_size = size - HEAD_BYTES;
    peer = connect_to_service();
    send_message(peer, data, data + HEAD_BYTES, frame_size, data + HEAD_BYTES + frame_size,
                 size - HEAD_BYTES - frame_size);
    check_answer(peer);
    close(peer);
    return 0;
}
