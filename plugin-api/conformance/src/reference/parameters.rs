//! Checks of what the host writes into a parameter block.

use super::ReferenceError;
use super::run::{Run, read_integer};
use paceline_plugin_api::graph::ops::KV_BLOCK;
use paceline_plugin_api::graph::{Graph, Node, ValueId, ValueKind};

/// One sequence of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequence {
    /// First row.
    pub first: usize,
    /// Number of rows.
    pub rows: usize,
    /// Positions before the run.
    pub length: usize,
    /// Slot of its states and row of its tables.
    pub slot: usize,
}

/// Live entries of axis 0 of every value.
pub(super) fn live_counts(graph: &Graph, block: &[u8]) -> Result<Vec<usize>, ReferenceError> {
    let needed = graph.parameter_bytes() as usize;
    if block.len() != needed {
        return Err(ReferenceError::Count { what: "bytes of parameters", given: block.len(), needed });
    }
    graph
        .values()
        .iter()
        .map(|value| {
            let maximum = value.shape.first();
            let Some(live) = value.live else { return Ok(maximum as usize) };
            let parameter = graph.value(live);
            let ValueKind::Parameter { offset } = parameter.kind else { return Ok(maximum as usize) };
            let count = read_integer(&block[offset as usize..offset as usize + 4]);
            usize::try_from(count).ok().filter(|&c| c <= maximum as usize).ok_or_else(|| {
                ReferenceError::LiveCount { name: parameter.name.clone(), value: count, maximum }
            })
        })
        .collect()
}

/// Checks the indices of a node that stand in the parameter block.
pub(super) fn check_node(run: &Run<'_>, node: &Node) -> Result<(), String> {
    let given = |input: usize| matches!(run.value(node.inputs[input]).kind, ValueKind::Parameter { .. });
    match node.operation.as_str() {
        "select_rows" if given(1) => selected_rows(run, node).map(drop),
        "table_update" if given(1) => table_updates(run, node).map(drop),
        "kv_append" if given(4) => cells(run, node).map(drop),
        "attention" if given(4) => attention_sequences(run, node).map(drop),
        "conv_causal" if given(3) => slot_sequences(run, node, 3, node.inputs[2]).map(drop),
        "gated_delta_net" if given(6) => slot_sequences(run, node, 6, node.inputs[5]).map(drop),
        _ => Ok(()),
    }
}

fn index(value: i32, bound: usize, what: &str) -> Result<usize, String> {
    usize::try_from(value)
        .ok()
        .filter(|&index| index < bound)
        .ok_or_else(|| format!("{what} {value} is outside of 0..{bound}"))
}

/// The rows that a `select_rows` node selects.
pub(super) fn selected_rows(run: &Run<'_>, node: &Node) -> Result<Vec<usize>, String> {
    let (x, rows) = (node.inputs[0], node.inputs[1]);
    run.integers(rows)[..run.rows(rows)].iter().map(|&row| index(row, run.rows(x), "row")).collect()
}

/// The updates of a `table_update` node: row, column, value. A table holds indices, so a value is not negative; how
/// large it may be is up to whoever reads the table.
pub(super) fn table_updates(run: &Run<'_>, node: &Node) -> Result<Vec<(usize, usize, i32)>, String> {
    let (table, updates) = (node.inputs[0], node.inputs[1]);
    let [rows, columns] = run.dims(table);
    run.integers(updates)[..run.live_elements(updates)]
        .chunks_exact(3)
        .map(|update| {
            let (row, column) = (index(update[0], rows, "row")?, index(update[1], columns, "column")?);
            match update[2] {
                value if value >= 0 => Ok((row, column, value)),
                value => Err(format!("value {value} is negative")),
            }
        })
        .collect()
}

/// The cells of a `kv_append` node.
pub(super) fn cells(run: &Run<'_>, node: &Node) -> Result<Vec<usize>, String> {
    let cells = node.inputs[4];
    let blocks = node.inputs[2..4].iter().map(|&id| run.value(id).shape.first()).min().unwrap_or(0);
    let bound = blocks as usize * KV_BLOCK as usize;
    run.integers(cells)[..run.rows(cells)].iter().map(|&cell| index(cell, bound, "cell")).collect()
}

/// The sequences of an `attention` node, whose tables must have an entry for every position.
pub(super) fn attention_sequences(run: &Run<'_>, node: &Node) -> Result<Vec<Sequence>, String> {
    let table = node.inputs[3];
    let sequences = slot_sequences(run, node, 4, table)?;
    let capacity = run.width(table) * KV_BLOCK as usize;
    match sequences.iter().find(|s| s.length + s.rows > capacity) {
        Some(s) => Err(format!("{} + {} positions do not fit a table of {capacity}", s.length, s.rows)),
        None => Ok(sequences),
    }
}

/// The sequences in input `input` of a node whose slots are the first axis of `state`.
pub(super) fn slot_sequences(
    run: &Run<'_>,
    node: &Node,
    input: usize,
    state: ValueId,
) -> Result<Vec<Sequence>, String> {
    let (rows, slots) = (run.rows(node.inputs[0]), run.value(state).shape.first() as usize);
    let list = node.inputs[input];
    let mut sequences: Vec<Sequence> = Vec::new();
    let (mut row_taken, mut slot_taken) = (vec![false; rows], vec![false; slots]);
    for entry in run.integers(list)[..run.live_elements(list)].chunks_exact(4) {
        let number = |i: usize, what: &str| {
            usize::try_from(entry[i]).map_err(|_| format!("{what} {} is negative", entry[i]))
        };
        let sequence = Sequence {
            first: number(0, "a first row of")?,
            rows: number(1, "a number of rows of")?,
            length: number(2, "a length of")?,
            slot: index(entry[3], slots, "slot")?,
        };
        let taken = row_taken
            .get_mut(sequence.first..sequence.first + sequence.rows)
            .ok_or_else(|| format!("rows {}+{} are outside of 0..{rows}", sequence.first, sequence.rows))?;
        if taken.contains(&true) {
            return Err(format!("row {} or a later one belongs to two sequences", sequence.first));
        }
        taken.fill(true);
        if sequence.rows > 0 && std::mem::replace(&mut slot_taken[sequence.slot], true) {
            return Err(format!("slot {} belongs to two sequences", sequence.slot));
        }
        sequences.push(sequence);
    }
    Ok(sequences)
}
