// libs: trajd_test_producer trajd_client PkgConfig::ZMQ
/* Measures what it costs to hand a batch to another process, against ZeroMQ alone in the same run:
 *   rate      back to back, microseconds per batch: by descriptor and lease for slots of 4 KiB,
 *             4 MiB and 64 MiB with as many slots and as much credit as a feed has by default; with
 *             other credits; and inline
 *   one way   a batch per millisecond: from READY to the return of next(), against a bare message
 *             of 200 bytes and of 4 MiB
 * No process touches the payload. Inline, ZeroMQ copies it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <zmq.h>

#include "daemon/base/defaults.h"
#include "proto/array_len.h"
#include "tests/support/test_producer.h"
#include "trajd.h"

#define MAX_SAMPLES 200000u
#define ROWS 8u
#define PACE_US 1000u

struct result {
    uint64_t count, elapsed_ns;
    uint64_t latency_ns[MAX_SAMPLES];
};

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static double percentile_us(struct result *result, double share)
{
    qsort(result->latency_ns, result->count, sizeof *result->latency_ns, compare);
    return result->count > 0
               ? (double)result->latency_ns[(uint64_t)(share * (double)(result->count - 1))] * 1e-3
               : 0;
}

static double cost_us(const struct result *result)
{
    return result->count > 0 ? (double)result->elapsed_ns * 1e-3 / (double)result->count : 0;
}

static void die(const char *what)
{
    fprintf(stderr, "bench_handover: %s\n", what);
    exit(1);
}

/* ---- by descriptor ---- */

static void read_feed(const char *directory, uint32_t credit, uint32_t count, struct result *result)
{
    struct trajd_client *client;
    struct trajd_batch *batch;
    struct trajd_batch_info info;
    struct trajd_error error;
    const struct trajd_connect_options connect = {.endpoint = directory};
    const struct trajd_open_options open = {.feed = "train", .credit = credit};
    if (trajd_client_connect(&connect, &client, &error))
        die(error.message);
    while (trajd_client_open(client, &open, &error) == TRAJD_ERR_NOT_FOUND)
        usleep(10000); /* the socket exists before the feed's memory does */
    if (!trajd_client_feed_info(client))
        die(error.message);
    const uint32_t warm_up = count / 10;
    uint64_t begin_ns = 0;
    for (uint32_t i = 0; i < count + warm_up; i++) {
        if (trajd_client_next(client, 10000, &batch, &error))
            die(error.message);
        const uint64_t at_ns = now_ns();
        trajd_batch_get_info(batch, &info);
        if (i == warm_up)
            begin_ns = at_ns;
        if (i >= warm_up)
            result->latency_ns[i - warm_up] = at_ns - info.ready_ns;
        trajd_batch_release(&batch);
    }
    result->elapsed_ns = now_ns() - begin_ns;
    result->count = count;
    trajd_client_close(&client);
}

/* Produces until the other end of the pipe is closed. */
static void produce(const struct producer_options *options, int until_closed)
{
    struct producer *producer;
    struct trajd_error error;
    char byte;
    if (producer_start(options, &producer, &error))
        die(error.message);
    if (read(until_closed, &byte, 1) < 0)
        die("read");
    producer_stop(&producer);
}

/* The producer is the child: a process that has once had the daemon's transport cuts what accepts
 * large messages by ZeroMQ, as run_bare does. */
static void run_feed(const char *directory, uint64_t slot_bytes, uint32_t credit, uint32_t pace_us,
                     uint32_t count, struct result *result)
{
    const struct producer_options options = {
        .directory = directory,
        .slots = credit > 0 ? credit + 2 : trajd_default_slots(slot_bytes, UINT64_MAX),
        .batch = ROWS,
        .credit = credit,
        .length = UINT64_C(1) << 40,
        .payload_bytes = slot_bytes > 4096 ? slot_bytes / ROWS - 4096 / ROWS : 0,
        .delay_us = pace_us};
    int ends[2], status;
    if (pipe(ends) != 0)
        die("pipe");
    fflush(stdout);
    pid_t child = fork(); /* while this process has one thread */
    if (child == 0) {
        close(ends[1]);
        produce(&options, ends[0]);
        _exit(0);
    }
    close(ends[0]);
    read_feed(directory, credit, count, result);
    close(ends[1]);
    waitpid(child, &status, 0);
    if (status != 0)
        die("the producer failed");
}

/* ---- by ZeroMQ alone ---- */

static void read_bare(const char *endpoint, size_t size, uint32_t count, struct result *result)
{
    const int limit = 4;
    void *context = zmq_ctx_new();
    void *socket = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &limit, sizeof limit);
    if (zmq_bind(socket, endpoint) != 0)
        die("zmq_bind");
    const uint32_t warm_up = count / 10;
    uint64_t begin_ns = 0;
    for (uint32_t i = 0; i < count + warm_up; i++) {
        zmq_msg_t message;
        zmq_msg_init(&message);
        if (zmq_msg_recv(&message, socket, 0) != (int)size)
            die("zmq_msg_recv");
        const uint64_t at_ns = now_ns();
        uint64_t sent_ns;
        memcpy(&sent_ns, zmq_msg_data(&message), sizeof sent_ns);
        zmq_msg_close(&message);
        if (i == warm_up)
            begin_ns = at_ns;
        if (i >= warm_up)
            result->latency_ns[i - warm_up] = at_ns - sent_ns;
    }
    result->elapsed_ns = now_ns() - begin_ns;
    result->count = count;
    zmq_close(socket);
    zmq_ctx_term(context);
}

static void run_bare(const char *directory, size_t size, uint32_t pace_us, uint32_t count,
                     struct result *result)
{
    char endpoint[128];
    const int limit = 4, no_linger = 0;
    unsigned char *payload = calloc(1, size);
    snprintf(endpoint, sizeof endpoint, "ipc://%s/bare.sock", directory);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        read_bare(endpoint, size, count, result);
        _exit(0);
    }
    void *context = zmq_ctx_new();
    void *socket = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(socket, ZMQ_SNDHWM, &limit, sizeof limit);
    zmq_setsockopt(socket, ZMQ_LINGER, &no_linger, sizeof no_linger);
    zmq_connect(socket, endpoint);
    int status;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (pace_us > 0)
            usleep(pace_us);
        const uint64_t sent_ns = now_ns();
        memcpy(payload, &sent_ns, sizeof sent_ns);
        const int timeout_ms = 100;
        zmq_setsockopt(socket, ZMQ_SNDTIMEO, &timeout_ms, sizeof timeout_ms);
        zmq_send(socket, payload, size, 0);
    }
    zmq_close(socket);
    zmq_ctx_term(context);
    free(payload);
    if (status != 0)
        die("the receiver failed");
}

/* ---- the table ---- */

static void print_line(const char *label, const char *command)
{
    char text[256] = "unknown\n";
    FILE *pipe = popen(command, "r");
    if (pipe && !fgets(text, sizeof text, pipe))
        snprintf(text, sizeof text, "unknown\n");
    if (pipe)
        pclose(pipe);
    printf("%s: %s", label, text);
}

static void print_rates(const char *directory, struct result *result)
{
    const uint64_t sizes[] = {4096, UINT64_C(4) << 20, UINT64_C(64) << 20};
    const uint32_t credits[] = {4, 8, 16};
    printf("\nback to back                           us a batch    batches/s\n");
    double own_us = 0;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        run_feed(directory, sizes[i], 0, 0, 30000, result);
        printf("  descriptor, slot %6llu KiB, default   %10.2f %12.0f\n",
               (unsigned long long)sizes[i] >> 10, cost_us(result), 1e6 / cost_us(result));
        own_us = sizes[i] == sizes[1] ? cost_us(result) : own_us;
    }
    for (size_t i = 0; i < ARRAY_LEN(credits); i++) {
        run_feed(directory, sizes[1], credits[i], 0, 60000, result);
        printf("  descriptor, slot   4096 KiB, credit %2u %10.2f %12.0f\n", credits[i],
               cost_us(result), 1e6 / cost_us(result));
    }
    run_bare(directory, sizes[1], 0, 1000, result);
    printf("  inline by ZeroMQ, 4096 KiB             %9.2f %12.0f    %.0fx the descriptor\n",
           cost_us(result), 1e6 / cost_us(result), cost_us(result) / own_us);
}

static void print_latencies(const char *directory, struct result *result)
{
    printf("\none way, one a millisecond                   p50 us      p99 us\n");
    run_bare(directory, 200, PACE_US, 3000, result);
    const double bare_us = percentile_us(result, 0.5), bare_p99_us = percentile_us(result, 0.99);
    printf("  bare message, 200 bytes                %10.1f  %10.1f\n", bare_us, bare_p99_us);
    run_feed(directory, UINT64_C(4) << 20, 4, PACE_US, 3000, result);
    const double own_us = percentile_us(result, 0.5);
    printf("  descriptor, 4096 KiB, READY to next()  %10.1f  %10.1f    %.2fx the bare message\n",
           own_us, percentile_us(result, 0.99), own_us / bare_us);
    run_bare(directory, 200, PACE_US, 3000, result);
    printf("  bare message again                     %10.1f  %10.1f\n", percentile_us(result, 0.5),
           percentile_us(result, 0.99));
    run_bare(directory, (size_t)4 << 20, PACE_US, 1000, result);
    printf("  inline by ZeroMQ, 4096 KiB             %10.1f  %10.1f    %.0fx the descriptor\n",
           percentile_us(result, 0.5), percentile_us(result, 0.99),
           percentile_us(result, 0.5) / own_us);
}

int main(void)
{
    char directory[] = "/tmp/trajd-bench-XXXXXX";
    struct result *result =
        mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (result == MAP_FAILED || !mkdtemp(directory))
        die("no memory or no directory");
    print_line("device", "grep -m1 'model name' /proc/cpuinfo | cut -d: -f2; ");
    print_line("cores", "nproc");
    print_line("commit", "git rev-parse --short HEAD 2>/dev/null");
    printf("command: bench_handover\n");
    print_rates(directory, result);
    print_latencies(directory, result);
    char path[64];
    snprintf(path, sizeof path, "%s/lock", directory);
    unlink(path);
    snprintf(path, sizeof path, "%s/bare.sock", directory);
    unlink(path);
    rmdir(directory);
    return 0;
}
