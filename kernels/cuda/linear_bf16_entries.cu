/* The kernels of products with quantised weights and rows in bf16: KnLinear. */

#define KN_LINEAR_BF16(name, kind, tokens) \
    extern "C" __global__ void __launch_bounds__(linear::BF16_THREADS, 1) linear_##name##_bf16_##tokens( \
        const __grid_constant__ KnLinear p) { \
        linear::many_bf16<linear::kind, tokens>(p); \
    }
#define KN_LINEAR_BOTH(name, kind) KN_LINEAR_BF16(name, kind, 128) KN_LINEAR_BF16(name, kind, 256)

KN_LINEAR_BOTH(q8_0, Q8_0)
KN_LINEAR_BOTH(q4_0, Q4_0)
KN_LINEAR_BOTH(q5_0, Q5_0)
KN_LINEAR_BOTH(iq4_nl, Iq4Nl)
KN_LINEAR_BOTH(mxfp4, Mxfp4)
KN_LINEAR_BOTH(q4_1, Q4_1)
KN_LINEAR_BOTH(q5_1, Q5_1)
KN_LINEAR_BOTH(q4_k, Q4K)
KN_LINEAR_BOTH(q5_k, Q5K)
KN_LINEAR_BOTH(q6_k, Q6K)
