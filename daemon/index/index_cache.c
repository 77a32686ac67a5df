/* The cache of records: one file for each pair of dataset path and layout. It only saves time: a
 * cache with any fault is ignored and written anew.
 *
 *     u64 magic, u64 version, u64 length, u64 digest, both of all bytes that follow:
 *     u64 layout hash, text dataset path, u32 entries, entry*
 *     entry := text relative path, u64 size, u64 mtime, u64 ctime, u64 inode, u64 length,
 *              record (record.h) */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/digest.h"
#include "daemon/base/files.h"
#include "daemon/index/index_internal.h"

static const uint64_t cache_magic = UINT64_C(0x5844494A41525431);
static const uint64_t cache_version = 3;
static const size_t decode_bytes_max = (size_t)2 << 30;
enum { HEADER_SIZE = 32 };

struct reader {
    const uint8_t *next;
    size_t remaining;
};

static bool take(struct reader *reader, const uint8_t **data, uint64_t length)
{
    if (length > reader->remaining)
        return false;
    *data = reader->next;
    reader->next += length;
    reader->remaining -= length;
    return true;
}

static bool take_u64(struct reader *reader, uint64_t *value)
{
    const uint8_t *data;

    if (!take(reader, &data, 8))
        return false;
    memcpy(value, data, 8);
    *value = le64toh(*value);
    return true;
}

/* Takes a text, which stays in the buffer and has no NUL at its end. */
static bool take_text(struct reader *reader, const char **text, uint32_t *length)
{
    const uint8_t *data;

    if (!take(reader, &data, 4))
        return false;
    memcpy(length, data, 4);
    *length = le32toh(*length);
    if (!take(reader, &data, *length))
        return false;
    *text = (const char *)data;
    return true;
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

/* Returns whether the header is right; then the reader stands behind it. */
static bool check_header(struct reader *reader, const char *dataset_path, uint64_t layout_hash)
{
    uint64_t magic, version, length, digest, hash;
    uint32_t text_length;
    const char *text;

    return take_u64(reader, &magic) && magic == cache_magic && take_u64(reader, &version) &&
           version == cache_version && take_u64(reader, &length) &&
           length == reader->remaining - 8 && take_u64(reader, &digest) &&
           trajd_digest_of(reader->next, reader->remaining) == digest && take_u64(reader, &hash) &&
           hash == layout_hash && take_text(reader, &text, &text_length) &&
           text_length == strlen(dataset_path) && !memcmp(text, dataset_path, text_length);
}

/* Finds the entry with the path. Both lists are in natural order, so each search begins where the
 * last one ended. */
static struct trajd_index_entry *find_entry(struct trajd_index_entry *entries, uint32_t count,
                                            uint32_t *from, const char *path, uint32_t length)
{
    for (uint32_t step = 0; step < count; step++) {
        struct trajd_index_entry *entry = &entries[(*from + step) % count];
        if (strlen(entry->relative_path) == length && !memcmp(entry->relative_path, path, length)) {
            *from = (*from + step + 1) % count;
            return entry;
        }
    }
    return NULL;
}

/* Returns whether the bytes are a valid, evaluated record. The same decoder checks records of
 * children. */
static bool record_is_valid(const uint8_t *data, uint64_t length, uint64_t file_size,
                            const struct trajd_layout *layout)
{
    struct trajd_arena arena = {.limit_bytes = decode_bytes_max};
    struct trajd_record record;
    bool valid =
        length <= TRAJD_RECORD_SIZE_MAX &&
        !trajd_record_decode(data, length, file_size, layout->clock_count, &arena, &record, NULL) &&
        !record.io_errno;

    for (uint32_t i = 0; valid && i < record.episode_count; i++)
        valid = record.episodes[i].evaluated;
    trajd_arena_free(&arena);
    return valid;
}

static bool take_entry(struct reader *reader, const struct trajd_layout *layout,
                       struct trajd_index_entry *entries, uint32_t count, uint32_t *from)
{
    uint64_t size, mtime, ctime, inode, length;
    struct trajd_index_entry *entry;
    const uint8_t *data;
    const char *path;
    uint32_t path_length;

    if (!take_text(reader, &path, &path_length) || !take_u64(reader, &size) ||
        !take_u64(reader, &mtime) || !take_u64(reader, &ctime) || !take_u64(reader, &inode) ||
        !take_u64(reader, &length) || !take(reader, &data, length))
        return false;
    entry = find_entry(entries, count, from, path, path_length);
    if (!entry || entry->record.length || entry->stat.size_bytes != size ||
        entry->stat.mtime_ns != (int64_t)mtime || entry->stat.ctime_ns != (int64_t)ctime ||
        entry->stat.inode != inode || !record_is_valid(data, length, size, layout))
        return true; /* the file changed: it is indexed anew */
    trajd_bytes_add(&entry->record, data, length);
    if (entry->record.failed)
        trajd_bytes_free(&entry->record);
    entry->from_cache = entry->keep = entry->record.length > 0;
    return true;
}

static void read_entries(struct reader *reader, const struct trajd_layout *layout,
                         struct trajd_index_entry *entries, uint32_t count)
{
    const uint8_t *data;
    uint32_t cached, from = 0;

    if (!count || !take(reader, &data, 4))
        return;
    memcpy(&cached, data, 4);
    cached = le32toh(cached);
    while (cached-- && take_entry(reader, layout, entries, count, &from))
        ;
}

void trajd_index_cache_load(const struct trajd_index_options *options,
                            const struct trajd_layout *layout, struct trajd_index_entry *entries,
                            uint32_t count)
{
    struct reader reader;
    struct stat status;
    char path[4096], *data = NULL;
    size_t size = 0;
    int fd;

    if (!cache_path(options, layout, path, sizeof path))
        return;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    /* read and not mapped: a bad disk is an error of read, but a signal where it is mapped */
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size >= HEADER_SIZE &&
        !trajd_file_read_fd(fd, path, (size_t)status.st_size, &data, &size, NULL)) {
        reader = (struct reader){(const uint8_t *)data, size};
        if (check_header(&reader, options->path, layout->hash))
            read_entries(&reader, layout, entries, count);
        free(data);
    }
    close(fd);
}

static void add_entry(struct trajd_bytes *bytes, const struct trajd_index_entry *entry)
{
    trajd_bytes_add_text(bytes, entry->relative_path);
    trajd_bytes_add_u64(bytes, entry->stat.size_bytes);
    trajd_bytes_add_u64(bytes, (uint64_t)entry->stat.mtime_ns);
    trajd_bytes_add_u64(bytes, (uint64_t)entry->stat.ctime_ns);
    trajd_bytes_add_u64(bytes, entry->stat.inode);
    trajd_bytes_add_u64(bytes, entry->record.length);
    trajd_bytes_add(bytes, entry->record.data, entry->record.length);
}

static bool is_kept(const struct trajd_index_entry *entry)
{
    return entry->keep && (entry->from_cache || entry->is_settled);
}

/* Returns 0 or an errno. */
static int replace_file(const char *path, const struct trajd_bytes *bytes)
{
    struct trajd_file_replacement file;
    int code = trajd_file_replace_begin(&file, path) ? errno : 0;

    if (code)
        return code;
    code = trajd_file_write_all(file.fd, bytes->data, bytes->length) ? errno : 0;
    return trajd_file_replace_end(&file, path, !code) ? errno : code;
}

int trajd_index_cache_save(const struct trajd_index_options *options,
                           const struct trajd_layout *layout,
                           const struct trajd_index_entry *entries, uint32_t count)
{
    struct trajd_bytes bytes = {0};
    uint32_t kept = 0, fresh = 0;
    int code = ENOMEM;
    uint64_t word;
    char path[4096];

    for (uint32_t i = 0; i < count; i++) {
        kept += is_kept(&entries[i]);
        fresh += is_kept(&entries[i]) && !entries[i].from_cache;
    }
    if (!fresh || !cache_path(options, layout, path, sizeof path))
        return 0;
    for (size_t i = 0; i < HEADER_SIZE / 8; i++)
        trajd_bytes_add_u64(&bytes, i == 0 ? cache_magic : cache_version);
    trajd_bytes_add_u64(&bytes, layout->hash);
    trajd_bytes_add_text(&bytes, options->path);
    trajd_bytes_add_u32(&bytes, kept);
    for (uint32_t i = 0; i < count; i++) {
        if (is_kept(&entries[i]))
            add_entry(&bytes, &entries[i]);
    }
    if (!bytes.failed) {
        word = htole64(bytes.length - HEADER_SIZE);
        memcpy(bytes.data + 16, &word, 8);
        word = htole64(trajd_digest_of(bytes.data + HEADER_SIZE, bytes.length - HEADER_SIZE));
        memcpy(bytes.data + 24, &word, 8);
        code = replace_file(path, &bytes);
    }
    trajd_bytes_free(&bytes);
    return code;
}
