/* fake_producer DIRECTORY [NAME=NUMBER...] [tcp=ADDRESS:PORT [keys=DIRECTORY]]: a daemon without
 * datasets, for tests that kill it. Writes READY to standard output. Ends at the end of its
 * standard input, or at SIGTERM after a drain of one second. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <poll.h>
#include <unistd.h>

#include "proto/array_len.h"
#include "tests/support/test_producer.h"

static bool set_option(struct producer_options *options, const char *name, size_t length,
                       uint64_t value)
{
    const struct {
        const char *name;
        uint32_t *small;
        uint64_t *large;
    } table[] = {
        {"slots", &options->slots, NULL},        {"batch", &options->batch, NULL},
        {"credit", &options->credit, NULL},      {"sessions", &options->sessions, NULL},
        {"silence", &options->silence_ms, NULL}, {"delay_us", &options->delay_us, NULL},
        {"length", NULL, &options->length},      {"payload", NULL, &options->payload_bytes},
        {"fail", NULL, &options->fail_position}, {"instance", NULL, &options->instance},
        {"jobs", &options->jobs, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (strlen(table[i].name) != length || memcmp(table[i].name, name, length) != 0)
            continue;
        if (table[i].small)
            *table[i].small = (uint32_t)value;
        else
            *table[i].large = value;
        return true;
    }
    return false;
}

static bool limit_descriptors(uint64_t count)
{
    const struct rlimit limit = {.rlim_cur = count, .rlim_max = count};
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static bool parse(int argc, char **argv, struct producer_options *options)
{
    options->directory = argv[1];
    for (int i = 2; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        const uint64_t value = equals ? strtoull(equals + 1, NULL, 10) : 0;
        const size_t length = equals ? (size_t)(equals - argv[i]) : 0;
        bool known = set_option(options, argv[i], length, value);
        if (!known && strncmp(argv[i], "journal=", 8) == 0)
            known = true, options->journal = value != 0;
        if (!known && strncmp(argv[i], "tcp=", 4) == 0)
            known = true, options->tcp = argv[i] + 4;
        if (!known && strncmp(argv[i], "keys=", 5) == 0)
            known = true, options->keys = argv[i] + 5;
        if (!known && strncmp(argv[i], "descriptors=", 12) == 0)
            known = limit_descriptors(value);
        if (!known)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct producer_options options = {0};
    struct producer *producer;
    struct trajd_error error;
    sigset_t end;
    if (argc < 2 || !parse(argc, argv, &options)) {
        fprintf(stderr, "usage: fake_producer DIRECTORY [NAME=NUMBER...]\n");
        return 2;
    }
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    sigprocmask(SIG_BLOCK, &end, NULL);
    struct pollfd items[] = {{.fd = signalfd(-1, &end, SFD_CLOEXEC), .events = POLLIN},
                             {.fd = 0, .events = POLLIN}};
    if (producer_start(&options, &producer, &error)) {
        fprintf(stderr, "fake_producer: %s\n", error.message);
        return 1;
    }
    if (options.tcp)
        printf("REMOTE %s\n", trajd_server_remote_endpoint(producer_server(producer)));
    printf("READY\n");
    fflush(stdout);
    poll(items, 2, -1);
    if (items[0].revents != 0)
        trajd_server_drain(producer_server(producer), 1000);
    producer_stop(&producer);
    return 0;
}
