//! Operations over the last axis.

use super::{Launch, View};

parameters! {
    /// out = x · 1/√(mean x² + epsilon) · weight · silu(gate), each item by itself.
    pub struct RmsNorm {
        /// Operand.
        pub x: View,
        /// Gate; address 0 without.
        pub gate: View,
        /// Result; may be `x`.
        pub out: View,
        /// Factors `[width]`, or 0.
        pub weight: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Items of a row.
        pub items: u32,
        /// Elements of an item.
        pub width: u32,
        /// Added to the mean.
        pub epsilon: f32,
    }

    /// sum = x + y; out = sum · 1/√(mean sum² + epsilon) · weight. The bits of `binary` and `rms_norm`. A row is one item.
    pub struct AddRmsNorm {
        /// First operand `[rows][width]`; `item` is not used here and below.
        pub x: View,
        /// Second operand.
        pub y: View,
        /// x + y; may be `x` or `y`.
        pub sum: View,
        /// The norm of it.
        pub out: View,
        /// Factors `[width]`, or 0.
        pub weight: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Elements of a row.
        pub width: u32,
        /// Added to the mean.
        pub epsilon: f32,
        /// 0.
        pub reserved: u32,
    }

    /// out = x · 1/√(Σ x² + epsilon), each item by itself.
    pub struct L2Norm {
        /// Operand.
        pub x: View,
        /// Result; may be `x`.
        pub out: View,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Items of a row.
        pub items: u32,
        /// Elements of an item.
        pub width: u32,
        /// Added to the sum.
        pub epsilon: f32,
    }

    /// out = exp(x - max x) / Σ exp(x - max x), each item by itself. An item with NaN or +inf, or with nothing above -inf,
    /// gives NaN.
    pub struct Softmax {
        /// Operand.
        pub x: View,
        /// Result; may be `x`.
        pub out: View,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Items of a row.
        pub items: u32,
        /// Elements of an item.
        pub width: u32,
        /// 0.
        pub reserved: u32,
    }
}

/// Widest item that 32 lanes work on; wider ones have a group each.
pub const SHORT: u32 = 1024;

fn over_items(short: &'static str, long: &'static str, rows: u32, items: u32, width: u32) -> Launch {
    match width <= SHORT {
        true => Launch::new(short, [items.div_ceil(8).max(1), rows.max(1), 1], 256),
        false => Launch::new(long, [items.max(1), rows.max(1), 1], 512),
    }
}

launches! {
    RmsNorm(p) => over_items("rms_norm_short", "rms_norm_long", p.rows, p.items, p.width);
    L2Norm(p) => over_items("l2_norm_short", "l2_norm_long", p.rows, p.items, p.width);
    Softmax(p) => over_items("softmax_short", "softmax_long", p.rows, p.items, p.width);
    AddRmsNorm(p) => over_items("add_rms_norm_short", "add_rms_norm_long", p.rows, 1, p.width);
}
