//! Elementwise kernels, norms and softmax on the host, against the reference executor.
#![cfg(feature = "host")]

mod support;

use paceline_conformance::random::Random;
use paceline_conformance::suite::tolerance::{EXACT, of_operation};
use paceline_kernels::params::View;
use paceline_kernels::params::elementwise::{
    ADD, Activation, Binary, CopyItems, DeltaGates, Glu, MUL, Scale, activation,
};
use paceline_kernels::params::norms::{AddRmsNorm, L2Norm, RmsNorm, Softmax};
use paceline_plugin_api::graph::{Attribute, Builder, DType, Graph, ValueId};
use support::{Buffer, Expected, WAVES, bytes_of, check, is_garbage, node, run};

const MAX_ROWS: u32 = 5;
const LIVE: u32 = 3;

/// A graph over parameters `x0`, `x1`, ... of `[rows][items][width]`.
fn graph(
    items: u32,
    width: u32,
    inputs: usize,
    make: impl FnOnce(&mut Builder, &[ValueId]) -> ValueId,
) -> Graph {
    let mut b = Builder::new();
    let rows = b.parameter("rows", DType::I32, &[1], None);
    let inputs: Vec<ValueId> = (0..inputs)
        .map(|i| b.parameter(&format!("x{i}"), DType::F32, &[MAX_ROWS, items, width], Some(rows)))
        .collect();
    let out = make(&mut b, &inputs);
    b.result("out", out);
    b.finish()
}

/// Shapes with whole fours and without, one element, more than a group has, short and long norms.
const SHAPES: [(u32, u32); 7] = [(1, 1), (3, 5), (2, 64), (5, 127), (9, 128), (1, 1030), (2, 2048)];

/// Numbers of all sizes: ordinary ones, zeros, subnormal ones and large ones.
fn values(count: usize, random: &mut Random) -> Vec<f32> {
    (0..count)
        .map(|i| match i % 11 {
            3 => 0.0,
            5 => -0.0,
            7 => f32::from_bits(random.below(1 << 23)),
            9 => random.bell() * 30.0,
            _ => random.bell(),
        })
        .collect()
}

struct Inputs {
    data: Vec<Vec<f32>>,
    offset: usize,
    items: u32,
    width: u32,
}

impl Inputs {
    fn new(items: u32, width: u32, count: usize, offset: usize) -> Self {
        let mut random = Random::named(7, &format!("{items} {width} {count}"));
        let elements = (MAX_ROWS * items * width) as usize;
        Self { data: (0..count).map(|_| values(elements, &mut random)).collect(), offset, items, width }
    }

    fn expected<'g>(&self, graph: &'g Graph, weights: Vec<Vec<u8>>) -> Expected<'g> {
        Expected::of(graph, weights, |block| {
            block.set_integers("rows", &[LIVE as i32]);
            for (i, data) in self.data.iter().enumerate() {
                block.set_floats(&format!("x{i}"), 0, data);
            }
        })
    }

    fn buffers(&self) -> Vec<Buffer> {
        self.data.iter().map(|data| Buffer::floats_at(data, self.offset)).collect()
    }

    /// Runs with a fresh output, checks it, and that nothing is written beyond live rows. Returns the bits.
    fn check(
        &self,
        what: &str,
        expected: &[f32],
        operation: &str,
        launch: impl Fn(View, &[Buffer], u64, u32),
    ) {
        let tolerance = if operation == "copy" { EXACT } else { of_operation(operation) };
        let live = Buffer::of_integers(&[LIVE as i32]);
        let mut known: Option<Vec<u32>> = None;
        for wave in WAVES {
            let inputs = self.buffers();
            let out = Buffer::garbage((MAX_ROWS * self.items * self.width) as usize, self.offset);
            launch(out.view(self.items, self.width), &inputs, live.address(), wave);
            let what = format!(
                "{what}, {} items of {}, offset {}, wave {wave}",
                self.items, self.width, self.offset
            );
            check(&what, &out.floats()[..expected.len()], expected, self.width, tolerance);
            assert!(out.bits()[expected.len()..].iter().all(|&word| is_garbage(word)), "{what}: dead rows");
            let bits = out.bits();
            assert!(known.as_ref().is_none_or(|known| *known == bits), "{what}: another wave, other bits");
            known = Some(bits);
        }
    }
}

/// Calls `body` for every shape, at multiples of 16 bytes and beside them.
fn each_shape(inputs: usize, body: impl Fn(Inputs)) {
    for (items, width) in SHAPES {
        for offset in [0, 1] {
            body(Inputs::new(items, width, inputs, offset));
        }
    }
}

#[test]
fn sums_and_products() {
    each_shape(2, |inputs| {
        let (items, width) = (inputs.items, inputs.width);
        for (name, kind) in [("add", ADD), ("mul", MUL)] {
            let graph = graph(items, width, 2, |b, x| match kind {
                ADD => b.add(x[0], x[1]),
                _ => b.mul(x[0], x[1]),
            });
            let expected = inputs.expected(&graph, Vec::new()).floats("out");
            inputs.check(name, &expected, name, |out, buffers, live, wave| {
                let [x, y] = [0, 1].map(|i: usize| buffers[i].view(items, width));
                run(&Binary { x, y, out, live, rows: MAX_ROWS, items, width, kind }, wave);
            });
        }
    });
}

#[test]
fn a_second_operand_repeats_over_rows_and_items() {
    let (items, width) = (3, 12);
    let inputs = Inputs::new(items, width, 1, 0);
    let graph = graph(items, width, 1, |b, x| {
        let w = b.weight("w", DType::F32, &[width]);
        b.mul(x[0], w)
    });
    let w = Random::new(3).floats(width as usize, 1.0);
    let expected = inputs.expected(&graph, vec![bytes_of(&w)]).floats("out");
    let w = Buffer::of_floats(&w);
    inputs.check("mul by a row", &expected, "mul", |out, buffers, live, wave| {
        let y = View { address: w.address(), row: 0, item: 0 };
        let x = buffers[0].view(items, width);
        run(&Binary { x, y, out, live, rows: MAX_ROWS, items, width, kind: MUL }, wave);
    });
}

#[test]
fn scale_and_copy() {
    each_shape(1, |inputs| {
        let (items, width) = (inputs.items, inputs.width);
        let graph = graph(items, width, 1, |b, x| b.scale(x[0], 0.3));
        let expected = inputs.expected(&graph, Vec::new()).floats("out");
        inputs.check("scale", &expected, "scale", |out, buffers, live, wave| {
            let x = buffers[0].view(items, width);
            run(&Scale { x, out, live, rows: MAX_ROWS, items, width, factor: 0.3 }, wave);
        });
        let expected = &inputs.data[0][..(LIVE * items * width) as usize];
        inputs.check("copy", expected, "copy", |out, buffers, live, wave| {
            let x = buffers[0].view(items, width);
            run(&CopyItems { x, out, live, rows: MAX_ROWS, items, width, reserved: 0 }, wave);
        });
    });
}

#[test]
fn a_slice_is_a_view() {
    let x = Buffer::of_floats(&(0..2 * 3 * 8).map(|i| i as f32).collect::<Vec<_>>());
    for (offset, width) in [(4, 4), (3, 2)] {
        let out = Buffer::garbage((2 * 3 * width) as usize, 0);
        let view = View { address: x.address() + 4 * offset, row: 24, item: 8 };
        let out_view = out.view(3, width);
        run(&CopyItems { x: view, out: out_view, live: 0, rows: 2, items: 3, width, reserved: 0 }, 32);
        let expected: Vec<f32> =
            (0..6).flat_map(|item| (0..width).map(move |i| (item * 8 + offset as u32 + i) as f32)).collect();
        assert_eq!(out.floats(), expected);
    }
}

const KINDS: [&str; 7] = ["silu", "gelu", "gelu_tanh", "sigmoid", "softplus", "tanh", "exp"];

#[test]
fn activations() {
    each_shape(1, |inputs| {
        let (items, width) = (inputs.items, inputs.width);
        for name in KINDS {
            let kind = activation::from_name(name).unwrap();
            for softcap in [0.0, 5.0] {
                let graph = graph(items, width, 1, |b, x| {
                    let attributes = [
                        ("kind", Attribute::Text(name.into())),
                        ("softcap", Attribute::Float(softcap.into())),
                    ];
                    node(b, "activation", &[x[0]], &attributes)
                });
                let expected = inputs.expected(&graph, Vec::new()).floats("out");
                inputs.check(name, &expected, "activation", |out, buffers, live, wave| {
                    let x = buffers[0].view(items, width);
                    let p =
                        Activation { x, out, live, rows: MAX_ROWS, items, width, kind, softcap, reserved: 0 };
                    run(&p, wave);
                });
            }
        }
    });
}

#[test]
fn extremes_of_activations() {
    let extremes = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN, 200.0, -200.0];
    let x = Buffer::of_floats(&extremes);
    for name in KINDS {
        let out = Buffer::garbage(extremes.len(), 0);
        let width = extremes.len() as u32;
        let kind = activation::from_name(name).unwrap();
        let (x, view) = (x.view(1, width), out.view(1, width));
        run(
            &Activation { x, out: view, live: 0, rows: 1, items: 1, width, kind, softcap: 0.0, reserved: 0 },
            32,
        );
        let given = out.floats();
        assert!(given[2].is_nan(), "{name} of NaN");
        assert!(given.iter().enumerate().all(|(i, v)| i == 2 || !v.is_nan()), "{name}: {given:?}");
    }
}

#[test]
fn gated_units() {
    each_shape(2, |inputs| {
        let (items, width) = (inputs.items, inputs.width);
        for name in ["silu", "gelu", "gelu_tanh", "sigmoid"] {
            let kind = activation::from_name(name).unwrap();
            let graph = graph(items, width, 2, |b, x| b.glu(x[0], x[1], name));
            let expected = inputs.expected(&graph, Vec::new()).floats("out");
            inputs.check(name, &expected, "glu", |out, buffers, live, wave| {
                let [gate, up] = [0, 1].map(|i: usize| buffers[i].view(items, width));
                run(&Glu { gate, up, out, live, rows: MAX_ROWS, items, width, kind }, wave);
            });
        }
    });
}

#[test]
fn gates_of_the_delta_rule_have_the_bits_of_their_parts() {
    let heads = 37;
    let mut random = Random::new(11);
    let [alpha, beta] = [0, 1].map(|_| Buffer::of_floats(&random.floats((MAX_ROWS * heads) as usize, 2.0)));
    let [dt, a] = [0, 1].map(|_| Buffer::of_floats(&random.floats(heads as usize, 1.0)));
    let count = (MAX_ROWS * heads) as usize;
    let [g, g_parts, b, b_parts] = [0, 1, 2, 3].map(|_| Buffer::garbage(count, 0));
    let (rows, live) = (MAX_ROWS, 0);
    let fused = DeltaGates {
        alpha: alpha.view(heads, 1),
        beta: beta.view(heads, 1),
        g_out: g.view(heads, 1),
        beta_out: b.view(heads, 1),
        dt: dt.address(),
        a: a.address(),
        live,
        rows,
        heads,
    };
    run(&fused, 32);
    let over_rows = |buffer: &Buffer| View { address: buffer.address(), row: 0, item: 0 };
    let parts = g_parts.view(1, heads);
    let binary = |x, y, kind| Binary { x, y, out: parts, live, rows, items: 1, width: heads, kind };
    run(&binary(alpha.view(1, heads), over_rows(&dt), ADD), 32);
    let activate = |x, out, kind| Activation {
        x,
        out,
        live,
        rows,
        items: 1,
        width: heads,
        kind,
        softcap: 0.0,
        reserved: 0,
    };
    run(&activate(parts, parts, activation::SOFTPLUS), 32);
    run(&binary(parts, over_rows(&a), MUL), 32);
    run(&activate(beta.view(1, heads), b_parts.view(1, heads), activation::SIGMOID), 32);
    assert_eq!((g.bits(), b.bits()), (g_parts.bits(), b_parts.bits()));
}

#[test]
fn rms_norms() {
    each_shape(2, |inputs| {
        let (items, width) = (inputs.items, inputs.width);
        let w = Random::new(5).floats(width as usize, 1.0);
        for (weighted, gated) in [(true, false), (false, false), (true, true), (false, true)] {
            let graph = graph(items, width, 2, |b, x| {
                let w = b.weight("w", DType::F32, &[width]);
                let mut operands = vec![x[0]];
                operands.extend(weighted.then_some(w));
                operands.extend(gated.then_some(x[1]));
                let attributes = [
                    ("eps", Attribute::Float(1e-6)),
                    ("weight", Attribute::Integer(weighted.into())),
                    ("gate", Attribute::Integer(gated.into())),
                ];
                node(b, "rms_norm", &operands, &attributes)
            });
            let expected = inputs.expected(&graph, vec![bytes_of(&w)]).floats("out");
            let w = Buffer::floats_at(&w, inputs.offset);
            inputs.check("rms_norm", &expected, "rms_norm", |out, buffers, live, wave| {
                let p = RmsNorm {
                    x: buffers[0].view(items, width),
                    gate: if gated { buffers[1].view(items, width) } else { View::default() },
                    out,
                    weight: if weighted { w.address() } else { 0 },
                    live,
                    rows: MAX_ROWS,
                    items,
                    width,
                    epsilon: 1e-6,
                };
                run(&p, wave);
            });
        }
    });
}

#[test]
fn a_sum_and_its_norm_have_the_bits_of_both() {
    for width in [7, 128, 1024, 1028, 3000] {
        for offset in [0, 3] {
            let inputs = Inputs::new(1, width, 2, offset);
            let w = Random::new(6).floats(width as usize, 1.0);
            let w = Buffer::floats_at(&w, offset);
            let [x, y] = [0, 1].map(|i: usize| Buffer::floats_at(&inputs.data[i], offset));
            let count = (MAX_ROWS * width) as usize;
            let live = Buffer::of_integers(&[LIVE as i32]);
            let (rows, live) = (MAX_ROWS, live.address());
            let [sum, norm] = [0, 1].map(|_| Buffer::garbage(count, offset));
            let view = |b: &Buffer| b.view(1, width);
            let (weight, epsilon) = (w.address(), 1e-5);
            run(
                &Binary { x: view(&x), y: view(&y), out: view(&sum), live, rows, items: 1, width, kind: ADD },
                32,
            );
            let gate = View::default();
            run(
                &RmsNorm {
                    x: view(&sum),
                    gate,
                    out: view(&norm),
                    weight,
                    live,
                    rows,
                    items: 1,
                    width,
                    epsilon,
                },
                32,
            );
            for wave in WAVES {
                let [own_sum, own_norm] = [0, 1].map(|_| Buffer::garbage(count, offset));
                let p = AddRmsNorm {
                    x: view(&x),
                    y: view(&y),
                    sum: view(&own_sum),
                    out: view(&own_norm),
                    weight,
                    live,
                    rows,
                    width,
                    epsilon,
                    reserved: 0,
                };
                run(&p, wave);
                assert_eq!(own_sum.bits(), sum.bits(), "sum of {width}, wave {wave}");
                assert_eq!(own_norm.bits(), norm.bits(), "norm of {width}, wave {wave}");
            }
        }
    }
}

#[test]
fn l2_norms() {
    each_shape(1, |inputs| {
        let (items, width) = (inputs.items, inputs.width);
        let graph = graph(items, width, 1, |b, x| b.l2_norm(x[0], 1e-6));
        let expected = inputs.expected(&graph, Vec::new()).floats("out");
        inputs.check("l2_norm", &expected, "l2_norm", |out, buffers, live, wave| {
            let x = buffers[0].view(items, width);
            run(&L2Norm { x, out, live, rows: MAX_ROWS, items, width, epsilon: 1e-6 }, wave);
        });
    });
}

#[test]
fn softmaxes() {
    each_shape(1, |inputs| {
        let (items, width) = (inputs.items, inputs.width);
        let graph = graph(items, width, 1, |b, x| b.softmax(x[0]));
        let expected = inputs.expected(&graph, Vec::new()).floats("out");
        inputs.check("softmax", &expected, "softmax", |out, buffers, live, wave| {
            let x = buffers[0].view(items, width);
            run(&Softmax { x, out, live, rows: MAX_ROWS, items, width, reserved: 0 }, wave);
        });
    });
}

#[test]
fn a_row_has_the_same_bits_alone() {
    for width in [200, 5000] {
        let inputs = Inputs::new(2, width, 1, 0);
        let x = Buffer::of_floats(&inputs.data[0]);
        let row = (2 * width) as usize;
        let norm = |x: u64, rows: u32| {
            let out = Buffer::garbage(rows as usize * row, 0);
            let p = RmsNorm {
                x: View::dense(x, 2, width),
                out: out.view(2, width),
                rows,
                items: 2,
                width,
                epsilon: 1e-6,
                ..RmsNorm::default()
            };
            run(&p, 32);
            out.bits()
        };
        let together = norm(x.address(), MAX_ROWS);
        for r in 0..MAX_ROWS as usize {
            assert_eq!(norm(x.address() + 4 * (r * row) as u64, 1), together[r * row..(r + 1) * row]);
        }
    }
}
