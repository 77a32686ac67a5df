/* What feeds become on the dataset of plan_fixture.h is compared, as text, with
 * tests/golden/window/feeds.txt: every field of the specification and of the plan, the windows, the
 * request of a batch and what it gives, or the error. Lines of that file that begin with "? " are
 * feeds, lines with "! " change the dataset for the feeds after them ("! as made": no change). To
 * record the text again, name a file for it as the argument, and read the differences. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan_fixture.h"
#include "daemon/base/digest.h"
#include "daemon/base/yaml.h"
#include "daemon/window/window_batch.h"
#include "proto/array_len.h"

#define RECORDED TRAJD_SOURCE_DIR "/tests/golden/window/feeds.txt"
#define SLOT_BYTES (1 << 16)
#define ROW_BYTES (300 * 16 * 8)

struct data {
    const struct trajd_window_plan *plan;
    uint8_t rows[STREAMS][ROW_BYTES];
    const void *bases[STREAMS];
};

static const char *record; /* NULL: the text is compared */

/* ---- the dataset ---- */

/* Makes one change. Returns false if the line is none. */
static bool change(struct fixture *f, const char *line)
{
    long long a, b, c;
    char text[64];

    if (sscanf(line, "type %lld %63s", &a, text) == 2) {
        f->streams[a].dtype = trajd_dtype_parse(text);
        make_array(f, 0, (int)a);
        make_array(f, 1, (int)a);
    } else if (sscanf(line, "kind %lld %lld %lld", &a, &b, &c) == 3) {
        f->streams[a].kind = (enum trajd_kind)b;
        f->streams[a].angle_period = (double)c;
    } else if (sscanf(line, "columns %lld %lld %lld", &a, &b, &c) == 3) {
        f->streams[a].first_column = (uint32_t)b;
        f->streams[a].feature_count = (uint32_t)c;
        f->streams[a].rank = 1;
        f->streams[a].shape[0] = (uint64_t)c;
        for (int e = 0; e < 2; e++) {
            f->arrays[e][a].rank = 2;
            f->arrays[e][a].shape[1] = (uint64_t)(b + c);
        }
    } else if (sscanf(line, "image %lld", &a) == 1) {
        f->streams[a].never_blends = true;
        f->streams[a].rank = 2;
    } else if (sscanf(line, "gap %lld %lld", &a, &b) == 2) {
        f->streams[a].max_gap_ns = b;
    } else if (sscanf(line, "camera %lld %lld", &a, &b) == 2) {
        f->episode_clocks[a][0].row_count = b;
        f->arrays[a][0].shape[0] = (uint64_t)b;
    } else if (sscanf(line, "rate %lld %lld", &a, &b) == 2) {
        f->episode_clocks[a][0].rate.num = (int32_t)b;
        f->rates[0] = (struct trajd_rate){0}; /* it differs between episodes */
    } else if (sscanf(line, "missing %lld %lld", &a, &b) == 2) {
        f->arrays[a][b].shape[0] = 0;
        f->arrays[a][b].rank = 0;
        f->arrays[a][b].storage = TRAJD_STORAGE_ABSENT;
    } else if (sscanf(line, "quarantine %lld", &a) == 1) {
        f->episodes[a].quarantine = "for a reason";
    } else if (sscanf(line, "shapes %lld %lld", &a, &b) == 2) {
        static const char *other[STREAMS];
        memset(other, 0, sizeof other);
        other[b] = "another shape";
        f->episodes[a].other_shapes = other;
    } else {
        return strcmp(line, "as made") == 0;
    }
    return true;
}

/* Fills the rows of an array with numbers of its type: 0, 1, 2, ... by element. */
static void fill_rows(uint8_t *rows, enum trajd_dtype dtype)
{
    for (size_t i = 0; i < ROW_BYTES / 8; i++) {
        if (dtype == TRAJD_F64)
            ((double *)(void *)rows)[i] = (double)i / 8;
        else if (dtype == TRAJD_F32)
            ((float *)(void *)rows)[i] = (float)i / 8;
        else if (dtype == TRAJD_I64)
            ((int64_t *)(void *)rows)[i] = (int64_t)i;
        else
            rows[i] = (uint8_t)i;
    }
}

static const void *const *rows_of(void *context, uint32_t episode)
{
    struct data *data = context;
    const struct trajd_selection *selection = &data->plan->selection;

    for (uint32_t k = 0; k < selection->array_count; k++) {
        const uint32_t a = selection->array_indexes[k];
        const struct trajd_array *array = &data->plan->dataset->index->episodes[episode].extents[a];
        enum trajd_dtype dtype = selection->as_float32[k] ? TRAJD_F32 : array->dtype;
        fill_rows(data->rows[a], dtype);
        data->bases[k] = array->storage == TRAJD_STORAGE_ABSENT ? NULL : data->rows[a];
    }
    return data->bases;
}

/* ---- the text ---- */

static void put_name(FILE *out, const char *key, const char *name)
{
    fprintf(out, " %s %s", key, name ? name : "-");
}

static void put_output(FILE *out, const struct trajd_spec_output *o)
{
    fprintf(out, "  output %s line %u role %d kind %d dtype %d missing %d from", o->name, o->line,
            o->role, o->kind, o->dtype, o->missing);
    for (uint32_t s = 0; s < o->source_count; s++)
        fprintf(out, " %s", o->sources[s]);
    fprintf(out, " at %d %lld..%lld @ %d/%d", o->at.in_time, (long long)o->at.from,
            (long long)o->at.to, (int)o->at.rate.num, (int)o->at.rate.den);
    fprintf(out, " age %lld gap %lld lookahead %lld width %lld range %d %g",
            (long long)o->max_age_ns, (long long)o->max_gap_ns, (long long)o->lookahead_ns,
            (long long)o->mean_width_ns, o->has_range, o->range_low);
    fprintf(out, " norm %d over %d min_std %g count %u mask %u", o->norm_by, o->norm_over,
            o->norm_min_std, o->norm_count, o->norm_mask_count);
    for (uint32_t i = 0; i < o->norm_count; i++)
        fprintf(out, " %g+%g", o->scale[i], o->offset[i]);
    for (uint32_t i = 0; i < o->norm_mask_count; i++)
        fprintf(out, " %d", o->norm_mask[i]);
    put_name(out, "file", o->norm_file);
    put_name(out, "key", o->norm_key);
    fputc('\n', out);
}

static void put_spec(FILE *out, const struct trajd_window_spec *s)
{
    fputs(" spec", out);
    put_name(out, "feed", s->feed_name);
    put_name(out, "dataset", s->dataset);
    put_name(out, "statistics_from", s->statistics_from);
    put_name(out, "clock", s->anchor_clock);
    put_name(out, "variant", s->variant);
    fprintf(out, " mix %d %d epoch %llu one %d members %u", s->is_mixture, s->mix_by_size,
            (unsigned long long)s->epoch_windows, s->one_per_episode, s->member_count);
    fprintf(out, " batch %u rate %d/%d anchor %d/%d pad %d %d edge %d order %d block %u %u",
            s->global_batch, (int)s->rate.num, (int)s->rate.den, (int)s->anchor_rate.num,
            (int)s->anchor_rate.den, (int)s->pad_before, (int)s->pad_after, s->edge, s->order,
            s->block_windows, s->block_neighbours);
    fprintf(out, " tail %d seed %llu slots %u bad %d jobs %u leaves %d after %lld", s->tail,
            (unsigned long long)s->seed, s->slot_count, s->keep_bad_rows, s->job_count,
            s->slow_leaves, (long long)s->slow_after_ns);
    fprintf(out, " rank_timeout %lld rejoin %lld\n", (long long)s->rank_timeout_ns,
            (long long)s->rejoin_wait_ns);
    for (uint32_t m = 0; s->is_mixture && m < s->member_count; m++)
        fprintf(out, "  member %s weight %llu seed %llu pad %d\n", s->members[m].dataset,
                (unsigned long long)s->members[m].weight,
                (unsigned long long)s->members[m].spec->seed, (int)s->members[m].spec->pad_before);
    for (uint32_t o = 0; o < s->output_count; o++)
        put_output(out, &s->outputs[o]);
}

static void put_numbers(FILE *out, const char *name, const int64_t *numbers, uint64_t count)
{
    fprintf(out, " %s", name);
    for (uint64_t i = 0; numbers && i < count; i++)
        if (i < 4 || i + 2 > count)
            fprintf(out, " %lld", (long long)numbers[i]);
    fprintf(out, " (%016llx)",
            numbers ? (unsigned long long)trajd_digest_of(numbers, count * sizeof *numbers) : 0);
}

static void put_texts(FILE *out, const char *name, const struct trajd_plan_texts *texts)
{
    fprintf(out, "  %u %s\n", texts->count, name);
    trajd_plan_texts_print(texts, "   ", out);
}

static void put_target(FILE *out, const struct trajd_window_plan *plan, uint32_t t)
{
    const struct trajd_plan_target *target = &plan->rules.targets[t];
    const struct trajd_stream *stream = &plan->rules.targets[t].stream;

    fprintf(out, "  target output %u stream %d bracket %u entry %d missing %d kind %d",
            target->output_index, (int)target->stream_index, target->bracket_index,
            (int)target->entry, target->missing, trajd_plan_kind(plan, target));
    fprintf(out, " | bracket %u kind %d type %d features %u column %u stride %llu edge %d",
            stream->bracket_index, stream->kind, stream->source_type, stream->feature_count,
            stream->first_column, (unsigned long long)stream->row_stride_bytes, stream->edge);
    fprintf(out, " gap %lld age %lld width %lld period %g low %g scale %g offset %g to %d\n",
            (long long)stream->max_gap_ns, (long long)stream->max_age_ns,
            (long long)stream->mean_width, stream->angle_period, stream->angle_low,
            stream->scale ? (double)stream->scale[0] : 0,
            stream->offset ? (double)stream->offset[0] : 0, stream->output_type);
}

static void put_plan(FILE *out, const struct trajd_window_plan *plan)
{
    fprintf(out, " plan anchor clock %lld rate %d/%d fingerprint %016llx anchors %016llx",
            (long long)plan->rules.anchor_clock, (int)plan->rules.anchor_rate.num,
            (int)plan->rules.anchor_rate.den, (unsigned long long)plan->fingerprint,
            (unsigned long long)plan->anchors_digest);
    fprintf(out, " norm %016llx found %u episodes %u windows %llu/%llu/%llu\n",
            (unsigned long long)trajd_window_norm_digest(plan), plan->found_count,
            plan->episode_count, (unsigned long long)trajd_sampler_window_count(plan->sampler),
            (unsigned long long)trajd_sampler_epoch_length(plan->sampler),
            (unsigned long long)trajd_sampler_number_count(plan->sampler));
    for (uint32_t g = 0; g < plan->rules.grid_count; g++) {
        const struct trajd_plan_grid *grid = &plan->rules.grids[g];
        fprintf(out, "  grid rule %d from %lld steps %u rate %d/%d per window %d", grid->rule,
                (long long)grid->from, grid->step_count, (int)grid->rate.num, (int)grid->rate.den,
                grid->per_window);
        put_numbers(out, "offsets", grid->offsets, grid->step_count);
        put_numbers(out, "step_ns", grid->step_ns, grid->step_count);
        put_numbers(out, "fractions", (const int64_t *)grid->step_fraction, grid->step_count);
        fputc('\n', out);
    }
    for (uint32_t b = 0; b < plan->rules.bracket_count; b++)
        fprintf(out, "  bracket clock %u grid %u clipped %d lookahead %lld array %lld\n",
                plan->rules.brackets[b].clock_index, plan->rules.brackets[b].grid_index,
                plan->rules.brackets[b].clipped, (long long)plan->rules.brackets[b].lookahead_ns,
                (long long)plan->rules.brackets[b].array_index);
    for (uint32_t t = 0; t < plan->rules.target_count; t++)
        put_target(out, plan, t);
    for (uint32_t o = 0; o < plan->rules.output_count; o++) {
        const struct trajd_plan_output *output = &plan->rules.outputs[o];
        fprintf(out, "  tensor %s role %d type %d steps %u rank %u shape %llu %llu features %llu",
                output->name, output->role, output->dtype, output->step_count, output->rank,
                (unsigned long long)output->shape[0], (unsigned long long)output->shape[1],
                (unsigned long long)output->feature_count);
        fprintf(out, " over %d min_std %g open %d\n", output->norm_over, output->norm_min_std,
                trajd_window_norm_is_open(plan, o));
    }
    for (uint32_t k = 0; k < plan->selection.array_count; k++)
        fprintf(out, "  array %u as float32 %d\n", plan->selection.array_indexes[k],
                plan->selection.as_float32[k]);
    put_texts(out, "quarantined", &plan->quarantined);
    put_texts(out, "warnings", &plan->warnings);
}

/* Makes the windows [position, position + count) of an epoch, and prints their masks and a digest
 * of their values. */
static void put_batch(FILE *out, const struct trajd_window_plan *plan, struct trajd_binding *batch,
                      uint64_t position, uint32_t count)
{
    static struct data data;
    uint8_t *slot = calloc(1, SLOT_BYTES);
    struct trajd_error error;
    uint64_t end = 0;

    data.plan = plan;
    for (uint32_t o = 0; o < plan->rules.output_count; o++) {
        const struct trajd_plan_output *output = &plan->rules.outputs[o];
        const uint64_t steps = (uint64_t)plan->spec->global_batch * output->step_count;
        batch->outputs[o].offset_bytes = end;
        end += (steps * output->feature_count * trajd_dtype_size(output->dtype) + 63) / 64 * 64;
        batch->outputs[o].mask_offset_bytes = end;
        end += (steps + 63) / 64 * 64;
    }
    if (end > SLOT_BYTES) {
        free(slot);
        return;
    }
    trajd_window_batch_look_up(batch, 1, position, count);
    trajd_bind_windows(batch, 0, count, slot, rows_of, &data);
    fprintf(out, "  batch at %llu:", (unsigned long long)position);
    for (uint32_t w = 0; w < batch->window_count; w++)
        fprintf(out, " %llu=%u:%lld%s(%lld)", (unsigned long long)batch->windows[w].window_id,
                batch->windows[w].episode_index, (long long)batch->windows[w].anchor,
                batch->windows[w].wrapped ? "w" : "", (long long)batch->anchor_ns[w]);
    fputc('\n', out);
    if (trajd_resample_check(&batch->request, &error)) {
        fprintf(out, "  check: %s\n", error.message);
    } else {
        trajd_resample_reference(&batch->request, 0, count);
        for (uint32_t o = 0; o < plan->rules.output_count; o++) {
            const uint64_t from = batch->outputs[o].offset_bytes,
                           to = batch->outputs[o].mask_offset_bytes;
            fprintf(out, "  values %016llx masks",
                    (unsigned long long)trajd_digest_of(slot + from, to - from));
            for (uint32_t w = 0; w < count; w++) {
                fputc(' ', out);
                for (uint32_t t = 0; t < plan->rules.outputs[o].step_count && t < 24; t++)
                    fprintf(out, "%u", slot[to + w * plan->rules.outputs[o].step_count + t]);
            }
            fputc('\n', out);
        }
    }
    free(slot);
}

static void put_batches(FILE *out, const struct trajd_window_plan *plan)
{
    const uint64_t length = trajd_sampler_epoch_length(plan->sampler);
    const uint32_t size = plan->spec->global_batch;
    struct trajd_binding *batch;
    struct trajd_error error;

    if (trajd_window_batch_create(plan, &batch, &error)) {
        fprintf(out, "  ! %s\n", error.message);
        return;
    }
    put_batch(out, plan, batch, 0, size);
    put_batch(out, plan, batch, length < size ? 0 : length - size, size - 1);
    trajd_binding_destroy(&batch);
}

static void put_feed(FILE *out, struct fixture *f, const char *feed)
{
    struct trajd_window_spec *spec = NULL;
    struct trajd_window_plan *plan = NULL;
    struct trajd_error error;
    struct trajd_yaml *yaml;

    if (trajd_yaml_parse("test", feed, strlen(feed), &yaml, &error)) {
        fprintf(out, " ! %s\n", error.message);
        return;
    }
    if (trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), "feed", 1, &spec, &error)) {
        fprintf(out, " ! %s\n", error.message);
    } else {
        put_spec(out, spec);
        if (!spec->is_mixture && trajd_window_plan_create(spec, &f->dataset, &plan, &error)) {
            fprintf(out, " ! %d %s\n", error.status, error.message);
        } else if (plan) {
            put_plan(out, plan);
            put_batches(out, plan);
        }
    }
    trajd_yaml_destroy(&yaml);
    trajd_window_plan_destroy(&plan);
    trajd_window_spec_destroy(&spec);
}

static void feeds_are_as_recorded(void **state)
{
    char path[] = "/tmp/trajd_feeds_XXXXXX", line[1024], command[256];
    FILE *in = fopen(RECORDED, "r"), *out = fdopen(mkstemp(path), "w");
    struct fixture *f = *state;

    assert_non_null(in);
    assert_non_null(out);
    while (fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] != '?' && line[0] != '!' && line[0] != '#')
            continue;
        fprintf(out, "%s\n", line);
        if (line[0] == '!' && strcmp(line + 2, "as made") == 0) {
            free_fixture(state);
            make_fixture(state);
            f = *state;
        } else if (line[0] == '!' && !change(f, line + 2)) {
            fail_msg("%s: no such change", line);
        } else if (line[0] == '?') {
            put_feed(out, f, line + 2);
        }
    }
    fclose(in);
    fclose(out);
    if (record)
        snprintf(command, sizeof command, "cp %s %s", path, record);
    else
        snprintf(command, sizeof command, "diff -u %s %s", RECORDED, path);
    assert_int_equal(system(command), 0);
    unlink(path);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(feeds_are_as_recorded, make_fixture, free_fixture),
    };

    record = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
