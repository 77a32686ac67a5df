/* Packed video in an index: its tables and some packets are checked, and the media files are opened
 * that have the packets of a video by reference. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/heartbeat.h"
#include "daemon/index/index_internal.h"

/* packets of each array whose bytes are checked; a file that was replaced has others */
enum { SAMPLES = 4 };

bool trajd_index_media_folder(const char *media_folder, const char *file_path,
                              char folder[TRAJD_MEDIA_FOLDER_SIZE])
{
    const char *slash = strrchr(file_path, '/');
    int length;

    if (media_folder)
        length = snprintf(folder, TRAJD_MEDIA_FOLDER_SIZE, "%s", media_folder);
    else if (!slash)
        length = snprintf(folder, TRAJD_MEDIA_FOLDER_SIZE, ".");
    else
        length = snprintf(folder, TRAJD_MEDIA_FOLDER_SIZE, "%.*s",
                          slash == file_path ? 1 : (int)(slash - file_path), file_path);
    return length < TRAJD_MEDIA_FOLDER_SIZE;
}

/* ---- while a record is evaluated ---- */

void trajd_index_media_close(struct trajd_index_media *media)
{
    for (uint32_t i = 0; i < TRAJD_MEDIA_OPEN_MAX; i++)
        if (media->open[i].name && media->open[i].fd >= 0)
            close(media->open[i].fd);
    trajd_video_reader_destroy(&media->reader);
}

/* Opens a media file, or finds it among those that are open: the episodes of a file often share
 * few. */
static enum trajd_status find_media(struct trajd_index_media *media, const char *name,
                                    struct trajd_open_media **found, struct trajd_error *error)
{
    struct trajd_open_media *slot;

    for (uint32_t i = 0; i < TRAJD_MEDIA_OPEN_MAX; i++) {
        *found = &media->open[i];
        if ((*found)->name && !strcmp((*found)->name, name))
            return TRAJD_OK;
    }
    *found = slot = &media->open[media->next++ % TRAJD_MEDIA_OPEN_MAX];
    if (slot->name && slot->fd >= 0)
        close(slot->fd);
    *slot = (struct trajd_open_media){.name = name};
    const enum trajd_status status =
        trajd_media_open(media->folder, name, &slot->fd, &slot->stat, error);
    if (status)
        slot->name = NULL;
    return status;
}

enum trajd_status trajd_index_media_note(struct trajd_index_media *media, struct trajd_arena *arena,
                                         struct trajd_array *array, struct trajd_error *error)
{
    struct trajd_video *video = trajd_record_copy_video(arena, array->video);
    struct trajd_open_media *found;
    enum trajd_status status;

    if (!video)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the media files");
    array->video = video;
    video->media_stat = (struct trajd_file_stat){0};
    status = video->media ? find_media(media, video->media, &found, error) : TRAJD_OK;
    if (video->media && !status) {
        video->media_stat = found->stat;
        media->is_unsettled =
            media->is_unsettled || !trajd_file_stat_is_settled(&video->media_stat);
    }
    return status == TRAJD_ERR_DATA ? TRAJD_OK : status; /* told when the episode is sampled */
}

/* Returns the packet of sample i: the first, the last and those between. */
static uint64_t sampled_packet(uint64_t packets, uint64_t i)
{
    return packets <= SAMPLES ? i : (packets - 1) * i / (SAMPLES - 1);
}

enum trajd_status trajd_index_media_sample(struct trajd_index_media *media, int fd,
                                           const struct trajd_array *array,
                                           struct trajd_digest *digest, struct trajd_error *error)
{
    const struct trajd_video *video = array->video;
    struct trajd_open_media *found = NULL;
    enum trajd_status status = trajd_video_examine(fd, array, digest, error);

    if (!status && video->media)
        status = find_media(media, video->media, &found, error);
    if (!status && found && found->stat.size_bytes != video->media_size)
        status = trajd_error_set(error, TRAJD_ERR_DATA, 0,
                                 "media file %.512s has %llu bytes, and had %llu when the episode "
                                 "was converted",
                                 video->media, (unsigned long long)found->stat.size_bytes,
                                 (unsigned long long)video->media_size);
    if (!status && !media->reader)
        status = trajd_video_reader_create(&media->reader, error);
    for (uint64_t i = 0; i < SAMPLES && i < video->packet_count && !status; i++)
        status = trajd_video_check_packet(media->reader, fd, found ? found->fd : -1, array,
                                          sampled_packet(video->packet_count, i), error);
    return status;
}

/* ---- later ---- */

/* Returns what stat tells of a media file now; all 0 where it cannot be opened. */
static struct trajd_file_stat stat_media(const char *folder, const char *name)
{
    struct trajd_file_stat stat;
    int fd;

    if (!trajd_media_open(folder, name, &fd, &stat, NULL))
        close(fd);
    return stat;
}

bool trajd_index_media_is_same(const struct trajd_record *record, const char *media_folder,
                               const char *file_path)
{
    char folder[TRAJD_MEDIA_FOLDER_SIZE];
    const struct trajd_video *last = NULL;

    if (!trajd_index_media_folder(media_folder, file_path, folder))
        return false;
    for (uint32_t e = 0; e < record->episode_count; e++)
        for (uint32_t a = 0; a < record->episodes[e].array_count; a++) {
            const struct trajd_video *video = record->episodes[e].arrays[a].extent.video;
            struct trajd_file_stat now;
            if (!video || !video->media)
                continue;
            if (last && !strcmp(last->media, video->media) &&
                trajd_file_stat_is_same(&last->media_stat, &video->media_stat))
                continue;
            now = stat_media(folder, video->media);
            if (!trajd_file_stat_is_same(&video->media_stat, &now))
                return false;
            last = video;
        }
    return true;
}

void trajd_index_media_compare(const struct trajd_index *index, struct trajd_file_changes *changes)
{
    char folder[TRAJD_MEDIA_FOLDER_SIZE];

    for (uint32_t a = 0; a < index->array_count; a++) {
        const struct trajd_video *last = NULL;
        for (uint32_t e = 0; e < index->episode_count; e++) {
            const struct trajd_episode *episode = &index->episodes[e];
            const struct trajd_video *video =
                episode->quarantine ? NULL : episode->extents[a].video;
            struct trajd_file_stat now;
            if (!video || !video->media || (last && !strcmp(last->media, video->media)) ||
                !trajd_index_media_folder(index->media_folder,
                                          index->files[episode->file_index].path, folder))
                continue;
            last = video;
            now = stat_media(folder, video->media);
            changes->gone += !now.inode;
            changes->changed += now.inode && !trajd_file_stat_is_same(&video->media_stat, &now);
        }
    }
}

enum trajd_status trajd_index_open_media(const struct trajd_index *index, uint32_t file_index,
                                         const struct trajd_array *array, int *fd,
                                         struct trajd_error *error)
{
    char folder[TRAJD_MEDIA_FOLDER_SIZE];
    struct trajd_file_stat now;
    enum trajd_status status;

    *fd = -1;
    if (!array->video || !array->video->media)
        return TRAJD_OK;
    if (!trajd_index_media_folder(index->media_folder, index->files[file_index].path, folder))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "the path of a file is too long");
    status = trajd_media_open(folder, array->video->media, fd, &now, error);
    if (status) { /* it was there: whatever happened to it, the rows are not to blame */
        if (error)
            error->status = TRAJD_ERR_IO;
        return TRAJD_ERR_IO;
    }
    if (trajd_file_stat_is_same(&array->video->media_stat, &now))
        return TRAJD_OK;
    close(*fd);
    *fd = -1;
    return trajd_error_set(error, TRAJD_ERR_IO, 0,
                           "media file %.512s changed while it was in use: its size, a time or its "
                           "inode differs from the index",
                           array->video->media);
}
