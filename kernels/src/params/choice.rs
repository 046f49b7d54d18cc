//! Choices among logits.

use super::Launch;

parameters! {
    /// First part of `argmax/1`: the best of each piece of a row.
    pub struct ArgmaxParts {
        /// Logits `[rows][width]`, dense.
        pub x: u64,
        /// Scratch of [`ArgmaxParts::scratch_bytes`].
        pub scratch: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Elements of a row.
        pub width: u32,
    }

    /// Between the two parts, for `draw/1`: the best of each piece of a row with the row's noise added.
    pub struct DrawParts {
        /// Logits `[rows][width]`, dense.
        pub x: u64,
        /// What each row is drawn with, i32 `[rows][4]`.
        pub noise: u64,
        /// Tokens of the columns, i32 `[width]`, or 0 where they are their indices.
        pub tokens: u64,
        /// What [`ArgmaxParts`] left.
        pub largest: u64,
        /// Scratch as that of [`ArgmaxParts`], for [`ArgmaxJoin`].
        pub scratch: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Elements of a row.
        pub width: u32,
    }

    /// Second part: ids\[r\] is the index of the largest element, the lowest of equal ones, -1 if the row has NaN; faults
    /// becomes the number of rows with NaN. With `values` it is `top_k/1` of one element instead: NaN comes after all
    /// numbers, and is no fault.
    pub struct ArgmaxJoin {
        /// What [`ArgmaxParts`] left.
        pub scratch: u64,
        /// Indices i32 `[rows]`.
        pub ids: u64,
        /// Number of rows with NaN, i32, which is written and need not be zero before; or 0.
        pub faults: u64,
        /// Largest elements f32 `[rows]`, or 0.
        pub values: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Elements of a row of logits.
        pub width: u32,
    }

    /// The k largest elements of each row and their indices: descending, NaN last, the lowest index first among equals.
    pub struct TopK {
        /// Logits `[rows][width]`, dense.
        pub x: u64,
        /// Indices i32 `[rows][k]`.
        pub ids: u64,
        /// Values f32 `[rows][k]`.
        pub values: u64,
        /// Scratch of [`TopK::scratch_bytes`].
        pub scratch: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Elements of a row, at least k.
        pub width: u32,
        /// How many are taken.
        pub k: u32,
        /// 0.
        pub reserved: u32,
    }
}

/// Logits of a piece.
pub const ARGMAX_PIECE: u32 = 4096;

impl ArgmaxParts {
    /// Bytes of scratch; it holds nothing between runs.
    pub fn scratch_bytes(rows: u32, width: u32) -> u64 {
        u64::from(rows) * u64::from(width.div_ceil(ARGMAX_PIECE)) * 16
    }
}

impl TopK {
    /// Bytes of scratch; it holds nothing between runs.
    pub fn scratch_bytes(rows: u32, k: u32) -> u64 {
        u64::from(rows) * u64::from(k) * 8
    }
}

launches! {
    ArgmaxParts(p) => Launch::new(
        "argmax_parts", [p.width.div_ceil(ARGMAX_PIECE).max(1), p.rows.max(1), 1], 256
    );
    DrawParts(p) => Launch::new(
        "draw_parts", [p.width.div_ceil(ARGMAX_PIECE).max(1), p.rows.max(1), 1], 256
    );
    ArgmaxJoin(_p) => Launch::new("argmax_join", [1, 1, 1], 512);
    TopK(p) => Launch::new("top_k", [1, p.rows.max(1), 1], 512);
}
