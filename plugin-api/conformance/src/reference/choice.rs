//! `argmax/1`, `draw/1` and `top_k/1`.

use super::run::Run;
use paceline_plugin_api::graph::Node;
use paceline_plugin_api::graph::noise::{Noise, uniform_f32};
use std::cmp::Ordering;

/// The index of the largest value of every row, the lowest of equal ones. A row with NaN gives -1 and is counted.
pub fn argmax(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let x = node.inputs[0];
    let width = run.width(x);
    let rows = run.rows(x);
    let mut ids = vec![0; run.elements(node.outputs[0])];
    let mut faults = 0;
    for (id, row) in ids.iter_mut().zip(run.floats(x).chunks_exact(width)).take(rows) {
        if row.iter().any(|v| v.is_nan()) {
            *id = -1;
            faults += 1;
        } else {
            let best = (1..width).fold(0, |best, i| if row[i] > row[best] { i } else { best });
            *id = best as i32;
        }
    }
    run.set_integers(node.outputs[0], ids);
    run.set_integers(node.outputs[1], vec![faults]);
    Ok(())
}

/// A token of every row, by its noise. A row with NaN gives -1 and is counted.
pub fn draw(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let x = node.inputs[0];
    let width = run.width(x);
    let rows = run.rows(x);
    let noise = run.integers(node.inputs[1]);
    let tokens = node.inputs.get(2).map(|&tokens| run.weight_integers(tokens));
    let mut ids = vec![0; run.elements(node.outputs[0])];
    let mut faults = 0;
    for ((id, row), noise) in
        ids.iter_mut().zip(run.floats(x).chunks_exact(width)).zip(noise.chunks_exact(4)).take(rows)
    {
        if row.iter().any(|v| v.is_nan()) {
            *id = -1;
            faults += 1;
            continue;
        }
        let noise = Noise::from_row([noise[0], noise[1], noise[2], noise[3]]);
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let draws = noise.draws() && largest.is_finite();
        let least = largest * noise.factor - noise.floor;
        let score = |v: usize| {
            if !draws {
                return f64::from(row[v]);
            }
            let scaled = row[v] * noise.factor;
            if scaled < least {
                return f64::NEG_INFINITY;
            }
            let token = tokens.as_ref().map_or(v as u32, |tokens| tokens[v] as u32);
            f64::from(scaled) - (-f64::from(uniform_f32(noise.key, token)).ln()).ln()
        };
        *id = (1..width).fold(0, |best, v| if score(v) > score(best) { v } else { best }) as i32;
    }
    run.set_integers(node.outputs[0], ids);
    run.set_integers(node.outputs[1], vec![faults]);
    Ok(())
}

/// The k largest values of every row and their indices, in descending order, the lowest index first among equal
/// values. NaN comes after all numbers.
pub fn top_k(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let x = node.inputs[0];
    let (width, k) = (run.width(x), run.width(node.outputs[0]));
    let rows = run.rows(x);
    let mut ids = vec![0; run.elements(node.outputs[0])];
    let mut values = vec![0.0; run.elements(node.outputs[1])];
    for (row, x) in run.floats(x).chunks_exact(width).take(rows).enumerate() {
        let mut order: Vec<usize> = (0..width).collect();
        // The sort is stable, so equal values stay in the order of their indices.
        order.sort_by(|&a, &b| descending(x[a], x[b]));
        for (place, &index) in order[..k].iter().enumerate() {
            ids[row * k + place] = index as i32;
            values[row * k + place] = x[index];
        }
    }
    run.set_integers(node.outputs[0], ids);
    run.set_floats(node.outputs[1], values);
    Ok(())
}

/// Larger numbers first, NaN last.
pub(super) fn descending(a: f32, b: f32) -> Ordering {
    b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
