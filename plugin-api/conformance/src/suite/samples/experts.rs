//! `route/1` and `experts/1`.

use super::super::tolerance::{of_experts, of_operation};
use super::{Content, RowSample, Rows};
use paceline_plugin_api::graph::{DType, Routing, ValueId};

const SOFTMAX: Routing = Routing { sigmoid: false, normalize: true, factor: 1.0 };

pub fn add(samples: &mut Vec<RowSample>) {
    let routings = [
        ("softmax, normalized", SOFTMAX),
        ("softmax", Routing { normalize: false, ..SOFTMAX }),
        ("sigmoid, normalized", Routing { sigmoid: true, factor: 2.5, ..SOFTMAX }),
        ("sigmoid", Routing { sigmoid: true, normalize: false, ..SOFTMAX }),
    ];
    for (name, routing) in routings {
        for (count, k) in [(1, 1), (8, 2), (60, 4), (256, 8)] {
            for content in [Content::Ties, Content::Bell(3.0)] {
                samples.push(route(
                    format!("{name}, {k} of {count}, {content:?}"),
                    count,
                    k,
                    routing,
                    content,
                ));
            }
        }
    }
    let small = [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0, DType::IQ4_NL, DType::MXFP4];
    for dtype in small {
        samples.push(routed([dtype; 3], 7, 2, [64, 96]));
    }
    samples.push(routed([DType::Q4_K, DType::Q4_K, DType::Q6_K], 5, 3, [256, 512]));
    samples.push(routed([DType::Q5_1, DType::Q8_0, DType::F32], 4, 4, [64, 32]));
    samples.push(routed([DType::Q8_0; 3], 64, 6, [128, 32]));
    samples.push(shared(DType::Q8_0));
    samples.push(named_by_a_parameter(DType::F32));
    samples.push(named_by_a_parameter(DType::Q8_0));
}

fn route(name: String, count: u32, k: u32, routing: Routing, content: Content) -> RowSample {
    RowSample::new("route", name, &[("x", content)], move |g| {
        let x = g.floats("x", &[count]);
        let (ids, weights) = g.builder.route(x, k, routing);
        g.out(ids);
        g.builder.result("weights", weights);
    })
    .with_tolerance(of_operation("route"))
}

/// Gate, up and down of `count` experts from `width` to `inner` and back.
fn matrices(g: &mut Rows, dtypes: [DType; 3], count: u32, [width, inner]: [u32; 2]) -> [ValueId; 3] {
    let [gate, up, down] = dtypes;
    [
        g.builder.weight("gate", gate, &[count, inner, width]),
        g.builder.weight("up", up, &[count, inner, width]),
        g.builder.weight("down", down, &[count, width, inner]),
    ]
}

/// As a layer has them: chosen by logits of the same row.
fn routed(dtypes: [DType; 3], count: u32, k: u32, sizes: [u32; 2]) -> RowSample {
    let [gate, up, down] = dtypes;
    let name = format!("{gate}, {up}, {down}, {k} of {count}, {sizes:?}");
    let contents = [("x", Content::Bell(1.0)), ("logits", Content::Bell(2.0))];
    RowSample::new("experts", name, &contents, move |g| {
        let (x, logits) = (g.floats("x", &[sizes[0]]), g.floats("logits", &[count]));
        let matrices = matrices(g, dtypes, count, sizes);
        let choice = g.builder.route(logits, k, SOFTMAX);
        let out = g.builder.experts(x, matrices, choice, "silu");
        g.out(out);
    })
    .with_tolerance(of_experts(dtypes))
}

/// One expert that every row goes through, weighed by a gate of its own, beside a product of the same rows.
fn shared(dtype: DType) -> RowSample {
    let contents = [("x", Content::Bell(1.0)), ("gate_logit", Content::Bell(2.0))];
    RowSample::new("experts", format!("{dtype}, shared"), &contents, move |g| {
        let (x, logit) = (g.floats("x", &[96]), g.floats("gate_logit", &[1]));
        let matrices = matrices(g, [dtype; 3], 1, [96, 64]);
        let choice = g.builder.route(logit, 1, Routing { sigmoid: true, normalize: false, factor: 1.0 });
        let out = g.builder.experts(x, matrices, choice, "gelu_tanh");
        g.out(out);
        let other = g.builder.weight("other", dtype, &[48, 96]);
        let product = g.builder.linear(x, other);
        g.builder.result("product", product);
    })
    .with_tolerance(of_experts([dtype; 3]))
}

/// The same expert several times in a row, and in some rows one that there is not.
fn named_by_a_parameter(dtype: DType) -> RowSample {
    let contents =
        [("x", Content::Bell(1.0)), ("ids", Content::IndexOrFault(5)), ("weights", Content::Bell(1.0))];
    RowSample::new("experts", format!("{dtype}, named by a parameter"), &contents, move |g| {
        let x = g.floats("x", &[64]);
        let ids = g.row_parameter("ids", DType::I32, &[3]);
        let weights = g.floats("weights", &[3]);
        let matrices = matrices(g, [dtype; 3], 5, [64, 32]);
        let out = g.builder.experts(x, matrices, (ids, weights), "silu");
        g.out(out);
    })
    .with_tolerance(of_experts([dtype; 3]))
}
