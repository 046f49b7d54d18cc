//! `route/1` and `experts/1`.

use super::choice::descending;
use super::elementwise::function;
use super::products::dot;
use super::run::Run;
use super::special::sigmoid;
use paceline_plugin_api::graph::Node;
use paceline_plugin_api::graph::ops::Attributes;

/// The k largest logits of every row, and their share of the softmax, or their sigmoid, divided by the sum of the
/// chosen if `normalize` is on, times `factor`.
pub fn route(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let attributes = Attributes::of(node);
    let (scoring, factor) = (attributes.text("scoring"), attributes.float("factor"));
    let x = node.inputs[0];
    let (width, k) = (run.width(x), run.width(node.outputs[0]));
    let rows = run.rows(x);
    let mut ids = vec![0; run.elements(node.outputs[0])];
    let mut weights = vec![0.0; run.elements(node.outputs[1])];
    for (row, x) in run.floats(x).chunks_exact(width).take(rows).enumerate() {
        let mut order: Vec<usize> = (0..width).collect();
        // The sort is stable, so equal logits stay in the order of their indices.
        order.sort_by(|&a, &b| descending(x[a], x[b]));
        let largest = f64::from(x[order[0]]);
        let score = |index: usize| match scoring {
            "sigmoid" => sigmoid(f64::from(x[index])),
            _ => (f64::from(x[index]) - largest).exp(),
        };
        let summed = match (attributes.flag("normalize"), scoring) {
            (true, _) => &order[..k],
            (false, "sigmoid") => &[],
            (false, _) => &order[..],
        };
        let sum = if summed.is_empty() { 1.0 } else { summed.iter().map(|&index| score(index)).sum::<f64>() };
        for (place, &index) in order[..k].iter().enumerate() {
            ids[row * k + place] = index as i32;
            weights[row * k + place] = (score(index) / sum * factor) as f32;
        }
    }
    run.set_integers(node.outputs[0], ids);
    run.set_floats(node.outputs[1], weights);
    Ok(())
}

/// Σ weight · down(f(gate x) · (up x)) over the experts that a row names.
pub fn experts(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let function = function(Attributes::of(node).text("kind"))?;
    let [x_id, gate, up, down, ids, weights] = node.inputs[..] else {
        return Err("it takes 6 inputs".into());
    };
    let [experts, inner, width] = run.dims(gate);
    let chosen = run.width(ids);
    let rows = run.rows(x_id);
    let mut output = vec![0.0; run.elements(node.outputs[0])];
    let (ids, weights) = (run.integers(ids).into_owned(), run.floats(weights).into_owned());
    let x = run.floats(x_id).into_owned();
    let (mut row_of_inputs, mut row_of_inner) = (vec![0.0; width], vec![0.0; inner]);
    for row in 0..rows {
        let x = &x[row * width..(row + 1) * width];
        let mut sums = vec![0.0f64; width];
        for place in row * chosen..(row + 1) * chosen {
            let Some(expert) = usize::try_from(ids[place]).ok().filter(|&id| id < experts) else { continue };
            let mut h = vec![0.0; inner];
            for (index, h) in h.iter_mut().enumerate() {
                run.read_weight_row(gate, expert * inner + index, &mut row_of_inputs)?;
                let gated = function(dot(x, &row_of_inputs));
                run.read_weight_row(up, expert * inner + index, &mut row_of_inputs)?;
                *h = (gated * dot(x, &row_of_inputs)) as f32;
            }
            for (index, sum) in sums.iter_mut().enumerate() {
                run.read_weight_row(down, expert * width + index, &mut row_of_inner)?;
                *sum += f64::from(weights[place]) * dot(&h, &row_of_inner);
            }
        }
        for (out, sum) in output[row * width..(row + 1) * width].iter_mut().zip(sums) {
            *out = sum as f32;
        }
    }
    run.set_floats(node.outputs[0], output);
    Ok(())
}
