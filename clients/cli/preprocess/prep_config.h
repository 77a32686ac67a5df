/* What a preprocessing is to do: a YAML file, checked. configs/preprocess.yaml shows every key. */
#ifndef TRAJD_CLI_PREPROCESS_PREP_CONFIG_H
#define TRAJD_CLI_PREPROCESS_PREP_CONFIG_H

#include "clients/cli/files/cli_files.h"
#include "clients/cli/files/examine.h"
#include "clients/cli/preprocess/prep_digest.h"
#include "daemon/base/yaml.h"
#include "clients/cli/resample/convert.h"

enum { PREP_MAX_ITEMS = 256 };

/* What a finding of `trajctl validate` means for a file. */
enum prep_verdict { PREP_REPORT, PREP_REFUSE, PREP_IGNORE };

struct prep_config {
    const char *path;
    char *folders[3]; /* inbox, outbox, quarantine: absolute */
    const char *inbox, *outbox, *quarantine;
    const char *files; /* pattern below the inbox */
    int64_t settle_ns;
    const char *layout;              /* NULL: the installed ones are tried */
    char layout_path[CLI_PATH_SIZE]; /* where `layout` is a path: resolved */
    struct trajd_rate rate;
    const char *filter;
    const char *streams[PREP_MAX_ITEMS];
    uint32_t stream_count;
    struct trajd_convert_rule rules[PREP_MAX_ITEMS + 2]; /* those of all streams first */
    uint32_t rule_count;
    enum trajd_convert_compress compress;
    uint32_t compress_level, thread_count; /* 0: by default */
    enum prep_verdict verdicts[EXAMINE_RULE_COUNT];
    struct trajd_yaml *yaml;            /* owns the texts */
    char text_digest[PREP_DIGEST_SIZE]; /* of the file as it was read */
    /* of all that decides what becomes of a file, the layout's text included */
    char recipe[PREP_DIGEST_SIZE];
};

/* TRAJD_ERR_ARGUMENT: "FILE:LINE: KEY: what". The caller clears. */
enum trajd_status prep_config_load(const char *path, const struct cli_files *files,
                                   struct prep_config *config, struct trajd_error *error);
/* The same of a text, which is named `path`, as far as it can be checked without looking at the
 * file system: no folders are resolved, no recipe is made. */
enum trajd_status prep_config_parse(const char *path, const char *text, size_t length,
                                    struct prep_config *config, struct trajd_error *error);
void prep_config_clear(struct prep_config *config);
/* Whether the file on the disk is another one by now. */
bool prep_config_has_changed(const struct prep_config *config);

#endif
