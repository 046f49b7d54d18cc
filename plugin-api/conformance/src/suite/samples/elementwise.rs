//! `add/1`, `mul/1`, `scale/1`, `activation/1`, `glu/1`, `rope/1`.

use super::super::tolerance::{Tolerance, of_operation};
use super::{Content, RowSample};
use paceline_plugin_api::graph::{Attribute, DType, Rotation};

pub fn add(samples: &mut Vec<RowSample>) {
    for operation in ["add", "mul"] {
        for dims in [&[1][..], &[37], &[512], &[3, 24]] {
            samples.push(two_rows(operation, dims));
            samples.push(with_weight(operation, dims));
        }
        samples.push(with_last_axis(operation));
    }
    for factor in [0.125, -3.0, 0.1] {
        samples.push(RowSample::new("scale", format!("{factor}"), &[("x", Content::Magnitudes)], move |g| {
            let x = g.floats("x", &[41]);
            let out = g.node("scale", &[x], &[("factor", Attribute::Float(factor))]);
            g.out(out);
        }));
    }
    for kind in ["silu", "gelu", "gelu_tanh", "sigmoid", "softplus", "tanh", "exp"] {
        for softcap in [0.0, 2.5] {
            samples.push(activation(kind, softcap));
        }
    }
    for kind in ["silu", "gelu", "gelu_tanh", "sigmoid"] {
        for dims in [&[37][..], &[2, 40]] {
            samples.push(glu(kind, dims));
        }
    }
    for pairing in ["half", "adjacent"] {
        for (width, rotary, base) in [(64, 64, 1e4), (80, 32, 1e7), (6, 2, 1e4), (40, 10, 5e5)] {
            samples.push(rope(pairing, width, rotary, base, 8192));
        }
        for (divisor, factors) in [(4.0, false), (1.0, true), (2.5, true)] {
            samples.push(slowed_rope(pairing, divisor, factors));
        }
        samples.push(rope(pairing, 32, 16, 1e7, 200_000).with_tolerance(Tolerance {
            // As many times more as the positions are farther away.
            absolute: of_operation("rope").absolute * 25.0,
            ..of_operation("rope")
        }));
    }
}

fn two_rows(operation: &'static str, dims: &'static [u32]) -> RowSample {
    let contents = [("x", Content::Magnitudes), ("y", Content::Bell(1.0))];
    RowSample::new(operation, format!("{dims:?} and the same"), &contents, move |g| {
        let (x, y) = (g.floats("x", dims), g.floats("y", dims));
        let out = g.node(operation, &[x, y], &[]);
        g.out(out);
    })
}

fn with_weight(operation: &'static str, dims: &'static [u32]) -> RowSample {
    let contents = [("x", Content::Magnitudes)];
    RowSample::new(operation, format!("{dims:?} and a weight of a row"), &contents, move |g| {
        let x = g.floats("x", dims);
        let y = g.builder.weight("y", DType::F32, dims);
        let out = g.node(operation, &[x, y], &[]);
        g.out(out);
    })
}

fn with_last_axis(operation: &'static str) -> RowSample {
    RowSample::new(operation, "[3, 24] and a weight [24]", &[("x", Content::Bell(1.0))], move |g| {
        let x = g.floats("x", &[3, 24]);
        let y = g.builder.weight("y", DType::F32, &[24]);
        let out = g.node(operation, &[x, y], &[]);
        g.out(out);
    })
}

fn activation(kind: &'static str, softcap: f64) -> RowSample {
    let name = if softcap == 0.0 { kind.to_owned() } else { format!("{kind}, softcap {softcap}") };
    RowSample::new("activation", name, &[("x", Content::Bell(3.0))], move |g| {
        let x = g.floats("x", &[101]);
        let attributes = [("kind", Attribute::Text(kind.into())), ("softcap", Attribute::Float(softcap))];
        let out = g.node("activation", &[x], &attributes);
        g.out(out);
    })
}

fn glu(kind: &'static str, dims: &'static [u32]) -> RowSample {
    let contents = [("gate", Content::Bell(3.0)), ("up", Content::Bell(1.0))];
    RowSample::new("glu", format!("{kind} {dims:?}"), &contents, move |g| {
        let (gate, up) = (g.floats("gate", dims), g.floats("up", dims));
        let out = g.builder.glu(gate, up, kind);
        g.out(out);
    })
}

fn rope(pairing: &'static str, width: u32, rotary: u32, base: f64, positions: u32) -> RowSample {
    let contents = [("x", Content::Bell(1.0)), ("positions", Content::Position(positions))];
    let name = format!("{pairing}, {rotary} of {width}, base {base:e}, positions below {positions}");
    RowSample::new("rope", name, &contents, move |g| {
        let (x, positions) = (g.floats("x", &[3, width]), g.integers("positions"));
        let attributes = [
            ("rotary", Attribute::Integer(rotary.into())),
            ("base", Attribute::Float(base)),
            ("pairing", Attribute::Text(pairing.into())),
        ];
        let out = g.node("rope", &[x, positions], &attributes);
        g.out(out);
    })
}

/// Rotation with a divisor of positions, with or without factors of frequencies.
fn slowed_rope(pairing: &'static str, divisor: f64, factors: bool) -> RowSample {
    let contents = [("x", Content::Bell(1.0)), ("positions", Content::Position(8192))];
    let name = format!("{pairing}, divisor {divisor}{}", if factors { ", factors" } else { "" });
    RowSample::new("rope", name, &contents, move |g| {
        let (x, positions) = (g.floats("x", &[3, 48]), g.integers("positions"));
        let factors = factors.then(|| g.builder.weight("factors", DType::F32, &[20]));
        let adjacent = pairing == "adjacent";
        let rotation = Rotation { rotary: 40, base: 5e5, adjacent, divisor, factors };
        let out = g.builder.rope_with(x, positions, &rotation);
        g.out(out);
    })
}
