/* Validates one episode: it is kept with its arrays and clocks, or quarantined with a reason. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/quantity.h"
#include "daemon/index/index_internal.h"
#include "daemon/index/stamps.h"

#define FAR_NS (INT64_C(1) << 61) /* times outside the rows end here as well (trajd_clock_row_ns) */

/* The episode that is validated. Its memory lies in the arena of the index. */
struct candidate {
    struct trajd_validation *validation;
    const struct trajd_record_episode *record;
    const char *label; /* "file: demo_1: " */
    struct trajd_array *extents;
    struct trajd_episode_clock *clocks;
    const char *reason; /* to quarantine the episode; NULL: none so far */
    bool is_misfit;     /* the reason: it has another structure than the layout */
    bool no_memory;
};

static void set_reason(struct candidate *c, bool is_misfit, const char *format, va_list arguments)
{
    char rule[768];

    if (c->reason)
        return;
    vsnprintf(rule, sizeof rule, format, arguments);
    c->is_misfit = is_misfit;
    c->reason = trajd_arena_format(c->validation->arena, "%s%s", c->label, rule);
    if (!c->reason) {
        c->no_memory = true;
        c->reason = "no memory";
    }
}

/* Quarantines the episode because its content is bad. */
__attribute__((format(printf, 2, 3))) static void quarantine(struct candidate *c,
                                                             const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    set_reason(c, false, format, arguments);
    va_end(arguments);
}

/* Quarantines the episode because it has another structure than the layout. */
__attribute__((format(printf, 2, 3))) static void misfit(struct candidate *c, const char *format,
                                                         ...)
{
    va_list arguments;

    va_start(arguments, format);
    set_reason(c, true, format, arguments);
    va_end(arguments);
}

static void run_out_of_memory(struct candidate *c)
{
    c->no_memory = true;
    quarantine(c, "no memory");
}

static void *allocate(struct candidate *c, uint64_t count, size_t size)
{
    void *memory = trajd_arena_alloc(c->validation->arena, (count ? count : 1) * size);

    if (!memory)
        run_out_of_memory(c);
    return memory;
}

static void copy_arrays(struct candidate *c)
{
    const struct trajd_record_episode *record = c->record;
    uint32_t next = 0;

    c->extents = allocate(c, c->validation->array_count, sizeof *c->extents);
    for (uint32_t i = 0; c->extents && i < record->array_count; i++) {
        while (next < c->validation->array_count &&
               strcmp(c->validation->paths[next], record->arrays[i].path) < 0)
            next++;
        if (next < c->validation->array_count &&
            !strcmp(c->validation->paths[next], record->arrays[i].path) &&
            !trajd_record_copy_array(c->validation->arena, &record->arrays[i].extent,
                                     &c->extents[next]))
            run_out_of_memory(c);
    }
}

/* Copies what the layout's paths with a '*' matched. */
static const char *const *copy_matches(struct candidate *c)
{
    const struct trajd_record_episode *record = c->record;
    const char **matches = NULL;

    for (uint32_t i = 0, next = 0; c->extents && i < record->array_count; i++) {
        const char *match = record->arrays[i].match;
        if (!match)
            continue;
        if (!matches)
            matches = allocate(c, c->validation->array_count, sizeof *matches);
        while (next < c->validation->array_count &&
               strcmp(c->validation->paths[next], record->arrays[i].path) < 0)
            next++;
        if (!matches || next == c->validation->array_count)
            break;
        matches[next] = trajd_arena_copy(c->validation->arena, match, strlen(match));
        c->no_memory = c->no_memory || !matches[next];
    }
    return matches;
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

/* Sets type and shape of decoded frames. */
static void find_frame_shape(const struct trajd_array *extent, struct trajd_index_stream *stream)
{
    const struct trajd_picture *picture = &extent->picture;

    stream->form = extent->form;
    stream->preparation = extent->preparation;
    if (extent->preparation)
        stream->image = trajd_layout_image_prepared(&stream->image);
    stream->encoding = picture->encoding;
    stream->dtype = picture->bits == 8 ? TRAJD_U8 : picture->bits == 16 ? TRAJD_U16 : TRAJD_F32;
    stream->rank = 3;
    stream->shape[0] = picture->height;
    stream->shape[1] = picture->width;
    stream->shape[2] = picture->channels;
    stream->feature_count = (uint64_t)picture->height * picture->width * picture->channels;
}

/* Checks that rows which are not encoded are frames, as the layout says. */
static void check_frames(struct candidate *c, const struct trajd_layout_stream *source,
                         const struct trajd_array *extent)
{
    const struct trajd_layout_image *image = &source->image;
    const uint64_t channels = extent->rank == 4 ? extent->shape[3] : 1;
    const bool is_color = trajd_picture_channels(image->color) == 3,
               is_depth = image->color == TRAJD_COLOR_DEPTH;
    const bool fits_type = is_depth ? extent->dtype == TRAJD_U16 || extent->dtype == TRAJD_F32
                                    : extent->dtype == TRAJD_U8;

    if (extent->rank < 3 || extent->rank > 4 || !fits_type || channels != (is_color ? 3 : 1))
        return misfit(c,
                      "%s: image: its rows are neither encoded frames nor raw ones: raw ones have "
                      "%s, and this is %s of rank %u",
                      source->path,
                      is_color   ? "the shape (T, height, width, 3) and type uint8"
                      : is_depth ? "the shape (T, height, width) or (T, height, width, 1) and type "
                                   "uint16 or float32"
                                 : "the shape (T, height, width) or (T, height, width, 1) and type "
                                   "uint8",
                      trajd_dtype_name(extent->dtype), extent->rank);
    if (image->encoding > TRAJD_PICTURE_RAW)
        return misfit(c, "%s: image: its rows are raw, the layout says encoding: %s", source->path,
                      trajd_picture_encoding_name(image->encoding));
    if (image->height && (extent->shape[1] != image->height || extent->shape[2] != image->width))
        misfit(c, "%s: image: its frames are %" PRIu64 "x%" PRIu64 ", the layout says %ux%u",
               source->path, extent->shape[1], extent->shape[2], image->height, image->width);
}

/* Sets the stream's columns and row shape. */
static void find_shape(struct candidate *c, const struct trajd_layout_stream *source,
                       const struct trajd_array *extent, struct trajd_index_stream *stream)
{
    stream->feature_count = 1;
    if (source->column_end && (extent->rank != 2 || source->column_end > extent->shape[1])) {
        if (extent->rank != 2)
            return misfit(c, "%s: columns: needs an array of rank 2, this one has rank %u",
                          source->path, extent->rank);
        return misfit(c, "%s: has %" PRIu64 " columns, the layout takes %u:%u", source->path,
                      extent->shape[1], source->column_begin, source->column_end);
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

static void find_stream(struct candidate *c, const struct trajd_stream_plan *plan,
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
            misfit(c, "%s: missing (the layout requires it)", path);
        else if (!source->optional)
            quarantine(c, extent->shape[0] ? "%s: has no columns (zero width)" : "%s: has 0 rows",
                       path);
        return;
    }
    stream->dtype = extent->dtype;
    stream->kind = source->kind;
    stream->image = source->image;
    stream->is_delta = source->is_delta;
    stream->never_blends = !may_blend(extent);
    if (trajd_array_is_encoded(extent) && !source->image.is_present)
        return misfit(c, "%s: its rows are encoded frames: give stream %s the key image too", path,
                      source->name);
    if (trajd_array_is_encoded(extent))
        return find_frame_shape(extent, stream);
    if (source->image.is_present)
        check_frames(c, source, extent);
    if (blends(source->kind) && !may_blend(extent)) {
        if (!family)
            return misfit(c, "%s: %s cannot be blended: its kind must be previous or nearest", path,
                          extent->dtype == TRAJD_BOOL ? "bool"
                          : extent->is_enum           ? "an enum (names)"
                                                      : "an image of uint8");
        stream->kind = TRAJD_KIND_PREVIOUS;
    }
    find_shape(c, source, extent, stream);
    if ((stream->kind == TRAJD_KIND_SLERP_XYZW || stream->kind == TRAJD_KIND_SLERP_WXYZ) &&
        stream->feature_count % 4)
        misfit(c, "%s: slerp needs a multiple of 4 columns, it has %" PRIu64, path,
               stream->feature_count);
}

/* Returns whether a stream before this one has the same array, whose rows are checked already. */
static bool is_checked(const struct candidate *c, uint32_t plan)
{
    const struct trajd_validation *v = c->validation;

    for (uint32_t i = 0; i < plan; i++)
        if (v->plans[i].array_index == v->plans[plan].array_index && v->found[i].feature_count)
            return true;
    return false;
}

/* Returns whether the last row of the stream's array is left out. A file that `trajctl resample`
 * made lacks it already. */
static bool drops_last_row(const struct candidate *c, const struct trajd_stream_plan *plan)
{
    return c->validation->layout->streams[plan->layout_stream].drops_last_row &&
           !*c->record->resampled_rate;
}

/* Leaves out the last row of an array, which must be the only one that its clock lacks. */
static void drop_last_row(struct candidate *c, uint32_t index, uint64_t clock_rows)
{
    const struct trajd_stream_plan *plan = &c->validation->plans[index];
    struct trajd_array *extent = &c->extents[plan->array_index];
    const bool is_cut = is_checked(c, index);

    if (extent->shape[0] != clock_rows + !is_cut || !clock_rows)
        return quarantine(c,
                          "%s: has %" PRIu64 " rows, and clock %s has %" PRIu64
                          ": `rows: first` in the layout needs exactly one row more than the clock",
                          c->validation->paths[plan->array_index], extent->shape[0],
                          c->validation->layout->clocks[plan->clock_index].name, clock_rows);
    if (is_cut)
        return;
    trajd_array_cut(extent, clock_rows);
    c->validation->trimmed_row_count++;
}

static void check_rows(struct candidate *c, uint32_t index, uint64_t stamp_rows)
{
    const struct trajd_stream_plan *plan = &c->validation->plans[index];
    const struct trajd_layout_clock *clock = &c->validation->layout->clocks[plan->clock_index];
    struct trajd_array *extent = &c->extents[plan->array_index];
    const char *path = c->validation->paths[plan->array_index];

    if (drops_last_row(c, plan))
        return drop_last_row(c, index, stamp_rows);
    if (extent->shape[0] == stamp_rows + 1 && stamp_rows) {
        trajd_array_cut(extent, stamp_rows);
        c->validation->trimmed_row_count++;
    }
    if (extent->shape[0] != stamp_rows)
        quarantine(c, "%s: has %" PRIu64 " rows, its clock %s (%s) has %" PRIu64 " stamps", path,
                   extent->shape[0], clock->name, clock->stamps_path, stamp_rows);
}

static const char resampled_attribute[] = "/@trajd_resample";

static void refuse_rate(struct candidate *c, uint32_t index, const char *text, const char *place)
{
    const struct trajd_layout_clock *clock = &c->validation->layout->clocks[index];
    const bool is_period = place != resampled_attribute && clock->rate_unit > TRAJD_RATE_HZ;

    quarantine(c, "clock %s: \"%s\" of %s is not a %s", clock->name, text, place,
               is_period ? "period" : "rate");
}

static bool clock_is_used(const struct candidate *c, uint32_t clock)
{
    for (uint32_t i = 0; i < c->validation->plan_count; i++) {
        if (c->validation->plans[i].clock_index == clock && c->validation->found[i].feature_count)
            return true;
    }
    return false;
}

/* Quarantines an episode that loses more rows than the layout allows. */
static void check_lost_rows(struct candidate *c, const struct trajd_layout_clock *source,
                            const struct trajd_record_clock *recorded)
{
    if ((double)recorded->dropped_rows >
        (double)recorded->source_rows * source->lost_rows_percent / 100)
        quarantine(c,
                   "%s: %" PRIu64 " of %" PRIu64 " rows would be left out because their stamps "
                   "repeat or go back; lost_rows of clock %s allows %g%%",
                   source->stamps_path, recorded->dropped_rows, recorded->source_rows, source->name,
                   source->lost_rows_percent);
}

/* Quarantines the episode where the attribute trajd_resample of its file states a rate, but the
 * stamps have another one. Then the file was changed after it was resampled, and the rates of its
 * other clocks and episodes are unknown: the whole file is refused (index_build.c). */
static void check_grid(struct candidate *c, uint32_t index)
{
    const struct trajd_layout_clock *source = &c->validation->layout->clocks[index];
    const struct trajd_record_clock *clock = &c->record->clocks[index];
    const char *text = c->record->resampled_rate;
    struct trajd_rate rate;
    uint64_t at;

    if (!*text || c->validation->rate.num)
        return;
    if (!trajd_parse_rate(text, &rate))
        return refuse_rate(c, index, text, resampled_attribute);
    at = trajd_stamps_find_off_grid(clock->stamps_ns, clock->kept_rows, clock->row_count, rate,
                                    source->unit);
    if (at < clock->row_count && !c->reason) {
        quarantine(c,
                   "%s: row %" PRIu64 " is %.9g s after the first one, which contradicts the rate "
                   "of %.6g Hz in the attribute %s: the file was changed after it was resampled; "
                   "delete the attribute if the stamps are right",
                   source->stamps_path, clock->kept_rows ? clock->kept_rows[at] : at,
                   ((double)clock->stamps_ns[at] - (double)clock->stamps_ns[0]) * 1e-9,
                   (double)rate.num / (double)rate.den, resampled_attribute);
        if (!c->validation->contradiction)
            c->validation->contradiction = c->reason;
    }
}

/* Makes a stamped clock with absolute times, offset and latency applied. set_origin subtracts the
 * origin later. */
static void make_stamped(struct candidate *c, uint32_t index, int64_t shift)
{
    const struct trajd_layout_clock *source = &c->validation->layout->clocks[index];
    const struct trajd_record_clock *recorded = &c->record->clocks[index];
    struct trajd_episode_clock *clock = &c->clocks[index];
    int64_t *stamps;
    uint32_t *kept;

    if (!recorded->present)
        return misfit(c, "%s: missing (the stamps of clock %s)", source->stamps_path, source->name);
    if (!recorded->row_count)
        return quarantine(c, "%s: has 0 rows (the stamps of clock %s)", source->stamps_path,
                          source->name);
    check_lost_rows(c, source, recorded);
    for (uint32_t i = 0; i < c->validation->plan_count && !c->reason; i++) {
        if (c->validation->plans[i].clock_index == index && c->validation->found[i].feature_count)
            check_rows(c, i, recorded->source_rows);
    }
    check_grid(c, index);
    stamps = c->reason ? NULL : allocate(c, recorded->row_count, sizeof *stamps);
    for (uint64_t i = 0; stamps && i < recorded->row_count; i++) {
        if (__builtin_add_overflow(recorded->stamps_ns[i], shift, &stamps[i]))
            return quarantine(
                c, "%s: row %" PRIu64 ": the stamp with offset and latency is beyond 64 bits of ns",
                source->stamps_path, i);
    }
    kept =
        c->reason || !recorded->kept_rows ? NULL : allocate(c, recorded->row_count, sizeof *kept);
    if (kept)
        memcpy(kept, recorded->kept_rows, recorded->row_count * sizeof *kept);
    *clock = (struct trajd_episode_clock){.row_count = (int64_t)recorded->row_count,
                                          .stamps_ns = stamps,
                                          .kept_rows = kept,
                                          .dropped_rows = recorded->dropped_rows};
}

/* A rate below 1 Hz in an attribute of a recording is most likely a period in seconds. */
static void refuse_period(struct candidate *c, const struct trajd_layout_clock *clock,
                          const char *text, struct trajd_rate rate)
{
    quarantine(c,
               "clock %s: %s of %s is below 1 Hz: it is probably a period in seconds (%.6g Hz): "
               "write unit: s (or unit: hz) beside it in the layout",
               clock->name, text, trajd_layout_rate_place(clock),
               (double)rate.den / (double)rate.num);
}

/* Finds the rate of a regular clock. What counts: the rate of the options, the file's attribute
 * trajd_resample, what the layout says, and last the layout's default, which is only assumed. */
static bool find_rate(struct candidate *c, uint32_t index, struct trajd_episode_clock *clock)
{
    const struct trajd_layout_clock *source = &c->validation->layout->clocks[index];
    const bool is_resampled = *c->record->resampled_rate;
    const char *text = is_resampled ? c->record->resampled_rate : c->record->rates[index];
    const char *place = is_resampled ? resampled_attribute : trajd_layout_rate_place(source);

    clock->rate_source = TRAJD_RATE_DECLARED;
    clock->rate = c->validation->rate;
    if (clock->rate.num)
        return true;
    if (*text) {
        if (is_resampled ? !trajd_parse_rate(text, &clock->rate)
                         : !trajd_layout_read_rate(source, text, &clock->rate))
            refuse_rate(c, index, text, place);
        else if (!is_resampled && source->rate_unit == TRAJD_RATE_HZ_LIKELY &&
                 clock->rate.num < clock->rate.den)
            refuse_period(c, source, text, clock->rate);
        return !c->reason;
    }
    clock->rate = source->rate;
    if (clock->rate.num)
        return true;
    clock->rate_source = TRAJD_RATE_ASSUMED;
    clock->rate =
        c->validation->assumed_rate.num ? c->validation->assumed_rate : source->rate_default;
    if (!clock->rate.num)
        misfit(c, "clock %s: %s states no rate, and the layout has no default", source->name,
               place);
    return !c->reason;
}

/* Returns the row count of a regular clock: of the stream that the layout names, else of its
 * longest stream. Streams that lose their last row count only where there is no other one. */
static uint64_t count_rows(struct candidate *c, uint32_t index)
{
    const char *named = c->validation->layout->clocks[index].rows;
    uint64_t rows = 0, cut_rows = 0;

    for (uint32_t i = 0; i < c->validation->plan_count; i++) {
        const struct trajd_stream_plan *plan = &c->validation->plans[i];
        const uint64_t own = c->extents[plan->array_index].shape[0];
        const bool is_cut = drops_last_row(c, plan);
        uint64_t *most = is_cut ? &cut_rows : &rows;
        if (plan->clock_index == index && c->validation->found[i].feature_count &&
            (!named || !strcmp(named, plan->stream.name)) && own - is_cut > *most)
            *most = own - is_cut;
    }
    rows = rows ? rows : cut_rows;
    if (!rows && named)
        misfit(c, "%s: missing (it counts the rows of clock %s)", named,
               c->validation->layout->clocks[index].name);
    return rows;
}

static void make_regular(struct candidate *c, uint32_t index, int64_t shift)
{
    const struct trajd_layout_clock *source = &c->validation->layout->clocks[index];
    const struct trajd_record_clock *recorded = &c->record->clocks[index];
    struct trajd_episode_clock *clock = &c->clocks[index];

    if (!find_rate(c, index, clock))
        return;
    if (source->start_path && !recorded->has_start)
        return misfit(c, "%s: missing (the start of clock %s)", source->start_path, source->name);
    if (__builtin_add_overflow(recorded->start_ns, shift, &clock->start_ns))
        return quarantine(c, "%s: the start with offset and latency is beyond 64 bits of ns",
                          source->name);
    clock->row_count = (int64_t)count_rows(c, index);
    for (uint32_t i = 0; i < c->validation->plan_count && !c->reason; i++) {
        const struct trajd_stream_plan *plan = &c->validation->plans[i];
        if (plan->clock_index == index && c->validation->found[i].feature_count &&
            drops_last_row(c, plan))
            drop_last_row(c, i, (uint64_t)clock->row_count);
    }
}

static void make_clocks(struct candidate *c)
{
    const struct trajd_layout *layout = c->validation->layout;
    bool any = false;

    c->clocks = allocate(c, layout->clock_count, sizeof *c->clocks);
    for (uint32_t i = 0; i < layout->clock_count && !c->reason; i++) {
        int64_t shift = 0;
        if (!clock_is_used(c, i))
            continue;
        any = true;
        if (__builtin_sub_overflow(layout->clocks[i].offset_ns, layout->clocks[i].latency_ns,
                                   &shift))
            quarantine(c, "clock %s: offset and latency are beyond 64 bits of ns",
                       layout->clocks[i].name);
        else if (layout->clocks[i].stamps_path)
            make_stamped(c, i, shift);
        else
            make_regular(c, i, shift);
    }
    if (!any)
        misfit(c, "has none of the layout's arrays");
}

/* Sets the line through the first and the last stamp. */
static void fit_line(struct trajd_episode_clock *clock)
{
    const int64_t last = clock->row_count - 1;

    if (!clock->stamps_ns || last < 1)
        return;
    clock->rows_per_ns =
        (double)last / ((double)clock->stamps_ns[last] - (double)clock->stamps_ns[0]);
    clock->row_at_zero = -(double)clock->stamps_ns[0] * clock->rows_per_ns;
}

/* Makes *ns relative to the origin. Returns whether it is too far from it: differences and sums of
 * times must fit 64 bits. */
static bool is_far(int64_t *ns, int64_t origin_ns)
{
    return __builtin_sub_overflow(*ns, origin_ns, ns) || *ns > FAR_NS;
}

/* Moves all clocks to one origin, the earliest first row. */
static void set_origin(struct candidate *c, struct trajd_episode *episode)
{
    uint32_t count = c->validation->layout->clock_count;
    int64_t origin = INT64_MAX;

    for (uint32_t i = 0; i < count; i++) {
        const struct trajd_episode_clock *clock = &c->clocks[i];
        int64_t first = clock->stamps_ns ? clock->stamps_ns[0] : clock->start_ns;
        if (clock->row_count && first < origin)
            origin = first;
    }
    for (uint32_t i = 0; i < count && !c->reason; i++) {
        struct trajd_episode_clock *clock = &c->clocks[i];
        /* allocated by make_stamped; const for all other code */
        int64_t *stamps = (int64_t *)clock->stamps_ns;
        bool far = clock->row_count && !stamps && is_far(&clock->start_ns, origin);
        for (int64_t k = 0; stamps && k < clock->row_count; k++)
            far = is_far(&stamps[k], origin) || far;
        if (far)
            quarantine(
                c, "clock %s: it reaches more than 73 years beyond the episode's earliest stamp",
                c->validation->layout->clocks[i].name);
        if (!clock->row_count)
            clock->start_ns = 0;
        fit_line(clock);
    }
    episode->origin_ns = origin;
}

static void copy_keys(struct candidate *c, struct trajd_episode *episode)
{
    const char **keys = allocate(c, c->record->key_count + 1, sizeof *keys);

    for (uint32_t i = 0; keys && i < c->record->key_count; i++) {
        keys[i] = trajd_arena_copy(c->validation->arena, c->record->filter_keys[i],
                                   strlen(c->record->filter_keys[i]));
        c->no_memory = c->no_memory || !keys[i];
    }
    episode->filter_keys = keys;
}

/* Copies the texts. A text that the record lacks is absent. */
static void copy_metas(struct candidate *c, struct trajd_episode *episode)
{
    const struct trajd_layout *layout = c->validation->layout;
    const char **metas = allocate(c, layout->meta_count, sizeof *metas);

    for (uint32_t i = 0; metas && i < layout->meta_count; i++) {
        const struct trajd_layout_meta *meta = &layout->metas[i];
        const char *text = i < c->record->meta_count ? c->record->metas[i] : NULL;
        metas[i] = text ? trajd_arena_copy(c->validation->arena, text, strlen(text)) : NULL;
        c->no_memory = c->no_memory || (text && !metas[i]);
        if (!text && meta->required)
            misfit(c, "meta %s: missing (%s%s%s)", meta->name,
                   meta->file        ? meta->file
                   : meta->attribute ? meta->attribute
                                     : meta->path,
                   meta->json ? ", json " : "", meta->json ? meta->json : "");
    }
    episode->metas = metas;
}

/* Returns whether the record lacks an array that the layout requires. Then the problem of another
 * array does not matter: the episode has another structure. */
static bool lacks_required(const struct candidate *c)
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
    struct candidate c = {.validation = validation, .record = record};
    char label[1024];

    snprintf(label, sizeof label, *record->id ? "%s: %s: " : "%s: ", relative_path, record->id);
    c.label = label;
    if (record->problem && (record->is_misfit || lacks_required(&c)))
        misfit(&c, "%s", record->problem);
    else if (record->problem)
        quarantine(&c, "%s", record->problem);
    copy_metas(&c, episode);
    if (!c.reason)
        copy_arrays(&c);
    for (uint32_t i = 0; i < validation->plan_count && !c.reason; i++)
        find_stream(&c, &validation->plans[i], &validation->found[i]);
    if (!c.reason)
        make_clocks(&c);
    if (!c.reason)
        set_origin(&c, episode);
    copy_keys(&c, episode);
    episode->content_digest = record->content_digest;
    episode->is_plain = record->is_plain;
    episode->matches = copy_matches(&c);
    episode->quarantine = c.reason;
    episode->is_misfit = c.is_misfit;
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
    struct candidate c = {.validation = validation, .extents = (struct trajd_array *)extents};
    struct trajd_index_stream found;

    find_stream(&c, plan, &found);
    plan->established = found.feature_count > 0;
    if (plan->established)
        plan->stream = found;
}
