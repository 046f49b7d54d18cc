//! `rms_norm/1`, `l2_norm/1`, `softmax/1`.

use super::{Content, RowSample};
use paceline_plugin_api::graph::{Attribute, DType};

pub fn add(samples: &mut Vec<RowSample>) {
    // With small values a large eps decides the result; a small one only keeps zeros from becoming NaN.
    let numbers = [(1e-6, Content::Magnitudes), (0.05, Content::Bell(0.1))];
    for dims in [&[64][..], &[37], &[1024], &[3, 20], &[2, 5, 16]] {
        for (eps, content) in numbers {
            for (has_weight, has_gate) in [(true, false), (true, true), (false, false), (false, true)] {
                samples.push(rms_norm(dims, eps, content, has_weight, has_gate));
            }
            samples.push(l2_norm(dims, eps, content));
        }
    }
    for (dims, content) in [
        (&[5][..], Content::Bell(1.0)),
        (&[100], Content::Magnitudes),
        (&[1000], Content::Bell(3.0)),
        (&[3, 33], Content::Between(-80.0, 80.0)),
    ] {
        samples.push(RowSample::new(
            "softmax",
            format!("{dims:?}, {content:?}"),
            &[("x", content)],
            move |g| {
                let x = g.floats("x", dims);
                let out = g.builder.softmax(x);
                g.out(out);
            },
        ));
    }
}

fn rms_norm(dims: &'static [u32], eps: f64, content: Content, has_weight: bool, has_gate: bool) -> RowSample {
    let parts = match (has_weight, has_gate) {
        (true, false) => "",
        (true, true) => ", gate",
        (false, false) => ", no weight",
        (false, true) => ", no weight, gate",
    };
    let contents = [("x", content), ("z", Content::Bell(2.0))];
    let contents = &contents[..1 + usize::from(has_gate)];
    RowSample::new("rms_norm", format!("{dims:?}, eps {eps}{parts}"), contents, move |g| {
        let mut inputs = vec![g.floats("x", dims)];
        if has_weight {
            inputs.push(g.builder.weight("w", DType::F32, &dims[dims.len() - 1..]));
        }
        if has_gate {
            inputs.push(g.floats("z", dims));
        }
        let flag = |is_set: bool| Attribute::Integer(is_set.into());
        let attributes =
            [("eps", Attribute::Float(eps)), ("weight", flag(has_weight)), ("gate", flag(has_gate))];
        let out = g.node("rms_norm", &inputs, &attributes);
        g.out(out);
    })
}

fn l2_norm(dims: &'static [u32], eps: f64, content: Content) -> RowSample {
    RowSample::new("l2_norm", format!("{dims:?}, eps {eps}"), &[("x", content)], move |g| {
        let x = g.floats("x", dims);
        let out = g.node("l2_norm", &[x], &[("eps", Attribute::Float(eps))]);
        g.out(out);
    })
}
