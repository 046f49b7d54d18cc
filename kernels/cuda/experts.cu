/* Products of experts with quantised weights on tensor cores: KnExpertsLinear. The same bits as experts_int.kn. */

namespace linear {

/* The product of a tile's rows with a panel of its expert. */
struct OfExpert {
    KnLinearSegment segment;
    kn_u64 x;
    u32 rows, k, group, order;
};

__device__ __forceinline__ Place locate(const OfExpert &p, int group, int) { return Place{&p.segment, group}; }
__device__ __forceinline__ int rows_of(const OfExpert &p) { return (int)p.rows; }
__device__ __forceinline__ void wait_for_others(const OfExpert &) {}

/* What a group works on; no rows where there is nothing to do. Which expert that is a launch in front has made: only where it is
 * known to have ended can weights be asked for before `await`. */
__device__ __forceinline__ OfExpert of_expert(const KnExpertsLinear &p, u32 panels = 1) {
    if (p.early) {
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
    } else {
        kn_begin();
    }
    const u32 at = blockIdx.y, groups = (p.n + 16u * panels - 1u) / (16u * panels), second = blockIdx.x >= groups;
    const KnTile tile = experts_tile(p.list, p.ids, p.live, p.experts, p.tiles, at);
    OfExpert one = {};
    one.rows = tile.rows;
    one.k = p.k;
    one.group = second ? blockIdx.x - groups : blockIdx.x;
    one.x = p.by_position ? p.x + (kn_u64)at * (p.tile / 8u) * ((p.k / 32u + 1u) / 2u) * RECORD : p.x;
    one.segment.weight = (second ? p.weight1 : p.weight0) + tile.expert * p.stride;
    one.segment.out = (second ? p.out1 : p.out0) + (kn_u64)at * p.tile * p.n * 4u;
    one.segment.n = one.segment.out_row = p.n;
    return one;
}

__device__ __forceinline__ void await(const KnExpertsLinear &p) {
    if (p.early) kn_begin();
}

template <template <int> class F>
__device__ __forceinline__ void experts_of_few(const KnExpertsLinear &p) {
    __shared__ __align__(128) u8 shared[Narrow<F, 8>::ALL_BYTES];
    const OfExpert one = of_expert(p);
    if (one.rows)
        narrow_group<F, 1, 8>(one, (int)one.group, shared, [&] { await(p); });
    else
        await(p);
}

/* Up to 8 * TILES rows: a warp has a panel, walks through its slices one after the other and keeps what they add up to, so that
 * warps do not wait for each other, and all have work where a slice has none. */
template <template <int> class F, int TILES>
__device__ __forceinline__ void panel_of_warp(const OfExpert &p, int at_panel, u8 *ring) {
    constexpr int UNIT = Narrow<F, 8>::UNIT, STEP = Narrow<F, 8>::STEP, DEPTH = Narrow<F, 8>::DEPTH;
    typedef F<STEP> Format;
    const int lane = (int)(threadIdx.x & 31u);
    const Panel panel = panel_of<Format>(p, p.segment, at_panel);
    int ahead = 0, ahead_slice = 0;
    auto ask = [&](u8 *to) {
        if (ahead < panel.blocks) Format::copy(to, panel, ahead, lane);
        commit_copies();
        ahead = next_step<UNIT, STEP>(ahead);
        if (ahead >= panel.blocks && ahead_slice < SLICES - 1) ahead = ++ahead_slice * UNIT;
    };
#pragma unroll
    for (int i = 0; i < DEPTH; i++) ask(ring + i * Format::BYTES);
    const int tile_bytes = panel.pairs * RECORD;
    const u8 *const x = (const u8 *)p.x + lane * 16, *const scales = (const u8 *)p.x + 512 + lane % 4 * 16;
    float total[TILES][4];
    int turn = 0;
#pragma unroll 1
    for (int slice = 0; slice < SLICES && slice * UNIT < panel.blocks; slice++) {
        float sum[TILES][4] = {};
#pragma unroll 1
        for (int block = slice * UNIT; block < panel.blocks; block = next_step<UNIT, STEP>(block)) {
            wait_copies<DEPTH - 1>();
            __syncwarp();
            const int at = (int)((u32)block / 2u) * RECORD;
            add_step<Format, STEP, TILES, 8, RECORD, 64>(ring + turn, block, panel.blocks, x + at, scales + at, tile_bytes, sum);
            __syncwarp();
            ask(ring + turn);
            turn = turn == (DEPTH - 1) * Format::BYTES ? 0 : turn + Format::BYTES;
        }
#pragma unroll
        for (int i = 0; i < TILES * 4; i++) {
            const float own = sum[i / 4][i % 4];
            total[i / 4][i % 4] = slice ? total[i / 4][i % 4] + own : own;
        }
    }
    /* What slices without blocks add. */
    if ((SLICES - 1) * UNIT >= panel.blocks)
#pragma unroll
        for (int i = 0; i < TILES * 4; i++) total[i / 4][i % 4] += 0.0f;
#pragma unroll
    for (int i = 0; i < TILES * 4; i++) {
        const int row = i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (row < (int)p.rows) write(p.segment, row, at_panel * 16 + lane / 4 + i % 4 / 2 * 8, total[i / 4][i % 4]);
    }
}

/* Up to 32 rows, in the form for as many as there are. A group has 8 panels. */
template <template <int> class F>
__device__ __forceinline__ void experts_of_many(const KnExpertsLinear &p) {
    __shared__ __align__(128) u8 shared[Narrow<F, 8>::BYTES];
    const OfExpert one = of_expert(p, 8u);
    const int warp = (int)(threadIdx.x >> 5), panel = (int)one.group * 8 + warp;
    u8 *const ring = shared + warp * (Narrow<F, 8>::BYTES / 8);
    await(p);
    if (panel * 16 >= (int)p.n) return;
    if (one.rows > 16u)
        panel_of_warp<F, 4>(one, panel, ring);
    else if (one.rows > 8u)
        panel_of_warp<F, 2>(one, panel, ring);
    else if (one.rows)
        panel_of_warp<F, 1>(one, panel, ring);
}

template <template <int> class F>
__device__ __forceinline__ void experts_of_one_row(const KnExpertsLinear &p) {
    __shared__ __align__(128) u8 shared[Narrow<F, 1>::ALL_BYTES];
    const OfExpert one = of_expert(p);
    if (!one.rows)
        await(p);
    else if (F<8>::SINGLE && gridDim.x * gridDim.y >= MANY_GROUPS)
        single_group<F>(one, (int)one.group, shared, [&] { await(p); });
    else
        narrow_group<F, 1, 1>(one, (int)one.group, shared, [&] { await(p); });
}

}  // namespace linear

/* `residents`: groups of a multiprocessor at a time, which bounds the registers. */
#define KN_EXPERTS_ENTRY(entry, residents, ...)                                                                  \
    extern "C" __global__ void __launch_bounds__(256, residents) entry(const __grid_constant__ KnExpertsLinear p) { \
        linear::__VA_ARGS__(p);                                                                                  \
    }
#define KN_EXPERTS(name, kind, one_row_residents)                                                      \
    KN_EXPERTS_ENTRY(experts_##name##_r1, one_row_residents, experts_of_one_row<linear::kind>)         \
    KN_EXPERTS_ENTRY(experts_##name##_r8, 3, experts_of_few<linear::kind>)                             \
    KN_EXPERTS_ENTRY(experts_##name##_r32, 2, experts_of_many<linear::kind>)

KN_EXPERTS(q8_0, Q8_0, 4)
KN_EXPERTS(q4_0, Q4_0, 4)
KN_EXPERTS(q5_0, Q5_0, 4)
KN_EXPERTS(iq4_nl, Iq4Nl, 4)
KN_EXPERTS(mxfp4, Mxfp4, 4)
KN_EXPERTS(q4_1, Q4_1, 4)
KN_EXPERTS(q5_1, Q5_1, 4)
KN_EXPERTS(q4_k, Q4K, 4)
KN_EXPERTS(q5_k, Q5K, 4)
KN_EXPERTS(q6_k, Q6K, 3)
