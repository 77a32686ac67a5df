/* Random requests of several streams, with all their bytes in one block of memory. A GPU run
 * uploads the block, runs, downloads it, and compares all of it with the block that the reference
 * worked on. The bytes between outputs are the canary. */
#ifndef TRAJD_TESTS_ARENA_H
#define TRAJD_TESTS_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/resample.h"

#define ARENA_STREAMS_MAX 32
#define ARENA_BRACKETS_MAX 16

enum arena_stamps {
    ARENA_JITTER,
    ARENA_REGULAR,
    ARENA_EQUAL,
    ARENA_DRIFT,    /* the rate changes slowly, and there are holes */
    ARENA_REVERSED, /* not ascending: the row is unspecified, but nothing may break */
    ARENA_WILD,
    ARENA_STAMPS_COUNT,
};

/* Numbers that are 0 are drawn from the seed. */
struct arena_spec {
    uint64_t seed;
    uint32_t windows, rows, steps, features;
    uint32_t streams, brackets;
    int kind;                        /* -1: drawn */
    enum trajd_dtype source, output; /* NONE: drawn */
    int stamps;                      /* -1: drawn */
    int unit;                        /* -1: drawn */
    /* rows and steps follow each other, at addresses that are multiples of 16 bytes */
    bool packed;
    bool window_rows; /* outputs have more rows than windows */
    /* streams of kind previous with outputs of floats add rows; else one of three does */
    bool totals;
    bool huge; /* rows have numbers, and quaternions lengths, up to the ends of float's range */
};

struct arena {
    struct arena_spec spec;
    char *memory;
    uint64_t size_bytes, used_bytes;
    uint64_t random;
    bool ascending; /* for every clock that is searched */
    struct trajd_clock clocks[ARENA_BRACKETS_MAX];
    struct trajd_grid grids[ARENA_BRACKETS_MAX];
    struct trajd_bracket brackets[ARENA_BRACKETS_MAX];
    struct trajd_stream streams[ARENA_STREAMS_MAX];
    /* offset of the array of device addresses; 0: none */
    uint64_t device_bases[ARENA_STREAMS_MAX];
    /* largest magnitude of a stream's source, times its largest scale */
    double largest[ARENA_STREAMS_MAX];
    uint64_t output_rows;
    uint32_t *window_rows;                 /* NULL: none */
    struct trajd_resample_request request; /* with host addresses */
};

/* A request whose pointers are moved by `delta` bytes: from the host's block to the device's. */
struct arena_view {
    struct trajd_clock clocks[ARENA_BRACKETS_MAX];
    struct trajd_grid grids[ARENA_BRACKETS_MAX];
    struct trajd_bracket brackets[ARENA_BRACKETS_MAX];
    struct trajd_stream streams[ARENA_STREAMS_MAX];
    struct trajd_resample_request request;
};

/* Makes a request in `memory` of size_bytes bytes and fills it. Aborts if it is too small.
 * `device`: the address that the block will have on the device. */
void arena_create(struct arena *arena, const struct arena_spec *spec, char *memory,
                  uint64_t size_bytes, char *device);

void arena_view(const struct arena *arena, char *device, struct arena_view *view);

/* Compares the block after a run with the arena's own, on which the reference ran. Returns false
 * and one line in `text` if they differ. */
bool arena_matches(const struct arena *arena, char *result, char *text, uint32_t text_size);

const char *arena_name(const struct arena *arena, char *text, uint32_t text_size);

#endif
