/* Quantised weights on their way from memory to fragments: one structure a kind. Planes and fragments: src/layout.
 *
 * A kernel takes STEP blocks of a panel at a time. `copy` brings them to shared memory without passing through
 * registers or the L1 cache, which keeps the activations that all panels share; `begin` then takes the scales of two
 * rows for a lane, and `pair` the quants of two blocks, of which `fragment` makes first operands of m16n8k32. */

namespace linear {

typedef unsigned int u32;
typedef unsigned char u8;

struct Vec { u32 w[4]; };

/* Where the planes of a panel are. */
struct Panel {
    const u8 *base;
    int blocks, pairs, units;
};

template <int BYTES>
__device__ __forceinline__ void copy(u8 *to, const u8 *from) {
    const u32 at = (u32)__cvta_generic_to_shared(to);
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" :: "r"(at), "l"(from) : "memory");
    else if (BYTES == 8)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"(at), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_through_l1(u8 *to, const u8 *from) {
    const u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(at), "l"(from) : "memory");
}
__device__ __forceinline__ Vec load16(const u8 *at) {
    const uint4 v = *(const uint4 *)at;
    return Vec{{v.x, v.y, v.z, v.w}};
}
__device__ __forceinline__ float half_float(u32 bits) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((unsigned short)bits));
    return f;
}
/* 2^23 plus byte `i` of a word. */
__device__ __forceinline__ float byte_and_2_23(u32 word, int i) {
    return __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7440u + (u32)i));
}

/* The rows whose scales a lane takes, and the lane. */
struct Lines {
    int lane, row[2];
};

/* Nibbles of pairs of blocks; WHOLE where there are always all of a step. */
template <int STEP, bool WHOLE = false>
struct Nibbles {
    static constexpr int BYTES = STEP * 256;
    Vec q;
    static __device__ __forceinline__ void copy(u8 *to, const Panel &p, int block, int lane) {
#pragma unroll
        for (int i = 0; i < STEP / 2; i++)
            if (WHOLE || block + 2 * i < p.blocks)
                linear::copy<16>(to + i * 512 + lane * 16, p.base + (((u32)block / 2u + i) * 512u + (u32)lane * 16u));
    }
    __device__ __forceinline__ void pair(const u8 *from, int i, int lane) { q = load16(from + i * 512 + lane * 16); }
};

/* WIDTH bytes of each row and unit of 8 blocks, of which STEP blocks have their part. */
template <int STEP, int WIDTH>
struct Rows {
    static constexpr int PART = WIDTH * STEP / 8, BYTES = 16 * PART;
    u32 row[2][PART / 4];
    static __device__ __forceinline__ void copy(u8 *to, const u8 *plane, int block, int lane) {
        if (lane < 16)
            linear::copy<PART>(to + lane * PART,
                plane + ((u32)block / 8u * 16u + (u32)lane) * WIDTH + (u32)block % 8u / STEP * PART);
    }
    __device__ __forceinline__ void begin(const u8 *from, const Lines &lines) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const u8 *at = from + lines.row[r] * PART;
            if (PART == 16) {
                const uint4 v = *(const uint4 *)at;
                row[r][0] = v.x, row[r][PART / 4 - 3] = v.y, row[r][PART / 4 - 2] = v.z, row[r][PART / 4 - 1] = v.w;
            } else if (PART == 8) {
                const uint2 v = *(const uint2 *)at;
                row[r][0] = v.x, row[r][PART / 4 - 1] = v.y;
            } else {
                row[r][0] = *(const u32 *)at;
            }
        }
    }
    /* One f16 per block. */
    __device__ __forceinline__ float half(int b, int r) const { return half_float(row[r][b / 2] >> (16 * (b % 2))); }
    __device__ __forceinline__ u32 byte(int b, int r) const { return (row[r][b / 4] >> (8 * (b % 4))) & 255u; }
};

/* d, dmin and the packed scales of Q4_K and Q5_K. */
template <int STEP>
struct Heads {
    static constexpr int BYTES = 256;
    /* `scale` and `minimum` take 2^23 off again: exact, as the product itself is. */
    float d[2], d_2_23[2], dmin[2], dmin_2_23[2];
    u32 sc[2][STEP / 4], mn[2][STEP / 4];
    static __device__ __forceinline__ void copy(u8 *to, const u8 *plane, int block, int lane) {
        if (lane < 16) linear::copy<16>(to + lane * 16, plane + ((u32)block / 8u * 16u + (u32)lane) * 16u);
    }
    __device__ __forceinline__ void begin(const u8 *from, const Lines &lines, int block) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const Vec head = load16(from + lines.row[r] * 16);
            const u32 *w = head.w;
            d[r] = half_float(w[0]);
            dmin[r] = -half_float(w[0] >> 16);
            d_2_23[r] = d[r] * -8388608.0f;
            dmin_2_23[r] = dmin[r] * -8388608.0f;
            const u32 low_sc = w[1] & 0x3f3f3f3fu, low_mn = w[2] & 0x3f3f3f3fu;
            const u32 high_sc = (w[3] & 0x0f0f0f0fu) | ((w[1] >> 2) & 0x30303030u);
            const u32 high_mn = ((w[3] >> 4) & 0x0f0f0f0fu) | ((w[2] >> 2) & 0x30303030u);
            if (STEP == 8) {
                sc[r][0] = low_sc, mn[r][0] = low_mn;
                sc[r][STEP / 4 - 1] = high_sc, mn[r][STEP / 4 - 1] = high_mn;
            } else {
                sc[r][0] = (u32)block % 8u ? high_sc : low_sc;
                mn[r][0] = (u32)block % 8u ? high_mn : low_mn;
            }
        }
    }
    __device__ __forceinline__ float scale(int b, int r) const {
        return __fmaf_rn(d[r], byte_and_2_23(sc[r][b / 4], b % 4), d_2_23[r]);
    }
    __device__ __forceinline__ float minimum(int b, int r) const {
        return __fmaf_rn(dmin[r], byte_and_2_23(mn[r][b / 4], b % 4), dmin_2_23[r]);
    }
};

/* Fifth bits of a unit of 8 blocks: bit s of a byte belongs to block s. */
template <int STEP>
struct Fifths {
    static constexpr int BYTES = 512;
    Vec bits;
    static __device__ __forceinline__ void copy(u8 *to, const u8 *plane, int block, int lane) {
        linear::copy<16>(to + lane * 16, plane + ((u32)block / 8u * 512u + (u32)lane * 16u));
    }
    __device__ __forceinline__ void begin(const u8 *from, const Lines &lines, int block) {
        bits = load16(from + lines.lane * 16);
        if (STEP == 4)
#pragma unroll
            for (int i = 0; i < 4; i++) bits.w[i] >>= (u32)block % 8u;
    }
    /* In bit `to` of each byte. */
    __device__ __forceinline__ u32 get(int b, int i, int to) const {
        const u32 w = bits.w[i];
        return (b < to ? w << (to - b) : w >> (b - to)) & (0x01010101u << to);
    }
};

/* What most kinds are like. UNIT: blocks that stay in one slice. SINGLE: one row by `Single` where there are
 * many groups. `factor` undoes what `fragment` multiplies the quants of a block with. */
struct Plain {
    static constexpr int UNIT = 8;
    static constexpr bool SIGNED = true, MINIMA = false, WHOLE = false, HALVES = false;
    static constexpr bool SINGLE = false;
    static __device__ __forceinline__ constexpr float factor(int) { return 1.0f; }
    __device__ __forceinline__ float minimum(int, int) const { return 0.0f; }
    __device__ __forceinline__ float half_scale(int, int, int, float) const { return 1.0f; }
    __device__ __forceinline__ int half_factor(int, int, int) const { return 1; }
};

template <int STEP>
struct Q8_0 : Plain {
    static constexpr int UNIT = 4, BYTES = STEP * 512 + Rows<STEP, 16>::BYTES;
    Vec q[2];
    Rows<STEP, 16> d;
    static __device__ __forceinline__ int panel_bytes(const Panel &p) { return p.blocks * 512 + p.units * 256; }
    static __device__ __forceinline__ void copy(u8 *to, const Panel &p, int block, int lane) {
#pragma unroll
        for (int i = 0; i < STEP; i++)
            if (block + i < p.blocks)
                linear::copy<16>(to + i * 512 + lane * 16, p.base + (((u32)block + i) * 512u + (u32)lane * 16u));
        Rows<STEP, 16>::copy(to + STEP * 512, p.base + p.blocks * 512, block, lane);
    }
    __device__ __forceinline__ void begin(const u8 *from, const Lines &lines, int) {
        d.begin(from + STEP * 512, lines);
    }
    __device__ __forceinline__ void pair(const u8 *from, int i, int lane) {
        q[0] = load16(from + i * 1024 + lane * 16);
        q[1] = load16(from + i * 1024 + 512 + lane * 16);
    }
    __device__ __forceinline__ void fragment(int b, u32 a[4]) const {
#pragma unroll
        for (int i = 0; i < 4; i++) a[i] = q[b % 2].w[i];
    }
    __device__ __forceinline__ float scale(int b, int r) const { return d.half(b, r); }
};

/* Nibbles with an f16 per row and block. */
template <int STEP>
struct NibblesAndScales : Plain {
    static constexpr int BYTES = Nibbles<STEP>::BYTES + Rows<STEP, 16>::BYTES;
    Nibbles<STEP> n;
    Rows<STEP, 16> d;
    static __device__ __forceinline__ int panel_bytes(const Panel &p) { return p.pairs * 512 + p.units * 256; }
    static __device__ __forceinline__ void copy(u8 *to, const Panel &p, int block, int lane) {
        Nibbles<STEP>::copy(to, p, block, lane);
        Rows<STEP, 16>::copy(to + Nibbles<STEP>::BYTES, p.base + p.pairs * 512, block, lane);
    }
    __device__ __forceinline__ void begin(const u8 *from, const Lines &lines, int) {
        d.begin(from + Nibbles<STEP>::BYTES, lines);
    }
    __device__ __forceinline__ void pair(const u8 *from, int i, int lane) { n.pair(from, i, lane); }
    __device__ __forceinline__ float scale(int b, int r) const { return d.half(b, r); }
};

template <int STEP>
struct Q4_0 : NibblesAndScales<STEP> {
    static __device__ __forceinline__ constexpr float factor(int) { return 1.0f / 16.0f; }
    __device__ __forceinline__ void fragment(int b, u32 a[4]) const {
#pragma unroll
        for (int i = 0; i < 4; i++) a[i] = (b % 2 ? this->n.q.w[i] : this->n.q.w[i] << 4) & 0xf0f0f0f0u;
    }
};

/* Four nibbles, side by side in the low 16 bits, to the bytes of a table. */
__device__ __forceinline__ u32 look_up(u32 nibbles, u32 t0, u32 t1, u32 t2, u32 t3) {
    const u32 low = nibbles & 0x7777u;
    return __byte_perm(__byte_perm(t0, t1, low), __byte_perm(t2, t3, low), 0x3210u | ((nibbles & 0x8888u) >> 1));
}

template <int STEP>
struct Iq4Nl : NibblesAndScales<STEP> {
    /* -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113 */
    __device__ __forceinline__ void fragment(int b, u32 a[4]) const {
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = look_up(this->n.q.w[i] >> (16 * (b % 2)), 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
    }
};

template <int STEP>
struct Mxfp4 : Plain {
    static constexpr int BYTES = Nibbles<STEP>::BYTES + Rows<STEP, 8>::BYTES;
    Nibbles<STEP> n;
    Rows<STEP, 8> e;
    static __device__ __forceinline__ int panel_bytes(const Panel &p) { return p.pairs * 512 + p.units * 128; }
    static __device__ __forceinline__ void copy(u8 *to, const Panel &p, int block, int lane) {
        Nibbles<STEP>::copy(to, p, block, lane);
        Rows<STEP, 8>::copy(to + Nibbles<STEP>::BYTES, p.base + p.pairs * 512, block, lane);
    }
    __device__ __forceinline__ void begin(const u8 *from, const Lines &lines, int) {
        e.begin(from + Nibbles<STEP>::BYTES, lines);
    }
    __device__ __forceinline__ void pair(const u8 *from, int i, int lane) { n.pair(from, i, lane); }
    /* 0 1 2 3 4 6 8 12, and the same negated */
    __device__ __forceinline__ void fragment(int b, u32 a[4]) const {
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = look_up(n.q.w[i] >> (16 * (b % 2)), 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
    }
    /* 2^(e - 128) */
    __device__ __forceinline__ float scale(int b, int r) const {
        const u32 x = e.byte(b, r);
        return __uint_as_float(x < 2u ? 0x00200000u << x : (x - 1u) << 23);
    }
};

/* Nibbles as they are; those of the second block of a pair times 16, which saves a shift. */
template <int STEP, bool WHOLE>
__device__ __forceinline__ void four_bits(const Nibbles<STEP, WHOLE> &n, int b, u32 a[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = n.q.w[i] & (b % 2 ? 0xf0f0f0f0u : 0x0f0f0f0fu);
}

/* Nibble and fifth bit, as they are. */
template <int STEP, bool WHOLE>
__device__ __forceinline__ void five_bits(const Nibbles<STEP, WHOLE> &n, const Fifths<STEP> &f, int b, u32 a[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = ((b % 2 ? n.q.w[i] >> 4 : n.q.w[i]) & 0x0f0f0f0fu) | f.get(b, i, 4);
}

template <int STEP>
struct Q4_1 : NibblesAndScales<STEP> {
    typedef NibblesAndScales<STEP> Base;
    static constexpr bool SIGNED = false, MINIMA = true;
    static constexpr int BYTES = Base::BYTES + Rows<STEP, 16>::BYTES;
    Rows<STEP, 16> m;
    static __device__ __forceinline__ int panel_bytes(const Panel &p) { return p.pairs * 512 + p.units * 512; }
    static __device__ __forceinline__ void copy(u8 *to, const Panel &p, int block, int lane) {
        Base::copy(to, p, block, lane);
        Rows<STEP, 16>::copy(to + Base::BYTES, p.base + p.pairs * 512 + p.units * 256, block, lane);
    }
    __device__ __forceinline__ void begin(const u8 *from, const Lines &lines, int block) {
        Base::begin(from, lines, block);
        m.begin(from + Base::BYTES, lines);
    }
    static __device__ __forceinline__ constexpr float factor(int b) { return b % 2 ? 1.0f / 16.0f : 1.0f; }
    __device__ __forceinline__ void fragment(int b, u32 a[4]) const { four_bits(this->n, b, a); }
    __device__ __forceinline__ float minimum(int b, int r) const { return m.half(b, r); }
};

template <int STEP>
struct Q5_0 : Plain {
    static constexpr int BITS = Nibbles<STEP>::BYTES, SCALES = BITS + Fifths<STEP>::BYTES;
    static constexpr int BYTES = SCALES + Rows<STEP, 16>::BYTES;
    Nibbles<STEP> n;
    Fifths<STEP> f;
    Rows<STEP, 16> d;
    static __device__ __forceinline__ int panel_bytes(const Panel &p) { return p.pairs * 512 + p.units * 768; }
    static __device__ __forceinline__ void copy(u8 *to, const Panel &p, int block, int lane) {
        Nibbles<STEP>::copy(to, p, block, lane);
        Fifths<STEP>::copy(to + BITS, p.base + p.pairs * 512, block, lane);
        Rows<STEP, 16>::copy(to + SCALES, p.base + p.pairs * 512 + p.units * 512, block, lane);
    }
    __device__ __forceinline__ void begin(const u8 *from, const Lines &lines, int block) {
        f.begin(from + BITS, lines, block);
        d.begin(from + SCALES, lines);
    }
    __device__ __forceinline__ void pair(const u8 *from, int i, int lane) { n.pair(from, i, lane); }
    static __device__ __forceinline__ constexpr float factor(int) { return 1.0f / 8.0f; }
    __device__ __forceinline__ void fragment(int b, u32 a[4]) const {
#pragma unroll
        for (int i = 0; i < 4; i++) a[i] = ((b % 2 ? n.q.w[i] >> 1 : n.q.w[i] << 3) & 0x78787878u) | f.get(b, i, 7);
    }
    __device__ __forceinline__ float scale(int b, int r) const { return d.half(b, r); }
};

template <int STEP>
struct Q5_1 : Q5_0<STEP> {
    typedef Q5_0<STEP> Base;
    static constexpr bool SIGNED = false, MINIMA = true;
    static constexpr int BYTES = Base::BYTES + Rows<STEP, 16>::BYTES;
    Rows<STEP, 16> m;
    static __device__ __forceinline__ int panel_bytes(const Panel &p) { return p.pairs * 512 + p.units * 1024; }
    static __device__ __forceinline__ void copy(u8 *to, const Panel &p, int block, int lane) {
        Base::copy(to, p, block, lane);
        Rows<STEP, 16>::copy(to + Base::BYTES, p.base + p.pairs * 512 + p.units * 768, block, lane);
    }
    __device__ __forceinline__ void begin(const u8 *from, const Lines &lines, int block) {
        Base::begin(from, lines, block);
        m.begin(from + Base::BYTES, lines);
    }
    static __device__ __forceinline__ constexpr float factor(int) { return 1.0f; }
    __device__ __forceinline__ void fragment(int b, u32 a[4]) const { five_bits(this->n, this->f, b, a); }
    __device__ __forceinline__ float minimum(int b, int r) const { return m.half(b, r); }
};

template <int STEP>
struct Q4K : Plain {
    static constexpr bool SIGNED = false, MINIMA = true, WHOLE = true, SINGLE = true;
    static constexpr int BYTES = Nibbles<STEP, true>::BYTES + Heads<STEP>::BYTES;
    Nibbles<STEP, true> n;
    Heads<STEP> h;
    static __device__ __forceinline__ int panel_bytes(const Panel &p) { return p.pairs * 512 + p.units * 256; }
    static __device__ __forceinline__ void copy(u8 *to, const Panel &p, int block, int lane) {
        Nibbles<STEP, true>::copy(to, p, block, lane);
        Heads<STEP>::copy(to + Nibbles<STEP, true>::BYTES, p.base + p.pairs * 512, block, lane);
    }
    __device__ __forceinline__ void begin(const u8 *from, const Lines &lines, int block) {
        h.begin(from + Nibbles<STEP, true>::BYTES, lines, block);
    }
    __device__ __forceinline__ void pair(const u8 *from, int i, int lane) { n.pair(from, i, lane); }
    static __device__ __forceinline__ constexpr float factor(int b) { return b % 2 ? 1.0f / 16.0f : 1.0f; }
    __device__ __forceinline__ void fragment(int b, u32 a[4]) const { four_bits(n, b, a); }
    __device__ __forceinline__ float scale(int b, int r) const { return h.scale(b, r); }
    __device__ __forceinline__ float minimum(int b, int r) const { return h.minimum(b, r); }
};

template <int STEP>
struct Q5K : Q4K<STEP> {
    typedef Q4K<STEP> Base;
    static constexpr int BYTES = Base::BYTES + Fifths<STEP>::BYTES;
    Fifths<STEP> f;
    static __device__ __forceinline__ int panel_bytes(const Panel &p) { return p.pairs * 512 + p.units * 768; }
    static __device__ __forceinline__ void copy(u8 *to, const Panel &p, int block, int lane) {
        Nibbles<STEP, true>::copy(to, p, block, lane);
        Heads<STEP>::copy(to + Nibbles<STEP, true>::BYTES, p.base + p.pairs * 512 + p.units * 512, block, lane);
        Fifths<STEP>::copy(to + Base::BYTES, p.base + p.pairs * 512, block, lane);
    }
    __device__ __forceinline__ void begin(const u8 *from, const Lines &lines, int block) {
        Base::begin(from, lines, block);
        f.begin(from + Base::BYTES, lines, block);
    }
    static __device__ __forceinline__ constexpr float factor(int) { return 1.0f; }
    __device__ __forceinline__ void fragment(int b, u32 a[4]) const { five_bits(this->n, f, b, a); }
};

template <int STEP>
struct Q6K : Plain {
    static constexpr bool WHOLE = true, HALVES = true, SINGLE = true;
    static constexpr int UPPER = Nibbles<STEP, true>::BYTES, SCALES = UPPER + STEP * 128;
    static constexpr int D = SCALES + Rows<STEP, 16>::BYTES, BYTES = D + 32;
    Nibbles<STEP, true> n;
    Vec upper;
    Rows<STEP, 16> sc;
    float d[2];
    static __device__ __forceinline__ int panel_bytes(const Panel &p) { return p.pairs * 512 + p.units * 1312; }
    static __device__ __forceinline__ void copy(u8 *to, const Panel &p, int block, int lane) {
        const u8 *after = p.base + p.pairs * 512;
        Nibbles<STEP, true>::copy(to, p, block, lane);
#pragma unroll
        for (int i = 0; i < STEP / 4; i++)
            linear::copy<16>(to + UPPER + i * 512 + lane * 16,
                after + (((u32)block / 4u + i) * 512u + (u32)lane * 16u));
        Rows<STEP, 16>::copy(to + SCALES, after + p.units * 1024, block, lane);
        if (lane < 2)
            linear::copy<16>(to + D + lane * 16, after + p.units * 1280 + (u32)block / 8u * 32u + (u32)lane * 16u);
    }
    __device__ __forceinline__ void begin(const u8 *from, const Lines &lines, int) {
        sc.begin(from + SCALES, lines);
#pragma unroll
        for (int r = 0; r < 2; r++) {
#pragma unroll
            for (int i = 0; i < STEP / 2; i++) sc.row[r][i] ^= 0x80808080u;
            d[r] = half_float(*(const unsigned short *)(from + D + lines.row[r] * 2));
        }
    }
    __device__ __forceinline__ void pair(const u8 *from, int i, int lane) {
        n.pair(from, i, lane);
        if (i % 2 == 0) upper = load16(from + UPPER + i / 2 * 512 + lane * 16);
    }
    static __device__ __forceinline__ constexpr float factor(int) { return 0.25f; }
    __device__ __forceinline__ void fragment(int b, u32 a[4]) const {
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = ((b % 2 ? n.q.w[i] >> 2 : n.q.w[i] << 2) & 0x3c3c3c3cu)
                | ((upper.w[i] << (6 - b % 4 * 2)) & 0xc0c0c0c0u);
    }
    __device__ __forceinline__ float scale(int, int r) const { return d[r]; }
    /* The scale of half h of a block. */
    __device__ __forceinline__ int half_factor(int b, int h, int r) const {
        return (int)((sc.row[r][b / 2] >> (16 * (b % 2) + 8 * h)) & 255u) - 128;
    }
    /* The same, times a power of two: exact. */
    __device__ __forceinline__ float half_scale(int b, int h, int r, float times) const {
        return __fmaf_rn(byte_and_2_23(sc.row[r][b / 2], b % 2 * 2 + h), times, -8388736.0f * times);
    }
};

}  // namespace linear
