/* Opens the feed of an OPEN request: one that a job sent as text, one on a GPU, or another instance
 * of a feed. */
#include "daemon/control/control_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/control/feed_name.h"

/* ---- feeds that jobs send ---- */

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

    trajd_feed_name_of_text(text, name, sizeof name);
    *producer = trajd_control_find_producer(control, name);
    return *producer ? TRAJD_OK : add_from_text(control, &source, producer, error);
}

/* ---- feeds on a GPU ---- */

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
        trajd_feed_name_of_text(text, base, sizeof base);
    trajd_feed_gpu_name(text ? base : name, uuid, full, sizeof full);
    *producer = trajd_control_find_producer(control, full);
    if (*producer)
        return TRAJD_OK;
    if (text)
        return add_from_text(control, &source, producer, error);
    source.spec = trajd_open_config_find_spec(control->now, name);
    return source.spec ? trajd_control_add_producer(control, &source, producer, error)
                       : trajd_control_unknown_feed(control, name, error);
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
        if (trajd_feed_name_is_in_family(trajd_producer_name(control->feeds.producers[f]), family))
            found = control->feeds.producers[f];
    do
        trajd_feed_name_of_instance(family, ++number, name, size);
    while (trajd_feed_list_find(&control->feeds, name));
    pthread_mutex_unlock(&control->mutex);
    return found;
}

/* Checks the limits before any work: a client that gets BUSY tries again and again. */
enum trajd_status trajd_control_open_instance(struct trajd_control *control, const char *family,
                                              struct trajd_producer **producer,
                                              struct trajd_error *error)
{
    char name[160];
    const struct trajd_producer *model;
    uint64_t remaining_bytes, wanted_bytes;
    struct trajd_feed_source source = {.name = name, .instance_of = family};

    do {
        model = find_family(control, family, name, sizeof name);
        remaining_bytes = trajd_control_rings_remaining_bytes(control);
        wanted_bytes = model ? trajd_producer_ring_bytes(model) : 0;
    } while ((wanted_bytes > remaining_bytes ||
              control->feeds.count >= control->now->config->max_feeds) &&
             trajd_control_close_unread(control));
    if (!model)
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0, "feed %s: has just been closed: try again",
                               family);
    if (wanted_bytes > remaining_bytes)
        return trajd_error_set(
            error, TRAJD_ERR_BUSY, 0,
            "feed %s: other jobs read it at another position; another ring for this job needs %llu "
            "bytes, but memory.rings has only %llu left: raise memory.rings, or wait until the "
            "other jobs end",
            family, (unsigned long long)wanted_bytes, (unsigned long long)remaining_bytes);
    if (control->feeds.count >= control->now->config->max_feeds)
        return trajd_error_set(
            error, TRAJD_ERR_BUSY, 0,
            "feed %s: other jobs read it at another position; another instance for this job would "
            "be feed %u, but limits.feeds is %u: raise limits.feeds, or wait until the other jobs "
            "end",
            family, control->feeds.count + 1, control->now->config->max_feeds);
    source.gpu = trajd_producer_gpu(model);
    source.text = trajd_producer_text(model);
    if (source.text) {
        char *text = strdup(source.text); /* the model may be closed to make room */
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
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "there is no feed %s (feeds: %s)", name,
                           used ? names : "none configured; send a specification instead");
}
