//! `rms_norm/1`, `l2_norm/1` and `softmax/1`: over the last axis.

use super::run::Run;
use super::special::silu;
use paceline_plugin_api::graph::Node;
use paceline_plugin_api::graph::ops::Attributes;

/// Σ x².
fn square_sum(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x) * f64::from(x)).sum()
}

/// Calls `fill(row, x, y)` for every live row of the first input, rows being those of the last axis.
fn over_last_axis(run: &Run<'_>, node: &Node, mut fill: impl FnMut(usize, &[f32], &mut [f32])) -> Vec<f32> {
    let x = node.inputs[0];
    let width = run.width(x);
    let mut output = vec![0.0; run.elements(x)];
    let rows = run.live_elements(x) / width;
    let values = run.floats(x);
    for (row, (x, y)) in values.chunks_exact(width).zip(output.chunks_exact_mut(width)).take(rows).enumerate()
    {
        fill(row, x, y);
    }
    output
}

/// w · x / √(mean x² + eps), times silu(z) if there is a gate.
pub fn rms_norm(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let attributes = Attributes::of(node);
    let mut others = node.inputs[1..].iter();
    let weight = attributes.flag("weight").then(|| others.next()).flatten().map(|&id| run.floats(id));
    let gate = attributes.flag("gate").then(|| others.next()).flatten().map(|&id| run.floats(id));
    let width = run.width(node.inputs[0]);
    let output = over_last_axis(run, node, |row, x, y| {
        let root = (square_sum(x) / x.len() as f64 + attributes.float("eps")).sqrt();
        for (i, (x, y)) in x.iter().zip(y.iter_mut()).enumerate() {
            let factor = weight.as_ref().map_or(1.0, |weight| f64::from(weight[i]));
            let gated = gate.as_ref().map_or(1.0, |gate| silu(f64::from(gate[row * width + i])));
            *y = (factor * f64::from(*x) / root * gated) as f32;
        }
    });
    drop((weight, gate));
    run.set_floats(node.outputs[0], output);
    Ok(())
}

/// x / √(Σ x² + eps).
pub fn l2_norm(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let eps = Attributes::of(node).float("eps");
    let output = over_last_axis(run, node, |_, x, y| {
        let root = (square_sum(x) + eps).sqrt();
        for (x, y) in x.iter().zip(y) {
            *y = (f64::from(*x) / root) as f32;
        }
    });
    run.set_floats(node.outputs[0], output);
    Ok(())
}

/// e^(x - max) / Σ e^(x - max).
pub fn softmax(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let output = over_last_axis(run, node, |_, x, y| {
        let largest = f64::from(x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let sum: f64 = x.iter().map(|&x| (f64::from(x) - largest).exp()).sum();
        for (x, y) in x.iter().zip(y) {
            *y = ((f64::from(*x) - largest).exp() / sum) as f32;
        }
    });
    run.set_floats(node.outputs[0], output);
    Ok(())
}
