/* Frames to "trajd-indexer write" that its parent never sends: the writer ends with a failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/unix_socket.h"
#include "daemon/index/helper.h"
#include "daemon/index/writer_protocol.h"
#include "proto/array_len.h"
#include "proto/dtype.h"

#define HELPER TRAJD_BINARY_DIR "/daemon/hdf5/trajd-indexer"

struct frame {
    uint32_t kind; /* 0: none */
    bool has_file; /* a file goes with it, which is not an HDF5 file */
    const char *body;
    size_t size;
};

#define FRAME(kind, has_file, body)                                                                \
    {                                                                                              \
        kind, has_file, body, sizeof(body) - 1                                                     \
    }

static void send_frame(int socket, const struct frame *frame)
{
    const struct trajd_helper_header header = {TRAJD_HELPER_MAGIC, frame->kind, frame->size};
    const int fd = frame->has_file ? memfd_create("frame", MFD_CLOEXEC) : -1;

    if (fd >= 0)
        assert_int_equal(write(fd, "no HDF5", 7), 7);
    assert_int_equal(trajd_send_fd(socket, &header, sizeof header, fd, MSG_NOSIGNAL),
                     sizeof header);
    assert_int_equal(send(socket, frame->body, frame->size, MSG_NOSIGNAL), frame->size);
    if (fd >= 0)
        close(fd);
}

/* Sends frames to a new writer, and returns its exit status. The texts of its failures go to
 * `text`. */
static int run(const struct frame *frames, size_t count, char *text, size_t size)
{
    struct trajd_helper_header header;
    int socket, status = 0;
    size_t used = 0;
    pid_t pid;

    assert_int_equal(trajd_helper_start(HELPER, "write", SOCK_STREAM, &socket, &pid, NULL), 0);
    for (size_t i = 0; i < count && frames[i].kind; i++)
        send_frame(socket, &frames[i]);
    shutdown(socket, SHUT_WR);
    while (recv(socket, &header, sizeof header, MSG_WAITALL) == sizeof header) {
        char body[4096] = "";
        assert_true(header.length < sizeof body);
        if (header.length)
            assert_int_equal(recv(socket, body, header.length, MSG_WAITALL), header.length);
        if (header.kind == TRAJD_WRITER_FAILED)
            used += (size_t)snprintf(text + used, size - used, "%s|", body + sizeof(uint32_t));
        else
            used += (size_t)snprintf(text + used, size - used, "%u|", header.kind);
    }
    close(socket);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define BEGIN FRAME(TRAJD_WRITER_OUTPUT, true, "\1")
#define NO_DATASETS FRAME(TRAJD_WRITER_DATASETS, false, "\0\0\0\0")
/* one dataset: its path, type and rank */
#define ONE                                                                                        \
    "\1\0\0\0"                                                                                     \
    "\1\0\0\0"                                                                                     \
    "a"
#define EIGHT "\5\0\0\0\0\0\0\0"

static void frames_out_of_order_end_the_writer(void **state)
{
    static const struct {
        struct frame frames[4];
        int status;
        const char *text; /* kinds of replies, and failures */
    } cases[] = {
        {{{0}}, 0, ""},
        {{BEGIN}, 0, "28|"},
        {{FRAME(TRAJD_WRITER_OUTPUT, false, "\1")}, 1, ""},
        {{BEGIN, BEGIN}, 1, "28|"},
        {{FRAME(99, false, "")}, 1, ""},
        {{NO_DATASETS}, 1, ""},
        {{FRAME(TRAJD_WRITER_INPUT, true, "")}, 1, ""},
        {{BEGIN, FRAME(TRAJD_WRITER_INPUT, false, "")}, 1, "28|"},
        {{BEGIN, FRAME(TRAJD_WRITER_INPUT, true, "")}, 1, "28||"},
        {{FRAME(TRAJD_WRITER_EPISODES, false, "\0\0\0\0")}, 1, ""},
        {{BEGIN, FRAME(TRAJD_WRITER_EPISODES, false, "\0\0\0\0")}, 1, "28|episodes of the recipe"},
        {{BEGIN, FRAME(TRAJD_WRITER_EPISODES, true, "\0\0\0\0")}, 1, "28|"},
        {{FRAME(TRAJD_WRITER_MASKS, false, "\0\0\0\0\0\0\0\0")}, 1, ""},
        {{FRAME(TRAJD_WRITER_SUMMARY, false, "")}, 1, ""},
        {{FRAME(TRAJD_WRITER_MEMORY, true, EIGHT)}, 1, ""},
        {{BEGIN, FRAME(TRAJD_WRITER_MEMORY, false, EIGHT)}, 1, "28|"},
        {{BEGIN, FRAME(TRAJD_WRITER_MEMORY, true, EIGHT)}, 0, "28|28|"},
        {{BEGIN, FRAME(TRAJD_WRITER_MEMORY, true, "")}, 1, "28|0 bytes of rows cannot be mapped"},
        {{BEGIN, FRAME(TRAJD_WRITER_ROWS, false, "")}, 0, "28|28|"},
        {{BEGIN, FRAME(TRAJD_WRITER_ROWS, false, "x")}, 1, "28|rows of the recipe cannot be read"},
        {{BEGIN, FRAME(TRAJD_WRITER_ROWS, false,
                       EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT)},
         1,
         "28|rows of the recipe cannot be read"},
        {{FRAME(TRAJD_WRITER_COPY, true, "")}, 1, ""},
        {{BEGIN, FRAME(TRAJD_WRITER_COPY, false, "")}, 1, "28|"},
        {{BEGIN, FRAME(TRAJD_WRITER_COPY, true, "")}, 1, "28||"},
        {{BEGIN, FRAME(TRAJD_WRITER_FRAMES, false, "")}, 1, "28|frames of the recipe"},
        {{BEGIN, FRAME(TRAJD_WRITER_CLOSE, false, "")}, 0, "28|28|"},
        {{BEGIN, NO_DATASETS}, 0, "28|28|"},
        {{BEGIN, NO_DATASETS, NO_DATASETS}, 1, "28|28|the recipe's datasets cannot be read"},
        {{BEGIN, FRAME(TRAJD_WRITER_DATASETS, false, "\0\0\0")}, 1, "28|the recipe's datasets"},
        {{BEGIN, FRAME(TRAJD_WRITER_DATASETS, false, "\1\0\x10\0")}, 1, "28|the recipe's datasets"},
        {{BEGIN, FRAME(TRAJD_WRITER_DATASETS, false, "\0\0\x10\0")},
         1,
         "28|a dataset of the recipe"},
        /* no rank, rank 9, no such type; rank 0 and bool without a source are accepted */
        {{BEGIN, FRAME(TRAJD_WRITER_DATASETS, false, ONE "\4")}, 1, "28|a dataset of the recipe"},
        {{BEGIN, FRAME(TRAJD_WRITER_DATASETS, false, ONE "\4\0")}, 0, "28|28|"},
        {{BEGIN, FRAME(TRAJD_WRITER_DATASETS, false,
                       ONE "\4\11" EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT
                           EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT "\4")},
         1,
         "28|a dataset of the recipe"},
        {{BEGIN, FRAME(TRAJD_WRITER_DATASETS, false,
                       ONE "\4\10" EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT
                           EIGHT EIGHT EIGHT EIGHT "\4")},
         0,
         "28|28|"},
        {{BEGIN, FRAME(TRAJD_WRITER_DATASETS, false, ONE "\4\1" EIGHT "\4")}, 0, "28|28|"},
        {{BEGIN, FRAME(TRAJD_WRITER_DATASETS, false, ONE "\4\1" EIGHT)},
         1,
         "28|a dataset of the recipe"},
        {{BEGIN, FRAME(TRAJD_WRITER_DATASETS, false, ONE "\77\1" EIGHT "\4")},
         1,
         "28|a dataset of the recipe"},
        {{BEGIN, FRAME(TRAJD_WRITER_DATASETS, false, ONE "\15\1" EIGHT "\4")}, 0, "28|28|"},
        {{BEGIN, FRAME(TRAJD_WRITER_MASKS, false,
                       "\1\0\0\0"
                       "m"
                       "\0\0\0\0")},
         0,
         "28|28|"},
        {{BEGIN, FRAME(TRAJD_WRITER_MASKS, false,
                       "\1\0\0\0"
                       "m"
                       "\0\0\0")},
         1,
         "28|masks"},
        {{BEGIN, FRAME(TRAJD_WRITER_MASKS, false,
                       "\1\0\0\0"
                       "m"
                       "\1\0\0\0"
                       "\1\0\0\0"
                       "k")},
         1,
         "28|a mask of the recipe cannot be read|masks|"},
        {{BEGIN, FRAME(TRAJD_WRITER_MASKS, false,
                       "\1\0\0\0"
                       "m"
                       "\1\0\0\0"
                       "\1\0\0\0"
                       "k"
                       "\1\0\0\0"
                       "\1\0\0\0"
                       "n")},
         0,
         "28|28|"},
        {{BEGIN, FRAME(TRAJD_WRITER_SUMMARY, false,
                       EIGHT EIGHT "\0\0\0\0"
                                   "\0\0\0\0")},
         0,
         "28|28|"},
        {{BEGIN, FRAME(TRAJD_WRITER_SUMMARY, false,
                       EIGHT EIGHT "\0\0\0\0"
                                   "\1\0\0\0")},
         1,
         "28|the recipe's end cannot be read"},
        {{BEGIN, FRAME(TRAJD_WRITER_SUMMARY, false, EIGHT EIGHT "\1\0\0\0")},
         1,
         "28|a rate of the recipe cannot be read"},
        /* nothing can be added to an output that is closed */
        {{BEGIN, FRAME(TRAJD_WRITER_CLOSE, false, ""), NO_DATASETS}, 1, "28|28|"},
    };

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        char text[8192] = "";
        const int status = run(cases[k].frames, ARRAY_LEN(cases[k].frames), text, sizeof text);
        if (status != cases[k].status || strncmp(text, cases[k].text, strlen(cases[k].text)) ||
            (!status && strcmp(text, cases[k].text)))
            fail_msg("case %zu: status %d, %s", k, status, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_out_of_order_end_the_writer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
