#include "daemon/control/control_internal.h"

#include <stdlib.h>
#include <string.h>

#define SPEC_PREFIX "spec:"
#define GPU_MARK '@'      /* of productions on a GPU (trajd_feed_gpu_name) */
#define INSTANCE_MARK '#' /* of the names of instances; no name of the configuration has one */

struct trajd_dataset *trajd_open_config_find(const struct trajd_open_config *open_config,
                                             const char *name)
{
    for (uint32_t d = 0; d < open_config->dataset_count; d++)
        if (strcmp(open_config->datasets[d]->name, name) == 0)
            return open_config->datasets[d];
    return NULL;
}

const char *trajd_control_state_directory(const struct trajd_control *control)
{
    const struct trajd_config *config = control->first_config;

    return config->state ? config->state : getenv("STATE_DIRECTORY");
}

static uint64_t rings_left(struct trajd_control *control)
{
    uint64_t left = control->now->config->rings_bytes;

    pthread_mutex_lock(&control->mutex);
    for (uint32_t f = 0; f < control->producer_count; f++) {
        const uint64_t used = trajd_producer_ring_bytes(control->producers[f]);
        left = left > used ? left - used : 0;
    }
    pthread_mutex_unlock(&control->mutex);
    return left;
}

/* The feed of the configuration that a feed's `statistics_from:` names; NULL: none. */
static const struct trajd_window_spec *
find_statistics_spec(const struct trajd_open_config *open_config,
                     const struct trajd_window_spec *spec)
{
    for (uint32_t f = 0; spec->statistics_from && f < open_config->config->feed_count; f++)
        if (strcmp(open_config->config->feeds[f]->feed_name, spec->statistics_from) == 0)
            return open_config->config->feeds[f];
    return NULL;
}

enum trajd_status trajd_control_make_producer(struct trajd_control *control,
                                              const struct trajd_open_config *open_config,
                                              const struct trajd_feed_source *source,
                                              uint64_t rings_left_bytes,
                                              struct trajd_producer **producer,
                                              struct trajd_error *error)
{
    struct trajd_window_spec *spec = source->spec;
    const struct trajd_window_spec *statistics_spec = find_statistics_spec(open_config, spec);
    struct trajd_dataset *datasets[TRAJD_CONFIG_MAX_DATASETS];
    const struct trajd_producer_options options = {
        .name = source->name,
        .instance_of = source->instance_of,
        .spec = spec,
        .owns_spec = source->text != NULL,
        .is_hidden = source->is_hidden,
        .text = source->text,
        .datasets = datasets,
        .tuning = control->first_config->tuning_table,
        .pool = control->pool,
        .server = control->server,
        .journal_directory = trajd_control_state_directory(control),
        .max_credit = control->first_config->max_credit,
        .rings_left_bytes = rings_left_bytes,
        .stats_service = control->stats_service,
        .statistics_spec = statistics_spec,
        .statistics_dataset =
            statistics_spec
                ? trajd_open_config_find(open_config, statistics_spec->members[0].dataset)
                : NULL,
        .gpu = source->gpu,
        .gpu_lost = trajd_control_on_gpu_lost,
        .context = control,
        .log = control->log};

    for (uint32_t p = 0; p < spec->member_count; p++)
        if (!(datasets[p] = trajd_open_config_find(open_config, spec->members[p].dataset)))
            return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                                   "feed %s: no dataset %s in this daemon's configuration",
                                   source->name, spec->members[p].dataset);
    return trajd_producer_create(&options, producer, error);
}

/* Takes the one off the list that nobody has read for the longest time, closed; NULL if there is
 * none that may be closed. With the mutex held. */
static struct trajd_producer *take_unread(struct trajd_control *control)
{
    struct trajd_producer *oldest = NULL;
    uint64_t oldest_ns = UINT64_MAX;
    uint32_t place = 0;

    for (uint32_t f = 0; f < control->producer_count; f++) {
        struct trajd_producer *producer = control->producers[f];
        const uint64_t since_ns = trajd_feed_idle_since_ns(trajd_producer_feed(producer));
        if (!since_ns || since_ns >= oldest_ns || producer == control->lent ||
            !trajd_control_may_close(producer))
            continue;
        oldest = producer;
        oldest_ns = since_ns;
        place = f;
    }
    if (!oldest || !trajd_feed_close_if_idle(trajd_producer_feed(oldest)))
        return NULL;
    control->producers[place] = control->producers[--control->producer_count];
    control->is_idle[place] = control->is_idle[control->producer_count];
    return oldest;
}

/* A feed that waits for its workers' return (feed_idle) gives way to one that is read now. False:
 * there is none. */
static bool close_unread(struct trajd_control *control)
{
    struct trajd_producer *producer;

    pthread_mutex_lock(&control->mutex);
    producer = take_unread(control);
    pthread_mutex_unlock(&control->mutex);
    if (!producer)
        return false;
    LOG(control->log, INFO, "feed %s: closed, for it is not read and another one needs its place",
        trajd_producer_name(producer));
    trajd_producer_destroy(&producer);
    return true;
}

enum trajd_status trajd_control_add_producer(struct trajd_control *control,
                                             const struct trajd_feed_source *source,
                                             struct trajd_producer **producer,
                                             struct trajd_error *error)
{
    enum trajd_status status;

    while (control->producer_count >= control->now->config->max_feeds && close_unread(control))
        ;
    if (control->producer_count >= control->now->config->max_feeds)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "feed %s: %u feeds are open, and limits.feeds is %u", source->name,
                               control->producer_count, control->now->config->max_feeds);
    do
        status = trajd_control_make_producer(control, control->now, source, rings_left(control),
                                             producer, error);
    while (status == TRAJD_ERR_MEMORY && close_unread(control));
    if (status == TRAJD_ERR_DEVICE && source->gpu)
        trajd_control_suspect_gpu(control, source->gpu, error);
    if (status)
        return status;
    pthread_mutex_lock(&control->mutex);
    control->is_idle[control->producer_count] = false;
    control->producers[control->producer_count++] = *producer;
    pthread_mutex_unlock(&control->mutex);
    return TRAJD_OK;
}

/* ---- feeds that jobs send ---- */

/* The same text is the same feed: workers of a job share it. */
void trajd_control_name_spec(const char *text, char *name, size_t size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    snprintf(name, size, SPEC_PREFIX "%016llx", (unsigned long long)hash);
}

/* With the mutex held. */
struct trajd_producer *trajd_control_find_listed(struct trajd_control *control, const char *name)
{
    for (uint32_t f = 0; f < control->producer_count; f++)
        if (strcmp(trajd_producer_name(control->producers[f]), name) == 0)
            return control->producers[f];
    return NULL;
}

struct trajd_producer *trajd_control_find_producer(struct trajd_control *control, const char *name)
{
    struct trajd_producer *found;

    pthread_mutex_lock(&control->mutex);
    found = trajd_control_find_listed(control, name);
    pthread_mutex_unlock(&control->mutex);
    return found;
}

static enum trajd_status add_from_text(struct trajd_control *control,
                                       struct trajd_feed_source *source,
                                       struct trajd_producer **producer, struct trajd_error *error)
{
    struct trajd_yaml *yaml = NULL;
    enum trajd_status status =
        trajd_yaml_parse("spec", source->text, strlen(source->text), &yaml, error);

    if (!status)
        status = trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), source->name, &source->spec,
                                         error);
    trajd_yaml_destroy(&yaml);
    if (!status)
        status = trajd_control_add_producer(control, source, producer, error);
    if (status && source->spec)
        trajd_window_spec_destroy(&source->spec);
    return status;
}

enum trajd_status trajd_control_open_spec(struct trajd_control *control, const char *text,
                                          struct trajd_producer **producer,
                                          struct trajd_error *error)
{
    char name[64];
    struct trajd_feed_source source = {.name = name, .text = text};

    trajd_control_name_spec(text, name, sizeof name);
    *producer = trajd_control_find_producer(control, name);
    return *producer ? TRAJD_OK : add_from_text(control, &source, producer, error);
}

/* ---- feeds on a GPU ---- */

static struct trajd_window_spec *find_spec(const struct trajd_control *control, const char *name)
{
    const struct trajd_config *config = control->now->config;

    for (uint32_t f = 0; f < config->feed_count; f++)
        if (strcmp(config->feeds[f]->feed_name, name) == 0)
            return config->feeds[f];
    return NULL;
}

enum trajd_status trajd_control_open_on_gpu(struct trajd_control *control, const char *name,
                                            const char *text, const char *uuid,
                                            struct trajd_producer **producer,
                                            struct trajd_error *error)
{
    char base[64], full[160];
    struct trajd_feed_source source = {
        .name = full, .text = text, .gpu = trajd_control_find_gpu(control, uuid, error)};

    if (!source.gpu)
        return error->status;
    if (text)
        trajd_control_name_spec(text, base, sizeof base);
    trajd_feed_gpu_name(text ? base : name, uuid, full, sizeof full);
    *producer = trajd_control_find_producer(control, full);
    if (*producer)
        return TRAJD_OK;
    if (text)
        return add_from_text(control, &source, producer, error);
    source.spec = find_spec(control, name);
    return source.spec ? trajd_control_add_producer(control, &source, producer, error)
                       : trajd_control_unknown_feed(control, name, error);
}

/* ---- instances: jobs that are elsewhere than those which read a feed ---- */

size_t trajd_control_family_length(const char *name)
{
    return strcspn(name, (const char[]){INSTANCE_MARK, 0});
}

size_t trajd_control_base_length(const char *name)
{
    return strcspn(name, (const char[]){INSTANCE_MARK, GPU_MARK, 0});
}

static bool is_instance(const struct trajd_producer *producer, const char *family)
{
    const char *name = trajd_producer_name(producer);
    const size_t length = strlen(family);

    return trajd_control_family_length(name) == length && strncmp(name, family, length) == 0;
}

/* Any producer of the family, which shows how the others are made; *name: one that is free. */
static const struct trajd_producer *find_family(struct trajd_control *control, const char *family,
                                                char *name, size_t size)
{
    const struct trajd_producer *found = NULL;
    uint32_t number = 1;

    pthread_mutex_lock(&control->mutex);
    for (uint32_t f = 0; f < control->producer_count; f++)
        if (is_instance(control->producers[f], family))
            found = control->producers[f];
    do
        snprintf(name, size, "%s%c%u", family, INSTANCE_MARK, ++number);
    while (trajd_control_find_listed(control, name));
    pthread_mutex_unlock(&control->mutex);
    return found;
}

/* Looks at what would be refused first: who is told `busy` asks again and again. */
enum trajd_status trajd_control_open_instance(struct trajd_control *control, const char *family,
                                              struct trajd_producer **producer,
                                              struct trajd_error *error)
{
    char name[160];
    const struct trajd_producer *model;
    uint64_t left, wanted;
    struct trajd_feed_source source = {.name = name, .instance_of = family};

    do {
        model = find_family(control, family, name, sizeof name);
        left = rings_left(control);
        wanted = model ? trajd_producer_ring_bytes(model) : 0;
    } while ((wanted > left || control->producer_count >= control->now->config->max_feeds) &&
             close_unread(control));
    if (!model)
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                               "feed %s: it has just been closed: try again", family);
    if (wanted > left)
        return trajd_error_set(
            error, TRAJD_ERR_BUSY, 0,
            "feed %s: other jobs read it and are elsewhere in it; a ring of its own for this one "
            "is %llu bytes, "
            "and memory.rings leaves %llu: raise memory.rings, or wait for the others",
            family, (unsigned long long)wanted, (unsigned long long)left);
    if (control->producer_count >= control->now->config->max_feeds)
        return trajd_error_set(
            error, TRAJD_ERR_BUSY, 0,
            "feed %s: other jobs read it and are elsewhere in it; another production for this one "
            "would be "
            "feed %u, and limits.feeds is %u: raise limits.feeds, or wait for the others",
            family, control->producer_count + 1, control->now->config->max_feeds);
    source.gpu = trajd_producer_gpu(model);
    source.text = trajd_producer_text(model);
    if (source.text) {
        char *text = strdup(source.text); /* the model may have to give way */
        enum trajd_status status =
            text ? TRAJD_OK
                 : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed %s: out of memory", family);
        source.text = text;
        if (!status)
            status = add_from_text(control, &source, producer, error);
        free(text);
        return status;
    }
    source.spec = trajd_producer_spec(model);
    return trajd_control_add_producer(control, &source, producer, error);
}

enum trajd_status trajd_control_unknown_feed(const struct trajd_control *control, const char *name,
                                             struct trajd_error *error)
{
    char names[256] = "";
    size_t used = 0;

    for (uint32_t f = 0; control->now->feed_names[f] && used < sizeof names; f++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", f ? ", " : "",
                                 control->now->feed_names[f]);
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "no feed %s here (there are: %s)", name,
                           used ? names : "none; send a specification");
}

bool trajd_control_is_configured(const struct trajd_producer *producer)
{
    return strncmp(trajd_producer_name(producer), SPEC_PREFIX, sizeof SPEC_PREFIX - 1) != 0;
}

bool trajd_control_may_close(const struct trajd_producer *producer)
{
    return !trajd_control_is_configured(producer) ||
           strpbrk(trajd_producer_name(producer), (const char[]){INSTANCE_MARK, GPU_MARK, 0});
}
