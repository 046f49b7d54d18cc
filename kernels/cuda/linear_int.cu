/* Products with quantised weights on tensor cores. The same arithmetic and bits as linear_int.kn: the integer
 * dots are exact, and every sum takes its blocks in the same order. Parameters and numerics: src/params/linear.rs.
 *
 * Weights are the first operand of m16n8k32, so that 8 rows of activations cost one instruction: lane (g, t) has the
 * sums of weight rows g and g + 8 and of activation rows 2 t and 2 t + 1. */

namespace linear {

constexpr int SLICES = 8;
constexpr int RECORD = 640;
/* What the first row of a record takes in shared memory: quants, scales, scaled sums. */
constexpr int ROW_RECORD = 96;
/* KnLinear::order, see src/params/linear.rs. */
constexpr u32 ORDER_FIRST = 1, ORDER_BESIDE = 2;
/* 1.5 * 2^23: the bits of this plus a small integer are the float of it plus that integer. */
constexpr int MAGIC_BITS = 0x4B400000;
constexpr float MAGIC = 12582912.0f;

/* c = a b + `start`, over 32 elements. */
template <bool SIGNED>
__device__ __forceinline__ void mma32(int c[4], const u32 a[4], u32 b0, u32 b1, int start) {
    if (SIGNED)
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
            : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
    else
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
            : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
}
__device__ __forceinline__ void mma16(int c[4], u32 a0, u32 a1, u32 b, int start) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3]) : "r"(a0), "r"(a1), "r"(b), "r"(start));
}

/* How far a fragment's quants are shifted, as a power of two. */
template <class F>
__device__ __forceinline__ constexpr int shift_of(int b) {
    const float f = F::factor(b);
    return f == 1.0f ? 0 : f == 0.5f ? 1 : f == 0.25f ? 2 : f == 0.125f ? 3 : 4;
}

/* Waits for the launch before this one, when they overlap; nothing that it writes may be read before. */
__device__ __forceinline__ void wait_for_launches() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* Waits for the activations, and lets the next launch begin. One that reads the same activations beside this one wants
 * them to be there when it begins: then this one waits first, and that one does not wait at all before it has sums. */
__device__ __forceinline__ void wait_for_inputs(const KnLinear &p) {
    if (p.order & ORDER_FIRST) {
        if (!(p.order & ORDER_BESIDE)) wait_for_launches();
        let_next_begin();
    } else {
        let_next_begin();
        if (!(p.order & ORDER_BESIDE)) wait_for_launches();
    }
#if __CUDA_ARCH__ >= 900
    if (p.order & ORDER_BESIDE) asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}
/* Before anything is written: this launch must not end before the one beside it. */
__device__ __forceinline__ void wait_for_others(const KnLinear &p) {
    if (p.order & ORDER_BESIDE) wait_for_launches();
}

/* Adds a block of a panel times the same block of 8 rows: q are the two words of their fragment, xs and xsum the scales
 * of rows 2 t and 2 t + 1. All forms of a dot are exact. With many rows arithmetic is what takes time, and integers
 * become floats on a unit that is free otherwise; with few rows the trick with MAGIC takes fewer instructions. */
template <class F, int COLUMNS, bool MANY>
__device__ __forceinline__ void add_block(const F &w, int b, const u32 a[4], const float d[2], const float m[2],
    u32 q0, u32 q1, const u32 *xs, const u32 *xsum, float sum[4])
{
    constexpr int STEP = COLUMNS == 1 ? 2 : 1;
    const float f = F::factor(b);
    float dot[4];
    int c[4];
    if constexpr (F::HALVES && MANY) {
        int e[4];
        mma16(c, a[0], a[1], q0, 0);
        mma16(e, a[2], a[3], q1, 0);
#pragma unroll
        for (int i = 0; i < 4; i += STEP) {
            dot[i] = __fmul_rn(__int2float_rn(c[i]), w.half_scale(b, 0, i / 2, f));
            dot[i] = __fmaf_rn(__int2float_rn(e[i]), w.half_scale(b, 1, i / 2, f), dot[i]);
        }
    } else if constexpr (F::HALVES) {
        int e[4];
        mma16(c, a[0], a[1], q0, MAGIC_BITS);
        mma16(e, a[2], a[3], q1, MAGIC_BITS);
#pragma unroll
        for (int i = 0; i < 4; i += STEP) {
            dot[i] = __fmul_rn(__fmaf_rn(__int_as_float(c[i]), f, -MAGIC * f), w.half_scale(b, 0, i / 2, 1.0f));
            dot[i] = __fmaf_rn(__fmaf_rn(__int_as_float(e[i]), f, -MAGIC * f), w.half_scale(b, 1, i / 2, 1.0f), dot[i]);
        }
    } else if constexpr (MANY) {
        mma32<F::SIGNED>(c, a, q0, q1, 0);
#pragma unroll
        for (int i = 0; i < 4; i += STEP) dot[i] = __int2float_rn(F::SIGNED ? c[i] >> shift_of<F>(b) : c[i]);
    } else {
        mma32<F::SIGNED>(c, a, q0, q1, MAGIC_BITS);
#pragma unroll
        for (int i = 0; i < 4; i += STEP) dot[i] = __fmaf_rn(__int_as_float(c[i]), f, -MAGIC * f);
    }
#pragma unroll
    for (int i = 0; i < 4; i += STEP) {
        sum[i] = __fmaf_rn(dot[i], __fmul_rn(d[i / 2], __uint_as_float(xs[i % 2])), sum[i]);
        if (F::MINIMA) sum[i] = __fmaf_rn(m[i / 2], __uint_as_float(xsum[i % 2]), sum[i]);
    }
}

/* Adds STEP blocks, which begin at `block`, of a panel that begins at `from` in shared memory. COLUMNS is 1 where only
 * the first row of activations matters; x is where the lane's quants are, scales where its scales are, which the scaled
 * sums follow by SUMS bytes; NEXT is from one pair of blocks to the next. */
template <class F, int STEP, int TILES, int COLUMNS, int NEXT, int SUMS>
__device__ __forceinline__ void add_step(const u8 *from, int block, int blocks, const u8 *x, const u8 *scales,
    int tile_bytes, float (&sum)[TILES][4])
{
    constexpr bool MANY = TILES > 1;
    const int lane = (int)(threadIdx.x & 31u);
    F w;
    w.begin(from, Lines{lane, {lane / 4, lane / 4 + 8}}, block);
#pragma unroll
    for (int pair = 0; pair < STEP / 2; pair++) {
        if (!F::WHOLE && block + 2 * pair >= blocks) break;
        u32 a[2][4];
        float d[2][2], m[2][2];
        w.pair(from, pair, lane);
#pragma unroll
        for (int s = 0; s < 2; s++) {
            w.fragment(2 * pair + s, a[s]);
            /* Once for all tiles. */
            if (MANY && !F::SIGNED)
#pragma unroll
                for (int i = 0; i < 4; i++) a[s][i] >>= shift_of<F>(2 * pair + s);
#pragma unroll
            for (int r = 0; r < 2; r++) d[s][r] = w.scale(2 * pair + s, r), m[s][r] = w.minimum(2 * pair + s, r);
        }
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const int at = tile * tile_bytes + pair * NEXT;
            const Vec q = load16(x + at), xs = load16(scales + at);
            Vec xsum = xs;
            if (F::MINIMA) xsum = load16(scales + at + SUMS);
            add_block<F, COLUMNS, MANY>(w, 2 * pair, a[0], d[0], m[0], q.w[0], q.w[1], xs.w, xsum.w, sum[tile]);
            if (!F::WHOLE && block + 2 * pair + 1 >= blocks) continue;
            add_block<F, COLUMNS, MANY>(w, 2 * pair + 1, a[1], d[1], m[1], q.w[2], q.w[3], xs.w + 2, xsum.w + 2,
                sum[tile]);
        }
    }
}

struct Place {
    const KnLinearSegment *segment;
    int group;
};

/* The segment that a group works on. */
__device__ __forceinline__ Place locate(const KnLinear &p, int group, int outputs) {
    const KnLinearSegment *s = &p.segment0;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const int groups = ((int)s->n + outputs - 1) / outputs;
        if (group < groups) break;
        group -= groups;
        s++;
    }
    return Place{s, group};
}

/* What a product takes is KnLinear, or another structure with the members and functions that are used of it here. */

__device__ __forceinline__ int rows_of(const KnLinear &p) { return p.live ? *(const int *)p.live : (int)p.rows; }

/* Panel `at` of a segment; one beyond the last is that again. */
template <class F, class P>
__device__ __forceinline__ Panel panel_of(const P &p, const KnLinearSegment &seg, int at) {
    const int blocks = (int)(p.k / 32u);
    Panel panel = {(const u8 *)seg.weight, blocks, (blocks + 1) / 2, (blocks + 7) / 8};
    panel.base += (long long)min(at, ((int)seg.n + 15) / 16 - 1) * F::panel_bytes(panel);
    return panel;
}

/* What was copied since the last call is a group; `wait_copies` waits for all but the last LATER groups. */
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LATER>
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_group %0;" :: "n"(LATER) : "memory"); }

__device__ __forceinline__ float added(const KnLinearSegment &seg, int row, int output) {
    return ((const float *)seg.add)[(long long)row * seg.add_row + output];
}
/* Asks for what a thread adds to its result when the product begins: `extra` is the thread's place for it. It belongs to the
 * copies that are committed next. */
__device__ __forceinline__ void ask_for_added(const KnLinearSegment &seg, int row, int output, float *extra) {
    if (seg.add && output < (int)seg.n)
        copy<4>((u8 *)extra, (const u8 *)seg.add + 4 * ((long long)row * seg.add_row + output));
}
/* `extra` is what was asked for ahead, if anything was. */
__device__ __forceinline__ void write(const KnLinearSegment &seg, int row, int output, float y,
    const float *extra = nullptr)
{
    if (output >= (int)seg.n) return;
    if (seg.bias) y += ((const float *)seg.bias)[output];
    if (seg.add) y += extra ? *extra : added(seg, row, output);
    ((float *)seg.out)[(long long)row * seg.out_row + output] = y == y ? y : __int_as_float(0x7fc00000);
}

/* The step after that at `block` in the same slice. */
template <int UNIT, int STEP>
__device__ __forceinline__ int next_step(int block) {
    const u32 next = (u32)block + STEP;
    return (int)(next % UNIT ? next : next + (SLICES - 1) * UNIT);
}

/* What a group has in shared memory: for each slice DEPTH steps, which fit three or four times into a
 * multiprocessor, with the activations of one row if COLUMNS is 1, and places for what is added to the results: as far as
 * there is room. */
template <template <int> class F, int COLUMNS>
struct Narrow {
    static constexpr int ROOM = 49152, EXTRA_BYTES = 256 * 4;
    static constexpr int UNIT = F<8>::UNIT, STEP = F<8>::BYTES > 3072 ? 4 : UNIT, DEPTH = STEP < UNIT ? 3 : 2;
    static constexpr int WEIGHTS = F<STEP>::BYTES, WITH_X = WEIGHTS + STEP / 2 * ROW_RECORD;
    static constexpr bool HAS_X = COLUMNS == 1 && SLICES * DEPTH * WITH_X + EXTRA_BYTES <= ROOM;
    static constexpr int STAGE = HAS_X ? WITH_X : WEIGHTS, BYTES = SLICES * DEPTH * STAGE;
    static constexpr bool EXTRA = BYTES + EXTRA_BYTES <= ROOM;
    static constexpr int ALL_BYTES = BYTES + (EXTRA ? EXTRA_BYTES : 0);
    /* A step's activations, so that they are there when its weights are. They pass through the L1 cache, since other
     * groups want the same. */
    template <class P>
    static __device__ __forceinline__ void copy_x(u8 *stage, const P &p, int block, int blocks, int lane) {
        const int pair = lane / 6, part = lane % 6;
        if (HAS_X && pair < STEP / 2 && block + 2 * pair < blocks)
            copy_through_l1(stage + WEIGHTS + pair * ROW_RECORD + part * 16,
                (const u8 *)p.x + ((u32)block / 2u + pair) * RECORD + (part < 4 ? part * 16 : 256 + part * 64));
    }
};

/* Up to 8 * TILES rows. A group of 8 warps has a panel; a warp is a slice, and has DEPTH steps in shared memory: one to
 * work on, the others on their way. All threads call `await_inputs` when weights are on their way, and activations are
 * there behind it. */
template <template <int> class F, int TILES, int COLUMNS, class P, class Await>
__device__ __forceinline__ void narrow_group(const P &p, int group, u8 *shared, const Await &await_inputs) {
    typedef Narrow<F, COLUMNS> Form;
    constexpr int UNIT = Form::UNIT, STEP = Form::STEP, DEPTH = Form::DEPTH, STAGE = Form::STAGE;
    typedef F<STEP> Format;
    /* When all is done, the steps' place holds the sums of the slices. */
    static_assert(Form::BYTES >= SLICES * TILES * 512, "the sums have room");
    const int lane = (int)(threadIdx.x & 31u), slice = (int)(threadIdx.x >> 5);
    u8 *const ring = shared + slice * DEPTH * STAGE;
    const Place place = locate(p, group, 16);
    const KnLinearSegment &seg = *place.segment;
    const Panel panel = panel_of<Format>(p, seg, place.group);
    int block = slice * UNIT, ahead = block;
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
        if (ahead < panel.blocks) Format::copy(ring + i * STAGE, panel, ahead, lane);
        commit_copies();
        ahead = next_step<UNIT, STEP>(ahead);
    }
    /* The live count is given to the run, and nothing in front of this launch writes it. */
    const int rows = min(rows_of(p), 8 * TILES);
    await_inputs();
    if (rows <= 0) {
        wait_for_others(p);
        return;
    }
    const int tile_bytes = panel.pairs * RECORD;
    const u8 *x = (const u8 *)p.x + (COLUMNS == 1 ? lane % 4 : lane) * 16;
    const u8 *scales = (const u8 *)p.x + 512 + (COLUMNS == 1 ? 0 : lane % 4 * 16);
    if (Form::HAS_X) {
        ahead = block;
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            Form::copy_x(ring + i * STAGE, p, ahead, panel.blocks, lane);
            commit_copies();
            ahead = next_step<UNIT, STEP>(ahead);
        }
    }
    /* A thread has one result. Beside another launch what is added may not be there yet. */
    static_assert(16 * 8 * TILES <= 256, "a thread writes one result");
    const int n = (int)threadIdx.x % 16, row = (int)threadIdx.x / 16, output = place.group * 16 + n;
    float *const extra = (float *)(shared + Form::BYTES) + threadIdx.x;
    const bool is_ahead = Form::EXTRA && !(p.order & ORDER_BESIDE);
    if (is_ahead && row < rows) ask_for_added(seg, row, output, extra);
    float sum[TILES][4] = {};
    int turn = 0;
#pragma unroll 1
    while (block < panel.blocks) {
        wait_copies<DEPTH - 1>();
        __syncwarp();
        u8 *const stage = ring + turn;
        if constexpr (Form::HAS_X) {
            const u8 *const own = stage + Form::WEIGHTS;
            add_step<Format, STEP, TILES, COLUMNS, ROW_RECORD, 16>(stage, block, panel.blocks, own + lane % 4 * 16,
                own + 64, tile_bytes, sum);
        } else {
            const int at = (int)((u32)block / 2u) * RECORD;
            add_step<Format, STEP, TILES, COLUMNS, RECORD, 64>(stage, block, panel.blocks, x + at, scales + at,
                tile_bytes, sum);
        }
        __syncwarp();
        if (ahead < panel.blocks) {
            Format::copy(stage, panel, ahead, lane);
            Form::copy_x(stage, p, ahead, panel.blocks, lane);
        }
        commit_copies();
        turn = turn == (DEPTH - 1) * STAGE ? 0 : turn + STAGE;
        block = next_step<UNIT, STEP>(block);
        ahead = next_step<UNIT, STEP>(ahead);
    }
    wait_copies<0>();
    __syncthreads();
    float *const part = (float *)shared;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
        *(float4 *)&part[(slice * TILES + tile) * 128 + lane * 4] =
            make_float4(sum[tile][0], sum[tile][1], sum[tile][2], sum[tile][3]);
    __syncthreads();
    wait_for_others(p);
    if (row < rows) {
        const int column = row % 8;
        const int at = row / 8 * 128 + ((n % 8) * 4 + column / 2) * 4 + n / 8 * 2 + column % 2;
        float y = part[at];
#pragma unroll
        for (int s = 1; s < SLICES; s++) y += part[s * TILES * 128 + at];
        write(seg, row, output, y, is_ahead ? extra : nullptr);
    }
}

template <template <int> class F, int TILES, int COLUMNS>
__device__ __forceinline__ void narrow(const KnLinear &p) {
    __shared__ __align__(128) u8 shared[Narrow<F, COLUMNS>::ALL_BYTES];
    narrow_group<F, TILES, COLUMNS>(p, (int)blockIdx.x, shared, [&] { wait_for_inputs(p); });
}

}  // namespace linear
