//! Quantised activations, products and gathers of rows, run on the host: against formulas and the reference's values.
#![cfg(feature = "host")]

mod support;

use paceline_conformance::random::Random;
use paceline_kernels::layout::{self, WeightKind};
use paceline_kernels::params::linear::{
    Embed, Linear, LinearSegment, Quantize, RECORD_BYTES, quantized_bytes,
};
use support::weights::{Weight, segment, widths};
use support::{Buffer, WAVES, run};

/// Rows of activations, as a product of this kind wants them.
struct Activations {
    rows: usize,
    x: Buffer,
    x_row: usize,
    quantized: Buffer,
}

impl Activations {
    fn new(values: &[f32], rows: usize, wave: u32) -> Self {
        let k = values.len() / rows;
        // A gap between rows, so that a stride that is taken for k shows.
        let x_row = k.next_multiple_of(4) + 8;
        let mut spread = vec![f32::NAN; rows * x_row];
        for (to, from) in spread.chunks_exact_mut(x_row).zip(values.chunks_exact(k)) {
            to[..k].copy_from_slice(from);
        }
        let x = Buffer::of_floats(&spread);
        let quantized = Buffer::garbage(quantized_bytes(rows as u32, k as u32) as usize / 4, 0);
        if k.is_multiple_of(32) {
            let p = Quantize {
                x: x.address(),
                out: quantized.address(),
                rows: rows as u32,
                k: k as u32,
                x_row: x_row as u32,
                ..Default::default()
            };
            run(&p, wave);
        }
        Self { rows, x, x_row, quantized }
    }

    fn params(&self, weight: &Weight, out: &Buffer, out_row: usize) -> Linear {
        let x = if weight.kind.is_quantized() { self.quantized.address() } else { self.x.address() };
        Linear {
            x,
            segment0: segment(weight, out.address(), out_row),
            k: weight.k as u32,
            rows: self.rows as u32,
            x_row: self.x_row as u32,
            ..Default::default()
        }
    }

    /// All rows times a weight.
    fn times(&self, weight: &Weight, wave: u32) -> Vec<f32> {
        let out = Buffer::garbage(self.rows * weight.n, 0);
        run(&self.params(weight, &out, weight.n), wave);
        out.floats()
    }
}

/// A block by the formula: quants, scale, scaled sum.
fn quantized_block(values: &[f32]) -> ([i8; 32], f32, f32) {
    let largest = values.iter().fold(0.0f32, |a, v| if v.is_nan() { f32::INFINITY } else { a.max(v.abs()) });
    if largest.is_infinite() {
        return ([0; 32], f32::NAN, f32::NAN);
    }
    if largest < 2f32.powi(-100) {
        return ([0; 32], 0.0, 0.0);
    }
    let quants: [i8; 32] = std::array::from_fn(|i| (values[i] * (127.0 / largest)).round_ties_even() as i8);
    let scale = largest / 127.0;
    (quants, scale, scale * quants.iter().map(|&q| i32::from(q)).sum::<i32>() as f32)
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

#[test]
fn activations_are_quantised_by_the_formula() {
    let (rows, k) = (11, 1056);
    let mut random = Random::new(1);
    let mut values = random.floats(rows * k, 3.0);
    values[5] = f32::NAN;
    values[k + 40] = f32::NEG_INFINITY;
    values[2 * k..2 * k + 32].fill(2f32.powi(-101));
    values[2 * k + 32..2 * k + 64].fill(1e-40);
    values[3 * k..3 * k + 32].fill(-0.0);
    values[4 * k] = f32::MAX;
    // Ties: the largest is 127, so that quants are the values.
    values[5 * k] = 127.0;
    for (i, value) in values[5 * k + 1..5 * k + 32].iter_mut().enumerate() {
        *value = i as f32 - 15.5;
    }
    for wave in WAVES {
        let quantized = Activations::new(&values, rows, wave).quantized;
        let bytes = quantized.bytes(usize::MAX);
        let pairs = (k / 32usize).div_ceil(2);
        for r in 0..rows {
            for b in 0..2 * pairs {
                let record = &bytes[(r / 8 * pairs + b / 2) * RECORD_BYTES as usize..];
                let scale_at = 512 + 16 * (r % 8 / 2) + 8 * (b % 2) + 4 * (r % 2);
                let float = |at: usize| f32::from_le_bytes(record[at..at + 4].try_into().unwrap());
                let expected = match b < k / 32 {
                    true => quantized_block(&values[r * k + b * 32..][..32]),
                    false => ([0; 32], 0.0, 0.0),
                };
                for (e, expected) in expected.0.into_iter().enumerate() {
                    let at = 64 * (r % 8) + 16 * (e % 16 / 4) + 8 * (b % 2) + 4 * (e / 16) + e % 4;
                    assert_eq!(record[at] as i8, expected, "row {r}, block {b}, element {e}");
                }
                assert!(same(float(scale_at), expected.1), "row {r}, block {b}");
                assert!(same(float(scale_at + 64), expected.2), "row {r}, block {b}");
            }
        }
    }
}

/// What a product comes to in f64, from the values of the weight and the rounded activations.
fn expected(weight: &Weight, values: &[f32]) -> Vec<f64> {
    let rounded: Vec<f64> = match weight.kind.is_quantized() {
        true => values
            .chunks_exact(32)
            .flat_map(|block| {
                let (quants, scale, _) = quantized_block(block);
                quants.map(|q| f64::from(q) * f64::from(scale))
            })
            .collect(),
        false => values.iter().map(|&v| f64::from(v)).collect(),
    };
    let dot = |x: &[f64], w: &[f32]| x.iter().zip(w).map(|(x, &w)| x * f64::from(w)).sum();
    let rows = rounded.chunks_exact(weight.k);
    rows.flat_map(|x| weight.values.chunks_exact(weight.k).map(move |w| dot(x, w))).collect()
}

#[test]
fn products_are_those_of_the_reference_and_rows_do_not_depend_on_each_other() {
    for kind in WeightKind::ALL {
        for &k in widths(kind) {
            let mut random = Random::named(k as u64, kind.name());
            let weight = Weight::random(kind, 21, k, &mut random);
            let (most, few) = if k < 1000 { (66, 3) } else { (18, 9) };
            let values = random.floats(most * k, 1.0);
            let all = Activations::new(&values, most, 32).times(&weight, 32);
            for (row, expected) in all.chunks_exact(21).zip(expected(&weight, &values).chunks_exact(21)) {
                let size = (expected.iter().map(|v| v * v).sum::<f64>() / 21.0).sqrt();
                for (y, expected) in row.iter().zip(expected) {
                    assert!(
                        (f64::from(*y) - expected).abs() <= 4e-6 * size + 1e-7,
                        "{kind} {k}: {y} for {expected}"
                    );
                }
            }
            let runs = [(1, 64), (2, 32), (few, 64), (8, 32), (9, 64), (16, 32), (17, 64)];
            for (rows, wave) in runs {
                let part = Activations::new(&values[..rows * k], rows, wave).times(&weight, wave);
                let same = part.iter().zip(&all).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{kind} {k}: {rows} rows, waves of {wave}");
            }
        }
    }
}

/// What the product takes of a block: quants, d (times the scale of the block), what is added for each unit of the
/// activations; for Q6_K the scales of both halves.
struct Block {
    quants: [i32; 32],
    d: f32,
    minimum: Option<f32>,
    halves: Option<[i32; 2]>,
}

fn blocks(kind: WeightKind, canonical: &[u8]) -> Vec<Block> {
    let half = |bytes: &[u8], at: usize| half::f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
    let nibble = |byte: u8, upper: bool| i32::from(if upper { byte >> 4 } else { byte & 15 });
    let of = |bytes: &[u8], part: usize| match kind {
        WeightKind::Q8_0 => Block {
            quants: std::array::from_fn(|e| i32::from(bytes[2 + e] as i8)),
            d: half(bytes, 0),
            minimum: None,
            halves: None,
        },
        WeightKind::Q5_1 => Block {
            quants: std::array::from_fn(|e| {
                nibble(bytes[8 + e % 16], e >= 16) | i32::from(bytes[4 + e / 8] >> (e % 8) & 1) << 4
            }),
            d: half(bytes, 0),
            minimum: Some(half(bytes, 2)),
            halves: None,
        },
        WeightKind::Q4K => {
            let packed = &bytes[4..16];
            let (scale, minimum) = if part < 4 {
                (packed[part] & 63, packed[part + 4] & 63)
            } else {
                let upper = [packed[part - 4] >> 6 << 4, packed[part] >> 6 << 4];
                (packed[part + 4] & 15 | upper[0], packed[part + 4] >> 4 | upper[1])
            };
            Block {
                quants: std::array::from_fn(|e| nibble(bytes[16 + part / 2 * 32 + e], part % 2 == 1)),
                d: half(bytes, 0) * f32::from(scale),
                minimum: Some(-(half(bytes, 2) * f32::from(minimum))),
                halves: None,
            }
        }
        WeightKind::Q6K => Block {
            quants: std::array::from_fn(|e| {
                let low = nibble(bytes[part / 4 * 64 + part % 2 * 32 + e], part % 4 >= 2);
                let high = i32::from(bytes[128 + part / 4 * 32 + e] >> (part % 4 * 2) & 3);
                (low | high << 4) - 32
            }),
            d: half(bytes, 208),
            minimum: None,
            halves: Some([0, 1].map(|h| i32::from(bytes[192 + 2 * part + h] as i8))),
        },
        _ => unreachable!("{kind} is not spelt out here"),
    };
    let parts = kind.block_elements() / 32;
    canonical
        .chunks_exact(kind.block_bytes())
        .flat_map(|bytes| (0..parts).map(move |part| of(bytes, part)))
        .collect()
}

/// The numerics that are documented, step by step.
#[test]
fn sums_take_blocks_in_the_stated_order() {
    for (kind, unit) in
        [(WeightKind::Q8_0, 4), (WeightKind::Q5_1, 8), (WeightKind::Q4K, 8), (WeightKind::Q6K, 8)]
    {
        let (n, k) = (18, 5120);
        let mut random = Random::named(6, kind.name());
        let weight = Weight::random(kind, n, k, &mut random);
        let mut canonical = vec![0; layout::canonical_bytes(kind, n, k).unwrap()];
        layout::unpack(kind, n, k, &weight.packed.bytes(usize::MAX), &mut canonical).unwrap();
        let blocks = blocks(kind, &canonical);
        let values = random.floats(k, 1.0);
        let x: Vec<_> = values.chunks_exact(32).map(quantized_block).collect();
        let expected = blocks.chunks_exact(k / 32).map(|row| {
            let mut slices = [0f32; 8];
            for (b, (block, (quants, xs, xsum))) in row.iter().zip(&x).enumerate() {
                let sum = &mut slices[b / unit % 8];
                let dot = |from: usize, to: usize| -> i32 {
                    block.quants[from..to].iter().zip(&quants[from..to]).map(|(w, x)| w * i32::from(*x)).sum()
                };
                let whole = match block.halves {
                    Some([first, second]) => first * dot(0, 16) + second * dot(16, 32),
                    None => dot(0, 32),
                };
                *sum = (whole as f32).mul_add(block.d * xs, *sum);
                if let Some(minimum) = block.minimum {
                    *sum = minimum.mul_add(*xsum, *sum);
                }
            }
            slices.into_iter().reduce(|sum, slice| sum + slice).unwrap()
        });
        let product = Activations::new(&values, 1, 32).times(&weight, 32);
        for (n, (y, expected)) in product.iter().zip(expected).enumerate() {
            assert_eq!(y.to_bits(), expected.to_bits(), "{kind}, output {n}");
        }
    }
}

/// As above for float weights: lanes, a butterfly, slices.
#[test]
fn float_sums_take_elements_in_the_stated_order() {
    for (kind, vector) in [(WeightKind::F32, 4), (WeightKind::F16, 8), (WeightKind::Bf16, 8)] {
        let (n, k) = (9, 3001);
        let mut random = Random::named(7, kind.name());
        let weight = Weight::random(kind, n, k, &mut random);
        let values = random.floats(k, 1.0);
        let product = Activations::new(&values, 1, 32).times(&weight, 32);
        for (y, w) in product.iter().zip(weight.values.chunks_exact(k)) {
            let mut slices = [[0f32; 32]; 4];
            for (i, (w, x)) in w.iter().zip(&values).enumerate() {
                let sum = &mut slices[i / vector / 32 % 4][i / vector % 32];
                *sum = w.mul_add(*x, *sum);
            }
            let total = slices.map(|mut lanes| {
                for distance in [16, 8, 4, 2, 1] {
                    lanes = std::array::from_fn(|lane| lanes[lane] + lanes[lane ^ distance]);
                }
                lanes[0]
            });
            let expected = total.into_iter().reduce(|sum, slice| sum + slice).unwrap();
            assert_eq!(y.to_bits(), expected.to_bits(), "{kind}");
        }
    }
}

#[test]
fn segments_have_outputs_of_their_own() {
    for kind in [WeightKind::Q4K, WeightKind::Q8_0, WeightKind::F16] {
        let (k, rows) = (512, 5);
        let mut random = Random::named(3, kind.name());
        let weights: Vec<Weight> = [48, 5, 16, 33].map(|n| Weight::random(kind, n, k, &mut random)).into();
        let values = random.floats(rows * k, 1.0);
        for live in [5, 2, 0] {
            let activations = Activations::new(&values, rows, 32);
            // One output is part of wider rows, with a bias; one has a residual in place.
            let (wide, bias) = (Buffer::of_floats(&[7.0; 5 * 70]), Buffer::of_floats(&random.floats(5, 1.0)));
            let before = random.floats(rows * 16, 1.0);
            let residual = Buffer::of_floats(&before);
            let others = [Buffer::of_floats(&[7.0; 5 * 48]), Buffer::of_floats(&[7.0; 5 * 33])];
            let count = Buffer::of_integers(&[live]);
            let p = Linear {
                live: count.address(),
                segment1: LinearSegment {
                    bias: bias.address(),
                    ..segment(&weights[1], wide.address() + 80, 70)
                },
                segment2: LinearSegment {
                    add: residual.address(),
                    add_row: 16,
                    ..segment(&weights[2], residual.address(), 16)
                },
                segment3: segment(&weights[3], others[1].address(), 33),
                ..activations.params(&weights[0], &others[0], 48)
            };
            run(&p, 32);
            let products: Vec<Vec<f32>> =
                weights.iter().map(|weight| activations.times(weight, 32)).collect();
            let in_run = |row: usize| row < live as usize;
            for (i, y) in wide.floats().iter().enumerate() {
                let (row, column) = (i / 70, i % 70);
                let expected = match column {
                    20..25 if in_run(row) => products[1][row * 5 + column - 20] + bias.floats()[column - 20],
                    _ => 7.0,
                };
                assert_eq!(*y, expected, "{kind}, row {row}, column {column}");
            }
            for (i, y) in residual.floats().iter().enumerate() {
                let added = if in_run(i / 16) { products[2][i] + before[i] } else { before[i] };
                assert_eq!(*y, added);
            }
            for (out, (product, n)) in others.iter().zip([(&products[0], 48), (&products[3], 33)]) {
                for (i, y) in out.floats().iter().enumerate() {
                    assert_eq!(*y, if in_run(i / n) { product[i] } else { 7.0 });
                }
            }
        }
    }
}

#[test]
fn a_row_with_nan_spoils_itself_only() {
    for kind in [WeightKind::Q4_0, WeightKind::Q5K, WeightKind::Q6K, WeightKind::Bf16] {
        let (k, rows) = (256, 4);
        let mut random = Random::named(4, kind.name());
        let weight = Weight::random(kind, 20, k, &mut random);
        let mut values = random.floats(rows * k, 1.0);
        let clean = Activations::new(&values, rows, 32).times(&weight, 32);
        values[2 * k + 77] = -f32::NAN;
        let spoiled = Activations::new(&values, rows, 32).times(&weight, 32);
        for (i, (y, clean)) in spoiled.iter().zip(&clean).enumerate() {
            let expected = if i / 20 == 2 { f32::NAN.to_bits() } else { clean.to_bits() };
            assert_eq!(y.to_bits(), expected, "{kind}, row {}", i / 20);
        }
    }
}

#[test]
fn gathered_rows_are_the_reference_s() {
    for kind in WeightKind::ALL {
        let width = if kind.block_elements() == 1 { 515 } else { 768 };
        let mut random = Random::named(5, kind.name());
        let table = Weight::random(kind, 40, width, &mut random);
        let list = [39, 0, 40, 17, -1, 16, 5, 1000];
        let ids = Buffer::of_integers(&list);
        let (count, faults) = (Buffer::of_integers(&[6]), Buffer::of_integers(&[77]));
        let out = Buffer::of_floats(&vec![9.0; 8 * width]);
        let p = Embed {
            ids: ids.address(),
            table: table.packed.address(),
            out: out.address(),
            faults: faults.address(),
            live: count.address(),
            rows: 8,
            width: width as u32,
            entries: 40,
            kind: kind.gguf_id(),
        };
        run(&p, 64);
        assert_eq!(faults.integers(), [2]);
        for (row, (out, &id)) in out.floats().chunks_exact(width).zip(&list).enumerate() {
            let id = usize::try_from(id).ok().filter(|&id| id < 40);
            let expected: &[f32] = match id {
                _ if row >= 6 => &vec![9.0; width],
                Some(id) => &table.values[id * width..][..width],
                None => &vec![0.0; width],
            };
            assert_eq!(out, expected, "{kind}, row {row}");
        }
    }
}
