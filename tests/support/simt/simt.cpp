#include "support/simt/simt.h"

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <memory>
#include <vector>

#include "support/simt/cuda_fp16.h"
#include "support/simt/simt_memory.h"

/* Emulated threads share one thread of the machine: nothing here is atomic. */
dim3 threadIdx, blockIdx, blockDim, gridDim;
alignas(128) char memory[simt::SHARED_BYTES];

namespace
{

enum { STACK_BYTES = 48 << 10, BARRIERS = 16, IDLE_TURNS_MAX = 2000, POISON = 0xD7 };

struct thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    uint32_t block, index;
    bool is_over;
};

/* Threads that have come to a place where they wait for each other. */
struct meeting {
    uint32_t arrived, round;
};

struct warp {
    meeting met;
    void (*together)(void *const *);
    void *brought[simt::WARP];
};

struct block {
    meeting barriers[BARRIERS];
    std::vector<warp> warps;
    std::vector<char> shared; /* while another block runs */
};

/* A load under way. At its end its bytes, or its thread, arrive at the barrier. */
struct load {
    uint32_t block, turns_left, bytes;
    void *shared;
    const void *global;
    uint64_t *barrier;
};

struct range {
    const char *begin, *end;
};

struct machine {
    ucontext_t home;
    std::vector<thread> threads;
    std::vector<block> blocks;
    std::vector<load> loads;
    std::vector<range> ranges;
    const std::function<void()> *kernel;
    thread *now;
    uint32_t resident; /* block whose shared memory is in `memory` */
    uint32_t shared_bytes, first_block, live;
    uint32_t idle_turns; /* since something changed */
    meeting cluster;
    uint32_t dice;
} m;

[[noreturn]] void fail(const char *what)
{
    fprintf(stderr, "block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, what);
    abort();
}

/* Brings a block's shared memory to `memory`. */
void enter(uint32_t number)
{
    if (m.resident == number)
        return;
    memcpy(m.blocks[m.resident].shared.data(), memory, m.shared_bytes);
    memcpy(memory, m.blocks[number].shared.data(), m.shared_bytes);
    m.resident = number;
}

void start()
{
    (*m.kernel)();
    m.now->is_over = true;
    m.live--;
    m.idle_turns = 0;
    swapcontext(&m.now->context, &m.home);
}

void wait_in(meeting &met, uint32_t count)
{
    const uint32_t round = met.round;

    m.idle_turns = 0;
    if (++met.arrived == count) {
        met.arrived = 0;
        met.round++;
        return;
    }
    while (met.round == round)
        simt::yield();
}

/* A barrier in shared memory. The phase ends when nobody and no byte is missing. */
struct transaction_barrier {
    uint16_t missing, arrivals : 15, parity : 1;
    int32_t bytes;
};
static_assert(sizeof(transaction_barrier) == sizeof(uint64_t), "barriers have 8 bytes");

void end_phase(transaction_barrier *b)
{
    m.idle_turns = 0;
    if (b->missing || b->bytes)
        return;
    b->missing = b->arrivals;
    b->parity ^= 1;
}

void check_range(const void *address, uint64_t bytes, const char *what)
{
    for (const range &r : m.ranges)
        if ((const char *)address >= r.begin && (const char *)address + bytes <= r.end)
            return;
    fail(what);
}

/* Ends loads that are due. */
void end_loads()
{
    for (size_t i = 0; i < m.loads.size(); i++) {
        load l = m.loads[i];
        if (m.loads[i].turns_left--)
            continue;
        m.loads.erase(m.loads.begin() + (ptrdiff_t)i--);
        enter(l.block);
        memcpy(l.shared, l.global, l.bytes);
        ((transaction_barrier *)l.barrier)->bytes -= (int32_t)l.bytes;
        end_phase((transaction_barrier *)l.barrier);
    }
}

void run_cluster(uint32_t threads)
{
    const uint32_t count = (uint32_t)m.blocks.size() * threads;

    m.live = count;
    m.idle_turns = 0;
    for (uint32_t i = 0; i < count; i++) {
        thread &t = m.threads[i];
        t.block = i / threads;
        t.index = i % threads;
        t.is_over = false;
        getcontext(&t.context);
        t.context.uc_stack.ss_sp = t.stack.get();
        t.context.uc_stack.ss_size = STACK_BYTES;
        t.context.uc_link = &m.home;
        makecontext(&t.context, start, 0);
    }
    while (m.live) {
        if (m.idle_turns++ > IDLE_TURNS_MAX)
            fail("all threads wait");
        for (uint32_t i = 0; i < count; i++) {
            if (m.threads[i].is_over)
                continue;
            m.now = &m.threads[i];
            enter(m.now->block);
            threadIdx = dim3(m.now->index);
            blockIdx = dim3((m.first_block + m.now->block) % gridDim.x,
                            (m.first_block + m.now->block) / gridDim.x);
            swapcontext(&m.home, &m.now->context);
        }
        end_loads();
    }
    if (!m.loads.empty())
        fail("the block ended before a load");
}

} // namespace

void simt_allow(const void *begin, uint64_t bytes)
{
    m.ranges.push_back({(const char *)begin, (const char *)begin + bytes});
}

void simt_forget_all()
{
    m.ranges.clear();
}

namespace simt
{

void run(dim3 grid, uint32_t cluster, uint32_t threads, uint32_t shared_bytes,
         const std::function<void()> &kernel)
{
    gridDim = grid;
    blockDim = dim3(threads);
    m.kernel = &kernel;
    m.shared_bytes = shared_bytes;
    if (shared_bytes > SHARED_BYTES || threads % WARP)
        fail("a block of this size cannot be launched");
    while (m.threads.size() < (size_t)cluster * threads) {
        m.threads.emplace_back();
        m.threads.back().stack.reset(new char[STACK_BYTES]);
    }
    for (m.first_block = 0; m.first_block < grid.x * grid.y; m.first_block += cluster) {
        m.blocks.assign(cluster, block{});
        for (block &b : m.blocks) {
            b.warps.assign(threads / WARP, warp{});
            b.shared.assign(shared_bytes, (char)POISON);
        }
        memset(memory, POISON, sizeof memory);
        m.resident = 0;
        m.cluster = {};
        run_cluster(threads);
    }
}

void yield()
{
    thread *mine = m.now;

    swapcontext(&mine->context, &m.home);
}

void with_warp(void *mine, void (*together)(void *const *))
{
    warp &w = m.blocks[m.now->block].warps[m.now->index / WARP];

    if (w.met.arrived && w.together != together)
        fail("lanes of a warp are at different instructions");
    w.together = together;
    w.brought[m.now->index % WARP] = mine;
    if (w.met.arrived == WARP - 1 && together)
        together(w.brought);
    wait_in(w.met, WARP);
}

void wait_at(uint32_t barrier, uint32_t count)
{
    wait_in(m.blocks[m.now->block].barriers[barrier], count);
}

void wait_for_cluster()
{
    wait_in(m.cluster, (uint32_t)m.blocks.size() * blockDim.x);
}

void *in_block(void *address, uint32_t number)
{
    return number == m.now->block ? address
                                  : m.blocks[number].shared.data() + ((char *)address - memory);
}

} // namespace simt

void barrier_init(uint64_t *barrier, uint32_t arrivals)
{
    transaction_barrier *b = (transaction_barrier *)barrier;

    b->missing = (uint16_t)arrivals;
    b->arrivals = (uint16_t)(arrivals & 0x7fff);
    b->parity = 0;
    b->bytes = 0;
}

void barrier_arrive(uint64_t *barrier)
{
    barrier_arrive_expecting(barrier, 0);
}

void barrier_arrive_expecting(uint64_t *barrier, uint32_t bytes)
{
    transaction_barrier *b = (transaction_barrier *)barrier;

    if (!b->missing)
        fail("more arrivals than a barrier expects");
    b->missing--;
    b->bytes += (int32_t)bytes;
    end_phase(b);
}

void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    while (((transaction_barrier *)barrier)->parity == parity)
        simt::yield();
}

void bulk_load(void *shared, const void *global, uint32_t bytes, uint64_t *barrier)
{
    uint32_t turns;

    check_range(global, bytes, "a load reads beyond its memory");
    if ((uintptr_t)global % 16 || (uintptr_t)shared % 16 || bytes % 16)
        fail("a load is not aligned");
    if ((char *)shared < memory || (char *)shared + bytes > memory + m.shared_bytes)
        fail("a load writes beyond shared memory");
    memset(shared, POISON, bytes);
    m.dice = m.dice * 1664525 + 1013904223;
    turns = m.dice >> 30;
    if ((m.dice >> 24 & 15) ==
        0) /* a slow one, so that reads beyond what a barrier covers are seen */
        turns *= 20;
    m.loads.push_back({m.now->block, turns, bytes, shared, global, barrier});
}

void send_to_block(float value, float *place, uint64_t *barrier, uint32_t block)
{
    transaction_barrier *b = (transaction_barrier *)simt::in_block(barrier, block);

    *(float *)simt::in_block(place, block) = value;
    b->bytes -= (int32_t)sizeof value;
    end_phase(b);
}

namespace
{

struct matrices {
    const char *from;
    uint32_t *to;
};

/* Fails where a load is under way to the 16 bytes. */
void check_row(const char *row)
{
    for (const load &l : m.loads)
        if (l.block == m.now->block && row < (const char *)l.shared + l.bytes &&
            row + 16 > (const char *)l.shared)
            fail("a row of a matrix is being loaded");
}

/* Loads `COUNT` matrices for all lanes. */
template <int COUNT> void load_all(void *const *all)
{
    for (int lane = 0; lane < simt::WARP; lane++)
        for (int i = 0; i < COUNT; i++) {
            const char *row = ((matrices *)all[i * 8 + lane / 4])->from;
            if ((uintptr_t)row % 16 || row < memory || row + 16 > memory + m.shared_bytes)
                fail("a row of a matrix is not in shared memory");
            check_row(row);
            memcpy(&((matrices *)all[lane])->to[i], row + lane % 4 * 4, 4);
        }
}

struct product {
    float *d;
    uint32_t a[4], b[2];
};

double half_of(uint32_t pair, int which)
{
    return trajd_f16_to_double((uint16_t)(which ? pair >> 16 : pair));
}

/* d[16][8] += a[16][8 * HALVES] * b[8 * HALVES][8]. */
template <int HALVES> void multiply_all(void *const *all)
{
    for (int lane = 0; lane < simt::WARP; lane++)
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            float *d = &((product *)all[lane])->d[i];
            double sum = (double)*d;
            for (int k = 0; k < 8 * HALVES; k++) {
                const product *a = (product *)all[row % 8 * 4 + k % 8 / 2];
                const product *b = (product *)all[column * 4 + k % 8 / 2];
                sum += half_of(a->a[row / 8 + k / 8 * 2], k % 2) * half_of(b->b[k / 8], k % 2);
            }
            *d = (float)sum;
        }
}

template <typename V> struct exchange {
    V value, result;
    int lanes;
};

template <typename V> void exchange_all(void *const *all)
{
    for (int lane = 0; lane < simt::WARP; lane++) {
        exchange<V> *e = (exchange<V> *)all[lane];
        e->result = ((exchange<V> *)all[lane ^ e->lanes])->value;
    }
}

template <typename V> V exchanged(V value, int lanes)
{
    exchange<V> mine = {value, 0, lanes};

    simt::with_warp(&mine, exchange_all<V>);
    return mine.result;
}

} // namespace

void load_matrices(uint32_t (&a)[4], const void *from)
{
    matrices mine = {(const char *)from, a};

    simt::with_warp(&mine, load_all<4>);
}

void load_matrices(uint32_t (&a)[2], const void *from)
{
    matrices mine = {(const char *)from, a};

    simt::with_warp(&mine, load_all<2>);
}

void multiply(float (&d)[4], const uint4 &a, uint32_t b0, uint32_t b1)
{
    product mine = {d, {a.x, a.y, a.z, a.w}, {b0, b1}};

    simt::with_warp(&mine, multiply_all<2>);
}

void multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    product mine = {d, {a0, a1, 0, 0}, {b, 0}};

    simt::with_warp(&mine, multiply_all<1>);
}

float __shfl_xor_sync(uint32_t, float value, int lanes)
{
    return exchanged(value, lanes);
}

unsigned long long __shfl_xor_sync(uint32_t, unsigned long long value, int lanes)
{
    return exchanged(value, lanes);
}
