/* test_model [FIRST_SEED [COUNT]]: runs one random schedule for each seed. On failure it prints the
 * seed and all events until then. */
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
#define TRACE_SHOWN 1000000

static void set_up_job(struct world *world, uint32_t index, uint64_t seed)
{
    struct model *model = &world->jobs[index];

    model->world = world;
    model->index = index;
    model->name[0] = (char)('a' + index);
    model->seed = seed + index * 7919;
    model->mode = world_random(world, 2) ? TRAJD_WIRE_SHARD : TRAJD_WIRE_QUEUE;
    model->worker_count =
        1 + (uint32_t)world_random(world, model->mode == TRAJD_WIRE_SHARD ? MODEL_WORKERS - 1
                                                                          : MODEL_WORKERS);
    model->parts = model->mode == TRAJD_WIRE_SHARD ? model->worker_count : 1;
    model->has_remote = model->mode == TRAJD_WIRE_SHARD && !world_random(world, 4);
    model->ranks = model->has_remote ? 2 * model->parts + 1 : model->parts;
}

static uint32_t most_ranks(const struct world *world)
{
    uint32_t most = 1;

    for (uint32_t j = 0; j < world->job_count; j++)
        most = world->jobs[j].ranks > most ? world->jobs[j].ranks : most;
    return most;
}

static void set_up(struct world *world, uint64_t seed, const char *directory)
{
    struct model *jobs = world->jobs;

    memset(world, 0, sizeof *world);
    memset(jobs, 0, MODEL_JOBS * sizeof *jobs);
    world->jobs = jobs;
    world->random = seed * UINT64_C(0xd1342543de82ef95) + 1;
    world->job_count = 1 + (uint32_t)(world_random(world, 6) + 1) / 3;
    for (uint32_t j = 0; j < world->job_count; j++)
        set_up_job(world, j, seed);
    world->options = (struct trajd_core_feed_options){
        .name = "feed",
        .slot_count = 3 + (uint32_t)world_random(world, MODEL_SLOTS - 2),
        .max_credit = 2 + (uint32_t)world_random(world, 4),
        .global_batch = most_ranks(world) + (uint32_t)world_random(world, 3),
        .fingerprint = seed,
        .epoch_length = world_random(world, 60),
        .tail_short = world_random(world, 2) != 0,
        .rank_timeout_ns = world_random(world, 3) ? 0 : 20000,
        .rejoin_wait_ns = world_random(world, 4) ? 8000 << world_random(world, 6) : 0,
        .job_count = 1 + (uint32_t)world_random(world, MODEL_JOBS),
        .slow_leaves = world_random(world, 2) != 0,
        .slow_after_ns = 10000,
        .journal_directory = directory,
    };
    world->options.is_for_one_user = world->options.job_count == 1; /* as in host memory */
    for (uint32_t j = 0; j < world->job_count; j++)
        for (uint32_t i = 0; i < jobs[j].worker_count; i++)
            worker_start(&jobs[j], i);
    model_start_daemon(world);
}

/* Stops all workers of the job, so that they begin from its checkpoint. */
static void return_to_checkpoint(struct model *model)
{
    if (!model->token_size || model->mode != TRAJD_WIRE_QUEUE)
        return;
    model_trace(model, "job %s returns to its checkpoint", model->name);
    for (uint32_t i = 0; i < model->worker_count; i++) {
        struct worker *worker = &model->workers[i];
        if (worker->session)
            model_end_session(model, i);
        worker->state = WORKER_ABSENT;
        worker->to_daemon.count = worker->to_worker.count = worker->held_count = 0;
        worker->session = 0;
    }
    model->returns = true;
    for (uint32_t i = 0; i < model->worker_count; i++)
        worker_start(model, i);
    model->returns = false;
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

/* Kills workers in the moment in which the daemon dies: none, some, or all. */
static void kill_some(struct world *world)
{
    const uint64_t odds = world_random(world, 4);

    for (uint32_t j = 0; j < world->job_count; j++)
        for (uint32_t i = 0; odds && i < world->jobs[j].worker_count; i++) {
            struct worker *worker = &world->jobs[j].workers[i];
            if (worker->state == WORKER_ABSENT || world_random(world, odds))
                continue;
            model_trace(&world->jobs[j], "worker %s%u is killed with the daemon",
                        world->jobs[j].name, i);
            worker->dying = true;
        }
}

/* Breaks something, or repairs it. */
static void fault(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];
    bool is_there = worker->session && worker->state >= WORKER_IDLE && !worker->dying;

    switch (model_random(model, 14)) {
    case 0:
        if (is_there) {
            model_trace(model, "worker %s%u is killed", model->name, index);
            worker->dying = true;
        }
        break;
    case 1:
    case 2:
    case 3:
        if (worker->dying)
            model_end_session(model, index);
        else
            worker->dying = is_there && worker->kept.count; /* soon after its return */
        break;
    case 4:
        worker->stopped = is_there;
        break;
    case 5:
    case 6:
        worker->stopped = false;
        break;
    case 7:
        if (is_there && !worker->stopped)
            worker_disconnect(model, index);
        break;
    case 8:
        if (is_there && !worker->stopped && worker->state == WORKER_RUNNING &&
            !model_random(model, 4))
            worker_open(model, index, model->parts == 1 && model_random(model, 2));
        break;
    case 9:
        if (worker->is_lost || !model_random(model, 4)) { /* twice in a row, too */
            kill_some(model->world);
            model_kill_daemon(model->world);
            model_start_daemon(model->world);
        }
        break;
    case 10:
        if (is_there && worker->state == WORKER_RUNNING && worker->joined)
            model_checkpoint(model, index);
        break;
    case 11:
        if (!model_random(model, 8))
            return_to_checkpoint(model);
        break;
    default:
        if (is_there)
            worker_ack_wild(model, index);
        break;
    }
}

static void wild_step(struct world *world)
{
    struct model *model = &world->jobs[world_random(world, world->job_count)];
    uint32_t index = (uint32_t)world_random(world, model->worker_count);
    uint32_t feed = (uint32_t)world_random(world, world->feed_count);
    struct worker *worker = &model->workers[index];

    world->now_ns += 1 + world_random(world, 1000);
    switch (world_random(world, 16)) {
    case 0:
    case 1:
    case 2:
        world_take(world, feed);
        break;
    case 3:
    case 4:
    case 5:
        world_publish(world, feed);
        break;
    case 6:
    case 7:
    case 8:
        model_receive(model, index);
        break;
    case 9:
    case 10:
    case 11:
        if (!worker->stopped && !worker->dying)
            worker_receive(model, index);
        break;
    case 12:
        move_worker(model, index);
        break;
    case 13:
    case 14:
        if (!worker->stopped && !worker->dying &&
            (worker->state >= WORKER_IDLE || (worker->is_lost && worker->state != WORKER_ABSENT)))
            worker_act(model, index);
        break;
    default:
        world_finish_send(world);
        if (world_random(world, 3))
            world_tick(world);
        else
            fault(model, index);
    }
}

static void produce_all(struct world *world)
{
    while (world->send_count)
        world_finish_send(world);
    for (uint32_t f = 0; f < world->feed_count; f++) {
        while (world->fill_count[f])
            world_publish(world, f);
        for (uint32_t i = 0; i < world->options.slot_count; i++)
            world_take(world, f);
    }
}

/* Lets everything make progress, with no faults: the epochs must come to their ends. */
static void fair_round(struct world *world)
{
    world->now_ns += 1000;
    produce_all(world);
    world_tick(world);
    for (uint32_t j = 0; j < world->job_count; j++)
        for (uint32_t i = 0; i < world->jobs[j].worker_count; i++) {
            struct model *model = &world->jobs[j];
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

static bool all_have_seen_ends(const struct world *world)
{
    for (uint32_t j = 0; j < world->job_count; j++)
        for (uint32_t i = 0; i < world->jobs[j].worker_count; i++)
            if (world->jobs[j].workers[i].ends < 2)
                return false;
    return true;
}

/* Checks that a new worker finds a feed with every slot FREE. */
static void check_free(struct world *world)
{
    struct model *model = &world->jobs[0];
    uint64_t last = model->epoch + 100;
    struct trajd_core_feed_info info;
    uint32_t all_free = 0;

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
    for (uint32_t f = 0; f < world->feed_count; f++) {
        trajd_core_feed_info(world->feeds[f], &info);
        all_free += info.members && info.slots_free == world->options.slot_count;
    }
    if (!all_free)
        model_fail(model, "slots are not FREE at the end");
}

static void end_fairly(struct world *world)
{
    uint32_t round = 0;

    model_trace(&world->jobs[0], "fair rounds begin");
    for (uint32_t j = 0; j < world->job_count; j++)
        for (uint32_t i = 0; i < world->jobs[j].worker_count; i++)
            world->jobs[j].workers[i].ends = 0;
    while (!world->failed && !all_have_seen_ends(world) && round++ < FAIR_ROUNDS) {
        fair_round(world);
        world_check(world);
    }
    if (!all_have_seen_ends(world))
        model_fail(&world->jobs[0], "the epochs do not end in %u fair rounds", round);
    for (uint32_t f = 0; f < world->feed_count; f++)
        while (world->fill_count[f])
            world_publish(world, f);
    for (uint32_t j = 0; j < world->job_count; j++)
        for (uint32_t i = 0; i < world->jobs[j].worker_count; i++)
            model_end_session(&world->jobs[j], i);
    check_free(world);
}

static void print_failure(const struct world *world, uint64_t seed)
{
    for (uint32_t j = 0; j < world->job_count; j++)
        fprintf(stderr, "seed %llu: job %s: %s, %u workers%s\n", (unsigned long long)seed,
                world->jobs[j].name, world->jobs[j].mode == TRAJD_WIRE_SHARD ? "shard" : "queue",
                world->jobs[j].worker_count,
                world->jobs[j].has_remote ? ", others on another node" : "");
    fprintf(stderr, "%u slots for %u jobs, G %u, %llu windows\n%s", world->options.slot_count,
            world->options.job_count, world->options.global_batch,
            (unsigned long long)world->options.epoch_length,
            world->trace_length > TRACE_SHOWN ? world->trace + world->trace_length - TRACE_SHOWN
                                              : world->trace);
}

static bool run_seed(struct world *world, uint64_t seed, const char *directory)
{
    set_up(world, seed, directory);
    for (uint32_t step = 0; step < WILD_STEPS * world->job_count && !world->failed; step++) {
        wild_step(world);
        world_check(world);
    }
    if (!world->failed)
        end_fairly(world);
    trajd_core_destroy(&world->core);
    if (!world->failed)
        return true;
    print_failure(world, seed);
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
    struct world *world = calloc(1, sizeof *world);
    char directory[] = "/tmp/trajd-model-XXXXXX";
    uint64_t failed = 0;

    if (world)
        world->jobs = calloc(MODEL_JOBS, sizeof *world->jobs);
    if (!world || !world->jobs || !mkdtemp(directory)) {
        fprintf(stderr, "model: %s\n", strerror(errno));
        return 1;
    }
    for (uint64_t seed = first; seed < first + count && !failed; seed++)
        failed += !run_seed(world, seed, directory);
    remove_journals(directory);
    free(world->jobs);
    free(world);
    printf("%llu seeds from %llu: %s\n", (unsigned long long)count, (unsigned long long)first,
           failed ? "failed" : "every invariant held");
    return failed != 0;
}
