/* OpenCL C 1.2 for SPIR-V: Level Zero and OpenCL drivers. Sub-groups have 8, 16 or 32 lanes: whoever loads a kernel
 * writes the width into its execution mode and into the specialisation constant 0. */
#pragma OPENCL FP_CONTRACT OFF
typedef uchar kn_u8;
typedef char kn_i8;
typedef ushort kn_u16;
typedef uint kn_u32;
typedef int kn_i32;
typedef ulong kn_u64;
typedef float4 kn_f4; typedef uint4 kn_u4;
#define KN_OPENCL 1
#define KN_KERNEL(threads, name, Struct) \
    __kernel __attribute__((reqd_work_group_size(threads, 1, 1))) __attribute__((intel_reqd_sub_group_size(32))) \
    void name(const Struct p)
#define KN_GLOBAL __global
#define KN_LOCAL __local
#define KN_FN static inline __attribute__((always_inline))
#define KN_CONSTANT static __constant const
#define KN_SHARED(type, name, count) __local __attribute__((aligned(16))) type name[count]
#define KN_AT(type, address) ((__global type *)(address))
#define KN_UNROLL __attribute__((opencl_unroll_hint))
#define KN_UNROLL_BY(n) __attribute__((opencl_unroll_hint(n)))
KN_FN void kn_begin(void) {}
KN_FN void kn_begin_late(void) {}
KN_FN void kn_let_next_begin(void) {}
KN_FN void kn_wait_for_launches(void) {}
KN_FN kn_u32 kn_first_turn(kn_u32 wanted) { return 1u; }
KN_FN kn_u32 kn_thread(void) { return (kn_u32)get_local_id(0); }
KN_FN kn_u32 kn_group_x(void) { return (kn_u32)get_group_id(0); }
KN_FN kn_u32 kn_group_y(void) { return (kn_u32)get_group_id(1); }
KN_FN kn_u32 kn_group_z(void) { return (kn_u32)get_group_id(2); }
KN_FN void kn_barrier(void) { barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE); }
KN_FN kn_u32 kn_bits(float x) { return as_uint(x); }
KN_FN float kn_float(kn_u32 x) { return as_float(x); }
KN_FN float kn_fma(float a, float b, float c) { return fma(a, b, c); }
KN_FN float kn_sqrt(float x) { return sqrt(x); }
KN_FN float kn_divide(float a, float b) { return a / b; }
KN_FN float kn_half_to_float(kn_u16 h) { return vload_half(0, (const __private half *)&h); }
KN_FN kn_u16 kn_float_to_half(float f) { kn_u16 h; vstore_half_rte(f, 0, (__private half *)&h); return h; }
KN_FN kn_i32 kn_dot4(kn_i32 a, kn_i32 b, kn_i32 c) {
    const char4 x = as_char4(a), y = as_char4(b);
    return c + (int)x.s0 * y.s0 + (int)x.s1 * y.s1 + (int)x.s2 * y.s2 + (int)x.s3 * y.s3;
}
/* Of cl_intel_subgroups; declared here, since not every compiler's header has them. */
kn_u32 __attribute__((overloadable, convergent)) intel_sub_group_shuffle_xor(kn_u32, kn_u32);
kn_u32 __attribute__((const)) __spirv_SpecConstant(kn_i32, kn_u32);
/* A word for each thread of a group; prelude/exchange.ll has it, since OpenCL C has such memory in kernels alone. */
KN_LOCAL kn_u32 *kn_exchange(void);
/* Lanes that are farther apart than a sub-group is wide meet in local memory: with barriers, so all threads of a group
 * come here together. A row of 32 lanes is a row of threads whatever the width. */
KN_FN kn_u32 kn_xor_u32(kn_u32 v, kn_u32 mask) {
    if (mask < 8u || mask < __spirv_SpecConstant(0, 32u)) return intel_sub_group_shuffle_xor(v, mask);
    KN_LOCAL kn_u32 *words = kn_exchange();
    const kn_u32 me = (kn_u32)get_local_id(0);
    words[me] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    const kn_u32 other = words[me ^ mask];
    barrier(CLK_LOCAL_MEM_FENCE);
    return other;
}
KN_FN float kn_xor_f32(float v, kn_u32 mask) { return as_float(kn_xor_u32(as_uint(v), mask)); }
KN_FN kn_u32 kn_add_shared(KN_LOCAL kn_u32 *at, kn_u32 v) { return atomic_add((volatile __local kn_u32 *)at, v); }
KN_FN kn_f4 kn_load4(KN_GLOBAL const float *at) { return *(__global const kn_f4 *)at; }
KN_FN void kn_store4(KN_GLOBAL float *at, kn_f4 v) { *(__global kn_f4 *)at = v; }
KN_FN kn_f4 kn_make4(float x, float y, float z, float w) { return (kn_f4)(x, y, z, w); }
KN_FN kn_u4 kn_load_u4(KN_GLOBAL const void *at) { return *(__global const kn_u4 *)at; }
KN_FN kn_f4 kn_local4(KN_LOCAL const float *at) { return *(__local const kn_f4 *)at; }
KN_FN void kn_store_local4(KN_LOCAL float *at, kn_f4 v) { *(__local kn_f4 *)at = v; }
