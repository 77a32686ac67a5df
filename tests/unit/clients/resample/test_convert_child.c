/* convert_child.c: the error after a child has ended, with a socket and a process made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/index/helper.h"
#include "clients/cli/resample/convert_child.h"
#include "daemon/index/writer_protocol.h"
#include "proto/array_len.h"

static const struct trajd_convert_options options = {.output = "out.hdf5"};
static const struct convert_plan plan = {.options = &options};

/* The child's last message is the error, even if a send notices first that it has ended. */
static void the_last_message_is_the_error(void **state)
{
    static const char text[] = "demo_3: no such object";
    const struct trajd_helper_header header = {TRAJD_HELPER_MAGIC, TRAJD_WRITER_FAILED,
                                               sizeof(uint32_t) + strlen(text)};
    const uint32_t codes[] = {0, ENOSPC};

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct trajd_error error;
        struct convert_child child = {.plan = &plan, .error = &error, .is_ready = true};
        size_t length;
        int sockets[2];
        assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), errno);
        assert_int_equal(write(sockets[1], &header, sizeof header), sizeof header);
        assert_int_equal(write(sockets[1], &codes[k], sizeof codes[k]), sizeof codes[k]);
        assert_int_equal(write(sockets[1], text, strlen(text)), strlen(text));
        close(sockets[1]);
        child.socket = sockets[0];
        convert_child_begin(&child);
        assert_int_equal(convert_child_send(&child, TRAJD_WRITER_FINISH, -1), TRAJD_OK);
        assert_int_equal(convert_child_reply(&child, TRAJD_WRITER_DONE, &length),
                         k ? TRAJD_ERR_IO : TRAJD_ERR_DATA);
        assert_string_equal(error.message, k ? "out.hdf5: No space left on device" : text);
        assert_int_equal(error.foreign_code, k ? ENOSPC : 0);
        convert_child_end(&child);
    }
}

/* A kill from outside, or a resource limit, is not the fault of an input. */
static void the_cause_of_the_end_is_reported(void **state)
{
    static const struct {
        int number;
        enum trajd_status status;
    } cases[] = {{SIGKILL, TRAJD_ERR_SYSTEM}, {SIGTERM, TRAJD_ERR_SYSTEM},
                 {SIGINT, TRAJD_ERR_SYSTEM},  {SIGHUP, TRAJD_ERR_SYSTEM},
                 {SIGQUIT, TRAJD_ERR_SYSTEM}, {SIGXCPU, TRAJD_ERR_SYSTEM},
                 {SIGUSR1, TRAJD_ERR_DATA}};

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct trajd_error error;
        struct convert_child child = {.plan = &plan, .error = &error, .is_ready = true};
        size_t length;
        int sockets[2];
        assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), errno);
        child.pid = fork();
        if (!child.pid) {
            signal(cases[k].number, SIG_DFL);
            raise(cases[k].number);
            _exit(0);
        }
        close(sockets[1]);
        child.socket = sockets[0];
        assert_int_equal(convert_child_reply(&child, TRAJD_WRITER_DONE, &length), cases[k].status);
        assert_non_null(strstr(error.message, "was killed by signal"));
        assert_int_equal(strstr(error.message, "damaged") != NULL,
                         cases[k].status == TRAJD_ERR_DATA);
        convert_child_end(&child);
    }
}

/* ---- frames ---- */

/* The parent's end of a child that the test plays. */
struct played {
    struct convert_child child;
    struct trajd_error error;
    int socket; /* the child's end; negative: closed */
};

static void play(struct played *played, const struct convert_plan *of)
{
    int sockets[2];

    *played = (struct played){.child = {.plan = of, .error = &played->error, .is_ready = true}};
    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), errno);
    played->child.socket = sockets[0];
    played->socket = sockets[1];
}

static void stop_playing(struct played *played)
{
    if (played->socket >= 0)
        close(played->socket);
    convert_child_end(&played->child);
}

static void put_frame(const struct played *played, uint32_t magic, uint32_t kind, uint64_t length,
                      const void *body, size_t size)
{
    const struct trajd_helper_header header = {magic, kind, length};

    assert_int_equal(write(played->socket, &header, sizeof header), sizeof header);
    assert_int_equal(write(played->socket, body, size), size);
}

static char notes[1024];

static void keep_note(void *context, const char *text)
{
    (void)context;
    strcat(notes, text);
    strcat(notes, "|");
}

/* Notes of growing length come before the reply. */
static void notes_come_before_the_reply(void **state)
{
    struct trajd_convert_options noted = options;
    const struct convert_plan of = {.options = &noted};
    struct played played;
    size_t length;

    (void)state;
    noted.on_note = keep_note;
    play(&played, &of);
    put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_NOTE, 5, "short", 5);
    put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_NOTE, 0, "", 0);
    put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_NOTE, 10, "longer one", 10);
    put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_NOTE, 2, "no", 2);
    put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_OFFSETS, 8, "12345678", 8);
    assert_int_equal(convert_child_reply(&played.child, TRAJD_WRITER_OFFSETS, &length), TRAJD_OK);
    assert_int_equal(length, 8);
    assert_memory_equal(played.child.reply, "12345678", 9);
    assert_string_equal(notes, "short||longer one|no|");
    stop_playing(&played);
}

static void broken_frames_are_errors(void **state)
{
    static const uint64_t huge = (UINT64_C(64) << 20) + 1;
    static const struct {
        uint32_t magic, kind;
        uint64_t length;
        size_t size;
        enum trajd_status status;
        const char *word;
    } cases[] = {
        {TRAJD_HELPER_MAGIC + 1, TRAJD_WRITER_DONE, 0, 0, TRAJD_ERR_DATA, "sent an invalid frame"},
        {TRAJD_HELPER_MAGIC, TRAJD_WRITER_DONE, huge, 0, TRAJD_ERR_DATA, "sent an invalid frame"},
        {TRAJD_HELPER_MAGIC, TRAJD_WRITER_READY, 0, 0, TRAJD_ERR_DATA, "sent an unexpected reply"},
        /* the child ends inside a frame */
        {TRAJD_HELPER_MAGIC, TRAJD_WRITER_DONE, huge - 1, 3, TRAJD_ERR_DATA, "structure ended"},
        {TRAJD_HELPER_MAGIC, TRAJD_WRITER_FAILED, 3, 3, TRAJD_ERR_DATA, "structure ended"},
        {TRAJD_HELPER_MAGIC, TRAJD_WRITER_FAILED, 4, 4, TRAJD_ERR_IO, ""},
    };

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct played played;
        size_t length;
        play(&played, &plan);
        put_frame(&played, cases[k].magic, cases[k].kind, cases[k].length, "\5\0\0\0",
                  cases[k].size);
        close(played.socket);
        played.socket = -1;
        if (convert_child_reply(&played.child, TRAJD_WRITER_DONE, &length) != cases[k].status ||
            !strstr(played.error.message, cases[k].word))
            fail_msg("case %zu: %s", k, played.error.message);
        stop_playing(&played);
    }
}

/* A full disk, a full quota and a limit of the file's size concern the output. */
static void failures_have_their_codes(void **state)
{
    static const struct {
        uint32_t code;
        const char *text;
    } cases[] = {{ENOSPC, "out.hdf5: No space left on device"},
                 {EDQUOT, "out.hdf5: Disk quota exceeded"},
                 {EFBIG, "out.hdf5: File too large"},
                 {EACCES, "why"}};

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct played played;
        uint8_t body[7];
        size_t length;
        play(&played, &plan);
        memcpy(body, &cases[k].code, 4);
        memcpy(body + 4, "why", 3);
        put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_FAILED, sizeof body, body, sizeof body);
        assert_int_equal(convert_child_reply(&played.child, TRAJD_WRITER_DONE, &length),
                         TRAJD_ERR_IO);
        assert_int_equal(played.error.foreign_code, cases[k].code);
        assert_string_equal(played.error.message, cases[k].text);
        stop_playing(&played);
    }
}

/* While chunks are added, the run is not cancelled, because the file could not be resumed. */
static void cancelling_ends_the_wait(void **state)
{
    bool cancel = true;
    struct trajd_convert_options cancelled = options;
    const struct convert_plan of = {.options = &cancelled};
    struct played played;
    size_t length;

    (void)state;
    cancelled.cancel = &cancel;
    for (int is_closing = 0; is_closing < 2; is_closing++) {
        play(&played, &of);
        played.child.is_closing = is_closing;
        put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_DONE, 0, "", 0);
        assert_int_equal(convert_child_reply(&played.child, TRAJD_WRITER_DONE, &length),
                         is_closing ? TRAJD_OK : TRAJD_ERR_CLOSED);
        stop_playing(&played);
    }
}

static void frames_arrive_with_their_descriptor(void **state)
{
    static uint8_t large[1 << 20];
    struct trajd_helper_header header;
    struct played played;
    char control[CMSG_SPACE(sizeof(int))], text[8] = "";
    struct iovec part = {&header, sizeof header};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    int pipe_ends[2], fd;
    pid_t reader;

    (void)state;
    play(&played, &plan);
    assert_return_code(pipe(pipe_ends), errno);
    convert_child_begin(&played.child);
    convert_child_put_u8(&played.child, 7);
    convert_child_begin(&played.child); /* empties it */
    convert_child_put_u8(&played.child, 8);
    convert_child_put_u8(&played.child, 9);
    assert_int_equal(convert_child_send(&played.child, TRAJD_WRITER_INPUT, pipe_ends[1]), TRAJD_OK);
    assert_int_equal(recvmsg(played.socket, &message, 0), sizeof header);
    assert_int_equal(header.magic, TRAJD_HELPER_MAGIC);
    assert_int_equal(header.kind, TRAJD_WRITER_INPUT);
    assert_int_equal(header.length, 2);
    assert_int_equal(read(played.socket, text, sizeof text), 2);
    assert_memory_equal(text, "\10\11", 2);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(read(pipe_ends[0], text, 1), 1);
    /* a frame that is larger than the socket's buffer is sent whole */
    trajd_bytes_add(&played.child.frame, large, sizeof large);
    reader = fork();
    if (!reader) {
        size_t got = 0;
        ssize_t some;
        close(played.child.socket);
        while ((some = read(played.socket, large, sizeof large)) > 0)
            got += (size_t)some;
        _exit(got == sizeof header + 2 + sizeof large ? 0 : 1);
    }
    assert_int_equal(convert_child_send(&played.child, TRAJD_WRITER_INPUT, -1), TRAJD_OK);
    shutdown(played.child.socket, SHUT_WR);
    {
        int status;
        assert_int_equal(waitpid(reader, &status, 0), reader);
        assert_int_equal(status, 0);
    }
    played.child.frame.failed = true;
    assert_int_equal(convert_child_send(&played.child, TRAJD_WRITER_INPUT, -1), TRAJD_ERR_MEMORY);
    close(fd);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    stop_playing(&played);
}

/* ---- the process ---- */

/* Starts a script as child. */
static void start_script(struct convert_child *child, struct trajd_convert_options *of,
                         struct convert_plan *planned, char path[32], const char *body)
{
    FILE *file;
    int fd;

    strcpy(path, "/tmp/trajd_child_XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    file = fdopen(fd, "w");
    fprintf(file, "#!/bin/sh\n%s\n", body);
    fchmod(fd, 0700);
    fclose(file);
    *of = (struct trajd_convert_options){.output = "out.hdf5", .helper_path = path};
    planned->options = of;
    child->plan = planned;
    assert_int_equal(convert_child_start(child), TRAJD_OK);
    assert_true(child->pid > 0);
}

/* The child ends with the conversion, whatever it does. */
static void the_end_kills_the_child(void **state)
{
    struct trajd_convert_options of;
    struct convert_plan planned = {.options = NULL};
    struct trajd_error error;
    struct convert_child child = {.error = &error, .socket = -1};
    char path[32], text[2];
    int socket_before;
    pid_t pid;

    (void)state;
    convert_child_end(&child); /* nothing was started */
    start_script(&child, &of, &planned, path,
                 "test \"$1\" = write && printf r >&3; trap '' TERM; exec sleep 60");
    assert_int_equal(recv(child.socket, text, 1, MSG_WAITALL), 1);
    pid = child.pid;
    socket_before = child.socket;
    errno = EINTR;
    convert_child_end(&child);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
    assert_int_equal(fcntl(socket_before, F_GETFD), -1);
    unlink(path);
}

static void without_descriptors_no_child_is_started(void **state)
{
    const struct trajd_convert_options of = {.output = "out.hdf5", .helper_path = "/bin/true"};
    const struct convert_plan planned = {.options = &of};
    struct trajd_error error;
    struct convert_child child = {.plan = &planned, .error = &error, .socket = -1};
    struct rlimit before, none;

    (void)state;
    assert_return_code(getrlimit(RLIMIT_NOFILE, &before), errno);
    none = before;
    none.rlim_cur = 3;
    assert_return_code(setrlimit(RLIMIT_NOFILE, &none), errno);
    assert_int_equal(convert_child_start(&child), TRAJD_ERR_SYSTEM);
    assert_return_code(setrlimit(RLIMIT_NOFILE, &before), errno);
    assert_int_equal(error.foreign_code, EMFILE);
    assert_memory_equal(error.message, "socketpair: ", 12);
    assert_int_equal(child.socket, -1);
    convert_child_end(&child);
}

/* A child that only closes its socket is killed after some time, and its end is the error. */
static void a_child_that_closed_its_socket_is_killed(void **state)
{
    struct trajd_convert_options of;
    struct convert_plan planned = {.options = NULL};
    struct trajd_error error;
    struct convert_child child = {.error = &error, .socket = -1, .is_ready = true};
    char path[32];
    size_t length;
    pid_t pid;

    (void)state;
    start_script(&child, &of, &planned, path, "exec 3>&-; exec sleep 60");
    pid = child.pid;
    assert_int_equal(convert_child_reply(&child, TRAJD_WRITER_DONE, &length), TRAJD_ERR_SYSTEM);
    assert_non_null(strstr(error.message, "was killed by signal 9"));
    assert_int_equal(child.pid, 0);
    assert_int_equal(kill(pid, 0), -1);
    convert_child_end(&child);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_message_is_the_error),
        cmocka_unit_test(the_cause_of_the_end_is_reported),
        cmocka_unit_test(notes_come_before_the_reply),
        cmocka_unit_test(broken_frames_are_errors),
        cmocka_unit_test(failures_have_their_codes),
        cmocka_unit_test(cancelling_ends_the_wait),
        cmocka_unit_test(frames_arrive_with_their_descriptor),
        cmocka_unit_test(without_descriptors_no_child_is_started),
        cmocka_unit_test(the_end_kills_the_child),
        cmocka_unit_test(a_child_that_closed_its_socket_is_killed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
