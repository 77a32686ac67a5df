/* Conversions whose rows a daemon's resampling service makes: the same file as on this CPU, and the
 * errors of a service that ends, refuses or breaks the protocol. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clients/cli/resample/convert_backend.h"
#include "daemon/control/resample/resample_service.h"
#include "proto/array_len.h"
#include "proto/wire.h"
#include "tests/support/index_files.h"
#include "tests/unit/clients/resample/convert_fixture.h"

static struct trajd_device *no_device(void *context)
{
    (void)context;
    return NULL;
}

static struct trajd_resample_service *start_service(const char *directory)
{
    static struct trajd_log log;
    const struct trajd_resample_service_options options = {
        .directory = directory, .log = &log, .thread_count = 1, .device = no_device};
    struct trajd_resample_service *service;
    struct trajd_error error;

    trajd_log_init(&log, STDERR_FILENO, TRAJD_LOG_ERROR, NULL);
    if (trajd_resample_service_create(&options, &service, &error))
        fail_msg("%s", error.message);
    return service;
}

static enum trajd_status convert(const char *input, const char *name,
                                 struct trajd_convert_options options,
                                 struct trajd_convert_report *report, struct trajd_error *error)
{
    struct trajd_index *index = convert_open_input(input, NULL);
    const struct trajd_index *indexes[] = {index};
    char output[256];
    enum trajd_status status;

    snprintf(output, sizeof output, "%s/out/%s.hdf5", index_folder, name);
    options.indexes = indexes;
    options.index_count = 1;
    options.output = output;
    options.helper_path = TRAJD_BINARY_DIR "/daemon/hdf5/trajd-indexer";
    options.thread_count =
        1; /* the order of compressed chunks in the file is that of their making */
    status = trajd_convert_file(&options, report, error);
    trajd_index_destroy(&index);
    return status;
}

static void a_daemon_makes_the_same_file(void **state)
{
    static const char *const inputs[] = {"first", "beside", "long"};
    const struct trajd_convert_rule rules[] = {{.kind = TRAJD_KIND_MEAN, .stream = "obs/eef_pos"}};
    struct trajd_resample_service *service = start_service(index_folder);
    struct trajd_resample_service_stats stats, before = {0};

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(inputs); k++) {
        struct trajd_convert_options options = {
            .rate = {15, 1}, .rules = rules, .rule_count = ARRAY_LEN(rules), .force = true};
        struct trajd_convert_report here, there;
        struct trajd_error error;
        assert_int_equal(convert(inputs[k], "here", options, &here, &error), TRAJD_OK);
        options.backend = TRAJD_CONVERT_DAEMON;
        options.endpoint = index_folder;
        if (convert(inputs[k], "there", options, &there, &error))
            fail_msg("%s", error.message);
        shell("cmp %s/out/here.hdf5 %s/out/there.hdf5", index_folder, index_folder);
        assert_string_equal(here.backend_text, "the CPU");
        assert_non_null(strstr(there.backend_text, "the daemon at /tmp/"));
        assert_non_null(strstr(there.backend_text, ", on its CPU"));
        assert_int_equal(there.backend, TRAJD_CONVERT_DAEMON);
        assert_int_equal(there.segments, here.segments);
        assert_int_equal(there.segments_here, 0);
        trajd_resample_service_get_stats(service, &stats);
        assert_int_equal(stats.segments - before.segments, there.segments);
        assert_int_equal(stats.refused, 0);
        before = stats;
        trajd_convert_report_clear(&here);
        trajd_convert_report_clear(&there);
    }
    trajd_resample_service_destroy(&service);
}

/* ---- a daemon that the test plays ---- */

enum behaviour { ENDS, REFUSES, TALKS_OF_ANOTHER, SENDS_ANOTHER_WORD, SENDS_GARBAGE, IS_SILENT };

struct played {
    char directory[64];
    enum behaviour then; /* after the first answer */
    int listener;
    bool cancel;
    pthread_t thread;
};

static void answer(const struct played *played, int client, int turn)
{
    struct trajd_wire_message message = {.op = TRAJD_WIRE_RESAMPLED}, heard;
    uint8_t frame[2048];
    uint64_t request;
    size_t length;
    const ssize_t got = recv(client, frame, sizeof frame, 0);

    if (got <= 0 || trajd_wire_decode(frame, (size_t)got, NULL, &heard, &request, NULL))
        return;
    message.resampled.request = heard.resample.request;
    message.resampled.device = trajd_wire_text("a GPU");
    if (turn && played->then == TALKS_OF_ANOTHER)
        message.resampled.request++;
    if (turn && played->then == REFUSES) {
        message.op = TRAJD_WIRE_ERROR;
        message.error.status = TRAJD_ERR_BUSY;
        message.error.message = trajd_wire_text("too much to do");
    }
    if (turn && played->then == SENDS_ANOTHER_WORD)
        message = (struct trajd_wire_message){.op = TRAJD_WIRE_PONG};
    if (trajd_wire_encode(&message, frame, sizeof frame, &length, NULL))
        return;
    if (turn && played->then == SENDS_GARBAGE)
        memset(frame, 0xff, length);
    send(client, frame, length, MSG_NOSIGNAL);
}

static void *play(void *context)
{
    struct played *played = context;
    const int client = accept(played->listener, NULL, NULL);
    char byte;

    answer(played, client, 0);
    if (played->then != ENDS && played->then != IS_SILENT)
        answer(played, client, 1);
    while (played->then == IS_SILENT && recv(client, &byte, 1, 0) > 0)
        ;
    close(client);
    return NULL;
}

static void begin_playing(struct played *played, enum behaviour then)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    *played = (struct played){.then = then};
    snprintf(played->directory, sizeof played->directory, "%s/out", index_folder);
    snprintf(address.sun_path, sizeof address.sun_path, "%.60s/resample.sock", played->directory);
    unlink(address.sun_path);
    played->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_return_code(bind(played->listener, (struct sockaddr *)&address, sizeof address), errno);
    assert_return_code(listen(played->listener, 4), errno);
    assert_int_equal(pthread_create(&played->thread, NULL, play, played), 0);
}

static void what_a_daemon_does_is_reported(void **state)
{
    static const struct {
        enum behaviour then;
        enum trajd_status status;
        const char *word;
    } cases[] = {
        {ENDS, TRAJD_ERR_CLOSED, "/out/resample.sock has ended"},
        {REFUSES, TRAJD_ERR_BUSY, "/out/resample.sock: too much to do"},
        {TALKS_OF_ANOTHER, TRAJD_ERR_PROTOCOL, "sent an unexpected reply"},
        {SENDS_ANOTHER_WORD, TRAJD_ERR_PROTOCOL, "sent an unexpected reply"},
        {SENDS_GARBAGE, TRAJD_ERR_DATA, "not a message"},
        {IS_SILENT, TRAJD_ERR_CLOSED, "interrupted"},
    };

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct convert_remote *remote;
        struct trajd_error error;
        struct played played;
        char device[TRAJD_DEVICE_NAME_SIZE];
        void *room;
        begin_playing(&played, cases[k].then);
        if (convert_remote_create(played.directory, &played.cancel, device, &remote, &error))
            fail_msg("%s", error.message);
        assert_string_equal(device, "a GPU");
        assert_int_equal(convert_remote_room(remote, 100, &room, &error), TRAJD_OK);
        memset(room, 7, 4 << 20); /* whole units */
        __atomic_store_n(&played.cancel, cases[k].then == IS_SILENT, __ATOMIC_RELAXED);
        if (convert_remote_run(remote, 100, &error) != cases[k].status ||
            !strstr(error.message, cases[k].word))
            fail_msg("case %zu: %d %s", k, error.status, error.message);
        convert_remote_destroy(&remote);
        assert_null(remote);
        convert_remote_destroy(&remote);
        pthread_join(played.thread, NULL);
        close(played.listener);
    }
}

/* The memory is kept while it is large enough. */
static void memory_grows_in_units(void **state)
{
    struct convert_remote *remote;
    struct trajd_error error;
    struct played played;
    char device[TRAJD_DEVICE_NAME_SIZE];
    void *first, *again, *larger;

    (void)state;
    begin_playing(&played, ENDS);
    assert_int_equal(convert_remote_create(played.directory, NULL, device, &remote, &error),
                     TRAJD_OK);
    assert_int_equal(convert_remote_room(remote, 1, &first, &error), TRAJD_OK);
    memset(first, 1, 4 << 20);
    assert_int_equal(convert_remote_room(remote, 4 << 20, &again, &error), TRAJD_OK);
    assert_ptr_equal(first, again);
    assert_int_equal(*(uint8_t *)again, 1);
    assert_int_equal(convert_remote_room(remote, (4 << 20) + 1, &larger, &error), TRAJD_OK);
    memset(larger, 1, 8 << 20);
    convert_remote_destroy(&remote);
    assert_int_equal(msync(larger, 8 << 20, MS_ASYNC), -1); /* it is not mapped any more */
    pthread_join(played.thread, NULL);
    close(played.listener);
}

static void places_without_a_daemon_are_errors(void **state)
{
    static char far[600];
    static const struct {
        const char *directory;
        enum trajd_status status;
        const char *word;
    } cases[] = {{"/nowhere", TRAJD_ERR_NOT_FOUND, "no daemon resamples at /nowhere/resample.sock"},
                 {far, TRAJD_ERR_ARGUMENT, "a socket's path has at most 107 bytes"}};

    (void)state;
    memset(far, 'x', sizeof far - 1);
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct convert_remote *remote;
        struct trajd_error error;
        char device[TRAJD_DEVICE_NAME_SIZE];
        assert_int_equal(convert_remote_create(cases[k].directory, NULL, device, &remote, &error),
                         cases[k].status);
        assert_non_null(strstr(error.message, cases[k].word));
        assert_null(remote);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_daemon_makes_the_same_file),
        cmocka_unit_test(what_a_daemon_does_is_reported),
        cmocka_unit_test(memory_grows_in_units),
        cmocka_unit_test(places_without_a_daemon_are_errors),
    };

    if (!index_files_choose("make_convert_files.py"))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
