/* Reads, searches and prints the table of launch shapes. */
#include "kernels/cuda/tuning.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/array_len.h"
#include "proto/regular_file.h"

#define VERSION_LINE "trajd-tuning 1"
#define ROWS_MAX 4096u
#define FILE_BYTES_MAX (4u << 20)
#define LINE_BYTES_MAX 512u
#define STAGE_ROWS_MAX 1024u
#define ORIGIN_SIZE 160

static const char *const path_names[TRAJD_CUDA_PATH_COUNT] = {"full",     "bf16",     "f32", "f16",
                                                              "f32_bf16", "bf16_f32", "copy"};
/* the last one is a style of former releases */
static const char *const style_names[TRAJD_CUDA_STYLE_COUNT + 1] = {
    "steps", "walk", "direct", "narrow", "batch", "tile", "side", "stream"};

struct row {
    uint32_t line;
    uint32_t compute;
    uint32_t path, kind, search, windows, rows, steps, features;
    double us;
    struct trajd_cuda_shape shape;
};

struct trajd_tuning {
    char name[96];
    uint32_t row_count;
    struct row rows[];
};

/* One field of a row. names NULL: a number between the limits. */
struct field {
    const char *key;
    const char *const *names;
    uint32_t min, max; /* with names, max is their count */
};

enum {
    PATH,
    KIND,
    SEARCH,
    WINDOWS,
    ROWS,
    STEPS,
    FEATURES,
    US,
    STYLE,
    TILE,
    THREADS,
    TILES,
    STAGE,
    PREFETCH,
    VECTORS,
    PRODUCERS,
    STAGES,
    FIELDS
};

static const struct field fields[FIELDS] = {
    [PATH] = {"path", path_names, 0, TRAJD_CUDA_PATH_COUNT},
    [KIND] = {"kind", NULL, 0, TRAJD_KIND_COUNT - 1},
    [SEARCH] = {"search", NULL, 0, 2},
    [WINDOWS] = {"B", NULL, 1, UINT32_MAX},
    [ROWS] = {"S", NULL, 1, UINT32_MAX},
    [STEPS] = {"T", NULL, 1, UINT32_MAX},
    [FEATURES] = {"D", NULL, 1, UINT32_MAX},
    [US] = {"us", NULL, 0, 0}, /* a decimal number */
    [STYLE] = {"style", style_names, 0, TRAJD_CUDA_STYLE_COUNT + 1},
    [TILE] = {"tile", NULL, 1, 4096},
    [THREADS] = {"threads", NULL, 32, 256},
    [TILES] = {"tiles", NULL, 1, 4096},
    [STAGE] = {"stage", NULL, 0, 4096},
    [PREFETCH] = {"prefetch", NULL, 0, 31},
    [VECTORS] = {"vectors", NULL, 1, 4},
    [PRODUCERS] = {"producers", NULL, 0, 4},
    [STAGES] = {"stages", NULL, 0, 4},
};

struct parser {
    const char *name;
    uint32_t line;
    uint32_t compute; /* compute capability of the last origin; 0: none yet */
    struct trajd_error *error;
};

static enum trajd_status fail(const struct parser *p, const char *what, const char *word)
{
    return trajd_error_set(p->error, TRAJD_ERR_ARGUMENT, 0, "%s:%u: %s%.40s", p->name, p->line,
                           what, word);
}

/* Reads a number of decimal digits only. */
static bool read_number(const char *word, uint32_t min, uint32_t max, uint32_t *value)
{
    uint64_t number = 0;

    if (!*word || strlen(word) > 10)
        return false;
    for (; *word; word++) {
        if (*word < '0' || *word > '9')
            return false;
        number = number * 10 + (uint64_t)(*word - '0');
    }
    *value = (uint32_t)number;
    return number >= min && number <= max;
}

static bool read_name(const char *word, const char *const *names, uint32_t count, uint32_t *value)
{
    for (*value = 0; *value < count; ++*value)
        if (strcmp(names[*value], word) == 0)
            return true;
    return false;
}

static enum trajd_status read_row(const struct parser *p, char *text, struct row *row)
{
    uint32_t values[FIELDS] = {0};
    char *rest = text;
    double us = 0;

    for (size_t i = 0; i < FIELDS; i++) {
        const struct field *field = &fields[i];
        const char *key = strtok_r(i ? NULL : text, " ", &rest), *word = strtok_r(NULL, " ", &rest);
        char *end = NULL;
        bool good;

        if (!key || strcmp(key, field->key) != 0)
            return fail(p, "a row goes on with ", field->key);
        if (!word)
            return fail(p, "no value of ", field->key);
        if (i == US) {
            us = strtod(word, &end);
            good = *end == 0 && us > 0 && us < 1e9;
        } else {
            good = field->names ? read_name(word, field->names, field->max, &values[i])
                                : read_number(word, field->min, field->max, &values[i]);
        }
        if (!good)
            return trajd_error_set(p->error, TRAJD_ERR_ARGUMENT, 0,
                                   "%s:%u: %s: %.40s is none or out of range", p->name, p->line,
                                   field->key, word);
    }
    if (strtok_r(NULL, " ", &rest))
        return fail(p, "more than a row has: after ", "stages");
    if (values[THREADS] % 32 != 0)
        return fail(p, "threads: ", "not a multiple of 32");
    *row = (struct row){.line = p->line,
                        .compute = p->compute,
                        .path = values[PATH],
                        .kind = values[KIND],
                        .search = values[SEARCH],
                        .windows = values[WINDOWS],
                        .rows = values[ROWS],
                        .steps = values[STEPS],
                        .features = values[FEATURES],
                        .us = us,
                        .shape = {.tile_steps = values[TILE],
                                  .thread_count = values[THREADS],
                                  .stage_rows = values[STAGE],
                                  .prefetch = (uint8_t)values[PREFETCH],
                                  .style = (uint8_t)values[STYLE],
                                  .vectors = (uint8_t)values[VECTORS]}};
    return TRAJD_OK;
}

static enum trajd_status read_origin(struct parser *p, char *text)
{
    char *rest = text;
    const char *key = strtok_r(text, " ", &rest), *word = key ? strtok_r(NULL, " ", &rest) : NULL;

    if (!word || strcmp(key, "compute") != 0 || !read_number(word, 80, 999, &p->compute))
        return fail(p, "origin: not ", "compute NUMBER, from 80 on");
    return TRAJD_OK;
}

static enum trajd_status read_line(struct parser *p, char *line, struct trajd_tuning *tuning)
{
    enum trajd_status status;
    struct row *row;

    if (p->line == 1)
        return strcmp(line, VERSION_LINE) == 0 ? TRAJD_OK
                                               : fail(p, "the first line is not ", VERSION_LINE);
    if (!*line || *line == '#')
        return TRAJD_OK;
    if (strncmp(line, "origin ", 7) == 0)
        return read_origin(p, line + 7);
    if (strncmp(line, "row ", 4) != 0)
        return fail(p, "neither origin nor row: ", line);
    if (!p->compute)
        return fail(p, "a row before the first ", "origin");
    if (tuning->row_count == ROWS_MAX)
        return fail(p, "more rows than ", "4096");
    row = &tuning->rows[tuning->row_count];
    status = read_row(p, line + 4, row);
    tuning->row_count += !status && row->shape.style < TRAJD_CUDA_STYLE_COUNT;
    return status;
}

enum trajd_status trajd_tuning_parse(const char *name, const char *text, size_t size,
                                     struct trajd_tuning **out, struct trajd_error *error)
{
    struct parser p = {name, 0, 0, error};
    struct trajd_tuning *tuning = calloc(1, sizeof *tuning + ROWS_MAX * sizeof tuning->rows[0]);
    enum trajd_status status = TRAJD_OK;
    char line[LINE_BYTES_MAX];

    *out = NULL;
    if (!tuning)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "%s: no memory", name);
    snprintf(tuning->name, sizeof tuning->name, "%s", name);
    for (size_t at = 0; status == TRAJD_OK && at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end ? (size_t)(end - text) - at : size - at;

        p.line++;
        if (length >= sizeof line || memchr(text + at, 0, length)) {
            status = fail(&p, "a line that is too long, or holds a zero byte", "");
            break;
        }
        memcpy(line, text + at, length);
        line[length] = 0;
        status = read_line(&p, line, tuning);
        at += length + 1;
    }
    if (!status && tuning->row_count == 0) {
        p.line++;
        status = fail(&p, "no rows", "");
    }
    if (!status)
        *out = tuning;
    else
        free(tuning);
    return status;
}

enum trajd_status trajd_tuning_load(const char *path, struct trajd_tuning **tuning,
                                    struct trajd_error *error)
{
    char *text = malloc(FILE_BYTES_MAX);
    int fd;
    enum trajd_status status = trajd_open_regular(path, &fd, error);
    FILE *file = status ? NULL : fdopen(fd, "r");
    size_t size;

    *tuning = NULL;
    if (!status && (!text || !file)) {
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "%s: no memory", path);
    } else if (!status) {
        size = fread(text, 1, FILE_BYTES_MAX, file);
        if (ferror(file))
            status = trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", path, strerror(errno));
        else if (size == FILE_BYTES_MAX)
            status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: longer than %u bytes", path,
                                     FILE_BYTES_MAX);
        else
            status = trajd_tuning_parse(path, text, size, tuning, error);
    }
    if (file)
        fclose(file);
    else if (fd >= 0)
        close(fd);
    free(text);
    return status;
}

uint32_t trajd_tuning_row_count(const struct trajd_tuning *tuning)
{
    return tuning->row_count;
}

void trajd_tuning_destroy(struct trajd_tuning **tuning)
{
    free(*tuning);
    *tuning = NULL;
}

/* Returns the ratio of two sizes, as a logarithm. */
static double far(double a, double b)
{
    return fabs(log2(a / b));
}

/* Returns whether the shape needs to know the row count: these kernels search slowly in a window
 * that has more rows than are staged. */
static bool needs_row_count(const struct trajd_cuda_shape *shape)
{
    return shape->stage_rows > 0 &&
           (shape->style == TRAJD_CUDA_DIRECT || shape->style == TRAJD_CUDA_NARROW);
}

static uint32_t features_of(const struct trajd_cuda_problem *problem)
{
    uint64_t count = 0;

    for (uint32_t s = 0; s < problem->stream_count; s++)
        count += problem->streams[s].feature_count;
    return count > UINT32_MAX ? UINT32_MAX : (uint32_t)count;
}

/* Returns 0 for a grid of rows, 1 for stamps, 2 for a regular clock. */
static uint32_t search_of(const struct trajd_cuda_problem *problem)
{
    if (problem->brackets[0].unit != TRAJD_GRID_NS)
        return 0;
    return problem->brackets[0].rate.num == 0 ? 1 : 2;
}

/* Returns the costliest kind of the streams. Both component orders of quaternions count as one. */
static uint32_t kind_of(const struct trajd_cuda_problem *problem)
{
    uint32_t kind = 0;

    for (uint32_t s = 0; s < problem->stream_count; s++)
        if (problem->streams[s].kind > kind)
            kind = problem->streams[s].kind;
    return kind == TRAJD_KIND_SLERP_WXYZ ? TRAJD_KIND_SLERP_XYZW : kind;
}

int trajd_tuning_find(const struct trajd_tuning *tuning, const struct trajd_cuda_problem *problem,
                      const struct trajd_device_facts *facts, uint64_t row_count,
                      struct trajd_tuning_found *found)
{
    const uint32_t path = problem->lean ? problem->streams[0].path : TRAJD_CUDA_FULL;
    const uint32_t search = search_of(problem);
    const uint32_t kind = kind_of(problem);
    const double features = features_of(problem);
    double nearest = INFINITY;
    const struct row *best = NULL;

    for (uint32_t i = 0; i < tuning->row_count; i++) {
        const struct row *row = &tuning->rows[i];
        double distance = far(row->windows, problem->window_count) +
                          far(row->steps, problem->step_count_max) + far(row->features, features) +
                          (row_count ? far(row->rows, (double)row_count) : 0);

        if (row->path != path || (path == TRAJD_CUDA_FULL && row->kind != kind) ||
            row->search != search || row->compute != facts->compute_capability ||
            distance >= nearest || (row_count == 0 && needs_row_count(&row->shape)))
            continue;
        nearest = distance;
        best = row;
    }
    if (!best)
        return false;
    found->shape = best->shape;
    found->line = best->line;
    found->us = best->us;
    found->name = tuning->name;
    if (best->shape.stage_rows > 0)
        found->shape.stage_rows = row_count == 0                ? best->shape.stage_rows
                                  : row_count <= STAGE_ROWS_MAX ? (uint32_t)row_count
                                                                : 0;
    return true;
}

void trajd_tuning_print_row(FILE *out, const struct trajd_cuda_problem *problem, uint64_t row_count,
                            double us, const struct trajd_cuda_shape *shape)
{
    fprintf(out,
            "row path %s kind %u search %u B %u S %llu T %u D %u us %.2f style %s tile %u threads "
            "%u tiles 1 stage %u prefetch %u vectors %u producers 0 stages 0\n",
            path_names[problem->lean ? problem->streams[0].path : TRAJD_CUDA_FULL],
            kind_of(problem), search_of(problem), problem->window_count,
            (unsigned long long)row_count, problem->step_count_max, features_of(problem), us,
            style_names[shape->style], shape->tile_steps, shape->thread_count, shape->stage_rows,
            shape->prefetch, shape->vectors);
}

const char *trajd_cuda_style_name(uint32_t style)
{
    return style < TRAJD_CUDA_STYLE_COUNT ? style_names[style] : "?";
}
