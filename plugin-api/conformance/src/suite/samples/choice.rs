//! `argmax/1`, `draw/1` and `top_k/1`.

use super::{Content, RowSample};
use paceline_plugin_api::graph::DType;

pub fn add(samples: &mut Vec<RowSample>) {
    for width in [1, 7, 151, 1000] {
        for content in [Content::Ties, Content::TiesAndNan, Content::Bell(1.0)] {
            samples.push(argmax(width, content));
        }
    }
    for width in [1, 7, 151, 1000, 8200] {
        for content in [Content::Ties, Content::TiesAndNan, Content::Bell(3.0)] {
            samples.push(draw(width, content));
        }
    }
    samples.push(draw_of_tokens(600));
    for (width, k) in [(1, 1), (7, 7), (40, 5), (151, 20), (1000, 10)] {
        for content in [Content::Ties, Content::Bell(1.0)] {
            samples.push(top_k(width, k, content));
        }
    }
}

fn argmax(width: u32, content: Content) -> RowSample {
    RowSample::new("argmax", format!("of {width}, {content:?}"), &[("x", content)], move |g| {
        let x = g.floats("x", &[width]);
        let (ids, faults) = g.builder.argmax(x);
        g.out(ids);
        g.builder.result("faults", faults);
    })
}

fn draw(width: u32, content: Content) -> RowSample {
    let contents = [("x", content), ("noise", Content::Noise)];
    RowSample::new("draw", format!("of {width}, {content:?}"), &contents, move |g| {
        let (x, noise) = (g.floats("x", &[width]), g.noise("noise"));
        let (ids, faults) = g.builder.draw(x, noise, None);
        g.out(ids);
        g.builder.result("faults", faults);
    })
}

fn draw_of_tokens(width: u32) -> RowSample {
    let contents = [("x", Content::Bell(3.0)), ("noise", Content::Noise)];
    RowSample::new("draw", format!("of {width} columns with tokens"), &contents, move |g| {
        let (x, noise) = (g.floats("x", &[width]), g.noise("noise"));
        let tokens = g.builder.weight("tokens", DType::I32, &[width]);
        let (ids, _) = g.builder.draw(x, noise, Some(tokens));
        g.out(ids);
    })
}

fn top_k(width: u32, k: u32, content: Content) -> RowSample {
    RowSample::new("top_k", format!("{k} of {width}, {content:?}"), &[("x", content)], move |g| {
        let x = g.floats("x", &[width]);
        let (ids, values) = g.builder.top_k(x, k);
        g.out(ids);
        g.builder.result("values", values);
    })
}
