/* Reads the arrays.txt that make_array_files.py writes into struct trajd_array. For tests and
 * benchmarks: it does not check its input. */
#ifndef TRAJD_TESTS_ARRAY_LIST_H
#define TRAJD_TESTS_ARRAY_LIST_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/index/rows/array.h"

#ifndef TRAJD_SOURCE_DIR
#define TRAJD_SOURCE_DIR "." /* benchmarks run in the source folder */
#endif

struct listed_array {
    char label[128];
    char file[128];
    struct trajd_array array;
    struct trajd_chunk *chunks;
    uint64_t truth_offset;
};

static inline enum trajd_storage listed_storage(const char *word)
{
    if (strcmp(word, "chunked") == 0)
        return TRAJD_STORAGE_CHUNKED;
    return strcmp(word, "contiguous") == 0 ? TRAJD_STORAGE_CONTIGUOUS : TRAJD_STORAGE_EMPTY;
}

static inline uint64_t listed_number(FILE *file)
{
    uint64_t value = 0;

    return fscanf(file, "%" SCNu64, &value) == 1 ? value : UINT64_MAX;
}

static inline void listed_chunks(FILE *file, struct listed_array *listed)
{
    uint64_t count = listed->array.chunk_count;

    listed->chunks = calloc(count ? count : 1, sizeof *listed->chunks);
    for (uint64_t c = 0; c < count; c++) {
        char offset[32];
        struct trajd_chunk *chunk = &listed->chunks[c];
        if (fscanf(file, " chunk %31s %u %u", offset, &chunk->stored_size, &chunk->filter_mask) !=
            3)
            abort();
        chunk->offset =
            strcmp(offset, "missing") == 0 ? TRAJD_ARRAY_MISSING_CHUNK : strtoull(offset, NULL, 10);
    }
    listed->array.chunks = listed->chunks;
}

/* Returns false at the end of the list. The caller frees listed->chunks. */
static inline bool listed_next(FILE *file, struct listed_array *listed)
{
    struct trajd_array *array = &listed->array;
    char dtype[16], storage[16], fill[17];

    memset(listed, 0, sizeof *listed);
    if (fscanf(file, " array %127s %127s %15s %15s %u", listed->label, listed->file, dtype, storage,
               &array->rank) != 5)
        return false;
    array->dtype = trajd_dtype_parse(dtype);
    array->storage = listed_storage(storage);
    for (uint32_t d = 0; d < array->rank; d++)
        array->shape[d] = listed_number(file);
    array->offset = listed_number(file);
    array->size_bytes = listed_number(file);
    array->filter_count = (uint32_t)listed_number(file);
    for (uint32_t f = 0; f < array->filter_count; f++)
        array->filters[f] = (uint16_t)listed_number(file);
    for (uint32_t d = 0; array->storage == TRAJD_STORAGE_CHUNKED && d < array->rank; d++)
        array->chunk_shape[d] = listed_number(file);
    array->chunk_count = listed_number(file);
    if (fscanf(file, " %16s %" SCNu64, fill, &listed->truth_offset) != 2)
        abort();
    for (uint32_t b = 0; b < trajd_dtype_size(array->dtype); b++) {
        unsigned byte = 0;
        sscanf(fill + 2 * b, "%2x", &byte);
        array->fill[b] = (uint8_t)byte;
    }
    listed_chunks(file, listed);
    return true;
}

/* Runs Python: the one of build/venv where it exists, otherwise the system's. */
static inline int run_python(const char *arguments)
{
    char command[4096];
    const char *venv = TRAJD_SOURCE_DIR "/build/venv/bin/python";
    FILE *probe = fopen(venv, "r");

    if (probe)
        fclose(probe);
    snprintf(command, sizeof command, "%s %s", probe ? venv : "python3", arguments);
    return system(command);
}

#endif
