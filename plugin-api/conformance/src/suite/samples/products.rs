//! `embed/1` and `linear/1` over all weight types.

use super::super::tolerance::of_product;
use super::{Content, RowSample};
use crate::quant;
use paceline_plugin_api::graph::{Attribute, DType};

/// Widths that a type can have: whole blocks, and for plain types also an odd number.
fn widths(dtype: DType) -> Vec<u32> {
    match dtype.block() {
        Some((1, _)) => vec![37, 256],
        Some((block, _)) => vec![block, block * 3],
        None => Vec::new(),
    }
}

pub fn add(samples: &mut Vec<RowSample>) {
    for dtype in quant::ALL {
        for width in widths(dtype) {
            samples.push(embed(dtype, 61, width));
        }
    }
    for dtype in quant::ALL {
        for width in widths(dtype) {
            // One row of the weight, an odd number of them, and enough for every way of working in blocks of rows.
            for outputs in [17, 130] {
                samples.push(linear(dtype, outputs, width, false));
            }
        }
        samples.push(linear(dtype, 32, widths(dtype)[1], true));
        samples.push(several(dtype, widths(dtype)[1]));
        samples.push(tied(dtype, widths(dtype)[1]));
    }
    samples.push(linear(DType::F32, 1, 256, false));
    for dtype in [DType::Q8_0, DType::Q4_K, DType::Q6_K] {
        samples.push(linear(dtype, 96, 1536, false));
    }
}

/// Samples of a type with blocks of `block` elements that is not known here.
pub fn of_declared(dtype: DType, block: u32) -> Vec<RowSample> {
    // Several blocks where that does not become too much.
    let wide = block * if block > 1024 { 1 } else { 3 };
    vec![
        embed(dtype, 61, block),
        embed(dtype, 61, wide),
        linear(dtype, 17, block, false),
        linear(dtype, 130, wide, false),
        linear(dtype, 32, wide, true),
        tied(dtype, wide),
    ]
}

fn embed(dtype: DType, entries: u32, width: u32) -> RowSample {
    let contents = [("ids", Content::IndexOrFault(entries))];
    RowSample::new("embed", format!("{dtype} [{entries},{width}]"), &contents, move |g| {
        let ids = g.integers("ids");
        let table = g.builder.weight("table", dtype, &[entries, width]);
        let (out, faults) = g.builder.embed(ids, table);
        g.out(out);
        g.builder.result("faults", faults);
    })
}

fn linear(dtype: DType, outputs: u32, width: u32, with_bias: bool) -> RowSample {
    let bias = if with_bias { " with bias" } else { "" };
    let name = format!("{dtype} [{outputs},{width}]{bias}");
    let content = if with_bias { Content::Bell(1.0) } else { Content::Magnitudes };
    let sample = RowSample::new("linear", name, &[("x", content)], move |g| {
        let x = g.floats("x", &[width]);
        let weight = g.builder.weight("w", dtype, &[outputs, width]);
        let out = if with_bias {
            let bias = g.builder.weight("b", DType::F32, &[outputs]);
            g.node("linear", &[x, weight, bias], &[("bias", Attribute::Integer(1))])
        } else {
            g.builder.linear(x, weight)
        };
        g.out(out);
    });
    sample.with_tolerance(of_product(dtype))
}

/// Several products of the same rows, which a backend may quantise once: two of one type, one of another.
fn several(dtype: DType, width: u32) -> RowSample {
    let width = width.next_multiple_of(256);
    let contents = [("x", Content::Bell(1.0))];
    let sample = RowSample::new("linear", format!("{dtype} and others of one x"), &contents, move |g| {
        let x = g.floats("x", &[width]);
        let weights =
            [("w0", dtype, 24), ("w1", dtype, 40), ("w2", DType::Q8_0, 33), ("w3", DType::Q6_K, 18)];
        for (name, dtype, outputs) in weights {
            let weight = g.builder.weight(name, dtype, &[outputs, width]);
            let out = g.builder.linear(x, weight);
            g.builder.result(name, out);
        }
    });
    sample.with_tolerance(of_product(DType::Q8_0))
}

/// One weight both gathered from and multiplied with, as a tied embedding is.
fn tied(dtype: DType, width: u32) -> RowSample {
    let contents = [("ids", Content::Index(48)), ("x", Content::Bell(1.0))];
    let sample = RowSample::new("linear", format!("{dtype} that is also gathered"), &contents, move |g| {
        let (ids, x) = (g.integers("ids"), g.floats("x", &[width]));
        let table = g.builder.weight("table", dtype, &[48, width]);
        let (embedded, _) = g.builder.embed(ids, table);
        let sum = g.builder.add(embedded, x);
        let out = g.builder.linear(sum, table);
        g.out(out);
    });
    sample.with_tolerance(of_product(dtype))
}
