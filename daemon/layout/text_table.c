/* Reads a JSON file of texts into a sorted table, and finds the text of an episode. */
#include "daemon/layout/text_table.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/arena.h"
#include "daemon/base/json_read.h"

enum { ENTRY_COUNT_MAX = 1 << 20, KEY_SIZE = 1024 };
static const size_t table_bytes_max = (size_t)256 << 20;

/* The value of an entry, which is in the table's copy of the document. */
struct entry {
    const char *key; /* "" where there is one entry */
    const char *value;
    size_t length;
};

struct trajd_text_table {
    struct trajd_arena arena;
    struct entry *entries; /* ascending by key */
    uint32_t count, capacity;
};

/* The state of reading the entries. */
struct reading {
    struct trajd_text_table *table;
    const struct trajd_layout_meta *meta;
    const char *list; /* for messages */
    struct trajd_error *error;
};

/* Copies the text of a JSON string or of a bare word. False where it is neither, or too long. */
static bool copy_text(const char *value, size_t length, char *out, size_t size)
{
    const bool is_string = length >= 2 && *value == '"';

    if (!length || *value == '{' || *value == '[' || length - (is_string ? 2 : 0) >= size)
        return false;
    if (is_string) {
        trajd_json_unescape(value + 1, length - 2, out, &length);
    } else {
        memcpy(out, value, length);
        out[length] = '\0';
    }
    return true;
}

/* Skips the zeros in front of a number: entries "007" and 7 are of one episode. */
static const char *normalise(enum trajd_text_key by, const char *key)
{
    while (by == TRAJD_TEXT_KEY_NUMBER && key[0] == '0' && key[1])
        key++;
    return key;
}

static bool add_entry(struct reading *r, const char *key, const char *value, size_t length)
{
    struct trajd_text_table *table = r->table;

    if (table->count == table->capacity) {
        const uint32_t capacity = table->capacity ? 2 * table->capacity : 64;
        struct entry *grown =
            capacity > ENTRY_COUNT_MAX ? NULL : realloc(table->entries, capacity * sizeof *grown);
        if (!grown) {
            trajd_error_set(r->error, TRAJD_ERR_DATA, 0, "%s: too many entries", r->list);
            return false;
        }
        table->entries = grown;
        table->capacity = capacity;
    }
    key = normalise(r->meta->by, key);
    key = trajd_arena_copy(&table->arena, key, strlen(key));
    if (!key) {
        trajd_error_set(r->error, TRAJD_ERR_MEMORY, 0, "no memory for its entries");
        return false;
    }
    table->entries[table->count++] = (struct entry){key, value, length};
    return true;
}

/* Adds an element of a list, or a member of a mapping. */
static bool visit_entry(void *context, const char *name, size_t name_length, const char *value,
                        size_t length)
{
    struct reading *r = context;
    char key[KEY_SIZE];
    const char *field;
    size_t field_length;

    if (!name && !r->meta->key)
        trajd_error_set(r->error, TRAJD_ERR_DATA, 0,
                        "%s: is a list: `key` of the layout must name the field that is compared",
                        r->list);
    else if (name && r->meta->key)
        trajd_error_set(r->error, TRAJD_ERR_DATA, 0,
                        "%s: is a mapping, and `key` of the layout needs a list", r->list);
    else if (name && name_length < sizeof key) {
        trajd_json_unescape(name, name_length, key, &name_length);
        return add_entry(r, key, value, length);
    } else if (!name && trajd_json_field_span(value, length, r->meta->key, &field, &field_length) &&
               copy_text(field, field_length, key, sizeof key))
        return add_entry(r, key, value, length);
    else
        trajd_error_set(r->error, TRAJD_ERR_DATA, 0, "%s: entry %u: no text or number %s", r->list,
                        r->table->count, r->meta->key ? r->meta->key : "as its name");
    return false;
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->key, ((const struct entry *)b)->key);
}

/* Sorts the entries, and refuses two with one key. */
static enum trajd_status sort_entries(struct reading *r)
{
    struct trajd_text_table *table = r->table;

    if (table->count)
        qsort(table->entries, table->count, sizeof *table->entries, compare_entries);
    for (uint32_t i = 1; i < table->count; i++)
        if (!strcmp(table->entries[i - 1].key, table->entries[i].key))
            return trajd_error_set(r->error, TRAJD_ERR_DATA, 0, "%s: two entries are of %.200s",
                                   r->list, table->entries[i].key);
    return TRAJD_OK;
}

static enum trajd_status read_entries(struct reading *r, const char *text, size_t length)
{
    const char *list = text;
    size_t list_length = length;

    if (!trajd_json_field_span(text, length, NULL, &list, &list_length) ||
        strspn(list + list_length, " \t\r\n") < (size_t)(text + length - list - list_length))
        return trajd_error_set(r->error, TRAJD_ERR_DATA, 0, "it is not JSON");
    if (r->meta->list && !trajd_json_field_span(text, length, r->meta->list, &list, &list_length))
        return trajd_error_set(r->error, TRAJD_ERR_DATA, 0, "it has no %s", r->meta->list);
    if (r->meta->by == TRAJD_TEXT_KEY_NONE)
        return add_entry(r, "", list, list_length) ? TRAJD_OK : r->error->status;
    trajd_error_set(r->error, TRAJD_ERR_DATA, 0, "%s: is neither a list nor a mapping", r->list);
    if (!trajd_json_field_visit(list, list_length, visit_entry, r))
        return r->error->status;
    return sort_entries(r);
}

enum trajd_status trajd_text_table_parse(const struct trajd_layout_meta *meta, const char *text,
                                         size_t length, struct trajd_text_table **table,
                                         struct trajd_error *error)
{
    struct trajd_error local;
    struct reading r = {.meta = meta,
                        .list = meta->list ? meta->list : "the document",
                        .error = error ? error : &local};
    enum trajd_status status;
    char *copy;

    *table = r.table = calloc(1, sizeof **table);
    if (!r.table)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for its entries");
    r.table->arena.limit_bytes = table_bytes_max;
    copy = trajd_arena_copy(&r.table->arena, text, length);
    status = copy ? read_entries(&r, copy, length)
                  : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for its entries");
    if (status)
        trajd_text_table_destroy(table);
    return status;
}

void trajd_text_table_destroy(struct trajd_text_table **table)
{
    if (*table) {
        trajd_arena_free(&(*table)->arena);
        free((*table)->entries);
        free(*table);
    }
    *table = NULL;
}

/* One of several texts. */
struct choice {
    uint64_t wanted, count;
    const char *value;
    size_t length;
};

static bool visit_choice(void *context, const char *name, size_t name_length, const char *value,
                         size_t length)
{
    struct choice *choice = context;

    (void)name_length;
    if (choice->count++ == choice->wanted) {
        choice->value = value;
        choice->length = length;
    }
    return !name;
}

/* Replaces a list of texts by one of them. */
static bool choose(bool by_hash, uint64_t hash, const char **value, size_t *length)
{
    struct choice choice = {.wanted = UINT64_MAX};

    if (!trajd_json_field_visit(*value, *length, visit_choice, &choice))
        return false;
    if (!choice.count) {
        *length = 0;
        return true;
    }
    choice.wanted = by_hash ? hash % choice.count : 0;
    choice.count = 0;
    trajd_json_field_visit(*value, *length, visit_choice, &choice);
    *value = choice.value;
    *length = choice.length;
    return true;
}

enum trajd_status trajd_text_table_find(const struct trajd_text_table *table,
                                        const struct trajd_layout_meta *meta, const char *key,
                                        uint64_t hash, char *out, size_t size,
                                        struct trajd_error *error)
{
    const bool has_key = meta->by != TRAJD_TEXT_KEY_NONE;
    const struct entry wanted = {.key = has_key ? normalise(meta->by, key) : ""};
    const struct entry *entry = table->count ? bsearch(&wanted, table->entries, table->count,
                                                       sizeof wanted, compare_entries)
                                             : NULL;
    const char *value = entry ? entry->value : NULL;
    size_t length = entry ? entry->length : 0;

    if (entry && meta->json &&
        !trajd_json_field_span(entry->value, entry->length, meta->json, &value, &length))
        length = 0;
    if (length && *value == '[' && !choose(meta->picks_by_hash, hash, &value, &length))
        length = 0;
    if (!length || (length == 4 && !memcmp(value, "null", 4)))
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "no text");
    if (!copy_text(value, length, out, size))
        return trajd_error_set(
            error, TRAJD_ERR_DATA, 0, "%s%s%s%s: is not a text of at most %zu bytes",
            has_key ? wanted.key : "", has_key && meta->json ? ": " : "",
            meta->json ? meta->json : "", has_key || meta->json ? "" : "the document", size - 1);
    for (unsigned char *c = (unsigned char *)out; *c; c++)
        if ((*c < 0x20 && *c != '\n' && *c != '\t') || *c == 0x7f)
            *c = ' ';
    return TRAJD_OK;
}
