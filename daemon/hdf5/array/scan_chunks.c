/* Finds where the chunks of a dataset are in the file. */
#include "daemon/hdf5/scan.h"
#include "daemon/index/rows/chunk_tree.h"

static const uint64_t chunk_count_max = 4u << 20;

struct chunk_visit {
    struct trajd_array *array;
    struct trajd_chunk *chunks;
    bool odd; /* a chunk does not fit the grid */
};

/* Enters a chunk at its place in the grid. `begin`: its first element. */
static void place_chunk(struct chunk_visit *visit, const hsize_t *begin, unsigned mask,
                        haddr_t address, hsize_t size)
{
    const struct trajd_array *array = visit->array;
    uint64_t place = 0;

    for (uint32_t i = 0; i < array->rank; i++) {
        uint64_t grid = (array->shape[i] + array->chunk_shape[i] - 1) / array->chunk_shape[i];
        if (begin[i] % array->chunk_shape[i] || begin[i] >= array->shape[i]) {
            visit->odd = true;
            return;
        }
        place = place * grid + begin[i] / array->chunk_shape[i];
    }
    if (size > UINT32_MAX)
        visit->odd = true;
    else
        visit->chunks[place] = (struct trajd_chunk){address, (uint32_t)size, mask};
}

#ifdef TRAJD_HAVE_CHUNK_ITER
static int visit_chunk(const hsize_t *begin, unsigned mask, haddr_t address, hsize_t size,
                       void *context)
{
    place_chunk(context, begin, mask, address, size);
    return H5_ITER_CONT;
}

/* Some releases give the chunk's number instead of its first element. That does not fit the
 * grid. */
static bool list_fast(struct trajd_scan *scan, hid_t dataset, uint64_t count,
                      struct chunk_visit *visit)
{
    (void)scan;
    (void)count;
    return H5Dchunk_iter(dataset, H5P_DEFAULT, visit_chunk, visit) >= 0 && !visit->odd;
}
#else
static bool visit_entry(void *context, const uint64_t *first, const struct trajd_chunk *chunk)
{
    struct chunk_visit *visit = context;
    hsize_t begin[TRAJD_ARRAY_MAX_RANK];

    for (uint32_t d = 0; d < TRAJD_ARRAY_MAX_RANK; d++)
        begin[d] = first[d];
    place_chunk(visit, begin, chunk->filter_mask, chunk->offset, chunk->stored_size);
    return !visit->odd;
}

/* Lists the chunks without libhdf5, which has to know as many. */
static bool list_fast(struct trajd_scan *scan, hid_t dataset, uint64_t count,
                      struct chunk_visit *visit)
{
    const hid_t space = H5Dget_space(dataset);
    hsize_t known = 0;
    uint64_t found;
    H5O_info_t info;
    const bool ok = scan->has_wide_places && H5Oget_info2(dataset, &info, H5O_INFO_BASIC) >= 0 &&
                    trajd_chunk_tree_walk(scan->descriptor.fd, info.addr, visit->array->rank, count,
                                          visit_entry, visit, &found) &&
                    H5Dget_num_chunks(dataset, space, &known) >= 0 && found == known;

    H5Sclose(space);
    return ok;
}
#endif

/* Lists the chunks by their numbers. This takes O(n^2) in the library, but releases before 1.10.10
 * have no other way, and some trees of chunks can only be read by it. */
static bool list_chunks(hid_t dataset, struct chunk_visit *visit)
{
    hid_t space = H5Dget_space(dataset);
    hsize_t count = 0, begin[H5S_MAX_RANK] = {0}, size;
    bool ok = H5Dget_num_chunks(dataset, space, &count) >= 0;
    haddr_t address;
    unsigned mask;

    for (hsize_t i = 0; ok && i < count; i++) {
        ok = H5Dget_chunk_info(dataset, space, i, begin, &mask, &address, &size) >= 0;
        if (ok)
            place_chunk(visit, begin, mask, address, size);
    }
    H5Sclose(space);
    return ok && !visit->odd;
}

static void clear_chunks(struct chunk_visit *visit, uint64_t count)
{
    visit->odd = false;
    for (uint64_t i = 0; i < count; i++)
        visit->chunks[i].offset = TRAJD_ARRAY_MISSING_CHUNK;
}

const char *trajd_scan_chunks(struct trajd_scan *scan, hid_t dataset, struct trajd_array *array)
{
    struct chunk_visit visit = {.array = array};
    uint64_t count = 1;
    bool ok;

    for (uint32_t i = 0; i < array->rank; i++) {
        uint64_t grid = (array->shape[i] + array->chunk_shape[i] - 1) / array->chunk_shape[i];
        if (__builtin_mul_overflow(count, grid, &count) || count > chunk_count_max)
            return "more than 4 million chunks";
    }
    visit.chunks = trajd_arena_alloc(scan->arena, count * sizeof *visit.chunks);
    if (!visit.chunks)
        return "no memory for its chunks";
    clear_chunks(&visit, count);
    ok = list_fast(scan, dataset, count, &visit);
    if (!ok) {
        clear_chunks(&visit, count);
        ok = list_chunks(dataset, &visit);
    }
    if (!ok)
        return visit.odd ? "its chunks do not fit its shape" : trajd_scan_error(scan);
    array->chunk_count = count;
    array->chunks = visit.chunks;
    return NULL;
}
