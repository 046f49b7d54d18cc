/* CUDA: NVRTC without any include path. */
typedef unsigned char kn_u8; typedef signed char kn_i8; typedef unsigned short kn_u16; typedef unsigned int kn_u32;
typedef int kn_i32; typedef unsigned long long kn_u64;
typedef float4 kn_f4; typedef uint4 kn_u4;
#define KN_CUDA 1
#define KN_KERNEL(threads, name, Struct)                                                                               \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Struct p)
#define KN_GLOBAL
#define KN_LOCAL
#define KN_FN static __device__ __forceinline__
#define KN_CONSTANT static __device__ const
#define KN_SHARED(type, name, count) __shared__ __align__(16) type name[count]
/* Of a size that the launch gives (Launch::shared_bytes); a kernel has one. */
#define KN_SHARED_DYNAMIC(type, name, count) extern __shared__ __align__(16) type name[]
#define KN_AT(type, address) ((type *)(address))
#define KN_UNROLL _Pragma("unroll")
#define KN_UNROLL_BY(n) _Pragma(KN_TEXT(unroll n))
#define KN_TEXT(x) #x
/* With programmatic launches a kernel may begin before those before it have ended. It lets the next one do so, and
 * waits for what the others wrote: the one right before it ends after the ones before that. */
KN_FN void kn_let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
KN_FN void kn_wait_for_launches() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* The other way round: when the next launch begins, all in front of this one have ended. */
KN_FN void kn_begin_late() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
KN_FN void kn_begin() {
    kn_let_next_begin();
    kn_wait_for_launches();
}
/* 0 where a kernel goes through its work once on nothing before it waits, so that its instructions are there when it
 * counts; else 1. The compiler shall not know, or it makes two copies of the work. */
KN_FN kn_u32 kn_first_turn(kn_u32 wanted) {
#if __CUDA_ARCH__ >= 900
    if (!wanted) return 1u;
    kn_u32 turn = 0u;
    asm volatile("" : "+r"(turn));
    return turn;
#else
    return 1u;
#endif
}
KN_FN kn_u32 kn_thread() { return threadIdx.x; }
KN_FN kn_u32 kn_group_x() { return blockIdx.x; }
KN_FN kn_u32 kn_group_y() { return blockIdx.y; }
KN_FN kn_u32 kn_group_z() { return blockIdx.z; }
/* Groups of the launch along x. */
KN_FN kn_u32 kn_groups_x() { return gridDim.x; }
KN_FN void kn_barrier() { __syncthreads(); }
/* A group has done its part, or waits until `count` groups of the same launch or the one before have: what they wrote is
 * there then. Only groups with smaller numbers may be waited for, since a device begins groups in that order. */
KN_FN void kn_signal(kn_u64 counter) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
    }
}
KN_FN void kn_await(kn_u64 counter, kn_u32 count) {
    if (threadIdx.x == 0) {
        kn_u32 seen;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
        while (seen < count);
    }
    __syncthreads();
}
KN_FN kn_u32 kn_bits(float x) { return __float_as_uint(x); }
KN_FN float kn_float(kn_u32 x) { return __uint_as_float(x); }
KN_FN float kn_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
KN_FN float kn_sqrt(float x) { return __fsqrt_rn(x); }
KN_FN float kn_divide(float a, float b) { return __fdiv_rn(a, b); }
KN_FN float kn_half_to_float(kn_u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
KN_FN kn_u16 kn_float_to_half(float f) { kn_u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
KN_FN kn_i32 kn_dot4(kn_i32 a, kn_i32 b, kn_i32 c) { return __dp4a(a, b, c); }
KN_FN float kn_xor_f32(float v, kn_u32 mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
KN_FN kn_u32 kn_xor_u32(kn_u32 v, kn_u32 mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
KN_FN kn_u32 kn_add_shared(KN_LOCAL kn_u32 *at, kn_u32 v) { return atomicAdd(at, v); }
/* These are global, and the compiler knows then that shared memory is not meant. */
#define KN_IN_MEMORY(type, at) ((type *)__cvta_global_to_generic(__cvta_generic_to_global(at)))
KN_FN kn_f4 kn_load4(KN_GLOBAL const float *at) { return *KN_IN_MEMORY(const float4, at); }
KN_FN void kn_store4(KN_GLOBAL float *at, kn_f4 v) { *KN_IN_MEMORY(float4, at) = v; }
KN_FN kn_f4 kn_make4(float x, float y, float z, float w) { return make_float4(x, y, z, w); }
KN_FN kn_u4 kn_load_u4(KN_GLOBAL const void *at) { return *KN_IN_MEMORY(const uint4, at); }
KN_FN kn_f4 kn_local4(KN_LOCAL const float *at) { return *(const float4 *)at; }
KN_FN void kn_store_local4(KN_LOCAL float *at, kn_f4 v) { *(float4 *)at = v; }
#define KN_HAS_MMA 1
/* Two numbers rounded to f16, the first in the low half. */
KN_FN kn_u32 kn_half2(float low, float high) {
    kn_u32 v;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}
/* d += a b: 16 x 16 times 16 x 8, f16 with sums in f32, over 32 lanes. */
KN_FN void kn_mma_f16(float *d, const kn_u32 *a, const kn_u32 *b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
KN_FN kn_u4 kn_local_u4(KN_LOCAL const kn_u32 *at) { return *(const uint4 *)at; }
/* Asks for the line of an address, which may be any. */
KN_FN void kn_prefetch(kn_u64 address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }
/* e^x of what is not positive, within 2^-20 where that is not tiny itself. */
KN_FN float kn_exp_quick(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504088896340736f));
    return y;
}
/* The larger number in one instruction; of zeros any. */
KN_FN float kn_larger_quick(float a, float b) { return fmaxf(a, b); }
/* Whether any lane of the wave says so. */
KN_FN kn_u32 kn_any_of_wave(kn_u32 v) { return __any_sync(0xffffffffu, v); }
/* Copies 16 bytes from memory to shared memory without waiting, zeros where they are not wanted; all copies of a thread up
 * to an end are waited for together. */
KN_FN void kn_copy16(KN_LOCAL void *to, kn_u64 from, kn_u32 wanted) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((kn_u32)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(wanted ? 16u : 0u)
                 : "memory");
}
KN_FN void kn_copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
KN_FN void kn_copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
/* Right operands of two products of 16 positions with 8 columns: lane l gives the row of 16 bytes of position l % 16, of
 * the first eight columns for lanes below 16, of the second for others. */
KN_FN void kn_transposed(kn_u32 *right, KN_LOCAL const kn_u32 *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(right[0]), "=r"(right[1]), "=r"(right[2]), "=r"(right[3])
                 : "r"((kn_u32)__cvta_generic_to_shared(row))
                 : "memory");
}
