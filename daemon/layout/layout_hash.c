/* The hashes of a layout. They depend on the values of the keys, not on comments or spaces. Keys
 * that layouts of version 0.1.0 did not have count only where they are set, so that those layouts
 * keep their hash. What a layout says about images decides values, never which windows there are.
 * So it is left out of the hash that fingerprints contain. */
#include "daemon/base/digest.h"
#include "daemon/layout/layout_internal.h"
#include "proto/array_len.h"

static void add_all(struct trajd_digest *digest, const char *const *texts, size_t text_count,
                    const int64_t *numbers, size_t number_count)
{
    for (size_t k = 0; k < text_count; k++)
        trajd_digest_add_text(digest, texts[k]);
    for (size_t k = 0; k < number_count; k++)
        trajd_digest_add_u64(digest, (uint64_t)numbers[k]);
}

static void add_image(struct trajd_digest *digest, const struct trajd_layout_image *image)
{
    const int64_t numbers[] = {image->encoding, image->color,  image->flip,
                               image->unit,     image->height, image->width};

    add_all(digest, NULL, 0, numbers, ARRAY_LEN(numbers));
    trajd_digest_add_u64(digest, image->masks_zero_frames);
}

static void add_clock(struct trajd_digest *digest, const struct trajd_layout_clock *clock)
{
    const char *texts[] = {clock->name, clock->rate_attribute, clock->rate_json,
                           clock->rows, clock->stamps_path,    clock->start_path};
    const int64_t numbers[] = {
        clock->rate.num,      clock->rate.den,  clock->rate_default.num, clock->rate_default.den,
        clock->stamps_column, clock->unit,      clock->repeated,         clock->backward,
        clock->start_unit,    clock->offset_ns, clock->latency_ns};

    add_all(digest, texts, ARRAY_LEN(texts), numbers, ARRAY_LEN(numbers));
    if (clock->rate_path)
        trajd_digest_add_text(digest, clock->rate_path);
    if (clock->rate_unit)
        trajd_digest_add_u64(digest, clock->rate_unit);
    if (clock->multiple)
        trajd_digest_add_u64(digest, clock->multiple);
}

static void add_stream(struct trajd_digest *digest, const struct trajd_layout_stream *stream)
{
    const char *texts[] = {stream->name, stream->path, stream->clock, stream->unit};
    const int64_t numbers[] = {stream->kind, stream->column_begin, stream->column_end,
                               stream->max_gap_ns, stream->optional};

    add_all(digest, texts, ARRAY_LEN(texts), numbers, ARRAY_LEN(numbers));
    if (stream->drops_last_row)
        trajd_digest_add_text(digest, "rows: first");
    if (stream->is_event)
        trajd_digest_add_text(digest, "events: true");
    if (stream->is_delta)
        trajd_digest_add_text(digest, "semantics: delta");
}

static void add_meta(struct trajd_digest *digest, const struct trajd_layout_meta *meta)
{
    const char *texts[] = {meta->name, meta->attribute, meta->path, meta->json};
    const int64_t numbers[] = {meta->required};

    add_all(digest, texts, ARRAY_LEN(texts), numbers, ARRAY_LEN(numbers));
    if (meta->file) {
        trajd_digest_add_text(digest, meta->file);
        trajd_digest_add_text(digest, meta->list);
        trajd_digest_add_u64(digest, meta->by);
        trajd_digest_add_text(digest, meta->key);
        trajd_digest_add_u64(digest, meta->picks_by_hash);
    }
}

/* Returns the digest of all keys but `image`. */
static uint64_t digest_order(const struct trajd_layout *layout)
{
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    trajd_digest_add_text(&digest, layout->files);
    trajd_digest_add_text(&digest, layout->groups);
    trajd_digest_add_text(&digest, layout->filter_path);
    for (uint32_t i = 0; i < layout->split.path_count; i++) {
        trajd_digest_add_u64(&digest, layout->split.kind);
        trajd_digest_add_text(&digest, layout->split.paths[i]);
    }
    if (layout->split.next_path) {
        trajd_digest_add_text(&digest, layout->split.rows_path);
        trajd_digest_add_text(&digest, layout->split.next_path);
    }
    for (uint32_t i = 0; i < layout->clock_count; i++)
        add_clock(&digest, &layout->clocks[i]);
    for (uint32_t i = 0; i < layout->stream_count; i++)
        add_stream(&digest, &layout->streams[i]);
    for (uint32_t i = 0; i < layout->meta_count; i++)
        add_meta(&digest, &layout->metas[i]);
    for (uint32_t i = 0; i < layout->table_count; i++)
        trajd_digest_add_text(&digest, layout->tables[i]);
    return trajd_digest_end(&digest);
}

void trajd_layout_set_hash(struct trajd_layout *layout)
{
    struct trajd_digest digest;
    bool has_images = false;

    layout->order_hash = digest_order(layout);
    trajd_digest_init(&digest);
    trajd_digest_add_u64(&digest, layout->order_hash);
    for (uint32_t i = 0; i < layout->stream_count; i++) {
        const struct trajd_layout_stream *stream = &layout->streams[i];
        if (!stream->image.is_present)
            continue;
        has_images = true;
        trajd_digest_add_text(&digest, stream->name);
        add_image(&digest, &stream->image);
    }
    layout->hash = has_images ? trajd_digest_end(&digest) : layout->order_hash;
}
