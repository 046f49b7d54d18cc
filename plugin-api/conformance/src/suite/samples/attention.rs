//! `attention/1` behind `table_update/1` and `kv_append/1`, as a layer has them.

use super::super::tolerance::of_caches;
use super::{Content, MAX_UPDATES, Rows, SequenceSample};
use paceline_plugin_api::graph::ops::KV_BLOCK;
use paceline_plugin_api::graph::{Attribute, DType, StateKind};

/// Slots of the table.
const SLOTS: u32 = 4;
/// Blocks of a slot's table.
const ENTRIES: u32 = 3;
/// Blocks of the caches: fewer than the table could name, so that they are used again.
const BLOCKS: u32 = 7;

#[derive(Clone, Copy)]
struct Shape {
    heads: u32,
    kv_heads: u32,
    width: u32,
    types: [DType; 2],
    softcap: f64,
    window: u32,
    is_causal: bool,
    has_sinks: bool,
}

const PLAIN: Shape = Shape {
    heads: 4,
    kv_heads: 2,
    width: 64,
    types: [DType::F16; 2],
    softcap: 0.0,
    window: 0,
    is_causal: true,
    has_sinks: false,
};

pub fn add(samples: &mut Vec<SequenceSample>) {
    let shape = |heads, kv_heads, width, dtype| Shape { heads, kv_heads, width, types: [dtype; 2], ..PLAIN };
    for (name, shape) in [
        ("f16", PLAIN),
        ("f32", shape(3, 3, 40, DType::F32)),
        ("f32, heads of 6", shape(2, 1, 6, DType::F32)),
        ("f16, one KV head", shape(8, 1, 128, DType::F16)),
        ("f16, heads of 256", shape(4, 2, 256, DType::F16)),
        ("q8_0", shape(4, 2, 64, DType::Q8_0)),
        ("q8_0 and f16", Shape { types: [DType::Q8_0, DType::F16], ..PLAIN }),
        ("f16 and q8_0", Shape { types: [DType::F16, DType::Q8_0], ..PLAIN }),
        ("bf16", shape(4, 2, 64, DType::BF16)),
        ("q4_0", shape(4, 2, 64, DType::Q4_0)),
        ("q4_1", shape(4, 2, 64, DType::Q4_1)),
        ("q5_0", shape(4, 2, 64, DType::Q5_0)),
        ("q5_1", shape(4, 2, 64, DType::Q5_1)),
        ("f16, window 5", Shape { window: 5, ..PLAIN }),
        ("f16, window 100", Shape { window: 100, ..PLAIN }),
        ("f32, softcap", Shape { softcap: 2.0, types: [DType::F32; 2], ..PLAIN }),
        ("f16, sinks", Shape { has_sinks: true, ..PLAIN }),
        ("f16, free inside of the run", Shape { is_causal: false, ..PLAIN }),
        (
            "f32, all of it",
            Shape { softcap: 3.0, window: 17, has_sinks: true, types: [DType::F32; 2], ..PLAIN },
        ),
    ] {
        samples.push(sample(name, shape));
    }
}

fn sample(name: &str, shape: Shape) -> SequenceSample {
    let mut tolerance = of_caches(shape.types);
    // Writers of types with 4 and 5 bits may choose other levels, and with them another result.
    for dtype in shape.types {
        tolerance.of_row = tolerance.of_row.max(match dtype {
            DType::Q4_0 | DType::Q4_1 => 0.5,
            DType::Q5_0 | DType::Q5_1 => 0.25,
            _ => 0.0,
        });
    }
    SequenceSample {
        operation: "attention",
        name: name.into(),
        make: Box::new(move |max_rows| graph(max_rows, shape)),
        contents: vec![("q", Content::Bell(1.0)), ("k", Content::Bell(1.0)), ("v", Content::Bell(1.0))],
        tolerance,
        slots: SLOTS,
        cache: Some((BLOCKS, ENTRIES)),
        is_causal: shape.is_causal,
    }
}

fn graph(max_rows: u32, shape: Shape) -> paceline_plugin_api::graph::Graph {
    let mut g = Rows::new(max_rows);
    let count = g.builder.parameter("update_count", DType::I32, &[1], None);
    let updates = g.builder.parameter("updates", DType::I32, &[MAX_UPDATES, 3], Some(count));
    let (cells, sequences) = (g.integers("cells"), g.sequences());
    let q = g.floats("q", &[shape.heads, shape.width]);
    let (k, v) =
        (g.floats("k", &[shape.kv_heads, shape.width]), g.floats("v", &[shape.kv_heads, shape.width]));
    let table = g.builder.state("table", StateKind::Table, DType::I32, &[SLOTS, ENTRIES]);
    let dims = [BLOCKS, KV_BLOCK, shape.kv_heads, shape.width];
    let [keys, values] = [("keys", shape.types[0]), ("values", shape.types[1])]
        .map(|(name, dtype)| g.builder.state(name, StateKind::PerPosition, dtype, &dims));
    g.builder.table_update(table, updates);
    g.builder.kv_append(k, v, [keys, values], cells);
    let mut inputs = vec![q, keys, values, table, sequences];
    if shape.has_sinks {
        inputs.push(g.builder.weight("sinks", DType::F32, &[shape.heads]));
    }
    let attributes = [
        ("scale", Attribute::Float(1.0 / f64::from(shape.width).sqrt())),
        ("softcap", Attribute::Float(shape.softcap)),
        ("window", Attribute::Integer(shape.window.into())),
        ("causal", Attribute::Integer(shape.is_causal.into())),
        ("sinks", Attribute::Integer(shape.has_sinks.into())),
    ];
    let out = g.node("attention", &inputs, &attributes);
    g.out(out);
    g.builder.finish()
}
