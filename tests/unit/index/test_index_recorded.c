/* All that the index knows of small files, as text, is compared with tests/golden/index/LAYOUT.txt,
 * without offsets and times. To record these texts again, name that folder as the argument,
 * and read the differences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/array_len.h"
#include "tests/support/array_list.h"
#include "tests/support/index_files.h"

static const char *recorded_folder; /* NULL: the texts are compared */

static void put_text(FILE *out, const char *text)
{
    const char *found = strstr(text, index_folder);

    if (found)
        fprintf(out, "%.*sFOLDER%s", (int)(found - text), text, found + strlen(index_folder));
    else
        fputs(text, out);
}

static void put_shape(FILE *out, const uint64_t *shape, uint32_t rank)
{
    fputs(" (", out);
    for (uint32_t d = 0; d < rank; d++)
        fprintf(out, "%s%" PRIu64, d ? "," : "", shape[d]);
    fputs(")", out);
}

/* Writes the sum of all values, each times its place, and the last row alone. */
static void put_values(FILE *out, struct trajd_array_reader *reader, int fd,
                       const struct trajd_array *array)
{
    const uint64_t rows = trajd_array_row_count(array), row_bytes = trajd_array_row_bytes(array),
                   elements = trajd_array_row_elements(array);
    uint8_t *bytes;
    double *values, sum[2] = {0};
    struct trajd_error error;

    if (!array->size_bytes || array->size_bytes > 1 << 20 || array->dtype == TRAJD_BOOL)
        return;
    bytes = malloc(array->size_bytes);
    values = malloc(rows * elements * sizeof *values);
    for (int part = 0; part < 2; part++) {
        const uint64_t begin = part ? rows - 1 : 0, count = part ? 1 : rows;
        if (trajd_array_read(reader, fd, array, begin, count, bytes, &error)) {
            fprintf(out, " %s", error.message);
            break;
        }
        assert_int_equal(count * row_bytes, part ? row_bytes : array->size_bytes);
        assert_true(trajd_array_to_f64(array->dtype, bytes, count * elements, values));
        for (uint64_t i = 0; i < count * elements; i++)
            sum[part] += values[i] * (double)(i % 97 + 1);
        fprintf(out, " sum %.6g", sum[part]);
    }
    free(values);
    free(bytes);
}

static void put_array(FILE *out, struct trajd_array_reader *reader, int fd, const char *path,
                      const struct trajd_array *array)
{
    uint32_t missing = 0;

    fprintf(out, "    %s storage %d %s", path, array->storage, trajd_dtype_name(array->dtype));
    put_shape(out, array->shape, array->rank);
    fprintf(out, " %" PRIu64 " bytes", array->size_bytes);
    for (uint32_t f = 0; f < array->filter_count; f++)
        fprintf(out, " filter %u", array->filters[f]);
    if (array->storage == TRAJD_STORAGE_CHUNKED) {
        put_shape(out, array->chunk_shape, array->rank);
        for (uint64_t c = 0; c < array->chunk_count; c++)
            missing += array->chunks[c].offset == TRAJD_ARRAY_MISSING_CHUNK;
        fprintf(out, " x %" PRIu64 ", %u missing, masks", array->chunk_count, missing);
        for (uint64_t c = 0; c < array->chunk_count; c++)
            fprintf(out, " %u", array->chunks[c].filter_mask);
    }
    fputs(" fill ", out);
    for (uint32_t b = 0; b < trajd_dtype_size(array->dtype); b++)
        fprintf(out, "%02x", array->fill[b]);
    fputs(array->has_attributes ? ", attributes" : "", out);
    for (uint32_t q = 0; q < array->quaternion_count; q++)
        fprintf(out, ", quaternion at %u%s", array->quaternions[q].column,
                array->quaternions[q].is_one_hot ? " one hot" : "");
    put_values(out, reader, fd, array);
    fputs("\n", out);
}

static void put_clock(FILE *out, const char *name, const struct trajd_episode_clock *clock)
{
    fprintf(out,
            "    clock %s: %" PRId64 " rows from %" PRId64 " ns at %" PRId64 "/%" PRId64
            " Hz (%d), line %.6g %.6g, %" PRIu64 " dropped",
            name, clock->row_count, clock->start_ns, clock->rate.num, clock->rate.den,
            clock->rate_source, clock->rows_per_ns, clock->row_at_zero, clock->dropped_rows);
    for (int64_t r = 0; r < clock->row_count && clock->row_count <= 40; r++) {
        if (clock->stamps_ns)
            fprintf(out, " %" PRId64, clock->stamps_ns[r]);
        if (clock->kept_rows)
            fprintf(out, "=%u", clock->kept_rows[r]);
    }
    fputs("\n", out);
}

static void put_episode(FILE *out, const struct trajd_index *index,
                        const struct trajd_episode *episode)
{
    const struct trajd_index_file *file = &index->files[episode->file_index];
    struct trajd_array_reader *reader;
    struct trajd_error error;
    int fd;

    fprintf(out, "  %s %s%s%s, origin %" PRId64 " digest %016" PRIx64 "\n", file->relative_path,
            episode->id, episode->is_plain ? ", plain" : "", episode->is_misfit ? ", misfit" : "",
            episode->origin_ns, episode->digest);
    if (episode->quarantine) {
        fprintf(out, "    quarantined: %s\n", episode->quarantine);
        return;
    }
    for (uint32_t m = 0; m < index->layout->meta_count; m++)
        fprintf(out, "    meta %s\n", episode->metas[m] ? episode->metas[m] : "-");
    for (const char *const *key = episode->filter_keys; key && *key; key++)
        fprintf(out, "    key %s\n", *key);
    for (uint32_t k = 0; k < index->clock_count; k++)
        put_clock(out, index->clocks[k].name, &episode->clocks[k]);
    assert_int_equal(trajd_array_reader_create(&reader, &error), TRAJD_OK);
    fd = open(file->path, O_RDONLY | O_CLOEXEC);
    for (uint32_t a = 0; a < index->array_count; a++) {
        if (episode->extents[a].storage != TRAJD_STORAGE_ABSENT)
            put_array(out, reader, fd, index->arrays[a].path, &episode->extents[a]);
        if (episode->other_shapes && episode->other_shapes[a])
            fprintf(out, "    %s\n", episode->other_shapes[a]);
    }
    close(fd);
    trajd_array_reader_destroy(&reader);
}

static void put_index(FILE *out, const struct trajd_index *index)
{
    fprintf(out,
            "%u files, %u episodes, %u kept, %u files refused, %u cached, %" PRIu64
            " rows trimmed, %u links, %u unread, fingerprint %016" PRIx64 "\n",
            index->file_count, index->episode_count, index->kept_count, index->refused_file_count,
            index->cached_file_count, index->trimmed_row_count, index->link_count,
            index->unread_count, index->fingerprint);
    for (uint32_t n = 0; n < index->note_count; n++)
        fprintf(out, "  note %s\n", index->notes[n]);
    for (uint32_t f = 0; f < index->file_count; f++)
        if (index->files[f].refusal)
            fprintf(out, "  refused %s\n", index->files[f].refusal);
    for (uint32_t s = 0; s < index->stream_count; s++) {
        const struct trajd_index_stream *stream = &index->streams[s];
        fprintf(out, "  stream %s: %s on %s, kind %d, %s, columns %u+%" PRIu64, stream->name,
                index->arrays[stream->array_index].path, index->clocks[stream->clock_index].name,
                stream->kind, trajd_dtype_name(stream->dtype), stream->first_column,
                stream->feature_count);
        put_shape(out, stream->shape, stream->rank);
        fprintf(out, " period %.6g unit %s gap %" PRId64 "%s\n", stream->angle_period,
                stream->unit ? stream->unit : "-", stream->max_gap_ns,
                stream->optional ? ", optional" : "");
    }
    for (uint32_t a = 0; a < index->array_count; a++)
        for (uint32_t q = 0; q < index->arrays[a].quaternion_count; q++)
            fprintf(out, "  quaternion in %s at %u\n", index->arrays[a].path,
                    index->arrays[a].quaternions[q].column);
    for (uint32_t k = 0; k < index->clock_count; k++)
        fprintf(out, "  clock %s%s\n", index->clocks[k].name,
                index->clocks[k].regular ? ", regular" : "");
    for (uint32_t e = 0; e < index->episode_count; e++)
        put_episode(out, index, &index->episodes[e]);
}

/* Indexes one file, and then, as one dataset, all files of the layout. */
static void record(FILE *out, const char *layout, const char *name)
{
    char path[256], layout_path[256];
    struct trajd_index_options options;
    struct trajd_index *index;
    struct trajd_error error;

    snprintf(path, sizeof path, "%s/%s/%s", index_folder, layout, name);
    snprintf(layout_path, sizeof layout_path, "%s/%s.yaml", index_folder, layout);
    options = options_for(path, layout_path);
    fprintf(out, "== %s\n", name);
    if (trajd_index_open(&options, &index, &error)) {
        put_text(out, error.message);
        fputs("\n", out);
        return;
    }
    put_index(out, index);
    trajd_index_destroy(&index);
}

static void indexes_are_as_recorded(void **state)
{
    static const char *const layouts[] = {"whole",         "stamped",    "groups",
                                          "rows",          "types",      "split_flags",
                                          "split_lengths", "split_ends", "split_starts"};

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(layouts); k++) {
        char path[256], name[128];
        FILE *out, *list;
        snprintf(path, sizeof path, "%s/%s.txt", index_folder, layouts[k]);
        out = fopen(path, "w");
        assert_non_null(out);
        snprintf(path, sizeof path, "ls %s/%s", index_folder, layouts[k]);
        list = popen(path, "r");
        while (fscanf(list, "%127s", name) == 1)
            record(out, layouts[k], name);
        pclose(list);
        record(out, layouts[k], "");
        fclose(out);
        if (recorded_folder)
            shell("cp %s/%s.txt %s", index_folder, layouts[k], recorded_folder);
        shell("diff -u %s/tests/golden/index/%s.txt %s/%s.txt", TRAJD_SOURCE_DIR, layouts[k],
              index_folder, layouts[k]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indexes_are_as_recorded),
    };

    recorded_folder = argc > 1 ? argv[1] : NULL;
    if (!index_files_choose("make_scan_files.py"))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
