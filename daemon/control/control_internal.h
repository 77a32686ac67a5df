/* Shared by the files of daemon/control. Each file calls only files below it:
 *
 *   control.c        starts and stops everything
 *   status.c         the status document, the watchdog's check, the status line
 *   feed_opener.c    the opener thread: OPEN requests, idle feeds, old journals, reloads
 *   reload*.c        applies a changed configuration (reload_internal.h)
 *   feed_make.c      makes a producer and lists it; opens the feed of an OPEN request
 *   feed_list.c      the list of producers, and names of feeds
 *   open_config.c    a configuration, its open datasets, and the GPUs that it names
 *
 *   query.c          the thread that answers questions (query.h)
 *
 * resample/resample_service.h declares a service that control.c starts and that does not know
 * control. */
#ifndef TRAJD_CONTROL_CONTROL_INTERNAL_H
#define TRAJD_CONTROL_CONTROL_INTERNAL_H

#include <pthread.h>

#include "daemon/control/query.h"
#include "daemon/producer/producer.h"
#include "daemon/producer/gpu.h"
#include "daemon/control/control.h"
#include "daemon/control/resample/resample_service.h"

#define TRAJD_CONTROL_MAX_REQUESTS 64
#define TRAJD_CONTROL_MAX_GPUS 16
#define TRAJD_CONTROL_MAX_PRODUCERS (TRAJD_CONFIG_MAX_FEEDS + 1024)

/* A configuration and its open datasets. */
struct trajd_open_config {
    struct trajd_config *config;
    uint32_t dataset_count;
    struct trajd_dataset *datasets[TRAJD_CONFIG_MAX_DATASETS];
    const char *feed_names[TRAJD_CONFIG_MAX_FEEDS + 1]; /* NULL-terminated */
};

/* The open feeds. */
struct trajd_feed_list {
    uint32_t count;
    struct trajd_producer *producers[TRAJD_CONTROL_MAX_PRODUCERS];
    /* The server has reported the feed as idle. The opener closes it if it is still idle. */
    bool is_idle[TRAJD_CONTROL_MAX_PRODUCERS];
    /* The thread of queries uses this producer, so it must not be destroyed; NULL: none. */
    struct trajd_producer *acquired;
};

/* The thread that makes and closes feeds after READY. */
struct trajd_opener {
    pthread_t thread;
    bool is_running;
    bool stop;
    uint32_t request_count;
    struct trajd_server_wanted requests[TRAJD_CONTROL_MAX_REQUESTS]; /* own their texts */
    struct trajd_heartbeat heartbeat;                                /* needs no lock */
    int64_t swept_ns; /* last sweep of old journals; 0: never. Used by the opener thread only */
};

/* The thread that answers questions about feeds. */
struct trajd_query_thread {
    pthread_t thread;
    bool is_running;
    struct trajd_heartbeat heartbeat;
};

struct trajd_control {
    const struct trajd_log *log;
    /* borrowed from the caller: values that no reload changes, and strings used to the end */
    const struct trajd_config *first_config;
    uint64_t rings_most_bytes; /* for all rings, where memory.rings is not stated */
    bool has_least_slots; /* the configured feeds fit only with the least slots that are useful */
    struct trajd_pool *pool;
    struct trajd_decoder_pool *decoders; /* of all datasets; NULL: there is no trajd-decoder */
    struct trajd_stats_service *stats_service;
    struct trajd_server *server;
    struct trajd_query_thread queries;
    int64_t exit_idle_ns; /* atomic */
    bool gpu_is_lost;     /* atomic: a GPU has failed, which ends this process's use of all GPUs */

    /* Guards all members below. Only the main thread (before READY) and then the opener thread
     * change `now` and `feeds`, except for `is_idle` and `acquired`. These two threads may read
     * what only they change without the mutex. */
    pthread_mutex_t mutex;
    pthread_cond_t wake; /* wakes the opener: new work, or a producer that was returned */
    uint32_t gpu_count;
    struct trajd_gpu *gpus[TRAJD_CONTROL_MAX_GPUS];
    struct trajd_open_config *now;
    struct trajd_feed_list feeds;
    struct trajd_opener opener;
    struct trajd_resample_service *resample_service;
    struct trajd_reload reload; /* the last one, or the one that is running */
    struct trajd_config_source reload_from;

    /* of the status line; used by the main thread only */
    uint64_t windows_before;
    int64_t windows_at_ns;
};

/* ---- feed_list.c: names; pure functions ---- */

/* A feed of the configuration has the name that the configuration gives it. A feed that a job sent
 * as text is called "spec:HASH". Both may be followed by "@UUID" (batches in the memory of that
 * GPU) or "@u8" (workers finish the images; trajd_feed_place_name), and by "#NUMBER" (another
 * instance of the same feed). No name of the configuration contains '@' or '#'. */

/* Writes the name of a feed that a job sent. Equal texts get equal names, so the workers of a job
 * share one feed. */
void trajd_feed_name_of_text(const char *text, char *name, size_t size);
/* Writes the name of instance `number` of the family. */
void trajd_feed_name_of_instance(const char *family, uint32_t number, char *name, size_t size);

/* Returns the length of the name without the instance's number: all instances share this part. */
size_t trajd_feed_name_family_length(const char *name);
/* Returns the length of the name without the place and the instance's number. */
size_t trajd_feed_name_base_length(const char *name);
bool trajd_feed_name_is_in_family(const char *name, const char *family);

/* Returns true for a feed of the configuration, its instances and its productions on GPUs; false
 * for a feed that a job sent. */
bool trajd_feed_name_is_configured(const char *name);
bool trajd_feed_name_has_place(const char *name);
/* Returns true where the feed may be closed while no worker reads it. Feeds under the
 * configuration's own names stay open. */
bool trajd_feed_name_may_close(const char *name);

/* ---- open_config.c ---- */

/* Returns the directory of index and statistics caches; NULL: no caches are kept. */
const char *trajd_control_cache_directory(const struct trajd_config *config);
/* Indexes and opens a dataset, and logs quarantined files and episodes. Blocks. The caller
 * destroys the dataset. */
enum trajd_status trajd_control_open_dataset(struct trajd_control *control,
                                             const struct trajd_config *config,
                                             const struct trajd_config_dataset *from,
                                             uint64_t cache_bytes, struct trajd_dataset **dataset,
                                             struct trajd_error *error);
/* Returns the open dataset of that name, or NULL. */
struct trajd_dataset *trajd_open_config_find(const struct trajd_open_config *open_config,
                                             const char *name);
/* Returns quarantine.at_most of the dataset of that name; -1: it has none. */
int64_t trajd_open_config_at_most(const struct trajd_open_config *open_config, const char *name);
/* Returns the specification of the configured feed of that name, or NULL. */
struct trajd_window_spec *trajd_open_config_find_spec(const struct trajd_open_config *open_config,
                                                      const char *name);

/* ---- open_config.c: GPUs ---- */

/* Opens the GPUs that the configuration names, if any. */
enum trajd_status trajd_control_open_gpus(struct trajd_control *control, struct trajd_error *error);
void trajd_control_close_gpus(struct trajd_control *control);
/* Returns the GPU with that UUID; NULL: the daemon does not use it, *error says why. */
struct trajd_gpu *trajd_control_find_gpu(struct trajd_control *control, const char *uuid,
                                         struct trajd_error *error);
/* Returns true after a GPU has failed where gpu.fall_back allows going on in host memory. */
bool trajd_control_goes_on_without_gpus(const struct trajd_control *control);
/* Callback of the resample service, on its thread: returns the first GPU, or NULL where there is
 * none or one has failed. */
struct trajd_device *trajd_control_acquire_device(void *context);
/* Callback of a producer or of the resample service, on its thread: its GPU has failed. */
void trajd_control_on_gpu_lost(void *context);
/* Checks a GPU on which a feed could not be made because of *why. Marks the GPU as lost if it does
 * not respond any more. */
void trajd_control_suspect_gpu(struct trajd_control *control, const struct trajd_gpu *gpu,
                               const struct trajd_error *why);

/* ---- feed_list.c: the list; the caller holds the mutex, or is the only thread ---- */

/* Returns the producer of that name, or NULL. */
struct trajd_producer *trajd_feed_list_find(const struct trajd_feed_list *feeds, const char *name);
/* Returns the bytes of all rings in host memory; UINT64_MAX on overflow. */
uint64_t trajd_feed_list_ring_bytes(const struct trajd_feed_list *feeds);
void trajd_feed_list_add(struct trajd_feed_list *feeds, struct trajd_producer *producer);
void trajd_feed_list_mark_idle(struct trajd_feed_list *feeds, const struct trajd_feed *feed);
/* The remove functions take one producer off the list, which the caller destroys without the mutex.
 * They return NULL where no producer fits, and never remove the acquired one. All but
 * remove_last close the feed, so that no OPEN can be answered with it any more. */
/* ... the producer at the end of the list. Does not close the feed. */
struct trajd_producer *trajd_feed_list_remove_last(struct trajd_feed_list *feeds);
/* ... the closable producer that has been without a worker for the longest time. */
struct trajd_producer *trajd_feed_list_remove_unread(struct trajd_feed_list *feeds);
/* ... a producer of the family without sessions, whose ring a user has mapped. */
struct trajd_producer *trajd_feed_list_remove_used(struct trajd_feed_list *feeds,
                                                   const char *family);
/* ... a closable producer that is marked idle and still is idle. */
struct trajd_producer *trajd_feed_list_remove_idle(struct trajd_feed_list *feeds);
/* ... a producer on a GPU. Its sessions get an error. */
struct trajd_producer *trajd_feed_list_remove_on_gpu(struct trajd_feed_list *feeds);
/* Removes the producers `out` and adds the producers `in`. */
void trajd_feed_list_replace(struct trajd_feed_list *feeds, struct trajd_producer *const *out,
                             uint32_t out_count, struct trajd_producer *const *in,
                             uint32_t in_count);

/* The next three take the mutex themselves. */
struct trajd_producer *trajd_control_find_producer(struct trajd_control *control, const char *name);
/* For the thread of queries: a producer that was acquired is not destroyed before it is returned.
 * NULL: there is no feed of that number. */
struct trajd_producer *trajd_control_acquire_producer(struct trajd_control *control,
                                                      uint32_t feed_id);
void trajd_control_return_producer(struct trajd_control *control);

/* ---- feed_make.c: called by the main thread before READY, then by the opener thread ---- */

/* What a feed is made from. */
struct trajd_feed_source {
    const char *name, *instance_of;
    struct trajd_window_spec *spec; /* the configuration's, or parsed from `text` */
    const char *text;               /* sent by a job; NULL: the feed is configured */
    bool is_hidden;                 /* trajd_server_change shows the feed later */
    struct trajd_gpu *gpu;          /* NULL: batches are in host memory */
    bool is_unfinished;             /* workers finish the images */
    bool *is_refused; /* set to true where quarantine.at_most refuses the feed; or NULL */
};

/* Returns the directory of journals; NULL: no journals are kept. */
const char *trajd_control_state_directory(const struct trajd_control *control);
/* Raises memory.rings to what the rings use, where the configuration does not state it. The caller
 * holds the mutex, or the configuration is not in use yet. */
void trajd_control_grow_rings(struct trajd_config *config, uint64_t used_bytes);
/* Makes a producer from the datasets of `open_config`, where its ring fits beside those that use
 * rings_used_bytes. Does not list it. The caller destroys it. Blocks while rows load. */
enum trajd_status trajd_control_make_producer(struct trajd_control *control,
                                              const struct trajd_open_config *open_config,
                                              const struct trajd_feed_source *source,
                                              uint64_t rings_used_bytes,
                                              struct trajd_producer **producer,
                                              struct trajd_error *error);
/* Makes a producer and lists it. Where limits.feeds or memory.rings is reached, closes unread feeds
 * first. A source with a text gives its spec to the producer on success. */
enum trajd_status trajd_control_add_producer(struct trajd_control *control,
                                             const struct trajd_feed_source *source,
                                             struct trajd_producer **producer,
                                             struct trajd_error *error);
/* Closes and destroys the feed that has been unread for the longest time (it was only kept for
 * feed_idle). Returns false where there is none, as always with --check, which serves nothing. */
bool trajd_control_close_unread(struct trajd_control *control);
/* Logs feeds that normalise the same output by different statistics, for instance training and
 * validation: no other message shows this mistake. `report` may be NULL. */
void trajd_control_warn_of_norms(struct trajd_control *control, FILE *report);

/* Opens the feed of an OPEN request, on the opener's thread: newly made or already open. It is a
 * configured one (name), also one that quarantine.at_most refused at the start, so that the answer has
 * the reason, or one that a job sent as text. `place` NULL: in host memory. The UUID of a GPU:
 * TRAJD_ERR_UNSUPPORTED, TRAJD_ERR_MEMORY, TRAJD_ERR_DEVICE: the batches are available in host memory
 * only, *error says why. TRAJD_FEED_UNFINISHED: workers finish the images; where there is nothing to
 * finish, it is the production for all workers. */
enum trajd_status trajd_control_open_feed(struct trajd_control *control, const char *name,
                                          const char *text, const char *place,
                                          struct trajd_producer **producer,
                                          struct trajd_error *error);
/* Makes another instance of the feed `family`, for a job that reads another position than the jobs
 * on the existing instances, or a user who did not map their rings. Where an instance that
 * another user has mapped has no sessions, makes that one again with a ring of its own. */
enum trajd_status trajd_control_open_instance(struct trajd_control *control, const char *family,
                                              struct trajd_producer **producer,
                                              struct trajd_error *error);
/* ---- reload.c: on the opener's thread ---- */

/* Reads control->reload_from and applies all of it or nothing. `message` says what has changed, or
 * why nothing has. */
enum trajd_status trajd_reload_run(struct trajd_control *control, char *message, size_t size);

/* ---- feed_opener.c ---- */

enum trajd_status trajd_control_start_opener(struct trajd_control *control,
                                             struct trajd_error *error);
void trajd_control_stop_opener(struct trajd_control *control);
/* Callbacks of the server, on its thread (daemon/server/server.h). `context` is the control. */
void trajd_control_on_open_feed(void *context, const struct trajd_server_wanted *wanted);
void trajd_control_on_feed_idle(void *context, struct trajd_feed *feed);

/* ---- query.c ---- */

enum trajd_status trajd_control_start_queries(struct trajd_control *control,
                                              struct trajd_error *error);
/* Waiting questions stay unanswered. */
void trajd_control_stop_queries(struct trajd_control *control);

/* ---- status.c ---- */

/* Callback of the server, on its thread: writes the members about reloads, GPUs, datasets and
 * producers to the status document, at most `room` bytes. */
void trajd_control_describe(void *context, struct trajd_json *json, size_t room);

#endif
