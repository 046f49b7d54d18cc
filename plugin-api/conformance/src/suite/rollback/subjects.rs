//! What is rolled back: a convolution or a delta rule, in each of its forms.

use crate::block::ParameterBlock;
use crate::random::Random;
use crate::suite::samples::{MAX_SEQUENCES, Rows};
use paceline_plugin_api::graph::{Attribute, DType, Graph, StateKind, ValueId};

/// Slots of the states here; no script uses the first.
pub const SLOTS: u32 = 4;

/// How a form goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Not at all.
    Plain,
    /// To one of so many planes.
    Planes(u32),
    /// By replaying some of so many records, in front of the rows.
    Records(u32),
    /// A replay alone, without rows.
    Settle(u32),
}

/// An operation with its sizes.
#[derive(Clone, Copy, Debug)]
pub enum Subject {
    /// Channels and taps.
    Conv(u32, u32),
    /// Key heads, value heads, lengths of a key and of a value.
    Delta(u32, u32, u32, u32),
}

impl Subject {
    /// The operation.
    pub fn operation(self) -> &'static str {
        match self {
            Self::Conv(..) => "conv_causal",
            Self::Delta(..) => "gated_delta_net",
        }
    }

    /// For the names of cases.
    pub fn name(self) -> String {
        match self {
            Self::Conv(channels, taps) => format!("rollback of {channels} channels, {taps} taps"),
            Self::Delta(key_heads, heads, keys, values) => {
                format!("rollback of {key_heads} and {heads} heads, state {keys} x {values}")
            }
        }
    }

    /// The graph of a form. Its last node is the operation itself; its first state is what the operation goes on from.
    pub fn graph(self, form: Form, max_rows: u32) -> Graph {
        let mut g = Rows::new(max_rows);
        let sequences = g.sequences();
        let count = g.builder.parameter("sequence_count", DType::I32, &[1], None);
        let rollback = g.builder.parameter("rollback", DType::I32, &[MAX_SEQUENCES, 3], Some(count));
        match self {
            Self::Conv(channels, taps) => conv(&mut g, [channels, taps], form, sequences, rollback),
            Self::Delta(key_heads, heads, keys, values) => {
                delta(&mut g, [key_heads, heads, keys, values], form, sequences, rollback);
            }
        }
        g.builder.finish()
    }

    /// Writes a row of all inputs.
    pub fn fill_row(self, block: &mut ParameterBlock<'_>, row: usize, random: &mut Random) {
        let mut set = |name: &str, values: Vec<f32>| {
            block.set_floats(name, row * values.len(), &values);
        };
        match self {
            Self::Conv(channels, _) => set("x", random.floats(channels as usize, 1.0)),
            Self::Delta(key_heads, heads, keys, values) => {
                let key_deviation = 0.8 / (keys as f32).sqrt();
                set("q", random.floats((key_heads * keys) as usize, 1.0));
                set("k", random.floats((key_heads * keys) as usize, key_deviation));
                set("v", random.floats((heads * values) as usize, 1.0));
                // Gates that forget everything or nothing, updates that do nothing or everything.
                set("decay", gates(random, heads, [-200.0, 0.0], -1.0));
                set("beta", gates(random, heads, [0.0, 1.0], 1.0));
            }
        }
    }
}

/// One number per head: one of the extremes, or between 0 and `far`.
fn gates(random: &mut Random, heads: u32, extremes: [f32; 2], far: f32) -> Vec<f32> {
    let gate = |random: &mut Random| match random.below(8) {
        0 => extremes[0],
        1 => extremes[1],
        _ => random.unit() as f32 * far,
    };
    (0..heads).map(|_| gate(random)).collect()
}

fn conv(g: &mut Rows, [channels, taps]: [u32; 2], form: Form, sequences: ValueId, rollback: ValueId) {
    let x = g.floats("x", &[channels]);
    let w = g.builder.weight("w", DType::F32, &[channels, taps]);
    let planes = if let Form::Planes(planes) = form { planes } else { 1 };
    let dims = [SLOTS * planes, taps - 1, channels];
    let state = g.builder.state("window", StateKind::PerSlot, DType::F32, &dims);
    let out = g.builder.conv_causal_silu_planes(x, w, state, sequences, rollback, planes);
    g.out(out);
}

fn delta(
    g: &mut Rows,
    [key_heads, heads, keys, values]: [u32; 4],
    form: Form,
    sequences: ValueId,
    rollback: ValueId,
) {
    let planes = if let Form::Planes(planes) = form { planes } else { 1 };
    let dims = [SLOTS * planes, heads, keys, values];
    let state = g.builder.state("state", StateKind::PerSlot, DType::F32, &dims);
    let records = match form {
        Form::Records(count) | Form::Settle(count) => {
            let dims = [SLOTS * 2, count, heads * values + key_heads * keys + heads];
            let records = g.builder.state("records", StateKind::PerSlot, DType::F32, &dims);
            g.builder.gated_delta_net_replay(state, records, sequences, rollback);
            Some(records)
        }
        _ => None,
    };
    if let Form::Settle(_) = form {
        return;
    }
    let (q, k) = (g.floats("q", &[key_heads, keys]), g.floats("k", &[key_heads, keys]));
    let v = g.floats("v", &[heads, values]);
    let inputs = [q, k, v, g.floats("decay", &[heads]), g.floats("beta", &[heads])];
    let scale = 1.0 / (keys as f32).sqrt();
    let out = match (form, records) {
        (Form::Planes(planes), _) => {
            g.builder.gated_delta_net_snapshots(inputs, state, sequences, rollback, planes, scale)
        }
        (_, Some(records)) => {
            g.builder.gated_delta_net_records(inputs, state, sequences, records, rollback, scale)
        }
        _ => {
            let [q, k, v, decay, beta] = inputs;
            let attributes = [("scale", Attribute::Float(f64::from(scale)))];
            g.node("gated_delta_net", &[q, k, v, decay, beta, state, sequences], &attributes)
        }
    };
    g.out(out);
}
