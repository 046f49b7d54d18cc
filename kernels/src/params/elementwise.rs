//! Operations on single elements. `x`, `y` and `out` are views `[rows][items][width]`; `out` may be `x` itself.

use super::{Launch, View};

/// `BinaryOperation::kind`: x + y.
pub const ADD: u32 = 0;
/// `BinaryOperation::kind`: x · y.
pub const MUL: u32 = 1;

/// Kinds of [`Activation`] and [`Glu`].
pub mod activation {
    /// x · sigmoid(x).
    pub const SILU: u32 = 0;
    /// x · Φ(x).
    pub const GELU: u32 = 1;
    /// The tanh form of it.
    pub const GELU_TANH: u32 = 2;
    /// 1 / (1 + e⁻ˣ).
    pub const SIGMOID: u32 = 3;
    /// ln(1 + eˣ).
    pub const SOFTPLUS: u32 = 4;
    /// Hyperbolic tangent.
    pub const TANH: u32 = 5;
    /// eˣ.
    pub const EXP: u32 = 6;

    /// The number of a kind of `activation/1` or `glu/1` by its name in a graph.
    pub fn from_name(name: &str) -> Option<u32> {
        let names = ["silu", "gelu", "gelu_tanh", "sigmoid", "softplus", "tanh", "exp"];
        names.iter().position(|known| *known == name).map(|index| index as u32)
    }
}

parameters! {
    /// out = x + y or x · y. To repeat y over rows or items, set its strides to 0.
    pub struct Binary {
        /// First operand.
        pub x: View,
        /// Second operand.
        pub y: View,
        /// Result.
        pub out: View,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Items of a row.
        pub items: u32,
        /// Elements of an item.
        pub width: u32,
        /// [`ADD`] or [`MUL`].
        pub kind: u32,
    }

    /// out = x · factor.
    pub struct Scale {
        /// Operand.
        pub x: View,
        /// Result.
        pub out: View,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Items of a row.
        pub items: u32,
        /// Elements of an item.
        pub width: u32,
        /// Factor.
        pub factor: f32,
    }

    /// out = x: slices, concatenations (one launch for each input) and reshapes that are no views.
    pub struct CopyItems {
        /// Operand.
        pub x: View,
        /// Result.
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

    /// out = f(x), or c · f(x/c) with a softcap c that is not 0.
    pub struct Activation {
        /// Operand.
        pub x: View,
        /// Result.
        pub out: View,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Items of a row.
        pub items: u32,
        /// Elements of an item.
        pub width: u32,
        /// One of [`activation`].
        pub kind: u32,
        /// Softcap, or 0.
        pub softcap: f32,
        /// 0.
        pub reserved: u32,
    }

    /// out = f(gate) · up. With `sigmoid` it is also `mul(up, activation(gate))`, to the bit.
    pub struct Glu {
        /// What the function is applied to.
        pub gate: View,
        /// Factor.
        pub up: View,
        /// Result; may be `gate` or `up`.
        pub out: View,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Items of a row.
        pub items: u32,
        /// Elements of an item.
        pub width: u32,
        /// One of [`activation`].
        pub kind: u32,
    }

    /// g = softplus(alpha + dt) · a and beta = sigmoid(beta): the decays and strengths of a Gated DeltaNet layer in one
    /// launch, with the bits of `add`, `activation`, `mul` and `activation`.
    pub struct DeltaGates {
        /// alpha `[rows][heads]`: the view's items are heads of one element, `item` is 1.
        pub alpha: View,
        /// beta before the sigmoid.
        pub beta: View,
        /// Logarithms of decays.
        pub g_out: View,
        /// Strengths.
        pub beta_out: View,
        /// dt `[heads]`.
        pub dt: u64,
        /// a `[heads]`.
        pub a: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Heads.
        pub heads: u32,
    }
}

/// Threads of a group.
const THREADS: u32 = 256;
/// Elements of a thread.
const PER_THREAD: u32 = 4;

fn over_elements(entry: &'static str, rows: u32, items: u32, width: u32) -> Launch {
    // A thread has four neighbours where an item is whole fours, else single elements in strides.
    let row = items.saturating_mul(width);
    Launch::new(entry, [row.div_ceil(THREADS * PER_THREAD).max(1), rows.max(1), 1], THREADS)
}

launches! {
    Binary(p) => over_elements("binary", p.rows, p.items, p.width);
    Scale(p) => over_elements("scale", p.rows, p.items, p.width);
    CopyItems(p) => over_elements("copy", p.rows, p.items, p.width);
    Activation(p) => over_elements("activation", p.rows, p.items, p.width);
    Glu(p) => over_elements("glu", p.rows, p.items, p.width);
    DeltaGates(p) => over_elements("delta_gates", p.rows, p.heads, 1);
}
