/* Lends decoder children to the threads that need one, and starts them up to the limit. */
#include "daemon/decode/decoder_pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct pooled {
    struct trajd_decoder *decoder; /* NULL: to be made */
    bool yields;
};

struct trajd_decoder_pool {
    char *program;
    pthread_mutex_t lock;
    pthread_cond_t freed;
    uint32_t most, eager, count, idle_count;
    struct pooled *idle; /* [most], those that yield first, then the one used longest ago */
};

enum trajd_status trajd_decoder_pool_create(const char *program, uint32_t most, uint32_t eager,
                                            struct trajd_decoder_pool **pool,
                                            struct trajd_error *error)
{
    struct trajd_decoder_pool *made = calloc(1, sizeof *made);

    *pool = made;
    if (made) {
        pthread_mutex_init(&made->lock, NULL);
        pthread_cond_init(&made->freed, NULL);
        made->most = most;
        made->eager = eager;
        made->program = strdup(program);
        made->idle = calloc(most, sizeof *made->idle);
        if (made->program && made->idle)
            return TRAJD_OK;
    }
    trajd_decoder_pool_destroy(pool);
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for decoders");
}

void trajd_decoder_pool_destroy(struct trajd_decoder_pool **pool)
{
    struct trajd_decoder_pool *made = *pool;

    *pool = NULL;
    if (!made)
        return;
    for (uint32_t i = 0; i < made->idle_count; i++)
        trajd_decoder_destroy(&made->idle[i].decoder);
    pthread_cond_destroy(&made->freed);
    pthread_mutex_destroy(&made->lock);
    free(made->program);
    free(made->idle);
    free(made);
}

static struct pooled take_idle(struct trajd_decoder_pool *pool, uint32_t i)
{
    const struct pooled taken = pool->idle[i];

    memmove(&pool->idle[i], &pool->idle[i + 1], (--pool->idle_count - i) * sizeof *pool->idle);
    return taken;
}

/* Takes an idle decoder: one that fits, else the first one. Without any, the caller makes one, which
 * is counted already. */
static struct pooled take(struct trajd_decoder_pool *pool,
                          const struct trajd_decoder_options *options)
{
    struct pooled taken = {NULL, false};

    pthread_mutex_lock(&pool->lock);
    while (!pool->idle_count && pool->count == pool->most)
        pthread_cond_wait(&pool->freed, &pool->lock);
    for (uint32_t i = pool->idle_count; i-- > 0 && !taken.decoder;)
        if (trajd_decoder_fits(pool->idle[i].decoder, options))
            taken = take_idle(pool, i);
    if (!taken.decoder && pool->count == pool->most)
        taken = take_idle(pool, 0);
    else if (!taken.decoder)
        taken.yields = pool->count++ >= pool->eager;
    pthread_mutex_unlock(&pool->lock);
    return taken;
}

/* Gives a decoder back, or NULL for one that could not be made. */
static void give_back(struct trajd_decoder_pool *pool, struct pooled one)
{
    pthread_mutex_lock(&pool->lock);
    if (!one.decoder) {
        pool->count--;
    } else {
        const uint32_t at = one.yields ? 0 : pool->idle_count;
        memmove(&pool->idle[at + 1], &pool->idle[at],
                (pool->idle_count++ - at) * sizeof *pool->idle);
        pool->idle[at] = one;
    }
    pthread_cond_signal(&pool->freed);
    pthread_mutex_unlock(&pool->lock);
}

/* `unit` NULL: frames are images. */
static enum trajd_status run(struct trajd_decoder_pool *pool,
                             const struct trajd_decoder_options *wanted,
                             const struct trajd_decoder_unit *unit,
                             struct trajd_decoder_frame *frames, uint32_t count,
                             struct trajd_error *error)
{
    struct trajd_decoder_options options = *wanted;
    struct pooled one = take(pool, wanted);
    enum trajd_status status = TRAJD_OK;

    options.program = pool->program;
    options.yields = one.yields;
    if (!one.decoder)
        status = trajd_decoder_create(&options, &one.decoder, error);
    else if (!trajd_decoder_fits(one.decoder, &options))
        status = trajd_decoder_change(one.decoder, &options, error);
    if (status)
        trajd_decoder_destroy(&one.decoder);
    else
        status = unit ? trajd_decoder_run_unit(one.decoder, unit, frames, count, error)
                      : trajd_decoder_run(one.decoder, frames, count, error);
    give_back(pool, one);
    return status;
}

enum trajd_status trajd_decoder_pool_run(struct trajd_decoder_pool *pool,
                                         const struct trajd_decoder_options *options,
                                         struct trajd_decoder_frame *frames, uint32_t count,
                                         struct trajd_error *error)
{
    return run(pool, options, NULL, frames, count, error);
}

enum trajd_status trajd_decoder_pool_run_unit(struct trajd_decoder_pool *pool,
                                              const struct trajd_decoder_options *options,
                                              const struct trajd_decoder_unit *unit,
                                              struct trajd_decoder_frame *frames, uint32_t count,
                                              struct trajd_error *error)
{
    return run(pool, options, unit, frames, count, error);
}
