//! `add/1`, `mul/1`, `scale/1`, `activation/1` and `glu/1`.

use super::run::Run;
use super::special::{gelu, gelu_tanh, sigmoid, silu, softplus};
use paceline_plugin_api::graph::Node;
use paceline_plugin_api::graph::ops::Attributes;

/// y has the trailing dimensions of x and is repeated over the leading ones.
fn broadcast(run: &mut Run<'_>, node: &Node, combine: fn(f32, f32) -> f32) -> Result<(), String> {
    let (x, y) = (node.inputs[0], node.inputs[1]);
    let mut output = vec![0.0; run.elements(x)];
    let live = run.live_elements(x);
    let period = run.elements(y);
    {
        let (x, y) = (run.floats(x), run.floats(y));
        for (i, output) in output[..live].iter_mut().enumerate() {
            *output = combine(x[i], y[i % period]);
        }
    }
    run.set_floats(node.outputs[0], output);
    Ok(())
}

/// x + y.
pub fn add(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    broadcast(run, node, |x, y| x + y)
}

/// x · y.
pub fn mul(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    broadcast(run, node, |x, y| x * y)
}

/// Applies a function to every live element of the first input.
fn map(run: &mut Run<'_>, node: &Node, function: impl Fn(f64) -> f64) -> Result<(), String> {
    let x = node.inputs[0];
    let mut output = vec![0.0; run.elements(x)];
    let live = run.live_elements(x);
    for (x, y) in run.floats(x).iter().zip(&mut output).take(live) {
        *y = function(f64::from(*x)) as f32;
    }
    run.set_floats(node.outputs[0], output);
    Ok(())
}

/// x · factor.
pub fn scale(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let factor = Attributes::of(node).float("factor");
    map(run, node, |x| x * factor)
}

/// The function that an attribute `kind` names.
pub(super) fn function(kind: &str) -> Result<fn(f64) -> f64, String> {
    Ok(match kind {
        "silu" => silu,
        "gelu" => gelu,
        "gelu_tanh" => gelu_tanh,
        "sigmoid" => sigmoid,
        "softplus" => softplus,
        "tanh" => f64::tanh,
        "exp" => f64::exp,
        _ => return Err(format!("activation `{kind}` is not known")),
    })
}

/// f(x), or c · f(x/c) with a softcap c.
pub fn activation(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let attributes = Attributes::of(node);
    let (function, cap) = (function(attributes.text("kind"))?, attributes.float("softcap"));
    map(run, node, |x| if cap == 0.0 { function(x) } else { cap * function(x / cap) })
}

/// f(gate) · up.
pub fn glu(run: &mut Run<'_>, node: &Node) -> Result<(), String> {
    let function = function(Attributes::of(node).text("kind"))?;
    let (gate, up) = (node.inputs[0], node.inputs[1]);
    let mut output = vec![0.0; run.elements(gate)];
    let live = run.live_elements(gate);
    {
        let (gate, up) = (run.floats(gate), run.floats(up));
        for (i, output) in output[..live].iter_mut().enumerate() {
            *output = (function(f64::from(gate[i])) * f64::from(up[i])) as f32;
        }
    }
    run.set_floats(node.outputs[0], output);
    Ok(())
}
