/* Many rows of activations: linear_int.cu's arithmetic and bits, in tiles that go through shared memory. */

namespace linear {

/* Dynamic shared memory of a group; src/params/linear.rs says so to whoever launches it, by the number of threads. Two
 * groups fit into a multiprocessor of compute capability 9.0, or of 8.0, one into those of 8.6 and 8.9. Where there is
 * room, a warp has all rows, and the sums of earlier slices are in shared memory. */
#if __CUDA_ARCH__ >= 900
constexpr int WIDE_SHARED = 115712, WARP_TILES = 8;
constexpr bool SHARED_TOTALS = true;
#else
constexpr int WIDE_SHARED = 82944, WARP_TILES = 4;
constexpr bool SHARED_TOTALS = false;
#endif
/* What a group works on: panels of weights, and tiles of 8 rows; a warp has two of the panels and WARP_TILES. */
constexpr int WIDE_PANELS = 8, WIDE_TILES = 8, WARP_PANELS = 2, WARPS_ALONG_ROWS = WIDE_TILES / WARP_TILES;
constexpr int WIDE_WARPS = WIDE_PANELS / WARP_PANELS * WARPS_ALONG_ROWS, WIDE_THREADS = 32 * WIDE_WARPS;
/* Panels of weights and tiles of activations that a warp copies. */
constexpr int COPIED_PANELS = WIDE_PANELS / WIDE_WARPS, COPIED_TILES = WIDE_TILES / WIDE_WARPS;
/* Blocks of a step. */
constexpr int WIDE_STEP = 4;

/* Scales and minima of a panel and step, which one warp has unpacked for all: of two blocks at a time for each row both
 * scales, then both minima. */
struct Scales {
    float4 rows[WIDE_STEP / 2][16];
    template <class F>
    __device__ __forceinline__ void unpack(const u8 *from, int lane, int block) {
        F w;
        const int row = lane % 16;
        w.begin(from, Lines{lane, {row, row}}, block);
#pragma unroll
        for (int pair = 0; pair < WIDE_STEP / 2; pair++) {
            float2 v;
            v.x = lane < 16 ? w.scale(2 * pair, 0) : w.minimum(2 * pair, 0);
            v.y = lane < 16 ? w.scale(2 * pair + 1, 0) : w.minimum(2 * pair + 1, 0);
            ((float2 *)&rows[pair][row])[lane / 16] = v;
        }
    }
};

/* What a warp does with a step: its panels times its tiles. A unit is a block of a tile; the products of the next unit
 * are asked for before those of this one are added, and activations a tile ahead, so that nothing waits for them. */
template <class F, bool WHOLE>
struct Warp {
    /* Fragments and scales of two blocks of each panel. */
    struct Pair {
        u32 a[WARP_PANELS][2][4];
        float d[WARP_PANELS][2][2], m[WARP_PANELS][2][2];
    };
    /* Two blocks of a tile: quants, scales, scaled sums. */
    struct Rows8 {
        Vec q, xs, xsum;
    };
    /* Dots of a unit; of both halves of the block where these have scales of their own. */
    struct Dots {
        int c[WARP_PANELS][F::HALVES ? 2 : 1][4];
    };

    /* What undoes that signed quants are shifted: sums are larger by that power of two. The bits are the same unless a
     * sum is below 2^-122 or above 2^123. */
    static constexpr float FACTOR = F::SIGNED ? F::factor(0) : 1.0f;

    F w[WARP_PANELS];

    __device__ __forceinline__ void weights(Pair &to, const u8 *from, const Scales *scales, int pair, int lane) {
#pragma unroll
        for (int p = 0; p < WARP_PANELS; p++) {
            w[p].pair(from + p * F::BYTES, pair, lane);
#pragma unroll
            for (int s = 0; s < 2; s++) {
                w[p].fragment(2 * pair + s, to.a[p][s]);
                /* Once for all tiles. */
                if (!F::SIGNED)
#pragma unroll
                    for (int i = 0; i < 4; i++) to.a[p][s][i] >>= shift_of<F>(2 * pair + s);
            }
#pragma unroll
            for (int r = 0; r < 2; r++) {
                if (F::MINIMA) {
                    const float4 v = scales[p].rows[pair][lane / 4 + 8 * r];
                    to.d[p][0][r] = v.x, to.d[p][1][r] = v.y, to.m[p][0][r] = v.z, to.m[p][1][r] = v.w;
                } else {
                    to.d[p][0][r] = w[p].scale(2 * pair, r), to.d[p][1][r] = w[p].scale(2 * pair + 1, r);
                }
            }
        }
    }
    static __device__ __forceinline__ void activations(Rows8 &to, const u8 *x, const u8 *scales) {
        to.q = load16(x), to.xs = load16(scales);
        if (F::MINIMA) to.xsum = load16(scales + 64);
    }
    static __device__ __forceinline__ void multiply(Dots &to, const Pair &pair, const Rows8 &rows, int s) {
#pragma unroll
        for (int p = 0; p < WARP_PANELS; p++) {
            const u32 *a = pair.a[p][s];
            if constexpr (F::HALVES) {
                mma16(to.c[p][0], a[0], a[1], rows.q.w[2 * s], 0);
                mma16(to.c[p][1], a[2], a[3], rows.q.w[2 * s + 1], 0);
            } else {
                mma32<F::SIGNED>(to.c[p][0], a, rows.q.w[2 * s], rows.q.w[2 * s + 1], 0);
            }
        }
    }
    __device__ __forceinline__ void add(const Dots &dots, const Pair &pair, const Rows8 &rows, int b,
        float (&sum)[WARP_PANELS][WARP_TILES][4], int tile)
    {
        const int s = b % 2;
#pragma unroll
        for (int p = 0; p < WARP_PANELS; p++) {
            float dot[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int c = dots.c[p][0][i];
                if constexpr (F::HALVES)
                    c = c * w[p].half_factor(b, 0, i / 2) + dots.c[p][1][i] * w[p].half_factor(b, 1, i / 2);
                dot[i] = __int2float_rn(c);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float &to = sum[p][tile][i];
                to = __fmaf_rn(dot[i], __fmul_rn(pair.d[p][s][i / 2], __uint_as_float(rows.xs.w[2 * s + i % 2])), to);
            }
            if (F::MINIMA)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float &to = sum[p][tile][i];
                    to = __fmaf_rn(pair.m[p][s][i / 2], __uint_as_float(rows.xsum.w[2 * s + i % 2]), to);
                }
        }
    }
    /* Adds a step that begins at `block`. `between` is called halfway. */
    template <class Between>
    __device__ __forceinline__ void step(const u8 *from, const Scales *scales, const u8 *x, const u8 *xs, int block,
        int blocks, float (&sum)[WARP_PANELS][WARP_TILES][4], const Between &between)
    {
        constexpr int UNITS = WIDE_STEP / 2 * WARP_TILES * 2, TILE_BYTES = WIDE_STEP / 2 * RECORD;
        const int lane = (int)(threadIdx.x & 31u);
#pragma unroll
        for (int p = 0; p < WARP_PANELS; p++)
            w[p].begin(from + p * F::BYTES, Lines{lane, {lane / 4, lane / 4 + 8}}, block);
        Pair pair[2];
        Rows8 rows[2];
        Dots dots[2];
        weights(pair[0], from, scales, 0, lane);
        activations(rows[0], x, xs);
        multiply(dots[0], pair[0], rows[0], 0);
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            /* Units go through both blocks of a tile, the tiles, and the pairs. */
            const int next = u + 1, of = u / (2 * WARP_TILES), at = u / 2 % WARP_TILES;
            if (u == UNITS / 2) between();
            if (u % 2 == 0 && u + 2 < UNITS) {
                const int next_of = (u + 2) / (2 * WARP_TILES), next_at = (u + 2) / 2 % WARP_TILES;
                if (next_at == 0) weights(pair[next_of % 2], from, scales, next_of, lane);
                activations(rows[(u / 2 + 1) % 2], x + next_at * TILE_BYTES + next_of * RECORD,
                    xs + next_at * TILE_BYTES + next_of * RECORD);
            }
            if (next < UNITS)
                multiply(dots[next % 2], pair[next / (2 * WARP_TILES) % 2], rows[next / 2 % 2], next % 2);
            if (WHOLE || block + 2 * of + u % 2 < blocks)
                add(dots[u % 2], pair[of % 2], rows[u / 2 % 2], 2 * of + u % 2, sum, at);
        }
    }
};

/* Many rows: a group has 8 panels and 64 rows, a warp two of the panels. All warps walk through the slices one after
 * another, step by step, so that what they add up is the same; shared memory has weights and activations of this step
 * and of the next ones, and the sums of the slices before. */
template <template <int> class F>
__device__ __forceinline__ void wide(const KnLinear &p) {
    constexpr int UNIT = F<8>::UNIT, STEP = WIDE_STEP, TILE_BYTES = STEP / 2 * RECORD;
    typedef F<STEP> Format;
    constexpr int WEIGHTS = WIDE_PANELS * Format::BYTES, STAGE = WEIGHTS + WIDE_TILES * TILE_BYTES, STAGES = 3;
    constexpr int SCALES = Format::MINIMA ? 2 * WIDE_PANELS * (int)sizeof(Scales) : 0;
    constexpr int TOTALS = SHARED_TOTALS ? 4 * 16 * WIDE_PANELS * 8 * WIDE_TILES : 0;
    static_assert(STAGES * STAGE + SCALES + TOTALS <= WIDE_SHARED, "the steps have room");
    extern __shared__ __align__(128) u8 memory[];
    const int lane = (int)(threadIdx.x & 31u), warp = (int)(threadIdx.x >> 5);
    float4 *const totals = (float4 *)memory + threadIdx.x;
    Scales *const scales = (Scales *)(memory + TOTALS);
    u8 *const stages = memory + TOTALS + SCALES;
    const Place place = locate(p, (int)blockIdx.x, 16 * WIDE_PANELS);
    const KnLinearSegment &seg = *place.segment;
    const int copied = warp * COPIED_PANELS;
    Panel panels[COPIED_PANELS];
#pragma unroll
    for (int i = 0; i < COPIED_PANELS; i++)
        panels[i] = panel_of<Format>(p, seg, place.group * WIDE_PANELS + copied + i);
    const int blocks = panels[0].blocks;
    auto copy_weights = [&](int stage, int block) {
#pragma unroll
        for (int i = 0; i < COPIED_PANELS; i++)
            Format::copy(stages + stage * STAGE + (copied + i) * Format::BYTES, panels[i], block, lane);
    };
    /* The step that is asked for next: the next one of the unit, else of the slice, else the first of the next
     * slice. */
    int ahead = 0, ahead_slice = 0;
    auto advance = [&]() {
        ahead = next_step<UNIT, STEP>(ahead);
        if (ahead >= blocks && ++ahead_slice < SLICES) ahead = ahead_slice * UNIT;
    };
    /* Weights do not wait for the launch before this one. */
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (ahead < blocks) copy_weights(i, ahead);
        advance();
    }
    const int row0 = (int)blockIdx.y * 8 * WIDE_TILES;
    const int rows = min((p.live ? *(const int *)p.live : (int)p.rows) - row0, 8 * WIDE_TILES);
    wait_for_inputs(p);
    if (rows <= 0) {
        wait_for_others(p);
        return;
    }
    const int tile_bytes = panels[0].pairs * RECORD, tiles = (rows + 7) / 8;
    const int first_panel = warp / WARPS_ALONG_ROWS * WARP_PANELS, first_tile = warp % WARPS_ALONG_ROWS * WARP_TILES;
    const u8 *const x = (const u8 *)p.x + (long long)(row0 / 8) * tile_bytes + lane * 16;
    auto copy_activations = [&](int stage, int block) {
        u8 *const to = stages + stage * STAGE + WEIGHTS + lane * 16;
        const int at = (int)((u32)block / 2u) * RECORD;
#pragma unroll
        for (int tile = warp; tile < WIDE_WARPS * COPIED_TILES; tile += WIDE_WARPS)
            if (tile < tiles)
#pragma unroll
                for (int i = 0; i < TILE_BYTES; i += 512)
                    if (lane * 16 < TILE_BYTES - i && (Format::WHOLE || at + i + lane * 16 < tile_bytes))
                        copy<16>(to + tile * TILE_BYTES + i, x + tile * tile_bytes + at + i);
    };
    ahead = 0, ahead_slice = 0;
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (ahead < blocks) copy_activations(i, ahead);
        commit_copies();
        advance();
    }
    if (Format::MINIMA) {
        wait_copies<STAGES - 2>();
        __syncwarp();
#pragma unroll
        for (int i = copied; i < copied + COPIED_PANELS; i++)
            scales[i].unpack<Format>(stages + i * Format::BYTES, lane, 0);
        __syncwarp();
    }
    float4 kept[SHARED_TOTALS ? 1 : WARP_PANELS * WARP_TILES];
    auto total = [&](int i) -> float4 & {
        return SHARED_TOTALS ? totals[i * WIDE_THREADS] : kept[SHARED_TOTALS ? 0 : i];
    };
    int stage = 0, turn = 0;
#pragma unroll 1
    for (int slice = 0; slice < SLICES; slice++) {
        float sum[WARP_PANELS][WARP_TILES][4] = {};
#pragma unroll 1
        for (int block = slice * UNIT; block < blocks; block = next_step<UNIT, STEP>(block)) {
            const u8 *const here = stages + stage * STAGE;
            if (!Format::MINIMA) wait_copies<STAGES - 2>();
            __syncthreads();
            /* What was worked on last is done with. */
            const int free = stage ? stage - 1 : STAGES - 1;
            if (ahead < blocks) {
                copy_weights(free, ahead);
                copy_activations(free, ahead);
            }
            commit_copies();
            advance();
            const u8 *const from = here + WEIGHTS + first_tile * TILE_BYTES;
            stage = stage + 1 < STAGES ? stage + 1 : 0;
            const Scales *const of = scales + turn * WIDE_PANELS + first_panel;
            turn ^= 1;
            auto unpack = [&]() {
                if (!Format::MINIMA) return;
                wait_copies<STAGES - 2>();
                __syncwarp();
                int next = next_step<UNIT, STEP>(block);
                if (next >= blocks) next = (slice + 1) * UNIT;
#pragma unroll
                for (int i = copied; i < copied + COPIED_PANELS; i++)
                    scales[turn * WIDE_PANELS + i].unpack<Format>(stages + stage * STAGE + i * Format::BYTES, lane,
                        next);
            };
            /* Rows that nobody copied are added up like others, and are not written. */
            const u8 *const weights = here + first_panel * Format::BYTES;
            if (Format::WHOLE || block + STEP <= blocks) {
                Warp<Format, true> worker;
                worker.step(weights, of, from + lane * 16, from + 512 + lane % 4 * 16, block, blocks, sum, unpack);
            } else {
                Warp<Format, false> worker;
                worker.step(weights, of, from + lane * 16, from + 512 + lane % 4 * 16, block, blocks, sum, unpack);
            }
        }
#pragma unroll
        for (int i = 0; i < WARP_PANELS * WARP_TILES; i++) {
            const float *s = sum[i / WARP_TILES][i % WARP_TILES];
            constexpr float FACTOR = Warp<Format, true>::FACTOR;
            float4 t = make_float4(s[0] * FACTOR, s[1] * FACTOR, s[2] * FACTOR, s[3] * FACTOR);
            if (slice) {
                const float4 before = total(i);
                t = make_float4(before.x + t.x, before.y + t.y, before.z + t.z, before.w + t.w);
            }
            total(i) = t;
        }
    }
    wait_for_others(p);
#pragma unroll(SHARED_TOTALS ? 2 : WARP_PANELS * WARP_TILES)
    for (int i = 0; i < WARP_PANELS * WARP_TILES; i++) {
        const float4 t = total(i);
        const int row = (first_tile + i % WARP_TILES) * 8 + lane % 4 * 2;
        const int output = (place.group * WIDE_PANELS + first_panel + i / WARP_TILES) * 16 + lane / 4;
        if (row < rows) write(seg, row0 + row, output, t.x), write(seg, row0 + row, output + 8, t.z);
        if (row + 1 < rows) write(seg, row0 + row + 1, output, t.y), write(seg, row0 + row + 1, output + 8, t.w);
    }
}

}  // namespace linear
