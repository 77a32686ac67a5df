/* Finds the files of a dataset and runs the steps that build its index; answers questions about
 * one. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/base/heartbeat.h"
#include "daemon/index/helper.h"
#include "daemon/index/index.h"
#include "daemon/index/index_internal.h"
#include "daemon/layout/glob.h"

enum { PATH_SIZE = 4096 };

struct files {
    struct trajd_index_entry *entries;
    uint32_t count;
    uint32_t unread_count; /* entries behind them: further names, and files that are not read */
};

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the index");
}

static void free_files(struct files *files)
{
    for (uint32_t i = 0; i < files->count + files->unread_count; i++) {
        free(files->entries[i].path);
        free(files->entries[i].relative_path);
        trajd_bytes_free(&files->entries[i].record);
        free(files->entries[i].cache);
    }
    free(files->entries);
    *files = (struct files){0};
}

/* A file that was removed after it was listed keeps size 0; opening it fails later. */
static void stat_entry(struct trajd_index_entry *entry)
{
    struct stat status;

    trajd_heartbeat_turn();
    if (stat(entry->path, &status))
        return;
    entry->device = status.st_dev;
    trajd_index_entry_set_stat(entry, &status);
}

static enum trajd_status set_entry(struct trajd_index_entry *entry, const char *folder,
                                   const char *relative, struct trajd_error *error)
{
    char path[PATH_SIZE];

    if ((size_t)snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", relative) >=
        sizeof path)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%.128s...: the path is too long",
                               relative);
    entry->path = strdup(path);
    entry->relative_path = strdup(relative);
    if (!entry->path || !entry->relative_path)
        return no_memory(error);
    stat_entry(entry);
    return TRAJD_OK;
}

/* Adds files that look like a part of the dataset and are not read. */
static enum trajd_status add_missed(const char *folder, const struct trajd_file_list *missed,
                                    struct files *files, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < missed->count && !status; i++) {
        struct trajd_index_entry *entry = &files->entries[files->count + files->unread_count++];
        struct stat about;
        status = set_entry(entry, folder, missed->relative_paths[i], error);
        entry->left_out = !status && !stat(entry->path, &about) && S_ISDIR(about.st_mode)
                              ? "a linked folder is not searched"
                              : "`files:` of the layout does not match its name";
    }
    return status;
}

/* Whose pattern it is. */
enum pattern_source {
    PATTERN_OF_PATH,       /* the user's own choice */
    PATTERN_OF_LAYOUT,     /* its ending may be .hdf5 or .h5; what it misses is listed, too */
    PATTERN_OF_OLD_LAYOUT, /* of 0.1.0, whose files must stay the same: its ending counts */
};

/* Finds the files below a folder. */
static enum trajd_status find_in_folder(const char *folder, const char *pattern,
                                        enum pattern_source source, struct files *files,
                                        struct trajd_error *error)
{
    struct trajd_file_list list, missed = {0};
    enum trajd_status status = source == PATTERN_OF_LAYOUT
                                   ? trajd_file_list_find_recordings(folder, pattern, &list, error)
                                   : trajd_file_list_find(folder, pattern, &list, error);

    if (status)
        return status;
    if (!list.count)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "%s: no file matches %s", folder,
                               pattern);
    if (source != PATTERN_OF_PATH)
        status = trajd_file_list_find_missed(folder, &list, &missed, error);
    if (status) {
        trajd_file_list_free(&list);
        return status;
    }
    files->entries = calloc(list.count + missed.count, sizeof *files->entries);
    if (!files->entries)
        status = no_memory(error);
    for (uint32_t i = 0; i < list.count && !status; i++)
        status = set_entry(&files->entries[files->count++], folder, list.relative_paths[i], error);
    if (!status)
        status = trajd_index_separate_links(files->entries, &files->count, error);
    if (!status)
        files->unread_count = list.count - files->count;
    if (!status)
        status = add_missed(folder, &missed, files, error);
    trajd_file_list_free(&missed);
    trajd_file_list_free(&list);
    return status;
}

static enum trajd_status find_single(const char *path, struct files *files,
                                     struct trajd_error *error)
{
    const char *slash = strrchr(path, '/');
    enum trajd_status status;
    char folder[PATH_SIZE];

    files->entries = calloc(1, sizeof *files->entries);
    if (!files->entries)
        return no_memory(error);
    files->count = 1;
    snprintf(folder, sizeof folder, "%.*s",
             slash == path ? 1
             : slash       ? (int)(slash - path)
                           : 0,
             path);
    status = set_entry(&files->entries[0], folder, slash ? slash + 1 : path, error);
    return status;
}

/* Finds the files that match a glob, below its longest part without wildcards. */
static enum trajd_status find_glob(const char *path, struct files *files, struct trajd_error *error)
{
    size_t plain = strcspn(path, "*?["), length;
    char folder[PATH_SIZE];

    while (plain && path[plain - 1] != '/')
        plain--;
    length = plain > 1 ? plain - 1 : plain;
    snprintf(folder, sizeof folder, "%.*s", (int)length, path);
    return find_in_folder(plain ? folder : ".", path + plain, PATTERN_OF_PATH, files, error);
}

static enum trajd_status find_files(const struct trajd_index_options *options,
                                    const struct trajd_layout *layout, struct files *files,
                                    struct trajd_error *error)
{
    const char *path = options->path, *at = options->layout ? strrchr(options->layout, '@') : NULL;
    const bool is_old = options->version == 1 || (at && !strcmp(at, "@1"));
    struct stat status;

    if (strlen(path) >= PATH_SIZE)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%.128s...: the path is too long",
                               path);
    if (!stat(path, &status))
        return S_ISDIR(status.st_mode)
                   ? find_in_folder(path, layout->files,
                                    is_old ? PATTERN_OF_OLD_LAYOUT : PATTERN_OF_LAYOUT, files,
                                    error)
                   : find_single(path, files, error);
    if (errno == ENOENT && trajd_is_glob(path))
        return find_glob(path, files, error);
    return trajd_error_set(error,
                           errno == ENOENT || errno == ENOTDIR ? TRAJD_ERR_NOT_FOUND : TRAJD_ERR_IO,
                           errno, "%s: %s", path, strerror(errno));
}

enum trajd_status trajd_index_open(const struct trajd_index_options *options,
                                   struct trajd_index **index, struct trajd_error *error)
{
    struct trajd_layout *layout;
    enum trajd_status status;

    *index = NULL;
    trajd_heartbeat_wait();
    status = trajd_layout_load(options->layout, options->layout_directory, options->version,
                               &layout, error);
    trajd_heartbeat_resume();
    return status ? status : trajd_index_open_as(options, layout, index, error);
}

enum trajd_status trajd_index_open_as(const struct trajd_index_options *options,
                                      struct trajd_layout *layout, struct trajd_index **index,
                                      struct trajd_error *error)
{
    struct trajd_index_lock lock = {.fd = -1};
    struct files files = {0};
    uint32_t count, unread_count;
    enum trajd_status status = TRAJD_OK;

    *index = NULL;
    if (!options->child_count || !options->file_timeout_ms)
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                 "child_count and file_timeout_ms must be at least 1");
    trajd_heartbeat_wait(); /* storage may be slow */
    if (!status && (options->rate.num || options->assumed_rate.num))
        status = trajd_layout_check_one_rate(layout, error);
    if (!status)
        status = trajd_layout_check_rates(layout, options->clock_rates, options->clock_rate_count,
                                          error);
    if (!status)
        status = find_files(options, layout, &files, error);
    if (!status)
        trajd_index_cache_load(options, layout, files.entries, files.count);
    trajd_heartbeat_resume();
    count =
        options->is_probe && files.count > TRAJD_HELPER_PROBED ? TRAJD_HELPER_PROBED : files.count;
    unread_count = options->is_probe ? 0 : files.unread_count;
    for (uint32_t i = 0; i < count && options->is_probe; i++)
        files.entries[i].slice_count = TRAJD_HELPER_PROBE;
    if (!status && !options->is_probe)
        status = trajd_index_lock_take(options, layout, files.entries, count, &lock, error);
    if (!status)
        status = options->is_probe
                     ? trajd_index_run_children(options, layout, &lock, files.entries, count, error)
                     : trajd_index_run_split(options, layout, &lock, files.entries, count, error);
    if (!status) {
        trajd_heartbeat_wait();
        const int cache_errno =
            options->is_probe ? 0
                              : trajd_index_cache_save(options, layout, files.entries, files.count);
        trajd_index_lock_give(&lock, true);
        trajd_heartbeat_resume();
        status =
            trajd_index_build(options, layout, files.entries, count, unread_count, index, error);
        if (!status) {
            (*index)->cache_errno = cache_errno;
            (*index)->lock_errno = lock.code;
        }
        layout = NULL;
    }
    trajd_index_lock_give(&lock, false);
    trajd_layout_destroy(&layout);
    free_files(&files);
    return status;
}

/* Counts the differences of two lists in natural order. */
static void compare_files(const struct files *now, const struct trajd_index *index,
                          struct trajd_file_changes *file_changes)
{
    uint32_t i = 0, j = 0;

    while (i < now->count || j < index->file_count) {
        const struct trajd_index_entry *entry = &now->entries[i];
        const struct trajd_index_file *file = &index->files[j];
        const int order = i == now->count ? 1
                          : j == index->file_count
                              ? -1
                              : trajd_natural_compare(entry->relative_path, file->relative_path);
        file_changes->added += order < 0;
        file_changes->gone += order > 0;
        file_changes->changed +=
            order == 0 && (entry->stat.ctime_ns != file->stat.ctime_ns ||
                           !trajd_file_stat_is_same(&file->stat, &entry->stat));
        i += order <= 0;
        j += order >= 0;
    }
}

/* Counts the JSON files with texts that changed. */
static void compare_text_files(const struct trajd_index *index,
                               struct trajd_file_changes *file_changes)
{
    for (uint32_t i = 0; i < index->text_file_count; i++) {
        const struct trajd_index_text_file *file = &index->text_files[i];
        struct trajd_file_stat now = {0};
        struct stat status;
        if (!stat(file->path, &status))
            now = trajd_file_stat_from(&status);
        file_changes->added += !file->stat.inode && now.inode;
        file_changes->gone += file->stat.inode && !now.inode;
        file_changes->changed +=
            file->stat.inode && now.inode && !trajd_file_stat_is_same(&file->stat, &now);
    }
}

enum trajd_status trajd_index_find_changes(const struct trajd_index_options *options,
                                           const struct trajd_index *index,
                                           struct trajd_file_changes *file_changes,
                                           struct trajd_error *error)
{
    struct trajd_layout *layout = NULL;
    struct files files = {0};
    enum trajd_status status;

    *file_changes = (struct trajd_file_changes){0};
    trajd_heartbeat_wait();
    status = trajd_layout_load(options->layout, options->layout_directory, options->version,
                               &layout, error);
    if (!status)
        status = find_files(options, layout, &files, error);
    trajd_heartbeat_resume();
    if (!status) {
        file_changes->layout_changed = layout->hash != index->layout->hash;
        compare_files(&files, index, file_changes);
        compare_text_files(index, file_changes);
        trajd_index_media_compare(index, file_changes);
    }
    trajd_layout_destroy(&layout);
    free_files(&files);
    return status;
}

uint32_t trajd_index_find_quaternions(const struct trajd_index *index, uint32_t array_index,
                                      uint64_t begin, uint64_t end, enum trajd_kind kind,
                                      const struct trajd_quaternion **first)
{
    const struct trajd_index_array *array = &index->arrays[array_index];
    const bool blends =
        kind == TRAJD_KIND_LINEAR || kind == TRAJD_KIND_MEAN || kind == TRAJD_KIND_ANGLE;
    uint32_t from = 0, to;

    *first = array->quaternions;
    if (!blends)
        return 0;
    while (from < array->quaternion_count && array->quaternions[from].column + 4 <= begin)
        from++;
    for (to = from; to < array->quaternion_count && array->quaternions[to].column < end;)
        to++;
    *first = array->quaternions + from;
    return to - from;
}

/* Returns the number of elements of a row, and in *rank the rank of the array. */
static uint64_t row_elements(const struct trajd_index *index, uint32_t array_index, uint32_t *rank)
{
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_episode *episode = &index->episodes[e];
        if (episode->quarantine || !episode->extents[array_index].size_bytes)
            continue;
        *rank = episode->extents[array_index].rank;
        return trajd_array_row_elements(&episode->extents[array_index]);
    }
    *rank = 0;
    return 0;
}

void trajd_index_advise_quaternions(const struct trajd_index *index,
                                    const struct trajd_index_stream *stream, enum trajd_kind kind,
                                    const struct trajd_quaternion *quaternions, uint32_t count,
                                    char text[TRAJD_QUATERNION_ADVICE_SIZE])
{
    uint32_t rank;
    const uint64_t elements = row_elements(index, stream->array_index, &rank);
    const struct trajd_quaternion_advice advice = {
        .stream = stream->name,
        .path = index->arrays[stream->array_index].path,
        .clock = index->clock_count > 1 ? index->clocks[stream->clock_index].name : NULL,
        .kind = kind,
        .first_column = stream->first_column,
        .feature_count = stream->feature_count,
        .elements = elements,
        .has_columns = rank == 2,
        .count = count,
        .quaternions = quaternions};

    trajd_quaternions_advise(&advice, text);
}

const char *trajd_index_color_source(const struct trajd_index_stream *stream)
{
    if (stream->image.color == TRAJD_COLOR_UNDECIDED)
        return "undecided";
    if (stream->preparation || stream->form == TRAJD_ROWS_VIDEO)
        return "file";
    return stream->color_is_given ? "key" : "layout";
}

/* ---- rates ---- */

static void add_rate(const struct trajd_episode_clock *clock, struct trajd_index_rates *rates)
{
    const double hz = (double)clock->rate.num / (double)clock->rate.den;

    if (clock->rate_source == TRAJD_RATE_ASSUMED)
        rates->assumed_count++;
    rates->source = rates->assumed_count ? TRAJD_RATE_ASSUMED : TRAJD_RATE_DECLARED;
    if (!rates->lowest_hz || hz < rates->lowest_hz)
        rates->lowest_hz = hz;
    if (hz > rates->highest_hz)
        rates->highest_hz = hz;
}

void trajd_index_rates_add(const struct trajd_index *index, uint32_t clock,
                           struct trajd_index_rates *rates)
{
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_episode_clock *view =
            index->episodes[e].quarantine ? NULL : &index->episodes[e].clocks[clock];
        if (!view || !view->row_count)
            continue;
        rates->episode_count++;
        if (index->clocks[clock].regular)
            add_rate(view, rates);
    }
}

const char *trajd_index_rates_text(const struct trajd_index_rates *rates,
                                   char text[TRAJD_RATES_TEXT_SIZE])
{
    int length = 0;

    *text = '\0';
    if (!rates->lowest_hz)
        return text;
    if (rates->lowest_hz != rates->highest_hz)
        length = snprintf(text, TRAJD_RATES_TEXT_SIZE, "%.6g to ", rates->lowest_hz);
    length += snprintf(text + length, TRAJD_RATES_TEXT_SIZE - (size_t)length, "%.6g Hz",
                       rates->highest_hz);
    if (rates->assumed_count == rates->episode_count)
        snprintf(text + length, TRAJD_RATES_TEXT_SIZE - (size_t)length, " (assumed)");
    else if (rates->assumed_count)
        snprintf(text + length, TRAJD_RATES_TEXT_SIZE - (size_t)length,
                 " (assumed in %" PRIu32 " of %" PRIu32 " episodes)", rates->assumed_count,
                 rates->episode_count);
    return text;
}
