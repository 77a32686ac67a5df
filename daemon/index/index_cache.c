/* The cache of records: one file for each pair of dataset path and layout. It only saves time: a
 * cache with any fault is ignored and written again. It is sealed (base/files.h), and a struct of the
 * codec: the tables below. A lock file beside it lets one of several daemons write it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/digest.h"
#include "daemon/base/files.h"
#include "daemon/base/heartbeat.h"
#include "daemon/base/progress/progress.h"
#include "daemon/index/index_internal.h"

/* changes with the tables */
static const uint64_t cache_magic = UINT64_C(0x5844494A41525434);
static const size_t decode_bytes_max = (size_t)2 << 30, cache_bytes_max = (size_t)16 << 30;
enum { ENTRY_COUNT_MAX = 1 << 22 };

/* The record of a file that had these properties. */
struct cached {
    struct trajd_codec_view path, record;
    uint64_t size_bytes, inode;
    int64_t mtime_ns, ctime_ns;
};

struct cache {
    uint64_t layout_hash;
    struct trajd_codec_view dataset;
    uint32_t count;
    struct cached *entries;
};

#define ONE(member) TRAJD_CODEC_ONE(struct cached, member)
static const struct trajd_codec_field cached_fields[] = {
    {"path", TRAJD_CODEC_BLOB, ONE(path)},
    {"size", TRAJD_CODEC_UINT, ONE(size_bytes)},
    {"mtime", TRAJD_CODEC_INT, ONE(mtime_ns)},
    {"ctime", TRAJD_CODEC_INT, ONE(ctime_ns)},
    {"inode", TRAJD_CODEC_UINT, ONE(inode)},
    {"record", TRAJD_CODEC_BLOB, ONE(record), .high = TRAJD_RECORD_SIZE_MAX},
};
static const struct trajd_codec_table cached_table =
    TRAJD_CODEC_TABLE(struct cached, cached_fields, TRAJD_CODEC_ROW, NULL);

static const struct trajd_codec_field cache_fields[] = {
    {"layout", TRAJD_CODEC_UINT, TRAJD_CODEC_ONE(struct cache, layout_hash)},
    {"dataset", TRAJD_CODEC_BLOB, TRAJD_CODEC_ONE(struct cache, dataset)},
    {"entries", TRAJD_CODEC_STRUCT, TRAJD_CODEC_LIST(struct cache, entries, count, ENTRY_COUNT_MAX),
     .table = &cached_table},
};
static const struct trajd_codec_table cache_table =
    TRAJD_CODEC_TABLE(struct cache, cache_fields, TRAJD_CODEC_ROW, NULL);

static struct trajd_codec_view view_of(const char *text)
{
    return (struct trajd_codec_view){text, (uint32_t)strlen(text)};
}

static bool is_text(const struct trajd_codec_view *view, const char *text)
{
    return strlen(text) == view->size && !memcmp(view->data, text, view->size);
}

static bool cache_path(const struct trajd_index_options *options, const struct trajd_layout *layout,
                       char *path, size_t size)
{
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    trajd_digest_add_text(&digest, options->path);
    trajd_digest_add_u64(&digest, layout->hash);
    return options->cache_directory &&
           (size_t)snprintf(path, size, "%s/%016" PRIx64 ".index", options->cache_directory,
                            trajd_digest_end(&digest)) < size;
}

/* Finds the entry with the path. Both lists are in natural order, so each search begins where the
 * last one ended. */
static struct trajd_index_entry *find_entry(struct trajd_index_entry *entries, uint32_t count,
                                            uint32_t *from, const struct trajd_codec_view *path)
{
    for (uint32_t step = 0; step < count; step++) {
        struct trajd_index_entry *entry = &entries[(*from + step) % count];
        if (is_text(path, entry->relative_path)) {
            *from = (*from + step + 1) % count;
            return entry;
        }
    }
    return NULL;
}

/* A load. */
struct loading {
    const struct trajd_layout *layout;
    const char *media_folder;
    struct trajd_index_entry *entries;
    uint32_t count, from;
    char *data; /* of the cache; NULL: an entry has it */
    /* the first record that was taken: mostly all others have its arrays, too */
    struct trajd_arena arena;
    struct trajd_record first;
    bool has_first;
};

/* Returns whether the bytes are a valid, evaluated record, and its media files are unchanged. The
 * same decoder checks records of children. */
static bool record_is_valid(const struct loading *loading, const struct trajd_codec_view *bytes,
                            const struct trajd_index_entry *entry, struct trajd_arena *arena,
                            struct trajd_record *record)
{
    bool valid =
        bytes->size <= TRAJD_RECORD_SIZE_MAX &&
        !trajd_record_decode((const uint8_t *)bytes->data, bytes->size, entry->stat.size_bytes,
                             loading->layout->clock_count, arena, record, NULL) &&
        !record->io_errno;

    for (uint32_t i = 0; valid && i < record->episode_count; i++)
        valid = record->episodes[i].evaluated;
    return valid && trajd_index_media_is_same(record, loading->media_folder, entry->path);
}

static bool has_arrays_of(const struct trajd_record_episode *episode,
                          const struct trajd_record_episode *other)
{
    bool same = episode->array_count == other->array_count;

    for (uint32_t i = 0; same && i < episode->array_count; i++)
        same = !strcmp(episode->arrays[i].path, other->arrays[i].path);
    return same;
}

/* Notes whether the record that was taken has arrays of which it is known that there are some. Takes
 * over the arena of the first record. */
static void note_paths(struct loading *loading, struct trajd_index_entry *entry,
                       struct trajd_arena *arena, const struct trajd_record *record)
{
    entry->has_known_paths = loading->has_first;
    entry->episode_count = record->episode_count;
    for (uint32_t i = 0; i < record->episode_count && entry->has_known_paths; i++)
        entry->has_known_paths = has_arrays_of(&record->episodes[i], loading->first.episodes);
    if (loading->has_first || !record->episode_count)
        return;
    loading->arena = *arena;
    loading->first = *record;
    loading->has_first = true;
    *arena = (struct trajd_arena){0};
}

static void take_entry(struct loading *loading, const struct cached *cached)
{
    struct trajd_index_entry *entry =
        find_entry(loading->entries, loading->count, &loading->from, &cached->path);
    const struct trajd_file_stat *stat = entry ? &entry->stat : NULL;
    struct trajd_arena arena = {.limit_bytes = decode_bytes_max};
    struct trajd_record record;

    if (!entry || entry->record.length || stat->size_bytes != cached->size_bytes ||
        stat->mtime_ns != cached->mtime_ns || stat->ctime_ns != cached->ctime_ns ||
        stat->inode != cached->inode)
        return; /* the file changed: it is indexed again */
    if (record_is_valid(loading, &cached->record, entry, &arena, &record)) {
        entry->record = (struct trajd_bytes){.data = (uint8_t *)cached->record.data,
                                             .length = cached->record.size,
                                             .is_fixed = true};
        entry->from_cache = entry->keep = true;
        entry->cache = loading->data;
        loading->data = NULL;
        note_paths(loading, entry, &arena, &record);
    }
    trajd_arena_free(&arena);
}

void trajd_index_cache_load(const struct trajd_index_options *options,
                            const struct trajd_layout *layout, struct trajd_index_entry *entries,
                            uint32_t count)
{
    struct loading loading = {.layout = layout,
                              .media_folder = options->media_folder,
                              .entries = entries,
                              .count = count};
    struct trajd_arena arena = {.limit_bytes = decode_bytes_max};
    struct cache cache = {0};
    char path[4096];
    size_t size = 0;

    if (count && cache_path(options, layout, path, sizeof path))
        loading.data = trajd_file_read_sealed(path, cache_magic, cache_bytes_max, &size);
    if (loading.data &&
        !trajd_arena_decode(&arena, &cache_table, loading.data, size, &cache, NULL, NULL) &&
        cache.layout_hash == layout->hash && is_text(&cache.dataset, options->path))
        for (uint32_t i = 0; i < cache.count; i++)
            take_entry(&loading, &cache.entries[i]);
    trajd_arena_free(&loading.arena);
    trajd_arena_free(&arena);
    free(loading.data);
}

static bool is_kept(const struct trajd_index_entry *entry)
{
    return entry->keep && (entry->from_cache || entry->is_settled);
}

int trajd_index_cache_save(const struct trajd_index_options *options,
                           const struct trajd_layout *layout,
                           const struct trajd_index_entry *entries, uint32_t count)
{
    struct cache cache = {.layout_hash = layout->hash, .dataset = view_of(options->path)};
    struct trajd_bytes bytes = {0};
    uint32_t fresh = 0;
    int code = ENOMEM;
    char path[4096];

    for (uint32_t i = 0; i < count; i++)
        fresh += is_kept(&entries[i]) && !entries[i].from_cache;
    if (!fresh || !cache_path(options, layout, path, sizeof path))
        return 0;
    cache.entries = malloc(count * sizeof *cache.entries);
    for (uint32_t i = 0; i < count && cache.entries; i++) {
        const struct trajd_index_entry *entry = &entries[i];
        if (is_kept(entry))
            cache.entries[cache.count++] =
                (struct cached){.path = view_of(entry->relative_path),
                                .record = {entry->record.data, (uint32_t)entry->record.length},
                                .size_bytes = entry->stat.size_bytes,
                                .inode = entry->stat.inode,
                                .mtime_ns = entry->stat.mtime_ns,
                                .ctime_ns = entry->stat.ctime_ns};
    }
    if (cache.entries && !trajd_codec_encode(&cache_table, &cache, &bytes, NULL))
        code = trajd_file_write_sealed(path, cache_magic, bytes.data, bytes.length) ? errno : 0;
    free(cache.entries);
    trajd_bytes_free(&bytes);
    return code;
}

/* ---- the lock ---- */

/* What the holder of the lock writes into its file: a sign of life, and how far it is. */
struct beat {
    int64_t turn;
    uint32_t done, total;
    uint32_t is_finished;
};

static const int64_t beat_interval_ns = 1000000000;
static const long pause_least_ns = 2000000, pause_most_ns = 500000000;

static void write_beat(struct trajd_index_lock *lock, struct beat beat)
{
    beat.turn = lock->beat_ns = trajd_now_ns();
    trajd_heartbeat_wait();
    const ssize_t written = pwrite(lock->fd, &beat, sizeof beat, 0);
    trajd_heartbeat_resume();
    if (written < 0)
        return; /* a full disk: others then wait for twice the timeout of a file, and go on */
}

/* Goes on without the lock. `code` says why; 0: it is not needed. */
static void leave_lock(struct trajd_index_lock *lock, int code)
{
    if (lock->fd >= 0)
        close(lock->fd);
    *lock = (struct trajd_index_lock){.fd = -1, .code = code};
}

void trajd_index_lock_beat(struct trajd_index_lock *lock, uint32_t done, uint32_t total)
{
    if (lock->fd >= 0 && trajd_now_ns() - lock->beat_ns >= beat_interval_ns)
        write_beat(lock, (struct beat){.done = done, .total = total});
}

void trajd_index_lock_give(struct trajd_index_lock *lock, bool is_finished)
{
    if (lock->fd < 0)
        return;
    if (is_finished)
        write_beat(lock, (struct beat){.is_finished = true});
    leave_lock(lock, 0);
}

/* Returns 0, EWOULDBLOCK where another process has the lock, or why the file cannot be locked. */
static int try_lock(const struct trajd_index_lock *lock)
{
    int code;

    trajd_heartbeat_wait();
    code = flock(lock->fd, LOCK_EX | LOCK_NB) ? errno : 0;
    trajd_heartbeat_resume();
    return code;
}

static void read_beat(const struct trajd_index_lock *lock, struct beat *beat)
{
    struct beat found;

    trajd_heartbeat_wait();
    const ssize_t got = pread(lock->fd, &found, sizeof found, 0);
    trajd_heartbeat_resume();
    if (got == sizeof found)
        *beat = found;
}

/* Waits until this process has the lock, or until another one has finished: then without the lock,
 * so that a thousand daemons do not load the cache one after the other. */
static enum trajd_status wait_for_lock(const struct trajd_index_options *options,
                                       struct trajd_index_lock *lock, struct trajd_error *error)
{
    const int64_t silent_ns = (int64_t)options->file_timeout_ms * 2000000;
    struct timespec pause = {.tv_nsec = pause_least_ns};
    int64_t heard_ns = trajd_now_ns(), turn;
    char work[TRAJD_PROGRESS_TEXT_SIZE];
    struct beat first = {0}, beat;
    int code;

    snprintf(work, sizeof work, "index of %s, by another process", options->path);
    read_beat(lock, &first); /* of an earlier build, perhaps */
    beat = first;
    while ((code = try_lock(lock)) == EWOULDBLOCK || code == EINTR) {
        if (trajd_heartbeat_check(error))
            return TRAJD_ERR_CLOSED;
        nanosleep(&pause, NULL);
        pause.tv_nsec = pause.tv_nsec < pause_most_ns / 2 ? 2 * pause.tv_nsec : pause_most_ns;
        trajd_heartbeat_turn();
        turn = beat.turn;
        read_beat(lock, &beat);
        if (beat.turn != turn)
            heard_ns = trajd_now_ns();
        if (beat.turn != first.turn && beat.is_finished)
            break;
        if (beat.turn != first.turn && beat.total)
            trajd_progress_report(work, "files", beat.done, beat.total);
        if (trajd_now_ns() - heard_ns > silent_ns) {
            code = ETIMEDOUT;
            break;
        }
    }
    read_beat(lock, &beat);
    if (beat.turn != first.turn && beat.is_finished)
        leave_lock(lock, 0);
    else if (code)
        leave_lock(lock, code);
    return TRAJD_OK;
}

/* Counts the records that the cache lacks and may keep. */
static uint32_t count_lacking(const struct trajd_index_entry *entries, uint32_t count)
{
    uint32_t lacking = 0;

    for (uint32_t i = 0; i < count; i++)
        lacking += !entries[i].record.length && entries[i].is_settled;
    return lacking;
}

/* Loads the cache that another process may have written since the last load. */
static void load_again(const struct trajd_index_options *options, const struct trajd_layout *layout,
                       struct trajd_index_entry *entries, uint32_t count)
{
    /* opening the folder has NFS ask the server again for a name that it did not find before */
    const int folder = open(options->cache_directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (folder >= 0)
        close(folder);
    trajd_index_cache_load(options, layout, entries, count);
}

enum trajd_status trajd_index_lock_take(const struct trajd_index_options *options,
                                        const struct trajd_layout *layout,
                                        struct trajd_index_entry *entries, uint32_t count,
                                        struct trajd_index_lock *lock, struct trajd_error *error)
{
    char path[4096], file[sizeof path + 8];
    enum trajd_status status = TRAJD_OK;

    if (!count_lacking(entries, count) || !cache_path(options, layout, path, sizeof path))
        return TRAJD_OK;
    snprintf(file, sizeof file, "%s.lock", path);
    trajd_heartbeat_wait();
    lock->fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    trajd_heartbeat_resume();
    if (lock->fd >= 0)
        status = wait_for_lock(options, lock, error);
    else
        leave_lock(lock, errno);
    if (status)
        return status;
    if (lock->fd >= 0)
        write_beat(lock, (struct beat){.total = count});
    trajd_heartbeat_wait();
    load_again(options, layout, entries, count);
    trajd_heartbeat_resume();
    if (!count_lacking(entries, count))
        trajd_index_lock_give(lock, true);
    return TRAJD_OK;
}
