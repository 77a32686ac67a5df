// libs: trajd_test_producer trajd_client PkgConfig::ZMQ
/* Measures a remote worker without a network: batches of 4 KiB and 4 MiB back to back from one
 * daemon to one worker that reads every byte, by descriptor (ipc and shared memory), over tcp on
 * the loopback without CURVE, and with it. The three take turns; the figures are medians. CPU time
 * is that of both processes together, which is the limit on few cores. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <zmq.h>

#include "proto/key_file.h"
#include "tests/support/test_producer.h"
#include "trajd.h"

#define ROWS 8u
#define CREDIT 8u
#define ROUNDS 5u
#define WAYS 3u

static char directory[64] = "/tmp/trajd-bench-XXXXXX", keys[96], key_file[128];

static const char *const ways[WAYS] = {"ipc, shared memory", "tcp, insecure_loopback",
                                       "tcp, CURVE"};

static void die(const char *what)
{
    fprintf(stderr, "bench_remote: %s\n", what);
    exit(1);
}

static double seconds_of(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void make_keys(void)
{
    struct trajd_key_file server = {.name = "server"}, client = {.name = "bench"};
    struct trajd_error error;
    char path[160];
    snprintf(keys, sizeof keys, "%s/keys", directory);
    snprintf(path, sizeof path, "%s/clients", keys);
    if (mkdir(keys, 0700) != 0 || mkdir(path, 0700) != 0 ||
        zmq_curve_keypair(server.public_key, server.secret_key) != 0 ||
        zmq_curve_keypair(client.public_key, client.secret_key) != 0)
        die("no keys");
    memcpy(client.server_key, server.public_key, TRAJD_KEY_SIZE);
    snprintf(key_file, sizeof key_file, "%s/bench.key_secret", keys);
    snprintf(path, sizeof path, "%s/server.key_secret", keys);
    enum trajd_status status = trajd_key_write(path, &server, &error);
    if (!status)
        status = trajd_key_write(key_file, &client, &error);
    memset(client.secret_key, 0, sizeof client.secret_key);
    snprintf(path, sizeof path, "%s/clients/bench.key", keys);
    if (!status)
        status = trajd_key_write(path, &client, &error);
    if (status)
        die(error.message);
}

static uint64_t sum_of(const struct trajd_batch *batch)
{
    uint64_t sum = 0;
    for (uint32_t t = 0; t < trajd_batch_tensor_count(batch); t++) {
        const struct trajd_tensor *tensor = trajd_batch_tensor(batch, t);
        const size_t size = tensor->shape[0] * (size_t)tensor->strides_bytes[0];
        for (size_t at = 0; at + sizeof(uint64_t) <= size; at += sizeof(uint64_t)) {
            uint64_t word;
            memcpy(&word, (const char *)tensor->data + at, sizeof word);
            sum += word;
        }
    }
    return sum;
}

/* The worker process: writes the seconds for `count` batches to its standard output. */
static void work(int from, int to, const char *key, uint32_t count)
{
    char endpoint[128] = "";
    struct trajd_client *client;
    struct trajd_batch *batch;
    struct trajd_error error;
    volatile uint64_t sum = 0;
    double begin = 0, took;
    if (read(from, endpoint, sizeof endpoint - 1) <= 0)
        die("no daemon");
    if (trajd_client_connect(&(struct trajd_connect_options){.endpoint = endpoint, .key_file = key},
                             &client, &error) ||
        trajd_client_open(client, &(struct trajd_open_options){.feed = "train", .credit = CREDIT},
                          &error))
        die(error.message);
    const uint32_t warm_up = count / 10 + 2 * CREDIT;
    for (uint32_t i = 0; i < count + warm_up; i++) {
        if (i == warm_up)
            begin = seconds_of(CLOCK_MONOTONIC);
        if (trajd_client_next(client, 20000, &batch, &error))
            die(error.message);
        sum += sum_of(batch);
        trajd_batch_release(&batch);
    }
    took = seconds_of(CLOCK_MONOTONIC) - begin;
    trajd_client_close(&client);
    if (write(to, &took, sizeof took) != sizeof took)
        die("no parent");
}

struct figures {
    double us, cpu_us; /* per batch */
};

static struct figures run(uint32_t way, uint64_t part_bytes, uint32_t count)
{
    struct producer *producer;
    struct trajd_error error;
    struct rusage before, after;
    double took = 0;
    int down[2], up[2], status;
    const struct producer_options options = {.directory = directory,
                                             .slots = CREDIT + 2,
                                             .batch = ROWS,
                                             .credit = CREDIT,
                                             .length = UINT64_C(1) << 40,
                                             /* the bytes of the other tensors */
                                             .payload_bytes = part_bytes / ROWS - 32,
                                             .tcp = way > 0 ? "127.0.0.1:0" : NULL,
                                             .keys = way == 2 ? keys : NULL};
    if (pipe(down) != 0 || pipe(up) != 0)
        die("pipe");
    getrusage(RUSAGE_CHILDREN, &before);
    fflush(stdout);
    pid_t child = fork(); /* before the first thread */
    if (child == 0) {
        work(down[0], up[1], way == 2 ? key_file : NULL, count);
        _exit(0);
    }
    const double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    if (producer_start(&options, &producer, &error))
        die(error.message);
    const char *endpoint =
        way > 0 ? trajd_server_remote_endpoint(producer_server(producer)) : directory;
    if (write(down[1], endpoint, strlen(endpoint)) < 0 ||
        read(up[0], &took, sizeof took) != sizeof took)
        die("the worker failed");
    waitpid(child, &status, 0);
    producer_stop(&producer);
    getrusage(RUSAGE_CHILDREN, &after);
    const int fds[] = {down[0], down[1], up[0], up[1]};
    for (size_t i = 0; i < 4; i++)
        close(fds[i]);
    const double worker = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec +
                                   after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
                          1e-6 * (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec +
                                          after.ru_stime.tv_usec - before.ru_stime.tv_usec);
    const double all = count + count / 10 + 2 * CREDIT; /* with the warm-up */
    return (struct figures){.us = took * 1e6 / count,
                            .cpu_us =
                                (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu + worker) * 1e6 / all};
}

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, compare);
    return values[ROUNDS / 2];
}

static void print_size(uint64_t part_bytes, uint32_t count)
{
    double us[WAYS][ROUNDS], cpu_us[WAYS][ROUNDS], first = 0;
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t way = 0; way < WAYS; way++) {
            const struct figures figures = run(way, part_bytes, count);
            us[way][round] = figures.us;
            cpu_us[way][round] = figures.cpu_us;
        }
    printf("\n%-32s %12s %12s %10s %12s\n",
           part_bytes > 65536 ? "batches of 4 MiB" : "batches of 4 KiB", "us a batch", "batches/s",
           "MB/s", "CPU us");
    for (uint32_t way = 0; way < WAYS; way++) {
        const double middle = median(us[way]);
        first = way == 0 ? middle : first;
        printf("  %-30s %12.1f %12.0f %10.0f %12.1f    %.1fx\n", ways[way], middle, 1e6 / middle,
               (double)part_bytes / middle, median(cpu_us[way]), middle / first);
    }
}

int main(void)
{
    char command[96];
    if (!mkdtemp(directory))
        die("no directory");
    make_keys();
    printf("bench_remote: credit %u, %u rounds in turns, every byte read by the worker\n", CREDIT,
           ROUNDS);
    print_size(4096, 20000);
    print_size(UINT64_C(4) << 20, 400);
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command);
}
