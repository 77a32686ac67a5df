/* Reads texts of episodes from JSON files beside the data files. They are read each time an index
 * is built, and not from the cache, so a file that changed gives its new texts. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/base/digest.h"
#include "daemon/base/files.h"
#include "daemon/base/heartbeat.h"
#include "daemon/index/index_internal.h"
#include "daemon/layout/text_table.h"

enum { PATH_SIZE = 4096 };
static const size_t file_bytes_max = (size_t)64 << 20;

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the texts of episodes");
}

/* Returns the file's name without its folder. */
static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Returns the length of the name without the extension. */
static int stem_length(const char *name)
{
    const char *dot = strrchr(name, '.');

    return (int)(dot && dot != name ? (size_t)(dot - name) : strlen(name));
}

/* Writes the path of the JSON file of a data file. False where it is too long. */
static bool make_path(const struct trajd_index_entry *entry, const struct trajd_layout_meta *meta,
                      char path[PATH_SIZE])
{
    const char *name = name_of(entry->path);
    size_t used = (size_t)(name - entry->path);

    if (used >= PATH_SIZE)
        return false;
    memcpy(path, entry->path, used);
    for (const char *c = meta->file; *c && used < PATH_SIZE; c++)
        if (!strncmp(c, "{stem}", 6)) {
            used +=
                (size_t)snprintf(path + used, PATH_SIZE - used, "%.*s", stem_length(name), name);
            c += 5;
        } else {
            path[used++] = *c;
        }
    if (used >= PATH_SIZE)
        return false;
    path[used] = '\0';
    return true;
}

/* Remembers the file, for trajd_index_find_changes. */
static const char *add_file(struct trajd_index_texts *texts, const char *path)
{
    struct trajd_index_text_file *file;
    struct stat status;

    if (texts->file_count == texts->file_capacity) {
        const uint32_t capacity = texts->file_capacity ? 2 * texts->file_capacity : 16;
        struct trajd_index_text_file *grown =
            trajd_arena_alloc(texts->arena, capacity * sizeof *grown);
        if (!grown)
            return NULL;
        if (texts->file_count)
            memcpy(grown, texts->files, texts->file_count * sizeof *grown);
        texts->files = grown;
        texts->file_capacity = capacity;
    }
    file = &texts->files[texts->file_count];
    *file =
        (struct trajd_index_text_file){.path = trajd_arena_copy(texts->arena, path, strlen(path))};
    if (!stat(path, &status))
        file->stat = trajd_file_stat_from(&status);
    texts->file_count += file->path != NULL;
    return file->path;
}

/* Reads the JSON file of a text, unless it is the one that was read last. */
static enum trajd_status load(struct trajd_index_texts *texts, uint32_t which, const char *path,
                              struct trajd_error *error)
{
    struct trajd_error why;
    enum trajd_status status;
    size_t length = 0;
    char *text = NULL;

    if (texts->last[which].path && !strcmp(texts->last[which].path, path))
        return TRAJD_OK;
    trajd_text_table_destroy(&texts->last[which].table);
    texts->last[which].reason = NULL;
    texts->last[which].path = add_file(texts, path);
    if (!texts->last[which].path)
        return no_memory(error);
    if (!texts->files[texts->file_count - 1].stat.inode)
        return TRAJD_OK;
    trajd_heartbeat_wait();
    status = trajd_file_read(path, file_bytes_max, &text, &length, &why);
    trajd_heartbeat_resume();
    if (!status) {
        status = trajd_text_table_parse(&texts->layout->metas[which], text, length,
                                        &texts->last[which].table, &why);
        if (status)
            trajd_error_prefix(&why, "%s", path);
    }
    free(text);
    if (status == TRAJD_ERR_MEMORY)
        return no_memory(error);
    if (status)
        texts->last[which].reason = trajd_arena_format(texts->arena, "%s", why.message);
    return status && !texts->last[which].reason ? no_memory(error) : TRAJD_OK;
}

/* Writes the last number in the name; "" where there is none. */
static void find_number(const char *name, char number[64])
{
    size_t end = strlen(name), begin;

    while (end && !isdigit((unsigned char)name[end - 1]))
        end--;
    for (begin = end; begin && isdigit((unsigned char)name[begin - 1]);)
        begin--;
    snprintf(number, 64, "%.*s", (int)(end - begin < 63 ? end - begin : 0), name + begin);
}

/* Looks an episode up by the names of its file: the path below the dataset, the name, the stem. */
static enum trajd_status find_by_file(const struct trajd_text_table *table,
                                      const struct trajd_layout_meta *meta,
                                      const struct trajd_index_entry *entry, uint64_t hash,
                                      char *text, size_t size, struct trajd_error *error)
{
    const char *name = name_of(entry->relative_path);
    char stem[1024];
    enum trajd_status status =
        trajd_text_table_find(table, meta, entry->relative_path, hash, text, size, error);

    snprintf(stem, sizeof stem, "%.*s", stem_length(name), name);
    if (status == TRAJD_ERR_NOT_FOUND)
        status = trajd_text_table_find(table, meta, name, hash, text, size, error);
    if (status == TRAJD_ERR_NOT_FOUND)
        status = trajd_text_table_find(table, meta, stem, hash, text, size, error);
    return status;
}

static enum trajd_status find(const struct trajd_text_table *table,
                              const struct trajd_layout_meta *meta,
                              const struct trajd_index_entry *entry,
                              const struct trajd_record_episode *episode, const char *key,
                              char *text, size_t size, struct trajd_error *error)
{
    struct trajd_digest digest;
    uint64_t hash;
    char number[64];

    trajd_digest_init(&digest);
    trajd_digest_add_text(&digest, entry->relative_path);
    trajd_digest_add_text(&digest, episode->id);
    hash = trajd_digest_end(&digest);
    if (meta->by == TRAJD_TEXT_KEY_FILE || (meta->by == TRAJD_TEXT_KEY_EPISODE && !*episode->id))
        return find_by_file(table, meta, entry, hash, text, size, error);
    if (meta->by == TRAJD_TEXT_KEY_NUMBER) {
        const char *name = name_of(entry->relative_path);
        char stem[1024];
        snprintf(stem, sizeof stem, "%.*s", stem_length(name), name);
        find_number(*episode->id ? episode->id : stem, number);
        key = number;
    } else if (meta->by == TRAJD_TEXT_KEY_EPISODE) {
        key = episode->id;
    }
    if (!key && meta->by != TRAJD_TEXT_KEY_NONE)
        return TRAJD_ERR_NOT_FOUND; /* the attribute is absent */
    return trajd_text_table_find(table, meta, key, hash, text, size, error);
}

/* Reads one text. */
static enum trajd_status read_text(struct trajd_index_texts *texts, uint32_t which,
                                   const struct trajd_index_entry *entry, struct trajd_arena *arena,
                                   struct trajd_record_episode *episode, struct trajd_error *error)
{
    const struct trajd_layout_meta *meta = &texts->layout->metas[which];
    const char *key = episode->metas[which], *reason;
    char path[PATH_SIZE], text[TRAJD_RECORD_META_MAX + 1];
    struct trajd_error why = {0};
    enum trajd_status status;

    episode->metas[which] = NULL;
    if (!make_path(entry, meta, path))
        return TRAJD_OK; /* no file can have it */
    status = load(texts, which, path, error);
    if (status)
        return status;
    reason = texts->last[which].reason;
    if (texts->last[which].table) {
        status = find(texts->last[which].table, meta, entry, episode, key, text, sizeof text, &why);
        if (status == TRAJD_ERR_DATA)
            reason = trajd_arena_format(arena, "%s: %s", path, why.message);
        else if (!status)
            episode->metas[which] = trajd_arena_copy(arena, text, strlen(text));
        if (status == TRAJD_OK ? !episode->metas[which] : status == TRAJD_ERR_DATA && !reason)
            return no_memory(error);
    }
    if (reason && !episode->problem) {
        episode->problem = trajd_arena_format(arena, "meta %s: %s", meta->name, reason);
        episode->is_misfit = false;
    }
    return reason && !episode->problem ? no_memory(error) : TRAJD_OK;
}

enum trajd_status trajd_index_texts_read(struct trajd_index_texts *texts,
                                         const struct trajd_index_entry *entry,
                                         struct trajd_arena *arena,
                                         struct trajd_record_episode *episode,
                                         struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < episode->meta_count && i < texts->layout->meta_count && !status; i++)
        if (texts->layout->metas[i].file)
            status = read_text(texts, i, entry, arena, episode, error);
    return status;
}

void trajd_index_texts_end(struct trajd_index_texts *texts)
{
    for (uint32_t i = 0; i < TRAJD_LAYOUT_METAS_MAX; i++)
        trajd_text_table_destroy(&texts->last[i].table);
}
