//! `reshape/1`, `slice/1`, `concat/1`, `select_rows/1` and `lookup/1`: the same elements elsewhere.

use super::parameters::selected_rows;
use super::run::Run;
use paceline_plugin_api::graph::Node;
use paceline_plugin_api::graph::ops::Attributes;

/// The same elements in the same order.
pub fn reshape(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let x = node.inputs[0];
    let mut values = run.floats(x).into_owned();
    values[run.live_elements(x)..].fill(0.0);
    run.set_floats(node.outputs[0], values);
    Ok(())
}

/// A range of the last axis.
pub fn slice(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let x = node.inputs[0];
    let (width, length) = (run.width(x), run.width(node.outputs[0]));
    let offset = Attributes::of(node).integer("offset") as usize;
    let rows = run.live_elements(x) / width;
    let mut output = vec![0.0; run.elements(node.outputs[0])];
    for (x, y) in run.floats(x).chunks_exact(width).zip(output.chunks_exact_mut(length)).take(rows) {
        y.copy_from_slice(&x[offset..offset + length]);
    }
    run.set_floats(node.outputs[0], output);
    Ok(())
}

/// The inputs one after the other on the last axis.
pub fn concat(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let total = run.width(node.outputs[0]);
    let rows = run.live_elements(node.outputs[0]) / total;
    let mut output = vec![0.0; run.elements(node.outputs[0])];
    let mut start = 0;
    for &part in &node.inputs {
        let width = run.width(part);
        for (x, y) in run.floats(part).chunks_exact(width).zip(output.chunks_exact_mut(total)).take(rows) {
            y[start..start + width].copy_from_slice(x);
        }
        start += width;
    }
    run.set_floats(node.outputs[0], output);
    Ok(())
}

/// The entries of a table that ids name; an id out of range gives 0.
pub fn lookup(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let table = run.weight_integers(node.inputs[1]);
    let ids = run.integers(node.inputs[0]);
    let entry = |&id: &i32| usize::try_from(id).ok().and_then(|id| table.get(id).copied()).unwrap_or(0);
    let entries: Vec<i32> = ids.iter().map(entry).collect();
    drop(ids);
    run.set_integers(node.outputs[0], entries);
    Ok(())
}

/// The listed rows; a row that is not live is an error.
pub fn select_rows(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let rows = selected_rows(run, node)?;
    let width = run.value(node.inputs[0]).shape.row_elements() as usize;
    let mut output = vec![0.0; run.elements(node.outputs[0])];
    {
        let x = run.floats(node.inputs[0]);
        for (row, y) in rows.into_iter().zip(output.chunks_exact_mut(width)) {
            y.copy_from_slice(&x[row * width..(row + 1) * width]);
        }
    }
    run.set_floats(node.outputs[0], output);
    Ok(())
}
