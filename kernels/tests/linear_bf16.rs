//! Rows and products in bf16, in the plain form that runs on the host.
#![cfg(feature = "host")]

mod support;

use paceline_conformance::random::Random;
use paceline_kernels::layout::WeightKind;
use paceline_kernels::params::linear::{Linear, LinearSegment, Quantize, bf16_bytes};
use support::weights::{Weight, random_row, segment, widths};
use support::{Buffer, run};

/// The nearest bf16, ties to even, as f32.
fn bf16(value: f32) -> f32 {
    half::bf16::from_f32(value).to_f32()
}

/// Rows in bf16, of `rows` at most.
fn in_bf16(values: &[f32], k: usize, rows: usize) -> (Buffer, u32) {
    let bf16_groups = rows.div_ceil(8) as u32;
    let out = Buffer::garbage(bf16_bytes(rows as u32, k as u32) as usize / 4, 0);
    let x = Buffer::of_floats(values);
    let live = Buffer::of_integers(&[(values.len() / k) as i32]);
    let p = Quantize {
        x: x.address(),
        out: out.address(),
        live: live.address(),
        rows: rows as u32,
        k: k as u32,
        x_row: k as u32,
        bf16_groups,
    };
    run(&p, 32);
    (out, bf16_groups)
}

#[test]
fn activations_become_bf16_where_warpgroups_read_them() {
    let (rows, k) = (11, 96);
    let mut values = Random::new(8).floats(rows * k, 3.0);
    // Ties, what is not finite, what is not normal, what becomes infinite.
    for (at, bits) in
        [0x3f80_8000, 0x3f81_8000, 0x7f80_0001, 0xff80_0000, 0x0000_8001, 0x8000_0000, 0x7f7f_ffff]
            .into_iter()
            .enumerate()
    {
        values[k + at] = f32::from_bits(bits);
    }
    let (out, groups) = in_bf16(&values, k, rows);
    let bytes = out.bytes(usize::MAX);
    for r in 0..rows {
        for e in 0..k.next_multiple_of(64) {
            let [step, within, r8] = [e / 64, e % 16, r % 8];
            let chunk = (e % 64 / 16 * 2 + usize::from(within % 4 >= 2)) ^ r8;
            let at = (step * groups as usize + r / 8) * 1024
                + r8 * 128
                + chunk * 16
                + within / 4 * 4
                + within % 2 * 2;
            let found = half::bf16::from_le_bytes([bytes[at], bytes[at + 1]]);
            let expected = half::bf16::from_f32(if e < k { values[r * k + e] } else { 0.0 });
            let is_same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(is_same, "row {r}, element {e}: {found} for {expected}");
        }
    }
}

/// The plain form, which stands for that of tensor cores in tests: both multiply weights and activations in bf16 and add in f32.
#[test]
fn products_in_bf16_are_those_of_rounded_values() {
    for kind in WeightKind::ALL.into_iter().filter(|kind| kind.is_quantized()) {
        for &k in widths(kind) {
            let mut random = Random::named(k as u64, kind.name());
            let weights = [21, 130].map(|n| Weight::random(kind, n, k, &mut random));
            let (most, rows) = (300, if k < 1000 { 150 } else { 3 });
            let values = random.floats(rows * k, 1.0);
            let product = |rows: usize, most: usize| {
                let (x, bf16_groups) = in_bf16(&values[..rows * k], k, most);
                let outs = [21, 130].map(|n| Buffer::garbage(most * n, 0));
                let (bias, add) = (random_row(130), random_row(most * 130));
                let live = Buffer::of_integers(&[rows as i32]);
                let p = Linear {
                    x: x.address(),
                    live: live.address(),
                    segment0: segment(&weights[0], outs[0].address(), 21),
                    segment1: LinearSegment {
                        bias: bias.address(),
                        add: add.address(),
                        add_row: 130,
                        ..segment(&weights[1], outs[1].address(), 130)
                    },
                    k: k as u32,
                    rows: most as u32,
                    bf16_groups,
                    ..Default::default()
                };
                run(&p, 32);
                (outs.map(|out| out.floats()), bias.floats(), add.floats())
            };
            let (found, bias, add) = product(rows, most);
            for (i, (weight, found)) in weights.iter().zip(&found).enumerate() {
                for (at, y) in found[..rows * weight.n].iter().enumerate() {
                    let (r, n) = (at / weight.n, at % weight.n);
                    let terms = values[r * k..][..k].iter().zip(&weight.values[n * k..][..k]);
                    let terms = terms.map(|(&x, &w)| f64::from(bf16(x)) * f64::from(bf16(w)));
                    let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t * t));
                    let more = if i == 1 { f64::from(bias[n]) + f64::from(add[at]) } else { 0.0 };
                    let error = (f64::from(*y) - sum - more).abs();
                    assert!(error <= 3e-4 * size.sqrt() + 1e-6, "{kind} {k}, row {r}, output {n}: {error}");
                }
            }
            // A row has the same bits in a launch of groups of 128 rows.
            let (few, _, _) = product(2, 100);
            for (few, found) in few.iter().zip(&found) {
                let n = few.len() / 100;
                assert!(
                    few[..2 * n].iter().zip(found).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{kind} {k}"
                );
            }
        }
    }
}
