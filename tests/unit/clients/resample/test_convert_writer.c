/* convert_writer.c: frames, blocks and errors, with a socket and a process made by hand. */
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
#include "clients/cli/resample/convert_writer.h"
#include "daemon/base/clock.h"
#include "proto/array_len.h"

/* A helper that has begun, with a frame that waits for its answer. */
static struct convert_writer begun(int socket, struct trajd_error *error)
{
    return (struct convert_writer){.output = "out.hdf5",
                                   .socket = socket,
                                   .error = error,
                                   .is_ready = true,
                                   .pending_count = 1,
                                   .heard_ns = trajd_now_ns()};
}

/* The helper's last message is the error, even if a send notices first that it has ended. */
static void the_last_message_is_the_error(void **state)
{
    static const char text[] = "demo_3: no such object";
    const struct trajd_helper_header header = {TRAJD_HELPER_MAGIC, TRAJD_WRITER_FAILED,
                                               sizeof(uint32_t) + strlen(text)};
    const uint32_t codes[] = {0, ENOSPC};

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct trajd_error error;
        struct convert_writer writer;
        int sockets[2];
        assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), errno);
        writer = begun(sockets[0], &error);
        assert_int_equal(write(sockets[1], &header, sizeof header), sizeof header);
        assert_int_equal(write(sockets[1], &codes[k], sizeof codes[k]), sizeof codes[k]);
        assert_int_equal(write(sockets[1], text, strlen(text)), strlen(text));
        close(sockets[1]);
        convert_writer_begin(&writer);
        assert_int_equal(convert_writer_send(&writer, TRAJD_WRITER_SUMMARY, -1), TRAJD_OK);
        assert_int_equal(convert_writer_wait(&writer), k ? TRAJD_ERR_IO : TRAJD_ERR_DATA);
        assert_string_equal(error.message, k ? "out.hdf5: No space left on device" : text);
        assert_int_equal(error.foreign_code, k ? ENOSPC : 0);
        convert_writer_end(&writer);
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
        struct convert_writer writer;
        int sockets[2];
        assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), errno);
        writer = begun(sockets[0], &error);
        writer.pid = fork();
        if (!writer.pid) {
            signal(cases[k].number, SIG_DFL);
            raise(cases[k].number);
            _exit(0);
        }
        close(sockets[1]);
        assert_int_equal(convert_writer_wait(&writer), cases[k].status);
        assert_non_null(strstr(error.message, "was killed by signal"));
        assert_int_equal(strstr(error.message, "damaged") != NULL,
                         cases[k].status == TRAJD_ERR_DATA);
        convert_writer_end(&writer);
    }
}

/* ---- frames ---- */

/* The parent's end of a helper that the test plays. */
struct played {
    struct convert_writer writer;
    struct trajd_error error;
    int socket; /* the helper's end; negative: closed */
};

static void play(struct played *played)
{
    int sockets[2];

    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), errno);
    played->writer = begun(sockets[0], &played->error);
    played->socket = sockets[1];
}

static void stop_playing(struct played *played)
{
    if (played->socket >= 0)
        close(played->socket);
    convert_writer_end(&played->writer);
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

/* Notes of growing length come before the answer. */
static void notes_come_before_the_answer(void **state)
{
    struct played played;

    (void)state;
    play(&played);
    played.writer.on_note = keep_note;
    put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_NOTE, 5, "short", 5);
    put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_NOTE, 0, "", 0);
    put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_NOTE, 10, "longer one", 10);
    put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_NOTE, 2, "no", 2);
    put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_DONE, 0, "", 0);
    assert_int_equal(convert_writer_wait(&played.writer), TRAJD_OK);
    assert_string_equal(notes, "short||longer one|no|");
    /* nothing is asked: another answer is one too many */
    put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_DONE, 0, "", 0);
    assert_int_equal(convert_writer_receive(&played.writer), TRAJD_ERR_DATA);
    assert_non_null(strstr(played.error.message, "unexpected answer"));
    stop_playing(&played);
}

static void broken_frames_are_errors(void **state)
{
    static const struct {
        uint32_t magic, kind;
        uint64_t length;
        size_t size;
        enum trajd_status status;
        const char *word;
    } cases[] = {
        {TRAJD_HELPER_MAGIC + 1, TRAJD_WRITER_DONE, 0, 0, TRAJD_ERR_DATA, "sent an invalid frame"},
        {TRAJD_HELPER_MAGIC, TRAJD_WRITER_NOTE, 2048, 0, TRAJD_ERR_DATA, "sent an invalid frame"},
        {TRAJD_HELPER_MAGIC, TRAJD_WRITER_ROWS, 0, 0, TRAJD_ERR_DATA, "sent an unexpected answer"},
        /* the helper ends inside a frame */
        {TRAJD_HELPER_MAGIC, TRAJD_WRITER_NOTE, 2047, 3, TRAJD_ERR_DATA, "the output ended"},
        {TRAJD_HELPER_MAGIC, TRAJD_WRITER_FAILED, 3, 3, TRAJD_ERR_DATA, "the output ended"},
        {TRAJD_HELPER_MAGIC, TRAJD_WRITER_FAILED, 4, 4, TRAJD_ERR_IO, ""},
    };

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct played played;
        play(&played);
        put_frame(&played, cases[k].magic, cases[k].kind, cases[k].length, "\5\0\0\0",
                  cases[k].size);
        close(played.socket);
        played.socket = -1;
        if (convert_writer_wait(&played.writer) != cases[k].status ||
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
        play(&played);
        memcpy(body, &cases[k].code, 4);
        memcpy(body + 4, "why", 3);
        put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_FAILED, sizeof body, body, sizeof body);
        assert_int_equal(convert_writer_wait(&played.writer), TRAJD_ERR_IO);
        assert_int_equal(played.error.foreign_code, cases[k].code);
        assert_string_equal(played.error.message, cases[k].text);
        stop_playing(&played);
    }
}

static void cancelling_ends_the_wait(void **state)
{
    bool cancel = true;
    struct played played;

    (void)state;
    play(&played);
    played.writer.cancel = &cancel;
    assert_int_equal(convert_writer_wait(&played.writer), TRAJD_ERR_CLOSED);
    stop_playing(&played);
}

/* Each answer has its time, whatever the run took before. */
static void a_helper_that_is_silent_is_given_up(void **state)
{
    struct played played;

    (void)state;
    play(&played);
    played.writer.heard_ns = trajd_now_ns() - INT64_C(601000000000);
    put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_NOTE, 2, "no", 2);
    assert_int_equal(convert_writer_receive(&played.writer), TRAJD_OK); /* it is heard again */
    assert_true(trajd_now_ns() - played.writer.heard_ns < INT64_C(60000000000));
    played.writer.heard_ns = trajd_now_ns() - INT64_C(601000000000);
    assert_int_equal(convert_writer_wait(&played.writer), TRAJD_ERR_DATA);
    assert_non_null(strstr(played.error.message, "has not answered for 600 s"));
    stop_playing(&played);
}

/* Blocks come back in the order of the frames, empty. */
static void blocks_are_free_after_the_answer(void **state)
{
    struct trajd_helper_header header;
    struct trajd_writer_rows rows;
    struct convert_block *first, *second;
    struct played played;
    uint64_t size;

    (void)state;
    play(&played);
    played.writer.pending_count = 0;
    assert_int_equal(convert_writer_share(&played.writer, 8192, 4096, 2), TRAJD_OK);
    second = convert_writer_take(&played.writer);
    first = convert_writer_take(&played.writer);
    assert_true(first->at == 0 && second->at == 8192 && first->size == 8192);
    first->rows[0] = (struct trajd_writer_rows){.episode = 7, .rows = 3, .size = 24};
    first->used = 24;
    first->count = 1;
    assert_int_equal(convert_writer_send_block(&played.writer, first), TRAJD_OK);
    assert_int_equal(convert_writer_send_block(&played.writer, second), TRAJD_OK);
    assert_int_equal(read(played.socket, &header, sizeof header), sizeof header);
    assert_int_equal(header.kind, TRAJD_WRITER_MEMORY);
    assert_int_equal(read(played.socket, &size, sizeof size), sizeof size);
    assert_int_equal(size, 16384);
    assert_int_equal(read(played.socket, &header, sizeof header), sizeof header);
    assert_true(header.kind == TRAJD_WRITER_ROWS && header.length == sizeof rows);
    assert_int_equal(read(played.socket, &rows, sizeof rows), sizeof rows);
    assert_true(rows.episode == 7 && rows.size == 24);
    put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_DONE, 0, "", 0);
    put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_DONE, 0, "", 0);
    assert_ptr_equal(convert_writer_take(&played.writer), first);
    assert_true(first->used == 0 && first->count == 0);
    put_frame(&played, TRAJD_HELPER_MAGIC, TRAJD_WRITER_DONE, 0, "", 0);
    assert_int_equal(convert_writer_wait(&played.writer), TRAJD_OK);
    assert_ptr_equal(convert_writer_take(&played.writer), second);
    stop_playing(&played);
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
    play(&played);
    assert_return_code(pipe(pipe_ends), errno);
    convert_writer_begin(&played.writer);
    convert_writer_put_u8(&played.writer, 7);
    convert_writer_begin(&played.writer); /* empties it */
    convert_writer_put_u8(&played.writer, 8);
    convert_writer_put_u8(&played.writer, 9);
    assert_int_equal(convert_writer_send(&played.writer, TRAJD_WRITER_INPUT, pipe_ends[1]),
                     TRAJD_OK);
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
    trajd_bytes_add(&played.writer.frame, large, sizeof large);
    reader = fork();
    if (!reader) {
        size_t got = 0;
        ssize_t some;
        close(played.writer.socket);
        while ((some = read(played.socket, large, sizeof large)) > 0)
            got += (size_t)some;
        _exit(got == sizeof header + 2 + sizeof large ? 0 : 1);
    }
    assert_int_equal(convert_writer_send(&played.writer, TRAJD_WRITER_INPUT, -1), TRAJD_OK);
    shutdown(played.writer.socket, SHUT_WR);
    {
        int status;
        assert_int_equal(waitpid(reader, &status, 0), reader);
        assert_int_equal(status, 0);
    }
    close(fd);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    stop_playing(&played);
}

/* ---- the process ---- */

/* Starts a script as helper, which answers nothing. `cancel`: the run is cancelled, so that nobody
 * waits for the answer. */
static enum trajd_status start_script(struct convert_writer *writer, const bool *cancel,
                                      char path[32], const char *body)
{
    enum trajd_status status;
    FILE *file;
    int fd;

    strcpy(path, "/tmp/trajd_helper_XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    file = fdopen(fd, "w");
    fprintf(file, "#!/bin/sh\n%s\n", body);
    fchmod(fd, 0700);
    fclose(file);
    writer->output = "out.hdf5";
    writer->helper_path = path;
    writer->cancel = cancel;
    status = convert_writer_start(writer, STDIN_FILENO, true);
    return status ? status : convert_writer_wait_ready(writer);
}

/* The helper ends with the conversion, whatever it does. */
static void the_end_kills_the_helper(void **state)
{
    static const bool cancel = true;
    struct trajd_error error;
    struct convert_writer writer = {.error = &error, .socket = -1};
    char path[32], text[2];
    int socket_before;
    pid_t pid;

    (void)state;
    convert_writer_end(&writer); /* nothing was started */
    assert_int_equal(
        start_script(&writer, &cancel, path,
                     "test \"$1\" = write && printf r >&3; trap '' TERM; exec sleep 60"),
        TRAJD_ERR_CLOSED);
    assert_int_equal(recv(writer.socket, text, 1, MSG_WAITALL), 1);
    pid = writer.pid;
    socket_before = writer.socket;
    errno = EINTR;
    convert_writer_end(&writer);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
    assert_int_equal(fcntl(socket_before, F_GETFD), -1);
    unlink(path);
}

static void without_descriptors_no_helper_is_started(void **state)
{
    struct trajd_error error;
    struct convert_writer writer = {
        .output = "out.hdf5", .helper_path = "/bin/true", .error = &error, .socket = -1};
    struct rlimit before, none;

    (void)state;
    assert_return_code(getrlimit(RLIMIT_NOFILE, &before), errno);
    none = before;
    none.rlim_cur = 3;
    assert_return_code(setrlimit(RLIMIT_NOFILE, &none), errno);
    assert_int_equal(convert_writer_start(&writer, STDIN_FILENO, true), TRAJD_ERR_SYSTEM);
    assert_return_code(setrlimit(RLIMIT_NOFILE, &before), errno);
    assert_int_equal(error.foreign_code, EMFILE);
    assert_memory_equal(error.message, "socketpair: ", 12);
    assert_int_equal(writer.socket, -1);
    convert_writer_end(&writer);
}

/* A helper that only closes its socket is killed after some time, and its end is the error. */
static void a_helper_that_closed_its_socket_is_killed(void **state)
{
    struct trajd_error error;
    struct convert_writer writer = {.error = &error, .socket = -1};
    char path[32];

    (void)state;
    assert_int_equal(start_script(&writer, NULL, path, "exec 3>&-; exec sleep 60"),
                     TRAJD_ERR_SYSTEM);
    assert_non_null(strstr(error.message, "was killed by signal 9"));
    assert_int_equal(writer.pid, 0);
    convert_writer_end(&writer);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_message_is_the_error),
        cmocka_unit_test(the_cause_of_the_end_is_reported),
        cmocka_unit_test(notes_come_before_the_answer),
        cmocka_unit_test(broken_frames_are_errors),
        cmocka_unit_test(failures_have_their_codes),
        cmocka_unit_test(cancelling_ends_the_wait),
        cmocka_unit_test(a_helper_that_is_silent_is_given_up),
        cmocka_unit_test(blocks_are_free_after_the_answer),
        cmocka_unit_test(frames_arrive_with_their_descriptor),
        cmocka_unit_test(without_descriptors_no_helper_is_started),
        cmocka_unit_test(the_end_kills_the_helper),
        cmocka_unit_test(a_helper_that_closed_its_socket_is_killed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
