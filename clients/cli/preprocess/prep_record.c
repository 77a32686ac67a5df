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

static enum trajd_status read_digest(const struct trajd_yaml_reader *r,
                                     const struct trajd_yaml_node *node,
                                     char digest[PREP_DIGEST_SIZE])
{
    const char *text;
    enum trajd_status status = trajd_yaml_string(r->yaml, node, &text, r->error);

    if (status)
        return status;
    if (strlen(text) >= PREP_DIGEST_SIZE)
        return trajd_yaml_error(r->yaml, node, r->error, "this is not a SHA-256 digest");
    strcpy(digest, text);
    return TRAJD_OK;
}

/* Copies a text that must be there. The caller frees it. */
static enum trajd_status copy_text(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *mapping, const char *key,
                                   const char **copy)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(mapping, key);
    const char *text;
    enum trajd_status status = node ? trajd_yaml_string(r->yaml, node, &text, r->error)
                                    : trajd_yaml_error(r->yaml, mapping, r->error, "no %s", key);

    if (!status)
        *copy = trajd_memory_or_exit(strdup(text));
    return status;
}

/* Reads an integer that may be absent. */
static enum trajd_status read_int(const struct trajd_yaml_reader *r,
                                  const struct trajd_yaml_node *mapping, const char *key,
                                  int64_t least, int64_t *number)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(mapping, key);

    return node ? trajd_yaml_int(r->yaml, node, least, INT64_MAX, number, r->error) : TRAJD_OK;
}

/* Reads a file's identity and its name, which becomes a path below a folder. */
static enum trajd_status read_file(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, const char *title,
                                   struct prep_identity *identity, const char **name)
{
    int64_t size = 0;
    enum trajd_status status;

    if (!node || node->kind != TRAJD_YAML_MAPPING || !trajd_yaml_get(node, "size_bytes") ||
        !trajd_yaml_get(node, "mtime_ns") || !trajd_yaml_get(node, "sha256"))
        return trajd_yaml_error(r->yaml, trajd_yaml_root(r->yaml), r->error, "no %s", title);
    if ((status = read_int(r, node, "size_bytes", 0, &size)) ||
        (status = read_int(r, node, "mtime_ns", INT64_MIN, &identity->mtime_ns)) ||
        (status = read_int(r, node, "ctime_ns", INT64_MIN, &identity->ctime_ns)) ||
        (status = read_digest(r, trajd_yaml_get(node, "sha256"), identity->sha256)) ||
        (status = copy_text(r, node, "name", name)))
        return status;
    identity->size_bytes = (uint64_t)size;
    if (!**name || **name == '/' || !strcmp(*name, "..") || !strncmp(*name, "../", 3) ||
        strstr(*name, "/../"))
        return trajd_yaml_error(r->yaml, node, r->error,
                                "%s is not a name of a file below its folder", *name);
    return TRAJD_OK;
}

/* Reads the files of the parts, or the only output. */
static enum trajd_status read_outputs(const struct trajd_yaml_reader *r, struct prep_record *record)
{
    const struct trajd_yaml_node *root = trajd_yaml_root(r->yaml),
                                 *parts = trajd_yaml_get(root, "parts"), *node;
    const bool has_parts = parts && parts->kind == TRAJD_YAML_SEQUENCE && parts->child_count;
    enum trajd_status status = TRAJD_OK;

    record->outputs =
        trajd_memory_or_exit(calloc(has_parts ? parts->child_count : 1, sizeof *record->outputs));
    for (node = has_parts ? parts->children : trajd_yaml_get(root, "output");
         !status && (node || !record->output_count); node = has_parts ? node->next : NULL) {
        struct prep_output *output = &record->outputs[record->output_count++];
        status = read_file(r, node, "output", &output->identity, &output->name);
    }
    return status;
}

static enum trajd_status read_document(const struct trajd_yaml_reader *r,
                                       struct prep_record *record)
{
    static const char *const states[] = {"published", "refused", "begun", NULL};
    const struct trajd_yaml_node *root = trajd_yaml_root(r->yaml), *state, *recipe;
    int64_t episodes = 0, left_out = 0;
    enum trajd_status status;
    int choice;

    if (root->kind != TRAJD_YAML_MAPPING || !(state = trajd_yaml_get(root, "state")) ||
        !(recipe = trajd_yaml_get(root, "recipe")))
        return trajd_yaml_error(r->yaml, root, r->error, "this is not the record of a file");
    if ((status = trajd_yaml_choice(r->yaml, state, states, &choice, r->error)) ||
        (status = read_digest(r, recipe, record->recipe)) ||
        (status = read_file(r, trajd_yaml_get(root, "source"), "source", &record->source,
                            &record->name)))
        return status;
    record->is_refused = choice == 1;
    if (choice)
        return TRAJD_OK;
    if ((status = read_outputs(r, record)) ||
        (status = copy_text(r, root, "layout", &record->layout)) ||
        (status = read_int(r, root, "episodes", 0, &episodes)))
        return status;
    status = read_int(r, root, "left_out", 0, &left_out);
    record->episodes = (uint64_t)episodes;
    record->left_out = (uint64_t)left_out;
    return status;
}

enum trajd_status prep_record_parse(const char *path, const char *text, size_t length,
                                    struct prep_record *record, struct trajd_error *error)
{
    struct trajd_yaml *yaml = NULL;
    enum trajd_status status = trajd_yaml_parse(path, text, length, &yaml, error);

    *record = (struct prep_record){0};
    if (!status)
        status = read_document(&(struct trajd_yaml_reader){.yaml = yaml, .error = error}, record);
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
