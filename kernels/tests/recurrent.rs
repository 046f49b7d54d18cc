//! Convolution, the delta rule and its replay on the host, against the reference executor and against themselves.
#![cfg(feature = "host")]

mod support;

use paceline_conformance::ReferenceExecutor;
use paceline_conformance::block::{ParameterBlock, floats};
use paceline_conformance::random::Random;
use paceline_conformance::suite::tolerance::of_operation;
use paceline_kernels::params::norms::L2Norm;
use paceline_kernels::params::recurrent::{
    ConvCausal, DeltaReplay, GatedDeltaNet, PLAIN, RECORDS, SNAPSHOTS,
};
use paceline_plugin_api::graph::{Attribute, Builder, DType, Graph, StateKind};
use support::{Buffer, WAVES, bytes_of, check, node, run};

const SLOTS: u32 = 3;
const MAX_ROWS: u32 = 24;

/// Sequences (first row, rows, length before, slot) of a run, with plane, bank and keep of each.
#[derive(Clone)]
struct Step {
    sequences: Vec<[i32; 4]>,
    rollback: Vec<[i32; 3]>,
}

impl Step {
    fn rows(&self) -> usize {
        self.sequences.iter().map(|s| s[1] as usize).sum()
    }
}

/// Runs that begin, go on, go back by some rows, and use slots again. Planes and banks are those that the runs before left.
fn script(planes: i32, records: i32) -> Vec<Step> {
    let step = |parts: &[([i32; 4], [i32; 3])]| Step {
        sequences: parts.iter().map(|part| part.0).collect(),
        rollback: parts.iter().map(|part| part.1).collect(),
    };
    let after = |plane: i32, rows: i32| (plane + rows).rem_euclid(planes);
    let kept = 3.min(records);
    vec![
        step(&[([0, 9, 0, 1], [0, 0, 0]), ([9, 2, 0, 0], [0, 1, 0])]),
        // Slot 1 goes on after all rows; slot 0 only after its first.
        step(&[
            ([0, 1, 1, 0], [after(0, 1), 0, 1.min(records)]),
            ([1, 5, 9, 1], [after(0, 9), 1, records.min(9)]),
        ]),
        // Slot 1 takes 2 of its 5 rows back, a sequence begins in slot 2, one has no rows.
        step(&[
            ([0, 4, 12, 1], [after(after(0, 9), 3), 0, kept]),
            ([4, 7, 0, 2], [0, 0, 0]),
            ([11, 0, 2, 0], [0, 0, 0]),
        ]),
        step(&[([0, 3, 0, 0], [0, 0, 0]), ([3, 2, 7, 2], [after(0, 7), 1, records.min(7)])]),
    ]
}

fn fill(block: &mut ParameterBlock<'_>, step: &Step, has_rollback: bool) {
    block
        .set_integers("rows", &[step.rows() as i32])
        .set_integers("sequence_count", &[step.sequences.len() as i32])
        .set_integers("sequences", step.sequences.as_flattened());
    if has_rollback {
        block.set_integers("rollback", step.rollback.as_flattened());
    }
}

/// Addresses of a step's lists.
struct Lists {
    sequences: Buffer,
    count: Buffer,
    rollback: Buffer,
}

impl Lists {
    fn of(step: &Step) -> Self {
        Self {
            sequences: Buffer::of_integers(step.sequences.as_flattened()),
            count: Buffer::of_integers(&[step.sequences.len() as i32]),
            rollback: Buffer::of_integers(step.rollback.as_flattened()),
        }
    }
}

#[test]
fn convolutions() {
    for (channels, taps, planes, silu) in
        [(150u32, 4u32, 1u32, true), (150, 4, 8, true), (7, 2, 8, false), (130, 9, 10, false)]
    {
        let mut b = Builder::new();
        let rows = b.parameter("rows", DType::I32, &[1], None);
        let count = b.parameter("sequence_count", DType::I32, &[1], None);
        let x = b.parameter("x", DType::F32, &[MAX_ROWS, channels], Some(rows));
        let sequences = b.parameter("sequences", DType::I32, &[SLOTS, 4], Some(count));
        let w = b.weight("w", DType::F32, &[channels, taps]);
        let state = b.state("s", StateKind::PerSlot, DType::F32, &[SLOTS * planes, taps - 1, channels]);
        let mut inputs = vec![x, w, state, sequences];
        if planes > 1 {
            inputs.push(b.parameter("rollback", DType::I32, &[SLOTS, 3], Some(count)));
        }
        let attributes = [
            ("activation", Attribute::Text(if silu { "silu" } else { "none" }.into())),
            ("planes", Attribute::Integer(planes.into())),
        ];
        let out = node(&mut b, "conv_causal", &inputs, &attributes);
        b.result("out", out);
        let graph = b.finish();
        for wave in WAVES {
            let mut random = Random::new(41);
            let w = random.floats((channels * taps) as usize, 0.5);
            let mut reference = ReferenceExecutor::new(&graph, vec![bytes_of(&w)]).unwrap();
            let weight = Buffer::of_floats(&w);
            // A state of NaN: whoever begins must not read it.
            let state = Buffer::garbage((SLOTS * planes * (taps - 1) * channels) as usize, 0);
            for (index, mut step) in script(planes as i32, 0).into_iter().enumerate() {
                if planes == 1 {
                    // Nothing can be taken back.
                    step.rollback.iter_mut().for_each(|entry| *entry = [0; 3]);
                }
                let x = random.floats(step.rows() * channels as usize, 1.0);
                let mut block = ParameterBlock::new(&graph);
                fill(&mut block, &step, planes > 1);
                block.set_floats("x", 0, &x);
                let results = reference.run(block.bytes()).unwrap();
                let expected = floats(&graph, block.bytes(), &results, "out");
                let lists = Lists::of(&step);
                let (x, out) = (Buffer::of_floats(&x), Buffer::garbage(x.len(), 0));
                let p = ConvCausal {
                    x: x.view(1, channels),
                    out: out.view(1, channels),
                    weight: weight.address(),
                    state: state.address(),
                    sequences: lists.sequences.address(),
                    live_sequences: lists.count.address(),
                    rollback: if planes > 1 { lists.rollback.address() } else { 0 },
                    max_sequences: SLOTS,
                    channels,
                    taps,
                    planes,
                    slots: SLOTS,
                    silu: silu.into(),
                    rows: step.rows() as u32,
                    early: 0,
                };
                run(&p, wave);
                let what =
                    format!("{channels} channels, {taps} taps, {planes} planes, step {index}, wave {wave}");
                check(&what, &out.floats(), &expected, channels, of_operation("conv_causal"));
            }
        }
    }
}

/// Threads that share a channel have the bits of one that has it alone, also of the windows that stay.
#[test]
fn convolutions_of_many_rows() {
    // A sequence that goes on, one that begins, and one with fewer rows than threads share.
    let list = [[0, 150, 7, 1], [150, 130, 0, 0], [280, 5, 3, 2]];
    let (rows, channels) = (285usize, 70u32);
    for (taps, planes, wave) in [(4u32, 1u32, 32), (4, 20, 64), (9, 1, 8), (16, 3, 32)] {
        let mut random = Random::new(u64::from(taps));
        let x = Buffer::of_floats(&random.floats(rows * channels as usize, 1.0));
        let weight = Buffer::of_floats(&random.floats((channels * taps) as usize, 0.5));
        let initial = random.floats((SLOTS * planes * (taps - 1) * channels) as usize, 1.0);
        let sequences = Buffer::of_integers(list.as_flattened());
        let rollback = Buffer::of_integers(&[[planes as i32 - 1, 0, 0]; 3].concat());
        let results = [1, rows as u32].map(|planned| {
            let (state, out) = (Buffer::of_floats(&initial), Buffer::garbage(rows * channels as usize, 0));
            let p = ConvCausal {
                x: x.view(1, channels),
                out: out.view(1, channels),
                weight: weight.address(),
                state: state.address(),
                sequences: sequences.address(),
                rollback: rollback.address(),
                max_sequences: SLOTS,
                channels,
                taps,
                planes,
                slots: SLOTS,
                silu: 1,
                rows: planned,
                ..Default::default()
            };
            run(&p, wave);
            (out.bits(), state.bits())
        });
        assert!(results[0] == results[1], "{taps} taps, {planes} planes");
    }
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    key_heads: u32,
    value_heads: u32,
    key_width: u32,
    value_width: u32,
    mode: u32,
    planes: u32,
    records: u32,
}

impl Shape {
    fn record_width(self) -> u32 {
        self.value_heads * (self.value_width + 1) + self.key_heads * self.key_width
    }

    fn state(self) -> usize {
        (SLOTS * self.planes * self.value_heads * self.key_width * self.value_width) as usize
    }

    fn record_floats(self) -> usize {
        (SLOTS * 2 * self.records * self.record_width()) as usize
    }

    fn graph(self) -> Graph {
        let mut b = Builder::new();
        let rows = b.parameter("rows", DType::I32, &[1], None);
        let count = b.parameter("sequence_count", DType::I32, &[1], None);
        let sequences = b.parameter("sequences", DType::I32, &[SLOTS, 4], Some(count));
        let mut part = |name: &str, dims: &[u32]| {
            b.parameter(name, DType::F32, &[&[MAX_ROWS], dims].concat(), Some(rows))
        };
        let mut inputs = vec![
            part("q", &[self.key_heads, self.key_width]),
            part("k", &[self.key_heads, self.key_width]),
            part("v", &[self.value_heads, self.value_width]),
            part("g", &[self.value_heads]),
            part("beta", &[self.value_heads]),
        ];
        let dims = [SLOTS * self.planes, self.value_heads, self.key_width, self.value_width];
        let state = b.state("s", StateKind::PerSlot, DType::F32, &dims);
        inputs.extend([state, sequences]);
        let name = match self.mode {
            PLAIN => "plain",
            SNAPSHOTS => "snapshots",
            _ => "records",
        };
        if self.mode != PLAIN {
            let rollback = b.parameter("rollback", DType::I32, &[SLOTS, 3], Some(count));
            if self.mode == RECORDS {
                let dims = [SLOTS * 2, self.records, self.record_width()];
                let records = b.state("r", StateKind::PerSlot, DType::F32, &dims);
                b.gated_delta_net_replay(state, records, sequences, rollback);
                inputs.push(records);
            }
            inputs.push(rollback);
        }
        let attributes = [
            ("mode", Attribute::Text(name.into())),
            ("planes", Attribute::Integer(self.planes.into())),
            ("scale", Attribute::Float(0.25)),
        ];
        let out = node(&mut b, "gated_delta_net", &inputs, &attributes);
        b.result("out", out);
        b.finish()
    }
}

/// Content of the rows of a step.
struct Rows {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    g: Vec<f32>,
    beta: Vec<f32>,
}

fn unit(values: Vec<f32>, width: u32) -> Vec<f32> {
    let norm = |item: &[f32]| item.iter().map(|v| v * v).sum::<f32>().sqrt();
    values.chunks_exact(width as usize).flat_map(|item| item.iter().map(move |v| v / norm(item))).collect()
}

impl Rows {
    fn new(shape: Shape, rows: usize, random: &mut Random) -> Self {
        let mut part = |width: u32| random.floats(rows * width as usize, 1.0);
        let (q, k) = (part(shape.key_heads * shape.key_width), part(shape.key_heads * shape.key_width));
        let (v, g, beta) =
            (part(shape.value_heads * shape.value_width), part(shape.value_heads), part(shape.value_heads));
        Self {
            q: unit(q, shape.key_width),
            k: unit(k, shape.key_width),
            v,
            g: g.into_iter().map(|g| -g.abs()).collect(),
            beta: beta.into_iter().map(|beta| 1.0 / (1.0 + beta.exp())).collect(),
        }
    }
}

struct States {
    state: Buffer,
    records: Buffer,
}

impl States {
    fn new(shape: Shape) -> Self {
        Self {
            state: Buffer::garbage(shape.state(), 0),
            records: Buffer::garbage(shape.record_floats().max(1), 0),
        }
    }

    fn run(&self, shape: Shape, step: &Step, rows: &Rows, wave: u32) -> Vec<f32> {
        let lists = Lists::of(step);
        let [q, k, v, g, beta] =
            [&rows.q, &rows.k, &rows.v, &rows.g, &rows.beta].map(|part| Buffer::of_floats(part));
        let out = Buffer::garbage(rows.v.len(), 0);
        if shape.mode == RECORDS {
            let p = DeltaReplay {
                state: self.state.address(),
                records: self.records.address(),
                sequences: lists.sequences.address(),
                live_sequences: lists.count.address(),
                rollback: lists.rollback.address(),
                max_sequences: SLOTS,
                key_heads: shape.key_heads,
                value_heads: shape.value_heads,
                key_width: shape.key_width,
                value_width: shape.value_width,
                slots: SLOTS,
                records_count: shape.records,
                reserved: 0,
            };
            run(&p, wave);
        }
        run(&self.parameters(shape, &lists, [&q, &k, &v, &g, &beta], &out), wave);
        out.floats()
    }

    fn parameters(&self, shape: Shape, lists: &Lists, inputs: [&Buffer; 5], out: &Buffer) -> GatedDeltaNet {
        GatedDeltaNet {
            q: inputs[0].view(shape.key_heads, shape.key_width),
            k: inputs[1].view(shape.key_heads, shape.key_width),
            v: inputs[2].view(shape.value_heads, shape.value_width),
            g: inputs[3].view(shape.value_heads, 1),
            beta: inputs[4].view(shape.value_heads, 1),
            out: out.view(shape.value_heads, shape.value_width),
            state: self.state.address(),
            records: if shape.mode == RECORDS { self.records.address() } else { 0 },
            sequences: lists.sequences.address(),
            live_sequences: lists.count.address(),
            rollback: if shape.mode == PLAIN { 0 } else { lists.rollback.address() },
            max_sequences: SLOTS,
            key_heads: shape.key_heads,
            value_heads: shape.value_heads,
            key_width: shape.key_width,
            value_width: shape.value_width,
            slots: SLOTS,
            planes: shape.planes,
            mode: shape.mode,
            records_count: shape.records,
            scale: 0.25,
            dt: 0,
            a: 0,
            normalize: 0,
            epsilon: 0.0,
            early: shape.planes % 2,
            reserved: 0,
        }
    }
}

const MODES: [(u32, u32, u32); 5] =
    [(PLAIN, 1, 0), (SNAPSHOTS, 1, 0), (SNAPSHOTS, 10, 0), (RECORDS, 1, 4), (RECORDS, 1, 12)];
/// Key heads, value heads, key width, value width: all kernels, widths that are no multiples of anything.
const SIZES: [[u32; 4]; 5] =
    [[2, 4, 16, 16], [1, 3, 64, 40], [2, 2, 100, 33], [1, 2, 128, 128], [1, 1, 200, 8]];

#[test]
fn the_delta_rule_in_all_modes() {
    for [key_heads, value_heads, key_width, value_width] in SIZES {
        for (mode, planes, records) in MODES {
            let shape = Shape { key_heads, value_heads, key_width, value_width, mode, planes, records };
            let graph = shape.graph();
            for wave in WAVES {
                let mut reference = ReferenceExecutor::new(&graph, Vec::new()).unwrap();
                let mut random = Random::new(42);
                let states = States::new(shape);
                for (index, mut step) in script(planes as i32, records as i32).into_iter().enumerate() {
                    if mode == PLAIN {
                        step.rollback.iter_mut().for_each(|entry| *entry = [0; 3]);
                    }
                    let rows = Rows::new(shape, step.rows(), &mut random);
                    let mut block = ParameterBlock::new(&graph);
                    fill(&mut block, &step, mode != PLAIN);
                    for (name, part) in
                        [("q", &rows.q), ("k", &rows.k), ("v", &rows.v), ("g", &rows.g), ("beta", &rows.beta)]
                    {
                        block.set_floats(name, 0, part);
                    }
                    let results = reference.run(block.bytes()).unwrap();
                    let expected = floats(&graph, block.bytes(), &results, "out");
                    let given = states.run(shape, &step, &rows, wave);
                    let what = format!("{shape:?}, step {index}, wave {wave}");
                    check(&what, &given, &expected, value_width, of_operation("gated_delta_net"));
                }
            }
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

impl Rows {
    fn part(&self, shape: Shape, from: usize, to: usize) -> Self {
        let cut = |values: &[f32], width: u32| values[from * width as usize..to * width as usize].to_vec();
        Self {
            q: cut(&self.q, shape.key_heads * shape.key_width),
            k: cut(&self.k, shape.key_heads * shape.key_width),
            v: cut(&self.v, shape.value_heads * shape.value_width),
            g: cut(&self.g, shape.value_heads),
            beta: cut(&self.beta, shape.value_heads),
        }
    }
}

/// A sequence of 9 rows in one run, row by row, and with rows that are taken back after planes or records: the same bits.
#[test]
fn all_ways_have_the_same_bits() {
    for [key_heads, value_heads, key_width, value_width] in SIZES {
        let shape = |(mode, planes, records)| Shape {
            key_heads,
            value_heads,
            key_width,
            value_width,
            mode,
            planes,
            records,
        };
        let rows = Rows::new(shape(MODES[0]), 12, &mut Random::new(43));
        let width = (value_heads * value_width) as usize;
        let sequence = |rows: i32, length: i32, rollback: [i32; 3]| Step {
            sequences: vec![[0, rows, length, 1]],
            rollback: vec![rollback],
        };
        let plain = shape((PLAIN, 1, 0));
        let whole = States::new(plain);
        let together = bits(&whole.run(plain, &sequence(9, 0, [0; 3]), &rows.part(plain, 0, 9), 32));
        let single = States::new(plain);
        let one_by_one: Vec<u32> = (0..9)
            .flat_map(|r| {
                bits(&single.run(
                    plain,
                    &sequence(1, r, [0; 3]),
                    &rows.part(plain, r as usize, r as usize + 1),
                    64,
                ))
            })
            .collect();
        assert_eq!(together, one_by_one);
        assert_eq!(whole.state.bits(), single.state.bits());

        // 7 rows, of which the last 4 are wrong and taken back, then 6 right ones.
        let mut wrong = rows.part(plain, 0, 7);
        wrong.v[3 * width..].iter_mut().for_each(|v| *v += 1.0);
        for (mode, planes, records) in [(SNAPSHOTS, 8, 0), (RECORDS, 1, 5), (RECORDS, 1, 16)] {
            let shape = shape((mode, planes, records));
            let states = States::new(shape);
            let first = bits(&states.run(shape, &sequence(7, 0, [0, 1, 0]), &wrong, 32));
            assert_eq!(first[..3 * width], together[..3 * width]);
            // Records of the last min(7, records) rows: of these the first ones up to row 3 are kept.
            let keep = 3 - 7i32.saturating_sub(records as i32).max(0);
            let second = sequence(6, 3, [3 % planes.max(1) as i32, 0, keep]);
            let second = bits(&states.run(shape, &second, &rows.part(plain, 3, 9), 64));
            assert_eq!(second, together[3 * width..], "{shape:?}");
        }
    }
}

#[test]
fn norms_inside_have_the_bits_of_l2_norm() {
    for [key_heads, value_heads, key_width, value_width] in SIZES {
        let shape =
            Shape { key_heads, value_heads, key_width, value_width, mode: PLAIN, planes: 1, records: 0 };
        let mut random = Random::new(44);
        let mut rows = Rows::new(shape, 6, &mut random);
        for part in [&mut rows.q, &mut rows.k] {
            part.iter_mut().for_each(|v| *v *= 3.0);
        }
        let step = Step { sequences: vec![[0, 6, 0, 2]], rollback: vec![[0; 3]] };
        let inputs = [&rows.q, &rows.k, &rows.v, &rows.g, &rows.beta].map(|part| Buffer::of_floats(part));
        let [q, k, v, g, beta] = inputs.each_ref();
        let lists = Lists::of(&step);
        let results = [0, 1].map(|_| Buffer::garbage(rows.v.len(), 0));
        let p = GatedDeltaNet {
            normalize: 1,
            epsilon: 1e-6,
            ..States::new(shape).parameters(shape, &lists, [q, k, v, g, beta], &results[0])
        };
        let states = States::new(shape);
        run(&GatedDeltaNet { state: states.state.address(), ..p }, 32);
        let normed = [q, k].map(|part| {
            let out = Buffer::garbage(rows.q.len(), 0);
            let view = |buffer: &Buffer| buffer.view(key_heads, key_width);
            let p = L2Norm {
                x: view(part),
                out: view(&out),
                live: 0,
                rows: 6,
                items: key_heads,
                width: key_width,
                epsilon: 1e-6,
            };
            run(&p, 32);
            out
        });
        let states = States::new(shape);
        run(&states.parameters(shape, &lists, [&normed[0], &normed[1], v, g, beta], &results[1]), 32);
        assert_eq!(results[0].bits(), results[1].bits());
    }
}
