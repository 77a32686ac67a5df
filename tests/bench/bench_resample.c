// libs: trajd_test_graph
// sources: resample_bench_sets.c resample_bench_times.c resample_bench_trials.c
/* bench_resample budget|grid|tune: measures the CUDA kernels over shapes and launch shapes, against
 * floors and ceilings of the same run. `tune` also writes a table of the best launch shapes
 * (kernels/cuda/tuning.h). `grid` with a table chooses by it, so that another run checks the table
 * of one run.
 *
 * Cold: every launch works on another set of buffers (stamps, rows and outputs). The sets together
 * are several times the L2. Hot: the same set each time. Both run as one graph of many launches,
 * which is replayed; the time is that of a replay divided by its launches. Single: launches without
 * a graph. Stamps are int64 with jitter on every row, targets int64 per window, and a mask is
 * written. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/array_len.h"
#include "tests/bench/resample_bench.h"

#define TRIALS_MAX 1024u

static const char *const layout_names[] = {"dense", "offsets", "regular", "rows", "policy"};

static void print_sample(struct bench *b, const char *name, const struct bench_sample *sample)
{
    fprintf(b->out, "\"%s\":[", name);
    for (int i = 0; i < BENCH_SAMPLES; i++)
        fprintf(b->out, "%s%.4f", i ? "," : "", sample->us[i]);
    fprintf(b->out, "]");
}

static void print_launch_shape(struct bench *b, const struct trajd_cuda_shape *shape)
{
    fprintf(b->out,
            "\"style\":\"%s\",\"tile\":%u,\"threads\":%u,\"stage\":%u,\"prefetch\":%u,"
            "\"vectors\":%u,\"overlaps\":%u",
            trajd_cuda_style_name(shape->style), shape->tile_steps, shape->thread_count,
            shape->stage_rows, shape->prefetch, shape->vectors, shape->overlaps);
}

static int by_us(const void *a, const void *b)
{
    return bench_by_value(&((const struct bench_trial *)a)->us,
                          &((const struct bench_trial *)b)->us);
}

/* Measures all candidates once, and then the best of them at length. Returns their number. */
static uint32_t time_candidates(struct bench *b, const struct bench_shape *shape, uint32_t keep,
                                struct bench_trial *trials, struct bench_sample *samples)
{
    struct trajd_cuda_problem problem;
    uint32_t count;

    trajd_cuda_pack(&b->sets[0].request, 0, &problem);
    count =
        bench_list_trials(&problem, &b->facts, shape->layout == BENCH_LAYOUT_DENSE ? shape->S : 0,
                          b->wide, trials, TRIALS_MAX);
    for (uint32_t i = 0; i < count; i++)
        trials[i].us = bench_quick_us(b, &trials[i].shape);
    qsort(trials, count, sizeof *trials, by_us);
    if (keep > count)
        keep = count;
    for (uint32_t i = 0; i < keep; i++)
        bench_time_shape(b, &trials[i].shape, BENCH_COLD, &samples[i]);
    return keep;
}

static struct trajd_cuda_shape chosen_shape(struct bench *b)
{
    struct trajd_cuda_problem problem;

    bench_must(trajd_resample_check_shape(&b->sets[0].request, &bench_error));
    trajd_cuda_pack(&b->sets[0].request, 0, &problem);
    return trajd_cuda_shape_of(&problem, &b->facts, 0);
}

static void print_shape(const struct trajd_cuda_shape *shape)
{
    printf("%s t%u/%u s%u p%u v%u ", trajd_cuda_style_name(shape->style), shape->tile_steps,
           shape->thread_count, shape->stage_rows, shape->prefetch, shape->vectors);
}

static void print_trials(struct bench *b, const struct bench_trial *trials,
                         const struct bench_sample *samples, uint32_t count)
{
    fprintf(b->out, ",\"candidates\":[");
    for (uint32_t i = 0; i < count; i++) {
        fprintf(b->out, "%s\n {", i ? "," : "");
        print_launch_shape(b, &trials[i].shape);
        fprintf(b->out, ",");
        print_sample(b, "cold_us", &samples[i]);
        fprintf(b->out, "}");
    }
    fprintf(b->out, "]");
}

/* Measures every candidate once. */
static void print_quick(struct bench *b, const struct bench_trial *trials, uint32_t count)
{
    fprintf(b->out, ",\"quick\":[");
    for (uint32_t i = 0; i < count; i++) {
        fprintf(b->out, "%s\n {", i ? "," : "");
        print_launch_shape(b, &trials[i].shape);
        fprintf(b->out, ",\"us\":%.3f}", trials[i].us);
    }
    fprintf(b->out, "]");
}

/* Measures the best time of each style quickly, for images of crossovers. */
static void print_styles(struct bench *b, const struct bench_trial *trials, uint32_t count)
{
    double best[TRAJD_CUDA_STYLE_COUNT] = {0};
    bool any = false;

    for (uint32_t i = 0; i < count; i++)
        if (best[trials[i].shape.style] == 0 || trials[i].us < best[trials[i].shape.style])
            best[trials[i].shape.style] = trials[i].us;
    fprintf(b->out, ",\"styles\":{");
    for (uint32_t k = 0; k < TRAJD_CUDA_STYLE_COUNT; k++)
        if (best[k] > 0) {
            fprintf(b->out, "%s\"%s\":%.4f", any ? "," : "", trajd_cuda_style_name(k), best[k]);
            any = true;
        }
    fprintf(b->out, "}");
}

static void print_row(struct bench *b, const struct bench_shape *shape,
                      const struct trajd_cuda_shape *chosen, const struct bench_sample samples[5])
{
    static const char *const names[] = {"cold_us", "hot_us", "single_us", "alone_us", "write_us"};

    fprintf(
        b->out,
        "%s\n{\"B\":%u,\"S\":%u,\"T\":%u,\"D\":%u,\"source\":\"%s\",\"output\":\"%s\",\"kind\":%d,"
        "\"layout\":\"%s\",",
        b->any_written ? "," : "", shape->B, shape->S, shape->T, shape->D,
        trajd_dtype_name(shape->source), trajd_dtype_name(shape->output), shape->kind,
        layout_names[shape->layout]);
    b->any_written = true;
    fprintf(
        b->out,
        "\"moved_bytes\":%llu,\"output_bytes\":%llu,\"sets\":%u,\"budget_us\":%.1f,\"chosen\":{",
        (unsigned long long)b->moved_bytes, (unsigned long long)b->output_bytes, b->set_count,
        shape->budget_us);
    print_launch_shape(b, chosen);
    fprintf(b->out, "}");
    for (int i = 0; i < 5; i++) {
        fprintf(b->out, ",");
        print_sample(b, names[i], &samples[i]);
    }
}

static void tell_shape(const struct bench *b, const struct bench_shape *shape,
                       const struct bench_sample samples[5], const struct trajd_cuda_shape *chosen,
                       const struct trajd_cuda_shape *best, double best_us)
{
    printf("%5u %5u %5u %5u %5s %-7s %d | %7.2f hot %7.2f single %7.2f alone %7.2f write %7.2f | ",
           shape->B, shape->S, shape->T, shape->D, trajd_dtype_name(shape->source),
           layout_names[shape->layout], shape->kind, samples[0].median_us, samples[1].median_us,
           samples[2].median_us, samples[3].median_us, samples[4].median_us);
    printf("best %7.2f ", best_us);
    print_shape(best);
    printf("| chosen ");
    print_shape(chosen);
    printf("| %.2f TB/s\n", (double)b->moved_bytes / samples[0].median_us / 1e6);
}

/* Measures the three fastest of each style quickly. */
static void tell_quick(const struct bench_trial *trials, uint32_t count)
{
    for (uint32_t style = 0; style < TRAJD_CUDA_STYLE_COUNT; style++)
        for (uint32_t i = 0, shown = 0; i < count && shown < 3; i++)
            if (trials[i].shape.style == style) {
                printf("      quick %7.2f ", trials[i].us);
                print_shape(&trials[i].shape);
                printf("\n");
                shown++;
            }
}

static void bench_shape(struct bench *b, const struct bench_shape *shape)
{
    static struct bench_trial trials[TRIALS_MAX];
    static struct bench_sample kept[TRIALS_MAX];
    struct trajd_cuda_shape chosen, alone, *best;
    struct bench_sample samples[5];
    struct trajd_cuda_problem problem;
    uint32_t count, all, best_at = 0;

    bench_make_sets(b, shape);
    chosen = alone = chosen_shape(b);
    alone.overlaps = 0;
    bench_time_shape(b, &chosen, BENCH_COLD, &samples[0]);
    bench_time_shape(b, &chosen, BENCH_HOT, &samples[1]);
    bench_time_single(b, &chosen, &samples[2]);
    bench_time_shape(b, &alone, BENCH_COLD, &samples[3]);
    bench_time_write(b, &samples[4]);
    print_row(b, shape, &chosen, samples);
    count = time_candidates(b, shape, b->wide ? 12 : 4, trials, kept);
    trajd_cuda_pack(&b->sets[0].request, 0, &problem);
    all = bench_list_trials(&problem, &b->facts, shape->layout == BENCH_LAYOUT_DENSE ? shape->S : 0,
                            b->wide, NULL, TRIALS_MAX);
    print_trials(b, trials, kept, count);
    print_styles(b, trials, all);
    if (b->wide)
        print_quick(b, trials, all);
    fprintf(b->out, "}");
    for (uint32_t i = 1; i < count; i++)
        if (kept[i].median_us < kept[best_at].median_us)
            best_at = i;
    best = &trials[best_at].shape;
    if (b->table)
        trajd_tuning_print_row(b->table, &problem, shape->S, kept[best_at].median_us, best);
    tell_shape(b, shape, samples, &chosen, best, kept[best_at].median_us);
    if (b->wide)
        tell_quick(trials, all);
    fflush(stdout);
}

/* Launches the chosen shape again and again, for profilers. */
static void launch_thrice(struct bench *b, const struct bench_shape *shape)
{
    struct trajd_cuda_shape chosen;

    bench_make_sets(b, shape);
    chosen = chosen_shape(b);
    for (uint32_t i = 0; i < 3; i++) {
        bench_launch(b, &b->sets[i % b->set_count], &chosen);
        bench_must(trajd_device_stream_wait(b->stream, &bench_error));
    }
}

static void bench_budget(struct bench *b, const char *only, bool profile)
{
    static const struct bench_shape shapes[] = {
        {32, 100, 256, 128, TRAJD_BF16, TRAJD_BF16, 0, BENCH_LAYOUT_DENSE, 3.0},
        {32, 500, 256, 128, TRAJD_BF16, TRAJD_BF16, 0, BENCH_LAYOUT_DENSE, 4.0},
        {64, 4096, 1024, 32, TRAJD_BF16, TRAJD_BF16, 0, BENCH_LAYOUT_DENSE, 5.8},
        {256, 500, 250, 16, TRAJD_BF16, TRAJD_BF16, 0, BENCH_LAYOUT_DENSE, 4.0},
        {1024, 300, 50, 14, TRAJD_BF16, TRAJD_BF16, 0, BENCH_LAYOUT_DENSE, 4.5},
        {64, 400, 16, 7, TRAJD_BF16, TRAJD_BF16, 0, BENCH_LAYOUT_DENSE, 2.0},
        {256, 100, 2048, 256, TRAJD_BF16, TRAJD_BF16, 0, BENCH_LAYOUT_DENSE, 66},
        {256, 400, 16, 7, TRAJD_BF16, TRAJD_BF16, 0, BENCH_LAYOUT_POLICY, 4.0},
        {1, 2, 1, 1, TRAJD_BF16, TRAJD_BF16, 0, BENCH_LAYOUT_DENSE, 0},
    };

    b->wide = true;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        if (!only || strtoul(only, NULL, 10) == i)
            (profile ? launch_thrice : bench_shape)(b, &shapes[i]);
}

static void bench_dense_grid(struct bench *b)
{
    static const uint32_t windows[] = {4, 32, 256, 1024},
                          lengths[][2] = {{100, 16},  {100, 256},   {500, 50},
                                          {400, 400}, {4096, 1024}, {64, 1024}};
    static const uint32_t features[] = {1, 7, 14, 32, 128};
    static const enum trajd_dtype types[][2] = {
        {TRAJD_BF16, TRAJD_BF16}, {TRAJD_F32, TRAJD_BF16}, {TRAJD_F32, TRAJD_F32}};

    for (size_t w = 0; w < ARRAY_LEN(windows); w++)
        for (size_t l = 0; l < ARRAY_LEN(lengths); l++)
            for (size_t d = 0; d < ARRAY_LEN(features); d++)
                for (size_t t = 0; t < ARRAY_LEN(types); t++) {
                    static const enum trajd_kind kinds[] = {TRAJD_KIND_LINEAR, TRAJD_KIND_LINEAR,
                                                            TRAJD_KIND_LINEAR, TRAJD_KIND_NEAREST,
                                                            TRAJD_KIND_PREVIOUS};
                    struct bench_shape shape = {windows[w],
                                                lengths[l][0],
                                                lengths[l][1],
                                                features[d],
                                                types[t][0],
                                                types[t][1],
                                                kinds[(w + l + d + t) % 5],
                                                BENCH_LAYOUT_DENSE,
                                                0};
                    uint64_t bytes = (uint64_t)shape.B * (shape.S + shape.T) * shape.D * 4;
                    if (t == (w + l) % 3 || bytes > (300ull << 20))
                        continue; /* two of the three pairs of types for each */
                    bench_shape(b, &shape);
                }
}

/* Requests of one stream: every kind, on stamps, regular clocks and grids of rows. */
static void bench_kinds(struct bench *b)
{
    static const enum trajd_kind kinds[] = {TRAJD_KIND_LINEAR, TRAJD_KIND_PREVIOUS,
                                            TRAJD_KIND_SLERP_XYZW, TRAJD_KIND_ANGLE,
                                            TRAJD_KIND_MEAN};
    static const uint32_t windows[] = {32, 256}, lengths[][2] = {{400, 16}, {500, 250}};

    for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
        for (size_t w = 0; w < ARRAY_LEN(windows); w++)
            for (size_t l = 0; l < ARRAY_LEN(lengths); l++)
                for (enum bench_layout layout = BENCH_LAYOUT_OFFSETS; layout <= BENCH_LAYOUT_ROWS;
                     layout++) {
                    enum trajd_dtype type = (w + l) % 2 ? TRAJD_F32 : TRAJD_BF16;
                    bench_shape(b, &(struct bench_shape){windows[w], lengths[l][0], lengths[l][1],
                                                         8, type, type, kinds[k], layout, 0});
                }
}

/* Returns the commit of the bundle, from the file beside the program. */
static void read_commit(const char *program, char *commit, size_t size)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof path, "%.*s/commit",
             strrchr(program, '/') ? (int)(strrchr(program, '/') - program) : 1,
             strrchr(program, '/') ? program : ".");
    file = fopen(path, "r");
    if (!file || !fgets(commit, (int)size, file))
        snprintf(commit, size, "unknown");
    commit[strcspn(commit, "\n")] = 0;
    if (file)
        fclose(file);
}

/* Measures floors and ceilings of this run. */
static void print_head(struct bench *b, const char *program, const char *what)
{
    const struct trajd_device_info *info = trajd_device_info(b->device);
    double copy_gb_s = bench_time_copy_gb_s(b), nothing_us = bench_time_nothing_us(b, 0),
           overlapped_us = bench_time_nothing_us(b, 1);
    char commit[64], date[32];
    time_t now = time(NULL);

    read_commit(program, commit, sizeof commit);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    printf("%s, CUDA %u, commit %s, copy %.0f GB/s both ways, an empty kernel %.2f us, overlapped "
           "%.2f us\n"
           "    B     S     T     D  type kind | cold us\n",
           info->name, info->driver_version, commit, copy_gb_s, nothing_us, overlapped_us);
    fprintf(b->out,
            "{\"device\":\"%s\",\"driver\":%u,\"sm_count\":%u,\"commit\":\"%s\",\"date\":\"%s\","
            "\"command\":"
            "\"bench_resample "
            "%s\",\"copy_gb_s\":%.0f,\"empty_us\":%.3f,\"empty_overlapped_us\":%.3f,\"rows\":[",
            info->name, info->driver_version, info->sm_count, commit, date, what, copy_gb_s,
            nothing_us, overlapped_us);
    if (b->table)
        fprintf(
            b->table,
            "trajd-tuning 1\norigin compute %u %s, %u multiprocessors, driver %u, %s, commit %s, "
            "bench_resample %s\n",
            info->compute_capability, info->name, info->sm_count, info->driver_version, date,
            commit, what);
}

static FILE *open_file(const char *path, const char *mode)
{
    FILE *file = fopen(path, mode);

    if (!file) {
        perror(path);
        exit(1);
    }
    return file;
}

int main(int argc, char **argv)
{
    static struct bench b = {.random = 1};
    const char *what = argc > 1 ? argv[1] : "", *last = argc > 3 ? argv[3] : NULL;
    struct trajd_tuning *tuning = NULL;

    if (strcmp(what, "profile") == 0 && argc > 2) {
        bench_open(&b);
        if (last)
            bench_must(trajd_tuning_load(last, &tuning, &bench_error));
        b.facts.tuning = tuning;
        bench_budget(&b, argv[2], true);
        return 0;
    }
    if (strcmp(what, "budget") != 0 && strcmp(what, "grid") != 0 &&
        (strcmp(what, "tune") != 0 || !last)) {
        fprintf(stderr,
                "bench_resample budget [OUT.json [ROW]] | grid [OUT.json [TABLE]] | tune OUT.json "
                "TABLE | profile ROW [TABLE]\n");
        return 2;
    }
    if (trajd_device_count() == 0) {
        fprintf(stderr, "bench_resample: no GPU here, or built without CUDA\n");
        return 77;
    }
    bench_open(&b);
    b.out = open_file(argc > 2 ? argv[2] : "/dev/null", "w");
    if (strcmp(what, "tune") == 0)
        b.table = open_file(last, "w");
    else if (strcmp(what, "grid") == 0 && last)
        bench_must(trajd_tuning_load(last, &tuning, &bench_error));
    b.facts.tuning = tuning;
    print_head(&b, argv[0], what);
    if (strcmp(what, "budget") != 0) {
        bench_dense_grid(&b);
        bench_kinds(&b);
    }
    if (strcmp(what, "grid") != 0)
        bench_budget(&b, b.table ? NULL : last, false);
    fprintf(b.out, "\n]}\n");
    trajd_tuning_destroy(&tuning);
    return (b.table && fclose(b.table)) || fclose(b.out) ? 1 : 0;
}
