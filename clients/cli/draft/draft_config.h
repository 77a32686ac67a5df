/* Writes a first configuration: datasets, and a feed for each. */
#ifndef TRAJD_CLI_DRAFT_DRAFT_CONFIG_H
#define TRAJD_CLI_DRAFT_DRAFT_CONFIG_H

#include <stdio.h>

#include "daemon/index/index.h"

/* ---- draft_trainer.c: what `trajctl init --preset` knows about a trainer ---- */

struct config_preset {
    const char *name;         /* also of the `style=` in Python; "": no trainer was named */
    const char *observations; /* steps, and other keys of all observations */
    const char *actions;      /* steps */
    const char *pad;
    const char *norm;                /* of what is not an image; NULL: none */
    const char *windows;             /* NULL: each row */
    const char *action;              /* `preset:` of the actions; NULL: there is none */
    const char *action_of_robomimic; /* of files with /data/demo_N; NULL: the same */
    const char *image;               /* `preset:` of images */
    const char *otherwise;           /* keys of images whose frames do not fit it; NULL: {} */
    const char *state; /* the one output of numbers that the style reads; NULL: it reads all */
    bool stacks;       /* all images have one size */
    bool has_wrist;    /* wrist cameras have keys of their own */
    const char *note;  /* a comment for the user; NULL: none */
};

/* Returns the preset; for NULL one that suits most trainers. Returns NULL, with the error, for
 * another name. */
const struct config_preset *config_preset_find(const char *name, struct trajd_error *error);

/* A size that images are resized to; height 0: they keep theirs. */
struct config_size {
    uint32_t height, width;
};

/* Returns whether the stream has images of three colours. */
bool config_is_colour(const struct trajd_index_stream *stream);

/* Writes the keys of an output of such a stream, from "image:" on, and the bytes of a frame of it.
 * Returns TRAJD_OK, or why the frames do not fit the preset of the trainer's images: then the keys
 * are others. */
enum { CONFIG_KEYS_SIZE = 512 };
enum trajd_status config_image_keys(const struct config_preset *preset,
                                    const struct trajd_index_stream *stream,
                                    const struct config_size *size, char keys[CONFIG_KEYS_SIZE],
                                    uint64_t *frame_bytes, struct trajd_error *error);

/* ---- draft_config.c ---- */

/* A dataset of the configuration. All is borrowed. */
struct config_dataset {
    const char *name;
    const char *path;
    const char *layout; /* its name, or the path of its file */
    const struct trajd_index *index;
    /* RGB or BGR: the key `color`. UNDECIDED: the user must choose. TRAJD_COLOR_DEPTH: no key is
     * needed */
    enum trajd_image_color color;
    const char *color_source; /* the raw file, or the image of both readings; NULL: there is none */
};

/* Writes the configuration. With several datasets each has a feed of its own, train_NAME. */
void config_write(FILE *out, const struct config_dataset *datasets, uint32_t count,
                  const struct config_preset *preset);

/* ---- draft_outputs.c ---- */

/* Returns whether the stream is named as actions are. */
bool config_is_action(const struct trajd_index_stream *stream);

/* Writes "20 Hz", "20 Hz (assumed)", "100 Hz (measured)", or "" where the clock has no rate. */
void config_write_rate(const struct trajd_index *index, uint32_t clock,
                       char text[TRAJD_RATES_TEXT_SIZE]);

/* Returns the mean rate of a clock over the first kept episode with at least two rows, or 0. */
double config_mean_rate_hz(const struct trajd_index *index, uint32_t clock);

/* Returns the stream that the policy predicts, as far as names show it, or NULL. */
const struct trajd_index_stream *config_find_action(const struct trajd_index *index);

/* Writes a line for each stream, below `outputs:`. anchor: the clock of the anchors. Returns about
 * how many bytes a window takes. */
uint64_t config_write_outputs(FILE *out, const struct trajd_index *index, uint32_t anchor,
                              const struct config_preset *preset);

#endif
