/* What the files of the control share: control.c starts and ends it, feed_list.c makes producers,
 * feed_opener.c answers OPEN, status.c tells what there is, reload.c changes it. */
#ifndef TRAJD_CONTROL_CONTROL_INTERNAL_H
#define TRAJD_CONTROL_CONTROL_INTERNAL_H

#include <pthread.h>

#include "daemon/control/query.h"
#include "daemon/producer/producer.h"
#include "daemon/producer/gpu.h"
#include "daemon/control/control.h"
#include "daemon/control/resample_service.h"

#define TRAJD_CONTROL_MAX_REQUESTS 64
#define TRAJD_CONTROL_MAX_GPUS 16
#define TRAJD_CONTROL_MAX_PRODUCERS (TRAJD_CONFIG_MAX_FEEDS + 1024)

/* What the opener thread is asked: a feed for an OPEN. */
struct trajd_opener_request {
    uint64_t request;
    char *name, *spec;
    char *gpu;        /* where its batches are to lie; NULL: in host memory */
    bool is_instance; /* another production of the feed `name` */
};

/* A configuration, and its datasets as they are open. */
struct trajd_open_config {
    struct trajd_config *config;
    uint32_t dataset_count;
    struct trajd_dataset *datasets[TRAJD_CONFIG_MAX_DATASETS];
    const char *feed_names[TRAJD_CONFIG_MAX_FEEDS + 1];
};

struct trajd_control {
    const struct trajd_log *log;
    /* the caller's: what no reload changes, and texts that are used to the end */
    const struct trajd_config *first_config;
    struct trajd_pool *pool;
    struct trajd_stats_service *stats_service;
    struct trajd_server *server;
    int64_t exit_idle_ns; /* atomic */
    uint32_t gpu_count;
    struct trajd_gpu *gpus[TRAJD_CONTROL_MAX_GPUS];
    bool gpu_is_lost; /* atomic: one of them has failed, and with it this process's use of all */

    /* guards what follows; `now` and the producers are changed by the main thread (before READY)
     * and then the opener alone, which look at them without it */
    pthread_mutex_t mutex;
    pthread_cond_t asked;
    bool stop;
    struct trajd_open_config *now;
    uint32_t producer_count;
    struct trajd_producer *producers[TRAJD_CONTROL_MAX_PRODUCERS];
    /* the server said so: the opener closes it, if it still is */
    bool is_idle[TRAJD_CONTROL_MAX_PRODUCERS];
    uint32_t request_count;
    struct trajd_opener_request requests[TRAJD_CONTROL_MAX_REQUESTS];
    struct trajd_producer *lent;    /* the query service looks at it: it is not destroyed */
    struct trajd_heartbeat opening; /* the opener's; needs no lock */
    pthread_t opener;
    bool opener_running;
    int64_t swept_ns; /* the opener's own: when it last looked for old journals; 0: never */
    struct trajd_query_service *query_service;
    struct trajd_resample_service *resample_service;
    struct trajd_reload reload; /* the last one */
    struct trajd_config_source reload_from;

    uint64_t windows_before; /* of the status line; the main thread's own */
    int64_t windows_at_ns;
};

/* ---- control.c ---- */

enum trajd_status trajd_control_open_dataset(struct trajd_control *control,
                                             const struct trajd_config *config,
                                             const struct trajd_config_dataset *from,
                                             uint64_t cache_bytes, struct trajd_dataset **dataset,
                                             struct trajd_error *error);
/* Tells of training and validation that are not normalised alike, a mistake that nothing else
 * shows. */
void trajd_control_warn_of_norms(struct trajd_control *control, FILE *report);

/* ---- feed_list.c: by the main thread before READY, then by the opener alone ---- */

/* Where a feed comes from. */
struct trajd_feed_source {
    const char *name, *instance_of;
    struct trajd_window_spec *spec; /* the configuration's, or read from */
    const char *text;               /* what a job sent */
    bool is_hidden;                 /* the feed is to be shown later, by trajd_server_change */
    struct trajd_gpu *gpu;          /* where it is made; NULL: in host memory */
};

/* Of journals; NULL: none are kept. */
const char *trajd_control_state_directory(const struct trajd_control *control);
struct trajd_dataset *trajd_open_config_find(const struct trajd_open_config *open_config,
                                             const char *name);
/* Makes a producer of what `open_config` has, whose ring takes at most rings_left_bytes; lists it
 * nowhere. */
enum trajd_status trajd_control_make_producer(struct trajd_control *control,
                                              const struct trajd_open_config *open_config,
                                              const struct trajd_feed_source *source,
                                              uint64_t rings_left_bytes,
                                              struct trajd_producer **producer,
                                              struct trajd_error *error);
/* Makes a producer and lists it; with a text the producer owns the spec, if it could be made. */
enum trajd_status trajd_control_add_producer(struct trajd_control *control,
                                             const struct trajd_feed_source *source,
                                             struct trajd_producer **producer,
                                             struct trajd_error *error);
/* The feed that a job sent as text, new or open already. */
enum trajd_status trajd_control_open_spec(struct trajd_control *control, const char *text,
                                          struct trajd_producer **producer,
                                          struct trajd_error *error);
/* Another production of the feed `family`, for a job that is elsewhere than those that read it. */
enum trajd_status trajd_control_open_instance(struct trajd_control *control, const char *family,
                                              struct trajd_producer **producer,
                                              struct trajd_error *error);
/* The production of a feed of the configuration (name) or of a text on the GPU with that UUID, new
 * or open already. TRAJD_ERR_UNSUPPORTED, TRAJD_ERR_MEMORY, TRAJD_ERR_DEVICE: its batches are to be
 * had in host memory alone, and why. */
enum trajd_status trajd_control_open_on_gpu(struct trajd_control *control, const char *name,
                                            const char *text, const char *gpu,
                                            struct trajd_producer **producer,
                                            struct trajd_error *error);
enum trajd_status trajd_control_unknown_feed(const struct trajd_control *control, const char *name,
                                             struct trajd_error *error);
/* The name of a feed sent as text. Any thread. */
void trajd_control_name_spec(const char *text, char *name, size_t size);
/* NULL: there is none. The first with the mutex held, the second without. */
struct trajd_producer *trajd_control_find_listed(struct trajd_control *control, const char *name);
struct trajd_producer *trajd_control_find_producer(struct trajd_control *control, const char *name);
/* A feed of the configuration, or another production of one; else a job has sent it. */
bool trajd_control_is_configured(const struct trajd_producer *producer);
/* The name without what tells instances apart: its length. */
size_t trajd_control_family_length(const char *name);
/* Of the name that the configuration has: productions on a GPU are other families of the same feed.
 */
size_t trajd_control_base_length(const char *name);
/* Feeds of the configuration stay, whoever reads them. */
bool trajd_control_may_close(const struct trajd_producer *producer);

/* ---- gpu_list.c ---- */

/* Those that the configuration names; none without. */
enum trajd_status trajd_control_open_gpus(struct trajd_control *control, struct trajd_error *error);
void trajd_control_close_gpus(struct trajd_control *control);
/* By its UUID; NULL and why not. */
struct trajd_gpu *trajd_control_find_gpu(struct trajd_control *control, const char *uuid,
                                         struct trajd_error *error);
/* A GPU has failed, and the configuration says to go on without (gpu.fall_back). */
bool trajd_control_goes_on_without_gpus(const struct trajd_control *control);
/* What the resample service calls, on its thread: the first GPU, while none has failed; NULL. */
struct trajd_device *trajd_control_acquire_device(void *context);
/* What a producer, or the resample service, calls on its thread: its GPU has failed. */
void trajd_control_on_gpu_lost(void *context);
/* A feed could not be made there, and *why says why: if the GPU answers nothing any more, it has
 * failed. */
void trajd_control_suspect_gpu(struct trajd_control *control, const struct trajd_gpu *gpu,
                               const struct trajd_error *why);

/* ---- feed_opener.c ---- */

enum trajd_status trajd_control_start_opener(struct trajd_control *control,
                                             struct trajd_error *error);
void trajd_control_stop_opener(struct trajd_control *control);
/* What the server calls, on its thread: feed/server.h. `context` is the control. */
void trajd_control_on_open_feed(void *context, uint64_t request_id, const char *name,
                                const char *spec, size_t spec_length);
void trajd_control_on_open_on_gpu(void *context, uint64_t request_id, const char *name,
                                  const char *spec, const char *gpu);
void trajd_control_on_open_instance(void *context, uint64_t request_id, const char *name);
void trajd_control_on_feed_idle(void *context, struct trajd_feed *feed);

/* ---- reload.c; on the opener's thread ---- */

/* Reads control->reload_from and makes it so, all or nothing; `message` says what, or why not. */
enum trajd_status trajd_reload_run(struct trajd_control *control, char *message, size_t size);

/* ---- status.c ---- */

/* What the server calls, on its thread: datasets and producers for the status document; returns its
 * length, 0: it did not fit. */
size_t trajd_control_describe(void *context, char *json, size_t size);
/* What the query service calls, on its thread: the producer stays until it is taken back. */
struct trajd_producer *trajd_control_acquire_producer(void *context, uint32_t feed_id);
void trajd_control_take_back(void *context, struct trajd_producer *producer);

#endif
