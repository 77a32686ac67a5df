/* Makes producers, opens the feed of an OPEN request (a configured one on a GPU, one that a job
 * sent as text, another instance), and closes unread feeds to make room. */
#include "daemon/control/control_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/window/mixture_plan.h"
#include "proto/plural.h"

#define MOST_CHECK_VALUES 8000000 /* their statistics take less than a second */

const char *trajd_control_state_directory(const struct trajd_control *control)
{
    const struct trajd_config *config = control->first_config;

    return config->state ? config->state : getenv("STATE_DIRECTORY");
}

/* Returns how many bytes the rings of all feeds use. */
static uint64_t rings_used_bytes_of(struct trajd_control *control)
{
    uint64_t used_bytes;

    pthread_mutex_lock(&control->mutex);
    used_bytes = trajd_feed_list_ring_bytes(&control->feeds);
    pthread_mutex_unlock(&control->mutex);
    return used_bytes;
}

/* Returns how many bytes all rings may use together, the new one of feed `name` included. Where the
 * configuration does not state memory.rings, its own feeds may use more than the default, as far as
 * memory has room: so the same feeds fit whether the daemon is a service, a private one of
 * trajd.open, or runs with --check, which differ in this default. */
static uint64_t rings_limit_of(const struct trajd_control *control,
                               const struct trajd_config *config, const char *name)
{
    const bool grows =
        !trajd_config_states(config, "memory.rings") && !trajd_feed_name_may_close(name);

    return grows && control->rings_most_bytes > config->rings_bytes ? control->rings_most_bytes
                                                                    : config->rings_bytes;
}

/* Returns how many bytes a ring may have that would do with fewer slots: half of what memory.rings
 * leaves, so that such rings never keep another feed out. */
static uint64_t rings_room_of(const struct trajd_control *control,
                              const struct trajd_config *config, uint64_t used_bytes)
{
    return control->has_least_slots || used_bytes > config->rings_bytes
               ? 0
               : (config->rings_bytes - used_bytes) / 2;
}

void trajd_control_grow_rings(struct trajd_config *config, uint64_t used_bytes)
{
    if (!trajd_config_states(config, "memory.rings") && used_bytes > config->rings_bytes)
        config->rings_bytes = used_bytes;
}

/* Logs what the feed leaves out of its datasets. */
static void log_data(const struct trajd_control *control, const struct trajd_producer *producer)
{
    const struct trajd_mixture_plan *plan = producer->plan;

    for (uint32_t p = 0; p < plan->member_count; p++) {
        const struct trajd_window_plan *member = plan->members[p];
        const struct trajd_plan_texts *quarantined = &member->quarantined,
                                      *warnings = &member->warnings;
        if (quarantined->count)
            LOG(control->log, WARNING,
                "feed %s: dataset %s: %u of %u episode%s, %u quarantined, the first: %s",
                producer->name, member->dataset->name, member->found_count - quarantined->count,
                member->found_count, trajd_plural(member->found_count), quarantined->count,
                quarantined->list[0] ? quarantined->list[0] : "");
        for (uint32_t w = 0; w < TRAJD_PLAN_TEXTS_MAX && w < warnings->count; w++)
            if (warnings->list[w])
                LOG(control->log, WARNING, "feed %s: %s", producer->name, warnings->list[w]);
    }
}

enum trajd_status trajd_control_make_producer(struct trajd_control *control,
                                              const struct trajd_open_config *open_config,
                                              const struct trajd_feed_source *source,
                                              uint64_t rings_used_bytes,
                                              struct trajd_producer **producer,
                                              struct trajd_error *error)
{
    struct trajd_window_spec *spec = source->spec;
    const struct trajd_window_spec *statistics_spec =
        spec->statistics_from ? trajd_open_config_find_spec(open_config, spec->statistics_from)
                              : NULL;
    struct trajd_dataset *datasets[TRAJD_CONFIG_MAX_DATASETS];
    int64_t at_most[TRAJD_CONFIG_MAX_DATASETS];
    const struct trajd_producer_options options = {
        .name = source->name,
        .instance_of = source->instance_of,
        .spec = spec,
        .owns_spec = source->text != NULL,
        .is_hidden = source->is_hidden,
        .text = source->text,
        .datasets = datasets,
        .quarantine_at_most = at_most,
        .is_refused = source->is_refused,
        .tuning = control->first_config->tuning_table,
        .pool = control->pool,
        .server = control->server,
        .journal_directory = trajd_control_state_directory(control),
        .max_credit = control->first_config->max_credit,
        .rings_limit_bytes = rings_limit_of(control, open_config->config, source->name),
        .rings_used_bytes = rings_used_bytes,
        .rings_room_bytes = rings_room_of(control, open_config->config, rings_used_bytes),
        .stats_service = control->stats_service,
        .most_check_values = MOST_CHECK_VALUES,
        .statistics_spec = statistics_spec,
        .statistics_dataset =
            statistics_spec
                ? trajd_open_config_find(open_config, statistics_spec->members[0].dataset)
                : NULL,
        .gpu = source->gpu,
        .is_unfinished = source->is_unfinished,
        .gpu_lost = trajd_control_on_gpu_lost,
        .context = control,
        .log = control->log};
    enum trajd_status status;

    for (uint32_t p = 0; p < spec->member_count; p++) {
        at_most[p] = trajd_open_config_at_most(open_config, spec->members[p].dataset);
        if (!(datasets[p] = trajd_open_config_find(open_config, spec->members[p].dataset)))
            return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                                   "feed %s: no dataset %s in this daemon's configuration",
                                   source->name, spec->members[p].dataset);
        status = control->server ? trajd_layout_check_guesses(datasets[p]->index->layout, error)
                                 : TRAJD_OK;
        if (status) {
            trajd_error_prefix(error, "feed %s", source->name);
            return status;
        }
    }
    status = trajd_producer_create(&options, producer, error);
    if (!status && control->server)
        log_data(control, *producer);
    return status;
}

bool trajd_control_close_unread(struct trajd_control *control)
{
    struct trajd_producer *producer;

    if (!control->server)
        return false;
    pthread_mutex_lock(&control->mutex);
    producer = trajd_feed_list_remove_unread(&control->feeds);
    pthread_mutex_unlock(&control->mutex);
    if (!producer)
        return false;
    LOG(control->log, INFO,
        "feed %s: closed, because no worker reads it and another feed needs room", producer->name);
    trajd_producer_destroy(&producer);
    return true;
}

enum trajd_status trajd_control_add_producer(struct trajd_control *control,
                                             const struct trajd_feed_source *source,
                                             struct trajd_producer **producer,
                                             struct trajd_error *error)
{
    enum trajd_status status;

    while (control->feeds.count >= control->now->config->max_feeds &&
           trajd_control_close_unread(control))
        ;
    if (control->feeds.count >= control->now->config->max_feeds)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "feed %s: %u feed%s open, and limits.feeds is %u", source->name,
                               control->feeds.count, control->feeds.count == 1 ? " is" : "s are",
                               control->now->config->max_feeds);
    do
        status = trajd_control_make_producer(control, control->now, source,
                                             rings_used_bytes_of(control), producer, error);
    while (status == TRAJD_ERR_MEMORY && trajd_control_close_unread(control));
    if (status == TRAJD_ERR_DEVICE && source->gpu)
        trajd_control_suspect_gpu(control, source->gpu, error);
    if (status)
        return status;
    pthread_mutex_lock(&control->mutex);
    trajd_feed_list_add(&control->feeds, *producer);
    trajd_control_grow_rings(control->now->config, trajd_feed_list_ring_bytes(&control->feeds));
    pthread_mutex_unlock(&control->mutex);
    return TRAJD_OK;
}

/* ---- the feed of an OPEN ---- */

/* Fills *error with the names that exist. Returns TRAJD_ERR_NOT_FOUND. */
static enum trajd_status unknown_feed(const struct trajd_control *control, const char *name,
                                      struct trajd_error *error)
{
    char names[256];

    trajd_yaml_join(control->now->feed_names, names, sizeof names);
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "there is no feed %s (feeds: %s)", name,
                           *names ? names : "none configured; send a specification instead");
}

static enum trajd_status parse_text(struct trajd_control *control, struct trajd_feed_source *source,
                                    struct trajd_error *error)
{
    struct trajd_yaml *yaml = NULL;
    enum trajd_status status =
        trajd_yaml_parse("spec", source->text, strlen(source->text), &yaml, error);

    if (!status)
        status = trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), source->name,
                                         control->now->config->version, &source->spec, error);
    trajd_yaml_destroy(&yaml);
    return status ? status : trajd_config_load_files(control->now->config, source->spec, error);
}

/* Makes a producer and lists it. A spec that was parsed from a text is destroyed if that fails. */
static enum trajd_status add_parsed(struct trajd_control *control, struct trajd_feed_source *source,
                                    struct trajd_producer **producer, struct trajd_error *error)
{
    const enum trajd_status status = trajd_control_add_producer(control, source, producer, error);

    if (status && source->text)
        trajd_window_spec_destroy(&source->spec);
    return status;
}

enum trajd_status trajd_control_open_feed(struct trajd_control *control, const char *name,
                                          const char *text, const char *place,
                                          struct trajd_producer **producer,
                                          struct trajd_error *error)
{
    char base[64], full[160];
    struct trajd_feed_source source = {
        .text = text, .is_unfinished = place && strcmp(place, TRAJD_FEED_UNFINISHED) == 0};
    enum trajd_status status = TRAJD_OK;

    if (place && !source.is_unfinished &&
        !(source.gpu = trajd_control_find_gpu(control, place, error)))
        return error->status;
    if (text)
        trajd_feed_name_of_text(text, base, sizeof base);
    else if (trajd_feed_name_has_place(name)) /* only found by its feed's name and the place */
        return unknown_feed(control, name, error);
    source.name = text ? base : name;
    if (place) {
        trajd_feed_place_name(source.name, place, full, sizeof full);
        source.name = full;
    }
    *producer = trajd_control_find_producer(control, source.name);
    if (*producer)
        return TRAJD_OK;
    if (text)
        status = parse_text(control, &source, error);
    else if (!(source.spec = trajd_open_config_find_spec(control->now, name)))
        return unknown_feed(control, name, error);
    if (!status && (!source.is_unfinished || trajd_window_spec_finishes(source.spec)))
        return add_parsed(control, &source, producer, error);
    if (text && source.spec)
        trajd_window_spec_destroy(&source.spec);
    return status ? status : trajd_control_open_feed(control, name, text, NULL, producer, error);
}

/* ---- instances: for jobs that read another position than the jobs on the feed ---- */

/* Returns any producer of the family: its options serve as the model for another instance. Writes
 * a free name for that instance to `name`. */
static const struct trajd_producer *find_family(struct trajd_control *control, const char *family,
                                                char *name, size_t size)
{
    const struct trajd_producer *found = NULL;
    uint32_t number = 1;

    pthread_mutex_lock(&control->mutex);
    for (uint32_t f = 0; f < control->feeds.count; f++)
        if (trajd_feed_name_is_in_family(control->feeds.producers[f]->name, family))
            found = control->feeds.producers[f];
    do
        trajd_feed_name_of_instance(family, ++number, name, size);
    while (trajd_feed_list_find(&control->feeds, name));
    pthread_mutex_unlock(&control->mutex);
    return found;
}

/* Finds a model for another instance, and writes the name of that one. Checks the limits before any
 * work: a client that gets BUSY tries again and again. */
static enum trajd_status find_model(struct trajd_control *control, const char *family, char *name,
                                    size_t size, const struct trajd_producer **model,
                                    struct trajd_error *error)
{
    uint64_t limit_bytes, used_bytes, remaining_bytes, wanted_bytes;

    do {
        *model = find_family(control, family, name, size);
        limit_bytes = rings_limit_of(control, control->now->config, name);
        used_bytes = rings_used_bytes_of(control);
        remaining_bytes = limit_bytes > used_bytes ? limit_bytes - used_bytes : 0;
        wanted_bytes = *model ? trajd_producer_ring_bytes(*model) : 0;
    } while ((wanted_bytes > remaining_bytes ||
              control->feeds.count >= control->now->config->max_feeds) &&
             trajd_control_close_unread(control));
    if (!*model)
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0, "feed %s: has just been closed: try again",
                               family);
    if (wanted_bytes > remaining_bytes)
        return trajd_error_set(
            error, TRAJD_ERR_BUSY, 0,
            "feed %s: other jobs read it at another position, or for another user; another ring "
            "for this job needs %llu bytes, but memory.rings has only %llu left: raise "
            "memory.rings, or wait until the other jobs end",
            family, (unsigned long long)wanted_bytes, (unsigned long long)remaining_bytes);
    if (control->feeds.count >= control->now->config->max_feeds)
        return trajd_error_set(
            error, TRAJD_ERR_BUSY, 0,
            "feed %s: other jobs read it at another position, or for another user; another "
            "instance for this job would be feed %u, but limits.feeds is %u: raise limits.feeds, "
            "or wait until the other jobs end",
            family, control->feeds.count + 1, control->now->config->max_feeds);
    return TRAJD_OK;
}

/* Returns a feed without sessions whose ring another user has mapped. It is off the list then.
 * Returns NULL if there is none. */
static struct trajd_producer *take_used(struct trajd_control *control, const char *family,
                                        char *name, size_t size)
{
    struct trajd_producer *used;

    pthread_mutex_lock(&control->mutex);
    used = trajd_feed_list_remove_used(&control->feeds, family);
    pthread_mutex_unlock(&control->mutex);
    if (used)
        snprintf(name, size, "%s", used->name);
    return used;
}

enum trajd_status trajd_control_open_instance(struct trajd_control *control, const char *family,
                                              struct trajd_producer **producer,
                                              struct trajd_error *error)
{
    char name[160];
    struct trajd_producer *used = take_used(control, family, name, sizeof name);
    const struct trajd_producer *model = used;
    const char *reason = used ? "made again, with another ring for another user"
                              : "opened as another instance for one job";
    struct trajd_feed_source source = {.name = name};
    char *text = NULL; /* a copy, as the model may be closed to make room */
    enum trajd_status status =
        used ? TRAJD_OK : find_model(control, family, name, sizeof name, &model, error);

    if (status)
        return status;
    source.instance_of = strcmp(name, family) ? family : NULL;
    source.gpu = model->options.gpu;
    source.is_unfinished = model->options.is_unfinished;
    if (!model->text)
        source.spec = model->spec;
    else if (!(source.text = text = strdup(model->text)))
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed %s: out of memory", family);
    trajd_producer_destroy(&used);
    if (!status && text)
        status = parse_text(control, &source, error);
    if (!status)
        status = add_parsed(control, &source, producer, error);
    else if (text && source.spec)
        trajd_window_spec_destroy(&source.spec);
    if (!status)
        LOG(control->log, INFO, "feed %s: %s", name, reason);
    free(text);
    return status;
}

/* ---- normalisation ---- */

static void warn_of_pair(struct trajd_control *control, const struct trajd_producer *a,
                         const struct trajd_producer *b, FILE *report)
{
    const char *first = a->name, *second = b->name;
    const char *output = trajd_producer_norm_differs(a, b);
    char line[1024];

    if (!output)
        return;
    snprintf(line, sizeof line,
             "feeds %s and %s normalise output %s by different statistics: set "
             "`statistics_from: %s` in feed %s to normalise both alike",
             first, second, output, first, second);
    LOG(control->log, WARNING, "%s", line);
    if (report)
        fprintf(report, "warning: %s\n", line);
}

void trajd_control_warn_of_norms(struct trajd_control *control, FILE *report)
{
    const struct trajd_feed_list *feeds = &control->feeds;

    for (uint32_t a = 0; a < feeds->count; a++)
        for (uint32_t b = a + 1; b < feeds->count; b++)
            warn_of_pair(control, feeds->producers[a], feeds->producers[b], report);
}
