/* The daemon's configuration: trajd.yaml, checked against its own rules. configs/trajd.yaml shows
 * every key at its default. */
#ifndef TRAJD_CONFIG_CONFIG_H
#define TRAJD_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/base/yaml.h"
#include "daemon/window/window_spec.h"

#define TRAJD_CONFIG_MAX_DATASETS 64
#define TRAJD_CONFIG_MAX_FEEDS 64
#define TRAJD_CONFIG_MAX_KEYS 64

struct trajd_tuning;

struct trajd_config_dataset {
    const char *name;
    const char *path;
    const char *layout;
};

struct trajd_config {
    /* directory of the sockets; NULL: $RUNTIME_DIRECTORY, else /run/trajd/main */
    const char *runtime;
    const char *cache;  /* directory of index caches; NULL: $CACHE_DIRECTORY, else none */
    const char *tuning; /* file of measured launch shapes of a GPU; NULL: none */
    const char *state;  /* directory of journals; NULL: $STATE_DIRECTORY, else none */
    /* whoever is in the runtime directory's group may read feeds; else our uid and root alone */
    bool group_access;
    const char *listen_tcp;  /* "ADDRESS:PORT" for remote workers; NULL: local ones alone */
    const char *listen_keys; /* directory of CURVE keys */
    /* a remote worker that says nothing for so long is taken for dead */
    int64_t worker_timeout_ns;
    bool insecure_loopback;  /* tcp without CURVE, on the loopback address alone */
    uint64_t cache_bytes;    /* of resident rows, over all datasets */
    uint64_t rings_bytes;    /* of all rings */
    const char *gpu_devices; /* "all", or numbers as CUDA counts: "0,2"; NULL: none is used */
    uint64_t gpu_rows_bytes, gpu_rings_bytes; /* of the memory of each of them */
    /* without them, or when they fail: in host memory; else the daemon ends */
    bool gpu_fall_back;
    /* that must stay free on the machine, and in the cgroup, beside cache and rings */
    uint64_t reserve_bytes;
    uint32_t reader_threads;   /* per dataset */
    uint32_t resample_threads; /* 0: one per processor */
    uint32_t index_children;   /* 0: one per processor */
    int64_t index_file_timeout_ns;
    uint32_t max_sessions, max_feeds, max_credit;
    /* a feed that a job sent is closed after that long without a session */
    int64_t feed_idle_ns;
    int64_t exit_idle_ns; /* the daemon ends after that long without a session; 0: never */
    /* a journal that nobody has touched for that long is removed; 0: never */
    int64_t journal_idle_ns;
    uint32_t dataset_count, feed_count;
    struct trajd_config_dataset datasets[TRAJD_CONFIG_MAX_DATASETS];
    struct trajd_window_spec *feeds[TRAJD_CONFIG_MAX_FEEDS];
    struct trajd_tuning *tuning_table; /* what it holds; NULL: none */
    struct trajd_yaml *yaml;           /* owns all strings but the paths, which are */
    char *resolved[2 * TRAJD_CONFIG_MAX_DATASETS + 5]; /* relative to the file's folder */
    uint32_t resolved_count;
    /* of the keys of config_keys.h: as they were written; NULL: nowhere */
    const char *texts[TRAJD_CONFIG_MAX_KEYS];
};

/* A key of the command line, "memory.cache=50%": in place of what the file says, or (is_preset)
 * where it says nothing. The text must live as long as the configuration. */
struct trajd_config_value {
    const char *text;
    bool is_preset;
};

/* Reads and checks `path`, then the values in their order. TRAJD_ERR_ARGUMENT: "FILE:LINE: KEY:
 * what". The caller destroys. */
enum trajd_status trajd_config_load(const char *path, const struct trajd_config_value *values,
                                    uint32_t value_count, struct trajd_config **config,
                                    struct trajd_error *error);
void trajd_config_destroy(struct trajd_config **config);

/* Every key with the value in force, as YAML (feeds as they were written). */
void trajd_config_print(const struct trajd_config *config, FILE *out);
/* The same as one JSON document, for programs. */
void trajd_config_print_json(const struct trajd_config *config, FILE *out);

#endif
