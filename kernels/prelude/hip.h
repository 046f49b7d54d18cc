/* HIP: bare clang -x hip --cuda-device-only -nogpuinc -nogpulib, or hiprtc. Pass -DKN_WAVE=32 or 64. */
typedef unsigned char kn_u8; typedef signed char kn_i8; typedef unsigned short kn_u16; typedef unsigned int kn_u32;
typedef int kn_i32; typedef unsigned long long kn_u64;
typedef float kn_f4 __attribute__((ext_vector_type(4))); typedef kn_u32 kn_u4 __attribute__((ext_vector_type(4)));
#define KN_HIP 1
#define KN_KERNEL(threads, name, Struct)                                                                               \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(threads, threads))) void name(       \
        const Struct p)
#define KN_GLOBAL
#define KN_LOCAL
#define KN_FN static inline __attribute__((device, always_inline))
#define KN_CONSTANT static __attribute__((device)) const
#define KN_SHARED(type, name, count) __attribute__((shared)) __attribute__((aligned(16))) type name[count]
#define KN_AT(type, address) ((type *)(address))
#define KN_UNROLL _Pragma("unroll")
#define KN_UNROLL_BY(n) _Pragma(KN_TEXT(unroll n))
#define KN_TEXT(x) #x
KN_FN kn_u32 kn_here(kn_u32 x) { asm volatile("" : "+v"(x)); return x; }
#define KN_HERE(x) kn_here(x)
#define KN_SETTLE() __builtin_amdgcn_sched_barrier(0)
KN_FN void kn_begin() {}
KN_FN void kn_begin_late() {}
KN_FN void kn_let_next_begin() {}
KN_FN void kn_wait_for_launches() {}
KN_FN kn_u32 kn_first_turn(kn_u32 wanted) { return 1u; }
KN_FN kn_u32 kn_thread() { return __builtin_amdgcn_workitem_id_x(); }
KN_FN kn_u32 kn_group_x() { return __builtin_amdgcn_workgroup_id_x(); }
KN_FN kn_u32 kn_group_y() { return __builtin_amdgcn_workgroup_id_y(); }
KN_FN kn_u32 kn_group_z() { return __builtin_amdgcn_workgroup_id_z(); }
KN_FN void kn_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
KN_FN kn_u32 kn_bits(float x) { return __builtin_bit_cast(kn_u32, x); }
KN_FN float kn_float(kn_u32 x) { return __builtin_bit_cast(float, x); }
KN_FN float kn_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
KN_FN float kn_sqrt(float x) { return __builtin_sqrtf(x); }
KN_FN float kn_divide(float a, float b) { return a / b; }
KN_FN float kn_half_to_float(kn_u16 h) { return (float)__builtin_bit_cast(_Float16, h); }
KN_FN kn_u16 kn_float_to_half(float f) { return __builtin_bit_cast(kn_u16, (_Float16)f); }
KN_FN kn_i32 kn_dot4(kn_i32 a, kn_i32 b, kn_i32 c) {
#if defined(__GFX11__) || defined(__GFX12__)
    return __builtin_amdgcn_sudot4(true, a, true, b, c, false);
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) ||                      \
    defined(__gfx1011__) || defined(__gfx1012__) || defined(__gfx1030__) || defined(__gfx1031__) ||                    \
    defined(__gfx1032__) || defined(__gfx1034__)
    return __builtin_amdgcn_sdot4(a, b, c, false);
#else
    for (int i = 0; i < 32; i += 8) c += (kn_i32)(kn_i8)(a >> i) * (kn_i32)(kn_i8)(b >> i);
    return c;
#endif
}
KN_FN kn_u32 kn_xor_u32(kn_u32 v, kn_u32 mask) {
    const kn_u32 lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
    return (kn_u32)__builtin_amdgcn_ds_bpermute((kn_i32)((lane ^ mask) << 2), (kn_i32)v);
}
KN_FN float kn_xor_f32(float v, kn_u32 mask) { return kn_float(kn_xor_u32(kn_bits(v), mask)); }
KN_FN kn_u32 kn_add_shared(KN_LOCAL kn_u32 *at, kn_u32 v) {
    return __hip_atomic_fetch_add(at, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}
KN_FN kn_f4 kn_load4(KN_GLOBAL const float *at) { return *(const kn_f4 *)at; }
KN_FN void kn_store4(KN_GLOBAL float *at, kn_f4 v) { *(kn_f4 *)at = v; }
KN_FN kn_f4 kn_make4(float x, float y, float z, float w) { kn_f4 v; v.x = x; v.y = y; v.z = z; v.w = w; return v; }
KN_FN kn_u4 kn_load_u4(KN_GLOBAL const void *at) { return *(const kn_u4 *)at; }
KN_FN kn_f4 kn_local4(KN_LOCAL const float *at) { return *(const kn_f4 *)at; }
KN_FN void kn_store_local4(KN_LOCAL float *at, kn_f4 v) { *(kn_f4 *)at = v; }
