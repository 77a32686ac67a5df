/* Reads and checks the daemon's configuration, trajd.yaml. configs/trajd.yaml describes every key
 * and shows its default. */
#ifndef TRAJD_CONFIG_CONFIG_H
#define TRAJD_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/base/arena.h"
#include "daemon/base/defaults.h"
#include "daemon/base/yaml.h"
#include "daemon/layout/layout.h"
#include "daemon/window/feed_spec/window_spec.h"

#define TRAJD_CONFIG_MAX_DATASETS 64
#define TRAJD_CONFIG_MAX_FEEDS 64
#define TRAJD_CONFIG_MAX_KEYS 64
#define TRAJD_CONFIG_MAX_RATES 16

struct trajd_tuning;

struct trajd_config_dataset {
    const char *name;
    const char *path;
    const char *layout;
    struct trajd_rate rate; /* of its regular clocks; num 0: as the files and the layout say */
    uint32_t clock_rate_count;
    struct trajd_clock_rate clock_rates[TRAJD_CONFIG_MAX_RATES]; /* `rate:` of single clocks */
    enum trajd_image_color color; /* of encoded frames; TRAJD_COLOR_DEPTH: as the layout says */
    const char *media; /* the folder of media files of packed video; NULL: that of each HDF5 file */
    int64_t quarantine_at_most; /* episodes; -1: any number */
};

struct trajd_config {
    uint32_t version; /* of the format: 1 keeps the values and layouts of trajd 0.1.0; 2 */
    /* directory of the sockets; NULL: $RUNTIME_DIRECTORY, or /run/trajd/main without it */
    const char *runtime;
    const char *cache;  /* directory of caches; NULL: $CACHE_DIRECTORY, or none without it */
    const char *tuning; /* file of launch shapes measured on a GPU; NULL: none */
    const char *state;  /* directory of journals; NULL: $STATE_DIRECTORY, or none without it */
    /* true: members of the runtime directory's group may read feeds; false: our uid and root */
    bool group_access;
    const char *listen_tcp;  /* "ADDRESS:PORT" for remote workers; NULL: local workers only */
    const char *listen_keys; /* directory of CURVE keys */
    /* a remote worker that is silent for this time counts as dead */
    int64_t worker_timeout_ns;
    bool insecure_loopback;  /* tcp without CURVE, on a loopback address only */
    uint64_t cache_bytes;    /* memory.store: rows of all datasets */
    uint64_t rings_bytes;    /* memory.rings: slots of all feeds */
    const char *gpu_devices; /* "all", or numbers as CUDA counts: "0,2"; NULL: none is used */
    uint64_t gpu_rows_bytes, gpu_rings_bytes; /* budgets of each GPU's memory */
    /* where a GPU is missing or fails: true: batches are in host memory; false: the daemon ends */
    bool gpu_fall_back;
    /* must stay free on the machine and in the control group, beside cache and rings */
    uint64_t reserve_bytes;
    struct trajd_thread_counts threads;
    uint32_t index_children; /* 0: one per processor */
    int64_t index_file_timeout_ns;
    uint32_t max_sessions, max_feeds, max_credit;
    /* a feed that a job sent is closed after this time without a session */
    int64_t feed_idle_ns;
    int64_t exit_idle_ns; /* the daemon ends after this time without a session; 0: never */
    /* a journal that was not used for this time is removed; 0: never */
    int64_t journal_idle_ns;
    uint32_t dataset_count, feed_count;
    struct trajd_config_dataset datasets[TRAJD_CONFIG_MAX_DATASETS];
    struct trajd_window_spec *feeds[TRAJD_CONFIG_MAX_FEEDS];
    struct trajd_tuning *tuning_table; /* content of the file `tuning`; NULL: none */
    struct trajd_yaml *yaml;           /* owns all strings except those in `resolved` */
    char *folder;                      /* of the file, with symbolic links resolved */
    struct trajd_arena merged;         /* nodes of feeds that are `like` another one */
    char *resolved[2 * TRAJD_CONFIG_MAX_DATASETS + 5]; /* paths, resolved and owned */
    uint32_t resolved_count;
    /* the value of each key of config_keys.h as it was written; NULL: it was not */
    const char *texts[TRAJD_CONFIG_MAX_KEYS];
    bool is_set[TRAJD_CONFIG_MAX_KEYS]; /* by a value of the command line that is not a preset */
};

/* A value of the command line, "memory.store=50%". It overrides the file, or (is_preset) applies
 * only where neither the file nor another value that is not a preset has the key, in any order. The
 * text must live as long as the configuration. */
struct trajd_config_value {
    const char *text;
    bool is_preset;
};

/* Reads and checks the file `path`, then applies the values in their order. TRAJD_ERR_ARGUMENT: the
 * message is "FILE:LINE: KEY: REASON". The caller destroys. */
enum trajd_status trajd_config_load(const char *path, const struct trajd_config_value *values,
                                    uint32_t value_count, struct trajd_config **config,
                                    struct trajd_error *error);
void trajd_config_destroy(struct trajd_config **config);

/* Returns whether the file or the command line says what the key "SECTION.NAME" is. A default and a
 * preset do not count: they may give way to what the configuration needs. */
bool trajd_config_states(const struct trajd_config *config, const char *name);

/* Reads the files that the feed of a job names, if feeds of the configuration name each of them,
 * too: a job cannot let the daemon read others. */
enum trajd_status trajd_config_load_files(const struct trajd_config *config,
                                          struct trajd_window_spec *spec,
                                          struct trajd_error *error);

/* Reads the feed that a job sends. Where it has `like:`, *expanded is the text with the keys of
 * that feed of the configuration, which the caller frees; else NULL. */
enum trajd_status trajd_config_expand_feed(const struct trajd_config *config, const char *text,
                                           char **expanded, struct trajd_error *error);

/* Writes every key with the value in force, as YAML. Feeds are written as in the file, those with
 * `like:` in full. */
void trajd_config_print(const struct trajd_config *config, FILE *out);
/* Writes the same as one JSON document. */
void trajd_config_print_json(const struct trajd_config *config, FILE *out);

#endif
