/* Reads the value of --prepare: a preset, a size, or a feed of a configuration. */
#include "clients/cli/pack/pack_config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "daemon/window/image/image_preset.h"

enum { VALUE_SIZE = 4096 };

/* "CONFIG:FEED:DATASET", cut at its colons. */
struct value {
    char text[VALUE_SIZE];
    const char *feed, *dataset; /* NULL: not given */
};

/* Finds the file's name: the longest part in front of a colon that is one. */
static enum trajd_status cut(const char *text, struct value *value, struct trajd_error *error)
{
    *value = (struct value){.text = ""};
    if ((size_t)snprintf(value->text, sizeof value->text, "%s", text) >= sizeof value->text)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "--prepare: the path is too long");
    for (int parts = 0; parts < 3; parts++) {
        char *colon = strrchr(value->text, ':');
        if (!access(value->text, F_OK))
            return TRAJD_OK;
        if (!colon || parts == 2)
            break;
        *colon = '\0';
        value->dataset = value->feed;
        value->feed = colon + 1;
    }
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                           "--prepare %s: no such file; expected CONFIG[:FEED[:DATASET]], like "
                           "train.yaml:policy, HEIGHTxWIDTH, like 224x224, or the name of a preset",
                           text);
}

/* ---- presets ---- */

static enum trajd_status read_view(const char *name, const char *view,
                                   struct trajd_image_spec *spec, struct trajd_error *error)
{
    char text[128];
    struct trajd_yaml *yaml;
    enum trajd_status status;

    *spec = (struct trajd_image_spec){0};
    snprintf(text, sizeof text, "{image: {preset: \"%.32s\", view: %s}}", name, view);
    status = trajd_yaml_parse("--prepare", text, strlen(text), &yaml, error);
    if (status)
        return status;
    status = trajd_image_preset_read(yaml, trajd_yaml_root(yaml), spec, error);
    trajd_yaml_destroy(&yaml);
    return status;
}

static bool prepare_alike(const struct trajd_image_spec *a, const struct trajd_image_spec *b)
{
    return a->height == b->height && a->width == b->width && a->fit == b->fit &&
           a->filter == b->filter;
}

/* Reads the name of a preset. A preset that prepares wrist cameras in another way needs to know
 * which ones they are. */
static enum trajd_status read_preset(const char *name, struct pack_config *config,
                                     struct trajd_error *error)
{
    struct trajd_image_spec wrist;
    const enum trajd_status status = read_view(name, "scene", &config->preset, error);

    if (status)
        return status;
    if (!read_view(name, "wrist", &wrist, NULL) && !prepare_alike(&config->preset, &wrist))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "--prepare %s: it resizes wrist cameras in another way: name a "
                               "configuration that says view: wrist where it matters, CONFIG:FEED",
                               name);
    config->preparations[config->count++] =
        (struct pack_preparation){.output = name, .image = &config->preset};
    return TRAJD_OK;
}

/* ---- sizes ---- */

/* Reads "HEIGHTxWIDTH" as the key `resize` of a feed. *is_size: it is one. */
static enum trajd_status read_size(const char *text, struct pack_config *config, bool *is_size,
                                   struct trajd_error *error)
{
    char keys[64];
    struct trajd_yaml *yaml;
    uint32_t height, width;
    int length = 0;
    enum trajd_status status;

    *is_size = sscanf(text, "%ux%u%n", &height, &width, &length) == 2 && !text[length];
    if (!*is_size)
        return TRAJD_OK;
    snprintf(keys, sizeof keys, "{resize: [%u, %u]}", height, width);
    status = trajd_yaml_parse("--prepare", keys, strlen(keys), &yaml, error);
    if (status)
        return status;
    status = trajd_image_spec_read(&(struct trajd_yaml_reader){yaml, error, NULL},
                                   trajd_yaml_root(yaml), &config->preset);
    trajd_yaml_destroy(&yaml);
    config->preparations[config->count++] =
        (struct pack_preparation){.output = text, .image = &config->preset};
    return status;
}

/* ---- feeds ---- */

static enum trajd_status find_feed(const struct trajd_config *config, const char *name,
                                   const struct trajd_window_spec **feed, struct trajd_error *error)
{
    *feed = config->feed_count == 1 && !name ? config->feeds[0] : NULL;
    for (uint32_t f = 0; name && f < config->feed_count; f++)
        if (!strcmp(config->feeds[f]->feed_name, name))
            *feed = config->feeds[f];
    if (*feed)
        return TRAJD_OK;
    if (name)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "--prepare: the configuration has no feed %s", name);
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "--prepare: the configuration has %u feeds: name one, CONFIG:FEED",
                           config->feed_count);
}

/* Finds what the feed asks of one of its datasets. */
static enum trajd_status find_member(const struct trajd_window_spec *feed, const char *name,
                                     const struct trajd_spec_member **member,
                                     struct trajd_error *error)
{
    *member = feed->member_count == 1 && !name ? feed->members : NULL;
    for (uint32_t m = 0; name && m < feed->member_count; m++)
        if (!strcmp(feed->members[m].dataset, name))
            *member = &feed->members[m];
    if (*member)
        return TRAJD_OK;
    if (name)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "--prepare: feed %s has no dataset %s", feed->feed_name, name);
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "--prepare: feed %s has %u datasets: name one, CONFIG:FEED:DATASET",
                           feed->feed_name, feed->member_count);
}

static void list_outputs(const struct trajd_window_spec *spec, struct pack_config *config)
{
    for (uint32_t o = 0; o < spec->output_count; o++) {
        const struct trajd_spec_output *output = &spec->outputs[o];
        if (output->source_count == 1)
            config->preparations[config->count++] = (struct pack_preparation){
                .stream = output->sources[0], .output = output->name, .image = &output->image};
    }
}

enum trajd_status pack_config_read(const char *text, struct pack_config *config,
                                   struct trajd_error *error)
{
    const struct trajd_window_spec *feed = NULL;
    const struct trajd_spec_member *member = NULL;
    struct value value;
    bool is_size;
    enum trajd_status status;

    *config = (struct pack_config){0};
    status = read_size(text, config, &is_size, error);
    if (is_size)
        return status;
    status = cut(text, &value, error);
    if (status == TRAJD_ERR_NOT_FOUND && !strpbrk(text, ":./\"\\"))
        return read_preset(text, config, error);
    if (!status)
        status = trajd_config_load(value.text, NULL, 0, &config->config, error);
    if (!status)
        status = find_feed(config->config, value.feed, &feed, error);
    if (!status)
        status = find_member(feed, value.dataset, &member, error);
    if (status)
        return status;
    list_outputs(member->spec, config);
    for (uint32_t d = 0; d < config->config->dataset_count; d++)
        if (!strcmp(config->config->datasets[d].name, member->dataset)) {
            config->layout = config->config->datasets[d].layout;
            config->color = config->config->datasets[d].color;
            config->media_folder = config->config->datasets[d].media;
        }
    return TRAJD_OK;
}

void pack_config_free(struct pack_config *config)
{
    if (config->config)
        trajd_config_destroy(&config->config);
}
