/* Vectors of elements for the targets of a tile: linear, previous, nearest.
 *
 * A thread keeps one vector of features and goes from target to target, so that no division stands in the loop;
 * neighbouring threads have neighbouring vectors, then neighbouring targets. */
#ifndef TRAJD_KERNELS_CUDA_VALUES_CUH
#define TRAJD_KERNELS_CUDA_VALUES_CUH

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/entry.cuh"

/* Targets whose rows a thread asks for before it uses the first. */
#define VALUES_IN_FLIGHT 2

/* Where a thread stands in a tile: its first vector of features and the targets that it serves. */
struct lane_place {
    uint32_t vector;
    uint32_t vector_step;
    uint32_t slot;
    uint32_t slots;
};

__device__ __forceinline__ lane_place place_lane(uint32_t vector_count)
{
    uint32_t thread = threadIdx.x, threads = blockDim.x;

    if (vector_count >= threads)
        return {thread, threads, 0, 1};
    /* threads beyond the last full row of vectors stand aside */
    uint32_t slots = threads / vector_count, slot = thread / vector_count;
    return {slot < slots ? thread - slot * vector_count : vector_count, vector_count, slot, slots};
}

/* Where a NaN that was used is told: a mask of one stream was written with the entries, a barrier ago... */
struct own_mask {
    uint8_t *steps; /* NULL: none wanted */

    __device__ __forceinline__ void mark(const entry &entry, uint32_t step) const
    {
        if (steps && entry.flags >> ENTRY_CODE_SHIFT < TRAJD_MASK_NAN)
            steps[step] = TRAJD_MASK_NAN;
    }
};

/* ... and that of joined streams is collected in shared memory first. */
struct joined_mask {
    uint32_t *steps;

    __device__ __forceinline__ void mark(const entry &, uint32_t step) const
    {
        if (steps)
            atomicMax(steps + step, (uint32_t)TRAJD_MASK_NAN);
    }
};

/* Strides: 64 bits, or 32 where the host saw that they fit, which makes an address one instruction. */
template <typename STRIDE, typename MASK> struct tile_output {
    char *first;
    STRIDE step_stride_bytes;
    STRIDE row_stride_bytes;
    MASK mask;

    __device__ __forceinline__ char *at(uint32_t step) const
    {
        return first + (uint64_t)step * step_stride_bytes;
    }
};

template <typename S, int V> __device__ __forceinline__ bool has_nan(const vector_of<S, V> &vector)
{
    bool found = false;

#pragma unroll
    for (int v = 0; v < V; v++)
        found |= isnan(as_float(vector.elements[v]));
    return found;
}

/* Normalises and rounds. */
template <typename O, int V>
__device__ __forceinline__ vector_of<O, V> finish(const trajd_cuda_stream &stream, float (&values)[V],
                                                  uint32_t first_feature)
{
    if (stream.scale) {
#pragma unroll
        for (int v = 0; v < V; v++)
            values[v] = fmaf(values[v], __ldg(stream.scale + first_feature + v), __ldg(stream.offset + first_feature + v));
    }
    return pack_vector<O, V>(values);
}

/* A row as it is stored, a NaN's payload too, where types agree and nothing is normalised. */
template <typename S, typename O, int V>
__device__ __forceinline__ vector_of<O, V> pass_on(const trajd_cuda_stream &stream, const vector_of<S, V> &row,
                                                   uint32_t first_feature)
{
    float values[V];

    if (sizeof(S) == sizeof(O) && !stream.scale) {
        vector_of<O, V> copy;
        memcpy(&copy, &row, sizeof copy);
        return copy;
    }
#pragma unroll
    for (int v = 0; v < V; v++)
        values[v] = as_float(row.elements[v]);
    return finish<O, V>(stream, values, first_feature);
}

template <typename O, int V>
__device__ __forceinline__ vector_of<O, V> edge_constant(const trajd_cuda_stream &stream, uint32_t first_feature)
{
    float values[V];

#pragma unroll
    for (int v = 0; v < V; v++)
        values[v] = stream.edge == TRAJD_EDGE_NAN ? __int_as_float(0x7fc00000) : 0;
    return finish<O, V>(stream, values, first_feature);
}

/* One vector of one target, its rows loaded. Returns whether a NaN was used. */
template <typename S, typename O, int V, typename OUT>
__device__ __forceinline__ bool write_value(const trajd_cuda_stream &stream, const entry &entry,
                                            const vector_of<S, V> &low, const vector_of<S, V> &high, uint32_t vector,
                                            uint32_t step, const OUT &out)
{
    char *to = out.at(step) + vector * (uint32_t)(V * sizeof(O));
    float values[V];
    bool suspect = false;

    if (!entry.row) {
        store_vector<O, V>(to, edge_constant<O, V>(stream, vector * V));
        return false;
    }
    if (!(entry.flags & ENTRY_BLENDS)) {
        store_vector<O, V>(to, pass_on<S, O, V>(stream, low, vector * V));
        return has_nan(low);
    }
#pragma unroll
    for (int v = 0; v < V; v++) {
        values[v] = as_float(low.elements[v]);
        values[v] = fmaf(entry.a, as_float(high.elements[v]) - values[v], values[v]);
        suspect |= isnan(values[v]);
    }
    store_vector<O, V>(to, finish<O, V>(stream, values, vector * V));
    return suspect && (has_nan(low) || has_nan(high)); /* not so where infinities were subtracted */
}

template <typename S, typename O, int V, typename OUT>
__device__ __forceinline__ void write_values(const trajd_cuda_stream &stream, const entry *entries, uint32_t step_count,
                                             const OUT &out)
{
    const lane_place lane = place_lane(stream.vector_count);

#pragma unroll 1
    for (uint32_t vector = lane.vector; vector < stream.vector_count; vector += lane.vector_step) {
        const uint32_t from = vector * (uint32_t)(V * sizeof(S));
#pragma unroll 1
        for (uint32_t t = lane.slot; t < step_count; t += lane.slots * VALUES_IN_FLIGHT) {
            entry at[VALUES_IN_FLIGHT];
            vector_of<S, V> low[VALUES_IN_FLIGHT], high[VALUES_IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < VALUES_IN_FLIGHT; k++) {
                at[k] = entries[min(t + k * lane.slots, step_count - 1)];
                bool aligned = !(at[k].flags & ENTRY_UNALIGNED);
                low[k].raw = high[k].raw = {};
                if (at[k].row)
                    low[k] = load_vector<S, V>(at[k].row + from, aligned);
                if (at[k].flags & ENTRY_BLENDS)
                    high[k] = load_vector<S, V>(at[k].row + out.row_stride_bytes + from, aligned);
            }
#pragma unroll
            for (int k = 0; k < VALUES_IN_FLIGHT; k++)
                if (t + k * lane.slots < step_count &&
                    write_value<S, O, V>(stream, at[k], low[k], high[k], vector, t + k * lane.slots, out))
                    out.mask.mark(at[k], t + k * lane.slots);
        }
    }
}

/* The same along runs of neighbouring targets: while the row stays, so do its two vectors, as floats. */
template <typename S, typename O, int V, typename OUT>
__device__ __forceinline__ void walk_values(const trajd_cuda_stream &stream, const entry *entries, uint32_t step_count,
                                            const OUT &out)
{
    const lane_place lane = place_lane(stream.vector_count);
    const uint32_t run = (step_count + lane.slots - 1) / lane.slots, end = min((lane.slot + 1) * run, step_count);

#pragma unroll 1
    for (uint32_t vector = lane.vector; vector < stream.vector_count; vector += lane.vector_step) {
        const uint32_t from = vector * (uint32_t)(V * sizeof(S));
        const char *row = NULL;
        vector_of<S, V> low;
        float values[V], slopes[V];
        bool pair_here = false, low_nan = false, pair_nan = false;

        low.raw = {};
#pragma unroll 1
        for (uint32_t t = lane.slot * run; t < end; t++) {
            const entry at = entries[t];
            const bool blends = at.flags & ENTRY_BLENDS;
            char *to = out.at(t) + vector * (uint32_t)(V * sizeof(O));
            if (!at.row) {
                store_vector<O, V>(to, edge_constant<O, V>(stream, vector * V));
                continue;
            }
            if (at.row != row || (blends && !pair_here)) {
                bool aligned = !(at.flags & ENTRY_UNALIGNED);
                low = load_vector<S, V>(at.row + from, aligned);
                vector_of<S, V> high = low;
                if (blends)
                    high = load_vector<S, V>(at.row + out.row_stride_bytes + from, aligned);
                row = at.row;
                pair_here = blends;
                low_nan = has_nan(low);
                pair_nan = low_nan || has_nan(high);
#pragma unroll
                for (int v = 0; v < V; v++) {
                    values[v] = as_float(low.elements[v]);
                    slopes[v] = as_float(high.elements[v]) - values[v];
                }
            }
            if (blends ? pair_nan : low_nan)
                out.mask.mark(at, t);
            if (blends) {
                float result[V];
#pragma unroll
                for (int v = 0; v < V; v++)
                    result[v] = fmaf(at.a, slopes[v], values[v]);
                store_vector<O, V>(to, finish<O, V>(stream, result, vector * V));
            } else {
                store_vector<O, V>(to, pass_on<S, O, V>(stream, low, vector * V));
            }
        }
    }
}

/* Rows into their own type, V bytes at a time: nothing is looked at. */
template <int V, typename OUT>
__device__ __forceinline__ void copy_values(const trajd_cuda_stream &stream, const entry *entries, uint32_t step_count,
                                            const OUT &out)
{
    const lane_place lane = place_lane(stream.vector_count);

#pragma unroll 1
    for (uint32_t vector = lane.vector; vector < stream.vector_count; vector += lane.vector_step) {
        const uint32_t at = vector * (uint32_t)V;
        for (uint32_t t = lane.slot; t < step_count; t += lane.slots) {
            entry entry = entries[t];
            vector_of<uint8_t, V> value;
            value.raw = {};
            if (entry.row)
                value = load_vector<uint8_t, V>(entry.row + at, !(entry.flags & ENTRY_UNALIGNED));
            store_vector<uint8_t, V>(out.at(t) + at, value);
        }
    }
}

#endif
