/* Products of experts with quantised weights on tensor cores: KnExpertsLinear. The same bits as experts_int.kn. */

namespace linear {

/* The product of a tile's rows with a panel of its expert. */
struct OfExpert {
    KnLinearSegment segment;
    kn_u64 x;
    u32 rows, k, group;
};

__device__ __forceinline__ Place locate(const OfExpert &p, int group, int) { return Place{&p.segment, group}; }
__device__ __forceinline__ int rows_of(const OfExpert &p) { return (int)p.rows; }
__device__ __forceinline__ void wait_for_others(const OfExpert &) {}

/* What a group works on; no rows where there is nothing to do. Which expert that is a launch in front has made, so nothing can
 * be asked for before it has ended. */
__device__ __forceinline__ OfExpert of_expert(const KnExpertsLinear &p) {
    kn_begin();
    const u32 at = blockIdx.y, groups = (p.n + 15u) / 16u, second = blockIdx.x >= groups;
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

template <template <int> class F>
__device__ __forceinline__ void experts_of_few(const KnExpertsLinear &p) {
    __shared__ __align__(128) u8 shared[Narrow<F>::BYTES];
    const OfExpert one = of_expert(p);
    if (one.rows) narrow_group<F, 1, 8>(one, (int)one.group, shared, [] {});
}

/* Up to 32 rows, in the form for as many as there are. */
template <template <int> class F>
__device__ __forceinline__ void experts_of_many(const KnExpertsLinear &p) {
    __shared__ __align__(128) u8 shared[Narrow<F>::BYTES];
    const OfExpert one = of_expert(p);
    if (one.rows > 16u)
        narrow_group<F, 4, 8>(one, (int)one.group, shared, [] {});
    else if (one.rows > 8u)
        narrow_group<F, 2, 8>(one, (int)one.group, shared, [] {});
    else if (one.rows)
        narrow_group<F, 1, 8>(one, (int)one.group, shared, [] {});
}

template <template <int> class F>
__device__ __forceinline__ void experts_of_one_row(const KnExpertsLinear &p) {
    __shared__ __align__(128) u8 shared[Narrow<F>::BYTES];
    const OfExpert one = of_expert(p);
    if (!one.rows) return;
    if (F<8>::SINGLE && gridDim.x * gridDim.y >= MANY_GROUPS)
        single_group<F>(one, (int)one.group, shared, [] {});
    else
        narrow_group<F, 1, 1>(one, (int)one.group, shared, [] {});
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
