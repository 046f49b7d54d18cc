//! Products of activations with weights, and what surrounds them: parameters and launches.
//!
//! `out[r][n] = sum over k of x[r][k] * w[n][k]`, plus a bias and plus a row that is added (a residual), both
//! optional. Weights lie as [`crate::layout`] says. Quantised weights want activations that [`Quantize`] made;
//! float weights (F32, F16, BF16) read f32 rows.
//!
//! One launch may hold up to four weights of one kind over the same activations, each with an output of its own.
//!
//! **Numerics of quantised weights**, the same for every number of rows and every target. Blocks of 32 along k are
//! dealt in units (8 blocks; 4 for Q8_0) to 8 slices: unit u belongs to slice u mod 8. A slice has one f32 sum per
//! output, which starts at 0 and takes its blocks in ascending k. With `dot` the exact integer product of the block's
//! quants (`dot0`, `dot1`: of its halves), `xs` and `xsum` the scale and the scaled sum of the activation block, and
//! every product rounded where it stands:
//!
//! | kind | per block |
//! |---|---|
//! | Q8_0, Q4_0, Q5_0, IQ4_NL, MXFP4 | `sum = fma(dot, d * xs, sum)` |
//! | Q4_1, Q5_1 | `sum = fma(dot, d * xs, sum)`, then `sum = fma(m, xsum, sum)` |
//! | Q4_K, Q5_K | `sum = fma(dot, (d * sc) * xs, sum)`, then `sum = fma(-(dmin * mn), xsum, sum)` |
//! | Q6_K | `sum = fma(sc0 * dot0 + sc1 * dot1, d * xs, sum)`, whose first factor is an exact integer |
//!
//! **Rows in bf16** ([`bf16_bytes`]) are a class of their own: weights become bf16 as well, once, from the value that the file's
//! type stands for; products are exact, and are added up in f32 in ascending steps of 64 elements. How a step is added up is
//! the business of the tensor cores. A row has the same bits in any company, at any place, in launches for any number of
//! rows.
//!
//! Quants are centred where the type is (8 for Q4_0, 16 for Q5_0, 32 for Q6_K) and looked up where it has a table; for
//! MXFP4 they are twice the values and d is half the scale.
//!
//! The sums of the slices are added in ascending order: `((s0 + s1) + s2) + …`.
//!
//! **Numerics of float weights.** k is dealt in chunks of 32 vectors of 16 bytes to 4 slices: chunk c belongs to slice
//! c mod 4, vector j of it to lane j. A lane has one sum, which starts at 0 and takes its elements in ascending k by
//! `sum = fma(w, x, sum)`. The 32 sums of a slice are added by a butterfly (distances 16, 8, 4, 2, 1), the slices in
//! ascending order.
//!
//! Then, in both cases, the bias is added, then the residual. A result that is NaN is the quiet NaN `0x7fc00000`.

use super::{Field, Launch};
use crate::layout::WeightKind;

parameters! {
    /// Quantises f32 rows to blocks of 32.
    ///
    /// With `a` the largest magnitude of a block, `xs = a / 127` and `quant = round_ties_even(x * (127 / a))`; `xsum`
    /// is `xs` times the sum of the quants. A block with `a` below 2^-100 is all zero; one with a NaN or an infinity
    /// has quants 0 and NaN for `xs` and `xsum`.
    ///
    /// `out` has [`quantized_bytes`] bytes: for every 8 rows, for every pair of blocks, a record of 640 bytes: the
    /// quants (512), `xs` (64), `xsum` (64). Quants: 16 bytes for row r mod 8 and t in 0..4, at `64 r + 16 t`, of
    /// which bytes `8 b + 4 h + i` are element `16 h + 4 t + i` of block b of the pair. Scales: 16 bytes for t in
    /// 0..4, at `16 t`: f32 of row 2t and of row 2t + 1 of the first block, then of the second.
    pub struct Quantize {
        /// f32 rows.
        pub x: u64,
        /// Quantised rows, 128-byte aligned.
        pub out: u64,
        /// Live count of rows, or 0.
        pub live: u64,
        /// Largest number of rows.
        pub rows: u32,
        /// Elements of a row, a multiple of 32.
        pub k: u32,
        /// Elements from one row of x to the next, a multiple of 4; x itself is 16-byte aligned.
        pub x_row: u32,
        /// How many groups of 8 rows `out` has, which are [rows in bf16](bf16_bytes) then; 0 for blocks as described.
        pub bf16_groups: u32,
    }

    /// One weight of a launch.
    pub struct LinearSegment {
        /// The weight, in the layout of its kind, 256-byte aligned; 0 ends the list.
        pub weight: u64,
        /// f32 `[n]`, or 0.
        pub bias: u64,
        /// f32 rows that are added to the product, or 0; may be `out` itself.
        pub add: u64,
        /// f32 rows.
        pub out: u64,
        /// Rows of the weight.
        pub n: u32,
        /// Elements from one row of `out` to the next.
        pub out_row: u32,
        /// Elements from one row of `add` to the next.
        pub add_row: u32,
        /// GGUF id of the weight's kind.
        pub kind: u32,
    }

    /// A product. All segments have one kind.
    pub struct Linear {
        /// Quantised rows ([`Quantize`]), or f32 rows (16-byte aligned) for float weights.
        pub x: u64,
        /// Live count of rows, or 0.
        pub live: u64,
        /// First weight.
        pub segment0: LinearSegment,
        /// Second weight.
        pub segment1: LinearSegment,
        /// Third weight.
        pub segment2: LinearSegment,
        /// Fourth weight.
        pub segment3: LinearSegment,
        /// Elements of a row of x and of the weights.
        pub k: u32,
        /// Largest number of rows.
        pub rows: u32,
        /// Elements from one row of f32 x to the next, a multiple of 4; not read for quantised weights.
        pub x_row: u32,
        /// [`ORDER_FIRST`], [`ORDER_BESIDE`], both, or 0.
        pub order: u32,
        /// As in [`Quantize`]; 0 for float weights.
        pub bf16_groups: u32,
        /// 0.
        pub reserved: u32,
    }

    /// Rows of a table in the layout of its kind (`embed/1`).
    pub struct Embed {
        /// i32 ids.
        pub ids: u64,
        /// The table: rows of `width` elements in the layout of `kind`.
        pub table: u64,
        /// f32 rows of `width`, dense.
        pub out: u64,
        /// i32, becomes the number of live rows whose id is outside of the table; their rows are zeros.
        pub faults: u64,
        /// Live count of rows, or 0.
        pub live: u64,
        /// Largest number of rows.
        pub rows: u32,
        /// Elements of a row of the table.
        pub width: u32,
        /// Rows of the table.
        pub entries: u32,
        /// GGUF id of the table's kind.
        pub kind: u32,
    }
}

impl Field for LinearSegment {
    const C: &'static str = "KnLinearSegment";
}

/// `Linear::order`: the next launch reads the same quantised activations and is [`ORDER_BESIDE`] this one.
pub const ORDER_FIRST: u32 = 1;
/// `Linear::order`: the launch in front is [`ORDER_FIRST`]: where launches overlap, this one runs beside it, and waits for it
/// before it writes.
pub const ORDER_BESIDE: u32 = 2;

/// Threads of a group of all kernels here.
pub const LINEAR_THREADS: u32 = 256;
/// Rows that one launch of the narrow kernels of quantised weights takes at most; more go to the wide kernel.
pub const NARROW_ROWS: u32 = 16;
/// Rows of activations per group of the wide kernel.
pub const WIDE_ROWS: u32 = 64;
/// Rows of quantised weights per group of the wide kernel.
pub const WIDE_OUTPUTS: u32 = 128;
/// Rows of float weights per group.
pub const FLOAT_OUTPUTS: u32 = 8;
/// Rows of activations per group of the kernels of float weights.
pub const FLOAT_ROWS: u32 = 8;
/// Threads of a group of the kernels for rows in bf16: two warpgroups that multiply, and one that asks for rows.
pub const BF16_THREADS: u32 = 384;
/// Rows of weights per group of the kernels for rows in bf16.
pub const BF16_OUTPUTS: u32 = 128;
/// Groups of the kernels for rows in bf16 that the chip which they are made for has room for at once (H100, H200).
const BF16_GROUPS: u32 = 132;

/// True for kernels that multiply rows in bf16.
pub fn is_bf16(entry: &str) -> bool {
    entry.starts_with("linear_") && (entry.ends_with("_bf16_128") || entry.ends_with("_bf16_256"))
}

/// Bytes of dynamic shared memory that a kernel of CUDA's own products wants: `cuda/linear_bf16.cu`, or `cuda/linear_wide.cu`, of
/// which there are two forms with different numbers of threads; 0 for all others.
pub fn cuda_shared_bytes(entry: &str, threads: u32) -> u32 {
    if is_bf16(entry) {
        return 232_448;
    }
    match entry.starts_with("linear_") && entry.ends_with("_wide") {
        true if threads < LINEAR_THREADS => 115_712,
        true => 82_944,
        false => 0,
    }
}

/// Bytes of a record of quantised activations: a pair of blocks of 8 rows.
pub const RECORD_BYTES: u64 = 640;

/// Bytes of `rows` quantised rows of `k` elements (a multiple of 32).
pub const fn quantized_bytes(rows: u32, k: u32) -> u64 {
    rows.div_ceil(8) as u64 * (k / 32).div_ceil(2) as u64 * RECORD_BYTES
}

/// Bytes of 8 rows and 64 elements in bf16.
pub const BF16_GROUP_BYTES: u64 = 1024;

/// Bytes of `rows` rows of `k` elements (a multiple of 32) in bf16, nearest with ties to even.
///
/// For every 64 elements, for every 8 rows, there are 1024 bytes, of which row r mod 8 has 128. Elements `16 c .. 16 c + 16` of
/// the 64 are two chunks of 16 bytes, 2 c and 2 c + 1: the first has elements 0, 1, 4, 5, 8, 9, 12 and 13 of them, the second
/// the others. Chunk i is at `16 (i ^ r mod 8)`. That is the order in which a warpgroup reads them beside weights that lie for
/// int8 products.
pub const fn bf16_bytes(rows: u32, k: u32) -> u64 {
    rows.div_ceil(8) as u64 * k.div_ceil(64) as u64 * BF16_GROUP_BYTES
}

impl Linear {
    /// The segments in use.
    pub fn segments(&self) -> impl Iterator<Item = &LinearSegment> {
        [&self.segment0, &self.segment1, &self.segment2, &self.segment3]
            .into_iter()
            .take_while(|s| s.weight != 0)
    }

    /// The launches for rows in bf16, of 128 and of 256 rows a group: both give the same bits.
    pub fn bf16_launches(&self) -> [Launch; 2] {
        let kind = WeightKind::from_gguf_id(self.segment0.kind).unwrap_or(WeightKind::F32);
        debug_assert!(kind.is_quantized(), "{kind} has no products in bf16");
        let names = entries(kind).bf16;
        [(names[0], 128), (names[1], 256)].map(|(entry, rows)| {
            Launch::new(entry, [self.groups(BF16_OUTPUTS), self.rows.div_ceil(rows), 1], BF16_THREADS)
        })
    }

    /// Sums `ceil(n / outputs)` over the segments.
    fn groups(&self, outputs: u32) -> u32 {
        self.segments().map(|segment| segment.n.div_ceil(outputs)).sum()
    }
}

fn linear(p: &Linear) -> Launch {
    let kind = WeightKind::from_gguf_id(p.segment0.kind);
    debug_assert!(kind.is_some(), "GGUF type {} has no kernels", p.segment0.kind);
    let kind = kind.unwrap_or(WeightKind::F32);
    debug_assert!(p.segments().all(|s| s.kind == p.segment0.kind), "segments of one launch have one kind");
    let entries = entries(kind);
    if p.bf16_groups > 0 {
        // A group of 256 rows takes some 4/3 of the time of one of 128: what matters is how often all units get one.
        let turns = |launch: &Launch| (launch.groups[0] * launch.groups[1]).div_ceil(BF16_GROUPS);
        let [few, many] = p.bf16_launches();
        return if turns(&many) * 4 > turns(&few) * 3 { few } else { many };
    }
    let (entry, groups) = if kind.is_quantized() {
        match p.rows {
            0..=1 => (entries.rows_1, [p.groups(16), 1, 1]),
            2..=8 => (entries.rows_8, [p.groups(16), 1, 1]),
            9..=NARROW_ROWS => (entries.rows_16, [p.groups(16), 1, 1]),
            _ => (entries.wide, [p.groups(WIDE_OUTPUTS), p.rows.div_ceil(WIDE_ROWS), 1]),
        }
    } else {
        match p.rows {
            0..=1 => (entries.rows_1, [p.groups(FLOAT_OUTPUTS), 1, 1]),
            _ => (entries.rows_8, [p.groups(FLOAT_OUTPUTS), p.rows.div_ceil(FLOAT_ROWS), 1]),
        }
    };
    Launch::new(entry, groups, LINEAR_THREADS)
}

/// Names of the kernels of a kind.
pub(super) struct Entries {
    rows_1: &'static str,
    rows_8: &'static str,
    rows_16: &'static str,
    wide: &'static str,
    /// Those of rows in bf16, of 128 and of 256 a group; float kinds have none.
    bf16: [&'static str; 2],
    /// Those of 1, 8 and 16 rows that make their rows themselves; float kinds have none.
    pub led: [&'static str; 3],
    /// Those of experts, for tiles of 1, 8 and 32 rows; float kinds have the first two.
    pub experts: [&'static str; 3],
}

macro_rules! entries {
    ($($kind:ident $name:literal)*) => {
        pub(super) fn entries(kind: WeightKind) -> Entries {
            match kind {
                $(WeightKind::$kind => Entries {
                    rows_1: concat!("linear_", $name, "_r1"),
                    rows_8: concat!("linear_", $name, "_r8"),
                    rows_16: concat!("linear_", $name, "_r16"),
                    wide: concat!("linear_", $name, "_wide"),
                    bf16: [concat!("linear_", $name, "_bf16_128"), concat!("linear_", $name, "_bf16_256")],
                    led: [
                        concat!("linear_", $name, "_r1_led"),
                        concat!("linear_", $name, "_r8_led"),
                        concat!("linear_", $name, "_r16_led"),
                    ],
                    experts: [
                        concat!("experts_", $name, "_r1"),
                        concat!("experts_", $name, "_r8"),
                        concat!("experts_", $name, "_r32"),
                    ],
                },)*
            }
        }
        fn embed_entry(kind: WeightKind) -> &'static str {
            match kind {
                $(WeightKind::$kind => concat!("embed_", $name),)*
            }
        }
    };
}

entries! {
    F32 "f32"
    F16 "f16"
    Bf16 "bf16"
    Q8_0 "q8_0"
    Q4_0 "q4_0"
    Q4_1 "q4_1"
    Q5_0 "q5_0"
    Q5_1 "q5_1"
    Q4K "q4_k"
    Q5K "q5_k"
    Q6K "q6_k"
    Iq4Nl "iq4_nl"
    Mxfp4 "mxfp4"
}

launches! {
    // A block of 32 elements takes 8 threads.
    Quantize(p) => Launch::new("quantize", [(p.k / 32).div_ceil(32), p.rows, 1], LINEAR_THREADS);
    Linear(p) => linear(p);
    Embed(p) => {
        let kind = WeightKind::from_gguf_id(p.kind);
        debug_assert!(kind.is_some(), "GGUF type {} has no kernels", p.kind);
        let entry = embed_entry(kind.unwrap_or(WeightKind::F32));
        Launch::new(entry, [p.width.div_ceil(LINEAR_THREADS), p.rows, 1], LINEAR_THREADS)
    };
}
