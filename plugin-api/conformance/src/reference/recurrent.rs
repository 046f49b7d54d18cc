//! `conv_causal/1` and `gated_delta_net/1`: operations with a state per sequence slot.

use super::parameters::{Sequence, slot_sequences};
use super::run::{Run, read_float};
use super::special::silu;
use paceline_plugin_api::graph::ops::Attributes;
use paceline_plugin_api::graph::{Node, ValueId};

/// The state of a sequence before the run: zeros at its start, whatever the slot holds.
fn read_slot(run: &Run<'_>, state: ValueId, sequence: Sequence) -> Vec<f32> {
    let elements = run.value(state).shape.row_elements() as usize;
    if sequence.length == 0 {
        return vec![0.0; elements];
    }
    let at = sequence.slot * elements * 4;
    run.state(state)[at..at + elements * 4].chunks_exact(4).map(read_float).collect()
}

fn write_slot(run: &mut Run<'_>, state: ValueId, slot: usize, values: &[f32]) {
    let at = slot * values.len() * 4;
    let slot = &mut run.state_mut(state)[at..at + values.len() * 4];
    for (bytes, value) in slot.chunks_exact_mut(4).zip(values) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

/// A convolution over the rows of each sequence, channel by channel: y = Σ w\[c, j\] · x(t - (k-1) + j). The state holds
/// the last k-1 inputs, the oldest first.
pub fn conv_causal(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let (x_id, weight, state) = (node.inputs[0], node.inputs[1], node.inputs[2]);
    let [channels, taps] = run.dims(weight);
    let with_silu = Attributes::of(node).text("activation") == "silu";
    let (x, weight) = (run.floats(x_id).into_owned(), run.floats(weight).into_owned());
    let mut output = vec![0.0; x.len()];
    for sequence in slot_sequences(run, node, 3, state)?.into_iter().filter(|s| s.rows > 0) {
        let mut inputs = read_slot(run, state, sequence);
        let rows = sequence.first * channels..(sequence.first + sequence.rows) * channels;
        inputs.extend_from_slice(&x[rows.clone()]);
        for (t, y) in output[rows].chunks_exact_mut(channels).enumerate() {
            for (channel, y) in y.iter_mut().enumerate() {
                let sum = (0..taps)
                    .map(|j| {
                        f64::from(weight[channel * taps + j])
                            * f64::from(inputs[(t + j) * channels + channel])
                    })
                    .sum();
                *y = if with_silu { silu(sum) } else { sum } as f32;
            }
        }
        write_slot(run, state, sequence.slot, &inputs[sequence.rows * channels..]);
    }
    run.set_floats(node.outputs[0], output);
    Ok(())
}

/// The gated delta rule, row by row in each sequence. Value head h uses key head h mod Hk. With a state S\[d, e\] per
/// value head: t = e^g · S; p = Sᵀk on t; delta = beta · (v - p); S = t + k·deltaᵀ; o = scale · Sᵀq. The state is
/// rounded to f32 after the decay and after the update.
pub fn gated_delta_net(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let [q, k, v, g, beta] = std::array::from_fn(|i| run.floats(node.inputs[i]).into_owned());
    let state = node.inputs[5];
    let [_, heads, keys, values] = run.dims(state);
    let key_heads = run.dims::<3>(node.inputs[0])[1];
    let scale = Attributes::of(node).float("scale");
    let mut output = vec![0.0; run.elements(node.outputs[0])];
    for sequence in slot_sequences(run, node, 6, state)?.into_iter().filter(|s| s.rows > 0) {
        let mut matrices = read_slot(run, state, sequence);
        for row in sequence.first..sequence.first + sequence.rows {
            for (head, matrix) in matrices.chunks_exact_mut(keys * values).enumerate() {
                let key_at = (row * key_heads + head % key_heads) * keys;
                let at = row * heads + head;
                step(
                    matrix,
                    &q[key_at..key_at + keys],
                    &k[key_at..key_at + keys],
                    &v[at * values..(at + 1) * values],
                    [g[at], beta[at]],
                    scale,
                    &mut output[at * values..(at + 1) * values],
                );
            }
        }
        write_slot(run, state, sequence.slot, &matrices);
    }
    run.set_floats(node.outputs[0], output);
    Ok(())
}

/// One row of one head.
fn step(
    matrix: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    [g, beta]: [f32; 2],
    scale: f64,
    out: &mut [f32],
) {
    let columns = v.len();
    let decay = f64::from(g).exp();
    for s in matrix.iter_mut() {
        *s = (decay * f64::from(*s)) as f32;
    }
    let product = |matrix: &[f32], x: &[f32], j: usize| -> f64 {
        x.iter().enumerate().map(|(i, &x)| f64::from(x) * f64::from(matrix[i * columns + j])).sum()
    };
    for (j, out) in out.iter_mut().enumerate() {
        let delta = f64::from(beta) * (f64::from(v[j]) - product(matrix, k, j));
        for (i, &k) in k.iter().enumerate() {
            let s = &mut matrix[i * columns + j];
            *s = (f64::from(k) * delta + f64::from(*s)) as f32;
        }
        *out = (scale * product(matrix, q, j)) as f32;
    }
}
