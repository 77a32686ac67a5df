/* Validates one episode: it is kept with its arrays and clocks, or quarantined with a reason. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/index/index_internal.h"

/* Copies the arrays, and what the layout's paths with a '*' matched. Both lists are in the order of
 * strcmp, and the index has the paths of all records. */
static void copy_arrays(struct trajd_candidate *c, struct trajd_episode *episode)
{
    const struct trajd_record_episode *record = c->record;
    struct trajd_arena *arena = c->validation->arena;
    const char **matches = NULL;
    uint32_t next = 0;

    c->extents = trajd_candidate_alloc(c, c->validation->array_count, sizeof *c->extents);
    for (uint32_t i = 0; i < record->array_count && !c->no_memory; i++) {
        const struct trajd_record_array *array = &record->arrays[i];
        while (strcmp(c->validation->paths[next], array->path) < 0)
            next++;
        if (!trajd_record_copy_array(arena, &array->extent, &c->extents[next]))
            trajd_candidate_no_memory(c);
        if (!array->match)
            continue;
        if (!matches)
            matches = trajd_candidate_alloc(c, c->validation->array_count, sizeof *matches);
        if (matches)
            matches[next] = trajd_arena_copy(arena, array->match, strlen(array->match));
        c->no_memory = c->no_memory || !matches || !matches[next];
    }
    episode->matches = matches;
}

static bool blends(enum trajd_kind kind)
{
    return kind != TRAJD_KIND_PREVIOUS && kind != TRAJD_KIND_NEAREST;
}

/* Returns whether values between two rows make sense: not for images, booleans and names. */
static bool may_blend(const struct trajd_array *extent)
{
    return extent->dtype != TRAJD_BOOL && !extent->is_enum && !trajd_array_is_encoded(extent) &&
           !(extent->dtype == TRAJD_U8 && extent->rank >= 3);
}

/* Sets which colour comes first. Raw frames and those of video are as the layout says, and red first
 * where it leaves the order of encoded ones open: only writers of encoded frames exchange red and
 * blue. */
static void find_color(enum trajd_image_color given, bool is_raw, struct trajd_index_stream *stream)
{
    if (trajd_image_channels(stream->image.color) != 3)
        return;
    stream->color_is_given = given && !is_raw;
    if (stream->color_is_given)
        stream->image.color = given;
    else if (is_raw && stream->image.color == TRAJD_COLOR_UNDECIDED)
        stream->image.color = TRAJD_COLOR_RGB;
}

/* Sets type and shape of decoded frames. */
static void find_frame_shape(const struct trajd_array *extent, struct trajd_index_stream *stream)
{
    const struct trajd_image_header *header = &extent->header;

    stream->form = extent->form;
    stream->preparation = extent->preparation;
    if (extent->preparation)
        stream->image = trajd_layout_image_prepared(&stream->image, header->encoding);
    stream->encoding = header->encoding;
    stream->dtype = header->bits == 8 ? TRAJD_U8 : header->bits == 16 ? TRAJD_U16 : TRAJD_F32;
    stream->rank = 3;
    stream->shape[0] = header->height;
    stream->shape[1] = header->width;
    stream->shape[2] = header->channels;
    stream->feature_count = (uint64_t)header->height * header->width * header->channels;
}

/* Checks that rows which are not encoded are frames, as the layout says. */
static void check_frames(struct trajd_candidate *c, const struct trajd_layout_stream *source,
                         const struct trajd_array *extent)
{
    const struct trajd_layout_image *image = &source->image;
    const uint64_t channels = extent->rank == 4 ? extent->shape[3] : 1;
    const bool is_color = trajd_image_channels(image->color) == 3,
               is_depth = image->color == TRAJD_COLOR_DEPTH;
    const bool fits_type = is_depth ? extent->dtype == TRAJD_U16 || extent->dtype == TRAJD_F32
                                    : extent->dtype == TRAJD_U8;

    if (extent->rank < 3 || extent->rank > 4 || !fits_type || channels != (is_color ? 3 : 1))
        return trajd_candidate_misfit(
            c,
            "%s: image: its rows are neither encoded frames nor raw ones: raw ones have "
            "%s, and this is %s of rank %u",
            source->path,
            is_color   ? "the shape (T, height, width, 3) and type uint8"
            : is_depth ? "the shape (T, height, width) or (T, height, width, 1) and type "
                         "uint16 or float32"
                       : "the shape (T, height, width) or (T, height, width, 1) and type "
                         "uint8",
            trajd_dtype_name(extent->dtype), extent->rank);
    if (image->encoding > TRAJD_ENCODING_RAW)
        return trajd_candidate_misfit(c,
                                      "%s: image: its rows are raw, the layout says encoding: %s",
                                      source->path, trajd_image_encoding_name(image->encoding));
    if (image->height && (extent->shape[1] != image->height || extent->shape[2] != image->width))
        trajd_candidate_misfit(
            c, "%s: image: its frames are %" PRIu64 "x%" PRIu64 ", the layout says %ux%u",
            source->path, extent->shape[1], extent->shape[2], image->height, image->width);
}

/* Sets the stream's columns and row shape. */
static void find_shape(struct trajd_candidate *c, const struct trajd_layout_stream *source,
                       const struct trajd_array *extent, struct trajd_index_stream *stream)
{
    stream->feature_count = 1;
    if (source->column_end && (extent->rank != 2 || source->column_end > extent->shape[1])) {
        if (extent->rank != 2)
            return trajd_candidate_misfit(
                c, "%s: columns: needs an array of rank 2, this one has rank %u", source->path,
                extent->rank);
        return trajd_candidate_misfit(c, "%s: has %" PRIu64 " columns, the layout takes %u:%u",
                                      source->path, extent->shape[1], source->column_begin,
                                      source->column_end);
    }
    stream->rank = extent->rank - 1;
    for (uint32_t i = 1; i < extent->rank; i++) {
        stream->shape[i - 1] = extent->shape[i];
        stream->feature_count *= extent->shape[i];
    }
    if (source->column_end) {
        stream->first_column = source->column_begin;
        stream->feature_count = stream->shape[0] = source->column_end - source->column_begin;
    }
}

static void find_stream(struct trajd_candidate *c, const struct trajd_stream_plan *plan,
                        struct trajd_index_stream *stream)
{
    const struct trajd_layout_stream *source = &c->validation->layout->streams[plan->layout_stream];
    const struct trajd_array *extent = &c->extents[plan->array_index];
    const char *path = c->validation->paths[plan->array_index];
    const bool family = trajd_layout_is_family(source);

    *stream = plan->stream;
    stream->feature_count = 0;
    if (extent->storage == TRAJD_STORAGE_ABSENT || !extent->size_bytes) {
        if (!source->optional && extent->storage == TRAJD_STORAGE_ABSENT)
            trajd_candidate_misfit(c, "%s: missing (the layout requires it)", path);
        else if (!source->optional)
            trajd_candidate_fault(
                c, extent->shape[0] ? "%s: has no columns (zero width)" : "%s: has 0 rows", path);
        return;
    }
    stream->dtype = extent->dtype;
    stream->kind = source->kind;
    stream->image = source->image;
    stream->is_delta = source->is_delta;
    stream->is_event = source->is_event;
    stream->never_blends = !may_blend(extent);
    if (trajd_array_is_encoded(extent) && !source->image.is_present)
        return trajd_candidate_misfit(
            c, "%s: its rows are encoded frames: give stream %s the key image too", path,
            source->name);
    if (trajd_array_is_encoded(extent))
        find_frame_shape(extent, stream);
    if (source->image.is_present)
        find_color(c->validation->color,
                   !trajd_array_is_encoded(extent) || extent->form == TRAJD_ROWS_VIDEO ||
                       (extent->form == TRAJD_ROWS_PACKED &&
                        (stream->preparation || stream->encoding == TRAJD_ENCODING_RAW)),
                   stream);
    if (trajd_array_is_encoded(extent))
        return;
    if (source->image.is_present)
        check_frames(c, source, extent);
    if (blends(source->kind) && !may_blend(extent)) {
        if (!family)
            return trajd_candidate_misfit(
                c, "%s: %s cannot be blended: its kind must be previous or nearest", path,
                extent->dtype == TRAJD_BOOL ? "bool"
                : extent->is_enum           ? "an enum (names)"
                                            : "an image of uint8");
        stream->kind = TRAJD_KIND_PREVIOUS;
    }
    find_shape(c, source, extent, stream);
    if ((stream->kind == TRAJD_KIND_SLERP_XYZW || stream->kind == TRAJD_KIND_SLERP_WXYZ) &&
        stream->feature_count % 4)
        trajd_candidate_misfit(c, "%s: slerp needs a multiple of 4 columns, it has %" PRIu64, path,
                               stream->feature_count);
}

static void copy_keys(struct trajd_candidate *c, struct trajd_episode *episode)
{
    const char **keys = trajd_candidate_alloc(c, c->record->key_count + 1, sizeof *keys);

    for (uint32_t i = 0; keys && i < c->record->key_count; i++) {
        keys[i] = trajd_arena_copy(c->validation->arena, c->record->filter_keys[i],
                                   strlen(c->record->filter_keys[i]));
        c->no_memory = c->no_memory || !keys[i];
    }
    episode->filter_keys = keys;
}

/* Copies the texts. A text that the record lacks is absent. */
static void copy_metas(struct trajd_candidate *c, struct trajd_episode *episode)
{
    const struct trajd_layout *layout = c->validation->layout;
    const char **metas = trajd_candidate_alloc(c, layout->meta_count, sizeof *metas);

    for (uint32_t i = 0; metas && i < layout->meta_count; i++) {
        const struct trajd_layout_meta *meta = &layout->metas[i];
        const char *text = i < c->record->meta_count ? c->record->metas[i] : NULL;
        metas[i] = text ? trajd_arena_copy(c->validation->arena, text, strlen(text)) : NULL;
        c->no_memory = c->no_memory || (text && !metas[i]);
        if (!text && meta->required)
            trajd_candidate_misfit(c, "meta %s: missing (%s%s%s)", meta->name,
                                   meta->file        ? meta->file
                                   : meta->attribute ? meta->attribute
                                                     : meta->path,
                                   meta->json ? ", json " : "", meta->json ? meta->json : "");
    }
    episode->metas = metas;
}

/* Returns whether the record lacks an array that the layout requires. Then the problem of another
 * array does not matter: the episode has another structure. */
static bool lacks_required(const struct trajd_candidate *c)
{
    const struct trajd_validation *v = c->validation;

    for (uint32_t i = 0; i < v->plan_count && c->record->array_count; i++) {
        const char *path = v->paths[v->plans[i].array_index];
        bool is_there = v->plans[i].stream.optional;
        for (uint32_t k = 0; k < c->record->array_count && !is_there; k++)
            is_there = !strcmp(c->record->arrays[k].path, path);
        if (!is_there)
            return true;
    }
    return false;
}

enum trajd_status trajd_index_validate(struct trajd_validation *validation,
                                       const char *relative_path,
                                       const struct trajd_record_episode *record,
                                       struct trajd_episode *episode, struct trajd_error *error)
{
    uint64_t trimmed = validation->trimmed_row_count;
    struct trajd_candidate c = {.validation = validation, .record = record};
    char label[1024];

    snprintf(label, sizeof label, *record->id ? "%s: %s: " : "%s: ", relative_path, record->id);
    c.label = label;
    if (record->problem && (record->is_misfit || lacks_required(&c)))
        trajd_candidate_misfit(&c, "%s", record->problem);
    else if (record->problem)
        trajd_candidate_fault(&c, "%s", record->problem);
    copy_metas(&c, episode);
    if (!c.reason)
        copy_arrays(&c, episode);
    for (uint32_t i = 0; i < validation->plan_count && !c.reason; i++)
        find_stream(&c, &validation->plans[i], &validation->found[i]);
    if (!c.reason)
        trajd_candidate_make_clocks(&c);
    if (!c.reason)
        trajd_candidate_set_origin(&c, episode);
    copy_keys(&c, episode);
    episode->content_digest = record->content_digest;
    episode->is_plain = record->is_plain;
    episode->first_row = record->first_row;
    episode->all_rows = record->all_rows;
    episode->quarantine = c.reason;
    episode->is_misfit = c.is_misfit;
    episode->has_uneven_rows = c.has_uneven_rows;
    episode->extents = c.extents;
    episode->clocks = c.clocks;
    if (c.no_memory)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the index");
    if (c.reason) {
        validation->trimmed_row_count = trimmed;
        episode->extents = NULL;
        episode->clocks = NULL;
    }
    return TRAJD_OK;
}

void trajd_index_establish(struct trajd_validation *validation, struct trajd_stream_plan *plan,
                           const struct trajd_array *extents)
{
    /* find_stream only reads the extents */
    struct trajd_candidate c = {.validation = validation, .extents = (struct trajd_array *)extents};
    struct trajd_index_stream found;

    find_stream(&c, plan, &found);
    plan->established = found.feature_count > 0;
    if (plan->established)
        plan->stream = found;
}
