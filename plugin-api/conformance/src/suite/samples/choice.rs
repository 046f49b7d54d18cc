//! `argmax/1` and `top_k/1`.

use super::{Content, RowSample};

pub fn add(samples: &mut Vec<RowSample>) {
    for width in [1, 7, 151, 1000] {
        for content in [Content::Ties, Content::TiesAndNan, Content::Bell(1.0)] {
            samples.push(argmax(width, content));
        }
    }
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

fn top_k(width: u32, k: u32, content: Content) -> RowSample {
    RowSample::new("top_k", format!("{k} of {width}, {content:?}"), &[("x", content)], move |g| {
        let x = g.floats("x", &[width]);
        let (ids, values) = g.builder.top_k(x, k);
        g.out(ids);
        g.builder.result("values", values);
    })
}
