/* A layout: how a family of HDF5 files maps to episodes, clocks and streams. It is read from YAML
 * (configs/layouts/), strictly: an unknown key is an error. configs/layouts/template.yaml documents
 * every key. A layout does not change after loading, so threads may share it. */
#ifndef TRAJD_LAYOUT_LAYOUT_H
#define TRAJD_LAYOUT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "daemon/layout/layout_image.h"
#include "kernels/resample.h"
#include "proto/timebase.h"
#include "proto/error.h"

enum trajd_stamp_unit { TRAJD_UNIT_NS, TRAJD_UNIT_US, TRAJD_UNIT_MS, TRAJD_UNIT_S };

/* The policy for a stamp that is equal to or before its predecessor. NaN and infinite stamps are
 * always errors. */
enum trajd_stamp_policy {
    TRAJD_STAMPS_ERROR = 0, /* the episode is quarantined with the row as the reason */
    TRAJD_STAMPS_DROP = 1,  /* the later row is dropped and counted */
    TRAJD_STAMPS_KEEP_LAST =
        2, /* the earlier rows whose stamps are not below the later one are dropped and counted */
};

/* Where the rate of a clock comes from. */
enum trajd_rate_source {
    TRAJD_RATE_MEASURED = 0, /* from recorded stamps */
    TRAJD_RATE_DECLARED = 1, /* stated by the configuration or by the file */
    TRAJD_RATE_ASSUMED = 2,  /* only the layout says so, by its rate or its default */
};

/* What the number is that a file states for a rate. */
enum trajd_rate_unit {
    TRAJD_RATE_HZ_LIKELY = 0, /* the layout does not say: Hz, and a number below 1 is refused */
    TRAJD_RATE_HZ,
    TRAJD_RATE_S, /* a period */
    TRAJD_RATE_MS,
    TRAJD_RATE_US,
};

/* The rate of a clock that is given from outside, by the clock's name. */
struct trajd_clock_rate {
    const char *clock;
    struct trajd_rate rate;
};

struct trajd_layout_clock {
    const char *name;
    /* Regular clocks. The rate stands here, in an attribute or a dataset of one value, or in a JSON
     * text inside one. */
    struct trajd_rate rate; /* num 0: in the attribute or dataset */
    /* OBJECT@NAME, as "/data@env_args" or "@fs"; the object is relative to the episode unless it
     * begins with '/'. NULL: no attribute */
    const char *rate_attribute;
    const char *rate_path; /* of the dataset, relative like the object; NULL: no dataset */
    enum trajd_rate_unit rate_unit;
    const char *rate_json; /* path inside the JSON text, "env_kwargs.control_freq"; or NULL */
    /* assumed where the attribute or dataset is absent; num 0: then the episode is quarantined */
    struct trajd_rate rate_default;
    const char *rows; /* stream that gives the row count; NULL: the longest of the clock */
    /* A clock that `rows: every N` of a stream makes: it has `multiple` rows for each row of the clock
     * `multiple_of`, and so many times its rate. 0: the layout names the clock itself. */
    uint32_t multiple;
    uint32_t multiple_of; /* number of the clock */
    /* Stamped clocks. The stamps are an array, or one of its columns. */
    /* NULL for a regular clock. A '*' matches one array of each episode. */
    const char *stamps_path;
    uint32_t stamps_column;
    enum trajd_stamp_unit unit;
    enum trajd_stamp_policy repeated; /* for equal stamps */
    enum trajd_stamp_policy backward; /* for stamps that go back */
    /* an episode is quarantined if the policies drop more of its rows */
    double lost_rows_percent;
    /* Both. */
    /* path of one value: the time of the first row of a regular clock beside stamped ones; or
     * NULL */
    const char *start_path;
    enum trajd_stamp_unit start_unit;
    int64_t offset_ns;  /* added to every stamp, for clocks of different machines */
    int64_t latency_ns; /* subtracted from every stamp: from its arrival to its sensing */
};

enum trajd_rotation_order { TRAJD_ORDER_NONE, TRAJD_ORDER_XYZW, TRAJD_ORDER_WXYZ };

/* A stream, or a family of streams. A family's name and path hold one '*' each, which stands for
 * the same text in both (robomimic: any name that ends in _quat). An array belongs to the first
 * stream in file order whose path matches it. Streams whose names have no '*' may share an array.
 * A '*' in the path of such a stream matches one array of each episode (a camera's serial number);
 * no family has this array. */
struct trajd_layout_stream {
    const char *name;
    const char *path; /* relative to the episode's group */
    const char *clock;
    enum trajd_kind kind;  /* slerp includes the order of the quaternion */
    uint32_t column_begin; /* columns [begin, end) of an array of rank 2; end 0: all */
    uint32_t column_end;
    double angle_period; /* of kind angle: 2 pi; 360 where the unit is deg */
    const char *unit;    /* free text for readers, or NULL */
    int64_t max_gap_ns;  /* < 0: none */
    /* false: an episode without the stream is quarantined; families are always optional */
    bool optional;
    /* the array has exactly one row more than the clock, the last one, which is left out */
    bool drops_last_row;
    /* Rows come when something happens: the last one counts until the end of the episode. */
    bool is_event;
    uint32_t rows_per_row; /* rows: every N: this number for each row of the clock; 0: one */
    /* semantics: delta: a row is a difference, and the rows of a step are added */
    bool is_delta;
    struct trajd_layout_image image; /* where the rows are frames of a camera */
};

/* How the arrays of one group are cut into episodes that lie one after another in them. */
enum trajd_split_kind {
    TRAJD_SPLIT_NONE = 0, /* a group is one episode */
    TRAJD_SPLIT_FLAGS,    /* a row in which one of the arrays is not 0 is the last of its episode */
    TRAJD_SPLIT_LENGTHS,  /* the rows of each episode */
    TRAJD_SPLIT_ENDS,     /* the row after each episode */
    TRAJD_SPLIT_STARTS,   /* the first row of each episode */
};

#define TRAJD_LAYOUT_SPLIT_PATHS_MAX 8

struct trajd_layout_split {
    enum trajd_split_kind kind;
    uint32_t path_count;                             /* several only of flags */
    const char *paths[TRAJD_LAYOUT_SPLIT_PATHS_MAX]; /* relative to the group */
    /* of flags: a row of next_path that is not the following row of rows_path ends its episode, too;
     * NULL: there are none */
    const char *rows_path, *next_path;
};

#define TRAJD_LAYOUT_CLOCKS_MAX 256
#define TRAJD_LAYOUT_METAS_MAX 16
#define TRAJD_LAYOUT_META_NAME_MAX 64

/* How the entry of an episode is found in a JSON file. */
enum trajd_text_key {
    TRAJD_TEXT_KEY_NONE = 0, /* the file has one entry */
    TRAJD_TEXT_KEY_EPISODE,  /* by the episode's name */
    TRAJD_TEXT_KEY_NUMBER,   /* by the last number in it */
    TRAJD_TEXT_KEY_FILE,     /* by the data file's path below the dataset, its name, or its stem */
    TRAJD_TEXT_KEY_ATTRIBUTE /* by the text of `attribute` */
};

/* A text of an episode, such as its task in words. It stands in an attribute, in a dataset of one
 * text, or in a field of the JSON in either. Objects and datasets are relative to the episode
 * unless they begin with '/'; "../" goes one group up. */
struct trajd_layout_meta {
    const char *name;
    const char *attribute; /* OBJECT@NAME, or NULL */
    const char *path;      /* of a dataset, or NULL; one of both is set */
    const char *json;      /* path inside the JSON text, "a.b"; or NULL */
    bool required;         /* an episode without the text is quarantined */
    /* Of a text in a JSON file beside the data file. NULL: in the data file. Relative to the data
     * file's folder; "{stem}" stands for its name without the extension. */
    const char *file;
    const char *list; /* path of the list or mapping of entries; NULL: the whole document */
    enum trajd_text_key by;
    const char *key;    /* field of an entry in a list that is compared; NULL: a mapping */
    bool picks_by_hash; /* of several texts: by the hash of the episode's name, not the first */
};

struct trajd_layout {
    const char *name;
    bool is_version_1; /* NAME@1, which version 1 of a configuration takes for NAME */
    /* glob below the dataset's path, '**' allowed; used where that path is a folder */
    const char *files;
    /* glob of the episodes' groups, as "/" or "/data/demo_*"; '*' matches within one component */
    const char *groups;
    struct trajd_layout_split split;
    const char *filter_path; /* "/mask/{key}": string datasets that list episodes; or NULL */
    uint32_t clock_count;
    const struct trajd_layout_clock *clocks;
    uint32_t stream_count;
    const struct trajd_layout_stream *streams;
    uint32_t meta_count;
    const struct trajd_layout_meta *metas;
    /* paths below an episode, each with at most one '*': arrays that hold no rows, even if one of
     * their extents equals a row count */
    uint32_t table_count;
    const char *const *tables;
    /* entries of `guessed:`: what a draft only guessed, and nobody has confirmed */
    uint32_t guess_count;
    const char *guess;   /* of the first entry: its line, and what to do; NULL: there is none */
    uint64_t hash;       /* of the normalised content; part of the cache's key */
    uint64_t order_hash; /* the same without the keys `image`; part of the fingerprint */
    const char *text;    /* the YAML as read; the helper program gets it */
    size_t text_length;
};

/* Returns whether the stream is a family. */
static inline bool trajd_layout_is_family(const struct trajd_layout_stream *stream)
{
    return strchr(stream->name, '*') != NULL;
}
/* Returns whether episodes are /data/demo_N, as in robomimic's files. */
static inline bool trajd_layout_is_robomimic(const struct trajd_layout *layout)
{
    return strcmp(layout->groups, "/data/demo_*") == 0;
}
/* Returns whether the path has a '*' and is that of a clock's stamps or of a stream that is
 * not a family: it stands for one array of each episode. */
bool trajd_layout_is_pattern(const struct trajd_layout *layout, const char *path);

/* Returns whether a clock or a stream that is not optional needs the array. An episode without it is
 * quarantined. */
bool trajd_layout_requires(const struct trajd_layout *layout, const char *path);

/* Tells whether a layout is named by the path of its file: it has a slash, or ends in .yaml. */
bool trajd_layout_is_path(const char *name);

/* Loads a layout. `name` is the path of a .yaml file, or a bare name that is looked up in
 * `directory`. version 1, of a configuration: where the directory has NAME@1, the layout of trajd
 * 0.1.0, that is taken. TRAJD_ERR_NOT_FOUND lists the names in the directory; TRAJD_ERR_ARGUMENT
 * names the line of a mistake. The caller destroys the layout. */
enum trajd_status trajd_layout_load(const char *name, const char *directory, uint32_t version,
                                    struct trajd_layout **layout, struct trajd_error *error);
/* Parses a layout's text. `name` stands in front of errors. */
enum trajd_status trajd_layout_parse(const char *name, const char *text, size_t length,
                                     struct trajd_layout **layout, struct trajd_error *error);
void trajd_layout_destroy(struct trajd_layout **layout);
/* Returns TRAJD_ERR_ARGUMENT where the layout has guesses left; the message names the line of the
 * first one. For whatever delivers or writes values. */
enum trajd_status trajd_layout_check_guesses(const struct trajd_layout *layout,
                                             struct trajd_error *error);

/* Returns where the file states the rate of a regular clock: its attribute or its dataset. NULL:
 * nowhere. */
const char *trajd_layout_rate_place(const struct trajd_layout_clock *clock);
/* Returns how many units of the stated period are a second; 0 where a rate in Hz is stated. */
uint32_t trajd_layout_units_per_second(const struct trajd_layout_clock *clock);
/* Reads the number that a file states as a rate. False where it is none. */
bool trajd_layout_read_rate(const struct trajd_layout_clock *clock, const char *text,
                            struct trajd_rate *rate);
/* Returns "measured", "declared" or "assumed". */
const char *trajd_rate_source_name(enum trajd_rate_source source);
/* Checks that one rate can replace the rates of the layout: there is a regular clock, and all
 * regular clocks have their rate from the same place. TRAJD_ERR_ARGUMENT names the clocks. */
enum trajd_status trajd_layout_check_one_rate(const struct trajd_layout *layout,
                                              struct trajd_error *error);
/* Checks that each rate is of a regular clock of the layout. TRAJD_ERR_ARGUMENT names the clock. */
enum trajd_status trajd_layout_check_rates(const struct trajd_layout *layout,
                                           const struct trajd_clock_rate *rates, uint32_t count,
                                           struct trajd_error *error);

/* Returns what the layout says about the frames of an array, by its path in a record. NULL: its
 * streams have no key `image`. */
const struct trajd_layout_image *trajd_layout_image_of(const struct trajd_layout *layout,
                                                       const char *path);

/* Returns whether the text matches a pattern with at most one '*', which stands for one character
 * or more but not for '/'. Copies the text of the '*' to `capture` unless that is NULL; returns
 * false where it does not fit. Without a '*' `capture` is left alone. */
bool trajd_layout_match(const char *pattern, const char *text, char *capture, size_t capture_size);

#endif
