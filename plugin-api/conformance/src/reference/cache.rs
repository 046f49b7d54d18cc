//! `table_update/1`, `kv_append/1`, `rows_store/1`, `rows_load/1` and `attention/1`.

use super::parameters::{Sequence, attention_sequences, cache_cells, state_cells, table_updates};
use super::products::dot;
use super::run::{Run, read_float, read_integer};
use crate::quant;
use paceline_plugin_api::graph::ops::{Attributes, KV_BLOCK};
use paceline_plugin_api::graph::{Node, ValueId};

const BLOCK: usize = KV_BLOCK as usize;

/// Writes (row, column, value) in the order of the list.
pub fn table_update(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let updates = table_updates(run, node)?;
    let columns = run.width(node.inputs[0]);
    let table = run.state_mut(node.inputs[0]);
    for (row, column, value) in updates {
        let at = (row * columns + column) * 4;
        table[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    Ok(())
}

/// Stores row r of k and v in cell r of the list, rounded to the type of the cache.
pub fn kv_append(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let cells = cache_cells(run, node)?;
    for (rows, cache) in [(node.inputs[0], node.inputs[2]), (node.inputs[1], node.inputs[3])] {
        let width = run.value(rows).shape.row_elements() as usize;
        let dtype = run.value(cache).dtype;
        let values = run.floats(rows).into_owned();
        for (row, &cell) in values.chunks_exact(width).zip(&cells) {
            let Some(cell) = cell else { continue };
            let stored = quant::quantize(dtype, row).map_err(|error| error.to_string())?;
            run.state_mut(cache)[cell * stored.len()..(cell + 1) * stored.len()].copy_from_slice(&stored);
        }
    }
    Ok(())
}

/// Row r of x becomes the entry of the state that cell r names; of two rows with one cell the later stays.
pub fn rows_store(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let (x, state) = (node.inputs[0], node.inputs[1]);
    let cells = state_cells(run, state, node.inputs[2])?;
    let width = run.width(state);
    let rows = run.floats(x).into_owned();
    let entries = run.state_mut(state);
    for (row, cell) in rows.chunks_exact(width).zip(cells) {
        let Some(cell) = cell else { continue };
        let entry = &mut entries[cell * width * 4..(cell + 1) * width * 4];
        for (bytes, value) in entry.chunks_exact_mut(4).zip(row) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
    }
    Ok(())
}

/// The entries of the state that the cells name; zeros for a negative cell.
pub fn rows_load(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let state = node.inputs[0];
    let cells = state_cells(run, state, node.inputs[1])?;
    let width = run.width(state);
    let mut output = vec![0.0; run.elements(node.outputs[0])];
    for (out, cell) in output.chunks_exact_mut(width).zip(cells) {
        let Some(cell) = cell else { continue };
        let entry = &run.state(state)[cell * width * 4..(cell + 1) * width * 4];
        for (out, bytes) in out.iter_mut().zip(entry.chunks_exact(4)) {
            *out = read_float(bytes);
        }
    }
    run.set_floats(node.outputs[0], output);
    Ok(())
}

/// Keys or values of one head of one sequence, `[positions, d]`.
fn read_head(
    run: &Run<'_>,
    cache: ValueId,
    blocks: &[usize],
    positions: usize,
    head: usize,
) -> Result<Vec<f32>, String> {
    let [_, _, heads, width] = run.dims(cache);
    let value = run.value(cache);
    let bytes = run.state(cache);
    let head_bytes = bytes.len() / (value.shape.first() as usize * BLOCK * heads);
    let mut out = vec![0.0; positions * width];
    for (position, out) in out.chunks_exact_mut(width).enumerate() {
        let cell = blocks[position / BLOCK] * BLOCK + position % BLOCK;
        let at = (cell * heads + head) * head_bytes;
        quant::dequantize(value.dtype, &bytes[at..at + head_bytes], out)
            .map_err(|error| error.to_string())?;
    }
    Ok(out)
}

/// The blocks that hold the positions of a sequence, read from its row of the table.
fn blocks_of(run: &Run<'_>, node: &Node, sequence: Sequence) -> Result<Vec<usize>, String> {
    let table = node.inputs[3];
    let columns = run.width(table);
    let blocks = node.inputs[1..3].iter().map(|&id| run.value(id).shape.first()).min().unwrap_or(0);
    let row = &run.state(table)[sequence.slot * columns * 4..(sequence.slot + 1) * columns * 4];
    row.chunks_exact(4)
        .take((sequence.length + sequence.rows).div_ceil(BLOCK))
        .map(|entry| {
            let block = read_integer(entry);
            u32::try_from(block)
                .ok()
                .filter(|&block| block < blocks)
                .map(|block| block as usize)
                .ok_or_else(|| format!("the table of slot {} names block {block} of {blocks}", sequence.slot))
        })
        .collect()
}

/// What a row attends to: positions, by the attributes of the node.
fn visible(attributes: &Attributes<'_>, position: usize, end: usize) -> std::ops::Range<usize> {
    let window = attributes.integer("window") as usize;
    // A window of w shows the row's own position and the w - 1 before it.
    let start = if window == 0 { 0 } else { (position + 1).saturating_sub(window) };
    start..if attributes.flag("causal") { position + 1 } else { end }
}

/// softmax(scale · q·k, capped) · v over what a row sees. Query head h reads KV head h / (Hq / Hk). A sink is one
/// more score of its head without a value. Rows that no sequence covers are zero.
pub fn attention(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let attributes = Attributes::of(node);
    let (scale, cap) = (attributes.float("scale"), attributes.float("softcap"));
    let sequences = attention_sequences(run, node)?;
    let [_, heads, width] = run.dims(node.inputs[0]);
    let kv_heads = run.dims::<4>(node.inputs[1])[2];
    let sinks = attributes.flag("sinks").then(|| run.floats(node.inputs[5]));
    let q = run.floats(node.inputs[0]);
    let mut output = vec![0.0; run.elements(node.outputs[0])];
    for sequence in sequences.into_iter().filter(|s| s.rows > 0) {
        let blocks = blocks_of(run, node, sequence)?;
        let end = sequence.length + sequence.rows;
        for kv_head in 0..kv_heads {
            let keys = read_head(run, node.inputs[1], &blocks, end, kv_head)?;
            let values = read_head(run, node.inputs[2], &blocks, end, kv_head)?;
            let group = heads / kv_heads;
            for head in kv_head * group..(kv_head + 1) * group {
                for row in 0..sequence.rows {
                    let at = ((sequence.first + row) * heads + head) * width;
                    let query = &q[at..at + width];
                    let range = visible(&attributes, sequence.length + row, end);
                    let scores: Vec<f64> = range
                        .clone()
                        .map(|p| {
                            let score = scale * dot(query, &keys[p * width..(p + 1) * width]);
                            if cap == 0.0 { score } else { cap * (score / cap).tanh() }
                        })
                        .collect();
                    let sink = sinks.as_ref().map(|sinks| f64::from(sinks[head]));
                    let out = &mut output[at..at + width];
                    weighted_sum(&scores, sink, &values[range.start * width..range.end * width], out);
                }
            }
        }
    }
    drop((q, sinks));
    run.set_floats(node.outputs[0], output);
    Ok(())
}

/// Σ softmax(scores)·values, with one more score in the denominator.
fn weighted_sum(scores: &[f64], sink: Option<f64>, values: &[f32], out: &mut [f32]) {
    let largest = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
    let sum = weights.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - largest).exp());
    let width = out.len();
    for (i, out) in out.iter_mut().enumerate() {
        let total: f64 = weights.iter().enumerate().map(|(p, w)| w * f64::from(values[p * width + i])).sum();
        *out = (total / sum) as f32;
    }
}
