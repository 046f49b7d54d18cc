//! Mixtures of experts, run on the host: choices against the reference executor, products against those of single rows, bit
//! by bit.
#![cfg(feature = "host")]

mod support;

use paceline_conformance::quant;
use paceline_conformance::random::Random;
use paceline_conformance::suite::tolerance::of_operation;
use paceline_kernels::layout::{self, WeightKind};
use paceline_kernels::params::elementwise::{Glu, activation};
use paceline_kernels::params::experts::{
    ExpertsCombine, ExpertsGate, ExpertsGather, ExpertsGroup, ExpertsLinear, Route, list_bytes, most_tiles,
    tile_rows,
};
use paceline_kernels::params::linear::{Linear, LinearSegment, Quantize, quantized_bytes};
use paceline_plugin_api::graph::{Builder, DType, Routing};
use support::{Buffer, Expected, WAVES, check, is_garbage, run};

/// Rows of logits, some with equal ones, one with numbers that are none.
fn logits(rows: usize, width: usize) -> Vec<f32> {
    let mut random = Random::new(11);
    let mut x: Vec<f32> = random.floats(rows * width, 2.0).iter().map(|x| (x * 4.0).round() / 4.0).collect();
    if width > 4 {
        (x[1], x[2], x[3]) = (f32::NAN, 0.0, -0.0);
    }
    x
}

#[test]
fn choices_are_those_of_the_reference() {
    let (rows, live) = (5, 4);
    for (width, k) in [(1, 1), (7, 7), (60, 4), (300, 8)] {
        for (sigmoid, normalize, factor) in
            [(false, true, 1.0), (false, false, 1.0), (true, true, 2.5), (true, false, 1.0)]
        {
            let mut b = Builder::new();
            let count = b.parameter("count", DType::I32, &[1], None);
            let x = b.parameter("x", DType::F32, &[rows, width], Some(count));
            let (ids, weights) = b.route(x, k, Routing { sigmoid, normalize, factor });
            b.result("ids", ids);
            b.result("weights", weights);
            let graph = b.finish();
            let values = logits(rows as usize, width as usize);
            let expected = Expected::of(&graph, Vec::new(), |block| {
                block.set_integers("count", &[live]);
                block.set_floats("x", 0, &values[..live as usize * width as usize]);
            });
            for wave in WAVES {
                let (x, count) = (Buffer::of_floats(&values), Buffer::of_integers(&[live]));
                let [ids, weights] = [0, 1].map(|_| Buffer::garbage((rows * k) as usize, 0));
                run(
                    &Route {
                        x: x.address(),
                        ids: ids.address(),
                        weights: weights.address(),
                        live: count.address(),
                        rows,
                        width,
                        k,
                        sigmoid: sigmoid.into(),
                        normalize: normalize.into(),
                        factor,
                    },
                    wave,
                );
                let live = (live * k as i32) as usize;
                assert_eq!(ids.integers()[..live], expected.integers("ids")[..], "{k} of {width}");
                let (given, wanted) = (weights.floats(), expected.floats("weights"));
                check(&format!("{k} of {width}"), &given[..live], &wanted, k, of_operation("route"));
                assert!(
                    ids.bits()[live..].iter().chain(&weights.bits()[live..]).all(|&word| is_garbage(word))
                );
            }
        }
    }
}

/// A list, taken apart.
struct List {
    words: Buffer,
    tile: u32,
    tiles: u32,
}

impl List {
    fn of(ids: &[i32], rows: u32, chosen: u32, experts: u32, live: i32, wave: u32) -> Self {
        let (tile, assignments) = (tile_rows(rows), u64::from(rows) * u64::from(chosen));
        let tiles = most_tiles(assignments, experts, tile);
        let words = Buffer::garbage(list_bytes(assignments, tiles, tile) as usize / 4, 0);
        let (ids, count) = (Buffer::of_integers(ids), Buffer::of_integers(&[live]));
        let tiles = tiles as u32;
        run(
            &ExpertsGroup {
                ids: ids.address(),
                list: words.address(),
                live: count.address(),
                rows,
                chosen,
                experts,
                tile,
                tiles,
                reserved: 0,
            },
            wave,
        );
        Self { words, tile, tiles }
    }

    /// (expert, assignments) of each tile.
    fn tiles(&self) -> Vec<(i32, Vec<usize>)> {
        let words = self.words.integers();
        let (most, tile) = (self.tiles as usize, self.tile as usize);
        let order = &words[4 + 2 * most..];
        let rows = |at: usize| words[4 + most + at] as usize;
        let of = |at: usize| order[at * tile..at * tile + rows(at)].iter().map(|&a| a as usize).collect();
        (0..words[0] as usize).map(|at| (words[4 + at], of(at))).collect()
    }

    /// The position of each assignment.
    fn places(&self) -> Vec<u32> {
        self.words.bits()[4 + ((2 + self.tile) * self.tiles) as usize..].to_vec()
    }
}

#[test]
fn tiles_hold_every_choice_of_an_expert_that_exists() {
    let mut random = Random::new(5);
    for (rows, chosen, experts, live) in
        [(2, 1, 1, 2), (3, 3, 5, 3), (16, 4, 600, 11), (40, 2, 3, 40), (90, 8, 128, 90), (17, 2, 4, 0)]
    {
        for wave in WAVES {
            // Two ids of each end are out of range.
            let id = |random: &mut Random| random.below(experts + 4) as i32 - 2;
            let ids: Vec<i32> = (0..rows * chosen).map(|_| id(&mut random)).collect();
            let list = List::of(&ids, rows, chosen, experts, live, wave);
            let live = live as usize * chosen as usize;
            let exists = |a: &usize| (0..experts as i32).contains(&ids[*a]);
            let (tiles, places) = (list.tiles(), list.places());
            let mut found = Vec::new();
            for (at, (expert, assignments)) in tiles.iter().enumerate() {
                assert!(!assignments.is_empty() && assignments.len() <= list.tile as usize);
                for (i, &a) in assignments.iter().enumerate() {
                    assert_eq!((ids[a], places[a]), (*expert, at as u32 * list.tile + i as u32));
                    found.push(a);
                }
            }
            // Only the last tile of an expert may have room left.
            for pair in tiles.windows(2) {
                assert!(
                    pair[0].0 < pair[1].0 || pair[0].0 == pair[1].0 && pair[0].1.len() == list.tile as usize
                );
            }
            found.sort_unstable();
            assert_eq!(found, (0..live).filter(exists).collect::<Vec<_>>());
            assert!((0..live).filter(|a| !exists(a)).all(|a| places[a] == u32::MAX));
            assert!(places[live..].iter().all(|&word| is_garbage(word)));
        }
    }
}

/// Stacked matrices.
struct Stack {
    kind: WeightKind,
    n: u32,
    k: u32,
    stride: u64,
    packed: Buffer,
}

impl Stack {
    fn random(kind: WeightKind, experts: u32, [n, k]: [u32; 2], random: &mut Random) -> Self {
        let (rows, columns) = (n as usize, k as usize);
        let stride = layout::packed_bytes(kind, rows, columns).unwrap();
        let mut packed = vec![0; stride * experts as usize];
        for matrix in packed.chunks_exact_mut(stride) {
            let values = random.floats(rows * columns, 0.1);
            let canonical = quant::quantize(DType(kind.gguf_id()), &values).unwrap();
            layout::pack(kind, rows, columns, &canonical, matrix).unwrap();
        }
        Self { kind, n, k, stride: stride as u64, packed: Buffer::of_bytes(&packed) }
    }

    /// One row times the matrix of one expert.
    fn times(&self, expert: i32, x: u64, wave: u32) -> Vec<u32> {
        let out = Buffer::garbage(self.n as usize, 0);
        let segment0 = LinearSegment {
            weight: self.packed.address() + expert as u64 * self.stride,
            out: out.address(),
            n: self.n,
            out_row: self.n,
            kind: self.kind.gguf_id(),
            ..Default::default()
        };
        run(&Linear { x, segment0, k: self.k, rows: 1, x_row: self.k, ..Default::default() }, wave);
        out.bits()
    }
}

fn quantized(x: u64, [rows, k]: [u32; 2], wave: u32) -> Buffer {
    let out = Buffer::garbage(quantized_bytes(rows, k) as usize / 4, 0);
    run(&Quantize { x, out: out.address(), rows, k, x_row: k, ..Default::default() }, wave);
    out
}

/// A mixture as kernels after kernels, and as products of single rows.
struct Mixture {
    rows: u32,
    chosen: u32,
    experts: u32,
    ids: Vec<i32>,
    x: Vec<f32>,
    gate: Stack,
    up: Stack,
    down: Stack,
}

impl Mixture {
    fn new([gate, up, down]: [WeightKind; 3], rows: u32, chosen: u32) -> Self {
        let (experts, mut random) = (5, Random::new(3));
        // A panel that is not full, blocks that are no whole units; blocks of 256 where the types have them.
        let wide = [gate, up, down].iter().any(|kind| kind.block_elements() == 256);
        let (width, inner) = if wide { (512, 256) } else { (96, 32) };
        let x = random.floats((rows * width) as usize, 1.0);
        let ids = (0..rows * chosen).map(|_| random.below(7) as i32 - 1).collect();
        let gate = Stack::random(gate, experts, [inner, width], &mut random);
        let up = Stack::random(up, experts, [inner, width], &mut random);
        let down = Stack::random(down, experts, [width, inner], &mut random);
        Self { rows, chosen, experts, ids, x, gate, up, down }
    }

    fn weights(&self) -> Vec<f32> {
        Random::new(9).floats(self.ids.len(), 1.0)
    }

    /// By products of one row each.
    fn single(&self, wave: u32) -> Vec<u32> {
        let width = self.gate.k as usize;
        let inner = self.gate.n;
        let mut out = Vec::new();
        for (row, x) in self.x.chunks_exact(width).enumerate() {
            let mut sums = vec![0.0f32; width];
            let x = Buffer::of_floats(x);
            let bytes = quantized(x.address(), [1, self.gate.k], wave);
            let of = |stack: &Stack, plain: &Buffer, quantized: &Buffer, expert| {
                let x = if stack.kind.is_quantized() { quantized } else { plain };
                stack.times(expert, x.address(), wave)
            };
            for place in row * self.chosen as usize..(row + 1) * self.chosen as usize {
                let expert = self.ids[place];
                if !(0..self.experts as i32).contains(&expert) {
                    continue;
                }
                let [gate, up] = [&self.gate, &self.up]
                    .map(|stack| Buffer::words(of(stack, &x, &bytes, expert).into_iter()));
                let y = Buffer::garbage(inner as usize, 0);
                let [gate, up, out] = [&gate, &up, &y].map(|buffer| buffer.view(1, inner));
                let kind = activation::SILU;
                run(&Glu { gate, up, out, live: 0, rows: 1, items: 1, width: inner, kind }, wave);
                let inner = quantized(y.address(), [1, inner], wave);
                let down = of(&self.down, &y, &inner, expert);
                for (sum, y) in sums.iter_mut().zip(down) {
                    *sum = f32::from_bits(y).mul_add(self.weights()[place], *sum);
                }
            }
            out.extend(sums.iter().map(|sum| sum.to_bits()));
        }
        out
    }

    /// As a run of all rows does it.
    fn grouped(&self, added: [Option<&Buffer>; 2], wave: u32) -> Vec<u32> {
        let &Self { rows, chosen, experts, .. } = self;
        let (width, inner) = (self.gate.k, self.gate.n);
        let (ids, x) = (Buffer::of_integers(&self.ids), Buffer::of_floats(&self.x));
        let live = Buffer::of_integers(&[rows as i32]);
        let list = (rows > 1).then(|| List::of(&self.ids, rows, chosen, experts, rows as i32, wave));
        let (tile, tiles) = list.as_ref().map_or((8, chosen), |list| (list.tile, list.tiles));
        let list_at = list.as_ref().map_or(0, |list| list.words.address());
        let positions = tile * tiles;
        let mut bytes = quantized(x.address(), [rows, width], wave);
        if list.is_some() {
            let out = Buffer::garbage(quantized_bytes(positions, width) as usize / 4, 0);
            let (x, to) = (bytes.address(), out.address());
            run(&ExpertsGather { x, out: to, list: list_at, k: width, chosen, tile, tiles }, wave);
            bytes = out;
        }
        let product = |stack: &Stack, second: u64, x: u64, by_position: bool, out: [u64; 2]| {
            let p = ExpertsLinear {
                x,
                list: list_at,
                ids: ids.address(),
                live: live.address(),
                weight0: stack.packed.address(),
                weight1: second,
                out0: out[0],
                out1: out[1],
                stride: stack.stride,
                n: stack.n,
                k: stack.k,
                kind: stack.kind.gguf_id(),
                experts,
                chosen,
                tile,
                tiles,
                by_position: by_position.into(),
                x_row: stack.k,
                early: 0,
            };
            run(&p, wave);
        };
        let floats = |width: u32| Buffer::garbage((positions * width) as usize, 0);
        let [gate, up] = [floats(inner), floats(inner)];
        let source = |stack: &Stack| match stack.kind.is_quantized() {
            true => (bytes.address(), list.is_some()),
            false => (x.address(), false),
        };
        if self.gate.kind == self.up.kind {
            let (x, by_position) = source(&self.gate);
            product(&self.gate, self.up.packed.address(), x, by_position, [gate.address(), up.address()]);
        } else {
            for (stack, out) in [(&self.gate, &gate), (&self.up, &up)] {
                let (x, by_position) = source(stack);
                product(stack, 0, x, by_position, [out.address(), 0]);
            }
        }
        let (plain, packed) =
            (floats(inner), Buffer::garbage(quantized_bytes(positions, inner) as usize / 4, 0));
        let is_quantized = self.down.kind.is_quantized();
        run(
            &ExpertsGate {
                gate: gate.address(),
                up: up.address(),
                out: if is_quantized { 0 } else { plain.address() },
                quantized: if is_quantized { packed.address() } else { 0 },
                list: list_at,
                ids: ids.address(),
                live: live.address(),
                width: inner,
                kind: activation::SILU,
                experts,
                tile,
                tiles,
                out_row: inner,
            },
            wave,
        );
        let y = floats(width);
        let source = if is_quantized { &packed } else { &plain };
        product(&self.down, 0, source.address(), true, [y.address(), 0]);
        let out = Buffer::garbage((rows * width) as usize, 0);
        let weights = Buffer::of_floats(&self.weights());
        run(
            &ExpertsCombine {
                y: y.address(),
                list: list_at,
                ids: ids.address(),
                weights: weights.address(),
                add0: added[0].map_or(0, Buffer::address),
                add1: added[1].map_or(0, Buffer::address),
                out: out.address(),
                live: live.address(),
                rows,
                width,
                chosen,
                experts,
                tile,
                tiles,
                add0_row: width,
                add1_row: width,
            },
            wave,
        );
        out.bits()
    }
}

/// Whatever the tiles are, and whichever kernel runs, a row has the bits of products of its own.
#[test]
fn rows_have_the_bits_of_single_products() {
    let kinds = WeightKind::ALL.map(|kind| [kind; 3]);
    let mixed = [
        [WeightKind::Q8_0, WeightKind::F32, WeightKind::Q5_1],
        [WeightKind::Q4K, WeightKind::Q4K, WeightKind::Q6K],
        [WeightKind::Bf16, WeightKind::F16, WeightKind::Q4_0],
    ];
    for (index, kinds) in kinds.into_iter().chain(mixed).enumerate() {
        // Each width of waves for some kinds, all for a few.
        let waves = if index % 4 == 0 { &WAVES[..] } else { &WAVES[index % 3..index % 3 + 1] };
        for (rows, chosen) in [(1, 3), (3, 2), (45, 1)] {
            let mixture = Mixture::new(kinds, rows, chosen);
            for &wave in waves {
                assert_eq!(mixture.grouped([None; 2], wave), mixture.single(wave), "{kinds:?}, {rows} rows");
            }
        }
    }
}

#[test]
fn what_is_added_has_the_bits_of_sums_by_themselves() {
    let mixture = Mixture::new([WeightKind::Q8_0; 3], 3, 2);
    let mut random = Random::new(4);
    let [first, second] = [0, 1].map(|_| random.floats(mixture.x.len(), 1.0));
    let [a, b] = [&first, &second].map(|values| Buffer::of_floats(values));
    let sums = mixture.grouped([None; 2], 32);
    let given = mixture.grouped([Some(&a), Some(&b)], 32);
    for (index, (sum, given)) in sums.iter().zip(given).enumerate() {
        let expected = f32::from_bits(*sum) + first[index] + second[index];
        assert_eq!(expected.to_bits(), given);
    }
}
