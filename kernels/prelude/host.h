/* Host: runs kernels on the CPU, a fibre per lane, to test them without a GPU. Pass -DKN_WAVE=8, 16, 32 or 64.
 * Lanes of a wave meet in wave operations, threads of a group in barriers; whoever misses one is reported. Where a wave has
 * fewer lanes than a team of 32, lanes farther apart meet in a barrier, as in opencl.h. */
#include <csetjmp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ucontext.h>
#ifndef KN_WAVE
#error "pass -DKN_WAVE=8, 16, 32 or 64"
#endif
#define KN_HOST 1
typedef uint8_t kn_u8; typedef int8_t kn_i8; typedef uint16_t kn_u16; typedef uint32_t kn_u32; typedef int32_t kn_i32;
typedef uint64_t kn_u64;
struct kn_f4 { float x, y, z, w; };
struct kn_u4 { kn_u32 x, y, z, w; };

namespace {
namespace kn {
const size_t STACK = 64 * 1024;
enum Wait { RUNS, AT_WAVE, AT_BARRIER, DONE };
struct Lane { jmp_buf at; Wait wait; kn_u32 barrier; bool begun = false; ucontext_t start; std::unique_ptr<char[]> stack; };
struct Group {
    // Grown, and never given back, so that a thread's group needs no code when the thread begins or ends.
    Lane *lanes = nullptr;
    kn_u32 room = 0;
    jmp_buf scheduler = {};
    ucontext_t home = {};
    kn_u32 current = 0, id[3] = {0, 0, 0}, groups_x = 0;
    kn_u32 exchange[1024] = {}, fragments[1024][6] = {};
    const kn_u32 *addresses[1024] = {};
    void (*function)(const void *) = nullptr;
    const void *argument = nullptr;
};
thread_local Group group;

// Memory that the threads of a group share; zeros at first.
template <typename T> struct Shared {
    T *start;
    explicit Shared(size_t count) : start(static_cast<T *>(std::calloc(count, sizeof(T)))) {
        if (!start) std::abort();
    }
    ~Shared() { std::free(start); }
    Shared(const Shared &) = delete;
    Shared &operator=(const Shared &) = delete;
};

// `barrier` tells barriers apart: 0, or the distance of lanes that meet there.
void wait_as(Wait why, kn_u32 barrier = 0) {
    Lane &lane = group.lanes[group.current];
    lane.wait = why;
    lane.barrier = barrier;
    if (!_setjmp(lane.at)) _longjmp(group.scheduler, 1);
}
// A fibre goes on with the next group's lane when one is done: making a context costs system calls.
void begin_lane() {
    for (;;) {
        group.function(group.argument);
        Lane &lane = group.lanes[group.current];
        lane.wait = DONE;
        if (!_setjmp(lane.at)) _longjmp(group.scheduler, 1);
    }
}
// Runs lane `i` until it waits or ends.
__attribute__((noinline)) void resume(kn_u32 i) {
    Lane &lane = group.lanes[i];
    group.current = i;
    if (_setjmp(group.scheduler)) return;
    if (lane.begun) _longjmp(lane.at, 1);
    lane.begun = true;
    if (!lane.stack) lane.stack.reset(new char[STACK]);
    getcontext(&lane.start);
    lane.start.uc_stack.ss_sp = lane.stack.get();
    lane.start.uc_stack.ss_size = STACK;
    lane.start.uc_link = nullptr;
    makecontext(&lane.start, begin_lane, 0);
    swapcontext(&group.home, &lane.start);
}
// Returns false if lanes wait for others that will not come, which would hang or go wrong on a GPU; what is left of them then
// is a fibre that began and did not end.
bool run_lanes(kn_u32 threads) {
    Group &g = group;
    if (g.room < threads) {
        delete[] g.lanes;
        g.lanes = new Lane[threads];
        g.room = threads;
    }
    for (kn_u32 i = 0; i < threads; i++) g.lanes[i].wait = RUNS;
    for (;;) {
        kn_u32 done = 0, at_barrier = 0;
        for (kn_u32 first = 0; first < threads; first += KN_WAVE) {
            const kn_u32 end = first + KN_WAVE < threads ? first + KN_WAVE : threads;
            // A wave runs until all of its lanes wait for the group or are done.
            for (;;) {
                for (kn_u32 i = first; i < end; i++)
                    if (g.lanes[i].wait == RUNS) resume(i);
                kn_u32 at_wave = 0;
                for (kn_u32 i = first; i < end; i++) at_wave += g.lanes[i].wait == AT_WAVE;
                if (at_wave == 0) break;
                if (at_wave != end - first) {
                    fprintf(stderr,
                            "kn: lanes of the wave at thread %u of group %u,%u,%u diverge at a wave operation\n", first,
                            g.id[0], g.id[1], g.id[2]);
                    return false;
                }
                for (kn_u32 i = first; i < end; i++) g.lanes[i].wait = RUNS;
            }
            for (kn_u32 i = first; i < end; i++)
                (g.lanes[i].wait == DONE ? done : at_barrier)++;
        }
        if (done == threads) return true;
        if (at_barrier != threads) {
            fprintf(stderr, "kn: %u of %u threads of group %u,%u,%u miss a barrier\n", done, threads, g.id[0], g.id[1],
                    g.id[2]);
            return false;
        }
        for (kn_u32 i = 0; i < threads; i++) {
            if (g.lanes[i].barrier != g.lanes[0].barrier) {
                fprintf(stderr, "kn: threads 0 and %u of group %u,%u,%u are at different barriers\n", i, g.id[0], g.id[1],
                        g.id[2]);
                return false;
            }
            g.lanes[i].wait = RUNS;
        }
    }
}
bool run_group(kn_u32 threads) {
    if (run_lanes(threads)) return true;
    for (kn_u32 i = 0; i < threads; i++) group.lanes[i].begun = false;
    return false;
}
struct Entry {
    const char *name;
    kn_u32 threads;
    size_t bytes;
    void (*function)(const void *);
    Entry *next;
    static Entry *&first() { static Entry *entry = nullptr; return entry; }
    Entry(const char *n, kn_u32 t, size_t b, void (*f)(const void *))
        : name(n), threads(t), bytes(b), function(f), next(first()) {
        first() = this;
    }
};
} // namespace kn
} // namespace

#define KN_KERNEL(threads, name, Struct)                                                               \
    static void name(const Struct &p);                                                                 \
    static kn::Entry entry_##name(#name, threads, sizeof(Struct), [](const void *p) { name(*(const Struct *)p); }); \
    static void name(const Struct &p)
#define KN_GLOBAL
#define KN_LOCAL
#define KN_FN static inline
#define KN_CONSTANT static const
/* Not in the thread's own storage: that is taken from its stack, and all kernels together share more than a stack has. */
#define KN_SHARED(type, name, count)                                   \
    static thread_local kn::Shared<type> name##_of_thread(count);      \
    type *const name = name##_of_thread.start
#define KN_SHARED_DYNAMIC(type, name, count) KN_SHARED(type, name, count)
#define KN_AT(type, address) ((type *)(uintptr_t)(address))
#define KN_UNROLL
#define KN_UNROLL_BY(n)
KN_FN void kn_begin() {}
KN_FN void kn_begin_late() {}
KN_FN void kn_let_next_begin() {}
KN_FN void kn_wait_for_launches() {}
/* As on a device that goes through it twice, so that tests see what is left behind. */
KN_FN kn_u32 kn_first_turn(kn_u32 wanted) { return wanted ? 0u : 1u; }
KN_FN kn_u32 kn_thread() { return kn::group.current; }
KN_FN kn_u32 kn_group_x() { return kn::group.id[0]; }
KN_FN kn_u32 kn_group_y() { return kn::group.id[1]; }
KN_FN kn_u32 kn_group_z() { return kn::group.id[2]; }
KN_FN kn_u32 kn_groups_x() { return kn::group.groups_x; }
KN_FN void kn_barrier() { kn::wait_as(kn::AT_BARRIER); }
KN_FN kn_u32 kn_bits(float x) { kn_u32 u; memcpy(&u, &x, 4); return u; }
KN_FN float kn_float(kn_u32 u) { float x; memcpy(&x, &u, 4); return x; }
KN_FN float kn_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
KN_FN float kn_sqrt(float x) { return sqrtf(x); }
KN_FN float kn_divide(float a, float b) { return a / b; }
KN_FN float kn_half_to_float(kn_u16 h) {
    const kn_u32 sign = (kn_u32)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff;
    if (exponent == 31) return kn_float(sign | 0x7f800000u | (fraction << 13));
    if (exponent) return kn_float(sign | ((exponent + 112) << 23) | (fraction << 13));
    const float size = (float)fraction * 5.9604644775390625e-8f;
    return sign ? -size : size;
}
KN_FN kn_u16 kn_float_to_half(float f) {
    const kn_u32 bits = kn_bits(f), sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (kn_u16)(sign | 0x7e00u);
    if (size >= 0x477ff000u) return (kn_u16)(sign | 0x7c00u);
    if (size < 0x38800000u) {
        // Subnormal: adding 0.5 leaves the fraction, rounded to nearest even, in the low bits.
        return (kn_u16)(sign | (kn_bits(kn_float(size) + 0.5f) - 0x3f000000u));
    }
    return (kn_u16)(sign | ((size - 0x38000000u + 0xfffu + ((size >> 13) & 1)) >> 13));
}
KN_FN kn_i32 kn_dot4(kn_i32 a, kn_i32 b, kn_i32 c) {
    for (int i = 0; i < 32; i += 8) c += (kn_i32)(int8_t)(a >> i) * (kn_i32)(int8_t)(b >> i);
    return c;
}
KN_FN kn_u32 kn_xor_u32(kn_u32 v, kn_u32 mask) {
    const kn_u32 me = kn::group.current;
    const kn::Wait where = mask < KN_WAVE ? kn::AT_WAVE : kn::AT_BARRIER;
    kn::group.exchange[me] = v;
    kn::wait_as(where, mask);
    const kn_u32 other = kn::group.exchange[me ^ mask];
    kn::wait_as(where, mask);
    return other;
}
KN_FN float kn_xor_f32(float v, kn_u32 mask) { return kn_float(kn_xor_u32(kn_bits(v), mask)); }
/* Groups run one after the other here, so what a group waits for is there or never will be. */
KN_FN void kn_signal(kn_u64 counter) {
    kn_barrier();
    if (kn_thread() == 0) ++*KN_AT(kn_u32, counter);
}
KN_FN void kn_await(kn_u64 counter, kn_u32 count) {
    if (kn_thread() == 0 && *KN_AT(const kn_u32, counter) < count) {
        fprintf(stderr, "kn: group %u waits for %u groups, and %u have signalled\n", kn_group_x(), count,
                *KN_AT(const kn_u32, counter));
        __builtin_trap();
    }
    kn_barrier();
}
KN_FN kn_u32 kn_add_shared(KN_LOCAL kn_u32 *at, kn_u32 v) { const kn_u32 old = *at; *at = old + v; return old; }
// What a GPU faults on is reported here too.
KN_FN void kn_check16(const void *at) {
    if ((uintptr_t)at % 16) { fprintf(stderr, "kn: %p is not a multiple of 16\n", at); __builtin_trap(); }
}
KN_FN kn_f4 kn_load4(const float *at) { kn_check16(at); kn_f4 v; memcpy(&v, at, 16); return v; }
KN_FN void kn_store4(float *at, kn_f4 v) { kn_check16(at); memcpy(at, &v, 16); }
KN_FN kn_f4 kn_make4(float x, float y, float z, float w) { return kn_f4{x, y, z, w}; }
KN_FN kn_u4 kn_load_u4(const void *at) { kn_check16(at); kn_u4 v; memcpy(&v, at, 16); return v; }
KN_FN kn_f4 kn_local4(const float *at) { kn_f4 v; memcpy(&v, at, 16); return v; }
KN_FN void kn_store_local4(float *at, kn_f4 v) { memcpy(at, &v, 16); }

/* Matrix units work on teams in one wave. */
#if KN_WAVE >= 32
#define KN_HAS_MMA 1
#endif
KN_FN kn_u32 kn_half2(float low, float high) { return kn_float_to_half(low) | (kn_u32)kn_float_to_half(high) << 16; }
/* The matrix product of CUDA's mma.sync.m16n8k16, element by element: row r of a is with lane 4 (r % 8) + k % 8 / 2,
 * column n of b with lane 4 n + k % 8 / 2, and a lane gets columns 2 t and 2 t + 1 of rows g and g + 8. */
KN_FN void kn_mma_f16(float *d, const kn_u32 *a, const kn_u32 *b) {
    const kn_u32 me = kn::group.current, first = me & ~31u, g = (me & 31u) >> 2, t = me & 3u;
    memcpy(kn::group.fragments[me], a, 16);
    memcpy(kn::group.fragments[me] + 4, b, 8);
    kn::wait_as(kn::AT_WAVE);
    for (kn_u32 i = 0; i < 4; i++) {
        const kn_u32 row = g + 8 * (i >> 1), column = 2 * t + (i & 1);
        for (kn_u32 k = 0; k < 16; k++) {
            const kn_u32 left = kn::group.fragments[first + 4 * (row % 8) + k % 8 / 2][row / 8 + 2 * (k / 8)];
            const kn_u32 right = kn::group.fragments[first + 4 * column + k % 8 / 2][4 + k / 8];
            d[i] +=
                kn_half_to_float((kn_u16)(left >> 16 * (k & 1))) * kn_half_to_float((kn_u16)(right >> 16 * (k & 1)));
        }
    }
    kn::wait_as(kn::AT_WAVE);
}
KN_FN kn_u4 kn_local_u4(const kn_u32 *at) { kn_u4 v; memcpy(&v, at, 16); return v; }
KN_FN void kn_prefetch(kn_u64) {}
KN_FN void kn_copy16(void *to, kn_u64 from, kn_u32 wanted) {
    kn_check16(KN_AT(const void, from));
    if (wanted) memcpy(to, KN_AT(const void, from), 16);
    else memset(to, 0, 16);
}
KN_FN void kn_copies_end() {}
KN_FN void kn_copies_wait() {}
/* As CUDA's ldmatrix with four matrices, transposed. */
KN_FN void kn_transposed(kn_u32 *right, const kn_u32 *row) {
    const kn_u32 me = kn::group.current, first = me & ~31u, g = (me & 31u) >> 2, t = me & 3u;
    kn::group.addresses[me] = row;
    kn::wait_as(kn::AT_WAVE);
    for (kn_u32 i = 0; i < 4; i++) {
        kn_u16 two[2];
        for (kn_u32 k = 0; k < 2; k++)
            memcpy(two + k, (const kn_u16 *)kn::group.addresses[first + 8 * i + 2 * t + k] + g, 2);
        right[i] = two[0] | (kn_u32)two[1] << 16;
    }
    kn::wait_as(kn::AT_WAVE);
}
KN_FN kn_u32 kn_any_of_wave(kn_u32 v) {
    for (kn_u32 mask = KN_WAVE / 2; mask; mask >>= 1) v |= kn_xor_u32(v, mask);
    return v;
}
KN_FN float kn_larger_quick(float a, float b) { return fmaxf(a, b); }
KN_FN float kn_exp_quick(float x) { return exp2f(x * 1.44269504088896340736f); }

#define KN_LAUNCH_NAME_(wave) kn_launch_##wave
#define KN_LAUNCH_NAME(wave) KN_LAUNCH_NAME_(wave)
/* 0: ran. 1: lanes diverged. 2: no such entry. 3: other threads or parameters than the entry has. */
extern "C" int KN_LAUNCH_NAME(KN_WAVE)(const char *name, const kn_u32 *groups, kn_u32 threads, const void *p,
                                       size_t bytes) {
    const kn::Entry *entry = kn::Entry::first();
    while (entry && strcmp(entry->name, name)) entry = entry->next;
    if (!entry) return 2;
    if (entry->threads != threads || entry->bytes != bytes) return 3;
    kn::group.function = entry->function;
    kn::group.argument = p;
    kn::group.groups_x = groups[0];
    for (kn_u32 z = 0; z < groups[2]; z++)
        for (kn_u32 y = 0; y < groups[1]; y++)
            for (kn_u32 x = 0; x < groups[0]; x++) {
                kn::group.id[0] = x, kn::group.id[1] = y, kn::group.id[2] = z;
                if (!kn::run_group(threads)) return 1;
            }
    return 0;
}
