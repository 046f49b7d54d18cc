//! Times of products, as a part of what a copy moves.

use crate::driver::{Buffer, Card};
use crate::samples;
use paceline_conformance::random::Random;
use paceline_kernels::layout::{self, WeightKind};
use paceline_kernels::params::Parameters;
use paceline_kernels::params::linear::{Linear, LinearSegment, Quantize, bf16_bytes};

/// Outputs and width, where nothing else is asked for.
pub const SHAPES: [(usize, usize); 6] =
    [(4096, 4096), (6144, 4096), (12288, 4096), (24576, 4096), (4096, 12288), (151_936, 4096)];
/// Most rows that are timed.
pub const MOST_ROWS: usize = 2048;
/// Rows that are timed where nothing else is asked for.
pub const ROWS: [usize; 5] = [1, 4, 8, 16, 512];
/// Bytes of weights that launches go through before they come to the first again: several times the L2 cache.
const WORKING_SET: usize = 512 << 20;
const REPLAYS: usize = 15;

/// Times all shapes of the named kinds.
pub fn run(card: &mut Card, kinds: &str, rows: &[usize], shapes: &[(usize, usize)], variants: &[String]) {
    let copied = 2usize << 30;
    let (from, to) = (Buffer::new(copied), Buffer::new(copied));
    let copy = 2.0 * copied as f64 / card.time_copy(&to, &from);
    println!("copy {:.0} GB/s, bytes read and written", copy / 1e9);
    drop((from, to));
    println!("kind        n      k rows  variant                 us      GB/s  of copy  us apart  TOPS");
    for name in kinds.split(',') {
        let Some(kind) = WeightKind::ALL.into_iter().find(|kind| kind.name() == name) else {
            eprintln!("{name} is no kind of weights");
            continue;
        };
        for &(n, k) in shapes {
            shape(card, kind, [n, k], rows, copy, variants);
        }
    }
}

fn shape(
    card: &mut Card,
    kind: WeightKind,
    [n, k]: [usize; 2],
    rows: &[usize],
    copy: f64,
    variants: &[String],
) {
    let mut random = Random::new(1);
    let bytes = layout::packed_bytes(kind, n, k).expect("the shape suits the kind");
    let stride = bytes.next_multiple_of(layout::ALIGNMENT);
    let copies = (WORKING_SET / stride).clamp(2, 64);
    // Rows of one size only repeat; their values are random enough.
    let weights = Buffer::repeating(&samples::packed(kind, 256, k, &mut random), copies * stride);
    let most = MOST_ROWS;
    let x = Buffer::of(&random.floats(most * k, 1.0));
    let quantized = Buffer::new(bf16_bytes(most as u32, k as u32) as usize);
    let out = Buffer::new(4 * most * n);
    let has_bf16 = kind.is_quantized() && card.function("linear_q8_0_bf16_128", None).is_some();
    let forms = rows.iter().flat_map(|&rows| {
        let bf16 = (has_bf16 && rows > 64).then_some(rows.div_ceil(8) as u32);
        [Some(0), bf16].into_iter().flatten().map(move |groups| (rows, groups))
    });
    for (rows, bf16_groups) in forms {
        let quantize = Quantize {
            x: x.address(),
            out: quantized.address(),
            rows: rows as u32,
            k: k as u32,
            x_row: k as u32,
            bf16_groups,
            ..Default::default()
        };
        if kind.is_quantized() {
            card.launch(&quantize, None);
            card.wait();
        }
        let product = |copy: usize| Linear {
            x: if kind.is_quantized() { quantized.address() } else { x.address() },
            segment0: LinearSegment {
                weight: weights.address() + (copy * stride) as u64,
                out: out.address(),
                n: n as u32,
                out_row: n as u32,
                kind: kind.gguf_id(),
                ..Default::default()
            },
            k: k as u32,
            rows: rows as u32,
            x_row: k as u32,
            bf16_groups,
            ..Default::default()
        };
        let mut line = |variant: Option<&str>| {
            let launch = product(0).launch();
            if card.function(launch.entry, variant).is_none() {
                return;
            }
            let mut seconds = |overlap: bool| {
                card.overlap = overlap;
                let launches = if rows > 16 { 4 } else { copies };
                let all = card
                    .time(REPLAYS, || (0..launches).for_each(|i| card.launch(&product(i % copies), variant)));
                card.overlap = false;
                all / launches as f64
            };
            let (apart, overlapping) = (seconds(false), seconds(true));
            let rate = bytes as f64 / overlapping;
            println!(
                "{:6} {n:6} {k:6} {rows:4}  {:20} {:8.2}  {:8.0}  {:5.1} %  {:8.2}  {:4.0}",
                kind.name(),
                variant.map_or(if bf16_groups > 0 { "bf16" } else { "" }, |path| {
                    path.rsplit('/').next().unwrap_or(path)
                }),
                overlapping * 1e6,
                rate / 1e9,
                100.0 * rate / copy,
                apart * 1e6,
                2.0 * (n * k * rows) as f64 / overlapping / 1e12,
            );
        };
        line(None);
        for variant in variants {
            line(Some(variant));
        }
    }
}
