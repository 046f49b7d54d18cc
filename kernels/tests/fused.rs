//! Fused kernels against the launches that they replace, bit by bit.
#![cfg(feature = "host")]

mod support;

use paceline_conformance::random::Random;
use paceline_kernels::params::View;
use paceline_kernels::params::elementwise::{Glu, activation};
use paceline_kernels::params::fused::{GluQuantize, NormQuantize};
use paceline_kernels::params::linear::{Quantize, quantized_bytes};
use paceline_kernels::params::norms::{AddRmsNorm, RmsNorm};
use support::{Buffer, WAVES, run};

const ROWS: usize = 10;
const LIVE: usize = 9;
/// Short and long rows, whole and odd pairs of blocks.
const WIDTHS: [usize; 5] = [32, 64, 992, 1056, 4096];

fn quantized_words(width: usize) -> usize {
    quantized_bytes(ROWS as u32, width as u32) as usize / 4
}

fn quantize(x: &Buffer, width: usize, live: &Buffer, wave: u32) -> Buffer {
    let out = Buffer::garbage(quantized_words(width), 0);
    let p = Quantize {
        x: x.address(),
        out: out.address(),
        live: live.address(),
        rows: ROWS as u32,
        k: width as u32,
        x_row: width as u32,
        ..Default::default()
    };
    run(&p, wave);
    out
}

/// Rows with a block of zeros and one with a NaN.
fn rows(width: usize, random: &mut Random) -> Buffer {
    let mut values = random.floats(ROWS * width, 2.0);
    values[width..width + 32].fill(0.0);
    values[3 * width + 5] = f32::NAN;
    Buffer::of_floats(&values)
}

#[test]
fn a_norm_that_is_quantised_has_the_bits_of_two_launches() {
    for width in WIDTHS {
        for (wave, (with_sum, with_weight)) in
            WAVES.into_iter().zip([(true, false), (false, true), (true, true)])
        {
            let mut random = Random::named(width as u64, "norm");
            let (x, y) = (rows(width, &mut random), rows(width, &mut random));
            let weight = Buffer::of_floats(&random.floats(width, 1.0));
            let live = Buffer::of_integers(&[LIVE as i32]);
            let view = |buffer: &Buffer| buffer.view(1, width as u32);
            let weight_address = if with_weight { weight.address() } else { 0 };
            let (norm, sum) = (Buffer::garbage(ROWS * width, 0), Buffer::garbage(ROWS * width, 0));
            if with_sum {
                let p = AddRmsNorm {
                    x: view(&x),
                    y: view(&y),
                    sum: view(&sum),
                    out: view(&norm),
                    weight: weight_address,
                    live: live.address(),
                    rows: ROWS as u32,
                    width: width as u32,
                    epsilon: 1e-6,
                    ..Default::default()
                };
                run(&p, wave);
            } else {
                let p = RmsNorm {
                    x: view(&x),
                    out: view(&norm),
                    weight: weight_address,
                    live: live.address(),
                    rows: ROWS as u32,
                    items: 1,
                    width: width as u32,
                    epsilon: 1e-6,
                    ..Default::default()
                };
                run(&p, wave);
            }
            let expected = quantize(&norm, width, &live, wave);

            let (fused_norm, fused_sum) =
                (Buffer::garbage(ROWS * width, 0), Buffer::garbage(ROWS * width, 0));
            let quantized = Buffer::garbage(quantized_words(width), 0);
            let p = NormQuantize {
                x: view(&x),
                y: if with_sum { view(&y) } else { View::default() },
                sum: if with_sum { view(&fused_sum) } else { View::default() },
                out: view(&fused_norm),
                weight: weight_address,
                quantized: quantized.address(),
                live: live.address(),
                rows: ROWS as u32,
                width: width as u32,
                epsilon: 1e-6,
                ..Default::default()
            };
            run(&p, wave);
            assert_eq!(quantized.bits(), expected.bits(), "{width}");
            assert_eq!(fused_norm.bits(), norm.bits(), "{width}");
            assert_eq!(fused_sum.bits(), sum.bits(), "{width}");
            let alone = Buffer::garbage(quantized_words(width), 0);
            run(&NormQuantize { out: View::default(), quantized: alone.address(), ..p }, wave);
            assert_eq!(alone.bits(), expected.bits(), "{width}");
        }
    }
}

#[test]
fn a_gate_that_is_quantised_has_the_bits_of_two_launches() {
    for (width, kind) in WIDTHS
        .into_iter()
        .zip([activation::SILU, activation::GELU_TANH, activation::GELU].into_iter().cycle())
    {
        let mut random = Random::named(width as u64, "glu");
        let (gate, up) = (rows(width, &mut random), rows(width, &mut random));
        let live = Buffer::of_integers(&[LIVE as i32]);
        let product = Buffer::garbage(ROWS * width, 0);
        let view = |buffer: &Buffer| buffer.view(1, width as u32);
        let p = Glu {
            gate: view(&gate),
            up: view(&up),
            out: view(&product),
            live: live.address(),
            rows: ROWS as u32,
            items: 1,
            width: width as u32,
            kind,
        };
        run(&p, 32);
        let quantized = Buffer::garbage(quantized_words(width), 0);
        let fused = GluQuantize {
            gate: view(&gate),
            up: view(&up),
            quantized: quantized.address(),
            live: live.address(),
            rows: ROWS as u32,
            width: width as u32,
            kind,
            ..Default::default()
        };
        run(&fused, 64);
        assert_eq!(quantized.bits(), quantize(&product, width, &live, 32).bits(), "{width}");
    }
}
