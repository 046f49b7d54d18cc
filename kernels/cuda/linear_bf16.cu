/* Products of many rows in bf16: weights become bf16 on their way into registers, activations are there in bf16, sums are
 * f32. A class of numerics of its own (src/params/linear.rs), for chips whose warpgroups multiply (compute capability 9.0).
 *
 * A group has 128 weight rows and TOKENS rows of activations: two warpgroups with 64 weight rows each, a panel a warp, and
 * a thread that asks for activations. Weights are the first operand, in registers: a lane has the same bytes as for int8
 * products, and the order of activations along k within 16 is what that makes of it. A step is a pair of blocks, 64
 * elements. While the tensor cores work on one step, its warp makes the next one's weights. */

namespace linear {

/* 8-bit quants: bits 8 to 15 of 2^15. */
__device__ __forceinline__ float byte_and_2_15(u32 word, int i) {
    return __uint_as_float(__byte_perm(word, 0x47000000u, 0x7404u + ((u32)i << 4)));
}
/* Quants below 128: the upper bits of 2^7. */
__device__ __forceinline__ float byte_and_2_7(u32 word, int i) {
    return __uint_as_float(__byte_perm(word, 0x43000000u, 0x7044u + ((u32)i << 8)));
}
__device__ __forceinline__ u32 bf16_pair(float low, float high) {
    u32 v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}

__device__ __forceinline__ void barrier_init(u32 at, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_expect(u32 at, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 at, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra ready;\nbra again;\n"
        "ready:\n}" :: "r"(at), "r"(parity) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at) : "memory");
}

/* The operand in shared memory: rows of 128 bytes, swizzled, 8 of them together. */
__device__ __forceinline__ unsigned long long operand(u32 at) {
    return (unsigned long long)((at & 0x3ffffu) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LATER>
__device__ __forceinline__ void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LATER) : "memory");
}

#define KN_F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KN_F16(d, i) KN_F4(d, i), KN_F4(d, i + 4), KN_F4(d, i + 8), KN_F4(d, i + 12)
#define KN_F64(d, i) KN_F16(d, i), KN_F16(d, i + 16), KN_F16(d, i + 32), KN_F16(d, i + 48)
/* d += a b: 64 x 16 times 16 x 128. */
__device__ __forceinline__ void multiply(float (&d)[64], const u32 *a, unsigned long long b) {
    asm volatile("{\n.reg .pred all;\nsetp.ne.b32 all, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, all, 1, 1, 0;\n}"
        : KN_F64(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
/* d += a b: 64 x 16 times 16 x 256. */
__device__ __forceinline__ void multiply(float (&d)[128], const u32 *a, unsigned long long b) {
    asm volatile("{\n.reg .pred all;\nsetp.ne.b32 all, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "
        "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, "
        "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, "
        "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "{%128, %129, %130, %131}, %132, all, 1, 1, 0;\n}"
        : KN_F64(d, 0), KN_F64(d, 64)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* Half of block `b` of a panel in bf16: the first operand of a product. A quant q becomes d q, less a minimum, by one fma from
 * what `byte_and_2_...` makes of it. */
template <class F>
__device__ __forceinline__ void bf16_weights(const F &w, int b, int half, u32 *to) {
    u32 all[4];
    w.fragment(b, all);
    constexpr int SHIFT = F::SIGNED ? shift_of<F>(0) : 0;
    const int shift = shift_of<F>(b);
    /* Where quants have 8 bits they are around 2^7 afterwards, else around half of what they have room for. */
    constexpr bool EIGHT = F::SIGNED && SHIFT == 0;
    constexpr float BASE = EIGHT ? 32896.0f : F::SIGNED ? 128.0f + (float)(128 >> SHIFT) : 128.0f;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        u32 q = all[2 * half + r];
        if (F::SIGNED) q ^= 0x80808080u;
        if (shift) q = q >> shift & 0x01010101u * (u32)(255 >> shift);
        float d = w.scale(b, r);
        if (F::HALVES) d = __fmul_rn(d, w.half_scale(b, half, r, 1.0f));
        const float zero = F::MINIMA ? __fmaf_rn(-BASE, d, w.minimum(b, r)) : __fmul_rn(-BASE, d);
        float v[4];
#pragma unroll
        for (int j = 0; j < 4; j++) v[j] = __fmaf_rn(EIGHT ? byte_and_2_15(q, j) : byte_and_2_7(q, j), d, zero);
        to[r] = bf16_pair(v[0], v[1]);
        to[r + 2] = bf16_pair(v[2], v[3]);
    }
}

/* Dynamic shared memory; src/params/linear.rs says so to whoever launches it. */
constexpr int BF16_SHARED = 232448, BF16_WARPS = 8, BF16_THREADS = 32 * BF16_WARPS + 128;
/* Bytes of 8 rows and a step. */
constexpr int BF16_ATOM = 1024;
/* Blocks of weights that a warp asks for at once, and how many of these it has room for. */
constexpr int BF16_BLOCKS = 4, BF16_DEPTH = 3;
/* Floats from one row to the next where results change places. */
constexpr int BF16_PITCH = 132;

template <class F, int TOKENS>
struct Bf16Memory {
    static constexpr int STAGE = TOKENS / 8 * BF16_ATOM;
    static constexpr int WEIGHTS = BF16_WARPS * BF16_DEPTH * F::BYTES;
    static constexpr int STAGES = (BF16_SHARED - 1024 - 256 - WEIGHTS) / STAGE;
    static_assert(STAGES >= 3 && STAGES * STAGE >= TOKENS * BF16_PITCH * 4, "the steps have room, and so have results");
};

template <template <int> class F, int TOKENS>
__device__ __forceinline__ void many_bf16(const KnLinear &p) {
    typedef F<BF16_BLOCKS> Format;
    typedef Bf16Memory<Format, TOKENS> Memory;
    constexpr int STAGES = Memory::STAGES, PAIRS = BF16_BLOCKS / 2;
    extern __shared__ u8 memory[];
    const u32 start = (u32)__cvta_generic_to_shared(memory), aligned = (start + 1023u) & ~1023u;
    u8 *const steps = memory + (aligned - start), *const rings = steps + STAGES * Memory::STAGE;
    const u32 full = aligned + STAGES * Memory::STAGE + Memory::WEIGHTS, empty = full + 8 * STAGES;
    const int lane = (int)(threadIdx.x & 31u), warp = (int)(threadIdx.x >> 5);
    /* Groups with the same weights come one after another. */
    const int number = (int)(blockIdx.y * gridDim.x + blockIdx.x);
    const int row0 = number % (int)gridDim.y * TOKENS;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, BF16_WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    const Place place = locate(p, number / (int)gridDim.y, 16 * BF16_WARPS);
    const KnLinearSegment &seg = *place.segment;
    const Panel panel = panel_of<Format>(p, seg, place.group * BF16_WARPS + warp % BF16_WARPS);
    const int pairs = panel.pairs;
    u8 *const ring = rings + warp * BF16_DEPTH * Format::BYTES;
    int ahead = 0, at = 0;
    auto ask = [&]() {
        if (ahead < panel.blocks) Format::copy(ring + at, panel, ahead, lane);
        commit_copies();
        ahead += BF16_BLOCKS;
        at = at == (BF16_DEPTH - 1) * Format::BYTES ? 0 : at + Format::BYTES;
    };
    if (warp < BF16_WARPS)
#pragma unroll
        for (int i = 0; i < BF16_DEPTH - 1; i++) ask();
    const int rows = min((p.live ? *(const int *)p.live : (int)p.rows) - row0, TOKENS);
    wait_for_inputs(p);
    if (rows <= 0) {
        wait_for_others(p);
        return;
    }
    __syncthreads();
    if (warp >= BF16_WARPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 32 * BF16_WARPS) {
            /* What kernels wrote is read by the copy engine. */
            asm volatile("fence.proxy.async.global;" ::: "memory");
            const u32 bytes = (u32)(rows + 7) / 8u * BF16_ATOM;
            const u8 *x = (const u8 *)p.x + (long long)(row0 / 8) * BF16_ATOM;
            const long long stride = (long long)p.bf16_groups * BF16_ATOM;
            int stage = 0;
            u32 parity = 1;
            for (int pair = 0; pair < pairs; pair++) {
                barrier_wait(empty + 8 * stage, parity);
                barrier_expect(full + 8 * stage, bytes);
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                    :: "r"(aligned + stage * Memory::STAGE), "l"(x), "r"(bytes), "r"(full + 8 * stage) : "memory");
                x += stride;
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float sum[TOKENS / 2];
#pragma unroll
        for (int i = 0; i < TOKENS / 2; i++) sum[i] = 0.0f;
        u32 a[2][16];
        Format w;
        const Lines lines = {lane, {lane / 4, lane / 4 + 8}};
        int here = 0, block = 0;
        auto begin = [&]() {
            wait_copies<BF16_DEPTH - 2>();
            __syncwarp();
            w.begin(ring + here, lines, block);
        };
        /* One of the four operands of pair `i`. */
        auto unpack = [&](int i, int k, u32 *to) {
            if (k == 0) w.pair(ring + here, i, lane);
            bf16_weights<Format>(w, 2 * i + k / 2, k % 2, to + 4 * k);
            if (!Format::WHOLE && k >= 2 && block + 2 * i + 2 > panel.blocks)
#pragma unroll
                for (int j = 0; j < 4; j++) to[4 * k + j] = 0u;
        };
        int stage = 0, before = 0;
        u32 parity = 0;
        begin();
#pragma unroll
        for (int k = 0; k < 4; k++) unpack(0, k, a[0]);
#pragma unroll 1
        for (int pair = 0; pair < pairs; pair += PAIRS) {
#pragma unroll
            for (int i = 0; i < PAIRS; i++) {
                if (pair + i >= pairs) break;
                const int next = (i + 1) % PAIRS;
                u32 *const from = a[i % 2], *const to = a[(i + 1) % 2];
                barrier_wait(full + 8 * stage, parity);
                const unsigned long long b = operand(aligned + stage * Memory::STAGE);
                products_begin();
                multiply(sum, from, b);
                products_commit();
                /* The last step's products are done. */
                products_wait<1>();
                if (pair + i > 0 && lane == 0) barrier_arrive(empty + 8 * before);
                before = stage;
                if (++stage == STAGES) stage = 0, parity ^= 1;
                if (next == 0) {
                    ask();
                    block += BF16_BLOCKS;
                    here = here == (BF16_DEPTH - 1) * Format::BYTES ? 0 : here + Format::BYTES;
                    begin();
                }
                /* Behind the last step these are of nothing. */
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    unpack(next, k, to);
                    if (k == 3) continue;
                    products_begin();
                    multiply(sum, from + 4 * (k + 1), b + 2 * (k + 1));
                    if (k == 2) products_commit();
                }
            }
        }
        products_wait<0>();
        asm volatile("barrier.sync 1, 256;" ::: "memory");
        /* Results change places, so that rows are written in one piece. */
        float *const results = (float *)steps;
        const int output = warp * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < TOKENS / 8; i++) {
            float *const to = results + (8 * i + lane % 4 * 2) * BF16_PITCH + output;
            to[0] = sum[4 * i], to[BF16_PITCH] = sum[4 * i + 1];
            to[8] = sum[4 * i + 2], to[BF16_PITCH + 8] = sum[4 * i + 3];
        }
        asm volatile("barrier.sync 1, 256;" ::: "memory");
        wait_for_others(p);
        const int first = place.group * 16 * BF16_WARPS + lane * 4;
        const bool is_vector = first + 4 <= (int)seg.n && (seg.out | seg.add | seg.bias) % 16 == 0
            && (seg.out_row | seg.add_row) % 4 == 0;
        if (is_vector) {
            float4 bias = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (seg.bias) bias = *(const float4 *)((const float *)seg.bias + first);
#pragma unroll 4
            for (int row = warp; row < rows; row += BF16_WARPS) {
                float4 y = *(const float4 *)(results + row * BF16_PITCH + lane * 4);
                if (seg.bias) y.x += bias.x, y.y += bias.y, y.z += bias.z, y.w += bias.w;
                if (seg.add) {
                    const float4 z = *(const float4 *)((const float *)seg.add + (long long)(row0 + row) * seg.add_row + first);
                    y.x += z.x, y.y += z.y, y.z += z.z, y.w += z.w;
                }
                const float nan = __int_as_float(0x7fc00000);
                y.x = y.x == y.x ? y.x : nan, y.y = y.y == y.y ? y.y : nan;
                y.z = y.z == y.z ? y.z : nan, y.w = y.w == y.w ? y.w : nan;
                *(float4 *)((float *)seg.out + (long long)(row0 + row) * seg.out_row + first) = y;
            }
        } else if (first < (int)seg.n) {
            for (int row = warp; row < rows; row += BF16_WARPS)
#pragma unroll 1
                for (int i = 0; i < 4; i++) write(seg, row0 + row, first + i, results[row * BF16_PITCH + lane * 4 + i]);
        }
    }
}

}  // namespace linear
