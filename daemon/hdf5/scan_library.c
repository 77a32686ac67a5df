/* Starts libhdf5 and reads its errors; collects episodes and notes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/hdf5/helper_socket.h"
#include "daemon/hdf5/scan.h"
#include "daemon/index/rows/inflate.h"

enum { NOTE_COUNT_MAX = 256, EPISODE_COUNT_MAX = 1 << 20 };

/* Undoes h5py's filter lzf, which libhdf5 does not have. h5py states the bytes of a chunk. Returns
 * the bytes, or 0 where they are damaged. */
static size_t undo_lzf(unsigned flags, size_t value_count, const unsigned values[], size_t bytes,
                       size_t *capacity, void **buffer)
{
    const size_t size = value_count > 2 ? values[2] : 0;
    uint8_t *out = (flags & H5Z_FLAG_REVERSE) && size ? H5allocate_memory(size, false) : NULL;

    if (!out || !trajd_lzf_decode(*buffer, bytes, out, size)) {
        H5free_memory(out);
        return 0;
    }
    H5free_memory(*buffer);
    *buffer = out;
    *capacity = size;
    return size;
}

bool trajd_scan_start_library(void)
{
    static const H5Z_class2_t lzf = {.version = H5Z_CLASS_T_VERS,
                                     .id = TRAJD_FILTER_LZF,
                                     .decoder_present = 1,
                                     .name = "lzf",
                                     .filter = undo_lzf};

    setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
    setenv("HDF5_PLUGIN_PRELOAD", "::", 1); /* libhdf5's value for no plugins */
    return H5open() >= 0 && H5PLset_loading_state(0) >= 0 &&
           H5Eset_auto2(H5E_DEFAULT, NULL, NULL) >= 0 && H5Zregister(&lzf) >= 0 &&
           H5Lunregister(H5L_TYPE_EXTERNAL) >= 0; /* no link can lead out of the file */
}

/* what to do about an object whose format has a version that this libhdf5 does not know */
static const char newer[] = "it is damaged, or a newer HDF5 wrote it (libver=\"latest\" in h5py); "
                            "the h5repack of that HDF5 "
                            "converts it: h5repack --low=0 --high=2 -f GZIP=4 OLD NEW";

static herr_t visit_error(unsigned depth, const H5E_error2_t *entry, void *context)
{
    if (depth == 0 && entry->desc)
        snprintf(context, TRAJD_LIBRARY_ERROR_SIZE, "%s", entry->desc);
    return 0;
}

void trajd_library_error(char text[TRAJD_LIBRARY_ERROR_SIZE])
{
    *text = '\0';
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, visit_error, text);
}

const char *trajd_scan_error(struct trajd_scan *scan)
{
    const int number = scan->descriptor.error;
    char text[TRAJD_LIBRARY_ERROR_SIZE], *copy;

    scan->has_failed = true;
    trajd_library_error(text);
    H5Eclear2(H5E_DEFAULT);
    if (number != EINVAL) /* an offset in a damaged file that no file can have */
        scan->record->io_errno = number;
    trajd_helper_make_plain(text, ' ');
    copy = number > 0 ? trajd_arena_format(scan->arena, "read failed: %s", strerror(number))
           : strstr(text, "version") ? trajd_arena_format(scan->arena, "%s (%s)", text, newer)
                                     : trajd_arena_copy(scan->arena, text, strlen(text));
    return copy && *copy ? copy : "libhdf5 failed";
}

const char *trajd_scan_unreadable(struct trajd_scan *scan, int fd)
{
    static const char pointer[] = "version https://git-lfs";
    const char *failure = trajd_scan_error(scan), *reason;
    char begin[sizeof pointer - 1];

    if (pread(fd, begin, sizeof begin, 0) == sizeof begin && !memcmp(begin, pointer, sizeof begin))
        return "it is a git-lfs pointer and has no data: `git lfs pull` fetches the file";
    reason = trajd_arena_format(scan->arena, "not readable as HDF5: %s", failure);
    return reason ? reason : "not readable as HDF5";
}

void trajd_scan_note(struct trajd_scan *scan, const char *episode, const char *what,
                     const char *why)
{
    struct trajd_record *record = scan->record;

    if (!record->notes)
        record->notes = trajd_arena_alloc(scan->arena, NOTE_COUNT_MAX * sizeof *record->notes);
    if (!record->notes || record->note_count == NOTE_COUNT_MAX)
        return;
    record->notes[record->note_count] =
        trajd_arena_format(scan->arena, "%s/%s: left out: %s", episode, what, why);
    record->note_count += record->notes[record->note_count] != NULL;
}

struct trajd_record_episode *trajd_scan_add_episodes(struct trajd_scan *scan, uint32_t count)
{
    struct trajd_record *record = scan->record;
    struct trajd_record_episode *added;

    if (count > EPISODE_COUNT_MAX - record->episode_count)
        return NULL;
    if (count > scan->episode_capacity - record->episode_count) {
        const uint32_t capacity = 2 * (record->episode_count + count);
        struct trajd_record_episode *grown =
            trajd_arena_alloc(scan->arena, capacity * sizeof *grown);
        if (!grown)
            return NULL;
        if (record->episode_count)
            memcpy(grown, record->episodes, record->episode_count * sizeof *grown);
        record->episodes = grown;
        scan->episode_capacity = capacity;
    }
    added = record->episodes + record->episode_count;
    memset(added, 0, count * sizeof *added);
    record->episode_count += count;
    return added;
}
