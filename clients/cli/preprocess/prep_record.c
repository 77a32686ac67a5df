#include "clients/cli/preprocess/prep_record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/preprocess/prep_place.h"
#include "daemon/base/json.h"
#include "daemon/base/yaml.h"

static void write_identity(const char *title, const char *name,
                           const struct prep_identity *identity, FILE *out)
{
    fprintf(out, " \"%s\": {\"name\": ", title);
    trajd_json_text(out, name);
    fprintf(out, ", \"size_bytes\": %" PRIu64 ", \"mtime_ns\": %" PRId64 ", \"sha256\": \"%s\"},\n",
            identity->size_bytes, identity->mtime_ns, identity->sha256);
}

void prep_record_write(const struct prep_record *record, FILE *out)
{
    fprintf(out, "{\"version\": 1, \"state\": \"%s\",\n",
            record->is_refused ? "refused" : "published");
    if (record->is_refused) {
        fprintf(out, " \"reason\": ");
        trajd_json_text(out, record->reason);
        fprintf(out, ",\n");
    }
    write_identity("source", record->name, &record->source, out);
    if (!record->is_refused)
        write_identity("output", record->name, &record->output, out);
    fprintf(out, " \"recipe\": \"%s\", \"layout\": ", record->recipe);
    trajd_json_text(out, record->layout);
    fprintf(out, ", \"rate_hz\": %.17g, \"trajd\": \"%s\",\n", record->rate_hz, TRAJD_VERSION);
    if (!record->is_refused)
        fprintf(out,
                " \"episodes\": %" PRIu64 ", \"left_out\": %" PRIu64 ", \"cut\": %" PRIu64 ",\n",
                record->episodes, record->left_out, record->cut);
    fprintf(out, " \"finding_count\": %" PRIu64 ",\n \"findings\": [%s],\n \"notes\": [%s]}\n",
            record->finding_count, record->findings ? record->findings : "",
            record->notes ? record->notes : "");
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

static enum trajd_status read_identity(const struct trajd_yaml *yaml, const char *title,
                                       struct prep_identity *identity, struct trajd_error *error)
{
    const struct trajd_yaml_node *root = trajd_yaml_root(yaml), *node = trajd_yaml_get(root, title),
                                 *size, *mtime, *digest;
    int64_t number = 0;
    enum trajd_status status;

    if (!node || node->kind != TRAJD_YAML_MAPPING || !(size = trajd_yaml_get(node, "size_bytes")) ||
        !(mtime = trajd_yaml_get(node, "mtime_ns")) || !(digest = trajd_yaml_get(node, "sha256")))
        return trajd_yaml_error(yaml, root, error, "no %s", title);
    status = trajd_yaml_int(yaml, size, 0, INT64_MAX, &number, error);
    identity->size_bytes = (uint64_t)number;
    if (!status)
        status = trajd_yaml_int(yaml, mtime, INT64_MIN, INT64_MAX, &identity->mtime_ns, error);
    return status ? status : read_digest(yaml, digest, identity->sha256, error);
}

static enum trajd_status read_document(const struct trajd_yaml *yaml, struct prep_record *record,
                                       struct trajd_error *error)
{
    static const char *const states[] = {"published", "refused", NULL};
    const struct trajd_yaml_node *root = trajd_yaml_root(yaml), *state, *recipe;
    enum trajd_status status;
    int choice;

    if (root->kind != TRAJD_YAML_MAPPING || !(state = trajd_yaml_get(root, "state")) ||
        !(recipe = trajd_yaml_get(root, "recipe")))
        return trajd_yaml_error(yaml, root, error, "this is not the record of a file");
    if ((status = trajd_yaml_choice(yaml, state, states, &choice, error)) ||
        (status = read_digest(yaml, recipe, record->recipe, error)) ||
        (status = read_identity(yaml, "source", &record->source, error)))
        return status;
    record->is_refused = choice == 1;
    return record->is_refused ? TRAJD_OK : read_identity(yaml, "output", &record->output, error);
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

enum trajd_status prep_record_load(const char *path, struct prep_record *record,
                                   struct trajd_error *error)
{
    struct trajd_yaml *yaml = NULL;
    enum trajd_status status = trajd_yaml_load(path, &yaml, error);

    *record = (struct prep_record){0};
    if (!status)
        status = read_document(yaml, record, error);
    trajd_yaml_destroy(&yaml);
    return status;
}

/* Returns the text with a new time of modification. The first match in the document is the
 * source's; quotes inside texts are escaped, so they cannot match. */
static char *retimed(const char *text, int64_t before_ns, int64_t after_ns)
{
    char member[64], *changed;
    const char *found;

    snprintf(member, sizeof member, "\"mtime_ns\": %" PRId64 ",", before_ns);
    found = strstr(text, member);
    if (!found || asprintf(&changed, "%.*s\"mtime_ns\": %" PRId64 ",%s", (int)(found - text), text,
                           after_ns, found + strlen(member)) < 0)
        return NULL;
    return changed;
}

enum trajd_status prep_record_retime(const char *path, int64_t before_ns, int64_t after_ns,
                                     struct trajd_error *error)
{
    FILE *file = fopen(path, "re");
    char *text = NULL, *changed = NULL;
    size_t capacity = 0;
    enum trajd_status status;

    if (file && getdelim(&text, &capacity, 0, file) > 0)
        changed = retimed(text, before_ns, after_ns);
    if (file)
        fclose(file);
    status = changed
                 ? prep_write(path, changed, strlen(changed), error)
                 : trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: cannot be read again", path);
    free(text);
    free(changed);
    return status;
}
