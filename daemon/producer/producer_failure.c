/* A batch that cannot be made. Its id is FEED/EPOCH/POSITION, and it begins the line of the log,
 * the error that the worker gets, and the feed's last_failure in the status. */
#include "daemon/producer/producer_internal.h"

void trajd_producer_fail_batch(struct trajd_producer *producer, const struct trajd_fill *fill,
                               struct trajd_error *error)
{
    struct trajd_producer_failure *last = &producer->last_failure;

    trajd_error_prefix(error, "batch %s/%llu/%llu", producer->name, (unsigned long long)fill->epoch,
                       (unsigned long long)fill->position);
    trajd_counter_add(&producer->counters[TRAJD_PRODUCER_FAILED], 1);
    LOG(producer->log, WARNING, "%s", error->message);
    pthread_mutex_lock(&last->mutex);
    last->error = *error;
    pthread_mutex_unlock(&last->mutex);
}

void trajd_producer_describe_failure(struct trajd_producer_failure *last, struct trajd_json *json)
{
    struct trajd_error error;

    pthread_mutex_lock(&last->mutex);
    error = last->error;
    pthread_mutex_unlock(&last->mutex);
    if (error.status)
        trajd_json_string(json, "last_failure", error.message);
}
