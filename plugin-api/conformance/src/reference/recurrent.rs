//! `conv_causal/1`, `gated_delta_net/1` and `gated_delta_net_replay/1`: operations with a state per sequence slot.

use super::parameters::{conv_sequences, delta_sequences, replayed};
use super::run::{Run, read_float};
use super::special::silu;
use paceline_plugin_api::graph::ops::Attributes;
use paceline_plugin_api::graph::{Node, ValueId};

/// Entry `entry` of a state, or zeros at the start of a sequence, whatever the entry holds.
fn read_entry(run: &Run<'_>, state: ValueId, entry: usize, length: usize) -> Vec<f32> {
    let elements = run.value(state).shape.row_elements() as usize;
    if length == 0 {
        return vec![0.0; elements];
    }
    let at = entry * elements * 4;
    run.state(state)[at..at + elements * 4].chunks_exact(4).map(read_float).collect()
}

/// Writes elements of a state from element `first` on.
fn write(run: &mut Run<'_>, state: ValueId, first: usize, values: &[f32]) {
    let place = &mut run.state_mut(state)[first * 4..(first + values.len()) * 4];
    for (bytes, value) in place.chunks_exact_mut(4).zip(values) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

fn write_entry(run: &mut Run<'_>, state: ValueId, entry: usize, values: &[f32]) {
    write(run, state, entry * values.len(), values);
}

/// The planes of one slot.
#[derive(Clone, Copy)]
struct Planes {
    count: usize,
    slot: usize,
    /// Plane of the state before the run.
    first: usize,
    rows: usize,
}

impl Planes {
    /// Entry of the state before the run.
    fn before(self) -> usize {
        self.slot * self.count + self.first
    }

    /// Entry of the state after row `row`; none for a row that is too long before the last.
    fn after(self, row: usize) -> Option<usize> {
        let is_kept = row + self.count >= self.rows;
        is_kept.then_some(self.slot * self.count + (self.first + 1 + row) % self.count)
    }
}

/// A convolution over the rows of each sequence, channel by channel: y = Σ w\[c, j\] · x(t - (k-1) + j). A plane of the
/// state holds the last k-1 inputs, the oldest first.
pub fn conv_causal(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let (x_id, weight, state) = (node.inputs[0], node.inputs[1], node.inputs[2]);
    let [channels, taps] = run.dims(weight);
    let attributes = Attributes::of(node);
    let with_silu = attributes.text("activation") == "silu";
    let (x, weight) = (run.floats(x_id).into_owned(), run.floats(weight).into_owned());
    let mut output = vec![0.0; x.len()];
    for (sequence, rollback) in conv_sequences(run, node)?.into_iter().filter(|(s, _)| s.rows > 0) {
        let planes = Planes {
            count: attributes.integer("planes") as usize,
            slot: sequence.slot,
            first: rollback.plane,
            rows: sequence.rows,
        };
        let mut inputs = read_entry(run, state, planes.before(), sequence.length);
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
        for row in 0..sequence.rows {
            if let Some(entry) = planes.after(row) {
                write_entry(run, state, entry, &inputs[(row + 1) * channels..(row + taps) * channels]);
            }
        }
    }
    run.set_floats(node.outputs[0], output);
    Ok(())
}

/// The gated delta rule, row by row in each sequence. Value head h uses key head h mod Hk. With a state S\[d, e\] per
/// value head: t = e^g · S; p = Sᵀk on t; delta = beta · (v - p); S = t + k·deltaᵀ; o = scale · Sᵀq. The state is
/// rounded to f32 after the decay and after the update, and so is delta.
pub fn gated_delta_net(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let [q, k, v, g, beta] = std::array::from_fn(|i| run.floats(node.inputs[i]).into_owned());
    let state = node.inputs[5];
    let [_, heads, keys, values] = run.dims(state);
    let key_heads = run.dims::<3>(node.inputs[0])[1];
    let attributes = Attributes::of(node);
    let (mode, scale) = (attributes.text("mode"), attributes.float("scale"));
    let mut output = vec![0.0; run.elements(node.outputs[0])];
    for (sequence, rollback) in delta_sequences(run, node)?.into_iter().filter(|(s, _)| s.rows > 0) {
        let planes = Planes {
            count: attributes.integer("planes") as usize,
            slot: sequence.slot,
            first: rollback.plane,
            rows: sequence.rows,
        };
        let records = (mode == "records").then(|| Records::of(run, node.inputs[7]));
        // Rows that cannot be taken back.
        let settled = records.map_or(sequence.rows, |records| sequence.rows.saturating_sub(records.count));
        let mut matrices = read_entry(run, state, planes.before(), sequence.length);
        if settled == 0 && sequence.length == 0 {
            write_entry(run, state, planes.before(), &matrices);
        }
        for row in 0..sequence.rows {
            let at = sequence.first + row;
            let mut deltas = vec![0.0; heads * values];
            for (head, matrix) in matrices.chunks_exact_mut(keys * values).enumerate() {
                let key_at = (at * key_heads + head % key_heads) * keys;
                let scalar = at * heads + head;
                let span = scalar * values..(scalar + 1) * values;
                step(
                    matrix,
                    &q[key_at..key_at + keys],
                    &k[key_at..key_at + keys],
                    &v[span.clone()],
                    [g[scalar], beta[scalar]],
                    scale,
                    [&mut output[span], &mut deltas[head * values..(head + 1) * values]],
                );
            }
            let entry = match records {
                Some(_) => (row + 1 == settled).then_some(sequence.slot),
                None => planes.after(row),
            };
            if let Some(entry) = entry {
                write_entry(run, state, entry, &matrices);
            }
            if let Some(records) = records.filter(|_| row >= settled) {
                let keys_of_row = &k[at * key_heads * keys..(at + 1) * key_heads * keys];
                let record = [&deltas, keys_of_row, &g[at * heads..(at + 1) * heads]].concat();
                let place = records.place(sequence.slot, 1 - rollback.bank, row - settled);
                write(run, node.inputs[7], place, &record);
            }
        }
    }
    run.set_floats(node.outputs[0], output);
    Ok(())
}

/// Records: two banks for each slot.
#[derive(Clone, Copy)]
struct Records {
    count: usize,
    width: usize,
}

impl Records {
    fn of(run: &Run<'_>, records: ValueId) -> Self {
        let [_, count, width] = run.dims(records);
        Self { count, width }
    }

    /// The first element of a record.
    fn place(self, slot: usize, bank: usize, record: usize) -> usize {
        ((slot * 2 + bank) * self.count + record) * self.width
    }
}

/// Applies the kept records of each sequence to its state: t = e^g · S; S = t + k·deltaᵀ, rounded as in the step.
pub fn gated_delta_net_replay(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let (state, records_id) = (node.inputs[0], node.inputs[1]);
    let [_, heads, keys, values] = run.dims(state);
    let records = Records::of(run, records_id);
    let key_heads = (records.width - heads * (values + 1)) / keys;
    for (sequence, rollback) in replayed(run, node)?.into_iter().filter(|(_, r)| r.keep > 0) {
        let mut matrices = read_entry(run, state, sequence.slot, sequence.length);
        for record in 0..rollback.keep {
            let place = records.place(sequence.slot, rollback.bank, record) * 4;
            let bytes = &run.state(records_id)[place..place + records.width * 4];
            let record: Vec<f32> = bytes.chunks_exact(4).map(read_float).collect();
            let (deltas, rest) = record.split_at(heads * values);
            let (k, g) = rest.split_at(key_heads * keys);
            for (head, matrix) in matrices.chunks_exact_mut(keys * values).enumerate() {
                decay(matrix, g[head]);
                let key = &k[head % key_heads * keys..][..keys];
                update(matrix, key, &deltas[head * values..(head + 1) * values]);
            }
        }
        write_entry(run, state, sequence.slot, &matrices);
    }
    Ok(())
}

fn decay(matrix: &mut [f32], g: f32) {
    let decay = f64::from(g).exp();
    for s in matrix {
        *s = (decay * f64::from(*s)) as f32;
    }
}

fn update(matrix: &mut [f32], k: &[f32], delta: &[f32]) {
    for (row, &k) in matrix.chunks_exact_mut(delta.len()).zip(k) {
        for (s, &delta) in row.iter_mut().zip(delta) {
            *s = (f64::from(k) * f64::from(delta) + f64::from(*s)) as f32;
        }
    }
}

/// One row of one head; writes the output and the delta.
fn step(
    matrix: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    [g, beta]: [f32; 2],
    scale: f64,
    [out, deltas]: [&mut [f32]; 2],
) {
    let columns = v.len();
    let product = |matrix: &[f32], x: &[f32], j: usize| -> f64 {
        x.iter().enumerate().map(|(i, &x)| f64::from(x) * f64::from(matrix[i * columns + j])).sum()
    };
    decay(matrix, g);
    for (j, delta) in deltas.iter_mut().enumerate() {
        *delta = (f64::from(beta) * (f64::from(v[j]) - product(matrix, k, j))) as f32;
    }
    update(matrix, k, deltas);
    for (j, out) in out.iter_mut().enumerate() {
        *out = (scale * product(matrix, q, j)) as f32;
    }
}
