//! Products that make their rows themselves: the same bits as without, and fewer launches a layer.

use super::fusions::{kernels, weights_of};
use super::{DoublePlatform, HOST, INFO};
use crate::GpuBackend;
use crate::capabilities::Fusion;
use crate::driver::double::DoubleDriver;
use crate::program::Leads;
use paceline_conformance::block::ParameterBlock;
use paceline_conformance::harness::Bench;
use paceline_conformance::random::Random;
use paceline_plugin_api::backend_plugin;
use paceline_plugin_api::client::PluginClient;
use paceline_plugin_api::graph::{Builder, DType, Graph, StateKind, ValueId};

pub(super) const HIDDEN: u32 = 256;
const HEADS: u32 = 4;
const KEY_HEADS: u32 = 2;
const WIDTH: u32 = 64;
const INNER: u32 = 512;

/// Layers as they are built from a model's description.
struct Layers {
    b: Builder,
    rows: u32,
    sequences: ValueId,
    places: [ValueId; 2],
    /// The type of the value matrices; all others are Q4_K.
    values: DType,
}

impl Layers {
    fn new(rows: u32, values: DType) -> (Self, ValueId) {
        let mut b = Builder::new();
        let live = b.parameter("rows", DType::I32, &[1], None);
        let count = b.parameter("sequence_count", DType::I32, &[1], None);
        let x = b.parameter("x", DType::F32, &[rows, HIDDEN], Some(live));
        let sequences = b.parameter("sequences", DType::I32, &[1, 4], Some(count));
        let places = ["positions", "cells"].map(|name| b.parameter(name, DType::I32, &[rows], Some(live)));
        (Self { b, rows, sequences, places, values }, x)
    }

    fn product(&mut self, x: ValueId, name: &str, dtype: DType, [n, k]: [u32; 2]) -> ValueId {
        let w = self.b.weight(name, dtype, &[n, k]);
        self.b.linear(x, w)
    }

    fn norm(&mut self, x: ValueId, name: &str, width: u32) -> ValueId {
        let w = self.b.weight(name, DType::F32, &[width]);
        self.b.rms_norm(x, w, 1e-6)
    }

    fn heads(&mut self, x: ValueId, heads: u32) -> ValueId {
        self.b.reshape(x, &[self.rows, heads, WIDTH])
    }

    /// The layer of Qwen3.
    fn attention(&mut self, x: ValueId, l: usize) -> ValueId {
        let u = self.norm(x, &format!("{l}.norm"), HIDDEN);
        let of = |this: &mut Self, name: &str, dtype, heads: u32| {
            let y = this.product(u, &format!("{l}.{name}"), dtype, [heads * WIDTH, HIDDEN]);
            this.heads(y, heads)
        };
        let q = of(self, "q", DType::Q4_K, HEADS);
        let k = of(self, "k", DType::Q4_K, KEY_HEADS);
        let v = of(self, "v", self.values, KEY_HEADS);
        let [q, k] = [(q, "q_norm"), (k, "k_norm")].map(|(x, name)| {
            let x = self.norm(x, &format!("{l}.{name}"), WIDTH);
            self.b.rope(x, self.places[0], WIDTH, 1e6)
        });
        let table = self.b.state(&format!("{l}.table"), StateKind::Table, DType::I32, &[1, 1]);
        let caches = ["k", "v"].map(|name| {
            let name = format!("{l}.{name}_cache");
            self.b.state(&name, StateKind::PerPosition, DType::F16, &[1, 256, KEY_HEADS, WIDTH])
        });
        self.b.kv_append(k, v, caches, self.places[1]);
        let out = self.b.attention(q, caches, table, self.sequences, 0.125);
        let out = self.b.reshape(out, &[self.rows, HEADS * WIDTH]);
        let out = self.product(out, &format!("{l}.o"), DType::Q4_K, [HIDDEN, HEADS * WIDTH]);
        let x = self.b.add(x, out);
        self.feed_forward(x, l)
    }

    /// The recurrent layer of Qwen3.5.
    fn recurrent(&mut self, x: ValueId, l: usize) -> ValueId {
        let u = self.norm(x, &format!("{l}.norm"), HIDDEN);
        let (keys, inner) = (KEY_HEADS * WIDTH, HEADS * WIDTH);
        let qkv = self.product(u, &format!("{l}.qkv"), DType::Q4_K, [2 * keys + inner, HIDDEN]);
        let z = self.product(u, &format!("{l}.z"), DType::Q4_K, [inner, HIDDEN]);
        let [beta, alpha] = ["beta", "alpha"]
            .map(|name| self.product(u, &format!("{l}.{name}"), DType::Q8_0, [HEADS, HIDDEN]));
        let planes = [1, 3, 2 * keys + inner];
        let window = self.b.state(&format!("{l}.window"), StateKind::PerSlot, DType::F32, &planes);
        let taps = self.b.weight(&format!("{l}.conv"), DType::F32, &[2 * keys + inner, 4]);
        let qkv = self.b.conv_causal_silu(qkv, taps, window, self.sequences);
        let beta = self.b.activation(beta, "sigmoid");
        let [dt, a] = ["dt", "a"].map(|name| self.b.weight(&format!("{l}.{name}"), DType::F32, &[HEADS]));
        let sum = self.b.add(alpha, dt);
        let softplus = self.b.activation(sum, "softplus");
        let g = self.b.mul(softplus, a);
        let [q, k] = [0, keys].map(|offset| {
            let part = self.b.slice(qkv, offset, keys);
            let part = self.heads(part, KEY_HEADS);
            self.b.l2_norm(part, 1e-6)
        });
        let v = self.b.slice(qkv, 2 * keys, inner);
        let v = self.heads(v, HEADS);
        let shape = [1, HEADS, WIDTH, WIDTH];
        let state = self.b.state(&format!("{l}.state"), StateKind::PerSlot, DType::F32, &shape);
        let o = self.b.gated_delta_net([q, k, v, g, beta], state, self.sequences, 0.125);
        let norm = self.b.weight(&format!("{l}.heads_norm"), DType::F32, &[WIDTH]);
        let z = self.heads(z, HEADS);
        let o = self.b.rms_norm_gated(o, norm, z, 1e-6);
        let o = self.b.reshape(o, &[self.rows, inner]);
        let out = self.product(o, &format!("{l}.out"), DType::Q4_K, [HIDDEN, inner]);
        let x = self.b.add(x, out);
        self.feed_forward(x, l)
    }

    fn feed_forward(&mut self, x: ValueId, l: usize) -> ValueId {
        let u = self.norm(x, &format!("{l}.ffn_norm"), HIDDEN);
        let [gate, up] =
            ["gate", "up"].map(|name| self.product(u, &format!("{l}.{name}"), DType::Q4_K, [INNER, HIDDEN]));
        let y = self.b.glu(gate, up, "silu");
        let y = self.product(y, &format!("{l}.down"), self.values, [HIDDEN, INNER]);
        self.b.add(x, y)
    }

    fn finish(mut self, y: ValueId) -> Graph {
        self.b.result("y", y);
        self.b.finish()
    }
}

/// Two layers of each kind, so that there is something in front of each and behind it.
pub(super) fn model(rows: u32, values: DType, is_recurrent: bool) -> Graph {
    let (mut layers, mut x) = Layers::new(rows, values);
    for l in 0..2 {
        x = match is_recurrent {
            true => layers.recurrent(x, l),
            false => layers.attention(x, l),
        };
    }
    layers.finish(x)
}

pub(super) fn parameters(graph: &Graph, rows: i32, length: i32) -> Vec<u8> {
    let mut block = ParameterBlock::new(graph);
    let x = Random::named(5, &format!("{length}")).floats(rows as usize * HIDDEN as usize, 1.0);
    let places: Vec<i32> = (length..length + rows).collect();
    block.set_integers("rows", &[rows]).set_integers("sequence_count", &[1]);
    block.set_integers("sequences", &[0, rows, length, 0]);
    block.set_integers("positions", &places).set_integers("cells", &places);
    block.set_floats("x", 0, &x);
    block.into_bytes()
}

const CHOICES: [(&str, Fusion); 5] = [
    ("none", Fusion::Nothing),
    ("all", Fusion::All),
    ("norms", Fusion::Only(Leads::Norms)),
    ("joins", Fusion::Only(Leads::Joins)),
    ("gates", Fusion::Only(Leads::Gates)),
];

/// Launches of a layer, for rows that have kernels which make them.
#[test]
fn a_layer_takes_few_launches() {
    // What runs once in a run: counters that become zero, and what the rows of attention see.
    let once = |is_recurrent: bool| if is_recurrent { 1 } else { 2 };
    for (is_recurrent, values, expected) in [
        (false, DType::Q4_K, [10, 6, 8, 9, 9]),
        (false, DType::Q6_K, [11, 7, 9, 10, 10]),
        (true, DType::Q4_K, [11, 7, 8, 11, 10]),
    ] {
        for rows in [1, 8, 16] {
            let graph = model(rows, values, is_recurrent);
            for ((word, fusion), expected) in CHOICES.into_iter().zip(expected) {
                let names = kernels(&graph, fusion);
                let layers = names.len() - once(is_recurrent);
                assert_eq!(layers, 2 * expected, "{rows} rows, {values}, {word}: {names:?}");
            }
        }
        // Prompts keep their launches.
        let graph = model(17, values, is_recurrent);
        assert_eq!(kernels(&graph, Fusion::All), kernels(&graph, Fusion::Nothing));
    }
}

fn driver() -> &'static DoubleDriver {
    static DRIVER: std::sync::OnceLock<&'static DoubleDriver> = std::sync::OnceLock::new();
    DRIVER.get_or_init(DoubleDriver::leaked)
}

backend_plugin!(INFO, GpuBackend, DoublePlatform::backend(driver()));

/// The stand-in runs groups one after the other, and ends the process if one waits for what no earlier group made.
#[test]
fn rows_that_products_make_have_the_same_bits() {
    // SAFETY: the entry of a plugin that is linked in.
    let backend = unsafe { PluginClient::enter(plugin_entry, &HOST) }.unwrap().backend().unwrap();
    for (is_recurrent, values, rows) in
        [(false, DType::Q6_K, 1), (false, DType::Q4_K, 5), (true, DType::Q6_K, 1), (true, DType::Q4_K, 9)]
    {
        let graph = model(rows, values, is_recurrent);
        let mut expected: Option<[Vec<Vec<u8>>; 2]> = None;
        let choices = if rows == 5 { &CHOICES[..] } else { &CHOICES[..2] };
        for &(word, fusion) in choices {
            let settings = |graphs: &str| {
                [("fusion", word), ("graphs", graphs)].map(|(key, value)| (key.to_owned(), value.to_owned()))
            };
            // Captured once and replayed, and launched one by one.
            for graphs in if word == "all" { &["true", "false"][..] } else { &["false"] } {
                let bench = Bench::open(&backend, 0, &settings(graphs)).unwrap();
                let mut loaded = bench.load(&graph, &weights_of(&graph)).unwrap();
                let before = driver().calls("launch");
                let steps = [(rows as i32, 0), (1, rows as i32), (rows as i32, rows as i32 + 1)];
                let results: Vec<Vec<u8>> = steps
                    .iter()
                    .map(|&(live, length)| {
                        let mut bytes = loaded.run(&parameters(&graph, live, length)).unwrap().to_vec();
                        // What is behind the live rows is nobody's.
                        bytes.truncate(live as usize * HIDDEN as usize * 4);
                        bytes
                    })
                    .collect();
                if *graphs == "false" {
                    let launches = kernels(&graph, fusion).iter().filter(|name| **name != "clear").count();
                    assert_eq!(driver().calls("launch") - before, 3 * launches as u64, "{word}");
                }
                let states = (0..graph.states().count())
                    .filter(|&index| graph.value(graph.states().nth(index).unwrap()).dtype != DType::I32)
                    .map(|index| loaded.export_state(index).unwrap().unwrap())
                    .collect();
                let given = [results, states];
                let known = expected.get_or_insert_with(|| given.clone());
                assert!(given == *known, "{word}, graphs {graphs}: {rows} rows, {values}");
            }
        }
    }
}
