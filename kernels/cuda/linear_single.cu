/* One row of activations: fewer instructions for each weight than linear_int.cu has for 8 rows, and the same bits. */

namespace linear {

/* c += a b, over 32 elements. */
template <bool SIGNED>
__device__ __forceinline__ void mma32_onto(int c[4], const u32 a[4], u32 b0, u32 b1) {
    if (SIGNED)
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma16_onto(int c[4], u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a0), "r"(a1), "r"(b));
}

/* One row of activations: the columns of the second operand are blocks of it, each of which is zero but for its own
 * block of weights, so that one result has the dots of up to 8 blocks. These pass through the place of the quants,
 * which are in fragments by then; behind it a lane has all blocks of one weight row, row lane % 16. */
template <class F, int STEP, int NEXT, int SCALES, int SUMS>
struct Single {
    static constexpr int HALVES = F::HALVES ? 2 : 1, DOTS = 16 * STEP;
    static __device__ __forceinline__ void add(u8 *from, int block, int blocks, const u8 *x, float &sum) {
        const int lane = (int)(threadIdx.x & 31u), column = lane / 4, t = lane % 4, row = lane % 16;
        uint2 own = make_uint2(0u, 0u);
        if (column < STEP && (F::WHOLE || block + column < blocks))
            own = *(const uint2 *)(x + column / 2 * NEXT + 16 * t + 8 * (column % 2));
        F w;
        w.begin(from, Lines{lane, {row, row}}, block);
        int c[HALVES][2][4];
#pragma unroll
        for (int i = 0; i < HALVES * 8; i++) c[i / 8][i / 4 % 2][i % 4] = i / 4 % 2 ? 0 : MAGIC_BITS;
#pragma unroll
        for (int b = 0; b < STEP; b++) {
            u32 a[4];
            if (b % 2 == 0) w.pair(from, b / 2, lane);
            w.fragment(b, a);
            const u32 b0 = column == b ? own.x : 0u, b1 = column == b ? own.y : 0u;
            if constexpr (F::HALVES) {
                mma16_onto(c[0][b % 2], a[0], a[1], b0);
                mma16_onto(c[1][b % 2], a[2], a[3], b1);
            } else {
                mma32_onto<F::SIGNED>(c[0][b % 2], a, b0, b1);
            }
        }
        int *const dots = (int *)from;
        __syncwarp();
        if (t < STEP / 2)
#pragma unroll
            for (int i = 0; i < HALVES * 2; i++) {
                const int (*const both)[4] = c[i / 2];
                const int at = i % 2 * 2;
                *(int2 *)&dots[i / 2 * DOTS + (column + i % 2 * 8) * STEP + 2 * t] =
                    make_int2(both[0][at] + both[1][at], both[0][at + 1] + both[1][at + 1]);
            }
        __syncwarp();
        float d[HALVES][STEP];
#pragma unroll
        for (int i = 0; i < HALVES * STEP; i += 4) {
            const float4 v = *(const float4 *)&dots[i / STEP * DOTS + row * STEP + i % STEP];
            d[i / STEP][i % STEP] = v.x, d[i / STEP][i % STEP + 1] = v.y;
            d[i / STEP][i % STEP + 2] = v.z, d[i / STEP][i % STEP + 3] = v.w;
        }
        float4 xs, xsum;
#pragma unroll
        for (int b = 0; b < STEP; b++) {
            /* Both blocks of a pair: those of the first row are x and z. */
            const u8 *const scales = x + b / 2 * NEXT + SCALES;
            if (b % 2 == 0) xs = *(const float4 *)scales;
            if (F::MINIMA && b % 2 == 0) xsum = *(const float4 *)(scales + SUMS);
            if (!F::WHOLE && block + b >= blocks) break;
            const float f = F::factor(b);
            float dot = __fmaf_rn(d[0][b], f, -MAGIC * f);
            if (F::HALVES) {
                dot = __fmul_rn(dot, w.half_scale(b, 0, 0, 1.0f));
                dot = __fmaf_rn(__fmaf_rn(d[HALVES - 1][b], f, -MAGIC * f), w.half_scale(b, 1, 0, 1.0f), dot);
            }
            sum = __fmaf_rn(dot, __fmul_rn(w.scale(b, 0), b % 2 ? xs.z : xs.x), sum);
            if (F::MINIMA) sum = __fmaf_rn(w.minimum(b, 0), b % 2 ? xsum.z : xsum.x, sum);
        }
    }
};

/* One row. As `narrow_group`, but that a lane has the sum of one output. */
template <template <int> class F, class P, class Await>
__device__ __forceinline__ void single_group(const P &p, int group, u8 *shared, const Await &await_inputs) {
    typedef Narrow<F, 1> Form;
    constexpr int UNIT = Form::UNIT, STEP = Form::STEP, DEPTH = Form::DEPTH, STAGE = Form::STAGE;
    typedef F<STEP> Format;
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
    const int rows = rows_of(p);
    await_inputs();
    if (rows <= 0) {
        wait_for_others(p);
        return;
    }
    if (Form::HAS_X) {
        ahead = block;
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            Form::copy_x(ring + i * STAGE, p, ahead, panel.blocks, lane);
            commit_copies();
            ahead = next_step<UNIT, STEP>(ahead);
        }
    }
    const int output = place.group * 16 + (int)threadIdx.x;
    float *const extra = (float *)(shared + Form::BYTES) + threadIdx.x;
    const bool is_ahead = Form::EXTRA && !(p.order & ORDER_BESIDE);
    if (is_ahead && threadIdx.x < 16u) ask_for_added(seg, 0, output, extra);
    float sum = 0.0f;
    int turn = 0;
#pragma unroll 1
    while (block < panel.blocks) {
        wait_copies<DEPTH - 1>();
        __syncwarp();
        u8 *const stage = ring + turn;
        if constexpr (Form::HAS_X)
            Single<Format, STEP, ROW_RECORD, 64, 16>::add(stage, block, panel.blocks, stage + Form::WEIGHTS, sum);
        else
            Single<Format, STEP, RECORD, 512, 64>::add(stage, block, panel.blocks,
                (const u8 *)p.x + (u32)block / 2u * RECORD, sum);
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
    /* Each warp has done with its own steps. */
    wait_copies<0>();
    if (lane < 16) ((float *)ring)[lane] = sum;
    __syncthreads();
    wait_for_others(p);
    if (threadIdx.x < 16u) {
        float y = ((const float *)shared)[threadIdx.x];
#pragma unroll
        for (int s = 1; s < SLICES; s++) y += ((const float *)(shared + s * DEPTH * STAGE))[threadIdx.x];
        write(seg, 0, output, y, is_ahead ? extra : nullptr);
    }
}

/* Groups from which on `single_group` is faster. With fewer, of which a multiprocessor has two at most, what counts is
 * how soon a step is done, and passing dots through shared memory takes its time. */
constexpr u32 MANY_GROUPS = 2 * 132 + 1;

template <template <int> class F>
__device__ __forceinline__ void one_row(const KnLinear &p) {
    __shared__ __align__(128) u8 shared[Narrow<F, 1>::ALL_BYTES];
    if (F<8>::SINGLE && gridDim.x >= MANY_GROUPS)
        single_group<F>(p, (int)blockIdx.x, shared, [&] { wait_for_inputs(p); });
    else
        narrow_group<F, 1, 1>(p, (int)blockIdx.x, shared, [&] { wait_for_inputs(p); });
}

}  // namespace linear
