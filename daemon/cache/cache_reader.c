/* The reader threads: each picks an entry, makes room for it, and reads it without the lock. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "daemon/cache/cache_internal.h"

#define RETRY_COUNT 3
#define FIRST_BACKOFF_MS 10 /* four times as much after each failure */
#define GATHER_BYTES (UINT64_C(4) << 20)
/* Entries that lie closer together than this are read in one call, until it has so many bytes: on
 * storage with a latency the number of calls decides. */
#define EXTENT_GAP_BYTES (UINT64_C(64) << 10)
#define EXTENT_BYTES (UINT64_C(2) << 20)
#define EXTENT_ENTRIES 256u
#define EXTENT_SEARCH 1024u /* entries that are looked at */
/* Further readers mostly wait for storage with a latency. Where they inflate, they give way. */
#define EAGER_READERS 2u
#define NICER 5

/* A reader's job, taken under the lock: entries of one file, and the bytes that hold their rows. */
struct task {
    uint32_t count, entries[EXTENT_ENTRIES];
    uint32_t filesystem;
    uint64_t begin, end;
    void *evicted; /* a chain of blocks to free */
};

/* Returns whether the first entry of the heap may be evicted. A pin that waits may evict any
 * unpinned entry, a prefetch only an entry that is needed later, a fill none. */
static bool may_evict(const struct trajd_cache *cache, enum queue_kind kind, uint32_t entry)
{
    if (cache->heap_count == 0 || kind == QUEUE_FILL)
        return false;
    return kind == QUEUE_DEMAND ||
           trajd_cache_next_use(cache, cache->heap[0]) > trajd_cache_next_use(cache, entry);
}

static bool make_room(struct trajd_cache *cache, enum queue_kind kind, uint32_t entry,
                      void **evicted)
{
    uint64_t bytes = cache->entries[entry].bytes;

    while (cache->stats.resident_bytes + bytes > cache->budget_bytes) {
        if (!may_evict(cache, kind, entry))
            return false;
        trajd_cache_evict(cache, cache->heap[0], evicted);
    }
    cache->stats.resident_bytes += bytes;
    return true;
}

static bool is_wanted(const struct trajd_cache *cache, enum queue_kind kind, uint32_t entry)
{
    const struct entry *p = &cache->entries[entry];

    if (p->state != ENTRY_ABSENT)
        return false;
    if (kind == QUEUE_AHEAD && p->bytes > cache->budget_bytes)
        return false; /* the budget has become smaller */
    return kind == QUEUE_FILL || (kind == QUEUE_DEMAND ? p->pins > 0 : p->first_use != NO_USE);
}

static void dequeue(struct trajd_cache *cache, struct queue *queue, enum queue_kind kind)
{
    struct entry *first = &cache->entries[queue->first];

    first->queued[kind] = false;
    queue->first = first->next[kind];
    if (queue->first == NO_ENTRY)
        queue->last = NO_ENTRY;
    if (kind == QUEUE_FILL)
        pthread_cond_broadcast(
            &cache->done); /* trajd_cache_fill checks whether its entry is still queued */
}

static uint32_t file_of(const struct trajd_cache *cache, uint32_t entry)
{
    return cache->index->episodes[trajd_cache_entry_episode(cache, entry)].file_index;
}

static int by_place(const void *a, const void *b, void *context)
{
    const struct entry *entries = context;
    const uint64_t left = entries[*(const uint32_t *)a].place.begin,
                   right = entries[*(const uint32_t *)b].place.begin;

    return (left > right) - (left < right);
}

static void add(struct trajd_cache *cache, struct task *task, uint32_t entry)
{
    struct entry *p = &cache->entries[entry];

    p->state = ENTRY_LOADING;
    task->entries[task->count++] = entry;
    task->begin = p->place.begin < task->begin ? p->place.begin : task->begin;
    task->end = p->place.end > task->end ? p->place.end : task->end;
}

/* Lists other entries of the same file that wait in the same queue, in the order of the file. Looks
 * at the episode of `first` and those behind it in the table, as files mostly have them. */
static uint32_t list_followers(const struct trajd_cache *cache, enum queue_kind kind,
                               uint32_t first, uint32_t *followers)
{
    const uint32_t begin = first - first % (2 * cache->index->array_count),
                   rest = cache->entry_count - begin,
                   end = begin + (rest < EXTENT_SEARCH ? rest : EXTENT_SEARCH);
    uint32_t count = 0;

    for (uint32_t entry = begin; entry < end && count < EXTENT_ENTRIES - 1; entry++) {
        const struct entry *p = &cache->entries[entry];
        if (!p->queued[kind] || entry == first || !is_wanted(cache, kind, entry) ||
            p->place.end - p->place.begin > EXTENT_BYTES)
            continue;
        if (file_of(cache, entry) != file_of(cache, first))
            break;
        followers[count++] = entry;
    }
    qsort_r(followers, count, sizeof *followers, by_place, cache->entries);
    return count;
}

/* Adds the entry to the task where one read may serve both. */
static void add_if_near(struct trajd_cache *cache, enum queue_kind kind, struct task *task,
                        uint32_t entry)
{
    const struct entry *p = &cache->entries[entry];

    if (p->state == ENTRY_ABSENT && task->end - task->begin < EXTENT_BYTES &&
        p->place.begin <= task->end + EXTENT_GAP_BYTES &&
        task->begin <= p->place.end + EXTENT_GAP_BYTES &&
        make_room(cache, kind, entry, &task->evicted))
        add(cache, task, entry);
}

/* Adds the entries that lie beside the first one of the task, before it and behind it. Their turn in
 * the queue finds them taken. */
static void add_followers(struct trajd_cache *cache, enum queue_kind kind, struct task *task)
{
    uint32_t followers[EXTENT_ENTRIES], count;

    if (task->end - task->begin >= EXTENT_BYTES)
        return;
    count = list_followers(cache, kind, task->entries[0], followers);
    for (uint32_t i = count; i-- > 0;)
        add_if_near(cache, kind, task, followers[i]);
    for (uint32_t i = 0; i < count; i++)
        add_if_near(cache, kind, task, followers[i]);
}

/* Takes the first entry of the queue that is still wanted, once there is room for it, and others
 * that are read with it. */
static bool take_from(struct trajd_cache *cache, struct queue *queue, enum queue_kind kind,
                      struct task *task)
{
    while (queue->first != NO_ENTRY) {
        uint32_t entry = queue->first;
        bool wanted = is_wanted(cache, kind, entry);
        bool room = wanted && make_room(cache, kind, entry, &task->evicted);
        if (wanted && !room && kind != QUEUE_FILL)
            return false; /* its turn comes when an entry is unpinned or read */
        if (room)
            add(cache, task, entry);
        dequeue(cache, queue, kind);
        if (room) {
            add_followers(cache, kind, task);
            return true;
        }
    }
    return false;
}

static bool take_task(struct trajd_cache *cache, struct task *task)
{
    task->count = 0;
    task->begin = UINT64_MAX;
    task->end = 0;
    task->evicted = NULL;
    for (int kind = 0; kind < QUEUE_COUNT; kind++)
        for (uint32_t i = 0; i < cache->filesystem_count; i++) {
            uint32_t at = (cache->next_filesystem + i) % cache->filesystem_count;
            struct filesystem *filesystem = &cache->filesystems[at];
            if (filesystem->reads_in_flight >= cache->reads_per_filesystem ||
                !take_from(cache, &filesystem->queues[kind], (enum queue_kind)kind, task))
                continue;
            filesystem->reads_in_flight++;
            cache->next_filesystem = (at + 1) % cache->filesystem_count;
            task->filesystem = at;
            return true;
        }
    /* some room was made, but not enough: free what was evicted */
    return task->evicted != NULL;
}

/* Returns how many rows of the array one call reads: whole chunks of about GATHER_BYTES. */
static uint64_t gather_step(const struct trajd_array *array)
{
    uint64_t unit = array->storage == TRAJD_STORAGE_CHUNKED ? array->chunk_shape[0] : 1;
    uint64_t bytes = trajd_array_row_bytes(array) * unit;

    return bytes && bytes < GATHER_BYTES ? GATHER_BYTES / bytes * unit : unit;
}

/* Copies one row into the entry, as it is or from float64 to float32, rounded to nearest. */
static void put_row(uint8_t *to, const uint8_t *from, uint64_t row_bytes, bool convert)
{
    if (!convert) {
        memcpy(to, from, row_bytes);
        return;
    }
    for (uint64_t i = 0; i < row_bytes / sizeof(double); i++) {
        double value;
        float rounded;
        memcpy(&value, from + i * sizeof value, sizeof value);
        rounded = (float)value;
        memcpy(to + i * sizeof rounded, &rounded, sizeof rounded);
    }
}

/* Reads the kept rows (NULL: all). Reads every chunk once: a stretch of rows at a time, from which
 * it copies the kept ones. */
static enum trajd_status read_stretches(struct trajd_array_reader *reader, int fd,
                                        const struct trajd_array *array, const uint32_t *kept,
                                        uint64_t count, bool convert, uint8_t *rows,
                                        struct trajd_error *error)
{
    uint64_t row_bytes = trajd_array_row_bytes(array), step = gather_step(array),
             total = trajd_array_row_count(array), to_bytes = convert ? row_bytes / 2 : row_bytes;
    enum trajd_status status = TRAJD_OK;
    uint8_t *stretch = malloc((step < total ? step : total) * row_bytes + 1);

    if (!stretch)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, ENOMEM, "no memory to gather rows");
    for (uint64_t i = 0; i < count && !status;) {
        uint64_t begin = (kept ? kept[i] : i) / step * step;
        uint64_t length = total - begin < step ? total - begin : step;
        status = trajd_array_read(reader, fd, array, begin, length, stretch, error);
        for (uint64_t row; i < count && (row = kept ? kept[i] : i) - begin < length; i++)
            put_row(rows + i * to_bytes, stretch + (row - begin) * row_bytes, row_bytes, convert);
    }
    free(stretch);
    return status;
}

static enum trajd_status read_rows(struct trajd_array_reader *reader, int fd,
                                   const struct trajd_array *array, const uint32_t *kept,
                                   uint64_t count, bool convert, uint8_t *rows,
                                   struct trajd_error *error)
{
    if (!convert && !kept)
        return trajd_array_read(reader, fd, array, 0, count, rows, error);
    /* rows are dropped only at the beginning and the end */
    if (!convert && count && kept[count - 1] - kept[0] == count - 1)
        return trajd_array_read(reader, fd, array, kept[0], count, rows, error);
    return read_stretches(reader, fd, array, kept, count, convert, rows, error);
}

static enum trajd_status read_once(struct trajd_cache *cache, struct trajd_array_reader *reader,
                                   uint32_t entry, void *rows, struct trajd_error *error)
{
    const struct trajd_array *array = trajd_cache_entry_array(cache, entry);
    const uint32_t file_index = file_of(cache, entry);
    uint64_t count;
    const uint32_t *kept = trajd_cache_entry_rows(cache, entry, &count);
    enum trajd_status status;
    int fd;

    status = trajd_cache_file_acquire(cache, file_index, &fd, error);
    if (status)
        return status;
    status = read_rows(reader, fd, array, kept, count, trajd_cache_entry_converts(array, entry),
                       rows, error);
    trajd_cache_file_release(cache, file_index, fd, status == TRAJD_ERR_IO);
    return status;
}

/* Reads an entry. Retries I/O errors, as network mounts fail for moments. Errors in the data are
 * not retried: they would not change. */
static enum trajd_status read_entry(struct trajd_cache *cache, struct trajd_array_reader *reader,
                                    uint32_t entry, int retries, void *rows,
                                    struct trajd_error *error)
{
    const struct trajd_episode *episode =
        &cache->index->episodes[trajd_cache_entry_episode(cache, entry)];
    struct timespec pause = {0, FIRST_BACKOFF_MS * 1000000L};
    enum trajd_status status = read_once(cache, reader, entry, rows, error);

    /* without a foreign code the file has ended or changed, and waiting does not help */
    for (int i = 0; i < retries && status == TRAJD_ERR_IO && error->foreign_code; i++) {
        nanosleep(&pause, NULL);
        pause.tv_nsec *= 4;
        status = read_once(cache, reader, entry, rows, error);
    }
    if (status)
        trajd_error_prefix(error, "%s: %s/%s", cache->index->files[episode->file_index].path,
                           episode->id,
                           cache->index->arrays[trajd_cache_entry_array_index(cache, entry)].path);
    return status;
}

static uint64_t count_missing(const struct trajd_array *array)
{
    uint64_t missing = 0;

    for (uint64_t c = 0; array->storage == TRAJD_STORAGE_CHUNKED && c < array->chunk_count; c++)
        missing += array->chunks[c].offset == TRAJD_ARRAY_MISSING_CHUNK;
    return missing;
}

/* Records the result of a read. rows NULL: reading failed with `failure`, which is NULL if there
 * was no memory even for that. The failure of a read ahead of use is forgotten: its pin reads again,
 * perhaps when the storage has recovered. The caller holds the lock. */
static void finish(struct trajd_cache *cache, uint32_t entry, void *rows,
                   struct trajd_error *failure)
{
    struct entry *p = &cache->entries[entry];
    const struct trajd_array *array = trajd_cache_entry_array(cache, entry);
    uint64_t count;

    p->rows = rows;
    p->failure = failure;
    if (rows) {
        p->state = ENTRY_RESIDENT;
        p->last_use = ++cache->tick;
        if (p->pins == 0)
            trajd_cache_heap_add(cache, entry);
        trajd_cache_entry_rows(cache, entry, &count);
        cache->stats.bytes_read += count * trajd_array_row_bytes(array);
        cache->stats.entries_loaded++;
        cache->stats.missing_chunks += count_missing(array);
    } else {
        p->state = ENTRY_FAILED;
        cache->stats.resident_bytes -= p->bytes;
        cache->stats.read_errors++;
        trajd_cache_forget_failure(p);
    }
    pthread_cond_broadcast(&cache->done);
    pthread_cond_broadcast(&cache->work); /* the entry may be evicted */
}

static enum trajd_status load_entry(struct trajd_cache *cache, struct trajd_array_reader *reader,
                                    uint32_t entry, int retries)
{
    uint64_t bytes = cache->entries[entry].bytes; /* constant */
    void *rows = trajd_cache_allocate(bytes);
    struct trajd_error error, *failure = NULL;
    enum trajd_status status;

    if (rows)
        status = read_entry(cache, reader, entry, retries, rows, &error);
    else
        status = trajd_error_set(&error, TRAJD_ERR_MEMORY, ENOMEM,
                                 "the machine has no memory for %llu bytes of rows, although the "
                                 "cache's budget allows them",
                                 (unsigned long long)bytes);
    if (status) {
        trajd_cache_free(rows, bytes);
        rows = NULL;
        failure = malloc(sizeof *failure);
        if (failure)
            *failure = error;
    }
    pthread_mutex_lock(&cache->lock);
    finish(cache, entry, rows, failure);
    pthread_mutex_unlock(&cache->lock);
    return status;
}

/* Reads the bytes of several entries in one call. Where it fails, each is read on its own, and has
 * its own error. */
static void load_extent(struct trajd_cache *cache, struct trajd_array_reader *reader,
                        const struct task *task)
{
    const uint32_t file_index = file_of(cache, task->entries[0]);
    struct trajd_error error;
    enum trajd_status status;
    int fd;

    if (trajd_cache_file_acquire(cache, file_index, &fd, &error))
        return;
    status = trajd_array_reader_load(reader, fd, task->begin, task->end - task->begin, &error);
    trajd_cache_file_release(cache, file_index, fd, status == TRAJD_ERR_IO);
}

/* A file that cannot be read costs one pause, not one for each entry. */
static void load(struct trajd_cache *cache, struct trajd_array_reader *reader,
                 const struct task *task)
{
    enum trajd_status status = TRAJD_OK;

    trajd_heartbeat_reads(cache->filesystems[task->filesystem].mount);
    if (task->count > 1)
        load_extent(cache, reader, task);
    for (uint32_t i = 0; i < task->count; i++)
        status =
            load_entry(cache, reader, task->entries[i], status == TRAJD_ERR_IO ? 0 : RETRY_COUNT);
    trajd_array_reader_load(reader, -1, 0, 0, NULL);
    pthread_mutex_lock(&cache->lock);
    cache->filesystems[task->filesystem].reads_in_flight--;
    pthread_cond_broadcast(&cache->work); /* the filesystem can take another read */
    pthread_mutex_unlock(&cache->lock);
}

const char *trajd_cache_find_hung(const struct trajd_cache *cache, int64_t now_ns, int64_t limit_ns)
{
    const char *mount = NULL;

    for (uint32_t i = 0; i < cache->reader_count && !mount; i++)
        mount = trajd_heartbeat_hung_storage(&cache->heartbeats[i], now_ns, limit_ns);
    return mount;
}

struct reader_thread {
    struct trajd_cache *cache;
    struct trajd_array_reader *reader;
    struct trajd_heartbeat *heartbeat;
    bool gives_way;
};

static void *run_reader(void *context)
{
    struct reader_thread thread = *(struct reader_thread *)context;
    struct trajd_cache *cache = thread.cache;
    struct task task;

    free(context);
    if (thread.gives_way)
        setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICER); /* of this thread */
    trajd_heartbeat_begin(thread.heartbeat);
    pthread_mutex_lock(&cache->lock);
    while (!cache->stopping) {
        if (!take_task(cache, &task)) {
            pthread_cond_wait(&cache->work, &cache->lock);
            continue;
        }
        pthread_mutex_unlock(&cache->lock);
        trajd_cache_free_evicted(task.evicted);
        if (task.count)
            load(cache, thread.reader, &task);
        pthread_mutex_lock(&cache->lock);
    }
    pthread_mutex_unlock(&cache->lock);
    trajd_array_reader_destroy(&thread.reader);
    return NULL;
}

static enum trajd_status start_reader(struct trajd_cache *cache, struct trajd_error *error)
{
    struct reader_thread *thread = malloc(sizeof *thread);
    char name[16];
    int failed;

    if (!thread)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a reader thread");
    thread->cache = cache;
    thread->heartbeat = &cache->heartbeats[cache->reader_count];
    thread->gives_way = cache->reader_count >= EAGER_READERS;
    if (trajd_array_reader_create(&thread->reader, error)) {
        free(thread);
        return TRAJD_ERR_MEMORY;
    }
    failed = pthread_create(&cache->readers[cache->reader_count], NULL, run_reader, thread);
    if (failed) {
        trajd_array_reader_destroy(&thread->reader);
        free(thread);
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "cannot start reader thread %u: %s",
                               cache->reader_count, strerror(failed));
    }
    snprintf(name, sizeof name, "trajd-read%u", cache->reader_count % 1000);
    pthread_setname_np(cache->readers[cache->reader_count++], name);
    return TRAJD_OK;
}

enum trajd_status trajd_cache_start_readers(struct trajd_cache *cache, uint32_t count,
                                            struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the main thread */
    for (uint32_t i = 0; i < count && !status; i++)
        status = start_reader(cache, error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}
