/* Builds one index from the records of all files. Each record is decoded twice, one file at a time,
 * so that the decoded records need not all be in memory. */
#include <stdlib.h>
#include <string.h>

#include "daemon/base/heartbeat.h"
#include "daemon/index/index_internal.h"

enum { ARRAY_COUNT_MAX = 65536, NOTE_COUNT_MAX = 1024 };
static const size_t index_bytes_max = (size_t)16 << 30;
static const size_t decode_bytes_max = (size_t)2 << 30;

/* The index and the arena that it is in, so that one pointer frees both. */
struct index_memory {
    struct trajd_index index; /* first: a pointer to it points to the struct, too */
    struct trajd_arena arena;
};

struct build {
    struct index_memory *memory;
    const struct trajd_index_entry *entries;
    uint32_t entry_count, unread_count;
    const char **paths; /* distinct paths of arrays, ascending */
    uint32_t path_count, path_capacity;
    struct trajd_validation validation;
    struct trajd_index_texts texts;
    struct trajd_episode *episodes;
    struct trajd_index_file *files;
    const char **notes;
    const char *first_reason; /* why a file or episode was not kept */
    const char *first_fault;  /* why an episode was not kept that has the layout's structure */
    bool is_damaged;          /* a file was refused for another reason than its structure */
    struct trajd_error *error;
};

static enum trajd_status no_memory(struct build *b)
{
    return trajd_error_set(b->error, TRAJD_ERR_MEMORY, 0, "no memory for the index");
}

static const char *copy_text(struct build *b, const char *text)
{
    return trajd_arena_copy(&b->memory->arena, text, strlen(text));
}

static void *allocate(struct build *b, uint64_t count, size_t size)
{
    return count > SIZE_MAX / 2 / size
               ? NULL
               : trajd_arena_alloc(&b->memory->arena, (count ? count : 1) * size);
}

static uint32_t find_path(const struct build *b, const char *path)
{
    uint32_t low = 0, high = b->path_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (strcmp(b->paths[middle], path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum trajd_status add_path(struct build *b, const char *path)
{
    uint32_t place = find_path(b, path);

    if (place < b->path_count && !strcmp(b->paths[place], path))
        return TRAJD_OK;
    if (b->path_count == ARRAY_COUNT_MAX)
        return trajd_error_set(b->error, TRAJD_ERR_MEMORY, 0, "more than %d distinct arrays",
                               ARRAY_COUNT_MAX);
    if (b->path_count == b->path_capacity) {
        uint32_t capacity = b->path_capacity ? b->path_capacity * 2 : 64;
        const char **grown = realloc(b->paths, capacity * sizeof *grown);
        if (!grown)
            return no_memory(b);
        b->paths = grown;
        b->path_capacity = capacity;
    }
    memmove(&b->paths[place + 1], &b->paths[place], (b->path_count - place) * sizeof *b->paths);
    b->paths[place] = copy_text(b, path);
    if (!b->paths[place])
        return no_memory(b);
    b->path_count++;
    return TRAJD_OK;
}

static enum trajd_status decode(struct build *b, const struct trajd_index_entry *entry,
                                struct trajd_arena *arena, struct trajd_record *record)
{
    *arena = (struct trajd_arena){.limit_bytes = decode_bytes_max};
    return trajd_record_decode(entry->record.data, entry->record.length, entry->stat.size_bytes,
                               b->memory->index.layout->clock_count, arena, record, b->error);
}

/* The first pass: collects the paths of arrays and counts episodes. */
static enum trajd_status survey(struct build *b)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < b->entry_count && !status; i++) {
        struct trajd_arena arena;
        struct trajd_record record;
        trajd_heartbeat_turn();
        status = trajd_heartbeat_check(b->error);
        if (status)
            break;
        if (b->entries[i].has_known_paths) {
            b->memory->index.episode_count += b->entries[i].episode_count;
            continue;
        }
        status = decode(b, &b->entries[i], &arena, &record);
        for (uint32_t k = 0; k < record.episode_count && !status; k++) {
            for (uint32_t d = 0; d < record.episodes[k].array_count && !status; d++)
                status = add_path(b, record.episodes[k].arrays[d].path);
        }
        b->memory->index.episode_count += record.episode_count;
        trajd_arena_free(&arena);
    }
    return status;
}

/* Adds the paths of required streams. Without it an array that no file has would not be missed. */
static enum trajd_status add_required(struct build *b)
{
    const struct trajd_layout *layout = b->memory->index.layout;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < layout->stream_count && !status; i++) {
        if (!layout->streams[i].optional)
            status = add_path(b, layout->streams[i].path);
    }
    return status;
}

static enum trajd_status make_plans(struct build *b)
{
    enum trajd_status status = add_required(b);

    b->validation.layout = b->memory->index.layout;
    b->validation.arena = &b->memory->arena;
    b->validation.paths = b->paths;
    b->validation.array_count = b->path_count;
    return status ? status : trajd_index_plan_streams(&b->validation, b->error);
}

static enum trajd_status add_notes(struct build *b, const char *relative_path,
                                   const struct trajd_record *record)
{
    struct trajd_index *index = &b->memory->index;

    for (uint32_t i = 0; i < record->note_count && index->note_count < NOTE_COUNT_MAX; i++) {
        const char *note =
            trajd_arena_format(&b->memory->arena, "%s: %s", relative_path, record->notes[i]);
        if (!note)
            return no_memory(b);
        b->notes[index->note_count++] = note;
    }
    return TRAJD_OK;
}

/* Notes the further names of files, and files that are not read. They come before the notes of
 * records, of which there may be too many. */
static enum trajd_status add_unread(struct build *b)
{
    struct trajd_index *index = &b->memory->index;

    for (uint32_t i = 0; i < b->unread_count && index->note_count < NOTE_COUNT_MAX; i++) {
        const struct trajd_index_entry *entry = &b->entries[b->entry_count + i];
        const bool is_link = entry->same_as != NULL;
        const char *note =
            trajd_arena_format(&b->memory->arena, "%s: left out: %s%s%s", entry->relative_path,
                               is_link ? "it is " : entry->left_out, is_link ? entry->same_as : "",
                               is_link ? " by another name" : "");
        index->link_count += is_link;
        if (!note)
            return no_memory(b);
        b->notes[index->note_count++] = note;
    }
    index->unread_count = b->unread_count;
    return TRAJD_OK;
}

static enum trajd_status add_file(struct build *b, const struct trajd_index_entry *entry,
                                  const struct trajd_record *record, struct trajd_index_file *file)
{
    const char *refusal = record->refusal;

    *file = (struct trajd_index_file){.path = copy_text(b, entry->path),
                                      .relative_path = copy_text(b, entry->relative_path),
                                      .device = entry->device,
                                      .stat = entry->stat};
    if (refusal)
        file->refusal =
            trajd_arena_format(&b->memory->arena, "%s: %s", entry->relative_path, refusal);
    if (!b->first_reason)
        b->first_reason = file->refusal;
    b->is_damaged = b->is_damaged || (refusal && !record->is_misfit);
    b->memory->index.cached_file_count += entry->from_cache;
    b->memory->index.refused_file_count += refusal != NULL;
    return file->path && file->relative_path && (file->refusal || !refusal) ? TRAJD_OK
                                                                            : no_memory(b);
}

/* The second pass over one file. */
static enum trajd_status build_file(struct build *b, uint32_t file, uint32_t *next)
{
    const struct trajd_index_entry *entry = &b->entries[file];
    struct trajd_arena arena;
    struct trajd_record record;
    enum trajd_status status = decode(b, entry, &arena, &record);

    if (!status)
        status = add_file(b, entry, &record, &b->files[file]);
    if (!status)
        status = add_notes(b, entry->relative_path, &record);
    for (uint32_t i = 0; i < record.episode_count && !status; i++) {
        struct trajd_episode *episode = &b->episodes[*next];
        const uint64_t trimmed = b->validation.trimmed_row_count;
        trajd_heartbeat_turn();
        episode->file_index = file;
        episode->id = *record.episodes[i].id ? copy_text(b, record.episodes[i].id)
                                             : b->files[file].relative_path;
        status = trajd_index_texts_read(&b->texts, entry, &arena, &record.episodes[i], b->error);
        if (status)
            break;
        status = episode->id ? trajd_index_validate(&b->validation, entry->relative_path,
                                                    &record.episodes[i], episode, b->error)
                             : no_memory(b);
        b->validation.trimmed_rows[(*next)++] = b->validation.trimmed_row_count - trimmed;
        b->memory->index.kept_count += !status && !episode->quarantine;
        if (!b->first_reason)
            b->first_reason = episode->quarantine;
        if (!b->first_fault && !episode->is_misfit)
            b->first_fault = episode->quarantine;
    }
    trajd_arena_free(&arena);
    return status;
}

/* Notes the arrays that episodes lack because their rows have another shape. */
static enum trajd_status add_other_shapes(struct build *b)
{
    struct trajd_index *index = &b->memory->index;

    for (uint32_t e = 0; e < index->episode_count; e++) {
        const char *const *other_shapes = b->episodes[e].other_shapes;
        for (uint32_t i = 0;
             other_shapes && i < b->path_count && index->note_count < NOTE_COUNT_MAX; i++) {
            if (!other_shapes[i])
                continue;
            b->notes[index->note_count] = trajd_arena_format(
                &b->memory->arena, "%s; feeds that use it quarantine the episode", other_shapes[i]);
            if (!b->notes[index->note_count++])
                return no_memory(b);
        }
    }
    return TRAJD_OK;
}

static enum trajd_status build_files(struct build *b)
{
    struct trajd_index *index = &b->memory->index;
    uint32_t next = 0;
    enum trajd_status status = TRAJD_OK;

    b->texts.layout = index->layout;
    b->texts.arena = &b->memory->arena;
    b->files = allocate(b, b->entry_count, sizeof *b->files);
    b->episodes = allocate(b, index->episode_count, sizeof *b->episodes);
    b->notes = allocate(b, NOTE_COUNT_MAX, sizeof *b->notes);
    b->validation.trimmed_rows =
        allocate(b, index->episode_count, sizeof *b->validation.trimmed_rows);
    if (!b->files || !b->episodes || !b->notes || !b->validation.trimmed_rows)
        return no_memory(b);
    status = add_unread(b);
    for (uint32_t i = 0; i < b->entry_count && !status; i++) {
        status = trajd_heartbeat_check(b->error);
        if (!status)
            status = build_file(b, i, &next);
    }
    index->files = b->files;
    index->file_count = b->entry_count;
    index->text_files = b->texts.files;
    index->text_file_count = b->texts.file_count;
    index->episodes = b->episodes;
    index->notes = b->notes;
    if (!status)
        status = trajd_index_settle_shapes(&b->validation, index, b->episodes, b->error);
    if (!status)
        status = add_other_shapes(b);
    index->trimmed_row_count = b->validation.trimmed_row_count;
    return status;
}

/* Finds the columns of an array that are quaternions in all kept episodes. Returns false if
 * out of memory. */
static bool find_quaternions(struct build *b, uint32_t array_index, struct trajd_index_array *out)
{
    const struct trajd_array *first = NULL;
    struct trajd_quaternion *all = NULL;
    uint32_t count = 0;

    for (uint32_t e = 0; e < b->memory->index.episode_count; e++) {
        const struct trajd_array *array =
            b->episodes[e].quarantine ? NULL : &b->episodes[e].extents[array_index];
        if (!array || !array->size_bytes)
            continue;
        if (first && !count)
            break; /* no columns are quaternions in both */
        if (first) {
            count =
                trajd_quaternions_merge(all, count, array->quaternions, array->quaternion_count);
            continue;
        }
        first = array;
        count = array->quaternion_count;
        all = allocate(b, count, sizeof *all);
        if (!all)
            return false;
        if (count)
            memcpy(all, array->quaternions, count * sizeof *all);
    }
    if (count)
        count = trajd_quaternions_select(all, count, trajd_array_row_elements(first),
                                         first->shape[first->rank - 1]);
    out->quaternion_count = count;
    out->quaternions = all;
    return true;
}

/* Fills the index with arrays, established streams and clocks. */
static enum trajd_status fill_tables(struct build *b)
{
    struct trajd_index *index = &b->memory->index;
    const struct trajd_layout *layout = index->layout;
    struct trajd_index_array *arrays = allocate(b, b->path_count, sizeof *arrays);
    struct trajd_index_stream *streams = allocate(b, b->validation.plan_count, sizeof *streams);
    struct trajd_index_clock *clocks = allocate(b, layout->clock_count, sizeof *clocks);

    if (!arrays || !streams || !clocks)
        return no_memory(b);
    for (uint32_t i = 0; i < b->path_count; i++) {
        arrays[i].path = b->paths[i];
        if (!find_quaternions(b, i, &arrays[i]))
            return no_memory(b);
    }
    for (uint32_t i = 0; i < b->validation.plan_count; i++) {
        if (b->validation.plans[i].established)
            streams[index->stream_count++] = b->validation.plans[i].stream;
    }
    for (uint32_t i = 0; i < layout->clock_count; i++)
        clocks[i] = (struct trajd_index_clock){.name = layout->clocks[i].name,
                                               .regular = !layout->clocks[i].stamps_path};
    index->arrays = arrays;
    index->array_count = b->path_count;
    index->streams = streams;
    index->clocks = clocks;
    index->clock_count = layout->clock_count;
    return TRAJD_OK;
}

/* Sets the error of an index without an episode. */
static enum trajd_status refuse_all(struct build *b)
{
    if (b->first_fault)
        return trajd_error_set(b->error, TRAJD_ERR_DATA, 0,
                               "layout %s fits, but no episode could be kept (if it is the wrong "
                               "layout, choose another); the first reason: %s",
                               b->memory->index.layout->name, b->first_fault);
    return trajd_error_set(b->error, b->is_damaged ? TRAJD_ERR_DATA : TRAJD_ERR_NOT_FOUND, 0,
                           "no episode could be kept; the first reason: %s",
                           b->first_reason ? b->first_reason : "there are none");
}

static enum trajd_status build(struct build *b)
{
    enum trajd_status status = survey(b);

    if (!status)
        status = make_plans(b);
    if (!status)
        status = build_files(b);
    if (!status)
        status = fill_tables(b);
    if (status)
        return status;
    if (!b->memory->index.kept_count)
        return refuse_all(b);
    trajd_index_set_digests(&b->memory->index, b->episodes);
    return TRAJD_OK;
}

enum trajd_status trajd_index_build(const struct trajd_index_options *options,
                                    struct trajd_layout *layout,
                                    const struct trajd_index_entry *entries, uint32_t count,
                                    uint32_t unread_count, struct trajd_index **index,
                                    struct trajd_error *error)
{
    struct build b = {.entries = entries,
                      .entry_count = count,
                      .unread_count = unread_count,
                      .validation = {.rate = options->rate,
                                     .assumed_rate = options->assumed_rate,
                                     .allows_uneven_rows = options->allows_uneven_rows,
                                     .clock_rates = options->clock_rates,
                                     .clock_rate_count = options->clock_rate_count,
                                     .color = options->color},
                      .error = error};
    enum trajd_status status;

    *index = NULL;
    b.memory = calloc(1, sizeof *b.memory);
    if (!b.memory) {
        trajd_layout_destroy(&layout);
        return no_memory(&b);
    }
    b.memory->arena.limit_bytes = index_bytes_max;
    b.memory->index.layout = layout;
    *index = &b.memory->index;
    if (options->media_folder)
        b.memory->index.media_folder = copy_text(&b, options->media_folder);
    status = options->media_folder && !b.memory->index.media_folder ? no_memory(&b) : build(&b);
    trajd_index_texts_end(&b.texts);
    free(b.paths);
    free(b.validation.plans);
    free(b.validation.found);
    if (status)
        trajd_index_destroy(index);
    return status;
}

void trajd_index_destroy(struct trajd_index **index)
{
    struct index_memory *memory = (struct index_memory *)*index;

    if (memory) {
        trajd_layout_destroy(&memory->index.layout);
        trajd_arena_free(&memory->arena);
        free(memory);
    }
    *index = NULL;
}

int64_t trajd_index_find_stream(const struct trajd_index *index, const char *name)
{
    for (uint32_t i = 0; i < index->stream_count; i++) {
        if (!strcmp(index->streams[i].name, name))
            return i;
    }
    return -1;
}

int64_t trajd_index_find_clock(const struct trajd_index *index, const char *name)
{
    for (uint32_t i = 0; i < index->clock_count; i++) {
        if (!strcmp(index->clocks[i].name, name))
            return i;
    }
    return -1;
}
