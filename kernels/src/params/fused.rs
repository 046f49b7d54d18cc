//! What stands before a product with quantised weights, with the quantisation of its result: the same bits as the
//! launches that it replaces.

use super::norms::SHORT;
use super::{Launch, View};

parameters! {
    /// rms_norm of x, or of x + y, and [`Quantize`](super::linear::Quantize) of the result. Rows have one item. All
    /// addresses are multiples of 16 bytes, all strides of rows multiples of 4.
    pub struct NormQuantize {
        /// Operand `[rows][width]`.
        pub x: View,
        /// What is added to it, or address 0.
        pub y: View,
        /// x + y, if there is y; may be `x` or `y`.
        pub sum: View,
        /// The norm in f32, or address 0 if nobody wants it.
        pub out: View,
        /// Factors `[width]`, or 0.
        pub weight: u64,
        /// Quantised rows.
        pub quantized: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Elements of a row, a multiple of 32.
        pub width: u32,
        /// Added to the mean.
        pub epsilon: f32,
        /// 1 if no launch writes the factors, so that they can be asked for before those in front of this one have ended.
        pub early: u32,
        /// As in [`Quantize`](super::linear::Quantize).
        pub bf16_groups: u32,
        /// 0.
        pub reserved: u32,
    }

    /// rms_norm of the items of a row, perhaps times silu(gate), and [`Quantize`](super::linear::Quantize) of the row of
    /// all of them. All addresses are multiples of 16 bytes, all strides multiples of 4.
    pub struct ItemsNormQuantize {
        /// Operand `[rows][items][width]`.
        pub x: View,
        /// What silu is applied to, likewise; or address 0.
        pub gate: View,
        /// Factors `[width]`, or 0.
        pub weight: u64,
        /// Quantised rows of items · width elements.
        pub quantized: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Items of a row.
        pub items: u32,
        /// Elements of an item, a multiple of 32 and at most 256; items · width is a multiple of 64.
        pub width: u32,
        /// Added to the mean.
        pub epsilon: f32,
        /// 1 if no launch writes the factors.
        pub early: u32,
        /// As in [`Quantize`](super::linear::Quantize).
        pub bf16_groups: u32,
    }

    /// [`AttentionJoin`](super::cache::AttentionJoin), perhaps times sigmoid(gate), and
    /// [`Quantize`](super::linear::Quantize) of the row of all heads.
    pub struct JoinQuantize {
        /// What sigmoid is applied to, `[rows][items: heads][width]`, or address 0. Aligned as for [`NormQuantize`].
        pub gate: View,
        /// What [`AttentionParts`](super::cache::AttentionParts) left.
        pub scratch: u64,
        /// What [`RowSpans`](super::cache::RowSpans) left; read before the launches in front of this one have ended, so a launch
        /// between must have waited for it.
        pub spans: u64,
        /// Sinks f32 `[heads]`, or 0.
        pub sinks: u64,
        /// Quantised rows of heads · width elements.
        pub quantized: u64,
        /// Address of the live count of rows.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Query heads.
        pub heads: u32,
        /// Elements of a head, a multiple of 32; heads · width is a multiple of 64.
        pub width: u32,
        /// Columns of the block tables.
        pub table_columns: u32,
        /// As in [`AttentionParts`](super::cache::AttentionParts).
        pub chunk_blocks: u32,
        /// As in [`Quantize`](super::linear::Quantize).
        pub bf16_groups: u32,
    }

    /// f(gate) · up and [`Quantize`](super::linear::Quantize) of it. Rows have one item; alignment as for
    /// [`NormQuantize`].
    pub struct GluQuantize {
        /// What the function is applied to, `[rows][width]`.
        pub gate: View,
        /// Factor.
        pub up: View,
        /// Quantised rows.
        pub quantized: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Elements of a row, a multiple of 32.
        pub width: u32,
        /// One of [`activation`](super::elementwise::activation).
        pub kind: u32,
        /// As in [`Quantize`](super::linear::Quantize).
        pub bf16_groups: u32,
    }
}

launches! {
    NormQuantize(p) => match p.width <= SHORT {
        true => Launch::new("norm_quantize_short", [1, p.rows.max(1), 1], 256),
        false => Launch::new("norm_quantize_long", [1, p.rows.max(1), 1], 512),
    };
    ItemsNormQuantize(p) => Launch::new("items_norm_quantize", [p.items.div_ceil(8).max(1), p.rows.max(1), 1], 256);
    JoinQuantize(p) => Launch::new("join_quantize", [p.heads.max(1), p.rows.max(1), 1], 256);
    // A block of 32 elements takes 8 threads.
    GluQuantize(p) => Launch::new("glu_quantize", [(p.width / 32).div_ceil(32).max(1), p.rows.max(1), 1], 256);
}
