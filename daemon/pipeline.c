#include "daemon/pipeline.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/asker.h"
#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "daemon/base/paths.h"
#include "daemon/feeder.h"
#include "daemon/memory.h"

#define MAX_REQUESTS 64
#define MAX_FEEDERS (TRAJD_CONFIG_MAX_FEEDS + 1024)
#define SPEC_PREFIX "spec:"
#define INSTANCE_MARK '#' /* of the names of instances; no name of the configuration has one */

/* What the opener thread is asked: a feed for an OPEN. */
struct opener_request {
    uint64_t request;
    char *name, *spec;
    bool is_instance; /* another production of the feed `name` */
};

struct trajd_pipeline {
    const struct trajd_config *config;
    const struct trajd_log *log;
    uint32_t dataset_count;
    struct trajd_dataset *datasets[TRAJD_CONFIG_MAX_DATASETS];
    struct trajd_pool *pool;
    struct trajd_statistician *statistician;
    struct trajd_server *server;
    const char *feed_names[TRAJD_CONFIG_MAX_FEEDS + 1];

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t asked;
    bool stop;
    uint32_t feeder_count;
    struct trajd_feeder *feeders[MAX_FEEDERS];
    bool is_idle[MAX_FEEDERS]; /* the server said so: the opener closes it, if it still is */
    uint32_t request_count;
    struct opener_request requests[MAX_REQUESTS];
    struct trajd_feeder *lent; /* the asker looks at it: it is not destroyed */
    pthread_t opener;
    bool opener_running;
    struct trajd_asker *asker;

    uint64_t windows_before; /* of the status line; the main thread's own */
    int64_t windows_at_ns;
};

static struct trajd_dataset *find_dataset(struct trajd_pipeline *pipeline, const char *name)
{
    for (uint32_t d = 0; d < pipeline->dataset_count; d++)
        if (strcmp(pipeline->datasets[d]->name, name) == 0)
            return pipeline->datasets[d];
    return NULL;
}

static const char *state_directory(const struct trajd_config *config)
{
    return config->state ? config->state : getenv("STATE_DIRECTORY");
}

static uint64_t rings_left(struct trajd_pipeline *pipeline)
{
    uint64_t left = pipeline->config->rings_bytes;

    pthread_mutex_lock(&pipeline->mutex);
    for (uint32_t f = 0; f < pipeline->feeder_count; f++) {
        const uint64_t used = trajd_feeder_ring_bytes(pipeline->feeders[f]);
        left = left > used ? left - used : 0;
    }
    pthread_mutex_unlock(&pipeline->mutex);
    return left;
}

/* Where a feed comes from. */
struct feed_source {
    const char *name, *instance_of;
    struct trajd_window_spec *spec; /* the configuration's, or read from */
    const char *text;               /* what a job sent */
};

static const char *cache_directory(const struct trajd_config *config)
{
    return config->cache ? config->cache : getenv("CACHE_DIRECTORY");
}

/* The feed of the configuration that a feed's `statistics_from:` names; NULL: none. */
static const struct trajd_window_spec *find_statistics_spec(const struct trajd_pipeline *pipeline, const struct trajd_window_spec *spec)
{
    for (uint32_t f = 0; spec->statistics_from && f < pipeline->config->feed_count; f++)
        if (strcmp(pipeline->config->feeds[f]->feed_name, spec->statistics_from) == 0)
            return pipeline->config->feeds[f];
    return NULL;
}

/* Makes a feeder and lists it. Only the main thread (before READY) and the opener come here, one after the other. */
static enum trajd_status add_feeder(struct trajd_pipeline *pipeline, const struct feed_source *source,
                                    struct trajd_feeder **feeder, struct trajd_error *error)
{
    const char *name = source->name;
    struct trajd_window_spec *spec = source->spec;
    const struct trajd_window_spec *statistics_spec = find_statistics_spec(pipeline, spec);
    struct trajd_dataset *datasets[TRAJD_CONFIG_MAX_DATASETS];
    const struct trajd_feeder_options options = {.name = name,
                                                 .instance_of = source->instance_of,
                                                 .spec = spec,
                                                 .owns_spec = source->text != NULL,
                                                 .text = source->text,
                                                 .datasets = datasets,
                                                 .pool = pipeline->pool,
                                                 .server = pipeline->server,
                                                 .journal_directory = state_directory(pipeline->config),
                                                 .max_credit = pipeline->config->max_credit,
                                                 .rings_left_bytes = rings_left(pipeline),
                                                 .statistician = pipeline->statistician,
                                                 .statistics_spec = statistics_spec,
                                                 .statistics_dataset =
                                                     statistics_spec ? find_dataset(pipeline, statistics_spec->parts[0].dataset) : NULL,
                                                 .log = pipeline->log};
    enum trajd_status status;

    for (uint32_t p = 0; p < spec->part_count; p++)
        if (!(datasets[p] = find_dataset(pipeline, spec->parts[p].dataset)))
            return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "feed %s: no dataset %s in this daemon's configuration", name,
                                   spec->parts[p].dataset);
    if (pipeline->feeder_count >= pipeline->config->max_feeds)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed %s: %u feeds are open, and limits.feeds is %u", name,
                               pipeline->feeder_count, pipeline->config->max_feeds);
    status = trajd_feeder_create(&options, feeder, error);
    if (status)
        return status;
    pthread_mutex_lock(&pipeline->mutex);
    pipeline->is_idle[pipeline->feeder_count] = false;
    pipeline->feeders[pipeline->feeder_count++] = *feeder;
    pthread_mutex_unlock(&pipeline->mutex);
    return TRAJD_OK;
}

/* ---- feeds that jobs send ---- */

/* The same text is the same feed: workers of a job share it. */
static void name_spec(const char *text, char *name, size_t size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    snprintf(name, size, SPEC_PREFIX "%016llx", (unsigned long long)hash);
}

/* With the mutex held. */
static struct trajd_feeder *find_listed(struct trajd_pipeline *pipeline, const char *name)
{
    for (uint32_t f = 0; f < pipeline->feeder_count; f++)
        if (strcmp(trajd_feeder_name(pipeline->feeders[f]), name) == 0)
            return pipeline->feeders[f];
    return NULL;
}

static struct trajd_feeder *find_feeder(struct trajd_pipeline *pipeline, const char *name)
{
    struct trajd_feeder *found;

    pthread_mutex_lock(&pipeline->mutex);
    found = find_listed(pipeline, name);
    pthread_mutex_unlock(&pipeline->mutex);
    return found;
}

static enum trajd_status add_from_text(struct trajd_pipeline *pipeline, struct feed_source *source,
                                       struct trajd_feeder **feeder, struct trajd_error *error)
{
    struct trajd_yaml *yaml = NULL;
    enum trajd_status status = trajd_yaml_parse("spec", source->text, strlen(source->text), &yaml, error);

    if (!status)
        status = trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), source->name, &source->spec, error);
    trajd_yaml_destroy(&yaml);
    if (!status)
        status = add_feeder(pipeline, source, feeder, error);
    if (status && source->spec)
        trajd_window_spec_destroy(&source->spec);
    return status;
}

static enum trajd_status open_spec(struct trajd_pipeline *pipeline, const char *text, struct trajd_feeder **feeder,
                                   struct trajd_error *error)
{
    char name[64];
    struct feed_source source = {.name = name, .text = text};

    name_spec(text, name, sizeof name);
    *feeder = find_feeder(pipeline, name);
    return *feeder ? TRAJD_OK : add_from_text(pipeline, &source, feeder, error);
}

/* ---- instances: jobs that are elsewhere than those which read a feed ---- */

static bool is_instance(const struct trajd_feeder *feeder, const char *family)
{
    const char *name = trajd_feeder_name(feeder);
    const size_t length = strlen(family);

    return strncmp(name, family, length) == 0 && (!name[length] || name[length] == INSTANCE_MARK);
}

/* Any feeder of the family, which shows how the others are made; *name: one that is free. */
static const struct trajd_feeder *find_family(struct trajd_pipeline *pipeline, const char *family, char *name, size_t size)
{
    const struct trajd_feeder *found = NULL;
    uint32_t number = 1;

    pthread_mutex_lock(&pipeline->mutex);
    for (uint32_t f = 0; f < pipeline->feeder_count; f++)
        if (is_instance(pipeline->feeders[f], family))
            found = pipeline->feeders[f];
    do
        snprintf(name, size, "%s%c%u", family, INSTANCE_MARK, ++number);
    while (find_listed(pipeline, name));
    pthread_mutex_unlock(&pipeline->mutex);
    return found;
}

/* Looks at what would be refused first: who is told `busy` asks again and again. */
static enum trajd_status open_instance(struct trajd_pipeline *pipeline, const char *family, struct trajd_feeder **feeder,
                                       struct trajd_error *error)
{
    char name[160];
    const struct trajd_feeder *model = find_family(pipeline, family, name, sizeof name);
    const uint64_t left = rings_left(pipeline), wanted = model ? trajd_feeder_ring_bytes(model) : 0;
    struct feed_source source = {.name = name, .instance_of = family};

    if (!model)
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0, "feed %s: it has just been closed: try again", family);
    if (wanted > left)
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                               "feed %s: other jobs read it and are elsewhere in it; a ring of its own for this one is %llu bytes, "
                               "and memory.rings leaves %llu: raise memory.rings, or wait for the others",
                               family, (unsigned long long)wanted, (unsigned long long)left);
    if (pipeline->feeder_count >= pipeline->config->max_feeds)
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                               "feed %s: other jobs read it and are elsewhere in it; another production for this one would be "
                               "feed %u, and limits.feeds is %u: raise limits.feeds, or wait for the others",
                               family, pipeline->feeder_count + 1, pipeline->config->max_feeds);
    source.text = trajd_feeder_text(model);
    if (source.text)
        return add_from_text(pipeline, &source, feeder, error);
    source.spec = trajd_feeder_spec(model);
    return add_feeder(pipeline, &source, feeder, error);
}

static enum trajd_status unknown_feed(const struct trajd_pipeline *pipeline, const char *name, struct trajd_error *error)
{
    char names[256] = "";
    size_t used = 0;

    for (uint32_t f = 0; pipeline->feed_names[f] && used < sizeof names; f++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", f ? ", " : "", pipeline->feed_names[f]);
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "no feed %s here (there are: %s)", name,
                           used ? names : "none; send a specification");
}

/* Those of the configuration stay. */
static bool may_close(const struct trajd_feeder *feeder)
{
    const char *name = trajd_feeder_name(feeder);

    return strncmp(name, SPEC_PREFIX, sizeof SPEC_PREFIX - 1) == 0 || strchr(name, INSTANCE_MARK);
}

/* Takes one idle feed that a job sent off the list, closed; NULL if there is none. With the mutex held: no OPEN can be answered with it
 * meanwhile. */
static struct trajd_feeder *take_idle(struct trajd_pipeline *pipeline)
{
    for (uint32_t f = 0; f < pipeline->feeder_count; f++) {
        struct trajd_feeder *feeder = pipeline->feeders[f];
        if (!pipeline->is_idle[f] || feeder == pipeline->lent)
            continue;
        pipeline->is_idle[f] = false;
        if (!may_close(feeder) || !trajd_feed_close_if_idle(trajd_feeder_feed(feeder)))
            continue;
        pipeline->feeders[f] = pipeline->feeders[--pipeline->feeder_count];
        pipeline->is_idle[f] = pipeline->is_idle[pipeline->feeder_count];
        return feeder;
    }
    return NULL;
}

static void serve_request(struct trajd_pipeline *pipeline, struct opener_request *request)
{
    struct trajd_feeder *feeder = NULL;
    struct trajd_error error;
    enum trajd_status status;

    if (!request->spec && request->name && !request->is_instance)
        feeder = find_feeder(pipeline, request->name); /* asked for before the feeds of the config were up */
    status = feeder                 ? TRAJD_OK
             : request->is_instance ? open_instance(pipeline, request->name ? request->name : "", &feeder, &error)
             : request->spec        ? open_spec(pipeline, request->spec, &feeder, &error)
                                    : unknown_feed(pipeline, request->name ? request->name : "", &error);
    if (request->is_instance && feeder)
        LOG(pipeline->log, INFO, "feed %s: opened for a job of its own", trajd_feeder_name(feeder));
    if (status && status != TRAJD_ERR_BUSY) /* who is told so asks again soon */
        LOG(pipeline->log, WARNING, "OPEN: %s", error.message);
    trajd_server_answer(pipeline->server, request->request, feeder ? trajd_feeder_feed(feeder) : NULL,
                        status ? &error : NULL);
}

static void *run_opener(void *context)
{
    struct trajd_pipeline *pipeline = context;

    pthread_mutex_lock(&pipeline->mutex);
    for (;;) {
        struct opener_request request;
        struct trajd_feeder *idle = NULL;
        while (!pipeline->stop && !pipeline->request_count && !(idle = take_idle(pipeline)))
            pthread_cond_wait(&pipeline->asked, &pipeline->mutex);
        if (pipeline->stop && !idle)
            break;
        if (idle) {
            pthread_mutex_unlock(&pipeline->mutex);
            LOG(pipeline->log, INFO, "feed %s: closed, nobody has read it for a while", trajd_feeder_name(idle));
            trajd_feeder_destroy(&idle);
            pthread_mutex_lock(&pipeline->mutex);
            continue;
        }
        request = pipeline->requests[0];
        memmove(pipeline->requests, pipeline->requests + 1, --pipeline->request_count * sizeof request);
        pthread_mutex_unlock(&pipeline->mutex);
        serve_request(pipeline, &request);
        free(request.name);
        free(request.spec);
        pthread_mutex_lock(&pipeline->mutex);
    }
    pthread_mutex_unlock(&pipeline->mutex);
    return NULL;
}

static enum trajd_status ask_opener(struct trajd_pipeline *pipeline, const struct opener_request *request,
                                    struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    pthread_mutex_lock(&pipeline->mutex);
    if (pipeline->stop) {
        status = trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "the daemon is ending");
    } else if (pipeline->request_count == MAX_REQUESTS) {
        status = trajd_error_set(error, TRAJD_ERR_BUSY, 0, "%d feeds wait to be opened: try again", MAX_REQUESTS);
    } else {
        pipeline->requests[pipeline->request_count++] = *request;
        pthread_cond_signal(&pipeline->asked);
    }
    pthread_mutex_unlock(&pipeline->mutex);
    return status;
}

/* ---- what the server calls, on its thread ---- */

/* A feed that is open already does not wait behind one that is being loaded. */
static bool answer_at_once(struct trajd_pipeline *pipeline, uint64_t request, const char *name)
{
    struct trajd_feeder *feeder;

    pthread_mutex_lock(&pipeline->mutex);
    feeder = find_listed(pipeline, name);
    if (feeder)
        trajd_server_answer(pipeline->server, request, trajd_feeder_feed(feeder), NULL);
    pthread_mutex_unlock(&pipeline->mutex);
    return feeder != NULL;
}

static void on_open_feed(void *context, uint64_t request_id, const char *name, const char *spec, size_t spec_length)
{
    struct trajd_pipeline *pipeline = context;
    struct opener_request request = {.request = request_id,
                                     .name = name ? strdup(name) : NULL,
                                     .spec = spec ? strndup(spec, spec_length) : NULL};
    struct trajd_error error;
    char spec_name[64];

    if (request.spec)
        name_spec(request.spec, spec_name, sizeof spec_name);
    if (!request.spec || !answer_at_once(pipeline, request_id, spec_name)) {
        if (ask_opener(pipeline, &request, &error) == TRAJD_OK)
            return;
        trajd_server_answer(pipeline->server, request_id, NULL, &error);
    }
    free(request.name);
    free(request.spec);
}

static void on_open_instance(void *context, uint64_t request_id, const char *name)
{
    struct trajd_pipeline *pipeline = context;
    struct opener_request request = {.request = request_id, .name = strdup(name), .is_instance = true};
    struct trajd_error error;

    if (ask_opener(pipeline, &request, &error) == TRAJD_OK)
        return;
    trajd_server_answer(pipeline->server, request_id, NULL, &error);
    free(request.name);
}

static void on_feed_idle(void *context, struct trajd_feed *feed)
{
    struct trajd_pipeline *pipeline = context;

    pthread_mutex_lock(&pipeline->mutex);
    for (uint32_t f = 0; f < pipeline->feeder_count; f++)
        if (trajd_feeder_feed(pipeline->feeders[f]) == feed)
            pipeline->is_idle[f] = true;
    pthread_cond_signal(&pipeline->asked);
    pthread_mutex_unlock(&pipeline->mutex);
}

static void on_tell(void *context, const char *line)
{
    struct trajd_pipeline *pipeline = context;

    LOG(pipeline->log, WARNING, "%s", line);
}

static size_t on_describe(void *context, char *json, size_t size)
{
    struct trajd_pipeline *pipeline = context;
    FILE *out = fmemopen(json, size, "w");
    long length;

    if (!out)
        return 0;
    pthread_mutex_lock(&pipeline->mutex);
    fprintf(out, "\"datasets\":[");
    for (uint32_t d = 0; d < pipeline->dataset_count; d++) {
        const struct trajd_dataset *dataset = pipeline->datasets[d];
        struct trajd_store_stats store;
        trajd_store_get_stats(dataset->store, &store);
        fprintf(out, "%s{\"name\":", d ? "," : "");
        trajd_json_text(out, dataset->name);
        fprintf(out, ",\"layout\":");
        trajd_json_text(out, dataset->index->layout->name);
        fprintf(out,
                ",\"files\":%u,\"episodes\":%u,\"kept\":%u,\"fingerprint\":\"%016llx\","
                "\"store\":{\"resident_bytes\":%llu,\"budget_bytes\":%llu,\"total_bytes\":%llu,\"bytes_read\":%llu,"
                "\"pieces_loaded\":%llu,\"pieces_evicted\":%llu,\"read_errors\":%llu,\"missing_chunks\":%llu}}",
                dataset->index->file_count,
                dataset->index->episode_count, dataset->index->kept_count,
                (unsigned long long)dataset->index->fingerprint, (unsigned long long)store.resident_bytes,
                (unsigned long long)store.budget_bytes, (unsigned long long)store.total_bytes,
                (unsigned long long)store.bytes_read, (unsigned long long)store.pieces_loaded,
                (unsigned long long)store.pieces_evicted, (unsigned long long)store.read_errors,
                (unsigned long long)store.missing_chunks);
    }
    fprintf(out, "],\"producers\":[");
    for (uint32_t f = 0; f < pipeline->feeder_count; f++) {
        if (f)
            fputc(',', out);
        trajd_feeder_describe(pipeline->feeders[f], out, true);
    }
    pthread_mutex_unlock(&pipeline->mutex);
    fputc(']', out);
    fflush(out);
    length = ftell(out);
    if (ferror(out) || length < 0 || (size_t)length >= size)
        length = 0; /* half a document is worse than none */
    fclose(out);
    return (size_t)length;
}

/* ---- what the asker calls, on its thread ---- */

static struct trajd_feeder *lend_feeder(void *context, uint32_t feed_id)
{
    struct trajd_pipeline *pipeline = context;

    pthread_mutex_lock(&pipeline->mutex);
    for (uint32_t f = 0; f < pipeline->feeder_count; f++)
        if (trajd_feed_id(trajd_feeder_feed(pipeline->feeders[f])) == feed_id)
            pipeline->lent = pipeline->feeders[f];
    pthread_mutex_unlock(&pipeline->mutex);
    return pipeline->lent; /* nobody else sets it */
}

static void take_back(void *context, struct trajd_feeder *feeder)
{
    struct trajd_pipeline *pipeline = context;

    (void)feeder;
    pthread_mutex_lock(&pipeline->mutex);
    pipeline->lent = NULL;
    pthread_cond_signal(&pipeline->asked); /* the opener may close it now */
    pthread_mutex_unlock(&pipeline->mutex);
}

/* ---- start ---- */

static enum trajd_status check_memory(const struct trajd_config *config, struct trajd_error *error)
{
    struct trajd_memory memory;
    const uint64_t wanted = config->store_bytes + config->rings_bytes;

    trajd_memory_read(&memory); /* each figure is at most 2^50: the sum fits */
    if (wanted + config->reserve_bytes <= trajd_memory_available(&memory))
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                           "memory.store and memory.rings are %llu MiB together, reserve %llu MiB, but %s leaves %llu MiB",
                           (unsigned long long)(wanted >> 20), (unsigned long long)(config->reserve_bytes >> 20),
                           memory.cgroup_bytes < memory.machine_bytes ? "the control group's limit" : "the machine",
                           (unsigned long long)(trajd_memory_available(&memory) >> 20));
}

static uint32_t processor_count(void)
{
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (uint32_t)count : 1;
}

static void log_quarantine(const struct trajd_pipeline *pipeline, const struct trajd_dataset *dataset)
{
    const struct trajd_index *index = dataset->index;

    LOG(pipeline->log, INFO, "dataset %s: %u files (%u from the cache), %u episodes kept of %u", dataset->name,
        index->file_count, index->cached_file_count, index->kept_count, index->episode_count);
    for (uint32_t f = 0; f < index->file_count; f++)
        if (index->files[f].refusal)
            LOG(pipeline->log, WARNING, "dataset %s: refused: %s", dataset->name, index->files[f].refusal);
    for (uint32_t e = 0; e < index->episode_count; e++)
        if (index->episodes[e].quarantine)
            LOG(pipeline->log, WARNING, "dataset %s: quarantined: %s", dataset->name, index->episodes[e].quarantine);
}

static enum trajd_status open_datasets(struct trajd_pipeline *pipeline, struct trajd_error *error)
{
    const struct trajd_config *config = pipeline->config;
    char indexer[PATH_MAX], layouts[PATH_MAX];

    if (!trajd_paths_indexer(indexer, sizeof indexer) || !trajd_paths_layouts(layouts, sizeof layouts))
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "neither beside this program nor below its prefix: trajd-indexer, or the layouts");
    for (uint32_t d = 0; d < config->dataset_count; d++) {
        struct trajd_dataset_options options = {
            .name = config->datasets[d].name,
            .store_budget_bytes = config->store_bytes / config->dataset_count,
            .reader_count = config->reader_threads,
            .index = {.path = config->datasets[d].path,
                      .layout = config->datasets[d].layout,
                      .layout_directory = layouts,
                      .cache_directory = cache_directory(config),
                      .indexer_path = indexer,
                      .child_count = config->index_children ? config->index_children : processor_count(),
                      .file_timeout_ms = (uint32_t)(config->index_file_timeout_ns / 1000000)}};
        enum trajd_status status = trajd_dataset_open(&options, &pipeline->datasets[d], error);
        if (status)
            return status;
        pthread_mutex_lock(&pipeline->mutex); /* the server's thread may be describing them */
        pipeline->dataset_count++;
        pthread_mutex_unlock(&pipeline->mutex);
        log_quarantine(pipeline, pipeline->datasets[d]);
    }
    return TRAJD_OK;
}

/* The sockets' folder is made where it is missing, for us alone; its parent must exist. */
static enum trajd_status make_directory(const char *path, struct trajd_error *error)
{
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "runtime: %s: %s", path, strerror(errno));
}

static enum trajd_status start_server(struct trajd_pipeline *pipeline, struct trajd_error *error)
{
    const struct trajd_config *config = pipeline->config;
    const char *runtime = config->runtime ? config->runtime : getenv("RUNTIME_DIRECTORY");
    struct trajd_server_options options = {.runtime_directory = runtime ? runtime : "/run/trajd/main",
                                           .max_sessions = config->max_sessions,
                                           .version = TRAJD_VERSION,
                                           .open_feed = on_open_feed,
                                           .open_instance = on_open_instance,
                                           .feed_idle = on_feed_idle,
                                           .describe = on_describe,
                                           .context = pipeline,
                                           .feed_idle_ms = (uint32_t)(config->feed_idle_ns / 1000000),
                                           .answers_asks = true,
                                           .feed_names = pipeline->feed_names,
                                           .group_access = config->group_access,
                                           .remote = {.address = config->listen_tcp,
                                                      .keys = config->listen_keys,
                                                      .insecure_loopback = config->insecure_loopback,
                                                      .silence_ms = (uint32_t)(config->worker_timeout_ns / 1000000),
                                                      .tell = on_tell}};
    enum trajd_status status = make_directory(options.runtime_directory, error);

    if (status)
        return status;
    if (getrandom(&options.instance_id, sizeof options.instance_id, 0) != sizeof options.instance_id)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, 0, "no random number for the instance");
    for (uint32_t f = 0; f < config->feed_count; f++)
        pipeline->feed_names[f] = config->feeds[f]->feed_name;
    status = trajd_server_create(&options, &pipeline->server, error);
    if (!status)
        LOG(pipeline->log, INFO, "serving at %s", options.runtime_directory);
    if (!status && config->listen_tcp)
        LOG(pipeline->log, INFO, "serving remote workers at %s%s", trajd_server_remote_endpoint(pipeline->server),
            config->insecure_loopback ? ", without CURVE" : "");
    return status;
}

static enum trajd_status start_opener(struct trajd_pipeline *pipeline, struct trajd_error *error)
{
    sigset_t all, before;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&pipeline->opener, NULL, run_opener, pipeline);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "opener thread: %s", strerror(failed));
    pthread_setname_np(pipeline->opener, "trajd-open");
    pipeline->opener_running = true;
    return TRAJD_OK;
}

static enum trajd_status start_asker(struct trajd_pipeline *pipeline, struct trajd_error *error)
{
    const struct trajd_asker_options options = {
        .server = pipeline->server, .borrow = lend_feeder, .give_back = take_back, .context = pipeline};

    return trajd_asker_create(&options, &pipeline->asker, error);
}

static enum trajd_status start_statistician(struct trajd_pipeline *pipeline, struct trajd_error *error)
{
    const struct trajd_statistician_options options = {
        .pool = pipeline->pool, .cache_directory = cache_directory(pipeline->config), .log = pipeline->log};

    return trajd_statistician_create(&options, &pipeline->statistician, error);
}

/* Training and validation that are not normalised alike are a mistake that nothing else shows. */
static void warn_of_norms(struct trajd_pipeline *pipeline, FILE *report)
{
    for (uint32_t a = 0; a < pipeline->feeder_count; a++)
        for (uint32_t b = a + 1; b < pipeline->feeder_count; b++) {
            const char *first = trajd_feeder_name(pipeline->feeders[a]), *second = trajd_feeder_name(pipeline->feeders[b]);
            const char *output = trajd_feeder_norm_differs(pipeline->feeders[a], pipeline->feeders[b]);
            if (!output)
                continue;
            LOG(pipeline->log, WARNING, "feeds %s and %s normalise %s by statistics of their own windows, which differ: say statistics_from: %s in %s "
                "for both to be alike", first, second, output, first, second);
            if (report)
                fprintf(report, "warning: feeds %s and %s normalise %s by statistics of their own windows, which differ: say statistics_from: %s in "
                        "%s for both to be alike\n", first, second, output, first, second);
        }
}

static enum trajd_status start_feeds(struct trajd_pipeline *pipeline, FILE *report, struct trajd_error *error)
{
    for (uint32_t f = 0; f < pipeline->config->feed_count; f++) {
        struct trajd_window_spec *spec = pipeline->config->feeds[f];
        const struct feed_source source = {.name = spec->feed_name, .spec = spec};
        struct trajd_feeder *feeder;
        enum trajd_status status = add_feeder(pipeline, &source, &feeder, error);
        if (status)
            return status;
        if (report)
            trajd_feeder_describe(feeder, report, false);
    }
    warn_of_norms(pipeline, report);
    return TRAJD_OK;
}

enum trajd_status trajd_pipeline_create(const struct trajd_config *config, const struct trajd_log *log, bool serve,
                                        FILE *report, struct trajd_pipeline **out, struct trajd_error *error)
{
    struct trajd_pipeline *pipeline = calloc(1, sizeof *pipeline);
    const uint32_t threads = config->resample_threads ? config->resample_threads : processor_count();
    enum trajd_status status;

    *out = NULL;
    if (!pipeline)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the pipeline");
    pipeline->config = config;
    pipeline->log = log;
    pthread_mutex_init(&pipeline->mutex, NULL);
    pthread_cond_init(&pipeline->asked, NULL);
    status = check_memory(config, error);
    if (!status && serve)
        status = start_server(pipeline, error); /* first: another daemon's directory is found before any work is done */
    if (!status)
        status = open_datasets(pipeline, error);
    if (!status)
        status = trajd_pool_create(threads, "trajd-resample", &pipeline->pool, error);
    if (!status)
        status = start_statistician(pipeline, error);
    if (!status)
        status = start_feeds(pipeline, report, error);
    if (!status && serve)
        status = start_opener(pipeline, error);
    if (!status && serve)
        status = start_asker(pipeline, error);
    if (status)
        trajd_pipeline_destroy(&pipeline);
    *out = pipeline;
    return status;
}

void trajd_pipeline_drain(struct trajd_pipeline *pipeline, uint32_t timeout_ms)
{
    trajd_server_drain(pipeline->server, timeout_ms);
}

static void stop_opener(struct trajd_pipeline *pipeline)
{
    pthread_mutex_lock(&pipeline->mutex);
    pipeline->stop = true;
    pthread_cond_signal(&pipeline->asked);
    pthread_mutex_unlock(&pipeline->mutex);
    if (pipeline->opener_running)
        pthread_join(pipeline->opener, NULL);
    for (uint32_t r = 0; r < pipeline->request_count; r++) {
        free(pipeline->requests[r].name);
        free(pipeline->requests[r].spec);
    }
}

void trajd_pipeline_destroy(struct trajd_pipeline **out)
{
    struct trajd_pipeline *pipeline = *out;

    *out = NULL;
    if (!pipeline)
        return;
    trajd_asker_destroy(&pipeline->asker);
    if (pipeline->statistician)
        trajd_statistician_stop(pipeline->statistician); /* an OPEN may be waiting for it */
    stop_opener(pipeline);
    for (uint32_t f = 0; f < pipeline->feeder_count; f++)
        trajd_feeder_stop(pipeline->feeders[f]);
    while (pipeline->feeder_count) {
        struct trajd_feeder *feeder;
        pthread_mutex_lock(&pipeline->mutex); /* the server's thread may be describing them */
        feeder = pipeline->feeders[--pipeline->feeder_count];
        pthread_mutex_unlock(&pipeline->mutex);
        trajd_feeder_destroy(&feeder);
    }
    trajd_statistician_destroy(&pipeline->statistician);
    trajd_server_destroy(&pipeline->server);
    for (uint32_t d = 0; d < pipeline->dataset_count; d++)
        trajd_dataset_destroy(&pipeline->datasets[d]);
    trajd_pool_destroy(&pipeline->pool);
    pthread_cond_destroy(&pipeline->asked);
    pthread_mutex_destroy(&pipeline->mutex);
    free(pipeline);
}

/* ---- the main thread's view ---- */

bool trajd_pipeline_is_alive(struct trajd_pipeline *pipeline, int64_t limit_ns, char *stuck, size_t size)
{
    const int64_t now_ns = trajd_now_ns();
    struct trajd_server_stats stats;
    bool alive = true;

    trajd_server_get_stats(pipeline->server, &stats);
    if (now_ns - (int64_t)stats.last_turn_ns > limit_ns) {
        snprintf(stuck, size, "the server's thread");
        return false;
    }
    pthread_mutex_lock(&pipeline->mutex);
    for (uint32_t f = 0; f < pipeline->feeder_count && alive; f++) {
        alive = trajd_feeder_waits_for_rows(pipeline->feeders[f]) ||
                now_ns - trajd_feeder_last_turn_ns(pipeline->feeders[f]) <= limit_ns;
        if (!alive)
            snprintf(stuck, size, "feed %s", trajd_feeder_name(pipeline->feeders[f]));
    }
    pthread_mutex_unlock(&pipeline->mutex);
    return alive;
}

int64_t trajd_pipeline_empty_since_ns(const struct trajd_pipeline *pipeline)
{
    struct trajd_server_stats stats;

    trajd_server_get_stats(pipeline->server, &stats);
    return (int64_t)stats.empty_since_ns;
}

void trajd_pipeline_status_line(struct trajd_pipeline *pipeline, char *line, size_t size)
{
    const int64_t now_ns = trajd_now_ns();
    struct trajd_server_stats stats;
    double rate = 0;

    trajd_server_get_stats(pipeline->server, &stats);
    if (pipeline->windows_at_ns && now_ns > pipeline->windows_at_ns)
        rate = (double)(stats.windows_done - pipeline->windows_before) * 1e9 / (double)(now_ns - pipeline->windows_at_ns);
    pipeline->windows_before = stats.windows_done;
    pipeline->windows_at_ns = now_ns;
    pthread_mutex_lock(&pipeline->mutex);
    snprintf(line, size, "%u feeds, %u workers, %.0f windows/s", pipeline->feeder_count, stats.sessions, rate);
    pthread_mutex_unlock(&pipeline->mutex);
}
