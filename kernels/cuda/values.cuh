/* Vectors of elements for the targets of a tile: linear, previous, nearest.
 *
 * A thread keeps one vector of features and goes from target to target, so the loop contains no
 * division. Neighbouring threads have neighbouring vectors, and then neighbouring targets. */
#ifndef TRAJD_KERNELS_CUDA_VALUES_CUH
#define TRAJD_KERNELS_CUDA_VALUES_CUH

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/entry.cuh"

/* Targets whose rows a thread loads before it uses the first. */
#define VALUES_IN_FLIGHT 2
/* For a walk: the least vectors per step for which threads have runs of targets. */
#define WALK_VECTORS_MIN 8

/* The threads that serve one stream together: all threads of a block, or some of its warps. */
struct team {
    uint32_t rank;
    uint32_t ranks;
};

/* A thread's place in a tile: its first vector of features, and the targets that it serves. */
struct lane_place {
    uint32_t vector;
    uint32_t vector_step;
    uint32_t slot;
    uint32_t slots;
};

__device__ __forceinline__ lane_place place_lane(const team &team, uint32_t vector_count)
{
    uint32_t thread = team.rank, threads = team.ranks;

    if (vector_count >= threads)
        return {thread, threads, 0, 1};
    /* threads beyond the last full row of vectors have no work */
    uint32_t slots = threads / vector_count, slot = thread / vector_count;
    return {slot < slots ? thread - slot * vector_count : vector_count, vector_count, slot, slots};
}

/* Marks a result that is not finite, for a mask of one stream. The mask was written together with
 * the entries, before a barrier. */
struct own_mask {
    uint8_t *steps; /* NULL: no mask */

    __device__ __forceinline__ void mark(uint32_t step) const
    {
        if (steps && steps[step] < TRAJD_MASK_NAN)
            steps[step] = TRAJD_MASK_NAN;
    }
};

/* The same for a mask that streams share: it is collected in shared memory first. */
struct joined_mask {
    uint32_t *steps;

    __device__ __forceinline__ void mark(uint32_t step) const
    {
        if (steps)
            atomicMax(steps + step, (uint32_t)TRAJD_MASK_NAN);
    }
};

/* Where a tile's results go. STRIDE has 64 bits, or 32 if the host saw that it fits, which makes an
 * address one instruction. */
template <typename STRIDE, typename MASK> struct tile_output {
    char *first;
    STRIDE step_stride_bytes;
    MASK mask;

    __device__ __forceinline__ char *at(uint32_t step) const
    {
        return first + (uint64_t)step * step_stride_bytes;
    }
};

__device__ __forceinline__ bool is_lost(float value)
{
    return !(fabsf(value) < __int_as_float(0x7f800000));
}

/* A cheap test that never misses a NaN or an infinity. */
template <typename O, int V>
__device__ __forceinline__ bool may_be_lost(const vector_of<O, V> &vector)
{
    bool found = false;

#pragma unroll
    for (int v = 0; v < V; v++)
        found |= is_lost(as_float(vector.elements[v]));
    return found;
}

/* It adds 16-bit pairs, so it also returns true for some large numbers. */
template <>
__device__ __forceinline__ bool
may_be_lost<__nv_bfloat16, 8>(const vector_of<__nv_bfloat16, 8> &vector)
{
    const __nv_bfloat162 *pairs = (const __nv_bfloat162 *)&vector;
    __nv_bfloat162 sum = __hadd2(__hadd2(pairs[0], pairs[1]), __hadd2(pairs[2], pairs[3]));

    return is_lost(__bfloat162float(sum.x)) || is_lost(__bfloat162float(sum.y));
}

/* Normalises and rounds. */
template <typename O, int V, typename STREAM>
__device__ __forceinline__ vector_of<O, V> finish(const STREAM &stream, float (&values)[V],
                                                  uint32_t first_feature)
{
    if (__builtin_expect(stream.scale != NULL, 0)) {
#pragma unroll
        for (int v = 0; v < V; v++)
            values[v] = fmaf(values[v], __ldg(stream.scale + first_feature + v),
                             __ldg(stream.offset + first_feature + v));
    }
    return pack_vector<O, V>(values);
}

template <typename S, typename O, int V, typename STREAM>
__device__ __forceinline__ vector_of<O, V>
blend(const STREAM &stream, float a, const vector_of<S, V> &low, const vector_of<S, V> &high,
      uint32_t first_feature)
{
    float values[V];

#pragma unroll
    for (int v = 0; v < V; v++) {
        values[v] = as_float(low.elements[v]);
        values[v] = fmaf(a, as_float(high.elements[v]) - values[v], values[v]);
    }
    return finish<O, V>(stream, values, first_feature);
}

/* Handles what blend gets wrong: no row, a row alone with a NaN, whose payload is kept, or an
 * infinity, and numbers so large that float overflows in between. Writes the vector again if
 * needed. Returns whether a result of rows is not finite. Rare, so it is a function of its own. */
template <typename S, typename O, int V>
__device__ __noinline__ bool look_closer(const float *scale, const float *offset, uint32_t edge,
                                         entry at, uint32_t vector, char *to)
{
    const char *from = at.row + (uint64_t)vector * (V * sizeof(S));
    bool lost = false;

#pragma unroll 1
    for (int v = 0; v < V; v++) {
        O *result = (O *)to + v;
        if (at.row && !at.next_bytes && !scale && sizeof(S) == sizeof(O)) {
            memcpy(result, (const S *)from + v, sizeof(S));
        } else if (!at.row || !at.next_bytes) {
            float value = edge == TRAJD_EDGE_NAN ? __int_as_float(0x7fc00000) : 0;
            if (at.row)
                value = as_float(((const S *)from)[v]);
            if (scale)
                value = fmaf(value, scale[vector * V + v], offset[vector * V + v]);
            round_to(value, *result);
        } else if (is_lost(as_float(*result))) {
            const double low = (double)as_float(((const S *)from)[v]);
            double value =
                low +
                (double)at.a * ((double)as_float(((const S *)(from + at.next_bytes))[v]) - low);
            if (scale)
                value = value * (double)scale[vector * V + v] + (double)offset[vector * V + v];
            round_to(value, *result);
        }
        lost |= at.row && is_lost(as_float(*result));
    }
    return lost;
}

/* Writes the values of a tile. With LOOKS it looks closer at steps that may not be finite or have no
 * row. Without, it returns whether there was such a step. */
template <typename S, typename O, int V, bool LOOKS, typename STREAM, typename OUT>
__device__ __forceinline__ bool write_values(const team &team, const STREAM &stream,
                                             uint32_t vector_count, const entry *entries,
                                             uint32_t step_count, const OUT &out)
{
    const lane_place lane = place_lane(team, vector_count);
    bool suspect = false;

#pragma unroll 1
    for (uint32_t vector = lane.vector; vector < vector_count; vector += lane.vector_step) {
        const uint32_t from = vector * (uint32_t)(V * sizeof(S));
#pragma unroll 1
        for (uint32_t t = lane.slot; t < step_count; t += lane.slots * VALUES_IN_FLIGHT) {
            entry at[VALUES_IN_FLIGHT];
            vector_of<S, V> low[VALUES_IN_FLIGHT], high[VALUES_IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < VALUES_IN_FLIGHT; k++) {
                at[k] = entries[min(t + k * lane.slots, step_count - 1)];
                low[k].raw = high[k].raw = {};
                if (at[k].row) {
                    low[k] = load_vector<S, V>(at[k].row + from);
                    high[k] = load_vector<S, V>(at[k].row + from + at[k].next_bytes);
                }
            }
#pragma unroll
            for (int k = 0; k < VALUES_IN_FLIGHT; k++) {
                const uint32_t step = t + k * lane.slots;
                if (step >= step_count)
                    break;
                char *to = out.at(step) + vector * (uint32_t)(V * sizeof(O));
                vector_of<O, V> value =
                    blend<S, O, V>(stream, at[k].a, low[k], high[k], vector * V);
                store_vector<O, V>(to, value);
                const bool rare = !at[k].row || may_be_lost(value);
                suspect |= rare;
                if (LOOKS && rare &&
                    look_closer<S, O, V>(stream.scale, stream.offset, stream.edge, at[k], vector,
                                         to))
                    out.mask.mark(step);
            }
        }
    }
    return suspect;
}

/* Targets first, first + stride, ... of a tile, in order. */
struct step_run {
    uint32_t first;
    uint32_t stride;
    uint32_t count;
};

/* Returns a thread's targets. Wide steps: a run of neighbouring targets per thread, which share
 * rows. Narrow steps: neighbouring threads have neighbouring targets, so that a warp's stores are
 * few lines. */
__device__ __forceinline__ step_run run_of(const lane_place &lane, uint32_t vector_count,
                                           uint32_t step_count)
{
    const uint32_t share = (step_count + lane.slots - 1) / lane.slots, first = lane.slot * share;

    if (lane.slot >= lane.slots)
        return {0, 1, 0};
    if (vector_count >= WALK_VECTORS_MIN)
        return {first, 1, first < step_count ? min(share, step_count - first) : 0};
    return {lane.slot, lane.slots,
            lane.slot < step_count ? (step_count - 1 - lane.slot) / lane.slots + 1 : 0};
}

/* Two rows of one vector of features: the lower row and what leads to the upper one, as floats. */
template <int V> struct walk_rows {
    float values[V];
    float slopes[V];
};

/* Loads the two rows of an entry. Returns whether a result between them may not be finite: it looks
 * at the results of both rows, between which all others lie. */
template <typename S, typename O, int V, typename STREAM>
__device__ __forceinline__ bool load_rows(const STREAM &stream, const char *row,
                                          uint32_t next_bytes, uint32_t vector, walk_rows<V> &rows)
{
    const char *from = row + vector * (uint32_t)(V * sizeof(S));
    const vector_of<S, V> low = load_vector<S, V>(from),
                          high = load_vector<S, V>(from + next_bytes);
    bool suspect = may_be_lost(blend<S, O, V>(stream, 0, low, high, vector * V)) ||
                   may_be_lost(blend<S, O, V>(stream, 1, low, high, vector * V));

#pragma unroll
    for (int v = 0; v < V; v++) {
        rows.values[v] = as_float(low.elements[v]);
        rows.slopes[v] = as_float(high.elements[v]) - rows.values[v];
        suspect |= is_lost(rows.slopes[v]);
    }
    return suspect;
}

/* Forms one vector of features along a run, and stores steps so that they leave the cache first.
 * `to` is the vector's place in the run's first step. While the row stays the same, its two vectors
 * stay in registers. Returns whether a result may not be finite, or a row is missing. */
template <typename S, typename O, int V, typename STREAM>
__device__ __forceinline__ bool walk_run(const STREAM &stream, const entry *entries,
                                         const step_run &run, uint32_t vector, char *to,
                                         uint64_t stride_bytes)
{
    /* an entry as it is in memory: row, a, next_bytes; no row at first */
    const uint4 *raw = (const uint4 *)entries + run.first;
    uint4 row = {0, 0, 0, UINT32_MAX}, next = raw[0];
    walk_rows<V> rows = {};
    bool suspect = false;

#pragma unroll 1
    for (uint32_t left = run.count; left > 0; left--) {
        const uint4 at = next;
        float result[V];

        raw += run.stride;
        if (left > 1)
            next = *raw;
        if (((at.x ^ row.x) | (at.y ^ row.y) | (at.w ^ row.w)) != 0) {
            const char *from = (const char *)((uint64_t)at.y << 32 | at.x);
            row = at;
            suspect |= !from || load_rows<S, O, V>(stream, from, at.w, vector, rows);
        }
#pragma unroll
        for (int v = 0; v < V; v++)
            result[v] = fmaf(__uint_as_float(at.z), rows.slopes[v], rows.values[v]);
        store_streaming<O, V>(to, finish<O, V>(stream, result, vector * V));
        to += stride_bytes;
    }
    return suspect;
}

/* The same as write_values without LOOKS, with each thread's targets in order. */
template <typename S, typename O, int V, typename STREAM, typename OUT>
__device__ __forceinline__ bool walk_values(const team &team, const STREAM &stream,
                                            uint32_t vector_count, const entry *entries,
                                            uint32_t step_count, const OUT &out)
{
    const lane_place lane = place_lane(team, vector_count);
    const step_run run = run_of(lane, vector_count, step_count);
    bool suspect = false;

#pragma unroll 1
    for (uint32_t vector = lane.vector; vector < vector_count; vector += lane.vector_step) {
        if (run.count > 0)
            suspect |= walk_run<S, O, V>(stream, entries, run, vector,
                                         out.at(run.first) + vector * (uint32_t)(V * sizeof(O)),
                                         (uint64_t)run.stride * out.step_stride_bytes);
    }
    return suspect;
}

/* Copies rows into their own type, V bytes at a time, without checking elements. */
template <int V, typename OUT>
__device__ __forceinline__ void copy_values(const team &team, uint32_t vector_count,
                                            const entry *entries, uint32_t step_count,
                                            const OUT &out)
{
    const lane_place lane = place_lane(team, vector_count);

#pragma unroll 1
    for (uint32_t vector = lane.vector; vector < vector_count; vector += lane.vector_step) {
        const uint32_t at = vector * (uint32_t)V;
        for (uint32_t t = lane.slot; t < step_count; t += lane.slots) {
            const char *row = entries[t].row;
            vector_of<uint8_t, V> value;
            value.raw = {};
            if (row)
                value = load_vector<uint8_t, V>(row + at);
            store_vector<uint8_t, V>(out.at(t) + at, value);
        }
    }
}

#endif
