/* What `trajctl init --preset` knows about a trainer. */
#ifndef TRAJD_CLI_DRAFT_DRAFT_TRAINER_H
#define TRAJD_CLI_DRAFT_DRAFT_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/index/index.h"

struct config_preset {
    const char *name;         /* also of the `style=` in Python; "": no trainer was named */
    const char *observations; /* steps, and other keys of all observations */
    const char *actions;      /* steps */
    const char *pad;
    const char *norm;      /* of what is no picture; NULL: none */
    const char *windows;   /* NULL: each row */
    const char *action;    /* `preset:` of the actions; NULL: there is none */
    const char *image;     /* `preset:` of pictures */
    const char *otherwise; /* keys of pictures whose frames do not fit it; NULL: {} */
    const char *state;     /* the one output of numbers that the style reads; NULL: it reads all */
    bool stacks;           /* all pictures have one size */
    bool has_wrist;        /* wrist cameras have keys of their own */
    const char *note;      /* a comment for the user; NULL: none */
};

/* Returns the preset; for NULL one that suits most trainers. Returns NULL, with the error, for
 * another name. */
const struct config_preset *config_preset_find(const char *name, struct trajd_error *error);

/* A size that pictures are resized to; height 0: they keep theirs. */
struct config_size {
    uint32_t height, width;
};

/* Returns whether the stream has pictures of three colours. */
bool config_is_colour(const struct trajd_index_stream *stream);

/* Writes the keys of an output of such a stream, from "image:" on, and the bytes of a frame of it.
 * Returns TRAJD_OK, or why the frames do not fit the preset of the trainer's pictures: then the keys
 * are others. */
enum { CONFIG_KEYS_SIZE = 512 };
enum trajd_status config_picture_keys(const struct config_preset *preset,
                                      const struct trajd_index_stream *stream,
                                      const struct config_size *size, char keys[CONFIG_KEYS_SIZE],
                                      uint64_t *frame_bytes, struct trajd_error *error);

#endif
