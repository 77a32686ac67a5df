/* Reads the YAML file of trajctl preprocess, checks its keys, and makes its three folders. */
#include "clients/cli/preprocess/prep_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/base/files.h"
#include "daemon/base/memory.h"
#include "proto/array_len.h"

#define SECOND INT64_C(1000000000)
#define AT(member) offsetof(struct prep_config, member)
#define MAX_TEXT_BYTES (1 << 20)

static const char *const verdict_words[] = {"report", "refuse", "ignore", NULL};
static const char *const compress_words[] = {"keep", "none", "gzip", NULL};

/* ---- keys ---- */

/* Reads a text, which stays in the document. */
static enum trajd_status read_text(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, void *text)
{
    return trajd_yaml_string(r->yaml, node, text, r->error);
}

static enum trajd_status read_streams(const struct trajd_yaml_reader *r,
                                      const struct trajd_yaml_node *node, void *object)
{
    struct prep_config *config = object;
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_SEQUENCE || !node->child_count ||
        node->child_count > PREP_MAX_ITEMS)
        return trajd_yaml_error(r->yaml, node, r->error, "must be a list of 1 to %d streams",
                                PREP_MAX_ITEMS);
    for (const struct trajd_yaml_node *item = node->children; item && !status; item = item->next)
        status = read_text(r, item, &config->streams[config->convert.stream_count++]);
    return status;
}

static enum trajd_status read_dtype(const struct trajd_yaml_reader *r,
                                    const struct trajd_yaml_node *node, void *member)
{
    enum trajd_dtype *dtype = member;
    const char *word;
    enum trajd_status status = read_text(r, node, &word);

    if (status)
        return status;
    *dtype = trajd_dtype_parse(word);
    if (*dtype != TRAJD_F16 && *dtype != TRAJD_F32 && *dtype != TRAJD_F64)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "%s is not one of float16, float32 and float64", word);
    return TRAJD_OK;
}

static enum trajd_status read_time(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, void *ns)
{
    enum trajd_status status = trajd_yaml_duration(r->yaml, node, ns, r->error);

    if (!status && *(int64_t *)ns <= 0)
        status = trajd_yaml_error(r->yaml, node, r->error, "%s is not a time above 0", node->value);
    return status;
}

static enum trajd_status read_settle(const struct trajd_yaml_reader *r,
                                     const struct trajd_yaml_node *node, void *member)
{
    const int64_t *ns = member;
    enum trajd_status status = trajd_yaml_duration(r->yaml, node, member, r->error);

    if (!status && (*ns < 0 || *ns > 3600 * SECOND))
        status =
            trajd_yaml_error(r->yaml, node, r->error, "%s is not between 0s and 1h", node->value);
    return status;
}

static enum trajd_status read_kind(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, void *rule)
{
    struct trajd_error why;
    const char *word;
    enum trajd_status status = read_text(r, node, &word);

    if (!status && trajd_convert_rule_set_kind(rule, word, &why))
        status = trajd_yaml_error(r->yaml, node, r->error, "%s", why.message);
    return status;
}

static struct trajd_convert_rule *add_rule(struct prep_config *config, const char *stream)
{
    struct trajd_convert_rule *rule = &config->rules[config->convert.rule_count++];

    *rule = (struct trajd_convert_rule){.stream = stream, .kind = TRAJD_CONVERT_NO_KIND};
    return rule;
}

/* Reads how each of some streams is converted. */
static enum trajd_status read_each(const struct trajd_yaml_reader *r, struct prep_config *config,
                                   const struct trajd_yaml_node *node)
{
    static const struct trajd_yaml_key keys[] = {
        {"kind", .read = read_kind},
        {"dtype", .offset = offsetof(struct trajd_convert_rule, dtype), .read = read_dtype},
        {"window", .offset = offsetof(struct trajd_convert_rule, window_ns), .read = read_time},
        {"max_gap", .offset = offsetof(struct trajd_convert_rule, max_gap_ns), .read = read_time},
    };
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_MAPPING || node->child_count >= PREP_MAX_ITEMS)
        return trajd_yaml_error(r->yaml, node, r->error, "must be a mapping of at most %d streams",
                                PREP_MAX_ITEMS - 1);
    for (const struct trajd_yaml_node *item = node->children; item && !status; item = item->next) {
        if (item->kind != TRAJD_YAML_MAPPING)
            return trajd_yaml_error(
                r->yaml, item, r->error,
                "must be {kind: NAME, dtype: NAME, window: TIME, max_gap: TIME}");
        status =
            trajd_yaml_read_keys(r, item, NULL, keys, ARRAY_LEN(keys), add_rule(config, item->key));
    }
    return status;
}

static enum trajd_status read_resample(const struct trajd_yaml_reader *r,
                                       const struct trajd_yaml_node *node, void *object)
{
    static const struct trajd_yaml_key keys[] = {
        {"streams", .read = read_streams},
        {"filter", .offset = AT(convert.filter), .read = read_text},
        {"dtype", .offset = AT(dtype), .read = read_dtype},
        {"max_gap", .offset = AT(max_gap_ns), .read = read_time},
        {"each", .type = TRAJD_YAML_LATER},
        {"compress", TRAJD_YAML_CHOICE, .offset = AT(convert.compress), .words = compress_words},
        {"compress_level", TRAJD_YAML_U32, .offset = AT(convert.compress_level), .low = 1,
         .high = 9},
    };
    struct prep_config *config = object;
    const struct trajd_yaml_node *each;
    enum trajd_status status;

    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(r->yaml, node, r->error, "must be a mapping of keys");
    status = trajd_yaml_read_keys(r, node, NULL, keys, ARRAY_LEN(keys), config);
    if (config->dtype)
        add_rule(config, NULL)->dtype = config->dtype;
    if (config->max_gap_ns)
        add_rule(config, NULL)->max_gap_ns = config->max_gap_ns;
    each = trajd_yaml_get(node, "each");
    return status || !each ? status : read_each(r, config, each);
}

static enum trajd_status read_rules(const struct trajd_yaml_reader *r,
                                    const struct trajd_yaml_node *node, void *object)
{
    struct prep_config *config = object;
    enum trajd_status status;

    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(r->yaml, node, r->error, "must be {RULE: refuse|report|ignore}");
    status = trajd_yaml_check_keys(r->yaml, node, examine_rule_names, r->error);
    for (int rule = 0; rule < EXAMINE_RULE_COUNT && !status; rule++) {
        const struct trajd_yaml_node *child = trajd_yaml_get(node, examine_rule_names[rule]);
        int choice;
        if (!child)
            continue;
        status = trajd_yaml_choice(r->yaml, child, verdict_words, &choice, r->error);
        if (!status && rule == EXAMINE_ASSUMED_RATE)
            status = trajd_yaml_error(r->yaml, child, r->error,
                                      "is set by the key `assume_rate:`: write assume_rate: true "
                                      "to accept the layout's default");
        if (!status && choice != PREP_REFUSE && rule == EXAMINE_REFUSED)
            status = trajd_yaml_error(r->yaml, child, r->error,
                                      "a file without an episode is always refused");
        if (!status)
            config->verdicts[rule] = (enum prep_verdict)choice;
    }
    return status;
}

/* Reads "assume_rate: true", which accepts the layout's default, or a rate that replaces it. */
static enum trajd_status read_assumed_rate(const struct trajd_yaml_reader *r,
                                           const struct trajd_yaml_node *node, void *object)
{
    struct prep_config *config = object;

    if (!trajd_yaml_bool(r->yaml, node, &config->convert.accepts_assumed_rates, r->error))
        return TRAJD_OK;
    config->convert.accepts_assumed_rates = true;
    return trajd_yaml_rate(r->yaml, node, &config->assumed_rate, r->error)
               ? trajd_yaml_error(r->yaml, node, r->error,
                                  "must be true (the layout's default is accepted), false, or a "
                                  "rate in Hz")
               : TRAJD_OK;
}

static enum trajd_status read_root(struct prep_config *config, struct trajd_error *error)
{
    static const struct trajd_yaml_key keys[] = {
        {"version", TRAJD_YAML_U32, .offset = AT(version), .low = 1, .high = 1},
        {"inbox", .offset = AT(inbox), .read = read_text},
        {"outbox", .offset = AT(outbox), .read = read_text},
        {"quarantine", .offset = AT(quarantine), .read = read_text},
        {"files", .offset = AT(files), .read = read_text},
        {"settle", .offset = AT(settle_ns), .read = read_settle},
        {"layout", .offset = AT(layout), .read = read_text},
        {"rate", TRAJD_YAML_RATE, .offset = AT(convert.rate)},
        {"threads", TRAJD_YAML_U32, .offset = AT(convert.thread_count), .high = 64},
        {"resample", .read = read_resample},
        {"rules", .read = read_rules},
        {"assume_rate", .read = read_assumed_rate},
    };
    static const char *const needed[] = {"version", "inbox", "outbox", "quarantine", "rate"};
    const struct trajd_yaml_node *root = trajd_yaml_root(config->yaml);
    const struct trajd_yaml_reader reader = {.yaml = config->yaml, .error = error};
    enum trajd_status status;

    if (root->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(config->yaml, root, error, "must be a mapping of keys");
    status = trajd_yaml_read_keys(&reader, root, NULL, keys, ARRAY_LEN(keys), config);
    for (size_t i = 0; i < ARRAY_LEN(needed) && !status; i++)
        if (!trajd_yaml_get(root, needed[i]))
            status = trajd_yaml_error(config->yaml, root, error, "the key `%s:%s` is missing",
                                      needed[i], i ? "" : " 1");
    config->verdicts[EXAMINE_ASSUMED_RATE] =
        config->convert.accepts_assumed_rates ? PREP_REPORT : PREP_REFUSE;
    return status;
}

enum trajd_status prep_config_parse(const char *path, const char *text, size_t length,
                                    struct prep_config *config, struct trajd_error *error)
{
    enum trajd_status status;

    *config = (struct prep_config){.path = path,
                                   .files = "**/*.hdf5",
                                   .settle_ns = 10 * SECOND,
                                   .convert = {.streams = config->streams, .rules = config->rules}};
    for (int r = 0; r < EXAMINE_RULE_COUNT; r++)
        config->verdicts[r] = r == EXAMINE_REFUSED || r == EXAMINE_UNREADABLE ||
                                      r == EXAMINE_NOT_FINITE || r == EXAMINE_NOT_UNIT
                                  ? PREP_REFUSE
                                  : PREP_REPORT;
    prep_digest_bytes(text, length, config->text_digest);
    status = trajd_yaml_parse(path, text, length, &config->yaml, error);
    return status ? status : read_root(config, error);
}

void prep_config_clear(struct prep_config *config)
{
    for (int f = 0; f < 3; f++)
        free(config->folders[f]);
    trajd_yaml_destroy(&config->yaml);
    *config = (struct prep_config){0};
}

/* ---- the file on the disk, and its paths ---- */

/* Returns "FOLDER/NAME", or NAME if it is absolute. The caller frees it. */
static char *resolve(const char *folder, const char *name)
{
    char *path;

    if (asprintf(&path, "%s%s%s", *name == '/' ? "" : folder, *name == '/' ? "" : "/", name) < 0)
        trajd_memory_or_exit(NULL);
    return path;
}

/* Makes the folder if it is missing. The mode of the inbox lets the group write to it. */
static enum trajd_status make_folder(const char *path, mode_t mode, struct trajd_error *error)
{
    const enum trajd_status status = prep_make_parents(path, error);

    if (status)
        return status;
    if (mkdir(path, mode) == 0)
        return chmod(path, mode) ? trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "%s: %s", path,
                                                   strerror(errno))
                                 : TRAJD_OK;
    return errno == EEXIST
               ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "%s: %s", path, strerror(errno));
}

static bool lies_in(const char *path, const char *folder)
{
    const size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (!path[length] || path[length] == '/');
}

/* Makes and resolves the three folders, so that none lies inside another one under a second
 * name. */
static enum trajd_status find_folders(struct prep_config *config, const char *folder,
                                      struct trajd_error *error)
{
    const char **names[] = {&config->inbox, &config->outbox, &config->quarantine};
    static const mode_t modes[] = {0770, 0750, 0750};

    for (int f = 0; f < 3; f++) {
        char *path = resolve(folder, *names[f]);
        enum trajd_status status = make_folder(path, modes[f], error);
        config->folders[f] = status ? NULL : realpath(path, NULL);
        if (!status && !config->folders[f])
            status =
                trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "%s: %s", path, strerror(errno));
        free(path);
        if (status)
            return status;
        *names[f] = config->folders[f];
    }
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++)
            if (a != b && lies_in(config->folders[a], config->folders[b]))
                return trajd_error_set(
                    error, TRAJD_ERR_ARGUMENT, 0,
                    "%s: %s is in %s: inbox, outbox and quarantine must not contain each other",
                    config->path, config->folders[a], config->folders[b]);
    return TRAJD_OK;
}

/* Refuses a layout with guesses before any file is touched. */
static enum trajd_status check_layout(const char *path, const char *text, size_t length,
                                      struct trajd_error *error)
{
    struct trajd_layout *layout;
    enum trajd_status status = trajd_layout_parse(path, text, length, &layout, error);

    if (status)
        return status;
    status = trajd_layout_check_guesses(layout, error);
    trajd_layout_destroy(&layout);
    return status;
}

static enum trajd_status digest_layout(struct prep_config *config, const char *folder,
                                       const struct cli_files *files, char digest[PREP_DIGEST_SIZE],
                                       struct trajd_error *error)
{
    struct trajd_error unreadable;
    size_t length = 0;
    char *path = NULL, *text;
    enum trajd_status status;

    prep_digest_bytes("", 0, digest);
    if (!config->layout)
        return TRAJD_OK;
    if (strchr(config->layout, '/'))
        path = resolve(folder, config->layout);
    else if (asprintf(&path, "%s/%s.yaml", files->layouts, config->layout) < 0)
        trajd_memory_or_exit(NULL);
    if (strlen(path) >= sizeof config->layout_path
            ? trajd_error_set(&unreadable, TRAJD_ERR_ARGUMENT, ENAMETOOLONG, "%s: %s", path,
                              strerror(ENAMETOOLONG))
            : trajd_file_read(path, MAX_TEXT_BYTES, &text, &length, &unreadable)) {
        trajd_yaml_error(config->yaml, trajd_yaml_get(trajd_yaml_root(config->yaml), "layout"),
                         error, "%s", unreadable.message);
        free(path);
        return TRAJD_ERR_ARGUMENT;
    }
    if (strchr(config->layout, '/')) {
        strcpy(config->layout_path, path);
        config->layout = config->layout_path;
    }
    prep_digest_bytes(text, length, digest);
    status = check_layout(path, text, length, error);
    free(text);
    free(path);
    return status;
}

/* Computes the recipe. It leaves out the folders and `settle`: a change of those makes no output
 * again. */
static void make_recipe(struct prep_config *config, const char *layout_digest)
{
    const struct trajd_convert_options *convert = &config->convert;
    char *text = NULL;
    size_t size = 0;
    FILE *out = trajd_memory_or_exit(open_memstream(&text, &size));

    fprintf(out, "1 %s %lld/%lld %s %d %u", layout_digest, (long long)convert->rate.num,
            (long long)convert->rate.den, convert->filter ? convert->filter : "", convert->compress,
            convert->compress_level);
    for (uint32_t s = 0; s < convert->stream_count; s++)
        fprintf(out, "\n%s", convert->streams[s]);
    for (uint32_t r = 0; r < convert->rule_count; r++) {
        const struct trajd_convert_rule *rule = &convert->rules[r];
        fprintf(out, "\n%s\t%d %d %d %lld %lld", rule->stream ? rule->stream : "", rule->kind,
                rule->layout_order, rule->dtype, (long long)rule->window_ns,
                (long long)rule->max_gap_ns);
    }
    for (int r = 0; r <= EXAMINE_IDLE; r++)
        if (r != EXAMINE_ASSUMED_RATE)
            fprintf(out, " %d", config->verdicts[r] == PREP_REFUSE);
    /* Later rules and keys stand here only where they are set, so that the recipes of earlier
     * versions stay the same. */
    for (int r = EXAMINE_IDLE + 1; r < EXAMINE_RULE_COUNT; r++)
        if (config->verdicts[r] == PREP_REFUSE)
            fprintf(out, " %s", examine_rule_names[r]);
    if (convert->accepts_assumed_rates)
        fprintf(out, "\nassume %lld/%lld", (long long)config->assumed_rate.num,
                (long long)config->assumed_rate.den);
    trajd_memory_close_or_exit(out, &text);
    prep_digest_bytes(text, size, config->recipe);
    free(text);
}

enum trajd_status prep_config_load(const char *path, const struct cli_files *files,
                                   struct prep_config *config, struct trajd_error *error)
{
    char layout_digest[PREP_DIGEST_SIZE], *real = realpath(path, NULL), *text;
    size_t length = 0;
    enum trajd_status status;

    *config = (struct prep_config){0};
    if (!real)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, errno, "%s: %s", path, strerror(errno));
    status = trajd_file_read(path, MAX_TEXT_BYTES, &text, &length, error);
    if (status) {
        free(real);
        return status;
    }
    status = prep_config_parse(path, text, length, config, error);
    free(text);
    *strrchr(real, '/') = 0;
    if (!status)
        status = digest_layout(config, real, files, layout_digest, error);
    if (!status)
        status = find_folders(config, real, error);
    if (!status)
        make_recipe(config, layout_digest);
    free(real);
    return status;
}

bool prep_config_has_changed(const struct prep_config *config)
{
    char digest[PREP_DIGEST_SIZE], *text;
    struct trajd_error error;
    size_t length;

    trajd_file_read(config->path, MAX_TEXT_BYTES, &text, &length, &error);
    if (text)
        prep_digest_bytes(text, length, digest);
    free(text);
    return !text || strcmp(digest, config->text_digest) != 0;
}
