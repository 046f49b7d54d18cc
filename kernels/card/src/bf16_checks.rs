//! Products in bf16 on the card against the host's plain form: near to it, and the same bits in any company.

use crate::checks::{Both, run};
use crate::driver::Card;
use crate::samples;
use paceline_conformance::random::Random;
use paceline_kernels::layout::WeightKind;
use paceline_kernels::params::Launch;
use paceline_kernels::params::linear::{Linear, LinearSegment, Quantize, bf16_bytes};

/// Outputs of both segments: several groups of weights, and a part of one.
const OUTPUTS: [usize; 2] = [277, 40];
/// How far results may be from the host's, as a part of the root mean square of all: weights that lie between two bf16 may
/// become either.
const TOLERANCE: f64 = 4e-3;

/// Weights and what is added.
struct Sample {
    kind: WeightKind,
    k: usize,
    weights: [Both; 2],
    bias: Both,
    values: Vec<f32>,
    add: Vec<f32>,
}

/// What a launch of one form gives on the card, and the host's results.
type Results = [Vec<f32>; 2];

impl Sample {
    fn new(kind: WeightKind, k: usize, rows: usize) -> Self {
        let mut random = Random::named(k as u64, kind.name());
        let weights = OUTPUTS.map(|n| Both::of(&samples::packed(kind, n, k, &mut random)));
        let bias = Both::of(&random.floats(OUTPUTS[1], 1.0));
        let values = random.floats(rows * k, 1.0);
        let add = random.floats(rows * OUTPUTS[1], 1.0);
        Self { kind, k, weights, bias, values, add }
    }

    /// The first `live` rows in a launch for `rows`, in the form with so many rows a group.
    fn run(&self, card: &Card, live: usize, rows: usize, form: usize) -> Result<Results, String> {
        let k = self.k;
        let x = Both::of(&self.values[..live * k]);
        let add = Both::of(&self.add[..live * OUTPUTS[1]]);
        let count = Both::of(&[live as i32]);
        let quantized = Both::of(&vec![0u8; bf16_bytes(rows as u32, k as u32) as usize]);
        let bf16_groups = rows.div_ceil(8) as u32;
        run(card, |on_card| Quantize {
            x: x.address(on_card),
            out: quantized.address(on_card),
            live: count.address(on_card),
            rows: rows as u32,
            k: k as u32,
            x_row: k as u32,
            bf16_groups,
        });
        if quantized.differences() > 0 {
            return Err(format!("{} bytes of rows in bf16 differ", quantized.differences()));
        }
        let outs = OUTPUTS.map(|n| Both::of(&vec![f32::MAX; rows * n]));
        let make = |on_card: bool| {
            let segment = |i: usize| LinearSegment {
                weight: self.weights[i].address(on_card),
                out: outs[i].address(on_card),
                n: OUTPUTS[i] as u32,
                out_row: OUTPUTS[i] as u32,
                kind: self.kind.gguf_id(),
                ..Default::default()
            };
            Linear {
                x: quantized.address(on_card),
                live: count.address(on_card),
                segment0: segment(0),
                segment1: LinearSegment {
                    bias: self.bias.address(on_card),
                    add: add.address(on_card),
                    add_row: OUTPUTS[1] as u32,
                    ..segment(1)
                },
                k: k as u32,
                rows: rows as u32,
                bf16_groups,
                ..Default::default()
            }
        };
        let launch: Launch = make(true).bf16_launches()[form];
        card.launch_as(&launch, &make(true), None);
        card.wait();
        crate::checks::run_on_host(&make(false));
        for (out, n) in outs.iter().zip(OUTPUTS) {
            let (host, card) = out.floats();
            if card[live * n..].iter().any(|&value| value != f32::MAX) {
                return Err("rows that are not live were written".into());
            }
            let (host, card) = (&host[..live * n], &card[..live * n]);
            let square = |value: f64| value * value;
            let size = (host.iter().map(|&y| square(y.into())).sum::<f64>() / host.len() as f64).sqrt();
            let worst = host.iter().zip(card).map(|(&a, &b)| (f64::from(a) - f64::from(b)).abs());
            let worst =
                worst.fold(0.0, |worst: f64, error| if error <= worst { worst } else { error }) / size;
            if worst.is_nan() || worst > TOLERANCE {
                return Err(format!("off by {worst:.1e} of the results' size"));
            }
        }
        Ok(outs.map(|out| out.floats().1))
    }
}

/// Checks a kind; says what is wrong.
pub fn run_kind(card: &Card, kind: WeightKind) -> Result<(), String> {
    let widths: &[usize] = if kind.block_elements() == 256 { &[256, 2304] } else { &[32, 288, 2336] };
    for &k in widths {
        let sample = Sample::new(kind, k, 301);
        let all = sample.run(card, 301, 333, 0).map_err(|what| format!("{k} wide, 128 a group: {what}"))?;
        for (live, rows, form) in [(301, 333, 1), (3, 90, 0), (129, 300, 1)] {
            let others = sample
                .run(card, live, rows, form)
                .map_err(|what| format!("{k} wide, {live} of {rows}: {what}"))?;
            for ((all, other), n) in all.iter().zip(&others).zip(OUTPUTS) {
                let same = all.iter().zip(&other[..live * n]).all(|(a, b)| a.to_bits() == b.to_bits());
                if !same {
                    return Err(format!("{k} wide: rows of {live} of {rows} have other bits"));
                }
            }
        }
    }
    Ok(())
}
