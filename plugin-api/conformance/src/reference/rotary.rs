//! `rope/1`: rotation of pairs by an angle that grows with the position.

use super::run::Run;
use paceline_plugin_api::graph::Node;
use paceline_plugin_api::graph::ops::Attributes;

/// Rotates pair i of every head by position · base^(-2i/rotary). A pair is (i, i + rotary/2), or (2i, 2i + 1) when
/// adjacent; elements beyond the rotary width stay.
pub fn rope(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let (x, positions) = (node.inputs[0], node.inputs[1]);
    let attributes = Attributes::of(node);
    let (rotary, base) = (attributes.integer("rotary") as usize, attributes.float("base"));
    let adjacent = attributes.text("pairing") == "adjacent";
    let [_, heads, width] = run.dims(x);
    let live = run.live_elements(x);
    let mut output = run.floats(x).into_owned();
    output[live..].fill(0.0);
    let rows = output[..live].chunks_exact_mut(heads * width);
    for (row, &position) in rows.zip(run.integers(positions).iter()) {
        for head in row.chunks_exact_mut(width) {
            for pair in 0..rotary / 2 {
                let (i, j) = if adjacent { (2 * pair, 2 * pair + 1) } else { (pair, pair + rotary / 2) };
                let angle = f64::from(position) * base.powf(-2.0 * pair as f64 / rotary as f64);
                let (sine, cosine) = angle.sin_cos();
                let (a, b) = (f64::from(head[i]), f64::from(head[j]));
                head[i] = (a * cosine - b * sine) as f32;
                head[j] = (a * sine + b * cosine) as f32;
            }
        }
    }
    run.set_floats(node.outputs[0], output);
    Ok(())
}
