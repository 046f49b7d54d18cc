//! Checks of what the host writes into a parameter block.

use super::ReferenceError;
use super::run::{Run, read_integer};
use paceline_plugin_api::graph::ops::{Attributes, KV_BLOCK};
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
        "kv_append" if given(4) => cache_cells(run, node).map(drop),
        "rows_store" if given(2) => state_cells(run, node.inputs[1], node.inputs[2]).map(drop),
        "rows_load" if given(1) => state_cells(run, node.inputs[0], node.inputs[1]).map(drop),
        "attention" if given(4) => attention_sequences(run, node).map(drop),
        "conv_causal" if given(3) => conv_sequences(run, node).map(drop),
        "gated_delta_net" if given(6) => delta_sequences(run, node).map(drop),
        "gated_delta_net_replay" if given(2) => replayed(run, node).map(drop),
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

/// The live cells of a list, `None` where a row is dropped. A node's cells beyond the bound count as negative.
fn cells(run: &Run<'_>, list: ValueId, bound: usize) -> Result<Vec<Option<usize>>, String> {
    let is_given = matches!(run.value(list).kind, ValueKind::Parameter { .. });
    run.integers(list)[..run.rows(list)]
        .iter()
        .map(|&cell| match index(cell, bound, "cell") {
            Ok(cell) => Ok(Some(cell)),
            Err(what) if is_given && cell >= 0 => Err(what),
            Err(_) => Ok(None),
        })
        .collect()
}

/// The cells of a node that stores or loads rows of a state.
pub(super) fn state_cells(
    run: &Run<'_>,
    state: ValueId,
    list: ValueId,
) -> Result<Vec<Option<usize>>, String> {
    cells(run, list, run.value(state).shape.first() as usize)
}

/// The cells of a `kv_append` node.
pub(super) fn cache_cells(run: &Run<'_>, node: &Node) -> Result<Vec<Option<usize>>, String> {
    let blocks = node.inputs[2..4].iter().map(|&id| run.value(id).shape.first()).min().unwrap_or(0);
    cells(run, node.inputs[4], blocks as usize * KV_BLOCK as usize)
}

/// The sequences of an `attention` node, whose tables must have an entry for every position.
pub(super) fn attention_sequences(run: &Run<'_>, node: &Node) -> Result<Vec<Sequence>, String> {
    let table = node.inputs[3];
    let rows = run.rows(node.inputs[0]);
    let sequences = sequences(run, node.inputs[4], rows, run.value(table).shape.first() as usize)?;
    let capacity = run.width(table) * KV_BLOCK as usize;
    match sequences.iter().find(|s| s.length + s.rows > capacity) {
        Some(s) => Err(format!("{} + {} positions do not fit a table of {capacity}", s.length, s.rows)),
        None => Ok(sequences),
    }
}

/// Where the states of a sequence are, and what of them is kept.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rollback {
    /// Plane that holds the state before the run.
    pub plane: usize,
    /// Bank of records that were made last.
    pub bank: usize,
    /// How many of these are kept.
    pub keep: usize,
}

/// Sequences with what their states are rolled back to.
pub(super) type RolledBack = Vec<(Sequence, Rollback)>;

/// Joins sequences with their entries of a rollback parameter. Of these a node checks what it uses: planes below
/// `planes`, banks and keeps of `records`.
fn rolled_back(
    run: &Run<'_>,
    sequences: Vec<Sequence>,
    list: ValueId,
    planes: Option<usize>,
    records: Option<usize>,
) -> Result<RolledBack, String> {
    let part =
        |value: i32, count: Option<usize>, what: &str| count.map_or(Ok(0), |count| index(value, count, what));
    let entries = run.integers(list);
    sequences
        .into_iter()
        .zip(entries.chunks_exact(3))
        .map(|(sequence, entry)| {
            let rollback = Rollback {
                plane: part(entry[0], planes, "plane")?,
                bank: part(entry[1], records.map(|_| 2), "bank")?,
                keep: part(entry[2], records.map(|records| records + 1), "keep")?,
            };
            Ok((sequence, rollback))
        })
        .collect()
}

/// The sequences of a `conv_causal` node.
pub(super) fn conv_sequences(run: &Run<'_>, node: &Node) -> Result<RolledBack, String> {
    let planes = Attributes::of(node).integer("planes") as usize;
    let slots = run.value(node.inputs[2]).shape.first() as usize / planes;
    let sequences = sequences(run, node.inputs[3], run.rows(node.inputs[0]), slots)?;
    match node.inputs.get(4) {
        Some(&list) => rolled_back(run, sequences, list, Some(planes), None),
        None => Ok(sequences.into_iter().map(|sequence| (sequence, Rollback::default())).collect()),
    }
}

/// The sequences of a `gated_delta_net` node.
pub(super) fn delta_sequences(run: &Run<'_>, node: &Node) -> Result<RolledBack, String> {
    let attributes = Attributes::of(node);
    let planes = attributes.integer("planes") as usize;
    let slots = run.value(node.inputs[5]).shape.first() as usize / planes;
    let sequences = sequences(run, node.inputs[6], run.rows(node.inputs[0]), slots)?;
    match attributes.text("mode") {
        "snapshots" => rolled_back(run, sequences, node.inputs[7], Some(planes), None),
        "records" => {
            let [_, count, _] = run.dims(node.inputs[7]);
            rolled_back(run, sequences, node.inputs[8], None, Some(count))
        }
        _ => Ok(sequences.into_iter().map(|sequence| (sequence, Rollback::default())).collect()),
    }
}

/// The sequences of a `gated_delta_net_replay` node, which has no rows of its own.
pub(super) fn replayed(run: &Run<'_>, node: &Node) -> Result<RolledBack, String> {
    let slots = run.value(node.inputs[0]).shape.first() as usize;
    let [_, count, _] = run.dims(node.inputs[1]);
    let sequences = sequences(run, node.inputs[2], usize::MAX, slots)?;
    let replayed = rolled_back(run, sequences, node.inputs[3], None, Some(count))?;
    for (place, (sequence, rollback)) in replayed.iter().enumerate() {
        if sequence.length == 0 && rollback.keep > 0 {
            return Err(format!("keep {} of a sequence that only begins", rollback.keep));
        }
        if replayed[..place].iter().any(|(other, _)| other.slot == sequence.slot) {
            return Err(format!("slot {} belongs to two sequences", sequence.slot));
        }
    }
    Ok(replayed)
}

/// The sequences of a list, of so many rows and slots.
fn sequences(run: &Run<'_>, list: ValueId, rows: usize, slots: usize) -> Result<Vec<Sequence>, String> {
    let mut sequences: Vec<Sequence> = Vec::new();
    let mut slot_taken = vec![false; slots];
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
        let end = sequence.first + sequence.rows;
        if end > rows {
            return Err(format!("rows {}+{} are outside of 0..{rows}", sequence.first, sequence.rows));
        }
        let overlaps = |other: &Sequence| {
            sequence.rows > 0
                && other.rows > 0
                && sequence.first < other.first + other.rows
                && other.first < end
        };
        if sequences.iter().any(overlaps) {
            return Err(format!("row {} or a later one belongs to two sequences", sequence.first));
        }
        if sequence.rows > 0 && std::mem::replace(&mut slot_taken[sequence.slot], true) {
            return Err(format!("slot {} belongs to two sequences", sequence.slot));
        }
        sequences.push(sequence);
    }
    Ok(sequences)
}
