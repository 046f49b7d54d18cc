/* The kernels of products with quantised weights: KnLinear. */

/* `residents`: groups of a multiprocessor at a time, which bounds the registers. */
#define KN_LINEAR_ENTRY(entry, residents, ...) \
    extern "C" __global__ void __launch_bounds__(256, residents) entry(const __grid_constant__ KnLinear p) { \
        linear::__VA_ARGS__(p); \
    }
#define KN_LINEAR(name, kind, wide_residents) \
    KN_LINEAR_ENTRY(linear_##name##_r1, 3, narrow<linear::kind, 1, 1>) \
    KN_LINEAR_ENTRY(linear_##name##_r8, 3, narrow<linear::kind, 1, 8>) \
    KN_LINEAR_ENTRY(linear_##name##_r16, 2, narrow<linear::kind, 2, 8>) \
    KN_LINEAR_ENTRY(linear_##name##_wide, wide_residents, wide<linear::kind>)

KN_LINEAR(q8_0, Q8_0, 2)
KN_LINEAR(q4_0, Q4_0, 2)
KN_LINEAR(q5_0, Q5_0, 2)
KN_LINEAR(iq4_nl, Iq4Nl, 2)
KN_LINEAR(mxfp4, Mxfp4, 2)
KN_LINEAR(q4_1, Q4_1, 2)
KN_LINEAR(q5_1, Q5_1, 1)
KN_LINEAR(q4_k, Q4K, 2)
KN_LINEAR(q5_k, Q5K, 1)
KN_LINEAR(q6_k, Q6K, 1)
