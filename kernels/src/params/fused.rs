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
        /// 0.
        pub reserved: u32,
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
        /// 0.
        pub reserved: u32,
    }
}

launches! {
    NormQuantize(p) => match p.width <= SHORT {
        true => Launch::new("norm_quantize_short", [1, p.rows.max(1), 1], 256),
        false => Launch::new("norm_quantize_long", [1, p.rows.max(1), 1], 512),
    };
    // A block of 32 elements takes 8 threads.
    GluQuantize(p) => Launch::new("glu_quantize", [(p.width / 32).div_ceil(32).max(1), p.rows.max(1), 1], 256);
}
