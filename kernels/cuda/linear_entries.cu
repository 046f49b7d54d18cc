/* The kernels of products with quantised weights: KnLinear. */

/* `residents`: groups of a multiprocessor at a time, which bounds the registers. */
#define KN_LINEAR_ENTRY(entry, threads, residents, ...) \
    extern "C" __global__ void __launch_bounds__(threads, residents) entry(const __grid_constant__ KnLinear p) { \
        linear::__VA_ARGS__(p); \
    }
#if __CUDA_ARCH__ >= 900
#define KN_WIDE_RESIDENTS(elsewhere) 2
#else
#define KN_WIDE_RESIDENTS(elsewhere) elsewhere
#endif
#define KN_LINEAR(name, kind, one_row_residents, wide_residents) \
    KN_LINEAR_ENTRY(linear_##name##_r1, 256, one_row_residents, one_row<linear::kind>) \
    KN_LINEAR_ENTRY(linear_##name##_r8, 256, 3, narrow<linear::kind, 1, 8>) \
    KN_LINEAR_ENTRY(linear_##name##_r16, 256, 2, narrow<linear::kind, 2, 8>) \
    KN_LINEAR_ENTRY(linear_##name##_wide, linear::WIDE_THREADS, KN_WIDE_RESIDENTS(wide_residents), wide<linear::kind>)

KN_LINEAR(q8_0, Q8_0, 4, 2)
KN_LINEAR(q4_0, Q4_0, 4, 2)
KN_LINEAR(q5_0, Q5_0, 4, 2)
KN_LINEAR(iq4_nl, Iq4Nl, 4, 2)
KN_LINEAR(mxfp4, Mxfp4, 4, 2)
KN_LINEAR(q4_1, Q4_1, 4, 2)
KN_LINEAR(q5_1, Q5_1, 4, 1)
KN_LINEAR(q4_k, Q4K, 4, 2)
KN_LINEAR(q5_k, Q5K, 4, 1)
KN_LINEAR(q6_k, Q6K, 3, 1)
