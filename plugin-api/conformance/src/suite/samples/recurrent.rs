//! `conv_causal/1` and `gated_delta_net/1`.

use super::super::tolerance::of_operation;
use super::{Content, Rows, SequenceSample};
use paceline_plugin_api::graph::{Attribute, DType, StateKind};

const SLOTS: u32 = 4;

pub fn add(samples: &mut Vec<SequenceSample>) {
    for (channels, taps) in [(64, 4), (37, 2), (96, 3), (5, 9)] {
        for activation in ["none", "silu"] {
            samples.push(conv(channels, taps, activation));
        }
    }
    for (key_heads, heads, keys, values) in
        [(1, 1, 8, 8), (2, 4, 16, 16), (2, 6, 32, 64), (3, 3, 64, 32), (2, 2, 128, 128), (1, 3, 20, 12)]
    {
        samples.push(delta_net(key_heads, heads, keys, values));
    }
}

fn conv(channels: u32, taps: u32, activation: &'static str) -> SequenceSample {
    SequenceSample {
        operation: "conv_causal",
        name: format!("{channels} channels, {taps} taps, {activation}"),
        make: Box::new(move |max_rows| {
            let mut g = Rows::new(max_rows);
            let (x, sequences) = (g.floats("x", &[channels]), g.sequences());
            let w = g.builder.weight("w", DType::F32, &[channels, taps]);
            let dims = [SLOTS, taps - 1, channels];
            let state = g.builder.state("window", StateKind::PerSlot, DType::F32, &dims);
            let attributes = [("activation", Attribute::Text(activation.into()))];
            let out = g.node("conv_causal", &[x, w, state, sequences], &attributes);
            g.out(out);
            g.builder.finish()
        }),
        contents: vec![("x", Content::Bell(1.0))],
        tolerance: of_operation("conv_causal"),
        slots: SLOTS,
        cache: None,
        is_causal: true,
    }
}

fn delta_net(key_heads: u32, heads: u32, keys: u32, values: u32) -> SequenceSample {
    // Keys of length near 1 keep the state bounded.
    let key_deviation = 0.8 / (keys as f32).sqrt();
    SequenceSample {
        operation: "gated_delta_net",
        name: format!("{key_heads} and {heads} heads, state {keys} x {values}"),
        make: Box::new(move |max_rows| {
            let mut g = Rows::new(max_rows);
            let (q, k) = (g.floats("q", &[key_heads, keys]), g.floats("k", &[key_heads, keys]));
            let v = g.floats("v", &[heads, values]);
            let (decay, beta) = (g.floats("decay", &[heads]), g.floats("beta", &[heads]));
            let sequences = g.sequences();
            let dims = [SLOTS, heads, keys, values];
            let state = g.builder.state("state", StateKind::PerSlot, DType::F32, &dims);
            let inputs = [q, k, v, decay, beta, state, sequences];
            let scale = 1.0 / f64::from(keys).sqrt();
            let out = g.node("gated_delta_net", &inputs, &[("scale", Attribute::Float(scale))]);
            g.out(out);
            g.builder.finish()
        }),
        contents: vec![
            ("q", Content::Bell(1.0)),
            ("k", Content::Bell(key_deviation)),
            ("v", Content::Bell(1.0)),
            ("decay", Content::Between(-1.0, 0.0)),
            ("beta", Content::Between(0.0, 1.0)),
        ],
        tolerance: of_operation("gated_delta_net"),
        slots: SLOTS,
        cache: None,
        is_causal: true,
    }
}
