/* Starts and stops the threads, and hands out slices by a counter. */
#include "kernels/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREAD_LIMIT 1024
#define THREAD_NAME_SIZE 16 /* Linux's limit, with the NUL */

struct job {
    void (*slice)(void *context, uint32_t index);
    void *context;
    uint32_t slice_count;
};

struct trajd_pool {
    pthread_mutex_t turn; /* held by the caller whose job is running */
    pthread_mutex_t lock; /* protects job_number, job, busy and ends */
    pthread_cond_t work;  /* signals a new job, or the end */
    pthread_cond_t idle;  /* signals that no thread works on the job */
    uint64_t job_number;  /* counts jobs, so that a thread joins each at most once */
    struct job job;
    uint32_t busy; /* threads that work on the job */
    bool ends;
    uint32_t waiting;      /* callers that wait for their turn; atomic */
    uint64_t next_slice;   /* 64 bits: each thread increments it once past the end */
    uint32_t thread_count; /* includes the caller */
    uint32_t started;
    char name[THREAD_NAME_SIZE];
    pthread_t threads[];
};

/* Takes slices from a counter until none is left. Relaxed order suffices, because the lock around
 * each job orders what slices read and write. */
static void work(struct trajd_pool *pool, const struct job *job)
{
    uint64_t index;

    while ((index = __atomic_fetch_add(&pool->next_slice, 1, __ATOMIC_RELAXED)) < job->slice_count)
        job->slice(job->context, (uint32_t)index);
}

static void *thread_main(void *argument)
{
    struct trajd_pool *pool = argument;
    uint64_t done = 0;

    pthread_setname_np(pthread_self(), pool->name);
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->job_number == done && !pool->ends)
            pthread_cond_wait(&pool->work, &pool->lock);
        if (pool->ends)
            break;
        done = pool->job_number;
        if (!pool->job.slice) /* woken after the job was over */
            continue;
        struct job job = pool->job;
        pool->busy++;
        pthread_mutex_unlock(&pool->lock);
        work(pool, &job);
        pthread_mutex_lock(&pool->lock);
        if (--pool->busy == 0)
            pthread_cond_signal(&pool->idle);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void run_inline(uint32_t slice_count, void (*slice)(void *context, uint32_t index),
                       void *context)
{
    for (uint32_t index = 0; index < slice_count; index++)
        slice(context, index);
}

void trajd_pool_run(struct trajd_pool *pool, uint32_t slice_count,
                    void (*slice)(void *context, uint32_t index), void *context)
{
    struct job job = {slice, context, slice_count};

    if (!pool || pool->started == 0 || slice_count <= 1) {
        run_inline(slice_count, slice, context);
        return;
    }
    __atomic_fetch_add(&pool->waiting, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&pool->turn);
    __atomic_fetch_sub(&pool->waiting, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&pool->lock);
    pool->job = job;
    pool->job_number++;
    __atomic_store_n(&pool->next_slice, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->started && i + 1 < slice_count; i++)
        pthread_cond_signal(&pool->work);
    work(pool, &job);
    pthread_mutex_lock(&pool->lock);
    pool->job.slice = NULL; /* all slices are taken: no thread joins from here on */
    while (pool->busy > 0)
        pthread_cond_wait(&pool->idle, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    pthread_mutex_unlock(&pool->turn);
}

uint32_t trajd_pool_thread_count(const struct trajd_pool *pool)
{
    return pool ? pool->thread_count : 1;
}

uint32_t trajd_pool_waiting(const struct trajd_pool *pool)
{
    return pool ? __atomic_load_n(&pool->waiting, __ATOMIC_RELAXED) : 0;
}

/* Starts the threads with all signals blocked from their first instruction on, because only the
 * main thread handles signals. */
static int start_threads(struct trajd_pool *pool)
{
    sigset_t all, before;
    int code = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (code == 0 && pool->started < pool->thread_count - 1) {
        code = pthread_create(&pool->threads[pool->started], NULL, thread_main, pool);
        pool->started += code == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

enum trajd_status trajd_pool_create(uint32_t thread_count, const char *name,
                                    struct trajd_pool **out, struct trajd_error *error)
{
    struct trajd_pool *pool;
    int code;

    *out = NULL;
    if (thread_count < 1 || thread_count > THREAD_LIMIT)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "pool %s: %u threads (1 to %d)", name,
                               thread_count, THREAD_LIMIT);
    pool = calloc(1, sizeof *pool + (thread_count - 1) * sizeof *pool->threads);
    if (!pool)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "pool %s: no memory", name);
    pthread_mutex_init(&pool->turn, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->idle, NULL);
    pool->thread_count = thread_count;
    snprintf(pool->name, sizeof pool->name, "%s", name);
    code = start_threads(pool);
    if (code != 0) {
        trajd_pool_destroy(&pool);
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, code, "pool %s: cannot start a thread: %s",
                               name, strerror(code));
    }
    *out = pool;
    return TRAJD_OK;
}

void trajd_pool_destroy(struct trajd_pool **pool_pointer)
{
    struct trajd_pool *pool = *pool_pointer;

    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->ends = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->started; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->idle);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->turn);
    free(pool);
    *pool_pointer = NULL;
}
