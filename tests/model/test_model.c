/* test_model [FIRST_SEED [COUNT]]: schedules by seed. On failure prints the seed and what happened up to it. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model.h"

#define DEFAULT_COUNT 3000
#define WILD_STEPS 400
#define FAIR_ROUNDS 2000
#define TRACE_SHOWN 6000

static void set_up(struct model *model, uint64_t seed, const char *directory)
{
    memset(model, 0, sizeof *model);
    model->seed = seed;
    model->random = seed * UINT64_C(0xd1342543de82ef95) + 1;
    model->mode = model_random(model, 2) ? TRAJD_WIRE_SHARD : TRAJD_WIRE_SHARE;
    model->worker_count =
        1 + (uint32_t)model_random(model, model->mode == TRAJD_WIRE_SHARD ? MODEL_WORKERS - 1 : MODEL_WORKERS);
    model->parts = model->mode == TRAJD_WIRE_SHARD ? model->worker_count : 1;
    model->options = (struct trajd_core_feed_options){
        .name = "feed",
        .slot_count = 3 + (uint32_t)model_random(model, MODEL_SLOTS - 2),
        .max_credit = 2 + (uint32_t)model_random(model, 4),
        .global_batch = model->parts + (uint32_t)model_random(model, 3),
        .fingerprint = seed,
        .epoch_length = model_random(model, 60),
        .tail_short = model_random(model, 2) != 0,
        .journal_directory = directory,
    };
    for (uint32_t i = 0; i < model->worker_count; i++)
        worker_start(model, i);
    model_start_daemon(model);
}

static void move_worker(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];

    if (worker->state == WORKER_ABSENT)
        worker_start(model, index);
    else if (worker->dying || worker->stopped)
        return;
    else if (worker->state == WORKER_HELLO)
        worker_connect(model, index);
    else if (worker->state == WORKER_IDLE)
        worker_open(model, index, false);
}

/* Something breaks, or is about to be mended. */
static void fault(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];
    bool is_there = worker->session && worker->state >= WORKER_IDLE && !worker->dying;

    switch (model_random(model, 12)) {
    case 0:
        if (is_there) {
            model_trace(model, "worker %u is killed", index);
            worker->dying = true;
        }
        break;
    case 1:
    case 2:
    case 3:
        if (worker->dying)
            model_end_session(model, index);
        break;
    case 4: worker->stopped = is_there; break;
    case 5:
    case 6: worker->stopped = false; break;
    case 7:
        if (is_there && !worker->stopped)
            worker_disconnect(model, index);
        break;
    case 8:
        if (is_there && !worker->stopped && worker->state == WORKER_RUNNING && !model_random(model, 4))
            worker_open(model, index, model->parts == 1 && model_random(model, 2));
        break;
    case 9:
        if (!model_random(model, 4)) {
            model_kill_daemon(model);
            model_start_daemon(model);
        }
        break;
    default:
        if (is_there)
            worker_ack_wild(model, index);
        break;
    }
}

static void wild_step(struct model *model)
{
    uint32_t index = (uint32_t)model_random(model, model->worker_count);
    struct worker *worker = &model->workers[index];

    model->now_ns += 1 + model_random(model, 1000);
    switch (model_random(model, 16)) {
    case 0:
    case 1:
    case 2: model_take(model); break;
    case 3:
    case 4:
    case 5: model_publish(model); break;
    case 6:
    case 7:
    case 8: model_receive(model, index); break;
    case 9:
    case 10:
    case 11:
        if (!worker->stopped && !worker->dying)
            worker_receive(model, index);
        break;
    case 12: move_worker(model, index); break;
    case 13:
    case 14:
        if (!worker->stopped && !worker->dying && worker->state >= WORKER_IDLE)
            worker_act(model, index);
        break;
    default:
        if (model_random(model, 3))
            model_tick(model);
        else
            fault(model, index);
    }
}

/* Everybody does what is his to do, nothing breaks: it has to come to an end. */
static void fair_round(struct model *model)
{
    model->now_ns += 1000;
    while (model->fill_count)
        model_publish(model);
    for (uint32_t i = 0; i < model->options.slot_count; i++)
        model_take(model);
    for (uint32_t i = 0; i < model->worker_count; i++) {
        struct worker *worker = &model->workers[i];
        worker->stopped = false;
        if (worker->dying)
            model_end_session(model, i);
        move_worker(model, i);
        while (worker->to_daemon.count)
            model_receive(model, i);
        while (worker->to_worker.count)
            worker_receive(model, i);
        if (worker->state == WORKER_RUNNING)
            worker_finish(model, i);
    }
}

static bool all_have_seen_ends(const struct model *model)
{
    for (uint32_t i = 0; i < model->worker_count; i++)
        if (model->workers[i].ends < 2)
            return false;
    return true;
}

static void end_fairly(struct model *model)
{
    struct trajd_core_feed_info info;
    uint32_t round = 0;
    uint64_t last;

    model_trace(model, "fair from here");
    for (uint32_t i = 0; i < model->worker_count; i++)
        model->workers[i].ends = 0;
    while (!model->failed && !all_have_seen_ends(model) && round++ < FAIR_ROUNDS) {
        fair_round(model);
        model_check(model);
    }
    if (!all_have_seen_ends(model))
        model_fail(model, "no end in sight after %u fair rounds", round);
    while (model->fill_count)
        model_publish(model);
    for (uint32_t i = 0; i < model->worker_count; i++)
        model_end_session(model, i);
    /* Whoever comes next finds every slot FREE. */
    last = model->epoch + 100;
    for (uint32_t i = 0; i < model->parts; i++) {
        worker_start(model, i);
        worker_connect(model, i);
        model_receive(model, i);
        worker_receive(model, i);
        model->workers[i].epoch = last;
        model->workers[i].knows_epoch = true;
        worker_open(model, i, false);
        model_receive(model, i);
    }
    trajd_core_feed_info(model->feed, &info);
    if (info.slots_free != model->options.slot_count)
        model_fail(model, "%u of %u slots are FREE at the end", info.slots_free, model->options.slot_count);
}

static bool run_seed(struct model *model, uint64_t seed, const char *directory)
{
    set_up(model, seed, directory);
    for (uint32_t step = 0; step < WILD_STEPS && !model->failed; step++) {
        wild_step(model);
        model_check(model);
    }
    if (!model->failed)
        end_fairly(model);
    trajd_core_destroy(&model->core);
    if (!model->failed)
        return true;
    fprintf(stderr, "seed %llu: %s, %u workers, %u slots, G %u, %llu windows\n%s", (unsigned long long)seed,
            model->mode == TRAJD_WIRE_SHARD ? "shard" : "share", model->worker_count, model->options.slot_count,
            model->options.global_batch, (unsigned long long)model->options.epoch_length,
            model->trace_length > TRACE_SHOWN ? model->trace + model->trace_length - TRACE_SHOWN : model->trace);
    return false;
}

static void remove_journals(const char *path)
{
    DIR *directory = opendir(path);

    if (!directory)
        return;
    for (struct dirent *entry; (entry = readdir(directory));)
        unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    rmdir(path);
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 0) : argc > 1 ? 1 : DEFAULT_COUNT;
    struct model *model = malloc(sizeof *model);
    char directory[] = "/tmp/trajd-model-XXXXXX";
    uint64_t failed = 0;

    if (!model || !mkdtemp(directory)) {
        fprintf(stderr, "model: %s\n", strerror(errno));
        return 1;
    }
    for (uint64_t seed = first; seed < first + count && !failed; seed++)
        failed += !run_seed(model, seed, directory);
    remove_journals(directory);
    free(model);
    printf("%llu seeds from %llu: %s\n", (unsigned long long)count, (unsigned long long)first,
           failed ? "failed" : "every invariant held");
    return failed != 0;
}
