/* Decides which arrays are resident on a GPU and where their rows lie. gpu_fill.c copies them. */
#include "daemon/producer/gpu_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/arena.h"

#define ROW_ALIGNMENT 256

static struct trajd_gpu_array *find(const struct trajd_gpu *gpu,
                                    const struct trajd_dataset *dataset,
                                    const struct trajd_selection *selection, uint32_t k,
                                    bool is_streamed)
{
    const bool as_float32 = selection->as_float32 && selection->as_float32[k];

    for (struct trajd_gpu_array *r = gpu->arrays; r; r = r->next)
        if (r->dataset == dataset && r->array_index == selection->array_indexes[k] &&
            r->as_float32 == as_float32 && r->is_streamed == is_streamed)
            return r;
    return NULL;
}

/* Sets the offset of each episode's rows, and the array's size. */
static void lay_out(struct trajd_gpu_array *array, const struct trajd_selection *selection,
                    uint32_t k)
{
    const struct trajd_index *index = array->dataset->index;

    for (uint32_t e = 0; e < index->episode_count; e++) {
        const uint64_t size = trajd_cache_entry_bytes(array->dataset->cache, selection, k, e);
        array->offsets[e] =
            index->episodes[e].quarantine || !size ? TRAJD_GPU_NO_ROWS : array->size_bytes;
        array->size_bytes += (size + ROW_ALIGNMENT - 1) / ROW_ALIGNMENT * ROW_ALIGNMENT;
    }
}

static void destroy(struct trajd_gpu *gpu, struct trajd_gpu_array *array)
{
    if (array->memory)
        trajd_device_free(gpu->device, array->memory);
    free(array->offsets);
    free(array);
}

static struct trajd_gpu_array *create(const struct trajd_dataset *dataset,
                                      const struct trajd_selection *selection, uint32_t k)
{
    struct trajd_gpu_array *made = calloc(1, sizeof *made);

    if (made)
        made->offsets = calloc(dataset->index->episode_count, sizeof *made->offsets);
    if (!made || !made->offsets) {
        free(made);
        return NULL;
    }
    made->dataset = dataset;
    made->array_index = selection->array_indexes[k];
    made->as_float32 = selection->as_float32 && selection->as_float32[k];
    lay_out(made, selection, k);
    return made;
}

/* Returns the index of the smallest array that is not decided yet; `count`: there is none. */
static uint32_t smallest(struct trajd_gpu_array *const *fresh, const bool *decided, uint32_t count)
{
    uint32_t found = count;

    for (uint32_t k = 0; k < count; k++)
        if (fresh[k] && !decided[k] &&
            (found == count || fresh[k]->size_bytes < fresh[found]->size_bytes))
            found = k;
    return found;
}

/* Allocates memory for the arrays that fit the budget, smallest first. The others are streamed. */
static enum trajd_status place(struct trajd_gpu *gpu, struct trajd_gpu_array **fresh, bool *decided,
                               uint32_t count, struct trajd_error *error)
{
    uint64_t remaining = gpu->options.rows_bytes - gpu->rows_used_bytes;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t k; !status && (k = smallest(fresh, decided, count)) < count;) {
        decided[k] = true;
        fresh[k]->is_streamed = fresh[k]->size_bytes > remaining;
        if (fresh[k]->is_streamed || !fresh[k]->size_bytes)
            continue;
        remaining -= fresh[k]->size_bytes;
        status = trajd_device_alloc(gpu->device, fresh[k]->size_bytes, &fresh[k]->memory, error);
        if (status)
            trajd_error_prefix(error, "rows of dataset %s", fresh[k]->dataset->name);
    }
    return status;
}

/* Fills the fresh arrays that have memory, in the selection's order. */
static enum trajd_status fill_fresh(struct trajd_gpu *gpu, struct trajd_dataset *dataset,
                                    const struct trajd_selection *selection,
                                    struct trajd_gpu_array *const *fresh, struct trajd_error *error)
{
    const uint32_t count = selection->array_count;
    struct trajd_arena scratch = {.limit_bytes = SIZE_MAX};
    uint32_t *indexes = trajd_arena_array(&scratch, count, sizeof *indexes);
    bool *as_float32 = trajd_arena_array(&scratch, count, sizeof *as_float32);
    struct trajd_gpu_array **chosen = trajd_arena_array(&scratch, count, sizeof *chosen);
    struct trajd_selection some = {indexes, 0, as_float32};
    enum trajd_status status = TRAJD_OK;

    if (scratch.is_starved)
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the rows of dataset %s",
                                 dataset->name);
    for (uint32_t k = 0; k < count && !status; k++)
        if (fresh[k] && fresh[k]->memory) {
            indexes[some.array_count] = selection->array_indexes[k];
            as_float32[some.array_count] = fresh[k]->as_float32;
            chosen[some.array_count++] = fresh[k];
        }
    if (some.array_count && !status)
        status = trajd_gpu_fill(gpu, dataset, &some, chosen, error);
    trajd_arena_free(&scratch);
    return status;
}

/* Makes all arrays of the selection that are not resident yet. After an error the caller destroys
 * them all. */
static enum trajd_status make_resident(struct trajd_gpu *gpu, struct trajd_dataset *dataset,
                                       const struct trajd_selection *selection,
                                       struct trajd_gpu_array **fresh, bool *decided,
                                       struct trajd_error *error)
{
    enum trajd_status status;

    for (uint32_t k = 0; k < selection->array_count; k++) {
        if (find(gpu, dataset, selection, k, false))
            continue;
        fresh[k] = create(dataset, selection, k);
        if (!fresh[k])
            return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                                   "no memory for the rows of dataset %s", dataset->name);
    }
    status = place(gpu, fresh, decided, selection->array_count, error);
    return status ? status : fill_fresh(gpu, dataset, selection, fresh, error);
}

static void enlist(struct trajd_gpu *gpu, struct trajd_gpu_array *array)
{
    array->next = gpu->arrays;
    gpu->arrays = array;
    if (array->is_streamed)
        return;
    gpu->rows_used_bytes += array->size_bytes;
    gpu->filled_bytes += array->size_bytes;
}

/* Holds array k of the selection: the fresh one, or the same array that another feed holds already.
 * The caller holds the mutex. */
static struct trajd_gpu_array *take(struct trajd_gpu *gpu, const struct trajd_dataset *dataset,
                                    const struct trajd_selection *selection, uint32_t k,
                                    struct trajd_gpu_array *fresh)
{
    struct trajd_gpu_array *known = find(gpu, dataset, selection, k, fresh && fresh->is_streamed);

    if (known && fresh)
        destroy(gpu, fresh);
    else if (fresh)
        enlist(gpu, fresh);
    known = known ? known : fresh;
    known->holders++;
    return known;
}

static void point_at_rows(const struct trajd_gpu_array *array, uint32_t entry_count, uint32_t k,
                          const void **rows, bool *unreadable,
                          const struct trajd_selection *selection)
{
    const struct trajd_index *index = array->dataset->index;

    for (uint32_t e = 0; e < index->episode_count; e++) {
        const bool has = array->offsets[e] != TRAJD_GPU_NO_ROWS;
        rows[(size_t)e * entry_count + k] =
            has ? (const uint8_t *)array->memory + array->offsets[e] : NULL;
        if (!has && !index->episodes[e].quarantine &&
            trajd_cache_entry_bytes(array->dataset->cache, selection, k, e))
            unreadable[e] = true;
    }
}

enum trajd_status trajd_gpu_hold_rows(struct trajd_gpu *gpu, struct trajd_dataset *dataset,
                                      const struct trajd_selection *selection, const void **rows,
                                      bool *unreadable, bool *held, struct trajd_error *error)
{
    const uint32_t count = selection->array_count;
    struct trajd_gpu_array **fresh = calloc(count + 1, sizeof *fresh);
    enum trajd_status status = TRAJD_ERR_MEMORY;

    memset(held, 0, count * sizeof *held); /* make_resident uses it for `decided` */
    if (fresh)
        status = make_resident(gpu, dataset, selection, fresh, held, error);
    else
        trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the rows of dataset %s",
                        dataset->name);
    for (uint32_t k = 0; status && fresh && k < count; k++)
        if (fresh[k])
            destroy(gpu, fresh[k]);
    for (uint32_t k = 0; !status && k < count; k++) {
        pthread_mutex_lock(&gpu->mutex);
        const struct trajd_gpu_array *taken = take(gpu, dataset, selection, k, fresh[k]);
        pthread_mutex_unlock(&gpu->mutex);
        held[k] = !taken->is_streamed;
        if (held[k])
            point_at_rows(taken, count, k, rows, unreadable, selection);
    }
    free(fresh);
    return status;
}

void trajd_gpu_drop_rows(struct trajd_gpu *gpu, const struct trajd_dataset *dataset,
                         const struct trajd_selection *selection, const bool *held)
{
    for (uint32_t k = 0; k < selection->array_count; k++) {
        struct trajd_gpu_array *array = find(gpu, dataset, selection, k, !held[k]),
                               **link = &gpu->arrays;
        pthread_mutex_lock(&gpu->mutex);
        const bool is_unused = --array->holders == 0;
        while (is_unused && *link != array)
            link = &(*link)->next;
        if (is_unused) {
            *link = array->next;
            gpu->rows_used_bytes -= array->is_streamed ? 0 : array->size_bytes;
        }
        pthread_mutex_unlock(&gpu->mutex);
        if (is_unused)
            destroy(gpu, array);
    }
}
