/* The configuration of trajctl preprocess: a YAML file that was checked. configs/preprocess.yaml
 * shows every key. */
#ifndef TRAJD_CLI_PREPROCESS_PREP_CONFIG_H
#define TRAJD_CLI_PREPROCESS_PREP_CONFIG_H

#include "clients/cli/files/cli_files.h"
#include "clients/cli/files/examine.h"
#include "clients/cli/preprocess/prep_place.h"
#include "daemon/base/yaml.h"
#include "clients/cli/resample/convert.h"

enum { PREP_MAX_ITEMS = 256 };

/* The effect of a finding of `trajctl validate` on a file. */
enum prep_verdict { PREP_REPORT, PREP_REFUSE, PREP_IGNORE };

struct prep_config {
    const char *path;
    char *folders[3]; /* inbox, outbox, quarantine: absolute paths */
    const char *inbox, *outbox, *quarantine;
    const char *files; /* pattern of paths relative to the inbox */
    int64_t settle_ns;
    const char *layout;              /* NULL: try the installed layouts */
    char layout_path[CLI_PATH_SIZE]; /* the resolved path, if `layout` is a path */
    struct trajd_rate assumed_rate;  /* replaces the layout's default; num 0: none */
    uint32_t version;
    /* how files are resampled; its streams and rules are those below */
    struct trajd_convert_options convert;
    enum trajd_dtype dtype; /* of all streams; 0: as recorded. A rule says so, too */
    int64_t max_gap_ns;     /* the same; 0: as the layout says */
    const char *streams[PREP_MAX_ITEMS];
    struct trajd_convert_rule rules[PREP_MAX_ITEMS + 2]; /* rules for all streams come first */
    enum prep_verdict verdicts[EXAMINE_RULE_COUNT];
    struct trajd_yaml *yaml;            /* owns the strings */
    char text_digest[PREP_DIGEST_SIZE]; /* of the file when it was read */
    /* digest of everything that decides the output of a file, including the layout's text */
    char recipe[PREP_DIGEST_SIZE];
};

/* Reads and checks a configuration. The caller clears it. TRAJD_ERR_ARGUMENT: "FILE:LINE: KEY:
 * cause". */
enum trajd_status prep_config_load(const char *path, const struct cli_files *files,
                                   struct prep_config *config, struct trajd_error *error);
/* Checks a text as far as possible without the file system: resolves no folders and computes no
 * recipe. `path` is the name for errors. */
enum trajd_status prep_config_parse(const char *path, const char *text, size_t length,
                                    struct prep_config *config, struct trajd_error *error);
void prep_config_clear(struct prep_config *config);
/* Returns whether the file on the disk differs from the one that was read. */
bool prep_config_has_changed(const struct prep_config *config);

#endif
