//! `reshape/1`, `slice/1`, `concat/1`: alone, on each other, and under an operation that computes.

use super::{Content, RowSample};
use paceline_plugin_api::graph::{Attribute, DType};

const X: [(&str, Content); 1] = [("x", Content::Bell(1.0))];

pub fn add(samples: &mut Vec<RowSample>) {
    for (from, to) in
        [(&[24][..], &[4, 6][..]), (&[4, 6], &[24]), (&[2, 12], &[3, 2, 4]), (&[2, 3, 4], &[6, 4])]
    {
        samples.push(RowSample::new("reshape", format!("{from:?} to {to:?}"), &X, move |g| {
            let x = g.floats("x", from);
            let dims = [&[g.max_rows], to].concat();
            let out = g.builder.reshape(x, &dims);
            g.out(out);
        }));
    }
    samples.push(RowSample::new("reshape", "heads of a product, normed", &X, |g| {
        let x = g.floats("x", &[64]);
        let w = g.builder.weight("w", DType::F32, &[96, 64]);
        let heads = g.builder.linear(x, w);
        let heads = g.builder.reshape(heads, &[g.max_rows, 3, 32]);
        let norm = g.builder.weight("norm", DType::F32, &[32]);
        let normed = g.builder.rms_norm(heads, norm, 1e-6);
        let out = g.builder.reshape(normed, &[g.max_rows, 96]);
        g.out(out);
    }));
    for sample in samples.iter_mut().filter(|sample| sample.name == "heads of a product, normed") {
        sample.tolerance = super::super::tolerance::of_product(DType::F32);
    }
    for (dims, offset, length) in
        [(&[37][..], 0, 5), (&[37], 5, 32), (&[37], 36, 1), (&[64], 0, 64), (&[3, 20], 7, 9)]
    {
        samples.push(RowSample::new("slice", format!("{offset}+{length} of {dims:?}"), &X, move |g| {
            let x = g.floats("x", dims);
            let out = g.builder.slice(x, offset, length);
            g.out(out);
        }));
    }
    samples.push(RowSample::new("slice", "of a slice, as heads, scaled", &X, |g| {
        let x = g.floats("x", &[100]);
        let middle = g.builder.slice(x, 10, 60);
        let part = g.builder.slice(middle, 6, 24);
        let heads = g.builder.reshape(part, &[g.max_rows, 2, 12]);
        let out = g.node("scale", &[heads], &[("factor", Attribute::Float(2.0))]);
        g.out(out);
    }));
    for widths in [&[5, 7][..], &[32, 32], &[1, 2, 3, 4]] {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let contents: Vec<_> = NAMES[..widths.len()].iter().map(|name| (*name, Content::Bell(1.0))).collect();
        samples.push(RowSample::new("concat", format!("{widths:?}"), &contents, move |g| {
            let parts: Vec<_> =
                NAMES.iter().zip(widths).map(|(name, &width)| g.floats(name, &[width])).collect();
            let out = g.builder.concat(&parts);
            g.out(out);
        }));
    }
    samples.push(RowSample::new("concat", "heads in another order", &X, |g| {
        let x = g.floats("x", &[3, 20]);
        let (head, tail) = (g.builder.slice(x, 0, 8), g.builder.slice(x, 8, 12));
        let out = g.builder.concat(&[tail, head, tail]);
        g.out(out);
    }));
}
