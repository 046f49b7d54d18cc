//! `rope/1`: rotation of pairs by an angle that grows with the position.

use super::run::Run;
use paceline_plugin_api::graph::Node;
use paceline_plugin_api::graph::ops::Attributes;

/// Rotates pair i of every head by position · base^(-2i/rotary) / (divisor · factors\[i\]). A pair is
/// (i, i + rotary/2), or (2i, 2i + 1) when adjacent; elements beyond the rotary width stay.
pub fn rope(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let (x, positions) = (node.inputs[0], node.inputs[1]);
    let attributes = Attributes::of(node);
    let (rotary, base) = (attributes.integer("rotary") as usize, attributes.float("base"));
    let adjacent = attributes.text("pairing") == "adjacent";
    let divisor = attributes.float("divisor");
    let factors = attributes.flag("factors").then(|| run.floats(node.inputs[2]).into_owned());
    let frequencies: Vec<f64> = (0..rotary / 2)
        .map(|pair| {
            let factor = factors.as_ref().map_or(1.0, |factors| f64::from(factors[pair]));
            base.powf(-2.0 * pair as f64 / rotary as f64) / (divisor * factor)
        })
        .collect();
    let [_, heads, width] = run.dims(x);
    let live = run.live_elements(x);
    let mut output = run.floats(x).into_owned();
    output[live..].fill(0.0);
    let rows = output[..live].chunks_exact_mut(heads * width);
    for (row, &position) in rows.zip(run.integers(positions).iter()) {
        for head in row.chunks_exact_mut(width) {
            for (pair, frequency) in frequencies.iter().enumerate() {
                let (i, j) = if adjacent { (2 * pair, 2 * pair + 1) } else { (pair, pair + rotary / 2) };
                let (sine, cosine) = (f64::from(position) * frequency).sin_cos();
                let (a, b) = (f64::from(head[i]), f64::from(head[j]));
                head[i] = (a * cosine - b * sine) as f32;
                head[j] = (a * sine + b * cosine) as f32;
            }
        }
    }
    run.set_floats(node.outputs[0], output);
    Ok(())
}
