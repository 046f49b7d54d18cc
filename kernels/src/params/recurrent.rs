//! Kernels with a state per sequence. Sequences are i32 `[max_sequences][4]`: first row, rows, length before the run, slot;
//! rollbacks i32 `[max_sequences][3]`: plane, bank, keep.

use super::{Launch, View};

/// `GatedDeltaNet::mode`: the state is updated in place.
pub const PLAIN: u32 = 0;
/// `GatedDeltaNet::mode`: a plane for the state after each of the last rows.
pub const SNAPSHOTS: u32 = 1;
/// `GatedDeltaNet::mode`: records of the last rows.
pub const RECORDS: u32 = 2;

/// Most taps of a convolution.
pub const MAX_TAPS: u32 = 16;
/// Longest key of the delta rule.
pub const MAX_KEY: u32 = 256;

parameters! {
    /// out\[t\]\[c\] = Σ weight\[c\]\[i\] · x\[t - taps + 1 + i\]\[c\], taps ascending, fused; then silu if asked. The state holds
    /// windows `[slots · planes][taps - 1][channels]`, the oldest input first.
    pub struct ConvCausal {
        /// Inputs `[rows][channels]`; `item` is not used.
        pub x: View,
        /// Outputs, likewise; not `x`.
        pub out: View,
        /// Weights f32 `[channels][taps]`.
        pub weight: u64,
        /// Windows.
        pub state: u64,
        /// Sequences.
        pub sequences: u64,
        /// Address of the live count of sequences.
        pub live_sequences: u64,
        /// Rollbacks, or 0.
        pub rollback: u64,
        /// Sequences.
        pub max_sequences: u32,
        /// Channels.
        pub channels: u32,
        /// Taps, 2 to [`MAX_TAPS`].
        pub taps: u32,
        /// Planes of a slot.
        pub planes: u32,
        /// Slots.
        pub slots: u32,
        /// 1 if silu follows.
        pub silu: u32,
        /// Rows, all sequences together; it decides no bits.
        pub rows: u32,
        /// 1 if no launch in front of this one writes the state, the weights, the sequences or the rollbacks, so that they can be
        /// read before those have ended.
        pub early: u32,
    }

    /// The gated delta rule over the rows of each sequence in order, with i over the key and j over the value:
    /// t = round(exp(g) · S), p_j = Σ k_i t_ij, delta_j = beta (v_j - p_j), S_ij = fma(k_i, delta_j, t_ij),
    /// out_j = scale · Σ q_i S_ij. Sums over i: sixteen partial sums of i mod 16, ascending and fused, then a tree.
    pub struct GatedDeltaNet {
        /// Queries `[rows][items: key heads][key_width]`.
        pub q: View,
        /// Keys, likewise.
        pub k: View,
        /// Values `[rows][items: value heads][value_width]`.
        pub v: View,
        /// Logarithms of decays `[rows][value heads]`: items of one element. With `dt`, what they are made of:
        /// softplus(g + dt) · a, as [`DeltaGates`](super::elementwise::DeltaGates) makes it.
        pub g: View,
        /// Strengths, likewise; with `dt`, sigmoid of them.
        pub beta: View,
        /// Outputs `[rows][items: value heads][value_width]`.
        pub out: View,
        /// State f32 `[slots · planes][value_heads][key_width][value_width]`.
        pub state: u64,
        /// Records f32 `[slots · 2][records_count][records_width]`, or 0.
        pub records: u64,
        /// Sequences.
        pub sequences: u64,
        /// Address of the live count of sequences.
        pub live_sequences: u64,
        /// Rollbacks, or 0.
        pub rollback: u64,
        /// What is added to `g`, f32 `[value_heads]`, or 0.
        pub dt: u64,
        /// Factors of decays, f32 `[value_heads]`; read with `dt` only.
        pub a: u64,
        /// Sequences.
        pub max_sequences: u32,
        /// Key heads; value head h uses key head h mod key_heads.
        pub key_heads: u32,
        /// Value heads.
        pub value_heads: u32,
        /// Elements of a key, at most [`MAX_KEY`].
        pub key_width: u32,
        /// Elements of a value.
        pub value_width: u32,
        /// Slots.
        pub slots: u32,
        /// Planes of a slot; 1 but for [`SNAPSHOTS`].
        pub planes: u32,
        /// [`PLAIN`], [`SNAPSHOTS`] or [`RECORDS`].
        pub mode: u32,
        /// Records of a bank.
        pub records_count: u32,
        /// Factor of the output.
        pub scale: f32,
        /// 1: q and k are normed first, as by `l2_norm` and to its bits.
        pub normalize: u32,
        /// Epsilon of that norm.
        pub epsilon: f32,
        /// 1 if no launch in front of this one writes the state, the sequences or the rollbacks, so that they can be read
        /// before those have ended.
        pub early: u32,
        /// 0.
        pub reserved: u32,
    }

    /// Applies the first `keep` records of each sequence's bank to its state, to the bits of [`GatedDeltaNet`].
    pub struct DeltaReplay {
        /// State f32 `[slots][value_heads][key_width][value_width]`.
        pub state: u64,
        /// Records.
        pub records: u64,
        /// Sequences.
        pub sequences: u64,
        /// Address of the live count of sequences.
        pub live_sequences: u64,
        /// Rollbacks.
        pub rollback: u64,
        /// Sequences.
        pub max_sequences: u32,
        /// Key heads.
        pub key_heads: u32,
        /// Value heads.
        pub value_heads: u32,
        /// Elements of a key, at most [`MAX_KEY`].
        pub key_width: u32,
        /// Elements of a value.
        pub value_width: u32,
        /// Slots.
        pub slots: u32,
        /// Records of a bank.
        pub records_count: u32,
        /// 0.
        pub reserved: u32,
    }
}

/// Rows up to which a thread convolves all of a channel.
const FEW_ROWS: u32 = 16;

fn over_columns(entry: &'static str, value_heads: u32, value_width: u32, sequences: u32) -> Launch {
    // A group has 32 columns of one head, a column four threads.
    Launch::new(entry, [value_width.div_ceil(32).max(1), value_heads.max(1), sequences.max(1)], 128)
}

/// The kernel for keys of this width: the state's columns stay in registers, whose number has to be known.
fn by_key(names: [&'static str; 3], key_width: u32) -> &'static str {
    names[if key_width <= 64 {
        0
    } else if key_width <= 128 {
        1
    } else {
        2
    }]
}

launches! {
    ConvCausal(p) => match p.rows <= FEW_ROWS {
        true => Launch::new("conv_causal", [p.channels.div_ceil(128).max(1), p.max_sequences.max(1), 1], 128),
        false => Launch::new("conv_causal_rows", [p.channels.div_ceil(32).max(1), p.max_sequences.max(1), 1], 256),
    };
    GatedDeltaNet(p) => over_columns(
        by_key(["gated_delta_net_64", "gated_delta_net_128", "gated_delta_net_256"], p.key_width),
        p.value_heads, p.value_width, p.max_sequences
    );
    DeltaReplay(p) => over_columns(
        by_key(["delta_replay_64", "delta_replay_128", "delta_replay_256"], p.key_width),
        p.value_heads, p.value_width, p.max_sequences
    );
}
