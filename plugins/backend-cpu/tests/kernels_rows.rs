//! Kernels on rows: against f64, the same bits at every level and for every split of work.

mod kernels_support;

use kernels_support::{Random, WIDTHS, assert_close, at_all_levels, bits, filled, halves};
use paceline_backend_cpu::kernels::SharedSlice;
use paceline_backend_cpu::kernels::argmax::argmax;
use paceline_backend_cpu::kernels::elementwise::{add, mul, scale};
use paceline_backend_cpu::kernels::norm::{RmsNorm, l2_norm, rms_norm};
use paceline_backend_cpu::kernels::rope::{Rope, RopeFrequencies, RopePairing, rope};
use paceline_backend_cpu::kernels::rows::{copy, copy_columns, select_rows, store_rows};
use paceline_backend_cpu::kernels::softmax::softmax;
use paceline_backend_cpu::kernels::top_k::{TopKOut, top_k};
use paceline_backend_cpu::level::Level;

const ROWS: usize = 5;

#[test]
fn rms_norm_of_rows() {
    let mut random = Random(1);
    for width in WIDTHS {
        let x = random.floats(ROWS * width, 3.0);
        let weight = random.floats(width, 2.0);
        let gate = random.floats(ROWS * width, 4.0);
        for (weight, gate) in [(None, None), (Some(&weight[..]), None), (Some(&weight[..]), Some(&gate[..]))]
        {
            let work = RmsNorm { x: &x, width, weight, gate, epsilon: 1e-6 };
            let result = at_all_levels(|level| {
                filled(x.len(), |out| {
                    for rows in halves(ROWS) {
                        // SAFETY: one thread.
                        unsafe { rms_norm(level, &work, out, rows) };
                    }
                })
            });
            let expected: Vec<f64> = (0..x.len())
                .map(|i| {
                    let row = &x[i / width * width..][..width];
                    let mean = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / width as f64;
                    let weight = weight.map_or(1.0, |weight| f64::from(weight[i % width]));
                    let gate =
                        gate.map_or(1.0, |gate| f64::from(gate[i]) / (1.0 + (-f64::from(gate[i])).exp()));
                    f64::from(x[i]) / (mean + 1e-6).sqrt() * weight * gate
                })
                .collect();
            assert_close(&result, &expected, 1e-6);
            // A row alone.
            let alone = RmsNorm { x: &x[2 * width..3 * width], gate: gate.map(|g| &g[2 * width..]), ..work };
            // SAFETY: one thread.
            let alone = filled(width, |out| unsafe { rms_norm(Level::detect(), &alone, out, 0..1) });
            assert_eq!(bits(&alone), bits(&result[2 * width..3 * width]));
        }
    }
}

#[test]
fn l2_norm_of_rows() {
    let mut random = Random(2);
    for width in WIDTHS {
        let x = random.floats(ROWS * width, 3.0);
        let result = at_all_levels(|level| {
            filled(x.len(), |out| {
                for rows in halves(ROWS) {
                    // SAFETY: one thread.
                    unsafe { l2_norm(level, &x, width, 1e-6, out, rows) };
                }
            })
        });
        let norm = |i: usize| {
            let row = &x[i / width * width..][..width];
            (row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() + 1e-6).sqrt()
        };
        let expected: Vec<f64> = (0..x.len()).map(|i| f64::from(x[i]) / norm(i)).collect();
        assert_close(&result, &expected, 1e-6);
    }
}

#[test]
fn arithmetic_repeats_the_second_operand() {
    let mut random = Random(3);
    for width in WIDTHS {
        let a = random.floats(ROWS * width, 3.0);
        for count in [1, width, ROWS * width] {
            let b = random.floats(count, 3.0);
            for product in [false, true] {
                let result = at_all_levels(|level| {
                    filled(a.len(), |out| {
                        for range in halves(a.len()) {
                            // SAFETY: one thread.
                            unsafe {
                                if product {
                                    mul(level, &a, &b, out, range);
                                } else {
                                    add(level, &a, &b, out, range);
                                }
                            }
                        }
                    })
                });
                let expected: Vec<f32> = (0..a.len())
                    .map(|i| if product { a[i] * b[i % count] } else { a[i] + b[i % count] })
                    .collect();
                assert_eq!(bits(&result), bits(&expected));
            }
        }
        let expected: Vec<f32> = a.iter().map(|a| a * 0.3).collect();
        // SAFETY: one thread.
        let run = |level| filled(a.len(), |out| unsafe { scale(level, &a, 0.3, out, 0..a.len()) });
        assert_eq!(bits(&at_all_levels(run)), bits(&expected));
    }
}

#[test]
fn softmax_of_rows() {
    let mut random = Random(4);
    for width in WIDTHS.into_iter().chain([5003]) {
        let mut x = random.floats(ROWS * width, 20.0);
        if width > 1 {
            x[width] = f32::NEG_INFINITY;
        }
        let result = at_all_levels(|level| {
            filled(x.len(), |out| {
                for rows in halves(ROWS) {
                    // SAFETY: one thread.
                    unsafe { softmax(level, &x, width, out, rows) };
                }
            })
        });
        let sum = |i: usize| x[i / width * width..][..width].iter().map(|&x| f64::from(x).exp()).sum::<f64>();
        let expected: Vec<f64> = (0..x.len()).map(|i| f64::from(x[i]).exp() / sum(i)).collect();
        assert_close(&result, &expected, 1e-6);
    }
}

fn argmax_at(level: Level, x: &[f32], width: usize) -> (Vec<i32>, Vec<u32>) {
    let rows = x.len() / width;
    let (mut ids, mut nans) = (vec![-1; rows], vec![9; rows]);
    let (to, flags) = (SharedSlice::new(&mut ids), SharedSlice::new(&mut nans));
    for rows in halves(rows) {
        // SAFETY: one thread.
        unsafe { argmax(level, x, width, to, flags, rows) };
    }
    (ids, nans)
}

#[test]
fn argmax_takes_the_lowest_of_equals_and_flags_nan() {
    let mut random = Random(5);
    for level in Level::available() {
        for width in WIDTHS.into_iter().chain([1000]) {
            // Few values, so that equals abound.
            let x: Vec<f32> = (0..8 * width).map(|_| random.below(40) as f32 - 50.0).collect();
            let (ids, nans) = argmax_at(level, &x, width);
            for (row, x) in x.chunks(width).enumerate() {
                let best = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                assert_eq!(ids[row], x.iter().position(|&x| x == best).unwrap() as i32);
                assert_eq!(nans[row], 0);
            }
            for at in [0, width / 2, width - 1] {
                let mut with_nan = x[..width].to_vec();
                with_nan[at] = f32::NAN;
                assert_eq!(argmax_at(level, &with_nan, width), (vec![-1], vec![1]));
            }
            let nothing = vec![f32::NEG_INFINITY; width];
            assert_eq!(argmax_at(level, &nothing, width), (vec![0], vec![0]));
        }
        assert_eq!(argmax_at(level, &[-0.0, 0.0], 2), (vec![0], vec![0]));
        assert_eq!(argmax_at(level, &[1.0, f32::INFINITY, f32::INFINITY], 3), (vec![1], vec![0]));
    }
}

#[test]
fn top_k_sorts_like_a_stable_sort() {
    let mut random = Random(6);
    for level in Level::available() {
        for (width, count) in [(1, 1), (7, 7), (33, 4), (1000, 40), (1000, 0), (300, 300), (70, 1)] {
            let mut x: Vec<f32> = (0..2 * width).map(|_| random.below(200) as f32 - 100.0).collect();
            x[width / 2] = f32::NAN;
            let (mut values, mut ids, mut nans) = (vec![0.0; 2 * count], vec![0; 2 * count], vec![9; 2]);
            let to = TopKOut {
                values: SharedSlice::new(&mut values),
                ids: SharedSlice::new(&mut ids),
                nans: SharedSlice::new(&mut nans),
            };
            // SAFETY: one thread.
            unsafe { top_k(level, &x, width, count, &to, 0..2) };
            assert_eq!(nans, [1, 0]);
            for (row, x) in x.chunks(width).enumerate() {
                let mut order: Vec<usize> = (0..width).collect();
                let rank = |i: usize| if x[i].is_nan() { f32::NEG_INFINITY } else { x[i] };
                order.sort_by(|&a, &b| rank(b).total_cmp(&rank(a)));
                let expected: Vec<i32> = order[..count].iter().map(|&i| i as i32).collect();
                assert_eq!(&ids[row * count..(row + 1) * count], expected);
                let expected: Vec<f32> = order[..count].iter().map(|&i| x[i]).collect();
                assert_eq!(bits(&values[row * count..(row + 1) * count]), bits(&expected));
            }
        }
    }
}

#[test]
fn rope_turns_pairs_and_passes_the_rest() {
    let mut random = Random(7);
    let (heads, base) = (3, 1e4);
    let shapes = [(2, 2), (7, 6), (80, 80), (256, 64), (64, 0), (128, 100)];
    for ((width, rotary), (divisor, with_factors)) in
        shapes.into_iter().zip([(1.0, false), (1.0, true), (4.0, false), (4.0, true)].into_iter().cycle())
    {
        let frequencies = RopeFrequencies::new(rotary, base, divisor);
        let factors: Vec<f32> = (0..rotary / 2).map(|pair| 1.0 + pair as f32 * 0.25).collect();
        let factors = with_factors.then_some(factors.as_slice());
        let positions = [0, 1, 99, 50, 100_000];
        let pairs = frequencies.pairs();
        let (mut cosines, mut sines) = (vec![0.0; 5 * pairs], vec![0.0; 5 * pairs]);
        for (row, &position) in positions.iter().enumerate() {
            let span = row * pairs..(row + 1) * pairs;
            frequencies.angles(position, factors, &mut cosines[span.clone()], &mut sines[span]);
        }
        let x = random.floats(positions.len() * heads * width, 2.0);
        for pairing in [RopePairing::Halves, RopePairing::Adjacent] {
            let work = Rope { x: &x, heads, width, pairs, cosines: &cosines, sines: &sines, pairing };
            let result = at_all_levels(|level| {
                filled(x.len(), |out| {
                    for items in halves(positions.len() * heads) {
                        // SAFETY: one thread.
                        unsafe { rope(level, &work, out, items) };
                    }
                })
            });
            let mut expected: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
            for (item, head) in expected.chunks_mut(width).enumerate() {
                for pair in 0..pairs {
                    let slower = divisor * factors.map_or(1.0, |factors| f64::from(factors[pair]));
                    let frequency = base.powf(-2.0 * pair as f64 / rotary as f64) / slower;
                    let (sine, cosine) = (f64::from(positions[item / heads]) * frequency).sin_cos();
                    let (a, b) = match pairing {
                        RopePairing::Halves => (pair, pair + rotary / 2),
                        RopePairing::Adjacent => (2 * pair, 2 * pair + 1),
                    };
                    let (x, y) = (head[a], head[b]);
                    (head[a], head[b]) = (x * cosine - y * sine, x * sine + y * cosine);
                }
            }
            assert_close(&result, &expected, 1e-6);
        }
    }
}

#[test]
fn rows_are_copied() {
    let x: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let rows = [3, -1, 0, 4, 1];
    let mut outside = 0;
    let out = filled(15, |out| {
        for range in halves(5) {
            // SAFETY: one thread.
            outside += unsafe { select_rows(&x, 3, &rows, out, range) };
        }
    });
    assert_eq!(outside, 2);
    assert_eq!(out, [9., 10., 11., 0., 0., 0., 0., 1., 2., 0., 0., 0., 3., 4., 5.]);
    // SAFETY: one thread.
    assert_eq!(filled(12, |out| unsafe { copy(&x, out, 0..12) }), x);
    let swapped = filled(12, |out| {
        // SAFETY: one thread.
        unsafe {
            copy_columns(&x, (3, 0), out, (3, 2), 1, 0..4);
            copy_columns(&x, (3, 1), out, (3, 0), 2, 0..4);
        }
    });
    assert_eq!(swapped, [1., 2., 0., 4., 5., 3., 7., 8., 6., 10., 11., 9.]);
}

#[test]
fn rows_are_stored_in_their_order() {
    let x: Vec<f32> = (0..15).map(|i| i as f32).collect();
    let mut state = vec![-1.0; 12];
    for columns in halves(3) {
        // SAFETY: one thread.
        unsafe { store_rows(&x, 3, &[2, -1, 4, 0, 2], SharedSlice::new(&mut state), columns) };
    }
    assert_eq!(state, [9., 10., 11., -1., -1., -1., 12., 13., 14., -1., -1., -1.]);
}
