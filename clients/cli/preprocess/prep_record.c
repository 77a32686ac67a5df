/* Writes and reads the manifest or the report of one file. */
#include "clients/cli/preprocess/prep_record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/files.h"
#include "daemon/base/json.h"
#include "daemon/base/memory.h"
#include "daemon/base/yaml.h"

#define MAX_RECORD_BYTES (1 << 20) /* as in trajd_yaml_load */

static void write_identity(struct trajd_json *json, const char *title, const char *name,
                           const struct prep_identity *identity)
{
    trajd_json_open_object(json, title);
    trajd_json_string(json, "name", name);
    trajd_json_u64(json, "size_bytes", identity->size_bytes);
    trajd_json_i64(json, "mtime_ns", identity->mtime_ns);
    if (identity->ctime_ns)
        trajd_json_i64(json, "ctime_ns", identity->ctime_ns);
    trajd_json_string(json, "sha256", identity->sha256);
    trajd_json_close_object(json);
}

/* Writes an array of elements that are JSON already. */
static void write_elements(struct trajd_json *json, const char *title, const char *elements)
{
    trajd_json_open_array(json, title);
    if (elements && *elements)
        trajd_json_raw(json, NULL, elements);
    trajd_json_close_array(json);
}

void prep_record_write(const struct prep_record *record, FILE *out)
{
    struct trajd_json json = {.out = out};

    trajd_json_open_object(&json, NULL);
    trajd_json_u64(&json, "version", 1);
    trajd_json_string(&json, "state",
                      record->is_refused     ? "refused"
                      : record->output_count ? "published"
                                             : "begun");
    if (record->is_refused)
        trajd_json_string(&json, "reason", record->reason);
    write_identity(&json, "source", record->name, &record->source);
    if (record->output_count)
        write_identity(&json, "output", record->outputs[0].name, &record->outputs[0].identity);
    if (record->output_count > 1) {
        trajd_json_open_array(&json, "parts");
        for (uint32_t i = 0; i < record->output_count; i++)
            write_identity(&json, NULL, record->outputs[i].name, &record->outputs[i].identity);
        trajd_json_close_array(&json);
    }
    trajd_json_string(&json, "recipe", record->recipe);
    trajd_json_string(&json, "layout", record->layout);
    trajd_json_number(&json, "rate_hz", "%.17g", record->rate_hz);
    if (record->rates.episode_count)
        trajd_json_string(&json, "rate_source", trajd_rate_source_name(record->rates.source));
    if (record->rates.highest_hz)
        trajd_json_number(&json, "source_rate_hz", "%.17g", record->rates.highest_hz);
    trajd_json_string(&json, "trajd", TRAJD_VERSION);
    if (!record->is_refused) {
        trajd_json_u64(&json, "episodes", record->episodes);
        trajd_json_u64(&json, "left_out", record->left_out);
        trajd_json_u64(&json, "cut", record->cut);
    }
    trajd_json_u64(&json, "finding_count", record->finding_count);
    write_elements(&json, "findings", record->findings);
    write_elements(&json, "notes", record->notes);
    trajd_json_close_object(&json);
    putc('\n', out);
}

static enum trajd_status read_digest(const struct trajd_yaml *yaml,
                                     const struct trajd_yaml_node *node,
                                     char digest[PREP_DIGEST_SIZE], struct trajd_error *error)
{
    const char *text;
    enum trajd_status status = trajd_yaml_string(yaml, node, &text, error);

    if (status)
        return status;
    if (strlen(text) >= PREP_DIGEST_SIZE)
        return trajd_yaml_error(yaml, node, error, "this is not a SHA-256 digest");
    strcpy(digest, text);
    return TRAJD_OK;
}

static enum trajd_status read_identity(const struct trajd_yaml *yaml,
                                       const struct trajd_yaml_node *node, const char *title,
                                       struct prep_identity *identity, struct trajd_error *error)
{
    const struct trajd_yaml_node *root = trajd_yaml_root(yaml), *size, *mtime, *ctime, *digest;
    int64_t number = 0;
    enum trajd_status status;

    if (!node || node->kind != TRAJD_YAML_MAPPING || !(size = trajd_yaml_get(node, "size_bytes")) ||
        !(mtime = trajd_yaml_get(node, "mtime_ns")) || !(digest = trajd_yaml_get(node, "sha256")))
        return trajd_yaml_error(yaml, root, error, "no %s", title);
    status = trajd_yaml_int(yaml, size, 0, INT64_MAX, &number, error);
    identity->size_bytes = (uint64_t)number;
    if (!status)
        status = trajd_yaml_int(yaml, mtime, INT64_MIN, INT64_MAX, &identity->mtime_ns, error);
    ctime = trajd_yaml_get(node, "ctime_ns");
    if (!status && ctime)
        status = trajd_yaml_int(yaml, ctime, INT64_MIN, INT64_MAX, &identity->ctime_ns, error);
    return status ? status : read_digest(yaml, digest, identity->sha256, error);
}

/* Copies a text that must be there. The caller frees it. */
static enum trajd_status copy_text(const struct trajd_yaml *yaml,
                                   const struct trajd_yaml_node *mapping, const char *key,
                                   const char **copy, struct trajd_error *error)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(mapping, key);
    const char *text;
    enum trajd_status status = node ? trajd_yaml_string(yaml, node, &text, error)
                                    : trajd_yaml_error(yaml, mapping, error, "no %s", key);

    if (!status)
        *copy = trajd_memory_or_exit(strdup(text));
    return status;
}

/* Reads a file's identity and its name, which becomes a path below a folder. */
static enum trajd_status read_file(const struct trajd_yaml *yaml,
                                   const struct trajd_yaml_node *node, const char *title,
                                   struct prep_identity *identity, const char **name,
                                   struct trajd_error *error)
{
    enum trajd_status status = read_identity(yaml, node, title, identity, error);

    if (!status)
        status = copy_text(yaml, node, "name", name, error);
    if (!status && (!**name || **name == '/' || !strcmp(*name, "..") || !strncmp(*name, "../", 3) ||
                    strstr(*name, "/../")))
        status = trajd_yaml_error(yaml, node, error, "%s is not a name of a file below its folder",
                                  *name);
    return status;
}

/* Reads the files of the parts, or the only output. */
static enum trajd_status read_outputs(const struct trajd_yaml *yaml, struct prep_record *record,
                                      struct trajd_error *error)
{
    const struct trajd_yaml_node *root = trajd_yaml_root(yaml),
                                 *parts = trajd_yaml_get(root, "parts"), *node;
    const bool has_parts = parts && parts->kind == TRAJD_YAML_SEQUENCE && parts->child_count;
    enum trajd_status status = TRAJD_OK;

    record->outputs =
        trajd_memory_or_exit(calloc(has_parts ? parts->child_count : 1, sizeof *record->outputs));
    for (node = has_parts ? parts->children : trajd_yaml_get(root, "output");
         !status && (node || !record->output_count); node = has_parts ? node->next : NULL) {
        struct prep_output *output = &record->outputs[record->output_count++];
        status = read_file(yaml, node, "output", &output->identity, &output->name, error);
    }
    return status;
}

static enum trajd_status read_count(const struct trajd_yaml *yaml, const char *key, uint64_t *count,
                                    struct trajd_error *error)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(trajd_yaml_root(yaml), key);
    int64_t number = 0;
    enum trajd_status status =
        node ? trajd_yaml_int(yaml, node, 0, INT64_MAX, &number, error) : TRAJD_OK;

    *count = (uint64_t)number;
    return status;
}

static enum trajd_status read_document(const struct trajd_yaml *yaml, struct prep_record *record,
                                       struct trajd_error *error)
{
    static const char *const states[] = {"published", "refused", "begun", NULL};
    const struct trajd_yaml_node *root = trajd_yaml_root(yaml), *state, *recipe;
    enum trajd_status status;
    int choice;

    if (root->kind != TRAJD_YAML_MAPPING || !(state = trajd_yaml_get(root, "state")) ||
        !(recipe = trajd_yaml_get(root, "recipe")))
        return trajd_yaml_error(yaml, root, error, "this is not the record of a file");
    if ((status = trajd_yaml_choice(yaml, state, states, &choice, error)) ||
        (status = read_digest(yaml, recipe, record->recipe, error)) ||
        (status = read_file(yaml, trajd_yaml_get(root, "source"), "source", &record->source,
                            &record->name, error)))
        return status;
    record->is_refused = choice == 1;
    if (choice)
        return TRAJD_OK;
    if ((status = read_outputs(yaml, record, error)) ||
        (status = copy_text(yaml, root, "layout", &record->layout, error)) ||
        (status = read_count(yaml, "episodes", &record->episodes, error)))
        return status;
    return read_count(yaml, "left_out", &record->left_out, error);
}

enum trajd_status prep_record_parse(const char *path, const char *text, size_t length,
                                    struct prep_record *record, struct trajd_error *error)
{
    struct trajd_yaml *yaml = NULL;
    enum trajd_status status = trajd_yaml_parse(path, text, length, &yaml, error);

    *record = (struct prep_record){0};
    if (!status)
        status = read_document(yaml, record, error);
    trajd_yaml_destroy(&yaml);
    return status;
}

void prep_record_clear(struct prep_record *record)
{
    for (uint32_t i = 0; i < record->output_count; i++)
        free((void *)record->outputs[i].name);
    free(record->outputs);
    free((void *)record->name);
    free((void *)record->layout);
    record->outputs = NULL;
    record->name = record->layout = NULL;
    record->output_count = 0;
}

enum trajd_status prep_record_load(const char *path, struct prep_record *record,
                                   struct trajd_error *error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat found;
    char *text = NULL;
    size_t length;
    enum trajd_status status;

    *record = (struct prep_record){0};
    if (fd < 0)
        return trajd_error_set(error, errno == ENOENT ? TRAJD_ERR_NOT_FOUND : TRAJD_ERR_IO, errno,
                               "%s: %s", path, strerror(errno));
    if (fstat(fd, &found) || !S_ISREG(found.st_mode) ||
        (found.st_uid != geteuid() && found.st_uid != 0))
        status =
            trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                            "%s: is not a regular file of this user, so it is not trusted", path);
    else
        status = trajd_file_read_fd(fd, path, MAX_RECORD_BYTES, &text, &length, error);
    close(fd);
    if (!status)
        status = prep_record_parse(path, text, length, record, error);
    free(text);
    return status;
}

/* Returns the text with other times of the source. The first match in the document is the source's;
 * quotes inside texts are escaped, so they cannot match. Records of older versions have spaces, or
 * no ctime. */
static char *retimed(const char *text, const struct prep_identity *before,
                     const struct prep_identity *after)
{
    static const char key[] = "\"mtime_ns\":";
    const char *number = strstr(text, key);
    char *end, *changed;
    int length = 0;

    if (!number)
        return NULL;
    number += strlen(key);
    if (strtoll(number, &end, 10) != before->mtime_ns)
        return NULL;
    sscanf(end, " , \"ctime_ns\" : %*d%n", &length);
    if (asprintf(&changed, "%.*s%" PRId64 ",\"ctime_ns\":%" PRId64 "%s", (int)(number - text), text,
                 after->mtime_ns, after->ctime_ns, end + length) < 0)
        trajd_memory_or_exit(NULL);
    return changed;
}

enum trajd_status prep_record_retime(const char *path, const struct prep_identity *before,
                                     const struct prep_identity *after, struct trajd_error *error)
{
    char *text, *changed;
    size_t length;
    enum trajd_status status = trajd_file_read(path, MAX_RECORD_BYTES, &text, &length, error);

    if (status)
        return status;
    changed = retimed(text, before, after);
    status = changed ? prep_write(path, changed, strlen(changed), error)
                     : trajd_error_set(error, TRAJD_ERR_IO, 0, "%s: cannot be read again", path);
    free(text);
    free(changed);
    return status;
}

/* ---- the files of a record ---- */

enum trajd_status prep_identify(const char *path, bool with_digest, struct prep_identity *identity,
                                struct trajd_error *error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat found;
    enum trajd_status status = TRAJD_OK;

    if (fd < 0 || fstat(fd, &found))
        status = trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(found.st_mode))
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: is not a regular file", path);
    else if (with_digest)
        status = prep_digest_file(fd, path, identity->sha256, error);
    if (!status) {
        identity->size_bytes = (uint64_t)found.st_size;
        identity->mtime_ns = prep_mtime_ns(&found);
    }
    if (fd >= 0)
        close(fd);
    return status;
}

bool prep_record_has_outputs(const struct prep_record *record, const char *folder)
{
    char path[PREP_PATH_SIZE];
    struct stat stat;

    for (uint32_t i = 0; i < record->output_count; i++) {
        const struct prep_identity *made = &record->outputs[i].identity;
        struct prep_identity now;
        if (prep_path(path, folder, record->outputs[i].name, "", NULL) || lstat(path, &stat) ||
            !S_ISREG(stat.st_mode) || (uint64_t)stat.st_size != made->size_bytes)
            return false;
        if (prep_mtime_ns(&stat) != made->mtime_ns &&
            (prep_identify(path, true, &now, NULL) || strcmp(now.sha256, made->sha256)))
            return false;
    }
    return record->output_count > 0;
}
