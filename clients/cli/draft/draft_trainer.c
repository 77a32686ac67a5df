/* What trainers ask for: the windows, and the images. */
#include "clients/cli/draft/draft_config.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "clients/cli/draft/draft_facts.h"
#include "daemon/window/image/image_prepared.h"
#include "daemon/window/image/image_preset.h"
#include "proto/array_len.h"

/* Windows as a trainer has them by default. robomimic's observations are as long as its actions:
 * 10s are more than 9 steps. */
static const struct config_preset presets[] = {
    {.name = "act",
     .observations = "0",
     .actions = "0..99",
     .pad = "{before: 0, after: any, with: zero}",
     .norm = "{by: mean_std, min_std: 0.01}",
     .windows = "one_per_episode  # one random row of each episode is ACT's epoch",
     .action = "act",
     .image = "act",
     .state = "qpos",
     .stacks = true,
     .note = "ACT's script for real robots begins one row earlier: preset: act_real, at: -1..98."},
    {.name = "diffusion_policy",
     .observations = "-1..0",
     .actions = "-1..14",
     .pad = "{before: 1, after: 7, with: edge}",
     .norm = "min_max",
     .action = "diffusion_policy_real",
     .action_of_robomimic = "diffusion_policy",
     .image = "diffusion_policy",
     .otherwise = "image: {preset: robomimic}, norm: signed-imagenet"},
    {.name = "lerobot",
     .observations = "0",
     .actions = "0..99",
     .pad = "{before: 0, after: any, with: edge}",
     .norm = "mean_std",
     .image = "lerobot_act",
     .state = "state"},
    {.name = "openpi",
     .observations = "0",
     .actions = "0..49",
     .pad = "{before: 0, after: any, with: edge}",
     .norm = "q01_q99",
     .image = "openpi",
     .state = "state",
     .has_wrist = true,
     .note =
         "For actions relative to the state, as openpi's own: relative_to: STREAMS in actions."},
    {.name = "robomimic",
     .observations = "0..9, lookahead: 10s",
     .actions = "0..9",
     .pad = "{before: 0, after: any, with: edge}",
     .image = "robomimic",
     .note = "As robomimic trains, observations have rows after the anchor (1..9). A robot cannot\n"
             "    # have them: for trajd.Live end them at 0, for example at: -9..0."},
};
/* two observations and a horizon of 16 that begins with the first of them, as diffusion_policy */
static const struct config_preset no_preset = {.name = "",
                                               .observations = "-1..0",
                                               .actions = "-1..14",
                                               .pad = "{before: 1, after: any, with: edge}"};

const struct config_preset *config_preset_find(const char *name, struct trajd_error *error)
{
    if (!name)
        return &no_preset;
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        if (!strcmp(presets[i].name, name))
            return &presets[i];
    }
    trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                    "--preset %s: choose act, diffusion_policy, lerobot, openpi or robomimic",
                    name);
    return NULL;
}

bool config_is_colour(const struct trajd_index_stream *stream)
{
    return stream->dtype == TRAJD_U8 && stream->rank == 3 && stream->shape[2] == 3;
}

/* Returns whether a specification's keys fit the frames of a stream, and what a frame then takes. */
static enum trajd_status try_spec(const struct trajd_image_spec *spec,
                                  const struct trajd_index_stream *stream, uint64_t *frame_bytes,
                                  struct trajd_error *error)
{
    struct trajd_image_source source = {.height = (uint32_t)stream->shape[0],
                                        .width = (uint32_t)stream->shape[1],
                                        .channels = 3,
                                        .type = TRAJD_U8};
    struct trajd_image_preparation preparation;
    struct trajd_image_prepared stored;
    struct trajd_image_finish finish;
    struct trajd_augment augment;
    enum trajd_status status = TRAJD_OK;

    if (stream->preparation) {
        status = trajd_image_prepared_read(stream->preparation, 3, TRAJD_U8, &stored, error);
        if (status)
            return status;
        source.height = stored.preparation.source_height;
        source.width = stored.preparation.source_width;
    }
    status = trajd_image_spec_prepare(spec, &source, &preparation, error);
    if (!status && stream->preparation && !trajd_image_is_same(&preparation, &stored.preparation))
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                 "the frames in the files were prepared in another way");
    if (!status)
        status = trajd_image_spec_finish(spec, &preparation, TRAJD_F32, &augment, &finish, error);
    if (!status)
        *frame_bytes = (uint64_t)finish.height * finish.width * finish.channels *
                       (spec->has_norm ? sizeof(float) : 1);
    return status;
}

/* Reads the keys as those of an output, and tries them on the frames of a stream. */
static enum trajd_status try_keys(const char *keys, const struct trajd_index_stream *stream,
                                  uint64_t *frame_bytes, struct trajd_error *error)
{
    struct trajd_image_spec spec = {0};
    const struct trajd_yaml_node *output;
    struct trajd_yaml *yaml;
    char text[CONFIG_KEYS_SIZE + 4];
    enum trajd_status status;

    snprintf(text, sizeof text, "{%s}", keys);
    status = trajd_yaml_parse("preset", text, strlen(text), &yaml, error);
    if (status)
        return status;
    output = trajd_yaml_root(yaml);
    status = trajd_image_preset_read(yaml, output, &spec, error);
    if (!status)
        status = trajd_image_spec_read(&(struct trajd_yaml_reader){yaml, error, NULL},
                                       trajd_yaml_get(output, "image"), &spec);
    if (!status)
        status = try_spec(&spec, stream, frame_bytes, error);
    trajd_yaml_destroy(&yaml);
    return status;
}

/* Writes the keys that ask for frames as they were prepared in the files, with what the preset does
 * after that. */
static void write_prepared(const struct config_preset *preset,
                           const struct trajd_index_stream *stream, char keys[CONFIG_KEYS_SIZE])
{
    char own[TRAJD_PREPARATION_WORDS_SIZE];
    struct trajd_image_prepared stored;
    struct trajd_error ignored;
    uint64_t bytes;

    if (trajd_image_prepared_read(stream->preparation, 3, TRAJD_U8, &stored, &ignored))
        return;
    trajd_image_write_keys(&stored.preparation, own);
    snprintf(keys, CONFIG_KEYS_SIZE, "image: {preset: %s, %s", preset->image, own + 1);
    if (try_keys(keys, stream, &bytes, &ignored))
        snprintf(keys, CONFIG_KEYS_SIZE, "image: %s", own);
}

enum trajd_status config_image_keys(const struct config_preset *preset,
                                    const struct trajd_index_stream *stream,
                                    const struct config_size *size, char keys[CONFIG_KEYS_SIZE],
                                    uint64_t *frame_bytes, struct trajd_error *error)
{
    const char *view =
        preset->has_wrist && draft_matches(stream->name, "wrist|hand|gripper", REG_ICASE)
            ? ", view: wrist"
            : "";
    struct trajd_error ignored;
    char resize[64] = "";
    enum trajd_status status;

    if (size->height)
        snprintf(resize, sizeof resize, ", resize: [%u, %u]", size->height, size->width);
    snprintf(keys, CONFIG_KEYS_SIZE, "image: {preset: %s%s%s}", preset->image, view, resize);
    status = try_keys(keys, stream, frame_bytes, error);
    if (status && !stream->preparation)
        snprintf(keys, CONFIG_KEYS_SIZE, "%s", preset->otherwise ? preset->otherwise : "image: {}");
    else if (status)
        write_prepared(preset, stream, keys);
    if (status && try_keys(keys, stream, frame_bytes, &ignored))
        *frame_bytes = 0; /* check says what is wrong with them */
    return status;
}
