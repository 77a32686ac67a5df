/* Digests of an index: of each episode, of all that decides the rows, and of the files on disk. */
#include "daemon/base/digest.h"
#include "daemon/index/index_internal.h"

/* Returns a digest of the episode. Other episodes do not change it. Where two fingerprints
 * differ, the digests tell which episodes do. */
static uint64_t digest_episode(const struct trajd_index *index, const struct trajd_episode *episode)
{
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    trajd_digest_add_text(&digest, index->files[episode->file_index].relative_path);
    trajd_digest_add_text(&digest, episode->id);
    for (uint32_t i = 0; i < index->layout->meta_count; i++)
        trajd_digest_add_text(&digest, episode->metas[i]);
    trajd_digest_add_u64(&digest, !episode->quarantine);
    if (episode->quarantine)
        return trajd_digest_end(&digest);
    trajd_digest_add_u64(&digest, episode->content_digest);
    for (uint32_t i = 0; i < index->array_count; i++) {
        const struct trajd_array *extent = &episode->extents[i];
        if (extent->storage == TRAJD_STORAGE_ABSENT)
            continue;
        trajd_digest_add_text(&digest, index->arrays[i].path);
        if (trajd_array_is_encoded(extent)) { /* not the width of the padding */
            trajd_digest_add_u64(&digest, extent->shape[0]);
            trajd_digest_add_u64(&digest, extent->header.height);
            trajd_digest_add_u64(&digest, extent->header.width);
            continue;
        }
        trajd_digest_add_u64(&digest, extent->dtype);
        trajd_digest_add_u64(&digest, extent->rank);
        for (uint32_t k = 0; k < extent->rank; k++)
            trajd_digest_add_u64(&digest, extent->shape[k]);
    }
    for (uint32_t i = 0; i < index->clock_count; i++) {
        trajd_digest_add_u64(&digest, (uint64_t)episode->clocks[i].row_count);
        trajd_digest_add_u64(&digest, (uint64_t)episode->clocks[i].start_ns);
        trajd_digest_add_u64(&digest, (uint64_t)episode->clocks[i].rate.num);
        trajd_digest_add_u64(&digest, (uint64_t)episode->clocks[i].rate.den);
    }
    return trajd_digest_end(&digest);
}

/* Returns a digest of everything that decides the rows of the dataset. */
static uint64_t fingerprint(const struct trajd_index *index)
{
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    trajd_digest_add_u64(&digest, index->layout->order_hash);
    for (uint32_t i = 0; i < index->array_count; i++)
        trajd_digest_add_text(&digest, index->arrays[i].path);
    for (uint32_t i = 0; i < index->file_count; i++) {
        trajd_digest_add_text(&digest, index->files[i].relative_path);
        trajd_digest_add_u64(&digest, !index->files[i].refusal);
    }
    for (uint32_t i = 0; i < index->episode_count; i++)
        trajd_digest_add_u64(&digest, index->episodes[i].digest);
    return trajd_digest_end(&digest);
}

static void add_media(struct trajd_digest *digest, const struct trajd_video *video)
{
    if (!video || !video->media)
        return;
    trajd_digest_add_u64(digest, video->media_stat.size_bytes);
    trajd_digest_add_u64(digest, (uint64_t)video->media_stat.mtime_ns);
    trajd_digest_add_u64(digest, (uint64_t)video->media_stat.ctime_ns);
    trajd_digest_add_u64(digest, video->media_stat.inode);
}

/* Returns a digest of what `stat` says of the files. */
static uint64_t digest_files(const struct trajd_index *index)
{
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    for (uint32_t i = 0; i < index->file_count; i++) {
        trajd_digest_add_u64(&digest, index->files[i].stat.size_bytes);
        trajd_digest_add_u64(&digest, (uint64_t)index->files[i].stat.mtime_ns);
        trajd_digest_add_u64(&digest, (uint64_t)index->files[i].stat.ctime_ns);
        trajd_digest_add_u64(&digest, index->files[i].stat.inode);
    }
    for (uint32_t e = 0; e < index->episode_count; e++)
        for (uint32_t i = 0; i < index->array_count && !index->episodes[e].quarantine; i++)
            add_media(&digest, index->episodes[e].extents[i].video);
    return trajd_digest_end(&digest);
}

void trajd_index_set_digests(struct trajd_index *index, struct trajd_episode *episodes)
{
    for (uint32_t i = 0; i < index->episode_count; i++)
        episodes[i].digest = digest_episode(index, &episodes[i]);
    index->fingerprint = fingerprint(index);
    index->files_digest = digest_files(index);
}
