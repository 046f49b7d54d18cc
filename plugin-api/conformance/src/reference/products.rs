//! `embed/1` and `linear/1`.

use super::run::Run;
use paceline_plugin_api::graph::Node;
use paceline_plugin_api::graph::ops::Attributes;

/// Row `id` of the table for every id; an id out of range gives zeros and is counted.
pub fn embed(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let (ids, table) = (node.inputs[0], node.inputs[1]);
    let [entries, width] = run.dims(table);
    let mut output = vec![0.0; run.elements(node.outputs[0])];
    let mut faults = 0;
    let rows = run.rows(ids);
    for (&id, row) in run.integers(ids)[..rows].iter().zip(output.chunks_exact_mut(width)) {
        match usize::try_from(id).ok().filter(|&id| id < entries) {
            Some(id) => run.read_weight_row(table, id, row)?,
            None => faults += 1,
        }
    }
    run.set_floats(node.outputs[0], output);
    run.set_integers(node.outputs[1], vec![faults]);
    Ok(())
}

/// Every row of x times every row of the weight, plus a bias.
pub fn linear(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let (x_id, weight) = (node.inputs[0], node.inputs[1]);
    let [outputs, width] = run.dims(weight);
    let x = run.floats(x_id);
    let bias = Attributes::of(node).flag("bias").then(|| run.floats(node.inputs[2]));
    let mut output = vec![0.0; run.elements(node.outputs[0])];
    let mut weight_row = vec![0.0; width];
    let rows = run.rows(x_id);
    for column in 0..outputs {
        run.read_weight_row(weight, column, &mut weight_row)?;
        let start = bias.as_ref().map_or(0.0, |bias| f64::from(bias[column]));
        for (x, y) in x.chunks_exact(width).take(rows).zip(output.chunks_exact_mut(outputs)) {
            y[column] = (start + dot(x, &weight_row)) as f32;
        }
    }
    drop((x, bias));
    run.set_floats(node.outputs[0], output);
    Ok(())
}

/// Σ x·y.
pub fn dot(x: &[f32], y: &[f32]) -> f64 {
    x.iter().zip(y).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
}
